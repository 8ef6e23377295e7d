"""`python -m experiments.tasks_table`: members, methods and rank fusion on tasks beyond STS.

Every method is fitted on the unlabelled sentences of STS-B train, as in `ensembles_table`. Writes `tasks.md` and
`tasks.json`. Vectors are kept in the store and finished ensembles in the cache: run it again after an interruption.
`--members gte-small,minilm` takes the ensembles of these encoders alone, `--sets trecqa:dev,trecqa` these sets alone.
All subsets of two to four members are ensembles. The methods of the paper are fitted where all members are `PAPER`'s.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ensembed
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders import open_encoder
from ensembed.encoders.base import FloatArray
from ensembed.methods import make_method
from ensembed.models.ensemble import Ensemble, MetaEncoder
from ensembed.paper.named_corpora import STSB_TRAIN, open_corpora
from ensembed.paper.notebook import Notebook, to_json
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, bars
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from ensembed.tasks import Ranking, Task, TaskResult, TaskResults, evaluate_tasks
from ensembed.tasks.task import Figure
from ensembed.tasks.task_evaluation import text_vectors
from ensembed.views import ViewStore
from experiments import run, write_results
from experiments.tasks_sets import CHOICE, DOCUMENTS, FINAL, LABELLED, load_sets

PAPER = ("gte-small", "minilm", "use-lite", "wordllama")
"""Ensembles of these members are scored with all methods, others with conc and auto."""
MEMBERS = (*PAPER, "mpnet-int8")
METHODS = ("conc", "avg", "svd", "gcca", "auto")
AUTO = "auto"
LARGEST = 4
"""Members of an ensemble at most."""
ALLOWED = 0.5
"""Points that a single task may lose beyond its interval."""
RESAMPLES = 500
FUSION = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009)."""

_COMMAND = "python -m experiments.tasks_table"
_TIMED = 200


@dataclass(frozen=True)
class Gain:
    """How far a method is above the best member on the mean of some sets: points, and their 95% interval."""

    points: float
    low: float
    high: float


@dataclass(frozen=True)
class Scored:
    """A method on an ensemble: its score x 100 on each set, gains over the best member, and the members' weights."""

    scores: dict[str, float]
    gains: dict[str, Gain]  # on the mean of the sets "choice" and "final"
    losses: dict[str, Gain]  # by set, over the member that is best on the mean of its part
    weights: dict[str, float]


@dataclass(frozen=True)
class Row:
    """An ensemble: what each method gives, and rank fusion on sets with rankings."""

    members: tuple[str, ...]
    methods: dict[str, Scored]
    fused: dict[str, float]

    @property
    def auto(self) -> Scored:
        """What auto gives."""
        return self.methods[AUTO]


@dataclass(frozen=True)
class Tables:
    """Everything that the page shows."""

    provenance: dict[str, str]
    sets: dict[str, dict[str, str]]  # by label: part, kind, figure, items
    singles: dict[str, dict[str, float]]
    milliseconds: dict[str, float]  # of one sentence
    rows: tuple[Row, ...]

    def part(self, part: str) -> list[str]:
        """The labels of the sets to choose on, or of the final ones."""
        return [label for label, facts in self.sets.items() if facts["part"] == part]

    def mean(self, scores: Mapping[str, float], part: str) -> float:
        """The mean of scores over a part of the sets."""
        return float(np.mean([scores[label] for label in self.part(part)]))

    def best(self, row: Row, part: str) -> tuple[str, float]:
        """The member with the best mean, and that."""
        means = {name: self.mean(self.singles[name], part) for name in row.members}
        name = max(means, key=means.__getitem__)
        return name, means[name]


def label_of(result: TaskResult | Task) -> str:
    """The name of a set and its figure."""
    if isinstance(result, Task):
        return f"{result.name} {result.measures[0]}"
    return f"{result.task} {result.main}"


def fuse(task: Ranking, rankings: Sequence[Sequence[NDArray[np.int64]]]) -> float:
    """Return the score x 100 of reciprocal rank fusion of the members' rankings, by member and query."""
    fused = []
    for query, lists in enumerate(zip(*rankings, strict=True)):
        scores = np.zeros(len(task.documents))
        for ranking in lists:
            scores[ranking] += 1 / (FUSION + 1 + np.arange(len(ranking)))
        fused.append(task.rank_scores(query, scores))
    statistic = task.measure_rankings(task.measures[0], fused)
    return 100 * float(statistic(np.ones((1, task.items)))[0])


class Experiment:
    """Scores members once, and every ensemble of them."""

    def __init__(self, members: Sequence[str], sets: Sequence[str], notebook: Notebook, progress: Progress) -> None:
        self.members, self.notebook, self.progress = tuple(members), notebook, progress
        self.store = ViewStore(wait=600)
        [named] = open_corpora([STSB_TRAIN])
        self.corpus = ListCorpus(list(named.corpus))
        parts = {"choice": CHOICE, "final": FINAL}
        self.parts = {part: _sets_of(names, sets) for part, names in parts.items()}
        self.tasks = [task for tasks in self.parts.values() for task in tasks]
        self.encoders = {name: open_encoder(name) for name in self.members}
        how: dict[str, Any] = {"resamples": RESAMPLES, "main_only": True, "store": self.store, "progress": progress}
        self.how = how
        self.singles = evaluate_tasks(self.encoders, self.tasks, **how)
        rankings = [task for task in self.tasks if isinstance(task, Ranking)]
        self.rankings = {
            (name, label_of(task)): task.rank(*(self._vectors(name, task, what) for what in ("queries", "documents")))
            for name in self.members
            for task in rankings
        }

    def run(self) -> Tables:
        """Score everything."""
        sizes = range(2, min(LARGEST, len(self.members)) + 1)
        groups = [group for n in sizes for group in itertools.combinations(self.members, n)]
        # The paper's members first: whoever stops the run early has these.
        groups.sort(key=lambda group: not set(group) <= set(PAPER))
        rows = []
        for i, group in enumerate(groups):
            self.progress("ensembles", i, len(groups))
            methods = METHODS if set(group) <= set(PAPER) else ("conc", AUTO)
            rows.append(Row(group, {method: self.method(group, method) for method in methods}, self.fused(group)))
        self.progress("ensembles", len(groups), len(groups))
        singles = {name: _scores(results) for name, results in self.singles.results.items()}
        times = {name: self.milliseconds(name) for name in self.members}
        return Tables(provenance(), self.sets(), singles, times, tuple(rows))

    def sets(self) -> dict[str, dict[str, str]]:
        """Facts of every set."""
        return {
            label_of(task): {"part": part, "kind": task.kind, "figure": task.measures[0], "items": str(task.items)}
            for part, tasks in self.parts.items()
            for task in tasks
        }

    def method(self, group: tuple[str, ...], method: str) -> Scored:
        """Score a method on an ensemble, or return what was recorded before."""
        encoders = [self.encoders[name] for name in group]
        # Fitting auto takes longest, so that its record is found by the code instead of by the fitted model.
        what = _code() if method == AUTO else self._fit(Ensemble(encoders), method).spec.key
        facts = [method, what, [encoder.spec.key for encoder in encoders], RESAMPLES, list(self.corpus)]
        facts.append([task.fingerprint for task in self.tasks])
        return self.notebook.record(Scored, facts, partial(self.score, group, method))

    def score(self, group: tuple[str, ...], method: str) -> Scored:
        """Score a method on an ensemble."""
        model = self._fit(Ensemble([self.encoders[name] for name in group]), method)
        results = evaluate_tasks({method: model}, self.tasks, **self.how)
        both = TaskResults(
            {**results.results, **{name: self.singles.results[name] for name in group}}, frozenset([method])
        )
        gains: dict[str, Gain] = {}
        losses: dict[str, Gain] = {}
        for part, tasks in self.parts.items():
            labels = [label_of(task) for task in tasks]
            gains[part], by_set = _gains(both, method, labels)
            losses |= by_set
        return Scored(_scores(results.results[method]), gains, losses, model.weights)

    def fused(self, group: tuple[str, ...]) -> dict[str, float]:
        """Return the scores of rank fusion."""
        rankings = [task for task in self.tasks if isinstance(task, Ranking)]
        return {
            label_of(task): fuse(task, [self.rankings[name, label_of(task)] for name in group]) for task in rankings
        }

    def _fit(self, ensemble: Ensemble, method: str) -> MetaEncoder:
        largest = max(ensemble.dims)
        options = {"dim": largest} if method in ("svd", "gcca") else {}
        return ensemble.fit(self.corpus, make_method(method, **options), store=self.store, progress=self.progress)

    def _vectors(self, name: str, task: Ranking, what: str) -> FloatArray:
        return text_vectors(self.encoders[name], task.texts()[what], store=self.store)

    def milliseconds(self, name: str) -> float:
        """Measure the time of one sentence, encoded in batches."""
        texts = [text for _, text in zip(range(_TIMED), self.corpus, strict=False)]
        self.encoders[name].encode(texts[:8])
        start = time.perf_counter()
        self.encoders[name].encode(texts)
        return 1000 * (time.perf_counter() - start) / len(texts)


def _sets_of(names: Sequence[str], wanted: Sequence[str]) -> list[Task]:
    """Return the tasks of these sets that are wanted: by the name of the set, or by it and the figure."""
    tasks = load_sets(tuple(name for name in names if any(want.split(" ")[0] == name for want in wanted)))
    return [task for task in tasks if task.name in wanted or label_of(task) in wanted]


def _scores(results: Sequence[TaskResult]) -> dict[str, float]:
    return {label_of(result): 100 * result.figures[result.main].value for result in results}


def _code() -> str:
    """Return the hash of the code that decides what auto is."""
    root = Path(ensembed.__file__).parent
    files = sorted(path for room in ("methods", "reliability", "numerics") for path in (root / room).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _gains(results: TaskResults, model: str, labels: Sequence[str]) -> tuple[Gain, dict[str, Gain]]:
    """Return how far a model is above the member with the best mean on these sets: by the mean, and by each set."""
    some = {name: [result for result in given if label_of(result) in labels] for name, given in results.results.items()}
    part = TaskResults(some, results.ensembles)
    best = max((name for name in some if name != model), key=lambda name: part.mean(name).value)
    pairs = [
        (label_of(own), own.figures[own.main], other.figures[other.main])
        for own, other in zip(some[model], some[best], strict=True)
    ]
    by_set = {label: _gain(own, other) for label, own, other in pairs}
    return _gain(part.mean(model), part.mean(best)), by_set


def _gain(own: Figure, other: Figure) -> Gain:
    low, high = (100 * np.percentile(own.resampled - other.resampled, (2.5, 97.5))).tolist()
    return Gain(100 * (own.value - other.value), low, high)


def summary(tables: Tables) -> list[str]:
    """The sentences worth repeating, all of them computed."""
    lines = []
    for part, what in (("final", "the final sets"), ("choice", "the sets that may be chosen on")):
        gains = [row.auto.gains[part].points for row in tables.rows]
        level = sum(gain >= -0.1 for gain in gains)
        left = [
            tables.mean(row.auto.scores, part)
            - max(tables.mean(row.methods["conc"].scores, part), tables.best(row, part)[1])
            for row in tables.rows
        ]
        lines.append(
            f"On the mean of {what} auto is at or above its best member (0.1 allowed for noise) in {level} of "
            f"{len(gains)} ensembles, by {np.mean(gains):+.2f} points in the mean ({min(gains):+.2f} to "
            f"{max(gains):+.2f}); against the better of conc and the best member it is at {np.mean(left):+.2f} in the "
            f"mean, {min(left):+.2f} at worst, and below it by more than 0.3 in {sum(gap < -0.3 for gap in left)}."
        )
    lines += [_losses(tables), *(_of_method(tables, method) for method in METHODS[:-1])]
    ranked = [label for label in tables.part("final") if label in tables.rows[0].fused]
    if not ranked:
        return lines
    differences = [row.fused[label] - row.auto.scores[label] for row in tables.rows for label in ranked]
    lines.append(
        f"Reciprocal rank fusion of the members' lists is {np.mean(differences):+.2f} from auto in the mean over "
        f"{len(ranked)} final sets with rankings ({', '.join(ranked)})."
    )
    return lines


def _losses(tables: Tables) -> str:
    """Say how often auto loses on a single final set, against the member that is best on their mean."""
    cells = [(label, row.auto.losses[label]) for row in tables.rows for label in tables.part("final")]
    lost = [label for label, gain in cells if gain.high < -ALLOWED]
    names = ", ".join(f"{label} {lost.count(label)}" for label in dict.fromkeys(lost))
    return (
        f"Of {len(cells)} single results on final sets auto loses more than {ALLOWED} points beyond the interval, "
        f"against the member that is best on the mean, in {len(lost)}{f' ({names})' if names else ''}."
    )


def _of_method(tables: Tables, method: str) -> str:
    gains = [row.methods[method].gains["final"].points for row in tables.rows if method in row.methods]
    return (
        f"{method} on the final sets: at or above the best member in {sum(gain >= -0.1 for gain in gains)} of "
        f"{len(gains)}, {np.mean(gains):+.2f} in the mean, {min(gains):+.2f} at worst."
    )


def page(tables: Tables) -> str:
    """Everything as Markdown."""
    facts = ", ".join(f"{key} {value}" for key, value in tables.provenance.items())
    made = f"Printed and written by `{_COMMAND} --members {','.join(tables.singles)}`, on the sets below."
    parts = [
        f"# Search, reranking, classes, clusters and pairs\n\n{made}",
        "\n".join(f"- {line}" for line in summary(tables)),
        "## The members\n\n" + _members(tables),
    ]
    for part, title in (("final", "Final sets"), ("choice", "Sets that may be chosen on")):
        parts.append(f"## {title}: mean of every ensemble\n\n" + _means(tables, part))
        parts.append(f"## {title}: every set\n\n" + _each(tables, part))
    if tables.rows[0].fused:
        parts.append("## Fusing ranks\n\n" + _fusion(tables))
    parts.append("## Weights that auto found\n\n" + _weights(tables))
    sizes = (
        f"Figures x 100. Collections have at most {DOCUMENTS} documents (all judged ones, others at random), sets "
        f"with labels at most {LABELLED} texts, so that two cores can make the table: figures of search are higher "
        "than on whole collections. `ensembed evaluate --task scifact` scores the whole one."
    )
    fits = (
        "Every method is fitted on the distinct sentences of STS-B train, without labels; svd and gcca (tau 10) have "
        f"the dimension of the largest member. They and avg were fitted for ensembles of {', '.join(PAPER)}. The "
        "autoencoder is not among them."
    )
    gain = "Gain: over the member that is best on the mean of these sets, with a 95% paired bootstrap interval."
    costs = (
        "ms: milliseconds per sentence of STS-B train in this run, members one after the other; an ensemble costs "
        "their sum, and the combination next to nothing."
    )
    notes = [sizes, fits, gain, costs, f"Made with {facts}."]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)]) + "\n"


def _members(tables: Tables) -> str:
    labels = [*tables.part("final"), *tables.part("choice")]
    rows = [
        [
            name,
            f"{tables.milliseconds[name]:.2f}",
            f"{tables.mean(scores, 'final'):.1f}",
            f"{tables.mean(scores, 'choice'):.1f}",
            *(f"{scores[label]:.1f}" for label in labels),
        ]
        for name, scores in tables.singles.items()
    ]
    return markdown_table(["", "ms", "final", "choice", *labels], rows)


def _means(tables: Tables, part: str) -> str:
    rows = []
    for row in tables.rows:
        name, best = tables.best(row, part)
        gain = row.auto.gains[part]
        methods = [
            f"{tables.mean(row.methods[method].scores, part):.1f}" if method in row.methods else ""
            for method in METHODS
        ]
        cost = sum(tables.milliseconds[member] for member in row.members)
        interval = f"{gain.points:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})"
        rows.append([" + ".join(row.members), f"{cost:.1f}", f"{name} {best:.1f}", *methods, interval])
    return markdown_table(["", "ms", "best member", *METHODS, "gain of auto"], rows)


def _each(tables: Tables, part: str) -> str:
    labels = tables.part(part)
    rows = []
    for row in tables.rows:
        best = {label: max(tables.singles[name][label] for name in row.members) for label in labels}
        given = {"best member of the set": best} | {method: scored.scores for method, scored in row.methods.items()}
        for method, scores in given.items():
            name = " + ".join(row.members) if method == next(iter(given)) else ""
            rows.append([name, method, *(f"{scores[label]:.1f}" for label in labels)])
    return markdown_table(["", "", *labels], rows, left=2)


def _fusion(tables: Tables) -> str:
    labels = [label for label in tables.sets if label in tables.rows[0].fused]
    rows = [
        [" + ".join(row.members), *(f"{row.fused[label]:.1f} ({row.auto.scores[label]:.1f})" for label in labels)]
        for row in tables.rows
    ]
    return "Reciprocal rank fusion, and auto in brackets.\n\n" + markdown_table(["", *labels], rows)


def _weights(tables: Tables) -> str:
    names = list(tables.singles)
    rows = [
        [" + ".join(row.members), *(f"{weights[name]:.3f}" if name in weights else "" for name in names)]
        for row, weights in ((row, row.auto.weights) for row in tables.rows)
    ]
    return markdown_table(["", *names], rows)


def main(members: Sequence[str], sets: Sequence[str], out: Path, name: str, *, fresh: bool = False) -> None:
    """Write `NAME.md` and `NAME.json`."""
    with bars() as progress:
        tables = Experiment(members, sets, Notebook(cache_dir() / "tasks", fresh, progress), progress).run()
    print(page(tables))
    write_results(out, name, page(tables), to_json(Tables, tables, indent=1).decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=_COMMAND, description="Members, methods and fusion on tasks beyond STS.")
    parser.add_argument("--members", default=",".join(MEMBERS), help="encoders, with commas between them")
    parser.add_argument(
        "--sets", default=",".join((*CHOICE, *FINAL)), help="sets, or sets with a figure ('agnews knn')"
    )
    parser.add_argument("--name", default="tasks", help="name of the two files")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--fresh", action="store_true", help="compute again what was computed before")
    given = parser.parse_args()
    lists = given.members.split(","), given.sets.split(",")
    run(partial(main, *lists, given.out, given.name, fresh=given.fresh))
