"""Downloads from a server of our own: once, whole, resumed, and refused where they have to be."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from urllib.request import Request

import pytest

from ensembed.errors import InputError, PullError
from ensembed.fetch import download as download_module
from ensembed.fetch.download import download, forget
from ensembed.support.machine import cache_dir

CONTENT = os.urandom(3_000_000)


class Site(ThreadingHTTPServer):
    """Serves `content` at every address, less what `mode` spoils."""

    daemon_threads = True
    content = CONTENT
    mode = ""
    tag = '"one"'

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str | None]] = []

    def handle_error(self, *_: object) -> None:
        """Clients that go away in the middle are what we test."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        site = self.server
        site.requests.append((self.path, self.headers["Range"]))
        if site.mode == "404":
            self.send_error(404)
        elif site.mode == "silent":
            time.sleep(30)
        elif site.mode == "nonsense":
            self.wfile.write(b"this is no HTTP\r\n\r\n")
        elif self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path[4:].replace("SITE", site.url))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.serve(site)

    def serve(self, site: Site) -> None:
        start = 0
        asked = self.headers["Range"]
        if asked and self.headers["If-Range"] == site.tag and site.mode != "no ranges":
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start >= len(site.content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(site.content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        start //= 2 if site.mode == "another part" else 1
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(site.content) - 1}/{len(site.content)}")
        if site.mode == "enormous":
            self.send_header("Content-Length", str(10**17))
        elif site.mode == "endless":
            self.send_header("Content-Length", "9" * 5000)
        elif site.mode != "no length":
            self.send_header("Content-Length", str(len(site.content) - start))
        if site.tag:
            self.send_header("ETag", site.tag)
        self.end_headers()
        stop = len(site.content)
        if site.mode in ("breaks off", "slow"):
            stop = min(stop, start + 1_000_000)
        self.wfile.write(site.content[start:stop])
        if site.mode == "slow":
            time.sleep(30)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        site.shutdown()
        thread.join()
        site.server_close()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(Site()) as running:
        yield running


def test_a_file_is_downloaded_once(site: Site) -> None:
    reports: list[tuple[str, int, int | None]] = []
    path = download(f"{site.url}/a%20b/the%20file.zip", progress=lambda *report: reports.append(report))
    assert path.read_bytes() == CONTENT
    assert path.suffix == ".zip"
    assert cache_dir() in path.parents
    assert reports[-1] == ("download the_file.zip", len(CONTENT), len(CONTENT))
    assert download(f"{site.url}/a%20b/the%20file.zip#fragment") == path
    assert len(site.requests) == 1
    assert download(f"{site.url}/other.zip") != path
    site.mode = "404"  # what is here needs no server
    assert download(f"{site.url}/other.zip").read_bytes() == CONTENT


def test_letters_and_blanks_in_an_address_are_asked_for_as_browsers_do(site: Site) -> None:
    assert download(f"{site.url}/wörter und%20mehr.vec?größe=1 2").read_bytes() == CONTENT
    assert site.requests == [("/w%C3%B6rter%20und%20mehr.vec?gr%C3%B6%C3%9Fe=1%202", None)]
    with pytest.raises(InputError, match="not an address of the form http"):
        download(f"{site.url}/\udce9")


def test_letters_in_the_name_of_a_host_are_asked_for_as_browsers_do(site: Site) -> None:
    assert download(f"{site.url.replace('.', '。')}/a").read_bytes() == CONTENT


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.com", f"{'ö' * 64}.com"])
def test_a_name_that_no_host_can_have_is_a_pull_error(site: Site, host: str) -> None:
    for url in (f"http://{host}/a", f"{site.url}/to/http://{host}/a"):
        with pytest.raises(PullError, match=r"could not be downloaded: .*label"):
            download(url)


@pytest.mark.parametrize("name", ["", "..", ".source.json", ".lock", "a" * 500, "%E4%B8%AD" * 99])
def test_unusual_names_in_addresses_are_stored_safely(site: Site, name: str) -> None:
    assert download(f"{site.url}/{name}").read_bytes() == CONTENT
    assert download(f"{site.url}/{name}").read_bytes() == CONTENT
    assert len(site.requests) == 1


def test_a_transfer_that_breaks_off_is_resumed(site: Site) -> None:
    site.mode = "breaks off"
    assert download(f"{site.url}/a").read_bytes() == CONTENT
    assert [asked for _, asked in site.requests] == [None, "bytes=1000000-", "bytes=2000000-"]


def test_a_server_without_ranges_or_tags_is_downloaded_from_the_start(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (mode, tag) in enumerate([("no ranges", '"one"'), ("", ""), ("", 'W/"weak"')]):
        site.mode, site.tag = "breaks off", tag
        with monkeypatch.context() as patch:
            patch.setattr(download_module, "_TRIES", 1)
            with pytest.raises(PullError, match="was interrupted 1 times"):
                download(f"{site.url}/{number}")
        site.mode = mode
        assert download(f"{site.url}/{number}").read_bytes() == CONTENT


def interrupted(site: Site, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Begin to download /a, which breaks off, and return the part that is there; the site sends all of it then."""
    site.mode = "breaks off"
    with monkeypatch.context() as patch:
        patch.setattr(download_module, "_TRIES", 1)
        with pytest.raises(PullError, match="run again to resume"):
            download(f"{site.url}/a")
    site.mode = ""
    return next(cache_dir().glob("downloads/*/*.part"))


def test_a_partial_download_of_an_older_file_is_discarded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(site, monkeypatch)
    site.content, site.tag = CONTENT[::-1], '"two"'
    assert download(f"{site.url}/a").read_bytes() == CONTENT[::-1]


def test_another_part_than_was_asked_for_is_not_taken_for_the_file(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(site, monkeypatch)
    site.mode = "another part"
    assert download(f"{site.url}/a").read_bytes() == CONTENT


def test_a_partial_download_that_is_complete_or_too_long_is_handled(site: Site) -> None:
    path = download(f"{site.url}/a")
    for extra in (b"", b"more"):
        part = path.with_name(f"{path.name}.part")
        part.write_bytes(CONTENT + extra)
        facts = {"tag": '"one"', "size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
        part.with_name(f"{part.name}.json").write_text(json.dumps(facts))
        path.unlink()
        assert download(f"{site.url}/a").read_bytes() == CONTENT
        assert not part.exists()


@pytest.mark.parametrize("damage", ["zeros", "shorter", "no hash"])
def test_a_part_whose_bytes_are_not_those_that_were_received_is_discarded(
    site: Site, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    part = interrupted(site, monkeypatch)
    if damage == "no hash":  # as version 0.1 left it
        part.with_name(f"{part.name}.json").write_text('{"tag": "\\"one\\""}')
    else:  # as a power cut may leave it
        part.write_bytes(bytes(1_000_000) if damage == "zeros" else CONTENT[:999])
    assert download(f"{site.url}/a").read_bytes() == CONTENT


def test_bytes_behind_the_last_hash_are_received_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    part = interrupted(site, monkeypatch)
    part.write_bytes(part.read_bytes() + bytes(500))
    assert download(f"{site.url}/a").read_bytes() == CONTENT
    assert site.requests[-1] == ("/a", "bytes=1000000-")


def test_a_server_that_always_stops_at_the_same_byte_is_an_error(site: Site) -> None:
    site.mode, site.tag = "breaks off", ""
    with pytest.raises(PullError, match=r"/a could not be downloaded: it broke off after 1,000,000 of 3,000,000 bytes"):
        download(f"{site.url}/a")


def test_a_missing_length_is_accepted_and_a_full_disk_refused(site: Site) -> None:
    site.mode = "no length"
    assert download(f"{site.url}/a").read_bytes() == CONTENT
    site.mode = "enormous"
    with pytest.raises(PullError, match=r"has 100,000,000,000 MB, but .* MB left"):
        download(f"{site.url}/b")


def test_a_length_that_no_file_has_is_ignored(site: Site) -> None:
    site.mode = "endless"
    assert download(f"{site.url}/a").read_bytes() == CONTENT


def test_another_file_under_the_same_address_is_refused(site: Site) -> None:
    path = download(f"{site.url}/a")
    path.unlink()
    assert download(f"{site.url}/a").read_bytes() == CONTENT
    path.unlink()
    site.content, site.tag = b"another", '"two"'
    with pytest.raises(PullError, match=r"is another file than it was.*delete .*\.source\.json"):
        download(f"{site.url}/a")
    assert not path.exists()
    (path.parent / ".source.json").unlink()
    assert download(f"{site.url}/a").read_bytes() == b"another"


def test_a_file_that_was_shortened_is_fetched_again(site: Site) -> None:
    path = download(f"{site.url}/a")
    os.truncate(path, 100)
    assert download(f"{site.url}/a").read_bytes() == CONTENT


def test_redirects_lead_to_http_and_https_only(site: Site) -> None:
    assert download(f"{site.url}/to/SITE/a").read_bytes() == CONTENT
    for target in ("file:///etc/hostname", "ftp://127.0.0.1/a", "data:,abc"):
        with pytest.raises(PullError, match="could not be downloaded"):
            download(f"{site.url}/to/{target}")
    with pytest.raises(PullError, match=r"infinite loop|Found"):
        download(f"{site.url}/to/SITE/to/SITE" + "/to/SITE" * 20)


def test_redirects_never_lead_from_https_to_http() -> None:
    handler = download_module._Redirects()
    request = Request("https://127.0.0.1/a")
    with pytest.raises(OSError, match="redirects from https to http://"):
        handler.redirect_request(request, BytesIO(), 302, "", HTTPMessage(), "http://127.0.0.1/a")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/hostname",
        "ftp://127.0.0.1/a",
        "data://a",
        "http://",
        "https:///a",
        "http://[a/b",
        "http://a:99999/b",
    ],
)
def test_addresses_other_than_http_and_https_are_refused(url: str) -> None:
    with pytest.raises(InputError, match="not an address of the form http"):
        download(url)


def test_forget_deletes_a_download_and_its_hash(site: Site) -> None:
    path = download(f"{site.url}/f")
    forget(f"{site.url}/f")
    assert not path.exists()
    site.content = b"another"
    assert download(f"{site.url}/f").read_bytes() == b"another"
    forget(f"{site.url}/never")  # as well


def test_forget_deletes_what_a_process_left_that_was_killed_after_the_rename(site: Site) -> None:
    path = download(f"{site.url}/a.bin")
    path.with_name("a.bin.part.json").write_text("{}")
    forget(f"{site.url}/a.bin")
    assert [file.name for file in path.parent.iterdir()] == [".lock"]


def test_progress_reports_carry_the_given_label(site: Site) -> None:
    reports: list[str] = []
    download(f"{site.url}/1", progress=lambda label, _done, _size: reports.append(label), label="download a model")
    assert set(reports) == {"download a model"}


def test_an_unreachable_or_failing_server_is_a_pull_error(site: Site) -> None:
    site.mode = "404"
    with pytest.raises(PullError, match=r"/a could not be downloaded: HTTP Error 404: Not Found"):
        download(f"{site.url}/a")
    site.mode = "nonsense"
    with pytest.raises(PullError, match="could not be downloaded"):
        download(f"{site.url}/a")
    site.mode = "silent"
    began = time.monotonic()
    with pytest.raises(PullError, match=r"could not be downloaded: .*timed out"):
        download(f"{site.url}/a", timeout=0.2)
    assert time.monotonic() - began < 20
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(PullError, match="refused"):
            download(f"http://127.0.0.1:{free.getsockname()[1]}/a")
    with pytest.raises(PullError, match="could not be downloaded"):
        download("http://name.invalid/a")


def test_a_cache_that_cannot_be_written(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(PullError, match="could not be stored"):
        download(f"{site.url}/a")


def test_threads_download_a_file_once(site: Site) -> None:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(download(f"{site.url}/a"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1
    assert paths[0].read_bytes() == CONTENT
    assert len(site.requests) == 1


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_ctrl_c_keeps_the_part_that_was_downloaded(site: Site) -> None:
    site.mode = "slow"
    program = f"from ensembed.fetch.download import download; download('{site.url}/a')"
    child = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    part = None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (part and part.stat().st_size >= 1_000_000):
        part = next(cache_dir().glob("downloads/*/*.part"), None)
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in child.communicate(timeout=60)[1]
    site.mode = ""
    assert download(f"{site.url}/a").read_bytes() == CONTENT
    assert site.requests[-1] == ("/a", "bytes=1000000-")
