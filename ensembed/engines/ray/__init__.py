"""The engine for many machines: Ray Data encodes, Ray tasks make moments, Ray Train trains."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder
from ensembed.engines.base import Stage
from ensembed.engines.resources import Resources
from ensembed.errors import EngineError, InputError
from ensembed.numerics.moments import Moments
from ensembed.numerics.passes import Pass
from ensembed.numerics.row_matrices import Matrix, Views, check_views
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent
from ensembed.views import View, ViewStore

if TYPE_CHECKING:
    from ensembed.methods.autoencoder import Autoencoder
    from ensembed.methods.projections import Network


class Ray:
    """Runs on a Ray cluster, to which it connects when it is first needed.

    The view store, and the encoders' files, must be under the same paths on all machines, and ensembed installed.
    Use it as a context manager, or call `close`, to leave the cluster; one that was started for this engine stops then.

    Args:
        address: of the cluster, as `ray.init` has it; None takes `RAY_ADDRESS`, or starts a cluster on this machine. A
            process that is connected already stays with its cluster.
        resources: what the actors of an encoder get, of all alike or by the encoder's name.
        blocks: how many blocks of rows a pass is cut into; None chooses by the cluster's cores and the columns.
        train_workers: processes that train an autoencoder together. One gives what the local engine gives; more split
            every batch among them.
        attempts: how often work is tried again after a worker or a machine was lost.
        keep_every: seconds between checkpoints of a training, which is what a lost worker costs at the most.

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
        for name, value, least in (
            ("blocks", blocks, 1),
            ("train_workers", train_workers, 1),
            ("attempts", attempts, 0),
        ):
            if value is not None and not (isinstance(value, int) and value >= least):
                raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
        self.address = address
        self.resources = Resources() if resources is None else resources
        self.blocks, self.train_workers, self.attempts = blocks, train_workers, attempts
        if not keep_every >= 0:
            raise InputError(f"keep_every must be a number of seconds, not {keep_every!r}")
        self.keep_every = keep_every
        self._stages: list[Stage] = []
        self._started = False

    def __enter__(self) -> Ray:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def stages(self) -> Sequence[Stage]:
        """What was done so far, and what it took."""
        return tuple(self._stages)

    def note(self, stage: Stage) -> None:
        """Add to the account."""
        self._stages.append(stage)

    def connected(self) -> Any:  # noqa: ANN401 - a module without types
        """The module ray, connected to the cluster.

        Raises:
            MissingError: ray is not installed.
            EngineError: the cluster cannot be reached.
        """
        ray = import_extra("ray", "ray", "the engine `ray`")
        if ray.is_initialized():
            return ray
        address = self.address or os.environ.get("RAY_ADDRESS") or "local"
        _check_answers(address)
        try:
            with warnings.catch_warnings():
                # Of Ray's own: it will leave CUDA_VISIBLE_DEVICES as it is where a task takes no GPU, which suits us.
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
            if ray.is_initialized():  # somebody else may have left the cluster meanwhile
                ray.shutdown()

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
        from ensembed.engines.ray.embedding import embed_all

        return embed_all(self, store, corpus, encoders, verify=verify, progress=progress)

    def moments(self, views: Views, how: Pass = Pass(), *, normalize: bool = False) -> Moments:
        """Return the moments of row-aligned views, equal to those of `Moments.of_views` but for rounding.

        Args:
            views: stored views are read where the tasks run; everything else travels there.
            how: how every task runs: its cores (None takes more for more columns), precision and device. A task for
                "cuda" takes a GPU.
            normalize: scale every row of every view to length one first.
        """
        from ensembed.engines.ray import fitting

        checked = check_views(views)
        if checked[0].shape[0] == 0:
            return Moments.of_views(checked, how)
        return fitting.moments(
            self, checked, fitting.Options(normalize, how.precision, how.threads, how.device), how.progress
        )

    def train(self, method: Autoencoder, views: Sequence[Matrix], dim: int, how: Pass) -> tuple[Network, ...]:
        """Return the encoders of all views, trained by `train_workers` processes of `how.threads` cores each."""
        from ensembed.engines.ray import training

        return training.train(
            self, method, views, dim, threads=how.threads, progress=how.progress, checkpoint=how.checkpoint
        )


def _check_answers(address: str) -> None:
    """Raise an EngineError if nobody listens there: `ray.init` would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except OSError as error:
            raise EngineError(f"the Ray cluster {address!r} cannot be reached: {error}") from error
