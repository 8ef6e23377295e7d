"""BERTopic: its backend gives the model's vectors, and topics really come out."""

from __future__ import annotations

import copy
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_model import TEXTS, small_model

from ensembed.errors import InputError, SentenceError

pytestmark = [
    # umap says so where TensorFlow is not installed; nothing here needs it.
    pytest.mark.filterwarnings("ignore:Tensorflow not installed:ImportWarning"),
]
NAME = "demo?dim=64&seed=1"
WORDS = {
    "pets": ("dog", "cat", "puppy", "kitten", "fur", "tail"),
    "money": ("stock", "price", "market", "bank", "share", "profit"),
    "weather": ("rain", "cloud", "storm", "wind", "snow", "fog"),
}
DOCUMENTS = [" ".join(three) for words in WORDS.values() for three in itertools.combinations(words, 3)]


@pytest.fixture(scope="module")
def backend_class() -> Any:  # noqa: ANN401 - BERTopic takes long to import, and has no types
    """The backend: BERTopic is imported by a test, not when tests are collected.

    numba takes twenty seconds to compile what then takes a tenth of one; interpreted it takes two.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_DISABLE_JIT", "1")
        from ensembed.integrations.bertopic import EnsembedBackend

    return EnsembedBackend


@pytest.fixture(scope="module")
def topic_model(backend_class: Any) -> Any:  # noqa: ANN401 - BERTopic has no types
    from bertopic import BERTopic
    from hdbscan import HDBSCAN
    from umap import UMAP

    model = BERTopic(
        embedding_model=backend_class(NAME),
        umap_model=UMAP(
            n_neighbors=8, n_components=2, metric="cosine", init="random", n_epochs=50, random_state=0, n_jobs=1
        ),
        hdbscan_model=HDBSCAN(min_cluster_size=8),
    )
    model.fit(DOCUMENTS)
    return model


def test_backend_gives_the_vectors_of_the_model(backend_class: Any) -> None:  # noqa: ANN401 - BERTopic has no types
    model = small_model()
    backend = backend_class(model)
    expected = model.encode(TEXTS)
    for vectors in (
        backend.embed(TEXTS),
        backend.embed_documents(TEXTS, verbose=True),
        backend.embed_words(np.array(TEXTS, object)),
    ):
        assert vectors.dtype == np.float32
        assert vectors.tobytes() == expected.tobytes()
    assert backend.embed([]).shape == (0, 3)
    with pytest.raises(SentenceError, match="not a string"):
        backend.embed([None])


def test_bertopic_finds_the_topics(topic_model: Any) -> None:  # noqa: ANN401 - BERTopic has no types
    names = np.repeat(list(WORDS), len(DOCUMENTS) // len(WORDS))
    topics = np.array(topic_model.topics_)
    assert len(set(topics) - {-1}) >= len(WORDS)
    for topic in set(topics) - {-1}:
        assert len(set(names[topics == topic])) == 1, "a topic holds documents of one kind"
        (kind,) = set(names[topics == topic])
        assert {word for word, _ in topic_model.get_topic(topic)[:3]} <= set(WORDS[kind])
    (best, *_), _ = topic_model.find_topics("storm cloud rain")
    assert set(names[topics == best]) == {"weather"}


def test_pickled_backend_opens_its_model_again(
    backend_class: Any,  # noqa: ANN401 - BERTopic has no types
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = small_model()
    model.save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(backend_class("model"))
    monkeypatch.chdir("/")
    assert len(data) < 1000
    assert pickle.loads(data).embed(TEXTS).tobytes() == model.encode(TEXTS).tobytes()  # noqa: S301 - our own
    with pytest.raises(InputError, match=r"model\.save\(folder\)"):
        pickle.dumps(backend_class(model))
    assert copy.deepcopy(backend_class(model)).embed(TEXTS).tobytes() == model.encode(TEXTS).tobytes()


def test_saved_topic_model_loads_with_a_new_backend(topic_model: Any, backend_class: Any, tmp_path: Path) -> None:  # noqa: ANN401 - BERTopic has no types
    from bertopic import BERTopic

    topic_model.save(str(tmp_path / "topics"), serialization="safetensors", save_ctfidf=True)
    again = BERTopic.load(str(tmp_path / "topics"), embedding_model=backend_class(NAME))
    expected, _ = topic_model.find_topics("dog puppy")
    assert again.find_topics("dog puppy")[0] == expected
    topic_model.save(str(tmp_path / "pickled"))
    assert BERTopic.load(str(tmp_path / "pickled")).find_topics("dog puppy")[0] == expected


def test_model_reference_pickled_by_version_0_1_opens() -> None:
    data = (
        b"\x80\x04\x95d\x00\x00\x00\x00\x00\x00\x00\x8c\x1densembed.integrations.sources\x94\x8c\x06Source\x94\x93\x94)"
        b"\x81\x94}\x94(\x8c\x05given\x94\x8c\x11demo?dim=4&seed=1\x94\x8c\x07threads\x94N\x8c\x05trust\x94\x89ub."
    )
    assert pickle.loads(data).model.spec.name == "demo?dim=4&seed=1"  # noqa: S301 - our own
