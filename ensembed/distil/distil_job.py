"""A job: all that the training of a student needs, in one folder, so that it can run anywhere that has torch.

`tokens.npy` has the token numbers of all sentences, one after the other, `offsets.npy` where each sentence begins,
`targets.npy` the directions of the teacher's vectors in 8-bit integers (their cosine with the exact ones is above
0.9999), `start.safetensors` the student's first weights, `tokenizer.json` what made the token numbers. `job.json` is
written last and holds the hashes of the others, and one of itself. Hashes that fit do not prove that the author means
well: what a training relies on is checked when a job is opened. The arrays are mapped into memory, not read: a corpus
may be larger than memory.
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
from ensembed.support.checks import fits, sha256_of
from ensembed.support.file_limits import map_npy, read_json

JOB = "job.json"
START = "start.safetensors"
TOKENIZER = "tokenizer.json"
LEAST_SENTENCES = 100
_ARRAYS = {"tokens.npy": ("<u2", "<u4"), "offsets.npy": ("<i8",), "targets.npy": ("|i1",)}
_FORMAT = 2
_TRAINING = {"epochs": int, "batch_size": int, "learning_rate": float, "whiten": float, "leading": [int], "seed": int}
_TRAINING |= {"near": float, "patience": (int, None)}
_INGREDIENT = {"name": str, "licence": str}
_SOURCE = {"corpus": str, "corpus_key": str, "start": [_INGREDIENT]}
_SOURCE |= {"teacher": {"name": str, "members": [_INGREDIENT | {"weight": float}]}}
_FACTS: dict[str, Any] = {"student": str, "dim": int, "vocabulary": int, "max_length": int, "variants": int}
_FACTS |= {"training": _TRAINING, "source": _SOURCE}
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
_BERT = {"layer_norm_eps": float} | dict.fromkeys((*_SIZES, "max_position_embeddings", "type_vocab_size"), int)
_LINEAR = (
    *(f"attention.self.{part}" for part in ("query", "key", "value")),
    *("attention.output.dense", "intermediate.dense", "output.dense"),
)
_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
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

    def split(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows that are held out, and those to train on: variants, the last rows, are never held out."""
        sentences = len(self) - int(self.facts["variants"])
        held, rest = split_rows(sentences, int(self.facts["training"]["seed"]))
        return held, np.concatenate([rest, np.arange(sentences, len(self))])

    @property
    def identity(self) -> str:
        """A hash of everything that determines the training."""
        return seal(self.facts)[:32]

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
        """Return the student's first weights; a ModelError says what is wrong with them."""
        path = self.folder / START
        try:
            return read_weights(path.read_bytes(), self.facts, trained=False)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} cannot be read: {error}; prepare the job again") from error

    def tokenizer(self) -> bytes:
        """Return the content of the tokenizer's file."""
        return (self.folder / TOKENIZER).read_bytes()

    @classmethod
    def open(cls, folder: Path) -> Job:
        """Open a job; a ModelError says what is damaged."""
        try:
            facts = read_json(folder / JOB)
            whole = facts.pop("seal") == seal(facts)
            hashes = facts["sha256"]  # they stay among the facts: `identity` covers the arrays
            if facts["format"] != _FORMAT or set(hashes) != {*_ARRAYS, START, TOKENIZER}:
                raise ValueError(f"it is of another format than {_FORMAT}")  # noqa: TRY301 - named below
            if not whole:
                raise ValueError(f"{JOB} was changed")  # noqa: TRY301 - named below
            _check_facts(facts)
            if wrong := [name for name, digest in hashes.items() if sha256_of(folder / name) != digest]:
                raise ValueError(f"{wrong[0]} was changed or is incomplete")  # noqa: TRY301 - named below
            tokens, offsets, targets = (map_npy(folder / name) for name in _ARRAYS)
            _check_arrays(facts, tokens, offsets, targets)
        except FileNotFoundError as error:
            raise ModelError(f"{folder} is no job: there is no {Path(error.filename).name} in it") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{folder} cannot be read as a job: {error}; prepare it again") from error
        return cls(folder, facts, tokens, offsets, targets)


def is_job_folder(folder: Path) -> bool:
    """Return whether a folder holds a job, or what is left of one whose preparation was interrupted."""
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    return JOB in names or (bool(names & _ARRAYS.keys()) and names <= {*_ARRAYS, START, TOKENIZER})


def seal(facts: Mapping[str, Any], data: bytes = b"") -> str:
    """Return the hash of facts, however they are laid out, and of a file that belongs to them."""
    return hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode() + b"\0" + data).hexdigest()


def _check_facts(facts: Mapping[str, Any]) -> None:
    """Raise a ValueError if nothing can be trained with these facts."""
    json.dumps(facts, allow_nan=False, ensure_ascii=False).encode()  # as the student's files have them
    kind, bert = facts.get("student"), facts.get("bert") or {}
    if not fits(facts, _FACTS) or kind not in ("static", "bert") or (kind == "bert" and not fits(bert, _BERT)):
        raise ValueError(f"{JOB} lacks a fact, or has one of another type")
    training, dim = facts["training"], facts["dim"]
    counts = [facts["vocabulary"], facts["max_length"], training["epochs"], training["batch_size"]]
    counts += [*training["leading"], 1 if training["patience"] is None else training["patience"]]
    if min(counts) < 1 or max([0, *training["leading"]]) >= dim or training["seed"] < 0:
        raise ValueError(f"{JOB} has {dim} dimensions, and the training {training}")
    if set(training) != set(_TRAINING) or not (
        training["learning_rate"] > 0 and 0 <= training["whiten"] <= 1 and 0 <= training["near"] < float("inf")
    ):
        raise ValueError(f"{JOB} has the training {training}")
    if kind == "bert" and not (
        min(bert[name] for name in _BERT if name != "layer_norm_eps") > 0
        and bert["hidden_size"] % bert["num_attention_heads"] == 0
        and bert["vocab_size"] == facts["vocabulary"]
        and bert["max_position_embeddings"] >= facts["max_length"]
        and 0 < bert["layer_norm_eps"] < 1
    ):
        raise ValueError(f"{JOB} has a BERT with {bert}")


def _check_arrays(facts: Mapping[str, Any], tokens: NDArray[Any], offsets: NDArray[Any], targets: NDArray[Any]) -> None:
    """Raise a ValueError if the arrays cannot be those of sentences and targets, or do not fit the facts."""
    for array, (name, types) in zip((tokens, offsets, targets), _ARRAYS.items(), strict=True):
        if array.dtype.str not in types or array.ndim != (2 if name == "targets.npy" else 1):
            raise ValueError(f"{name} holds {array.dtype} of shape {array.shape}")
    if len(targets) < LEAST_SENTENCES or targets.shape[1] != facts["dim"]:
        raise ValueError(f"targets.npy has the shape {targets.shape}")
    if not 0 <= facts["variants"] <= len(targets) - LEAST_SENTENCES:
        raise ValueError(f"{facts['variants']} of its {len(targets)} rows are variants")
    if (len(offsets), offsets[0], offsets[-1]) != (len(targets) + 1, 0, len(tokens)):
        raise ValueError("its arrays do not belong together")
    lengths = np.diff(offsets)
    if (offsets > len(tokens)).any() or lengths.min() < 0 or lengths.max() > facts["max_length"]:
        raise ValueError("offsets.npy does not rise by the lengths of sentences")
    if tokens.max(initial=0) >= facts["vocabulary"]:
        raise ValueError(f"tokens.npy has the token {tokens.max()} of {facts['vocabulary']}")


def bert_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of a BERT, by transformers' names, without the pooler."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    rows = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{name}_embeddings.weight": (config[size], hidden) for name, size in rows.items()
    }
    shapes |= {f"embeddings.LayerNorm.{name}": (hidden,) for name in ("weight", "bias")}
    for i in range(config["num_hidden_layers"]):
        for part in _LINEAR:
            outputs = inner if part == "intermediate.dense" else hidden
            inputs = inner if part == "output.dense" else hidden
            shapes[f"encoder.layer.{i}.{part}.weight"] = (outputs, inputs)
            shapes[f"encoder.layer.{i}.{part}.bias"] = (outputs,)
        for part in _NORMS:
            shapes |= {f"encoder.layer.{i}.{part}.{name}": (hidden,) for name in ("weight", "bias")}
    return shapes


def read_weights(data: bytes, facts: Mapping[str, Any], *, trained: bool) -> dict[str, NDArray[Any]]:
    """Read the weights of a job's student, at its start or trained, in the order of their names.

    Raises:
        ValueError: they are damaged, or those of another student.
    """
    try:
        weights = load(data)
    except (SafetensorError, OverflowError, KeyError, TypeError) as error:  # KeyError: numpy lacks the type
        raise ValueError(f"it is no safetensors file, or damaged: {error!r}") from error
    weights = dict(sorted(weights.items()))  # the library's order is random: sums over tensors would be, too
    dim, rows = facts["dim"], facts["vocabulary"]
    if facts["student"] == "static":
        shapes: dict[str, tuple[int, ...]] = {"vectors": (rows, dim)} | ({"weights": (rows, 1)} if trained else {})
    elif facts["bert"]["num_hidden_layers"] > len(weights):
        raise ValueError(f"it has {len(weights)} tensors for {facts['bert']['num_hidden_layers']} layers")
    else:
        head = {"head.weight": (dim, facts["bert"]["hidden_size"]), "head.bias": (dim,)}
        shapes = bert_shapes(facts["bert"]) | (head if trained else {})
    for name in sorted(shapes.keys() | weights.keys()):
        if not _is_weight(weights.get(name), shapes.get(name)):
            raise ValueError(f"its tensor {name} does not fit this student")
    return weights


def _is_weight(array: NDArray[Any] | None, shape: tuple[int, ...] | None) -> bool:
    """Return whether an array can be a weight of this shape."""
    right = array is not None and array.shape == shape and array.dtype == np.float32
    return right and bool(np.isfinite(array).all())  # type: ignore[arg-type]  # it is an array


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
    write_atomically(folder / JOB, json.dumps({**content, "seal": seal(content)}, indent=1).encode() + b"\n")
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
