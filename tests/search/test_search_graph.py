"""The HNSW graph (usearch): good candidates, and never a row that is not there."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import DamagedIndexError, InputError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search import Index, hnsw_graph
from ensembed.search.exact_search import find_candidates, rank
from ensembed.search.index_files import Codes

ENCODER = DemoEncoder(32)
ROWS = 1500
# 32 bits leave many rows equally near: comparing takes them all for candidates, the graph as many as it is asked for.
LEAST = {"float32": 0.95, "int8": 0.9, "binary": 0.6}


def rows(count: int, seed: int = 0) -> np.ndarray:
    """Vectors that have neighbours, as those of sentences do."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((40, 32))
    return centres[generator.integers(40, size=count)] + 0.6 * generator.standard_normal((count, 32))


@pytest.fixture(params=["float32", "int8", "binary"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    dtype: Codes = request.param
    made = Index.create(tmp_path / "index", ENCODER, kind="hnsw", dtype=dtype, rescore=8)
    made.add([f"t{i}" for i in range(ROWS)], vectors=rows(ROWS))
    return made


def recall(index: Index, queries: np.ndarray, k: int = 5) -> float:
    """The part of what comparing all of the same codes finds that the graph finds too."""
    found = index.search(queries, k)
    snapshot = index.snapshot
    unit = unit_rows(queries).astype(np.float32)
    candidates = find_candidates(snapshot, unit, k * snapshot.manifest.settings.rescore)
    best = [rank(snapshot, query, places, k)[0] for query, places in zip(unit, candidates, strict=True)]
    expected = [{snapshot.record(place)["id"] for place in some.tolist()} for some in best]
    return float(np.mean([len({h.id for h in hits} & near) / k for hits, near in zip(found, expected, strict=True)]))


def test_a_graph_finds_what_an_exact_search_finds_also_after_changes(index: Index) -> None:
    queries = rows(30, seed=1)
    assert index.manifest.graph is not None
    assert index.manifest.graph.rows == ROWS
    assert recall(index, queries) > LEAST[index.manifest.settings.dtype]
    gone = {hits[0].id for hits in index.search(queries, 1)}
    # Rows that came later are found, and deleted ones are not, though the graph is the old one.
    late = rows(100, seed=2)
    index.add([f"late {i}" for i in range(100)], [f"late{i}" for i in range(100)], vectors=late)
    index.delete(sorted(gone))
    assert index.manifest.graph.rows == ROWS
    # A row that is asked for as it is has no bit that differs.
    assert [hits[0].id for hits in index.search(late[:20], 1)] == [f"late{i}" for i in range(20)]
    assert not gone & {hit.id for hits in index.search(queries, 12) for hit in hits}
    assert recall(index, queries) > LEAST[index.manifest.settings.dtype]
    index.build_graph()
    assert index.manifest.graph.rows == ROWS + 100  # what was deleted is passed over
    opened = Index.open(index.folder, ENCODER, verify=True)
    assert opened.search(queries, 5) == index.search(queries, 5)
    assert recall(opened, queries) > LEAST[index.manifest.settings.dtype]
    assert opened.search(queries[:1], 1000)[0] == index.search(queries[:1], 1000)[0]
    assert len(opened.search(queries[:1], 10**4)[0]) == len(opened)


def test_a_graph_looks_further_when_all_near_rows_are_deleted(index: Index) -> None:
    query = rows(1, seed=3)
    near = [hit.id for hit in index.search(query, 1000)[0]][:350]
    index.delete(near)
    assert index.manifest.graph is not None
    assert index.manifest.graph.rows == ROWS
    found = [hit.id for hit in index.search(query, 5)[0]]
    assert len(found) == 5
    assert not set(found) & set(near)


def test_the_graph_is_built_again_when_many_rows_are_deleted(index: Index) -> None:
    index.delete([str(i) for i in range(450)])
    assert index.manifest.graph is not None
    assert index.manifest.graph.rows == ROWS - 450
    assert recall(index, rows(20, seed=4)) > LEAST[index.manifest.settings.dtype]


def test_the_same_rows_give_the_same_graph(tmp_path: Path) -> None:
    hashes = []
    for name in ("one", "two"):
        made = Index.create(tmp_path / name, ENCODER, kind="hnsw")
        made.add([f"t{i}" for i in range(ROWS)], vectors=rows(ROWS))
        assert made.manifest.graph is not None
        hashes.append(made.manifest.graph.file.sha256)
    assert hashes[0] == hashes[1]


def test_a_damaged_graph_is_not_searched(tmp_path: Path) -> None:
    made = Index.create(tmp_path / "index", ENCODER, graph_rows=1000)
    made.add([f"t{i}" for i in range(ROWS)], vectors=rows(ROWS))
    assert made.manifest.graph is not None
    path = made.folder / made.manifest.graph.file.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedIndexError, match=path.name):
        Index.open(made.folder, ENCODER).search(rows(1), 3)


def test_rows_that_are_saved_are_no_error_where_the_library_of_the_graph_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index.create(tmp_path / "index", ENCODER, kind="hnsw")
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.warns(RuntimeWarning, match=r"the change is saved; .*pip install 'ensembed\[search\]'"):
        index.add([f"t{i}" for i in range(ROWS)], vectors=rows(ROWS))
    assert len(Index.open(index.folder)) == ROWS


def test_an_exact_index_and_a_small_one_have_no_graph(tmp_path: Path) -> None:
    exact_one = Index.create(tmp_path / "exact", ENCODER, kind="exact")
    with pytest.raises(InputError, match="has no graph"):
        exact_one.build_graph()
    small = Index.create(tmp_path / "small", ENCODER)
    small.add(["a", "b"])
    assert small.manifest.graph is None


def made(folder: Path, seed: int, count: int = ROWS) -> Index:
    index = Index.create(folder, ENCODER, kind="hnsw")
    index.add([f"t{i}" for i in range(count)], vectors=rows(count, seed))
    return index


def test_refresh_opens_the_graph_of_an_index_that_was_made_again(tmp_path: Path) -> None:
    made(tmp_path / "index", seed=1)
    reader = Index.open(tmp_path / "index", ENCODER)
    reader.search(rows(3, 1), 1)  # the graph is open now
    shutil.rmtree(tmp_path / "index")
    made(tmp_path / "index", seed=2)
    reader.refresh()
    assert [hits[0].id for hits in reader.search(rows(ROWS, 2)[:20], 1)] == [str(i) for i in range(20)]


def test_a_reader_keeps_its_rows_when_the_graph_is_replaced(tmp_path: Path) -> None:
    writer = made(tmp_path / "index", seed=1)
    reader = Index.open(tmp_path / "index", ENCODER)
    writer.add([f"late {i}" for i in range(ROWS)], [f"late{i}" for i in range(ROWS)], vectors=rows(ROWS, 3))
    assert len(reader) == ROWS
    assert [hits[0].id for hits in reader.search(rows(ROWS, 1)[:5], 1)] == [str(i) for i in range(5)]


@pytest.mark.parametrize("step", ["check_bytes", "check_graph_file"])
def test_a_graph_that_is_replaced_while_it_is_opened_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    writer = made(tmp_path / "index", seed=1)
    reader = Index.open(tmp_path / "index", ENCODER)
    usual = getattr(hnsw_graph, step)

    def replace_first(*arguments: object) -> None:
        monkeypatch.undo()
        writer.add([f"late {i}" for i in range(ROWS)], vectors=rows(ROWS, 3))
        usual(*arguments)

    monkeypatch.setattr(hnsw_graph, step, replace_first)
    assert [hits[0].id for hits in reader.search(rows(ROWS, 1)[:5], 1)] == [str(i) for i in range(5)]
    assert len(reader) == ROWS
