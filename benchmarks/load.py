"""The server under load from a second process: against the bare encoder, and FastAPI with sentence-transformers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.texts import stsb
from benchmarks.timing import Comparison, Section, Table, seconds
from ensembed.encoders import open_encoder
from ensembed.fetch.fetcher import pull
from ensembed.support.machine import available_cores

ENCODER = "minilm"
CLIENTS = (1, 8, 64)
MOST = CLIENTS[-1]


def run(texts: int = 8_000, duration: float = 4.0, rounds: int = 4) -> Section:
    """Ours, the peer's and the bare encoder in turn, with 1, 8 and 64 clients, and the best of each."""
    return section(measured(texts, duration, rounds))


def measured(texts: int, duration: float, rounds: int, clients_on: Collection[int] | None = None) -> dict[str, Any]:
    """Requests a second of every one.

    Args:
        texts: how many sentences there are to ask for.
        duration: seconds of every run of the clients.
        rounds: how often everything is measured. Each of ours has the encoder itself next to it, seconds apart: a
            shared machine changes its speed by more than what is to be told apart.
        clients_on: the cores of the clients; None has them share those of the servers.
    """
    pull([ENCODER, "stsb"])
    sentences = stsb(texts)
    encoder = open_encoder(ENCODER)
    vectors = encoder.encode(sentences)

    def bare(batch: int, count: int) -> float:
        part = sentences[:count]
        took = seconds(lambda: [encoder.encode(part[k : k + batch]) for k in range(0, len(part), batch)])
        return len(part) / took

    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as name:
        folder = Path(name)
        (folder / "texts.json").write_text(json.dumps(sentences))
        np.save(folder / "vectors.npy", vectors)
        (folder / "st").mkdir()
        ours = [sys.executable, "-m", "ensembed", "serve", ENCODER, "--cache-mb", "0", "--quiet", "--port"]
        peer = [sys.executable, "-m", "benchmarks.load_peer"]
        ports = {"ours": free_port(), "peer": free_port()}
        best: dict[str, dict[int, dict[str, Any]]] = {"ours": {}, "peer": {}}
        direct = {1: 0.0, MOST: 0.0}
        with (
            _server([*ours, str(ports["ours"])], ports["ours"]),
            _server([*peer, str(ports["peer"]), str(folder / "st")], ports["peer"]),
        ):
            for turn in range(rounds):
                for batch, count in ((1, texts // 16), (MOST, texts // 4)):
                    direct[batch] = max(direct[batch], bare(batch, count))
                for who, port in ports.items():
                    for count in reversed(CLIENTS):
                        # The peer is far off: one look at it is enough.
                        if who == "ours" or not turn:
                            one = _clients(port, count, duration, folder, clients_on)
                            best[who][count] = _best(best[who].get(count, one), one)
    runs = {who: [found[count] for count in CLIENTS] for who, found in best.items()}
    return {"runs": runs, "alone": direct[1], "together": direct[MOST], "cores": available_cores()}


def _best(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The quicker run, with what went wrong in either."""
    quick = max(one, other, key=lambda run: run["requests/s"])
    return quick | {key: max(one[key], other[key]) for key in ("failed", "wrong")}


def section(measured: dict[str, Any], label: str = "") -> Section:
    """Tables of what was measured, which the label tells from others."""
    found, alone, together = measured["runs"], measured["alone"], measured["together"]
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
        [f"the encoder itself, {MOST} at a time", "", f"{together:,.0f}", "", "", ""],
    ]
    what = f"{label}, 64 clients, a request" if label else "64 clients, a request"
    first, *_, last = found["ours"]
    peer = found["peer"][-1]

    def each(rate: float) -> float:
        return 1 / rate

    return Section(
        "The server under load",
        [
            Comparison(what, "one client", each(last["requests/s"]), each(first["requests/s"]), "<= 0.333"),
            Comparison(
                what,
                f"the bare encoder, {MOST} at a time",
                each(last["requests/s"]),
                each(together),
                "<= 1.1",
            ),
            Comparison(what, names["peer"], each(last["requests/s"]), each(peer["requests/s"]), "< 1"),
        ],
        [Table(label, ["who", "clients", "requests/s", "p50, ms", "p99, ms", "lost or wrong"], rows)],
        [
            f"{ENCODER}, one sentence of STS-B a request, no cache, {measured['cores']} cores for server and clients.",
            "Every vector is compared with the encoder's own, after the run.",
            f"The 64 clients themselves take {last['client_cpu']:.0%} of a core.",
        ],
        measured,
    )


def _clients(port: int, clients: int, duration: float, folder: Path, cores: Collection[int] | None) -> dict[str, Any]:
    files = [str(folder / "texts.json"), str(folder / "vectors.npy")]
    command = [sys.executable, "-m", "benchmarks.load_client", str(port), str(clients), str(duration), *files, ENCODER]
    # Given before it starts: numpy counts its cores on import.
    place = None if cores is None else partial(os.sched_setaffinity, 0, cores)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, preexec_fn=place)
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


def free_port() -> int:
    """Return a port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
