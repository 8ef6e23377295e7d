"""The draws of the bootstrap: a published generator, Poisson's distribution, and nothing that they depend on."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ensembed.paper.experiments.bootstrap import counts, pair_keys, stream
from ensembed.sts import Pairs

PAIRS = Pairs("toy", tuple(map(str, range(500))), ("b",) * 500, np.arange(500.0))


def test_stream_equals_splitmix64() -> None:
    """The first numbers of the published generator from the seed 1234567."""
    found = stream(np.array([0, 1234567], np.uint64), np.arange(5, dtype=np.uint64))[:, 1]
    assert found.tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821
    ]  # fmt: skip


def test_counts_are_independent_and_poisson() -> None:
    found = counts(pair_keys([PAIRS], 0), np.arange(400), 0)
    seen = np.bincount(found.astype(int).ravel(), minlength=6)
    expected = stats.poisson(1).pmf(np.arange(5)) * found.size
    chi2 = ((seen[:5] - expected) ** 2 / expected).sum() + (seen[5:].sum() - (found.size - expected.sum())) ** 2 / (
        found.size - expected.sum()
    )
    assert stats.chi2(5).sf(chi2) > 1e-3
    other = counts(pair_keys([PAIRS], 0), np.arange(400), 1)
    # Across pairs, across resamples, and across attempts: each correlation is 0 but for chance, which is 1 / sqrt(n).
    for x, y in ((found[:, :-1], found[:, 1:]), (found[:-1], found[1:]), (found, other)):
        assert abs(np.corrcoef(x.ravel(), y.ravel())[0, 1]) < 4 / np.sqrt(x.size)
    # Sums over pairs and over resamples vary as sums of independent counts do.
    assert found.sum(axis=1).var() == pytest.approx(500, rel=0.3)
    assert found.sum(axis=0).var() == pytest.approx(400, rel=0.3)


def test_pair_has_the_same_counts_in_every_data_set() -> None:
    here = Pairs("here", ("a", "b", "ab"), ("b", "c", "c"), np.arange(3.0))
    there = Pairs("there", ("c", "b", "a"), ("b", "a", "bc"), np.arange(3.0))
    one, two = pair_keys([here], 0), pair_keys([there], 0)
    assert (one[0], one[1]) == (two[1], two[0])
    assert len({*one.tolist(), *two.tolist()}) == 4  # ab + c is not a + bc
    assert not set(pair_keys([here], 1).tolist()) & set(one.tolist())
