"""The settings of a server: limits, times, keys. `limits.py` enforces most of the limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from ensembed.errors import InputError

_LEAST = {"cache_bytes": 0, "wait_ms": 0, "drain_seconds": 0}  # where it may be less than 1


@dataclass(frozen=True)
class Settings:
    """How a server treats its clients.

    Attributes:
        max_body_bytes: the largest body of a request; a larger one is refused before it is read.
        max_items: the most texts in one request.
        max_characters: the most characters in one text.
        max_similarity: the most texts in one request for similarities; the reply grows with their square.
        max_hits: the most hits of one search.
        batch_texts: the most texts that the model encodes at once.
        batch_requests: the most requests that share a batch; others should wait, so that the model never does.
        wait_ms: how long the model waits for requests of other clients that were there a moment ago.
        queue_texts: the most texts that wait for the model; beyond it clients are asked to come back later.
        held_bytes: the most bytes of unfinished bodies, of all clients together; also of texts that wait for the model.
        reply_bytes: the most bytes that replies which are not read yet hold, of all clients together.
        cache_bytes: memory for the vectors of recent texts; 0 keeps none.
        connections: the most connections at a time; more are refused.
        header_seconds: the longest time for the head of a request to arrive.
        body_seconds: the longest time for its body to arrive.
        request_seconds: the longest time that a request waits for the model.
        read_seconds: the longest time for a client to read the next part of its reply, of some 100 KB.
        least_rate: the bytes a second that a client must read of a large reply, on average, beyond that time.
        drain_seconds: how long the server continues after SIGTERM, with /ready saying 503, for load balancers.
        shutdown_seconds: how long it then works on accepted requests.
        keys: API keys that clients may use; if empty, none is needed.
        hosts: `Host` headers to answer, any if empty: stops web pages that point their own name to this machine.
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
    reply_bytes: int = 192 << 20
    cache_bytes: int = 64 << 20
    connections: int = 1024
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    request_seconds: float = 60.0
    read_seconds: float = 30.0
    least_rate: int = 200_000
    drain_seconds: float = 0.0
    shutdown_seconds: float = 30.0
    keys: tuple[str, ...] = field(default=(), repr=False)  # secret
    hosts: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for setting in fields(self):
            name, value = setting.name, getattr(self, setting.name)
            if setting.type == "tuple[str, ...]":
                if isinstance(value, str) or not all(isinstance(item, str) and item for item in value):
                    raise InputError(f"{name} must be a tuple of strings that are not empty")  # keys are secret
                object.__setattr__(self, name, tuple(value))
                continue
            whole = setting.type == "int"
            least = _LEAST.get(name, 1 if whole else 0.001)
            right_type = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if not right_type or not least <= value < math.inf:
                raise InputError(f"{name} must be a {'whole ' * whole}number of at least {least}, not {value!r}")
