"""The files of SavedModels: downloaded from TensorFlow Hub, unpacked from archives, pinned by their hash.

What was downloaded is kept where the package tensorflow_hub keeps it, in `TFHUB_CACHE_DIR`, under the names that it
gives; or else in ensembed's own cache. The package itself is not needed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode, urlsplit, urlunsplit

from ensembed.encoders.model_files import revision_of
from ensembed.encoders.tfhub.tensorflow_start import one_line
from ensembed.errors import EncoderError, InputError, MissingError, PullError
from ensembed.fetch.archives import ArchiveError, extract
from ensembed.fetch.download import TIMEOUT, download, forget
from ensembed.support.atomic_files import alone, new_folder
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, silent

# Seconds without a byte after which a download has failed.
_PATIENCE = TIMEOUT
# The largest encoders have 2 GB. Weights compress badly: what grows a hundredfold is no model, unless it is small.
_MOST_BYTES = 20 * 10**9
_MOST_RATIO = 100
_SMALL = 100 * 10**6
# What changes the numbers: not `fingerprint.pb`, `assets.extra` or a README.
_PARTS = ("saved_model.pb", "tfhub_module.pb", "variables/*", "assets/**/*")


def revision_of_saved_model(folder: Path, progress: Progress = silent) -> str:
    """The hash over the graph, the variables and the vocabularies of a SavedModel."""
    files = {path.relative_to(folder).as_posix(): path for part in _PARTS for path in folder.glob(part)}
    kept = {name: path for name, path in files.items() if path.is_file() and not path.name.startswith(".")}
    return revision_of(kept, label=f"hash {folder.name}", progress=progress)


def downloaded(url: str, name: str, progress: Progress = silent) -> Path:
    """The folder with the model that a URL of tfhub.dev, of kaggle.com or of any .tar.gz stands for.

    Raises:
        MissingError: it is not in the cache and cannot be downloaded.
    """
    # tensorflow_hub names the folder so: what one has downloaded, the other finds.
    folder = _place(hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest())
    if _is_model(folder):
        return folder
    hint = "check the address and the network, or get the model's .tar.gz another way and name it: tfhub:FILE.tar.gz"
    try:
        parts = urlsplit(url)
        # How tfhub.dev and kaggle.com are asked for the archive instead of the page; others ignore it.
        query = "&".join(filter(None, [parts.query, urlencode({"tf-hub-format": "compressed"})]))
        address = urlunsplit(parts._replace(query=query))
    except ValueError as error:
        raise MissingError(f"encoder {name!r}: {url} cannot be downloaded: {error}; {hint}") from error

    def unpack(target: Path) -> None:
        archive = download(address, progress=progress, timeout=_PATIENCE, label=f"download {parts.path}")
        try:
            _extract_model(archive, target, progress)
        except ArchiveError:
            forget(address)  # nothing was ever computed with it: the next try may bring another file
            raise
        archive.unlink()  # its hash stays written down

    try:
        _make(folder, unpack, progress)
    except (PullError, InputError) as error:
        raise MissingError(f"encoder {name!r}: {url} cannot be downloaded: {error}; {hint}") from error
    except ArchiveError as error:
        raise MissingError(f"encoder {name!r}: {url} is no archive of a model: {one_line(error)}; {hint}") from error
    except OSError as error:
        raise MissingError(f"encoder {name!r}: {url} cannot be unpacked to {folder}: {error}") from error
    return folder


def unpacked(archive: Path, name: str, progress: Progress = silent) -> Path:
    """The folder with the model of a .tar.gz, unpacked into the cache.

    Raises:
        EncoderError: the archive is damaged or holds no SavedModel.
    """
    folder = _place(revision_of({"archive": archive}, label=f"hash {archive.name}", progress=progress))
    try:
        _make(folder, lambda target: _extract_model(archive, target, progress), progress)
    except (ArchiveError, OSError) as error:
        raise EncoderError(f"encoder {name!r}: {archive} cannot be unpacked: {one_line(error)}") from error
    return folder


def _place(name: str) -> Path:
    """Where the model of that name is kept."""
    chosen = os.environ.get("TFHUB_CACHE_DIR", "")
    local = chosen and "://" not in chosen  # tensorflow_hub can keep models in a bucket; we cannot
    return Path(chosen if local else cache_dir() / "tfhub").expanduser().absolute() / name


def _is_model(folder: Path) -> bool:
    return (folder / "saved_model.pb").is_file()


def _extract_model(archive: Path, target: Path, progress: Progress) -> None:
    most = min(_MOST_BYTES, max(_SMALL, _MOST_RATIO * archive.stat().st_size))
    extract(archive, target, most=most, progress=progress)
    if not _is_model(target):
        raise ArchiveError("the archive holds no saved_model.pb")


def _make(folder: Path, unpack: Callable[[Path], None], progress: Progress) -> None:
    """Make the folder whole or not at all, by one process at a time; do nothing if it is there.

    Args:
        folder: where the model goes.
        unpack: puts it into an empty folder.
        progress: told of waiting for others.
    """
    if _is_model(folder):
        return
    with alone(folder.with_name(f".{folder.name}.lock"), f"unpacking of {folder.name}", progress):
        if _is_model(folder):  # another process may have made it while we waited
            return
        with new_folder(folder) as temporary:
            unpack(temporary)
