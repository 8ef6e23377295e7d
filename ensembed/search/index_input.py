"""What goes into an index: checks of texts, ids, metadata and vectors, and the import of files."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ensembed.corpora.corpus import check_sentences, shorten
from ensembed.corpora.record_files import RecordFile
from ensembed.encoders.base import FloatArray
from ensembed.errors import CorpusError, InputError, SentenceError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.checks import check_whole
from ensembed.support.file_limits import parse_json
from ensembed.support.progress import Progress, silent

if TYPE_CHECKING:
    from ensembed.search.search_index import Index

# Records that are encoded and saved together: an interruption loses at most these.
BATCH = 1024


@dataclass(frozen=True)
class Imported:
    """The result of importing a file."""

    added: int  # number of texts that were added
    blank: int  # records without a text, which were left out
    before: int  # records that an earlier, interrupted run had read


def add_file(
    index: Index,
    file: RecordFile,
    *,
    replace: bool = False,
    again: bool = False,
    batch: int = BATCH,
    progress: Progress = silent,
) -> Imported:
    """Add the texts of a file in batches of records; after an interruption the same call continues.

    An id that exists is an error unless `replace` is set; a file that was added before is one unless `again` is set.
    """
    check_whole("batch", batch, 1)
    key = file.key()

    def rare_progress(label: str, done: int, total: int | None, /) -> None:
        if label in ("graph", "compact"):  # every batch also encodes, which the progress of the batches covers
            progress(label, done, total)

    with index.writing():
        before = _records_before(index, file, key, replace=replace, again=again)
        added, read = 0, before
        records = itertools.islice(file, before, None)
        while some := list(itertools.islice(records, batch)):
            read += len(some)
            kept = [record for record in some if record.text.strip()]
            ids = [record.id for record in kept if record.id is not None]
            names = ids if kept and len(ids) == len(kept) else None
            texts, metadata = [record.text for record in kept], [record.metadata for record in kept]
            mark = (key, read, False) if key else None
            if kept:
                _ = index.model  # opened now: that it cannot be opened is no error of these records
            try:
                index.add(texts, names, metadata, replace=replace, mark=mark, progress=rare_progress)
            except InputError as error:  # it speaks of these records alone
                stay = f"; the {added} texts before them stay" if added else ""
                raise type(error)(f"{file.name}, records {read - len(some) + 1} to {read}: {error}{stay}") from error
            added += len(kept)
            progress("index", read, None)
        progress("index", read, read)
        if index.manifest.graph is not None:
            index.build_graph(progress=progress)
        if key is not None:  # at the end, so that after a failure above the same call continues
            index.add([], mark=(key, read, True))
    return Imported(added, read - before - added, before)


def delete_before(
    index: Index,
    file: RecordFile,
    ids: Sequence[str],
    *,
    replace: bool = False,
    again: bool = False,
    progress: Progress = silent,
) -> int:
    """Delete rows before `add_file` adds a file with the same settings; return how many.

    What is deleted is remembered until the file is complete: after an interruption the same call deletes nothing, not
    even a row of the file that has one of these ids.
    """
    key = file.key()
    if key is None:
        return index.delete(ids, progress=progress)
    mark = f"{key} {hashlib.sha256(json.dumps(sorted(set(check_ids(ids)))).encode()).hexdigest()[:16]}"
    with index.writing():
        before = _records_before(index, file, key, replace=replace, again=again)
        if mark in index.manifest.imports:
            return 0
        return index.delete(ids, marks={key: (before, False), mark: (0, False)}, progress=progress)


def _records_before(index: Index, file: RecordFile, key: str | None, *, replace: bool, again: bool) -> int:
    """Return how many records of a file an interrupted run has read; a file that was read whole may be an error."""
    before, complete = index.manifest.imports.get(key or "", (0, False))
    if complete and not again and not (replace and file.id_column):
        what = f"{file.name} was added to {index.folder} before, all {before} records of it"
        raise CorpusError(f"{what}: there is nothing to do; again=True (--again) adds it once more")
    return 0 if complete else before


def check_texts(texts: Iterable[str], what: str = "text") -> list[str]:
    """Return the texts as a list; a blank one is an error, because nothing could find it."""
    checked = check_sentences(texts)
    for i, text in enumerate(checked):
        if not text.strip():
            raise SentenceError(f"{what} {i} is blank: leave it out")
    return checked


def check_ids(ids: Sequence[str], count: int | None = None) -> list[str]:
    """Return the ids as a list of strings, `count` of them."""
    if isinstance(ids, str | bytes):
        raise InputError(f"expected a list of ids, got one {type(ids).__name__}: write [id]")
    checked = list(ids)
    if count is not None and len(checked) != count:
        raise InputError(f"{len(checked)} ids for {count} texts: give one for each, or none")
    for i, id_ in enumerate(checked):
        if not isinstance(id_, str) or not id_:
            raise InputError(f"id {i} is {shorten(id_)}: an id is a string that is not empty")
        try:
            id_.encode()
        except UnicodeEncodeError:
            raise InputError(f"id {i} holds a lone surrogate, which is not text: {shorten(id_)}") from None
    return checked


def check_metadata(metadata: Sequence[Mapping[str, Any] | None] | None, count: int) -> list[Mapping[str, Any]]:
    """Return a mapping for each text; all of it must be JSON."""
    if metadata is None:
        return [{}] * count
    checked = [{} if row is None else row for row in metadata]
    if len(checked) != count:
        raise InputError(f"metadata of {len(checked)} rows for {count} texts: give one for each, or none")
    for i, row in enumerate(checked):
        if not isinstance(row, Mapping) or not all(isinstance(key, str) for key in row):
            raise InputError(f"the metadata of row {i} is {shorten(row)}: it is a mapping with strings for keys")
        try:
            # As in `record_line`, for which a lone surrogate is no text.
            parse_json(json.dumps({"metadata": dict(row)}, ensure_ascii=False, allow_nan=False).encode())
            _check_keys(row)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"the metadata of row {i} is no JSON: {error}; it was {shorten(dict(row))}") from None
    return checked


def _check_keys(value: object) -> None:
    """Raise a TypeError for a key that is no string, at any depth: in JSON it would become one."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"its key {key!r} is no string")
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner)


def check_vectors(vectors: Any, dim: int, count: int | None = None) -> FloatArray:  # noqa: ANN401 - anything array-like
    """Return vectors [n, d] scaled to length one."""
    array = np.asarray(vectors)
    if array.ndim != 2 or array.shape[1] != dim or array.dtype.kind not in "fiu":
        raise InputError(f"vectors are numbers of shape [n, {dim}], not {array.dtype} of shape {array.shape}")
    if count is not None and len(array) != count:
        raise InputError(f"{len(array)} vectors for {count} texts: give one for each")
    rows = unit_rows(array).astype(np.float32, copy=False)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise InputError(f"vector {int(np.argmin(finite))} holds NaN or Inf")
    return rows
