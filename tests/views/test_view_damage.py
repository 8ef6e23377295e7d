"""Damage to the files of a view, disks that fail: everything is noticed, and what was finished is kept."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_store import CORPUS, ENCODER, SENTENCES, Interrupted

from ensembed.errors import (
    CorruptViewError,
    MissingError,
    StoreError,
)
from ensembed.testing import Recorder, files_of
from ensembed.views import View, ViewStore
from ensembed.views.view_folder import MANIFEST, read_manifest


def test_an_intact_view_is_verified_without_encoding_and_stays_open_meanwhile(
    store: ViewStore, whole: dict[str, bytes]
) -> None:
    folder = store.embed(CORPUS, ENCODER).folder
    complete: list[bool] = []
    recorder = Recorder(ENCODER)
    store.embed(CORPUS, recorder, verify=True, progress=lambda *_report: complete.append((folder / MANIFEST).exists()))
    assert recorder.seen == []
    assert complete
    assert all(complete)
    assert files_of(folder) == whole


@pytest.mark.parametrize(
    "change", ["too few", "too many", "one twice", "outside", "no rows a shard", "a negative number of rows"]
)
def test_manifest_whose_shards_do_not_fit_its_rows_is_refused_and_repaired(
    store: ViewStore, whole: dict[str, bytes], change: str
) -> None:
    folder = store.embed(CORPUS, ENCODER).folder
    manifest = read_manifest(folder)
    changes: dict[str, dict[str, Any]] = {
        "too few": {"shards": manifest.shards[:-1]},
        "too many": {"shards": (*manifest.shards, manifest.shards[0])},
        "one twice": {"shards": (manifest.shards[0], *manifest.shards[:-2], manifest.shards[-1])},
        "no rows a shard": {"shard_rows": 0},
        "outside": {"shards": (f"../{folder.name}/{manifest.shards[0]}", *manifest.shards[1:])},
        "a negative number of rows": {"shard_rows": -4},
    }
    (folder / MANIFEST).write_bytes(replace(manifest, **changes[change]).to_bytes())
    with pytest.raises(CorruptViewError, match="is damaged: it names"):
        View(folder)
    store.embed(CORPUS, ENCODER, verify=True)
    assert files_of(folder) == whole


def damage(data: bytes, rng: np.random.Generator) -> Iterator[bytes | None]:
    """A file with one bit of every byte flipped in turn, at other lengths, with other content, and removed."""
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << int(rng.integers(8))
        yield bytes(flipped)
    for size in (0, 1, 10, 127, 128, 129, len(data) - 4, len(data) - 1):
        yield data[:size]
    yield from (data + b"\0", data + b"\n", data + data, bytes(len(data)), data[::-1], None)


def notices(folder: Path) -> bool:
    try:
        return View(folder).damaged() != []
    except (MissingError, CorruptViewError):
        return True


def test_every_kind_of_damage_to_every_file_is_noticed(store: ViewStore, whole: dict[str, bytes]) -> None:
    folder = store.embed(CORPUS, ENCODER).folder
    rng = np.random.default_rng(0)
    assert not notices(folder)
    for name, data in whole.items():
        for damaged in damage(data, rng):
            if damaged is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(damaged)
            assert notices(folder), f"{name} became {damaged!r}"
        (folder / name).write_bytes(data)
    assert not notices(folder)


def test_damage_is_repaired_to_the_same_bytes(store: ViewStore, whole: dict[str, bytes]) -> None:
    folder = store.embed(CORPUS, ENCODER).folder
    rng = np.random.default_rng(1)
    for name, data in whole.items():
        for damaged in [d for i, d in enumerate(damage(data, rng)) if i % 25 == 0 or i >= len(data)]:
            if damaged is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(damaged)
            recorder = Recorder(ENCODER)
            view = store.embed(CORPUS, recorder, verify=True)
            assert files_of(folder) == whole, f"{name} became {damaged!r}"
            assert view.damaged() == []
            assert len(recorder.seen) <= (0 if name == MANIFEST else 4), "more than the damaged shard was encoded"


def test_a_damaged_view_says_how_to_repair_it(store: ViewStore) -> None:
    view = store.embed(CORPUS, ENCODER)
    path = view.folder / view.manifest.shards[1]
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(CorruptViewError, match=rf"{path.name} has {len(data) - 1} bytes instead of.*--verify"):
        store.embed(CORPUS, ENCODER)
    path.unlink()
    with pytest.raises(CorruptViewError, match=rf"{path.name} is missing.*--verify"):
        store.view(CORPUS, ENCODER.spec)


def test_a_file_that_is_cut_while_the_view_is_open_is_a_corrupt_view(store: ViewStore) -> None:
    view = store.embed(CORPUS, ENCODER)
    path = view.folder / view.manifest.shards[1]
    for size in (100, 0):
        os.truncate(path, size)
        with pytest.raises(CorruptViewError):
            view[4:6]
    assert view.damaged() == [path.name]


def test_an_interrupted_repair_goes_on_without_being_told_to_verify(store: ViewStore, whole: dict[str, bytes]) -> None:
    view = store.embed(CORPUS, ENCODER)
    for name in view.manifest.shards[1:3]:
        path = view.folder / name
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(KeyboardInterrupt):
        store.embed(CORPUS, Interrupted(ENCODER, 2, KeyboardInterrupt), verify=True)
    store.embed(CORPUS, ENCODER)
    assert files_of(view.folder) == whole


def test_a_file_that_cannot_be_read_is_damaged(store: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    view = store.embed(CORPUS, ENCODER)
    bad = view.folder / view.manifest.shards[1]
    read = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path == bad:
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", failing)
        assert view.damaged() == [bad.name]
    assert view.damaged() == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("fails_at", [1, 2, 5, 14])
def test_a_full_disk_is_a_store_error_and_what_was_written_stays(
    store: ViewStore, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, code: int, fails_at: int
) -> None:
    sync, calls = os.fsync, [0]

    def failing(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] >= fails_at:
            raise OSError(code, os.strerror(code))
        sync(descriptor)

    folder = store.folder(CORPUS, ENCODER.spec)
    with store.unfinished(CORPUS, [ENCODER]):
        pass  # the folders are made, and synced
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(StoreError, match=rf"{os.strerror(code)}.*kept; run again"):
            store.embed(CORPUS, ENCODER)
    written = files_of(folder)
    assert written.items() <= whole.items()
    # Every shard is synced and then its folder: a shard is there once its own sync has succeeded.
    assert len(written) == fails_at // 2
    recorder = Recorder(ENCODER)
    store.embed(CORPUS, recorder)
    assert files_of(folder) == whole
    assert recorder.seen == list(dict.fromkeys(SENTENCES))[len(set(SENTENCES[: 4 * len(written)])) :]


def test_a_root_that_is_a_file_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        store = ViewStore(root)
        with pytest.raises(StoreError, match="cannot write in the view store"):
            store.embed(CORPUS, ENCODER)
        with pytest.raises(StoreError, match="cannot read the view"):
            store.view(CORPUS, ENCODER.spec)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_root_that_is_not_writable_is_a_store_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot write"):
        ViewStore(tmp_path).embed(CORPUS, ENCODER)


@pytest.mark.parametrize("kind", ["folder", "full folder", "loop", "link to nothing"])
@pytest.mark.parametrize("name", ["shard", "manifest"])
def test_verify_repairs_a_file_that_became_a_folder_or_a_loop(
    store: ViewStore, whole: dict[str, bytes], kind: str, name: str
) -> None:
    folder = store.embed(CORPUS, ENCODER).folder
    path = next(folder.glob(f"{name}*"))
    path.unlink()
    if "folder" in kind:
        path.mkdir()
        if kind == "full folder":
            (path / "x").write_text("x")
    else:
        path.symlink_to(path.name if kind == "loop" else "absent")
    with pytest.raises((CorruptViewError, MissingError)):
        View(folder)
    store.embed(CORPUS, ENCODER, verify=True)
    assert files_of(folder) == whole


def test_a_deeply_nested_manifest_is_a_corrupt_view(store: ViewStore) -> None:
    folder = store.embed(CORPUS, ENCODER).folder
    (folder / MANIFEST).write_text("[" * 10**5 + "]" * 10**5)
    with pytest.raises(CorruptViewError, match="more than the names of shards"):
        View(folder)


def test_manifest_with_a_long_list_in_place_of_a_setting_is_a_corrupt_view(store: ViewStore) -> None:
    folder = store.embed(CORPUS, ENCODER).folder
    manifest = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(manifest.replace('"extra": {', '"extra": {"a": [' + "0," * 10**5 + "0],", 1))
    with pytest.raises(CorruptViewError, match="more than the names of shards"):
        View(folder)


@pytest.mark.parametrize("names", [["thesis.txt"], ["thesis.txt", ".notes.tmp", "manifest.json.bak", "shard-1.npy"]])
def test_files_of_others_in_the_folder_of_a_view_stay(
    store: ViewStore, whole: dict[str, bytes], names: list[str]
) -> None:
    folder = store.folder(CORPUS, ENCODER.spec)
    folder.mkdir(parents=True)
    others = {name: name.encode() for name in names}
    for name, data in others.items():
        (folder / name).write_bytes(data)
    leftover = folder / f".{MANIFEST}.0123abcd.tmp"
    leftover.write_bytes(b"{")
    store.embed(CORPUS, ENCODER)
    assert files_of(folder) == whole | others
    complete: list[bool] = []
    store.embed(CORPUS, ENCODER, verify=True, progress=lambda *_report: complete.append((folder / MANIFEST).exists()))
    assert all(complete)
    assert files_of(folder) == whole | others


@pytest.mark.parametrize("pending", [False, True])
def test_folder_of_a_view_that_is_a_link_is_refused(store: ViewStore, tmp_path: Path, *, pending: bool) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "manifest.json").write_text("mine")
    folder = store.folder(CORPUS, ENCODER.spec)
    place = store.root / "pending" / folder.parent.name / folder.name if pending else folder
    place.parent.mkdir(parents=True)
    place.symlink_to(documents)
    with pytest.raises(StoreError, match="is a link, not the folder of a view: remove the link"):
        store.embed(CORPUS, ENCODER, verify=True)
    assert files_of(documents) == {"manifest.json": b"mine"}


def test_rows_of_a_shard_may_be_a_number_of_numpy(tmp_path: Path) -> None:
    view = ViewStore(tmp_path, shard_rows=np.int64(7)).embed(CORPUS, ENCODER)
    assert view.manifest.shard_rows == 7


@pytest.mark.parametrize(
    "settings",
    [{"shard_rows": 0}, {"shard_rows": 2.5}, *({"wait": wait} for wait in (-1, float("nan"), None, "5"))],
)
def test_a_store_refuses_settings_that_are_no_numbers_of_rows_or_seconds(tmp_path: Path, settings: Any) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(StoreError, match="must"):
        ViewStore(tmp_path, **settings)
