"""The server under load from a second process: against the bare encoder, and FastAPI with sentence-transformers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.texts import stsb
from benchmarks.timing import Comparison, Section, Table, seconds
from ensembed.cores import available_cores
from ensembed.encoders import open_encoder
from ensembed.encoders.pull import pull

ENCODER = "minilm"
CLIENTS = (1, 8, 64)


def run(texts: int = 8_000, duration: float = 6.0, repeats: int = 2) -> Section:
    """Ours, the peer's and the bare encoder in turn, with 1, 8 and 64 clients, and the best of each."""
    pull([ENCODER, "stsb"])
    sentences = stsb(texts)
    encoder = open_encoder(ENCODER)
    vectors = encoder.encode(sentences)
    part = sentences[:2048]

    def bare(batch: int) -> float:
        took = seconds(lambda: [encoder.encode(part[k : k + batch]) for k in range(0, len(part), batch)])
        return len(part) / took

    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as name:
        folder = Path(name)
        (folder / "texts.json").write_text(json.dumps(sentences))
        np.save(folder / "vectors.npy", vectors)
        (folder / "st").mkdir()
        ours = [sys.executable, "-m", "ensembed", "serve", ENCODER, "--cache-mb", "0", "--quiet", "--port"]
        peer = [sys.executable, "-m", "benchmarks.load_peer"]
        ports = {"ours": _free_port(), "peer": _free_port()}
        found: dict[str, list[dict[str, Any]]] = {}
        direct = {1: 0.0, 32: 0.0}
        with (
            _server([*ours, str(ports["ours"])], ports["ours"]),
            _server([*peer, str(ports["peer"]), str(folder / "st")], ports["peer"]),
        ):
            for _ in range(repeats):
                direct = {batch: max(rate, bare(batch)) for batch, rate in direct.items()}
                for who, port in ports.items():
                    runs = [_clients(port, count, duration, folder) for count in CLIENTS]
                    found[who] = [_best(*both) for both in zip(found.get(who, runs), runs, strict=True)]
    return _section(found, direct[1], direct[32])


def _best(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The quicker run, with what went wrong in either."""
    quick = max(one, other, key=lambda run: run["requests/s"])
    return quick | {key: max(one[key], other[key]) for key in ("failed", "wrong")}


def _section(found: dict[str, list[dict[str, Any]]], alone: float, together: float) -> Section:
    names = {"ours": "ensembed serve", "peer": "FastAPI and sentence-transformers"}
    rows = [
        [
            names[who],
            str(one["clients"]),
            f"{one['requests/s']:,.0f}",
            f"{one['p50_ms']:.1f}",
            f"{one['p99_ms']:.1f}",
            str(one["failed"] + one["wrong"]),
        ]
        for who, runs in found.items()
        for one in runs
    ]
    rows += [
        ["the encoder itself, a sentence at a time", "", f"{alone:,.0f}", "", "", ""],
        ["the encoder itself, 32 at a time", "", f"{together:,.0f}", "", "", ""],
    ]
    first, *_, last = found["ours"]
    peer = found["peer"][-1]

    def each(rate: float) -> float:
        return 1 / rate

    return Section(
        "The server under load",
        [
            Comparison(
                "64 clients, a request", "one client", each(last["requests/s"]), each(first["requests/s"]), "<= 0.33"
            ),
            Comparison(
                "64 clients, a request",
                "the bare encoder, 32 at a time",
                each(last["requests/s"]),
                each(together),
                "<= 1.1",
            ),
            Comparison(
                "64 clients, a request", names["peer"], each(last["requests/s"]), each(peer["requests/s"]), "< 1"
            ),
        ],
        [Table("", ["who", "clients", "requests/s", "p50, ms", "p99, ms", "lost or wrong"], rows)],
        [
            f"{ENCODER}, one sentence of STS-B a request, no cache, {available_cores()} cores for server and clients.",
            "Every vector is compared with the encoder's own, after the run.",
            f"The 64 clients themselves take {last['client_cpu']:.0%} of a core, which the bare encoder has to itself.",
        ],
        {"runs": found, "alone": alone, "together": together},
    )


def _clients(port: int, clients: int, duration: float, folder: Path) -> dict[str, Any]:
    files = [str(folder / "texts.json"), str(folder / "vectors.npy")]
    command = [sys.executable, "-m", "benchmarks.load_client", str(port), str(clients), str(duration), *files, ENCODER]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def _server(command: list[str], port: int) -> Iterator[None]:
    """A server in a process of its own, once it listens."""
    process = subprocess.Popen(command, env=os.environ | {"TOKENIZERS_PARALLELISM": "false"})
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
