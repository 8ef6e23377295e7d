"""Batches: which jobs share one, wait or fail."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from served_child import Odd

from ensembed import Ensemble, MetaEncoder
from ensembed.encoders.base import Encoder
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import EncoderError
from ensembed.methods import Concat
from ensembed.serve import Settings
from ensembed.serve.access import Metrics
from ensembed.serve.api_errors import ApiError
from ensembed.serve.batching import Batcher, Job, Vectors
from ensembed.serve.served_model import VECTORS, VIEWS, ServedModel


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 120))


lanes_of_both_kinds = pytest.mark.parametrize("lanes", [1, 2])


def made(model: Odd, lanes: int = 1, **settings: Any) -> Batcher:  # noqa: ANN401 - settings
    return Batcher({"one": model.encode, "two": model.encode}, Settings(**settings), Metrics(), lanes)


async def at_work(model: Odd) -> None:
    """Wait until the model has been given its first batch."""
    while not model.batches:
        await asyncio.sleep(0.001)


def rows(job: Job) -> list[list[float]]:
    return [row.tolist() for row in job.rows]


@lanes_of_both_kinds
def test_rows_equal_those_of_the_model_in_order(lanes: int) -> None:
    async def work() -> None:
        model = Odd()
        batcher = made(model, lanes, batch_texts=3)
        jobs = [batcher.submit("one", [f"{i} {'x' * j}" for j in range(i)]) for i in range(1, 8)]
        await asyncio.gather(*(job.done for job in jobs))
        for job in jobs:
            np.testing.assert_array_equal(rows(job), Odd().encode(job.texts))
        assert max(map(len, model.batches)) <= 3
        assert batcher.queued == 0
        await batcher.close(60)

    run(work())


def test_jobs_that_arrive_during_a_batch_become_one_batch() -> None:
    async def work() -> None:
        model = Odd(0.05)
        batcher = made(model)
        first = batcher.submit("one", ["first"])
        await at_work(model)
        others = [batcher.submit("one", [f"other {i}"]) for i in range(10)]
        await asyncio.gather(first.done, *(job.done for job in others))
        assert [len(batch) for batch in model.batches] == [1, 10]
        await batcher.close(60)

    run(work())


def test_second_batch_starts_beside_the_first_when_a_whole_one_waits() -> None:
    async def work() -> None:
        model, held = Odd(), [threading.Event(), threading.Event()]
        begun: list[list[str]] = []

        def encode(texts: list[str]) -> Any:  # noqa: ANN401 - an array
            begun.append(texts)
            if len(begun) <= len(held):
                assert held[len(begun) - 1].wait(30)
            return model.encode(texts)

        batcher = Batcher({"one": encode}, Settings(batch_requests=4), Metrics(), lanes=2)
        first = batcher.submit("one", ["first"])
        await until(lambda: len(begun) == 1)
        others = [batcher.submit("one", [f"other {i}"]) for i in range(3)]
        await asyncio.sleep(0.05)
        assert len(begun) == 1  # three are no whole batch
        others.append(batcher.submit("one", ["other 3"]))
        await until(lambda: len(begun) == 2)
        late = [batcher.submit("one", [f"late {i}"]) for i in range(5)]
        held[1].set()  # the one that was begun last ends first
        await asyncio.gather(*(job.done for job in [*others, *late[:4]]))
        assert not first.done.done()
        assert [len(texts) for texts in begun] == [1, 4, 4]
        held[0].set()
        await asyncio.gather(first.done, late[4].done)
        for job in [first, *others, *late]:
            np.testing.assert_array_equal(rows(job), Odd().encode(job.texts))
        await batcher.close(1)

    run(work())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_single_client_does_not_wait() -> None:
    async def work() -> None:
        batcher = made(Odd(), wait_ms=5000.0)
        start = time.perf_counter()
        for i in range(5):
            await batcher.submit("one", [f"text {i}"]).done
        assert time.perf_counter() - start < 5  # not one wait
        await batcher.close(60)

    run(work())


def test_batch_waits_for_recent_clients_no_longer_than_wait_ms() -> None:
    async def work() -> None:
        model = Odd(0.01)
        batcher = made(model, wait_ms=2000.0)
        await asyncio.gather(*(batcher.submit("one", [f"{i}"]).done for i in range(4)))

        async def back(i: int) -> None:
            await asyncio.sleep(0.01 * i)
            await batcher.submit("one", [f"again {i}"]).done

        start = time.perf_counter()
        await asyncio.gather(*(back(i) for i in range(4)))
        assert len(model.batches[-1]) == 4  # they were waited for, although each came later than the one before
        assert time.perf_counter() - start < 1.9  # and no longer than until all were there
        start = time.perf_counter()
        await batcher.submit("one", ["the others have gone"]).done
        assert time.perf_counter() - start > 1.9
        start = time.perf_counter()
        await batcher.submit("one", ["alone by now"]).done
        assert time.perf_counter() - start < 1.9
        await batcher.close(60)

    run(work())


def test_full_queue_refuses_with_retry_after() -> None:
    async def work() -> None:
        batcher = made(Odd(0.05), queue_texts=4, batch_texts=2)
        large = batcher.submit("one", ["a"] * 9)  # larger than the queue: an empty one has room
        with pytest.raises(ApiError) as full:
            batcher.submit("one", ["b"])
        assert full.value.status == 429
        assert 1 <= int(full.value.headers["Retry-After"]) <= 60
        await large.done
        await batcher.submit("one", ["b"]).done
        await batcher.close(60)

    run(work())


def test_large_requests_leave_room_in_the_queue_for_small_ones() -> None:
    async def work() -> None:
        batcher = made(Odd(0.05), queue_texts=40, batch_texts=4)
        large = batcher.submit("one", ["a"] * 30)
        with pytest.raises(ApiError):
            batcher.submit("one", ["b"] * 5)
        small = batcher.submit("one", ["b"] * 4)
        await asyncio.gather(large.done, small.done)
        await batcher.close(60)

    run(work())


def test_abandoned_jobs_are_not_encoded_and_free_the_queue() -> None:
    async def work() -> None:
        model = Odd(0.03)
        batcher = made(model, queue_texts=10)
        first = batcher.submit("one", ["first"])
        await at_work(model)
        gone = [batcher.submit("one", [f"gone {i}"]) for i in range(8)]
        stays = batcher.submit("one", ["stays"])
        for job in gone:
            batcher.abandon(job)
            batcher.abandon(job)  # which changes nothing
        assert batcher.queued == 1
        kept = [weakref.ref(job) for job in gone]
        del gone, job
        gc.collect()
        assert [job() for job in kept] == [None] * 8  # their texts would fill the memory while a batch hangs
        await asyncio.gather(first.done, stays.done)
        assert model.batches == [["first"], ["stays"]]
        await batcher.close(60)
        assert batcher.queued == 0

    run(work())


def test_texts_that_wait_have_a_budget_of_bytes() -> None:
    async def work() -> None:
        model = Odd(0.03)
        batcher = made(model, held_bytes=100_000)
        first = batcher.submit("one", ["first"])
        await at_work(model)
        emoji = "x" * 15_000 + "\U0001f600"  # 4 bytes for every character
        second = batcher.submit("one", [emoji])
        with pytest.raises(ApiError, match="too many texts are waiting"):
            batcher.submit("one", [emoji])
        await asyncio.gather(first.done, second.done)
        await batcher.submit("one", [emoji]).done
        await batcher.close(60)

    run(work())


@lanes_of_both_kinds
def test_bad_text_fails_only_its_own_job(lanes: int) -> None:
    async def work() -> None:
        model = Odd(0.01)
        batcher = made(model, lanes, batch_texts=2)
        texts = [["good"], ["poison"], ["nan"], ["fine", "well"], ["fine", "poison"]]
        first = batcher.submit("one", ["first"])
        await at_work(model)
        jobs = [batcher.submit("one", some) for some in texts]
        results = await asyncio.gather(first.done, *(job.done for job in jobs), return_exceptions=True)
        assert [isinstance(result, Exception) for result in results[1:]] == [False, True, True, False, True]
        np.testing.assert_array_equal(rows(jobs[3]), Odd().encode(["fine", "well"]))
        await batcher.submit("one", ["still there"]).done
        await batcher.close(60)

    run(work())


class Frail(Encoder):
    """A member that fails on one text, or on all while it is down, and knows how often it was called."""

    def __init__(self) -> None:
        self._spec = DemoEncoder(6, seed=1).spec
        self.calls, self.down = 0, False

    def embed(self, sentences: list[str]) -> Any:  # noqa: ANN401 - an array
        self.calls += 1
        if self.down or "poison" in sentences:
            raise EncoderError("it cannot")
        return DemoEncoder(6, seed=1).embed(sentences)


@pytest.mark.parametrize("kind", [VECTORS, VIEWS])
def test_text_that_a_member_fails_on_takes_it_away_from_its_own_job_only(kind: str) -> None:
    async def work() -> None:
        frail = Frail()
        ensemble = Ensemble([frail, "demo?dim=5&seed=2"])
        served = ServedModel(MetaEncoder(ensemble, Concat().build(ensemble.dims), missing="drop"), ["model"])
        batcher = Vectors(served, Settings(), Metrics()).batcher

        async def absent(*texts: str) -> list[set[int]]:
            jobs = [batcher.submit(kind, [text, "another"]) for text in texts]
            await asyncio.gather(*(job.done for job in jobs))
            return [served.absent(np.array(job.rows)) for job in jobs]

        assert await absent("one", "poison", "three", "four") == [set(), {0}, set(), set()]
        frail.down, frail.calls = True, 0
        for _ in range(3):
            assert await absent(*"abcdefgh") == [{0}] * 8
        assert frail.calls == 3 + 2  # two jobs were tried alone before it counted as down
        frail.down = False
        assert await absent("one", "two") == [set(), set()]
        assert await absent("one", "poison", "three") == [set(), {0}, set()]  # it does not count as down any more
        await batcher.close(60)

    run(work())


def test_system_exit_in_the_model_does_not_end_its_thread() -> None:
    async def work() -> None:
        def leaves(texts: list[str]) -> Any:  # noqa: ANN401 - never returns
            raise SystemExit(texts[0])

        batcher = Batcher({"one": leaves, "two": Odd().encode}, Settings(), Metrics())
        with pytest.raises(RuntimeError, match="SystemExit"):
            await batcher.submit("one", ["a secret"]).done
        await batcher.submit("two", ["a"]).done
        await batcher.close(60)

    run(work())


@lanes_of_both_kinds
def test_large_job_does_not_delay_small_ones(lanes: int) -> None:
    async def work() -> None:
        model = Odd(0.01)
        batcher = made(model, lanes, batch_texts=8)
        large = batcher.submit("one", [f"{i}" for i in range(400)])
        await at_work(model)
        left = large.unencoded
        small = [batcher.submit(kind, [f"small {i}"]) for i, kind in enumerate(["one", "two", "one"])]
        await asyncio.gather(*(job.done for job in small))
        assert left - large.unencoded < 100  # some batches of eight, shared
        await large.done
        np.testing.assert_array_equal(rows(large), Odd().encode(large.texts))
        await batcher.close(60)

    run(work())


def test_batches_do_not_mix_kinds() -> None:
    async def work() -> None:
        one, two = Odd(0.01), Odd(0.01)
        batcher = Batcher({"one": one.encode, "two": two.encode}, Settings(), Metrics())
        jobs = [batcher.submit("one" if i % 2 else "two", [str(i)]) for i in range(20)]
        await asyncio.gather(*(job.done for job in jobs))
        assert all(int(text) % 2 for batch in one.batches for text in batch)
        assert not any(int(text) % 2 for batch in two.batches for text in batch)
        await batcher.close(60)

    run(work())


@lanes_of_both_kinds
def test_close_finishes_submitted_jobs(lanes: int) -> None:
    async def work() -> None:
        batcher = made(Odd(0.01), lanes, batch_texts=2)
        jobs = [batcher.submit("one", [f"{i}"]) for i in range(20)]
        await batcher.close(60)
        assert all(job.done.done() and job.done.exception() is None for job in jobs)

    run(work())


@lanes_of_both_kinds
def test_close_gives_up_on_a_model_that_hangs(lanes: int) -> None:
    async def work() -> None:
        model = Odd(5.0)
        batcher = made(model, lanes, batch_texts=1)
        for text in ("a", "b"):
            batcher.submit("one", [text])
        await until(lambda: len(model.batches) == lanes)
        assert batcher.busy_seconds > 0
        start = time.perf_counter()
        await batcher.close(0.1)
        assert time.perf_counter() - start < 4  # not until it has done

    run(work())
