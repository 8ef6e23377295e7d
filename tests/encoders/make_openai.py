"""A name of an OpenAI-compatible model, with the server that it needs."""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path

from loopback_openai import LoopbackOpenAI

from ensembed.encoders.demo_encoder import DemoEncoder

ON_DISK = False


def make_openai(folder: Path) -> str:  # noqa: ARG001 - every kind is made in a folder
    """The name of a model that gives the vectors of `DemoEncoder(16, seed=5)`; its server runs until Python ends."""
    return f"openai:{_server().url}#demo"


@cache
def _server() -> LoopbackOpenAI:
    server = LoopbackOpenAI(DemoEncoder(16, seed=5)).start()
    atexit.register(server.stop)
    return server
