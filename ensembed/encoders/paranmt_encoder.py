"""ParaNMT: averages of word and character trigram vectors, learnt from back-translated paraphrases.

Wieting and Gimpel, "ParaNMT-50M", ACL 2018; https://github.com/jwieting/para-nmt-50m has the code and the model.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import lzma
import re
import sys
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.model_files import remembered
from ensembed.encoders.names_and_consent import Request, one_of, place_effects
from ensembed.encoders.safe_pickle import read_pickle
from ensembed.errors import EncoderError, InputError, PullError
from ensembed.fetch.download import download, is_url
from ensembed.support.atomic_files import make_folder, write_atomically
from ensembed.support.file_limits import ARCHIVE_RATIO, check_tensor_header
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress

OPENS = "pickle of Wieting and Gimpel's word and trigram vectors"
effects = place_effects
MEMBER = "ngram-word-concat-40.pickle"
"""The 600-dimensional trigram-word model, among others in the release's archive."""

_UNKNOWN = "UUUNKKK"
_UNITS, _ROWS = 65536, 4096  # words or trigrams, and vectors, at a time: they bound the memory of a long sentence
_PARTS = {"vectors": 2, "text": 1, "ends": 1, "rows": 1}  # a table's tensors in a converted file, and their dimensions

_WORD = re.compile(r"\S+")
_Units: TypeAlias = Callable[[str], Iterator[str]]
_Tensors: TypeAlias = dict[str, NDArray[Any]]


class Table(NamedTuple):
    """Vectors [n, d] of words or of trigrams, and the row of each; UUUNKKK stands for all others."""

    vectors: FloatArray
    rows: Mapping[str, int]


class ParaNMTEncoder(Encoder):
    """The mean vector of a sentence's character trigrams, and that of its words; here `|` joins vectors.

        f(s) = mean of t over the trigrams of " s " | mean of w over the words of s

    The sentence is lower-cased and split at white space. The model was trained on tokenised text, as `a dog , a cat .`
    is: give it such where you can. A word or trigram that is not in the table is looked up again without its
    punctuation; one that is still unknown has the vector of UUUNKKK. An empty sentence is one unknown unit.

    Args:
        tables: vectors of `trigrams`, of `words`, or of both.
        name: how to call the encoder.
        revision: pins the vectors.
        combination: "concat" puts the two means side by side, "add" adds them.

    Example:
        >>> vectors = np.array([[0, 0], [1, 2], [3, 4]], np.float32)
        >>> words = Table(vectors, {"UUUNKKK": 0, "a": 1, "cat": 2})
        >>> ParaNMTEncoder({"words": words}, name="cats", revision="1").encode(["A cat."])
        array([[2., 3.]], dtype=float32)
    """

    def __init__(self, tables: Mapping[str, Table], *, name: str, revision: str, combination: str = "concat") -> None:
        units: dict[str, _Units] = {"trigrams": _trigrams, "words": _words}
        kinds = [kind for kind in units if kind in tables]
        self._means = [partial(_mean, tables[kind], units[kind]) for kind in kinds]
        dims = [tables[kind].vectors.shape[1] for kind in kinds]
        if combination == "add" and (len(dims) != 2 or len(set(dims)) != 1):
            raise InputError(f"encoder {name!r} has vectors of {dims}: combination=add needs two of the same length")
        self._add = combination == "add"
        extra = (("combination", combination),) if len(dims) == 2 else ()
        self._spec = EncoderSpec(name, "paranmt", dims[0] if self._add else sum(dims), revision, extra=extra)

    def embed(self, sentences: list[str]) -> FloatArray:
        """Sum one sentence at a time in double precision, so that a vector cannot depend on the batch."""
        result = np.empty((len(sentences), self._spec.dim), np.float32)
        for row, sentence in zip(result, sentences, strict=True):
            phrase = sentence.strip().lower()
            means = [mean(phrase) for mean in self._means]
            row[:] = sum(means) if self._add else np.concatenate(means)
        return result


def _words(phrase: str) -> Iterator[str]:
    return map(re.Match.group, _WORD.finditer(phrase))


def _trigrams(phrase: str) -> Iterator[str]:
    padded = f" {phrase} "
    return map("".join, zip(padded, padded[1:], padded[2:], strict=False))


def _mean(table: Table, units: _Units, phrase: str) -> NDArray[np.float64]:
    """Return the mean over the units' vectors; each distinct row is read once, however often it occurs."""
    rows, unknown = table.rows, table.rows[_UNKNOWN]
    counts: Counter[int] = Counter()
    remaining = units(phrase)
    while block := Counter(islice(remaining, _UNITS)):
        for unit, count in block.items():
            row = rows.get(unit)
            counts[rows.get(unit.translate(_punctuation()), unknown) if row is None else row] += count
    if not counts:
        counts[unknown] = 1
    ids = np.fromiter(counts, np.intp, len(counts))
    weights = np.fromiter(counts.values(), np.float64, len(counts))
    weights /= weights.sum()
    total = np.zeros(table.vectors.shape[1])
    for some in (slice(start, start + _ROWS) for start in range(0, len(ids), _ROWS)):
        total += weights[some] @ table.vectors[ids[some]].astype(np.float64)
    return total


@cache
def _punctuation() -> dict[int, None]:
    """Return the table for `str.translate` that removes the characters of Unicode's categories of punctuation."""
    return dict.fromkeys(i for i in range(sys.maxunicode + 1) if unicodedata.category(chr(i)).startswith("P"))


def open_paranmt(request: Request) -> ParaNMTEncoder:
    """Open `paranmt:FILE`: a pickle of the authors', a zip with it, or a converted file; or the URL of one."""
    options = request.options(combination=one_of("concat", "add"))
    try:
        path = download(request.location, progress=request.progress) if is_url(request.location) else None
    except InputError as error:
        raise InputError(f"encoder {request.name!r}: {error}") from error
    except PullError as error:
        raise PullError(f"encoder {request.name!r}: {error}; a copy on this machine opens as paranmt:FILE") from error
    path = path or request.path
    if not path.is_file():
        raise InputError(f"encoder {request.name!r}: there is no file {path}")
    tables, revision = _read_tables(path, f"encoder {request.name!r}: {path}", request.progress)
    return ParaNMTEncoder(tables, name=request.name, revision=revision, **options)


def _read_tables(path: Path, name: str, progress: Progress) -> tuple[dict[str, Table], str]:
    """Return the tables `trigrams` and `words` (or one of them), and the hash over their content, in any format."""
    if path.suffix == ".safetensors":
        tensors = _load(path, name)
        return _tables(tensors, name), remembered(path, "paranmt", lambda: _hash(tensors))
    revision = remembered(path, "paranmt", lambda: _convert(path, name, progress))
    with contextlib.suppress(EncoderError):  # the converted file is missing or damaged: make it again
        return _tables(_load(_converted(revision), name), name), revision
    revision = _convert(path, name, progress)
    return _tables(_load(_converted(revision), name), name), revision


def _converted(revision: str) -> Path:
    return cache_dir() / "paranmt" / f"{revision}.safetensors"


def _convert(path: Path, name: str, progress: Progress) -> str:
    """Write the file's tables to the cache under their hash, and return it."""
    from safetensors.numpy import save

    with _opened_pickle(path, name) as (stream, size):
        value = read_pickle(stream, name=name, size=size, label=f"convert {path.name}", progress=progress)
    tensors = _tensors(value, name)
    revision = _hash(tensors)
    target = _converted(revision)
    try:
        make_folder(target.parent)
        write_atomically(target, save(tensors))
    except OSError as error:
        way_out = "make room, set its rights or name another in ENSEMBED_CACHE"
        raise EncoderError(f"{name} cannot be converted into {target.parent}: {error}; {way_out}") from error
    return revision


@contextlib.contextmanager
def _opened_pickle(path: Path, name: str) -> Iterator[tuple[BinaryIO, int]]:
    """Yield the pickle and its length: the file itself, or the member of a zip."""
    try:
        with path.open("rb") as file:
            if path.suffix != ".zip" and file.peek(2)[:2] != b"PK":
                yield file, path.stat().st_size
                return
            with zipfile.ZipFile(file) as archive:
                member = _member_of(archive, name)
                with archive.open(member) as stream:
                    # A zip's own stream is slow with single bytes; it reads as a raw one, which its type does not say.
                    yield io.BufferedReader(stream, 1 << 20), member.file_size  # type: ignore[type-var] # see above
    except (
        OSError,
        EOFError,
        RuntimeError,
        UnicodeDecodeError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
    ) as error:
        raise EncoderError(f"{name} cannot be read: {error}; get it again") from error


def _member_of(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    pickles = [member for member in archive.infolist() if member.filename.endswith((".pickle", ".pkl"))]
    chosen = [member for member in pickles if Path(member.filename).name == MEMBER] or pickles
    if len(chosen) != 1:
        names = ", ".join(member.filename for member in pickles[:9]) or "none"
        raise EncoderError(f"{name} should hold one {MEMBER}; its pickles: {names}; unpack one")
    packed, unpacked = chosen[0].compress_size, chosen[0].file_size
    if unpacked > ARCHIVE_RATIO * max(packed, 1):  # vectors hardly compress: this one would fill the memory
        sizes = f"{packed:,} to {unpacked:,} bytes"
        raise EncoderError(f"{name} is refused: {chosen[0].filename} would unpack from {sizes}, which no vectors do")
    return chosen[0]


def _tensors(value: object, name: str) -> _Tensors:
    """Convert a pickle's `[We, words]` or `[We_trigrams, We_words, (trigrams, words)]` to tensors."""
    *matrices, index = value if isinstance(value, list) and value else [None]
    indices = [index] if isinstance(index, dict) else index
    if (
        not isinstance(indices, (list, tuple))
        or not all(isinstance(matrix, np.ndarray) for matrix in matrices)
        or not all(isinstance(rows, dict) for rows in indices)
        or not len(matrices) == len(indices) in (1, 2)
    ):
        arrays = sum(isinstance(matrix, np.ndarray) for matrix in matrices)
        expected = "[vectors, words] or [trigram vectors, word vectors, (trigrams, words)]"
        way_out = f"where {expected} is read; models with an LSTM are not"
        raise EncoderError(f"{name} is another kind of model: it holds {arrays} arrays, {way_out}")
    named = [_decoded(rows, name) for rows in indices]
    keys = [key for key in named[0] if key != _UNKNOWN]
    trigrams = all(len(key) == 3 for key in keys) and any(" " in key for key in keys)
    tables = ["trigrams", "words"] if len(named) == 2 else ["trigrams" if trigrams else "words"]
    tensors: _Tensors = {}
    for table, matrix, rows in zip(tables, matrices, named, strict=True):
        _check_table(matrix, rows, f"{name}: {table}")
        keys = sorted(rows, key=lambda key: (rows[key], key))
        tensors[f"{table}.vectors"] = np.ascontiguousarray(matrix, np.float32)
        tensors[f"{table}.text"] = np.frombuffer("".join(keys).encode("utf-8", "surrogatepass"), np.uint8)
        tensors[f"{table}.ends"] = np.cumsum([len(key) for key in keys], dtype=np.int64)  # in characters
        tensors[f"{table}.rows"] = np.array([rows[key] for key in keys], np.int64)
    return tensors


def _decoded(rows: dict[Any, Any], name: str) -> dict[str, int]:
    """Return the index by text: a string of Python 2 is usually UTF-8; otherwise Latin-1 accepts any byte."""
    result: dict[str, int] = {}
    for key, row in rows.items():
        with contextlib.suppress(UnicodeDecodeError):
            key = key.decode() if isinstance(key, bytes) else key
        key = key.decode("latin-1") if isinstance(key, bytes) else key
        if not isinstance(key, str) or type(row) is not int:
            raise EncoderError(f"{name}: an index has a {type(row).__name__} for a {type(key).__name__}, no row number")
        result[key] = row
    return result


def _check_table(matrix: NDArray[Any], rows: Mapping[str, int], name: str) -> None:
    if matrix.ndim != 2 or matrix.dtype.kind != "f" or 0 in matrix.shape:
        raise EncoderError(f"{name} are {matrix.dtype} of shape {matrix.shape}, not a matrix of vectors")
    if _UNKNOWN not in rows:
        raise EncoderError(f"{name} have no vector for the unknown, {_UNKNOWN}")
    if not 0 <= min(rows.values()) <= max(rows.values()) < len(matrix):
        raise EncoderError(f"{name} have row numbers up to {max(rows.values())}, but there are {len(matrix)} vectors")
    if not np.isfinite(matrix).all():
        raise EncoderError(f"{name} hold NaN or Inf")


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
        check_tensor_header(path)
        return load_file(path)
    except (OSError, ValueError, OverflowError, SafetensorError) as error:
        raise EncoderError(f"{name} cannot be opened from {path}: {error}") from error


def _tables(tensors: _Tensors, name: str) -> dict[str, Table]:
    """Convert the tensors of a converted file to tables."""
    names = [table for table in ("trigrams", "words") if f"{table}.vectors" in tensors]
    expected = {f"{table}.{part}": ndim for table in names for part, ndim in _PARTS.items()}
    if not names or {key: tensor.ndim for key, tensor in tensors.items()} != expected:
        raise EncoderError(f"{name} holds the tensors {sorted(tensors)[:9]}, which no converted ParaNMT file has")
    tables = {}
    for table in names:
        vectors, text, ends, rows = (tensors[f"{table}.{part}"] for part in _PARTS)
        try:
            joined = text.astype(np.uint8, casting="safe").tobytes().decode("utf-8", "surrogatepass")
            stops = ends.tolist()
            keys = [joined[start:stop] for start, stop in zip([0, *stops[:-1]], stops, strict=True)]
            index: dict[str, int] = dict(zip(keys, rows.astype(np.int64, casting="safe").tolist(), strict=True))
        except (ValueError, TypeError) as error:
            raise EncoderError(f"{name}: the {table} are damaged: {error}") from error
        _check_table(vectors, index, f"{name}: {table}")
        tables[table] = Table(np.ascontiguousarray(vectors, np.float32), index)
    return tables
