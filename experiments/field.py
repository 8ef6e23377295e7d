"""`python -m experiments.field`: what `Auto` decides by constants, chosen with some encoders and judged with others.

Estimates on sentences of STS-B train how far each of about thirty encoders stands above each other one, weighs random
ensembles of them, and scores these on a part of STS-B dev. For every family of encoders the constants are chosen on the
ensembles without it and judged on those with it. Then all subsets of the whole encoders, on STS-B test, too. Writes
`field.md` and `field.json`. The vectors are kept in the cache: run it again after an interruption.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from ensembed.methods import GCCA, SVD, Average, Concat
from ensembed.numerics.row_matrices import unit_rows
from ensembed.reliability import sufficiency
from ensembed.reliability.agreement import (
    Near,
    NearPairs,
    cosines,
    dependence,
    near_pairs,
    near_sentences,
    weight_factors,
)
from ensembed.reliability.lexical import Lexical
from ensembed.reliability.sufficiency import SoftWhitening, Surface, explained, standing_parts
from ensembed.support.atomic_files import new_file
from ensembed.support.progress import silent
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from experiments import run, write_results
from experiments.field_vectors import DEV, TEST, TRAIN, WHOLE, Field

Matrix64 = NDArray[np.float64]

_LEFT_OUT = (
    "minilm-int8",
    "minilm tokens",
    "gte-small tokens",
    "use-m3 cut 96",
    "gte-small cls",
    "minilm max",
    "gte-small max",
    "minilm whitened",
    "gte-small whitened",
    "wordllama whitened",
)
"""Copies, and encoders that are nearly another one: they show nothing new and cost time."""
_QUERIES, _NEIGHBOURS = 800, 5
_RANDOM_ENSEMBLES = {2: 90, 3: 60, 4: 30}
GRID = {
    "LEAD": (0.035, 0.05, 0.07),
    "DIMENSIONS": (0.4, 0.5, 0.7),
    "LENGTH": (0.1, 0.15, 0.2),
    "WORDS": (0.07, 0.1, 0.15),
}
_PAPER = {"conc": Concat(), "avg": Average(), "svd": SVD(), "gcca": GCCA(tau=10.0)}
_GCCA = "gcca, auto's weights"
_MOST_COMPARED = 3
"""Ensembles of more members are not compared with the paper's methods: it takes long."""
_NOISE = 0.1

Constants = tuple[float, ...]
OURS: Constants = tuple(getattr(sufficiency, name) for name in GRID)


def scores(predicted: NDArray[np.floating], gold: Matrix64) -> Matrix64:
    """Return Pearson's r and Spearman's rho of predictions, x 100."""
    both = [np.corrcoef(predicted, gold)[0, 1], np.corrcoef(rankdata(predicted), rankdata(gold))[0, 1]]
    return 100 * np.array(both)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the corpus shows about every encoder of the field, and how its cosines score.

    Attributes:
        field: the encoders.
        names: those that are looked at.
    """

    field: Field
    names: tuple[str, ...]

    @cache  # noqa: B019 - one object a run
    def vectors(self, name: str) -> Matrix64:
        """Return an encoder's vectors of the corpus."""
        return self.field.vectors(name, TRAIN).astype(np.float64)

    @cache  # noqa: B019 - one object a run
    def whitening(self, name: str) -> SoftWhitening:
        """Return its soft whitening on the corpus."""
        return SoftWhitening.of(self.vectors(name))

    @cache  # noqa: B019 - one object a run
    def whitened(self, name: str) -> Matrix64:
        """Return its vectors of the corpus, softly whitened."""
        return self.whitening(name).apply(self.vectors(name))

    @cached_property
    def lexical(self) -> Lexical:
        """The words of the corpus."""
        return Lexical(self.field.texts[TRAIN])

    @cached_property
    def queries(self) -> NDArray[np.int64]:
        """The sentences that neighbours are looked for."""
        return np.sort(np.random.default_rng(1).choice(len(self.field.texts[TRAIN]), _QUERIES, replace=False))

    @cached_property
    def R(self) -> Matrix64:  # noqa: N802 - mathematics
        """What each encoder predicts of each."""
        leading = [self.whitening(name).leading(self.vectors(name)) for name in self.names]
        features = self.lexical.features(0, min(300, len(leading[0]) // 20))
        return np.asarray(explained(leading, features, 0, np.random.default_rng(2), silent)[0])

    @cache  # noqa: B019 - one object a run
    def near(self, name: str) -> NDArray[np.int64]:
        """Return the neighbours of the queries under an encoder."""
        return near_sentences([self.vectors(name)], self.queries, _NEIGHBOURS, silent).neighbours[0]

    def pairs(self, names: Sequence[str]) -> NearPairs:
        """Return the pairs that are near under any of these encoders, and random ones."""
        neighbours = {place: self.near(name) for place, name in enumerate(names)}
        near = Near(self.queries, neighbours, len(self.field.texts[TRAIN]))
        return near_pairs(near, neighbours, np.random.default_rng(4))

    @cached_property
    def surface(self) -> Surface:
        """How far each encoder's cosines depend on words and lengths."""
        both = [dependence(self.vectors(name), self.lexical, self.pairs([name])) for name in self.names]
        return Surface(*np.array(both).T)

    def standing(self, places: Sequence[int]) -> Matrix64:
        """Return how far each of some encoders stands above each other one."""
        dimensions = np.array([self.whitening(self.names[j]).dimensions for j in places])
        surface = Surface(self.surface.words[places], self.surface.length[places])
        return np.asarray(standing_parts(self.R[np.ix_(places, places)], dimensions, surface).sum(axis=0))

    @cache  # noqa: B019 - one object a run
    def cosines_of(self, name: str, part: str, *, soft: bool) -> Matrix64:
        """Return the cosines of scored pairs, as they are or softly whitened."""
        rows = {text: row for row, text in enumerate(self.field.texts[part])}
        [pairs] = self.field.datasets[part].parts
        X = self.field.vectors(name, part).astype(np.float64)
        X = self.whitening(name).apply(X) if soft else X
        places = np.array([[rows[a], rows[b]] for a, b in zip(pairs.sentences1, pairs.sentences2, strict=True)])
        return np.asarray(cosines([X], places)[0])

    def gold(self, part: str) -> Matrix64:
        """Return the scores that people gave."""
        return np.asarray(self.field.datasets[part].parts[0].scores)

    @cache  # noqa: B019 - one object a run
    def alone(self, name: str, part: str) -> tuple[float, float]:
        """Return the correlations of an encoder alone."""
        pearson, spearman = scores(self.cosines_of(name, part, soft=False), self.gold(part)).tolist()
        return pearson, spearman

    def best_alone(self, names: Sequence[str], part: str) -> Matrix64:
        """Return the best member's correlations, each for itself."""
        return np.asarray(np.max([self.alone(name, part) for name in names], axis=0))


class Weighed:
    """An ensemble, and its scores with weights by any constants."""

    def __init__(self, evidence: Evidence, names: Sequence[str]) -> None:
        self.evidence, self.names = evidence, tuple(names)
        self.places = [evidence.names.index(name) for name in names]
        vectors, whitened = ([of(name) for name in names] for of in (evidence.vectors, evidence.whitened))
        self._beside: list[tuple[Matrix64, Matrix64, float]] = []
        for b, name in enumerate(names):
            pairs = evidence.pairs([name])
            C = cosines([X if j == b else whitened[j] for j, X in enumerate(vectors)], pairs.pairs[: pairs.near])
            level = float(cosines([vectors[b]], pairs.pairs[pairs.near :]).mean())
            self._beside.append((np.asarray(np.corrcoef(C)), np.asarray(C.std(axis=1)), level))

    def standing(self, constants: Constants) -> Matrix64:
        """Return how far each member stands above each other one."""
        before = {name: getattr(sufficiency, name) for name in GRID}
        try:
            for name, value in zip(GRID, constants, strict=True):
                setattr(sufficiency, name, value)
            return self.evidence.standing(self.places)
        finally:
            for name, value in before.items():
                setattr(sufficiency, name, value)

    def factors(self, constants: Constants) -> tuple[int, Matrix64]:
        """Return the place of the member that is trusted most, and the factors of all weights [J, 3]."""
        s = self.standing(constants)
        b = int(np.where(np.eye(len(s), dtype=bool), np.inf, s).min(axis=1).argmax())
        return b, weight_factors(b, s[b], *self._beside[b])

    def gain(self, constants: Constants, part: str = DEV) -> tuple[Matrix64, str]:
        """Return the correlations less those of the best member, and the name of the member that is trusted most."""
        evidence, (b, factors) = self.evidence, self.factors(constants)
        counted = zip(self.names, factors.prod(axis=1), strict=True)
        parts = [w * evidence.cosines_of(name, part, soft=j != b) for j, (name, w) in enumerate(counted)]
        gain = scores(np.sum(parts, axis=0), evidence.gold(part)) - evidence.best_alone(self.names, part)
        return gain, self.names[b]


def random_ensembles(field: Field, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return ensembles of two to four encoders, most of them of different families."""
    rng, families = np.random.default_rng(0), dict[str, list[str]]()
    for name in names:
        families.setdefault(field.members[name].family, []).append(name)
    found: dict[tuple[str, ...], None] = {}
    for size, count in _RANDOM_ENSEMBLES.items():
        wanted = len(found) + count
        while len(found) < wanted:
            chosen = rng.choice(list(families), size, replace=bool(rng.random() < 0.25))
            members = tuple(sorted({str(rng.choice(families[family])) for family in chosen}))
            if len(members) == size:
                found[members] = None
    return list(found)


def summary(gains: Sequence[Matrix64]) -> list[str]:
    """Return cells: how many, the mean gain, the worst, and how many are at or above the best member."""
    G = np.array(gains)
    level, hardly = (np.mean((-bound <= G).all(axis=1)) for bound in (_NOISE, 0.3))
    cells = [f"{a:+.2f}/{b:+.2f}" for a, b in (G.mean(axis=0), G.min(axis=0))]
    return [str(len(G)), *cells, f"{level:.0%}", f"{hardly:.0%}"]


_SUMMARY = ["ensembles", "mean gain", "worst", "at or above, 0.1 allowed", "not below by more than 0.3"]


def worth(gains: Sequence[Matrix64]) -> float:
    """Return what constants are chosen by: the mean gain, where losses count three times."""
    G = np.array(gains)
    return float((G + 2 * np.minimum(G, 0)).mean())


def main(out: Path = Path("results")) -> None:
    """Run everything."""
    field = Field()
    names = tuple(name for name in field.members if name not in _LEFT_OUT)
    evidence = Evidence(field, names)
    sections: dict[str, tuple[list[str], list[list[str]]]] = {}
    order = sorted(names, key=lambda name: -sum(evidence.alone(name, DEV)))
    rows = []
    for name in order:
        member, place = field.members[name], names.index(name)
        pearson, spearman = evidence.alone(name, DEV)
        rows.append(
            [
                name,
                member.family,
                member.kind,
                str(evidence.vectors(name).shape[1]),
                f"{pearson:.1f}/{spearman:.1f}",
                f"{evidence.whitening(name).dimensions:.0f}",
                f"{evidence.surface.length[place]:.2f}",
                f"{evidence.surface.words[place]:.2f}",
            ]
        )
    sections["The encoders"] = (
        ["", "family", "kind", "dim", "STS-B dev", "effective dim", "follows length", "follows words"],
        rows,
    )

    random = {members: Weighed(evidence, members) for members in random_ensembles(field, names)}
    grid: list[Constants] = list(product(*GRID.values()))
    by_constants = {c: {members: case.gain(c)[0] for members, case in random.items()} for c in grid}
    rows, judged = [], []
    for family in dict.fromkeys(field.members[name].family for name in names):
        with_it = [m for m in random if any(field.members[name].family == family for name in m)]
        without = [m for m in random if m not in with_it]
        chosen = max(grid, key=lambda c: worth([by_constants[c][m] for m in without]))
        gains = [by_constants[chosen][m] for m in with_it]
        judged.append(np.mean(gains, axis=0))
        rows.append([family, ", ".join(f"{value:g}" for value in chosen), *summary(gains)])
    spread = np.std(judged, axis=0)
    rows.append(["spread of the mean gains", "", "", f"±{spread[0]:.2f}/{spread[1]:.2f}", "", "", ""])
    ours = [case.gain(OURS)[0] for case in random.values()]
    rows.append(["the constants of this version, all", ", ".join(f"{v:g}" for v in OURS), *summary(ours)])
    title = "Chosen without a family, judged on ensembles with it (STS-B dev)"
    sections[title] = (["judged family", ", ".join(GRID), *_SUMMARY], rows)

    title = "How sure it is, and how often it is right (pairs of encoders of different families, STS-B dev)"
    sections[title] = _calibration(evidence, field)
    whole = [name for name in WHOLE if name in names]
    subsets = [members for size in (2, 3, 4) for members in combinations(whole, size)]
    for part in (DEV, TEST):
        title = f"All subsets of two to four of {len(whole)} whole encoders, {part}"
        sections[title] = _subsets(evidence, subsets, part)
    facts = ", ".join(f"{key} {value}" for key, value in provenance().items())
    text = "\n\n".join(f"## {title}\n\n{markdown_table(*cells)}" for title, cells in sections.items())
    note = (
        f"Fitted on {len(field.texts[TRAIN])} sentences of STS-B train, without scores; STS-B dev is a random part of "
        f"{len(evidence.gold(DEV))} pairs. Gains are points of Pearson's r / Spearman's rho over the best member, each "
        "for itself. svd and gcca have the dimension of the largest member. "
        f"Made with {facts}."
    )
    page = f"# A field of encoders\n\nPrinted and written by `python -m experiments.field`.\n\n{text}\n\n{note}\n"
    print(page)
    data = {title: {"columns": headers, "rows": cells} for title, (headers, cells) in sections.items()}
    write_results(out, "field", page, json.dumps(data | {"note": note}, indent=1) + "\n")


def _calibration(evidence: Evidence, field: Field) -> tuple[list[str], list[list[str]]]:
    from ensembed.reliability.trust_estimate import CONFIDENCE

    right: dict[int, list[bool]] = {}
    for a, b in combinations(evidence.names, 2):
        if field.members[a].family == field.members[b].family:
            continue
        places = [evidence.names.index(name) for name in (a, b)]
        s = float(evidence.standing(places)[0, 1])
        sure = 1 / (1 + np.exp(-CONFIDENCE * abs(s)))
        better = sum(evidence.alone(a, DEV)) > sum(evidence.alone(b, DEV))
        right.setdefault(min(int(sure * 10), 9), []).append(better == (s > 0))
    rows = [[f"{10 * k}% to {10 * k + 10}%", str(len(v)), f"{np.mean(v):.0%}"] for k, v in sorted(right.items())]
    return ["sure", "pairs", "right"], rows


def _subsets(evidence: Evidence, subsets: Sequence[tuple[str, ...]], part: str) -> tuple[list[str], list[list[str]]]:
    gains: dict[str, list[Matrix64]] = {}
    level, near, trusted = [], [], 0
    for members in subsets:
        case = Weighed(evidence, members)
        gain, best = case.gain(OURS, part)
        gains.setdefault("auto", []).append(gain)
        alone = sorted((sum(evidence.alone(name, part)) / 2 for name in members), reverse=True)
        trusted += sum(evidence.alone(best, part)) / 2 >= alone[0] - 0.5
        if alone[0] - alone[1] <= 4:
            level.append(gain)
        if len(members) > _MOST_COMPARED:
            continue
        gains.setdefault("auto, the same ensembles as below", []).append(gain)
        others = {name: scored - evidence.best_alone(members, part) for name, scored in compared(case, part).items()}
        for name, other in others.items():
            gains.setdefault(name, []).append(other)
        near.append(max(others[name].mean() for name in _PAPER) - gain.mean() <= 0.3)
    rows = [[name, *summary(values)] for name, values in gains.items()]
    rows.append(["auto, the two best within 4 points", *summary(level)])
    rows.append([f"auto within 0.3 of the best of {', '.join(_PAPER)}", f"{np.mean(near):.0%}", "", "", "", ""])
    rows.append(["the member trusted most is within 0.5 of the best", f"{trusted / len(subsets):.0%}", "", "", "", ""])
    return ["", *_SUMMARY], rows


def compared(case: Weighed, part: str) -> Mapping[str, Matrix64]:
    """Return the scores of the paper's methods, and of gcca with auto's weights, alone and beside the best member.

    What was fitted is kept, as the parts of gcca's vectors, to be weighed when it is read.
    """
    evidence, members = case.evidence, case.names
    path = evidence.field.folder / f"compared-{'+'.join(members)}.{part}.npz"
    if not path.exists():
        with new_file(path) as temporary, temporary.open("wb") as file:
            arrays: dict[str, Any] = dict(_fitted(case, part))
            np.savez(file, **arrays)
    with np.load(path, allow_pickle=False) as kept:
        found = {name: kept[name] for name in _PAPER}
        dots, lengths = kept["dots"], (kept["first"], kept["second"])
    b, factors = case.factors(OURS)
    scale = np.sqrt(factors[:, :2].prod(axis=1))
    weighed, *squares = (np.einsum("i,j,ijp->p", scale, scale, X) for X in (dots, *lengths))
    found[_GCCA] = weighed / np.sqrt(squares[0] * squares[1])
    best = evidence.cosines_of(members[b], part, soft=False)
    found["the best member beside that"] = best / best.std() + found[_GCCA] / found[_GCCA].std()
    return {name: scores(predicted, evidence.gold(part)) for name, predicted in found.items()}


def _fitted(case: Weighed, part: str) -> dict[str, Matrix64]:
    """Return the cosines of the paper's methods, and the products [J, J, pairs] of the members' parts of gcca."""
    evidence, members = case.evidence, case.names
    views = [evidence.vectors(name).astype(np.float32) for name in members]
    scored = [evidence.field.vectors(name, part) for name in members]
    rows = {text: row for row, text in enumerate(evidence.field.texts[part])}
    [pairs] = evidence.field.datasets[part].parts
    first, second = ([rows[text] for text in texts] for texts in (pairs.sentences1, pairs.sentences2))
    found: dict[str, Matrix64] = {}
    for name, method in _PAPER.items():
        meta = method.fit(views) if method.needs_rows else method.build([view.shape[1] for view in views])
        Z = unit_rows(meta.transform(scored).astype(np.float64))
        found[name] = np.einsum("ij,ij->i", Z[first], Z[second])
        if name == "gcca":
            alone = [[X if i == j else None for i, X in enumerate(scored)] for j in range(len(scored))]
            parts = [meta.transform(only).astype(np.float64) for only in alone]
            for key, left, right in (("dots", first, second), ("first", first, first), ("second", second, second)):
                found[key] = np.array([[np.einsum("ij,ij->i", P[left], Q[right]) for Q in parts] for P in parts])
    return found


if __name__ == "__main__":
    run(partial(main))
