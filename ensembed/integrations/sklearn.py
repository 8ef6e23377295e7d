"""Methods as scikit-learn transformers of one matrix X that holds the views side by side (`view_dims`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError
from ensembed.methods import GCCA, SVD, Auto, Autoencoder, Average, Concat, Meta, Method
from ensembed.methods.autoencoder.autoencoder_method import Kind, Loss, Precision, Solver
from ensembed.methods.meta import Activation, FloatArray
from ensembed.methods.method import fit_supported
from ensembed.methods.weights import Weights
from ensembed.numerics.moments import Moments
from ensembed.support.extras import import_extra

import_extra("sklearn", "sklearn", "ensembed.integrations.sklearn")

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin  # noqa: E402 - checked above
from sklearn.exceptions import NotFittedError  # noqa: E402 - checked above
from sklearn.utils.metaestimators import available_if  # noqa: E402 - checked above
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402 - checked above

ViewDims: TypeAlias = Sequence[int] | None

_DTYPES = [np.float64, np.float32]  # to compute with; numbers of any other type become the first


def _mergeable(transformer: ViewTransformer) -> bool:
    """Return whether there is a `partial_fit`; raise an AttributeError that says why there is none."""
    try:
        method = transformer.method
    except InputError:  # an unusable hyper-parameter is reported by the call, not by looking for the attribute
        return True
    if method.solvable or not method.needs_rows:
        return True
    raise AttributeError(f"{method} needs all rows at once: it has `fit`, but no `partial_fit`")


@dataclass(eq=False, repr=False)
class ViewTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc] # no types
    """The base of the transformers: a subclass names a method and has its hyper-parameters as fields.

    Vectors are float32. X is checked by scikit-learn's rules: two dimensions, dense, no NaN or Inf.

    Attributes:
        method_: the method, as it was when it was fitted.
        meta_: the fitted meta-embedding. After `partial_fit` it is solved when it is first used.
        moments_: the moments of all rows seen, if the method is a function of them; otherwise None.
        view_dims_: the columns of each view.
        n_features_in_: the columns of X.
        feature_names_in_: their names, if X had any.
    """

    _method_class: ClassVar[type[Method]]
    _halves: ClassVar[bool] = False
    _least_columns: ClassVar[int] = 1

    view_dims: ViewDims = None

    @property
    def method(self) -> Method:
        """The method with these hyper-parameters; an InputError if one cannot be used."""
        parameters: dict[str, Any] = self.get_params(deep=False)
        return self._method_class(**{name: value for name, value in parameters.items() if name != "view_dims"})

    def fit(self, X: object, y: object = None) -> ViewTransformer:  # noqa: ARG002 - scikit-learn's signature
        """Fit the method on the rows of X [n, D] and forget any earlier fit; an unusable X is a ValueError."""
        method = self.method
        views, dims = self._validated(X, method, reset=True, least_rows=2 if method.needs_rows else 1)
        moments = _moments_of(method, views)
        meta = _fitted(method, lambda m: m.fit(views)) if moments is None else _solved(method, moments, dims)
        self.method_, self.view_dims_, self.moments_ = method, dims, moments
        self._meta: Meta | None = meta
        return self

    @available_if(_mergeable)  # type: ignore[untyped-decorator] # the library has no types
    def partial_fit(self, X: object, y: object = None) -> ViewTransformer:  # noqa: ARG002 - as in `fit`
        """Add the rows of X [n, D] to those seen before; batches in any order give what `fit` gives, to rounding."""
        method = self.method
        first = not self.__sklearn_is_fitted__()
        views, dims = self._validated(X, method, reset=first, least_rows=1)
        if not first and dims != self.view_dims_:
            raise InputError(f"view_dims is {dims} now; the rows before had {self.view_dims_}: call `fit`")
        moments = _moments_of(method, views)
        if moments is not None and not first:
            if self.moments_ is None:
                raise InputError("no moments were kept of the rows before, as the method was another: call `fit`")
            moments = self.moments_ + moments
        self.method_, self.view_dims_, self.moments_ = method, dims, moments
        self._meta = None
        return self

    def transform(self, X: object) -> FloatArray:
        """Return the vectors [n, d] of the rows of X [n, D], float32."""
        check_is_fitted(self)
        return self.meta_.transform(_split(validate_data(self, X, reset=False, dtype=_DTYPES), self.view_dims_))

    @property
    def meta_(self) -> Meta:
        """The fitted meta-embedding."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call `fit` first")
        if self._meta is None:
            method, moments, dims = self.method_, self.moments_, self.view_dims_
            self._meta = method.build(dims) if moments is None else _solved(method, moments, dims)
        return self._meta

    @property
    def _n_features_out(self) -> int:
        return self.meta_.dim

    def _validated(
        self, X: object, method: Method, *, reset: bool, least_rows: int
    ) -> tuple[list[NDArray[Any]], tuple[int, ...]]:
        """Return the views in X and their dimensions."""
        dims = None if self.view_dims is None else _checked_dims(self.view_dims)
        least = {"ensure_min_features": self._least_columns if reset and method.needs_rows else 1}
        checked = validate_data(self, X, reset=reset, dtype=_DTYPES, ensure_min_samples=least_rows, **least)
        columns = checked.shape[1]
        if dims is None:
            dims = (columns - columns // 2, columns // 2) if self._halves else (columns,)
        elif sum(dims) != columns:
            raise InputError(f"view_dims={list(dims)} add up to {sum(dims)} columns, X has {columns}")
        return _split(checked, dims), dims

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "view_dims_")

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn has no types
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _checked_dims(dims: Sequence[int]) -> tuple[int, ...]:
    valid = isinstance(dims, (Sequence, np.ndarray)) and not isinstance(dims, str) and len(dims) > 0
    if not valid or not all(isinstance(dim, (int, np.integer)) and dim > 0 for dim in dims):
        raise InputError(f"view_dims are the columns of each view, as in [384, 256], not {dims!r}")
    return tuple(int(dim) for dim in dims)


def _split(X: NDArray[Any], dims: Sequence[int]) -> list[NDArray[Any]]:
    return list(np.split(X, np.cumsum(dims)[:-1], axis=1))


def _moments_of(method: Method, views: list[NDArray[Any]]) -> Moments | None:
    """Return the moments that the method's own fit would take; None if it does not learn from moments alone."""
    return Moments.of_views(views, normalize=method.normalize) if method.needs_rows and method.solvable else None


def _solved(method: Method, moments: Moments, dims: Sequence[int]) -> Meta:
    if moments.n < 2:
        raise InputError(f"{method.name} needs at least two rows to learn from, got n_samples = {moments.n}")
    return _fitted(method, lambda m: m.solve(moments, dims))


def _fitted(method: Method, fit: Callable[[Any], Meta]) -> Meta:
    """Fit; if no dimension was given and the rows do not support the default, take the largest that they support."""
    return fit_supported(method, fit) if getattr(method, "dim", 0) is None else fit(method)


@dataclass(eq=False, repr=False, kw_only=True)
class GCCATransformer(ViewTransformer):
    """Generalised canonical correlation analysis of the views, `ensembed.methods.GCCA`.

    Args:
        view_dims: the columns of each view, from left to right; None takes two halves, the left with the odd column.
        dim: the length of a vector; None takes the largest view's, or the largest that the rows support.
        tau: the regularisation.
        weights: the weight of each view: "equal", "reliability" (no `partial_fit` then), or a number per view.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 7))
        >>> GCCATransformer(view_dims=(4, 3), dim=2).fit_transform(X).shape
        (100, 2)
    """

    _method_class = GCCA
    _halves = True
    _least_columns = 2

    dim: int | None = None
    tau: float = 10.0
    weights: Weights = "equal"


@dataclass(eq=False, repr=False, kw_only=True)
class SVDTransformer(ViewTransformer):
    """Singular value decomposition of the views, each scaled to length one: `ensembed.methods.SVD`.

    Args:
        view_dims: the columns of each view, from left to right; None takes X as one view.
        dim: the length of a vector; None takes the largest view's, or the largest that the rows support.
        weights: the weight of each view: "equal", "reliability" (no `partial_fit` then), or a number per view.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 7))
        >>> SVDTransformer(view_dims=(4, 3), dim=2).fit(X[:50]).partial_fit(X[50:]).transform(X).shape
        (100, 2)
    """

    _method_class = SVD
    _least_columns = 2  # one column scaled to length one is only a sign

    dim: int | None = None
    weights: Weights = "equal"


@dataclass(eq=False, repr=False, kw_only=True)
class ConcatTransformer(ViewTransformer):
    """The views side by side, each scaled to length one: `ensembed.methods.Concat`.

    Args:
        view_dims: the columns of each view, from left to right; None takes X as one view.
        weights: the weight of each view: "equal", "reliability" (no `partial_fit` then), or a number per view.

    Example:
        >>> ConcatTransformer(view_dims=(2, 1)).fit_transform([[3.0, 4.0, -2.0]])
        array([[ 0.6,  0.8, -1. ]], dtype=float32)
    """

    _method_class: ClassVar[type[Method]] = Concat

    weights: Weights = "equal"


class AverageTransformer(ConcatTransformer):
    """The mean of the views, each scaled to length one, short ones padded with zeros: `ensembed.methods.Average`.

    Args:
        view_dims: the columns of each view, from left to right; None takes X as one view.
        weights: the weight of each view: "equal", "reliability" (no `partial_fit` then), or a number per view.

    Example:
        >>> AverageTransformer(view_dims=(2, 1)).fit_transform([[3.0, 4.0, -2.0]])
        array([[-0.2,  0.4]], dtype=float32)
    """

    _method_class: ClassVar[type[Method]] = Average


@dataclass(eq=False, repr=False, kw_only=True)
class AutoTransformer(ViewTransformer):
    """A concatenation in which views count by reliability: `ensembed.methods.Auto`; `partial_fit` needs given weights.

    Args:
        view_dims: the columns of each view, from left to right; None takes X as one view.
        dim: the length of a vector; None keeps the whole concatenation.
        weights: "reliability", estimated from the views alone; "equal"; or a number per view.
        whitened: the places of softly whitened views (no `partial_fit` then); weights by reliability find them, too.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 7))
        >>> AutoTransformer(view_dims=(4, 3), weights=(1.0, 0.5), dim=2).fit_transform(X).shape
        (100, 2)
    """

    _method_class = Auto

    dim: int | None = None
    weights: Weights = "reliability"
    whitened: tuple[int, ...] = ()


@dataclass(eq=False, repr=False, kw_only=True)
class AutoencoderTransformer(ViewTransformer):
    """Encoders from whose output every view can be reconstructed: `ensembed.methods.Autoencoder`; training needs torch.

    Args:
        view_dims: the columns of each view, from left to right; None takes X as one view.
        dim: the length of a vector; None takes the largest view's, or the largest that the rows support.
        hidden_layers: this and the others are explained in `Autoencoder`; 0 with `loss="mse"` needs no torch.
    """

    _method_class = Autoencoder

    # The method's own fields again: scikit-learn and editors read them from the signature of this class.
    dim: int | None = None
    hidden_layers: int = 1
    hidden_dim: int | None = None
    activation: Activation = "relu"
    loss: Loss = "kld"
    temperature: float = 1.0
    kind: Kind = "cross"
    view_dropout: float = 0.0
    epochs: int = 500
    batch_size: int = 10_000
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    patience: int | None = None
    seed: int = 0
    device: str | None = None
    precision: Precision = "auto"
    solver: Solver = "auto"
    weights: Weights = "equal"
