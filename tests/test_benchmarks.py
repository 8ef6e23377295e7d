"""The frame of `python -m benchmarks`: areas on their own, what was measured before is kept, the docs follow."""

from __future__ import annotations

import importlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import __main__ as frame
from benchmarks import docs, results, soak
from benchmarks.startup import TARGETS
from benchmarks.texts import inbox
from benchmarks.timing import Comparison, Section, Table, best_in_turn, compare, growth

ROOT = Path(__file__).parents[1]


def _area(name: str, found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(f"benchmarks.{name}")
    module.run = lambda: found  # type: ignore[attr-defined] # a module may have it
    monkeypatch.setitem(sys.modules, f"benchmarks.{name}", module)


def test_an_area_that_is_not_run_keeps_its_figures_and_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Section("Solving", [Comparison("gcca", "scipy", 1.0, 2.0, "< 1", "half")], notes=["An old note."])
    results.write(tmp_path, {"solve": results.record(old, {"processor": "an old machine"})})
    _area("cache", Section("Known", tables=[Table("Rows:", ["a", "b"], [["1", "2"]])], data={"n": 3}), monkeypatch)
    assert frame.main(["cache"], tmp_path) == 0
    areas = json.loads((tmp_path / "bench.json").read_text())["areas"]
    assert list(areas) == ["cache", "solve"]  # in the page's order, whatever was measured first
    assert areas["solve"]["provenance"] == {"processor": "an old machine"}
    assert areas["solve"]["comparisons"][0] | {"ratio": 0.5} == areas["solve"]["comparisons"][0]
    assert areas["cache"]["data"] == {"n": 3}
    assert areas["cache"]["provenance"]["ensembed"]
    page = (tmp_path / "bench.md").read_text()
    assert "| gcca | 1.000 | scipy | 2.000 | 0.5 | < 1 | yes | half |" in page
    assert page.index("## Known") < page.index("| 1 | 2 |") < page.index("## Solving") < page.index("- An old note.")


def test_an_unknown_area_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        frame.main(["cache", "absent"], tmp_path)
    assert "there is no area 'absent'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_area_has_a_module_that_can_be_run() -> None:
    for name in frame.AREAS:
        assert callable(importlib.import_module(f"benchmarks.{frame.MODULES.get(name, name)}").run)


def test_both_are_run_in_turn_and_the_best_time_counts() -> None:
    calls: list[str] = []
    found = compare("a", lambda: calls.append("ours"), "b", lambda: calls.append("peer"), "", repeats=3, note="n")
    assert calls == ["ours", "peer"] * 3
    assert (found.note, found.ours_s > 0) == ("n", True)
    assert len(best_in_turn([lambda: None] * 3, 2)) == 3


def test_the_inbox_repeats_as_much_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "leipzig_eng_news_2016_raw.txt.gz").write_text("\n".join(f"line {i}" for i in range(600)))
    monkeypatch.setenv("ENSEMBED_DATA", str(tmp_path))
    messages = inbox(1000)
    assert len(messages) == 1000
    assert len(set(messages)) == 600
    assert messages == inbox(1000)
    assert max(messages.count(text) for text in set(messages)) > 20


def test_the_page_follows_the_results() -> None:
    areas = {"solve": results.record(Section("S", notes=["It was quick."]), {"python": "3"})}
    page = "# Speed\n\n<!-- bench solve -->\nold\n<!-- /bench -->\n\n<!-- bench device -->\n<!-- /bench -->\n"
    filled = docs.fill(page, areas)
    assert "old" not in filled
    assert "- It was quick.\n- Made with python 3." in filled
    assert filled.count(docs.ABSENT) == 1
    assert docs.fill(filled, areas) == filled


def test_the_plot_shows_every_line_and_is_always_the_same() -> None:
    pytest.importorskip("matplotlib")
    lines = [
        growth("rows", "gcca of views", [(10, 1.0, 100.0), (1000, 90.0, 101.0)]),
        growth("D", "svd", [(8, 2, None)]),
    ]
    areas = {"memory": results.record(Section("M", data={"growth": lines}), {})}
    drawn = docs.draw(areas)
    assert drawn == docs.draw(areas)
    for word in ("gcca of views", "svd", "rows", "peak memory, MB", "seconds"):
        assert f">{word}</text>".encode() in drawn


def test_the_docs_show_the_figures_that_were_measured() -> None:
    areas = results.read(ROOT / "results")
    marked = []
    for name in docs.PAGES:
        page = (ROOT / name).read_text()
        assert docs.fill(page, areas) == page, "run: python -m benchmarks.docs"
        marked += re.findall(r"<!-- bench (\w+) -->", page)
    assert sorted(marked) == sorted(frame.AREAS)
    assert results.page(areas) == (ROOT / "results" / "bench.md").read_text()


def test_start_up_stays_within_what_it_has_to_reach() -> None:
    """Of the figures that are on record: no clock is asked here."""
    areas = results.read(ROOT / "results")
    if "startup" not in areas:
        pytest.skip("start-up has not been measured")
    for one in areas["startup"]["comparisons"]:
        if limit := re.fullmatch(r"< ([\d.]+) s", TARGETS[one["what"]]):
            assert one["ours_s"] < float(limit[1]), one


def test_soak_compares_good_clients_alone_and_beside_hostile_ones(tmp_path: Path) -> None:
    plan = soak.Plan(0.1, good=2, idle=5, slow=3, unread=2, texts=200, dim=16, sample_seconds=0.1)
    facts = soak.main(replace(plan, member_seconds=(0.5, 0.7)), tmp_path)
    assert json.loads((tmp_path / "soak.json").read_text()) == json.loads(json.dumps(facts))
    assert "| wrong answers to good clients | 0 | 0 | yes |" in (tmp_path / "soak.md").read_text()
    for seen in (*facts["phases"].values(), facts["failing"]):
        assert (seen["wrong"], seen["errors"]) == (0, {})
        assert seen["requests"] > 5
    assert facts["server"]["alive"]
    assert facts["failing"]["alive"]
    assert facts["failing"]["without_member"]
    assert {"bad_body", "cancelled", "half_closed", "idle", "pipelined", "slow_reader"} <= facts["hostile"].keys()


def test_soak_reports_the_slope_of_the_memory_after_the_start() -> None:
    samples = [(float(i), 100.0 if i < 20 else 200.0 + i / 3600, 7 + i % 2) for i in range(61)]
    facts = soak.memory_and_files(samples)
    assert facts["memory_slope_mb_per_hour"] == pytest.approx(1.0)
    assert (facts["files_most"], facts["files_end"]) == (8, 7)


def test_soak_compares_delays_with_the_faster_quiet_phase() -> None:
    seen = {"wrong": 0, "errors": {}, "files_end": 1, "files_most": 1, "memory_slope_mb_per_hour": 0.0}
    phases = [seen | {"p99_ms": p99, "failing": seen} for p99 in (50.0, 20.0, 40.0, 10.0)]
    names = ("alone", "beside idle and slow clients", "beside all hostile clients", "alone again")
    server = {"memory_peak_mb": 1.0}
    facts = {"phases": dict(zip(names, phases, strict=True)), "failing": seen | server, "server": server}
    rows = [row[1:] for row in soak.targets(facts) if row[0].startswith("p99")]
    assert rows == [("2.00", "< 3", True), ("4.00", "< 3", False)]


def test_soak_is_not_run_unless_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(soak, "main", lambda *arguments: calls.append(arguments))
    assert frame.main(["soak", "--minutes", "2"], tmp_path) == 0
    assert "soak" not in frame.AREAS
    assert calls == [(soak.Plan(2.0), tmp_path)]
