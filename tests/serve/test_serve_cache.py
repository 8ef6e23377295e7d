"""The cache of recent rows."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ensembed.serve.batching import RecentRows


def test_cache_forgets_the_least_recently_used_row_first() -> None:
    recent = RecentRows(3 * (400 + 16))
    for text in "abc":
        recent.put("k", text, np.full(4, ord(text), np.float32))
    assert recent.get("k", "a") is not None
    recent.put("k", "d", np.zeros(4, np.float32))
    assert recent.get("k", "b") is None
    kept = recent.get("k", "a")
    assert kept is not None
    np.testing.assert_array_equal(kept, np.full(4, 97, np.float32))
    assert recent.get("other kind", "a") is None
    assert (recent.hits, recent.misses) == (2, 2)


def test_cached_rows_are_read_only_copies() -> None:
    recent = RecentRows(10_000)
    batch = np.ones((100, 4), np.float32)
    recent.put("k", "a", batch[0])
    batch[:] = 2
    kept = recent.get("k", "a")
    assert kept is not None
    assert kept.base is None
    assert not kept.flags.writeable
    np.testing.assert_array_equal(kept, np.ones(4))


def test_cache_without_room_keeps_nothing() -> None:
    for limit in (0, 100):
        recent = RecentRows(limit)
        recent.put("k", "a", np.ones(4, np.float32))
        assert recent.get("k", "a") is None
        assert recent.size == 0


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(1, 50)), max_size=60), st.integers(0, 4000))
def test_cache_never_exceeds_its_limit(puts: list[tuple[str, int]], limit: int) -> None:
    recent = RecentRows(limit)
    for text, dim in puts:
        recent.put("k", text, np.zeros(dim, np.float32))
        assert recent.size <= limit
    assert (recent.size == 0) == (len(recent) == 0)


def test_cache_counts_the_memory_that_it_takes() -> None:
    row = np.zeros(8, np.float32)
    tracemalloc.start()
    recent = RecentRows(1 << 20)
    for i in range(10_000):
        recent.put("k", f"text {i}", row)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert recent.size <= 1 << 20
    assert taken < 1.3 * (1 << 20)
