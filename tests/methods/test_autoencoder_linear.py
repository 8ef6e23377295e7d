"""The autoencoder without hidden layers under squared error: solved, and as good as anything that could be trained."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from method_views import KINDS, SHAPES, Array, best_cut, make_views

from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.methods import Autoencoder, Meta
from ensembed.methods.meta import Dense, Network

pytestmark = pytest.mark.usefixtures("one_thread")


def _linear(dim: int | None) -> Autoencoder:
    return Autoencoder(dim=dim, hidden_layers=0, loss="mse")


def _codes(meta: Meta, views: list[Array]) -> list[Array]:
    """The codes [n, d] of every view."""
    J = len(views)
    return [
        meta.transform([view if i == j else None for i, view in enumerate(views)]).astype(float) for j in range(J)
    ]  # fmt: skip


def _loss(codes: list[Array], decoders: list[Array], views: list[Array]) -> float:
    """`sum_j sum_j' |x_j' - D_j' [c_j; 1]|^2 / d_j'`, the mean over rows."""
    total = 0.0
    for code in codes:
        padded = np.hstack([code, np.ones((len(code), 1))])
        total += sum(
            float(((padded @ D - view) ** 2).mean(axis=1).mean()) for D, view in zip(decoders, views, strict=True)
        )
    return total


def _best_decoders(codes: list[Array], views: list[Array]) -> list[Array]:
    """[d + 1, d_j] by least squares from all codes."""
    stacked = np.vstack([np.hstack([code, np.ones((len(code), 1))]) for code in codes])
    return [np.linalg.lstsq(stacked, np.vstack([view] * len(codes)), rcond=None)[0] for view in views]


def _least(meta: Meta, views: list[Array]) -> float:
    codes = _codes(meta, views)
    return _loss(codes, _best_decoders(codes, views), views)


@pytest.mark.parametrize(("seed", "dtype"), [(0, "float32"), (1, "float64")])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "dims"), SHAPES)
def test_the_linear_solution_equals_least_squares_and_an_svd(
    n: int, dims: tuple[int, ...], kind: str, seed: int, dtype: str
) -> None:
    train = [view.astype(dtype) for view in make_views(n, dims, kind, seed)]
    new = [view.astype(dtype) for view in make_views(11, dims, "zero row", seed + 10)]
    spectrum = oracles.linear_autoencoder(train, new, sum(dims))[1]
    rank = int(np.count_nonzero(spectrum > 1e-11 * spectrum[0]))
    for d in {1, best_cut(spectrum[:rank]), rank}:
        meta = _linear(d).fit(train)
        for views in (train, new):
            expected, spectrum, least = oracles.linear_autoencoder(train, views, d)
            assert meta.spectrum is not None
            assert oracles.error(meta.spectrum, spectrum) < (1e-5 if dtype == "float32" else 1e-9)
            if d == rank or oracles.separated(spectrum):
                assert oracles.gram_error(meta.transform(views), expected) < 1e-4
        total = oracles.linear_autoencoder(train, train, 1)
        assert _least(meta, train) == pytest.approx(least, rel=1e-4, abs=1e-5 * (total[2] + total[1][0]))


@pytest.mark.parametrize("d", [2, 5])
def test_long_training_comes_close_and_not_below(d: int) -> None:
    views = [view.astype(np.float32) for view in _mild_views()]
    trained = Autoencoder(
        dim=d, hidden_layers=0, loss="mse", solver="batches", epochs=250, batch_size=150, learning_rate=5e-3
    ).fit(views)
    assert all(isinstance(projection, Network) for projection in trained.projections)
    solved = _least(_linear(d).fit(views), views)
    assert solved <= _least(trained, views) * (1 + 1e-6)
    assert _least(trained, views) < solved * 1.005


def _mild_views() -> list[Array]:
    """Views with a shared signal, all of about the same size, on which Adam gets along."""
    generator = np.random.default_rng(0)
    latent = generator.standard_normal((600, 5))
    return [
        latent @ generator.standard_normal((5, size)) / 2
        + 0.5 * generator.standard_normal((600, size))
        + generator.standard_normal(size)
        for size in (8, 6, 4)
    ]


@pytest.mark.parametrize("dims", [(7,), (6, 5), (8, 6, 4)])
@pytest.mark.parametrize("size", [1e-3, 1e-2, 0.1, 1.0])
def test_no_other_encoder_or_decoder_is_better(dims: tuple[int, ...], size: float) -> None:
    views = [view.astype(float) for view in make_views(80, dims)]
    meta = _linear(3).fit(views)
    codes = _codes(meta, views)
    decoders = _best_decoders(codes, views)
    best = _loss(codes, decoders, views)
    generator = np.random.default_rng(0)
    for part in range(30):
        encoders = [np.vstack([p.matrix, -p.offset]) for p in meta.projections if isinstance(p, Dense)]
        other = [D.copy() for D in decoders]
        for matrix in [*encoders[: part % 2 * 9], *other[: (part + 1) % 3 * 9]]:
            matrix += size * np.abs(matrix).max() * generator.standard_normal(matrix.shape)
        moved = [np.hstack([x, np.ones((len(x), 1))]) @ E for x, E in zip(views, encoders, strict=True)]
        assert _loss(moved, other, views) >= best * (1 - 1e-6)
        # Nor with the decoders that fit the other encoders best.
        assert _loss(moved, _best_decoders(moved, views), views) >= best * (1 - 1e-6)


def test_the_linear_autoencoder_of_one_view_is_pca() -> None:
    X = make_views(100, (6,))[0]
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    meta = _linear(3).fit([X])
    assert meta.spectrum is not None
    assert oracles.error(meta.spectrum, values[:-4:-1] / 6) < 1e-9
    expected = (X - X.mean(axis=0)) @ vectors[:, :-4:-1] / np.sqrt(6)
    assert oracles.error_up_to_signs(meta.transform([X]), expected) < 1e-5


def test_copies_of_a_view_get_the_same_encoder() -> None:
    X = make_views(100, (6,))[0]
    meta = _linear(3).fit([X, X, X])
    first, *others = meta.projections
    assert isinstance(first, Dense)
    for other in others:
        assert isinstance(other, Dense)
        assert oracles.error(other.matrix, first.matrix) < 1e-6
    # Three views of one third of the loss each: the same directions, three times as long after the sum.
    alone = _linear(3).fit([X]).transform([X])
    Z = meta.transform([X, X, X])
    assert oracles.gram_error(Z / np.linalg.norm(Z), alone / np.linalg.norm(alone)) < 1e-5


def test_what_does_not_change_the_loss_does_not_change_the_vectors() -> None:
    a, b, c = make_views(80, (6, 4, 9))
    Z = _linear(5).fit([a, b, c]).transform([a, b, c])
    generator = np.random.default_rng(0)
    Q = np.linalg.qr(generator.standard_normal((6, 6)))[0]
    order = generator.permutation(80)
    changes: list[tuple[list[Array], list[Array]]] = [
        ([c, a, b], [c, a, b]),
        ([a @ Q, b, c], [a @ Q, b, c]),
        ([a + 100, b, c - 7], [a + 100, b, c - 7]),
        ([a[order], b[order], c[order]], [a, b, c]),
        ([np.vstack([x, x]) for x in (a, b, c)], [a, b, c]),
    ]
    for train, views in changes:
        assert oracles.gram_error(_linear(5).fit(train).transform(views), Z) < 1e-5
    scaled = [10 * x for x in (a, b, c)]
    assert oracles.gram_error(_linear(5).fit(scaled).transform(scaled), 10 * Z) < 1e-5


@pytest.mark.parametrize(("n", "dims", "kind", "largest"), [
    (50, (6, 4), "full", 10),
    (50, (6, 4), "deficient", 7),
    (50, (6, 4), "duplicated columns", 9),
    (50, (6, 4), "constant column", 9),
    (5, (6, 4), "full", 4),
    (2, (6, 4), "full", 1),
])  # fmt: skip
def test_too_many_dimensions_are_refused_and_the_largest_named_works(
    n: int, dims: tuple[int, ...], kind: str, largest: int
) -> None:
    views = make_views(n, dims, kind)
    for d in (largest + 1, 100):
        with pytest.raises(DimensionError, match=f"ae with dim={d}: {n} .* at most dim={largest}$"):
            _linear(d).fit(views)
    assert np.linalg.matrix_rank(_linear(largest).fit(views).transform(views)) == largest


def test_dimensions_that_copies_of_a_view_do_not_have_are_refused() -> None:
    X = make_views(50, (6,))[0]
    with pytest.raises(DimensionError, match=r"at most dim=6$"):
        _linear(7).fit([X, X])


@pytest.mark.parametrize("value", [0.0, 0.1, -1e4, np.float32(0.1)])
def test_a_view_that_never_changes_adds_nothing(value: float) -> None:
    a, b = make_views(5000, (6, 4))
    constant = np.full((5000, 3), value)
    meta = _linear(4).fit([a, constant, b])
    Z = meta.transform([a, constant, b])
    assert oracles.gram_error(Z[:99], _linear(4).fit([a, b]).transform([a, b])[:99]) < 1e-5
    assert np.abs(_codes(meta, [a, constant, b])[1]).max() < 1e-6


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_rows_that_are_all_the_same_raise_an_error(value: float) -> None:
    with pytest.raises(ViewError, match="every row of the views is the same"):
        _linear(1).fit([np.full((99, 3), value), np.full((99, 2), -value)])


def test_the_training_vectors_have_mean_zero_and_the_dimension_of_the_largest_view() -> None:
    views = make_views(300, (6, 9, 4))
    meta = _linear(None).fit(views)
    assert (meta.dim, meta.rows, meta.view_dims) == (9, 300, (6, 9, 4))
    Z = meta.transform(views)
    assert np.abs(Z.mean(axis=0)).max() < 1e-4 * np.abs(Z).max()


@pytest.mark.parametrize("change", [
    {"loss": "kld"}, {"loss": "mae"}, {"hidden_layers": 1}, {"kind": "averaged"}, {"view_dropout": 0.1},
])  # fmt: skip
def test_only_mse_without_hidden_layers_is_solved_from_moments(change: dict[str, object]) -> None:
    parameters: dict[str, object] = {"loss": "mse", "hidden_layers": 0} | change
    assert not Autoencoder(**parameters).linear  # type: ignore[arg-type] # of several types
    with pytest.raises(InputError, match='solver="moments" is for loss="mse", hidden_layers=0'):
        Autoencoder(**parameters, solver="moments")  # type: ignore[arg-type] # of several types
