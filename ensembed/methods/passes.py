"""The passes over all rows that a method needs, apart from who runs them: this process, or an engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ensembed.numerics.moments import Moments, Precision
from ensembed.numerics.row_matrices import Matrix, Views
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent

if TYPE_CHECKING:
    from ensembed.methods.autoencoder import Autoencoder
    from ensembed.methods.projections import Network


class Passes(Protocol):
    """Runs what takes long. What a method solves afterwards, from a few matrices, it does itself."""

    def moments(
        self,
        views: Views,
        *,
        normalize: bool = False,
        precision: Precision = "float64",
        threads: int | None = None,
        device: str | None = None,
        progress: Progress = silent,
    ) -> Moments:
        """The moments of row-aligned views, see `Moments.of_views`."""

    def train(
        self,
        method: Autoencoder,
        views: Sequence[Matrix],
        d: int,
        *,
        threads: int | None,
        progress: Progress,
        checkpoint: Path | None,
    ) -> tuple[Network, ...]:
        """The encoders of all views, of d dimensions, trained; see `Autoencoder.fit`."""


class LocalPasses:
    """The passes on the cores, or the device, of this process."""

    def moments(
        self,
        views: Views,
        *,
        normalize: bool = False,
        precision: Precision = "float64",
        threads: int | None = None,
        device: str | None = None,
        progress: Progress = silent,
    ) -> Moments:
        """One streaming pass."""
        return Moments.of_views(
            views, normalize=normalize, precision=precision, threads=threads, device=device, progress=progress
        )

    def train(
        self,
        method: Autoencoder,
        views: Sequence[Matrix],
        d: int,
        *,
        threads: int | None,
        progress: Progress,
        checkpoint: Path | None,
    ) -> tuple[Network, ...]:
        """Epochs on one device.

        Raises:
            MissingError: torch is not installed.
        """
        import_extra("torch", "ae", "training an autoencoder")
        from ensembed.methods.autoencoder.training_loop import train

        return train(method, views, d, threads=threads, progress=progress, checkpoint=checkpoint)


LOCAL: Passes = LocalPasses()
"""What `fit` uses where nothing else is said."""
