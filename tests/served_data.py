"""A web server with archives of the structure of the publishers', of sentences that are made up here."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ensembed.fetch.catalog import DataSet, PinnedFile, Source
from ensembed.sts.datasets import PARTS

PAIRS = 4
FOLDERS = {"sts12": "test-gold", "sts13": "test-gs", "sts16": "sts2016-english-with-gs-v1.0"}
SHARD = "benchmark-r13output/training-monolingual.tokenized.shuffled/news.en-00001-of-00100"


@dataclass
class Site:
    """What the server has, and what it was asked.

    Attributes:
        url: its address.
        files: the content of each path.
        most: bytes after which every answer breaks off.
        asked: paths and ranges, in order.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    most: int | None = None
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Site]:
    """The server, for as long as the block runs."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers["Range"]
            site.asked.append((self.path, asked))
            body = site.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            tag = f'"{hashlib.sha256(body).hexdigest()}"'
            start = int(asked.removeprefix("bytes=")[:-1]) if asked and self.headers["If-Range"] == tag else 0
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.send_header("ETag", tag)
            self.end_headers()
            self.wfile.write(body[start:][: site.most])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def year_files(name: str) -> dict[str, tuple[str, bytes]]:
    """For every stored file its member and content; sts16 has the organisers' four columns and names."""
    files = {}
    for part in PARTS[name]:
        stem = f"surprise.{part}" if (name, part) in (("sts12", "OnWN"), ("sts12", "SMTnews")) else part
        notes = "\tnote one\tnote two" if name == "sts16" else ""
        lines = [f"{part} dog {i} Runs.\tA {part} fox {i} eats.{notes}\n" for i in range(PAIRS)]
        scores = [f"{i}.5\n" for i in range(PAIRS)]
        for kind, text in (("input", lines), ("gs", scores)):
            prefix = "STS2016" if name == "sts16" else "STS"
            member = f"{FOLDERS[name]}/{prefix}.{kind}.{stem}.txt"
            if (name, part, kind) != ("sts13", "SMT", "input"):
                files[f"STS.{kind}.{stem}.txt"] = member, "".join(text).encode()
    return files


def stsb_files() -> dict[str, tuple[str, bytes]]:
    """The three splits, as `year_files`."""
    line = "genre\tfile\t2012\t{0:04}\t{0}.000\tDog {0} runs.\tFox {0} eats.\n"
    return {
        f"sts-{split}.csv": (f"stsbenchmark/sts-{split}.csv", "".join(line.format(i) for i in range(count)).encode())
        for split, count in (("train", 5), ("dev", 4), ("test", 3))
    }


def described(name: str, folder: str, files: Mapping[str, tuple[str, bytes]], *urls: str) -> DataSet:
    """A data set whose pinned hashes are those of the files."""
    pinned = {stored: PinnedFile(hashlib.sha256(data).hexdigest(), len(data)) for stored, (_, data) in files.items()}
    paths = {stored: member for stored, (member, _) in files.items()}
    sources = tuple(Source("web", url, paths) for url in urls)
    return DataSet(name, "made up", "dataset", "none", pinned, sources, count=PAIRS, terms=("a term",), folder=folder)


def corpus_set(archive: bytes, *urls: str) -> DataSet:
    """The description of a corpus in that archive."""
    name, digest = "news.en-00001-of-00100.txt.gz", hashlib.sha256(archive).hexdigest()
    sources = tuple(Source("web", url, {name: SHARD}, size=len(archive), sha256=digest) for url in urls)
    return DataSet(
        "billion-word",
        "made up",
        "dataset",
        "none",
        {name: PinnedFile()},
        sources,
        count=1,
        unit="sentences",
        folder="corpus",
        tokens_below=60,
    )


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip of these members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    """A .tar.gz of these members, and links to these targets."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return gzip.compress(out.getvalue(), mtime=0)


def by_member(files: Mapping[str, tuple[str, bytes]]) -> dict[str, bytes]:
    """The members of an archive of these files, and a few others that the publishers' have too."""
    return {"top/00-readme.txt": b"read me", "top/correlation.pl": b"#!perl", **dict(files.values())}
