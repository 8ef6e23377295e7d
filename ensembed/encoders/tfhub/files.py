"""The files of SavedModels: downloaded from TensorFlow Hub, unpacked from archives, pinned by their hash.

What was downloaded is kept where tensorflow_hub keeps it: in `TFHUB_CACHE_DIR`, or else in ensembed's own cache.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode, urlsplit, urlunsplit
from urllib.request import urlopen

from ensembed.encoders.fingerprints import revision_of
from ensembed.encoders.tfhub.tensorflow import import_quietly, one_line
from ensembed.errors import EncoderError, MissingError
from ensembed.paths import cache_dir
from ensembed.progress import Progress, silent

# Seconds without a byte after which a download has failed, and after which another process's is taken for dead.
_PATIENCE = 30
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

    def fetch() -> _Counted:
        parts = urlsplit(url)
        # How tfhub.dev and kaggle.com are asked for the archive instead of the page; others ignore it.
        query = "&".join(filter(None, [parts.query, urlencode({"tf-hub-format": "compressed"})]))
        address = urlunsplit(parts._replace(query=query))
        response = urlopen(address, timeout=_PATIENCE)  # noqa: S310 - the opener lets only http and https in
        size = response.headers.get("Content-Length")
        return _Counted(response, int(size) if size else None, f"download {parts.path}", progress)

    # tensorflow_hub names the folder so: what one has downloaded, the other finds.
    folder = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    try:
        return _cached(url, folder, fetch)
    except MissingError:
        raise
    except Exception as error:  # of the connection, HTTP, gzip, tar, the disk, TensorFlow's file system
        raise MissingError(
            f"encoder {name!r}: {url} cannot be downloaded: {one_line(error)}; check the address and the network, or "
            "get the model's .tar.gz another way and name it: tfhub:FILE.tar.gz"
        ) from error


def unpacked(archive: Path, name: str, progress: Progress = silent) -> Path:
    """The folder with the model of a .tar.gz, unpacked into the cache.

    Raises:
        EncoderError: the archive is damaged or holds no SavedModel.
    """
    folder = revision_of({"archive": archive}, label=f"hash {archive.name}", progress=progress)
    try:
        return _cached(str(archive), folder, lambda: archive.open("rb"))
    except MissingError:
        raise
    except Exception as error:  # of gzip, tar, the disk, TensorFlow's file system
        raise EncoderError(f"encoder {name!r}: {archive} cannot be unpacked: {one_line(error)}") from error


def _cached(handle: str, name: str, fetch: Callable[[], Any]) -> Path:
    """The folder of that name in the cache: an archive unpacked whole or not at all, by one process at a time."""
    chosen = os.environ.get("TFHUB_CACHE_DIR", "")
    local = chosen and "://" not in chosen  # tensorflow_hub can keep models in a bucket; we cannot
    folder = Path(chosen if local else cache_dir() / "tfhub").expanduser().absolute() / name
    if (folder / "saved_model.pb").is_file():
        return folder
    hub = import_quietly("tensorflow_hub.resolver")
    folder.parent.mkdir(parents=True, exist_ok=True)

    def unpack(handle: str, target: str) -> None:
        # gzip knows where the archive ends and its checksum; tar takes one that breaks off between files for whole.
        with closing(fetch()) as source, gzip.GzipFile(fileobj=source, mode="rb") as stream:
            hub.DownloadManager(handle).download_and_uncompress(stream, target)
            while stream.read(1 << 20):
                pass
        if not (Path(target) / "saved_model.pb").is_file():
            raise ValueError("the archive holds no saved_model.pb")

    # Not `hub.resolve`, which waits without end for a server that is silent, and 20 minutes for a process that died.
    hub.atomic_download(handle, unpack, str(folder), _PATIENCE)
    return folder


class _Counted:
    """A stream that reports how much of it was read."""

    def __init__(self, stream: IO[bytes], size: int | None, label: str, progress: Progress) -> None:
        self._stream, self._size, self._label, self._progress = stream, size, label, progress
        self._done = 0

    def read(self, count: int = -1) -> bytes:
        block = self._stream.read(count)
        self._done += len(block)
        self._progress(self._label, self._done, self._size if block else self._done)  # the size may be unknown
        return block

    def close(self) -> None:
        self._stream.close()
