"""What an audit found in the server and the downloads of version 0.1, by names that it has, too."""

from __future__ import annotations

import json
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import pytest
from loopback import serving

from ensembed import open_encoder
from ensembed.errors import EnsembedError

SERVE = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from ensembed import open_encoder
from ensembed.serve import Settings, create_app

try:
    from ensembed.serve.uvicorn_server import address_of, listen, run
except ImportError:  # version 0.1
    from ensembed.serve.running import address_of, listen, run

model = open_encoder("demo?dim=768")
pool, embed = ThreadPoolExecutor(1), type(model).embed

def work(self, texts):
    if "hang" in texts:
        print("it hangs", file=sys.stderr, flush=True)
        time.sleep(600)
    return embed(self, texts)

type(model).embed = lambda self, texts: pool.submit(work, self, texts).result()
settings = Settings(shutdown_seconds=1)
with listen("127.0.0.1", 0) as bound:
    app = create_app(model, settings=settings)
    print("serving at", address_of(bound), file=sys.stderr, flush=True)
    run(app, bound, settings)
"""
TEXTS = [f"text {i}" for i in range(2048)]


@contextmanager
def server(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """Run a server whose model works in a thread pool of its own; yield its process, address and log."""
    log = folder / "serve.log"
    with log.open("wb") as file, subprocess.Popen([sys.executable, "-c", SERVE], stderr=file) as process:
        try:
            url = wait_for(process, log)
            yield process, url, log
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        address = re.search(r"at (http://\S+)", log.read_text())
        with suppress(httpx.TransportError):
            if address and httpx.get(f"{address[1]}/ready", timeout=60).status_code == 200:
                return address[1]
        time.sleep(0.02)
    pytest.fail(f"the server did not start: {log.read_text()}")


def post(texts: list[str]) -> bytes:
    """A request as it goes over the wire."""
    body = json.dumps({"input": texts, "model": "demo?dim=768"}).encode()
    lines = ["POST /v1/embeddings HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def connect(url: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the kernel should not read for it
    connection.settimeout(120)
    connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
    return connection


def most_memory(process: subprocess.Popen[bytes]) -> float:
    """The largest memory of a process so far, in MB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def test_clients_that_do_not_read_take_little_memory(tmp_path: Path) -> None:
    with server(tmp_path) as (process, url, _), ExitStack() as stack:
        reply = httpx.post(f"{url}/v1/embeddings", json={"input": TEXTS, "model": "demo?dim=768"}, timeout=120)
        assert reply.status_code == 200  # the texts are cached from now on
        before = most_memory(process)
        for _ in range(8):
            stack.enter_context(connect(url)).sendall(post(TEXTS))
        for _ in range(5):
            assert httpx.get(f"{url}/health", timeout=120).status_code == 200
        small = httpx.post(f"{url}/v1/embeddings", json={"input": "a small one", "model": "demo?dim=768"}, timeout=120)
        assert small.status_code == 200
        assert most_memory(process) - before < 150


def test_invalid_requests_do_not_fill_the_log(tmp_path: Path) -> None:
    with server(tmp_path) as (_, url, log):
        for _ in range(50):
            with connect(url) as connection:
                connection.sendall(b"\x00 no HTTP\r\n\r\n")
                connection.recv(65536)
        assert log.read_text().count("Invalid HTTP request") == 1


def test_a_server_ends_though_its_model_hangs(tmp_path: Path) -> None:
    with server(tmp_path) as (process, url, log), connect(url) as connection:
        connection.sendall(post(["hang"]))
        end = time.monotonic() + 120
        while "it hangs" not in log.read_text() and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 1


class Site(BaseHTTPRequestHandler):
    """Serves `content`; after the first megabyte it breaks off, and refuses to go on."""

    content = b""
    breaks_off = True

    def do_GET(self) -> None:
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if self.breaks_off and start:
            self.send_error(503)
            return
        self.send_response(206 if start else 200)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(len(self.content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        self.end_headers()
        self.wfile.write(self.content[start : 1_000_000 if self.breaks_off else None])

    def log_message(self, *_: object) -> None:
        pass


def test_a_part_of_a_download_is_not_believed_by_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    tables = [generator.standard_normal((rows, 24)).astype(np.float32) for rows in (20_000, 4)]
    trigrams = {" do": 0, "dog": 1, "og ": 2} | {f"{i:x}": i for i in range(3, 19_999)} | {"UUUNKKK": 19_999}
    words = {"a": 0, "dog": 1, "barks": 2, "UUUNKKK": 3}
    content = pickle.dumps([*tables, (trigrams, words)], 2)
    (tmp_path / "whole.pickle").write_bytes(content)
    expected = open_encoder(f"paranmt:{tmp_path / 'whole.pickle'}").encode(["a dog"])
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Site, "content", content)
    with serving(site := ThreadingHTTPServer(("127.0.0.1", 0), Site)):
        name = f"paranmt:http://127.0.0.1:{site.server_port}/model.pickle"
        with pytest.raises(EnsembedError, match=r"broke off|503"):
            open_encoder(name)
        (part,) = (tmp_path / "cache").rglob("*.part")
        assert part.stat().st_size == 1_000_000
        part.write_bytes(bytes(1_000_000))  # as a power cut may leave it
        monkeypatch.setattr(Site, "breaks_off", False)
        np.testing.assert_array_equal(open_encoder(name).encode(["a dog"]), expected)
