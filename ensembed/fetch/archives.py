"""Read .zip and .tar.gz archives that may be damaged or hostile: within limits, and nothing in them runs."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import mmap
import re
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

from typing_extensions import Self

from ensembed.errors import DiskFullError
from ensembed.support.atomic_files import sync
from ensembed.support.file_limits import ARCHIVE_BYTES, ARCHIVE_MEMBERS, TAR_HEADER_BYTES, open_regular
from ensembed.support.progress import Progress, silent

_BLOCK = 1 << 20
# Of a tar archive: headers whose content the standard library reads into memory at once.
_LONG_HEADERS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
# RuntimeError: members with a password, or packed in a way that zipfile does not know.
# IndexError: a member without a name.
_DAMAGE = (
    EOFError,
    IndexError,
    OverflowError,
    RuntimeError,
    ValueError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    struct.error,
)
_DAMAGED_ARCHIVE = (*_DAMAGE, tarfile.TarError, zipfile.BadZipFile, zlib.error)


class ArchiveError(Exception):
    """An archive is damaged, or not the one that was meant."""


class _Member(NamedTuple):
    """One member of an archive; `open` works until the next member is asked for."""

    name: str
    is_file: bool
    is_folder: bool
    open: Callable[[], IO[bytes]]


def read_members(
    archive: Path,
    wanted: Collection[str],
    take: Callable[[str, IO[bytes]], None],
    *,
    most: int | None = ARCHIVE_BYTES,
    label: str | None = None,
    progress: Progress = silent,
) -> None:
    """Pass the name and content of the wanted members of a .zip or .tar.gz to `take`; nothing is unpacked.

    The whole archive may unpack to `most` bytes; None is for archives whose content is pinned by hashes.
    """
    missing = set(wanted)
    with _reading(archive, most, label, progress) as members:
        for member in members:
            if member.name not in wanted:
                continue
            if member.name not in missing:
                raise ArchiveError(f"it holds {member.name!r} twice")
            if not member.is_file:
                raise ArchiveError(f"its member {member.name!r} is no file")
            with member.open() as stream:
                take(member.name, stream)
            missing.discard(member.name)
            if not missing and most is None:
                break  # the rest may be gigabytes
        if missing:
            raise ArchiveError(f"it does not hold {', '.join(sorted(missing))}")


def extract(archive: Path, folder: Path, *, most: int, progress: Progress = silent) -> None:
    """Unpack an archive of files and folders, of at most `most` bytes, into an empty folder, and sync them."""
    with _reading(archive, most, None, progress) as members:
        for member in members:
            target = folder / PurePosixPath(member.name)
            if member.is_folder:
                target.mkdir(parents=True, exist_ok=True)
                continue
            if not member.is_file:
                raise ArchiveError(f"it holds {member.name!r}, which is neither a file nor a folder")
            if target.exists():
                raise ArchiveError(f"it holds {member.name!r} twice")
            target.parent.mkdir(parents=True, exist_ok=True)
            with member.open() as stream, target.open("xb") as file:
                shutil.copyfileobj(stream, file, _BLOCK)
            sync(target)


def copy_pinned(stream: IO[bytes], file: IO[bytes], name: str, *, size: int, sha256: str) -> None:
    """Write the stream to a file; an ArchiveError if it is not the pinned content, and no more bytes than that has."""
    digest, done = hashlib.sha256(), 0
    while chunk := stream.read(_BLOCK):
        done += len(chunk)
        if done > size:
            raise ArchiveError(f"{name} should have {size:,} bytes but has more")
        digest.update(chunk)
        file.write(chunk)
    if done != size:
        raise ArchiveError(f"{name} should have {size:,} bytes but has {done:,}")
    if digest.hexdigest() != sha256:
        raise ArchiveError(f"{name} should have SHA-256 {sha256} but has {digest.hexdigest()}")


@contextmanager
def _reading(archive: Path, most: int | None, label: str | None, progress: Progress) -> Iterator[Iterator[_Member]]:
    """Open an archive; what the standard library raises on damaged ones becomes an ArchiveError."""
    size = archive.stat().st_size
    label = label or f"unpack {archive.name}"
    try:
        with open_regular(archive) as file:
            is_zip = file.read(2) == b"PK"
            file.seek(0)

            def report() -> None:
                progress(label, min(file.tell(), size - 1), size)

            if is_zip and most is not None and size > most:
                raise ArchiveError(f"it has more than {most:,} bytes")
            yield _zip_members(file, most) if is_zip else _tar_members(file, most, report)
    except (*_DAMAGED_ARCHIVE, OSError) as error:
        # An OSError of the disk has a number, or is ours; that of bz2 has none.
        if isinstance(error, DiskFullError) or getattr(error, "errno", None) is not None:
            raise
        raise ArchiveError(f"it is damaged, cut short or no archive: {type(error).__name__}: {error}") from error
    progress(label, size, size)


def _zip_members(file: IO[bytes], most: int | None) -> Iterator[_Member]:
    # Every entry of the directory begins so. They are counted first: `ZipFile` makes an object of each.
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        entries = sum(1 for _ in zip(re.finditer(b"PK\1\2", data), range(ARCHIVE_MEMBERS + 1), strict=False))
    if entries > ARCHIVE_MEMBERS:
        raise ArchiveError(f"it holds more than {ARCHIVE_MEMBERS:,} members")
    with _Forward(file.fileno(), closefd=False) as raw, zipfile.ZipFile(io.BufferedReader(raw)) as archive:
        infos = archive.infolist()
        for number, info in enumerate(infos, 1):
            _check_member(number, info.filename)
        if most is not None and sum(info.file_size for info in infos) > most:
            raise ArchiveError(f"it unpacks to more than {most:,} bytes")
        for info in infos:
            # Python's zipfile hands out no more than the announced size, and raises if there is less.
            special = stat.S_ISLNK(info.external_attr >> 16)
            yield _Member(info.filename, not special and not info.is_dir(), info.is_dir(), lambda: archive.open(info))  # noqa: B023 - used before the next


def _tar_members(file: IO[bytes], most: int | None, report: Callable[[], None]) -> Iterator[_Member]:
    # gzip knows where the archive ends and its checksum; tar accepts one that breaks off between files as whole.
    with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
        bounded = _Bounded(unpacked, most, report)
        header = type("Header", (_Header,), {"total": 0})  # which counts for this archive alone
        with tarfile.open(fileobj=bounded, mode="r|", bufsize=_BLOCK, tarinfo=header) as archive:
            for number, info in enumerate(archive, 1):
                _check_member(number, info.name)
                if most is not None and info.size > most:
                    raise ArchiveError(f"it unpacks to more than {most:,} bytes")
                plain = info.isreg() and not info.issparse()
                # `extractfile` returns None only for a member that is no file, which is never opened.
                content = cast("Callable[[], IO[bytes]]", partial(archive.extractfile, info))
                yield _Member(info.name, plain, info.isdir(), content)
                # It would keep every member, each with a copy of all global headers, none of which matters here.
                kept: Any = archive  # its type does not say that these can be changed
                kept.members.clear()
                kept.pax_headers.clear()
        while bounded.read(_BLOCK):
            pass


class _Forward(io.FileIO):
    """A file in which a damaged zip that points before its start is a ValueError, as in memory, and no OSError."""

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_SET and offset < 0:
            raise ValueError(f"it points to byte {offset}")
        return super().seek(offset, whence)


class _Header(tarfile.TarInfo):
    """A header of a tar archive. The content of all long ones together is bounded: PAX records may have gigabytes."""

    total = 0

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        cls.total += header.size if header.type in _LONG_HEADERS else 0
        if cls.total > TAR_HEADER_BYTES:
            raise ArchiveError(f"it has headers of {cls.total:,} bytes")
        return header


class _Bounded(io.RawIOBase):
    """The unpacked bytes of an archive, up to a limit: a small archive may hold terabytes of zeros."""

    def __init__(self, stream: gzip.GzipFile, most: int | None, report: Callable[[], None]) -> None:
        self._stream, self._most, self._report, self._done = stream, most, report, 0

    def read(self, count: int = -1) -> bytes:
        block = self._stream.read(count)
        self._done += len(block)
        self._report()
        if self._most is not None and self._done > self._most:
            raise ArchiveError(f"it unpacks to more than {self._most:,} bytes")
        return block


def _check_member(number: int, name: str) -> None:
    """Raise an ArchiveError for one member too many, or for a name that leads out of the folder."""
    if number > ARCHIVE_MEMBERS:
        raise ArchiveError(f"it holds more than {ARCHIVE_MEMBERS:,} members")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise ArchiveError(f"it holds a name that leads out of its folder: {name!r}")
