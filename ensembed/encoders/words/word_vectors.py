"""Word vectors that open at once, and the words of a sentence in them.

The first opening of a file converts it into a folder of the cache, which is mapped into memory. A sentence is split by
rules for vocabularies like GloVe's; text of languages without spaces has to be split into words beforehand.

1. A piece is a run of letters and digits, with apostrophes, hyphens, dots, commas, slashes, `&`, `+` and `_` inside;
   `U.S.` keeps its last dot. All else is dropped: words without a letter or digit say little, and often.
2. A piece that the vocabulary has, as it is written or in lower case, is one token.
3. Else `don't` is `do` and `n't` (`not` where there is no `n't`), `dog's` is `dog` and `'s`, and so on; a stem that
   is no word by itself is mended (`can't`, `won't`).
4. Else it falls into its runs of letters and digits: `well-known` is `well` and `known`.
5. Words that the vocabulary does not have are left out.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.model_files import remembered, revision_of, state_of
from ensembed.encoders.words.word_vector_files import Block, detect_format, read_word_vectors
from ensembed.errors import EncoderError, InputError
from ensembed.support.atomic_files import alone, new_folder, npy_header, sync, write_atomically, write_rows
from ensembed.support.file_limits import open_regular, read_json
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, silent

TOKENS_VERSION = "1"
"""The version of the rules above: part of the key of an encoder."""

_FORMAT_VERSION = 2
_FILE = "vectors.json"  # as in the catalogue, so that the same file has the same key, whichever way it came
_MANIFEST = "manifest.json"
_VECTORS, _HASHES, _ROWS, _OFFSETS, _WORDS = "vectors.npy", "hashes.npy", "rows.npy", "offsets.npy", "words.txt"

# Marks that belong to the letter before them, which \w leaves out: Latin, Hebrew, Arabic, Indic, Thai and Lao.
_MARKS = (
    "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u0e31-\u0e4e\u0eb1-\u0ecd"
)
_PIECE = re.compile(rf"(?:[^\W\d_]\.){{2,16}}|[^\W_](?:[\w{_MARKS}'’.,&/+-]*(?:[^\W_]|[{_MARKS}]))?")
_RUN = re.compile(rf"(?:[^\W_]+|[{_MARKS}]+)+")
_CONTRACTION = re.compile(r"(.+)(n't|'(?:s|re|ve|ll|d|m))", re.IGNORECASE)
_STEMS = {"ca": "can", "wo": "will", "sha": "shall"}
_LONGEST = 256  # no vocabulary has longer words; longer pieces fall into their runs at once
_MOST_CACHED = 1 << 18


class WordVectors:
    """Word vectors [n, d] in a folder that `open_word_vectors` made, and the revision and format of their file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifest = _manifest(folder)
        if manifest is None:
            raise EncoderError(f"{folder} does not hold whole word vectors; delete it, and they are converted again")
        try:
            self.revision, self.format = str(manifest["revision"]), str(manifest["format"])
            count, dim = int(manifest["words"]), int(manifest["dim"])
            self.vectors = _map(folder / _VECTORS, (count, dim), "<f4")
            self._hashes = _map(folder / _HASHES, (count,), "<u8")
            self._rows = _map(folder / _ROWS, (count,), "<u4")
            self._offsets = _map(folder / _OFFSETS, (count + 1,), "<i8")
            with open_regular(folder / _WORDS) as file:
                self._words = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise EncoderError(f"{folder} is damaged: {error}; delete it, and it is made again") from error
        if self._rows.max(initial=0) >= count:
            raise EncoderError(f"{folder / _ROWS} is damaged: it has numbers of other rows; delete the folder")

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return int(self.vectors.shape[1])

    def __len__(self) -> int:
        """Return the number of vectors; words that the file has twice count twice."""
        return len(self.vectors)

    def row(self, word: str) -> int:
        """Return the row of a word, exactly as it is written, or -1."""
        spelled = word.encode()
        key = np.uint64(_hash(spelled))
        at = int(np.searchsorted(self._hashes, key))
        while at < len(self._hashes) and self._hashes[at] == key:
            row = int(self._rows[at])
            if self._spelled(row) == spelled:
                return row
            at += 1  # two words may share a hash
        return -1

    def word(self, row: int) -> str:
        """Return the word of a row; bytes that are not UTF-8 are replaced."""
        return self._spelled(row).decode("utf-8", "replace")

    def _spelled(self, row: int) -> bytes:
        return self._words[self._offsets[row] : self._offsets[row + 1] - 1]  # each word ends with a newline


class WordFinder:
    """Finds the rows of a sentence's words; `row` returns the row of a word, exactly as it is written, or -1.

    Example:
        >>> vocabulary = ["do", "not", "dogs", "well", "known"]
        >>> finder = WordFinder(lambda word: vocabulary.index(word) if word in vocabulary else -1)
        >>> [vocabulary[row] for rows in finder.find("Don't well-known dogs bark?") for row in rows]
        ['do', 'not', 'well', 'known', 'dogs']
    """

    def __init__(self, row: Callable[[str], int]) -> None:
        self._row = row
        self.rows_of = lru_cache(_MOST_CACHED)(lambda piece: tuple(self._rows(piece.replace("’", "'"))))

    def find(self, sentence: str) -> Iterator[tuple[int, ...]]:
        """Yield the rows, a tuple for each piece of the sentence."""
        if not sentence.isascii():
            sentence = unicodedata.normalize("NFC", sentence)
        rows_of = self.rows_of
        for piece in map(re.Match.group, _PIECE.finditer(sentence)):
            if len(piece) <= _LONGEST:
                yield rows_of(piece)
            else:
                runs = map(re.Match.group, _RUN.finditer(piece))
                yield from (rows_of(run) for run in runs if len(run) <= _LONGEST)

    def _rows(self, piece: str) -> Iterator[int]:
        if (whole := self._word(piece)) >= 0:
            yield whole
        elif contraction := _CONTRACTION.fullmatch(piece):
            stem, ending = contraction[1], contraction[2].lower()
            if ending == "n't":
                stem = _STEMS.get(stem.lower(), stem)
            yield from self._rows(stem)
            if (row := self._word(ending)) >= 0 or (ending == "n't" and (row := self._word("not")) >= 0):
                yield row
        else:
            yield from (row for run in _RUN.finditer(piece) if (row := self._word(run[0])) >= 0)

    def _word(self, word: str) -> int:
        row = self._row(word)
        return row if row >= 0 or word.islower() else self._row(word.lower())


def open_word_vectors(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002 - what the option is called
    revision: str | None = None,
    progress: Progress = silent,
) -> WordVectors:
    """Open the vectors of a file, converted into the cache once; None finds out the format or hashes the file."""
    if not path.is_file():
        raise InputError(
            f"{path} is a folder, not a file of word vectors"
            if path.is_dir()
            else f"there is no file of word vectors {path}: name one, or take the catalogue's: ensembed pull glove"
        )
    format = detect_format(path) if format is None else "word2vec" if format == "fasttext" else format  # noqa: A001 - what the option is called
    if revision is None:
        label = f"hash {path.name}"
        revision = remembered(path, "vectors", lambda: revision_of({_FILE: path}, label=label, progress=progress))
    folder = cache_dir() / "words" / f"{revision}-{format}"
    if _manifest(folder) is None:
        try:
            with alone(folder.with_name(f".{folder.name}.lock"), "conversion", progress):
                if _manifest(folder) is None:  # no other process made it while we waited
                    _convert(path, format, revision, folder, progress)
        except OSError as error:
            failure = f"cannot convert {path} into the cache {cache_dir()}: {error.strerror or error}"
            raise EncoderError(f"{failure}; make room, set its rights or name another in ENSEMBED_CACHE") from error
    return WordVectors(folder)


def _convert(path: Path, format: str, revision: str, folder: Path, progress: Progress) -> None:  # noqa: A002 - what the option is called
    before = state_of(path)
    with new_folder(folder) as temporary:
        words, dim = _write(read_word_vectors(path, format, progress=progress), temporary)
        if state_of(path) != before:
            raise InputError(f"{path} changed while it was being converted; run again")
        facts: dict[str, Any] = {"version": _FORMAT_VERSION, "revision": revision, "format": format}
        hashes = {file.name: revision_of({file.name: file}) for file in sorted(temporary.iterdir())}
        facts |= {"words": words, "dim": dim, "files": hashes}
        write_atomically(temporary / _MANIFEST, json.dumps(facts | {"checksum": _checksum(facts)}).encode())


def _write(blocks: Iterator[Block], folder: Path) -> tuple[int, int]:
    """Write all files but the manifest, with 16 bytes a word in memory; return the shape of the vectors."""
    hashes, offsets = array("Q"), array("q", [0])
    block: Block | None = next(blocks)
    dim = block[1].shape[1] if block else 0
    with (folder / _WORDS).open("wb") as text, write_rows(folder / _VECTORS, dim) as vectors:
        while block is not None:
            words, numbers = block
            vectors.append(numbers)
            for word in words:
                hashes.append(_hash(word))
                offsets.append(offsets[-1] + len(word) + 1)
            text.write(b"\n".join(words) + b"\n")
            block = next(blocks, None)
    keys = np.frombuffer(hashes, np.uint64)
    order = np.argsort(keys, kind="stable")  # of equal words the first comes first, and is found
    np.save(folder / _HASHES, keys[order])
    np.save(folder / _ROWS, order.astype(np.uint32))
    np.save(folder / _OFFSETS, np.frombuffer(offsets, np.int64))
    for name in (_WORDS, _HASHES, _ROWS, _OFFSETS):
        sync(folder / name)
    return len(hashes), dim


def _map(path: Path, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Map an `.npy` file of this shape; a plain array, since numpy's own class for it makes every look-up slow."""
    header = npy_header(shape, dtype)
    with open_regular(path) as file:
        if file.read(len(header)) != header:
            raise ValueError(f"{path.name} does not hold {dtype} {shape}")
        return np.asarray(np.memmap(file, np.dtype(dtype), "r", len(header), shape))


def _manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder whose files are as they were written, or None."""
    try:
        facts: dict[str, Any] = read_json(folder / _MANIFEST)
        checksum = facts.pop("checksum")
        if checksum != _checksum(facts) or facts["version"] != _FORMAT_VERSION:
            return None
        for name, digest in facts["files"].items():
            file = folder / name
            if remembered(file, "converted", partial(revision_of, {name: file})) != digest:
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return facts


def _checksum(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _hash(word: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little")
