"""The Ray engine on one machine against the local one: embedding with a quick and with a slow encoder, and a fit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.texts import news
from benchmarks.timing import Comparison, Section, best_in_turn, seconds
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders import Encoder, open_encoder
from ensembed.engines import Engine, Local, Ray, Resources
from ensembed.fetch.fetcher import pull
from ensembed.methods import GCCA
from ensembed.support.machine import available_cores
from ensembed.views import ViewStore

JOBS = (("wordllama", 100_000), ("minilm", 20_000))


def run(jobs: tuple[tuple[str, int], ...] = JOBS, repeats: int = 1) -> Section:
    """Both engines in turn, each time into a fresh store; the cluster runs, and the driver has used it once."""
    pull([name for name, _ in jobs])
    texts = news(max(count for _, count in jobs))
    comparisons: list[Comparison] = []
    both = [0.0, 0.0]
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder, _engine() as ray:
        start = seconds(ray.connected)
        first = seconds(partial(_embed, ray, Path(folder), ListCorpus(["one", "two"]), open_encoder("demo")))
        engines: list[Engine] = [ray, Local()]
        for name, count in jobs:
            corpus = ListCorpus(texts[:count])
            corpus.index  # noqa: B018 - both engines need it, and it is made once
            encoder = open_encoder(name)
            ways: list[Callable[[], object]] = [
                partial(_embed, engine, Path(folder), corpus, encoder) for engine in engines
            ]
            best = best_in_turn(ways, repeats)
            both = [total + one for total, one in zip(both, best, strict=True)]
            comparisons.append(Comparison(f"embed {count:,} sentences, {name}", "local engine", best[0], best[1], ""))
        comparisons.insert(0, Comparison("embed both", "local engine", both[0], both[1], "<= 1.15"))
        # Stored views of one corpus: the pass over them, and solving, which is the driver's.
        corpus = ListCorpus(texts[: jobs[-1][1]])
        store = ViewStore(Path(folder) / "fit")
        views = [store.embed(corpus, open_encoder(name)) for name, _ in jobs]
        fits: list[Callable[[], object]] = [partial(GCCA(dim=128).fit, views, passes=engine) for engine in engines]
        fitted = best_in_turn(fits, repeats)
        columns = sum(view.shape[1] for view in views)
        comparisons.append(
            Comparison(f"gcca of {len(views[0]):,} x {columns}", "local engine", fitted[0], fitted[1], "")
        )
    return Section(
        "The Ray engine on one machine",
        comparisons,
        notes=[
            f"{available_cores()} cores. A cluster was already running here; it took {start:.1f} s to start.",
            f"The driver had run a job of two sentences before, which took {first:.1f} s: it imports Ray Data.",
            "The time includes the start of the actor, one on all cores, and loading its encoder.",
        ],
        data={"start_s": start, "embed": both},
    )


def _engine() -> Ray:
    """A cluster on this machine with one actor on all cores: five shards cannot be shared out evenly among two."""
    return Ray("local", resources=Resources(num_cpus=available_cores()))


def _embed(engine: Engine, folder: Path, corpus: ListCorpus, encoder: Encoder) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as store:
        engine.embed_all(ViewStore(store), corpus, [encoder])
