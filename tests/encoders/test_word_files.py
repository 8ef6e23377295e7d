"""Every format gives the same words and vectors; damaged files are refused, and the message says where."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from make_words import all_formats, fasttext_text, glove_text, small_vectors, wink_json, word2vec_binary, word2vec_text
from numpy.typing import NDArray

from ensembed.encoders.words import word_vector_files as word_files
from ensembed.encoders.words.word_vector_files import detect_format, read_word_vectors
from ensembed.errors import EncoderError, InputError

VECTORS = small_vectors()
FILES = all_formats(VECTORS)
TINY = {"the": np.array([1, 2.5], np.float32), "dog": np.array([-1e-3, 4], np.float32)}


def read(path: Path, form: str | None = None) -> tuple[list[bytes], NDArray[np.float32]]:
    blocks = list(read_word_vectors(path, form or detect_format(path)))
    return [word for words, _ in blocks for word in words], np.concatenate([vectors for _, vectors in blocks])


def written(folder: Path, data: bytes) -> Path:
    path = folder / "vectors"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("label", FILES)
@pytest.mark.parametrize("small_blocks", [False, True])
def test_every_format_gives_the_same_words_and_vectors(
    label: str, small_blocks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small_blocks:  # words and numbers are cut at every place
        monkeypatch.setattr(word_files, "_BLOCK", 7)
        monkeypatch.setattr(word_files, "_READ", 97)
    form, data = FILES[label]
    path = written(tmp_path, data)
    assert detect_format(path) == form
    words, vectors = read(path)
    assert words == [word.encode() for word in VECTORS]
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, np.array(list(VECTORS.values())))


def test_fasttext_is_read_as_word2vec_text_and_unknown_formats_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, fasttext_text(TINY))
    assert read(path, "fasttext")[0] == [b"the", b"dog"]
    with pytest.raises(InputError, match="no format 'text' of word vectors; there are: glove"):
        read(path, "text")


def test_words_may_have_spaces_and_invalid_bytes_and_occur_twice(tmp_path: Path) -> None:
    lines = [
        b". . . 1 2",
        b"at name@domain.com 3 4",
        b"caf\xc3 5 6",
        b"the 7 8",
        b"the 9 10",
        b"\xc2\xa0 1 1",
        b"5 1 2",
    ]
    words, vectors = read(written(tmp_path, b"the 0 0\n" * 5 + b"\n".join(lines) + b"\n"))
    assert words[5:] == [b". . .", b"at name@domain.com", b"caf\xc3", b"the", b"the", b"\xc2\xa0", b"5"]
    assert vectors[5:].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [1, 1], [1, 2]]


def test_progress_counts_bytes_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_files, "_BLOCK", 10)
    for data in (glove_text(VECTORS), gzip.compress(glove_text(VECTORS)), wink_json(VECTORS), word2vec_binary(VECTORS)):
        path = written(tmp_path, data)
        reports: list[tuple[str, int, int | None]] = []
        list(read_word_vectors(path, detect_format(path), progress=lambda *report: reports.append(report)))  # noqa: B023 - it is called in this turn of the loop
        assert len(reports) == 31
        assert {label for label, _, _ in reports} == {"convert vectors"}
        done = [count for _, count, _ in reports]
        assert done == sorted(done)
        assert done[-1] == len(data) > done[-2]


GLOVE, TEXT, BINARY, WINK = glove_text(VECTORS), word2vec_text(VECTORS), word2vec_binary(VECTORS), wink_json(VECTORS)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"PK\x03\x04rest", "is a zip archive; unpack it"),
        (b"\xba\x16\x4f\x2f\x0c\x00", r"is a fastText model \(.bin\).*name its .vec"),
        (b"just\nwords\n", "not a file of word vectors"),
        (b"some plain text\nof a book\n", r"line 1: .* is not a number"),
        (GLOVE[:-40], r"line 300 has \d+ numbers where others have 16: it is torn"),
        (glove_text(TINY) + b"cat 1\n", "line 3 has 1 numbers where others have 2"),
        (glove_text(TINY) + b"cat 1 2 3\n", "line 3 has more than 2 numbers"),
        (glove_text(TINY) + b"cat 1 x\n", r"line 3: 'x' is not a number"),
        (glove_text(TINY) + b"cat 1 nan\n", "the vector of word 3, 'cat', holds NaN or Inf"),
        (glove_text(TINY) + b"cat 1 1e39\n", "the vector of word 3, 'cat', holds NaN or Inf"),
        (TEXT[: len(TEXT) // 2], r"line \d+|has \d+ words, but says that they are 300"),
        (TEXT[: TEXT.rindex(b"\n", 0, -1) + 1], "has 299 words, but says that they are 300"),
        (TEXT + b"more " + b"1 " * 16 + b"\n", "has 301 words"),
        (b"2 0\n", "does not begin with the line `words dimensions`"),
        (BINARY[:-1], "ends in word 300 of 300: it is torn"),
        (BINARY[: len(BINARY) // 2], r"ends in word \d+ of 300"),
        (BINARY + b"more", "goes on after its 300 words"),
        (word2vec_binary({"dog": np.array([1, np.nan], np.float32)}), "the vector of word 1, 'dog', holds NaN"),
        (b"9 4\n" + b"\xff" * 200_000, "word 1 of 9 has no end"),
        (gzip.compress(GLOVE, mtime=0)[:-200], "not a whole gzip file"),
        (WINK[: len(WINK) // 2], "it ends too early"),
        (b'{"a": 1}', "it has no `vectors`"),
        (b'{"vectors": {}}', "it has no `dimensions`"),
        (b'{"dimensions": 2, "vectors": {"a": [1, 2]}}', "it has no `size`"),
        (b'{"dimensions": 2, "size": 2, "vectors": {"a": [1, 2]}}', "has 1 words, but says that they are 2"),
        (b'{"dimensions": 2, "size": 1, "vectors": {"a": [1]}}', r"'a' has \[1\] where 2 numbers should be"),
        (b'{"dimensions": 2, "size": 1, "vectors": {"a": 1}}', "'a' has 1 where 2 numbers"),
        (b'{"dimensions": 2, "size": 1, "vectors": {"a": [1, "b"]}}', "where 2 numbers"),
        (b'{"dimensions": 2, "size": 1, "vectors": {"a" [1, 2]}}', "where : should be"),
        (b'{"dimensions": 2, "size": 1, "vectors": [1]}', "where { should be"),
        (b'{"dimensions": 2, "size": 1, "vectors": {"\xff": [1, 2]}}', "is not UTF-8"),
    ],
)
def test_damaged_file_is_refused_with_its_path(data: bytes, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, data)
    with pytest.raises(EncoderError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("form", ["word2vec", "word2vec-bin", "wink"])
def test_file_read_as_another_format_is_refused(form: str, tmp_path: Path) -> None:
    with pytest.raises(EncoderError):
        read(written(tmp_path, GLOVE), form)


def test_endless_line_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_files, "LINE_BYTES", 1000)
    with pytest.raises(EncoderError, match="line 3 is longer than 1000 bytes"):
        read(written(tmp_path, glove_text(TINY) + b"1 " * 1000))


def test_every_truncation_of_a_file_with_a_word_count_is_refused(tmp_path: Path) -> None:
    """Not so GloVe's: a cut at the end of a line leaves a smaller whole file."""
    for data in (word2vec_binary(TINY), wink_json(TINY)):
        end = data.index(b"unkVector") - 3 if data.startswith(b"{") else len(data)
        for cut in range(1, end):
            with pytest.raises(EncoderError):
                read(written(tmp_path, data[:cut]))


def test_unreadable_file_raises_an_input_error(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            detect_format(path)
        with pytest.raises(InputError, match="cannot be read"):
            read(path, "glove")


def test_json_is_read_in_any_layout(tmp_path: Path) -> None:
    pretty = json.dumps(json.loads(wink_json(TINY)), indent=2).encode()
    words, vectors = read(written(tmp_path, b"\n" + pretty))
    assert words == [b"the", b"dog"]
    assert np.array_equal(vectors, np.array(list(TINY.values())))
