"""The contract of an encoder, the checks of its input and output, and whether it is the encoder that was saved."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import check_sentences, shorten
from ensembed.encoders.encode_options import INSTEAD, encode_with_options
from ensembed.errors import EncoderError, EnsembedError, InputError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress, silent
from ensembed.support.shown_objects import Facts, Shown, short_value

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ensembed.encoders.encode_options import EncodeOptions

FloatArray: TypeAlias = NDArray[np.float32]
_Encode: TypeAlias = Callable[[list[str]], Any]
BATCH = 512
"""Sentences per call of `embed`: even length-sorted batches, in bounded memory."""


def without_password(name: str) -> str:
    """Return a name for people: the password of a URL is replaced by asterisks."""
    return re.sub("//.*@", "//***@", name)


@runtime_checkable
class SupportsEncode(Protocol):
    """Any object that turns a list of strings into one row per string: all that a foreign encoder needs."""

    def encode(self, sentences: list[str], /) -> Any:  # noqa: ANN401 - arrays, tensors, lists: we convert
        """Encode the sentences."""


@dataclass(frozen=True)
class EncoderSpec:
    """Everything that changes an encoder's numbers, hashed to a key for caches and saved models.

    Attributes:
        name: the name that the user wrote, for errors and tables; not part of the key.
        kind: the kind of encoder that reads the files.
        dim: the length of a vector.
        revision: what pins the weights, for instance the hash of the files.
        prompt: text put before every sentence.
        max_length: tokens beyond this many are cut off; None for no limit.
        pooling: how token vectors become a sentence vector.
        normalize: whether the encoder scales its vectors to length one.
        extra: everything else that changes the numbers, as sorted pairs.
    """

    name: str
    kind: str
    dim: int
    revision: str
    prompt: str = ""
    max_length: int | None = None
    pooling: str = "mean"
    normalize: bool = False
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """The name of this encoder's views on disk: specs that differ only in their name share it."""
        facts = {k: v for k, v in self.to_json().items() if k != "name"}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]

    def to_json(self) -> dict[str, Any]:
        """Return plain data for `from_json`."""
        return dataclasses.asdict(self) | {"extra": dict(self.extra)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EncoderSpec:
        """Return the spec that `to_json` wrote."""
        if wrong := [key for key, value in data.items() if isinstance(value, list | dict) and key != "extra"]:
            raise TypeError(f"{wrong[0]} of an encoder is no text, number or truth value")
        return cls(**{**data, "extra": tuple(sorted(data["extra"].items()))})


@dataclass(frozen=True)
class UntrustedName:
    """A name that was read from a file, which anybody may have written; only `allow` makes one that opens."""

    text: str


@dataclass(frozen=True)
class AllowedName:
    """A name out of a file that may be opened. `allow` makes it, and what opens an encoder again in another process."""

    text: str
    offline: bool


@dataclass(frozen=True)
class SavedSpec:
    """The spec of an encoder as a file has it: an untrusted name, and the settings, whose own name is empty."""

    name: UntrustedName
    settings: EncoderSpec

    @classmethod
    def of(cls, spec: EncoderSpec) -> SavedSpec:
        """Return the spec of an encoder for a file."""
        return cls(UntrustedName(spec.name), replace(spec, name=""))

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.settings.dim

    @property
    def key(self) -> str:
        """The key of the settings."""
        return self.settings.key

    def to_json(self) -> dict[str, Any]:
        """Return plain data for `from_json`, the same as that of the encoder's own spec."""
        return self.settings.to_json() | {"name": self.name.text}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SavedSpec:
        """Return the spec that `to_json` wrote."""
        if not isinstance(data["name"], str) or not isinstance(data["revision"], str):
            raise TypeError(f"the name of an encoder is {data['name']!r}, its revision {data['revision']!r}")
        extra = tuple(sorted(data["extra"].items()))
        return cls(UntrustedName(data["name"]), EncoderSpec(**{**data, "name": "", "extra": extra}))


def is_failure(error: BaseException) -> bool:
    """Return whether a library failed: a panic of one in Rust is no Exception. An interrupt is no failure."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


@contextmanager
def naming_failures(name: str) -> Iterator[None]:
    """Turn whatever a foreign model raises into an EncoderError that names the encoder."""
    try:
        yield
    except BaseException as error:  # a foreign model may raise anything
        if isinstance(error, EnsembedError) or not is_failure(error):
            raise
        raise EncoderError(f"encoder {name!r} failed: {error!r}") from error


def checked_rows(name: str, encode: _Encode, sentences: list[str], dim: int | None = None) -> NDArray[Any]:
    """Return a model's finite row of numbers per sentence, in float32 if there must be `dim`; else an EncoderError."""
    try:
        returned = encode(list(sentences))  # which it may change
    except BaseException as error:  # a foreign model may raise anything
        if isinstance(error, EnsembedError) or not is_failure(error):
            raise
        raise EncoderError(f"encoder {name!r} failed: {error!r}") from error
    try:
        vectors = np.asarray(returned)
    except Exception as error:  # ragged lists; tensors of a GPU or with a gradient
        kind = type(returned).__name__
        raise EncoderError(f"encoder {name!r} returned a {kind} that is no array: {error}") from error
    shape = vectors.shape
    if vectors.dtype.kind not in "fiub":
        raise EncoderError(f"encoder {name!r} returned {vectors.dtype} of shape {shape}, not real numbers")
    if len(shape) != 2 or shape[0] != len(sentences) or shape[1] != (dim or max(1, shape[1])):
        expected = f"{len(sentences)} sentences; ({len(sentences)}, {dim or 'd'}) was expected"
        raise EncoderError(f"encoder {name!r} returned an array of shape {shape} for {expected}")
    if dim:
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes Inf, which is reported below
            vectors = vectors.astype(np.float32, copy=False)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        bad = f"the sentence {shorten(sentences[int(np.argmin(finite))])}; remove it, or leave this encoder out"
        raise EncoderError(f"encoder {name!r} returned NaN or Inf for {bad}")
    return vectors


class Encoder(Shown, ABC):
    """One frozen pre-trained model: `encode(list[str]) -> float32 [n, d]`.

    A subclass writes `embed`, and sets `_spec` or overrides `spec`. The checks, the removal of duplicates and the
    progress reports are here.

    Attributes:
        cacheable: whether equal specs mean equal vectors, so that views may be kept on disk.
        concurrent: whether several threads may encode at once, without warnings: only one at a time can catch them.
        offline: whether it was opened without consent to the network, by a name out of a file.
    """

    cacheable: bool = True
    concurrent: bool = False
    offline: bool = False
    _spec: EncoderSpec

    @property
    def spec(self) -> EncoderSpec:
        """Everything that changes the numbers."""
        return self._spec

    @abstractmethod
    def embed(self, sentences: list[str]) -> NDArray[Any]:
        """Return vectors [n, d] of distinct, checked sentences; callers use `encode`."""

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.spec.dim

    @property
    def device(self) -> str:
        """Where it computes: "cpu", or what its library calls another device."""
        return "cpu"

    if not TYPE_CHECKING:  # which would take any name for one that is there

        def __getattr__(self, name: str) -> object:
            """Say what to write for a name that models of sentence-transformers have."""
            hint = f"; write {INSTEAD[name]}" if name in INSTEAD else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def _facts(self) -> Facts:
        spec = self.spec
        facts = [(field.name, getattr(spec, field.name), field.default) for field in dataclasses.fields(spec)[1:]]
        changed = [(name, value) for name, value, default in facts if value != default]
        shown = [(name, value if isinstance(value, str) else short_value(value)) for name, value in changed]
        return [("name", without_password(spec.name)), *shown]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({without_password(self.spec.name)!r}, dim={self.dim})"

    def __deepcopy__(self, _memo: object = None) -> Self:
        """Return itself: an encoder is frozen, and its sessions, locks and maps of files cannot be copied.

        scikit-learn copies the arguments of every estimator that it clones, other libraries their settings.
        """
        return self

    def encode(
        self,
        sentences: Iterable[str],
        *,
        batch_size: int = BATCH,
        progress: Progress = silent,
        **options: Unpack[EncodeOptions],
    ) -> FloatArray:
        """Return vectors [n, d] of the sentences, in their order; of one string, its vector [d].

        Args:
            sentences: a string, or any ordered collection of strings: a list, a tuple, a generator, a numpy array, a
                pandas Series. Each distinct sentence is encoded once.
            batch_size: sentences that are encoded at a time; they bound the memory and do not change the vectors.
            progress: receives the number of encoded sentences.
            options: arguments of sentence-transformers (`EncodeOptions`): `normalize_embeddings`, `show_progress_bar`;
                an InputError says what to write instead of the others.

        Raises:
            SentenceError: a sentence is not a string or holds a lone surrogate.
            EncoderError: the encoder failed, or returned the wrong shape, NaN or Inf.
        """
        if options or isinstance(sentences, str):
            return encode_with_options(self, sentences, options, batch_size=batch_size, progress=progress)
        if batch_size != BATCH:
            check_whole("batch_size", batch_size, 1)
        spec, checked = self.spec, check_sentences(sentences)
        distinct = list(dict.fromkeys(checked))
        result = np.empty((len(distinct), spec.dim), np.float32)
        for start in range(0, len(distinct), batch_size):
            chunk = distinct[start : start + batch_size]
            result[start : start + len(chunk)] = checked_rows(spec.name, self.embed, chunk, spec.dim)
            progress(spec.name, start + len(chunk), len(distinct))
        if len(distinct) == len(checked):
            return result
        row = {sentence: i for i, sentence in enumerate(distinct)}
        return result[[row[sentence] for sentence in checked]]

    def shorten(self, vectors: FloatArray, k: int) -> FloatArray:
        """Return vectors [n, d] of this encoder cut to k dimensions: the first k, unless the encoder knows better ones.

        Raises:
            DimensionError: the first k dimensions are not the best ones, and the best ones are not known.
        """
        return vectors[:, :k]

    @property
    def query_encoder(self) -> Encoder:
        """The encoder of queries: this one, unless its model puts another text before queries."""
        return self

    @property
    def document_encoder(self) -> Encoder:
        """The encoder of documents that queries are compared with: this one, unless its model treats them apart."""
        return self

    def encode_query(
        self,
        sentences: Iterable[str],
        *,
        batch_size: int = BATCH,
        progress: Progress = silent,
        **options: Unpack[EncodeOptions],
    ) -> FloatArray:
        """Return vectors [n, d] of queries; of one string, its vector [d]. Arguments as for `encode`.

        Members get what they were trained with: `query_prefix` of their names, or their own prompt for queries.

        Example:
            >>> from ensembed.encoders import open_encoder
            >>> e5 = open_encoder("demo?query_prefix=query: &document_prefix=passage: ")
            >>> bool((e5.encode_query("a dog") == e5.encode("query: a dog")).all())
            True
        """
        return self.query_encoder.encode(sentences, batch_size=batch_size, progress=progress, **options)

    def encode_document(
        self,
        sentences: Iterable[str],
        *,
        batch_size: int = BATCH,
        progress: Progress = silent,
        **options: Unpack[EncodeOptions],
    ) -> FloatArray:
        """Return vectors [n, d] of documents that queries are compared with. Arguments as for `encode`."""
        return self.document_encoder.encode(sentences, batch_size=batch_size, progress=progress, **options)

    def similarity(self, sentences1: Any, sentences2: Any) -> FloatArray:  # noqa: ANN401 - texts, or any vectors
        """Return the cosines [n1, n2] of all pairs; a zero vector has cosine 0 with everything.

        Each argument is a sentence, a collection of sentences, or vectors of this encoder: [n, d], or [d] for one.

        Example:
            >>> from ensembed.encoders import DemoEncoder
            >>> demo = DemoEncoder(dim=8)
            >>> demo.similarity("a dog", ["the dog", "a cat"]).shape
            (1, 2)
            >>> float(demo.similarity(demo.encode("a dog"), "a dog")[0, 0].round(5))
            1.0
        """
        return np.asarray(unit_rows(self._vectors_of(sentences1)) @ unit_rows(self._vectors_of(sentences2)).T)

    def _vectors_of(self, given: Any) -> FloatArray:  # noqa: ANN401 - see `similarity`
        """Return vectors [n, d] of texts; vectors that are given are checked and returned."""
        if isinstance(given, str):
            return self.encode([given])
        first = given[0] if isinstance(given, list | tuple) and given else ""
        items = np.asarray(given) if hasattr(given, "__array__") or not isinstance(first, str) else None
        if items is None or items.dtype.kind not in "fiu":
            return self.encode(given)
        vectors = np.atleast_2d(items.astype(np.float32))
        if vectors.ndim != 2 or vectors.shape[1] != self.dim or not np.isfinite(vectors).all():
            raise InputError(
                f"the vectors of {self.spec.name!r} are finite numbers [n, {self.dim}]; got an array of shape "
                f"{items.shape}{'' if vectors.shape[-1] != self.dim else ' with NaN or Inf'}"
            )
        return vectors


PROBES = ["A man is playing a guitar on the stage.", "Stock prices fell sharply after the report."]
"""The sentences whose vectors are saved with a model or an index: part of both formats."""

PROBED = "probed-"
"""The prefix of the revision of a server, which is a hash of the vectors that one machine received first."""

# The largest distance of probe vectors from the saved ones, as a part of their length. Other machines and runtimes
# round differently, int8 ones in the second digit; another revision of a model is much further away.
_TOLERANCE = 0.2


def same_settings(spec: EncoderSpec, saved: EncoderSpec) -> bool:
    """Return whether everything that pins the numbers is the same; revisions found by probing count as the same."""
    if saved.revision.startswith(PROBED) and spec.revision.startswith(PROBED) and spec.kind == saved.kind:
        spec = replace(spec, revision=saved.revision)
    return spec.key == saved.key


def difference(encoder: Encoder, saved: EncoderSpec, probes: FloatArray, *, settings: bool = True) -> str | None:
    """Return how an encoder differs from the one that was saved, for a person; None where it is the same.

    Args:
        encoder: the encoder, which encodes the probe sentences.
        saved: the spec that was saved.
        probes: the vectors [2, d] of `PROBES` that were saved.
        settings: compare the settings; False where a user replaces the encoder by one of their own.
    """
    if encoder.spec.dim != saved.dim:
        return f"gives {encoder.spec.dim} dimensions instead of {saved.dim}"
    if settings and not same_settings(encoder.spec, saved):
        return f"has changed: {_changes(saved, encoder.spec)}"
    lengths = np.linalg.norm(probes, axis=1) + np.finfo(np.float32).tiny  # a probe of unknown words is zero
    distance = (np.linalg.norm(encoder.encode(PROBES) - probes, axis=1) / lengths).max()
    if not distance <= _TOLERANCE:  # nor may it be NaN
        return f"is another encoder: its probe vectors are {distance:.0%} of their length away from the saved ones"
    return None


def _changes(saved: EncoderSpec, spec: EncoderSpec) -> str:
    """Return the settings that differ."""
    before, now = saved.to_json(), spec.to_json()
    before |= before.pop("extra")
    now |= now.pop("extra")
    keys = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
    if len(keys) > 1 and "name" in keys:
        keys.remove("name")
    return ", ".join(f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in keys)
