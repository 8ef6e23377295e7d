"""The sets of `experiments.tasks_table`: which may be chosen on, which are final, and their smaller forms."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ensembed.support.provenance import provenance
from ensembed.tasks import Classification, Clustering, Ranking, Task, find_tasks
from experiments import write_results

CHOICE = ("scifact:train", "trecqa:dev", "banking77:train", "pawsx_en_dev", "clss_sentence2phrase_train")
"""Sets that settings may be chosen on."""

FINAL = ("scifact", "cisi", "cacm", "trecqa", "banking77", "stackoverflow20", "agnews:test_title")
"""Sets for the final table alone."""

DOCUMENTS = 800
"""Documents of a collection at most: all that are judged, and others chosen at random."""

LABELLED = 2000
"""Texts with labels at most, chosen at random; texts to learn from included."""


def load_sets(names: tuple[str, ...]) -> list[Task]:
    """Return the tasks of these sets, made smaller: encoding whole collections takes hours on two cores."""
    return [smaller(task) for name in names for task in find_tasks(name)]


def write_tables(out: Path, name: str, page: str, rows: object, tasks: Iterable[Task]) -> None:
    """Print a page and write it with what it was made with and on; `NAME.json` has the rows of its tables."""
    made, sets = provenance(), {f"{task.name} {task.kind}": task.fingerprint for task in tasks}
    facts, data = (", ".join(f"{key} {value}" for key, value in each.items()) for each in (made, sets))
    page = f"{page}\n\nMade with {facts}, on sets with these fingerprints: {data}.\n"
    print(page)
    write_results(out, name, page, json.dumps({"provenance": made, "sets": sets, "rows": rows}, indent=1) + "\n")


def smaller(task: Task) -> Task:
    """Return a task with fewer texts; the choice depends on the task alone."""
    random = np.random.default_rng(0)
    if isinstance(task, Ranking) and task.candidates is None and len(task.documents) > DOCUMENTS:
        # scifact's two sets of queries share one collection: documents judged for either are kept.
        judged = _judged(task)
        others = [i for i, id_ in enumerate(task.document_ids) if id_ not in judged]
        more = random.choice(others, max(0, DOCUMENTS - len(judged)), replace=False)
        kept = sorted([i for i, id_ in enumerate(task.document_ids) if id_ in judged] + more.tolist())
        ids, texts = (tuple(column[i] for i in kept) for column in (task.document_ids, task.documents))
        return replace(task, document_ids=ids, documents=texts)
    if isinstance(task, Clustering) and len(task.labelled) > LABELLED:
        rows = _rows(random, len(task.labelled), LABELLED)
        return Clustering(task.name, _take(task.labelled, rows), _take(task.labels, rows))
    if isinstance(task, Classification):
        rows = _rows(random, len(task.labelled), LABELLED)
        judged_texts = _take(task.labelled, rows), _take(task.labels, rows)
        learned = _rows(random, len(task.train), LABELLED)
        return Classification(task.name, *judged_texts, _take(task.train, learned), _take(task.train_labels, learned))
    return task


def _judged(task: Ranking) -> set[str]:
    names = {task.name.partition(":")[0], f"{task.name.partition(':')[0]}:train"} if "scifact" in task.name else set()
    tasks = [other for name in sorted(names) for other in find_tasks(name) if isinstance(other, Ranking)] or [task]
    return {document for other in tasks for grades in other.relevance.values() for document in grades}


def _rows(random: np.random.Generator, count: int, most: int) -> list[int]:
    return sorted(random.choice(count, most, replace=False).tolist()) if count > most else list(range(count))


def _take(items: tuple[str, ...], rows: list[int]) -> tuple[str, ...]:
    return tuple(items[i] for i in rows)
