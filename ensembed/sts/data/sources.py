"""The data sets that can be fetched, as data: `sources.json` pins what they are, whoever serves them.

The organisers publish no hash of the STS archives, and offer them over plain HTTP too. So the files inside are pinned
by their SHA-256, one by one. The archive with the paper's corpus is pinned as a whole.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ensembed.errors import InputError


@dataclass(frozen=True)
class DataFile:
    """One file of a data set.

    Attributes:
        member: its name in the archive.
        sha256: what it has to be; None where the hash of the archive says it.
        size: its bytes; None with the hash.
    """

    member: str
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Archive:
    """What a whole archive has to be, where somebody publishes it."""

    sha256: str
    size: int


@dataclass(frozen=True)
class DataSet:
    """One data set: what it holds, on which terms, and where its files come from and go.

    Attributes:
        name: what a user calls it.
        title: what it is, for a person.
        count: how many pairs or sentences it has.
        unit: `pairs` or `sentences`.
        licence: its licence in a few words.
        terms: the licences of its parts, a line each.
        folder: where its files go, below the data folder.
        urls: addresses of its archive, in the order in which to try.
        files: its files, by the name they are stored under.
        note: what else a user has to know.
        approximate: whether `count` is round.
        catalogue: the entry of the encoders' catalogue that has the same files, which is tried first.
        archive: what the archive has to be; None where only its files are known.
        tokens_below: for a corpus: it keeps the lines that have fewer tokens than this.
    """

    name: str
    title: str
    count: int
    unit: str
    licence: str
    terms: tuple[str, ...]
    folder: str
    urls: tuple[str, ...]
    files: Mapping[str, DataFile]
    note: str | None = None
    approximate: bool = False
    catalogue: str | None = None
    archive: Archive | None = None
    tokens_below: int | None = None

    @property
    def is_corpus(self) -> bool:
        """Whether it is a file of sentences, not of scored pairs."""
        return self.tokens_below is not None

    @property
    def size(self) -> int:
        """Bytes to fetch; of the unpacked files, which are more, where the size of the archive is not known."""
        return self.archive.size if self.archive else sum(file.size or 0 for file in self.files.values())

    @property
    def holds(self) -> str:
        """How much it holds, for a person.

        Example:
            >>> data_set("sts12").holds, data_set("billion-word").holds
            ('3,108 pairs', 'about 302,000 sentences')
        """
        return f"{'about ' if self.approximate else ''}{self.count:,} {self.unit}"


@functools.cache
def data_sets() -> Mapping[str, DataSet]:
    """All data sets by name, in the order of the file."""
    file = resources.files("ensembed") / "sts" / "data" / "sources.json"
    return read_sources(file.read_text(encoding="utf-8"))


def read_sources(text: str) -> dict[str, DataSet]:
    """The data sets of a description in the format of `sources.json`."""
    found = [_data_set(facts) for facts in json.loads(text)]
    return {one.name: one for one in found}


def data_set(name: str) -> DataSet:
    """The data set of that name.

    Raises:
        InputError: there is none; the message lists close matches and all names.
    """
    known = data_sets()
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known)
    hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
    raise InputError(f"there is no data set {name!r} to fetch{hint}; there are: {', '.join(known)}")


def _data_set(facts: Mapping[str, Any]) -> DataSet:
    archive = facts.get("archive")
    read = {
        "terms": tuple(facts["terms"]),
        "urls": tuple(facts["urls"]),
        "files": {name: DataFile(**file) for name, file in facts["files"].items()},
        "archive": Archive(**archive) if archive else None,
    }
    return DataSet(**{**facts, **read})
