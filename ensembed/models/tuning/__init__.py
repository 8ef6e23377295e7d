"""Choosing weights, method, tau and dim on a few labelled pairs, where a user has some.

Without labelled pairs nothing of this is used: the label-free path never reads a score.
"""

from __future__ import annotations

from ensembed.models.tuning.cross_validation import Candidates, Choice, Verdict, decide
from ensembed.models.tuning.labelled_pairs import LEAST, LabelledPairs, Labels
from ensembed.models.tuning.tune import describe, tune_method

__all__ = ["LEAST", "Candidates", "Choice", "LabelledPairs", "Labels", "Verdict", "decide", "describe", "tune_method"]
