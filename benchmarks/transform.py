"""Combining the members' vectors against making them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.ensemble import ENCODERS
from benchmarks.texts import stsb
from benchmarks.timing import Comparison, Section, best_in_turn
from ensembed.encoders.base import FloatArray
from ensembed.fetch.fetcher import pull
from ensembed.methods import GCCA, SVD, Auto, Concat, Method
from ensembed.models.ensemble import Ensemble

METHODS: dict[str, Method] = {
    "conc": Concat(),
    "svd, d = 512": SVD(dim=512),
    "gcca, d = 512": GCCA(dim=512),
    "auto": Auto(),
}


def run(sentences: int = 2048, repeats: int = 5) -> Section:
    """On the ensemble of four, many sentences at once and one by one, as a server gets them."""
    pull(ENCODERS)
    texts = stsb(sentences)
    members = Ensemble(ENCODERS).encoders
    for member in members:
        member.encode(texts[:64])
    views = [member.encode(texts) for member in members]
    metas = {name: method.fit(views) for name, method in METHODS.items()}
    few, rows = texts[:64], [[view[i : i + 1] for view in views] for i in range(64)]
    many = best_in_turn(
        [
            lambda: [member.encode(texts) for member in members],
            *(partial(meta.transform, views) for meta in metas.values()),
        ],
        repeats,
    )
    single = best_in_turn(
        [
            lambda: [member.encode([text]) for text in few for member in members],
            *(partial(_each, meta.transform, rows) for meta in metas.values()),
        ],
        repeats,
    )
    comparisons = []
    for what, times in ((f"{len(texts):,} sentences at once", many), ("64 sentences one by one", single)):
        for name, seconds in zip(metas, times[1:], strict=True):
            comparisons.append(
                Comparison(
                    f"transform, {name}, {what}",
                    "the four members' encoding",
                    seconds,
                    times[0],
                    "< 0.01",
                    f"{1e6 * seconds / (len(texts) if times is many else len(few)):.1f} µs a sentence",
                )
            )
    return Section(
        "The transform's share",
        comparisons,
        notes=[f"{' + '.join(str(view.shape[1]) for view in views)} dimensions, fitted on the same sentences."],
    )


def _each(transform: Callable[[list[FloatArray]], object], rows: list[list[FloatArray]]) -> None:
    for row in rows:
        transform(row)
