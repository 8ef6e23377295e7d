from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensembed.encoders.base import EncoderSpec
from ensembed.errors import CorruptViewError, StoreError
from ensembed.support.atomic_files import write_atomically
from ensembed.views.view_folder import (
    Manifest,
    checksum,
    is_whole,
    load_shard,
    shard_bytes,
    shard_name,
    shard_size,
    shard_start,
)

SPEC = EncoderSpec("an encoder ü", "demo", 8, "1", extra=(("seed", "1"),))
MANIFEST = Manifest("a" * 32, SPEC, 10, 4, tuple(f"shard-{row:09d}-{row:032x}.npy" for row in (0, 4, 8)))
PATH = Path("manifest.json")


def shard(rows: int, dim: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(rows).standard_normal((rows, dim), dtype=np.float32)


@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (3, 5), (4096, 2), (7, 3000)])
def test_a_shard_is_the_file_that_numpy_itself_writes(rows: int, dim: int) -> None:
    X = shard(rows, dim)
    buffer = io.BytesIO()
    np.save(buffer, X)
    assert shard_bytes(X) == buffer.getvalue()
    assert shard_size(rows, dim) == len(buffer.getvalue())


def test_a_shard_does_not_depend_on_how_the_array_lies_in_memory() -> None:
    X = shard(6, 4)
    assert shard_bytes(np.asfortranarray(X)) == shard_bytes(np.repeat(X, 2, axis=1)[:, ::2]) == shard_bytes(X)


def test_a_written_shard_is_whole_and_loads(tmp_path: Path) -> None:
    X = shard(5, 3)
    path = tmp_path / shard_name(20, shard_bytes(X))
    path.write_bytes(shard_bytes(X))
    loaded = load_shard(path, 5, 3)
    assert np.array_equal(loaded, X)
    assert loaded.dtype == np.float32
    assert not loaded.flags.writeable
    assert is_whole(path)
    assert shard_start(path) == 20


def test_a_shard_s_name_holds_its_first_row_and_the_hash_of_its_content() -> None:
    name = shard_name(4096, b"content")
    assert name == "shard-000004096-ed7002b439e9ac845f22357d822bac14.npy"
    assert checksum(b"content") in name
    assert shard_start(Path(shard_name(12_345_678_901, b""))) == 12_345_678_901


@pytest.mark.parametrize(
    "name", ["manifest.json", ".shard-000000000-" + "0" * 32 + ".npy.tmp", "shard-0-a.npy", "shard-000000000-.npy", ""]
)
def test_other_files_are_no_shards(tmp_path: Path, name: str) -> None:
    assert shard_start(tmp_path / name) is None
    assert not is_whole(tmp_path / name)


def test_a_shard_that_is_missing_or_a_folder_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / shard_name(0, b"content")
    assert not is_whole(path)
    path.mkdir()
    assert not is_whole(path)


@pytest.mark.parametrize("kept", [0, 1, 60, 127, 128, 129, 187])
def test_a_truncated_shard_does_not_load(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "shard.npy"
    path.write_bytes(shard_bytes(shard(5, 3))[:kept])
    with pytest.raises(CorruptViewError, match=r"shard\.npy"):
        load_shard(path, 5, 3)


def test_a_shard_with_any_flipped_bit_in_its_header_does_not_load(tmp_path: Path) -> None:
    path, data = tmp_path / "shard.npy", shard_bytes(shard(5, 3))
    for bit in range(8 * (shard_size(5, 3) - 4 * 5 * 3)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(CorruptViewError):
            load_shard(path, 5, 3)


@pytest.mark.parametrize(
    "other", [np.zeros((3, 5), np.float32), np.zeros((5, 3)), np.zeros((5, 3), np.int32), np.zeros(15, np.float32)]
)
def test_a_file_of_another_shape_or_type_does_not_load(tmp_path: Path, other: np.ndarray[Any, Any]) -> None:
    np.save(tmp_path / "shard.npy", other)
    with pytest.raises(CorruptViewError, match=r"float32 \(5, 3\)"):
        load_shard(tmp_path / "shard.npy", 5, 3)


def test_a_shard_never_runs_code(tmp_path: Path) -> None:
    np.save(tmp_path / "shard.npy", np.array([{"an": "object"}], dtype=object), allow_pickle=True)
    with pytest.raises(CorruptViewError):
        load_shard(tmp_path / "shard.npy", 1, 1)


def test_a_manifest_reads_back() -> None:
    assert Manifest.from_bytes(MANIFEST.to_bytes(), PATH) == MANIFEST


def test_a_manifest_tells_a_person_what_the_folder_is() -> None:
    facts = json.loads(MANIFEST.to_bytes())
    assert facts["encoder"]["name"] == SPEC.name
    assert (facts["corpus"], facts["rows"], facts["shards"]) == ("a" * 32, 10, list(MANIFEST.shards))


def test_every_flipped_bit_of_a_manifest_is_noticed() -> None:
    data = MANIFEST.to_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptViewError, match=r"manifest.json is damaged.*--verify"):
            Manifest.from_bytes(bytes(flipped), PATH)


def test_every_truncation_of_a_manifest_is_noticed() -> None:
    data = MANIFEST.to_bytes()
    for size in range(len(data)):
        with pytest.raises(CorruptViewError):
            Manifest.from_bytes(data[:size], PATH)
    for more in (b" ", b"\n", b"\0", b"{}"):
        with pytest.raises(CorruptViewError):
            Manifest.from_bytes(data + more, PATH)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from([*json.loads(MANIFEST.to_bytes()), *SPEC.to_json()]), inner, max_size=9)
        ),
    )
)
def test_any_other_json_is_a_damaged_manifest(value: object) -> None:
    with pytest.raises(CorruptViewError):
        Manifest.from_bytes(json.dumps(value).encode(), PATH)


def test_one_changed_fact_is_noticed_even_in_valid_json() -> None:
    facts = json.loads(MANIFEST.to_bytes())
    changes = [("rows", 11), ("shard_rows", 5), ("shards", [MANIFEST.shards[0]]), ("corpus", "b" * 32), ("format", 0)]
    for key, value in changes:
        with pytest.raises(CorruptViewError):
            Manifest.from_bytes(json.dumps(facts | {key: value}, indent=1, sort_keys=True).encode() + b"\n", PATH)


def test_a_manifest_of_a_later_format_asks_for_an_upgrade() -> None:
    facts = json.loads(MANIFEST.to_bytes()) | {"format": 2, "news": "of the future"}
    del facts["checksum"]
    facts["checksum"] = checksum(json.dumps(facts, sort_keys=True).encode())
    with pytest.raises(StoreError, match=r"format 2.*upgrade") as caught:
        Manifest.from_bytes(json.dumps(facts).encode(), PATH)
    assert not isinstance(caught.value, CorruptViewError)


def test_write_atomically_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (b"first", b"", b"second"):
        write_atomically(path, data)
        assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", data)]


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
def test_a_failed_write_keeps_the_old_content_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(failing, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"old")]
