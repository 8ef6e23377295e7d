"""Block Lanczos: the largest eigenvalues of any spectrum, or none."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import oracles
import pytest
from numpy.typing import NDArray

from ensembed.methods import GCCA, SVD, Auto
from ensembed.methods.method import MomentMethod
from ensembed.numerics import eigen, krylov
from ensembed.numerics.krylov import block_lanczos

Array: TypeAlias = NDArray[np.float64]
D, K = 600, 30
PLACES = np.arange(D)
SPECTRA = {
    "falls fast": np.exp(-PLACES / 15),
    "falls as 1/i": 1 / (1 + PLACES),
    "falls slowly": (1 + PLACES) ** -0.5,
    "pairs": np.repeat(np.exp(-np.arange(D // 2) / 10), 2),
    "clusters wider than the block": np.repeat(np.exp(-np.arange(D // 20) / 2.0), 20),
    "negative ones are larger": np.concatenate([np.exp(-np.arange(300) / 10), -3 * np.exp(-np.arange(300) / 10)]),
    "all negative": -(1 + PLACES) / D,
    "rank below k": np.concatenate([1 / (1 + np.arange(K // 2)), np.zeros(D - K // 2)]),
    "tiny": 1e-20 * np.exp(-PLACES / 15),
}


def _symmetric(values: Array, seed: int = 0) -> Array:
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    S = (Q * values) @ Q.T
    return np.asarray((S + S.T) / 2)


@pytest.mark.parametrize("name", SPECTRA)
def test_block_lanczos_finds_the_largest_eigenvalues(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(krylov, "_TRIAL", 1.0)
    S, expected = _symmetric(SPECTRA[name]), np.sort(SPECTRA[name])[::-1][:K]
    pairs = block_lanczos(S, K, D, block=8)
    assert pairs is not None
    values, vectors = pairs
    size = np.abs(SPECTRA[name]).max()
    assert np.abs(values - expected).max() <= 1e-10 * np.abs(expected).max() + 1e-14 * size
    assert oracles.error(vectors.T @ vectors, np.eye(K)) < 1e-11
    assert np.linalg.norm(S @ vectors - vectors * values, axis=0).max() <= 2e-8 * size


def test_more_equal_eigenvalues_than_the_block_is_wide_are_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(krylov, "_TRIAL", 1.0)
    # A block of 4 alone sees 4 of the 20 ones, and takes smaller eigenvalues for the rest, all with tiny residuals.
    S = _symmetric(np.concatenate([np.ones(20), 0.5 * np.exp(-np.arange(D - 20) / 5)]))
    pairs = block_lanczos(S, 24, D, block=4)
    assert pairs is not None
    np.testing.assert_allclose(pairs[0][:20], 1.0, rtol=1e-10)
    assert pairs[0][20] == pytest.approx(0.5, rel=1e-10)


def test_block_lanczos_returns_nothing_that_has_not_converged() -> None:
    flat = _symmetric(1 - PLACES / D)
    assert block_lanczos(flat, K, D // 5, block=8) is None
    assert block_lanczos(flat, K, K, block=8) is None  # no room for a single check


@pytest.mark.parametrize("values", [1 - PLACES / D, np.where(PLACES < K // 2, 1 / (1 + PLACES), 1e-3 + 1e-6 * PLACES)])
def test_a_search_that_will_not_converge_is_given_up_early(values: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither with a flat spectrum, nor with half of the pairs in a flat tail, does the search use its whole limit."""
    sizes: list[int] = []
    expand = krylov._Space.expand

    def counted(space: krylov._Space) -> bool:
        more = expand(space)
        sizes.append(space.size)
        return more

    monkeypatch.setattr(krylov._Space, "expand", counted)
    assert block_lanczos(_symmetric(values), K, D // 2, block=8) is None
    assert sizes[-1] < D // 4


def test_the_same_seed_gives_the_same_bits_for_either_memory_order() -> None:
    S = _symmetric(SPECTRA["falls fast"])
    before = S.copy()
    results = [block_lanczos(matrix, K, D) for matrix in (S, S, np.asfortranarray(S))]
    np.testing.assert_array_equal(S, before)
    for result in results[1:]:
        assert results[0] is not None
        assert result is not None
        np.testing.assert_array_equal(results[0][1], result[1])


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Use block Lanczos from a hundred columns on; return a list with a bool per call: whether it converged."""
    calls: list[bool] = []

    def watched(S: Array, k: int, limit: int) -> object:
        pairs = block_lanczos(S, k, limit, block=8)
        calls.append(pairs is not None)
        return pairs

    monkeypatch.setattr(eigen, "_LARGE", 100)
    monkeypatch.setattr(eigen, "_SPACE", 0.9)
    monkeypatch.setattr(eigen, "_FEW", 1 / 12)
    monkeypatch.setattr(krylov, "_TRIAL", 0.5)
    monkeypatch.setattr(eigen, "block_lanczos", watched)
    return calls


@pytest.mark.parametrize(
    "method", [SVD(16), Auto(16, weights="equal"), GCCA(16), GCCA(16, tau=0.1), GCCA(16, weights=(1.0, 0.5, 2.0))]
)
def test_methods_give_the_same_cosines_with_block_lanczos_as_with_lapack(
    method: MomentMethod, small_is_large: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    latent = generator.standard_normal((1500, 60)) / (1 + np.arange(60)) ** 0.5
    views = [
        latent @ generator.standard_normal((60, d)) + 0.1 * generator.standard_normal((1500, d)) + 1.0
        for d in (180, 120, 100)
    ]
    lanczos = method.fit(views)
    assert small_is_large == [True]
    monkeypatch.setattr(eigen, "_LARGE", 10**9)
    lapack = method.fit(views)
    assert small_is_large == [True]
    assert lanczos.spectrum is not None
    assert lapack.spectrum is not None
    np.testing.assert_allclose(lanczos.spectrum, lapack.spectrum, rtol=1e-10)
    Z, Y = (np.asarray(oracles.unit(meta.transform(views)[:200])) for meta in (lanczos, lapack))
    np.testing.assert_allclose(Z @ Z.T, Y @ Y.T, atol=1e-5)
    np.testing.assert_allclose(Z, Y, atol=1e-5)  # the eigenvalues differ, so signs and vectors are the same too


def test_lapack_takes_over_if_block_lanczos_does_not_converge(small_is_large: list[bool]) -> None:
    S = np.eye(400)
    S[0, 0] = 2.0
    flat = _symmetric(1 - np.arange(400) / 400)
    values, vectors = eigen.top_eigh(flat, 33)
    np.testing.assert_allclose(values, 1 - np.arange(33) / 400, rtol=1e-10)
    assert oracles.error(flat @ vectors, vectors * values) < 1e-10
    values, vectors = eigen.top_eigh(S, 5)
    np.testing.assert_allclose(values, [2, 1, 1, 1, 1], rtol=1e-12)
    assert len(small_is_large) == 2


@pytest.mark.parametrize("k", [30, 61, 119, 120])
def test_divide_and_conquer_is_the_same_on_old_scipy(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    S = _symmetric(np.linspace(-1, 1, 120))
    values, vectors = eigen.top_eigh(S, k)
    assert oracles.error(vectors.T @ vectors, np.eye(k)) < 1e-12
    assert oracles.error(S @ vectors, vectors * values) < 1e-12
    monkeypatch.delattr("scipy.linalg.lapack.dstevd", raising=False)
    older, _ = eigen.top_eigh(S, k)
    np.testing.assert_allclose(values, older, atol=1e-12)
