"""What users of sentence-transformers, numpy and pandas write works, or the error says what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed import Ensemble, ObjectEncoder
from ensembed.encoders import Encoder, open_encoder
from ensembed.encoders.encode_options import INSTEAD
from ensembed.errors import InputError, SentenceError
from ensembed.methods import GCCA, Concat
from ensembed.search import Index

TEXTS = ["a dog barks", "a cat sleeps", "the dog sleeps", "the cat barks", "a dog barks"]


class _Lengths:
    def encode(self, sentences: list[str]) -> Any:  # noqa: ANN401 - as a user's own class would
        return [[len(sentence), sentence.count("a"), 1] for sentence in sentences]


def _model(missing: str = "error") -> Encoder:
    model = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"]).fit(TEXTS, GCCA(dim=3))
    model.missing = missing  # type: ignore[assignment]  # one of the two
    return model


ENCODERS: dict[str, Callable[[], Encoder]] = {
    "encoder": lambda: open_encoder("demo?dim=8"),
    "adjusted": lambda: open_encoder("demo?dim=8&truncate_dim=5&prefix=query: "),
    "object": lambda: ObjectEncoder(_Lengths()),
    "model": _model,
    "model that drops": lambda: _model("drop"),
    "model of models": lambda: Ensemble([_model(), "demo"]).fit(TEXTS, Concat()),
}


@pytest.fixture(params=ENCODERS, scope="module")
def encoder(request: pytest.FixtureRequest) -> Encoder:
    return ENCODERS[request.param]()


def test_one_string_gives_one_vector(encoder: Encoder) -> None:
    vector = encoder.encode(TEXTS[1])
    assert vector.shape == (encoder.dim,)
    assert vector.dtype == np.float32
    np.testing.assert_array_equal(vector, encoder.encode([TEXTS[1]])[0])
    np.testing.assert_array_equal(encoder.encode(np.str_(TEXTS[1])), vector)


def _series(texts: Sequence[object], **settings: Any) -> Any:  # noqa: ANN401 - pandas has no types here
    return pytest.importorskip("pandas").Series(texts, index=range(7, 7 + len(texts)), **settings)


@pytest.mark.parametrize(
    "collect",
    [
        tuple,
        iter,
        lambda texts: (text for text in texts),
        np.array,
        lambda texts: np.array(texts, object),
        _series,
        lambda texts: _series(texts, dtype="string"),
        lambda texts: dict.fromkeys(map(str.upper, texts)).keys() and dict(enumerate(texts)).values(),
    ],
    ids=["tuple", "iterator", "generator", "array", "object array", "series", "string series", "values"],
)
def test_ordered_collections_of_strings_are_encoded(
    encoder: Encoder, collect: Callable[[list[str]], Iterable[str]]
) -> None:
    expected = encoder.encode(TEXTS)
    np.testing.assert_array_equal(encoder.encode(collect(TEXTS)), expected)
    np.testing.assert_allclose(
        encoder.similarity(collect(TEXTS), collect(TEXTS[:2])), encoder.similarity(TEXTS, TEXTS[:2]), atol=1e-6
    )


@pytest.mark.parametrize(
    ("collect", "message"),
    [
        (lambda texts: Path(texts[0]), r"got a PosixPath: read it first, as in path.read_text\(\).splitlines\(\)"),
        (set, r"got a set, which has no order: write sorted\(texts\)"),
        (lambda texts: {"text": texts}, r"got a dict: choose its values"),
        (lambda texts: _series(texts).to_frame("text"), r"got a DataFrame: choose the column .*frame\['text'\]"),
        (lambda texts: np.array([texts]), r"got a ndarray of shape \(1, 5\)"),
        (lambda _: 7, "got a int"),
        (lambda _: None, "got a NoneType"),
        (lambda _: b"bytes", "got one bytes"),
        (lambda texts: _series([*texts, None]), "sentence 5 is not a string"),
    ],
    ids=["path", "set", "mapping", "frame", "matrix", "number", "none", "bytes", "gap"],
)
def test_what_has_no_sentences_in_an_order_says_what_to_write(
    encoder: Encoder, collect: Callable[[list[str]], Any], message: str
) -> None:
    with pytest.raises(SentenceError, match=message):
        encoder.encode(collect(TEXTS))


def test_a_fit_takes_what_encode_takes() -> None:
    ensemble = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"])
    expected = ensemble.fit(TEXTS, GCCA(dim=3)).encode(TEXTS)
    for collected in (iter(TEXTS), np.array(TEXTS), _series(TEXTS)):
        np.testing.assert_array_equal(ensemble.fit(collected, GCCA(dim=3)).encode(TEXTS), expected)
    with pytest.raises(SentenceError, match="choose the column"):
        ensemble.fit(_series(TEXTS).to_frame("text"), GCCA(dim=3))


def test_vectors_are_scaled_and_shown_as_asked(encoder: Encoder, capsys: pytest.CaptureFixture[str]) -> None:
    plain = encoder.encode(TEXTS)
    unit = encoder.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(unit * np.linalg.norm(plain, axis=1, keepdims=True), plain, atol=1e-5)
    np.testing.assert_array_equal(encoder.encode(TEXTS[0], normalize_embeddings=True), unit[0])
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(encoder.encode(iter(TEXTS), show_progress_bar=True), plain)
    assert "100%" in (bar := capsys.readouterr().err) or "4/4" in bar
    as_always = {"convert_to_numpy": True, "convert_to_tensor": False, "device": None, "prompt_name": None}
    np.testing.assert_array_equal(encoder.encode(TEXTS, show_progress_bar=False, **as_always), plain)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 3, 64, 1000])
def test_the_batch_size_does_not_change_the_vectors(encoder: Encoder, size: int) -> None:
    np.testing.assert_allclose(encoder.encode(TEXTS, batch_size=size), encoder.encode(TEXTS), atol=1e-6)


@pytest.mark.parametrize("size", [0, -1, 2.5, "8", None])
def test_a_batch_size_that_is_none_is_refused(encoder: Encoder, size: Any) -> None:  # noqa: ANN401 - all are wrong
    with pytest.raises(InputError, match="batch_size must be a whole number of at least 1"):
        encoder.encode(TEXTS, batch_size=size)


def test_the_batch_size_bounds_what_a_member_gets() -> None:
    sizes: list[int] = []

    class Counting(_Lengths):
        def encode(self, sentences: list[str]) -> Any:  # noqa: ANN401 - as above
            sizes.append(len(sentences))
            return super().encode(sentences)

    model = Ensemble([Counting(), "demo"]).fit(TEXTS, Concat())
    sizes.clear()
    model.encode([f"text {i}" for i in range(10)], batch_size=4)
    assert sizes == [4, 4, 2]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("convert_to_tensor", True, r"torch.from_numpy\(model.encode\(texts\)\)"),
        ("convert_to_numpy", False, r"list\(model.encode\(texts\)\)"),
        ("device", "cuda", r"'st:NAME\?device=cuda'"),
        ("prompt_name", "query", r"st:NAME\?prompt=query"),
        ("prompt", "query: ", r"\?prefix=query: "),
        ("output_value", "token_embeddings", "no token vectors"),
        ("output_value", None, "no token vectors"),
        ("precision", "int8", "dtype='int8'"),
        ("truncate_dim", 2, r"model.truncate\(k\)"),
        ("pool", {}, "one process encodes"),
    ],
)
def test_arguments_that_cannot_be_honoured_say_what_to_write(
    encoder: Encoder, option: str, value: object, message: str
) -> None:
    options: Any = {option: value}
    with pytest.raises(InputError, match=rf"encode\(..., {option}=.*{message}"):
        encoder.encode(TEXTS, **options)


def test_the_device_that_computes_anyway_is_accepted(encoder: Encoder) -> None:
    assert encoder.device == "cpu"
    np.testing.assert_array_equal(encoder.encode(TEXTS, device="cpu"), encoder.encode(TEXTS))


def test_the_device_of_a_member_counts() -> None:
    class OnGpu(_Lengths):
        device = "cuda:0"

    model = Ensemble([OnGpu(), "demo"]).fit(TEXTS, Concat())
    alone = model.members[0]
    assert (alone.device, model.device) == ("cuda:0", "cuda:0, cpu")
    for device in ("cuda", "cuda:0"):
        np.testing.assert_array_equal(alone.encode(TEXTS, device=device), alone.encode(TEXTS))
    for one, device in ((alone, "cpu"), (alone, "cuda:1"), (model, "cpu"), (model, "cuda")):
        with pytest.raises(InputError, match=r"part of its name, as in 'st:NAME\?device=cuda'"):
            one.encode(TEXTS, device=device)


def test_an_unknown_argument_lists_the_known_ones(encoder: Encoder) -> None:
    with pytest.raises(TypeError, match=r"no argument 'nonsense'; it takes: progress, batch_size, show_progress_bar"):
        encoder.encode(TEXTS, nonsense=1)  # type: ignore[call-arg]  # the test's point


def test_similarity_takes_strings_and_vectors(encoder: Encoder) -> None:
    expected = encoder.similarity(TEXTS[:1], TEXTS[1:3])
    assert expected.shape == (1, 2)
    one, two = encoder.encode(TEXTS[0]), encoder.encode(TEXTS[1:3])
    for left in (TEXTS[0], one, one[None], one.tolist(), [one.tolist()], [one], one.astype(np.float64)):
        for right in (TEXTS[1:3], two, two.tolist(), list(two)):
            np.testing.assert_allclose(encoder.similarity(left, right), expected, atol=1e-5)
    assert encoder.similarity(TEXTS[0], TEXTS[0]).shape == (1, 1)
    assert encoder.similarity([], TEXTS).shape == (0, 5)


def test_similarity_takes_tensors(encoder: Encoder) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(encoder.encode(TEXTS))
    np.testing.assert_allclose(encoder.similarity(tensor, tensor[0]), encoder.similarity(TEXTS, TEXTS[0]), atol=1e-5)


def test_similarity_refuses_vectors_of_another_encoder(encoder: Encoder) -> None:
    with pytest.raises(InputError, match=rf"finite numbers \[n, {encoder.dim}\]; got an array of shape \(2, 99\)"):
        encoder.similarity(TEXTS, np.zeros((2, 99)))
    with pytest.raises(InputError, match="with NaN or Inf"):
        encoder.similarity(TEXTS, np.full(encoder.dim, np.nan))


def test_a_failing_member_is_dropped_for_a_generator_too() -> None:
    class Broken(_Lengths):
        broken = False

        def encode(self, sentences: list[str]) -> Any:  # noqa: ANN401 - as above
            if self.broken:
                raise RuntimeError("down")
            return super().encode(sentences)

    broken = Broken()
    model = Ensemble([broken, "demo"]).fit(TEXTS, Concat())
    model.missing = "drop"
    broken.broken = True
    with pytest.warns(RuntimeWarning, match="going on without"):
        assert model.encode(iter(TEXTS), normalize_embeddings=True).shape == (5, model.dim)


@pytest.mark.parametrize("name", INSTEAD)
def test_what_models_of_sentence_transformers_have_is_answered_by_what_to_write(encoder: Encoder, name: str) -> None:
    if name in ("push_to_hub", "tokenizer") and hasattr(encoder, name):
        return
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; write "):
        getattr(encoder, name)
    assert not hasattr(encoder, "nonsense")


def test_an_index_takes_one_string_and_one_vector(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", "demo")
    index.add(np.array(TEXTS[:4]))
    expected = index.search(TEXTS[:1], 2)
    one = index.model.encode(TEXTS[0])
    for queries in (TEXTS[0], np.array(TEXTS[:1]), _series(TEXTS[:1]), iter(TEXTS[:1]), one, one[None]):
        assert [[hit.id for hit in hits] for hits in index.search(queries, 2)] == [[hit.id for hit in expected[0]]]


def test_a_named_ensemble_is_written_out() -> None:
    with pytest.raises(InputError, match=r"write \['minilm', 'use-m3'\]"):
        Ensemble("default")
