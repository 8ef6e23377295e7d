"""Figures of a student on held-out sentences, against a slow version."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.stats import spearmanr

from ensembed.distil.distillation import compare_students
from ensembed.distil.fidelity import NEAR, NEIGHBOURS, HeldOut
from ensembed.encoders import DemoEncoder
from ensembed.errors import InputError

RANDOM = np.random.default_rng(0)
TARGETS = RANDOM.standard_normal((60, 8)).astype(np.float32)


def slow_figures(targets: np.ndarray, vectors: np.ndarray) -> tuple[float, float]:
    """Overlap and correlation, sentence by sentence."""

    def cosine(X: np.ndarray, i: int, j: int) -> float:
        return float(X[i] @ X[j] / np.linalg.norm(X[i]) / np.linalg.norm(X[j]))

    def nearest(X: np.ndarray, i: int, k: int) -> list[int]:
        return sorted((j for j in range(len(X)) if j != i), key=lambda j: -cosine(X, i, j))[:k]

    n = len(targets)
    shared = sum(len({*nearest(targets, i, NEIGHBOURS)} & {*nearest(vectors, i, NEIGHBOURS)}) for i in range(n))
    pairs = sorted({(min(i, j), max(i, j)) for i in range(n) for j in nearest(targets, i, NEAR)})
    theirs, ours = ([cosine(X, i, j) for i, j in pairs] for X in (targets, vectors))
    return shared / (n * NEIGHBOURS), float(spearmanr(theirs, ours).statistic)


def test_figures_are_those_of_the_slow_version() -> None:
    vectors = TARGETS @ RANDOM.standard_normal((8, 5)).astype(np.float32)
    figures = HeldOut(TARGETS).fidelity(vectors)
    assert (figures.overlap, figures.spearman) == pytest.approx(slow_figures(TARGETS, vectors), abs=1e-4)
    assert figures.cosine is None


def test_a_perfect_student_and_a_mute_one() -> None:
    held = HeldOut(TARGETS)
    perfect = held.fidelity(3 * TARGETS)
    assert (perfect.overlap, perfect.score) == pytest.approx((1, 1))
    assert perfect.cosine == pytest.approx(1)
    assert held.fidelity(np.zeros_like(TARGETS)).spearman == 0


def test_few_sentences_have_fewer_neighbours() -> None:
    assert HeldOut(TARGETS[:5]).fidelity(TARGETS[:5]).overlap == 1


@pytest.mark.parametrize("sentences", [[], ["a sentence"]])
def test_one_sentence_has_no_neighbours_to_compare(sentences: list[str]) -> None:
    with pytest.raises(InputError, match=f"it takes 2 or more, got {len(sentences)}"):
        compare_students(DemoEncoder(), [DemoEncoder()], sentences, clock=time.perf_counter)
