"""Tasks of an installed MTEB for `ensembed evaluate --task mteb:NAME`.

Retrieval, reranking, pair classification and STS become tasks of our own, with intervals and tests; their figures are
MTEB's up to its rounding (1e-6). All others are run by MTEB itself, which says nothing about single texts: they have
figures without intervals.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ensembed.encoders.base import Encoder
from ensembed.errors import DatasetError, InputError
from ensembed.integrations.mteb import MtebModel, mteb
from ensembed.sts.datasets import Pairs
from ensembed.tasks.pair_tasks import GradedPairs, PairClassification
from ensembed.tasks.ranking_tasks import Ranking, Reranking
from ensembed.tasks.task import EncodeTexts, Figure, Measuring, Task

_MAIN = "main_score"


def mteb_tasks(name: str) -> list[Task]:
    """Return the tasks of MTEB's name, one for every language or subset of its data and split that it evaluates.

    The data come from where MTEB keeps them, or from the hub.

    Raises:
        InputError: MTEB has no task of that name, or one that is not of texts.
        DatasetError: its data cannot be loaded.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is a newer version of a task
            task = mteb.get_task(name)
    except KeyError as error:
        raise InputError(f"MTEB has no task {name!r}: {error}") from error
    if list(task.metadata.modalities) != ["text"]:
        raise InputError(f"MTEB's task {name!r} is of {' and '.join(task.metadata.modalities)}, and not of texts alone")
    return local_tasks(task)


def local_tasks(task: Any) -> list[Task]:  # noqa: ANN401 - the library's
    """Return the same of a task object of MTEB, for instance one whose data were put into it."""
    name = task.metadata.name
    try:
        if not task.data_loaded:
            task.load_data()
        if hasattr(task, "convert_v1_dataset_format_to_v2"):
            task.convert_v1_dataset_format_to_v2(num_proc=None)
    except Exception as error:  # whatever the hub, the loader or the data set's own code raises
        problem = f"the data of MTEB's task {name!r} cannot be loaded: {type(error).__name__}: {error}"
        raise DatasetError(
            f"{problem}; MTEB fetches them from the hub, or give a folder instead (find_tasks(FOLDER), --task FOLDER)"
        ) from error
    kind = task.metadata.type
    convert = {"Retrieval": _ranking, "Reranking": _ranking, "PairClassification": _pairs, "STS": _pairs}.get(kind)
    plain = kind in ("Retrieval", "Reranking", "STS") or getattr(task, "input1_prompt_type", None) is None
    if convert is None or not plain:
        return [MtebTask(task)]
    return [convert(task, label, data) for label, data in _splits(task)]


def _splits(task: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - the library's
    """Yield the data of every subset and split, each with its name in tables."""
    subsets, splits = list(task.hf_subsets), list(task.eval_splits)
    for subset in subsets:
        for split in splits:
            words = [task.metadata.name, *([subset] if len(subsets) > 1 else []), *([split] if len(splits) > 1 else [])]
            # Tasks in one language may have their splits without a subset.
            data = task.dataset.get(subset, task.dataset)
            yield "/".join(words), data[split]


def _ranking(task: Any, name: str, data: Mapping[str, Any]) -> Task:  # noqa: ANN401 - the library's
    documents, queries = _texts(data["corpus"]), _texts(data["queries"])
    if any(not isinstance(text, str) for text in queries.values()):
        raise InputError(f"MTEB's task {name!r} has conversations for queries, which are not evaluated here")
    relevance = {query: dict(grades) for query, grades in data["relevant_docs"].items() if query in queries}
    settings: dict[str, Any] = {"skip_same_id": bool(getattr(task, "ignore_identical_ids", False))}
    kind = Ranking
    if ranked := data.get("top_ranked"):
        settings["candidates"] = {query: [id_ for id_ in ids if id_ in documents] for query, ids in ranked.items()}
        kind = Reranking if task.metadata.type == "Reranking" else Ranking
    return kind.of(name, queries, documents, relevance, **settings)


def _texts(records: Any) -> dict[str, str]:  # noqa: ANN401 - a Dataset of Hugging Face
    """Return the texts by id; the title of a document stands before its text."""
    texts = {}
    for record in records:
        title, instruction = record.get("title") or "", record.get("instruction") or ""
        words = [title, record["text"], instruction] if isinstance(record["text"], str) else [record["text"]]
        text = words[0] if len(words) == 1 else " ".join(word for word in words if word).strip()
        if text:
            texts[str(record["id"])] = text
    return texts


def _pairs(task: Any, name: str, data: Any) -> Task:  # noqa: ANN401 - the library's
    is_sts = task.metadata.type == "STS"
    columns = ("sentence1", "sentence2", "score" if is_sts else getattr(task, "label_column_name", "labels"))
    if not is_sts:
        columns = (task.input1_column_name, task.input2_column_name, columns[2])
        data = data[0] if len(data) == 1 else data  # tasks of version 1 have all pairs in one row
    elif isinstance(getattr(task, "column_names", None), tuple):
        columns = (*task.column_names, columns[2])
    first, second, scores = (list(data[column]) for column in columns)
    pairs = Pairs(name, tuple(first), tuple(second), np.array(scores, np.float64))
    return GradedPairs(pairs) if is_sts else PairClassification(pairs)


@dataclass(frozen=True, eq=False)
class MtebTask(Task):
    """A task that MTEB evaluates itself; its main score comes first, without intervals."""

    task: Any

    kind: ClassVar[str] = "mteb"
    measures: ClassVar[tuple[str, ...]] = ("main score",)

    @property
    def name(self) -> str:  # type: ignore[override] # the task knows it
        """Name in tables."""
        return str(self.task.metadata.name)

    @property
    def items(self) -> int:
        """The number of rows that are evaluated."""
        return sum(len(data) for _, data in _splits(self.task))

    @property
    def fingerprint(self) -> str:
        """The revision of the data that MTEB names."""
        return str(self.task.metadata.dataset.get("revision", ""))

    # MTEB encodes, and there are no single texts to resample.
    def score(self, model: Encoder, encode: EncodeTexts, how: Measuring) -> dict[str, Figure]:  # noqa: ARG002
        """Return MTEB's main score, and its other numbers if there is one subset and split."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's own
            result = mteb.evaluate(MtebModel(model), [self.task], cache=None, show_progress_bar=False)
        scores = [values for split in result.task_results[0].scores.values() for values in split]
        nothing = np.empty(0)
        figures = {"main score": Figure(float(np.mean([values[_MAIN] for values in scores])), nothing)}
        if len(scores) == 1 and how.measures is None:
            others = {key: value for key, value in scores[0].items() if key != _MAIN and _is_number(value)}
            figures |= {key: Figure(float(value), nothing) for key, value in others.items()}
        return figures


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
