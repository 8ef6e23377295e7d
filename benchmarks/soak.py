"""Good clients of a server beside hostile ones, for as long as asked: wrong answers, errors, delays, memory, files.

    python -m benchmarks soak --minutes 60

It writes `results/soak.json` and `results/soak.md`. Everything stays on this machine, and it ends its own processes.
`python -m benchmarks` without an area does not run it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.load import free_port
from benchmarks.soak_hostile import request_bytes
from benchmarks.soak_member import Member, answers
from ensembed.encoders import open_encoder
from ensembed.support.atomic_files import write_atomically
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table

_KEY = "soak-key-of-this-run"
_PAUSE_SECONDS = 0.02  # of a good client between two requests: the server is busy, not saturated
_REPLY_SECONDS = 30.0  # a good client that waits longer counts as an error
_TICKS = os.sysconf("SC_CLK_TCK")
_FLAT_MB = 10.0  # of memory an hour: less is the noise of a slope over three quarters of an hour
_PHASES = {
    "alone": 0.05,
    "beside idle and slow clients": 0.1,
    "beside all hostile clients": 0.8,
    "alone again": 0.05,
}
_ALONE, _SLOW, _ALL, _AGAIN = _PHASES
_NOTES = """\
- `ensembed serve demo?dim={dim}` with an API key, and otherwise with its defaults.
- {good} good clients ask for one of {texts:,} texts, pause for {pause:g} ms, and ask for the next. They compare
  every vector with the encoder's own.
- Idle and slow clients: {idle} connections that send nothing, and {slow} that write by the byte, read slowly, or read
  nothing of a reply of 2,048 vectors.
- All hostile clients: also {unread} that ask for such a reply and read nothing, and the other kinds below.
- At the same time a second server has a model with a member that hung {hung} times and died {died} times, for
  {fault:g} s each. The model waits 0.5 s for the member and goes on without it. Of {failing[requests]:,} answers
  {failing[with_member]:,} were with the member, {failing[without_member]:,} without it and {failing[wrong]} wrong;
  there were {failing[errors]} errors. p50 {failing[p50_ms]:.0f} ms, p99 {failing[p99_ms]:.0f} ms, memory at most
  {failing[memory_peak_mb]:.0f} MB.
- The growth of the memory is the larger slope of the two servers, beside all hostile clients and without the first ten
  minutes. The peak is the larger one of the two.
- Delays are compared with the smaller p99 of the two phases alone. Other programs on the machine make delays longer,
  and not in all phases alike: see the cores that they used. The soak itself ran with a niceness of {nice}.
- Both servers logged {log_lines:,} lines.
- Made with {made}.
"""


@dataclass(frozen=True)
class Plan:
    """How many clients to run, and for how long."""

    minutes: float
    good: int = 8
    idle: int = 200
    slow: int = 30
    unread: int = 80
    busy: int = 2
    texts: int = 30_000
    dim: int = 768
    sample_seconds: float = 1.0
    member_seconds: tuple[float, float] = (50.0, 10.0)

    def crowd(self, phase: str) -> dict[str, int]:
        """Return the number of hostile clients of each kind in a phase."""
        third = self.slow // 3
        slow = {"slow_writer": third, "slow_reader": third, "no_reader": self.slow - 2 * third, "idle": self.idle}
        kinds = ("bad_body", "rubbish", "wrong_key", "cancelled", "half_closed", "pipelined")
        busy = dict.fromkeys(kinds, self.busy) | {"flood": 1, "no_reader": slow["no_reader"] + self.unread}
        return {_SLOW: slow, _ALL: slow | busy}.get(phase, {})


@dataclass
class Good:
    """Clients that ask for one text after the other and compare every vector with those computed beforehand.

    `answers` are the right vectors of the texts. There are two if a member of the model may be missing.
    """

    port: int
    texts: list[str]
    answers: list[NDArray[np.float32]]
    pause: float = _PAUSE_SECONDS
    wrong: int = 0
    right: Counter[int] = field(default_factory=Counter)
    seconds: array[float] = field(default_factory=lambda: array("d"))
    errors: Counter[str] = field(default_factory=Counter)

    async def run(self, clients: int, seconds: float) -> None:
        """Run the clients for that time. Every second one asks for numbers in base64."""
        end = time.monotonic() + seconds
        await asyncio.gather(*(self._client(number, end) for number in range(clients)))

    async def _client(self, number: int, end: float) -> None:
        chance, encoding = np.random.default_rng(number), ("float", "base64")[number % 2]
        while time.monotonic() < end:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(self.pause)
                continue
            try:
                while time.monotonic() < end:
                    row = int(chance.integers(len(self.texts)))
                    await asyncio.wait_for(self._ask(reader, writer, row, encoding), _REPLY_SECONDS)
                    await asyncio.sleep(self.pause)
            except (OSError, EOFError, asyncio.TimeoutError) as error:
                self.errors[type(error).__name__] += 1
            finally:
                writer.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, row: int, encoding: str) -> None:
        start = time.perf_counter()
        writer.write(request_bytes(_KEY, self.texts[row], encoding=encoding))
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        body = await reader.readexactly(int(re.findall(r"content-length: (\d+)", head)[0]))
        self.seconds.append(time.perf_counter() - start)
        status = head.split()[1]
        if status == "200":
            self._check(json.loads(body)["data"][0]["embedding"], row)
        else:
            self.errors[status] += 1

    def _check(self, embedding: str | list[float], row: int) -> None:
        numbers = np.frombuffer(base64.b64decode(embedding), "<f4") if isinstance(embedding, str) else embedding
        vector = np.asarray(numbers)
        for number, rows in enumerate(self.answers):
            if vector.shape == rows[row].shape and np.abs(vector - rows[row]).max() < 1e-5:
                self.right[number] += 1
                return
        self.wrong += 1

    def facts(self) -> dict[str, Any]:
        """Return what these clients saw."""
        p50, p99 = np.percentile(self.seconds, [50, 99]) * 1e3 if len(self.seconds) else (np.nan, np.nan)
        facts = {"requests": len(self.seconds), "wrong": self.wrong, "errors": dict(self.errors)}
        return facts | {"p50_ms": float(p50), "p99_ms": float(p99)}


class Watch:
    """Samples of the memory in MB and the open files of a process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.samples: list[tuple[float, float, int]] = []

    async def run(self, every: float) -> None:
        """Take a sample now and then, until this is cancelled."""
        start = time.monotonic()
        self.samples = []
        while True:
            files = len(os.listdir(f"/proc/{self._pid}/fd"))  # noqa: PTH208 - names only
            self.samples.append((time.monotonic() - start, self._status("VmRSS"), files))
            await asyncio.sleep(every)

    @property
    def peak_mb(self) -> float:
        """The most memory that the process has ever had."""
        return self._status("VmHWM")

    def _status(self, name: str) -> float:
        status = Path(f"/proc/{self._pid}/status").read_text(encoding="utf-8")
        return int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) / 1024


def memory_and_files(samples: list[tuple[float, float, int]]) -> dict[str, float]:
    """Summarise samples (seconds, MB, files). The slope leaves out the first ten minutes, or third."""
    times, memory, files = (np.array(column, float) for column in zip(*samples, strict=True))
    late = times >= min(600.0, times[-1] / 3)
    slope = np.polyfit(times[late], memory[late], 1)[0] * 3600 if late.sum() > 1 else 0.0
    return {
        "memory_mb": float(memory.mean()),
        "memory_end_mb": float(memory[-1]),
        "memory_slope_mb_per_hour": float(slope),
        "files_most": int(files.max()),
        "files_end": int(files[-1]),
    }


@dataclass
class Soak:
    """The servers that run, and what is asked of them."""

    plan: Plan
    texts: list[str]
    vectors: NDArray[np.float32]
    process: subprocess.Popen[bytes]
    port: int
    failing: subprocess.Popen[bytes]
    failing_port: int
    member: Member

    async def run(self) -> dict[str, Any]:
        """Run all phases."""
        watch, failing = Watch(self.process.pid), Watch(self.failing.pid)
        partial = Good(self.failing_port, self.texts, answers(self.texts), pause=10 * _PAUSE_SECONDS)
        await self._good().run(self.plan.good, min(self.plan.minutes * 3, 5.0))  # to warm up
        phases = {phase: await self._phase(phase, watch, failing, partial) for phase in _PHASES}
        with_member, without = (partial.right[number] for number in (0, 1))
        hostile = phases[_ALL].pop("hostile"), phases[_SLOW].pop("hostile")
        return {
            "phases": phases,
            "hostile": dict(Counter(hostile[0]) + Counter(hostile[1])),
            "server": {"alive": self.process.poll() is None, "memory_peak_mb": watch.peak_mb},
            "failing": {
                "alive": self.failing.poll() is None,
                "memory_peak_mb": failing.peak_mb,
                "with_member": with_member,
                "without_member": without,
                "faults": dict(self.member.faults),
                **partial.facts(),
            },
        }

    def _good(self) -> Good:
        return Good(self.port, self.texts, [self.vectors])

    async def _phase(self, phase: str, watch: Watch, failing: Watch, partial: Good) -> dict[str, Any]:
        """Run the good clients for the time of a phase, and beside them what belongs to it."""
        seconds, crowd, good = self.plan.minutes * 60 * _PHASES[phase], self.plan.crowd(phase), self._good()
        beside = [watch.run(self.plan.sample_seconds), failing.run(self.plan.sample_seconds)]
        if phase == _ALL:
            beside += [partial.run(2, seconds), self.member.fail_in_turns(*self.plan.member_seconds)]
        with ExitStack() as stack:
            hostile = stack.enter_context(_hostile(self.port, seconds, crowd)) if crowd else None
            pids = [process.pid for process in (self.process, self.failing, hostile) if process is not None]
            start, used, own = time.monotonic(), _machine_seconds(), _own_seconds([*pids, self.member.pid])
            server = _process_seconds(self.process.pid)
            tasks = [asyncio.ensure_future(work) for work in beside]
            await good.run(self.plan.good, seconds)
            elapsed = time.monotonic() - start
            total, stolen = ((after - before) / elapsed for after, before in zip(_machine_seconds(), used, strict=True))
            ours = (_own_seconds([*pids, self.member.pid]) - own) / elapsed
            server = (_process_seconds(self.process.pid) - server) / elapsed
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result
            visits = json.loads(hostile.communicate(timeout=60)[0]) if hostile is not None else {}
        cores = {"server": server, "soak": ours, "other": max(total - ours, 0.0), "stolen": stolen}
        facts = good.facts() | memory_and_files(watch.samples) | {"cores": cores}
        return facts | {"failing": memory_and_files(failing.samples), "hostile": visits}


def _machine_seconds() -> tuple[float, float]:
    """Return the time that the machine's processors have worked, and the time that was kept from them."""
    fields = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, stolen = map(int, fields)
    return (user + nice + system + irq + softirq) / _TICKS, stolen / _TICKS


def _process_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:  # it has ended, and its time is that of a former child
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _own_seconds(pids: list[int]) -> float:
    """Return the time of a processor that this process, its children and its former children have used."""
    return sum(os.times()[:4]) + sum(map(_process_seconds, pids))


def measure(plan: Plan) -> dict[str, Any]:
    """Start the servers, run all phases, and return what was measured."""
    model = f"demo?dim={plan.dim}"
    texts = [f"sentence {i % 1000} of part {i // 1000} of the soak" for i in range(plan.texts)]
    vectors = open_encoder(model).encode(texts)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ensembed-soak-")))
        (folder / "keys").write_text(f"{_KEY}\n")
        log = stack.enter_context((folder / "log").open("wb"))
        ports = [free_port() for _ in range(3)]
        command = ["ensembed", "serve", model, "--name", "soak", "--port", str(ports[0]), "--quiet"]
        process = stack.enter_context(_started([*command, "--keys", str(folder / "keys")], ports[0], log.fileno()))
        member = Member(ports[2])
        stack.callback(member.kill)
        _await_ready(None, ports[2])
        command = ["benchmarks.soak_member", str(ports[1]), str(ports[2]), _KEY]
        failing = stack.enter_context(_started(command, ports[1], log.fileno(), {"ENSEMBED_CACHE": str(folder)}))
        facts = asyncio.run(Soak(plan, texts, vectors, process, ports[0], failing, ports[1], member).run())
        facts["log_lines"] = len((folder / "log").read_bytes().splitlines())
    return {"plan": asdict(plan)} | facts


@contextmanager
def _started(
    module: list[str], port: int, log: int, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process of its own, once it is ready."""
    command = [sys.executable, "-m", *module]
    with _ended(subprocess.Popen(command, stderr=log, env={**os.environ, **(env or {})})) as process:
        _await_ready(process, port)
        yield process


def _await_ready(process: subprocess.Popen[bytes] | None, port: int) -> None:
    for _ in range(600):
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=10):
                return
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.1)
    raise RuntimeError("the server is not ready after a minute")


@contextmanager
def _hostile(port: int, seconds: float, crowd: Mapping[str, int]) -> Iterator[subprocess.Popen[bytes]]:
    facts = [str(port), str(seconds), _KEY, json.dumps(crowd)]
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


def targets(facts: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Return what is to be reached: what, the figure, the target, and whether it was reached."""
    phases, failing, server = facts["phases"], facts["failing"], facts["server"]
    clients = [*phases.values(), failing]
    wrong, errors = sum(seen["wrong"] for seen in clients), sum(sum(seen["errors"].values()) for seen in clients)
    # Other programs can only make a phase slower, so the faster of the two quiet ones is the one to compare with.
    quiet = min(phases[phase]["p99_ms"] for phase in (_ALONE, _AGAIN))
    ratios = {phase: phases[phase]["p99_ms"] / quiet for phase in (_SLOW, _ALL)}
    slopes = [seen["memory_slope_mb_per_hour"] for seen in (phases[_ALL], phases[_ALL]["failing"])]
    peak = max(server["memory_peak_mb"], failing["memory_peak_mb"])
    files, before = phases[_AGAIN]["files_end"], phases[_ALONE]["files_most"]
    return [
        ("wrong answers to good clients", str(wrong), "0", wrong == 0),
        ("errors to good clients", str(errors), "0", errors == 0),
        *((f"p99 {phase}, times that alone", f"{r:.2f}", "< 3", r < 3) for phase, r in ratios.items()),
        ("memory, MB more an hour", f"{max(slopes):.1f}", f"< {_FLAT_MB:g}", max(slopes) < _FLAT_MB),
        ("memory, peak, MB", f"{peak:.0f}", "<= 500", peak <= 500),
        ("open files in the end", str(files), f"<= {before}, the most before", files <= before),
    ]


def page(facts: dict[str, Any]) -> str:
    """Return the whole of `results/soak.md`."""
    reached = [[*target, "yes" if done else "no"] for *target, done in targets(facts)]
    visits = [[name.replace("_", " "), f"{count:,}"] for name, count in sorted(facts["hostile"].items())]
    lines = [
        "# The server beside hostile clients",
        "",
        f"`python -m benchmarks soak --minutes {facts['plan']['minutes']:g}`",
        "",
        markdown_table(["good clients and servers", "measured", "to reach", "reached"], reached),
        "",
        markdown_table(["", *facts["phases"]], _phase_rows(facts["phases"])),
        "",
        _notes(facts),
        markdown_table(["hostile clients", "visits"], visits),
        "",
    ]
    return "\n".join(lines)


def _phase_rows(phases: dict[str, dict[str, Any]]) -> list[list[str]]:
    forms = {
        "requests of good clients": "{requests:,}",
        "wrong answers": "{wrong}",
        "errors": "{failed}",
        "p50, ms": "{p50_ms:.1f}",
        "p99, ms": "{p99_ms:.1f}",
        "memory, mean, MB": "{memory_mb:.0f}",
        "open files, most": "{files_most}",
        "cores used by the server": "{cores[server]:.2f}",
        "cores used by all of the soak": "{cores[soak]:.2f}",
        "cores used by other programs": "{cores[other]:.2f}",
        "cores kept from this virtual machine": "{cores[stolen]:.2f}",
    }
    seen = [phase | {"failed": sum(phase["errors"].values())} for phase in phases.values()]
    return [[name, *(form.format(**phase) for phase in seen)] for name, form in forms.items()]


def _notes(facts: dict[str, Any]) -> str:
    failing, made = facts["failing"], ", ".join(f"{key} {value}" for key, value in facts["provenance"].items())
    faults, errors = Counter(failing["faults"]), sum(failing["errors"].values())
    return _NOTES.format(
        **facts["plan"],
        pause=_PAUSE_SECONDS * 1000,
        hung=faults["hung"],
        died=faults["died"],
        fault=facts["plan"]["member_seconds"][1],
        failing=failing | {"errors": errors},
        log_lines=facts["log_lines"],
        nice=facts.get("nice", 0),
        made=made,
    )


def main(plan: Plan, out: Path) -> dict[str, Any]:
    """Measure and write both files; return what was measured."""
    packages = {name: version(name) for name in ("starlette", "uvicorn", "uvloop", "httptools")}
    facts = measure(plan) | {"nice": os.nice(0), "provenance": provenance() | packages}
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "soak.json", (json.dumps(facts, indent=1) + "\n").encode())
    write_atomically(out / "soak.md", page(facts).encode())
    print(page(facts), flush=True)
    return facts
