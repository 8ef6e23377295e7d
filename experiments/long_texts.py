"""`python -m experiments.long_texts`: what `?long=chunk` gives on scifact's train queries and on cacm.

Prints nDCG@10 of encoders that cut long texts, take the mean of their chunks, or the largest value of each dimension,
with a paired bootstrap test against cutting. Collections are made smaller as in `tasks_table`.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np

from ensembed.encoders import open_encoder
from ensembed.paper.experiments.bootstrap import paired_p
from ensembed.support.progress import bars
from ensembed.support.text_tables import markdown_table
from ensembed.tasks import evaluate_tasks
from ensembed.views import ViewStore
from experiments import run
from experiments.tasks_sets import load_sets, write_tables

WAYS = ("cut", "chunk", "chunk-max")
_SETS = ("scifact:train", "cacm")


def main(encoders: list[str], out: Path) -> None:
    """Print the table and write `long-texts.md` and `long-texts.json`."""
    tasks = load_sets(_SETS)
    models = {f"{name}?long={way}": open_encoder(f"{name}?long={way}") for name in encoders for way in WAYS}
    with bars() as progress:
        results = evaluate_tasks(models, tasks, resamples=1000, main_only=True, store=ViewStore(), progress=progress)
    rows = []
    for model, scored in results.results.items():
        for result, reference in zip(scored, results.results[f"{model.partition('?')[0]}?long=cut"], strict=True):
            figure, base = result.figures[result.main], reference.figures[reference.main]
            differences = figure.resampled - base.resampled
            low, high = (100 * np.percentile(differences, (2.5, 97.5))).tolist()
            gain = (
                "" if model.endswith("cut") else f"{100 * (figure.value - base.value):+.1f} ({low:+.1f} to {high:+.1f})"
            )
            p = "" if model.endswith("cut") else f"{paired_p(differences):.3f}"
            rows.append([model, f"{result.task} {result.main}", f"{100 * figure.value:.1f}", gain, p])
    text = (
        f"# Long texts\n\nWritten by `python -m experiments.long_texts {' '.join(encoders)}`. nDCG@10 x 100; gains "
        "over cutting with 95% intervals and p of a paired bootstrap test. Collections are made smaller as in "
        "tasks.md.\n\n" + markdown_table(["", "set", "score", "against cut", "p"], rows, left=2)
    )
    write_tables(out, "long-texts", text, rows, tasks)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Long texts: cut, or pooled from chunks.")
    parser.add_argument("encoders", nargs="*", default=["use-lite", "minilm"])
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    run(partial(main, given.encoders, given.out))
