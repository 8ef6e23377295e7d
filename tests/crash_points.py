"""Run by the tests in a process of its own: dies at every change to files of an embedding in turn, and finishes it.

For n = 1, 2, ... a forked child embeds into `root/n` and dies in its n-th change to files; another child then goes on
until the end. Prints the number of deaths.
"""

from __future__ import annotations

import itertools
import signal
import sys
from functools import partial
from pathlib import Path

from deaths import die_at, status_of

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.views import ViewStore

SENTENCES = [f"sentence {i % 7}" for i in range(10)]


def embed(root: Path) -> None:
    ViewStore(root, shard_rows=4).embed(ListCorpus(SENTENCES), DemoEncoder(4))


def embed_and_die(root: Path, n: int) -> None:
    die_at(n)
    embed(root)


def main(root: Path) -> None:
    for n in itertools.count(1):
        status = status_of(partial(embed_and_die, root / str(n), n))
        if status == 0:
            print(n - 1)
            return
        if status != -signal.SIGKILL:
            sys.exit(f"the child ended with {status} at operation {n}")
        if status_of(partial(embed, root / str(n))) != 0:
            sys.exit(f"could not go on after a death at operation {n}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
