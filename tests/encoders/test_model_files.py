"""Files of a model: their hashes, and what is remembered of a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ensembed.encoders import model_files
from ensembed.encoders.model_files import remembered, revision_of
from ensembed.errors import InputError
from ensembed.support.machine import cache_dir


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(b"weights" * 1000)
    return path


def test_revision_depends_on_content_and_name_but_not_on_place(weights: Path, tmp_path: Path) -> None:
    seen = [revision_of({"a": weights})]
    moved = weights.rename(tmp_path / "elsewhere")
    assert revision_of({"a": moved}) == seen[0]
    seen.append(revision_of({"b": moved}))
    moved.write_bytes(b"weightz" + b"weights" * 999)
    seen += [revision_of({"a": moved}), revision_of({"a": moved, "b": moved}), revision_of({})]
    assert len(set(seen)) == len(seen)


def test_progress_counts_bytes(weights: Path) -> None:
    reports: list[tuple[str, int, int | None]] = []
    revision_of({"a": weights}, label="hash", progress=lambda *report: reports.append(report))
    assert reports[-1] == ("hash", 7000, 7000)


def test_error_names_an_unreadable_file(weights: Path) -> None:
    with pytest.raises(InputError, match="none cannot be read"):
        revision_of({"a": weights.parent / "none"})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(model_files, "_TICK_NS", -1)  # believe the times of a file that was just written
    path = tmp_path / "a.txt"
    path.write_text("one")
    return path


def never() -> str:
    raise AssertionError("computed again")


def test_remembered_value_is_computed_once_per_kind(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert remembered(file, "hash", lambda: "h1") == "h1"
    assert remembered(file, "size", lambda: "s1") == "s1"
    assert remembered(file, "hash", never) == "h1"
    monkeypatch.chdir(file.parent)
    assert remembered(Path("a.txt"), "size", never) == "s1"


def test_a_changed_file_is_read_again(file: Path) -> None:
    remembered(file, "hash", lambda: "h1")
    file.write_text("other")
    assert remembered(file, "hash", lambda: "h2") == "h2"
    os.utime(file, ns=(5, 5))
    assert remembered(file, "hash", lambda: "h3") == "h3"
    assert remembered(file, "hash", never) == "h3"


def test_value_of_a_file_that_was_just_written_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    path.write_text("one")
    assert remembered(path, "hash", lambda: "h1") == "h1"
    assert remembered(path, "hash", lambda: "h2") == "h2"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b"{}", b'{"value": 3}', b"\xff"])
def test_damaged_entry_is_computed_again(file: Path, damage: bytes) -> None:
    remembered(file, "hash", lambda: "h1")
    (memory,) = (path for path in cache_dir().rglob("*.json"))
    memory.write_bytes(damage)
    assert remembered(file, "hash", lambda: "h2") == "h2"
    assert remembered(file, "hash", never) == "h2"


def test_unwritable_cache_is_no_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSEMBED_CACHE", str(file / "cache"))
    assert remembered(file, "hash", lambda: "h1") == "h1"
    assert remembered(file, "hash", lambda: "h2") == "h2"


def test_file_that_changes_while_it_is_read_is_refused(file: Path) -> None:
    def change() -> str:
        file.write_text("changed")
        return "h1"

    with pytest.raises(InputError, match="changed while it was being read"):
        remembered(file, "hash", change)
    assert remembered(file, "hash", lambda: "h2") == "h2"


def test_absent_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent cannot be read"):
        remembered(tmp_path / "absent", "hash", never)
