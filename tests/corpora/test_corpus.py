from __future__ import annotations

import codecs
import gzip
import io
import os
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import line_texts, repeating, sentences, texts

from ensembed.corpora import as_corpus, open_corpus
from ensembed.corpora.corpus import Corpus, ListCorpus, TextCorpus, check_sentences, read_lines, shorten
from ensembed.errors import AbsentCorpusError, CorpusError, DatasetError, InputError, SentenceError

AWKWARD = ["a\u2028b", "a\u2029b", "a\u0085b", "a\x0cb", "a\x0bb", "a\x1cb", "a\rb", "a\0b", "  kept  ", "\ta"]


def read(corpus: Corpus) -> list[str]:
    return list(iter(corpus))  # list(corpus) would ask for its length first


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture(params=["corpus.txt", "corpus.txt.gz"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def test_a_line_is_a_sentence_with_or_without_a_final_newline(path: Path) -> None:
    assert read(TextCorpus(write(path, b"one\ntwo\n"))) == ["one", "two"]
    assert read(TextCorpus(write(path, b"one\ntwo"))) == ["one", "two"]


def test_carriage_returns_at_the_end_of_lines_are_dropped(path: Path) -> None:
    assert read(TextCorpus(write(path, b"one\r\ntwo\nthree\r"))) == ["one", "two", "three"]


def test_a_byte_order_mark_is_dropped_at_the_start_only(path: Path) -> None:
    data = codecs.BOM_UTF8 + b"one\n" + codecs.BOM_UTF8 + b"two\n"
    assert read(TextCorpus(write(path, data))) == ["one", "\ufefftwo"]


def test_blank_lines_are_left_out(path: Path) -> None:
    data = "\n  \n\t\r\none\n\u3000\n\u2028\n\ntwo\n\n".encode()
    assert read(TextCorpus(write(path, data))) == ["one", "two"]


@pytest.mark.parametrize("sentence", AWKWARD, ids=ascii)
def test_only_newlines_split_lines_and_nothing_else_is_changed(path: Path, sentence: str) -> None:
    assert read(TextCorpus(write(path, f"before\n{sentence}\nafter\n".encode()))) == ["before", sentence, "after"]


@given(st.lists(line_texts))
def test_a_file_reads_back_what_was_written_but_blank_lines(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "corpus.txt", "".join(f"{line}\n" for line in lines).encode())
        assert read(TextCorpus(path)) == [line for line in lines if line.strip()]


def test_a_corpus_can_be_read_any_number_of_times(path: Path) -> None:
    corpus = TextCorpus(write(path, b"one\ntwo\n"))
    first, second = iter(corpus), iter(corpus)
    assert [next(first), next(second), next(first), next(second)] == ["one", "one", "two", "two"]
    assert (len(corpus), read(corpus)) == (2, ["one", "two"])


@pytest.mark.parametrize("start", [b"", codecs.BOM_UTF8], ids=["plain", "with a byte order mark"])
def test_bytes_that_are_not_utf8_are_named_with_file_and_line(path: Path, start: bytes) -> None:
    corpus = TextCorpus(write(path, start + b"ab\xffcd\n"))
    with pytest.raises(CorpusError, match=rf"{path.name}, line 1: byte 2 \(0xff\) is not UTF-8.*errors='replace'"):
        corpus.key  # noqa: B018 - asking is what raises
    corpus = TextCorpus(write(path, start + b"one\n\ntwo\nab\xe4cd\n"))
    with pytest.raises(CorpusError, match=r"line 4: byte 2 \(0xe4\)"):
        read(corpus)


def test_a_file_of_windows_in_utf16_says_how_to_convert_it(path: Path) -> None:
    with pytest.raises(CorpusError, match=r"is UTF-16 and not UTF-8, .* iconv -f utf-16 -t utf-8 OLD > NEW$"):
        read(TextCorpus(write(path, "one\r\ntwo\r\n".encode("utf-16"))))


def test_a_character_that_is_cut_off_by_the_end_of_the_line_is_not_utf8(path: Path) -> None:
    with pytest.raises(CorpusError, match=r"line 1: byte 1 \(0xc3\)"):
        read(TextCorpus(write(path, b"a\xc3\nb\n")))


def test_bytes_that_are_not_utf8_can_be_replaced(path: Path) -> None:
    assert read(TextCorpus(write(path, b"ab\xffcd\n"), errors="replace")) == ["ab\ufffdcd"]


def test_an_unknown_way_to_treat_bad_bytes_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match="'surrogateescape'"):
        TextCorpus(write(path, b"ab\xffcd\n"), errors="surrogateescape")  # type: ignore[arg-type] # it is refused


@pytest.mark.parametrize("kept", [0.2, 0.6, 0.999])
def test_a_truncated_gzip_file_is_refused(tmp_path: Path, kept: float) -> None:
    noise = np.random.default_rng(0).integers(97, 122, 100_000, dtype=np.uint8)
    noise[::50] = ord("\n")
    data = gzip.compress(noise.tobytes())
    (tmp_path / "corpus.gz").write_bytes(data[: int(kept * len(data))])
    with pytest.raises(CorpusError, match=r"corpus.gz is not a whole gzip file: .*at line \d"):
        read(TextCorpus(tmp_path / "corpus.gz"))


def test_a_gzip_file_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(b"".join(b"sentence %d\n" % i for i in range(1000)))
    rng = np.random.default_rng(0)
    for position in [*range(3), *rng.integers(20, len(data), 40)]:  # the rest of the header is a time and a name
        flipped = bytearray(data)
        flipped[position] ^= 1 << int(rng.integers(8))
        (tmp_path / "corpus.gz").write_bytes(flipped)
        with pytest.raises(CorpusError):
            read(TextCorpus(tmp_path / "corpus.gz"))


def test_gzip_is_recognised_by_content_not_by_name(tmp_path: Path) -> None:
    (tmp_path / "plain.gz").write_bytes(b"one\ntwo\n")
    (tmp_path / "zipped.txt").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert read(TextCorpus(tmp_path / "plain.gz")) == read(TextCorpus(tmp_path / "zipped.txt")) == ["one", "two"]


def test_errors_call_a_corpus_by_the_name_it_was_given(tmp_path: Path) -> None:
    corpus = TextCorpus(write(tmp_path / "spooled.txt", b"\xff\n"), name="standard input")
    assert str(corpus) == "standard input"
    with pytest.raises(CorpusError, match=r"^standard input, line 1: byte 0 \(0xff\)"):
        read(corpus)


class Dribble(io.RawIOBase):
    """A pipe that gives a byte at a time, cannot seek, and may break."""

    def __init__(self, data: bytes, *, breaks: bool = False) -> None:
        self.left = data
        self._breaks = breaks

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - of io.RawIOBase
        if self._breaks and not self.left:
            raise OSError("the pipe broke")
        data, self.left = self.left[:1], self.left[1:]
        buffer[: len(data)] = data
        return len(data)


@pytest.mark.parametrize(
    "data", [b"", b"a", b"\n", b"\n\n", b"a\n", b"\xef\xbb\xbfa\r\n\nb", b"\x1f", "ü\u2028\n".encode()]
)
@pytest.mark.parametrize("zipped", [False, True])
def test_lines_of_a_stream_are_those_of_a_file(tmp_path: Path, data: bytes, *, zipped: bool) -> None:
    lines = data.decode("utf-8-sig").split("\n")
    expected = [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
    written = gzip.compress(data) if zipped else data
    (tmp_path / "file").write_bytes(written)
    with io.BufferedReader(Dribble(written)) as pipe, io.BytesIO(written) as memory:
        assert list(read_lines(tmp_path / "file")) == expected
        assert list(read_lines(pipe)) == expected
        assert list(read_lines(memory)) == expected
        assert not pipe.closed


def test_a_stream_is_read_no_further_than_it_is_asked_for() -> None:
    pipe = Dribble(b"one\ntwo\nthree\n")
    with io.BufferedReader(pipe, buffer_size=2) as stream:
        assert next(read_lines(stream)) == "one"
    assert len(pipe.left) >= len(b"two\n")


@pytest.mark.parametrize("error", [CorpusError, DatasetError])
@pytest.mark.parametrize(
    ("data", "breaks", "message"),
    [
        (b"a\n\xc3\n", False, r"^the pipe, line 2: byte 0 \(0xc3\) is not UTF-8; convert it, .*iconv"),
        (b"a\nb\nc", True, r"^the pipe cannot be read: the pipe broke \(at line 3\)"),
        (b"\x1f\x8bnot gzip", False, "^the pipe is not a whole gzip file: "),
        (gzip.compress(b"one\n" * 999, mtime=0)[:-9], False, r"^the pipe is not a whole gzip file: .*end-of-stream"),
        (
            gzip.compress(b"one\n" * 999, mtime=0)[:12] + b"\xff" * 20,
            False,
            "^the pipe is not a whole gzip file: Error -3",
        ),
    ],
)
def test_an_unreadable_stream_raises_the_given_error_class(
    data: bytes, breaks: bool, message: str, error: type[InputError]
) -> None:
    pipe = io.BufferedReader(Dribble(data, breaks=breaks))
    with pytest.raises(error, match=message):
        list(read_lines(pipe, name="the pipe", error=error))


@pytest.mark.parametrize("data", [b"", b"\n\n", b"  \r\n", codecs.BOM_UTF8])
def test_a_file_without_sentences_is_refused(path: Path, data: bytes) -> None:
    corpus = TextCorpus(write(path, data))
    assert read(corpus) == []
    with pytest.raises(AbsentCorpusError, match=f"{path.name} holds no sentence: write one a line$"):
        corpus.index  # noqa: B018 - asking is what raises


def test_a_text_in_the_place_of_a_file_is_no_file() -> None:
    for source in ("a text " * 100, Path("a text " * 100)):
        with pytest.raises(AbsentCorpusError, match="there is no corpus file 'a text a text"):
            open_corpus(source)


@pytest.mark.parametrize("none", [[], [""], [" ", "\n"]])
def test_a_list_without_sentences_is_refused(none: list[str]) -> None:
    with pytest.raises(CorpusError, match="the list of sentences holds no sentence"):
        len(ListCorpus(none))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no corpus file .*missing.txt"):
        TextCorpus(tmp_path / "missing.txt")
    with pytest.raises(CorpusError, match="is a folder, not a corpus file"):
        TextCorpus(tmp_path)


def test_a_file_that_was_deleted_is_a_corpus_error(path: Path) -> None:
    corpus = TextCorpus(write(path, b"one\n"))
    path.unlink()
    with pytest.raises(CorpusError, match="cannot be read"):
        read(corpus)
    with pytest.raises(CorpusError, match="cannot be read"):
        corpus.check_unchanged()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_corpus_error(path: Path) -> None:
    write(path, b"one\n").chmod(0)
    with pytest.raises(CorpusError, match="cannot be read"):
        read(TextCorpus(path))


def test_a_file_that_was_written_to_is_noticed(path: Path) -> None:
    corpus = TextCorpus(write(path, b"one\ntwo\n"))
    corpus.check_unchanged()
    write(path, b"one\nTWO\n")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    with pytest.raises(CorpusError, match="changed"):
        corpus.check_unchanged()


def test_a_file_and_a_list_of_the_same_sentences_share_the_key(tmp_path: Path) -> None:
    lines = ["one", "", "zwei ü", "a\u2028b", "one"]
    data = "\n".join(lines).encode()
    corpora = [
        ListCorpus(lines),
        ListCorpus([line for line in lines if line]),
        TextCorpus(write(tmp_path / "a.txt", data)),
        TextCorpus(write(tmp_path / "b.gz", codecs.BOM_UTF8 + data.replace(b"\n", b"\r\n") + b"\r\n\r\n")),
    ]
    assert len({corpus.key for corpus in corpora}) == 1
    assert [len(corpus) for corpus in corpora] == [4] * 4


def test_the_key_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert ListCorpus(["one sentence", "zwei Sätze", "one sentence"]).key == "e62ca3009a038da87450c10dcfc2bbdf"


@given(repeating(sentences), repeating(sentences))
def test_the_key_depends_on_the_sentences_and_their_order(a: list[str], b: list[str]) -> None:
    assert (ListCorpus(a).key == ListCorpus(b).key) == (a == b)


def test_the_key_depends_on_where_one_sentence_ends() -> None:
    keys = {ListCorpus(a).key for a in (["ab", "c"], ["a", "bc"], ["abc"], ["c", "ab"], ["ab", "c", "c"], ["ab", "c "])}
    assert len(keys) == 6


@given(repeating(sentences))
def test_first_rows_are_those_of_a_dictionary(texts: list[str]) -> None:
    first: dict[str, int] = {}
    expected = [first.setdefault(text, i) for i, text in enumerate(texts)]
    assert ListCorpus(texts).index.first_rows.tolist() == expected


def test_first_rows_of_many_sentences() -> None:
    numbers = np.random.default_rng(0).integers(0, 30_000, 50_000)
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    found = ListCorpus([str(number) for number in numbers]).index.first_rows
    assert np.array_equal(found, first[inverse])


def test_the_index_stays_within_its_documented_memory() -> None:
    rows = 200_000
    corpus = ListCorpus([str(i % 150_000) for i in range(rows)])
    tracemalloc.start()
    try:
        assert len(corpus) == rows
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 8 * rows + 10_000
    assert peak < 44 * rows + 3_000_000  # and some for the blocks, whatever the number of rows


@pytest.mark.parametrize("name", ["corpus.txt", "corpus.gz"])
def test_a_text_file_is_streamed_in_little_memory(tmp_path: Path, name: str) -> None:
    block = b"".join(b"%0149d\n" % i for i in range(1000))
    with gzip.open(tmp_path / name, "wb", 1) if name.endswith("gz") else (tmp_path / name).open("wb") as file:
        for _ in range(200):
            file.write(block)  # 30 MB in all
    corpus = TextCorpus(tmp_path / name)
    tracemalloc.start()
    try:
        count = sum(1 for _ in corpus)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 200_000
    assert peak < 2_000_000


def test_a_list_corpus_keeps_its_own_copy() -> None:
    given_list = ["one", "two"]
    corpus = ListCorpus(given_list)
    given_list[0] = "changed"
    assert read(corpus) == ["one", "two"]
    corpus.check_unchanged()


def test_as_corpus_takes_a_corpus_a_path_and_a_list(tmp_path: Path) -> None:
    path = write(tmp_path / "corpus.txt", b"one\ntwo\n")
    corpus = ListCorpus(["one", "two"])
    assert as_corpus(corpus) is corpus
    assert as_corpus(path).key == as_corpus(["one", "two"]).key == corpus.key


def test_as_corpus_does_not_take_a_string_for_a_list_of_letters() -> None:
    with pytest.raises(SentenceError, match=r"got one str: write \[text\], or pathlib.Path"):
        as_corpus("corpus.txt")


def test_the_name_of_a_file_in_place_of_sentences_gets_the_path_to_write(tmp_path: Path) -> None:
    name = str(write(tmp_path / "corpus.txt", b"one\ntwo\n"))
    with pytest.raises(SentenceError, match=r"got the name of a file: write pathlib\.Path\('.*corpus\.txt'\)"):
        as_corpus(name)


@pytest.mark.parametrize(
    ("bad", "kind"), [(None, "NoneType"), (b"text", "bytes"), (3, "int"), (float("nan"), "float"), (["a"], "list")]
)
def test_what_is_not_a_string_is_named_with_its_index(bad: object, kind: str) -> None:
    with pytest.raises(SentenceError, match=f"sentence 2 is not a string but {kind}"):
        check_sentences(["a", "", bad])  # type: ignore[list-item] # it is refused


@pytest.mark.parametrize("bad", ["\ud800", "a\udfff", "ü \udc80 b"])
def test_a_lone_surrogate_is_named_with_its_index_and_position(bad: str) -> None:
    position = next(i for i, c in enumerate(bad) if "\ud800" <= c <= "\udfff")
    with pytest.raises(SentenceError, match=f"sentence 1 holds a lone surrogate at position {position}"):
        check_sentences(["fine", bad])


@pytest.mark.parametrize("bad", ["text", b"text", None, 3, object()])
def test_what_is_not_a_list_of_sentences_is_refused(bad: object) -> None:
    with pytest.raises(SentenceError, match="expected a list of sentences, got"):
        check_sentences(bad)  # type: ignore[arg-type] # it is refused


@given(st.lists(texts))
def test_every_list_of_texts_is_accepted_unchanged(given_texts: list[str]) -> None:
    assert check_sentences(given_texts) == given_texts
    assert check_sentences(tuple(given_texts)) == given_texts
    assert check_sentences(np.array(given_texts, dtype=object)) == given_texts


@given(st.one_of(st.text(), st.binary(), st.lists(st.integers()), st.none()), st.integers(10, 100))
def test_a_shortened_value_is_bounded_printable_ascii(value: object, limit: int) -> None:
    short = shorten(value, limit)
    assert len(short) <= limit
    assert short.isascii()
    assert short.isprintable()


def test_a_short_value_is_shown_whole() -> None:
    assert shorten("it's") == '"it\'s"'
    assert shorten([1, 2]) == "[1, 2]"
