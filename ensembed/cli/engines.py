"""Where a command runs: the options of engines, and the table of what each stage took."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ensembed.cli.common import human_bytes, options
from ensembed.support.text_tables import text_table

if TYPE_CHECKING:
    from ensembed.engines import Engine, Stage


@dataclass(frozen=True)
class EngineChoice:
    """What the options of a command say about engines."""

    name: str
    address: str | None = None
    resources: tuple[str, ...] = ()
    train_workers: int = 1

    @property
    def is_local(self) -> bool:
        """Whether it is this process."""
        return self.name == "local"

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """The engine; a cluster that it started is stopped at the end, one that was there is left."""
        from ensembed.engines import Local, Ray
        from ensembed.engines.ray.cluster_resources import parse_resources

        if self.is_local:
            yield Local()
            return
        # Ray Data's own actors make Ray's core warn of restarts on every run; what fails is said as an error of ours.
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        with Ray(self.address, resources=parse_resources(self.resources), train_workers=self.train_workers) as engine:
            yield engine


_ENGINE = (
    click.option(
        "--engine",
        "engine_name",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Where it runs: on this machine, or on a Ray cluster (pip install 'ensembed[ray]').",
    ),
    click.option(
        "--address",
        metavar="ADDRESS",
        help="The cluster: `auto` or HOST:PORT. [default: RAY_ADDRESS, or one on this machine while it is needed]",
    ),
    click.option(
        "--resources",
        multiple=True,
        metavar="[NAME:]KEY=VALUE,…",
        help="What an encoder's actors get, as in minilm:num_cpus=2,num_gpus=1,actors=2-8,shards=4,batch_size=64; "
        "without a name, what all others get.",
    ),
)
_TRAIN = click.option(
    "--train-workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that train an autoencoder together, with --engine ray.",
)


def engine_options(*, training: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--engine`, `--address` and `--resources`, which a command gets as one `engine`.

    Args:
        training: whether the command may train, and has `--train-workers`, too.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(
            *arguments: Any,  # noqa: ANN401 - whatever the command takes
            engine_name: str,
            address: str | None,
            resources: tuple[str, ...],
            train_workers: int = 1,
            **others: Any,  # noqa: ANN401 - whatever the command takes
        ) -> Any:  # noqa: ANN401 - whatever the command gives
            given = {"address": address is not None, "resources": bool(resources), "train-workers": train_workers > 1}
            for name, there in given.items():
                if engine_name == "local" and there:
                    raise click.UsageError(f"--{name} is for --engine ray.")
            return function(*arguments, engine=EngineChoice(engine_name, address, resources, train_workers), **others)

        wrapped: Callable[..., Any] = options(*_ENGINE, *([_TRAIN] if training else []))(command)
        return wrapped

    return decorate


def print_stages(stages: Sequence[Stage]) -> None:
    """A table of what each stage took, and the largest worker's memory, on standard error: it is no result."""
    if not stages:
        return
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
    """The same for programs."""
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
