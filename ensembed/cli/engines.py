"""The engine on which a command runs: its options, and the table of how long each stage took."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ensembed.cli.console import human_bytes
from ensembed.cli.options import Decorator, gathered
from ensembed.engines.engine import Local
from ensembed.support.text_tables import text_table

if TYPE_CHECKING:
    from ensembed.engines import Engine, Stage


@dataclass(frozen=True)
class EngineChoice:
    """The engine that the options of a command name."""

    name: str
    address: str | None = None
    resources: tuple[str, ...] = ()
    train_workers: int = 1

    @property
    def is_local(self) -> bool:
        """Whether the command runs in this process."""
        return self.name == "local"

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """Open the engine; a cluster that it started is stopped at the end, any other is left running."""
        if self.name == "local":
            yield Local()
            return
        from ensembed.engines.ray.cluster_resources import parse_resources
        from ensembed.engines.ray.ray_engine import Ray

        # Ray's core warns of restarted actors on every run of Ray Data; failures are raised as our own errors.
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        with Ray(self.address, resources=parse_resources(self.resources), train_workers=self.train_workers) as engine:
            yield engine


def _engine(engine_name: str, address: str | None, resources: tuple[str, ...], train_workers: int = 1) -> EngineChoice:
    given = {"address": address is not None, "resources": bool(resources), "train-workers": train_workers > 1}
    for name, is_given in given.items():
        if engine_name == "local" and is_given:
            raise click.UsageError(f"--{name} is for --engine ray.")
    return EngineChoice(engine_name, address, resources, train_workers)


_ENGINE: dict[str, Decorator] = {
    "engine_name": click.option(
        "--engine",
        "engine_name",
        type=click.Choice(["local", "ray"]),
        default="local",
        help="Where it runs: on this machine, or on a Ray cluster (pip install 'ensembed[ray]').",
    ),
    "address": click.option(
        "--address",
        metavar="ADDRESS",
        help="The cluster: `auto` or HOST:PORT. [default: RAY_ADDRESS, or one on this machine while it is needed]",
    ),
    "resources": click.option(
        "--resources",
        multiple=True,
        metavar="[NAME:]KEY=VALUE,…",
        help="What an encoder's actors get, as in minilm:num_cpus=2,num_gpus=1,actors=2-8,shards=4,batch_size=64; "
        "without a name, what all others get.",
    ),
}
_train_workers = click.option(
    "--train-workers",
    type=click.IntRange(min=1),
    default=1,
    help="Processes that train an autoencoder together, with --engine ray.",
)
engine_options = gathered("engine", _engine, **_ENGINE)
"""`--engine`, `--address` and `--resources`, which a command receives as one `engine`."""
training_engine_options = gathered("engine", _engine, **_ENGINE, train_workers=_train_workers)
"""The same with `--train-workers`, for commands that may train."""


def print_stages(stages: Sequence[Stage]) -> None:
    """Print the time of each stage and the memory of its largest worker to standard error."""
    rows = [
        [
            stage.name,
            str(stage.rows),
            f"{stage.seconds:.1f} s",
            f"{stage.rate:,.0f}",
            str(stage.workers),
            human_bytes(stage.memory) if stage.memory else "",
        ]
        for stage in stages
    ]
    click.echo(text_table(["stage", "rows", "time", "rows/s", "workers", "largest"], rows), err=True)


def stages_json(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """Return the stages as plain JSON."""
    return [
        {
            "stage": stage.name,
            "rows": stage.rows,
            "seconds": round(stage.seconds, 3),
            "workers": stage.workers,
            "memory": stage.memory,
        }
        for stage in stages
    ]
