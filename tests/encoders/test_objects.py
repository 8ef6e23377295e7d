from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ensembed.encoders.base import FloatArray
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.wrappers import ObjectEncoder
from ensembed.errors import EncoderError
from ensembed.testing import check_encoder


class Foreign:
    """An encoder that knows nothing of ensembed."""

    def __init__(self, seed: int = 0, change: Callable[[FloatArray], Any] = lambda X: X) -> None:
        self._demo = DemoEncoder(6, seed)
        self._change = change

    def encode(self, sentences: list[str]) -> Any:  # noqa: ANN401 - whatever an object may give
        return self._change(self._demo.encode(sentences))


def revision(encoder: Foreign) -> str:
    return ObjectEncoder(encoder).spec.revision


@pytest.mark.parametrize("change", [lambda X: X, lambda X: X.astype(np.float64), lambda X: X.tolist()])
def test_an_object_with_encode_keeps_the_contract(change: Callable[[FloatArray], Any]) -> None:
    check_encoder(ObjectEncoder(Foreign(change=change)))


def test_vectors_are_those_of_the_object() -> None:
    texts = ["one", "two", "one"]
    assert np.array_equal(ObjectEncoder(Foreign(3)).encode(texts), DemoEncoder(6, 3).encode(texts))


def test_the_name_is_the_object_s_class_unless_one_is_given() -> None:
    assert ObjectEncoder(Foreign()).spec.name == "Foreign"
    assert ObjectEncoder(Foreign(), name="mine").spec.name == "mine"
    assert ObjectEncoder(Foreign(), name="mine").spec.key == ObjectEncoder(Foreign()).spec.key


def test_the_revision_is_stable_for_the_same_model() -> None:
    assert revision(Foreign(1)) == revision(Foreign(1)) == revision(Foreign(1, lambda X: X.astype(np.float64)))
    assert revision(Foreign(1)).startswith("probed-")


@pytest.mark.parametrize(
    "change",
    [lambda X: 2 * X, lambda X: X / 10, lambda X: -X, lambda X: X + 0.1, lambda X: X[:, ::-1], lambda X: X[:, :5]],
    ids=["doubled", "a tenth", "negated", "moved", "reversed", "cut"],
)
def test_another_model_has_another_revision(change: Callable[[FloatArray], Any]) -> None:
    assert ObjectEncoder(Foreign(1, change)).spec.key != ObjectEncoder(Foreign(1)).spec.key
    assert revision(Foreign(2)) != revision(Foreign(1))


def test_revision_argument_replaces_the_probes() -> None:
    a, b = (ObjectEncoder(Foreign(1), revision=revision) for revision in ("a", "b"))
    assert (a.spec.revision, b.spec.revision) == ("a", "b")
    assert a.spec.key != b.spec.key


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.int64, np.uint8, bool])
@pytest.mark.parametrize("value", [0, 1, -128])
def test_constant_vectors_of_any_type_have_a_revision(dtype: type, value: int) -> None:
    encoder = ObjectEncoder(Foreign(change=lambda X: np.full(X.shape, value).astype(dtype)))
    assert encoder.spec.revision.startswith("probed-")
    assert np.isfinite(encoder.encode(["a", "b"])).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[0], r"returned an array of shape \(6,\)"),
        (lambda X: X[:1], r"returned an array of shape \(1, 6\) for 3 sentences"),
        (lambda X: X[:, :0], r"returned an array of shape \(3, 0\)"),
        (lambda X: X[None], r"returned an array of shape \(1, 3, 6\)"),
        (lambda X: X * np.nan, "returned NaN or Inf"),
        (lambda X: X * np.inf, "returned NaN or Inf"),
        (lambda _: [[1.0], [1.0, 2.0]], "no array"),
        (lambda _: [["1"], ["2"]], "not real numbers"),
        (lambda _: None, "not real numbers"),
        (lambda X: X.astype(complex), "not real numbers"),
    ],
)
def test_an_object_that_returns_something_else_is_named(change: Callable[[FloatArray], Any], message: str) -> None:
    with pytest.raises(EncoderError, match=f"'Foreign' {message}|'Foreign' returned .*{message}"):
        ObjectEncoder(Foreign(change=change))


def test_another_length_limit_is_another_revision() -> None:
    class Limited:
        def __init__(self, words: int) -> None:
            self.words = words

        def encode(self, sentences: list[str], /) -> FloatArray:
            return DemoEncoder(6).encode([" ".join(sentence.split()[: self.words]) for sentence in sentences])

    keys = {ObjectEncoder(Limited(words)).spec.key for words in (8, 100, 512)}
    assert len(keys) == 3


def test_rounding_is_not_another_revision() -> None:
    noise = np.random.default_rng(0)
    revisions = [
        ObjectEncoder(Foreign(change=lambda X: X * (1 + 1e-7 * noise.standard_normal(X.shape)))).spec.revision
        for _ in range(20)
    ]
    assert len(set(revisions)) == 1


def test_an_object_that_raises_is_named() -> None:
    def fail(_: FloatArray) -> FloatArray:
        raise ConnectionError("no route")

    with pytest.raises(EncoderError, match=r"encoder 'Foreign' failed: ConnectionError\('no route'\)"):
        ObjectEncoder(Foreign(change=fail))


def test_an_object_that_changes_its_dimension_is_named() -> None:
    class Fickle:
        dim = 4

        def encode(self, sentences: list[str]) -> Any:  # noqa: ANN401 - whatever an object may give
            return np.ones((len(sentences), self.dim))

    fickle = Fickle()
    encoder = ObjectEncoder(fickle)
    fickle.dim = 5
    with pytest.raises(EncoderError, match=r"'Fickle' returned an array of shape \(1, 5\)"):
        encoder.encode(["a"])


def test_object_may_change_the_list_that_it_is_given() -> None:
    class Greedy:
        def encode(self, sentences: list[str]) -> list[list[float]]:
            rows = []
            while sentences:
                rows.append([float(len(sentences.pop(0)))])
            return rows

    for _ in range(2):  # the probe sentences are still there for the second
        assert ObjectEncoder(Greedy()).encode(["a", "abc", "ab"]).tolist() == [[1], [3], [2]]
