"""What holds for every registered method."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from method_views import TYPES, Array, cast, make_views
from threadpoolctl import threadpool_limits

from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.methods import GCCA, METHODS, Auto, Autoencoder, Meta, Method, make_method
from ensembed.methods.meta import Dense
from ensembed.methods.method import MomentMethod
from ensembed.reliability.sufficiency import POWER
from ensembed.support.progress import silent

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = settings(max_examples=25)
ROWS = 10_000  # more than one batch of `transform`, more than two blocks of moments
WEIGHTS = (0.25, 1.0, 0.5)
# Every registered method once, with four dimensions where it has `dim`; the autoencoder twice, solved and trained; and
# some with weights. Weights by reliability are not tested here: they take a sample of the rows.
CASES: dict[str, Method] = {
    name: make_method(name, **({"dim": 4} if "dim" in [field.name for field in kind.parameters()] else {}))
    for name, kind in sorted(METHODS.items()) if name not in ("ae", "auto")
} | {
    "auto": Auto(weights=WEIGHTS),
    "auto dim": Auto(dim=4, weights=WEIGHTS),
    "gcca weighted": GCCA(dim=4, weights=WEIGHTS),
    "ae weighted": Autoencoder(dim=4, hidden_layers=0, loss="mse", weights=WEIGHTS),
    "ae solved": Autoencoder(dim=4, hidden_layers=0, loss="mse"),
    "ae trained": Autoencoder(dim=4, hidden_dim=5, epochs=2, batch_size=3000, device="cpu"),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A method with views it can be fitted on."""

    method: Method
    views: list[Array]
    meta: Meta

    @property
    def learns(self) -> bool:
        """Whether it looks at the rows it is fitted on."""
        return self.method.needs_rows

    @property
    def solved(self) -> bool:
        """Whether it is the one best solution, and not what a walk from random weights came to."""
        return self.learns and not self.trained

    @property
    def trained(self) -> bool:
        return isinstance(self.method, Autoencoder) and not self.method.solved


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    method = CASES[request.param]
    views = make_views(ROWS, (6, 9, 5)[: 1 if request.param == "up" else 3])
    views = [view.astype(np.float32) for view in views]
    return Case(method, views, method.fit(views))


def _row_error(found: Array, expected: Array) -> float:
    lengths = np.linalg.norm(expected, axis=1)
    return float((np.linalg.norm(found - expected, axis=1) / lengths).max())


def test_a_method_is_frozen_plain_data_and_registered_by_its_name(case: Case) -> None:
    assert METHODS[case.method.name] is type(case.method)
    facts = json.loads(json.dumps(case.method.to_json()))
    assert facts.pop("name") == case.method.name
    assert type(case.method)(**facts) == case.method
    assert case.meta.method == case.method.to_json()
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
        case.method.tau = 3.0  # type: ignore[attr-defined] # it is frozen


def test_vectors_are_float32_of_the_dimension_that_was_asked_for(case: Case) -> None:
    Z = case.meta.transform(case.views)
    assert Z.dtype == np.float32
    assert Z.shape == (ROWS, case.meta.dim)
    assert Z.flags.c_contiguous
    assert case.meta.view_dims == tuple(view.shape[1] for view in case.views)
    assert case.meta.rows == (ROWS if case.learns else 0)


@QUICK
@given(row=st.integers(0, ROWS - 1), size=st.integers(1, 300))
def test_a_row_does_not_depend_on_the_rows_around_it(case: Case, row: int, size: int) -> None:
    whole = case.meta.transform(case.views)
    alone = case.meta.transform([view[row : row + size] for view in case.views])
    assert _row_error(alone, whole[row : row + size]) < 1e-6


@QUICK
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 500))
def test_permuting_rows_permutes_vectors(case: Case, seed: int, rows: int) -> None:
    order = np.random.default_rng(seed).permutation(ROWS)[:rows]
    permuted = case.meta.transform([view[order] for view in case.views])
    assert _row_error(permuted, case.meta.transform(case.views)[order]) < 1e-6


def test_permuting_the_training_rows_gives_the_same_meta_embedding(case: Case) -> None:
    method, expected = case.method, case.meta.transform(case.views)
    if isinstance(method, Autoencoder) and case.trained:  # up to which rows share a batch: here all do
        method = dataclasses.replace(method, batch_size=ROWS)
        expected = method.fit(case.views).transform(case.views)
    order = np.random.default_rng(0).permutation(ROWS)
    other = method.fit([view[order] for view in case.views])
    assert _row_error(other.transform(case.views), expected) < 1e-5


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_nothing(case: Case, threads: int) -> None:
    other = case.method.fit(case.views, threads=threads)
    with threadpool_limits(threads):
        Z = other.transform(case.views)
    assert _row_error(Z, case.meta.transform(case.views)) < 1e-5


@pytest.mark.parametrize("option", ["precision", "threads", "device", "progress", "checkpoint", "thread"])
@pytest.mark.parametrize("name", CASES)
def test_fit_takes_the_options_that_the_method_uses_and_names_any_other(name: str, option: str, tmp_path: Path) -> None:
    values = {"precision": "float32", "threads": 1, "device": None, "checkpoint": tmp_path / "kept", "thread": 1}
    given: dict[str, Any] = {option: values.get(option, silent)}
    method, views = CASES[name], make_views(90, (6, 9, 5)[: 1 if name == "up" else 3])
    takes = {"threads", "progress"}
    if isinstance(method, MomentMethod):
        takes |= {"precision", "device"}
    elif isinstance(method, Autoencoder):
        takes |= {"checkpoint"}
    assert set(method.fit_options) == takes
    if option in takes:
        assert method.fit(views, **given).dim >= 4
    else:
        with pytest.raises(
            TypeError, match=rf"{type(method).__name__}\.fit\(\) takes no argument '{option}'"
        ) as raised:
            method.fit(views, **given)
        assert all(each in str(raised.value) for each in (*takes, "passes"))


def test_fitting_twice_gives_the_same_bits(case: Case) -> None:
    np.testing.assert_array_equal(
        case.method.fit(case.views).transform(case.views), case.meta.transform(case.views)
    )  # fmt: skip


def test_inputs_are_not_changed_and_may_be_write_protected(case: Case) -> None:
    for dtype in (np.float32, np.float64):
        views = [view.astype(dtype) for view in case.views]
        for view in views:
            view.setflags(write=False)
        case.method.fit(views).transform(views)
        for view, original in zip(views, case.views, strict=True):
            np.testing.assert_array_equal(view, original)


def test_memory_maps_and_anything_read_in_stretches_are_taken(case: Case, tmp_path: Path) -> None:
    maps, stretches = [], []
    for j, view in enumerate(case.views):
        np.save(tmp_path / f"{j}.npy", view)
        maps.append(np.load(tmp_path / f"{j}.npy", mmap_mode="r"))
        stretches.append(_Stretches(view))
    expected = case.meta.transform(case.views)
    for views in (maps, stretches):
        np.testing.assert_array_equal(case.method.fit(views).transform(views), expected)


@pytest.mark.parametrize("kind", TYPES)
def test_the_type_of_the_numbers_does_not_matter(case: Case, kind: str) -> None:
    whole = [
        np.random.default_rng(j).integers(0, 256, (90, d)).astype(float) for j, d in enumerate(case.meta.view_dims)
    ]
    views = [cast(X, kind) for X in whole]
    assert oracles.gram_error(case.method.fit(views).transform(views), case.method.fit(whole).transform(whole)) < 1e-5


def test_numbers_that_are_not_numpys_are_taken(case: Case) -> None:
    """A tensor's dtype is not one of numpy's."""
    views = [_Tensor(view[:90]) for view in case.views]
    expected = case.meta.transform([view[:90] for view in case.views])
    np.testing.assert_array_equal(case.meta.transform(views), expected)


@pytest.mark.parametrize("k", [1, 3, 4])
def test_truncating_takes_the_best_dimensions(case: Case, k: int) -> None:
    short, whole = case.meta.truncate(k), case.meta.transform(case.views)
    assert short.dim == k
    vectors = short.transform(case.views)
    assert oracles.error(case.meta.shorten(whole, k), vectors) < 1e-5
    if case.meta.spectrum is not None:
        assert short.spectrum is not None
        assert oracles.error(vectors, whole[:, :k]) < 1e-6
        np.testing.assert_array_equal(short.spectrum, case.meta.spectrum[:k])
    elif k < case.meta.dim:  # no other k directions of the vectors, scaled to length one, hold more of them
        lengths = np.linalg.norm(whole, axis=1, keepdims=True)
        unit = whole / np.where(lengths > 0, lengths, 1)
        best = np.linalg.eigvalsh(unit.T.astype(np.float64) @ unit / len(unit))[::-1][:k]
        best *= (best / best[0]) ** -POWER
        np.testing.assert_allclose(np.square(vectors / np.where(lengths > 0, lengths, 1)).mean(axis=0), best, rtol=0.03)
        assert oracles.error(short.truncate(1).transform(case.views), vectors[:, :1]) < 1e-6
    assert short.view_dims == case.meta.view_dims
    assert short.rows == case.meta.rows


def test_the_spectrum_falls(case: Case) -> None:
    if case.solved:
        assert case.meta.spectrum is not None
        assert case.meta.spectrum.shape == (case.meta.dim,)
        assert (np.diff(case.meta.spectrum) <= 0).all()
    else:
        assert case.meta.spectrum is None


def test_signs_are_fixed_by_convention(case: Case) -> None:
    if case.solved:
        theta = np.vstack([projection.matrix for projection in case.meta.projections if isinstance(projection, Dense)])
        assert (theta[np.abs(theta).argmax(axis=0), np.arange(case.meta.dim)] > 0).all()


@pytest.mark.parametrize("k", [0, -1, 1000])
def test_truncating_to_what_is_not_there_is_refused(case: Case, k: int) -> None:
    with pytest.raises(DimensionError, match=f"cannot truncate to {k} dimensions: there are {case.meta.dim}"):
        case.meta.truncate(k)


@pytest.mark.parametrize("k", [1.5, 2.0, "2", None])
def test_truncating_takes_a_whole_number(case: Case, k: Any) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(DimensionError, match=f"a whole number of dimensions, not {k!r}"):
        case.meta.truncate(k)


def test_no_rows_give_no_vectors(case: Case) -> None:
    assert case.meta.transform([view[:0] for view in case.views]).shape == (0, case.meta.dim)


def test_views_that_are_missing_are_left_out_of_the_sum(case: Case) -> None:
    J = len(case.views)
    alone = [case.meta.transform([v if i == j else None for i, v in enumerate(case.views)]) for j in range(J)]
    whole = case.meta.transform(case.views)
    assert _row_error(np.sum(alone, axis=0), whole) < 1e-5
    if J > 1:
        some = case.meta.transform([*case.views[:-1], None])
        assert _row_error(np.sum(alone[:-1], axis=0), some) < 1e-5
        assert _row_error(some, whole) > 1e-3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 7, 9000])
def test_nan_and_inf_are_named_by_view_and_row(case: Case, bad: float, row: int) -> None:
    for j in range(len(case.views)):
        views = [view.copy() for view in case.views]
        views[j][row, -1] = bad
        calls: list[Callable[[list[Array]], Any]] = [case.meta.transform]
        if case.learns:
            calls.append(case.method.fit)
        for call in calls:
            with pytest.raises(ViewError, match=f"view {j} holds NaN or Inf in row {row};"):
                call(views)


def test_nan_in_a_column_that_was_truncated_away_is_found_where_rows_are_normalised(case: Case) -> None:
    if case.meta.normalize:
        views = [view[:5].copy() for view in case.views]
        views[0][3, -1] = np.nan
        with pytest.raises(ViewError, match="view 0 holds NaN or Inf in row 3;"):
            case.meta.truncate(1).transform(views)


def test_views_are_numbered_as_given_where_some_are_missing(case: Case) -> None:
    if len(case.views) == 3:
        a, b = case.views[1:]
        bad = b.copy()
        bad[2] = np.nan
        for views, message in [
            ([None, a, b[:5]], f"view 2 has 5 rows, view 1 has {ROWS}"),
            ([None, a, b[0]], "view 2 has shape"),
            ([None, a, bad], "view 2 holds NaN or Inf in row 2"),
            ([None, a, a], "view 2 has 9 columns; it was fitted with 5"),
        ]:
            with pytest.raises(ViewError, match=message):
                case.meta.transform(views)


def test_what_is_no_list_of_aligned_matrices_is_refused(case: Case) -> None:
    good = [view[:5] for view in case.views]
    bad: list[tuple[Any, str]] = [
        ([], "at least one view, got none"),
        (good[0], "expected a list of views, got one matrix"),
        ([good[0][0]], r"view 0 has shape \(6,\)"),
        ([good[0][None]], r"view 0 has shape \(1, 5, 6\)"),
        ([good[0][:, :0]], r"view 0 has shape \(5, 0\)"),
        ([3.0], r"view 0 has shape \(\)"),
        ([good[0], good[0][:4]], "view 1 has 4 rows, view 0 has 5: rows must be aligned"),
        ([[[1.0, 2.0], [3.0]]], "view 0 is not a matrix"),
        ([[["a", "b"]]], "view 0 holds <U1; a view holds real numbers"),
        ([np.array([[1, None]])], "view 0 holds object"),
        ([good[0] * 1j], "view 0 holds complex64"),
        ([good[0].astype("datetime64[s]")], "view 0 holds datetime64"),
    ]
    for views, message in bad:
        with pytest.raises(ViewError, match=message):
            case.method.fit(views)


def test_views_that_were_not_fitted_on_are_refused(case: Case) -> None:
    J = len(case.views)
    with pytest.raises(ViewError, match="all views are missing"):
        case.meta.transform([None] * J)
    with pytest.raises(ViewError, match=f"takes {J} views, got {J + 1}"):
        case.meta.transform([*case.views, case.views[0]])
    with pytest.raises(ViewError, match=f"takes {J} views, got 0"):
        case.meta.transform([])
    with pytest.raises(ViewError, match="view 0 has 5 columns; it was fitted with 6"):
        case.meta.transform([case.views[0][:, :5], *case.views[1:]])


@pytest.mark.parametrize("n", [0, 1])
def test_learning_takes_two_sentences(case: Case, n: int) -> None:
    if case.learns:
        with pytest.raises(InputError, match=f"{case.method.name} needs at least two sentences to learn from, got {n}"):
            case.method.fit([view[:n] for view in case.views])


def test_values_too_large_for_float32_are_refused_by_row(case: Case) -> None:
    if not case.meta.normalize:
        views = [view[:5].astype(np.float64) for view in case.views]
        views[-1][3] *= 1e200
        with pytest.raises(ViewError, match="the rows from 3 on hold values too large"):
            case.meta.transform(views)


def test_progress_ends_with_all_rows(case: Case) -> None:
    if case.learns:
        reports: list[tuple[str, int, int | None]] = []
        case.method.fit(case.views, progress=lambda *report: reports.append(report))
        assert reports[-1] == (("train", 2, 2) if case.trained else ("moments", ROWS, ROWS))


class _Stretches:
    """The least that a matrix is."""

    def __init__(self, X: Array) -> None:
        self._X = X
        self.shape = X.shape
        self.dtype = X.dtype

    def __getitem__(self, rows: slice) -> Array:
        if not isinstance(rows, slice):
            raise TypeError(rows)
        return self._X[rows]


class _Tensor:
    """What a tensor of another library looks like."""

    def __init__(self, X: Array) -> None:
        self._X = X
        self.shape = X.shape
        self.dtype = "torch.float32"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: ANN401 - numpy's own
        return np.array(self._X, dtype=dtype, copy=copy)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("read me as an array")
