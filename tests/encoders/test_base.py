from __future__ import annotations

import copy
import dataclasses
import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.preprocessing import FunctionTransformer
from strategies import characters, repeating, texts

from ensembed.encoders.base import Encoder, EncoderSpec
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import EncoderError, SentenceError
from ensembed.testing import Recorder

SPEC = EncoderSpec("minilm", "onnx", 384, "abc", "query: ", 128, "mean", True, (("file", "int8"), ("seed", "1")))
OTHERS: dict[str, Any] = {
    "kind": "static",
    "dim": 385,
    "revision": "abd",
    "prompt": "query:",
    "max_length": None,
    "pooling": "cls",
    "normalize": False,
    "extra": (("file", "int8"), ("seed", "2")),
}


class Canned(Encoder):
    """Returns whatever it was made with."""

    def __init__(self, answer: object, dim: int = 3) -> None:
        self._answer = answer
        self._dim = dim

    @property
    def spec(self) -> EncoderSpec:
        return EncoderSpec("canned", "canned", self._dim, "1")

    def embed(self, sentences: list[str]) -> Any:  # noqa: ANN401, ARG002 - that is the point
        return self._answer


def test_deep_copies_are_the_encoder_itself() -> None:
    """Sessions and locks cannot be copied, and libraries copy the settings of what they are given."""
    encoder = Canned(np.ones((1, 3)))
    encoder.lock = threading.Lock()  # type: ignore[attr-defined]  # as many encoders have one
    assert copy.deepcopy(encoder) is encoder
    transformer = clone(FunctionTransformer(encoder.encode))
    np.testing.assert_array_equal(transformer.fit_transform(["a"]), np.ones((1, 3)))


def test_the_key_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert SPEC.key == "99c5d7fc08304c82bf32ba3a9861fe76"


def test_the_key_changes_with_every_field_but_the_name() -> None:
    assert {"name", *OTHERS} == {field.name for field in dataclasses.fields(EncoderSpec)}
    keys = {dataclasses.replace(SPEC, **{name: value}).key for name, value in OTHERS.items()}
    assert len(keys | {SPEC.key}) == len(OTHERS) + 1
    assert dataclasses.replace(SPEC, name="another").key == SPEC.key


def test_key_tells_neighbouring_fields_apart() -> None:
    specs = [
        dataclasses.replace(SPEC, prompt="a", pooling="b"),
        dataclasses.replace(SPEC, prompt="ab", pooling=""),
        dataclasses.replace(SPEC, prompt="b", pooling="a"),
        dataclasses.replace(SPEC, extra=(("a", "bc"),)),
        dataclasses.replace(SPEC, extra=(("ab", "c"),)),
        dataclasses.replace(SPEC, extra=()),
        dataclasses.replace(SPEC, max_length=0),
        dataclasses.replace(SPEC, max_length=None),
    ]
    assert len({spec.key for spec in specs}) == len(specs)


some_text = st.text(characters, max_size=5)


@given(
    st.builds(
        EncoderSpec,
        some_text,
        some_text,
        st.integers(1, 10_000),
        some_text,
        some_text,
        st.none() | st.integers(1, 10_000),
        some_text,
        st.booleans(),
        st.dictionaries(some_text, some_text).map(lambda extra: tuple(sorted(extra.items()))),
    )
)
def test_spec_is_equal_after_writing_and_reading_json(spec: EncoderSpec) -> None:
    read = EncoderSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert read == spec
    assert read.key == spec.key
    assert hash(read) == hash(spec)


def test_a_spec_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SPEC.dim = 3  # type: ignore[misc] # it is frozen


@given(repeating(texts))
def test_repeated_sentences_are_encoded_once_and_get_equal_rows(given_texts: list[str]) -> None:
    recorder = Recorder(DemoEncoder(3))
    X = recorder.encode(given_texts)
    assert recorder.seen == list(dict.fromkeys(given_texts))
    assert np.array_equal(X, np.concatenate([DemoEncoder(3).encode([text]) for text in given_texts]))
    assert X.dtype == np.float32


def test_many_sentences_are_encoded_in_bounded_chunks() -> None:
    calls: list[int] = []
    reports: list[tuple[str, int, int | None]] = []

    class Counting(DemoEncoder):
        def embed(self, sentences: list[str]) -> Any:  # noqa: ANN401 - an array
            calls.append(len(sentences))
            return super().embed(sentences)

    texts = [f"{i % 3000}" for i in range(4000)]
    X = Counting(3).encode(texts, progress=lambda *report: reports.append(report))
    assert np.array_equal(X[:1000], X[3000:])
    assert np.array_equal(X[2999:], Counting(3).encode(texts[2999:]))
    assert calls[:6] == [512] * 5 + [440]
    assert reports == [("demo?dim=3&seed=0", done, 3000) for done in (512, 1024, 1536, 2048, 2560, 3000)]


def test_no_sentences_give_no_rows_and_do_not_call_the_encoder() -> None:
    recorder = Recorder(DemoEncoder(3))
    X = recorder.encode([])
    assert X.shape == (0, 3)
    assert X.dtype == np.float32
    assert recorder.seen == []


@pytest.mark.parametrize(
    "answer",
    [
        np.array([[1, 2, 3], [4, 5, 6]], np.float64),
        np.array([[1, 2, 3], [4, 5, 6]], np.float16),
        np.array([[1, 2, 3], [4, 5, 6]], ">f4"),
        np.array([[1, 4], [2, 5], [3, 6]], np.float32).T,
        np.array([[1, 2, 3], [4, 5, 6]], np.int8),
        [[1, 2, 3], [4, 5, 6]],
        [np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])],
        ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)),
    ],
)
def test_arrays_of_numbers_and_lists_of_them_become_float32(answer: object) -> None:
    X = Canned(answer).encode(["a", "b"])
    assert X.dtype == np.float32
    assert X.dtype.isnative
    assert X.flags.c_contiguous
    assert X.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_changing_the_result_does_not_change_the_encoders_own_array() -> None:
    own = np.ones((2, 3), np.float32)
    Canned(own).encode(["a", "b"])[:] = 7
    assert (own == 1).all()


@pytest.mark.parametrize(
    "answer",
    [
        np.zeros((1, 3)),
        np.zeros((3, 3)),
        np.zeros((2, 4)),
        np.zeros((3, 2)),
        np.zeros((2, 3, 1)),
        np.zeros(6),
        np.zeros(3),
        np.float32(1),
        [],
        [[]],
        [1.0, 2.0, 3.0],
    ],
)
def test_array_of_the_wrong_shape_is_an_encoder_error(answer: object) -> None:
    with pytest.raises(EncoderError, match=r"'canned' returned an array of shape .* for 2 sentences; \(2, 3\) was"):
        Canned(answer).encode(["a", "b"])


@pytest.mark.parametrize(
    "answer",
    [
        [["1", "2", "3"], ["4", "5", "6"]],
        [[None, 1, 2], [3, 4, 5]],
        [[1j, 2, 3], [4, 5, 6]],
        np.zeros((2, 3), "datetime64[s]"),
        None,
        "text",
        {"embeddings": [[1, 2, 3]]},
        [{}, {}],
    ],
)
def test_result_that_is_no_numbers_is_an_encoder_error(answer: object) -> None:
    with pytest.raises(EncoderError, match=r"'canned' returned .* not real numbers"):
        Canned(answer).encode(["a", "b"])


def test_rows_of_different_lengths_are_an_encoder_error() -> None:
    with pytest.raises(EncoderError, match="'canned' returned a list that is no array"):
        Canned([[1.0, 2.0, 3.0], [4.0]]).encode(["a", "b"])


class OnTheGpu:
    """Refuses to become an array, as a tensor does that is on a GPU or has a gradient."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def __array__(self, dtype: object = None, copy: object = None) -> Any:  # noqa: ANN401 - numpy's own
        raise self._error("use Tensor.cpu() first")


@pytest.mark.parametrize("error", [TypeError, RuntimeError])
def test_tensor_that_cannot_become_an_array_is_an_encoder_error(error: type[Exception]) -> None:
    with pytest.raises(EncoderError, match=r"'canned' returned a OnTheGpu that is no array: use Tensor.cpu\(\)"):
        Canned(OnTheGpu(error)).encode(["a", "b"])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39, -1e300])
@pytest.mark.parametrize("row", [0, 1])
def test_nan_inf_and_overflow_name_the_encoder_and_the_sentence(bad: float, row: int) -> None:
    answer = np.zeros((2, 3))
    answer[row, 1] = bad
    sentence = ["sentence one", "sentence two"][row]
    with pytest.raises(EncoderError, match=f"'canned' returned NaN or Inf for the sentence '{sentence}'"):
        Canned(answer).encode(["sentence one", "sentence two"])


def test_an_integer_too_large_for_float32_does_not_overflow() -> None:
    assert np.isfinite(Canned(np.full((1, 3), 2**63 - 1)).encode(["a"])).all()


@pytest.mark.parametrize("bad", [None, b"bytes", 3, ["nested"], "lone \ud800 surrogate"])
def test_unusable_sentence_is_refused_before_anything_is_encoded(bad: object) -> None:
    recorder = Recorder(DemoEncoder(3))
    with pytest.raises(SentenceError, match="sentence 1 "):
        recorder.encode(["fine", bad])  # type: ignore[list-item] # it is refused
    assert recorder.seen == []


@pytest.mark.parametrize("bad", [b"bytes", None, 3])
def test_encode_refuses_anything_but_a_list(bad: object) -> None:
    with pytest.raises(SentenceError, match="expected a list of sentences"):
        DemoEncoder(3).encode(bad)  # type: ignore[arg-type] # it is refused
