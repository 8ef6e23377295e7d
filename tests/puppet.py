"""A process that embeds exactly as far as a test lets it, so that it is stopped at a chosen point on any machine.

Its encoders announce every call and wait for leave. It is forked from a server that has imported everything before,
so that it starts in milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from ensembed.corpora.corpus import TextCorpus
from ensembed.encoders.base import FloatArray
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.views import ViewStore

INTERRUPTED = 130
SHARD_ROWS = 4
_TIMEOUT = 120  # seconds; only a process that hangs takes as long

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    ["pytest", "ensembed.corpora.corpus", "ensembed.encoders.demo_encoder", "ensembed.views"]
)


class Puppet:
    """Embeds a corpus file with demo encoders of these dimensions into the store at `root`."""

    def __init__(self, corpus: Path, root: Path, dims: Sequence[int]) -> None:
        self._strings, far_end = _server.Pipe()
        self._process = _server.Process(target=_embed, args=(corpus, root, dims, far_end), daemon=True)
        self._process.start()
        far_end.close()
        self._next()  # it is ready

    def step(self, calls: int) -> list[bool]:
        """Let the encoders be called so many times; says for each call whether it was in the main thread.

        When this returns, the last call has its leave and whatever follows happens at the process's own speed, up to
        the next call.
        """
        places = []
        for _ in range(calls):
            places.append(self._next())
            self._strings.send(None)
        return places

    def kill(self, delay: float = 0.0) -> None:
        """SIGKILL after so many seconds."""
        time.sleep(delay)
        self._process.kill()
        assert self._end() == -signal.SIGKILL, "it was done before it was killed: make the corpus longer"

    def interrupt(self) -> bool:
        """SIGINT while an encoder is being called; says whether that call was in the main thread."""
        place = self._next()
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGINT)
        assert self._end() == INTERRUPTED
        return place

    def _next(self) -> bool:
        """Wait for the next announcement."""
        assert self._strings.poll(_TIMEOUT), "the process hangs"
        try:
            return bool(self._strings.recv())
        except EOFError:
            raise AssertionError(f"the process ended with {self._end()}") from None

    def _end(self) -> int | None:
        self._strings.close()  # whoever waits for leave goes on: threads must come to their end
        self._process.join(_TIMEOUT)
        return self._process.exitcode


class _OnStrings(DemoEncoder):
    """A demo encoder that announces every call, and in which thread it is, and waits for leave."""

    def __init__(self, dim: int, strings: Connection, turn: threading.Lock) -> None:
        super().__init__(dim)
        self._strings = strings
        self._turn = turn

    def embed(self, sentences: list[str]) -> FloatArray:
        with self._turn:
            try:
                self._strings.send(threading.current_thread() is threading.main_thread())
                self._strings.recv()
            except (EOFError, OSError):
                pass  # nobody holds the strings any more
        return super().embed(sentences)


def _embed(corpus: Path, root: Path, dims: Sequence[int], strings: Connection) -> None:
    strings.send(True)
    turn = threading.Lock()
    store = ViewStore(root, shard_rows=SHARD_ROWS)
    try:
        store.embed_all(TextCorpus(corpus), [_OnStrings(dim, strings, turn) for dim in dims])
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
