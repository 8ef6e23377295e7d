"""What a method is: hyper-parameters only. `fit` turns it into a meta-embedding; a linear method writes `solve`."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from ensembed.errors import InputError
from ensembed.methods.found import fit_by_reliability
from ensembed.methods.meta import Meta
from ensembed.methods.passes import LOCAL, Passes
from ensembed.methods.weights import Weights, checked_weights
from ensembed.numerics.moments import Moments, Precision
from ensembed.numerics.row_matrices import Views, check_views
from ensembed.support.progress import Progress, silent

if TYPE_CHECKING:
    from ensembed.reliability import Reliability

M = TypeVar("M", bound="Method")


@dataclasses.dataclass(frozen=True)
class Method(ABC):
    """How views are combined. Subclasses are frozen dataclasses of hyper-parameters; nothing in them is fitted."""

    name: ClassVar[str]

    @abstractmethod
    def fit(
        self,
        views: Sequence[Any],
        *,
        threads: int | None = None,
        progress: Progress = silent,
        passes: Passes = LOCAL,
    ) -> Meta:
        """Fit on row-aligned views [n, d_j]: arrays, memory maps or stored views.

        Weights by reliability are found from the views alone, which is less sure than with the sentences that an
        ensemble knows.
        """

    @property
    def needs_rows(self) -> bool:
        """Whether the rows of the views are looked at; if not, `build` takes their dimensions."""
        return True

    def build(self, dims: Sequence[int]) -> Meta:  # noqa: ARG002 - those that can be built know what to do with it
        """The meta-embedding for views of these dimensions, where they are all that is needed.

        Raises:
            InputError: the method learns from rows.
        """
        raise InputError(f"{self.name} learns from the rows of views: call `fit`")

    @property
    def wants_reliability(self) -> bool:
        """Whether the members' weights have still to be found."""
        return bool(getattr(self, "weights", None) == "reliability")

    def with_weights(self: M, weights: Weights) -> M:  # noqa: PYI019 - Python 3.10 has no Self
        """The same method with other weights of the members.

        Raises:
            InputError: it has no weights, or these are none.
        """
        if "weights" not in [field.name for field in dataclasses.fields(self)]:
            raise InputError(f"method {self.name} has no weights")
        changes: dict[str, Any] = {"weights": checked_weights(weights)}
        return dataclasses.replace(self, **changes)

    def trusting(self: M, found: Reliability) -> M:  # noqa: PYI019 - Python 3.10 has no Self
        """The same method with the weights that were found by reliability."""
        return self.with_weights(tuple(float(weight) for weight in found.weights))

    def to_json(self) -> dict[str, Any]:
        """The name and the hyper-parameters, for saved models and tables.

        Equal weights are not mentioned where they are the default, so that the facts, and the keys made of them, are
        those from before there were weights.
        """
        facts: dict[str, Any] = dataclasses.asdict(self)
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        if facts.get("weights") == defaults.get("weights") == "equal":
            del facts["weights"]
        return {"name": self.name} | {key: _plain(value) for key, value in facts.items()}

    def _check_weights(self) -> None:
        """Keep the weights as a word or a tuple; JSON and people give lists, too."""
        object.__setattr__(self, "weights", checked_weights(getattr(self, "weights", None)))


class NaiveMethod(Method):
    """A method that depends on the views' dimensions alone, and on the members' weights; it needs no training."""

    @property
    def needs_rows(self) -> bool:
        """Only to find weights."""
        return self.wants_reliability

    @abstractmethod
    def build(self, dims: Sequence[int]) -> Meta:
        """The meta-embedding for views of these dimensions."""

    def fit(
        self,
        views: Sequence[Any],
        *,
        threads: int | None = None,  # noqa: ARG002 - there is no pass
        progress: Progress = silent,
        passes: Passes = LOCAL,  # noqa: ARG002 - there is no pass
    ) -> Meta:
        """Look at the views' dimensions; the rows are read only where weights have to be found."""
        checked = check_views(views)
        if self.wants_reliability:
            return fit_by_reliability(self, checked, lambda method: method.fit(checked), progress=progress)
        return self.build([view.shape[1] for view in checked])


class MomentMethod(Method):
    """A method that is solved from the second moments of the views."""

    normalize: ClassVar[bool]

    @property
    def solvable(self) -> bool:
        """Whether moments of the views as they are suffice to solve it."""
        return not self.wants_reliability

    @abstractmethod
    def solve(self, moments: Moments, dims: Sequence[int]) -> Meta:
        """The meta-embedding of views of these dimensions whose concatenation has these moments."""

    def fit(
        self,
        views: Sequence[Any],
        *,
        precision: Precision = "float64",
        threads: int | None = None,
        device: str | None = None,
        progress: Progress = silent,
        passes: Passes = LOCAL,
    ) -> Meta:
        """One pass over the views for their moments, then `solve`.

        Args:
            views: arrays [n, d_j], memory maps, stored views or torch tensors, rows aligned.
            precision: of the products in the pass, see `Moments.of_views`.
            threads: for the pass; None takes as many as BLAS would.
            device: compute with torch on that device, "cuda" for instance: the pass, and what is solved after it.
            progress: told of rows.
            passes: who makes the pass.
        """
        checked: Views = check_views(views)
        rows = checked[0].shape[0]
        if rows < 2:
            raise InputError(f"{self.name} needs at least two sentences to learn from, got {rows}")
        if self.wants_reliability:
            return fit_by_reliability(
                self,
                checked,
                lambda method: method.fit(
                    checked, precision=precision, threads=threads, device=device, progress=progress, passes=passes
                ),
                progress=progress,
            )
        moments = passes.moments(
            checked,
            normalize=self.normalize,
            precision=precision,
            threads=threads,
            device=device,
            progress=progress,
        )
        return self.solve(moments, [view.shape[1] for view in checked])


class TrainedMethod(Method):
    """A method that is trained in epochs, which can be interrupted and gone on with."""

    weights: Weights

    @property
    @abstractmethod
    def trains(self) -> bool:
        """Whether fitting takes epochs."""

    @abstractmethod
    def fit(
        self,
        views: Sequence[Any],
        *,
        threads: int | None = None,
        progress: Progress = silent,
        checkpoint: Path | None = None,
        passes: Passes = LOCAL,
    ) -> Meta:
        """Fit on row-aligned views, keeping the training in the folder `checkpoint` while it runs."""


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a parameter is
    """The same in what JSON knows: no numbers of numpy's, no tuples."""
    if isinstance(value, tuple):
        return list(value)
    return value.item() if isinstance(value, np.generic) else value
