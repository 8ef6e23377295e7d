"""What every vector store here does: create, add with ids, search, delete, reopen; one class for each library.

A store holds vectors of length one, so that its scores are cosines. It remembers the model that made them by the key of
the model's spec, and refuses any other: the cosine of two models' vectors means nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ensembed.corpora.corpus import check_sentences, shorten
from ensembed.encoders.base import Encoder, FloatArray
from ensembed.errors import InputError, SentenceError, StoreError
from ensembed.models.opening import ModelLike, open_model
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.progress import Progress, silent

IdArray = NDArray[np.int64]
Kinds: TypeAlias = Mapping[str, tuple[object, ...]]
"""What each setting may be: one of these values, or of these types; `int` stands for 1 to `_MOST_NUMBER`."""
NO_ID = -1
"""Stands in `Hits.ids` where an approximate search found fewer than it was asked for; its score is NaN."""

FORMAT_VERSION = 1
_MOST_ID = 2**63 - 1
_MOST_NUMBER = 1_000_000  # more links than that, or a wider search, no library could use
_WAY_OUT = "put back a copy of the store from before, or create it anew"
_FACTS: dict[str, type] = {"format": int, "backend": str, "model": str, "key": str, "dim": int, "settings": dict}
S = TypeVar("S", bound="VectorStore")


class Hits(NamedTuple):
    """What a search found, best first.

    Attributes:
        ids: [queries, k] int64.
        scores: [queries, k] float32, cosines.
    """

    ids: IdArray
    scores: FloatArray


@dataclass(frozen=True)
class StoreFacts:
    """What a store remembers of itself, wherever its library lets it: of which model its vectors are, and its settings.

    Attributes:
        backend: the library.
        model: what the model was called; it may be called otherwise now.
        key: of the model's spec: equal keys mean equal vectors.
        dim: the length of a vector.
        settings: what the library was told when the store was created.
    """

    backend: str
    model: str
    key: str
    dim: int
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, backend: str, model: Encoder, **settings: Any) -> StoreFacts:  # noqa: ANN401 - anything JSON can hold
        """The facts of a new store of this model's vectors."""
        return cls(backend, model.spec.name, model.spec.key, model.spec.dim, settings)

    def to_json(self) -> dict[str, Any]:
        """Plain data that `from_json` reads back."""
        return {"format": FORMAT_VERSION} | {name: getattr(self, name) for name in _FACTS if name != "format"}

    @classmethod
    def from_json(cls, data: object, backend: str, where: str) -> StoreFacts:
        """The inverse of `to_json`; a StoreError where it is not what a store of that library wrote."""
        if not isinstance(data, dict) or data.get("format") is None:
            raise StoreError(f"{where} is not a vector store of ensembed: nothing there says whose vectors it holds")
        if data["format"] != FORMAT_VERSION:
            raise StoreError(
                f"{where} has format {data['format']!r}; this version of ensembed reads {FORMAT_VERSION}: update it"
            )
        for name, kind in _FACTS.items():
            if not isinstance(data.get(name), kind):
                raise StoreError(f"{where} is damaged: its {name!r} is {data.get(name)!r}; {_WAY_OUT}")
        if data["backend"] != backend:
            raise StoreError(f"{where} is a store of {data['backend']}, not of {backend}")
        return cls(**{name: data[name] for name in _FACTS if name != "format"})

    def check_settings(self, kinds: Kinds, where: str) -> None:
        """Refuse settings that no store was created with; a StoreError says which."""
        for name, wrong in _wrong_settings(self.settings, kinds):
            raise StoreError(f"{where} is damaged: its setting {name!r} is {wrong!r}; {_WAY_OUT}")

    def check(self, model: Encoder, where: str) -> None:
        """Refuse a model that did not make the store's vectors.

        Raises:
            InputError: names both.
            StoreError: the model is the one, but its vectors are of another length than the store says.
        """
        if model.spec.key != self.key:
            raise InputError(
                f"{where} holds vectors of {self.model!r} (key {self.key}, {self.dim} dimensions), and "
                f"{model.spec.name!r} (key {model.spec.key}, {model.spec.dim} dimensions) is another model: open the "
                "store with the one that filled it, or create another"
            )
        if model.spec.dim != self.dim:
            raise StoreError(f"{where} is damaged: its 'dim' is {self.dim}, not {model.spec.dim}; {_WAY_OUT}")


class VectorStore(ABC):
    """Vectors of sentences by id, in one library.

    A subclass has `create` and `open`, and writes what is abstract here; it is given what has been checked.

    An id is a whole number from 0 to 2**63 - 1. One that is in the store already is refused, unless it is to be
    replaced. Whatever is refused changes nothing.

    Attributes:
        model: what makes the vectors.
        facts: what the store remembers.
        where: how errors call it.
    """

    backend: ClassVar[str]

    def __init__(self, model: Encoder, facts: StoreFacts, where: str) -> None:
        self.model = model
        self.facts = facts
        self.where = where
        self._closed = False

    def add(
        self, ids: Sequence[int], sentences: Sequence[str], *, replace: bool = False, progress: Progress = silent
    ) -> None:
        """Encode the sentences and keep their vectors under these ids.

        Args:
            ids: one per sentence.
            sentences: the sentences.
            replace: put new vectors in the place of those whose ids are there already, instead of refusing them.
            progress: told of encoding.

        Raises:
            InputError: an id is none, is given twice, or is taken.
            SentenceError: a sentence is no string, or one of which the model knows nothing, so that its vector is zero.
        """
        self._check_usable(changes=True)
        checked, numbers = check_sentences(sentences), checked_ids(ids)
        if len(checked) != len(numbers):
            raise InputError(f"{len(numbers)} ids for {len(checked)} sentences: give one id for each")
        if not checked:
            return
        if not replace:
            self._refuse_taken(numbers)
        self._add(numbers, self._units(checked, progress), checked, replace=replace)

    def search(self, queries: Sequence[str], k: int = 10) -> Hits:
        """The k sentences whose vectors have the largest cosine with each query's, or all where there are fewer.

        Raises:
            InputError: k is not a whole number of at least 1.
            SentenceError: a query is no string, or one of which the model knows nothing.
        """
        self._check_usable()
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, not {k!r}")
        checked = check_sentences(queries)
        k = self._at_most(int(k))
        if not k or not checked:
            return Hits(np.empty((len(checked), k), np.int64), np.empty((len(checked), k), np.float32))
        return self._search(self._units(checked, silent), k)

    def delete(self, ids: Sequence[int]) -> None:
        """Forget these ids and their vectors.

        Raises:
            InputError: one is not in the store; then none is deleted.
        """
        self._check_usable(changes=True)
        numbers = checked_ids(ids)
        if not len(numbers):
            return
        unknown = numbers[~self._present(numbers)]
        if len(unknown):
            raise InputError(f"{self.where} has no {_some(unknown)}: nothing was deleted")
        self._delete(numbers)

    def __contains__(self, number: object) -> bool:
        self._check_usable()
        return bool(self._present(checked_ids([number]))[0])

    @abstractmethod
    def __len__(self) -> int:
        """How many vectors there are."""

    def save(self) -> None:
        """Make what was added or deleted last; where each change is kept at once there is nothing to do."""
        self._check_usable()

    def close(self) -> None:
        """Let go of files and connections; what was not saved is lost."""
        self._closed = True

    def __enter__(self: S) -> S:  # noqa: PYI019 - Python 3.10 has no Self
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where!r}, model={self.facts.model!r}, dim={self.facts.dim})"

    @abstractmethod
    def _add(self, ids: IdArray, vectors: FloatArray, sentences: list[str], *, replace: bool) -> None:
        """Keep them all or none; with `replace`, some ids may be there."""

    @abstractmethod
    def _search(self, vectors: FloatArray, k: int) -> Hits:
        """The k nearest, k being at most the number of vectors."""

    def _at_most(self, k: int) -> int:
        """The smaller of k and the number of vectors."""
        return min(k, len(self))

    @abstractmethod
    def _present(self, ids: IdArray) -> NDArray[np.bool_]:
        """Which ids are in the store."""

    @abstractmethod
    def _delete(self, ids: IdArray) -> None:
        """Delete ids that are there, all or none."""

    def _refuse_taken(self, ids: IdArray) -> None:
        taken = ids[self._present(ids)]
        if len(taken):
            raise InputError(self._taken(taken))

    def _taken(self, ids: IdArray) -> str:
        return f"{self.where} has {_some(ids)} already: nothing was added; leave out what is there, or say replace=True"

    def _units(self, sentences: list[str], progress: Progress) -> FloatArray:
        """The sentences' vectors, scaled to length one."""
        vectors = unit_rows(self.model.encode(sentences, progress=progress))
        empty = np.flatnonzero(~vectors.any(axis=1))
        if len(empty):
            raise SentenceError(
                f"the vector of sentence {empty[0]}, {shorten(sentences[empty[0]])}, is zero: it has no cosine with "
                "anything; leave the sentence out"
            )
        return vectors

    def _check_usable(self, *, changes: bool = False) -> None:  # noqa: ARG002 - some stores are opened to be read only
        if self._closed:
            raise StoreError(f"{self.where} was closed: open it again")


@contextmanager
def closing_failures(store: VectorStore) -> Iterator[None]:
    """Close a store that does not come to be: its connection would stay open, its folder locked."""
    try:
        yield
    except BaseException:  # an interrupt, too, leaves no store that could be closed later
        store.close()
        raise


def checked_settings(settings: Mapping[str, Any], kinds: Kinds) -> Mapping[str, Any]:
    """The settings of a new store, or an InputError that says which cannot be one."""
    for name, wrong in _wrong_settings(settings, kinds):
        raise InputError(f"{name} is {_choices(kinds[name])}, not {wrong!r}")
    return settings


def _wrong_settings(settings: Mapping[str, Any], kinds: Kinds) -> Iterator[tuple[str, Any]]:
    for name, allowed in kinds.items():
        value = settings.get(name)
        if name not in settings or not any(_fits(value, one) for one in allowed):
            yield name, value


def _fits(value: object, allowed: object) -> bool:
    if allowed is int:
        return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_NUMBER
    return isinstance(value, allowed) if isinstance(allowed, type) else value == allowed


def _choices(allowed: tuple[object, ...]) -> str:
    words = {int: f"a whole number from 1 to {_MOST_NUMBER:,}", bool: "True or False"}
    return " or ".join(words[one] if isinstance(one, type) else repr(one) for one in allowed)


def store_model(model: ModelLike) -> Encoder:
    """The model, the one saved in that folder, or the encoder of that name; its vectors must always be the same."""
    opened = open_model(model, from_file=True)
    if not opened.cacheable:
        raise StoreError(
            f"the vectors of {opened.spec.name!r} are not always the same (missing='drop'): they cannot be kept in a "
            "store; open the model with missing='error'"
        )
    return opened


def checked_ids(ids: Sequence[Any]) -> IdArray:
    """The ids as an array, or an InputError that says which is none or comes twice."""
    if isinstance(ids, (str, bytes)) or not hasattr(ids, "__len__"):
        raise InputError(f"ids are a list of whole numbers, not {ids!r}")
    for number in ids:
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
            raise InputError(f"an id is a whole number, not {number!r}")
        if not 0 <= number <= _MOST_ID:
            raise InputError(f"an id is a whole number from 0 to 2**63 - 1, not {number}")
    numbers = np.array([int(number) for number in ids], np.int64)
    seen, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"{_some(seen[counts > 1])} given twice")
    return numbers


def padded(found: Sequence[tuple[ArrayLike, ArrayLike]], k: int) -> Hits:
    """Ids and scores of each query as arrays with k columns."""
    hits = Hits(np.full((len(found), k), NO_ID, np.int64), np.full((len(found), k), np.nan, np.float32))
    for row, (ids, scores) in enumerate(found):
        n = np.size(ids)
        hits.ids[row, :n] = ids
        hits.scores[row, :n] = scores
    return hits


def _some(ids: IdArray) -> str:
    """The first few ids, for a message."""
    shown = ", ".join(map(str, ids[:3].tolist())) + (", ..." if len(ids) > 3 else "")
    return f"id {shown}" if len(ids) == 1 else f"ids {shown} ({len(ids)} of them)"
