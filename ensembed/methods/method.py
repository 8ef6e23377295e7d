"""What a method is: hyper-parameters only. `fit` turns it into a meta-embedding.

A new method is a frozen dataclass in this folder, or in a package with the entry point `ensembed.methods`: a
`NaiveMethod` writes `build`, a `MomentMethod` `solve`, others `combine`. Its fields are the options of `ensembed fit`.
"""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from typing_extensions import Self

from ensembed.corpora.corpus import Corpus
from ensembed.errors import DimensionError, InputError
from ensembed.methods.meta import Leading, Meta
from ensembed.methods.passes import LOCAL, Passes
from ensembed.methods.weights import CountedMembers, Weights, checked_weights
from ensembed.numerics.eigen import top_eigh
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Views, check_views, unit_rows
from ensembed.support.checks import check_whole
from ensembed.support.machine import blas_threads
from ensembed.support.progress import Progress, silent
from ensembed.support.shown_objects import field_facts, html_table

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ensembed.numerics.pass_options import PassOptions
    from ensembed.reliability import Reliability

SAMPLE = 4096
"""Sentences that leading directions are estimated on: more do not improve the scores of truncated vectors."""
# Mean squares below this part of the largest are rounding.
_ROUNDING = 1e-11
# Directions that are kept at most: a model with many members does not become a file of gigabytes.
_MOST_DIRECTIONS = 2048


@dataclasses.dataclass(frozen=True)
class Method(ABC):
    """How views are combined. Subclasses are frozen dataclasses of hyper-parameters; nothing in them is fitted.

    Attributes:
        origin: where the weights come from, for the facts of the meta-embedding; empty where the user gave them.
    """

    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict, kw_only=True, compare=False, repr=False)

    name: ClassVar[str]
    """The short name, as in `--method`."""
    order: ClassVar[int] = 100
    """The place in lists of methods; those of the same place are sorted by name."""
    spectrum_of: ClassVar[str] = "eigenvalue"
    """What the values of the spectrum are."""
    signed_spectrum: ClassVar[bool] = False
    """Whether the members do not agree along dimensions whose value in the spectrum is not positive."""
    normalize: ClassVar[bool] = False
    """Whether every row of every view is scaled to length one before moments are taken."""
    fit_options: ClassVar[tuple[str, ...]] = ("threads", "progress")
    """The fields of `Pass` that `fit` takes."""
    later_fields: ClassVar[tuple[str, ...]] = ("weights",)
    """Fields that older saved models lack. `to_json` leaves out their defaults, so that older keys stay the same."""

    def __post_init__(self) -> None:
        parameters = vars(self)
        if parameters.get("dim") is not None:
            check_whole("dim", parameters["dim"], 1)
        if "weights" in parameters:
            object.__setattr__(self, "weights", checked_weights(parameters["weights"]))

    def _repr_html_(self) -> str:
        """Return a table of the hyper-parameters for a notebook."""
        return html_table(type(self).__name__, field_facts(self))

    def fit(self, views: Sequence[Any], *, passes: Passes = LOCAL, **how: Unpack[PassOptions]) -> Meta:
        """Fit on row-aligned views [n, d_j]: arrays, memory maps, stored views or torch tensors.

        Weights by reliability come from the views alone, which is less sure than with the sentences (`resolved`).

        Args:
            views: the members' vectors of the same sentences, row by row.
            passes: what makes the passes over all rows: this process or an engine.
            how: those fields of `Pass` that the method uses (`fit_options`); a TypeError names any other.
        """
        for option in how:
            if option not in self.fit_options:
                takes = ", ".join((*self.fit_options, "passes"))
                raise TypeError(
                    f"{type(self).__name__}.fit() takes no argument {option!r}; besides views it takes: {takes}"
                )
        checked = check_views(views)
        options = Pass(**how)
        rows = checked[0].shape[0]
        with blas_threads(options.threads):
            method = self.resolved(checked, progress=options.progress)
            if method.needs_rows and rows < 2:
                raise InputError(f"{self.name} needs at least two sentences to learn from, got {rows}")
            meta = method.combine(checked, options, passes)
            if meta.spectrum is None and rows:  # the dimensions have no order: find the leading directions
                from ensembed.reliability.sufficiency import POWER
                from ensembed.reliability.trust_estimate import sample_rows, sample_vectors

                sample = sample_rows(rows, None, SAMPLE, 0)
                sampled = [sample_vectors(view, sample, j, unit=False) for j, view in enumerate(checked)]
                X = unit_rows(meta.transform(sampled).astype(np.float64))
                # Eigenvectors of the second moment, not centred: a projection on the first k of them keeps the cosines
                # best (Eckart and Young 1936). Softly whitened, as members are: few directions would else say little
                # but the topic (results/dimensions.md).
                values, V = top_eigh(X.T @ X / len(X), min(*X.shape, _MOST_DIRECTIONS))
                kept = values > max(_ROUNDING * values[0], 0.0)
                directions = (V[:, kept] * (values[kept] / values[0]) ** (-POWER / 2)).astype(np.float32)
                # The sign of a direction is the one that makes its entry of largest size positive.
                directions *= np.sign(np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0))
                meta = dataclasses.replace(meta, leading=Leading(values[kept], directions) if kept.any() else None)
        # The rows were looked at to find weights, even where the method itself needs none.
        return dataclasses.replace(meta, rows=rows) if method.origin else meta

    @abstractmethod
    def combine(self, views: Views, how: Pass, passes: Passes) -> Meta:
        """Fit on views that are checked, with weights that are known."""

    def resolved(
        self,
        views: Sequence[Any],
        sentences: Corpus | Sequence[str] | None = None,
        *,
        names: Sequence[str] | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Return the method with weights that are numbers; itself where they are known already.

        Args:
            views: the members' views, row-aligned.
            sentences: the sentences of the rows; with them weights by reliability are surer.
            names: the members' names.
            progress: receives the steps that are done.
        """
        if self.weighting != "reliability":
            return self
        from ensembed.reliability.trust_estimate import reliability  # only here: most fits do without

        rows = views[0].shape[0]
        if rows < 2:
            raise InputError(
                f"weights by reliability need at least two sentences to learn from, got {rows}: write one a line, "
                "or let all members count the same (weights='equal')"
            )
        estimate = reliability(views, sentences=sentences, names=names, progress=progress)
        if estimate.decided == "too few":
            warnings.warn(
                f"{estimate.sentences} distinct sentences are too few to tell which member is better: it takes "
                f"{estimate.needed}. All members count the same. Fit on more sentences; to let members count the same "
                "without this warning: --weights equal (weights='equal')",
                RuntimeWarning,
                stacklevel=3,
            )
        return dataclasses.replace(self.trusting(estimate), origin=estimate.origin)

    @property
    def weighting(self) -> Weights:
        """The members' weights: "equal" for a method that has no `weights`, "reliability" if they have to be found."""
        weights: Weights = getattr(self, "weights", "equal")
        return weights

    @property
    def needs_rows(self) -> bool:
        """Whether the rows of the views are looked at; if not, `build` takes their dimensions."""
        return True

    @property
    def trains(self) -> bool:
        """Whether fitting takes epochs, which can be interrupted and continued; `fit` then takes a `checkpoint`."""
        return False

    @property
    def solvable(self) -> bool:
        """Whether second moments of the views as they are suffice to fit it, by its `solve`."""
        return False

    def build(self, dims: Sequence[int]) -> Meta:  # noqa: ARG002 - those that can be built know what to do with it
        """Return the meta-embedding for views of these dimensions, where they are all that is needed.

        Raises:
            InputError: the method learns from rows.
        """
        raise InputError(f"{self.name} learns from the rows of views: call `fit`")

    def largest_dim(self, dims: Sequence[int]) -> int | None:  # noqa: ARG002 - most have no bound
        """Return the most dimensions it can have with members of these dimensions; None for no bound."""
        return None

    def check(self, dims: Sequence[int]) -> None:
        """Refuse members of these dimensions that the method cannot combine, whatever the sentences.

        Raises:
            InputError: there are more or fewer weights than members, or it takes more or fewer members.
            DimensionError: `dim` is larger than the method can have.
        """
        whitened = getattr(self, "whitened", ())
        if whitened and whitened[-1] >= len(dims):
            raise no_place(whitened[-1], len(dims))
        if not self.needs_rows:
            self.build(dims)
        weights = self.weighting
        dim = getattr(self, "dim", None)
        if dim is None and isinstance(weights, str):
            return
        # Which members will be left out is not known before weights are found.
        counted = CountedMembers.of("equal" if weights == "reliability" else weights, dims).dims
        most = self.largest_dim(counted)
        if dim is not None and most is not None and dim > most:
            raise DimensionError(
                f"{self.name} with dim={dim}: the members have {most} dimensions together "
                f"({' + '.join(map(str, counted))}), so the largest possible dim is {most}",
                most,
            )

    def with_weights(self, weights: Weights) -> Self:
        """Return the same method with other weights of the members.

        Raises:
            InputError: it has no weights, or these are none.
        """
        if "weights" not in [field.name for field in dataclasses.fields(self)]:
            raise InputError(f"method {self.name} has no weights")
        changes: dict[str, Any] = {"weights": checked_weights(weights), "origin": {}}
        return dataclasses.replace(self, **changes)

    def trusting(self, estimate: Reliability) -> Self:
        """Return the same method with the weights of a reliability estimate."""
        return self.with_weights(tuple(float(weight) for weight in estimate.weights))

    @classmethod
    def parameters(cls) -> list[dataclasses.Field[Any]]:
        """Return the fields that are hyper-parameters."""
        return [field for field in dataclasses.fields(cls) if field.name != "origin"]

    def to_json(self) -> dict[str, Any]:
        """Return the name, the hyper-parameters and the origin of the weights, for saved models and tables."""
        facts: dict[str, Any] = {"name": self.name}
        for field in self.parameters():
            value = getattr(self, field.name)
            if field.name in self.later_fields and value == field.default:
                continue
            facts[field.name] = list(value) if isinstance(value, tuple) else value
            if isinstance(value, np.generic):
                facts[field.name] = value.item()
        return facts | dict(self.origin)


@dataclasses.dataclass(frozen=True)
class NaiveMethod(Method):
    """A method that depends on the views' dimensions alone, and on the members' weights; it needs no training."""

    @property
    def needs_rows(self) -> bool:
        """Whether weights have to be found."""
        return self.weighting == "reliability"

    @abstractmethod
    def build(self, dims: Sequence[int]) -> Meta:
        """Return the meta-embedding for views of these dimensions."""

    def combine(self, views: Views, how: Pass, passes: Passes) -> Meta:  # noqa: ARG002 - there is no pass
        """Build the meta-embedding from the views' dimensions."""
        return self.build([view.shape[1] for view in views])


@dataclasses.dataclass(frozen=True)
class MomentMethod(Method):
    """A method that is solved from the second moments of the views."""

    fit_options: ClassVar[tuple[str, ...]] = ("precision", "threads", "device", "progress")

    @property
    def solvable(self) -> bool:
        """Whether the weights are known."""
        return self.weighting != "reliability"

    def largest_dim(self, dims: Sequence[int]) -> int | None:
        """Return the members' dimensions together."""
        return sum(dims)

    @abstractmethod
    def solve(self, moments: Moments, dims: Sequence[int]) -> Meta:
        """Return the meta-embedding of views of these dimensions whose concatenation has these moments."""

    def combine(self, views: Views, how: Pass, passes: Passes) -> Meta:
        """Make one pass over the views for their moments, then solve."""
        moments = passes.moments(views, how, normalize=self.normalize)
        return self.solve(moments, [view.shape[1] for view in views])


def no_place(place: int, members: int) -> InputError:
    """Return the error for a place of `whitened` that no member has."""
    return InputError(f"whitened has place {place}, but there are {members} members")


def fit_supported(method: Method, fit: Callable[[Any], Meta]) -> Meta:
    """Return `fit(method)`; if the rows do not support its dimensions, take as many as they support."""
    try:
        return fit(method)
    except DimensionError as error:
        if not error.supported:
            raise
        fewer: dict[str, Any] = {"dim": error.supported}  # what raises this has a `dim`
        return fit(dataclasses.replace(method, **fewer))
