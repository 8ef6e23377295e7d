"""Tasks beyond STS: search, reranking, clusters, classes and pairs. May import `search`, `paper` and all below them.

Example:
    >>> from ensembed.sts import Pairs
    >>> from ensembed.tasks import evaluate_tasks, pair_task
    >>> pairs = Pairs("mine", ("a dog", "a cat", "a car"), ("the dog", "stocks", "the car"), [1, 0, 1])
    >>> [result] = evaluate_tasks({"demo": "demo"}, [pair_task(pairs)], resamples=0).results["demo"]
    >>> result.figures["ap"].value
    1.0
"""

from __future__ import annotations

from ensembed.tasks.class_and_cluster_tasks import Classification, Clustering
from ensembed.tasks.pair_tasks import GradedPairs, PairClassification, pair_task
from ensembed.tasks.ranking_tasks import Ranking, Reranking
from ensembed.tasks.task import Figure, Task
from ensembed.tasks.task_evaluation import Comparison, TaskResult, TaskResults, evaluate_tasks
from ensembed.tasks.task_files import find_tasks, read_tasks

__all__ = ["Classification", "Clustering", "Comparison", "Figure", "GradedPairs", "PairClassification", "Ranking"]
__all__ += ["Reranking", "Task", "TaskResult", "TaskResults", "evaluate_tasks", "find_tasks", "pair_task", "read_tasks"]
