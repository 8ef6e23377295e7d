"""Archives of strangers: a few members are read by their names, and nothing is unpacked.

What an archive calls its members never becomes a path on this machine. One that holds names which lead out of its
folder, or a link under a name we want, is refused all the same: it is not the archive we mean.
"""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from ensembed.support.progress import Progress, silent

_BLOCK = 1 << 20
# The archives whose hash is not known have less than 2 MB, and less than 5 MB unpacked.
MOST_BYTES = 50 * 10**6
_MOST_MEMBERS = 10_000
_DAMAGE = (
    EOFError,
    OverflowError,
    RuntimeError,  # members with a password, or packed in a way that zipfile does not know
    ValueError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


class ArchiveError(Exception):
    """An archive is damaged, or not the one that was meant."""


def read_members(
    archive: Path,
    wanted: Collection[str],
    take: Callable[[str, IO[bytes]], None],
    *,
    most: int | None = MOST_BYTES,
    progress: Progress = silent,
) -> None:
    """Read the wanted members of a .zip or .tar.gz, in the order of the archive.

    Args:
        archive: the file.
        wanted: the names of the members.
        take: gets the name and the content of each; its OSErrors pass through.
        most: how many bytes all of the archive may unpack to; None for one whose hash is known.
        progress: takes reports in bytes of the archive.

    Raises:
        ArchiveError: it is torn or no archive, holds what no archive of ours holds, or lacks a member.
    """
    missing = set(wanted)
    size = archive.stat().st_size
    try:
        with archive.open("rb") as file:

            def report() -> None:
                progress(f"unpack {archive.name}", file.tell(), size)

            is_zip = file.read(2) == b"PK"
            file.seek(0)
            found = _zip_members(file, wanted, most) if is_zip else _tar_members(file, wanted, most, report)
            for name, stream in found:
                if name not in missing:
                    raise ArchiveError(f"it holds {name!r} twice")
                take(name, stream)
                missing.discard(name)
                if not missing and most is None:
                    break  # the rest may be gigabytes, and is known to be sound
    except _DAMAGE as error:
        raise ArchiveError(f"it is torn, damaged or no archive: {str(error) or type(error).__name__}") from error
    if missing:
        raise ArchiveError(f"it does not hold {', '.join(sorted(missing))}")
    progress(f"unpack {archive.name}", size, size)


def _zip_members(file: IO[bytes], wanted: Collection[str], most: int | None) -> Iterator[tuple[str, IO[bytes]]]:
    # In memory, as no zip of ours is large: a damaged one points to places where a file on the disk has none.
    with zipfile.ZipFile(io.BytesIO(file.read())) as archive:
        infos = archive.infolist()
        _check_count(len(infos))
        for info in infos:
            _check_name(info.filename)
        if most is not None and sum(info.file_size for info in infos) > most:
            raise ArchiveError(f"it unpacks to more than {most:,} bytes")
        for info in infos:
            if info.filename in wanted:
                # Python's zipfile hands out no more than the announced size, and raises if there is less.
                if stat.S_ISLNK(info.external_attr >> 16) or info.is_dir():
                    raise ArchiveError(f"its member {info.filename!r} is no file")
                with archive.open(info) as stream:
                    yield info.filename, stream


def _tar_members(
    file: IO[bytes], wanted: Collection[str], most: int | None, report: Callable[[], None]
) -> Iterator[tuple[str, IO[bytes]]]:
    # gzip knows where the archive ends and its checksum; tar takes one that breaks off between files for whole.
    with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
        bounded = _Bounded(unpacked, most, report)
        with tarfile.open(fileobj=bounded, mode="r|", bufsize=_BLOCK) as archive:
            for number, info in enumerate(archive):
                _check_count(number)
                _check_name(info.name)
                if info.name in wanted:
                    stream = archive.extractfile(info) if info.isreg() and not info.issparse() else None
                    if stream is None:
                        raise ArchiveError(f"its member {info.name!r} is no file")
                    yield info.name, stream
        while bounded.read(_BLOCK):
            pass


class _Bounded(io.RawIOBase):
    """What is read out of an archive, up to a limit: a small one may hold terabytes of zeros."""

    def __init__(self, stream: gzip.GzipFile, most: int | None, report: Callable[[], None]) -> None:
        self._stream, self._most, self._report = stream, most, report
        self._done = 0

    def read(self, count: int = -1) -> bytes:
        block = self._stream.read(count)
        self._done += len(block)
        self._report()
        if self._most is not None and self._done > self._most:
            raise ArchiveError(f"it unpacks to more than {self._most:,} bytes")
        return block


def _check_count(number: int) -> None:
    if number > _MOST_MEMBERS:
        raise ArchiveError(f"it holds more than {_MOST_MEMBERS:,} members")


def _check_name(name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise ArchiveError(f"it holds a name that leads out of its folder: {name!r}")
