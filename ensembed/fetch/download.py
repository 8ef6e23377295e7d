"""Files from a web server, kept in the cache: for models and data that no registry has.

Mostly nobody publishes a hash of such a file. The one seen at the first download is written down, and a server that
later serves another file under the same address is not believed. That makes results repeatable; it does not make the
first download safe, and neither does plain HTTP. Whatever reads the file has to treat it as a stranger's, unless the
caller knows its hash.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import shutil
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urlsplit
from urllib.request import Request

from ensembed.errors import InputError, PullError
from ensembed.support.atomic_files import alone, write_atomically
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, silent
from ensembed.support.version import __version__

if TYPE_CHECKING:
    from http.client import HTTPMessage

# Seconds without an answer, or without a byte, after which a server counts as gone.
TIMEOUT = 30.0
_BLOCK = 1 << 20
# A transfer that breaks off is taken up again this often, as long as each try brings something.
_TRIES = 5


def is_url(location: str) -> bool:
    """Whether it is an address on a server, not a path."""
    return "://" in location


def download(
    url: str,
    *,
    progress: Progress = silent,
    timeout: float = TIMEOUT,
    label: str | None = None,
    sha256: str | None = None,
    most: int | None = None,
) -> Path:
    """The file at an http or https address: downloaded once, then found in the cache without any network.

    An interrupted download is taken up where it stopped, if the server can. Downloads of the same address at the same
    time wait for each other.

    Args:
        url: its address.
        progress: takes reports in bytes.
        timeout: seconds without an answer, or without a byte, after which the server counts as gone.
        label: what to call it in reports; by default the last part of its address.
        sha256: what the file has to be, if that is known.
        most: how many bytes it may have; None for as many as the disk takes.

    Raises:
        InputError: the address is not of http or https.
        PullError: the server is not to be had, does not have the file, or has another one than before or than `sha256`.
    """
    wanted = _wanted(url, progress, timeout, label, sha256, most)
    url, folder = wanted.url, wanted.path.parent
    if wanted.is_here():
        return wanted.path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder / ".lock", f"download of {url}", progress):
            if not wanted.is_here():  # another process may have fetched it while we waited
                wanted.fetch()
    except http.client.HTTPException as error:
        raise PullError(f"{url} could not be downloaded: {error!r}; try again later") from error
    except OSError as error:
        raise PullError(f"{url} could not be stored in {folder}: {error}") from error
    return wanted.path


def forget(url: str) -> None:
    """Drop what was downloaded, and its hash: for a file that turned out to be none of the kind that was expected."""
    wanted = _wanted(url)
    for path in (wanted.path, wanted.record):
        path.unlink(missing_ok=True)


def _wanted(
    url: str,
    progress: Progress = silent,
    timeout: float = TIMEOUT,
    label: str | None = None,
    sha256: str | None = None,
    most: int | None = None,
) -> _Download:
    try:
        url = urldefrag(url).url
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets that do not fit, a port that is no number
        usable = False
    if not usable:
        raise InputError(f"{url!r} is not an address of the form http://… or https://…")
    name = re.sub(r"[^\w.-]", "_", unquote(PurePosixPath(parts.path).name)).strip(".") or "file"
    folder = cache_dir() / "downloads" / hashlib.sha256(url.encode()).hexdigest()[:16]
    path = folder / name[-100:]
    label = label or f"download {path.name}"
    return _Download(url, path, folder / ".source.json", progress, timeout, label, sha256, most)


@dataclass(frozen=True)
class _Download:
    """One file: `path` holds all of it or does not exist, `path`.part holds its beginning.

    Attributes:
        url: where it comes from.
        path: where it goes.
        record: what is known of it: url, size, SHA-256.
        progress: takes reports in bytes.
        timeout: in seconds.
        label: what to call it in reports.
        sha256: what it has to be, or None.
        most: how many bytes it may have, or None.
    """

    url: str
    path: Path
    record: Path
    progress: Progress
    timeout: float
    label: str
    sha256: str | None
    most: int | None

    def is_here(self) -> bool:
        """Whether the file is there, as long as it was, and was the one that is wanted."""
        known = self._recorded()
        try:
            return self.path.stat().st_size == known.get("size") and self.sha256 in (None, known.get("sha256"))
        except OSError:
            return False

    def fetch(self) -> None:
        """Download, compare with what was seen before, and give the file its name."""
        part = self.path.with_name(f"{self.path.name}.part")
        for _ in range(_TRIES):
            before = _size(part)
            broken = self._transfer(part)
            if broken is None:
                break
            if _size(part) == before:
                raise PullError(f"{self.url} could not be downloaded: {broken}") from broken
        else:
            raise PullError(f"{self.url} broke off {_TRIES} times: run it again to go on from where it is")
        facts = {"url": self.url, "size": part.stat().st_size, "sha256": self._sha256(part)}
        known = self._recorded()
        if self.sha256 not in (None, facts["sha256"]):
            part.unlink()
            raise PullError(f"{self.url} should have SHA-256 {self.sha256} but has {facts['sha256']}")
        if self.sha256 is None and known and known.get("sha256") != facts["sha256"]:
            part.unlink()
            raise PullError(
                f"{self.url} is another file than it was: SHA-256 {facts['sha256']}, where {known.get('sha256')} was "
                f"seen first; if you trust the new one, delete {self.record}"
            )
        write_atomically(self.record, json.dumps(facts).encode())
        part.replace(self.path)
        self._state(part).unlink(missing_ok=True)

    def _transfer(self, part: Path) -> Exception | None:
        """Append to the part until the server has no more; what broke the transfer off, or None."""
        have = _size(part)
        headers = {"User-Agent": f"ensembed/{__version__}", "Accept-Encoding": "identity"}
        tag = self._tag(part)
        if have and tag:  # only a server that has still the same file goes on with it
            headers |= {"Range": f"bytes={have}-", "If-Range": tag}
        request = Request(self.url, headers=headers)  # noqa: S310 - `download` has looked at the address
        try:
            with _opener().open(request, timeout=self.timeout) as answer:
                return self._receive(answer, part, have)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 416:  # 416: there is nothing beyond what we have
                return error
            if error.headers["Content-Range"] == f"bytes */{have}":
                return None
            part.unlink(missing_ok=True)
            return error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            return reason if isinstance(reason, Exception) else error

    def _receive(self, answer: Any, part: Path, have: int) -> Exception | None:  # noqa: ANN401 - an HTTPResponse
        goes_on = answer.status == 206 and str(answer.headers["Content-Range"]).startswith(f"bytes {have}-")
        done = have if goes_on else 0
        length = answer.headers["Content-Length"]
        size = done + int(length) if length is not None and length.isdecimal() else None
        if self.most is not None and (size or 0) > self.most:
            raise PullError(f"{self.url} should have at most {self.most:,} bytes but has {size:,}")
        free = shutil.disk_usage(part.parent).free
        if size is not None and size - done > free:
            raise PullError(
                f"{self.url} has {size / 1e6:,.0f} MB, but {part.parent} has {free / 1e6:,.0f} MB left; "
                "make room, or name another folder in ENSEMBED_CACHE"
            )
        tag = answer.headers["ETag"] or answer.headers["Last-Modified"] or ""
        write_atomically(self._state(part), json.dumps({"tag": "" if tag.startswith("W/") else tag}).encode())
        with part.open("ab" if goes_on else "wb") as file:
            while block := answer.read1(_BLOCK):  # what has come, however little
                if self.most is not None and done + len(block) > self.most:
                    raise PullError(f"{self.url} should have at most {self.most:,} bytes but has more")
                file.write(block)
                done += len(block)
                self.progress(self.label, done, size)
        if size is not None and done != size:
            return ConnectionError(f"it broke off after {done:,} of {size:,} bytes")
        self.progress(self.label, done, done)
        return None

    def _sha256(self, path: Path) -> str:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        return digest.hexdigest()

    def _recorded(self) -> dict[str, Any]:
        return _json(self.record)

    def _tag(self, part: Path) -> str:
        return str(_json(self._state(part)).get("tag", ""))

    def _state(self, part: Path) -> Path:
        """Beside the part: the mark by which the server tells that it has still the same file."""
        return part.with_name(f"{part.name}.json")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Never from https back to http; addresses of other kinds have no handler here."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if req.type == "https" and not newurl.startswith("https://"):
            raise urllib.error.URLError(f"it redirects from https to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """The standard library's, less its ways to local files, FTP and `data:`."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener
