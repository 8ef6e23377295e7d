"""The contract checks let good encoders and stores pass and catch bad ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import EncoderError
from ensembed.support.progress import Progress, silent
from ensembed.testing import Recorder, check_encoder, check_store, files_of
from ensembed.views import View, ViewStore

NUMBERS = itertools.count()


class Changed(Encoder):
    """The demo encoder with something done to its vectors and its spec."""

    def __init__(
        self,
        vectors: Callable[[FloatArray, list[str]], NDArray[Any]] = lambda X, _sentences: X,
        spec: Callable[[], EncoderSpec] = lambda: EncoderSpec("changed", "changed", 8, "1"),
    ) -> None:
        self._vectors = vectors
        self._make_spec = spec

    @property
    def spec(self) -> EncoderSpec:
        return self._make_spec()

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        return self._vectors(DemoEncoder(8).embed(sentences), sentences)


def test_good_encoders_pass() -> None:
    check_encoder(Changed())
    check_encoder(Recorder(DemoEncoder(5)))
    check_encoder(Changed(lambda X, _: X.astype(np.float64) * 1e-20))


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (lambda X, _: X - X.mean(axis=0), "alone has another vector|same vector"),
        (lambda X, _: X * (1 + 1e-4 * len(X)), "alone has another vector"),
        (lambda X, _: X * (1 + 1e-3 * np.arange(len(X))[:, None]), "alone has another vector"),
        (lambda X, _: X + 1e-3 * next(NUMBERS), "alone has another vector"),
        (lambda X, _: np.zeros_like(X), "same vector"),
        (lambda X, s: X * (0.5 if max(map(len, s)) > 99_999 else 1), "100,000 characters changes its neighbour"),
    ],
    ids=["centred", "batch size", "position", "counter", "constant", "neighbour"],
)
def test_encoders_whose_vectors_depend_on_more_than_the_sentence_are_caught(
    vectors: Callable[[FloatArray, list[str]], NDArray[Any]], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        check_encoder(Changed(vectors))


def test_an_encoder_that_is_off_by_less_than_the_tolerance_passes() -> None:
    encoder = Changed(lambda X, _: X * (1 + 1e-4 * len(X)))
    check_encoder(encoder, tolerance=1e-2)


@pytest.mark.parametrize("unusual", [lambda s: s == "", lambda s: s.isspace(), lambda s: len(s) == 100_000])
def test_encoders_that_fail_on_unusual_sentences_are_caught(unusual: Callable[[str], bool]) -> None:
    with pytest.raises(EncoderError, match="NaN"):
        check_encoder(Changed(lambda X, sentences: np.where([[unusual(s)] for s in sentences], np.nan, X)))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (lambda: EncoderSpec("changed", "changed", 8, str(next(NUMBERS))), "changes from one call"),
        (lambda: EncoderSpec("changed", "changed", 8, ""), "no revision"),
        (lambda: EncoderSpec("", "changed", 8, "1"), "no name"),
        (lambda: EncoderSpec("changed", "", 8, "1"), "no kind"),
        (lambda: EncoderSpec("changed", "changed", 0, "1"), "dim is 0"),
        (lambda: EncoderSpec("changed", "changed", 8, "1", extra=(("b", "1"), ("a", "2"))), "survive JSON"),
    ],
)
def test_encoders_with_a_bad_spec_are_caught(spec: Callable[[], EncoderSpec], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_encoder(Changed(spec=spec))


class Float64(Changed):
    def encode(self, sentences: Any, *, progress: Progress = silent, **_: Any) -> Any:  # noqa: ANN401 - as a bad one would
        return super().encode(sentences, progress=progress).astype(np.float64)


class Lenient(Changed):
    def encode(self, sentences: Any, *, progress: Progress = silent, **_: Any) -> Any:  # noqa: ANN401 - as a bad one would
        return super().encode([str(s).encode(errors="replace").decode() for s in sentences], progress=progress)


class Careless(Changed):
    def encode(self, sentences: Any, *, progress: Progress = silent, **_: Any) -> Any:  # noqa: ANN401 - as a bad one would
        return super().encode(sentences, progress=progress) if sentences else np.zeros((0,), np.float32)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [(Float64(), "float64"), (Lenient(), "None is not refused"), (Careless(), r"encode\(\[\]\)")],
)
def test_encoders_with_an_encode_of_their_own_are_checked_too(encoder: Encoder, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_encoder(encoder)


class OneFolder(ViewStore):
    """Mixes all views up."""

    def folder(self, corpus: Corpus, spec: EncoderSpec) -> Path:  # noqa: ARG002 - that is what is wrong with it
        return self.root / "one" / "folder"


class Forgetful(ViewStore):
    """Encodes everything again."""

    def embed(self, corpus: Corpus, encoder: Encoder, *, verify: bool = False, progress: Progress = silent) -> View:
        for path in self.folder(corpus, encoder.spec).glob("*"):
            path.unlink()
        return super().embed(corpus, encoder, verify=verify, progress=progress)


@pytest.mark.parametrize(
    ("kind", "message"), [(OneFolder, "another corpus does not hold"), (Forgetful, "encoded again")]
)
def test_bad_stores_are_caught(tmp_path: Path, kind: type[ViewStore], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_store(kind(tmp_path))


def test_a_store_that_is_not_empty_is_not_checked(tmp_path: Path) -> None:
    check_store(ViewStore(tmp_path))
    with pytest.raises(AssertionError, match="never made"):
        check_store(ViewStore(tmp_path))


def test_the_files_of_a_folder_are_found_with_their_content(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / ".hidden").write_bytes(b"1")
    (tmp_path / "c").write_bytes(b"2")
    assert files_of(tmp_path) == {str(Path("a", "b", ".hidden")): b"1", "c": b"2"}
