from __future__ import annotations

import contextlib
import gzip
import importlib.util
import re
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from corpus_files import LINES, SENTENCES, nulls, put, read, text, write_parquet

from ensembed.corpora import corpus, open_corpus, places
from ensembed.corpora.corpus import URL, ListCorpus
from ensembed.corpora.places import hide, secrets_of
from ensembed.errors import CorpusError, MissingError

PASSWORD = "hunter22secret"  # noqa: S105 - of nobody


@pytest.mark.parametrize(("url", "package"), [("s3://b/c.txt", "s3fs"), ("gs://b/c.txt", "gcsfs"),
                                              ("sftp://me:" + PASSWORD + "@host/c.txt", "paramiko")])  # fmt: skip
def test_the_missing_package_of_a_protocol_is_named(url: str, package: str) -> None:
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    with pytest.raises(MissingError, match=rf"needs {package}; install it with: pip install {package}$") as found:
        open_corpus(url)
    assert PASSWORD not in str(found.value)


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(CorpusError, match=r"nonesuch://x/y cannot be opened: Protocol not known: nonesuch"):
        open_corpus("nonesuch://x/y")


class Ranges(SimpleHTTPRequestHandler):
    """A server of files, of stretches of them if it is asked to, which may refuse."""

    ranges = True
    broken = False

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - of http.server
        pass

    def end_headers(self) -> None:
        if not self.ranges:
            self.send_header("Accept-Ranges", "none")
        super().end_headers()

    def do_GET(self) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if self.broken:
            return self.send_error(500, "out of order")
        if not asked or not self.ranges:
            return super().do_GET()
        data = Path(self.translate_path(self.path)).read_bytes()
        start, stop = int(asked[1]), min(int(asked[2]) + 1, len(data))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        self.wfile.write(data[start:stop])
        return None


@contextlib.contextmanager
def serving(folder: Path, **how: bool) -> Iterator[tuple[str, type[Ranges]]]:
    handler = type("Handler", (Ranges,), how)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", handler
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("name", ["c.txt", "c.gz", "c.parquet"])
def test_a_corpus_is_read_over_http_with_and_without_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ranges: bool
) -> None:
    monkeypatch.setattr(corpus, "MARK_ROWS", 4)
    for module in (corpus, places):
        monkeypatch.setattr(module, "_BUFFER", 16)  # so that much of it is passed over
    put(tmp_path / "c.txt", text(LINES, mark=True))
    put(tmp_path / "c.gz", gzip.compress(text(LINES)))
    write_parquet(tmp_path / "c.parquet", nulls(LINES))
    with serving(tmp_path, ranges=ranges) as (host, _):
        if name == "c.parquet" and not ranges:
            with pytest.raises(CorpusError, match=r"cannot be read: .*seek"):
                open_corpus(f"http://{host}/{name}")
            return
        found = open_corpus(f"http://{host}/{name}")
        assert found.key == ListCorpus(LINES).key
        for start, stop in pairwise([0, 3, 17, len(SENTENCES)]):
            assert list(found.stretch(start, stop)) == SENTENCES[start:stop]
        put(tmp_path / name, (tmp_path / name).read_bytes() + b"\n")
        with pytest.raises(CorpusError, match="changed while"):
            found.check_unchanged()


def test_a_folder_is_read_over_http(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for i in (0, 1):
        put(tmp_path / "parts" / f"{i}.txt", text(LINES[20 * i : 20 * i + 20]))
    with serving(tmp_path) as (host, _):
        found = open_corpus(f"http://{host}/parts/")
        assert found.key == ListCorpus(LINES).key
        assert list(found.stretch(5, 30)) == SENTENCES[5:30]
        put(tmp_path / "parts" / "1.txt", b"other\n")
        with pytest.raises(CorpusError, match=r"1\.txt changed while"):
            list(found.stretch(5, 30))


def test_secrets_of_a_url_are_in_no_error_message_and_no_cause(tmp_path: Path) -> None:
    put(tmp_path / "c.txt", text(LINES))
    put(tmp_path / "bad.txt", b"\xff\n")
    with serving(tmp_path) as (host, handler):

        def fails(action: Callable[[], object]) -> None:
            with pytest.raises(CorpusError) as found:
                action()
            assert PASSWORD not in "".join(traceback.format_exception(found.value))
            seen: BaseException | None = found.value
            while seen is not None:
                assert PASSWORD not in str(seen)
                seen = None if seen.__suppress_context__ else seen.__cause__ or seen.__context__

        secret = f"http://me:{PASSWORD}@{host}"
        query = f"http://{host}/c.txt?signature={PASSWORD}"
        fails(lambda: open_corpus(f"{secret}/nothing.txt"))
        fails(lambda: open_corpus(f"http://{host}/nothing.txt?signature={PASSWORD}"))
        fails(lambda: read(open_corpus(f"{secret}/bad.txt")))
        found = open_corpus(query)
        assert read(found) == SENTENCES
        assert PASSWORD not in f"{found} {found!r} {found._place!r}"  # type: ignore[attr-defined] # only those of files have it
        handler.broken = True
        fails(lambda: read(found))
        (tmp_path / "c.txt").unlink()
        fails(found.check_unchanged)
    fails(lambda: read(found))
    fails(lambda: open_corpus(query))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pa@ss@host/a@b.txt", "https://…@host/a@b.txt"),
        ("https://host/c.txt?sig=a%20b&x=1", "https://host/c.txt?…"),
        ("s3://bucket/part-?.txt", "s3://bucket/part-?.txt"),
        ("abfs://container@account/c.txt", "abfs://container@account/c.txt"),
        ("simplecache::ftp://me:secret@host/c", "simplecache::ftp://…@host/c"),
        ("got 403 for 'http://me:x@h/p?k=v' twice", "got 403 for 'http://…@h/p?…' twice"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert hide(url) == shown


def test_secrets_are_found_as_written_and_decoded() -> None:
    assert set(secrets_of("https://user:pass%20word@h/p?sig=ab%2Fcd&x=1")) >= {"pass%20word", "pass word", "ab/cd"}
    assert hide("the key ab/cd is wrong", secrets_of("https://h/p?sig=ab%2Fcd")) == "the key … is wrong"
    assert secrets_of("s3://bucket/part-?.txt") == ()


@pytest.mark.parametrize(
    ("source", "expected"), [("s3://b/c", True), ("a::b", True), ("c.txt", False), ("/a/b://c", False), ("-", False)]
)
def test_urls_are_told_from_paths(source: str, expected: bool) -> None:
    assert bool(URL.match(source)) == expected
