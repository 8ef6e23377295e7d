"""Invented findings of the shape that a run has, for tests of tables, figures and the report."""

from __future__ import annotations

import numpy as np

from ensembed.paper.findings import (
    DEV,
    MEAN,
    NO_CORPUS,
    Ablation,
    AutoencoderPoint,
    Change,
    Changes,
    Comparison,
    CorpusFacts,
    Cost,
    CurvePoint,
    DatasetFacts,
    Findings,
    Interval,
    Kind,
    Likeness,
    MemberFacts,
    Metric,
    Scatter,
    System,
    TauPoint,
)
from ensembed.sts.datasets import PARTS
from ensembed.sts.protocol import PartScore, Result, Score

MEMBERS = {"minilm": 384, "use-lite": 512, "<odd> & 'name' \\ 100%_$": 256}
METHODS = {"conc": 1152, "avg": 512, "svd": 512, "gcca": 512, "ae": 512, "auto": 1152}
NOTES = {"auto": "this library's own, not the paper's; it trusts minilm most"}
METRICS: tuple[Metric, ...] = ("pearson", "spearman")
DATASETS = {
    **{name: [part for part in parts if (name, part) != ("sts13", "SMT")] for name, parts in PARTS.items()},
    "stsb-test": ["stsb-test"],
    DEV: [DEV],
}


def sample_findings(*, texts: bool = True, seed: int = 0) -> Findings:
    """Whole findings: three members, one of them with a name that has to be escaped, two corpora."""
    rng = np.random.default_rng(seed)

    def score(level: float = 0.75) -> Score:
        return Score(*(float(value) for value in level + rng.uniform(-0.05, 0.05, 2)))

    def system(label: str, kind: Kind, dim: int, corpus: str = NO_CORPUS, note: str = "") -> System:
        level = {"single": 0.7, "up": 0.69, "meta": 0.76}[kind] + rng.uniform(-0.02, 0.02)
        results = []
        for name, parts in DATASETS.items():
            scored = tuple(PartScore(part, 100, score(level)) for part in parts)
            overall = Score(
                float(np.mean([part.score.pearson for part in scored])),
                float(np.mean([part.score.spearman for part in scored])),
            )
            missing = ("SMT",) if name == "sts13" else ()
            results.append(Result(name, "tsv", "0123456789abcdef", "mean", overall, scored, missing))
        spread = {name: Score(0.002, 0.003) for name in (*DATASETS, MEAN)} if kind == "up" else {}
        return System(label, kind, dim, corpus, note, tuple(results), spread)

    singles = [system(f"single:{name}", "single", dim) for name, dim in MEMBERS.items()]
    ups = [
        system(f"single:{name} up", "up", 512, note="mean over 10 seeds") for name, dim in MEMBERS.items() if dim < 512
    ]
    metas = [
        system(f"meta:{name}", "meta", dim, NO_CORPUS if name in ("conc", "avg") else "news", NOTES.get(name, ""))
        for name, dim in METHODS.items()
    ]
    best = max(singles, key=lambda one: one.score(MEAN).pearson)
    tests = [name for name in DATASETS if name != DEV]
    gold = tuple(float(value) for value in rng.uniform(0, 5, 60))

    def change(gain: float) -> Change:
        sentences = ("A <b>dog</b> runs & jumps.", 'The "puppy" is running; 100%.') if texts else None
        near, far = 0.05, 0.05 + abs(float(gain))  # places
        member, meta = (far, near) if gain > 0 else (near, far)
        return Change("sts12", "MSRpar", int(rng.integers(100)), 3.25, near, member, meta, float(gain), sentences)

    names = tuple(MEMBERS)
    alike = ((1.0, 0.62, 0.41), (0.62, 1.0, 0.55), (0.41, 0.55, 1.0))
    return Findings(
        command="ensembed reproduce --corpus news.txt --corpus stsb-train --out results/reproduce",
        provenance={"ensembed": "0.0", "python": "3.11", "system": "Linux", "time": "2026-01-01 00:00 UTC"},
        settings={"seed": "0", "resamples": "2000", "autoencoder": "20 epochs of batches of 256"},
        protocol="mean",
        members=tuple(
            MemberFacts(name, dim, "MIT", f"{dim:032x}", {"name": name, "dim": dim}) for name, dim in MEMBERS.items()
        ),
        corpora=(
            CorpusFacts("news", "news.txt", 136_628, "a" * 32),
            CorpusFacts("stsb-train", "the distinct sentences of STS-B train", 10_536, "b" * 32),
        ),
        datasets=tuple(
            DatasetFacts(
                name, "tsv", "0123456789abcdef", dict.fromkeys(parts, 100), ("SMT",) if name == "sts13" else ()
            )
            for name, parts in DATASETS.items()
        ),
        absent=(),
        shared_pairs=dict.fromkeys(tests, 12),
        taus=tuple(TauPoint(tau, score()) for tau in (0.01, 0.1, 1.0, 10.0, 100.0)),
        autoencoders=tuple(
            AutoencoderPoint(layers, loss, score(), 12.5)
            for layers in (0, 1, 2)
            for loss in ("untrained", "mse", "mae", "kld", "cos")
        ),
        systems=(*singles, *ups, *metas),
        intervals=tuple(
            Interval(one.label, name, *(_moved(one.score(name), step) for step in (-0.01, 0.01)))
            for one in (*singles, *metas)
            for name in (*DATASETS, MEAN)
        ),
        comparisons=tuple(
            Comparison(
                one.label, best.label, name, metric, difference, difference - 0.01, difference + 0.01, 0.01, 0.05
            )
            for one in metas
            for name in (*tests, MEAN)
            for metric in METRICS
            for difference in [getattr(one.score(name), metric) - getattr(best.score(name), metric)]
        ),
        ablations=tuple(
            Ablation(method, without, 512, score()) for method in ("svd", "gcca", "ae") for without in ("", *names)
        ),
        dimensions=tuple(
            CurvePoint(label, x, score(), None, 1)
            for label in ("meta:svd", "meta:gcca", "meta:ae", "single:minilm")
            for x in (16, 32, 64, 128, 256, 512)
        ),
        sizes=tuple(
            CurvePoint(label, x, score(), Score(0.004, 0.005) if label != "meta:ae" else None, 3)
            for label in ("meta:svd", "meta:gcca", "meta:ae")
            for x in (1000, 3000, 10_000, 30_000, 136_628)
        ),
        domains=(
            *metas,
            *(system(f"meta:{name}", "meta", METHODS[name], "stsb-train") for name in ("svd", "gcca", "ae", "auto")),
        ),
        costs=(
            *(Cost(one.label, 1.5, 0.0, one.dim, one.score(DEV), one.score(MEAN)) for one in singles),
            *(Cost(one.label, 4.6, 0.02, one.dim, one.score(DEV), one.score(MEAN)) for one in metas),
            *(Cost(f"meta:svd without {name}", 3.1, 0.02, 512, score(), None) for name in names),
        ),
        spectrum=tuple(float(value) for value in np.linspace(1.9, -0.2, 512)),
        likeness=Likeness(names, {"CKA": alike, "cosine correlation": alike, "neighbour overlap": alike}),
        scatters=tuple(
            Scatter(one.label, "stsb-test", gold, tuple(float(g / 6 + e) for g, e in zip(gold, noise, strict=True)))
            for one in (best, *metas)
            for noise in [rng.uniform(-0.1, 0.1, len(gold))]
        ),
        changes=Changes(
            "meta:svd",
            best.label,
            tuple(change(gain) for gain in np.linspace(0.9, 0.5, 10)),
            tuple(change(gain) for gain in np.linspace(-0.9, -0.5, 10)),
        ),
    )


def _moved(score: Score, step: float) -> Score:
    return Score(score.pearson + step, score.spearman + step)
