"""Searching an index against faiss and plain numpy, and what short codes and the graph find of what is there.

    python -m benchmarks search

Real sentences: lines of news, of which the last ones are the queries. Recall@10 is the part of the ten nearest rows
that is among the ten that are found.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.texts import news
from benchmarks.timing import Comparison, Section, Table, best_in_turn, seconds
from ensembed.encoders import open_encoder
from ensembed.encoders.pull import pull
from ensembed.rows import unit_rows
from ensembed.search import Index

ENCODER = "minilm"
K = 10
CASES = (("exact", "float32"), ("exact", "int8"), ("exact", "binary"), ("hnsw", "float32"), ("hnsw", "int8"))


def run(rows: int = 20_000, queries: int = 200, repeats: int = 3, encoder: str = ENCODER) -> Section:
    """All ways of searching on the same rows, a query at a time and many at once."""
    pull([encoder])
    model = open_encoder(encoder)
    texts = news(rows + queries)
    vectors = unit_rows(model.encode(texts))
    X, Q = vectors[:-queries], vectors[-queries:]
    nearest = np.argsort(-(Q.astype(np.float64) @ X.T.astype(np.float64)), axis=1, kind="stable")[:, :K]
    table = []
    comparisons = []
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder:
        for kind, dtype in CASES:
            index = Index.create(Path(folder) / f"{kind}-{dtype}", model, kind=kind, dtype=dtype)  # type: ignore[arg-type] # names of the literal types
            built = seconds(partial(index.add, texts[:-queries], vectors=X))
            found = index.search(Q, K)
            recall = np.mean(
                [len({int(hit.id) for hit in hits} & set(near)) / K for hits, near in _pairs(found, nearest)]
            )
            one, many = best_in_turn([partial(_one_by_one, index, Q), partial(index.search, Q, K)], repeats)
            table.append(
                [
                    kind,
                    dtype,
                    f"{recall:.4f}",
                    f"{1e3 * one / queries:.2f}",
                    f"{1e3 * many / queries:.2f}",
                    f"{built:.1f}",
                ]
            )
            if (kind, dtype) == ("exact", "float32"):
                comparisons = _peers(index, X, Q, repeats)
    headers = ["kind", "dtype", f"recall@{K}", "ms a query", "ms a query, all at once", "s to add and build"]
    title = f"{len(X):,} rows of {X.shape[1]} dimensions, {queries} queries:"
    return Section(
        "Search",
        comparisons,
        [Table(title, headers, table)],
        [
            f"Sentences of news, encoded with {encoder}; encoding is not timed.",
            "Ours reads the texts of the hits from the disk as well; the peers give row numbers.",
            "int8 and binary take 4 and 16 candidates for every hit and score them from the float32 rows.",
        ],
    )


def _pairs(found: list[list[Any]], nearest: NDArray[np.int64]) -> zip[tuple[list[Any], list[int]]]:
    return zip(found, nearest.tolist(), strict=True)


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
