"""Corpora of CSV, TSV and JSON Lines: by the name of a file and by its content, in every command that fits."""

from __future__ import annotations

import codecs
import gzip
import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ensembed import Ensemble
from ensembed.cli import main
from ensembed.corpora import open_corpus
from ensembed.corpora.corpus import Corpus, ListCorpus
from ensembed.corpora.record_files import FORMS, new_text_file, write_records
from ensembed.errors import CorpusError, InputError
from ensembed.methods import SVD
from ensembed.support.vector_files import write_vectors

TEXTS = ["a dog barks", 'the "old" cat, asleep', "a line\nof two", "birds sing at dawn", "fish"]
MEMBERS = ["-e", "demo?dim=8&seed=1", "-e", "demo?dim=6&seed=2"]


def jsonl(column: str = "text") -> str:
    return "".join(json.dumps({"id": i, column: text}) + "\n" for i, text in enumerate(TEXTS))


def table(delimiter: str = ",", column: str = "text") -> str:
    cells = ['"' + text.replace('"', '""') + '"' for text in TEXTS]
    return "\r\n".join([f"id{delimiter}{column}", *(f"{i}{delimiter}{cell}" for i, cell in enumerate(cells)), ""])


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


FILES = {"csv": table(), "tsv": table("\t"), "jsonl": jsonl(), "ndjson": jsonl(), "csv.gz": table()}


@pytest.mark.parametrize("ending", FILES)
def test_the_name_tells_that_a_file_has_records(write: Callable[[str, str], Path], ending: str) -> None:
    corpus = open_corpus(write(f"c.{ending}", FILES[ending]))
    assert list(corpus) == TEXTS
    assert corpus.key == ListCorpus(TEXTS).key
    assert list(pickle.loads(pickle.dumps(corpus)).stretch(1, 3)) == TEXTS[1:3]  # noqa: S301 - written here


@pytest.mark.parametrize("name", ["c.txt", "c", "c.txt.gz", "c.dat"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_the_content_tells_it_where_the_name_does_not(write: Callable[[str, str], Path], name: str, kind: str) -> None:
    with pytest.warns(UserWarning, match=r"is read as \w+.*by its first lines.*--format text"):
        assert list(open_corpus(write(name, FILES[kind]))) == TEXTS


def test_a_column_is_named(write: Callable[[str, str], Path]) -> None:
    path = write("c.csv", table(column="title"))
    assert list(open_corpus(path, column="title")) == TEXTS
    with pytest.raises(CorpusError, match="no column 'text' \\(column=…, --text-column\\); there are 'id', 'title'"):
        list(open_corpus(path))
    with pytest.warns(UserWarning, match="read as JSON Lines"):
        assert list(open_corpus(write("c.txt", jsonl("title")), column="title")) == TEXTS


@pytest.mark.parametrize(("text", "what"), [(jsonl("title"), "JSON Lines"), (table("\t", "title"), "TSV")])
def test_lines_that_look_like_records_are_warned_of(write: Callable[[str, str], Path], text: str, what: str) -> None:
    with pytest.warns(UserWarning, match=rf"but its lines look like {what}: .*--text-column\), one of 'id', 'title'"):
        corpus = open_corpus(write("c.txt", text))
    assert next(iter(corpus)) == text.splitlines()[0]
    with warnings.catch_warnings():  # none
        warnings.simplefilter("error")
        assert next(iter(open_corpus(write("c.txt", text), file_format="text"))) == text.splitlines()[0]


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world\nA dog, a cat\nYes, no\n",  # too few to say
        "one sentence, with a comma\nanother one without\nA third, a fourth, a fifth\n" * 5,
        "{not json\n{at all\n{but braces\n",
        "\n\n",
        "",
        "PAR1 is a prefix\n",
        "title\nof one column\nonly\n",
    ],
)
def test_plain_text_stays_text_without_a_word(write: Callable[[str, str], Path], text: str) -> None:
    assert list(iter(open_corpus(write("c.txt", text)))) == [line for line in text.splitlines() if line]


def test_folders_patterns_and_urls_of_records(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    for i in range(2):
        write(f"parts/{i}.jsonl", jsonl())
    both = TEXTS * 2
    assert list(open_corpus(tmp_path / "parts")) == both
    corpus: Corpus = open_corpus(str(tmp_path / "parts" / "*.jsonl"))
    assert (list(corpus), corpus.key) == (both, ListCorpus(both).key)
    assert list(corpus.stretch(3, 8)) == both[3:8]
    assert list(open_corpus((tmp_path / "parts").as_uri())) == both
    write("parts/2.csv", table())
    with pytest.raises(CorpusError, match="files of several formats"):
        open_corpus(tmp_path / "parts")
    for i in range(2):
        write(f"unnamed/{i}", jsonl())
    with pytest.warns(UserWarning, match="read as JSON Lines"):
        assert list(open_corpus(tmp_path / "unnamed")) == both


def test_python_fits_on_records(write: Callable[[str, str], Path]) -> None:
    model = Ensemble(["demo?dim=4", "demo?dim=3&seed=2"]).fit(write("c.csv", table()), SVD(dim=2))
    assert (model.meta.rows, model.corpus) == (len(TEXTS), ListCorpus(TEXTS).key)


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "FILE", *MEMBERS, "--method", "svd", "--dim", "2", "-o", "OUT"],
        ["embed", "FILE", *MEMBERS],
        ["bench", "FILE", *MEMBERS],
        ["reliability", "FILE", *MEMBERS],
        ["compare", "demo", "demo?seed=2", "--corpus", "FILE", "--rows", "60"],
        ["encode", "demo", "FILE", "--json"],
        ["dedupe", "demo", "FILE", "--threshold", "0.9"],
    ],
    ids=lambda command: command[0],
)
def test_commands_read_records_as_the_same_text(
    capsys: pytest.CaptureFixture[str], write: Callable[[str, str], Path], tmp_path: Path, command: list[str]
) -> None:
    texts = [f"the {i} sentences of {i % 7} others" for i in range(80)]
    records = "".join(f"{i},{text}\n" for i, text in enumerate(texts))
    files = [write("c.csv", f"n,title\n{records}"), write("c.txt", "\n".join(texts) + "\n")]
    outputs = []
    for i, (file, column) in enumerate(zip(files, (["--text-column", "title"], []), strict=True)):
        words = [{"FILE": str(file), "OUT": str(tmp_path / f"m{i}")}.get(word, word) for word in command]
        assert main([*words, *column]) == 0
        outputs.append(capsys.readouterr().out.replace(str(file), "FILE").replace(f"m{i}", "m"))
    if command[0] != "bench":  # which prints times
        assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    "array",
    [
        '[\n {\n  "id": 0,\n  "text": "a"\n }\n]',
        '[{"text": "a"}]',
        '["a dog", "a cat"]',
        '{\n "data": [\n  {"text": "a"}\n ]\n}',
        '{"a": {"text": "x"},\n "b": {"text": "y"}}',
    ],
)
def test_json_documents_are_refused_with_a_way_out(write: Callable[[str, str], Path], array: str) -> None:
    path = write("c.json", array)
    with pytest.raises(CorpusError, match=r"c\.json is a JSON array or one JSON object.*lines=True.*--format text"):
        open_corpus(path)
    assert list(open_corpus(path, file_format="text")) == array.splitlines()
    assert list(open_corpus(write("c.txt", "[1] a note\n[2] another\n"))) == ["[1] a note", "[2] another"]


def test_the_first_file_with_content_tells_the_format(write: Callable[[str, str], Path]) -> None:
    write("parts/part-0", "")
    folder = write("parts/part-1", jsonl()).parent
    with pytest.warns(UserWarning, match="part-1 is read as JSON Lines"):
        assert list(open_corpus(folder)) == TEXTS
    (folder / "part-1").write_bytes(b"")
    with pytest.raises(CorpusError, match="holds no sentence"):
        len(open_corpus(folder))


@pytest.mark.parametrize(
    "first",
    [gzip.compress(b""), gzip.compress(b"\n\n"), b"\n \r\n", codecs.BOM_UTF8],
    ids=["gzipped", "gzipped lines", "lines", "mark"],
)
def test_a_first_file_of_blank_lines_or_of_nothing_gzipped_has_no_content(tmp_path: Path, first: bytes) -> None:
    (tmp_path / "part-0").write_bytes(first)
    (tmp_path / "part-1").write_text(jsonl())
    with pytest.warns(UserWarning, match="part-1 is read as JSON Lines"):
        assert list(open_corpus(tmp_path)) == TEXTS


def test_long_records_are_recognised_in_a_gzipped_file(write: Callable[[str, str], Path]) -> None:
    records = "".join(json.dumps({"text": f"{i} " + "word " * 1500}) + "\n" for i in range(12))
    with pytest.warns(UserWarning, match="read as JSON Lines"):
        assert [text[:2] for text in open_corpus(write("c.gz", records))] == [f"{i} "[:2] for i in range(12)]


def test_a_record_that_is_longer_than_what_is_looked_at_is_not_read_as_text_in_silence(
    write: Callable[[str, str], Path],
) -> None:
    path = write("c.txt", json.dumps({"text": "word " * 20_000}) + "\n")
    with pytest.warns(UserWarning, match=r"c\.txt is read as text, but its long first line looks like JSON.*jsonl"):
        open_corpus(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(open_corpus(path, file_format="jsonl")) == ["word " * 20_000]
        assert list(open_corpus(write("d.txt", "{ " + "word " * 20_000))) == ["{ " + "word " * 20_000]


def test_a_link_that_leads_nowhere_is_named(write: Callable[[str, str], Path]) -> None:
    folder = write("parts/part-0", "a dog").parent
    (folder / "part-1").symlink_to("absent")
    with pytest.raises(CorpusError, match=r"parts/part-1 cannot be read: it is not there"):
        open_corpus(folder)


def test_unknown_formats_are_refused(write: Callable[[str, str], Path]) -> None:
    for path in (write("c.txt", table()), write("folder/c.txt", table()).parent):
        with pytest.raises(InputError, match="file_format is one of text, csv, tsv, jsonl, not 'json'"):
            open_corpus(path, file_format="json")  # type: ignore[arg-type]  # wrong on purpose


def test_semicolons_are_no_table(write: Callable[[str, str], Path]) -> None:
    with pytest.warns(UserWarning, match="look like CSV with semicolons"):
        open_corpus(write("c.txt", table(";")))
    with pytest.raises(CorpusError, match=r"cells instead of 1.*semicolons"):
        list(open_corpus(write("c.csv", "id;text\n0;a, b\n")))


def test_a_quote_in_tsv_joins_no_rows(write: Callable[[str, str], Path]) -> None:
    texts = ['"Hello there', "foo", 'bar baz"', '"', '"He" left', 'a "quoted" word']
    path = write("c.tsv", "id\ttext\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(texts)))
    assert list(open_corpus(path)) == texts
    path = write("c.tsv", 'text\tid\n"a\nb\tnot closed\n"two\nlines"\t2\n"open\t3\n')
    with pytest.raises(CorpusError, match="line 2: 1 cells instead of 2"):
        list(open_corpus(path))


@pytest.mark.parametrize("form", FORMS)
def test_written_records_are_read_again(tmp_path: Path, form: str) -> None:
    texts = [*TEXTS, "a carriage\rreturn", "\rat the start", "at the end\r"]
    path = tmp_path / f"c.{form}"
    with new_text_file(path) as file:
        write_records([{"text": text, "n": i} for i, text in enumerate(texts)], ["text", "n"], file, form)
    assert b"\r\n" not in path.read_bytes()
    assert list(open_corpus(path)) == texts


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_written_vectors_are_read_again(tmp_path: Path, form: str) -> None:
    with write_vectors(tmp_path / f"v.{form}", 2) as writer:
        writer.append(np.ones((2, 2), np.float32), ["a carriage\rreturn", "none"])
    assert list(open_corpus(tmp_path / f"v.{form}", column="sentence")) == ["a carriage\rreturn", "none"]
