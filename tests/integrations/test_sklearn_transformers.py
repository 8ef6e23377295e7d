from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from ensembed.errors import DimensionError, InputError
from ensembed.integrations.sklearn import (
    AutoencoderTransformer,
    AutoTransformer,
    AverageTransformer,
    ConcatTransformer,
    GCCATransformer,
    SVDTransformer,
    ViewTransformer,
)
from ensembed.methods import GCCA, SVD, Auto, Autoencoder, Average, Concat, Method

DIMS = (6, 4, 5)

# All of scikit-learn's checks. The autoencoder's training is short, as it is fitted several hundred times.
CHECKED = [
    GCCATransformer(),
    SVDTransformer(),
    ConcatTransformer(),
    AverageTransformer(),
    AutoTransformer(),
    AutoTransformer(weights="equal", dim=1),
    AutoencoderTransformer(loss="mse", hidden_layers=0),
    AutoencoderTransformer(epochs=3, device="cpu"),
]

# Each transformer with the method that it is to be the same as.
PAIRS: list[tuple[ViewTransformer, Method]] = [
    (GCCATransformer(DIMS, dim=3, tau=0.5), GCCA(dim=3, tau=0.5)),
    (GCCATransformer(DIMS, weights=(1, 0, 2)), GCCA(weights=(1, 0, 2))),
    (GCCATransformer(DIMS, dim=2, weights="reliability"), GCCA(dim=2, weights="reliability")),
    (SVDTransformer(DIMS, dim=4), SVD(dim=4)),
    (SVDTransformer(DIMS, weights=[1, 2, 3]), SVD(weights=(1, 2, 3))),  # type: ignore[arg-type] # a list does, too
    (ConcatTransformer(DIMS), Concat()),
    (ConcatTransformer(DIMS, weights="reliability"), Concat(weights="reliability")),
    (AverageTransformer(DIMS), Average()),
    (AutoTransformer(DIMS), Auto()),
    (AutoTransformer(DIMS, dim=3, weights=(1, 0.5, 0.2)), Auto(dim=3, weights=(1, 0.5, 0.2))),
    (AutoTransformer(DIMS, weights="equal", whitened=(1,)), Auto(weights="equal", whitened=(1,))),
    (AutoencoderTransformer(DIMS, dim=3, loss="mse", hidden_layers=0), Autoencoder(3, 0, loss="mse")),
    (AutoencoderTransformer(DIMS, dim=3, epochs=2, device="cpu"), Autoencoder(dim=3, epochs=2, device="cpu")),
]
MERGEABLE = [
    GCCATransformer(DIMS, dim=3),
    SVDTransformer(DIMS, dim=3),
    ConcatTransformer(DIMS),
    AverageTransformer(DIMS, weights=(1, 2, 3)),
    AutoTransformer(DIMS, dim=3, weights=(1, 0.5, 0.2)),
    AutoTransformer(DIMS, weights=(1, 0.5, 0.2)),
    AutoencoderTransformer(DIMS, dim=3, loss="mse", hidden_layers=0),
]
NOT_MERGEABLE = [
    AutoTransformer(DIMS),
    AutoTransformer(DIMS, weights="equal", whitened=(0,)),
    SVDTransformer(DIMS, weights="reliability"),
    ConcatTransformer(DIMS, weights="reliability"),
    AutoencoderTransformer(DIMS, epochs=2),
]

pytestmark = pytest.mark.usefixtures("one_thread")


def matrix(rows: int = 60, seed: int = 0) -> NDArray[np.float64]:
    """Three views that share some of what they say, side by side; a row of one of them is zero."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((rows, 5))
    views = [shared @ rng.standard_normal((5, d)) + 0.3 * rng.standard_normal((rows, d)) + 1 for d in DIMS]
    views[1][min(3, rows - 1)] = 0
    return np.hstack(views)


def split(X: NDArray[Any]) -> list[NDArray[Any]]:
    return list(np.split(X, np.cumsum(DIMS)[:-1], axis=1))


@parametrize_with_checks(CHECKED)  # type: ignore[untyped-decorator] # not read
def test_transformer_passes_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:  # noqa: ANN401 - the library's
    check(estimator)


def test_transformer_passes_the_array_api_checks() -> None:
    code = """
from sklearn.utils.estimator_checks import estimator_checks_generator
from test_sklearn_transformers import CHECKED
checks = [(one, check) for transformer in CHECKED for one, check in estimator_checks_generator(transformer)]
chosen = [(one, check) for one, check in checks if "array_api" in check.func.__name__]
for one, check in chosen:
    check(one)
print(len(chosen))
"""
    environment = os.environ | {
        "SCIPY_ARRAY_API": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= len(CHECKED)


def test_default_dimension_is_at_most_what_the_rows_support() -> None:
    X = matrix()
    X[:, 5] = X[:, 0] + X[:, 1]
    X[:, 14] = X[:, 6]
    with pytest.raises(DimensionError, match="at most dim=5"):
        SVDTransformer(dim=6).fit(X[:6])
    for transformer in (SVDTransformer(), AutoencoderTransformer(loss="mse", hidden_layers=0)):
        assert transformer.fit(X[:6]).transform(X).shape == (60, 5)
        assert transformer.meta_.method["dim"] == 5
    np.testing.assert_array_equal(SVDTransformer().fit(X[:6]).transform(X), SVD(dim=5).fit([X[:6]]).transform([X]))


@pytest.mark.parametrize(("transformer", "method"), PAIRS, ids=[str(method) for _, method in PAIRS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transformer_equals_the_fitted_method(transformer: Any, method: Method, dtype: Any) -> None:  # noqa: ANN401 - each is of another class
    X = matrix().astype(dtype)
    fitted, meta = clone(transformer).fit(X), method.fit(split(X))
    assert fitted.meta_.method == meta.method
    assert fitted.view_dims_ == DIMS
    vectors = fitted.transform(X)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, meta.transform(split(X)))


@pytest.mark.parametrize("transformer", MERGEABLE, ids=str)
def test_partial_fit_in_any_order_equals_fit(transformer: Any) -> None:  # noqa: ANN401 - each is of another class
    X = matrix(200)
    whole = clone(transformer).fit(X).transform(X)
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        parts = np.split(X, [1, 40, 150])  # the first batch is one row
        batched = clone(transformer)
        for k in order:
            assert batched.partial_fit(parts[k]) is batched
        np.testing.assert_allclose(batched.transform(X), whole, rtol=1e-4, atol=1e-5)
    begun = clone(transformer).fit(X[:100]).partial_fit(X[100:])
    np.testing.assert_allclose(begun.transform(X), whole, rtol=1e-4, atol=1e-5)


def test_any_method_that_is_solved_from_moments_has_a_partial_fit() -> None:
    class Own(Autoencoder):  # not one of the classes that the module names, nor a MomentMethod
        normalize = True

    class Transformer(AutoencoderTransformer):
        _method_class = Own

    X = matrix(80)
    transformer = Transformer(DIMS, dim=3, loss="mse", hidden_layers=0)
    batched = clone(transformer).partial_fit(X[:30]).partial_fit(X[30:])
    assert batched.moments_ is not None
    unit = [view / np.maximum(np.linalg.norm(view, axis=1, keepdims=True), 1e-30) for view in split(X)]
    mean = np.concatenate([view.mean(axis=0) for view in unit])
    np.testing.assert_allclose(batched.moments_.mean, mean, rtol=1e-10)


def test_fit_forgets_an_earlier_fit() -> None:
    X, Y = matrix(seed=1), matrix(seed=2)
    again = GCCATransformer(DIMS, dim=2).partial_fit(X).fit(Y)
    np.testing.assert_array_equal(again.transform(Y), GCCATransformer(DIMS, dim=2).fit(Y).transform(Y))


@pytest.mark.parametrize("transformer", NOT_MERGEABLE, ids=str)
def test_method_that_needs_all_rows_has_no_partial_fit(transformer: Any) -> None:  # noqa: ANN401 - each is of another class
    assert not hasattr(transformer, "partial_fit")
    with pytest.raises(AttributeError, match="partial_fit"):
        transformer.partial_fit(matrix())


def test_parameters_take_effect_at_the_next_fit() -> None:
    X = matrix()
    transformer = SVDTransformer(DIMS, dim=3).partial_fit(X)
    transformer.set_params(dim=2)
    assert transformer.transform(X).shape == (60, 3)
    assert transformer.partial_fit(X).transform(X).shape == (60, 2)


def test_unusable_parameter_is_reported_by_the_call() -> None:
    transformer = GCCATransformer(DIMS, tau=-1)
    assert hasattr(transformer, "partial_fit")
    with pytest.raises(InputError, match="tau must be"):
        transformer.partial_fit(matrix())


def test_partial_fit_after_a_fit_without_moments_is_refused() -> None:
    transformer = SVDTransformer(DIMS, dim=2, weights="reliability").fit(matrix())
    transformer.set_params(weights="equal")
    with pytest.raises(InputError, match="no moments were kept"):
        transformer.partial_fit(matrix())


def test_partial_fit_refuses_other_views() -> None:
    transformer = GCCATransformer(DIMS, dim=2).partial_fit(matrix())
    before = transformer.transform(matrix())
    with pytest.raises(InputError, match="the rows before had"):
        transformer.set_params(view_dims=(5, 5, 5)).partial_fit(matrix())
    with pytest.raises(ValueError, match="expecting 15 features"):
        transformer.partial_fit(matrix()[:, :9])
    with pytest.raises(ValueError, match="NaN"):
        transformer.set_params(view_dims=DIMS).partial_fit(np.full((2, 15), np.nan))
    np.testing.assert_array_equal(transformer.transform(matrix()), before)


def test_too_few_rows_are_an_error_only_at_transform() -> None:
    transformer = SVDTransformer(DIMS, dim=3).partial_fit(matrix(1))
    with pytest.raises(InputError, match="n_samples = 1"):
        transformer.transform(matrix())
    transformer.partial_fit(matrix(2, seed=1))
    with pytest.raises(DimensionError, match="3 sentences"):
        transformer.transform(matrix())
    assert transformer.partial_fit(matrix()).transform(matrix()).shape == (60, 3)


@pytest.mark.parametrize(
    ("transformer", "message"),
    [
        (GCCATransformer((6, 4)), "add up to 10 columns, X has 15"),
        (GCCATransformer(15), "columns of each view"),
        (GCCATransformer((15, 0)), "columns of each view"),
        (GCCATransformer([]), "columns of each view"),
        (GCCATransformer((15,)), "at least two"),
        (GCCATransformer(DIMS, tau=-1), "tau must be"),
        (SVDTransformer(DIMS, dim=0), "dim must be"),
        (SVDTransformer(DIMS, dim=16), "support at most dim=15"),
        (ConcatTransformer(DIMS, weights=(1, 2)), "2 weights for 3 members"),
    ],
)
def test_impossible_fits_say_why(transformer: Any, message: str) -> None:  # noqa: ANN401 - each is of another class
    with pytest.raises(InputError, match=message):
        transformer.fit(matrix())
    with pytest.raises(NotFittedError):
        _ = transformer.meta_
    with pytest.raises(NotFittedError):
        transformer.transform(matrix())


def test_without_view_dims_gcca_takes_halves_and_the_others_one_view() -> None:
    X = matrix()
    assert GCCATransformer().fit(X).view_dims_ == (8, 7)
    assert SVDTransformer(dim=2).fit(X).view_dims_ == (15,)
    assert AverageTransformer().fit(X).view_dims_ == (15,)


def test_column_names_are_kept() -> None:
    X = pd.DataFrame(matrix(), columns=[f"c{i}" for i in range(15)], index=range(100, 160))
    transformer = GCCATransformer(DIMS, dim=2).set_output(transform="pandas")
    vectors = transformer.fit_transform(X)
    assert list(vectors.columns) == ["gccatransformer0", "gccatransformer1"]
    assert list(vectors.index) == list(range(100, 160))
    assert set(vectors.dtypes) == {np.dtype(np.float32)}
    assert list(transformer.feature_names_in_) == list(X.columns)
    assert transformer.n_features_in_ == 15
    assert list(transformer.get_feature_names_out()) == list(vectors.columns)
    with pytest.raises(ValueError, match="feature names"):
        transformer.transform(X[X.columns[::-1]])


def test_grid_search_over_a_pipeline() -> None:
    X = matrix(80)
    y = (X[:, 0] > 1).astype(int)
    pipeline = make_pipeline(GCCATransformer(DIMS), LogisticRegression())
    search = GridSearchCV(pipeline, {"gccatransformer__dim": [2, 4], "gccatransformer__tau": [0.1, 10.0]}, cv=3)
    assert search.fit(X, y).score(X, y) > 0.8
    assert search.predict(X[:3]).shape == (3,)


@pytest.mark.parametrize("lazy", [False, True])
def test_pickle_gives_the_same_vectors(lazy: bool) -> None:
    X = matrix()
    transformer = GCCATransformer(DIMS, dim=3)
    transformer = transformer.partial_fit(X) if lazy else transformer.fit(X)
    again = pickle.loads(pickle.dumps(transformer))  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(again.transform(X), transformer.transform(X))
    again.partial_fit(matrix(seed=3))
    assert (again.moments_.n, transformer.moments_.n) == (120, 60)  # type: ignore[union-attr] # it is fitted
