"""The files of Wieting and Gimpel's models: pickles of Python 2, converted once to safetensors."""

from __future__ import annotations

import contextlib
import hashlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from ensembed.encoders.paranmt.safe_pickle import read_pickle
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.encoders.model_files import remembered
from ensembed.errors import EncoderError, InputError
from ensembed.support.atomic_files import write_atomically
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress

UNKNOWN = "UUUNKKK"
# The 600-dimensional trigram-word model, among others in the release's archive.
MEMBER = "ngram-word-concat-40.pickle"
# Vectors hardly compress; a pickle that unpacks to more than this is made to fill the memory.
_MOST_UNPACKED = 100

_PARTS = {"vectors": 2, "text": 1, "ends": 1, "rows": 1}
_Tensors: TypeAlias = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Table:
    """Vectors of words or of trigrams.

    Attributes:
        vectors: float32 [n, d].
        rows: which of them is whose; UUUNKKK is there for all that have none.
    """

    vectors: FloatArray
    rows: Mapping[str, int]


def read_tables(path: Path, *, name: str, progress: Progress) -> tuple[dict[str, Table], str]:
    """The tables `trigrams` and `words` (or one of them), and the hash over their content.

    The hash does not depend on the form: a pickle, the archive it came in and the converted file have the same one.

    Args:
        path: a pickle, a zip with it, or a converted file (`.safetensors`).
        name: what errors call the encoder.
        progress: told of the conversion.

    Raises:
        InputError: there is no such file.
        EncoderError: it is damaged, asks for more than data, or is another kind of model.
    """
    if not path.is_file():
        raise InputError(f"encoder {name!r}: there is no file {path}")
    if path.suffix == ".safetensors":
        tensors = _load(path, name)
        return _tables(tensors, path, name), remembered(path, "paranmt", lambda: _hash(tensors))

    def convert() -> str:
        return _convert(path, name, progress)

    revision = remembered(path, "paranmt", convert)
    with contextlib.suppress(EncoderError):  # what was converted is gone or damaged: make it again
        return _tables(_load(_converted(revision), name), path, name), revision
    revision = convert()
    return _tables(_load(_converted(revision), name), path, name), revision


def _converted(revision: str) -> Path:
    return cache_dir() / "paranmt" / f"{revision}.safetensors"


def _convert(path: Path, name: str, progress: Progress) -> str:
    """Write the file's tables to the cache under their hash, and return it."""
    from safetensors.numpy import save

    with _pickle_of(path, name) as (stream, size):
        what = f"encoder {name!r}: {path}"
        value = read_pickle(stream, name=what, size=size, label=f"convert {path.name}", progress=progress)
    tensors = _tensors(value, f"encoder {name!r}: {path}")
    revision = _hash(tensors)
    target = _converted(revision)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, save(tensors))
    except OSError as error:
        raise EncoderError(
            f"encoder {name!r} cannot be converted into {target.parent}: {error}; "
            "make room or set its rights, or name another folder in ENSEMBED_CACHE"
        ) from error
    return revision


@contextlib.contextmanager
def _pickle_of(path: Path, name: str) -> Iterator[tuple[BinaryIO, int]]:
    """The pickle and its length: the file itself, or the member of a zip."""
    try:
        with path.open("rb") as file:
            if path.suffix != ".zip" and file.peek(2)[:2] != b"PK":
                yield file, path.stat().st_size
                return
            with zipfile.ZipFile(file) as archive:
                member = _member_of(archive, path, name)
                with archive.open(member) as stream:
                    # A zip's own stream is slow with single bytes; it reads as a raw one, which its type does not say.
                    yield io.BufferedReader(stream, 1 << 20), member.file_size  # type: ignore[type-var] # see above
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        raise EncoderError(f"encoder {name!r}: {path} cannot be read: {error}; get it again") from error


def _member_of(archive: zipfile.ZipFile, path: Path, name: str) -> zipfile.ZipInfo:
    pickles = [member for member in archive.infolist() if member.filename.endswith((".pickle", ".pkl"))]
    chosen = [member for member in pickles if Path(member.filename).name == MEMBER] or pickles
    if len(chosen) != 1:
        there = ", ".join(member.filename for member in pickles[:9]) or "none"
        raise EncoderError(f"encoder {name!r}: {path} should hold one {MEMBER}; its pickles: {there}; unpack one")
    if chosen[0].file_size > _MOST_UNPACKED * max(chosen[0].compress_size, 1):
        raise EncoderError(
            f"encoder {name!r}: {path} is refused: {chosen[0].filename} would unpack from "
            f"{chosen[0].compress_size:,} to {chosen[0].file_size:,} bytes, which no vectors do"
        )
    return chosen[0]


def _tensors(value: object, what: str) -> _Tensors:
    """What the pickle holds, `[We, words]` or `[We_trigrams, We_words, (trigrams, words)]`, as tensors."""
    *matrices, index = value if isinstance(value, list) and value else [None]
    indices = [index] if isinstance(index, dict) else index
    if (
        not isinstance(indices, (list, tuple))
        or not all(isinstance(matrix, np.ndarray) for matrix in matrices)
        or not all(isinstance(rows, dict) for rows in indices)
        or not len(matrices) == len(indices) in (1, 2)
    ):
        arrays = sum(isinstance(matrix, np.ndarray) for matrix in matrices)
        raise EncoderError(
            f"{what} is another kind of model: it holds {arrays} arrays, where [vectors, words] or "
            "[trigram vectors, word vectors, (trigrams, words)] is read; models with an LSTM are not"
        )
    named = [_decoded(rows, what) for rows in indices]
    tables = ["trigrams", "words"] if len(named) == 2 else ["trigrams" if _are_trigrams(named[0]) else "words"]
    tensors: _Tensors = {}
    for table, matrix, rows in zip(tables, matrices, named, strict=True):
        _check_table(matrix, rows, f"{what}: {table}")
        keys = sorted(rows, key=lambda key: (rows[key], key))
        tensors[f"{table}.vectors"] = np.ascontiguousarray(matrix, np.float32)
        tensors[f"{table}.text"] = np.frombuffer("".join(keys).encode("utf-8", "surrogatepass"), np.uint8)
        tensors[f"{table}.ends"] = np.cumsum([len(key) for key in keys], dtype=np.int64)  # in characters
        tensors[f"{table}.rows"] = np.array([rows[key] for key in keys], np.int64)
    return tensors


def _decoded(rows: dict[Any, Any], what: str) -> dict[str, int]:
    """The index by text: a string of Python 2 is UTF-8 as a rule; where it is not, Latin-1 takes any byte."""
    result: dict[str, int] = {}
    for key, row in rows.items():
        if isinstance(key, bytes):
            try:
                key = key.decode()
            except UnicodeDecodeError:
                key = key.decode("latin-1")
        if not isinstance(key, str) or type(row) is not int:
            raise EncoderError(f"{what}: an index has a {type(row).__name__} for a {type(key).__name__}, no row number")
        result[key] = row
    return result


def _are_trigrams(rows: Mapping[str, int]) -> bool:
    """Whether a model of one table is of trigrams: all keys are three characters long, and spaces occur in them."""
    keys = [key for key in rows if key != UNKNOWN]
    return all(len(key) == 3 for key in keys) and any(" " in key for key in keys)


def _check_table(matrix: NDArray[Any], rows: Mapping[str, int], what: str) -> None:
    if matrix.ndim != 2 or matrix.dtype.kind != "f" or 0 in matrix.shape:
        raise EncoderError(f"{what} are {matrix.dtype} of shape {matrix.shape}, not a matrix of vectors")
    if UNKNOWN not in rows:
        raise EncoderError(f"{what} have no vector for the unknown, {UNKNOWN}")
    if not 0 <= min(rows.values()) <= max(rows.values()) < len(matrix):
        raise EncoderError(f"{what} have row numbers up to {max(rows.values())}, but there are {len(matrix)} vectors")
    if not np.isfinite(matrix).all():
        raise EncoderError(f"{what} hold NaN or Inf")


def _hash(tensors: _Tensors) -> str:
    digest = hashlib.sha256()
    for key, tensor in sorted(tensors.items()):
        digest.update(f"{key} {tensor.dtype.str} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor).data)
    return digest.hexdigest()[:16]


def _load(path: Path, name: str) -> _Tensors:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise EncoderError(f"encoder {name!r} cannot be opened from {path}: {error}") from error


def _tables(tensors: _Tensors, path: Path, name: str) -> dict[str, Table]:
    found = [table for table in ("trigrams", "words") if f"{table}.vectors" in tensors]
    expected = {f"{table}.{part}": ndim for table in found for part, ndim in _PARTS.items()}
    if not found or {key: tensor.ndim for key, tensor in tensors.items()} != expected:
        raise EncoderError(
            f"encoder {name!r}: {path} holds the tensors {sorted(tensors)[:9]}, which no converted file of "
            "ParaNMT vectors has"
        )
    tables = {}
    for table in found:
        vectors, text, ends, rows = (tensors[f"{table}.{part}"] for part in _PARTS)
        try:
            joined = text.astype(np.uint8, casting="safe").tobytes().decode("utf-8", "surrogatepass")
            stops = ends.tolist()
            keys = [joined[start:stop] for start, stop in zip([0, *stops[:-1]], stops, strict=True)]
            index: dict[str, int] = dict(zip(keys, rows.astype(np.int64, casting="safe").tolist(), strict=True))
        except (ValueError, TypeError) as error:
            raise EncoderError(f"encoder {name!r}: the {table} in {path} are damaged: {error}") from error
        _check_table(vectors, index, f"encoder {name!r}: {path}: {table}")
        tables[table] = Table(np.ascontiguousarray(vectors, np.float32), index)
    return tables
