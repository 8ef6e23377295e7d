"""A server in a process of its own, which ends when its standard input does: a test that dies leaves none behind.

`cli ARGUMENTS…` is `ensembed serve ARGUMENTS…`; `odd SETTINGS` serves an encoder that can be made to fail.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec


class Odd(Encoder):
    """Takes its time; fails on texts that hold "poison", and gives NaN for "nan".

    Args:
        seconds: how long a batch takes.
        gate: a file; while it is there nothing is encoded.
        pool: whether to work in a thread pool of its own, which Python waits for at its end.
    """

    concurrent = True  # as most of our own encoders are

    def __init__(self, seconds: float = 0.0, gate: str | None = None, pool: bool = False) -> None:
        self.seconds = seconds
        self.gate = gate
        self.pool = ThreadPoolExecutor(1) if pool else None
        self.batches: list[list[str]] = []

    @property
    def spec(self) -> EncoderSpec:
        return EncoderSpec("odd", "odd", 4, "1")

    def encode(self, sentences: Any, **_: Any) -> Any:  # noqa: ANN401 - passes by the checks of `Encoder`
        if self.pool is not None:
            return self.pool.submit(self.embed, list(sentences)).result()
        return self.embed(list(sentences))

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        self.batches.append(sentences)
        time.sleep(self.seconds)
        while self.gate is not None and os.path.exists(self.gate):  # noqa: PTH110 - a str by way of JSON
            time.sleep(0.005)
        if any("poison" in sentence for sentence in sentences):
            raise ValueError(f"cannot take {sentences}")
        rows = [[float(len(s)), float(sum(map(ord, s)) % 1009), 1.0, np.nan if s == "nan" else 0.0] for s in sentences]
        return np.array(rows, np.float32)


def _end_with_parent() -> None:
    while os.read(0, 1):  # not by way of `sys.stdin`, whose lock the interpreter wants at its own end
        pass
    os._exit(1)


def main() -> int:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    kind, *arguments = sys.argv[1:]
    if kind == "cli":
        from ensembed.cli import main as command

        return command(["serve", *arguments])
    import logging

    from ensembed.serve import Settings, create_app
    from ensembed.serve.uvicorn_server import address_of, listen, run

    facts = json.loads(arguments[0])
    model = Odd(facts.pop("seconds", 0.0), facts.pop("gate", None), facts.pop("pool", False))
    logging.basicConfig(level=logging.INFO)
    settings = Settings(**facts)
    with listen("127.0.0.1", 0) as bound:
        app = create_app(model, settings=settings)
        print(f"serving odd at {address_of(bound)}", file=sys.stderr, flush=True)
        answered = run(app, bound, settings)
    print(f"stopped after {answered} requests", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
