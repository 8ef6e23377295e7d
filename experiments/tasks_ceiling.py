"""`python -m experiments.tasks_ceiling`: the most that weights could give on the final sets of `tasks_table`.

The weights and whitenings are chosen with the labels of the final sets themselves: an upper bound, and no method. One
setting for all sets is what any `Auto` with one setting could reach, one setting for each set what a purpose that names
the set could. Reads `results/tasks.json`, writes `tasks-ceiling.md` and `tasks-ceiling.json`. What was computed before
is kept in the cache.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ensembed.corpora.corpus import ListCorpus
from ensembed.models.model_vectors import model_vectors
from ensembed.paper.named_corpora import STSB_TRAIN, open_corpora
from ensembed.paper.notebook import Notebook, from_json, to_json
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, bars
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from ensembed.views import ViewStore
from experiments import run, write_results
from experiments.tasks_mixtures import ROUGH_CLUSTERS, ROUGH_DIMENSIONS, ROUGH_RUNS, Part, Setting, Vectors, mixtures
from experiments.tasks_sets import FINAL, load_sets
from experiments.tasks_table import AUTO, Row, Tables, label_of

FACTORS = (0.0, 0.25, 0.5, 2.0, 4.0)
"""Factors of a member's weight that are tried."""
ROUNDS = 3
WANTED = 2.0
"""The mean gain that the project asks for."""

_COMMAND = "python -m experiments.tasks_ceiling"


@dataclass(frozen=True)
class Found:
    """A setting, by member and whether it is whitened, and the scores x 100 that it gives."""

    setting: dict[str, float]
    scores: dict[str, float]


@dataclass(frozen=True)
class Ceiling:
    """What the best settings of an ensemble give: one for all sets, and one for each."""

    members: tuple[str, ...]
    conc: dict[str, float]  # as in the table of tasks
    auto: dict[str, float]  # likewise
    common: Found
    each: dict[str, Found]  # by set; its scores have this set alone


@dataclass(frozen=True)
class Ceilings:
    """Everything that the page shows."""

    provenance: dict[str, str]
    singles: dict[str, dict[str, float]]
    rows: tuple[Ceiling, ...]


def climb(score: Callable[[Setting], float], setting: dict[Part, float], first: str, rounds: int) -> dict[Part, float]:
    """Return the best setting that changing one member at a time finds: its weight, and whether it is whitened.

    The weight of the member `first` stays as it is.
    """
    best, height = setting, score(setting)
    for _ in range(rounds):
        before = best
        for name in [name for name, _ in setting]:
            [(whitened, weight)] = [(part[1], value) for part, value in best.items() if part[0] == name]
            changes = [(not whitened, weight)]
            if name != first:
                changes += [(whitened, weight * factor) for factor in FACTORS]
            for part, value in changes:
                tried = {**{own: w for own, w in best.items() if own[0] != name}, (name, part): value}
                if (reached := score(tried)) > height:
                    best, height = tried, reached
        if best == before:
            break
    return best


class Experiment:
    """Searches the settings of every ensemble in the table of tasks."""

    def __init__(self, tables: Tables, notebook: Notebook, progress: Progress) -> None:
        self.tables, self.notebook, self.progress = tables, notebook, progress
        store, members = ViewStore(wait=600), list(tables.singles)
        self.vectors = Vectors(members, store)
        [named] = open_corpora([STSB_TRAIN])
        corpus = ListCorpus(list(named.corpus))
        views = model_vectors(corpus, list(self.vectors.encoders.values()), store, progress=progress)
        for name, view in zip(members, views, strict=True):
            self.vectors.whiten(name, np.asarray(view[0 : view.shape[0]]))
        tasks = [task for task in load_sets(FINAL) if label_of(task) in tables.part("final")]
        self.fingerprints = [task.fingerprint for task in tasks]
        self.sets = {label_of(task): mixtures(task, self.vectors) for task in tasks}
        self.singles = {name: self._final(scores) for name, scores in tables.singles.items()}

    def run(self) -> Ceilings:
        """Search everything."""
        rows = []
        for i, row in enumerate(self.tables.rows):
            self.progress("ensembles", i, len(self.tables.rows))
            facts: list[Any] = [[self.vectors.encoders[name].spec.key for name in row.members], self.fingerprints]
            facts += [[FACTORS, ROUNDS, ROUGH_CLUSTERS, ROUGH_RUNS, ROUGH_DIMENSIONS], row.auto.weights]
            rows.append(self.notebook.record(Ceiling, facts, partial(self.ceiling, row)))
        self.progress("ensembles", len(rows), len(rows))
        return Ceilings(provenance(), self.singles, tuple(rows))

    def ceiling(self, row: Row) -> Ceiling:
        """Search the settings of an ensemble."""
        known: dict[tuple[str, frozenset[tuple[Part, float]]], float] = {}

        def rough(labels: Sequence[str], setting: Setting) -> float:
            used = {part: weight for part, weight in setting.items() if weight}
            for label in labels:
                if (label, frozenset(used.items())) not in known:
                    known[label, frozenset(used.items())] = self.sets[label].rough(used)
            return float(np.mean([known[label, frozenset(used.items())] for label in labels]))

        weights = row.auto.weights
        first = max(row.members, key=weights.__getitem__)
        # Members that auto leaves out may come back.
        start: dict[Part, float] = {(name, name != first): max(weights[name], 0.01) for name in row.members}
        common = climb(partial(rough, list(self.sets)), start, first, ROUNDS)
        conc, auto = (self._final(row.methods[method].scores) for method in ("conc", AUTO))
        others = {**{name: self.singles[name] for name in row.members}, "conc": conc, AUTO: auto}
        reached = Found(_named(common), {label: some.score(_used(common)) for label, some in self.sets.items()})
        best = max([reached, *(Found({name: 1.0}, scores) for name, scores in others.items())], key=_of)
        each = {}
        for label, some in self.sets.items():
            setting = climb(partial(rough, [label]), common, first, 1)
            own = Found(_named(setting), {label: some.score(_used(setting))})
            rest = [Found({name: 1.0}, {label: scores[label]}) for name, scores in others.items()]
            each[label] = max([own, Found(reached.setting, {label: reached.scores[label]}), *rest], key=_of)
        return Ceiling(row.members, conc, auto, best, each)

    def _final(self, scores: Mapping[str, float]) -> dict[str, float]:
        return {label: scores[label] for label in self.sets}


def _used(setting: Setting) -> dict[Part, float]:
    return {part: weight for part, weight in setting.items() if weight}


def _named(setting: Setting) -> dict[str, float]:
    """Return a setting as JSON can hold it."""
    return {f"{name}{' whitened' if whitened else ''}": weight for (name, whitened), weight in _used(setting).items()}


def _of(found: Found) -> float:
    return _mean(found.scores)


def _mean(scores: dict[str, float]) -> float:
    return float(np.mean(list(scores.values())))


def gains(ceilings: Ceilings) -> dict[str, list[float]]:
    """Return by how many points each way is above the best member, and the better of it and conc, by ensemble."""
    names = ("common", "common beside conc", "each", "each beside conc", "auto", "auto beside conc")
    values: dict[str, list[float]] = {name: [] for name in names}
    for row in ceilings.rows:
        best = max(_mean(ceilings.singles[name]) for name in row.members)
        better = max(best, _mean(row.conc))
        each = float(np.mean([found.scores[label] for label, found in row.each.items()]))
        reached = {"common": _mean(row.common.scores), "each": each, AUTO: _mean(row.auto)}
        for name, mean in reached.items():
            values[name].append(mean - best)
            values[f"{name} beside conc"].append(mean - better)
    return values


def summary(ceilings: Ceilings) -> list[str]:
    """The sentences worth repeating, all of them computed."""
    values, lines = gains(ceilings), []
    ways = {
        "common": "One setting for all sets, chosen with their labels,",
        "each": "One setting for each set, chosen with its labels,",
        AUTO: "auto, which sees no labels,",
    }
    for name, what in ways.items():
        gain, beside = values[name], values[f"{name} beside conc"]
        lines.append(
            f"{what} is at {np.mean(gain):+.2f} points over the best member in the mean ({min(gain):+.2f} to "
            f"{max(gain):+.2f}), at {WANTED:+.1f} or above in {sum(value >= WANTED for value in gain)} of {len(gain)} "
            f"ensembles, and at {np.mean(beside):+.2f} over the better of conc and the best member "
            f"({min(beside):+.2f} at worst)."
        )
    lines.append(f"auto reaches {np.mean(values[AUTO]) / np.mean(values['common']):.0%} of the gain of the first.")
    return lines


def page(ceilings: Ceilings) -> str:
    """Everything as Markdown."""
    facts = ", ".join(f"{key} {value}" for key, value in ceilings.provenance.items())
    factors = ", ".join(f"{factor:g}" for factor in FACTORS)
    how = (
        "Sets, encoders and the figures of members, conc and auto are those of `tasks.md`. The search starts "
        f"at the weights of auto and changes one member at a time, at most {ROUNDS} rounds: its weight (times "
        f"{factors}), and whether it is softly whitened. It looks at the labels of the final sets: what it finds is a "
        "bound for weights on these sets, and no method. From its result one more round for each set gives that set's "
        "own setting. Where a member, conc or auto is better than what was found, that one counts. It is a search and "
        "not a proof: a finer one would find a little more."
    )
    rough = (
        f"While it searches, k-means runs in the {ROUGH_DIMENSIONS} leading directions of each member, with seeds of "
        "its own; the figures shown are those of k-means as `tasks.md` has it. Whitenings are those of STS-B train."
    )
    command = f"{_COMMAND} --members {','.join(ceilings.singles)}"
    return "\n\n".join(
        [
            f"# How much weights could give on tasks\n\nWritten by `{command}`.",
            "\n".join(f"- {line}" for line in summary(ceilings)),
            "## Mean of the final sets\n\n" + _means(ceilings),
            "## The settings for all sets\n\n" + _settings(ceilings),
            f"- {how}\n- {rough}\n- Made with {facts}.\n",
        ]
    )


def _means(ceilings: Ceilings) -> str:
    values = gains(ceilings)
    rows = []
    for i, row in enumerate(ceilings.rows):
        best = max(row.members, key=lambda name: _mean(ceilings.singles[name]))
        ways = [way for name in (AUTO, "common", "each") for way in (name, f"{name} beside conc")]
        cells = [f"{values[way][i]:+.2f}" for way in ways]
        single = f"{best} {_mean(ceilings.singles[best]):.1f}"
        rows.append([" + ".join(row.members), single, f"{_mean(row.conc):.1f}", *cells])
    head = ["auto", "beside conc", "one setting", "beside conc", "one for each", "beside conc"]
    words = "Gains over the best member, and over the better of conc and the best member (beside conc).\n\n"
    return words + markdown_table(["", "best member", "conc", *head], rows)


def _settings(ceilings: Ceilings) -> str:
    names = list(ceilings.singles)
    rows = []
    for row in ceilings.rows:
        cells = []
        for name in names:
            plain, whitened = (row.common.setting.get(f"{name}{end}") for end in ("", " whitened"))
            cells.append(
                "" if plain is whitened is None else f"{plain:.3g}" if whitened is None else f"{whitened:.3g} w"
            )
        way = next((way for way in ("conc", AUTO) if way in row.common.setting), "")
        rows.append([" + ".join(row.members), way, *cells])
    return "w: softly whitened. conc and auto: nothing better was found.\n\n" + markdown_table(["", "", *names], rows)


def main(members: Sequence[str], results: Path, out: Path, *, fresh: bool = False) -> None:
    """Write `tasks-ceiling.md` and `tasks-ceiling.json`."""
    tables = from_json(Tables, (results / "tasks.json").read_bytes())
    wanted = [name for name in tables.singles if not members or name in members]
    singles = {name: tables.singles[name] for name in wanted}
    tables = replace(tables, singles=singles, rows=tuple(row for row in tables.rows if set(row.members) <= set(wanted)))
    with bars() as progress:
        ceilings = Experiment(tables, Notebook(cache_dir() / "tasks-ceiling", fresh, progress), progress).run()
    print(page(ceilings))
    write_results(out, "tasks-ceiling", page(ceilings), to_json(Ceilings, ceilings, indent=1).decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=_COMMAND, description="The most that weights could give on tasks.")
    parser.add_argument("--members", help="the ensembles of these encoders alone, with commas between them")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of tasks.json")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--fresh", action="store_true", help="compute again what was computed before")
    given = parser.parse_args()
    names = given.members.split(",") if given.members else []
    run(partial(main, names, given.results, given.out, fresh=given.fresh))
