"""`python -m experiments.distil_table CORPUS`: static students of an ensemble, by start and by amount of text.

Trains students on the unlabelled sentences of CORPUS, from cached views of the teacher's members, scores each on STS-B
dev and without labels, and writes `distil.md` and `distil.json`. With `--tests`, the test sets are scored once, too: of
the student that the dev set and the label-free figures chose, and of the catalogue's static encoder.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ensembed.corpora import open_corpus
from ensembed.corpora.corpus import Corpus
from ensembed.distil.distillation import Plan, distil
from ensembed.encoders import open_encoder
from ensembed.encoders.base import Encoder
from ensembed.methods import Concat
from ensembed.models.ensemble import Ensemble
from ensembed.paper.findings import DEV, mean_score
from ensembed.sts.find import TESTS, find_sts
from ensembed.sts.protocol import Result, Score, evaluate
from ensembed.support.atomic_files import write_atomically
from ensembed.support.file_limits import read_json
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, bars
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table, text_table
from experiments import run, write_results

COMMAND = "python -m experiments.distil_table"
PEER = "wordllama"  # the best static encoder of the catalogue


@dataclass(frozen=True)
class Row:
    """One student, or an encoder beside it."""

    label: str
    dev: Score
    figures: dict[str, Any] | None = None  # of the start and of the student, on held-out sentences
    seconds: float | None = None  # of processor time, from cached views to the saved student
    tests: tuple[Result, ...] = ()

    def cells(self) -> list[str]:
        """The row of a table."""
        kept = ["", "", ""]
        if self.figures is not None:
            figures = [self.figures[key] for key in ("start", "best", "saved")]
            kept = [f"{100 * each['overlap']:.1f}% {each['spearman']:.3f}" for each in figures]
        tests = str(mean_score([result.score for result in self.tests])) if self.tests else ""
        last = next((str(result.score) for result in self.tests if result.dataset == "stsb-test"), "")
        return [self.label, *kept, str(self.dev), tests, last, f"{self.seconds:.0f}" if self.seconds else ""]

    def to_json(self) -> dict[str, Any]:
        """Everything as data."""
        return {
            "label": self.label,
            "dev": self.dev.to_json(),
            "figures": self.figures,
            "seconds": self.seconds,
            "tests": [result.to_json() for result in self.tests],
        }


HEADERS = ["", "start", "trained", "whitened, as saved", DEV, "mean of the tests", "stsb-test", "processor s"]


def plans(sizes: Sequence[int | None], starts: Sequence[str], dim: int | None) -> dict[str, Plan]:
    """The students: every start on all sentences, and the last start on fewer."""
    made = {
        f"start {start}": Plan(dim=dim, start=None if start == "members" else tuple(start.split("+")))
        for start in starts
    }
    last = starts[-1]
    start = None if last == "members" else tuple(last.split("+"))
    for size in sizes:
        made[f"start {last}, {size:,} sentences"] = Plan(dim=dim, start=start, sentences=size)
    made[f"start {last}, not whitened"] = Plan(dim=dim, start=start, whiten=0.0)
    return made


def make_row(label: str, plan: Plan, teacher: Encoder, corpus: Corpus, folder: Path, progress: Progress) -> Row:
    """Train one student, unless that was done, and score it on STS-B dev."""
    out = student_folder(folder, label)
    made = out.with_suffix(".json")
    if not made.exists():
        begin = time.process_time()
        student = distil(teacher, corpus, plan, out, force=True, progress=progress)
        facts = {"figures": dict(student.result), "seconds": round(time.process_time() - begin, 1)}
        write_atomically(made, json.dumps(facts).encode())
    facts = read_json(made)
    dev = evaluate(open_encoder(f"model2vec:{out}").encode, find_sts(DEV)).score
    return Row(label, dev, facts["figures"], facts["seconds"])


def student_folder(folder: Path, label: str) -> Path:
    """The folder of a student."""
    return folder / re.sub(r"\W+", "-", label)


def page(rows: Sequence[Row], notes: Sequence[str]) -> str:
    """The results page."""
    table = markdown_table(HEADERS, [row.cells() for row in rows])
    facts = ", ".join(f"{key} {value}" for key, value in provenance().items())
    lines = ["# Static students", "", f"Written by `{COMMAND}`.", "", table, ""]
    return "\n".join([*lines, *(f"- {note}" for note in (*notes, f"Made with {facts}.")), ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, score, write."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("corpus", help="a file of unlabelled sentences")
    parser.add_argument("--members", default="gte-small,minilm", help="of the teacher")
    parser.add_argument("--weights", default="1,0.1", help="of the members")
    parser.add_argument(
        "--starts", default="none,members,members+wordllama", help="of the students; the last on all sizes"
    )
    parser.add_argument("--sizes", default="25000,50000", help="numbers of sentences, besides all")
    parser.add_argument("--dim", type=int, help="dimensions of the students")
    parser.add_argument("--tests", action="store_true", help="score the test sets, too")
    parser.add_argument("--students", type=Path, default=cache_dir() / "students", help="the folder they are saved in")
    parser.add_argument("--out", type=Path, default=Path("results"))
    chosen = parser.parse_args(arguments)
    members = chosen.members.split(",")
    weights = tuple(float(weight) for weight in chosen.weights.split(","))
    teacher = Ensemble(members).fit([], Concat(weights=weights))
    starts = [
        start.replace("members", "+".join(members)) if "+" in start else start for start in chosen.starts.split(",")
    ]
    sizes = [int(size) for size in chosen.sizes.split(",") if size]
    corpus = open_corpus(chosen.corpus)
    notes = [
        f"Teacher: {' and '.join(members)} with weights {chosen.weights}, concatenated, centred, projected.",
        f"Text: {len(corpus):,} sentences of {Path(chosen.corpus).name}.",
        "Start, trained, as saved: overlap at 10 with the teacher, and order of near pairs, on held-out sentences.",
        "Whitening lowers both figures and raises the scores: `--whiten 0` leaves it out.",
        "Scores are Pearson's r / Spearman's rho x 100. The student is chosen on STS-B dev; test sets are scored once.",
        "Processor seconds, of all cores together: from cached views to the saved student.",
    ]

    def write(rows: Sequence[Row]) -> None:
        data = {"provenance": provenance(), "teacher": members, "weights": weights}
        data |= {"rows": [row.to_json() for row in rows]}
        write_results(chosen.out, "distil", page(rows, notes), json.dumps(data, indent=1) + "\n")

    peer = open_encoder(PEER)
    rows = [Row(PEER, evaluate(peer.encode, find_sts(DEV)).score)]
    with bars() as progress:
        for label, plan in plans(sizes, starts, chosen.dim).items():
            rows.append(make_row(label, plan, teacher, corpus, chosen.students, progress))
            print(text_table(HEADERS, [rows[-1].cells()]), flush=True)
            write(rows)
    if chosen.tests:
        best = max(rows[1:], key=lambda row: row.dev.spearman)
        student = open_encoder(f"model2vec:{student_folder(chosen.students, best.label)}")
        tests = [find_sts(name) for name in TESTS]
        for row, encoder in ((rows[0], peer), (best, student)):
            rows[rows.index(row)] = replace(row, tests=tuple(evaluate(encoder.encode, test) for test in tests))
        write(rows)
    print(text_table(HEADERS, [row.cells() for row in rows]))


if __name__ == "__main__":
    run(main)
