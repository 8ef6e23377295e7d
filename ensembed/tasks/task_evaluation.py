"""Models on tasks: their figures with intervals, and a paired test of every ensemble against the best member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.base import Encoder, FloatArray
from ensembed.errors import InputError
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.model_vectors import model_vectors
from ensembed.models.opening import ModelLike, open_model
from ensembed.numerics.row_matrices import unit_rows
from ensembed.paper.experiments.bootstrap import paired_tests
from ensembed.search.groups.group_rows import unit_matrix
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress, silent
from ensembed.tasks.task import Figure, Measuring, Role, Task, Texts
from ensembed.views import ViewStore

RESAMPLES = 2000
MEAN = "mean"
"""The mean of the first figure of each task."""


@dataclass(frozen=True, eq=False)
class TaskResult:
    """The figures of one model on one task."""

    task: str
    kind: str
    fingerprint: str
    items: int
    figures: Mapping[str, Figure]  # the first is the one that tables show

    @property
    def main(self) -> str:
        """The name of the figure that tables show."""
        return next(iter(self.figures))

    def to_json(self) -> dict[str, Any]:
        """Return plain data; figures are fractions."""
        facts = {name: getattr(self, name) for name in ("task", "kind", "fingerprint", "items", "main")}
        return facts | {"figures": {name: figure.to_json() for name, figure in self.figures.items()}}


@dataclass(frozen=True)
class Comparison:
    """How far an ensemble is above the best member by one figure: the difference, its 95% interval and p.

    `p_holm` is corrected (Holm 1979) for the number of ensembles that are compared.
    """

    model: str
    member: str
    task: str
    figure: str
    difference: float
    low: float
    high: float
    p: float
    p_holm: float

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class TaskResults:
    """The results by model, and the models that are ensembles."""

    results: Mapping[str, Sequence[TaskResult]]
    ensembles: frozenset[str] = field(default_factory=frozenset)

    def mean(self, model: str) -> Figure:
        """Return the mean of the first figure of each task; tasks are resampled independently."""
        figures = [result.figures[result.main] for result in self.results[model]]
        without = any(not len(figure.resampled) for figure in figures)
        resampled = np.empty(0) if without else np.mean([figure.resampled for figure in figures], axis=0)
        return Figure(float(np.mean([figure.value for figure in figures])), resampled)

    def comparisons(self) -> list[Comparison]:
        """Compare every ensemble with the best single encoder, by each figure of each task and by the mean."""
        members = [model for model in self.results if model not in self.ensembles]
        ensembles = [model for model in self.results if model in self.ensembles]
        if not members or not ensembles:
            return []
        first = self.results[members[0]]
        cells = [
            (result.task, name, {model: self.results[model][t].figures[name] for model in self.results})
            for t, result in enumerate(first)
            for name in result.figures
        ]
        if len(first) > 1:
            cells.append((MEAN, MEAN, {model: self.mean(model) for model in self.results}))
        comparisons = []
        for task, name, figures in cells:
            values = {model: figure.value for model, figure in figures.items()}
            resampled = {model: figure.resampled for model, figure in figures.items()}
            if all(map(len, resampled.values())):
                for model, member, *test in paired_tests(values, resampled, ensembles, members):
                    comparisons.append(Comparison(model, member, task, name, *test))
        return comparisons

    def to_json(self) -> dict[str, Any]:
        """Return plain data: the results by model, and the comparisons."""
        models = {model: [result.to_json() for result in results] for model, results in self.results.items()}
        return {"models": models, "comparisons": [comparison.to_json() for comparison in self.comparisons()]}


def evaluate_tasks(
    models: Mapping[str, ModelLike],
    tasks: Sequence[Task],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    main_only: bool = False,
    store: ViewStore | None = None,
    progress: Progress = silent,
) -> TaskResults:
    """Score models on tasks.

    Args:
        models: models, or what `open_model` opens, by the name in tables.
        tasks: what `find_tasks` returns.
        resamples: resamples of each task's items, for the intervals and the tests; 0 for none.
        seed: seed of the resamples, which are the same for all models.
        main_only: compute only the figure of each task that tables show.
        store: where the texts' vectors are kept; by default the user's cache. Nothing that is there is encoded again.
        progress: receives the number of encoded texts.
    """
    check_whole("resamples", resamples, 0)
    check_whole("seed", seed, 0)
    if not tasks:
        raise InputError("there is no task to score the models on: name one or more")
    store = store or ViewStore()
    opened = {name: open_model(model, progress=progress) for name, model in models.items()}
    results: dict[str, list[TaskResult]] = {name: [] for name in opened}
    encode = partial(text_vectors, store=store, progress=progress)
    for task in tasks:
        fingerprint, how = task.fingerprint, Measuring(resamples, seed, task.measures[:1] if main_only else None)
        for name, model in opened.items():
            figures = task.score(model, encode, how)
            results[name].append(TaskResult(task.name, task.kind, fingerprint, task.items, figures))
    ensembles = frozenset(name for name, model in opened.items() if isinstance(model, MetaEncoder))
    return TaskResults(results, ensembles)


def text_vectors(model: Encoder, texts: Texts, *, store: ViewStore, progress: Progress = silent) -> FloatArray:
    """Return a model's vectors of texts, scaled to length one, through the store."""
    encoder, filled = in_role(model, texts.role), np.array([bool(text.strip()) for text in texts.texts])
    [matrix] = model_vectors(ListCorpus(texts.texts), [encoder], store, progress=progress)
    with unit_matrix(matrix) as rows:
        if filled.all():
            return np.array(rows)
        vectors = np.empty((len(filled), rows.shape[1]), np.float32)
        vectors[filled], vectors[~filled] = rows, unit_rows(encoder.encode([""]))  # a corpus has no blank sentences
        return vectors


def in_role(model: Encoder, role: Role) -> Encoder:
    """Return the encoder of texts in a role."""
    return {"query": model.query_encoder, "document": model.document_encoder, "text": model}[role]
