"""Download files from web servers into the cache: for models and data that no registry has.

The hash of the first download is written down, and another file at the same address is refused later. That does not
make the first download safe: unless the caller knows the hash, the file must be read as possibly hostile.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPMessage
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import quote, unquote, urldefrag, urlsplit
from urllib.request import Request

from ensembed.errors import InputError, PullError
from ensembed.support.atomic_files import alone, disk_error, sync, write_atomically
from ensembed.support.checks import sha256_of
from ensembed.support.file_limits import read_json
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, silent
from ensembed.support.version import __version__

TIMEOUT = 30.0  # seconds without an answer, or without a byte, after which a server counts as gone
_BLOCK = 1 << 20
_RECORD_SECONDS = 1.0  # the hash of a part is recorded this often: a process that is killed loses what came later
_TRIES = 5  # a transfer that breaks off is resumed this often, as long as each try brings something


def is_url(location: str) -> bool:
    """Return whether this is an address on a server, not a path."""
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
    """Return the file at an http or https address: downloaded once, then read from the cache without any network.

    An interrupted download is resumed, if the server can. Downloads of the same address wait for each other. A
    PullError says that the server cannot be reached, or has no file, one of more than `most` bytes or another hash.
    """
    url, path = _address(url)
    wanted = _Download(url, path, progress, timeout, label or f"download {path.name}", sha256, most)
    if wanted.is_here():
        return path
    try:
        with alone(path.with_name(".lock"), f"download of {url}", progress):
            if not wanted.is_here():  # another process may have fetched it while we waited
                wanted.fetch()
    except http.client.HTTPException as error:
        raise PullError(f"{url} could not be downloaded: {error!r}; try again later") from error
    except OSError as error:
        raise PullError(f"{url} could not be stored: {disk_error(error, path)}") from error
    return path


def forget(url: str) -> None:
    """Delete what was downloaded, and its hash: for a file that turned out not to be of the expected kind."""
    _, path = _address(url)
    for file in (path, _record(path), _tag_file(_part(path))):  # a killed process may have left the last one
        file.unlink(missing_ok=True)


def _address(url: str) -> tuple[str, Path]:
    """Return the address without a fragment, and where its file goes; raise an InputError if it is no address."""
    try:
        url = urldefrag(url).url
        url.encode()  # a lone surrogate is no text
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets that do not fit, a port that is no number, a lone surrogate
        usable = False
    if not usable:
        raise InputError(f"{url!r} is not an address of the form http://… or https://…")
    name = re.sub(r"[^\w.-]", "_", unquote(PurePosixPath(parts.path).name)).strip(".") or "file"
    name = name.encode()[-100:].decode(errors="ignore")  # a name may have 255 bytes
    return url, cache_dir() / "downloads" / hashlib.sha256(url.encode()).hexdigest()[:16] / name


def _quoted(url: str) -> str:
    """Return an address as it is asked for: browsers show blanks and other letters than ASCII as they are."""
    host = len(url) - len(re.sub("^[^/]*//[^/?]*", "", url))
    place = "".join(
        part if part.isascii() else part.encode("idna").decode() for part in re.split("([/@:.])", url[:host])
    )
    return place + re.sub(r"[^\x00-\x1f\x21-\x7f]+", lambda letters: quote(letters[0]), url[host:])


def _record(path: Path) -> Path:
    """Where the address, the size and the hash of a downloaded file are written down."""
    return path.with_name(".source.json")


def _part(path: Path) -> Path:
    """Where the beginning of a file is while it is downloaded."""
    return path.with_name(f"{path.name}.part")


@dataclass(frozen=True)
class _Download:
    """One file: `path` holds all of it or does not exist, `path`.part holds its beginning."""

    url: str
    path: Path
    progress: Progress
    timeout: float
    label: str
    sha256: str | None
    most: int | None

    def is_here(self) -> bool:
        """Return whether the file has the size that was written down, and is the one that is wanted."""
        known = _json(_record(self.path))
        return self.path.is_file() and (
            self.path.stat().st_size == known.get("size") and self.sha256 in (None, known.get("sha256"))
        )

    def fetch(self) -> None:
        """Download the file, compare it with what was seen before, and give it its name."""
        part = _part(self.path)
        if part.is_symlink() or (part.exists() and not part.is_file()):  # writing to it would change something else
            part.unlink()
        for leftover in part.parent.glob(".*.tmp"):  # of a process that was killed: we hold the lock
            leftover.unlink()
        size, _, _ = _intact_part(part)  # what is behind these bytes is received again
        for _ in range(_TRIES):
            problem = self._transfer(part)
            if problem is None:
                break
            before, size = size, _size(part)
            if size == before:
                raise PullError(f"{self.url} could not be downloaded: {problem}") from problem
        else:
            raise PullError(f"{self.url} was interrupted {_TRIES} times; run again to resume")
        sync(part)  # `is_here` trusts the size, which the system may write before the content
        self._check(part)
        part.replace(self.path)
        sync(self.path.parent)
        _tag_file(part).unlink(missing_ok=True)

    def _check(self, part: Path) -> None:
        """Write the hash down, or delete the part if it is not the one that is known."""
        seen = sha256_of(part)
        expected = self.sha256 or _json(_record(self.path)).get("sha256", seen)
        if seen == expected:
            facts = {"url": self.url, "size": part.stat().st_size, "sha256": seen}
            write_atomically(_record(self.path), json.dumps(facts).encode())
            return
        part.unlink()
        if self.sha256 is not None:
            raise PullError(f"{self.url} should have SHA-256 {expected} but has {seen}")
        problem = f"{self.url} is another file than it was: SHA-256 {seen}, where {expected} was seen first"
        raise PullError(f"{problem}; if you trust the new one, delete {_record(self.path)}")

    def _transfer(self, part: Path) -> Exception | None:
        """Append to the part until the server has no more; return what broke the transfer off, or None."""
        have, tag, digest = _intact_part(part)
        headers = {"User-Agent": f"ensembed/{__version__}", "Accept-Encoding": "identity"}
        if have:  # only a server that still has the same file continues it
            headers |= {"Range": f"bytes={have}-", "If-Range": tag}
        try:
            request = Request(_quoted(self.url), headers=headers)  # noqa: S310 - `download` has checked the address
            with urllib.request.build_opener(_Redirects).open(request, timeout=self.timeout) as answer:
                return self._receive(answer, part, have, digest)
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
        except UnicodeError as error:  # no host can have such a name
            return error

    def _receive(self, answer: Any, part: Path, have: int, digest: hashlib._Hash) -> Exception | None:  # noqa: ANN401 - an HTTPResponse
        continues = answer.status == 206 and str(answer.headers["Content-Range"]).startswith(f"bytes {have}-")
        if have and answer.status == 206 and not continues:  # the next try asks for all of it
            part.unlink()
            return ConnectionError(f"it sent {answer.headers['Content-Range']!r} instead of all after byte {have}")
        done = have if continues else 0
        length = answer.headers["Content-Length"]
        size = done + int(length) if re.fullmatch("[0-9]{1,18}", length or "") else None
        if self.most is not None and (size or 0) > self.most:
            raise PullError(f"{self.url} should have at most {self.most:,} bytes but has {size:,}")
        free = shutil.disk_usage(part.parent).free
        if size is not None and size - done > free:
            problem = f"{self.url} has {size / 1e6:,.0f} MB, but {part.parent} has {free / 1e6:,.0f} MB left"
            raise PullError(f"{problem}; make room, or name another folder in ENSEMBED_CACHE")
        tag = answer.headers["ETag"] or answer.headers["Last-Modified"] or ""
        recorded = -math.inf
        digest = digest if continues else hashlib.sha256()
        with part.open("ab" if continues else "wb") as file:
            try:
                while block := answer.read1(_BLOCK):  # whatever has arrived, however little
                    if self.most is not None and done + len(block) > self.most:
                        raise PullError(f"{self.url} should have at most {self.most:,} bytes but has more")
                    file.write(block)
                    digest.update(block)
                    done += len(block)
                    if time.monotonic() >= recorded + _RECORD_SECONDS:
                        recorded = time.monotonic()
                        _record_part(part, file, tag, done, digest)
                    self.progress(self.label, done, size)
            finally:
                _record_part(part, file, tag, done, digest)
        if size is not None and done != size:
            return ConnectionError(f"it broke off after {done:,} of {size:,} bytes")
        self.progress(self.label, done, done)
        return None


def _tag_file(part: Path) -> Path:
    """The file with the part's size and hash, and the tag by which the server tells whether it has the same content."""
    return part.with_name(f"{part.name}.json")


def _record_part(part: Path, file: IO[bytes], tag: str, size: int, digest: hashlib._Hash) -> None:
    """Sync the part and record its size and hash: after a power cut it may hold anything behind that."""
    file.flush()
    os.fsync(file.fileno())
    facts = {"tag": "" if tag.startswith("W/") else tag, "size": size, "sha256": digest.hexdigest()}
    write_atomically(_tag_file(part), json.dumps(facts).encode())


def _intact_part(part: Path) -> tuple[int, str, hashlib._Hash]:
    """Return the recorded size of the part if its bytes have the recorded hash, its tag and hash; 0 otherwise."""
    facts, digest = _json(_tag_file(part)), hashlib.sha256()
    size, tag = facts.get("size"), facts.get("tag")
    if type(size) is int and isinstance(tag, str) and tag and 0 < size <= _size(part):
        with part.open("r+b") as file:
            while (left := size - file.tell()) and (block := file.read(min(left, _BLOCK))):
                digest.update(block)
            if digest.hexdigest() == facts.get("sha256"):
                file.truncate(size)
                return size, tag, digest
    return 0, "", hashlib.sha256()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _json(path: Path) -> dict[str, Any]:
    try:
        facts = read_json(path)
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only, and never from https back to http."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if not newurl.startswith("https://" if req.type == "https" else ("http://", "https://")):
            fp.close()
            raise urllib.error.URLError(f"it redirects from {req.type} to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
