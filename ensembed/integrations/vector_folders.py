"""Vector stores whose library keeps an index in memory: a folder with the index and what it is an index of.

The folder holds `index-HASH` and `store.json`, which names it. The index is written under a temporary name, synced and
renamed before `store.json` is, so that a save that is interrupted leaves the store as it was.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from ensembed.encoders import Encoder
from ensembed.errors import InputError, StoreBusyError, StoreError
from ensembed.integrations.vector_stores import StoreFacts, VectorStore, store_model
from ensembed.models.opening import ModelLike
from ensembed.support.atomic_files import sync, temporary_beside, write_atomically
from ensembed.support.progress import Progress, silent

STORE = "store.json"
_LOCK = ".lock"
# How often a reader looks again when a writer has put another index in the place of the one it was about to read.
_TRIES = 5
_INDEX = re.compile(r"index-[0-9a-f]{16}")
F = TypeVar("F", bound="FolderStore")


class FolderStore(VectorStore):
    """A store in memory that `save` writes to its folder, if it has one; so does the end of a `with`.

    Of two processes that open a store, change it and save it, the second is refused: what the first saved stays.

    Attributes:
        index: the library's own.
    """

    def __init__(
        self,
        model: Encoder,
        facts: StoreFacts,
        folder: Path | None,
        index: Any,  # noqa: ANN401 - of a library that is imported when it is there
        *,
        read_only: bool = False,
    ) -> None:
        super().__init__(model, facts, f"the {self.backend} store in {'memory' if folder is None else folder}")
        self.index = index
        self._folder = folder
        self._read_only = read_only
        self._seen: bytes | None = None  # `store.json` as this object last read or wrote it
        self._unsaved = False

    @classmethod
    def _created(  # noqa: PYI019 - Python 3.10 has no Self
        cls: type[F],
        folder: str | Path | None,
        model: ModelLike,
        settings: Mapping[str, Any],
        empty: Callable[[StoreFacts], Any],
    ) -> F:
        """A new store with an empty index, saved if it has a folder."""
        path, opened = new_folder(folder), store_model(model)
        facts = StoreFacts.of(cls.backend, opened, **settings)
        store = cls(opened, facts, path, empty(facts))
        if path is not None:
            store.save()
        return store

    @classmethod
    def _opened(  # noqa: PYI019 - as above
        cls: type[F],
        folder: str | Path,
        model: ModelLike,
        read: Callable[[StoreFacts, Path], Any],
        *,
        read_only: bool = False,
    ) -> F:
        """The store of a folder, its index being what is read from the file that `store.json` names."""
        path = Path(folder)
        facts, file, seen = read_folder(path, cls.backend)
        opened = store_model(model)
        facts.check(opened, f"the {cls.backend} store in {path}")
        store = cls(opened, facts, path, read(facts, file), read_only=read_only)
        store._seen = seen
        return store

    def add(
        self, ids: Sequence[int], sentences: Sequence[str], *, replace: bool = False, progress: Progress = silent
    ) -> None:
        """Encode the sentences and keep their vectors under these ids, in memory until `save`; see `VectorStore`."""
        super().add(ids, sentences, replace=replace, progress=progress)
        self._unsaved = True

    def delete(self, ids: Sequence[int]) -> None:
        """Forget these ids and their vectors, in memory until `save`; see `VectorStore`."""
        super().delete(ids)
        self._unsaved = True

    def save(self) -> None:
        """Write the index to the folder.

        Raises:
            StoreBusyError: another process has saved since this one opened the store, or is saving now.
            StoreError: the store has no folder, or it cannot be written to.
        """
        self._check_usable(changes=True)
        if self._folder is None:
            raise StoreError(f"{self.where} has no folder to be saved in: create it with one")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self._folder / _LOCK, timeout=0):
                self._write(self._folder)
            self._unsaved = False
        except Timeout:
            raise StoreBusyError(f"another process is saving {self.where}: try again, nothing was written") from None
        except OSError as error:
            raise StoreError(f"cannot save {self.where}: {error}") from error

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """At the end of `with` what has changed is saved, but not after an error."""
        try:
            if kind is None and self._unsaved and self._folder is not None and not self._closed:
                self.save()
        finally:
            self.close()

    @abstractmethod
    def _write_index(self, path: Path) -> None:
        """Write the index to a file."""

    def _write(self, folder: Path) -> None:
        if _content(folder / STORE) != self._seen:
            raise StoreBusyError(
                f"another process has saved {self.where} since it was opened here: nothing was written, so that its "
                "changes are not lost; open the store again and repeat yours"
            )
        temporary = temporary_beside(folder / "index")
        try:
            self._write_index(temporary)
            digest = _sha256(temporary)
            sync(temporary)
            name = f"index-{digest[:16]}"
            temporary.replace(folder / name)
        finally:
            temporary.unlink(missing_ok=True)
        sync(folder)
        data = json.dumps(self.facts.to_json() | {"index": name, "sha256": digest}, indent=1).encode() + b"\n"
        write_atomically(folder / STORE, data)
        self._seen = data
        # What is replaced, and what a process left that was ended while it saved: whoever has the lock is alone.
        for old in (*folder.glob("index-*"), *folder.glob(".index.*.tmp")):
            if old.name != name:
                old.unlink(missing_ok=True)

    def _check_usable(self, *, changes: bool = False) -> None:
        super()._check_usable(changes=changes)
        if changes and self._read_only:
            raise StoreError(f"{self.where} was opened to be read only: open it without view=True to change it")


def new_folder(folder: str | Path | None) -> Path | None:
    """The folder for a new store, which must not hold one."""
    if folder is None:
        return None
    if not isinstance(folder, (str, Path)) or str(folder) == "":
        raise InputError(f"a store is kept in a folder, not in {folder!r}; None keeps it in memory")
    path = Path(folder)
    if (path / STORE).exists():
        raise StoreError(f"there is a store in {path} already: open it, or choose another folder")
    if path.exists() and not path.is_dir():
        raise StoreError(f"{path} is not a folder")
    return path


def read_folder(folder: Path, backend: str) -> tuple[StoreFacts, Path, bytes]:
    """The facts of the store in a folder, its index file, whose every byte has been checked, and `store.json`."""
    where = str(folder)
    for attempt in range(_TRIES):
        data = _content(folder / STORE)
        if data is None:
            raise StoreError(f"there is no store in {where}: it has no {STORE}; create one")
        try:
            found: Any = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{folder / STORE} is damaged: {error}") from error
        facts = StoreFacts.from_json(found, backend, where)
        name, digest = found.get("index"), found.get("sha256")
        if not isinstance(name, str) or not _INDEX.fullmatch(name):
            raise StoreError(f"{folder / STORE} is damaged: its index is {name!r}")
        try:
            if _sha256(folder / name) != digest:
                raise StoreError(f"{folder / name} is damaged: its bytes are not those that were saved")
        except FileNotFoundError:
            if attempt == _TRIES - 1:
                raise StoreError(f"{folder / name} is missing: it is the index of the store {where}") from None
            continue
        except OSError as error:
            raise StoreError(f"cannot read {folder / name}: {error}") from error
        return facts, folder / name, data
    raise AssertionError("the last attempt returns or raises")


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}") from error


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
