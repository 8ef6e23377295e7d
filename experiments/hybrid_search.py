"""`python -m experiments.hybrid_search`: does BM25 beside vectors find more? On the sets that may be chosen on.

Ranks are fused by reciprocal rank fusion. BM25 (k1 1.2, b 0.75, scikit-learn's words, English stop words left out) is
computed here for the question alone; a product would take an engine that exists.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer

from ensembed.encoders import open_encoder
from ensembed.models.ensemble import Ensemble
from ensembed.paper.named_corpora import STSB_TRAIN, open_corpora
from ensembed.support.text_tables import markdown_table
from ensembed.tasks import Ranking
from ensembed.tasks.task_evaluation import text_vectors
from ensembed.views import ViewStore
from experiments import run
from experiments.tasks_sets import load_sets, write_tables
from experiments.tasks_table import fuse

_SETS = ("scifact:train", "trecqa:dev")
_K1, _B = 1.2, 0.75


def bm25_rankings(task: Ranking) -> list[NDArray[np.int64]]:
    """Return the documents of each judged query by BM25 (Robertson and Zaragoza 2009)."""
    words = CountVectorizer(stop_words="english")
    counts = words.fit_transform(task.documents).tocsc().astype(np.float64)
    queries = words.transform(task.texts()["queries"].texts)
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    norm = _K1 * (1 - _B + _B * lengths / lengths.mean())
    found = np.diff(counts.indptr)
    idf = np.log(1 + (len(lengths) - found + 0.5) / (found + 0.5))
    counts.data = counts.data * (_K1 + 1) / (counts.data + norm[counts.indices]) * np.repeat(idf, found)
    scores = np.asarray((queries.astype(bool).astype(np.float64) @ counts.T).todense())
    return [task.rank_scores(query, row) for query, row in enumerate(scores)]


def rows_of(members: Sequence[str], tasks: Sequence[Ranking], store: ViewStore) -> list[list[str]]:
    """Return the scores of one ensemble: each list alone, and lists together."""
    encoders = [open_encoder(name) for name in members]
    models = dict(zip(members, encoders, strict=True))
    [named] = open_corpora([STSB_TRAIN])
    models["auto"] = Ensemble(encoders).fit(named.corpus, "auto", store=store)
    rows = []
    for task in tasks:
        lists = {"bm25": bm25_rankings(task)}
        for name, model in models.items():
            texts = task.texts()
            Q, D = (text_vectors(model, texts[what], store=store) for what in ("queries", "documents"))
            lists[name] = task.rank(Q, D)
        given = {name: [name] for name in lists}
        given |= {" + ".join(members): list(members)}
        given |= {f"bm25 + {name}": ["bm25", name] for name in models}
        given |= {f"bm25 + {' + '.join(members)}": ["bm25", *members]}
        for name, some in given.items():
            rows.append([", ".join(members), task.name, name, f"{fuse(task, [lists[each] for each in some]):.1f}"])
    return rows


def main(ensembles: Sequence[str], out: Path) -> None:
    """Print the table and write `hybrid.md` and `hybrid.json`."""
    store = ViewStore(wait=600)
    tasks = [task for task in load_sets(_SETS) if isinstance(task, Ranking)]
    rows = [row for members in ensembles for row in rows_of(members.split(","), tasks, store)]
    text = (
        "# BM25 beside vectors\n\n"
        f"Written by `python -m experiments.hybrid_search {' '.join(ensembles)}`. nDCG@10 (scifact) and MAP (trecqa) "
        "x 100 on sets that settings may be chosen on, made smaller as in tasks.md. Lists with + are fused by "
        "reciprocal rank fusion.\n\n" + markdown_table(["ensemble", "set", "lists", "score"], rows, left=3)
    )
    write_tables(out, "hybrid", text, rows, tasks)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="BM25 beside vectors.")
    parser.add_argument("ensembles", nargs="*", default=["use-lite,wordllama", "gte-small,minilm"])
    parser.add_argument("--out", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    run(partial(main, arguments.ensembles, arguments.out))
