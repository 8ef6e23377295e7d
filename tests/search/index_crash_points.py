"""Run by the tests in a process of its own: kill a change to an index at every one of its file operations.

For every change and n = 1, 2, ... a forked child makes the change to a copy of the index at `root/base` and sends
itself SIGKILL in its n-th operation; if that is a sync, half of the bytes are lost as well. What is left must be the
state before or after, every byte of it, and the change must then be possible. Prints how many kills each change had,
and after how many of them the change was complete.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.search import Index

sys.path.insert(0, str(Path(__file__).parents[1]))  # a process of its own, which looks in this folder only
from deaths import die_at, status_of

ENCODER = DemoEncoder(4)


def rows_of(index: Index) -> list[str]:
    """Return every row as a search returns it, with its score."""
    index.verify()
    [hits] = index.search(["a dog"], k=1000)
    return sorted(f"{hit.id} {hit.text} {hit.metadata} {hit.score:.9f}" for hit in hits)


def build(folder: Path) -> None:
    index = Index.create(folder, ENCODER, source="demo?dim=4", dtype="int8")
    for start in (0, 6):
        texts = [f"text {i}" for i in range(start, start + 6)]
        index.add(texts, [f"id{i}" for i in range(start, start + 6)], [{"n": i} for i in range(6)])


def add(folder: Path) -> None:
    Index.open(folder, ENCODER).add(["a new text", "a dog"], ["new", "dog"])


def replace(folder: Path) -> None:
    Index.open(folder, ENCODER).add(["another 3", "another 9"], ["id3", "id9"], replace=True)


def delete(folder: Path) -> None:
    """Delete so much of one segment that it is compacted, and a little of another."""
    Index.open(folder, ENCODER).delete(["id0", "id1", "id2", "id7"])


def compact(folder: Path) -> None:
    Index.open(folder, ENCODER).compact()


CHANGES: dict[str, Callable[[Path], None]] = {"add": add, "replace": replace, "delete": delete, "compact": compact}


def change_and_die(change: Callable[[Path], None], folder: Path, n: int) -> None:
    die_at(n)
    change(folder)


def check(change: Callable[[Path], None], folder: Path, before: list[str], after: list[str]) -> bool:
    """Return whether the change is complete; if not, make it now. No unused file may remain."""
    index = Index.open(folder, ENCODER)
    rows = rows_of(index)
    if rows not in (before, after):
        sys.exit(f"{folder}: neither the old nor the new state: {rows}")
    if rows == before:
        change(folder)
    index.add(["the last"], ["last"])
    index.delete(["last"])
    if rows_of(index) != after:
        sys.exit(f"{folder}: cannot go on: {rows_of(index)}")
    named = {file.name for file in index.manifest.files()} | {"index.json", ".lock"}
    if left := {path.name for path in folder.iterdir()} - named:
        sys.exit(f"{folder}: left over: {left}")
    return rows == after


def main(root: Path) -> None:
    os.fsync = lambda _: None  # type: ignore[assignment] # processes that are not killed need not wait for the disk
    build(root / "base")
    before = rows_of(Index.open(root / "base", ENCODER))
    counts = {}
    for name, change in CHANGES.items():
        shutil.copytree(root / "base", root / name)
        change(root / name)
        after = rows_of(Index.open(root / name, ENCODER))
        done = 0
        for n in itertools.count(1):
            folder = root / f"{name}-{n}"
            # Links are as good as copies, and faster: an index never changes a file, it writes new ones.
            shutil.copytree(root / "base", folder, copy_function=os.link)
            status = status_of(partial(change_and_die, change, folder, n))
            if status == 0:
                counts[name] = [n - 1, done]
                break
            if status != -signal.SIGKILL:
                sys.exit(f"{name}: the child ended with {status} at operation {n}")
            done += check(change, folder, before, after)
            shutil.rmtree(folder)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
