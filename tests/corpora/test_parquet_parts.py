from __future__ import annotations

import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_files import SENTENCES, in_memory, put, read, write_parquet

from ensembed.corpora import open_corpus
from ensembed.errors import CorpusError, MissingError


def test_the_column_of_a_parquet_file_is_found_or_asked_for(tmp_path: Path) -> None:
    table = pa.table({"a": ["x", "y"], "b": ["one", None], "n": [1, 2]})
    path = tmp_path / "c.parquet"
    pq.write_table(table, path)
    assert read(open_corpus(path, column="b")) == ["one"]
    with pytest.raises(CorpusError, match=r"c\.parquet has 2 columns of strings: 'a', 'b'; say which .*--text-column"):
        open_corpus(path)
    with pytest.raises(CorpusError, match=r"has no column 'c'; it has 'a', 'b', 'n'"):
        open_corpus(path, column="c")
    with pytest.raises(CorpusError, match=r"column 'n' of .* holds int64 and not strings; these do: 'a', 'b'"):
        open_corpus(path, column="n")
    pq.write_table(table.select(["n"]), path)
    with pytest.raises(CorpusError, match=r"has no column of strings; it has 'n'"):
        open_corpus(path)
    with pytest.raises(CorpusError, match=r"is read as text, a line a row, and has no column 'a'"):
        open_corpus(put(tmp_path / "c.txt", b"one\n"), column="a")
    with pytest.raises(CorpusError, match=r"is text and has no columns"):
        open_corpus(in_memory(tmp_path, b"one\n"), column="a")


def test_a_part_without_the_column_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path / "1.parquet", ["one"])
    pq.write_table(pa.table({"other": ["two"]}), tmp_path / "2.parquet")
    with pytest.raises(CorpusError, match=r"2\.parquet has no column 'text'; it has 'other'"):
        read(open_corpus(tmp_path))


@pytest.mark.parametrize("where", ["file", "memory"])
@pytest.mark.parametrize("kept", [0, 3, 4, 40, 0.5, 0.95])
def test_a_truncated_parquet_file_is_refused(tmp_path: Path, where: str, kept: float) -> None:
    data = write_parquet(tmp_path / "c.parquet", SENTENCES * 50, group=100).read_bytes()
    data = data[: int(kept if isinstance(kept, int) else kept * len(data))]
    path: str | Path = put(tmp_path / "c.parquet", data)
    if where == "memory":
        path = f"memory://{tmp_path.name}/c.parquet"
        fsspec.filesystem("memory").pipe(path, data)
    with pytest.raises(CorpusError, match=r"c\.parquet is not a whole Parquet file"):
        open_corpus(path)


def test_damaged_pages_are_a_corpus_error(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"text": [f"{i} sentence" for i in range(2000)]}), path, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[20:900] = b"\x00" * 880
    with pytest.raises(CorpusError, match=r"c\.parquet is not a whole Parquet file"):
        read(open_corpus(put(path, bytes(data))))


def test_bytes_in_parquet_that_are_not_utf8(tmp_path: Path) -> None:
    texts = pa.array([b"fine", None, b"ab\xffcd"], pa.binary())
    strings = pa.StringArray.from_buffers(3, texts.buffers()[1], texts.buffers()[2], texts.buffers()[0])
    pq.write_table(pa.table({"text": strings}), tmp_path / "c.parquet")
    with pytest.raises(CorpusError, match=r"c\.parquet, row 2 of column 'text': byte 2 \(0xff\) is not UTF-8.*replace"):
        read(open_corpus(tmp_path / "c.parquet"))
    assert read(open_corpus(tmp_path / "c.parquet", errors="replace")) == ["fine", "ab\ufffdcd"]


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "c.parquet", ["one"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingError, match=r"reading Parquet needs pyarrow; .*pip install 'ensembed\[parquet\]'"):
        open_corpus(path)
