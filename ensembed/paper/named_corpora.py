"""Corpora for the experiments, by name or by file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ensembed.corpora import open_corpus
from ensembed.corpora.corpus import BadBytes, Corpus, ListCorpus, TextCorpus
from ensembed.errors import InputError
from ensembed.paper.findings import NO_CORPUS
from ensembed.sts.find import find_sts, text_version
from ensembed.sts.protocol import distinct_sentences
from ensembed.support.machine import data_dirs

STSB_TRAIN, BILLION_WORD = "stsb-train", "billion-word"
_BILLION_WORD_FILE = Path("corpus") / "news.en-00001-of-00100.txt.gz"


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus, its name in tables, and a description for the reader."""

    name: str
    what: str
    corpus: Corpus


def open_corpora(
    sources: Sequence[str],
    *,
    data: Path | None = None,
    layout: str | None = None,
    errors: BadBytes = "strict",
    column: str | None = None,
) -> list[NamedCorpus]:
    """Open the corpora of these names.

    Args:
        sources: `stsb-train` (its sentences, not its scores), `billion-word` (the shard that the paper was trained on),
            or files that `open_corpus` reads. An empty list means `billion-word`, if it is found, and `stsb-train`.
        data: the data folder.
        layout: the version of STS-B's text; None takes the first that is found.
        errors: what to do with bytes that are not UTF-8.
        column: the column with the texts of files of records.
    """
    if not sources:
        sources = (*([BILLION_WORD] if _billion_word(data) else []), STSB_TRAIN)
    opened = [_open(source, data, layout, errors, column) for source in dict.fromkeys(sources)]
    names = [corpus.name for corpus in opened]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"two corpora are called {twice[0]!r}: rename one of the files")
    return opened


def _open(source: str, data: Path | None, layout: str | None, errors: BadBytes, column: str | None) -> NamedCorpus:
    if source == STSB_TRAIN:
        train = find_sts(STSB_TRAIN, data, layout)
        overlap = "whose texts overlap with STS12-16, since STS-B is drawn from STS12-17 (no score was used)"
        what = f"the distinct sentences of STS-B train ({text_version([train])}), {overlap}"
        return NamedCorpus(STSB_TRAIN, what, ListCorpus(distinct_sentences([train])))
    if source == BILLION_WORD:
        path = _billion_word(data)
        if path is None:
            raise InputError(f"the corpus {BILLION_WORD} is not here; get it with: ensembed data fetch {BILLION_WORD}")
        what = f"the paper's: {path.name}, lines under 60 tokens"
        return NamedCorpus(BILLION_WORD, what, TextCorpus(path, errors=errors))
    file = Path(source).name
    name = file.removesuffix(".gz").removesuffix(".txt")
    if name in (NO_CORPUS, STSB_TRAIN, BILLION_WORD):
        raise InputError(f"a corpus file cannot be called {name!r}, which stands for something else: rename {source}")
    return NamedCorpus(name, f"the file {file}", open_corpus(Path(source), errors=errors, column=column))


def _billion_word(data: Path | None) -> Path | None:
    folders = data_dirs() if data is None else [data]
    return next((path for folder in folders if (path := folder / _BILLION_WORD_FILE).is_file()), None)
