"""Where the files of a corpus are: on this machine or behind a URL, whose secrets appear in no message."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from ensembed.errors import AbsentCorpusError, CorpusError, EnsembedError, MissingError
from ensembed.support.file_limits import open_regular

State: TypeAlias = tuple[tuple[str, str], ...]
"""What tells one content of a file from another: its size, and the times and hashes that the file system gives."""

# The names that file systems have for them.
_TELLING = ("size", "mtime", "modified", "last_modified", "LastModified", "Last-Modified", "updated", "created", "ETag",
            "etag", "e_tag", "md5", "md5Hash", "content_md5", "Content-MD5", "Digest", "generation", "version_id",
            "VersionId", "blob_id", "sha", "checksum")  # fmt: skip
# Packages whose name is not that of their module.
_PACKAGES = {"smbclient": "smbprotocol", "libarchive": "libarchive-c", "git": "GitPython", "dask": "dask[distributed]"}
# Bytes that are asked of a file system at a time.
_BUFFER = 1 << 18

# In these, a container comes before the @, not a user.
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/\s'\"]*)@")
# A query; a question mark without = may be part of a pattern.
_QUERY = re.compile(r"(://[^\s?'\"]*)\?[^\s'\"]*=[^\s'\")]*")
_HIDDEN = "…"
_LEAST_SECRET = 4  # characters: shorter ones occur within words


@dataclass(frozen=True)
class Place:
    """A file, folder or pattern in a file system of fsspec, which can be pickled; its `name` holds no secrets."""

    name: str
    fs: Any = field(repr=False)
    path: str = field(repr=False)
    is_local: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def local(cls, path: Path, name: str | None = None) -> Place:
        """Return a path of this machine."""
        from fsspec.implementations.local import LocalFileSystem

        return cls(name or str(path), LocalFileSystem(), path.absolute().as_posix(), is_local=True)

    @classmethod
    def remote(cls, url: str, name: str | None = None) -> Place:
        """Return a URL; nothing is read yet, though some file systems connect."""
        from fsspec.core import url_to_fs

        secrets = secrets_of(url)
        shown = name or hide(url, secrets)
        try:
            fs, path = url_to_fs(url)
        except ImportError as error:
            missing = error.__cause__.name if isinstance(error.__cause__, ImportError) else error.name
            module = (missing or "").partition(".")[0]
            package = _PACKAGES.get(module, module)
            way_out = f"install it with: pip install {package}" if package else str(error)
            raise MissingError(f"{shown} needs {package or 'a package'}; {way_out}") from None
        except Exception as error:  # noqa: BLE001 - file systems raise errors of their own
            raise CorpusError(f"{shown} cannot be opened: {hide(str(error), secrets)}") from None
        local = "::" not in url and "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)
        # A slash at the end says that a folder is meant; file systems drop it.
        path = path.rstrip("/") + "/" if url.endswith("/") and not local else path
        return cls(shown, fs, path.rstrip("/") if local else path, local, secrets)

    def files(self) -> dict[str, State]:
        """Return the paths of the files that are meant, in order, each with its state."""
        with self._errors(self.name):
            self.fs.invalidate_cache()
            infos = self._listed()
        states = {}
        for path in sorted(infos):
            with self._errors(self.name_of(path)):
                states[path] = self._state(path, infos[path])
        return states

    def state(self, path: str) -> State:
        """Return the state of one of the files now; it may say more than a listing does."""
        with self._errors(self.name_of(path)):
            self.fs.invalidate_cache()
            return self._state(path, {} if self.is_local else self.fs.info(path))

    def open(self, path: str) -> io.BufferedReader:
        """Open a file to read; its errors are CorpusErrors without secrets."""
        name = self.name_of(path)
        with self._errors(name):
            # A pipe or a device in a folder may have no end.
            stream = open_regular(Path(path)) if self.is_local else self.fs.open(path, "rb")
        return io.BufferedReader(_Guarded(self, name, stream), _BUFFER)

    def name_of(self, path: str) -> str:
        """Return what errors call one of the files."""
        if path == self.path:
            return self.name
        return path if self.is_local else hide(str(self.fs.unstrip_protocol(path)), self.secrets)

    def __str__(self) -> str:
        return self.name

    def _listed(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what the file system says of each file."""
        try:
            info = {"type": "directory"} if self.path.endswith("/") else self.fs.info(self.path)
        except FileNotFoundError:
            if not any(c in self.path for c in "*?["):
                raise AbsentCorpusError(f"there is no corpus {self.name!r}") from None
            matches = self.fs.glob(self.path, detail=True)
            files = {path: info for path, info in matches.items() if info["type"] == "file"}
            if not files:
                raise AbsentCorpusError(f"no file is called like {self.name!r}") from None
            return files
        if info["type"] != "directory":
            return {self.path: info}
        # fsspec would leave out a folder of this machine that may not be read.
        infos = {p: {} for p in _local_files(self.path)} if self.is_local else self.fs.find(self.path, detail=True)
        files = {
            path: info
            for path, info in infos.items()
            if not any(part.startswith((".", "_")) for part in _below(path, self.path).parts)
        }
        if not files:
            raise AbsentCorpusError(
                f"there is no corpus file in the folder {self.name!r}: put text files there, a sentence a line"
            )
        return files

    def _state(self, path: str, info: Mapping[str, Any]) -> State:
        if self.is_local:
            state = os.stat(path)  # noqa: PTH116 - with nanoseconds
            return ("size", str(state.st_size)), ("mtime", str(state.st_mtime_ns))
        if info.get("size") is None:  # a listing of names only
            info = self.fs.info(path)
        return tuple((name, str(info[name])) for name in _TELLING if info.get(name) is not None)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn any error into a CorpusError without secrets, neither in the message nor in its cause."""
        try:
            yield
        except EnsembedError:
            raise
        except FileNotFoundError:
            raise CorpusError(f"{name} cannot be read: it is not there (any more)") from None
        except Exception as error:  # noqa: BLE001 - file systems raise errors of their own
            reason = hide(str(error), self.secrets) or type(error).__name__
            raise CorpusError(f"{name} cannot be read: {reason}") from None


class _Guarded(io.RawIOBase):
    """A stream of a file system, whose errors are CorpusErrors."""

    def __init__(self, place: Place, name: str, stream: Any) -> None:  # noqa: ANN401 - each file system has its own
        self._place = place
        self._name = name
        self._stream = stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - typing has no word for a buffer before Python 3.12
        with self._place._errors(self._name):
            data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with self._place._errors(self._name):
            return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        with self._place._errors(self._name):
            return int(self._stream.tell())

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _local_files(folder: str) -> Iterator[str]:
    """Yield what is no folder in a folder and those below it, but for folders that are skipped anyway."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{folder.rstrip('/')}/{entry.name}"
            if not entry.is_dir(follow_symlinks=False):
                yield path
            elif not entry.name.startswith((".", "_")):
                yield from _local_files(path)


def _below(path: str, folder: str) -> PurePosixPath:
    """Return the path relative to the folder."""
    common = os.path.commonprefix([path, folder.rstrip("/")])  # noqa: RUF071 - a listing may begin otherwise than asked
    return PurePosixPath(path[len(common) :].lstrip("/"))


def secrets_of(url: str) -> tuple[str, ...]:
    """Return what in a URL may be secret: users, passwords and the values of queries, as written and decoded."""
    secrets: set[str] = set()
    for link in url.split("::"):
        try:
            split = urlsplit(link)
        except ValueError:
            continue
        if "@" in split.netloc and split.scheme not in _CONTAINERS:
            user, _, password = split.netloc.rpartition("@")[0].partition(":")
            secrets |= {user, password}
        if "=" in split.query:
            secrets |= {split.query, *(value for _, value in parse_qsl(split.query))}
            secrets |= {pair.partition("=")[2] for pair in split.query.split("&")}
    secrets |= {unquote(secret) for secret in secrets}
    return tuple(sorted((secret for secret in secrets if len(secret) >= _LEAST_SECRET), key=len, reverse=True))


def hide(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Return a URL, or a message that may hold one, without users, passwords, queries and these secrets."""
    text = _USER.sub(lambda m: m[0] if m[1] in _CONTAINERS else f"{m[1]}://{_HIDDEN}@", text)
    text = _QUERY.sub(rf"\1?{_HIDDEN}", text)
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text
