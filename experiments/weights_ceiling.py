"""`python -m experiments.weights_ceiling`: how good ensembles get if their weights are chosen with the labels.

`Auto` finds its weights without labels. Here the same ensembles get the weights that score best on the test sets
themselves: no way to find weights without labels can do better with these vectors. Writes `weights-ceiling.md` and
`weights-ceiling.json`. Its vectors and the scores of `Auto` are those of `python -m experiments.ensembles_table`,
which runs first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.models.ensemble import Ensemble
from ensembed.numerics.row_matrices import unit_rows
from ensembed.paper.findings import DEV, METRICS
from ensembed.paper.laboratory import Laboratory
from ensembed.paper.notebook import Notebook
from ensembed.reliability.estimate import sample_rows, sample_vectors
from ensembed.reliability.sufficiency import SoftWhitening
from ensembed.sts.datasets import Dataset
from ensembed.sts.find import find_available
from ensembed.sts.protocol import distinct_sentences, predict, ranks
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, bars
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from ensembed.views import ViewStore
from experiments import run, write_results
from experiments.ensembles_scores import AUTO, NOISE
from experiments.ensembles_table import MEMBERS, NEAR

Matrix64 = NDArray[np.float64]

_SENTENCES = 6000
"""Sentences, of those that are scored, that members are whitened on."""
_STEPS, _LAST_STEPS = (3.0, 1.5, 1.15), (1.5, 1.2)
"""Factors by which a weight is made larger and smaller, one after the other; 0 is tried, too."""
_SMALL = 0.02
"""What a weight of 0 becomes when it is made larger."""
_LEAST = 1e-3
"""A gain in points below this is none."""

_AUTO = "auto: weights found without labels"
_DEV = "chosen on STS-B dev: every member as it is and softly whitened, side by side"
_PLAIN = "chosen on the test sets: all members as they are"
_BOTH = "chosen on the test sets: every member as it is and softly whitened, side by side"


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Pairs with labels, and the members' cosines of them.

    Attributes:
        datasets: what is scored; the score is the mean over them, of each the mean over its parts.
        plain: [J, pairs] the cosines of every member as it is.
        soft: [J, pairs] those of every member softly whitened on the sentences that are scored, without their labels.
    """

    datasets: Sequence[Dataset]
    plain: Matrix64
    soft: Matrix64

    @classmethod
    def of(cls, laboratory: Laboratory, datasets: Sequence[Dataset]) -> ScoredPairs:
        """Return the pairs of some of a laboratory's data sets."""
        place = {text: row for row, text in enumerate(distinct_sentences(laboratory.datasets))}
        rows = [place[text] for text in distinct_sentences(datasets)]

        def cosines(X: Matrix64) -> Matrix64:
            return np.concatenate([part for parts in predict(lambda _sentences: X, datasets) for part in parts])

        plain, soft = [], []
        for j, view in enumerate(laboratory.evaluation):
            whitening = SoftWhitening.of(sample_vectors(view, sample_rows(len(view), None, _SENTENCES, 0), j))
            X = unit_rows(view[rows].astype(np.float64))
            plain.append(cosines(X))
            soft.append(cosines(whitening.apply(X)))
        return cls(datasets, np.array(plain), np.array(soft))

    @cached_property
    def parts(self) -> list[tuple[slice, float, Matrix64, Matrix64]]:
        """Place, weight in the mean, labels and their ranks, standardised, of every part."""
        result, start = [], 0
        for dataset in self.datasets:
            share = 100 / len(self.datasets) / len(dataset.parts)
            for part in dataset.parts:
                gold = np.asarray(part.scores, np.float64)
                place = slice(start, start := start + len(gold))
                result.append((place, share, _standard(gold), _standard(ranks(gold))))
        return result

    def score(self, cosines: Matrix64) -> Matrix64:
        """Return Pearson's r and Spearman's rho, x 100, of the cosines of all pairs."""
        total = np.zeros(2)
        for place, share, gold, gold_ranks in self.parts:
            x = cosines[place]
            total += share * np.array([_standard(x) @ gold, _standard(ranks(x)) @ gold_ranks])
        return total

    @cached_property
    def alone(self) -> Matrix64:
        """The correlations [J, 2] of every member as it is."""
        return np.array([self.score(cosines) for cosines in self.plain])

    def best_of(self, places: Sequence[int]) -> int:
        """Return which of these members has the best correlations."""
        return int(self.alone[list(places)].sum(axis=1).argmax())

    def best_weights(self, C: Matrix64, start: Matrix64) -> Matrix64:
        """Return the weights of cosines C [k, pairs] with the largest mean of both correlations.

        They are found step by step, first for Pearson's r, which takes no sorting, and from there for the mean of both.
        """
        parts = [(share, C[:, place] - C[:, place].mean(axis=1, keepdims=True), g) for place, share, g, _ in self.parts]
        shares, along = np.array([share for share, _, _ in parts]), np.array([X @ gold for _, X, gold in parts])
        products = np.array([X @ X.T for _, X, _ in parts])

        def pearson(weights: Matrix64) -> float:
            return float(shares @ (along @ weights / np.sqrt((products @ weights) @ weights)))

        weights = _ascent(pearson, start, _STEPS)
        return _ascent(lambda weights: float(self.score(weights @ C).sum()), weights, _LAST_STEPS)


def _ascent(value: Callable[[Matrix64], float], weights: Matrix64, steps: Sequence[float]) -> Matrix64:
    """Return weights of which none can be changed by a step with more than a tiny gain."""
    best = value(weights)
    for step in steps:
        gained = True
        while gained:
            gained = False
            for k in range(len(weights)):
                for changed in (weights[k] * step, weights[k] / step, 0.0) if weights[k] else (_SMALL,):
                    tried = weights.copy()
                    tried[k] = changed
                    if tried.any() and (found := value(tried)) > best + _LEAST:
                        best, weights, gained = found, tried, True
    return weights


def _standard(x: Matrix64) -> Matrix64:
    x = x - x.mean()
    return np.asarray(x / np.linalg.norm(x))


def _recorded(case: Mapping[str, Any], datasets: Sequence[Dataset]) -> Matrix64:
    """Return the mean scores of `auto` in an ensemble of `ensembles.json`."""
    [scores] = [row["scores"] for row in case["methods"] if row["label"] == AUTO]
    figures = [[scores[dataset.name][metric] for metric in METRICS] for dataset in datasets]
    return np.asarray(np.mean(figures, axis=0))


@dataclass(frozen=True, eq=False)
class Ceilings:
    """The gains over the best member on the test sets.

    Attributes:
        ensembles: the names of their members.
        gains: by how the weights were chosen, an entry per ensemble.
        near: whether the two best members are near each other.
    """

    ensembles: Sequence[tuple[str, ...]]
    gains: dict[str, list[Matrix64]]
    near: Sequence[bool]

    @classmethod
    def of(cls, laboratory: Laboratory, recorded: Sequence[Mapping[str, Any]], progress: Progress) -> Ceilings:
        """Choose weights for every ensemble.

        Args:
            laboratory: the members and their views.
            recorded: the ensembles of `ensembles.json`, with the scores of `auto`.
            progress: receives the ensembles that are done.
        """
        tests, dev = ([case for case in laboratory.datasets if (case.name == DEV) is on] for on in (False, True))
        on_tests, on_dev = ScoredPairs.of(laboratory, tests), ScoredPairs.of(laboratory, dev)
        gains: dict[str, list[Matrix64]] = {label: [] for label in (_AUTO, _DEV, _PLAIN, _BOTH)}
        ensembles, near = [], []
        for done, case in enumerate(recorded, 1):
            places = [laboratory.names.index(name) for name in case["members"]]
            plain, alone = on_tests.plain[places], on_tests.alone[places]
            both, both_dev = (np.vstack([pairs.plain[places], pairs.soft[places]]) for pairs in (on_tests, on_dev))
            first, first_dev = (np.eye(len(both))[pairs.best_of(places)] for pairs in (on_tests, on_dev))
            scores = {
                _AUTO: 100 * _recorded(case, tests),
                _DEV: on_tests.score(on_dev.best_weights(both_dev, first_dev) @ both),
                _PLAIN: on_tests.score(on_tests.best_weights(plain, first[: len(plain)]) @ plain),
                _BOTH: on_tests.score(on_tests.best_weights(both, first) @ both),
            }
            for label, score in scores.items():
                gains[label].append(score - alone.max(axis=0))
            ordered = np.sort(alone[:, 0])
            near.append(bool(ordered[-1] - ordered[-2] <= 100 * NEAR))
            ensembles.append(tuple(case["members"]))
            progress("ceilings", done, len(recorded))
        return cls(ensembles, gains, near)

    def rows(self) -> list[list[str]]:
        """Return a row per way to choose weights: at or above, mean gain, the worst, and where two are near."""
        rows = []
        for label, values in self.gains.items():
            G = np.array(values)
            level = np.count_nonzero((-100 * NOISE <= G).all(axis=1))
            figures = (G.mean(axis=0), G.min(axis=0), G[np.array(self.near)].mean(axis=0))
            rows.append([label, f"{level} of {len(G)}", *(f"{a:+.2f}/{b:+.2f}" for a, b in figures)])
        return rows


def main(out: Path = Path("results")) -> None:
    """Print the table and write it."""
    recorded = json.loads((out / "ensembles.json").read_text())["combined"]
    with bars() as progress:
        laboratory = Laboratory.prepare(
            Ensemble(MEMBERS, progress=progress),
            {},
            find_available(),
            store=ViewStore(wait=600),
            notebook=Notebook(cache_dir() / "ensembles", progress=progress),
            progress=progress,
        )
        ceilings = Ceilings.of(laboratory, recorded, progress)
    headers = ["", "at or above the best member", "mean gain", "worst", f"the two best within {100 * NEAR:g} points"]
    rows = ceilings.rows()
    note = (
        "Points of Pearson's r / Spearman's rho over the best member, each for itself, on the mean of the test sets "
        f"(STS12-16, STS-B test; mean over a year's sub-testsets). {len(recorded)} ensembles of two to five of "
        f"{', '.join(MEMBERS)}; {sum(ceilings.near)} of them have two best members within {100 * NEAR:g} points. "
        f"Whitenings are of {_SENTENCES} of the sentences that are scored, which flatters them: `Auto` whitens on the "
        "corpus. Weights are chosen for the mean of both correlations, step by step, for each ensemble on its own. "
        "Those chosen on the test sets are no result: they bound what weights could give. The scores of auto are those "
        "of ensembles.json. "
        f"Made with {', '.join(f'{key} {value}' for key, value in provenance().items())}."
    )
    head = "# Weights chosen with the labels\n\nPrinted and written by `python -m experiments.weights_ceiling`.\n\n"
    page = f"{head}{markdown_table(headers, rows)}\n\n{note}\n"
    print(page)
    each = {
        label: {" + ".join(members): gain.tolist() for members, gain in zip(ceilings.ensembles, values, strict=True)}
        for label, values in ceilings.gains.items()
    }
    data = {"columns": headers, "rows": rows, "note": note, "near": ceilings.near, "gains": each}
    write_results(out, "weights-ceiling", page, json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    run(partial(main))
