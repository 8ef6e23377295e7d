"""What an encoder's workers get of a cluster."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ensembed.errors import InputError

_WAY_OUT = "write it as in minilm:num_cpus=2,num_gpus=1,actors=2-8,shards=4,batch_size=64"


@dataclass(frozen=True)
class Resources:
    """What each actor of an encoder gets, and how many actors there are.

    Attributes:
        num_cpus: cores of one actor, which is also the number of threads its encoder uses. A part of one is a share.
        num_gpus: GPUs of one actor; a part of one lets several actors share it.
        actors: the least and the most of them; None for as many as the cluster has room for. A slow encoder gets more
            of them as others end.
        shards: shards that an actor takes at a time; None for one, or a few where there are very many.
        batch_size: sentences that the encoder takes at a time, at the most; None leaves it to the encoder. Where its
            name has an option of that name (`st:`, `tfhub:`) it is that option: the sentences of one run of the model.
            Elsewhere it is the sentences of one call of `encode`, of which an encoder sees no more than 512 anyway.
            Products of another shape may round the last bits of a vector otherwise.

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
                raise InputError(f"{name} must be a number from 0 on, not {value}; {_WAY_OUT}")
            if value > 1 and value != int(value):
                raise InputError(f"{name} must be whole where it is more than 1, not {value}: Ray shares only one")
        least, most = self.actors
        if not self.num_cpus and not self.num_gpus and most is None:
            raise InputError(f"actors that take neither cores nor GPUs need a most, as in actors=1-8; {_WAY_OUT}")
        if least < 1 or (most is not None and most < least):
            raise InputError(f"actors must be from 1 on and in order, not {self.actors}; {_WAY_OUT}")
        for name, count in (("shards", self.shards), ("batch_size", self.batch_size)):
            if count is not None and not (isinstance(count, int) and count >= 1):
                raise InputError(f"{name} must be a whole number of at least 1, not {count!r}; {_WAY_OUT}")

    @property
    def threads(self) -> int:
        """Threads of an encoder."""
        return max(1, int(self.num_cpus))

    @property
    def demand(self) -> dict[str, float]:
        """What one actor asks for, in Ray's words."""
        return {"CPU": self.num_cpus, "GPU": self.num_gpus}

    @classmethod
    def parse(cls, text: str) -> Resources:
        """The settings of one encoder as the command line writes them: `num_cpus=2,actors=2-8,batch_size=64`."""
        found: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = part.partition("=")
            if key not in _KEYS or not equals:
                raise InputError(f"{part!r} is no setting of resources: there are {', '.join(_KEYS)}; {_WAY_OUT}")
            if key in found:
                raise InputError(f"the resources {text!r} set {key} twice")
            found[key] = value
        try:
            return cls(
                num_cpus=float(found.get("num_cpus", 1)),
                num_gpus=float(found.get("num_gpus", 0)),
                actors=_actors(found.get("actors", "1-")),
                **{key: int(found[key]) for key in ("shards", "batch_size") if key in found},
            )
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"the resources {text!r} cannot be read: {error}; {_WAY_OUT}") from None


_KEYS = ("num_cpus", "num_gpus", "actors", "shards", "batch_size")
# The name may hold colons and equals signs itself: the settings are what stands behind the last colon.
_FORM = re.compile(r"(?:(?P<name>.+):)?(?P<settings>[^:]*)", re.DOTALL)


def _actors(text: str) -> tuple[int, int | None]:
    """`3`, `2-8` or `2-`."""
    least, dash, most = text.partition("-")
    if not dash:
        return int(least), int(least)
    return int(least), int(most) if most else None


def parse_resources(texts: Sequence[str]) -> dict[str, Resources]:
    """The command line's `[NAME:]num_cpus=…,…`, by name; what has no name is for all others, under "".

    Example:
        >>> parse_resources(["num_cpus=1", "st:a/b:num_cpus=2"])["st:a/b"].num_cpus
        2.0
    """
    result: dict[str, Resources] = {}
    for text in texts:
        found = _FORM.fullmatch(text)
        assert found is not None  # noqa: S101 - it matches everything
        name = found["name"] or ""
        if name in result:
            raise InputError(f"resources of {name or 'all encoders'} are given twice")
        result[name] = Resources.parse(found["settings"])
    return result


def resources_for(resources: Resources | Mapping[str, Resources], names: Sequence[str]) -> list[Resources]:
    """Each encoder's, in their order.

    Raises:
        InputError: there is no encoder of a name that resources were given for.
    """
    if isinstance(resources, Resources):
        return [resources] * len(names)
    for name in resources:
        if name and name not in names:
            raise InputError(f"resources are given for {name!r}, which is none of the encoders: {', '.join(names)}")
    default = resources.get("", Resources())
    return [resources.get(name, default) for name in names]
