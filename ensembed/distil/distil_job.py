"""A job: all that the training of a student needs, in one folder, so that it can run anywhere that has torch.

`tokens.npy` has the token numbers of all sentences, one after the other, `offsets.npy` where each sentence begins,
`targets.npy` the directions of the teacher's vectors in 8-bit integers (their cosine with the exact ones is above
0.9999), `start.safetensors` the student's first weights, `tokenizer.json` what made the token numbers. `job.json` is
written last and holds the hashes of the others.
The arrays are mapped into memory, not read: text larger than memory works.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ensembed.errors import ModelError
from ensembed.support.atomic_files import make_folder, new_file, npy_header, write_atomically
from ensembed.support.checks import sha256_of
from ensembed.support.file_limits import read_json

JOB = "job.json"
START = "start.safetensors"
TOKENIZER = "tokenizer.json"
_ARRAYS = {"tokens.npy": 1, "offsets.npy": 1, "targets.npy": 2}
_FORMAT = 1
_LARGEST = 127  # of an 8-bit integer
_MOST_HELD = 4000


def split_rows(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that are held out, a tenth and at most 4,000, and those to train on; both rise."""
    order = np.random.default_rng([seed, 0]).permutation(count)
    held = min(_MOST_HELD, count // 10)
    return np.sort(order[:held]), np.sort(order[held:])


@dataclass(frozen=True, eq=False)
class Rows:
    """Some sentences of a job: their tokens one after the other, where each begins, and the teacher's directions."""

    tokens: NDArray[np.int64]  # [t]
    offsets: NDArray[np.int64]  # [b + 1]
    targets: NDArray[np.float32]  # [b, d] of length one; zero where the teacher says nothing


@dataclass(frozen=True, eq=False)
class Job:
    """A job that is complete.

    Attributes:
        folder: its folder.
        facts: what `job.json` holds: the student's kind and settings, how to train it, where everything comes from.
        tokens, offsets, targets: the arrays of the files of these names.
    """

    folder: Path
    facts: Mapping[str, Any]
    tokens: NDArray[Any]
    offsets: NDArray[np.int64]
    targets: NDArray[np.int8]

    @property
    def dim(self) -> int:
        """The dimensions of the student."""
        return int(self.targets.shape[1])

    def __len__(self) -> int:
        return int(self.targets.shape[0])

    @property
    def identity(self) -> str:
        """A hash of everything that determines the training."""
        return hashlib.sha256(json.dumps(dict(self.facts), sort_keys=True).encode()).hexdigest()[:32]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[n] the number of tokens of each sentence."""
        return np.diff(self.offsets)

    def rows(self, numbers: NDArray[np.int64]) -> Rows:
        """Return the sentences of these numbers, in their order."""
        starts, lengths = self.offsets[numbers], self.offsets[numbers + 1] - self.offsets[numbers]
        offsets = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return Rows(self.tokens[places].astype(np.int64), offsets, decode(self.targets[numbers]))

    def start(self) -> dict[str, NDArray[Any]]:
        """Return the student's first weights."""
        try:
            return load((self.folder / START).read_bytes())
        except (OSError, SafetensorError, ValueError, OverflowError) as error:
            raise ModelError(f"{self.folder / START} cannot be read: {error}; prepare the job again") from error

    def tokenizer(self) -> bytes:
        """Return the content of the tokenizer's file."""
        return (self.folder / TOKENIZER).read_bytes()

    @classmethod
    def open(cls, folder: Path) -> Job:
        """Open a job; a ModelError says what is damaged."""
        try:
            facts = read_json(folder / JOB)
            hashes = facts["sha256"]  # they stay among the facts: `identity` covers the arrays
            if facts["format"] != _FORMAT or set(hashes) != {*_ARRAYS, START, TOKENIZER}:
                raise ValueError(f"it is of another format than {_FORMAT}")  # noqa: TRY301 - named below
            if wrong := [name for name, digest in hashes.items() if sha256_of(folder / name) != digest]:
                raise ValueError(f"{wrong[0]} was changed or is incomplete")  # noqa: TRY301 - named below
            arrays = [np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in _ARRAYS]
            tokens, offsets, targets = arrays
            if [array.ndim for array in arrays] != list(_ARRAYS.values()):
                raise ValueError("its arrays have other dimensions")  # noqa: TRY301 - named below
            offsets = np.asarray(offsets, np.int64)
            ends = (offsets[0], offsets[-1], len(offsets))
            if ends != (0, len(tokens), len(targets) + 1) or (np.diff(offsets) < 0).any():
                raise ValueError("its arrays do not belong together")  # noqa: TRY301 - named below
        except FileNotFoundError as error:
            raise ModelError(f"{folder} is no job: there is no {Path(error.filename).name} in it") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ModelError(f"{folder} cannot be read as a job: {error}; prepare it again") from error
        return cls(folder, facts, tokens, offsets, targets)


class JobWriter:
    """Writes the sentences of a job; `job_writer` makes it."""

    def __init__(self, tokens: BinaryIO, targets: BinaryIO, dtype: np.dtype[Any]) -> None:
        self._tokens, self._targets, self._dtype = tokens, targets, dtype
        self.lengths: list[NDArray[np.int64]] = []

    def append(self, ids: list[list[int]], targets: NDArray[Any]) -> None:
        """Add sentences: their tokens, and the teacher's vectors [b, d] of them."""
        self.lengths.append(np.array([len(row) for row in ids], np.int64))
        for row in ids:
            self._tokens.write(np.array(row, self._dtype).tobytes())
        self._targets.write(encode(targets).tobytes())


@contextmanager
def job_writer(folder: Path, vocabulary: int, dim: int) -> Iterator[JobWriter]:
    """Write the sentences of a job into a folder, which is made; `finish_job` completes it."""
    dtype = np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")
    make_folder(folder)
    (folder / JOB).unlink(missing_ok=True)
    with (
        new_file(folder / "tokens.npy") as tokens_file,
        new_file(folder / "targets.npy") as targets_file,
        tokens_file.open("wb") as tokens,
        targets_file.open("wb") as targets,
    ):
        tokens.write(npy_header((0,), dtype.str))
        targets.write(npy_header((0, dim), "|i1"))
        writer = JobWriter(tokens, targets, dtype)
        yield writer
        lengths = np.concatenate(writer.lengths) if writer.lengths else np.empty(0, np.int64)
        tokens.seek(0)
        tokens.write(npy_header((int(lengths.sum()),), dtype.str))  # as long as the first: numpy leaves room to grow
        targets.seek(0)
        targets.write(npy_header((len(lengths), dim), "|i1"))
    with new_file(folder / "offsets.npy") as path, path.open("wb") as file:
        np.save(file, np.concatenate([[0], np.cumsum(lengths)]).astype("<i8"))


def finish_job(folder: Path, start: Mapping[str, NDArray[Any]], tokenizer: bytes, facts: Mapping[str, Any]) -> Job:
    """Write the student's first weights, the tokenizer and `job.json`, and open the job."""
    write_atomically(folder / START, save({name: np.ascontiguousarray(array) for name, array in start.items()}))
    write_atomically(folder / TOKENIZER, tokenizer)
    hashes = {name: sha256_of(folder / name) for name in (*_ARRAYS, START, TOKENIZER)}
    content = {**facts, "format": _FORMAT, "sha256": hashes}
    write_atomically(folder / JOB, json.dumps(content, indent=1).encode() + b"\n")
    return Job.open(folder)


def encode(vectors: NDArray[Any]) -> NDArray[np.int8]:
    """Return the directions of vectors [n, d] in 8-bit integers; a zero vector stays zero."""
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.rint(vectors / np.where(largest > 0, largest, 1) * _LARGEST)
    return scaled.astype(np.int8)


def decode(codes: NDArray[np.int8]) -> NDArray[np.float32]:
    """Return the vectors of length one [n, d] with the directions of the codes."""
    vectors = codes.astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)
