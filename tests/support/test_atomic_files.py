"""Files are written as a whole or not at all, also by several writers and when the disk fails."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ensembed.support.atomic_files import write_all_atomically, write_atomically

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
    write_atomically(Path(os.devnull), b"nothing is kept")
    assert Path(os.devnull).is_char_device()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"some bytes")
    reader.join(60)
    assert read == [b"some bytes"]
    assert pipe.is_fifo()


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
