"""Fetch a data set: its archive from the first address that has it, and out of that only files with the pinned hashes.

Files get their names when all of them are there and have been checked. What breaks off is taken up again, see
`ensembed.fetch.download`; an archive that turns out to be no good is forgotten, so that the next try gets another.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import os
import shutil
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ensembed.errors import DatasetError, MissingError
from ensembed.fetch.catalog import entry
from ensembed.fetch.download import download, forget
from ensembed.fetch.pull import pull
from ensembed.sts.data.archives import MOST_BYTES, ArchiveError, read_members
from ensembed.sts.data.places import by_hand, is_in, target_folder
from ensembed.sts.data.sources import DataFile, DataSet
from ensembed.support.atomic_files import alone, sync
from ensembed.support.machine import fetched_dir
from ensembed.support.progress import Progress, silent


@dataclass(frozen=True)
class Fetched:
    """What `fetch` did.

    Attributes:
        name: the data set.
        folder: where its files are, or the data folder that had them already.
        source: what served them; None when they were there already.
    """

    name: str
    folder: Path
    source: str | None


def fetch(
    data_set: DataSet,
    folder: Path | None = None,
    *,
    force: bool = False,
    keep: bool = False,
    progress: Progress = silent,
) -> Fetched:
    """Put a data set into a data folder, in SentEval's layout, which `load_sts` reads.

    What the folder has already, in whichever layout, is left alone. Several processes that fetch into one folder wait
    for each other.

    Args:
        data_set: what to fetch, for instance `data_set("sts12")`.
        folder: the data folder; by default `target_folder()`.
        force: fetch it even if it is there, and replace its files.
        keep: keep the downloaded archive in the cache.
        progress: takes reports in bytes.

    Raises:
        DatasetError: no source has it, or the folder cannot be written. The message says how to put it there by hand.
    """
    root = target_folder() if folder is None else folder
    if not force and _is_here(data_set, root):  # without a lock: the folder may be one that we cannot write to
        return Fetched(data_set.name, root, None)
    try:
        with alone(root / ".fetch.lock", "fetch into the same folder", progress):
            if not force and _is_here(data_set, root):  # another process fetched it while we waited
                return Fetched(data_set.name, root, None)
            place = root / data_set.folder
            with _staging(root, place) as staged:
                source = _from_any_source(data_set, root, staged, keep, progress)
                _put(staged, place)
                _check_read(data_set, root, place)
    except OSError as error:
        raise DatasetError(
            f"{data_set.name} cannot be written to {root}: {error}; make room or set its rights, name another folder "
            f"with --data, or unset ENSEMBED_DATA to fetch into {fetched_dir()}"
        ) from error
    return Fetched(data_set.name, place, source)


def _is_here(data_set: DataSet, root: Path) -> bool:
    try:
        return is_in(data_set, root)
    except DatasetError:  # damaged or not complete: fetched files replace it
        return False


def _check_read(data_set: DataSet, root: Path, place: Path) -> None:
    """Raise if `load_sts` still reads something else, of another layout."""
    try:
        is_in(data_set, root)
    except DatasetError as error:
        raise DatasetError(
            f"{data_set.name} was fetched to {place}, but {root} holds another copy that is read first, and damaged: "
            f"{error}; remove that one"
        ) from error


@contextmanager
def _staging(root: Path, place: Path) -> Iterator[Path]:
    """An empty folder beside the place, on the same disk; what a killed process left in it is removed first.

    Nothing is left of it, nor of folders that were made on the way to it and are empty.
    """
    staged = place.with_name(f".{place.name}.fetching")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    try:
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)
        for made in place.relative_to(root).parents[:-1]:
            with suppress(OSError):
                (root / made).rmdir()


def _put(staged: Path, place: Path) -> None:
    """Give the files their names: the whole folder at once, or, beside files of the user's, one by one."""
    if place.exists():
        for path in sorted(staged.iterdir()):
            path.replace(place / path.name)
        sync(place)
    else:
        staged.rename(place)
    sync(place.parent)


def _from_any_source(data_set: DataSet, root: Path, staged: Path, keep: bool, progress: Progress) -> str:
    """Stage the files from the first source that has them all; the name of that source."""
    sources: dict[str, Callable[[DataSet, Path, Progress], None]] = {}
    if data_set.catalogue:
        sources[entry(data_set.catalogue).sources[0].label] = _from_catalogue
    for url in data_set.urls:
        sources[url] = functools.partial(_from_archive, url=url, keep=keep)
    reasons = []
    for label, stage in sources.items():
        try:
            stage(data_set, staged, progress)
        except (ArchiveError, MissingError) as error:
            reasons.append(str(error) if label in str(error) else f"{label}: {error}")
            for path in staged.iterdir():
                path.unlink()
        else:
            return label
    tried = textwrap.indent("\n".join(reasons), "  ")
    raise DatasetError(f"{data_set.name} could not be fetched:\n{tried}\n{by_hand(data_set, root)}")


def _from_catalogue(data_set: DataSet, staged: Path, progress: Progress) -> None:
    (pulled,) = pull([str(data_set.catalogue)], progress=progress)
    for name, file in data_set.files.items():
        with (pulled.folder / name).open("rb") as stream:
            _copy(stream, staged / name, file)


def _from_archive(data_set: DataSet, staged: Path, progress: Progress, *, url: str, keep: bool) -> None:
    pinned = data_set.archive
    archive = download(
        url,
        progress=progress,
        label=f"download {data_set.name}",
        sha256=pinned.sha256 if pinned else None,
        most=pinned.size if pinned else MOST_BYTES,
    )
    stored = {file.member: name for name, file in data_set.files.items()}

    def take(member: str, stream: IO[bytes]) -> None:
        target = staged / stored[member]
        if data_set.tokens_below is not None:
            _filter(stream, target, data_set.tokens_below)
        else:
            _copy(stream, target, data_set.files[stored[member]])

    try:
        read_members(archive, stored, take, most=None if pinned else MOST_BYTES, progress=progress)
    except ArchiveError:
        forget(url)
        raise
    if not keep:
        forget(url)


def _copy(stream: IO[bytes], target: Path, file: DataFile) -> None:
    """Write the pinned file; anything else is refused, after no more bytes than it should have."""
    data = stream.read((file.size or 0) + 1)
    if len(data) != file.size:
        seen = "more" if len(data) > (file.size or 0) else f"{len(data):,}"
        raise ArchiveError(f"{file.member} should have {file.size:,} bytes but has {seen}")
    if (found := hashlib.sha256(data).hexdigest()) != file.sha256:
        raise ArchiveError(f"{file.member} should have SHA-256 {file.sha256} but has {found}")
    with target.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def _filter(stream: IO[bytes], target: Path, tokens_below: int) -> None:
    """Write the lines that have tokens, and fewer than so many, gzipped: the same bytes whenever it is done."""
    kept = 0
    with target.open("wb") as out:
        with gzip.GzipFile(filename="", fileobj=out, mode="wb", mtime=0) as packed:
            for line in stream:
                # Tokens stand between blanks: bytes split at ASCII's, not at a no-break space within a token.
                if 0 < len(line.split()) < tokens_below:
                    packed.write(line if line.endswith(b"\n") else line + b"\n")
                    kept += 1
        out.flush()
        os.fsync(out.fileno())
    if not kept:
        raise ArchiveError(f"it has no line with fewer than {tokens_below} tokens")
