"""Damage to the files of an index: an error that names the file, never a traceback and never another answer."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import DamagedIndexError, InputError, SearchIndexError
from ensembed.search import Hit, Index
from ensembed.search.index_files import BlockSums, CheckedArray, map_npy, write_npy
from ensembed.search.segments import read_record

ENCODER = DemoEncoder(8)
ROWS = 1200
GOLDEN = Path(__file__).parents[1] / "golden" / "version-0.1"


def make(folder: Path, **settings: Any) -> Index:  # noqa: ANN401 - settings of all types
    index = Index.create(folder, ENCODER, source="demo?dim=8", **settings)
    index.add([f"text number {i}" for i in range(40)], metadata=[{"row": i} for i in range(40)])
    index.delete(["3", "4"])
    return index


def ask(folder: Path, *, verify: bool = False) -> list[list[Hit]]:
    """Return every row, so that a search reads everything it may read."""
    return Index.open(folder, ENCODER, verify=verify).search(["text number 7", "another"], k=100)


def outcome(call: Callable[[], list[list[Hit]]]) -> list[list[Hit]] | str:
    """Return the hits, or the message of the one error that damage may give."""
    try:
        return call()
    except DamagedIndexError as error:
        return str(error)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return damage


DAMAGES = {
    "cut": rewritten(lambda data: data[: len(data) // 2]),
    "empty": rewritten(lambda _: b""),
    "zeros": rewritten(lambda data: bytes(len(data))),
    "zip": rewritten(lambda data: b"PK\x03\x04" + data[4:]),
    "header": rewritten(lambda data: data.replace(b"'shape': (", b"'shape': ((")),
    "spaces": rewritten(lambda data: b"\x93NUMPY\x01\x00v\x00" + b" " * (len(data) - 10)),
    "open bracket": rewritten(lambda data: b"\x93NUMPY\x01\x00v\x00(" + b" " * (len(data) - 11)),
    "folder": folder_instead,
    "loop": loop,
    "pipe": pipe,
}


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_of_an_index_is_named(tmp_path: Path, damage: str, verify: bool) -> None:
    index = make(tmp_path / "whole", dtype="int8")
    expected = ask(index.folder)
    for name in [*(file.name for file in index.manifest.files()), "index.json"]:
        folder = tmp_path / "damaged"
        shutil.copytree(index.folder, folder)
        before = (folder / name).read_bytes()
        DAMAGES[damage](folder / name)
        if not (folder / name).is_file() or (folder / name).read_bytes() != before:
            seen = outcome(lambda: ask(folder, verify=verify))  # noqa: B023 - called at once
            if verify or name.split(".")[1] not in ("keys", "ids"):
                assert name in seen
            else:  # these two are read by changes, and by a search with a graph
                assert seen == expected or name in seen
        shutil.rmtree(folder)


@pytest.mark.parametrize("dtype", ["float32", "int8", "binary"])
def test_no_flipped_bit_changes_a_hit_silently(tmp_path: Path, dtype: str) -> None:
    index = make(tmp_path / "index", dtype=dtype)
    expected = ask(index.folder)
    chance = np.random.default_rng(5)
    unread = ("keys", "ids", "scales") if dtype == "binary" else ("keys", "ids")
    for file in index.manifest.files():
        path = index.folder / file.name
        data = path.read_bytes()
        for at in chance.integers(0, len(data), 25):
            flipped = bytearray(data)
            flipped[at] ^= 1 << int(chance.integers(8))
            path.write_bytes(flipped)
            seen = outcome(lambda: ask(index.folder))
            assert file.name in seen or (seen == expected and file.name.split(".")[1] in unread)
        path.write_bytes(data)


def test_changes_read_ids_and_keys_only_if_they_are_whole(tmp_path: Path) -> None:
    index = make(tmp_path / "index")
    for content, change in (("ids", lambda opened: opened.add(["new"], ["0"])), ("keys", Index.compact)):
        path = index.folder / f"000001.{content}.npy"
        data = path.read_bytes()
        path.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
        with pytest.raises(DamagedIndexError, match=path.name):
            change(Index.open(index.folder, ENCODER))
        path.write_bytes(data)


def test_a_graph_search_checks_the_rows_that_it_reads(tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    encoder = DemoEncoder(64)
    vectors = np.random.default_rng(1).normal(size=(ROWS, 64)).astype(np.float32)
    index = Index.create(tmp_path / "index", encoder, kind="hnsw")
    index.add([f"t{i}" for i in range(ROWS)], vectors=vectors)
    expected = index.search(vectors[[700]], 2)
    for name in [file.name for file in index.manifest.files() if "fingerprint" not in file.name]:
        path = index.folder / name
        data = path.read_bytes()
        for at in range(len(data) // 16, len(data), len(data) // 8):
            path.write_bytes(data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :])
            seen = outcome(lambda: Index.open(index.folder, encoder).search(vectors[[700]], 2))
            partly_read = name.split(".")[1] in ("vectors", "ids", "places", "records")
            assert name in seen or (seen == expected and partly_read)
        path.write_bytes(data)


def block_sums(array: NDArray[np.float32]) -> NDArray[np.uint32]:
    sums = BlockSums()
    sums.add(array.tobytes())
    return sums.result()


def test_every_block_is_checked_when_it_is_first_read_and_only_then(tmp_path: Path) -> None:
    array = np.random.default_rng(2).normal(size=(5000, 33)).astype("<f4")
    facts = write_npy(tmp_path / "x.npy", array.shape, "<f4", [array])
    sums = block_sums(array)
    assert len(sums) == 11
    data = bytearray((tmp_path / "x.npy").read_bytes())
    data[128 + 5 * 65536 + 17] ^= 1
    (tmp_path / "x.npy").write_bytes(data)
    bad = (5 * 65536 + 17) // (4 * 33)
    first, end = 5 * 65536 // 132, -(-6 * 65536 // 132)  # rows that are in the block, in part at least

    def opened() -> CheckedArray:
        return CheckedArray(tmp_path / "x.npy", map_npy(tmp_path, facts, array.shape, "<f4"), sums)

    rows = opened()
    assert np.array_equal(rows[0:first], array[:first])
    assert np.array_equal(rows[end:5000], array[end:])
    assert np.array_equal(rows[np.array([0, 4, first - 1, end, 4999])], array[[0, 4, first - 1, end, 4999]])
    for read in (
        slice(None),
        slice(bad, bad + 1),
        np.array([3, first, 4000]),
        np.array([end - 1]),
        slice(0, first + 1),
    ):
        with pytest.raises(DamagedIndexError, match=r"x\.npy is damaged: the checksum of its block 5"):
            opened()[read]
    wide = np.arange(3 * 50_000, dtype="<f4").reshape(3, -1)  # rows longer than a block
    facts = write_npy(tmp_path / "x.npy", wide.shape, "<f4", [wide])
    sums = block_sums(wide)
    sums[4] ^= 1  # in the middle of row 1
    rows = CheckedArray(tmp_path / "x.npy", map_npy(tmp_path, facts, wide.shape, "<f4"), sums)
    assert np.array_equal(rows[np.array([2])], wide[2:])
    with pytest.raises(DamagedIndexError, match="block 4"):
        rows[np.array([1])]


def seal(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change `index.json` as a stranger would, with a hash that fits."""
    facts = json.loads((folder / "index.json").read_text())
    del facts["sha256"]
    change(facts)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    (folder / "index.json").write_text(json.dumps(facts | {"sha256": digest}))


def test_a_segment_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    index = make(tmp_path / "a" / "index")
    before = sorted(tmp_path.rglob("*"))
    seal(index.folder, lambda facts: facts["segments"][0].update(name="../../X"))
    with pytest.raises(DamagedIndexError, match=r"index\.json is damaged.*\.\./\.\./X"):
        Index.open(index.folder, ENCODER).delete(["7"])
    assert sorted(tmp_path.rglob("*")) == before


HOSTILE: dict[str, Callable[[dict[str, Any]], None]] = {
    "file": lambda facts: facts["segments"][0]["files"]["vectors"].update(name="../000001.vectors.npy"),
    "absolute": lambda facts: facts["segments"][0]["files"]["records"].update(name="/etc/passwd"),
    "deleted": lambda facts: facts["segments"][0]["deleted"].update(name="../../x.npy"),
    "content": lambda facts: facts["segments"][0]["files"].update({"../x": facts["segments"][0]["files"]["ids"]}),
    "missing": lambda facts: facts["segments"][0]["files"].pop("places"),
    "fingerprint": lambda facts: facts["model"]["fingerprint"].update(name="x/fingerprint.npy"),
    "line end": lambda facts: facts["segments"][0].update(name="000001\n"),
    "digits": lambda facts: facts["segments"][0].update(name="\u0661\u0661\u0661\u0661\u0661\u0661"),
    "rows": lambda facts: facts["segments"][0].update(rows=10**15),
    "fraction": lambda facts: facts["segments"][0].update(rows=40.0),
    "live": lambda facts: facts["segments"][0].update(live=41),
    "truth": lambda facts: facts.update(next_key=True),
    "segment": lambda facts: facts.update(next_segment="../x"),
    "imported text": lambda facts: facts["imports"].update(x=["1", False]),
    "imported less": lambda facts: facts["imports"].update(x=[-1, False]),
    "hash": lambda facts: facts["segments"][0]["files"]["vectors"].update(sha256=[[1, 2]]),
    "dim": lambda facts: facts["model"]["spec"].update(dim=3 * 10**8),
    "deep": lambda facts: facts.update(x=json.loads("[" * 500 + "]" * 500)),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_manifest_with_a_right_hash_and_wrong_content_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    index = make(tmp_path / "index")
    seal(index.folder, change)
    with pytest.raises(DamagedIndexError, match=r"index\.json|(vectors|blocks)\.npy"):
        Index.open(index.folder, ENCODER)


def test_rows_are_not_added_under_the_keys_of_others(tmp_path: Path) -> None:
    index = make(tmp_path / "index")
    seal(index.folder, lambda facts: facts.update(next_key=1))
    with pytest.raises(DamagedIndexError, match="the key of its next row, 1, is that of another row"):
        Index.open(index.folder, ENCODER).add(["one more"], ["new"])


def test_a_row_that_is_deleted_twice_is_damage(tmp_path: Path) -> None:
    index = make(tmp_path / "index")
    [segment] = index.manifest.segments
    assert segment.deleted is not None
    twice = write_npy(index.folder / segment.deleted.name, (2,), "<i8", [np.array([3, 3])])
    manifest = dataclasses.replace(index.manifest, segments=(dataclasses.replace(segment, deleted=twice),))
    (index.folder / "index.json").write_bytes(manifest.to_bytes())
    with pytest.raises(DamagedIndexError, match="a deleted row twice"):
        Index.open(index.folder, ENCODER)


def test_rows_are_added_though_an_old_segment_cannot_be_compacted(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", ENCODER)
    for i in range(7):
        index.add([f"text {i}"], [f"old {i}"])
    records = next(index.folder.glob("*.records.jsonl"))
    records.write_bytes(rewritten_last_line(records.read_bytes()))
    with pytest.warns(RuntimeWarning, match=r"the change is saved; .*records\.jsonl is damaged"):
        index.add(["another"], ["new"])
    assert len(Index.open(index.folder, ENCODER)) == 8


def rewritten_last_line(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


def test_a_deeply_nested_manifest_is_damaged(tmp_path: Path) -> None:
    index = make(tmp_path / "index")
    (index.folder / "index.json").write_text('{"a":' * 10**5 + "1" + "}" * 10**5)
    with pytest.raises(DamagedIndexError, match="nested more than"):
        Index.open(index.folder)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    index = make(tmp_path / "index")
    (tmp_path / "precious").write_text("text")
    (index.folder / ".lock").unlink()
    (index.folder / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(SearchIndexError, match="is a link"):
        Index.open(index.folder, ENCODER).delete(["7"])
    assert (tmp_path / "precious").read_text() == "text"


def test_metadata_that_could_not_be_read_again_is_not_added(tmp_path: Path) -> None:
    index = make(tmp_path / "index")
    with pytest.raises(InputError, match="nested more than"):
        index.add(["x"], metadata=[{"a": json.loads("[" * 200 + "]" * 200)}])


def test_what_is_added_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensembed.support.file_limits.JSON_VALUES", 100)
    monkeypatch.setattr("ensembed.support.file_limits.JSON_BYTES", 10_000)
    index = make(tmp_path / "index")
    texts = ["one, two, [three] {four} " * 20, '\\"' * 500 + "a, b" * 100]
    index.add(texts, ["comma, " * 20, "quote"], [{"deep": json.loads("[" * 90 + "]" * 90)}, {"text": ",[{" * 99}])
    assert [row["text"] for row in Index.open(index.folder, ENCODER).get(["comma, " * 20, "quote"])] == texts
    for text, metadata in (("x" * 9_990, {}), ("x", {"many": list(range(101))}), ("x", {"long": "x" * 10_000})):
        before = len(index)
        with pytest.raises(InputError, match=r"more than (100 values|10,000 bytes)"):
            index.add(["good", text], metadata=[{}, metadata])
        assert len(index) == len(Index.open(index.folder, ENCODER)) == before


def test_an_index_of_version_0_1_opens_and_gets_checksums_by_compaction(tmp_path: Path) -> None:
    for golden in sorted((GOLDEN / "indexes").iterdir()):
        if not (golden / "index.json").exists():
            continue
        folder = tmp_path / golden.name
        shutil.copytree(golden, folder)
        index = Index.open(folder, verify=True)
        assert index.facts["without_block_checksums"] == len(index) > 0
        expected = index.search(["a dog"], k=5)
        index.compact()
        assert index.facts["without_block_checksums"] == 0
        assert Index.open(folder, verify=True).search(["a dog"], k=5) == expected


def test_a_graph_of_other_rows_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    indexes = {}
    for dim in (8, 64):
        vectors = np.random.default_rng(1).normal(size=(ROWS, dim)).astype(np.float32)
        indexes[dim] = Index.create(tmp_path / str(dim), DemoEncoder(dim), kind="hnsw")
        indexes[dim].add([f"t{i}" for i in range(ROWS)], vectors=vectors)
    graph = json.loads((indexes[8].folder / "index.json").read_text())["graph"]
    shutil.copy(indexes[8].folder / graph["file"]["name"], indexes[64].folder)
    seal(indexes[64].folder, lambda facts: facts.update(graph=graph))
    with pytest.raises(DamagedIndexError, match="it is the graph of other rows"):
        Index.open(indexes[64].folder, DemoEncoder(64)).search(np.ones((1, 64), np.float32), 2)


@pytest.mark.parametrize("line", [b"[]", b'{"id": "a"}', b'{"id": "a", "text": 3}', b'{"id": "a", "text": "\\ud800"}'])
def test_a_line_that_is_no_record_or_no_text_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"other fields|surrogates"):
        read_record(line)


def test_a_character_that_is_written_as_two_halves_is_text() -> None:
    assert read_record(b'{"id": "a", "text": "\\ud83d\\ude00"}')["text"] == "\U0001f600"
