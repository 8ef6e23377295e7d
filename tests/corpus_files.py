"""Files of the same sentences in every form, for several tests."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from ensembed.corpora.corpus import Corpus

LINES = ["one", "", "zwei ü", " ", "a\u2028b", "one", "\ufefflater", "  kept  ", "\u3000", "a\rb", *map(str, range(30))]
SENTENCES = [line for line in LINES if line.strip()]


def read(corpus: Corpus) -> list[str]:
    return list(iter(corpus))  # list(corpus) would ask for its length first


def text(lines: Sequence[str], *, end: str = "\n", mark: bool = False) -> bytes:
    return (codecs.BOM_UTF8 if mark else b"") + "".join(line + end for line in lines).encode()


def write_parquet(path: Path, rows: Sequence[str | None], kind: Any = None, group: int = 5) -> Path:  # noqa: ANN401 - a type of pyarrow's
    table = pa.table({"number": list(range(len(rows))), "text": pa.array(rows, kind or pa.string())})
    pq.write_table(table, path, row_group_size=group)
    return path


def in_memory(folder: Path, data: bytes) -> str:
    url = f"memory://{folder.name}/corpus"
    fsspec.filesystem("memory").pipe(url, data)
    return url


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def nulls(lines: Sequence[str]) -> list[str | None]:
    return [line or None for line in lines]
