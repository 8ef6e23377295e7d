"""Whatever is added, replaced, deleted and reopened: a search finds what comparing with every row finds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search import Index
from ensembed.search.index_files import Codes

ENCODER = DemoEncoder(6)
WORDS = ("red", "blue", "dog", "cat", "runs")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
changes = st.one_of(
    st.tuples(st.just("add"), st.lists(texts, max_size=6)),
    st.tuples(st.just("replace"), st.lists(st.tuples(st.integers(0, 9), texts), max_size=4)),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 30), max_size=8)),
    st.tuples(st.sampled_from(["reopen", "compact", "batches"]), st.none()),
)


def brute_force(rows: dict[str, str], query: str, k: int) -> list[tuple[str, float]]:
    """Rows are in the order in which they were added last; a stable sort keeps it among equals."""
    if not rows:
        return []
    q = unit_rows(ENCODER.encode([query])).astype(np.float64)[0]
    scores = [float(unit_rows(ENCODER.encode([text])).astype(np.float64)[0] @ q) for text in rows.values()]
    order = sorted(range(len(rows)), key=lambda i: -round(scores[i], 9))
    return [(list(rows)[i], scores[i]) for i in order[:k]]


@pytest.fixture(autouse=True, scope="module")
def _no_disk() -> Iterator[None]:
    """Nothing here is about a machine that stops: waiting for the disk would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield


@pytest.mark.parametrize("dtype", ["float32", "int8", "binary"])
@settings(max_examples=15)
@given(sequence=st.lists(changes, max_size=8), query=texts, k=st.integers(1, 40))
def test_search_equals_brute_force(dtype: Codes, sequence: list[tuple[str, Any]], query: str, k: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        # So many candidates that the codes cannot lose a row: what is left is bookkeeping.
        index = Index.create(Path(folder) / "index", ENCODER, source="demo?dim=6", dtype=dtype, rescore=1000)
        rows: dict[str, str] = {}
        for what, value in sequence:
            if what == "add":
                rows |= dict(zip(index.add(value), value, strict=True))
            elif what == "replace":
                ids = [f"r{i}" for i, _ in value]
                index.add([text for _, text in value], ids, replace=True)
                for id_ in ids:
                    rows.pop(id_, None)
                last = {id_: i for i, id_ in enumerate(ids)}
                rows |= {ids[i]: value[i][1] for i in sorted(last.values())}
            elif what == "delete":
                known = {list(rows)[i] for i in value if i < len(rows)}
                assert index.delete(sorted(known)) == len(known)
                rows = {id_: text for id_, text in rows.items() if id_ not in known}
            elif what == "reopen":
                index = Index.open(index.folder)
            elif what == "compact":
                index.compact()
            else:
                for i in range(9):  # many small segments, which are put together
                    rows |= {index.add([WORDS[i % 5]])[0]: WORDS[i % 5]}
        index.verify()
        assert len(index) == len(rows)
        for one in (index, Index.open(index.folder, ENCODER)):
            [hits] = one.search([query], k)
            expected = brute_force(rows, query, k)
            assert [hit.id for hit in hits] == [id_ for id_, _ in expected]
            assert np.allclose([hit.score for hit in hits], [score for _, score in expected], atol=1e-6)
            assert [hit.text for hit in hits] == [rows[hit.id] for hit in hits]
