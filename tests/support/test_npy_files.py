"""Matrices written row by row are whole files or none."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ensembed.support.atomic_files import npy_header, write_rows

DIM = 3


def rows(count: int, start: int = 0) -> NDArray[np.float32]:
    return np.arange(start * DIM, (start + count) * DIM, dtype=np.float32).reshape(count, DIM)


def write_and_raise(path: Path, error: BaseException) -> None:
    with write_rows(path, DIM) as writer:
        writer.append(rows(2))
        raise error


@given(sizes=st.lists(st.integers(0, 40), max_size=6))
def test_the_file_is_that_of_the_whole_matrix(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    folder = tmp_path_factory.mktemp("npy")
    with write_rows(folder / "rows.npy", DIM) as writer:
        for k, size in enumerate(sizes):
            writer.append(rows(size, sum(sizes[:k])))
    assert writer.rows == sum(sizes)
    np.save(folder / "whole.npy", rows(sum(sizes)))
    assert (folder / "rows.npy").read_bytes() == (folder / "whole.npy").read_bytes()
    assert len(list(folder.iterdir())) == 2


def test_no_rows_are_an_empty_matrix(tmp_path: Path) -> None:
    with write_rows(tmp_path / "rows.npy", DIM):
        pass
    found = np.load(tmp_path / "rows.npy")
    assert found.shape == (0, DIM)
    assert found.dtype == np.float32


def test_other_layouts_and_types_are_written_as_float32_rows(tmp_path: Path) -> None:
    with write_rows(tmp_path / "rows.npy", DIM) as writer:
        writer.append(np.asfortranarray(rows(4)))
        writer.append(rows(8)[::2])
        writer.append(rows(2).astype(">f4"))
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), np.concatenate([rows(4), rows(8)[::2], rows(2)]))


def test_the_header_has_room_for_any_number_of_rows() -> None:
    assert len({len(npy_header((count, DIM))) for count in (0, 1, 10**6, 10**12)}) == 1


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_after_an_exception_nothing_is_left(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        write_and_raise(tmp_path / "rows.npy", error)
    assert list(tmp_path.iterdir()) == []


def test_after_an_exception_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, rows(5))
    old = path.read_bytes()
    with pytest.raises(ValueError, match="no"):
        write_and_raise(path, ValueError("no"))
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_gets_its_name_last(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    with write_rows(path, DIM) as writer:
        writer.append(rows(2))
        assert not path.exists()
    np.testing.assert_array_equal(np.load(path), rows(2))


def test_two_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    with write_rows(path, DIM) as first:
        with write_rows(path, DIM) as second:
            first.append(rows(2))
            second.append(rows(5, 9))
        np.testing.assert_array_equal(np.load(path), rows(5, 9))
    np.testing.assert_array_equal(np.load(path), rows(2))
    assert list(tmp_path.iterdir()) == [path]


def test_appending_after_the_block_is_refused(tmp_path: Path) -> None:
    with write_rows(tmp_path / "rows.npy", DIM) as writer:
        writer.append(rows(1))
    with pytest.raises(ValueError, match="inside the with block"):
        writer.append(rows(1))
    assert np.load(tmp_path / "rows.npy").shape == (writer.rows, DIM) == (1, DIM)


def test_a_disk_that_fails_at_the_end_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"), write_rows(tmp_path / "rows.npy", DIM) as writer:
        writer.append(rows(2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", [(2, DIM + 1), (2, DIM - 1), (DIM,)])
def test_rows_of_another_width_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="do not fit"), write_rows(tmp_path / "rows.npy", DIM) as writer:
        writer.append(np.zeros(shape, np.float32))
    assert list(tmp_path.iterdir()) == []
