"""Methods as scikit-learn transformers of one matrix in which the views stand side by side.

A fitted transformer is the method's own fit on the views, which are stretches of columns (`view_dims`). Only where no
dimension is asked for, and the rows do not support the usual one, it takes what they support instead of refusing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import DimensionError, InputError
from ensembed.methods import GCCA, SVD, Auto, Autoencoder, Average, Concat, Meta, Method, make_method
from ensembed.methods.autoencoder.autoencoder_method import Kind, Loss, Precision, Solver
from ensembed.methods.base import MomentMethod
from ensembed.methods.projections import Activation, FloatArray
from ensembed.methods.weights import Weights
from ensembed.numerics.moments import Moments
from ensembed.support.extras import import_extra

import_extra("sklearn", "sklearn", "ensembed.integrations.sklearn")

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin  # noqa: E402 - checked above
from sklearn.exceptions import NotFittedError  # noqa: E402 - checked above
from sklearn.utils.metaestimators import available_if  # noqa: E402 - checked above
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402 - checked above

__all__ = [
    "AutoTransformer",
    "AutoencoderTransformer",
    "AverageTransformer",
    "ConcatTransformer",
    "GCCATransformer",
    "SVDTransformer",
    "ViewTransformer",
]

ViewDims: TypeAlias = Sequence[int] | None

# What is computed with; anything else that holds numbers becomes the first.
_DTYPES = (np.float64, np.float32)


def _mergeable(transformer: ViewTransformer) -> bool:
    """Whether `partial_fit` is there; the error says why it is not."""
    try:
        method = transformer.method
    except InputError:  # a hyper-parameter that cannot be used is reported by the call, not by a look at what is there
        return True
    if _by_moments(method) or not method.needs_rows:
        return True
    raise AttributeError(f"{method} looks at the rows, all of them at once: it has `fit`, but no `partial_fit`")


def _by_moments(method: Method) -> bool:
    """Whether second moments, which can be added up, are all that the method learns from."""
    if isinstance(method, Autoencoder):
        return method.solved and not method.wants_reliability
    return isinstance(method, MomentMethod) and method.needs_rows and method.solvable


class ViewTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc] # no types
    """What the transformers have in common; its subclasses name a method and have its hyper-parameters.

    Vectors are float32, whatever X is. X is checked as scikit-learn does it: two dimensions, dense, no NaN or Inf.

    Attributes:
        method_: the method, as it was when it was fitted.
        meta_: the fitted meta-embedding. After `partial_fit` it is solved when it is first used.
        moments_: the moments of all rows seen, where the method is a function of them; None elsewhere.
        view_dims_: the columns of each view.
        n_features_in_: the columns of X.
        feature_names_in_: their names, where X had any.
    """

    _makes: ClassVar[type[Method]]
    _halves: ClassVar[bool] = False
    _least_columns: ClassVar[int] = 1

    view_dims: ViewDims
    _meta: Meta | None

    @property
    def method(self) -> Method:
        """The method with these hyper-parameters.

        Raises:
            InputError: a hyper-parameter cannot be used.
        """
        given: dict[str, Any] = self.get_params(deep=False)
        return self._makes(**{name: value for name, value in given.items() if name != "view_dims"})

    def fit(self, X: Any, y: object = None) -> ViewTransformer:  # noqa: ANN401, ARG002 - scikit-learn's own signature
        """Fit the method on the rows of X [n, D]; whatever was fitted before is forgotten.

        Raises:
            ValueError: X is not such a matrix, or the method cannot be fitted on it (`InputError`).
        """
        method = self.method
        views, dims = self._validated(X, method, reset=True, least=2 if method.needs_rows else 1)
        moments = _moments_of(method, views) if _by_moments(method) else None
        meta = _supported(method, lambda one: one.fit(views)) if moments is None else _solved(method, moments, dims)
        self.method_, self.view_dims_, self.moments_ = method, dims, moments
        self._meta = meta
        return self

    @available_if(_mergeable)  # type: ignore[untyped-decorator] # the library has no types
    def partial_fit(self, X: Any, y: object = None) -> ViewTransformer:  # noqa: ANN401, ARG002 - as in `fit`
        """Add the rows of X [n, D] to those seen before; batches in any order give what `fit` gives, to rounding.

        Raises:
            ValueError: X is not such a matrix; what was seen before stays.
        """
        method = self.method
        first = not self.__sklearn_is_fitted__()
        views, dims = self._validated(X, method, reset=first, least=1)
        before = None if first else self.moments_
        if not first and dims != self.view_dims_:
            raise InputError(f"view_dims is {dims} now; the rows before had {self.view_dims_}: call `fit`")
        moments = None
        if _by_moments(method):
            moments = _moments_of(method, views)
            if before is not None:
                moments = before + moments
            elif not first:
                raise InputError("no moments were kept of the rows before, as the method was another: call `fit`")
        self.method_, self.view_dims_, self.moments_ = method, dims, moments
        self._meta = None
        return self

    def transform(self, X: Any) -> FloatArray:  # noqa: ANN401 - whatever scikit-learn takes for a matrix
        """Vectors [n, d] of the rows of X [n, D], float32."""
        check_is_fitted(self)
        meta = self.meta_
        checked = validate_data(self, X, reset=False, dtype=list(_DTYPES))
        return meta.transform(_split(checked, self.view_dims_))

    @property
    def meta_(self) -> Meta:
        """The fitted meta-embedding."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call `fit` first")
        if self._meta is None:
            method: Method = self.method_
            moments, dims = self.moments_, self.view_dims_
            self._meta = method.build(dims) if moments is None else _solved(method, moments, dims)
        return self._meta

    @property
    def _n_features_out(self) -> int:
        return self.meta_.dim

    def _validated(
        self,
        X: Any,  # noqa: ANN401 - as in `fit`
        method: Method,
        *,
        reset: bool,
        least: int,
    ) -> tuple[list[NDArray[Any]], tuple[int, ...]]:
        """The views in X, and their dimensions."""
        known = None if self.view_dims is None else _checked_dims(self.view_dims)
        checked = validate_data(
            self,
            X,
            reset=reset,
            dtype=list(_DTYPES),
            ensure_min_samples=least,
            ensure_min_features=self._least_columns if reset and method.needs_rows else 1,
        )
        columns = checked.shape[1]
        if known is None:
            known = (columns - columns // 2, columns // 2) if self._halves else (columns,)
        elif sum(known) != columns:
            raise InputError(f"view_dims={list(known)} add up to {sum(known)} columns, X has {columns}")
        return _split(checked, known), known

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "view_dims_")

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn has no types
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _checked_dims(dims: Sequence[int]) -> tuple[int, ...]:
    whole = isinstance(dims, (Sequence, np.ndarray)) and not isinstance(dims, str) and len(dims) > 0
    if not whole or not all(isinstance(one, (int, np.integer)) and one > 0 for one in dims):
        raise InputError(f"view_dims are the columns of each view, as in [384, 256], not {dims!r}")
    return tuple(int(one) for one in dims)


def _split(X: NDArray[Any], dims: Sequence[int]) -> list[NDArray[Any]]:
    return list(np.split(X, np.cumsum(dims)[:-1], axis=1))


def _moments_of(method: Method, views: list[NDArray[Any]]) -> Moments:
    """The moments that the method's own fit would take."""
    return Moments.of_views(views, normalize=isinstance(method, MomentMethod) and method.normalize)


def _solved(method: Method, moments: Moments, dims: Sequence[int]) -> Meta:
    if moments.n < 2:
        raise InputError(f"{method.name} needs at least two rows to learn from, got n_samples = {moments.n}")
    return _supported(method, lambda one: one.solve(moments, dims))


def _supported(method: Method, fit: Callable[[Any], Meta]) -> Meta:
    """What is fitted; where no dimension was asked for, and the usual one cannot be had, with the most that can."""
    try:
        return fit(method)
    except DimensionError as error:
        if getattr(method, "dim", 0) is not None or not error.supported:
            raise
        return fit(make_method(method.name, **(dataclasses.asdict(method) | {"dim": error.supported})))


class GCCATransformer(ViewTransformer):
    """Generalised canonical correlation analysis of the views, `ensembed.methods.GCCA`.

    Args:
        view_dims: the columns of each view, from left to right. None takes two halves, the left one with the odd
            column: one view has nothing to correlate with.
        dim: of the vectors; None takes that of the largest view, or what the rows support if this is less.
        tau: the regularisation.
        weights: what each view counts: "equal", "reliability" (no `partial_fit` then), or a number per view.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 7))
        >>> GCCATransformer(view_dims=(4, 3), dim=2).fit_transform(X).shape
        (100, 2)
    """

    _makes = GCCA
    _halves = True
    _least_columns = 2

    def __init__(
        self, view_dims: ViewDims = None, *, dim: int | None = None, tau: float = 10.0, weights: Weights = "equal"
    ) -> None:
        self.view_dims = view_dims
        self.dim = dim
        self.tau = tau
        self.weights = weights


class SVDTransformer(ViewTransformer):
    """Singular value decomposition of the views, each scaled to length one: `ensembed.methods.SVD`.

    Args:
        view_dims: the columns of each view, from left to right; None takes X as one view.
        dim: of the vectors; None takes that of the largest view, or what the rows support if this is less.
        weights: what each view counts: "equal", "reliability" (no `partial_fit` then), or a number per view.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 7))
        >>> SVDTransformer(view_dims=(4, 3), dim=2).fit(X[:50]).partial_fit(X[50:]).transform(X).shape
        (100, 2)
    """

    _makes = SVD
    _least_columns = 2  # of one column only the sign is left

    def __init__(self, view_dims: ViewDims = None, *, dim: int | None = None, weights: Weights = "equal") -> None:
        self.view_dims = view_dims
        self.dim = dim
        self.weights = weights


class ConcatTransformer(ViewTransformer):
    """The views side by side, each scaled to length one: `ensembed.methods.Concat`.

    Args:
        view_dims: the columns of each view, from left to right; None takes X as one view.
        weights: what each view counts: "equal", "reliability" (no `partial_fit` then), or a number per view.

    Example:
        >>> ConcatTransformer(view_dims=(2, 1)).fit_transform([[3.0, 4.0, -2.0]])
        array([[ 0.6,  0.8, -1. ]], dtype=float32)
    """

    _makes: ClassVar[type[Method]] = Concat

    def __init__(self, view_dims: ViewDims = None, *, weights: Weights = "equal") -> None:
        self.view_dims = view_dims
        self.weights = weights


class AverageTransformer(ConcatTransformer):
    """The mean of the views, each scaled to length one, short ones padded with zeros: `ensembed.methods.Average`.

    Args:
        view_dims: the columns of each view, from left to right; None takes X as one view.
        weights: what each view counts: "equal", "reliability" (no `partial_fit` then), or a number per view.

    Example:
        >>> AverageTransformer(view_dims=(2, 1)).fit_transform([[3.0, 4.0, -2.0]])
        array([[-0.2,  0.4]], dtype=float32)
    """

    _makes: ClassVar[type[Method]] = Average


class AutoTransformer(ViewTransformer):
    """A concatenation in which views count as far as they can be trusted: `ensembed.methods.Auto`.

    Args:
        view_dims: the columns of each view, from left to right; None takes X as one view.
        dim: of the vectors; None keeps the whole concatenation.
        weights: "reliability", found from the views alone; "equal"; or a number per view.
        whitened: the places of the views that are softly whitened; found, too, with weights by reliability.

    `partial_fit` is there where weights are given and nothing is whitened.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 7))
        >>> AutoTransformer(view_dims=(4, 3), weights=(1.0, 0.5), dim=2).fit_transform(X).shape
        (100, 2)
    """

    _makes = Auto

    def __init__(
        self,
        view_dims: ViewDims = None,
        *,
        dim: int | None = None,
        weights: Weights = "reliability",
        whitened: tuple[int, ...] = (),
    ) -> None:
        self.view_dims = view_dims
        self.dim = dim
        self.weights = weights
        self.whitened = whitened


class AutoencoderTransformer(ViewTransformer):
    """Encoders from whose output every view can be reconstructed: `ensembed.methods.Autoencoder`.

    Training needs torch (`pip install 'ensembed[ae]'`). With `loss="mse"` and `hidden_layers=0` it is solved from the
    moments, without torch, and there is `partial_fit`.

    Args:
        view_dims: the columns of each view, from left to right; None takes X as one view.
        dim: of the vectors; None takes that of the largest view, or what the rows support if this is less.
        hidden_layers: this and all others are those of `ensembed.methods.Autoencoder`, which explains them.
    """

    _makes = Autoencoder

    def __init__(
        self,
        view_dims: ViewDims = None,
        *,
        dim: int | None = None,
        hidden_layers: int = 1,
        hidden_dim: int | None = None,
        activation: Activation = "relu",
        loss: Loss = "kld",
        temperature: float = 1.0,
        kind: Kind = "cross",
        view_dropout: float = 0.0,
        epochs: int = 500,
        batch_size: int = 10_000,
        learning_rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        patience: int | None = None,
        seed: int = 0,
        device: str | None = None,
        precision: Precision = "auto",
        solver: Solver = "auto",
        weights: Weights = "equal",
    ) -> None:
        self.view_dims = view_dims
        self.dim = dim
        self.hidden_layers = hidden_layers
        self.hidden_dim = hidden_dim
        self.activation = activation
        self.loss = loss
        self.temperature = temperature
        self.kind = kind
        self.view_dropout = view_dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.betas = betas
        self.patience = patience
        self.seed = seed
        self.device = device
        self.precision = precision
        self.solver = solver
        self.weights = weights
