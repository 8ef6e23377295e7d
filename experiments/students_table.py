"""`python -m experiments.students_table NAME=MODEL ...`: students, their teacher and its members, by quality and time.

Every MODEL is scored on STS-B dev, the test sets and the tasks beyond STS, and timed in the same run. `--teacher NAME`
is what students are compared with. Writes `students.md` and `students.json`. Vectors are kept in the store.

    python -m experiments.students_table --teacher teacher teacher=my-model six=onnx:six-onnx minilm=minilm
"""

from __future__ import annotations

import argparse
import json
import timeit
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ensembed.encoders.base import Encoder, FloatArray
from ensembed.models.opening import open_model
from ensembed.paper.findings import DEV
from ensembed.sts.find import TESTS, find_sts
from ensembed.sts.protocol import distinct_sentences, evaluate
from ensembed.support.progress import Progress, bars
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from ensembed.tasks import Task, TaskResults, evaluate_tasks
from ensembed.tasks.task import Texts
from ensembed.tasks.task_evaluation import text_vectors
from ensembed.views import ViewStore
from experiments import run, write_results
from experiments.tasks_sets import CHOICE, FINAL, load_sets

COMMAND = "python -m experiments.students_table"
_LAST = "stsb-test"
_TIMED, _REPEATS = 500, 3


@dataclass(frozen=True)
class Row:
    """A model: Pearson's r and Spearman's rho x 100 by STS set, the first figure x 100 of each task, and its time."""

    name: str
    dim: int
    milliseconds: float
    sts: Mapping[str, tuple[float, float]]
    tasks: Mapping[str, float]

    def mean(self) -> tuple[float, float]:
        """The mean of both correlations over the test sets."""
        pearson, spearman = np.mean([score for name, score in self.sts.items() if name != DEV], axis=0).tolist()
        return pearson, spearman


def correlations(model: Encoder, store: ViewStore, progress: Progress) -> dict[str, tuple[float, float]]:
    """Return the scores x 100 of STS-B dev and the test sets."""
    names = (DEV, *TESTS)
    sets = {name: find_sts(name) for name in names}
    texts = distinct_sentences(list(sets.values()))
    rows = text_vectors(model, Texts("text", tuple(texts)), store=store, progress=progress)
    place = {text: i for i, text in enumerate(texts)}

    def known(sentences: list[str]) -> FloatArray:
        return rows[[place[sentence] for sentence in sentences]]

    scores = {name: evaluate(known, one).score for name, one in sets.items()}
    return {name: (100 * score.pearson, 100 * score.spearman) for name, score in scores.items()}


def milliseconds(models: Mapping[str, Encoder]) -> dict[str, float]:
    """Return the time of a sentence under each model: the best of three calls, one model after the other."""
    texts = distinct_sentences([find_sts(_LAST)])
    sample = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[:_TIMED]]
    times = {}
    for name, model in models.items():
        model.encode(sample[:32])
        times[name] = 1000 * min(timeit.repeat(partial(model.encode, sample), number=1, repeat=_REPEATS)) / len(sample)
    return times


def task_scores(results: TaskResults, name: str) -> dict[str, float]:
    """Return the first figure x 100 of each task."""
    return {f"{one.task} {one.main}": 100 * one.figures[one.main].value for one in results.results[name]}


def page(rows: Sequence[Row], teacher: str, final: Sequence[str], notes: Sequence[str]) -> str:
    """Everything as Markdown."""
    [taught] = [row for row in rows if row.name == teacher]

    def kept(row: Row, labels: Sequence[str]) -> list[float]:
        return [100 * row.tasks[label] / taught.tasks[label] for label in labels]

    cells = []
    for row in rows:
        shares = kept(row, final)
        means = [float(np.mean([one.tasks[label] for label in final])) for one in (row, taught)]
        sts = [f"{r:.1f}/{rho:.1f}" for r, rho in (row.sts[DEV], row.mean(), row.sts[_LAST])]
        figures = [f"{means[0]:.1f}", f"{100 * means[0] / means[1]:.1f}%", f"{min(shares):.1f}%"]
        cells.append([row.name, str(row.dim), f"{row.milliseconds:.3f}", *sts, *figures])
    heads = ["", "dimensions", "ms", DEV, "mean of the tests", _LAST, "mean of tasks", "of the teacher's", "least"]
    labels = list(taught.tasks)
    names = [row.name for row in rows]
    each = [[label, *(f"{row.tasks[label]:.1f} ({kept(row, [label])[0]:.0f}%)" for row in rows)] for label in labels]
    return "\n\n".join(
        [
            "# Students, their teacher and its members",
            f"Written by `{COMMAND}`.",
            markdown_table(heads, cells),
            "## Tasks",
            markdown_table(["", *names], each),
            "\n".join(f"- {note}" for note in notes),
        ]
    )


def main(models: Mapping[str, str], teacher: str, notes: Sequence[str], out: Path) -> None:
    """Score, time, write."""
    opened = {name: open_model(model) for name, model in models.items()}
    tasks: dict[str, list[Task]] = {"final": load_sets(FINAL), "choice": load_sets(CHOICE)}
    every = [task for part in tasks.values() for task in part]
    store = ViewStore(wait=600)
    with bars() as progress:
        sts = {name: correlations(model, store, progress) for name, model in opened.items()}
        results = evaluate_tasks(opened, every, resamples=0, main_only=True, store=store, progress=progress)
    times = milliseconds(opened)
    rows = [
        Row(name, model.spec.dim, times[name], sts[name], task_scores(results, name)) for name, model in opened.items()
    ]
    final = list(rows[0].tasks)[: len(tasks["final"])]
    made = ", ".join(f"{key} {value}" for key, value in provenance().items())
    lines = [
        "Pearson's r / Spearman's rho x 100; the tests are STS12-16 (13 without SMT) and STS-B test, protocol mean.",
        "Tasks: nDCG@10, MAP, accuracy of the nearest centroid and V-measure x 100, on smaller sets, as in tasks.md.",
        f"Mean and least share of the teacher's figure are over the first {len(final)}; the others may be chosen on.",
        f"ms: the time of a sentence in a batch of {_TIMED}, all in one run.",
        *notes,
        f"Made with {made}.",
    ]
    data = {"provenance": provenance(), "teacher": teacher, "final": final, "rows": [asdict(row) for row in rows]}
    text = page(rows, teacher, final, lines) + "\n"
    print(text)
    write_results(out, "students", text, json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=COMMAND, description="Students, their teacher and its members.")
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    parser.add_argument("--teacher", required=True, help="the NAME that students are compared with")
    parser.add_argument("--note", action="append", default=[], help="a line below the tables, such as what taught whom")
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    named = dict(model.split("=", 1) for model in given.models)
    run(partial(main, named, given.teacher, given.note, given.out))
