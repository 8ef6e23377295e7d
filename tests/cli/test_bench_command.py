"""`ensembed bench`: every figure is there and fits the others; nothing is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ensembed.cli import main
from ensembed.encoders import DemoEncoder
from ensembed.errors import InputError
from ensembed.models.ensemble_costs import MOST_SENTENCES, default_sentences, measure
from ensembed.support.progress import Schedule

MEMBERS = ["-e", "demo?dim=8&seed=1", "-e", "demo?dim=4&seed=2"]


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    assert main(["bench", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_bench_json_is_consistent(capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, *MEMBERS, "-n", "60")
    assert found["sentences"] == 60
    assert found["characters"] == sum(map(len, default_sentences(60)))
    assert [member["dim"] for member in found["members"]] == [8, 4]
    assert sum(member["share"] for member in found["members"]) == pytest.approx(1)
    assert found["alone_s"] == pytest.approx(sum(member["seconds"] for member in found["members"]))
    for member in found["members"]:
        assert member["sentences_per_s"] == pytest.approx(60 / member["seconds"])
        assert 0 < member["single_p50_s"] <= member["single_p95_s"]
        assert member["memory"] is None or member["memory"] >= 0
    assert set(found["transform_s"]) == set(found["transform_share"]) == {"conc", "auto", "svd", "gcca"}
    assert min(found["one_after_the_other_s"], found["side_by_side_s"], found["cached_s"]) > 0
    assert found["provenance"]["ensembed"]


def test_bench_prints_a_row_per_member_and_per_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *MEMBERS, "-n", "20"]) == 0
    out = capsys.readouterr().out
    for word in ("demo?dim=8&seed=1", "demo?dim=4&seed=2", "p95", "side by side", "transform, gcca", "view store"):
        assert word in out


def test_bench_reads_the_first_lines_of_a_file_without_repeats(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "inbox.txt"
    file.write_text("one\ntwo\n\none\nthree\nfour\n")
    assert _json(capsys, *MEMBERS, str(file))["sentences"] == 4
    assert _json(capsys, *MEMBERS, str(file), "--sentences", "3")["sentences"] == 2


def test_bench_measures_one_member_and_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "one.txt"
    file.write_text("one sentence\n")
    found = _json(capsys, "-e", "demo", str(file))
    assert list(found["transform_s"]) == ["conc"]
    assert list(_json(capsys, "-e", "demo", "-n", "50")["transform_s"]) == ["conc", "auto", "svd"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["bench"], 2, "Name the members"),
        (["bench", "-e", "demo", "absent.txt"], 1, "absent.txt"),
        (["bench", "-e", "demo", "-n", str(MOST_SENTENCES + 1)], 1, "give a file of your own"),
        (["bench", "-e", "absent"], 1, "absent"),
        (["bench", "-e", "demo", "-e", "demo"], 1, "twice"),
    ],
)
def test_bench_refuses_bad_arguments(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    assert main(arguments) == code
    assert says in capsys.readouterr().err


# The command line with a demo encoder that stops for good at its second call.
STOPPING = """
import sys, time
from ensembed.cli import main
from ensembed.encoders import DemoEncoder
embed, calls = DemoEncoder.embed, []
def stop(encoder, sentences):
    calls.append(len(sentences))
    if len(calls) == 2:
        print("stopped", flush=True)
        time.sleep(600)
    return embed(encoder, sentences)
DemoEncoder.embed = stop
sys.exit(main())
"""


def test_an_interrupted_bench_exits_with_130_and_promises_no_continuation() -> None:
    command = [sys.executable, "-c", STOPPING, "bench", *MEMBERS]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopped\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert (process.returncode, error.strip()) == (130, "interrupted")


def test_measure_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    reports: list[str] = []
    measure(["demo"], ["a dog", "a cat"], progress=lambda label, _done, _total: reports.append(label))
    assert not list((tmp_path / "tmp").iterdir())
    assert not (tmp_path / "cache").exists()
    assert reports == ["demo", "one after the other", "side by side"]


def test_measure_takes_a_member_and_a_sentence_at_least() -> None:
    with pytest.raises(InputError, match="an ensemble needs at least one encoder"):
        measure([], ["a dog"])
    with pytest.raises(InputError, match="at least one that is not blank"):
        measure(["demo"], [" "])
    with pytest.raises(InputError, match="sentence 1 is not a string but float"):
        measure(["demo"], ["a dog", float("nan")])  # type: ignore[list-item]  # wrong on purpose


def test_measure_calls_a_member_as_documented() -> None:
    calls: list[int] = []

    class Counting(DemoEncoder):
        def embed(self, sentences: list[str]) -> Any:  # noqa: ANN401 - that of the demo
            calls.append(len(sentences))
            return super().embed(sentences)

    costs = measure([Counting(dim=4)], ["one", "two", "two", " ", "three"])
    assert costs.sentences == 3
    # The first sentence, all of them, each by itself, and the ensemble both ways; the store is filled without it.
    assert calls == [1, 3, 1, 1, 1, 3, 3]
    with pytest.raises(InputError, match="no sentence"):
        measure(["demo"], [" "])


def test_the_made_up_sentences_are_distinct_and_always_the_same() -> None:
    every = default_sentences(MOST_SENTENCES)
    assert len(set(every)) == MOST_SENTENCES
    assert every[:50] == default_sentences(50)
    words = [len(sentence.split()) for sentence in default_sentences(2000)]
    assert min(words) <= 5
    assert max(words) >= 28
    with pytest.raises(InputError, match="not 0"):
        default_sentences(0)


def test_peak_memory_sees_memory_that_was_freed() -> None:
    # In a process of its own: one that has run other tests may hold memory that it need not ask the system for.
    program = """
from ensembed.models.ensemble_costs import PeakMemory
with PeakMemory() as memory:
    block = bytearray(80_000_000)
    for _ in range(100):
        block[::4096] = block[::4096]
    del block
print(memory.grown)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) > 60_000_000


@pytest.mark.parametrize("side_by_side", [False, True])
def test_a_fixed_schedule_does_not_try_the_other_way(side_by_side: bool) -> None:
    import threading

    places: list[bool] = []

    def job(_progress: object) -> None:
        places.append(threading.current_thread() is threading.main_thread())

    schedule = Schedule(side_by_side=side_by_side)
    for _ in range(40):
        schedule.run([job, job], 100)
    assert set(places) == {not side_by_side}
