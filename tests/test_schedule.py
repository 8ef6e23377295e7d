"""One after the other or side by side: the results are the same, and nothing that is raised gets lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from ensembed.progress import Progress
from ensembed.schedule import Schedule


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _raise(error: BaseException) -> Callable[[Progress], int]:
    def fail(_progress: Progress) -> int:
        raise error

    return fail


def _good(_progress: Progress) -> int:
    return 1


@pytest.fixture(params=["one after the other", "side by side"])
def schedule(request: pytest.FixtureRequest) -> Schedule:
    """A schedule whose next run goes this way."""
    schedule = Schedule()
    if request.param == "side by side":
        schedule.run([_good, _good], 1)
    return schedule


@pytest.mark.parametrize("sentences", [1, 100])
def test_both_ways_give_the_results_in_order(sentences: int) -> None:
    schedule, places = Schedule(), []

    def job(j: int) -> Callable[[Progress], int]:
        def run(_progress: Progress) -> int:
            time.sleep(0.01 * (3 - j))  # the first ends last
            places.append(_in_main_thread())
            return j

        return run

    for _ in range(2):
        assert schedule.run([job(j) for j in range(4)], sentences) == [0, 1, 2, 3]
    assert places == [True] * 4 + [False] * 4  # one after the other, then side by side


def test_the_faster_way_is_kept_for_few_and_for_many_sentences_apart() -> None:
    schedule, places = Schedule(), []

    def waits(_progress: Progress) -> None:
        places.append(_in_main_thread())
        time.sleep(0.05)

    for _ in range(4):
        schedule.run([waits] * 4, 10)
    assert places[4:] == [False] * 12
    places.clear()
    schedule.run([waits] * 4, 1000)
    assert places == [True] * 4


def test_the_slower_way_is_left() -> None:
    schedule, places = Schedule(), []

    def hates_company(_progress: Progress) -> None:
        places.append(_in_main_thread())
        if not _in_main_thread():
            time.sleep(0.1)

    for _ in range(4):
        schedule.run([hates_company] * 2, 10)
    assert places == [True] * 2 + [False] * 2 + [True] * 4


def test_one_job_runs_where_it_was_asked_for(schedule: Schedule) -> None:
    assert schedule.run([lambda _progress: _in_main_thread()], 1) == [True]


def test_no_sentences_teach_nothing() -> None:
    schedule = Schedule()
    schedule.run([_good, _good], 0)
    assert schedule.run([lambda _progress: _in_main_thread()] * 2, 1) == [True, True]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_what_a_job_raises_comes_out(schedule: Schedule, error: BaseException) -> None:
    with pytest.raises(type(error)):
        schedule.run([_good, _raise(error), _good], 1)


def test_progress_comes_through(schedule: Schedule) -> None:
    reports: list[tuple[str, int, int | None]] = []

    def job(progress: Progress) -> None:
        progress("label", 2, 3)

    schedule.run([job, job], 1, lambda *report: reports.append(report))
    assert reports == [("label", 2, 3)] * 2


def test_the_others_stop_at_their_next_report_as_soon_as_one_fails() -> None:
    schedule = Schedule()
    schedule.run([_good, _good], 1)  # the next run is side by side
    started = threading.Event()

    def endless(progress: Progress) -> int:
        for _ in range(500):
            started.set()
            progress("label", 0, None)
            time.sleep(0.01)
        raise AssertionError("nobody stopped this")

    def fails(_progress: Progress) -> int:
        started.wait(5)
        raise ValueError("the second job")

    with pytest.raises(ValueError, match="the second job"):
        schedule.run([endless, fails], 1)
