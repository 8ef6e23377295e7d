"""Records as CSV or as JSON lines, written to a file that gets its name when it is whole."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from ensembed.errors import InputError
from ensembed.support.atomic_files import sync, temporary_beside

FORMS = ("csv", "jsonl")


def form_of(path: Path, form: str | None = None) -> str:
    """The form to write a file in: the one that is given, or the one that the file's ending says.

    Raises:
        InputError: neither says.
    """
    found = form or path.suffix.lower().removeprefix(".")
    if found not in FORMS:
        raise InputError(
            f"{str(path)!r} ends neither in .csv nor in .jsonl: rename it, or say which it is (--out-format)"
        )
    return found


def write_records(records: Iterable[Mapping[str, Any]], fields: Sequence[str], file: TextIO, form: str) -> int:
    """Write records that have these fields as "csv", with a header, or as "jsonl", and return how many there were.

    In CSV true and false are written as 1 and 0, and lists with " | " between their items.
    """
    count = 0
    table = csv.writer(file, lineterminator="\n")
    if form == "csv":
        table.writerow(fields)
    for record in records:
        count += 1
        if form == "csv":
            table.writerow([_cell(record[field]) for field in fields])
        else:
            file.write(json.dumps(dict(record), ensure_ascii=False, allow_nan=False) + "\n")
    return count


@contextmanager
def new_file(path: Path) -> Iterator[TextIO]:
    """A text file, UTF-8, that gets its name when the block ends well; after an exception nothing is left behind.

    Raises:
        InputError: it cannot be written.
    """
    temporary = temporary_beside(path)
    try:
        try:
            file = temporary.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}; name another file") from error
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            temporary.replace(path)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}; name another file") from error
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def _cell(value: Any) -> Any:  # noqa: ANN401 - whatever a record holds
    if isinstance(value, bool):
        return int(value)
    return " | ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
