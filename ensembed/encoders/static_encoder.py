"""`static:FILE`: one vector per token of a `tokenizer.json`, averaged over the sentence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec
from ensembed.encoders.model_files import revision_of
from ensembed.encoders.names_and_consent import Request, place_effects
from ensembed.encoders.token_ids import all_ids, open_tokenizer
from ensembed.errors import EncoderError, InputError
from ensembed.support.file_limits import check_tensor_header

if TYPE_CHECKING:
    from tokenizers import Tokenizer

OPENS = "safetensors file of token vectors beside its tokenizer.json"
effects = place_effects

_LOOKUP = 65536  # tokens looked up at a time: bounds the memory that one very long sentence takes
_NUMBERS = frozenset({"F64", "F32", "F16", "BF16", "I8", "U8", "I16", "I32", "I64"})  # what safetensors calls them


class StaticEncoder(Encoder):
    """The mean of the vectors of a sentence's tokens; a sentence without tokens has a vector of zeros.

    Args:
        spec: the encoder's spec.
        tokenizer: without truncation.
        matrix: [m, d] vectors.
        rows: [vocabulary] the row of each token; None if the token's number is its row.
        weights: [vocabulary] the weight of each token; None if all weights are equal.
        dtype: the type that vectors are rounded to.
    """

    concurrent = True  # tokenizers take several threads, and vectors are only read

    def __init__(
        self,
        spec: EncoderSpec,
        tokenizer: Tokenizer,
        matrix: NDArray[Any],
        rows: NDArray[Any] | None = None,
        weights: NDArray[Any] | None = None,
        *,
        dtype: type[np.floating] = np.float32,
    ) -> None:
        self._spec, self._tokenizer, self._dtype = spec, tokenizer, dtype
        self._matrix, self._rows, self._weights = matrix, rows, weights
        name, size = spec.name, max(tokenizer.get_vocab().values(), default=-1) + 1
        for what, array in (("a row", rows), ("a weight", weights)):
            if array is not None and (array.ndim != 1 or len(array) < size):
                expected = f"{what} for each of {size} tokens was expected"
                raise EncoderError(f"encoder {name!r}: {expected}, not {array.shape}")
        if rows is not None and (rows.dtype.kind not in "iu" or rows.min(initial=0) < 0):
            raise EncoderError(f"encoder {name!r}: the mapping of tokens to rows holds something else than row numbers")
        needed = size if rows is None else int(rows.max(initial=0)) + 1
        if matrix.ndim != 2 or matrix.shape[1] == 0 or len(matrix) < needed:
            problem = f"shape {matrix.shape}, but the tokenizer's vocabulary needs {needed} rows"
            raise EncoderError(f"encoder {name!r}: the vectors have {problem}; they are not of one model")

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        """Return the mean of each sentence's token vectors."""
        if self._rows is None and self._weights is None and self._matrix.dtype == np.float32:
            return self._means(list(self._token_ids(sentences)))
        result = np.zeros((len(sentences), self._spec.dim), self._dtype)
        for row, ids in zip(result, self._token_ids(sentences), strict=True):
            if ids:
                row[:] = self._mean(ids)
        return result

    def _means(self, ids: list[list[int]]) -> NDArray[Any]:
        """Return the means of float32 vectors, all sentences in one sparse product, which adds as `_mean` does."""
        from scipy.sparse import csr_array

        lengths = np.array([len(row) for row in ids], np.int64)
        tokens = np.fromiter(itertools.chain.from_iterable(ids), np.int64, int(lengths.sum()))
        counts = csr_array(
            (np.ones(len(tokens), np.float32), tokens, np.concatenate([[0], np.cumsum(lengths)])),
            shape=(len(ids), len(self._matrix)),
        )
        return np.asarray((counts @ self._matrix) / np.maximum(lengths, 1)[:, None].astype(np.float32), self._dtype)

    def token_vectors(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Return the vectors [m, d] of tokens by their numbers, times their weights."""
        vectors = self._matrix[numbers if self._rows is None else self._rows[numbers]]
        return vectors if self._weights is None else vectors * self._weights[numbers][:, None]

    def _token_ids(self, sentences: list[str]) -> Iterator[list[int]]:
        return all_ids(self._tokenizer, sentences, special=False)

    def _mean(self, ids: list[int]) -> NDArray[Any]:
        """Return the mean over one or more tokens: summed in float32 or wider, rounded to the type of the vectors."""
        total: Any = 0
        dtype: np.dtype[Any] = np.dtype(np.float32)
        for start in range(0, len(ids), _LOOKUP):
            part = ids[start : start + _LOOKUP]
            vectors = self.token_vectors(np.array(part, np.int64))
            dtype = np.dtype(np.float64) if vectors.dtype.kind in "iu" else vectors.dtype
            total = total + vectors.sum(axis=0, dtype=np.result_type(dtype, np.float32))
        return np.asarray(total / len(ids), dtype)


def open_static(request: Request) -> StaticEncoder:
    """Open `static:FILE` or a folder with model.safetensors, or a short name of the catalogue."""
    options = request.options() if request.entry else request.options(tensor=str)
    path = request.path
    file = path / "model.safetensors" if path.is_dir() else path
    tensors = tensor_names(file)
    tensor = options.get("tensor", tensors[0] if len(tensors) == 1 else None)
    if tensor not in tensors:
        problem = "several tensors" if tensor is None else f"no tensor {tensor!r}"
        choices = f"say which one holds the vectors, as tensor=NAME: {', '.join(tensors)}"
        raise InputError(f"{file} has {problem}; {choices}")
    matrix = read_tensor(file, tensor).astype(np.float32)
    tokenizer = open_tokenizer(file.with_name("tokenizer.json"), request.name)
    extra = (("tensor", tensor),) if len(tensors) > 1 else ()  # the hash of a file covers its only tensor
    spec = EncoderSpec(request.name, "static", (0, *matrix.shape)[-1], revision_of_tensors(file, request), extra=extra)
    return StaticEncoder(spec, tokenizer, matrix)


def revision_of_tensors(file: Path, request: Request) -> str:
    """Return what pins a file of tensors and the tokenizer beside it."""
    files = {"model.safetensors": file, "tokenizer.json": file.with_name("tokenizer.json")}
    return request.revision or revision_of(files, label=f"hash {file.name}", progress=request.progress)


def tensor_names(file: Path) -> list[str]:
    """Return the names of the tensors in a safetensors file, sorted."""
    from safetensors import safe_open

    if not file.is_file():
        raise InputError(f"there is no file {file}")
    try:
        check_tensor_header(file)
        with safe_open(file, framework="numpy") as tensors:
            return sorted(tensors.keys())
    except Exception as error:  # the library's own error was not always public, and it raises others
        raise EncoderError(f"{file} is no safetensors file, or is incomplete: {error}") from error


def read_tensor(file: Path, tensor: str) -> NDArray[Any]:
    """Read one tensor of a safetensors file that `tensor_names` has checked."""
    from safetensors import deserialize, safe_open

    kind = None
    try:
        with safe_open(file, framework="numpy") as tensors:
            kind = tensors.get_slice(tensor).get_dtype()
            if kind in _NUMBERS and kind != "BF16":
                return np.asarray(tensors.get_tensor(tensor))
        if kind == "BF16":
            # numpy has no bfloat16, which is the upper half of a float32.
            content = dict(deserialize(file.read_bytes()))[tensor]  # type: ignore[no-untyped-call]  # of the library
            halves = np.frombuffer(content["data"], "<u2")
            return np.asarray((halves.astype(np.uint32) << 16).view(np.float32).reshape(content["shape"]))
    except Exception as error:  # an OverflowError for a shape that no array has, and others of the library
        raise EncoderError(f"{file}: tensor {tensor!r} cannot be read: {error}") from error
    raise EncoderError(f"{file}: tensor {tensor!r} is of type {kind}, not {', '.join(sorted(_NUMBERS))}")
