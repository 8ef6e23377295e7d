"""Word vectors on disk in a form that opens at once: converted from a file once, then mapped into memory.

A folder of the cache holds the vectors [n, d], the words one after the other, where each begins, and the sorted hashes
of the words with their rows. A word is found by its hash and compared in full, so nothing has to be loaded and no
dictionary of millions of words is built. The folder is made under a temporary name and renamed when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.file_hashes import remembered, revision_of, state_of
from ensembed.encoders.words.word_vector_files import Block, detect_format, read_word_vectors
from ensembed.errors import EncoderError, InputError
from ensembed.support.atomic_files import alone, new_folder, sync, write_atomically
from ensembed.support.machine import cache_dir
from ensembed.support.npy_files import write_rows
from ensembed.support.progress import Progress, silent

_VERSION = 2
# What the catalogue calls a file of vectors: the same file has the same key, whichever way it came.
_FILE = "vectors.json"
_MANIFEST = "manifest.json"
_VECTORS, _HASHES, _ROWS, _OFFSETS, _WORDS = "vectors.npy", "hashes.npy", "rows.npy", "offsets.npy", "words.txt"


class WordVectors:
    """Converted word vectors, mapped into memory.

    Args:
        folder: a folder that `open_word_vectors` made.

    Attributes:
        vectors: float32 [n, d].
        revision: pins the file that they come from.
        format: the format of that file.
    """

    def __init__(self, folder: Path) -> None:
        manifest = _manifest(folder)
        if manifest is None:
            raise EncoderError(f"{folder} does not hold whole word vectors; delete it, and they are converted again")
        self.revision: str = manifest["revision"]
        self.format: str = manifest["format"]
        self.vectors: NDArray[np.float32] = _mapped(folder / _VECTORS)
        self._hashes = _mapped(folder / _HASHES)
        self._rows = _mapped(folder / _ROWS)
        self._offsets = _mapped(folder / _OFFSETS)
        with (folder / _WORDS).open("rb") as file:
            self._words = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return int(self.vectors.shape[1])

    def __len__(self) -> int:
        """The number of vectors; words that the file has twice are counted twice."""
        return len(self.vectors)

    def row(self, word: str) -> int:
        """The row of a word, exactly as it is written; -1 for one that is not there."""
        spelled = word.encode()
        wanted = np.uint64(_hash(spelled))
        at = int(np.searchsorted(self._hashes, wanted))
        while at < len(self._hashes) and self._hashes[at] == wanted:
            row = int(self._rows[at])
            if self._spelled(row) == spelled:
                return row
            at += 1  # two words may share a hash
        return -1

    def word(self, row: int) -> str:
        """The word of a row; bytes that are not UTF-8 are replaced."""
        return self._spelled(row).decode("utf-8", "replace")

    def _spelled(self, row: int) -> bytes:
        return self._words[self._offsets[row] : self._offsets[row + 1] - 1]  # each word ends with a newline


def open_word_vectors(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002 - what the option is called
    revision: str | None = None,
    progress: Progress = silent,
) -> WordVectors:
    """The vectors of a file, converted into the cache when they are not there yet.

    Args:
        path: a file that `words.files` reads.
        format: one of its formats; None recognises it from the content.
        revision: pins the content; None hashes the file, once for as long as it is not written to.
        progress: told of bytes that are hashed and converted.

    Raises:
        InputError: the file cannot be read.
        EncoderError: the file is damaged, or the cache cannot be written.
    """
    if not path.is_file():
        raise InputError(f"{path} is a folder, not a file of word vectors" if path.is_dir() else f"there is no {path}")
    format = detect_format(path) if format is None else "word2vec" if format == "fasttext" else format  # noqa: A001 - what the option is called
    if revision is None:
        label = f"hash {path.name}"
        revision = remembered(path, "vectors", lambda: revision_of({_FILE: path}, label=label, progress=progress))
    folder = cache_dir() / "words" / f"{revision}-{format}"
    if _manifest(folder) is None:
        try:
            with alone(folder.with_name(f".{folder.name}.lock"), "conversion", progress):
                if _manifest(folder) is None:  # nobody else made it while we waited
                    _convert(path, format, revision, folder, progress)
        except OSError as error:
            raise EncoderError(
                f"cannot convert {path} into the cache {cache_dir()}: {error.strerror or error}; "
                "make room or set its rights, or name another folder in ENSEMBED_CACHE"
            ) from error
    return WordVectors(folder)


def _convert(path: Path, format: str, revision: str, folder: Path, progress: Progress) -> None:  # noqa: A002 - what the option is called
    """Make the folder, under a temporary name first."""
    before = state_of(path)
    with new_folder(folder) as temporary:
        rows, dim = _write(read_word_vectors(path, format, progress=progress), temporary)
        if state_of(path) != before:
            raise InputError(f"{path} changed while it was being converted; run again")
        facts = {
            "version": _VERSION,
            "revision": revision,
            "format": format,
            "words": rows,
            "dim": dim,
            "files": {file.name: revision_of({file.name: file}) for file in sorted(temporary.iterdir())},
        }
        write_atomically(temporary / _MANIFEST, json.dumps(facts | {"checksum": _checksum(facts)}).encode())


def _write(blocks: Iterator[Block], folder: Path) -> tuple[int, int]:
    """Write all files but the manifest; 16 bytes a word are in memory. Returns the shape of the vectors."""
    hashes, offsets = array("Q"), array("q", [0])
    first = next(blocks)
    dim = first[1].shape[1]
    with (folder / _WORDS).open("wb") as text, write_rows(folder / _VECTORS, dim) as vectors:
        block: Block | None = first
        while block is not None:
            words, numbers = block
            vectors.append(numbers)
            for word in words:
                hashes.append(_hash(word))
                offsets.append(offsets[-1] + len(word) + 1)
            text.write(b"\n".join(words) + b"\n")
            block = next(blocks, None)
    sync(folder / _WORDS)
    keys = np.frombuffer(hashes, np.uint64)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    with (folder / _WORDS).open("rb") as file:
        text_map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        keep = _first_of_each(keys, order, lambda row: text_map[offsets[row] : offsets[row + 1] - 1])
        text_map.close()
    for name, values in (
        (_HASHES, keys[keep]),
        (_ROWS, order[keep].astype(np.uint32)),
        (_OFFSETS, np.frombuffer(offsets, np.int64)),
    ):
        np.save(folder / name, values)
        sync(folder / name)
    return len(hashes), dim


def _first_of_each(keys: NDArray[np.uint64], order: NDArray[np.intp], spelled: Any) -> NDArray[np.bool_]:  # noqa: ANN401 - a function of the row
    """Which [n] of the sorted keys are kept: of a word that comes twice the first; the sort left its rows in order."""
    keep = np.ones(len(keys), bool)
    seen: set[bytes] = set()
    for at in np.flatnonzero(keys[1:] == keys[:-1]) + 1:
        if at < 2 or keys[at - 2] != keys[at]:  # the second of its hash
            seen = {spelled(order[at - 1])}
        word = spelled(order[at])
        keep[at] = word not in seen
        seen.add(word)
    return keep


def _manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder whose files are what was written, or None.

    What was hashed before and has not been written to since is not hashed again.
    """
    try:
        facts = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        checksum = facts.pop("checksum")
        if checksum != _checksum(facts) or facts["version"] != _VERSION:
            return None
        whole = all(_hash_of(folder / name) == digest for name, digest in facts["files"].items())
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return dict(facts) if whole else None


def _hash_of(file: Path) -> str:
    return remembered(file, "converted", lambda: revision_of({file.name: file}))


def _checksum(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _mapped(path: Path) -> NDArray[Any]:
    """A plain array over the file: numpy's own class for it makes every look-up slow."""
    array: NDArray[Any] = np.load(path, mmap_mode="r").view(np.ndarray)
    return array


def _hash(word: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little")
