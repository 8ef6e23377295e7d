"""Archives of strangers, unpacked: plain files and folders below one folder, and not more than a model needs."""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path, PurePosixPath

from ensembed.support.progress import Progress, silent

_BLOCK = 1 << 20
# The largest encoders have 2 GB. Weights compress badly: what grows a hundredfold is no model, unless it is small.
_MOST_BYTES = 20 * 10**9
_MOST_RATIO = 100
_SMALL = 100 * 10**6
_MOST_FILES = 10_000


def extract(archive: Path, folder: Path, progress: Progress = silent) -> None:
    """Unpack a .tar.gz into a folder that is there and empty.

    Raises:
        ValueError: it holds something else than files and folders, leads out of the folder or is too large.
        Exception: what gzip and tarfile raise of a damaged archive (`BadGzipFile`, `EOFError`, `zlib.error`,
            `TarError`), and OSError.
    """
    size = archive.stat().st_size
    most = min(_MOST_BYTES, max(_SMALL, _MOST_RATIO * size))
    # gzip knows where the archive ends and its checksum; tar takes one that breaks off between files for whole.
    with archive.open("rb") as raw, gzip.GzipFile(fileobj=raw, mode="rb") as stream:
        bounded = _Bounded(stream, most)
        with tarfile.open(fileobj=bounded, mode="r|") as tar:  # type: ignore[call-overload]  # only `read` is needed
            for number, member in enumerate(tar):
                if number >= _MOST_FILES:
                    raise ValueError(f"it holds more than {_MOST_FILES:,} files")
                _extract_member(tar, member, folder, most)
                progress(f"unpack {archive.name}", raw.tell(), size)
        while bounded.read(_BLOCK):
            pass
    progress(f"unpack {archive.name}", size, size)


class _Bounded:
    """What is read out of an archive, up to a limit: a small one may hold terabytes of zeros."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._most, self._left = stream, most, most

    def read(self, count: int) -> bytes:
        block = self._stream.read(count)
        self._left -= len(block)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {self._most:,} bytes")
        return block


def _extract_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, most: int) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name:
        raise ValueError(f"it would be unpacked out of its folder: {member.name!r}")
    target = folder / path
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    source = tar.extractfile(member) if member.isreg() and not member.issparse() else None
    if source is None:
        raise ValueError(f"it holds {member.name!r}, which is neither a file nor a folder")
    if member.size > most:
        raise ValueError(f"it unpacks to more than {most:,} bytes")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with target.open("xb") as file:
            while block := source.read(_BLOCK):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise ValueError(f"it holds {member.name!r} twice") from error
