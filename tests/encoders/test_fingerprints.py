from __future__ import annotations

from pathlib import Path

import pytest

from ensembed.encoders.model_files import revision_of
from ensembed.errors import InputError, MissingError
from ensembed.support.extras import import_extra


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(b"weights" * 1000)
    return path


def test_revision_depends_on_content_and_name_but_not_on_place(file: Path, tmp_path: Path) -> None:
    seen = [revision_of({"a": file})]
    moved = file.rename(tmp_path / "elsewhere")
    assert revision_of({"a": moved}) == seen[0]
    seen.append(revision_of({"b": moved}))
    moved.write_bytes(b"weightz" + b"weights" * 999)
    seen += [revision_of({"a": moved}), revision_of({"a": moved, "b": moved}), revision_of({})]
    assert len(set(seen)) == len(seen)


def test_progress_counts_bytes(file: Path) -> None:
    reports: list[tuple[str, int, int | None]] = []
    revision_of({"a": file}, label="hash", progress=lambda *report: reports.append(report))
    assert reports[-1] == ("hash", 7000, 7000)


def test_error_names_an_unreadable_file(file: Path) -> None:
    with pytest.raises(InputError, match="none cannot be read"):
        revision_of({"a": file.parent / "none"})


def test_a_missing_extra_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingError, match=r"needs no_such_library; .*pip install 'ensembed\[st\]'"):
        import_extra("no_such_library.part", "st", "encoder 'st:x'")
    (tmp_path / "half_a_library.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingError, match="half_a_library, which is here but lacks no_such_library"):
        import_extra("half_a_library", "st", "encoder 'st:x'")
