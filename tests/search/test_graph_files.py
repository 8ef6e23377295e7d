"""Files of usearch graphs: what usearch writes passes, and what would crash it is refused before it is opened."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("usearch")

from usearch.index import Index as Graph

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import DamagedIndexError, StoreError
from ensembed.integrations.usearch import UsearchStore
from ensembed.search import Index
from ensembed.search.graph_files import check_graph_file

ROWS, DIM = 1200, 8
KINDS: dict[str, dict[str, Any]] = {
    "f32": {"ndim": DIM, "metric": "cos", "dtype": "f32"},
    "f16": {"ndim": DIM, "metric": "cos", "dtype": "f16"},
    "i8": {"ndim": DIM, "metric": "cos", "dtype": "i8"},
    "b1": {"ndim": 64, "metric": "hamming", "dtype": "b1"},
    "few links": {"ndim": DIM, "metric": "cos", "dtype": "f16", "connectivity": 3},
}


def built(kind: str, count: int = ROWS) -> Any:  # noqa: ANN401 - usearch has no types
    graph = Graph(**{"connectivity": 16, **KINDS[kind]})
    if count:
        rows = np.random.default_rng(1).normal(size=(count, graph.ndim)).astype(np.float32)
        graph.add(np.arange(count, dtype=np.uint64), np.packbits(rows > 0, axis=1) if kind == "b1" else rows, threads=1)
    return graph


@pytest.mark.parametrize("count", [0, 1, ROWS])
@pytest.mark.parametrize("kind", KINDS)
def test_what_usearch_writes_is_whole(tmp_path: Path, kind: str, count: int) -> None:
    path = tmp_path / "graph"
    graph = built(kind, count)
    graph.save(str(path))
    check_graph_file(path, built(kind, 0))
    if count == ROWS:
        graph.remove(np.arange(100, 200, dtype=np.uint64))
        graph.save(str(path))
        check_graph_file(path, built(kind, 0))
        opened = built(kind, 0)
        opened.load(str(path))
        rows = np.ones((50, 8), np.uint8 if kind == "b1" else np.float32)
        opened.add(np.arange(5000, 5050, dtype=np.uint64), rows, threads=1)  # into the places of removed ones
        opened.save(str(path))
        check_graph_file(path, built(kind, 0))


class Parts:
    """The parts of a file, to be changed in place."""

    def __init__(self, path: Path) -> None:
        self.bytes = bytearray(path.read_bytes())
        self.rows, self.width = (int.from_bytes(self.bytes[i : i + 4], "little") for i in (0, 4))
        self.head = 8 + self.rows * self.width
        self.levels_at = self.head + 104
        levels = np.frombuffer(self.bytes, "<i2", self.rows, self.levels_at).astype(int)
        sizes = 10 + 4 + 4 * 32 + levels * (4 + 4 * 16)
        self.nodes = self.levels_at + 2 * self.rows + np.cumsum([0, *sizes[:-1]])
        self.high, self.low = int(levels.argmax()), int(levels.argmin())

    def put(self, at: int, value: int, size: int) -> None:
        self.bytes[int(at) : int(at) + size] = value.to_bytes(size, "little")


HOSTILE: dict[str, tuple[Callable[[Parts], None], str]] = {
    "link beyond the rows": (lambda parts: parts.put(parts.nodes[5] + 14, ROWS, 4), "leads nowhere"),
    "link far away": (lambda parts: parts.put(parts.nodes[5] + 14, (1 << 32) - 1, 4), "leads nowhere"),
    "more links than room": (lambda parts: parts.put(parts.nodes[5] + 10, 33, 4), "leads nowhere"),
    "very many links": (lambda parts: parts.put(parts.nodes[5] + 10, 1 << 31, 4), "leads nowhere"),
    "link above a node's level": (
        lambda parts: parts.put(parts.nodes[parts.high] + 14 + 128 + 4, parts.low, 4),
        "leads nowhere",
    ),
    "level of a node": (lambda parts: parts.put(parts.nodes[5] + 8, 30_000, 2), "another level"),
    "level in the list": (lambda parts: parts.put(parts.levels_at, 30_000, 2), "other sizes"),
    "negative level": (lambda parts: parts.put(parts.levels_at, 0xFFFF, 2), "other sizes"),
    "entry": (lambda parts: parts.put(parts.head + 64 + 32, 1 << 40, 8), "a search would begin"),
    "entry too low": (lambda parts: parts.put(parts.head + 64 + 32, parts.low, 8), "a search would begin"),
    "top level": (lambda parts: parts.put(parts.head + 64 + 24, 1 << 63, 8), "a search would begin"),
    "number of nodes": (lambda parts: parts.put(parts.head + 64, 1 << 60, 8), "vectors for"),
    "fewer nodes": (lambda parts: parts.put(parts.head + 64, ROWS - 1, 8), "vectors for"),
    "deleted nodes": (lambda parts: parts.put(parts.head + 25, (1 << 64) - ROWS, 8), "vectors for"),
    "room for links": (lambda parts: parts.put(parts.head + 72, 1 << 40, 8), "other rows"),
    "dimensions": (lambda parts: parts.put(parts.head + 33, 1 << 40, 8), "other rows"),
    "kind of numbers": (lambda parts: parts.put(parts.head + 14, 10, 1), "other rows"),
    "number of vectors": (lambda parts: parts.put(0, (1 << 32) - 1, 4), "cut off"),
    "width of vectors": (lambda parts: parts.put(4, 1, 4), "other rows"),
    "cut off": (lambda parts: parts.bytes.__delitem__(slice(-9, None)), "other sizes"),
    "cut off early": (lambda parts: parts.bytes.__delitem__(slice(parts.head + 20, None)), "cut off"),
    "empty": (lambda parts: parts.bytes.clear(), "empty"),
    "longer": (lambda parts: parts.bytes.extend(b"x"), "other sizes"),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Index.create(tmp_path_factory.mktemp("hnsw") / "index", DemoEncoder(DIM), kind="hnsw")
    vectors = np.random.default_rng(1).normal(size=(ROWS, DIM))
    made.add([f"t{i}" for i in range(ROWS)], vectors=vectors)
    return made.folder


@pytest.mark.parametrize("change", HOSTILE)
def test_a_graph_with_a_right_hash_that_would_crash_is_refused(tmp_path: Path, index: Path, change: str) -> None:
    facts = json.loads((index / "index.json").read_text())
    for path in index.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = tmp_path / facts["graph"]["file"]["name"]
    parts = Parts(path)
    damage, problem = HOSTILE[change]
    damage(parts)
    path.write_bytes(parts.bytes)
    facts["graph"]["file"] |= {"size": len(parts.bytes), "sha256": hashlib.sha256(parts.bytes).hexdigest()}
    del facts["sha256"]
    seal = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    (tmp_path / "index.json").write_text(json.dumps(facts | {"sha256": seal}))
    opened = Index.open(tmp_path, DemoEncoder(DIM), verify=True)
    with pytest.raises(DamagedIndexError, match=f"{path.name} is damaged.*{problem}"):
        opened.search(np.ones((1, DIM), np.float32), 2)
    with pytest.warns(RuntimeWarning, match=f"the change is saved.*{path.name} is damaged"):
        opened.add([f"new {i}" for i in range(ROWS)], vectors=np.random.default_rng(2).normal(size=(ROWS, DIM)))


@pytest.mark.parametrize("view", [False, True])
def test_a_store_whose_graph_would_crash_is_refused(tmp_path: Path, view: bool) -> None:
    with UsearchStore.create(tmp_path / "store", "demo?dim=8") as store:
        store.add(range(ROWS), [f"sentence {i}" for i in range(ROWS)])
        store.save()
    facts = json.loads((tmp_path / "store" / "store.json").read_text())
    path = tmp_path / "store" / facts["index"]
    parts = Parts(path)
    parts.put(parts.nodes[5] + 14, (1 << 32) - 1, 4)
    path.write_bytes(parts.bytes)
    facts["sha256"] = hashlib.sha256(parts.bytes).hexdigest()
    (tmp_path / "store" / "store.json").write_text(json.dumps(facts))
    with pytest.raises(StoreError, match="leads nowhere"):
        UsearchStore.open(tmp_path / "store", "demo?dim=8", view=view)


PROGRAM = """
import sys
import numpy as np
from pathlib import Path
from usearch.index import Index as Graph
from ensembed.search.graph_files import check_graph_file

path, chance, passed = Path(sys.argv[1]), np.random.default_rng(int(sys.argv[2])), 0
whole = path.read_bytes()
first = len(whole) - int(sys.argv[3])
for _ in range(400):
    data = bytearray(whole)
    for at in chance.integers(0 if chance.random() < 0.3 else first, len(data), chance.integers(1, 4)):
        data[at] = chance.integers(256)
    path.write_bytes(data)
    empty = Graph(ndim=8, metric="cos", dtype="f16", connectivity=16)
    try:
        check_graph_file(path, empty)
    except ValueError:
        continue
    passed += 1
    empty.view(str(path))
    empty.search(chance.normal(size=(20, 8)).astype(np.float32), 30, threads=1)
    empty.load(str(path))
    empty.add(np.arange(10**6, 10**6 + 20, dtype=np.uint64), chance.normal(size=(20, 8)).astype(np.float32), threads=1)
print(passed)
"""


def test_no_changed_byte_crashes_a_search(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    graph = built("f16", 300)
    graph.save(str(path))
    size = path.stat().st_size - 8 - 300 * 2 * DIM
    command = [sys.executable, "-c", PROGRAM, str(path), "5", str(size)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    assert 50 < int(child.stdout) < 350
