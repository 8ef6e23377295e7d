"""The passes over all rows that methods need; this process or an engine runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Matrix, Views
from ensembed.support.extras import import_extra

if TYPE_CHECKING:
    from ensembed.methods.autoencoder import Autoencoder
    from ensembed.methods.meta import Network


class Passes(Protocol):
    """Runs the long part of a fit. A method solves the rest itself, from a few matrices."""

    def moments(self, views: Views, how: Pass = Pass(), *, normalize: bool = False) -> Moments:
        """Return the moments of row-aligned views, see `Moments.of_views`."""

    def train(self, method: Autoencoder, views: Sequence[Matrix], dim: int, how: Pass) -> tuple[Network, ...]:
        """Return the trained encoders of all views, of `dim` dimensions."""


class LocalPasses:
    """Runs the passes on the cores, or the device, of this process."""

    def moments(self, views: Views, how: Pass = Pass(), *, normalize: bool = False) -> Moments:
        """Return the moments after one streaming pass."""
        return Moments.of_views(views, how, normalize=normalize)

    def train(self, method: Autoencoder, views: Sequence[Matrix], dim: int, how: Pass) -> tuple[Network, ...]:
        """Train on one device.

        Raises:
            MissingError: torch is not installed.
        """
        import_extra("torch", "ae", "training an autoencoder")
        from ensembed.methods.autoencoder.training_loop import train

        return train(method, views, dim, how)


LOCAL: Passes = LocalPasses()
"""What `fit` uses by default."""
