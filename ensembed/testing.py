"""Contract checks of encoders and view stores, for tests; an AssertionError says what does not hold."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import MissingError, SentenceError
from ensembed.views import ViewStore

SENTENCES = (
    "A man is playing a guitar.",
    "a",
    "Two dogs run through the snow, while a third one sleeps on the sofa and dreams of cats.",
    "Ein Gürtel aus Leder kostet 12,50 €!",
    "東京は日本の首都です。",
    "🙂🙃 e\u0301 \u200b\u0000 ...",
    "Stock prices fell sharply after the report, analysts said on Tuesday. " * 4,
)
_UNUSUAL = {
    "an empty sentence": "",
    "spaces": " \t\u00a0 ",
    "100,000 characters": "word " * 20_000,
    "one word of 100,000 characters": "a" * 100_000,
}
_UNUSABLE: dict[str, object] = {"None": None, "bytes": b"text", "an int": 3, "a lone surrogate": "a \ud800 b"}


class Recorder(Encoder):
    """Passes sentences on to an encoder and keeps them in `seen`, to count how many are encoded."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.seen: list[str] = []

    @property
    def spec(self) -> EncoderSpec:
        """The encoder's own spec."""
        return self.encoder.spec

    def embed(self, sentences: list[str]) -> NDArray[np.float32]:
        """Return the encoder's vectors."""
        self.seen += sentences
        return self.encoder.encode(sentences)


def check_encoder(encoder: Encoder, *, tolerance: float = 1e-5) -> None:
    """Raise an AssertionError unless an encoder keeps the contract of `Encoder`.

    Args:
        encoder: the encoder.
        tolerance: how far a sentence's vector may move with the batch it is in, relative to its largest entry.

    Example:
        >>> check_encoder(DemoEncoder())
    """
    _check_spec(encoder)
    sentences = list(SENTENCES)
    together = encoder.encode(sentences)
    expected = (len(sentences), encoder.spec.dim)
    _expect(together.shape == expected, f"encode gave shape {together.shape}, not {expected}")
    _expect(together.dtype == np.float32, f"encode gave {together.dtype}, not float32")
    _expect(len(np.unique(together, axis=0)) > 1, "all sentences have the same vector")

    empty = encoder.encode([])
    _expect(empty.shape == (0, encoder.spec.dim), f"encode([]) gave shape {empty.shape}, not (0, {encoder.spec.dim})")
    _expect(empty.dtype == np.float32, f"encode([]) gave {empty.dtype}, not float32")

    alone = np.concatenate([encoder.encode([sentence]) for sentence in sentences])
    _assert_close(alone, together, tolerance, "a sentence alone has another vector than in a batch")
    order = np.random.default_rng(0).permutation(len(sentences))
    permuted = encoder.encode([sentences[i] for i in order])
    _assert_close(permuted, together[order], tolerance, "permuted sentences do not give permuted rows")
    _assert_close(encoder.encode(sentences), together, tolerance, "encoding again gives other vectors")
    doubled = encoder.encode([s for s in sentences for _ in range(2)])
    _expect(np.array_equal(doubled[::2], doubled[1::2]), "equal sentences of one call have different vectors")
    _assert_close(doubled[::2], together, tolerance, "repeated sentences have other vectors")

    for what, sentence in _UNUSUAL.items():
        rows = encoder.encode([sentences[0], sentence])
        _expect(np.isfinite(rows).all(), f"{what} gives NaN or Inf")
        _assert_close(rows[:1], together[:1], tolerance, f"{what} changes its neighbour's vector")
    _check_threads(encoder, sentences, together, tolerance)
    for what, sentence_like in _UNUSABLE.items():
        _assert_refused(encoder, [sentences[0], sentence_like], what)
    _assert_close(
        encoder.encode(sentences[0])[None], together[:1], tolerance, "a string has another vector than in a list"
    )


def check_store(store: ViewStore) -> None:
    """Raise an AssertionError unless an empty view store keeps the contract of `ViewStore`.

    Example:
        >>> import tempfile
        >>> check_store(ViewStore(tempfile.mkdtemp()))
    """
    sentences = [f"sentence {i % 7} of {i % 5}" for i in range(50)]
    corpus, other_corpus = ListCorpus(sentences), ListCorpus(sentences[::-1])
    encoder, other_encoder = DemoEncoder(dim=6, seed=1), DemoEncoder(dim=6, seed=2)
    expected = encoder.encode(sentences)
    try:
        store.view(corpus, encoder.spec)
    except MissingError:
        pass
    else:
        raise AssertionError("a view that was never made can be opened")

    recorder = Recorder(encoder)
    view = store.embed(corpus, recorder)
    _expect(sorted(recorder.seen) == sorted(set(sentences)), "not every distinct sentence was encoded once")
    _expect(view.shape == expected.shape, f"the view has shape {view.shape}, not {expected.shape}")
    _expect(len(view) == len(expected), f"the view has length {len(view)}, not {len(expected)}")
    _assert_equal(view[:], expected, "the view")
    _assert_equal(np.asarray(view), expected, "the view as an array")
    for start, stop in [(0, 1), (3, 3), (7, 31), (49, 50), (48, 99), (-5, None), (60, 70)]:
        _assert_equal(view[start:stop], expected[start:stop], f"view[{start}:{stop}]")

    seen = len(recorder.seen)
    _assert_equal(store.embed(corpus, recorder)[:], expected, "the view that was made before")
    _assert_equal(store.view(corpus, encoder.spec)[:], expected, "the view, opened")
    _expect(len(recorder.seen) == seen, "a complete view was encoded again")
    _expect(view.damaged() == [], "a new view is said to be damaged")
    _assert_equal(store.embed(other_corpus, encoder)[:], expected[::-1], "the view of another corpus")
    _assert_equal(store.embed(corpus, other_encoder)[:], other_encoder.encode(sentences), "another encoder's view")
    _assert_equal(store.view(corpus, encoder.spec)[:], expected, "the first view after others were made")


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder, by relative path; two stores are the same when these are."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _expect(holds: bool | np.bool_, message: str) -> None:
    if not holds:  # not an assert statement, which `python -O` would leave out
        raise AssertionError(message)


def _check_spec(encoder: Encoder) -> None:
    spec = encoder.spec
    _expect(spec.name != "", "the spec has no name")
    _expect(spec.kind != "", "the spec has no kind")
    _expect(spec.revision != "", "the spec has no revision: nothing pins the weights")
    _expect(spec.dim >= 1, f"the spec's dim is {spec.dim}")
    _expect(encoder.spec == spec, "the spec changes from one call to the next")
    _expect(encoder.spec.key == spec.key, "the spec's key changes from one call to the next")
    read = EncoderSpec.from_json(json.loads(json.dumps(spec.to_json())))
    _expect(read == spec, f"the spec does not survive JSON: {spec} became {read}")
    _expect(read.key == spec.key, "the spec's key does not survive JSON")


def _check_threads(encoder: Encoder, sentences: list[str], expected: FloatArray, tolerance: float) -> None:
    """Raise an AssertionError unless threads that encode at the same time get the vectors that one alone gets."""
    orders = [np.roll(np.arange(len(sentences)), shift) for shift in range(4)]
    with ThreadPoolExecutor(len(orders)) as pool:
        jobs = [pool.submit(encoder.encode, [sentences[i] for i in order]) for order in orders * 2]
    for order, job in zip(orders * 2, jobs, strict=True):
        _assert_close(job.result(), expected[order], tolerance, "threads that encode together disturb each other")


def _assert_close(got: FloatArray, expected: FloatArray, tolerance: float, message: str) -> None:
    error = np.abs(got - expected).max(axis=1, initial=0) / np.maximum(np.abs(expected).max(axis=1, initial=0), 1e-30)
    _expect((error <= tolerance).all(), f"{message}: row {error.argmax()} is off by {error.max():.1e}")


def _assert_equal(got: ArrayLike, expected: FloatArray, what: str) -> None:
    _expect(np.asarray(got).dtype == np.float32, f"{what} is {np.asarray(got).dtype}, not float32")
    _expect(np.array_equal(got, expected), f"{what} does not hold the encoder's vectors")


def _assert_refused(encoder: Encoder, sentences: object, what: str) -> None:
    try:
        encoder.encode(sentences)  # type: ignore[arg-type]  # what is wrong with them is the point
    except SentenceError:
        return
    raise AssertionError(f"{what} is not refused with a SentenceError")
