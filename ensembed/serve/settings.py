"""What a server may be told: limits, waits, keys."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ensembed.errors import InputError

_WHOLE = (
    "max_body_bytes",
    "max_items",
    "max_characters",
    "max_similarity",
    "max_hits",
    "batch_texts",
    "batch_requests",
    "queue_texts",
    "held_bytes",
    "connections",
)
_SECONDS = ("body_seconds", "header_seconds", "request_seconds", "shutdown_seconds")


@dataclass(frozen=True)
class Settings:
    """How a server treats its clients.

    Attributes:
        max_body_bytes: the largest request body; more is refused before it is read.
        max_items: the most texts of one request.
        max_characters: the most characters of one text.
        max_similarity: the most texts of one request for similarities, whose reply grows with their square.
        max_hits: the most hits of one search.
        batch_texts: how many texts the model gets at once.
        batch_requests: of how many requests at most. Some should be waiting while others are encoded, so that the model
            need not wait for clients to read one reply and send their next request.
        wait_ms: how long to wait for the requests of other clients, where there were others a moment ago.
        queue_texts: how many texts may wait for the model; beyond it clients are told to come back later.
        held_bytes: how much may be held of bodies that are still being received, of all clients together.
        cache_bytes: room for the vectors of recent texts; 0 keeps none.
        connections: how many clients may be connected.
        header_seconds: how long a client may take to send the head of a request.
        body_seconds: ... and its body.
        request_seconds: how long a request may wait for the model.
        drain_seconds: how long to go on as before, but for /ready, when told to stop: for load balancers.
        shutdown_seconds: how long to go on with what was accepted after that.
        keys: who may ask; anybody where there are none.
        hosts: names that clients may call the server by (the `Host` header), which keeps web pages that have given
            themselves this machine's address out; any where there are none.
        aliases: other names of the model.
    """

    max_body_bytes: int = 4 << 20
    max_items: int = 2048
    max_characters: int = 32_768
    max_similarity: int = 64
    max_hits: int = 100
    batch_texts: int = 64
    batch_requests: int = 32
    wait_ms: float = 2.0
    queue_texts: int = 4096
    held_bytes: int = 64 << 20
    cache_bytes: int = 64 << 20
    connections: int = 1024
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    request_seconds: float = 60.0
    drain_seconds: float = 0.0
    shutdown_seconds: float = 30.0
    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in _WHOLE:
            self._check(name, least=1, whole=True)
        self._check("cache_bytes", least=0, whole=True)
        self._check("wait_ms", least=0)
        self._check("drain_seconds", least=0)
        for name in _SECONDS:
            self._check(name, least=0.001)
        for name in ("keys", "hosts", "aliases"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(one, str) and one for one in value):
                raise InputError(f"{name} must be a tuple of strings that are not empty")  # not shown: keys are secret
            object.__setattr__(self, name, tuple(value))

    def _check(self, name: str, *, least: float, whole: bool = False) -> None:
        value = getattr(self, name)
        kinds = (int,) if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not (least <= value < math.inf):
            raise InputError(f"{name} must be a {'whole ' if whole else ''}number of at least {least}, not {value!r}")

    def __repr__(self) -> str:
        """Without the keys."""
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.name != "keys")
        return f"Settings({', '.join(shown)}, keys={len(self.keys)} of them)"
