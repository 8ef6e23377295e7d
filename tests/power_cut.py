"""A simulated power cut: record what a run does to the files of a folder, and rebuild what a disk may then hold.

The state of the folder is read before every operation on files. After a power cut, a disk holds what was synced: the
bytes of a file at its last fsync, the names of a folder at its last fsync. Of everything since, any part may be
there. `states_after_power_cuts` tries, for every operation: no later change of a name, all of them, each of them alone
and all but each; and with each of these, files with no byte, half of the bytes or all bytes that were not synced.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR
Names = dict[int, dict[str, int]]  # of a folder, by its inode: the inode of every name
Change = tuple[tuple[int, str, int | None], ...]  # (folder, name, inode or None for a removed name), at once


@dataclass(frozen=True)
class Moment:
    """What a power cut can leave between two operations."""

    names: Names  # synced
    changes: tuple[Change, ...]  # of names, since then
    synced: Mapping[int, bytes]
    written: Mapping[int, bytes]  # the bytes of every file with those that are not synced


class Recorder:
    """Follows what happens to a folder while it is `current`; everything in it is taken for synced at first."""

    current: Recorder | None = None

    def __init__(self, root: Path) -> None:
        self.root = root
        self.moments: list[Moment] = []
        self._lock = threading.RLock()
        self._open: dict[int, int] = {}  # held open, so that no inode is used a second time
        self._now, self._written = self._read()
        self._names = {folder: dict(names) for folder, names in self._now.items()}
        self._synced = dict(self._written)
        self._changes: list[Change] = []

    def look(self) -> None:
        """Read the folder, find out which names have changed, and keep this moment."""
        with self._lock:
            before, (self._now, files) = self._now, self._read()
            self._written |= files
            self._changes += _changes(before, self._now)
            for folder in self._now:
                self._names.setdefault(folder, {})
            names = {folder: dict(names) for folder, names in self._names.items()}
            self.moments.append(Moment(names, tuple(self._changes), dict(self._synced), dict(self._written)))

    def sync(self, descriptor: int) -> None:
        """Note that a file or folder is synced."""
        with self._lock:
            self.look()
            inode = os.fstat(descriptor).st_ino
            if inode in self._written:
                self._synced[inode] = self._written[inode]
            elif inode in self._now:
                self._names[inode] = dict(self._now[inode])
                rest = [tuple(part for part in change if part[0] != inode) for change in self._changes]
                self._changes = [change for change in rest if change]

    def close(self) -> None:
        """Close the files that were held open."""
        for descriptor in self._open.values():
            os.close(descriptor)

    def _read(self) -> tuple[Names, dict[int, bytes]]:
        names: Names = {}
        files = {}
        for folder, folders, plain in os.walk(self.root):
            place = Path(folder)
            own = names[place.stat().st_ino] = {}
            for name in (*folders, *plain):
                inode = own[name] = (place / name).stat().st_ino
                if inode not in self._open:
                    self._open[inode] = os.open(place / name, os.O_RDONLY)
                if name in plain:
                    size = os.fstat(self._open[inode]).st_size
                    files[inode] = os.pread(self._open[inode], size, 0) if size else b""
        return names, files


def _changes(before: Names, now: Names) -> list[Change]:
    """Return what changed; a rename, of a file or folder, and an exchange are one change of two names."""
    gone = {
        (folder, name): inode
        for folder, names in before.items()
        for name, inode in names.items()
        if folder in now and name not in now[folder]
    }
    changes: list[Change] = []
    for folder, names in now.items():
        for name, inode in names.items():
            old = before.get(folder, {})
            swapped = next(
                (other for other, was in old.items() if was == inode and names.get(other) == old.get(name)), None
            )
            if old.get(name) != inode and name in old and swapped is not None:
                if name < swapped:
                    changes.append(((folder, name, inode), (folder, swapped, names[swapped])))
            elif old.get(name) != inode:
                source = next((place for place, moved in gone.items() if moved == inode), None)
                if source:
                    del gone[source]
                changes.append((*(((*source, None),) if source else ()), (folder, name, inode)))
    return changes + [((folder, name, None),) for folder, name in gone]


def _hook(event: str, args: tuple[Any, ...]) -> None:
    opens = event == "open" and isinstance(args[2], int) and args[2] & _WRITES
    if Recorder.current and (opens or event in _EVENTS):
        Recorder.current.look()


def install() -> None:
    """Prepare this process, for good: nothing is really synced any more."""

    def fsync(descriptor: int) -> None:
        if Recorder.current:
            Recorder.current.sync(descriptor)

    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(_hook)


def record(root: Path, run: Callable[[], object]) -> list[Moment]:
    """Return the moments of a run; the last one is its end."""
    recorder = Recorder.current = Recorder(root)
    try:
        run()
        recorder.look()
    finally:
        Recorder.current = None
        recorder.close()
    return recorder.moments


def states_after_power_cuts(
    root: int, moments: list[Moment], new_folder: Callable[[], Path]
) -> Iterator[tuple[Path, bool, str]]:
    """Yield a folder for every state of the disk, each once, whether the run was over by then, and a description.

    Args:
        root: the inode of the folder that was recorded.
        moments: what `record` returned.
        new_folder: returns a new folder.
    """
    seen: set[tuple[str, bool]] = set()
    for n, moment in enumerate(moments):
        over = n == len(moments) - 1
        for kept in _subsets(len(moment.changes)):
            names = {folder: dict(own) for folder, own in moment.names.items()}
            for i in kept:
                for folder, name, inode in moment.changes[i]:
                    names.setdefault(folder, {}).pop(name, None)
                    if inode is not None:
                        names[folder][name] = inode
            for part in (0.0, 0.5, 1.0):
                content = dict(_tree(root, names, moment, part))
                digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()
                if (digest, over) not in seen:
                    seen.add((digest, over))
                    target = new_folder()
                    for path, data in content.items():
                        if data is None:
                            (target / path).mkdir()
                        else:
                            (target / path).write_bytes(data)
                    yield target, over, f"operation {n}, of {len(moment.changes)} names {kept}, {part} of the bytes"


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    everything = tuple(range(count))
    yield from dict.fromkeys(
        [(), everything, *((i,) for i in everything), *(everything[:i] + everything[i + 1 :] for i in everything)]
    )


def _tree(
    folder: int, names: Names, moment: Moment, part: float, place: str = ""
) -> Iterator[tuple[str, bytes | None]]:
    """Yield every path below a folder, folders first, with its bytes; None for a folder."""
    for name, inode in names.get(folder, {}).items():
        path = f"{place}{name}"
        if inode in moment.written:
            synced, written = moment.synced.get(inode, b""), moment.written[inode]
            if synced == written or part == 0:
                yield path, synced
            else:
                yield path, written[: int(part * len(written))]
        else:
            yield path, None
            yield from _tree(inode, names, moment, part, f"{path}/")
