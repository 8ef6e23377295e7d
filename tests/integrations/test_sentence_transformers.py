"""A meta-encoder as a SentenceTransformer: everything that the library does with one, and folders both ways."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

import ensembed
from ensembed import Ensemble
from ensembed.encoders import Encoder, ObjectEncoder, open_encoder
from ensembed.errors import DimensionError, EncoderError, InputError, ModelError, SentenceError
from ensembed.integrations.model_card import escaped
from ensembed.integrations.sentence_transformers import load, to_sentence_transformer
from ensembed.integrations.st_modules import MetaEncoderModule
from ensembed.methods import GCCA, Concat
from ensembed.models.ensemble import MetaEncoder
from ensembed.numerics.row_matrices import unit_rows
from ensembed.testing import SENTENCES
from ensembed.views import ViewStore

Library: TypeAlias = Any  # the library's types are not read

NAMES = ["demo?dim=8&seed=1", "demo?dim=10&seed=2"]
TEXTS = [*SENTENCES, "", "a dog barks", "a dog barks"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MetaEncoder:
    store = ViewStore(tmp_path_factory.mktemp("views"))
    return Ensemble(NAMES).fit([f"{text} {i}" for i in range(9) for text in SENTENCES], GCCA(dim=16), store=store)


@pytest.fixture
def library(model: MetaEncoder) -> Library:
    return to_sentence_transformer(model, prompts={"query": "query: ", "document": "passage: "}, device="cpu")


class Lengths:
    """An encoder of a user's own."""

    def encode(self, sentences: list[str]) -> NDArray[np.float32]:
        return np.array([[len(s), s.count("a")] for s in sentences], np.float32)


class Unsendable(Lengths):
    def __reduce__(self) -> str:
        raise TypeError("it stays here")


def assert_same_vectors(vectors: NDArray[Any], expected: NDArray[Any]) -> None:
    """Allow for rounding: some BLAS kernels round a row differently in batches of other sizes."""
    assert np.shape(vectors) == np.shape(expected)
    atol = 1 if np.asarray(expected).dtype.kind in "iu" else 1e-6
    np.testing.assert_allclose(np.asarray(vectors, float), np.asarray(expected, float), rtol=1e-5, atol=atol)


# Encoding


def test_result_is_a_sentence_transformer(model: MetaEncoder, library: Library) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import InputModule

    assert isinstance(library, SentenceTransformer)
    assert isinstance(library[0], InputModule)
    assert library.get_embedding_dimension() == model.spec.dim == 16
    assert library.max_seq_length is None
    assert "gcca" in repr(library)


def test_encode_gives_the_vectors_of_the_model(model: MetaEncoder, library: Library) -> None:
    expected = model.encode(TEXTS)
    for batch_size in (1, 3, 32):
        assert_same_vectors(library.encode(TEXTS, batch_size=batch_size), expected)
    one = library.encode(TEXTS[0])
    assert one.shape == (16,)
    assert_same_vectors(one, expected[0])
    tensor = library.encode(TEXTS, convert_to_tensor=True)
    assert_same_vectors(tensor.numpy(), expected)
    assert len(library.encode([])) == 0


def test_queries_and_documents_have_prompts(model: MetaEncoder, library: Library) -> None:
    for encode, prompt in ((library.encode_query, "query: "), (library.encode_document, "passage: ")):
        assert_same_vectors(encode(TEXTS), model.encode([prompt + text for text in TEXTS]))
    plain = to_sentence_transformer(model)
    assert_same_vectors(plain.encode_query(TEXTS), model.encode(TEXTS))
    default = to_sentence_transformer(model, prompts={"x": "see "}, default_prompt_name="x")
    assert_same_vectors(default.encode(TEXTS), model.encode(["see " + text for text in TEXTS]))


def test_queries_and_documents_get_what_members_were_trained_with(tmp_path: Path) -> None:
    apart = Ensemble(["demo?dim=8&seed=1&query_prefix=query: &document_prefix=passage: ", "demo?dim=6&seed=2"])
    model = apart.fit([], Concat())
    model.save(tmp_path / "model")
    for transformer in (to_sentence_transformer(model), load(tmp_path / "model")):
        assert_same_vectors(transformer.encode_query(TEXTS), model.encode_query(TEXTS))
        assert_same_vectors(transformer.encode_document(TEXTS), model.encode_document(TEXTS))
        assert_same_vectors(transformer.encode(TEXTS), model.encode(TEXTS))
    prompted = to_sentence_transformer(model, prompts={"query": "ask: "})
    assert_same_vectors(prompted.encode_query(TEXTS), model.encode([f"ask: {text}" for text in TEXTS]))


def test_similarity_is_the_cosine(model: MetaEncoder, library: Library) -> None:
    rows = library.encode(TEXTS)
    cosines = library.similarity(rows, rows).numpy()
    np.testing.assert_allclose(cosines, model.similarity(TEXTS, TEXTS), atol=1e-6)
    np.testing.assert_allclose(
        library.similarity_pairwise(rows, rows[::-1].copy()).numpy(), cosines[:, ::-1].diagonal(), atol=1e-6
    )
    dot = to_sentence_transformer(model, similarity_fn_name="dot")
    np.testing.assert_allclose(dot.similarity(rows, rows).numpy(), rows @ rows.T, atol=1e-5)


def test_truncation_and_normalisation(model: MetaEncoder, library: Library) -> None:
    shorter = model.truncate(5).encode(TEXTS)
    assert_same_vectors(library.encode(TEXTS, truncate_dim=5), shorter)
    np.testing.assert_allclose(
        library.encode(TEXTS, truncate_dim=5, normalize_embeddings=True), unit_rows(shorter), atol=1e-6
    )
    always = to_sentence_transformer(model, truncate_dim=5)
    assert always.get_embedding_dimension() == 5
    assert_same_vectors(always.encode(TEXTS), shorter)


def test_truncation_keeps_all_members_of_a_concatenation(tmp_path: Path) -> None:
    texts = [f"{text} {i}" for i in range(20) for text in TEXTS]
    model = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"]).fit(texts, Concat())
    shorter = model.truncate(5).encode(TEXTS)
    library = to_sentence_transformer(model)
    np.testing.assert_allclose(library.encode(TEXTS, truncate_dim=5), shorter, atol=1e-6)
    with library.truncate_embeddings(5):
        np.testing.assert_allclose(library.encode_query(TEXTS), shorter, atol=1e-6)
    assert_same_vectors(library.encode(TEXTS, truncate_dim=99), model.encode(TEXTS))
    to_sentence_transformer(model, truncate_dim=5).save(str(tmp_path))
    np.testing.assert_allclose(load(tmp_path).encode(TEXTS), shorter, atol=1e-6)
    from sentence_transformers import SentenceTransformer

    stock = SentenceTransformer(str(tmp_path), trust_remote_code=True, local_files_only=True)
    np.testing.assert_allclose(stock.encode(TEXTS), shorter, atol=1e-6)
    np.testing.assert_allclose(stock.encode(TEXTS, truncate_dim=3), model.truncate(3).encode(TEXTS), atol=1e-6)
    whole = stock.encode(TEXTS, truncate_dim=14, convert_to_tensor=True)
    np.testing.assert_allclose(whole.numpy(), model.encode(TEXTS), atol=1e-6)
    assert whole[..., :3].tolist() == whole.numpy()[:, :3].tolist()  # what is returned is a plain tensor
    from sentence_transformers.base.modules import Normalize

    stock.append(Normalize())
    np.testing.assert_allclose(unit_rows(stock.encode(TEXTS)), unit_rows(shorter), atol=1e-6)
    unknown = to_sentence_transformer(Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"]).fit([], Concat()))
    with pytest.raises(DimensionError, match="does not know its leading directions"):
        unknown.encode(TEXTS, truncate_dim=5)


def test_rounded_vectors_are_those_of_the_library(model: MetaEncoder, library: Library) -> None:
    from sentence_transformers.util import quantize_embeddings

    rows = model.encode(TEXTS)
    for precision, dtype, columns in (("int8", np.int8, 16), ("uint8", np.uint8, 16), ("binary", np.int8, 2)):
        rounded = library.encode(TEXTS, precision=precision)
        assert (rounded.dtype, rounded.shape) == (dtype, (len(TEXTS), columns))
        same = np.testing.assert_array_equal if precision == "binary" else assert_same_vectors
        same(rounded, quantize_embeddings(rows, precision=precision))
    bits = library.encode(TEXTS, precision="ubinary")
    np.testing.assert_array_equal(np.unpackbits(bits, axis=1), rows > 0)


def test_vectors_follow_the_device_and_precision_of_the_library(model: MetaEncoder) -> None:
    import torch

    half = to_sentence_transformer(model, device="cpu").half()
    tensor = half.encode(TEXTS, convert_to_tensor=True)
    assert tensor.dtype == torch.float16
    np.testing.assert_allclose(tensor.float().numpy(), model.encode(TEXTS), rtol=2e-3, atol=1e-3)
    assert half.to("meta").encode(TEXTS, convert_to_tensor=True).device.type == "meta"


@pytest.mark.parametrize("wrong", [[1], [None], [("a", "b")], ["a\ud800"], ["a", b"a"]])
def test_inputs_that_are_not_strings_are_refused(library: Library, wrong: list[object]) -> None:
    with pytest.raises(SentenceError, match=r"sentence \d "):
        library.encode(wrong)
    with pytest.raises(SentenceError, match=r"sentence \d "):
        library.encode_query(wrong)


def test_single_encoders_and_names_are_accepted(tmp_path: Path) -> None:
    encoder = open_encoder("demo?dim=8&seed=1")
    for source in (encoder, "demo?dim=8&seed=1"):
        made = to_sentence_transformer(source)
        assert_same_vectors(made.encode(TEXTS), encoder.encode(TEXTS))
    made.save(str(tmp_path / "one"))
    assert_same_vectors(load(tmp_path / "one").encode(TEXTS), encoder.encode(TEXTS))
    with pytest.raises(InputError, match="an encoder is a name or an object"):
        to_sentence_transformer(3)  # type: ignore[arg-type] # it is refused


def test_max_seq_length_is_that_of_the_shortest_member() -> None:
    class Limited(Encoder):
        @property
        def spec(self) -> Any:  # noqa: ANN401 - an EncoderSpec
            from ensembed.encoders import EncoderSpec

            return EncoderSpec("limited", "demo", 2, "1", max_length=77)

        def embed(self, sentences: list[str]) -> NDArray[np.float32]:
            return Lengths().encode(sentences)

    made = to_sentence_transformer(Ensemble([Limited(), "demo"]).fit([], Concat()))
    assert made.max_seq_length == 77


# What the library makes of vectors


def test_evaluator_scores_the_cosines_of_the_model(model: MetaEncoder, library: Library) -> None:
    from scipy import stats
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    first, second = TEXTS[:-1], TEXTS[1:]
    gold = np.linspace(0, 1, len(first))
    scores = EmbeddingSimilarityEvaluator(first, second, gold.tolist(), write_csv=False)(library)
    cosines = model.similarity(first, second).diagonal()
    assert scores["spearman_cosine"] == pytest.approx(stats.spearmanr(cosines, gold).statistic, abs=1e-6)
    assert scores["pearson_cosine"] == pytest.approx(stats.pearsonr(cosines, gold).statistic, abs=1e-6)


def test_semantic_search_ranks_as_the_model_does(model: MetaEncoder, library: Library) -> None:
    from sentence_transformers import util

    corpus, queries = TEXTS[:-1], TEXTS[:4]
    hits = util.semantic_search(library.encode_query(queries), library.encode_document(corpus), top_k=3)
    expected = model.similarity([f"query: {text}" for text in queries], [f"passage: {text}" for text in corpus])
    for row, cosines in zip(hits, expected, strict=True):
        np.testing.assert_allclose([hit["score"] for hit in row], np.sort(cosines)[::-1][:3], atol=1e-6)
        np.testing.assert_allclose(cosines[[hit["corpus_id"] for hit in row]], [hit["score"] for hit in row], atol=1e-6)


def test_paraphrase_mining_and_community_detection(library: Library) -> None:
    from sentence_transformers import util

    texts = ["one red dog", "dog one red", "blue sky above", "rain falls", "above blue sky", "red one dog"]
    pairs = {(i, j): score for score, i, j in util.paraphrase_mining(library, texts, top_k=5)}
    assert {pair for pair, score in pairs.items() if score > 0.999} == {(0, 1), (0, 5), (1, 5), (2, 4)}
    groups = util.community_detection(library.encode(texts), threshold=0.99, min_community_size=2)
    assert [sorted(group) for group in groups] == [[0, 1, 5], [2, 4]]


# Processes


def test_pool_of_processes_gives_the_same_vectors(model: MetaEncoder) -> None:
    mixed = Ensemble([model, ObjectEncoder(Lengths()), "demo?dim=4&normalize=true"]).fit([], Concat())
    made = to_sentence_transformer(mixed, device="cpu")
    pool = made.start_multi_process_pool(["cpu"])  # one is enough to see what travels
    try:
        texts = [f"{text} {i}" for i in range(20) for text in TEXTS]
        assert_same_vectors(made.encode(texts, pool=pool, chunk_size=16), mixed.encode(texts))
        with pytest.raises(SentenceError, match="sentence 0 is not a string"):
            made.encode([1], pool=pool)
    finally:
        made.stop_multi_process_pool(pool)


def test_pickle_and_deepcopy_give_the_same_vectors(model: MetaEncoder, library: Library) -> None:
    for again in (pickle.loads(pickle.dumps(library)), copy.deepcopy(library)):  # noqa: S301 - made a moment ago
        assert again[0].encoder.spec == model.spec
        assert again.prompts == library.prompts
        assert_same_vectors(again.encode(TEXTS), model.encode(TEXTS))


def test_object_that_cannot_be_pickled_is_named() -> None:
    made = to_sentence_transformer(Unsendable(), device="cpu")
    with pytest.raises(EncoderError, match=r"'Unsendable' is an object that cannot be copied .*it stays here; encode"):
        pickle.dumps(made)


# Folders


def test_saved_folders_open_both_ways(model: MetaEncoder, library: Library, tmp_path: Path) -> None:
    expected = model.encode(TEXTS)
    library.save(str(tmp_path / "theirs"))
    model.save(tmp_path / "ours")
    for folder in ("theirs", "ours"):
        meta = ensembed.load(tmp_path / folder)
        assert meta.spec.key == model.spec.key
        assert meta.corpus == model.corpus
        assert_same_vectors(meta.encode(TEXTS), expected)
        again = load(str(tmp_path / folder), device="cpu")
        assert_same_vectors(again.encode(TEXTS), expected)
        again.save(str(tmp_path / f"{folder} again"))
        assert_same_vectors(load(tmp_path / f"{folder} again").encode(TEXTS), expected)
    assert load(tmp_path / "theirs").prompts == {"query": "query: ", "document": "passage: "}
    files = {path.name for path in (tmp_path / "theirs").iterdir()}
    assert files >= {"config.json", "model.safetensors", "modules.json", "config_sentence_transformers.json"}
    assert not {name for name in files if name.endswith((".py", ".bin", ".pkl"))}
    card = (tmp_path / "theirs" / "README.md").read_text()
    assert "from ensembed.integrations.sentence_transformers import load" in card
    assert escaped(NAMES[0]) in card


def test_settings_and_appended_modules_are_saved(model: MetaEncoder, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Dense, Normalize

    made = to_sentence_transformer(model, truncate_dim=3, similarity_fn_name="euclidean", device="cpu")
    made.append(Dense(16, 4))
    made.append(Normalize())
    expected = made.encode(TEXTS)
    made.save(str(tmp_path))
    again = load(tmp_path, device="cpu")
    assert (again.truncate_dim, again.similarity_fn_name, len(again)) == (3, "euclidean", 3)
    assert_same_vectors(again.encode(TEXTS), expected)
    # What is behind the meta-encoder is not the meta-encoder's.
    assert_same_vectors(ensembed.load(tmp_path).encode(TEXTS), model.encode(TEXTS))


def test_member_that_is_an_object_is_passed_to_load(tmp_path: Path) -> None:
    mixed = Ensemble([ObjectEncoder(Lengths(), name="mine"), "demo"]).fit([], Concat())
    to_sentence_transformer(mixed).save(str(tmp_path))
    with pytest.raises(ModelError, match="member 'mine' is an object"):
        load(tmp_path)
    assert_same_vectors(load(tmp_path, encoders={"mine": Lengths()}).encode(TEXTS), mixed.encode(TEXTS))
    with pytest.warns(RuntimeWarning, match="going on without encoder 'mine'"):
        assert load(tmp_path, missing="drop")[0].encoder.missing == "drop"


def test_library_alone_refuses_or_needs_trust_remote_code(model: MetaEncoder, library: Library, tmp_path: Path) -> None:
    """What the page in docs says."""
    from sentence_transformers import SentenceTransformer

    library.save(str(tmp_path / "theirs"))
    model.save(tmp_path / "ours")
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(tmp_path / "theirs"), local_files_only=True)
    with pytest.raises(ValueError, match="Unrecognized model"):
        SentenceTransformer(str(tmp_path / "ours"), local_files_only=True)
    trusted = SentenceTransformer(str(tmp_path / "theirs"), trust_remote_code=True, local_files_only=True)
    assert_same_vectors(trusted.encode(TEXTS), model.encode(TEXTS))
    (tmp_path / "theirs" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="is missing"):
        MetaEncoderModule.load(str(tmp_path / "theirs"))


def damaged(folder: Path, **changes: Any) -> Path:  # noqa: ANN401 - whatever JSON holds
    """Replace files of a folder by these values, or texts."""
    for name, content in changes.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


OURS = {"idx": 0, "name": "0", "path": "", "type": "ensembed.integrations.st_modules.MetaEncoderModule"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modules": [OURS, {"path": "1_X", "type": "evil.Mine"}]}, "names the module 'evil.Mine', which is none"),
        ({"modules": [{"path": "", "type": "evil.Mine"}]}, "its first module is 'evil.Mine'"),
        ({"modules": [OURS, {"path": "1_X", "type": "sentence_transformers.nothing.Mine"}]}, "which is none"),
        ({"modules": [OURS, {"path": "1_X", "type": "sentence_transformers.util.os.system"}]}, "which is none"),
        ({"modules": [OURS, {"path": "1_X", "type": "sentence_transformers.base.modules.Router"}]}, "which is none"),
        ({"modules": [OURS, {"path": "1_X", "type": "sentence_transformers.base.modules.Dense"}]}, "1_X is damaged"),
        ({"modules": [OURS, {"path": "../x", "type": "sentence_transformers.base.modules.Dense"}]}, "no folder below"),
        ({"modules": []}, "its first module is None"),
        ({"modules": {}}, "it holds a dict, not a list"),
        ({"modules": [3]}, "no list of modules"),
        ({"modules": "[{"}, "modules.json cannot be read"),
        ({"config_sentence_transformers": []}, "it holds a list"),
        ({"config_sentence_transformers": {"prompts": 3}}, "prompts is 3"),
        ({"config_sentence_transformers": {"truncate_dim": "3"}}, "truncate_dim is '3'"),
        ({"config_sentence_transformers": {"default_prompt_name": "x"}}, "Default prompt name 'x' not found"),
        ({"config": "{"}, "cannot be read"),
        ({"config": {}}, "not a saved model"),
    ],
)
def test_damaged_and_foreign_folders_are_refused(
    library: Library, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    library.save(str(tmp_path))
    marker = tmp_path / "it ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nMine = object")
    with pytest.raises(ModelError, match=message):
        load(damaged(tmp_path, **changes))
    assert not marker.exists()
    assert "evil" not in sys.modules


def test_save_replaces_another_model(model: MetaEncoder, library: Library, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a saved model"):
        load(tmp_path / "nowhere")
    library.save(str(tmp_path))
    to_sentence_transformer(model.truncate(4)).save(str(tmp_path))
    assert_same_vectors(load(tmp_path).encode(TEXTS), model.truncate(4).encode(TEXTS))


# Real encoders


@pytest.mark.real
def test_real_encoders_give_the_same_vectors(pulled: Any, tmp_path: Path) -> None:  # noqa: ANN401 - a fixture
    for name in ("minilm", "wordllama"):
        pulled(name)
    real = Ensemble(["minilm", "wordllama"]).fit([], Concat())
    made = to_sentence_transformer(real)
    # The library's batches are of other lengths, and float32 products of other shapes round otherwise.
    np.testing.assert_allclose(made.encode(TEXTS, batch_size=4), real.encode(TEXTS), atol=1e-6)
    assert made.max_seq_length == real.ensemble.encoders[0].spec.max_length
    made.save(str(tmp_path))
    np.testing.assert_allclose(load(tmp_path).encode(TEXTS), real.encode(TEXTS), atol=1e-6)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(made)).encode(TEXTS), real.encode(TEXTS), atol=1e-6)  # noqa: S301 - made a moment ago
