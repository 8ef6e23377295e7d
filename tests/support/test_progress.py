from __future__ import annotations

import pytest

from ensembed.support.progress import bars, part_of, silent


def test_the_reports_of_a_part_become_reports_of_the_whole() -> None:
    reports: list[tuple[str, int, int | None]] = []
    part = part_of(lambda *report: reports.append(report), "whole", 40, 100)
    part("part", 0, 10)
    part("part", 10, 10)
    part("part", 5, None)
    assert reports == [("whole", 40, 100), ("whole", 50, 100), ("whole", 45, 100)]


def test_silent_progress_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    silent("task", 1, 2)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("enabled", [None, False])
def test_there_are_no_bars_without_a_terminal_or_when_switched_off(
    capfd: pytest.CaptureFixture[str], enabled: bool | None
) -> None:
    with bars(enabled=enabled) as progress:
        assert progress is silent
        progress("task", 1, 2)
    assert capfd.readouterr() == ("", "")


def test_bars_show_every_task_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with bars(enabled=True) as progress:
        for done in (0, 5, 10):
            progress("embed demo", done, 10)
        progress("download", 3, None)
        progress("download", 7, None)
    output = capsys.readouterr()
    assert output.out == ""
    assert "embed demo" in output.err
    assert "10/10" in output.err
    assert "download" in output.err
    assert " 7" in output.err


def test_brackets_in_a_name_are_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with bars(enabled=True) as progress:
        progress("embed words:a[/b]c[red].txt", 1, 1)
    assert "words:a[/b]c[red].txt" in capsys.readouterr().err


def test_a_detail_that_changes_stays_on_one_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with bars(enabled=True) as progress:
        progress("train · loss 0.75", 1, 3)
        progress("train · loss 0.5", 2, 3)
        progress("train · loss 0.25", 3, 3)
        progress("train", 3, 3)
    last = capsys.readouterr().err.rstrip().splitlines()[-1]
    assert last.count("train") == 1
    assert "train · loss 0.25" in last  # the end of the task leaves it standing
    assert "3/3" in last


def test_tasks_with_details_have_their_own_bars(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with bars(enabled=True) as progress:
        for done in (1, 2):
            progress(f"first · loss {done}", done, 2)
            progress(f"second · loss {done + 5}", done, 2)
    lines = capsys.readouterr().err.rstrip().splitlines()[-2:]
    assert ["first · loss 2" in lines[0], "second · loss 7" in lines[1]] == [True, True]


def test_bars_end_when_the_work_fails() -> None:
    def work() -> None:
        with bars(enabled=True) as progress:
            progress("task", 1, 2)
            raise KeyboardInterrupt

    for _ in range(2):  # a display that is still live would not let another one begin
        with pytest.raises(KeyboardInterrupt):
            work()
