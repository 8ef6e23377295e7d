"""The vectors of models on a corpus: members are encoded once, whoever asks for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ensembed import Ensemble, MetaEncoder
from ensembed.cli import main
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import MissingError
from ensembed.methods import SVD
from ensembed.models.model_vectors import model_vectors
from ensembed.search.groups.clusters import find_clusters
from ensembed.search.groups.duplicates import find_duplicates
from ensembed.testing import Recorder
from ensembed.views import ViewStore

NOUNS = ("dog", "cat", "man", "child")
TEXTS = [f"the {noun} {verb} {place}" for noun in NOUNS for verb in ("runs", "eats") for place in "abcdefgh"]
CORPUS = ListCorpus(TEXTS)


def manifests(store: ViewStore) -> int:
    return len(list(store.root.glob("*/*/manifest.json")))


def test_members_of_several_models_are_encoded_once(store: ViewStore) -> None:
    members = [Recorder(DemoEncoder(12, seed)) for seed in (1, 2, 3)]
    first = Ensemble(members[:2]).fit(TEXTS, SVD(dim=4))
    second = Ensemble(members[1:]).fit(TEXTS, SVD(dim=5))
    for member in members:
        member.seen.clear()
    models = [first, members[1], second]
    result = model_vectors(CORPUS, models, store)
    assert [len(member.seen) for member in members] == [len(TEXTS)] * 3
    for vectors, model in zip(result, models, strict=True):
        assert vectors.shape == (len(TEXTS), model.spec.dim)
        np.testing.assert_allclose(vectors[3:20], model.encode(TEXTS[3:20]), atol=1e-6)
    assert manifests(store) == 3


def test_stored_view_of_a_model_is_used(store: ViewStore) -> None:
    model = Ensemble(["demo?dim=8&seed=1", "demo?dim=8&seed=2"]).fit(TEXTS, SVD(dim=4))
    view = store.embed(CORPUS, model)
    [vectors] = model_vectors(CORPUS, [model], store, encode=False)
    assert vectors[:].tobytes() == view[:].tobytes()
    assert manifests(store) == 1


def test_nothing_is_encoded_if_only_stored_views_are_wanted(store: ViewStore) -> None:
    model = Ensemble(["demo?dim=8&seed=1", "demo?dim=8&seed=2"]).fit(TEXTS, SVD(dim=4))
    with pytest.raises(MissingError, match="not complete"):
        model_vectors(CORPUS, [model], store, encode=False)
    assert manifests(store) == 0
    [filled] = model_vectors(CORPUS, [model], store)
    [stored] = model_vectors(CORPUS, [model], store, encode=False)
    np.testing.assert_array_equal(stored[:], filled[:])


def test_vectors_that_can_vary_are_not_stored(store: ViewStore) -> None:
    fitted = Ensemble(["demo?dim=8&seed=1", "demo?dim=8&seed=2"]).fit(TEXTS, SVD(dim=4))
    model = MetaEncoder(fitted.ensemble, fitted.meta, missing="drop")
    [vectors] = model_vectors(CORPUS, [model], store)
    np.testing.assert_allclose(vectors[:], fitted.encode(TEXTS), atol=1e-6)
    assert manifests(store) == 0
    with pytest.raises(MissingError, match="not always the same"):
        model_vectors(CORPUS, [model], store, encode=False)


def test_commands_and_functions_share_the_views_that_fit_has_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, folder, store = tmp_path / "corpus.txt", str(tmp_path / "model"), ViewStore(tmp_path / "views")
    corpus.write_text("\n".join(TEXTS))
    where = ["--store", str(store.root)]
    members = ["demo?dim=12&seed=1", "demo?dim=12&seed=2"]
    assert main(["fit", str(corpus), "-e", members[0], "-e", members[1], "--out", folder, *where]) == 0
    assert manifests(store) == 2
    sample = ["--rows", "30", "--neighbours", "3"]
    assert main(["compare", folder, members[0], "--corpus", str(corpus), *sample, *where]) == 0, capsys.readouterr().err
    assert main(["reliability", str(corpus), "-e", folder, *where]) == 0, capsys.readouterr().err
    find_duplicates(corpus, folder, threshold=0.9, store=store)
    find_clusters(corpus, folder, clusters=2, store=store)
    assert manifests(store) == 2
