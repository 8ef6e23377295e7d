"""Files of tasks that `evaluate --task` reads: TSV layouts, BEIR's JSON Lines, and pairs."""

from __future__ import annotations

import gzip
import itertools
from functools import partial
from pathlib import Path

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.tasks import evaluate_tasks
from ensembed.tasks.task_files import find_tasks
from ensembed.views import ViewStore
from fuzz.mutations import Kind
from fuzz.workers import Format

_ANIMALS = itertools.product(("A cat", "The dog", "A fox"), ("sleeps", "runs", "eats"), ("animals",))
_MONEY = itertools.product(("The market", "A stock", "The price"), ("fell", "rose", "stays"), ("money",))
_LABELLED = [*_ANIMALS, *_MONEY]
_FILES: dict[str, dict[str, str]] = {
    "task-retrieval": {
        "docs.tsv.gz": "d1\tA dog barks.\nd2\tTwo cats sleep.\nd3\tPrices fell, é.\nd4\t\n",
        "queries.tsv": "q1\ta dog\nq2\tcats\nq3\tsomething else\n",
        "qrels.tsv": "query\tdoc\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\nq2\td3\t0.5\n",
    },
    "task-beir": {
        "corpus.jsonl": '{"_id": "d1", "title": "Dogs", "text": "A dog barks."}\n{"_id": "d2", "text": "Two cats."}\n'
        '{"_id": 3, "title": null, "text": "Prices"}\n',
        "queries.jsonl": '{"_id": "q1", "text": "a dog", "metadata": {}}\n{"_id": "q2", "text": "cats"}\n',
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\t3\t1\nq2\t0\td2\t2\n",
    },
    "task-reranking": {
        "cands.tsv": "a\tb\t1\na\tc\t0\nd\tc\t1\nd\tb\t0\n",
        "texts.tsv": "a\tA dog.\nb\tA dog barks.\nc\tTwo cats.\nd\tcats\n",
    },
    "task-labels": {
        "train.tsv": "A dog barks.\tanimals\nPrices fell.\tmoney\nTwo cats.\tanimals\nStocks rose.\tmoney\n",
        "test.tsv": "".join(f"{a} {b}.\t{label}\n" for a, b, label in _LABELLED),
    },
    "task-pairs": {"pairs.tsv": "1\tA dog.\tA hound.\n0\tA dog.\tPrices\n0.5\tcats\tTwo cats.\n1\tso\tso\n"},
}


def _make_task(kind: str, folder: Path) -> None:
    for name, text in _FILES[kind].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(gzip.compress(text.encode(), mtime=0) if name.endswith(".gz") else text.encode())


def _score(kind: str, folder: Path) -> object:
    """Read the task, and score two models on it, as `evaluate --task` does."""
    place = folder / "pairs.tsv" if kind == "task-pairs" else folder
    tasks = find_tasks(str(place))
    store = ViewStore(folder.parent / "tmp" / "views")
    models = {"one": DemoEncoder(6), "two": DemoEncoder(4, seed=1)}
    return evaluate_tasks(models, tasks, resamples=20, main_only=True, store=store).to_json()["models"]


# A user may name a pipe, which waits for its writer.
_KINDS = (Kind.MISSING, Kind.FOLDER, Kind.LOOP, Kind.ZEROS)
FORMATS: dict[str, Format] = {
    kind: Format(
        partial(_make_task, kind),
        partial(_score, kind),
        names=("artefact", "pairs"),
        kinds=_KINDS,
        modules=("sklearn.cluster", "sklearn.linear_model"),
    )
    for kind in _FILES
}
