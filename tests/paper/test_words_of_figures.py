"""The small functions behind the texts of tables and figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ensembed.methods import Auto
from ensembed.paper.experiments.bootstrap import holm, pair_keys, paired_p, resample, stream
from ensembed.paper.experiments.dev_experiments import autoencoder, describe
from ensembed.paper.experiments.scored_systems import Trusted
from ensembed.paper.report import drawing
from ensembed.paper.report.page import page_rows
from ensembed.paper.tables.marked_table import Aside, Row, Table, cell_text, figure, probability, with_mean
from ensembed.paper.tables.table_notes import p_text
from ensembed.sts import Dataset, Pairs, Score

TABLE = Table(
    "toy",
    "A toy",
    ("system", "stsb-dev"),
    (Row("single", ("a", Score(0.7, 0.72))), Row("meta", ("b", Score(0.75, 0.72)))),
)


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (drawing.figure, 0.7831, "78.3"),
        (drawing.figure, -0.00001, "0.0"),
        (drawing.signed, 0.0042, "+0.4"),
        (drawing.signed, -0.0042, "−0.4"),
        (drawing.signed, 0, "0.0"),
        (drawing.versus, 0.0042, "0.4 above"),
        (drawing.versus, -0.0042, "0.4 below"),
        (drawing.versus, 0, "level with"),
        (drawing.listing, ["a"], "a"),
        (drawing.listing, ["a", "b", "c"], "a, b and c"),
        (drawing.short, "meta:svd without st:sentence-transformers/all-MiniLM-L6-v2", "svd without st:senten…LM-L6-v2"),
        (figure, 0.7831, "78.3"),
        (figure, -0.00001, "0.0"),
        (figure, None, "-"),
        (cell_text, Score(0.7, 0.725), "70.0/72.5"),
        (cell_text, Aside(0.675, None, "*"), "67.5/-*"),
        (cell_text, Aside(-0.012, 0.003, "+"), "-1.2/+0.3"),
        (cell_text, None, ""),
        (p_text, 0.0123, "p = 0.012"),
        (p_text, 0.0002, "p < 0.001"),
    ],
)
def test_a_value_is_written(write: Callable[[Any], str], value: object, text: str) -> None:
    assert write(value) == text


def test_a_difference_is_written_with_its_sign() -> None:
    assert figure(0.0042, signed=True) == "+0.4"


def test_labels_are_spread_as_near_to_their_values_as_can_be() -> None:
    assert drawing.spread([0, 2, 2, 5], 1) == [0.0, 1.5, 2.5, 5.0]


def test_p_values_are_written_with_three_digits() -> None:
    assert (probability(0.0123).text, probability(0.0002).text) == ("0.012", "< 0.001")


def test_the_mean_is_a_column_beside_several_test_sets() -> None:
    assert with_mean(["sts12", "sts13"]) == ["sts12", "sts13", "mean"]
    assert with_mean(["sts12"]) == ["sts12"]


def test_the_best_figures_of_a_column_are_marked() -> None:
    single, meta = TABLE.pieces(0, 1), TABLE.pieces(1, 1)
    assert [piece.text for piece in meta] == ["75.0", "/", "72.0"]
    assert [piece.best for piece in meta] == [True, False, True]
    assert [piece.best for piece in single] == [False, False, True]
    assert [piece.best_member for piece in single] == [True, False, True]


def test_the_page_has_the_pieces_of_each_cell() -> None:
    [[row, _]] = page_rows(TABLE)
    assert [(piece.text, piece.role) for piece in row.cells[1]] == [("70.0", "r"), ("/", "slash"), ("72.0", "rho")]


def test_the_p_of_a_paired_test_is_never_zero() -> None:
    assert (paired_p(np.array([0.1] * 99)), paired_p(np.zeros(99))) == (0.02, 1.0)


def test_holm_multiplies_by_the_number_of_tests_that_are_left() -> None:
    assert holm([0.01, 0.5, 0.02]) == [0.03, 0.5, 0.04]


def test_a_pair_has_one_key_in_either_order() -> None:
    there = Pairs("one", ("a", "b"), ("b", "c"), np.array([1.0, 2.0]))
    back = Pairs("two", ("b",), ("a",), np.array([5.0]))
    assert pair_keys([there], seed=0)[0] == pair_keys([back], seed=0)[0]


def test_the_stream_is_that_of_splitmix64() -> None:
    numbers = stream(np.array([1234567], np.uint64), np.arange(2, dtype=np.uint64)).ravel().tolist()
    assert numbers == [6457827717110365317, 3203168211198807973]


def test_a_clearly_better_system_is_significantly_above() -> None:
    gold, noise = np.arange(50.0), np.random.default_rng(0).normal(size=50)
    dataset = Dataset.of(Pairs("toy", tuple(map(str, range(50))), ("b",) * 50, gold))
    systems = {"single:a": {"toy": [gold + 40 * noise]}, "meta:b": {"toy": [gold + 10 * noise]}}
    resampled = resample(systems, [dataset], "mean", resamples=500)
    assert resampled.points["meta:b"]["toy"].pearson > resampled.interval("meta:b", "toy").low.pearson
    assert [test.p_holm < 0.05 for test in resampled.comparisons(["meta:b"], ["single:a"])] == [True] * 4


def test_a_reduced_training_is_described_in_words() -> None:
    method = autoencoder("reduced", 10_536, dim=512, hidden_layers=0, loss="kld")
    assert method.epochs == 20
    words = "kld, hidden layers: 0, 20 epochs of batches of 256 (840 steps), seed 0"
    assert describe(method, 10_536) == words


def test_the_note_of_auto_says_whom_it_trusts() -> None:
    trust = Trusted(1, "lead", 0.98, Auto(weights=(0.052, 1.0), whitened=(0,)))
    assert trust.note(["small", "large"], "news").split("; ") == [
        "this library's own, not the paper's",
        "it trusts large most (by its lead, 98% sure)",
        "weights: small 0.052, large 1, found on news without a score",
        "softly whitened: small",
    ]
