"""Questions of our own and the tables that answer them. Not in the wheel: run them from a clone.

    python -m experiments.before_after      ranks of answers under members and ensemble: results/before_after.md
    python -m experiments.demo              the paper's main table on the default encoders (`make demo`)
    python -m experiments.dimensions_table  vectors truncated to 32, 64, ... dimensions: results/dimensions.md
    python -m experiments.distil_table      static students of an ensemble: results/distil.md
    python -m experiments.field             constants chosen with some encoders, judged with others: results/field.md
    python -m experiments.ensembles_table   every ensemble of five encoders: results/ensembles.md
    python -m experiments.hybrid_search     BM25 beside vectors, fused by ranks
    python -m experiments.long_texts        long texts: cut, or pooled from their chunks
    python -m experiments.students_table    students, their teacher and its members: results/students.md
    python -m experiments.reliability_sizes how many sentences show the best member: results/reliability-sizes.md
    python -m experiments.missing_table     ensembles without a member: results/missing.md
    python -m experiments.tasks_table       search, classes, clusters and pairs: results/tasks.md
    python -m experiments.tasks_ceiling     the most that weights could give on them: results/tasks-ceiling.md
    python -m experiments.translate_table   maps between encoders: results/translate.md
    python -m experiments.translate_ceiling non-linear maps between them: results/translate-ceiling.md
    python -m experiments.tuning_table      tuning on a few labelled pairs: results/tuning.md
    python -m experiments.weights_ceiling   weights chosen with the labels: results/weights-ceiling.md
    python -m experiments.words_table       word vectors under several poolings: results/words.md

They import the package; nothing in the package imports them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from ensembed.errors import EnsembedError
from ensembed.support.atomic_files import write_atomically


def write_results(out: Path, name: str, page: str, data: str) -> None:
    """Write `NAME.md` and `NAME.json` into a folder, and print their paths."""
    out.mkdir(exist_ok=True)
    paths = out / f"{name}.md", out / f"{name}.json"
    for path, text in zip(paths, (page, data), strict=True):
        write_atomically(path, text.encode())
    print(f"\nwritten: {paths[0]}, {paths[1]}")


def run(main: Callable[[], None]) -> None:
    """Run an experiment as a command: print warnings and errors as one line, and exit with status 1 after an error."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: what was encoded is kept, run the same command again to go on")
    except EnsembedError as error:
        sys.exit(f"error: {error}")
