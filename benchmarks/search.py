"""Searching an index against faiss and plain numpy, and what short codes and the graph find of what is there.

    python -m benchmarks search

Real sentences: lines of news, of which the last ones are the queries. Recall@10 is the part of the ten nearest rows
that is among the ten that are found. From how many rows on a graph is worth it is seen on random unit vectors, of which
there can be many without encoding them; what a graph finds of those says nothing about sentences, which lie closer
together.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.texts import news
from benchmarks.timing import Comparison, Section, Table, best_in_turn, seconds
from ensembed.encoders import open_encoder
from ensembed.fetch.fetcher import pull
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search import Index
from ensembed.support.machine import available_cores

ENCODER = "minilm"
K = 10
# The larger, the surer is where the two cross; the graph of 200,000 rows takes a minute or two.
SIZES = (10_000, 50_000, 200_000)
DIM = 384
CASES = (("exact", "float32"), ("exact", "int8"), ("exact", "binary"), ("hnsw", "float32"), ("hnsw", "int8"))


def run(
    rows: int = 10_000, queries: int = 100, repeats: int = 3, encoder: str = ENCODER, sizes: Sequence[int] = SIZES
) -> Section:
    """All ways of searching on the same rows, a query at a time and many at once; then more and more rows."""
    pull([encoder])
    model = open_encoder(encoder)
    texts = news(rows + queries)
    _say(f"encoding {len(texts):,} sentences")
    vectors = unit_rows(model.encode(texts))
    X, Q = vectors[:-queries], vectors[-queries:]
    nearest = np.argsort(-(Q.astype(np.float64) @ X.T.astype(np.float64)), axis=1, kind="stable")[:, :K]
    table = []
    comparisons = []
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder:
        for kind, dtype in CASES:
            _say(f"{kind}, {dtype}")
            index = Index.create(Path(folder) / f"{kind}-{dtype}", model, kind=kind, dtype=dtype)  # type: ignore[arg-type] # names of the literal types
            built = seconds(partial(index.add, texts[:-queries], vectors=X))
            found = index.search(Q, K)
            one, many = best_in_turn([partial(_one_by_one, index, Q), partial(index.search, Q, K)], repeats)
            table.append(
                [
                    kind,
                    dtype,
                    f"{_recall(found, nearest):.4f}",
                    f"{1e3 * one / queries:.2f}",
                    f"{1e3 * many / queries:.2f}",
                    f"{built:.1f}",
                ]
            )
            if (kind, dtype) == ("exact", "float32"):
                comparisons = _peers(index, X, Q, repeats)
    grown = [_at_size(size, queries, repeats) for size in sizes]
    headers = ["kind", "dtype", f"recall@{K}", "ms a query", "ms a query, all at once", "s to add and build"]
    title = f"{len(X):,} rows of {X.shape[1]} dimensions, {queries} queries:"
    titles = ["rows", "exact, ms a query", "graph, ms a query", "exact / graph", "s to build the graph"]
    titles += ["ms to open and ask once", "without checksums"]
    growing = f"Random unit vectors of {DIM} dimensions, float32, {queries} queries, one at a time:"
    return Section(
        "Search",
        comparisons,
        [
            Table(title, headers, table),
            Table(growing, titles, [_row_of(one) for one in grown]),
        ],
        [
            f"Sentences of news, encoded with {encoder}; encoding is not timed.",
            "Ours reads the texts of the hits from the disk as well; the peers give row numbers.",
            "int8 and binary take 4 and 16 candidates for every hit and score them from the float32 rows.",
            f"The graph of random vectors is built on {available_cores()} cores.",
        ],
        {"sizes": grown},
    )


def _at_size(rows: int, queries: int, repeats: int) -> dict[str, float]:
    """Seconds a query takes exactly and in the graph, of the same index of so many random rows."""
    random = np.random.default_rng(0)
    X = unit_rows(random.standard_normal((rows + queries, DIM), np.float32))
    Q = X[rows:]
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder:
        # With so high a limit it has no graph until it is told to build one.
        index = Index.create(Path(folder) / "index", f"demo?dim={DIM}", graph_rows=1 << 40)
        for start in range(0, rows, 50_000):
            some = range(start, min(start + 50_000, rows))
            index.add([f"row {i}" for i in some], vectors=X[some.start : some.stop])
        _say(f"{rows:,} random rows, exact")
        first, unchecked = first_query(index.folder, Q[:1], repeats)
        index.search(Q[:1], K)  # the first one reads the file
        [exact] = best_in_turn([partial(_one_by_one, index, Q)], repeats)
        _say(f"{rows:,} random rows, graph")
        built = seconds(partial(index.build_graph, threads=available_cores()))
        index.search(Q[:1], K)
        [graph] = best_in_turn([partial(_one_by_one, index, Q)], repeats)
    times = {"exact_s": exact / queries, "graph_s": graph / queries, "build_s": built}
    return {"rows": rows, **times, "first_s": first, "unchecked_s": unchecked}


def first_query(folder: Path, Q: NDArray[np.float32], repeats: int) -> list[float]:
    """Seconds to open an index and ask once, with the checksums of blocks and without; the files are cached."""

    def ask(checked: bool) -> None:
        index = Index.open(folder)
        if not checked:
            for segment in index.snapshot.segments:
                segment.vectors._unread[:] = False
        index.search(Q, K)

    return best_in_turn([partial(ask, True), partial(ask, False)], repeats)


def _row_of(one: dict[str, float]) -> list[str]:
    exact, graph = one["exact_s"], one["graph_s"]
    cells = [f"{1e3 * exact:.2f}", f"{1e3 * graph:.2f}", f"{exact / graph:.2f}", f"{one['build_s']:.1f}"]
    cells += [f"{1e3 * one['first_s']:.1f}", f"{1e3 * one['unchecked_s']:.1f}"]
    return [f"{one['rows']:,}", *cells]


def _say(what: str) -> None:
    """What comes next, since some of it takes a while."""
    print(f"  {what} …", file=sys.stderr, flush=True)


def _recall(found: list[list[Any]], nearest: NDArray[np.int64]) -> float:
    pairs = zip(found, nearest.tolist(), strict=True)
    return float(np.mean([len({int(hit.id) for hit in hits} & set(near)) / K for hits, near in pairs]))


def _one_by_one(index: Index, Q: NDArray[np.float32]) -> None:
    for query in Q:
        index.search(query[None], K)


def _peers(index: Index, X: NDArray[np.float32], Q: NDArray[np.float32], repeats: int) -> list[Comparison]:
    import faiss

    flat = faiss.IndexFlatIP(X.shape[1])
    flat.add(X)

    def faiss_one_by_one() -> None:
        for query in Q:
            flat.search(query[None], K)

    def numpy_one_by_one() -> None:
        for query in Q:
            _numpy_search(X, query[None])

    singles: list[Callable[[], object]] = [partial(_one_by_one, index, Q), faiss_one_by_one, numpy_one_by_one]
    batches: list[Callable[[], object]] = [
        partial(index.search, Q, K),
        partial(flat.search, Q, K),
        partial(_numpy_search, X, Q),
    ]
    found = []
    for what, functions in (("one query at a time", singles), ("all queries at once", batches)):
        ours, by_faiss, by_numpy = best_in_turn(functions, repeats)
        for peer, peer_s in (("faiss IndexFlatIP", by_faiss), ("numpy", by_numpy)):
            found.append(Comparison(f"exact, {len(Q)} queries, {what}", peer, ours, peer_s, ""))
    return found


def _numpy_search(X: NDArray[np.float32], Q: NDArray[np.float32]) -> NDArray[np.int64]:
    scores = Q @ X.T
    best = np.argpartition(-scores, K, axis=1)[:, :K]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
    return np.asarray(np.take_along_axis(best, order, axis=1))
