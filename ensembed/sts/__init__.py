"""Semantic textual similarity: finding, reading and scoring data sets. May import `models` and all below it."""

from __future__ import annotations

from ensembed.sts.datasets import LAYOUTS, NAMES, PARTS, Dataset, Pairs, load_sts, read_pairs, read_stsb
from ensembed.sts.protocol import (
    PROTOCOLS,
    PartScore,
    Protocol,
    Result,
    Score,
    aggregate,
    cosine,
    distinct_sentences,
    evaluate,
    evaluate_all,
    pearson,
    predict,
    score,
    spearman,
)

__all__ = ["LAYOUTS", "NAMES", "PARTS", "Dataset", "Pairs", "load_sts", "read_pairs", "read_stsb"]
__all__ += ["PROTOCOLS", "PartScore", "Protocol", "Result", "Score", "aggregate", "cosine", "distinct_sentences"]
__all__ += ["evaluate", "evaluate_all", "pearson", "predict", "score", "spearman"]
