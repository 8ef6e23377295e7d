"""Files are written as a whole or not at all, also by several writers and when the disk fails."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed.corpora.record_files import new_text_file
from ensembed.support.atomic_files import (
    finish_switch,
    new_folder,
    write_all_atomically,
    write_atomically,
    write_output,
    write_rows,
)
from ensembed.support.vector_files import write_vectors

ROUNDS = 40
SIZES = (1, 100_000)
PROCESSES = multiprocessing.get_context("forkserver")


def content(letter: str, size: int) -> bytes:
    return letter.encode() * size


def write_many(path: Path, letter: str, log: Path, start: threading.Barrier) -> None:
    """Write contents of one letter, in two sizes in turns; what goes wrong is left in the log."""
    try:
        start.wait(120)
        for k in range(ROUNDS):
            write_atomically(path, content(letter, SIZES[k % 2]))
    except BaseException as error:  # whatever it is, a process of its own cannot show it otherwise
        log.write_text(repr(error))
        raise


def test_a_device_or_a_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    write_output(Path(os.devnull), b"nothing is kept")
    assert Path(os.devnull).is_char_device()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_output(pipe, b"some bytes")
    reader.join(60)
    assert read == [b"some bytes"]
    assert pipe.is_fifo()


def test_a_pipe_in_the_place_of_a_file_of_ours_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    write_atomically(tmp_path / "file", b"some bytes")
    assert (tmp_path / "file").read_bytes() == b"some bytes"


@pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning")  # the log says more
@pytest.mark.parametrize(
    ("worker", "barrier"), [(threading.Thread, threading.Barrier), (PROCESSES.Process, PROCESSES.Barrier)]
)
def test_concurrent_writers_never_mix_their_contents(
    tmp_path: Path, worker: Callable[..., Any], barrier: Callable[[int], Any]
) -> None:
    folder, logs = tmp_path / "files", tmp_path / "logs"
    folder.mkdir()
    logs.mkdir()
    path = folder / "file"
    whole = {content(letter, size) for letter in "ab" for size in SIZES}
    write_atomically(path, content("a", 1))
    start = barrier(2)
    writers = [worker(target=write_many, args=(path, letter, logs / letter, start)) for letter in "ab"]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_bytes() in whole
    for writer in writers:
        writer.join()
    assert [log.read_text() for log in logs.iterdir()] == []
    assert path.read_bytes() in {content(letter, SIZES[(ROUNDS - 1) % 2]) for letter in "ab"}
    assert list(folder.iterdir()) == [path]


def fails(*_args: object, **_keywords: object) -> None:
    raise OSError("no space left")


@pytest.mark.parametrize("old", [b"old", None])
@pytest.mark.parametrize(("owner", "operation"), [(os, "fsync"), (Path, "replace")])
def test_a_failed_write_leaves_the_old_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: object, operation: str, old: bytes | None
) -> None:
    path = tmp_path / "file"
    if old is not None:
        path.write_bytes(old)
    monkeypatch.setattr(owner, operation, fails)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"new")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == ([] if old is None else [old])


def test_a_failed_write_of_one_file_leaves_all_old_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(b"old")
    sync, calls = os.fsync, []

    def fails_the_third_time(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError("no space left")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fails_the_third_time)
    with pytest.raises(OSError, match="no space left"):
        write_all_atomically(dict.fromkeys(paths, b"new"))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys(paths, b"old")
    write_all_atomically({path: path.name.encode() for path in paths})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"a", "b": b"b", "c": b"c"}


@pytest.mark.parametrize("data", [b"", b"\0" * 100_000])
def test_the_file_is_what_was_written(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    for _ in range(2):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "absent" / "file", b"data")


@pytest.mark.parametrize("name", ["made", "made[0-9]*?"])
def test_a_new_folder_removes_only_what_a_killed_process_left_of_it(tmp_path: Path, name: str) -> None:
    others = [f".{name}.notes.tmp", f".{name}.0123abc.tmp", f".{name}.0123abcd.0123abcd.tmp", ".made5x.0123abcd.tmp"]
    for other in [*others, f".{name}.0123abcd.tmp"]:
        (tmp_path / other).mkdir()
    with new_folder(tmp_path / name) as temporary:
        (temporary / "file").write_bytes(b"new")
    assert {path.name for path in tmp_path.iterdir()} == {name, *others}


def test_the_old_folder_is_there_until_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "made"
    for content in (b"old", b"new"):
        with new_folder(folder) as temporary:
            (temporary / "file").write_bytes(content)
            assert [path.read_bytes() for path in folder.glob("file")] == [b"old"][: content == b"new"]
        assert (folder / "file").read_bytes() == content
    with pytest.raises(KeyError), new_folder(folder):
        raise KeyError
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="no space left"), new_folder(folder):
        pass
    assert (folder / "file").read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [folder]


def test_a_new_folder_replaces_a_link_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_bytes(b"old")
    (tmp_path / "made").symlink_to("other")
    with new_folder(tmp_path / "made") as temporary:
        (temporary / "file").write_bytes(b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "other"]
    assert [(tmp_path / name / "file").read_bytes() for name in ("made", "other")] == [b"new", b"old"]


def test_what_a_user_named_is_written_through_links(tmp_path: Path) -> None:
    def vectors(path: Path) -> None:
        with write_vectors(path.with_suffix(".csv"), 1) as writer:
            writer.append(np.ones((1, 1), np.float32), ["a dog"])

    def rows(path: Path) -> None:
        with write_rows(path, 1) as writer:
            writer.append(np.ones((1, 1), np.float32))

    def text(path: Path) -> None:
        with new_text_file(path) as file:
            file.write("new")

    target, link = tmp_path / "target", tmp_path / "link.csv"
    (tmp_path / "second").symlink_to("target")
    link.symlink_to("second")
    for write in (lambda path: write_output(path, b"new"), vectors, rows, text):
        target.unlink(missing_ok=True)  # a link may lead to a file that is not there yet
        for before in (None, b"old"):
            if before is not None:
                target.write_bytes(before)
            write(link)
            assert link.is_symlink()
            assert target.read_bytes() not in (b"", b"old")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "second", "target"]
    write_atomically(link, b"ours")  # a file of ours stays in its folder
    assert not link.is_symlink()
    assert target.read_bytes() == b"new"


def test_files_get_their_plain_names_if_their_hashes_count(tmp_path: Path) -> None:
    names = ["a.bin", f"a-{'0' * 16}.bin", f"a-{'1' * 16}.bin", f"b-{'1' * 16}.bin", ".a.bin.0123abcd.tmp", "a-1.bin"]
    names += [f".a-{'2' * 16}.bin.0123abcd.tmp", f"notes-{'1' * 16}.bin", ".notes.bin.0123abcd.tmp"]
    for name in names:
        (tmp_path / name).write_text(name)
    finish_switch(tmp_path, r"[ab]\.bin", {"a.bin": "1" * 64})
    others = ["a-1.bin", f"notes-{'1' * 16}.bin", ".notes.bin.0123abcd.tmp"]
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == {"a.bin": f"a-{'1' * 16}.bin", **{name: name for name in others}}
