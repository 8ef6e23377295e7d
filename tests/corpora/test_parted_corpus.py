from __future__ import annotations

import errno
import gzip
import multiprocessing
import os
import pickle
import re
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from corpus_files import LINES, SENTENCES, in_memory, nulls, put, read, text, write_parquet
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import line_texts

from ensembed.corpora import corpus, open_corpus
from ensembed.corpora import parted_corpus as parted
from ensembed.corpora.corpus import Corpus, ListCorpus, TextCorpus
from ensembed.corpora.places import Place
from ensembed.errors import CorpusError, InputError

MARK_ROWS = 4


def halves(lines: Sequence[str]) -> list[Sequence[str]]:
    return [lines[: len(lines) // 3], [], lines[len(lines) // 3 :]]


def parts(folder: Path, write: Callable[[Path, Sequence[str]], object]) -> Path:
    (folder / "parts").mkdir()
    for i, lines in enumerate(halves([*LINES])):
        write(folder / "parts" / f"part-{i}", lines)
    (folder / "parts" / "_SUCCESS").write_bytes(b"\xff")
    (folder / "parts" / ".part-0.crc").write_bytes(b"\xff")
    return folder / "parts"


KINDS: dict[str, Callable[[Path], str | Path]] = {
    "text": lambda f: put(f / "c.txt", text(LINES)),
    "text of windows": lambda f: put(f / "c.txt", text(LINES, end="\r\n", mark=True)),
    "gzip": lambda f: put(f / "c.gz", gzip.compress(text(LINES[:9])) + gzip.compress(text(LINES[9:]))),
    "parquet": lambda f: write_parquet(f / "c.parquet", nulls(LINES)),
    "parquet by content": lambda f: write_parquet(f / "c", nulls(LINES)),
    "one group of rows": lambda f: write_parquet(f / "c.parquet", nulls(LINES), group=10_000),
    "large strings": lambda f: write_parquet(f / "c.parquet", nulls(LINES), pa.large_string()),
    "dictionary": lambda f: write_parquet(f / "c.pq", nulls(LINES), pa.dictionary(pa.int32(), pa.string())),
    "folder of text": lambda f: parts(f, lambda path, lines: put(path, text(lines, mark=True))),
    "folder of gzip": lambda f: parts(f, lambda path, lines: put(path, gzip.compress(text(lines)))),
    "folder of parquet": lambda f: parts(f, lambda path, lines: write_parquet(Path(f"{path}.parquet"), nulls(lines))),
    "pattern": lambda f: str(parts(f, lambda path, lines: put(path, text(lines))) / "part-*"),
    "file url": lambda f: put(f / "c.txt", text(LINES)).as_uri(),
    "file url of a folder": lambda f: parts(f, lambda path, lines: put(path, text(lines))).as_uri() + "/",
    "memory": lambda f: in_memory(f, text(LINES, mark=True)),
    "gzip in memory": lambda f: in_memory(f, gzip.compress(text(LINES))),
    "parquet in memory": lambda f: in_memory(f, write_parquet(f / "c", nulls(LINES)).read_bytes()),
    "chained": lambda f: f"simplecache::{put(f / 'c.txt', text(LINES)).as_uri()}",
}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (corpus, parted):
        monkeypatch.setattr(module, "MARK_ROWS", MARK_ROWS)
    monkeypatch.setattr(parted, "_BATCH", 3)


@pytest.fixture(params=list(KINDS))
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return KINDS[request.param](tmp_path)


def check_stretches(found: Corpus, expected: list[str]) -> None:
    for start in range(len(expected) + 1):
        for stop in range(start, len(expected) + 1, 3):
            assert list(found.stretch(start, stop)) == expected[start:stop]


def test_every_kind_reads_the_same_sentences_under_the_same_key(source: str | Path) -> None:
    found = open_corpus(source)
    assert read(found) == SENTENCES
    assert found.key == ListCorpus(LINES).key
    assert found.index.first_rows.tolist() == ListCorpus(LINES).index.first_rows.tolist()
    assert len(found.index.marks) == -(-len(SENTENCES) // MARK_ROWS)
    found.check_unchanged()


def test_a_stretch_equals_the_slice_with_and_without_index_and_after_pickling(source: str | Path) -> None:
    found = open_corpus(source)
    assert list(found.stretch(2, 9)) == SENTENCES[2:9]
    assert list(pickle.loads(pickle.dumps(found)).stretch(2, 9)) == SENTENCES[2:9]  # noqa: S301 - our own
    assert len(found) == len(SENTENCES)
    check_stretches(found, SENTENCES)
    there = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own
    assert "index" not in there.__dict__
    assert (len(there), there.key) == (len(found), found.key)
    assert "index" not in there.__dict__
    check_stretches(there, SENTENCES)
    assert there.index.first_rows.tolist() == found.index.first_rows.tolist()


def folder_in_memory(folder: Path) -> str:
    """Where a listing writes times otherwise than a look at one file does."""
    for i, lines in enumerate(halves([*LINES])):
        fsspec.filesystem("memory").pipe(f"/{folder.name}/part-{i}", text(lines))
    return f"memory://{folder.name}/"


@pytest.mark.parametrize("kind", ["folder of text", "folder of parquet", "memory", "folder in memory"])
def test_check_rows_notices_changes_without_listing_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A change of any file is noticed by every stretch that has rows of it, here and in another process."""
    source = {**KINDS, "folder in memory": folder_in_memory}[kind](tmp_path)
    first = number = 0
    while first < len(SENTENCES):
        found = open_corpus(source)
        assert isinstance(found, parted.PartedCorpus)
        stretches = [(start, stop) for start in range(len(found)) for stop in range(start + 1, len(found) + 1)]
        if kind == "folder in memory":
            found.check_rows(0, len(found))
        there = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own
        with monkeypatch.context() as patch:
            patch.delattr(Place, "files")
            assert all(passes(one, rows) for one in (found, there) for rows in stretches)
        path, fs = list(found._files)[number], found._place.fs
        last = first + len(list(found._parts[number].read()[0]))
        data = fs.cat(path)
        fs.pipe(path, data + b"\n")
        passed = [rows for rows in stretches if passes(found, rows)]
        assert all(stop <= first or last <= start for start, stop in passed)
        assert passed == [rows for rows in stretches if passes(there, rows)]
        assert bool(passed) == (len(found._files) > 1)
        fs.pipe(path, data)
        first, number = last, number + 1


def passes(found: Corpus, rows: tuple[int, int]) -> bool:
    try:
        found.check_rows(*rows)
    except CorpusError as error:
        assert "changed while it was being read" in str(error)  # noqa: PT017 - others pass
        return False
    return True


@pytest.mark.parametrize("rows", [(-1, 2), (3, 2), (0, len(SENTENCES) + 1)])
def test_rows_that_are_not_there_are_refused(source: str | Path, rows: tuple[int, int]) -> None:
    found = open_corpus(source)
    assert len(found) == len(SENTENCES)
    with pytest.raises(InputError, match=rf"no stretch from row {rows[0]} to row {rows[1]}; .* has {len(found)}"):
        found.stretch(*rows)


def test_without_an_index_the_end_is_found_by_reading(tmp_path: Path) -> None:
    found = open_corpus(KINDS["folder of text"](tmp_path))
    with pytest.raises(CorpusError, match=rf"ends before row 999: it has no more than {len(SENTENCES)}"):
        list(found.stretch(1, 999))


@settings(max_examples=40, deadline=None)
@given(st.lists(line_texts, max_size=30), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.data())
def test_stretches_of_random_texts_in_every_format(lines: list[str], end: str, mark: bool, data: st.DataObject) -> None:
    expected = [line for line in lines if line.strip()]
    cut = data.draw(st.integers(0, len(lines)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "parts").mkdir()
        for i, some in enumerate((lines[:cut], lines[cut:])):
            put(folder / "parts" / str(i), text(some, end=end, mark=mark))
        write_parquet(folder / "c.parquet", nulls(lines), group=data.draw(st.integers(1, 40)))
        for found in (
            open_corpus(put(folder / "c.txt", text(lines, end=end, mark=mark))),
            open_corpus(put(folder / "c.gz", gzip.compress(text(lines, end=end, mark=mark)))),
            open_corpus(folder / "c.parquet"),
            open_corpus(folder / "parts"),
            open_corpus(in_memory(folder, text(lines, end=end, mark=mark))),
        ):
            if not expected:
                with pytest.raises(CorpusError, match="holds no sentence"):
                    len(found)
                continue
            assert found.key == ListCorpus(expected).key
            start = data.draw(st.integers(0, len(expected)))
            stop = data.draw(st.integers(start, len(expected)))
            assert list(pickle.loads(pickle.dumps(found)).stretch(start, stop)) == expected[start:stop]  # noqa: S301 - made a moment ago


def test_a_stretch_is_read_from_its_mark_and_not_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"sentence {i}" for i in range(400)]
    for found in (
        open_corpus(put(tmp_path / "c.txt", text(lines))),
        open_corpus(in_memory(tmp_path, text(lines))),
        open_corpus(write_parquet(tmp_path / "c.parquet", lines, group=20)),
    ):
        assert len(found) == 400
        seen: list[str] = []
        from_mark = type(found).read_from

        def counted(self: Corpus, mark: Any = (0, 0), read: Any = from_mark, seen: Any = seen) -> Any:  # noqa: ANN401 - as the method that it stands for
            sentences, tell = read(self, mark)
            return (seen.append(one) or one for one in sentences), tell

        monkeypatch.setattr(type(found), "read_from", counted)
        assert list(found.stretch(397, 399)) == lines[397:399]
        monkeypatch.undo()
        monkeypatch.setattr(corpus, "MARK_ROWS", MARK_ROWS)
        assert seen == lines[396:399]


def stretches_there(corpora: list[Corpus], rows: list[tuple[int, int]], queue: Any) -> None:  # noqa: ANN401 - a queue of processes
    """Put what another process reads of each corpus, or its error, into the queue."""
    corpus.MARK_ROWS = MARK_ROWS  # the tests' value is not set there
    answers: list[list[list[str]] | str] = []
    for found in corpora:
        try:
            answers.append([list(found.stretch(*stretch)) for stretch in rows])
        except CorpusError as error:
            answers.append(str(error))
    queue.put(answers)


def in_another_process(corpora: list[Corpus], rows: list[tuple[int, int]]) -> list[Any]:
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    process = spawn.Process(target=stretches_there, args=(corpora, rows, queue))
    process.start()
    answers: list[Any] = queue.get(timeout=60)
    process.join(60)
    assert process.exitcode == 0
    return answers


def test_another_process_in_another_folder_reads_the_same_stretches_and_notices_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = []
    for kind in ("text", "folder of gzip", "folder of parquet"):
        (tmp_path / kind).mkdir()
        path = Path(KINDS[kind](tmp_path / kind))
        monkeypatch.chdir(path.parent)
        corpora.append(open_corpus(path.name))
        assert len(corpora[-1]) == len(SENTENCES)
    changed = open_corpus(put(tmp_path / "c.txt", text(LINES)))
    assert len(changed) == len(SENTENCES)
    put(tmp_path / "c.txt", text(LINES).replace(b"\n", b"\xff"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    rows = [(0, 3), (5, 29), (len(SENTENCES), len(SENTENCES))]
    *answers, error = in_another_process([*corpora, changed], rows)
    assert answers == [[SENTENCES[start:stop] for start, stop in rows]] * 3
    assert re.search(r"c\.txt changed while it was being read", error)


def test_a_changed_file_is_reported_as_changed_even_if_it_cannot_be_read(source: str | Path) -> None:
    found = open_corpus(source)
    assert len(found) == len(SENTENCES)
    there = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own
    files = [found.path] if isinstance(found, TextCorpus) else list(found._files)  # type: ignore[attr-defined] # only those of files have it
    fs = fsspec.filesystem("file") if isinstance(found, TextCorpus) else found._place.fs  # type: ignore[attr-defined] # only those of files have it
    if not hasattr(fs, "pipe") or "simplecache" in str(source):
        return
    for data in (fs.cat(str(files[-1]))[:-9], b"\xff\xfe" * 400, b""):
        fs.pipe(str(files[-1]), data)
        for one in (found, there):
            with pytest.raises(CorpusError, match="changed while it was being read"):
                list(one.stretch(len(SENTENCES) - 2, len(SENTENCES)))
    fs.rm(str(files[-1]))
    for one in (found, there):
        with pytest.raises(CorpusError, match=r"no longer there|cannot be read|no corpus"):
            one.check_unchanged()


def test_an_index_of_other_sentences_than_before_is_an_error(tmp_path: Path) -> None:
    found = open_corpus(put(tmp_path / "c.txt", b"one\ntwo\n"))
    assert len(found) == 2
    there = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own
    put(tmp_path / "c.txt", b"one\nTWO\n")
    with pytest.raises(CorpusError, match="changed since its index was made"):
        there.index  # noqa: B018 - asking is what raises


def test_a_part_that_is_added_is_not_a_change(tmp_path: Path) -> None:
    found = open_corpus(KINDS["folder of text"](tmp_path))
    put(tmp_path / "parts" / "part-9", b"more\n")
    found.check_unchanged()
    assert read(found) == SENTENCES


def test_parts_are_read_in_the_order_of_their_paths_also_of_folders(tmp_path: Path) -> None:
    for name in ("b/2", "a/9", "a/10", "b/1", "_old/1", "a/.hidden/1"):
        (tmp_path / "top" / name).parent.mkdir(parents=True, exist_ok=True)
        put(tmp_path / "top" / name, name.encode())
    assert read(open_corpus(tmp_path / "top")) == ["a/10", "a/9", "b/1", "b/2"]
    assert read(open_corpus(str(tmp_path / "top" / "**" / "1*"))) == ["_old/1", "a/.hidden/1", "a/10", "b/1"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    put(tmp_path / "a[1].txt", b"this\n")
    put(tmp_path / "a1.txt", b"not this\n")
    assert read(open_corpus(str(tmp_path / "a[1].txt"))) == ["this"]


def test_a_text_that_begins_like_parquet_is_a_text(tmp_path: Path) -> None:
    assert read(open_corpus(put(tmp_path / "c.txt", b"PAR1 is a word\nmore\n"))) == ["PAR1 is a word", "more"]
    assert read(open_corpus(in_memory(tmp_path, b"PAR1"[:3]))) == ["PAR"]


@pytest.mark.parametrize("where", ["", "nothing.txt", "no/*.txt", "memory://nothing", "memory://no/*", "memory://no/"])
def test_a_source_without_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError, match=r"no corpus|no file|not ''"):
        open_corpus(where)


def test_folders_that_are_empty_or_mix_parquet_and_text_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "_SUCCESS", b"")
    with pytest.raises(CorpusError, match="no corpus file in the folder"):
        open_corpus(tmp_path)
    write_parquet(tmp_path / "a.parquet", ["one"])
    put(tmp_path / "README.md", b"about it\n")
    with pytest.raises(CorpusError, match=r"files of several formats, .*a\.parquet and .*README\.md"):
        open_corpus(tmp_path)
    assert read(open_corpus(str(tmp_path / "*.parquet"))) == ["one"]


def test_a_folder_that_may_not_be_read_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "closed/b.txt", "_tmp/closed/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        put(tmp_path / name, b"one\n")
    scandir = os.scandir

    def scan(path: str) -> Any:  # noqa: ANN401 - as the system has it
        if str(path).endswith("closed"):  # root may read all
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    for folder in (tmp_path, tmp_path / "closed"):
        with pytest.raises(CorpusError, match=r"cannot be read: .*Permission denied.*closed"):
            open_corpus(folder)
    (tmp_path / "closed").rename(tmp_path / ".closed")
    assert read(open_corpus(tmp_path)) == ["one"]


@pytest.mark.parametrize("lines", [[], ["", " "]])
def test_a_corpus_of_blanks_only_is_refused(tmp_path: Path, lines: list[str]) -> None:
    for source in (
        write_parquet(tmp_path / "c.parquet", nulls(lines)),
        in_memory(tmp_path, text(lines)),
    ):
        found = open_corpus(source)
        assert read(found) == []
        with pytest.raises(CorpusError, match="holds no sentence"):
            len(found)


def test_bytes_in_a_part_that_are_not_utf8(tmp_path: Path) -> None:
    put(tmp_path / "1", b"one\n")
    put(tmp_path / "2", b"one\n\nab\xff\n")
    with pytest.raises(CorpusError, match=r"/2, line 3: byte 2 \(0xff\) is not UTF-8"):
        read(open_corpus(tmp_path))
    assert read(open_corpus(tmp_path, errors="replace")) == ["one", "one", "ab\ufffd"]
    with pytest.raises(InputError, match="'ignore'"):
        open_corpus(tmp_path, errors="ignore")  # type: ignore[arg-type] # it is refused


@pytest.mark.parametrize("kind", ["folder of text", "parquet", "memory"])
def test_parted_corpora_are_streamed_in_little_memory(tmp_path: Path, kind: str) -> None:
    lines = [f"{i:0149}" for i in range(20_000)]
    put(tmp_path / "c.txt", text(lines))
    sources: dict[str, str | Path] = {"folder of text": tmp_path, "memory": in_memory(tmp_path, text(lines))}
    if kind == "parquet":
        sources[kind] = write_parquet(tmp_path / "c.parquet", lines, group=10**6)
    found = open_corpus(sources[kind])
    del lines
    tracemalloc.start()
    try:
        assert sum(1 for _ in found) == 20_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
