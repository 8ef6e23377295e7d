"""Good clients of a server beside hostile ones, for as long as asked: wrong answers, errors, delays, memory, files.

    python -m benchmarks soak --minutes 60

It writes `results/soak.json` and `results/soak.md`. Everything stays on this machine, and it ends its own processes.
`python -m benchmarks` without an area does not run it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.load import free_port
from benchmarks.soak_hostile import request_bytes
from ensembed.encoders import open_encoder
from ensembed.support.atomic_files import write_atomically
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table

_KEY = "soak-key-of-this-run"
_PAUSE_SECONDS = 0.02  # of a good client between two requests: the server is busy, not saturated
_REPLY_SECONDS = 30.0  # a good client that waits longer counts as an error


@dataclass(frozen=True)
class Plan:
    """What to run: the good clients alone for a tenth of the time, then all."""

    minutes: float
    good: int = 8
    idle: int = 200
    slow: int = 30
    texts: int = 20_000
    dim: int = 256
    sample_seconds: float = 1.0


@dataclass
class Good:
    """Clients that ask for one text after the other and compare every vector with the encoder's own."""

    port: int
    texts: list[str]
    vectors: NDArray[np.float32]
    wrong: int = 0
    seconds: array[float] = field(default_factory=lambda: array("d"))
    errors: Counter[str] = field(default_factory=Counter)

    async def run(self, clients: int, seconds: float) -> None:
        """Run the clients for that time."""
        end = time.monotonic() + seconds
        await asyncio.gather(*(self._client(number, end) for number in range(clients)))

    async def _client(self, number: int, end: float) -> None:
        chance = np.random.default_rng(number)
        while time.monotonic() < end:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            try:
                while time.monotonic() < end:
                    await asyncio.wait_for(
                        self._ask(reader, writer, int(chance.integers(len(self.texts)))), _REPLY_SECONDS
                    )
                    await asyncio.sleep(_PAUSE_SECONDS)
            except (OSError, EOFError, asyncio.TimeoutError) as error:
                self.errors[type(error).__name__] += 1
            finally:
                writer.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, row: int) -> None:
        start = time.perf_counter()
        writer.write(request_bytes(_KEY, self.texts[row]))
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        body = await reader.readexactly(int(re.findall(r"content-length: (\d+)", head)[0]))
        self.seconds.append(time.perf_counter() - start)
        status = head.split()[1]
        if status != "200":
            self.errors[status] += 1
        elif not np.allclose(json.loads(body)["data"][0]["embedding"], self.vectors[row], atol=1e-4):
            self.wrong += 1

    def facts(self) -> dict[str, Any]:
        """Return what these clients saw."""
        p50, p99 = np.percentile(self.seconds, [50, 99]) * 1e3 if len(self.seconds) else (np.nan, np.nan)
        facts = {"requests": len(self.seconds), "wrong": self.wrong, "errors": dict(self.errors)}
        return facts | {"p50_ms": float(p50), "p99_ms": float(p99)}


def measure(plan: Plan) -> dict[str, Any]:
    """Run a server, the good clients alone, then the hostile ones beside them."""
    model = f"demo?dim={plan.dim}"
    texts = [f"sentence {i} of the soak" for i in range(plan.texts)]
    vectors = open_encoder(model).encode(texts)
    quiet_seconds, loud_seconds = plan.minutes * 6, plan.minutes * 54
    with _server(model) as (process, port):
        quiet, loud = Good(port, texts, vectors), Good(port, texts, vectors)
        asyncio.run(Good(port, texts, vectors).run(plan.good, min(quiet_seconds, 5.0)))  # to warm up
        asyncio.run(quiet.run(plan.good, quiet_seconds))
        with _hostile(plan, port, loud_seconds) as hostile:
            samples = asyncio.run(_watched(loud, plan, loud_seconds, process.pid))
            visits = json.loads(hostile.communicate(timeout=60)[0])
        alive = process.poll() is None
    return {
        "plan": asdict(plan),
        "quiet": quiet.facts(),
        "beside": loud.facts(),
        "hostile": visits,
        "server": {"alive": alive, **memory_and_files(samples)},
    }


async def _watched(good: Good, plan: Plan, seconds: float, pid: int) -> list[tuple[float, float, int]]:
    """Run the good clients, and sample the server's memory in MB and its open files."""
    samples: list[tuple[float, float, int]] = []
    start = time.monotonic()

    async def sample() -> None:
        while True:
            samples.append((time.monotonic() - start, _memory_mb(pid), len(os.listdir(f"/proc/{pid}/fd"))))  # noqa: PTH208 - names only
            await asyncio.sleep(plan.sample_seconds)

    sampling = asyncio.ensure_future(sample())
    await good.run(plan.good, seconds)
    sampling.cancel()
    return samples


def memory_and_files(samples: list[tuple[float, float, int]]) -> dict[str, float]:
    """Summarise samples (seconds, MB, files). The slope is that of the memory after the first sixth, in MB an hour."""
    times, memory, files = (np.array(column, float) for column in zip(*samples, strict=True))
    late = times >= times[-1] / 6
    slope = np.polyfit(times[late], memory[late], 1)[0] * 3600 if late.sum() > 1 else 0.0
    return {
        "memory_start_mb": float(memory[0]),
        "memory_peak_mb": float(memory.max()),
        "memory_end_mb": float(memory[-1]),
        "memory_slope_mb_per_hour": float(slope),
        "files_peak": int(files.max()),
        "files_end": int(files[-1]),
    }


def _memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024


@contextmanager
def _server(model: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server in a process of its own, once it is ready."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ensembed-soak-") as folder:
        keys = Path(folder) / "keys"
        keys.write_text(f"{_KEY}\n")
        command = [sys.executable, "-m", "ensembed", "serve", model, "--name", "soak", "--port", str(port)]
        with _ended(subprocess.Popen([*command, "--keys", str(keys), "--quiet"])) as process:
            asyncio.run(_await_ready(process, port))
            yield process, port


async def _await_ready(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.write(b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        reply = await reader.read()
        writer.close()
        if b" 200 " in reply[:20]:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("the server is not ready after a minute")


@contextmanager
def _hostile(plan: Plan, port: int, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    facts = [str(port), str(seconds), _KEY, str(plan.idle), str(plan.slow)]
    command = [sys.executable, "-m", "benchmarks.soak_hostile", *facts]
    with _ended(subprocess.Popen(command, stdout=subprocess.PIPE)) as process:
        yield process


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End a process whatever happens."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(45)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def page(facts: dict[str, Any]) -> str:
    """Return the whole of `results/soak.md`."""
    plan, server, quiet, beside = facts["plan"], facts["server"], facts["quiet"], facts["beside"]
    ratio = beside["p99_ms"] / quiet["p99_ms"]
    rows = [
        ["wrong answers", str(quiet["wrong"]), str(beside["wrong"]), "0"],
        ["errors", str(sum(quiet["errors"].values())), str(sum(beside["errors"].values())), "0"],
        ["requests", f"{quiet['requests']:,}", f"{beside['requests']:,}", ""],
        ["p50, ms", f"{quiet['p50_ms']:.1f}", f"{beside['p50_ms']:.1f}", ""],
        ["p99, ms", f"{quiet['p99_ms']:.1f}", f"{beside['p99_ms']:.1f} ({ratio:.1f} times quiet)", "< 3 times quiet"],
        ["memory, peak, MB", "", f"{server['memory_peak_mb']:.0f}", "<= 500"],
        ["memory, slope, MB an hour", "", f"{server['memory_slope_mb_per_hour']:.1f}", "flat"],
        ["open files, peak and end", "", f"{server['files_peak']} and {server['files_end']}", ""],
    ]
    visits = [[name.replace("_", " "), f"{count:,}"] for name, count in facts["hostile"].items()]
    made = ", ".join(f"{key} {value}" for key, value in facts["provenance"].items())
    lines = [
        "# The server beside hostile clients",
        "",
        f"`python -m benchmarks soak --minutes {plan['minutes']:g}`",
        "",
        f"{plan['good']} good clients, first alone, then beside hostile ones, of which {plan['idle']} are idle and",
        f"{plan['slow']} read slowly or not at all. Every vector is compared with the encoder's own.",
        "",
        markdown_table(["good clients and server", "quiet", "beside hostile ones", "to reach"], rows),
        "",
        markdown_table(["hostile clients", "visits"], visits),
        "",
        f"- Made with {made}.",
        "",
    ]
    return "\n".join(lines)


def main(plan: Plan, out: Path) -> dict[str, Any]:
    """Measure and write both files; return what was measured."""
    facts = measure(plan) | {"provenance": provenance()}
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "soak.json", (json.dumps(facts, indent=1) + "\n").encode())
    write_atomically(out / "soak.md", page(facts).encode())
    print(page(facts), flush=True)
    return facts
