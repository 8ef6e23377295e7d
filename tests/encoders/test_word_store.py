"""Converted vectors: found by exact words, opened without converting again, whole or not there."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from make_words import all_formats, glove_text, small_vectors

from ensembed.encoders import model_files as remembered_module
from ensembed.encoders.words import word_vector_files as word_files
from ensembed.encoders.words import word_vectors as word_store
from ensembed.encoders.words.word_vectors import WordVectors, open_word_vectors
from ensembed.errors import EncoderError, InputError
from ensembed.support.atomic_files import RowWriter
from ensembed.support.machine import cache_dir
from ensembed.testing import files_of

VECTORS = small_vectors()


class Reports:
    """Progress that is kept."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, label: str, _done: int, _total: int | None, /) -> None:
        self.seen.append(label)

    @property
    def labels(self) -> set[str]:
        return {label.partition(" ")[0] for label in self.seen}


@pytest.fixture(autouse=True)
def _no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the tests are younger than a tick of the file system's clock; here they count as old."""
    monkeypatch.setattr(remembered_module, "_TICK_NS", -(10**18))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_bytes(glove_text(VECTORS))
    return path


def assert_whole(found: WordVectors) -> None:
    assert len(found) == len(VECTORS)
    assert found.dim == 16
    for row, (word, vector) in enumerate(VECTORS.items()):
        assert found.row(word) == row
        assert found.word(row) == word
        assert np.array_equal(found.vectors[row], vector)


def test_every_format_converts_to_the_same_files(tmp_path: Path) -> None:
    stores = []
    for number, (form, data) in enumerate(all_formats(VECTORS).values()):
        path = tmp_path / f"file{number}"
        path.write_bytes(data)
        found = open_word_vectors(path)
        assert found.format == form
        assert_whole(found)
        folder = cache_dir() / "words" / f"{found.revision}-{form}"
        stores.append({name: data for name, data in files_of(folder).items() if name != "manifest.json"})
    assert all(store == stores[0] for store in stores)
    assert set(stores[0]) == {"vectors.npy", "hashes.npy", "rows.npy", "offsets.npy", "words.txt"}


def test_row_finds_exact_words_only(source: Path) -> None:
    found = open_word_vectors(source)
    for absent in ("", "THE", "the ", "th", "word", "word1 ", "wörd", "the\nthe", "x" * 10_000):
        assert found.row(absent) == (list(VECTORS).index("word") if absent == "word" else -1)


def test_row_of_a_repeated_word_is_its_first(tmp_path: Path) -> None:
    path = tmp_path / "twice.txt"
    path.write_text("a 1 1\nb 2 2\na 3 3\nb 4 4\na 5 5\nc 6 6\n")
    found = open_word_vectors(path)
    assert [found.vectors[found.row(word)][0] for word in "abc"] == [1, 2, 6]


def test_words_with_equal_hashes_are_distinguished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_store, "_hash", len)
    path = tmp_path / "clash.txt"
    path.write_text("a 1\nbb 2\nc 3\na 4\ndd 5\nc 6\nbb 7\ne 8\n")
    found = open_word_vectors(path)
    rows = [found.row(word) for word in ("a", "bb", "c", "dd", "e", "f", "gg", "hhh")]
    assert [float(found.vectors[row][0]) if row >= 0 else None for row in rows] == [1, 2, 3, 5, 8, None, None, None]


def test_opening_again_neither_hashes_nor_converts(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Reports()
    open_word_vectors(source, progress=first)
    assert first.labels == {"hash", "convert"}

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(word_store, "read_word_vectors", refuse)
    monkeypatch.setattr(word_store, "revision_of", refuse)
    again = Reports()
    assert_whole(open_word_vectors(source, progress=again))
    assert again.labels == set()


def test_moved_or_copied_file_is_not_converted_again(source: Path, tmp_path: Path) -> None:
    first = open_word_vectors(source)
    other = tmp_path / "elsewhere" / "other-name.vec"
    other.parent.mkdir()
    shutil.copy(source, other)
    source.unlink()
    reports = Reports()
    assert open_word_vectors(other, progress=reports).revision == first.revision
    assert reports.labels == {"hash"}


def test_file_that_was_written_to_gets_another_revision(source: Path) -> None:
    first = open_word_vectors(source)
    data = source.read_bytes()
    os.utime(source, ns=(0, 0))
    assert open_word_vectors(source).revision == first.revision
    source.write_bytes(data.replace(b"the ", b"teh "))
    os.utime(source, ns=(0, 0))  # the same size and time of writing: the time of the change tells
    second = open_word_vectors(source)
    assert second.revision != first.revision
    assert second.row("teh") == first.row("the") == 0


def test_hash_of_a_file_written_just_now_is_not_remembered(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_module, "_TICK_NS", 10**15)
    for _ in range(2):
        reports = Reports()
        open_word_vectors(source, progress=reports)
        assert "hash" in reports.labels


def test_damaged_record_of_a_hash_is_replaced(source: Path) -> None:
    first = open_word_vectors(source)
    (memory,) = (file for file in (cache_dir() / "remembered").iterdir() if b'"what": "vectors"' in file.read_bytes())
    whole = memory.read_bytes()
    for damage in (b"", b"[]", b"{}", whole[:-5], whole.replace(b'"what"', b'"wot"')):
        memory.write_bytes(damage)
        assert open_word_vectors(source).revision == first.revision
        assert memory.read_bytes() == whole


@pytest.mark.parametrize("name", ["vectors.npy", "hashes.npy", "rows.npy", "offsets.npy", "words.txt", "manifest.json"])
def test_damaged_conversion_is_made_again(name: str, source: Path) -> None:
    open_word_vectors(source)
    (folder,) = (cache_dir() / "words").glob("*-glove")
    whole = files_of(folder)
    flipped = whole[name][:-9] + bytes([whole[name][-9] ^ 1]) + whole[name][-8:]
    for damage in (b"", whole[name][:-3], flipped, None):
        if damage is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(damage)
        with pytest.raises(EncoderError, match="does not hold whole word vectors"):
            WordVectors(folder)
        reports = Reports()
        assert_whole(open_word_vectors(source, progress=reports))
        assert reports.labels == {"convert"}
        assert files_of(folder) == whole


def test_changed_manifest_causes_a_new_conversion(source: Path) -> None:
    open_word_vectors(source)
    (manifest,) = (cache_dir() / "words").glob("*-glove/manifest.json")
    manifest.write_text(manifest.read_text().replace('"words": 300', '"words": 299'))
    reports = Reports()
    open_word_vectors(source, progress=reports)
    assert "convert" in reports.labels


def test_failed_conversion_leaves_no_files(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_files, "_BLOCK", 10)
    source.write_bytes(source.read_bytes() + b"torn 1 2\n")
    with pytest.raises(EncoderError, match="line 301 has 2 numbers"):
        open_word_vectors(source)
    assert all(path.name.endswith(".lock") for path in (cache_dir() / "words").iterdir())


def test_full_disk_is_reported_and_leaves_no_files(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for owner, target in ((word_store, "sync"), (RowWriter, "append"), (word_store, "write_atomically")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, target, full)
            with pytest.raises(EncoderError, match=r"cannot convert .*No space left.*ENSEMBED_CACHE"):
                open_word_vectors(source)
        assert all(path.name.endswith(".lock") for path in (cache_dir() / "words").iterdir())


def test_file_that_changes_during_conversion_is_refused(source: Path) -> None:
    def append(label: str, _done: int, _total: int | None, /) -> None:
        if label.startswith("convert"):
            with source.open("ab") as file:
                file.write(b"\n")

    with pytest.raises(InputError, match="changed while it was being converted"):
        open_word_vectors(source, progress=append)
    assert not list((cache_dir() / "words").glob("*-glove"))


def test_folder_or_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder, not a file of word vectors"):
        open_word_vectors(tmp_path)
    with pytest.raises(InputError, match=r"there is no .*absent"):
        open_word_vectors(tmp_path / "absent")


_CONVERT = """
import sys, time
from pathlib import Path
from ensembed.encoders.words.word_vectors import open_word_vectors

def report(label, done, total):
    print(label.partition(" ")[0], flush=True)
    if label.startswith("convert"):
        time.sleep(float(sys.argv[2]))

print("rows", len(open_word_vectors(Path(sys.argv[1]), progress=report)))
"""


def test_two_processes_convert_once(source: Path) -> None:
    command = [sys.executable, "-c", _CONVERT, str(source)]
    first = subprocess.Popen([*command, "1"], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list((cache_dir() / "words").glob(".*.tmp")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    second = subprocess.run([*command, "0"], capture_output=True, text=True, check=True)
    output, _ = first.communicate(timeout=60)
    assert first.returncode == 0
    assert output.split()[-2:] == ["rows", "300"]
    assert second.stdout.split()[-2:] == ["rows", "300"]
    assert "convert" in output
    assert "convert" not in second.stdout
    assert_whole(open_word_vectors(source))


def test_conversion_killed_at_any_operation_can_be_repeated(source: Path, tmp_path: Path) -> None:
    here = Path(__file__).parent
    command = [sys.executable, str(here / "word_crash_points.py"), str(source), str(tmp_path / "crashes")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 15
