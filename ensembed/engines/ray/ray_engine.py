"""The engine `Ray`: how it connects to a cluster and leaves it, and which module does the work."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder
from ensembed.engines.engine import Stage
from ensembed.engines.ray.cluster_resources import Resources
from ensembed.errors import EngineError, InputError
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Matrix, Views, check_views
from ensembed.support.checks import check_whole
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent
from ensembed.views import View, ViewStore

if TYPE_CHECKING:
    from ensembed.methods.autoencoder import Autoencoder
    from ensembed.methods.meta import Network

T = TypeVar("T")


class Ray:
    """Runs on a Ray cluster, to which it connects when it is first needed.

    The view store and the encoders' files must be under the same paths on all machines, and ensembed installed.
    Use it as a context manager, or call `close`, to leave the cluster; a cluster that this engine started stops then.

    Args:
        address: the cluster's address for `ray.init`; None takes `RAY_ADDRESS`, or starts a cluster on this machine.
            A process that is connected already stays with its cluster.
        resources: what the actors of an encoder get, the same for all or by the encoder's name.
        blocks: how many blocks of rows a pass is cut into; None chooses by the cluster's cores and the columns.
        train_workers: processes that train an autoencoder or a student together; more than one split every batch.
        attempts: how often work is tried again after a worker or a machine was lost.
        keep_every: seconds between checkpoints of a training, the most work that a lost worker costs.

    Example:
        >>> engine = Ray("auto", train_workers=2)
        >>> engine.stages
        ()
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        resources: Resources | Mapping[str, Resources] | None = None,
        blocks: int | None = None,
        train_workers: int = 1,
        attempts: int = 3,
        keep_every: float = 30.0,
    ) -> None:
        check_whole("blocks", 1 if blocks is None else blocks, 1)
        check_whole("train_workers", train_workers, 1)
        check_whole("attempts", attempts, 0)
        if not keep_every >= 0:
            raise InputError(f"keep_every must be a number of seconds, not {keep_every!r}")
        self.address, self.resources = address, Resources() if resources is None else resources
        self.blocks, self.train_workers, self.attempts = blocks, train_workers, attempts
        self.keep_every = keep_every
        self._stages: list[Stage] = []
        self._started = False

    def __enter__(self) -> Ray:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def stages(self) -> Sequence[Stage]:
        """What was done so far, and what it took."""
        return tuple(self._stages)

    def note(self, stage: Stage) -> None:
        """Record a stage."""
        self._stages.append(stage)

    def connected(self) -> Any:  # noqa: ANN401 - a module without types
        """Return the module ray, connected to the cluster."""
        ray = import_extra("ray", "ray", "the engine `ray`")
        if ray.is_initialized():
            return ray
        address = self.address or os.environ.get("RAY_ADDRESS") or "local"
        _check_answers(address)
        try:
            with warnings.catch_warnings():
                # Ray's own: it will no longer change CUDA_VISIBLE_DEVICES for tasks without a GPU, which suits us.
                warnings.simplefilter("ignore", FutureWarning)
                options = {"include_dashboard": False} if address == "local" else {}
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
        except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
            reason = str(error).splitlines()[0] if str(error) else repr(error)
            raise EngineError(f"the Ray cluster {address!r} cannot be reached: {reason}") from error
        self._started = True
        return ray

    def close(self) -> None:
        """Leave the cluster, if this engine connected to it."""
        if self._started:
            self._started = False
            ray = import_extra("ray", "ray", "the engine `ray`")
            if ray.is_initialized():  # other code may have left the cluster meanwhile
                ray.shutdown()

    # The signature of `Engine.embed_all`, written out: editors and type checkers show it.
    def embed_all(
        self,
        store: ViewStore,
        corpus: Corpus,
        encoders: Sequence[Encoder],
        *,
        verify: bool = False,
        progress: Progress = silent,
    ) -> list[View]:
        """Fill the views of several encoders, see `ViewStore.embed_all`."""
        from ensembed.engines.ray.view_filling import embed_all

        return embed_all(self, store, corpus, encoders, verify, progress)

    def moments(self, views: Views, how: Pass = Pass(), *, normalize: bool = False) -> Moments:
        """Return the moments of row-aligned views, equal to those of `Moments.of_views` up to rounding.

        Args:
            views: stored views are read where the tasks run; everything else is sent there.
            how: how every task runs; threads of None are more for more columns, a task for "cuda" takes a GPU.
            normalize: scale every row of every view to length one first.
        """
        from ensembed.engines.ray import moment_tasks

        checked = check_views(views)
        if checked[0].shape[0] == 0:
            return Moments.of_views(checked, how)
        return moment_tasks.moments(self, checked, how, normalize)

    def train(self, method: Autoencoder, views: Sequence[Matrix], dim: int, how: Pass) -> tuple[Network, ...]:
        """Return the encoders of all views, trained by `train_workers` processes of `how.threads` cores each."""
        from ensembed.engines.ray import ray_training

        return ray_training.train(self, method, views, dim, how)

    def run_training(self, training: Callable[..., T], rows: int, how: Pass) -> T:
        """Return the result of a training, see `Engine.run_training`, in `train_workers` processes."""
        from ensembed.engines.ray import ray_training

        return ray_training.run_training(self, training, rows, how)


def _check_answers(address: str) -> None:
    """Raise an EngineError if nothing listens at the address: `ray.init` would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except OSError as error:
            raise EngineError(f"the Ray cluster {address!r} cannot be reached: {error}") from error
