"""Run by the tests in a process of its own: cut the power at every operation of a change to files, and go on.

    python power_cut_points.py CASE FOLDER

What a disk may hold after each power cut must be the state before the change or after it, and after it once the change
was over; then the change must be possible. Prints as JSON how many such disks there were, and how many had the change.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import power_cut

from ensembed import Ensemble, load
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.methods import GCCA, SVD, Autoencoder, Average, Method
from ensembed.search import Index
from ensembed.views import View, ViewStore

SENTENCES = [f"{who} {does} the {what}" for who in ("a dog", "she") for does in ("sees", "has") for what in "abc"]
NAMES = ("demo?dim=5&seed=1", "demo?dim=4&seed=2")
INDEXED = DemoEncoder(4)


@dataclass(frozen=True)
class Case:
    """A change to the files in a folder.

    Attributes:
        change: makes it.
        read: returns the state, to be compared; raises if it is damaged.
        prepare: makes the state before.
    """

    change: Callable[[Path], object]
    read: Callable[[Path], Any]
    prepare: Callable[[Path], object] = lambda _: None


def embed(folder: Path) -> None:
    # The folders above the store do not exist either.
    store = ViewStore(folder / "new" / "views", shard_rows=4)
    Ensemble(NAMES[:1]).fit(SENTENCES, SVD(dim=3), store=store)


def views(folder: Path) -> list[bytes]:
    """Return the rows of every complete view."""
    return sorted(np.asarray(View(manifest.parent)).tobytes() for manifest in folder.rglob("manifest.json"))


def save(folder: Path, method: Method) -> None:
    store = ViewStore(tempfile.mkdtemp(dir=folder.parent))
    Ensemble(NAMES).fit(SENTENCES, method, store=store).save(folder / "models" / "model")


def model(folder: Path) -> bytes:
    if not (folder / "models" / "model" / "config.json").exists():
        return b""
    return load(folder / "models" / "model").encode(SENTENCES).tobytes()


def build(folder: Path) -> None:
    index = Index.create(folder / "new" / "index", INDEXED, source="demo?dim=4", dtype="int8")
    for start in (0, 6):
        numbers = range(start, start + 6)
        index.add([f"text {i}" for i in numbers], [f"id{i}" for i in numbers], [{"n": i} for i in numbers])


def opened(folder: Path) -> Index:
    return Index.open(folder / "new" / "index", INDEXED)


def rows(folder: Path) -> list[str]:
    if not (folder / "new" / "index" / "index.json").exists():
        return []
    index = opened(folder)
    index.verify()
    [hits] = index.search(["a dog"], k=1000) if len(index) else [[]]
    return sorted(f"{hit.id} {hit.text} {hit.metadata} {hit.score:.9f}" for hit in hits)


def graph_rows(folder: Path) -> tuple[list[str], int]:
    return rows(folder), opened(folder).facts["graph"]


def create(folder: Path) -> None:
    index = Index.create(folder / "new" / "index", INDEXED, source="demo?dim=4", dtype="int8", remake=True)
    index.add(["a dog", "a cat"], ["dog", "cat"])


def fill_store(folder: Path, *ids: int) -> None:
    from ensembed.integrations.usearch import UsearchStore

    place = folder / "stores" / "store"
    exists = (place / "store.json").exists()
    store = UsearchStore.open(place, INDEXED) if exists else UsearchStore.create(place, INDEXED)
    store.add(list(ids), [f"text {i}" for i in ids])
    store.save()


def store_rows(folder: Path) -> list[int]:
    from ensembed.integrations.usearch import UsearchStore

    if not (folder / "stores" / "store" / "store.json").exists():
        return []
    return sorted(UsearchStore.open(folder / "stores" / "store", INDEXED).search(["text 1"], k=100).ids[0].tolist())


def convert(folder: Path) -> bytes:
    from make_words import glove_text, small_vectors

    source = folder.parent / "vectors.txt"
    if not source.exists():
        source.write_bytes(glove_text(small_vectors(60)))
    os.environ["ENSEMBED_CACHE"] = str(folder / "cache")
    return Ensemble([f"words:{source}"]).encoders[0].encode(["the dog sleeps", "a cat"]).tobytes()


def word_cache(folder: Path) -> bytes:
    """Return the vectors that a converted file gives; nothing if there is none."""
    converted = [path for path in (folder / "cache" / "words").glob("*") if path.is_dir() and path.name[0] != "."]
    return convert(folder) if converted else b""


def train(folder: Path, stop: int | None) -> tuple[int, bytes]:
    """Train until the end, or until an interruption in an epoch; return the first epoch and the vectors."""
    epochs: list[int] = []

    def report(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train ·"):
            epochs.append(done)
            if done == stop:
                raise KeyboardInterrupt

    numbers = np.random.default_rng(0)
    given = [numbers.standard_normal((20, dim), np.float32) for dim in (4, 3)]
    method = Autoencoder(dim=2, epochs=6, batch_size=8)
    with contextlib.suppress(KeyboardInterrupt):
        meta = method.fit(given, threads=1, progress=report, checkpoint=folder / "new" / "training")
        return epochs[0], meta.transform(given).tobytes()
    return epochs[0], b""


def trained(folder: Path) -> tuple[int, bytes]:
    """Return how a copy of the training goes on."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        return train(Path(copy), None)


CASES = {
    "views": Case(embed, views),
    "first save": Case(lambda folder: save(folder, Average()), model),
    "save over a model": Case(lambda folder: save(folder, GCCA(dim=3)), model, lambda folder: save(folder, Average())),
    "new index": Case(create, rows),
    "add": Case(lambda folder: opened(folder).add(["a new text", "a dog"], ["new", "dog"]), rows, build),
    "replace": Case(
        lambda folder: opened(folder).add(["another 3", "another 9"], ["id3", "id9"], replace=True), rows, build
    ),
    # So much of one segment that it is compacted, and a little of another.
    "delete": Case(lambda folder: opened(folder).delete(["id0", "id1", "id2", "id7"]), rows, build),
    "compact": Case(lambda folder: opened(folder).compact(), rows, build),
    "graph": Case(lambda folder: opened(folder).build_graph(), graph_rows, build),
    "vector folder": Case(
        lambda folder: fill_store(folder, 4, 5), store_rows, lambda folder: fill_store(folder, 1, 2, 3)
    ),
    "new vector folder": Case(lambda folder: fill_store(folder, 1, 2, 3), store_rows),
    "word vectors": Case(convert, word_cache),
    "first checkpoint": Case(lambda folder: train(folder, 3), trained),
    "checkpoint": Case(lambda folder: train(folder, 5), trained, lambda folder: train(folder, 3)),
}


def main(case: Case, root: Path) -> None:
    power_cut.install()
    base, changed = root / "base", root / "changed"
    base.mkdir(parents=True)
    case.prepare(base)
    shutil.copytree(base, changed)
    before = case.read(base)
    moments = power_cut.record(changed, lambda: case.change(changed))
    after = case.read(changed)
    numbers = itertools.count()

    def new_folder() -> Path:
        folder = root / f"cut-{next(numbers)}"
        folder.mkdir()
        return folder

    complete = 0
    for folder, over, how in power_cut.states_after_power_cuts(changed.stat().st_ino, moments, new_folder):
        state = case.read(folder)
        if state != after and (over or state != before):
            sys.exit(f"{folder}, {how}: {'lost after it was complete' if over else 'neither old nor new'}: {state!r}")
        complete += state == after
        if state != after or before == after:
            case.change(folder)
            if case.read(folder) != after:
                sys.exit(f"{folder}, {how}: cannot go on")
        shutil.rmtree(folder)
    print(json.dumps([next(numbers), complete]))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent / "encoders"))
    main(CASES[sys.argv[1]], Path(sys.argv[2]))
