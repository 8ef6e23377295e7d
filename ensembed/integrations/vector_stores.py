"""What all vector stores share. Scores are cosines; a store refuses every model but the one that made its vectors."""

from __future__ import annotations

import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from ensembed.corpora.corpus import check_sentences, shorten
from ensembed.encoders.base import Encoder, FloatArray, UntrustedName
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import EnsembedError, InputError, SentenceError, StoreBusyError, StoreError
from ensembed.integrations.model_source import untrusted
from ensembed.models.opening import ModelLike, open_model
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.atomic_files import make_folder, new_file, write_atomically
from ensembed.support.checks import sha256_of
from ensembed.support.file_limits import JSON_BYTES, open_regular, parse_json
from ensembed.support.progress import Progress, silent

IdArray = NDArray[np.int64]
Allowed: TypeAlias = Mapping[str, tuple[object, ...]]
"""The values, types or ranges of whole numbers that each setting may have."""
NO_ID = -1
"""The value in `Hits.ids` where an approximate search returned fewer than k hits; the score is NaN."""

FORMAT_VERSION = 1
STORE = "store.json"
_MAX_ID = 2**63 - 1
NUMBER = range(1, 1_000_001)  # no library can use more links or a wider search
LINKS = NUMBER[1:]  # of a vector in a graph: with one, usearch finds nothing, and FAISS crashes
_REMEDY = "restore a copy of the store, or create it again"
_FIELDS: dict[str, type] = {"format": int, "backend": str, "model": str, "key": str, "dim": int, "settings": dict}
_TRIES = 5  # of a reader whose index a writer replaces


class Hits(NamedTuple):
    """The result of a search, best first: ids [queries, k], and as scores [queries, k] their cosines."""

    ids: IdArray
    scores: FloatArray

    @classmethod
    def padded(cls, results: Sequence[tuple[ArrayLike, ArrayLike]], k: int) -> Hits:
        """Return the ids and scores of each query as arrays with k columns."""
        hits = cls(np.full((len(results), k), NO_ID, np.int64), np.full((len(results), k), np.nan, np.float32))
        for row, (ids, scores) in enumerate(results):
            n = np.size(ids)
            hits.ids[row, :n] = ids
            hits.scores[row, :n] = scores
        return hits


@dataclass(frozen=True)
class StoreFacts:
    """What a store records about itself: the library, the model, the length of a vector, and the library's settings."""

    backend: str
    model: UntrustedName  # its name at creation, which may differ now
    key: str  # of the spec of its encoder of documents: equal keys mean equal vectors
    dim: int
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, backend: str, model: Encoder, settings: Mapping[str, Any] | None = None) -> StoreFacts:
        """Return the facts of a new store for this model's vectors."""
        key = model.document_encoder.spec.key
        return cls(backend, UntrustedName(model.spec.name), key, model.spec.dim, settings or {})

    def to_json(self) -> dict[str, Any]:
        """Return plain data that `from_json` reads back."""
        return {"format": FORMAT_VERSION} | asdict(self) | {"model": self.model.text}

    @classmethod
    def from_json(cls, data: object, backend: str, where: str) -> StoreFacts:
        """Return the facts in plain data; raise a StoreError if a store of that library did not write it."""
        if not isinstance(data, dict) or data.get("format") is None:
            raise StoreError(f"{where} is not a vector store of ensembed: it does not say whose vectors it holds")
        if data["format"] != FORMAT_VERSION:
            raise StoreError(f"{where} has format {data['format']!r}; this ensembed reads {FORMAT_VERSION}: update it")
        for name, kind in _FIELDS.items():
            if not isinstance(data.get(name), kind):
                raise StoreError(f"{where} is damaged: its {name!r} is {data.get(name)!r}; {_REMEDY}")
        if data["backend"] != backend:
            raise StoreError(f"{where} is a store of {data['backend']}, not of {backend}")
        facts = {name: data[name] for name in _FIELDS if name != "format"}
        return cls(**facts | {"model": UntrustedName(facts["model"])})

    def check_model(self, model: Encoder, where: str) -> None:
        """Raise an InputError, which names both models, unless this model made the store's vectors."""
        key = model.document_encoder.spec.key
        if self.key not in (key, model.spec.key):
            former = f"{self.model.text!r} (key {self.key}, {self.dim} dimensions)"
            this = f"{model.spec.name!r} (key {key}, {model.spec.dim} dimensions)"
            raise InputError(f"{where} holds vectors of {former}, and {this} is another model: open it with the first")
        if model.spec.dim != self.dim:
            raise StoreError(f"{where} is damaged: its 'dim' is {self.dim}, not {model.spec.dim}; {_REMEDY}")


class VectorStore(ABC):
    """Vectors of sentences by id, in one library: those of `encode_document`; queries get those of `encode_query`.

    An id is from 0 to 2**63 - 1; a known one is refused unless `replace` is set. A refused call changes nothing.
    A store that is closed, or whose library fails, raises a StoreError.
    A subclass defines `create`, `open` and the abstract methods, which get checked arguments.

    Attributes:
        model: the model that makes the vectors.
        facts: what the store records about itself.
        where: the store's name in error messages.
    """

    backend: ClassVar[str]

    def __init__(self, model: Encoder, facts: StoreFacts, where: str) -> None:
        self.model, self.facts, self.where = model, facts, where
        self._closed = self._read_only = self._unsaved = False

    def add(
        self, ids: Sequence[int], sentences: Sequence[str], *, replace: bool = False, progress: Progress = silent
    ) -> None:
        """Encode the sentences and keep their vectors under these ids.

        Args:
            ids: one id per sentence.
            sentences: the sentences.
            replace: replace the vectors of ids that are in the store already, instead of refusing them.
            progress: receives the number of encoded rows.

        Raises:
            InputError: an id is invalid, given twice, or in the store already.
            SentenceError: a sentence is not a string, or its vector is zero.
        """
        self._check_usable(write=True)
        checked, numbers = check_sentences(sentences), checked_ids(ids)
        if len(checked) != len(numbers):
            raise InputError(f"{len(numbers)} ids for {len(checked)} sentences: give one id for each")
        if not checked:
            return
        if not replace:
            self._refuse_taken(numbers)
        vectors = self._unit_vectors(self._encoders()[0], checked, progress)
        self._add(numbers, vectors, checked, replace=replace)
        self._unsaved = True

    def search(self, queries: Iterable[str], k: int = 10) -> Hits:
        """Return the k sentences with the largest cosine to each query, or all if the store has fewer.

        One string is a list of one.

        Raises:
            InputError: k is not a whole number of at least 1.
            SentenceError: a query is not a string, or its vector is zero.
        """
        self._check_usable()
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, not {k!r}")
        checked = check_sentences([queries] if isinstance(queries, str) else queries)
        k = self._at_most(int(k))
        if not k or not checked:
            return Hits(np.empty((len(checked), k), np.int64), np.empty((len(checked), k), np.float32))
        return self._search(self._unit_vectors(self._encoders()[1], checked, silent), k)

    def delete(self, ids: Sequence[int]) -> None:
        """Delete these ids and their vectors, all or none.

        Raises:
            InputError: an id is invalid, given twice, or not in the store.
        """
        self._check_usable(write=True)
        numbers = checked_ids(ids)
        if not len(numbers):
            return
        if len(unknown := numbers[~self._present(numbers)]):
            raise InputError(f"{self.where} has no {_some(unknown)}: nothing was deleted")
        self._delete(numbers)
        self._unsaved = True

    def __contains__(self, number: object) -> bool:
        self._check_usable()
        return bool(self._present(checked_ids([number]))[0])

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of vectors."""

    def save(self) -> None:
        """Write unsaved changes; stores that keep every change at once have nothing to do."""
        self._check_usable()

    def close(self) -> None:
        """Release files and connections; unsaved changes are lost."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where!r}, model={self.facts.model.text!r}, dim={self.facts.dim})"

    @abstractmethod
    def _add(self, ids: IdArray, vectors: FloatArray, sentences: list[str], *, replace: bool) -> None:
        """Keep all of them or none; with `replace`, some ids may be in the store."""

    @abstractmethod
    def _search(self, vectors: FloatArray, k: int) -> Hits:
        """Return the k nearest; k is at most the number of vectors."""

    def _at_most(self, k: int) -> int:
        """Return the smaller of k and the number of vectors."""
        return min(k, len(self))

    @abstractmethod
    def _present(self, ids: IdArray) -> NDArray[np.bool_]:
        """Return for each id whether it is in the store."""

    @abstractmethod
    def _delete(self, ids: IdArray) -> None:
        """Delete ids that are in the store, all or none."""

    def _refuse_taken(self, ids: IdArray) -> None:
        if len(taken := ids[self._present(ids)]):
            raise InputError(f"{self.where} has {_some(taken)} already: leave these out, or set replace=True")

    def _encoders(self) -> tuple[Encoder, Encoder]:
        """Return the encoders of sentences and of queries, which a model may treat apart.

        A store that was made before stores did it has plain vectors of both.
        """
        documents = self.model.document_encoder
        if documents.spec.key == self.facts.key:
            return documents, self.model.query_encoder
        return self.model, self.model

    def _unit_vectors(self, encoder: Encoder, sentences: list[str], progress: Progress) -> FloatArray:
        vectors = unit_rows(encoder.encode(sentences, progress=progress))
        if len(empty := np.flatnonzero(~vectors.any(axis=1))):
            sentence = f"sentence {empty[0]}, {shorten(sentences[empty[0]])}"
            raise SentenceError(f"the vector of {sentence}, is zero: it has no cosine with anything; leave it out")
        return vectors

    def _check_usable(self, *, write: bool = False) -> None:
        if self._closed:
            raise StoreError(f"{self.where} was closed: open it again")
        if write and self._read_only:
            raise StoreError(f"{self.where} was opened read only: open it without view=True to change it")


class FolderStore(VectorStore):
    """A store whose library keeps an index in memory; `save`, or the end of a `with`, writes it to the folder.

    An interrupted save leaves the store as it was: `store.json` is written last. The second of two writers is refused.

    Attributes:
        index: the library's index.
    """

    def __init__(self, model: Encoder, facts: StoreFacts, folder: Path | None, index: Any) -> None:  # noqa: ANN401 - of an optional library
        super().__init__(model, facts, f"the {self.backend} store in {'memory' if folder is None else folder}")
        self.index, self._folder = index, folder
        self._on_disk: bytes | None = None  # `store.json` as this object last read or wrote it

    @classmethod
    def _created(cls, folder: str | Path | None, model: ModelLike, settings: Mapping[str, Any], trust: Trust) -> Self:
        """Return a new store with an empty index, saved if it has a folder."""
        if folder is not None:
            _check_new(folder)
        encoder = store_model(model, trust=trust)
        facts = StoreFacts.of(cls.backend, encoder, settings)
        store = cls(encoder, facts, None if folder is None else Path(folder), cls._empty_index(facts))
        if folder is not None:
            store.save()
        return store

    @classmethod
    def open(cls, folder: str | Path, model: ModelLike, *, trust: Trust = False) -> Self:
        """Open the store that was saved in a folder.

        Args:
            folder: the folder.
            model: the model that the store was created with, its folder or its name.
            trust: as for `create`.

        Raises:
            InputError: the store was created with another model.
            StoreError: there is no store in the folder, or it is damaged.
        """
        return cls._opened(folder, model, trust=trust)

    @classmethod
    def _opened(cls, folder: str | Path, model: ModelLike, *, trust: Trust, read_only: bool = False) -> Self:
        facts, file, content = _read_folder(Path(folder), cls.backend)
        encoder = store_model(model, trust=trust)
        facts.check_model(encoder, f"the {cls.backend} store in {folder}")
        store = cls(encoder, facts, Path(folder), cls._read_index(facts, file, read_only=read_only))
        store._read_only, store._on_disk = read_only, content
        return store

    def save(self) -> None:
        """Write the index to the folder; raise a StoreBusyError if another process has saved meanwhile."""
        self._check_usable(write=True)
        if self._folder is None:
            raise StoreError(f"{self.where} has no folder to be saved in: create it with one")
        try:
            make_folder(self._folder)
            with FileLock(self._folder / ".lock", timeout=0):
                self._write(self._folder)
            self._unsaved = False
        except Timeout:
            raise StoreBusyError(f"another process is saving {self.where}: nothing was written; try again") from None
        except OSError as error:
            raise StoreError(f"cannot save {self.where}: {error}") from error

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Save changes, unless an error ended the `with`, and close."""
        try:
            if kind is None and self._unsaved and self._folder is not None and not self._closed:
                self.save()
        finally:
            self.close()

    @classmethod
    @abstractmethod
    def _empty_index(cls, facts: StoreFacts) -> Any:  # noqa: ANN401 - of an optional library
        """Return a new index."""

    @classmethod
    @abstractmethod
    def _read_index(cls, facts: StoreFacts, file: Path, *, read_only: bool) -> Any:  # noqa: ANN401 - as above
        """Read an index from a file and check the settings."""

    @abstractmethod
    def _write_index(self, path: Path) -> None:
        """Write the index to a file."""

    @abstractmethod
    def _insert(self, ids: IdArray, vectors: FloatArray) -> None:
        """Add vectors under ids that are not in the index."""

    def _add(self, ids: IdArray, vectors: FloatArray, sentences: list[str], *, replace: bool) -> None:  # noqa: ARG002 - an index holds no texts
        taken = ids[self._present(ids)] if replace else ids[:0]
        if len(taken):
            self._delete(taken)
        self._insert(ids, vectors)

    def _write(self, folder: Path) -> None:
        if _content(folder / STORE) != self._on_disk:
            problem = f"another process has saved {self.where} since it was opened here: nothing was written"
            raise StoreBusyError(f"{problem}; open the store again and repeat your changes")
        name = f"index-{secrets.token_hex(8)}"
        with new_file(folder / name) as temporary:
            self._write_index(temporary)
            digest = sha256_of(temporary)
        data = json.dumps(self.facts.to_json() | {"index": name, "sha256": digest}, indent=1).encode() + b"\n"
        write_atomically(folder / STORE, data)
        self._on_disk = data
        # Delete the old index and files of interrupted saves; the lock keeps other writers out.
        for old in (*folder.glob("index-*"), *folder.glob(".index*.tmp")):
            if old.name != name:
                old.unlink(missing_ok=True)


class DatabaseStore(VectorStore):
    """A store in a database, which keeps every change at once and the sentences beside the vectors."""

    _errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, model: Encoder, facts: StoreFacts, where: str, owned: Any) -> None:  # noqa: ANN401 - of an optional library
        super().__init__(model, facts, where)
        self._owned = owned  # the connection to close with the store; None for one that belongs to the user

    def texts(self, ids: Sequence[int]) -> list[str]:
        """Return the sentences of these ids; raise an InputError if one is not in the store."""
        self._check_usable()
        wanted = checked_ids(ids).tolist()
        with self._failures():
            texts = self._texts(wanted)
        if absent := [number for number in wanted if number not in texts]:
            raise InputError(f"{self.where} has no id {absent[0]}")
        return [texts[number] for number in wanted]

    def close(self) -> None:
        """Close the connection, unless it belongs to the user."""
        if self._owned is not None and not self._closed:
            self._owned.close()
        super().close()

    @abstractmethod
    def _texts(self, ids: list[int]) -> dict[int, str]:
        """Return the sentences of those ids that are in the store."""

    @contextmanager
    def _failures(self, *, close: bool = False) -> Iterator[None]:
        """Turn the library's errors into a StoreError; `close` a store that cannot be made, as nobody else could."""
        try:
            yield
        except BaseException as error:  # also after an interrupt
            if close:
                self.close()
            if isinstance(error, self._errors) and not isinstance(error, EnsembedError):
                raise StoreError(f"{self.where} cannot be used: {str(error).strip()}") from error
            raise


def store_model(model: ModelLike, *, trust: Trust) -> Encoder:
    """Open a model whose vectors are to be stored; raise a StoreError if its vectors can vary."""
    return constant(open_model(untrusted(model), trust=trust))


def constant(encoder: Encoder) -> Encoder:
    """Return the encoder; raise a StoreError if its vectors can vary."""
    if not encoder.cacheable:
        problem = f"the vectors of {encoder.spec.name!r} are not always the same (missing='drop')"
        raise StoreError(f"{problem}: open the model with missing='error'")
    return encoder


def checked_settings(settings: Mapping[str, Any], allowed: Allowed, where: str | None = None) -> Mapping[str, Any]:
    """Return allowed settings; others are an InputError or, if they were read from a store `where`, a StoreError."""
    for name, choices in allowed.items():
        value = settings.get(name)
        if name in settings and any(_fits(value, choice) for choice in choices):
            continue
        if where is not None:
            raise StoreError(f"{where} is damaged: its setting {name!r} is {value!r}; {_REMEDY}")
        raise InputError(f"{name} is {' or '.join(map(_described, choices))}, not {value!r}")
    return settings


def _fits(value: object, choice: object) -> bool:
    if isinstance(choice, range):
        return isinstance(value, int) and not isinstance(value, bool) and value in choice
    return isinstance(value, choice) if isinstance(choice, type) else value == choice


def _described(choice: object) -> str:
    if isinstance(choice, range):
        return f"a whole number from {choice[0]} to {choice[-1]:,}"
    return "True or False" if choice is bool else repr(choice)


def checked_ids(ids: Sequence[Any]) -> IdArray:
    """Return the ids as an array; raise an InputError that says which one is invalid or given twice."""
    if isinstance(ids, (str, bytes)) or not hasattr(ids, "__len__"):
        raise InputError(f"ids are a list of whole numbers, not {ids!r}")
    for number in ids:
        whole = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
        if not whole or not 0 <= number <= _MAX_ID:
            raise InputError(f"an id is a whole number from 0 to 2**63 - 1, not {number!r}")
    numbers = np.array([int(number) for number in ids], np.int64)
    distinct, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"{_some(distinct[counts > 1])} given twice")
    return numbers


def _some(ids: IdArray) -> str:
    """Return the first few ids, for a message."""
    first = ", ".join(map(str, ids[:3].tolist())) + (", ..." if len(ids) > 3 else "")
    return f"id {first}" if len(ids) == 1 else f"ids {first} ({len(ids)} of them)"


def _check_new(folder: str | Path) -> None:
    """Refuse what cannot be the folder of a new store."""
    if not isinstance(folder, (str, Path)) or str(folder) == "":
        raise InputError(f"a store is kept in a folder, not in {folder!r}; None keeps it in memory")
    if (Path(folder) / STORE).exists():
        raise StoreError(f"there is a store in {folder} already: open it, or choose another folder")
    if Path(folder).exists() and not Path(folder).is_dir():
        raise StoreError(f"{folder} is not a folder")


def _read_folder(folder: Path, backend: str, tries: int = _TRIES) -> tuple[StoreFacts, Path, bytes]:
    """Return the facts of the store in a folder, its index file, of which every byte is checked, and `store.json`."""
    content = _content(folder / STORE)
    if content is None:
        raise StoreError(f"there is no store in {folder}: it has no {STORE}; create one")
    try:
        data: Any = parse_json(content)
    except ValueError as error:
        raise StoreError(f"{folder / STORE} is damaged: {error}") from error
    facts = StoreFacts.from_json(data, backend, str(folder))
    name, digest = data.get("index"), data.get("sha256")
    if not isinstance(name, str) or not re.fullmatch(r"index-[0-9a-f]{16}", name):
        raise StoreError(f"{folder / STORE} is damaged: its index is {name!r}")
    try:
        if sha256_of(folder / name) != digest:
            raise StoreError(f"{folder / name} is damaged: its bytes are not those that were saved")
    except FileNotFoundError:
        if tries > 1:  # a writer has replaced it
            return _read_folder(folder, backend, tries - 1)
        raise StoreError(f"{folder / name} is missing: it is the index of the store {folder}") from None
    except OSError as error:
        raise StoreError(f"cannot read {folder / name}: {error}") from error
    return facts, folder / name, content


def _content(path: Path) -> bytes | None:
    try:
        with open_regular(path) as file:
            return file.read(JSON_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}") from error
