"""What a Ray cluster has, and what the actors of an encoder get of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ensembed.errors import EngineError, InputError

_WAY_OUT = "write it as in minilm:num_cpus=2,actors=2-8,shards=4 or st:NAME:num_gpus=1,batch_size=64"


@dataclass(frozen=True)
class Resources:
    """What each actor of an encoder gets, and how many actors there are.

    Attributes:
        num_cpus: cores of one actor, which is also the number of threads its encoder uses. A fraction is a share.
        num_gpus: GPUs of one actor; with a fraction several actors share a GPU.
        actors: minimum and maximum number of actors; a maximum of None is as many as the cluster has room for.
        shards: shards that an actor takes at a time; None for one, or a few if there are very many.
        batch_size: largest number of sentences of one run of the model (`st:`, `tfhub:`), or of one call of `encode`
            (at most 512); None leaves it to the encoder. Another size may change the last bits of a vector.

    Example:
        >>> Resources.parse("num_cpus=2,actors=1-4")
        Resources(num_cpus=2.0, num_gpus=0.0, actors=(1, 4), shards=None, batch_size=None)
    """

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    actors: tuple[int, int | None] = (1, None)
    shards: int | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("num_cpus", self.num_cpus), ("num_gpus", self.num_gpus)):
            if not (value >= 0 and math.isfinite(value)):
                raise InputError(f"{name} must be a number of at least 0, not {value}; {_WAY_OUT}")
            if value > 1 and value != int(value):
                raise InputError(f"{name} above 1 must be a whole number, not {value}: Ray shares only one")
        least, most = self.actors
        if not self.num_cpus and not self.num_gpus and most is None:
            raise InputError(f"actors that take neither cores nor GPUs need a maximum, as in actors=1-8; {_WAY_OUT}")
        if least < 1 or (most is not None and most < least):
            raise InputError(f"actors must be at least 1 and in order, not {self.actors}; {_WAY_OUT}")
        for name, count in (("shards", self.shards), ("batch_size", self.batch_size)):
            if count is not None and not (isinstance(count, int) and count >= 1):
                raise InputError(f"{name} must be a whole number of at least 1, not {count!r}; {_WAY_OUT}")

    @property
    def threads(self) -> int:
        """Threads of an encoder."""
        return max(1, int(self.num_cpus))

    @classmethod
    def parse(cls, text: str) -> Resources:
        """Parse the settings of one encoder as the command line writes them: `num_cpus=2,actors=2-8,batch_size=64`."""
        settings: dict[str, Any] = {}
        for part in text.split(","):
            key, equals, value = part.partition("=")
            if key not in _PARSERS or not equals:
                raise InputError(f"{part!r} is not a setting of resources: they are {', '.join(_PARSERS)}; {_WAY_OUT}")
            if key in settings:
                raise InputError(f"the resources {text!r} set {key} twice")
            try:
                settings[key] = _PARSERS[key](value)
            except ValueError as error:
                raise InputError(f"the resources {text!r} cannot be read: {error}; {_WAY_OUT}") from None
        return cls(**settings)


def _actors(text: str) -> tuple[int, int | None]:
    """Parse `3`, `2-8` or `2-`."""
    least, dash, most = text.partition("-")
    return int(least), int(most if dash else least) if most or not dash else None


_PARSERS: dict[str, Any] = {"num_cpus": float, "num_gpus": float, "actors": _actors, "shards": int, "batch_size": int}


def parse_resources(texts: Sequence[str]) -> dict[str, Resources]:
    """Parse the command line's `[NAME:]num_cpus=…,…`, by name; settings without a name are under "", for all others.

    Example:
        >>> parse_resources(["num_cpus=1", "st:a/b:num_cpus=2"])["st:a/b"].num_cpus
        2.0
    """
    result: dict[str, Resources] = {}
    for text in texts:
        name, _, settings = text.rpartition(":")  # the name may contain colons and equals signs itself
        if name in result:
            raise InputError(f"resources of {name or 'all encoders'} are given twice")
        result[name] = Resources.parse(settings)
    return result


def resources_for(resources: Resources | Mapping[str, Resources], names: Sequence[str]) -> list[Resources]:
    """Return the resources of each encoder; an InputError if some are given for a name that is not among them."""
    if isinstance(resources, Resources):
        return [resources] * len(names)
    for name in resources:
        if name and name not in names:
            raise InputError(f"resources are given for {name!r}, which is none of the encoders: {', '.join(names)}")
    default = resources.get("", Resources())
    return [resources.get(name, default) for name in names]


@dataclass(frozen=True)
class Cluster:
    """The cores of each living machine of a cluster that has any, and the GPUs of all machines together."""

    cores: tuple[int, ...]
    gpus: int

    @classmethod
    def of(cls, ray: Any) -> Cluster:  # noqa: ANN401 - a module without types
        """Return the connected cluster; an EngineError if no machine has a core for tasks, which would wait."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cores = tuple(int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1)
        if not cores:
            raise EngineError("the Ray cluster has no CPU for tasks: start a node with --num-cpus of at least 1")
        return cls(cores, int(sum(node.get("GPU", 0) for node in nodes)))

    @property
    def smallest(self) -> int:
        """The cores of the smallest machine: a task that takes no more can run on any machine that is left."""
        return min(self.cores)

    def slots(self, cores: int) -> int:
        """Return how many tasks of so many cores run at the same time."""
        return max(sum(node // cores for node in self.cores), 1)


class Room:
    """What the nodes of a cluster have left for actors."""

    def __init__(self, nodes: Iterable[dict[str, float]]) -> None:
        self._nodes = [dict(node) for node in nodes]

    @classmethod
    def of(cls, ray: Any) -> Room:  # noqa: ANN401 - a module without types
        """Return all that the cluster's nodes have."""
        return cls(node["Resources"] for node in ray.nodes() if node["Alive"])

    def copy(self) -> Room:
        """Return the same room, to be taken from."""
        return Room(self._nodes)

    def take(self, resources: Resources, actors: int = 1) -> int:
        """Take the places of so many actors, and return how many there were."""
        demand = {"CPU": resources.num_cpus, "GPU": resources.num_gpus}
        for placed in range(actors):
            fits = (node for node in self._nodes if all(node.get(k, 0.0) >= amount for k, amount in demand.items()))
            if (node := next(fits, None)) is None:
                return placed
            node.update({kind: node.get(kind, 0.0) - amount for kind, amount in demand.items()})
        return actors

    def check(self, name: str, resources: Resources, least: int) -> None:
        """Raise an EngineError if the whole cluster has no room for so many actors: Ray would wait without end."""
        placed = self.copy().take(resources, least)
        if placed < least:
            nodes = "; ".join(f"{node.get('CPU', 0):g} CPU, {node.get('GPU', 0):g} GPU" for node in self._nodes)
            raise EngineError(
                f"encoder {name!r} asks for at least {least} actor{'s' * (least > 1)} of {resources.num_cpus:g} CPU "
                f"and {resources.num_gpus:g} GPU, and the cluster has room for {placed} (its nodes: {nodes}); ask for "
                "less (`resources`, --resources), or start more nodes; what is written is kept"
            )
