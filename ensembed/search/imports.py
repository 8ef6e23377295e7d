"""Adding files to an index: in parts that are kept, so that an interrupted run goes on where it was."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ensembed.corpora.record_reader import Record, RecordFile
from ensembed.errors import CorpusError
from ensembed.search.index import Index
from ensembed.support.progress import Progress, silent

# Records that are encoded and kept together: what an interruption loses at the most.
BATCH = 1024


@dataclass(frozen=True)
class Imported:
    """What became of a file.

    Attributes:
        added: texts.
        blank: records without a text, which were passed over.
        before: records that an earlier run had read.
    """

    added: int
    blank: int
    before: int


def add_file(
    index: Index,
    file: RecordFile,
    *,
    replace: bool = False,
    again: bool = False,
    batch: int = BATCH,
    progress: Progress = silent,
) -> Imported:
    """Add the texts of a file; after an interruption the same call goes on.

    Args:
        index: what to add to.
        file: what to read.
        replace: a row that has the id of a new one is replaced; otherwise that is an error.
        again: add a file that was added before once more.
        batch: records to encode and keep at a time.
        progress: told of records.

    Raises:
        CorpusError: the file cannot be read, or was added before. What was added of it stays.
    """
    key = file.key()
    with index.writing():
        before, whole = index.manifest.imports.get(key or "", (0, False))
        if whole and not again and not (replace and file.id_column):
            raise CorpusError(
                f"{file.name} was added to {index.folder} before, all {before} records of it: nothing is to be done; "
                "--again adds it once more"
            )
        before = 0 if whole else before
        added = blank = 0
        read = before
        records = itertools.islice(file, before, None)
        while some := list(itertools.islice(records, batch)):
            texts = [record for record in some if record.text.strip()]
            read += len(some)
            blank += len(some) - len(texts)
            _add(index, texts, replace, (key, read, False) if key else None, _rare(progress))
            added += len(texts)
            progress("index", read, None)
        if key is not None:
            index.add([], mark=(key, read, True))
        progress("index", read, read)
    return Imported(added, blank, before)


def _add(
    index: Index, records: list[Record], replace: bool, mark: tuple[str, int, bool] | None, progress: Progress
) -> None:
    ids = [record.id for record in records if record.id is not None]
    index.add(
        [record.text for record in records],
        ids if records and len(ids) == len(records) else None,
        [record.metadata for record in records],
        replace=replace,
        mark=mark,
        progress=progress,
    )


def _rare(progress: Progress) -> Progress:
    """Only what is not done for every batch: the batches have a bar of their own."""

    def report(label: str, done: int, total: int | None, /) -> None:
        if label in ("graph", "compact"):
            progress(label, done, total)

    return report
