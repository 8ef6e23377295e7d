"""`use-m3`: Universal Sentence Encoder multilingual v3 (Yang et al. 2020), a network of convolutions, run in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.model_files import revision_of
from ensembed.encoders.names_and_consent import Request, place_effects
from ensembed.encoders.sentencepiece_model import SentencePieceTokenizer, read_sentencepiece
from ensembed.errors import EncoderError, InputError
from ensembed.fetch.archives import ArchiveError, read_members
from ensembed.numerics.moments import one_blas_thread
from ensembed.support.file_limits import GZIP_FREE, LARGEST_LENGTH, read_npy_header
from ensembed.support.machine import available_cores

OPENS = "folder with weights.npz and sp.model of Universal Sentence Encoder multilingual v3"
effects = place_effects

# Tokens in one pass: matrix products at full speed, and activations that fit in the cache (1,280 floats a token).
_ROWS = 384
_MOST_PIECES = 512  # of a sentence; the model itself has no limit
_RATIO = 10  # bytes that every byte of weights.npz may unpack to, beyond `GZIP_FREE`
_HINT = "pull the encoder again"

# The architecture: token vectors in 17 tables of 8-bit integers, and three branches of two convolutions each, over as
# many tokens, of which so many come before the token itself.
_TABLES = 17
_BRANCHES = ((2, 0), (3, 1), (5, 2))
_BEFORE, _BEHIND = 2, 2  # of the widest one
_NAMES = (
    *(f"q{i}" for i in range(1, _TABLES + 1)),
    *("lo", "scale", "eps"),
    *(f"{name}{n}" for n, _ in _BRANCHES for name in ("proj", "proj_b", "ln_g", "ln_b", "w1_", "b1_", "w2_", "b2_")),
    *("ln_g", "ln_b", "cnn_W", "cnn_b", "d0", "d1", "d2", "d3", "p1", "p3"),
)


class UseM3Encoder(Encoder):
    """Universal Sentence Encoder multilingual v3: 512 dimensions, vectors of length one.

    Args:
        folder: where `weights.npz` and `sp.model` are.
        name, revision: the encoder's name, and what pins the files.
        max_length: pieces of a sentence to use.
        threads: batches that are computed at the same time, each by one BLAS thread; None for one per processor.
    """

    concurrent = True

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "use-m3",
        revision: str,
        max_length: int = _MOST_PIECES,
        threads: int | None = 1,
    ) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"encoder {name!r}: threads is {threads}; give 1 or more, or None for one per processor")
        if not 1 <= max_length <= LARGEST_LENGTH:
            raise InputError(f"encoder {name!r}: max_length is {max_length}; give 1 to {LARGEST_LENGTH} pieces")
        model = read_sentencepiece(folder / "sp.model", _HINT)
        self._network = _Network(folder / "weights.npz")
        self._tokenizer = SentencePieceTokenizer(model)
        self._ends = ([model.begin], [model.end])
        self._threads = threads or available_cores()
        if len(model.pieces) > len(self._network.tokens):
            counts = f"{len(model.pieces)} pieces but weights.npz only {len(self._network.tokens)} token vectors"
            raise EncoderError(f"{folder / 'sp.model'} has {counts}: the files are of different models; {_HINT}")
        self._spec = EncoderSpec(name, "use-m3", self._network.dim, revision, max_length=max_length, normalize=True)

    def embed(self, sentences: list[str]) -> FloatArray:
        """Return vectors [n, 512]; a row does not depend on the other sentences, up to rounding."""
        begin, end = self._ends
        length = self._spec.max_length or _MOST_PIECES
        ids = [begin + self._tokenizer.first_ids(sentence, length) + end for sentence in sentences]
        vectors = np.empty((len(ids), self._spec.dim), np.float32)

        def fill(batch: NDArray[np.intp]) -> None:
            vectors[batch] = self._network.run([ids[i] for i in batch])

        ends = np.flatnonzero(np.diff(np.cumsum([len(i) for i in ids]) // _ROWS)) + 1
        with one_blas_thread(), ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(fill, np.split(np.arange(len(ids)), ends)))
        return vectors


class _Branch(NamedTuple):
    """Two convolutions of the same width over tokens, each with a shortcut."""

    width: int
    before: int
    columns: slice  # of the projected token vectors
    weights: tuple[FloatArray, FloatArray]  # [width * d, d]
    biases: tuple[FloatArray, FloatArray]

    def __call__(self, X: FloatArray, windows: NDArray[np.intp]) -> FloatArray:
        """Return the activations [n, d]; `windows` has the rows of the tokens around each, n for none."""
        seen = windows[:, _BEFORE - self.before : _BEFORE - self.before + self.width]
        X = X[:, self.columns]
        padded = np.zeros((len(X) + 1, X.shape[1]), np.float32)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            padded[:-1] = X
            hidden = padded[seen].reshape(len(X), -1) @ weight
            hidden += bias
            X = np.maximum(hidden, 0.0, out=hidden) + X
        return X


class _Network:
    """The whole model. Tokens of all sentences lie below each other, without padding, in rows of one matrix."""

    def __init__(self, path: Path) -> None:
        arrays = _read_arrays(path)
        try:
            self.tokens = np.stack([arrays[f"q{i}"] for i in range(1, _TABLES + 1)], axis=1)
            self.tokens = self.tokens.reshape(-1, self.tokens.shape[2])  # token i is row i // 17 of table i % 17
            self._scale, self._least = (arrays[name].astype(np.float32).reshape(_TABLES, 1) for name in ("scale", "lo"))
            floats = {name: array.astype(np.float32) for name, array in arrays.items() if name[0] != "q"}
            self._epsilon = float(floats["eps"])
            self._projection, self._bias, self._norm_scale, self._norm_shift = (
                np.concatenate([floats[f"{name}{n}"] for n, _ in _BRANCHES], axis=-1)
                for name in ("proj", "proj_b", "ln_g", "ln_b")
            )
            ends = np.cumsum([0, *(len(floats[f"proj_b{n}"]) for n, _ in _BRANCHES)]).tolist()
            self._branches = [
                _Branch(
                    n,
                    before,
                    slice(a, b),
                    (floats[f"w1_{n}"], floats[f"w2_{n}"]),
                    (floats[f"b1_{n}"], floats[f"b2_{n}"]),
                )
                for (n, before), a, b in zip(_BRANCHES, ends, ends[1:], strict=False)
            ]
            self._floats = floats
            self.dim = self.run([[0], [0, 1, 2]]).shape[1]  # a trial run
        except (ValueError, IndexError, TypeError, ArithmeticError) as error:
            raise EncoderError(f"the arrays of {path} do not fit together ({error}); {_HINT}") from error

    def run(self, ids: Sequence[Sequence[int]]) -> FloatArray:
        """Return vectors [n, d] of sentences given as token ids, at least one each."""
        weights = self._floats
        lengths = np.array([len(i) for i in ids])
        starts = np.cumsum(lengths) - lengths
        flat = np.concatenate([np.asarray(i) for i in ids])
        E = self.tokens[flat].astype(np.float32)
        E *= self._scale[flat % _TABLES]
        E += self._least[flat % _TABLES]
        X = E @ self._projection
        X += self._bias
        X = self._normalized(X, self._norm_scale, self._norm_shift)
        windows = _windows(starts, lengths)
        F = np.concatenate([E, *(branch(X, windows) for branch in self._branches)], axis=1)
        F = self._normalized(F, weights["ln_g"], weights["ln_b"])
        # A sum commutes with an affine map: one product per sentence instead of one per token.
        count = lengths.astype(np.float32)[:, None]
        Y = (np.add.reduceat(F, starts, axis=0) @ weights["cnn_W"] + count * weights["cnn_b"]) / np.sqrt(count)
        Y = np.maximum(Y @ weights["p1"] + np.maximum(Y @ weights["d0"], 0.0) @ weights["d1"], 0.0)
        Z = np.tanh(Y @ weights["p3"] + np.maximum(Y @ weights["d2"], 0.0) @ weights["d3"])
        Z /= np.sqrt(np.maximum(np.einsum("ij,ij->i", Z, Z), np.float32(self._epsilon)))[:, None]
        return Z

    def _normalized(self, X: FloatArray, scale: FloatArray, shift: FloatArray) -> FloatArray:
        """Return the rows with mean 0 and variance 1, then scaled and shifted; X is overwritten."""
        X -= X.mean(axis=1, keepdims=True)
        X /= np.sqrt(np.einsum("ij,ij->i", X, X) / X.shape[1] + np.float32(self._epsilon))[:, None]
        X *= scale
        X += shift
        return X


def _windows(starts: NDArray[np.intp], lengths: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the rows of the tokens around each one, from two before to two behind; n beyond its own sentence."""
    count = int(lengths.sum())
    rows = np.arange(count)[:, None] + np.arange(-_BEFORE, _BEHIND + 1)
    inside = rows >= np.repeat(starts, lengths)[:, None]
    inside &= rows < np.repeat(starts + lengths, lengths)[:, None]
    return np.where(inside, rows, count)


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays that the model needs; an EncoderError if the file is damaged, or unpacks to far too much."""
    arrays: dict[str, NDArray[Any]] = {}

    def take(member: str, stream: IO[bytes]) -> None:
        shape, dtype, by_column = read_npy_header(stream)
        if by_column:
            raise ValueError(f"{member} is in the order of columns")
        data = stream.read()
        arrays[member.removesuffix(".npy")] = np.frombuffer(data, dtype).reshape(shape)

    try:
        most = GZIP_FREE + _RATIO * path.stat().st_size
        read_members(path, [f"{name}.npy" for name in _NAMES], take, most=most)
    except OSError as error:
        raise EncoderError(f"{path} cannot be read: {error.strerror or error}; {_HINT}") from error
    except (ArchiveError, ValueError) as error:
        raise EncoderError(f"{path} is not the weights of this model, or damaged ({error}); {_HINT}") from error
    return arrays


def open_use_m3(request: Request) -> UseM3Encoder:
    """Open `use-m3`, or `use-m3:DIR` with the same files."""
    options = request.options(max_length=int)
    folder, revision = request.path, request.revision
    if revision is None:
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder")
        files = {name: folder / name for name in ("sp.model", "weights.npz")}
        revision = revision_of(files, label=f"hash {folder.name}", progress=request.progress)
    return UseM3Encoder(folder, name=request.name, revision=revision, threads=request.threads, **options)
