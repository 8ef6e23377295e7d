"""Run by the tests in a process of its own: embeds a corpus file, slowly, so that it can be stopped on the way.

It prints `ready` before it begins and `encoding` with the number of sentences whenever the encoder is called.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import time
from pathlib import Path

from ensembed.corpora.corpus import TextCorpus
from ensembed.encoders.base import FloatArray
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import EnsembedError
from ensembed.views import ViewStore


class SlowEncoder(DemoEncoder):
    def __init__(self, dim: int, seconds: float) -> None:
        super().__init__(dim)
        self._seconds = seconds

    def embed(self, sentences: list[str]) -> FloatArray:
        print("encoding", len(sentences), flush=True)
        time.sleep(self._seconds)
        return super().embed(sentences)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("root", type=Path)
    parser.add_argument("--dim", type=int, default=4)
    parser.add_argument("--shard-rows", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--file-limit", type=int, help="bytes that a file may have")
    args = parser.parse_args()
    if args.file_limit:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (args.file_limit, args.file_limit))
    print("ready", flush=True)
    store = ViewStore(args.root, shard_rows=args.shard_rows, wait=args.wait)
    try:
        store.embed(TextCorpus(args.corpus), SlowEncoder(args.dim, args.seconds))
    except EnsembedError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
