"""A server, in a process of its own, of a model whose second member is asked over HTTP and may hang or die.

`python -m benchmarks.soak_member PORT MEMBER_PORT KEY`
"""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders import open_encoder
from ensembed.methods import SVD
from ensembed.methods.meta import Meta
from ensembed.models.ensemble import Ensemble, MetaEncoder

_MEMBERS = ("demo?dim=64&seed=1", "demo?dim=64&seed=2")
_TIMEOUT = 0.5  # seconds that the model waits for the second member before it goes on without it


def answers(texts: list[str]) -> list[NDArray[np.float32]]:
    """Return the vectors of texts with both members, and those without the second."""
    first, second = (open_encoder(name).encode(texts) for name in _MEMBERS)
    meta = _fitted()
    return [meta.transform([first, second]), meta.transform([first, None])]


def _fitted() -> Meta:
    texts = [f"sentence {i} to fit on" for i in range(500)]
    return SVD(dim=32).fit([open_encoder(name).encode(texts) for name in _MEMBERS])


class Member:
    """The second member: a server of its own that is stopped, continued, killed and started again."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.faults: Counter[str] = Counter()
        self.start()

    @property
    def pid(self) -> int:
        """The process that runs now."""
        return self._process.pid

    def start(self) -> None:
        """Start the server."""
        command = [sys.executable, "-m", "ensembed", "serve", _MEMBERS[1], "--name", "member", "--quiet"]
        self._process = subprocess.Popen([*command, "--port", str(self.port)], stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """End the server at once, also while it hangs."""
        self._process.kill()
        self._process.wait()

    async def fail_in_turns(self, well: float, failing: float) -> None:
        """Hang and die in turns, for `failing` seconds each, `well` seconds apart."""
        while True:
            await asyncio.sleep(well)
            self._process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(failing)
            self._process.send_signal(signal.SIGCONT)
            self.faults["hung"] += 1
            await asyncio.sleep(well)
            self.kill()
            await asyncio.sleep(failing)
            self.start()
            self.faults["died"] += 1


def serve(port: int, member_port: int, key: str) -> None:
    """Serve the model until SIGTERM."""
    from ensembed.serve import Settings, create_app
    from ensembed.serve.uvicorn_server import listen, run

    logging.basicConfig(level=logging.WARNING)
    second = f"openai:http://127.0.0.1:{member_port}/v1#member?timeout={_TIMEOUT}&retries=0"
    model = MetaEncoder(Ensemble([_MEMBERS[0], second]), _fitted(), missing="drop")
    settings = Settings(keys=(key,))
    with listen("127.0.0.1", port) as bound:
        run(create_app(model, name="soak", settings=settings), bound, settings)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
