from __future__ import annotations

from pathlib import Path

import pytest

from ensembed.encoders.extras import import_extra
from ensembed.encoders.fingerprints import revision_of, revision_of_folder
from ensembed.errors import InputError, MissingError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model" / "sub").mkdir(parents=True)
    (tmp_path / "model" / "a").write_bytes(b"weights" * 1000)
    (tmp_path / "model" / "sub" / "b").write_bytes(b"")
    return tmp_path / "model"


def test_place_and_hidden_files_do_not_count(folder: Path, tmp_path: Path) -> None:
    before = revision_of_folder(folder)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "lock").write_text("x")
    moved = folder.rename(tmp_path / "elsewhere")
    assert revision_of_folder(moved) == before


def test_a_byte_a_name_and_a_file_more_count(folder: Path) -> None:
    seen = {revision_of_folder(folder)}
    (folder / "a").write_bytes(b"weightz" + b"weights" * 999)
    seen.add(revision_of_folder(folder))
    (folder / "a").rename(folder / "c")
    seen.add(revision_of_folder(folder))
    (folder / "d").write_text("")
    seen.add(revision_of_folder(folder))
    assert len(seen) == 4


def test_progress_counts_bytes(folder: Path) -> None:
    reports: list[tuple[str, int, int | None]] = []
    revision_of({"a": folder / "a"}, label="hash", progress=lambda *report: reports.append(report))
    assert reports[-1] == ("hash", 7000, 7000)


def test_what_cannot_be_read_is_named(folder: Path) -> None:
    with pytest.raises(InputError, match="none cannot be read"):
        revision_of({"a": folder / "none"})
    with pytest.raises(InputError, match="is not a folder"):
        revision_of_folder(folder / "a")


def test_a_missing_extra_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingError, match=r"needs no_such_library; .*pip install 'ensembed\[st\]'"):
        import_extra("no_such_library.part", "st", "encoder 'st:x'")
    (tmp_path / "half_a_library.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingError, match="half_a_library, which is here but lacks no_such_library"):
        import_extra("half_a_library", "st", "encoder 'st:x'")
