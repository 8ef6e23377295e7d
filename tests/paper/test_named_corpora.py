"""Corpora by name and by file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ensembed.errors import CorpusError, InputError
from ensembed.paper.named_corpora import open_corpora


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "sts" / "stsb").mkdir(parents=True)
    (folder / "sts" / "stsb" / "train.tsv").write_text("5\ta dog\ta puppy\n1\ta dog\tstocks fell\n")
    return folder


def add_billion_word(data: Path) -> None:
    (data / "corpus").mkdir()
    (data / "corpus" / "news.en-00001-of-00100.txt.gz").write_bytes(gzip.compress(b"one line .\nanother one .\n"))


def test_stsb_train_corpus_has_its_distinct_sentences(data: Path) -> None:
    [found] = open_corpora(["stsb-train"], data=data)
    assert sorted(found.corpus) == ["a dog", "a puppy", "stocks fell"]
    assert "no score was used" in found.what


def test_default_corpora_are_billion_word_if_found_and_stsb_train(data: Path) -> None:
    assert [one.name for one in open_corpora([], data=data)] == ["stsb-train"]
    add_billion_word(data)
    assert [one.name for one in open_corpora([], data=data)] == ["billion-word", "stsb-train"]
    [found] = open_corpora(["billion-word"], data=data)
    assert list(found.corpus) == ["one line .", "another one ."]


def test_corpus_files_are_named_by_their_file_names_without_repeats(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "my.news.txt.gz"
    path.write_bytes(gzip.compress(b"a line\n"))
    [found, other] = open_corpora([str(path), "stsb-train", str(path)], data=data)
    assert (found.name, found.what, other.name) == ("my.news", "the file my.news.txt.gz", "stsb-train")


def test_corpora_with_ambiguous_or_missing_names_are_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for path in (tmp_path / "a" / "news.txt", tmp_path / "news.txt", tmp_path / "none.txt"):
        path.write_text("a line\n")
    with pytest.raises(InputError, match="two corpora are called 'news'"):
        open_corpora([str(tmp_path / "a" / "news.txt"), str(tmp_path / "news.txt")], data=data)
    with pytest.raises(InputError, match="cannot be called 'none'"):
        open_corpora([str(tmp_path / "none.txt")], data=data)
    with pytest.raises(InputError, match="ensembed data fetch billion-word"):
        open_corpora(["billion-word"], data=data)
    with pytest.raises(CorpusError, match="there is no corpus file"):
        open_corpora([str(tmp_path / "absent.txt")], data=data)
