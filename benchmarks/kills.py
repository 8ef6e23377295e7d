"""Kill commands at random moments with SIGKILL: is anything lost that was committed, and does the next run go on?

    python -m benchmarks kills --kills 1000 --seed 0

Each command runs in a child that is forked from a process that has imported everything. First it runs undisturbed: this
gives its run time and its result. Then it is killed again and again, at moments spread evenly over that time. After
each kill, the files must hold at least what the command had reported as committed, every byte checked; the same command
is run again, to the end, and its result must be the undisturbed one. `results/kills.json` and `results/kills.md` are
written.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kill_jobs import JOBS, Tell
from ensembed.support.atomic_files import write_atomically
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table

_TIMED_EVERY = 10  # kills
_STEP = struct.Struct("<q")


@dataclass
class Tally:
    """What happened to one command.

    Attributes:
        kills: how often it was killed.
        ended: how often it was done before the kill, which is tried again.
        after_commit: kills after which something was committed.
        lost: kills after which something was lost that had been committed, or was neither old nor new.
        repeated: next runs that did committed steps again, of commands that go on where they stopped.
        stopped: next runs that failed, or came to another result.
        seconds: the run time undisturbed.
        problems: the first of them, with the seed and the number of the kill.
    """

    kills: int = 0
    ended: int = 0
    after_commit: int = 0
    lost: int = 0
    repeated: int = 0
    stopped: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def note(self, column: str, problem: str) -> None:
        """Count a problem and keep the first few."""
        setattr(self, column, getattr(self, column) + 1)
        if len(self.problems) < 5:
            self.problems.append(f"{column}: {problem}")


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit status or the negative number of a signal, the steps it reported, its run time."""

    status: int
    steps: list[int]
    seconds: float


def run_in_child(run: Callable[[Path, Tell], object], folder: Path, kill_after: float | None = None) -> Ended:
    """Fork, run a job's function in a folder, and kill it after so many seconds, if at all."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            os.chdir(folder)
            with (folder.parent / "child.log").open("w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            run(folder, lambda step: os.write(writer, _STEP.pack(step)))
            status = 0
        except BaseException:  # noqa: BLE001 - the child must end here, whatever happened
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(writer)
    told, start = b"", time.monotonic()
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        left = kill_after
        while select.select([pipe], [], [], left)[0]:
            if not (block := pipe.read(4096)):
                break  # it has ended
            told += block
            left = None if kill_after is None else max(start + kill_after - time.monotonic(), 0.0)
        else:
            os.kill(pid, signal.SIGKILL)
            told += pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return Ended(status, [step for (step,) in _STEP.iter_unpack(told)], time.monotonic() - start)


def kill_job(name: str, kills: int, seed: int, root: Path) -> Tally:
    """Kill one command so many times."""
    job, tally, chance = JOBS[name], Tally(), np.random.default_rng([seed, *name.encode()])
    base, done = root / "base", root / "done"
    base.mkdir(parents=True)
    os.chdir(base)
    job.prepare(base)

    def run_undisturbed() -> Ended:
        shutil.rmtree(done, ignore_errors=True)
        shutil.copytree(base, done, symlinks=True)
        ended = run_in_child(job.run, done)
        if ended.status:
            raise RuntimeError(f"{name} fails undisturbed: {(root / 'child.log').read_text()}")
        return ended

    whole = run_undisturbed()
    result, work, times = job.result(done), root / "work", [whole.seconds]
    parts = (np.arange(kills) + chance.random(kills)) / kills  # of the run time
    for number, part in enumerate(chance.permutation(parts).tolist()):
        if number % _TIMED_EVERY == 0:  # other processes make it slower for a while
            times.append(seconds := run_undisturbed().seconds)
        while True:
            moment = part * seconds
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(base, work, symlinks=True)
            ended = run_in_child(job.run, work, moment)
            if ended.status != 0:
                break
            tally.ended += 1
            seconds, part = ended.seconds, 0.95 * part
        where = f"seed {seed}, killed after {moment:.4f} s"
        if ended.status != -signal.SIGKILL:
            tally.note("stopped", f"{where}: it failed by itself: {(root / 'child.log').read_text()[-500:]}")
            continue
        tally.kills += 1
        committed = ended.steps[-1] if ended.steps else 0
        try:
            held = job.steps(work)
        except Exception as error:  # noqa: BLE001 - whatever the files make it raise is what is looked for
            tally.note("lost", f"{where}, {committed} steps committed: {error!r}")
            continue
        tally.after_commit += held > 0
        if held < committed:
            tally.note("lost", f"{where}: {committed} steps were committed, {held} are there")
        again = run_in_child(job.run, work)
        if again.status or (state := job.result(work)) != result:
            problem = (root / "child.log").read_text()[-500:] if again.status else f"another result: {state!r:.500}"
            tally.note("stopped", f"{where}: {problem}")
        elif job.goes_on and committed and len(again.steps) > len(whole.steps) - len(ended.steps):
            tally.note("repeated", f"{where}: {len(again.steps)} steps after {len(ended.steps)} of {len(whole.steps)}")
    tally.seconds = statistics.median(times)
    return tally


def shares(kills: int) -> dict[str, int]:
    """Return how often each command is killed, in all exactly so often."""
    total = sum(job.share for job in JOBS.values())
    counts = {name: int(kills * job.share / total) for name, job in JOBS.items()}
    for name in list(counts)[: kills - sum(counts.values())]:
        counts[name] += 1
    return {name: count for name, count in counts.items() if count}


def page(facts: Mapping[str, Any]) -> str:
    """Return the whole of `results/kills.md`."""
    headers = [
        "command",
        "run time, s",
        "kills",
        "after a commit",
        "lost",
        "done again",
        "next run stopped",
        "measured",
    ]
    columns = ["kills", "after_commit", "lost", "repeated", "stopped"]
    rows = [
        [name, f"{tally['seconds']:.2f}", *(f"{tally[column]:,}" for column in columns), tally["measured"]]
        for name, tally in facts["commands"].items()
    ]
    sums = [f"{sum(tally[column] for tally in facts['commands'].values()):,}" for column in columns]
    problems = [f"- {name}: {text}" for name, tally in facts["commands"].items() for text in tally["problems"]]
    lines = [
        "# Commands that are killed",
        "",
        f"`python -m benchmarks kills --kills {facts['kills']} --seed {facts['seed']}`",
        "",
        "Each command is killed with SIGKILL at moments that are spread evenly over its run time. Then every byte of",
        "what it had reported as committed must be there (*lost*). The same command must go on to the end, with the",
        "result of a run that nobody killed (*next run stopped*), and embed, fit, train, distil and index add must not",
        "do again what was committed (*done again*). `--only COMMAND` measures one of them again, with the same seed.",
        "",
        markdown_table(headers, [*rows, ["all", "", *sums, ""]]),
        "",
        *([*problems, ""] if problems else []),
        f"- Made with {', '.join(f'{key} {value}' for key, value in facts['provenance'].items())}.",
        "",
    ]
    return "\n".join(lines)


def child_command(counts: Mapping[str, int], seed: int) -> list[str]:
    """Return the command that kills them so often, from a process of its own, and prints the tallies as JSON."""
    return [sys.executable, "-m", "benchmarks.kills", json.dumps(counts), str(seed)]


def measure(counts: Mapping[str, int], seed: int) -> dict[str, Any]:
    """Kill every command so often as its count says, from a process with one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(child_command(counts, seed), env=os.environ | threads, stdout=subprocess.PIPE, check=True)
    made = provenance()
    commands = {name: tally | {"measured": made["time"]} for name, tally in json.loads(done.stdout).items()}
    return {"commands": commands, "provenance": made}


def main(kills: int, seed: int, out: Path, only: Sequence[str] = ()) -> int:
    """Kill all commands, or some of them and keep what was measured of the others; return 1 if anything went wrong."""
    counts, file = shares(kills), out / "kills.json"
    known = json.loads(file.read_bytes())["commands"] if only else {}
    facts = measure({name: counts[name] for name in only or counts}, seed)
    commands = known | facts["commands"]
    facts |= {"kills": kills, "seed": seed, "commands": {name: commands[name] for name in counts}}
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(file, (json.dumps(facts, indent=1) + "\n").encode())
    write_atomically(out / "kills.md", page(facts).encode())
    print(page(facts), flush=True)
    return int(any(tally["problems"] for tally in facts["commands"].values()))


def kill_jobs(counts: Mapping[str, int], seed: int) -> dict[str, Any]:
    """Kill the commands one after the other, in this process's children."""
    tallies = {}
    for name, count in counts.items():
        with tempfile.TemporaryDirectory(prefix="ensembed-kills-") as folder:
            tallies[name] = asdict(kill_job(name, count, seed, Path(folder).resolve()))
            os.chdir("/")
        print(f"{name}: {tallies[name]}", file=sys.stderr, flush=True)
    return tallies


if __name__ == "__main__":
    print(json.dumps(kill_jobs(json.loads(sys.argv[1]), int(sys.argv[2]))))
