"""One after the other or side by side: the results are the same, and nothing that is raised gets lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from ensembed.support.progress import Progress, Schedule


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


class Clock:
    """A clock for a schedule, and a job that takes as long as told: the machine's own speed plays no part."""

    def __init__(self, alone: float, together: float) -> None:
        self.alone = alone
        self.together = together
        self.places: list[bool] = []
        self._now = 0.0

    def __call__(self) -> float:
        return self._now

    def job(self, _progress: Progress) -> None:
        """Only the first of the jobs takes time, so that no two threads turn the clock at once."""
        self.places.append(_in_main_thread())
        self._now += self.alone if _in_main_thread() else self.together

    def ways(self, schedule: Schedule, runs: int, sentences: int = 10) -> list[str]:
        """How the next runs of this schedule go."""
        self.places.clear()
        for _ in range(runs):
            schedule.run([self.job, lambda _progress: None], sentences)
        return ["alone" if place else "together" for place in self.places]


@pytest.mark.parametrize("sentences", [1, 100])
def test_both_ways_give_the_results_in_order(sentences: int) -> None:
    schedule, places = Schedule(), []
    ended = [threading.Event() for _ in range(5)]
    ended[4].set()

    def job(j: int) -> Callable[[Progress], int]:
        def run(_progress: Progress) -> int:
            assert _in_main_thread() or ended[j + 1].wait(60)  # side by side, the first ends last
            places.append(_in_main_thread())
            if not _in_main_thread():
                ended[j].set()
            return j

        return run

    for _ in range(2):
        assert schedule.run([job(j) for j in range(4)], sentences) == [0, 1, 2, 3]
    assert places == [True] * 4 + [False] * 4  # one after the other, then side by side


@pytest.mark.parametrize(("alone", "together", "faster"), [(1.0, 2.0, "alone"), (2.0, 1.0, "together")])
def test_each_way_is_tried_once_and_the_faster_is_kept(alone: float, together: float, faster: str) -> None:
    clock = Clock(alone, together)
    ways = clock.ways(Schedule(clock), 2 + 15)
    assert ways == ["alone", "together", *[faster] * 15]


def test_the_slower_way_gets_a_chance_in_every_sixteenth_run() -> None:
    clock = Clock(alone=1.0, together=2.0)
    schedule = Schedule(clock)
    clock.ways(schedule, 2)
    for _ in range(3):
        assert clock.ways(schedule, 16) == ["alone"] * 15 + ["together"]


@pytest.mark.parametrize("disturbed", ["alone", "together"])
def test_a_disturbed_first_run_does_not_decide_for_good(disturbed: str) -> None:
    clock = Clock(alone=2.0, together=2.0)
    setattr(clock, disturbed, 50.0)
    schedule = Schedule(clock)
    clock.ways(schedule, 2)
    setattr(clock, disturbed, 1.0)  # in truth the faster way
    clock.ways(schedule, 16 * 20)
    assert clock.ways(schedule, 16).count(disturbed) == 15


def test_the_way_changes_when_the_speeds_do() -> None:
    clock = Clock(alone=1.0, together=1.5)
    schedule = Schedule(clock)
    assert clock.ways(schedule, 10)[-1] == "alone"
    clock.alone = 5.0
    assert clock.ways(schedule, 10)[-1] == "together"


def test_few_and_many_sentences_are_learnt_apart() -> None:
    clock = Clock(alone=1.0, together=2.0)
    schedule = Schedule(clock)
    assert clock.ways(schedule, 4, sentences=32) == ["alone", "together", "alone", "alone"]
    clock.alone = 3.0
    assert clock.ways(schedule, 4, sentences=33) == ["alone", "together", "together", "together"]
    clock.alone = 1.0
    assert clock.ways(schedule, 1, sentences=32) == ["alone"]
    assert clock.ways(schedule, 1, sentences=1000) == ["together"]


def test_time_counts_per_sentence() -> None:
    clock = Clock(alone=8.0, together=4.0)
    schedule = Schedule(clock)
    clock.ways(schedule, 1, sentences=32)  # 1/4 second each
    clock.ways(schedule, 1, sentences=8)  # 1/2 second each
    assert clock.ways(schedule, 1) == ["alone"]


def test_one_job_runs_where_it_was_asked_for(schedule: Schedule) -> None:
    assert schedule.run([lambda _progress: _in_main_thread()], 1) == [True]


def test_a_run_without_sentences_is_not_timed() -> None:
    schedule = Schedule()
    schedule.run([_good, _good], 0)
    assert schedule.run([lambda _progress: _in_main_thread()] * 2, 1) == [True, True]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_schedule_raises_the_error_of_a_job(schedule: Schedule, error: BaseException) -> None:
    with pytest.raises(type(error)):
        schedule.run([_good, _raise(error), _good], 1)


def test_schedule_passes_on_the_progress_of_jobs(schedule: Schedule) -> None:
    reports: list[tuple[str, int, int | None]] = []

    def job(progress: Progress) -> None:
        progress("label", 2, 3)

    schedule.run([job, job], 1, lambda *report: reports.append(report))
    assert reports == [("label", 2, 3)] * 2


def test_the_others_stop_at_their_next_report_as_soon_as_one_fails() -> None:
    schedule = Schedule()
    schedule.run([_good, _good], 1)  # the next run is side by side
    started, ends = threading.Event(), []

    def endless(progress: Progress) -> int:
        deadline = time.monotonic() + 60
        try:
            while time.monotonic() < deadline:
                started.set()
                progress("label", 0, None)
                time.sleep(0.001)
        except KeyboardInterrupt:
            ends.append("stopped")
        return 1

    def fails(_progress: Progress) -> int:
        started.wait(60)
        raise ValueError("the second job")

    with pytest.raises(ValueError, match="the second job"):
        schedule.run([endless, fails], 1)
    assert ends == ["stopped"]
