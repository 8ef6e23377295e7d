"""A slice of `python -m benchmarks kills`: commands that are killed at random moments lose nothing and go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import __main__ as frame
from benchmarks import kills
from benchmarks.kill_jobs import JOBS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")


def test_killed_commands_lose_nothing_and_go_on() -> None:
    counts = {"embed": 4, "fit": 3, "save over a model": 5, "index add": 3, "index delete": 3, "index compact": 2}
    counts["migrate"] = 2
    facts = kills.measure(counts, seed=1)
    assert {name: tally["kills"] for name, tally in facts["commands"].items()} == counts
    assert [problem for tally in facts["commands"].values() for problem in tally["problems"]] == []
    assert sum(tally["after_commit"] for tally in facts["commands"].values()) > 5


# A command that reports a commit before it is one, and starts from the beginning every time.
CARELESS = """
import dataclasses, json, sys, time
from pathlib import Path
from benchmarks import kills
from benchmarks.kill_jobs import JOBS, Job

def run(folder, tell):
    for step in range(1, 21):
        tell(step)
        time.sleep(0.005)
        (folder / "file").write_text(str(step))

def steps(folder):
    return int((folder / "file").read_text())

JOBS["careless"] = Job(lambda folder: (folder / "file").write_text("0"), run, steps, steps, goes_on=True)
print(json.dumps(dataclasses.asdict(kills.kill_job("careless", 6, 0, Path(sys.argv[1])))))
"""


def test_what_is_lost_or_done_again_is_counted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CARELESS, str(tmp_path / "root")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    tally = json.loads(done.stdout)
    assert tally["kills"] == 6
    assert tally["lost"] >= 4
    assert tally["repeated"] >= 4
    assert tally["stopped"] == 0
    assert "seed 0, killed after 0." in tally["problems"][0]


def test_the_table_is_written_and_a_problem_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake(problems: list[str]) -> list[str]:
        tally = asdict(kills.Tally(3, seconds=0.5, lost=len(problems), problems=problems))
        return [sys.executable, "-c", f"print({json.dumps(dict.fromkeys(names, tally))!r})"]

    names = list(JOBS)
    monkeypatch.setattr(kills, "child_command", lambda *_: fake([]))
    assert frame.main(["kills", "--kills", "30"], tmp_path) == 0
    page = (tmp_path / "kills.md").read_text()
    assert "`python -m benchmarks kills --kills 30 --seed 0`" in page
    assert f"| all |  | {3 * len(JOBS)} | 0 | 0 | 0 | 0 |  |" in page
    assert json.loads((tmp_path / "kills.json").read_text())["commands"]["embed"]["seconds"] == 0.5
    names = ["embed"]
    monkeypatch.setattr(kills, "child_command", lambda *_: fake(["lost: all of it"]))
    assert frame.main(["kills", "--kills", "30", "--only", "embed"], tmp_path) == 1
    page = capsys.readouterr().out
    assert "- embed: lost: all of it" in page
    assert f"| all |  | {3 * len(JOBS)} | 0 | 1 | 0 | 0 |  |" in page


def test_the_kills_are_shared_out_exactly() -> None:
    for total in (1, 20, 1000):
        counts = kills.shares(total)
        assert sum(counts.values()) == total
        assert counts.keys() <= JOBS.keys()
