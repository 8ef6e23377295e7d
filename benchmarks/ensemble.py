"""An ensemble of four against the sum of its members' times: in turn, side by side, and as the schedule chooses."""

from __future__ import annotations

from functools import partial

from benchmarks.texts import stsb
from benchmarks.timing import Comparison, Section, Table, best_in_turn, seconds
from ensembed.fetch.fetcher import pull
from ensembed.methods import Concat
from ensembed.models.ensemble import Ensemble, MetaEncoder
from ensembed.support.machine import available_cores
from ensembed.support.progress import Schedule

ENCODERS = ("minilm", "gte-small", "use-lite", "wordllama")


def run(sentences: int = 2048, repeats: int = 3) -> Section:
    """Every way once, then every way again: a disturbance hits them all."""
    pull(ENCODERS)
    texts = stsb(sentences)
    ensemble = Ensemble(ENCODERS)
    ways = {
        "one after the other": (ensemble, Schedule(side_by_side=False), "<= 1.03"),
        "side by side, each member on all cores": (ensemble, Schedule(side_by_side=True), "< 1"),
        "side by side, each member on one core": (Ensemble(ENCODERS, threads=1), Schedule(side_by_side=True), ""),
        "as the schedule chooses": (ensemble, Schedule(), "<= 1.03"),
    }
    models = {}
    for name, (members, schedule, _) in ways.items():
        models[name] = MetaEncoder(members, Concat().build(members.dims))
        models[name].schedule = schedule
        for _ in range(2):  # lets the schedule try both ways, and every session its first run, before it is timed
            models[name].encode(texts[:64])
    passes: list[list[float]] = []

    def alone() -> None:
        passes.append([seconds(partial(member.encode, texts)) for member in ensemble.encoders])

    best = best_in_turn([alone, *(partial(model.encode, texts) for model in models.values())], repeats)
    # Of one and the same pass: the sum of each member's best would be a time that nobody ever took.
    times = dict(zip(ENCODERS, min(passes, key=sum), strict=True))
    total = sum(times.values())
    what = f"four members, {len(texts):,} sentences, "
    peer = "the members alone, added up"
    return Section(
        "An ensemble of four",
        [
            Comparison(what + name, peer, found, total, target)
            for (name, (_, _, target)), found in zip(ways.items(), best[1:], strict=True)
        ],
        [
            Table(
                "Its members alone:",
                ["member", "seconds", "sentences/s", "share"],
                [[name, f"{s:.2f}", f"{len(texts) / s:,.0f}", f"{s / total:.1%}"] for name, s in times.items()],
            )
        ],
        [f"conc({', '.join(ENCODERS)}) on sentences of STS-B, {available_cores()} cores."],
        {"members": times, "cores": available_cores()},
    )
