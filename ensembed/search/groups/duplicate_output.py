"""Groups and deduplicated text as files, which get their names when they are whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np

from ensembed.corpora.record_reader import RecordCorpus, has_ids
from ensembed.corpora.record_writer import write_records
from ensembed.errors import InputError
from ensembed.search.groups.duplicates import Duplicates

FIELDS = ("group", "row", "kept", "cosine", "text")
# Sentences in memory at a time: a group's rows stand together in the file and apart in the corpus.
_SENTENCES = 100_000


def group_records(found: Duplicates) -> Iterator[dict[str, Any]]:
    """A record for every row of a group, group by group, with its id if the corpus has ids.

    The corpus is read once for every so many grouped rows, so that its text need not be in memory.
    """
    groups = found.groups
    begin = 0
    while begin < len(groups):
        end, size = begin, 0
        while end < len(groups) and (end == begin or size + len(groups[end]) <= _SENTENCES):
            size += len(groups[end])
            end += 1
        records = {row: (one.id, one.text) for row, one in found.records(np.concatenate(groups[begin:end]))}
        for number in range(begin, end):
            for row in groups[number].tolist():
                id_, text = records[row]
                yield {
                    "group": number,
                    "row": row,
                    **({} if id_ is None else {"id": id_}),
                    "kept": int(found.kept[row]) == row,
                    "cosine": round(float(found.cosine[row]), 6),
                    "text": text,
                }
        begin = end


def write_groups(found: Duplicates, file: TextIO, form: str) -> int:
    """Write every row of every group as "csv" or "jsonl" and return how many there were."""
    fields = ("group", "row", "id", *FIELDS[2:]) if has_ids(found.corpus) else FIELDS
    return write_records(group_records(found), fields, file, form)


def write_kept(found: Duplicates, file: TextIO) -> int:
    """Write the sentences that stay, one a line, and return how many there were.

    Of a file of records, the records that stay, as they stand there, below its header if it has one; those without a
    text are nobody's duplicates and stay, too.
    """
    if isinstance(found.corpus, RecordCorpus):
        return _write_records(found, found.corpus, file)
    rows = 0
    for row, record in found.records(np.flatnonzero(found.is_kept)):
        if "\n" in record.text:
            raise InputError(f"row {row} holds a line break, so that it cannot be a line of a file; replace it first")
        file.write(f"{record.text}\n")
        rows += 1
    return rows


def _write_records(found: Duplicates, corpus: RecordCorpus, file: TextIO) -> int:
    if (header := corpus.file.header()) is not None:
        file.write(f"{header}\n")
    stay = iter(found.is_kept)
    rows = 0
    for record in corpus.file:
        counted = bool(record.text.strip())
        # A file that has grown is not read beyond its rows: that it changed is said in the end.
        if counted and not next(stay, False):
            continue
        if record.raw:
            file.write(f"{record.raw}\n")
            rows += counted
    corpus.check_unchanged()
    return rows
