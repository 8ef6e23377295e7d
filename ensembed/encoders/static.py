"""Static token vectors: a `tokenizer.json` and one vector per token, averaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec
from ensembed.encoders.fingerprints import revision_of
from ensembed.encoders.names import Request, at_least
from ensembed.encoders.tokens import all_ids, open_tokenizer
from ensembed.errors import EncoderError, InputError
from ensembed.fetch.hub_files import chosen_commit, is_hub_name, snapshot

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Tokens looked up at a time: bounds the memory that one very long sentence takes.
_LOOKUP = 65536

# The types of a safetensors file that are numbers to numpy, and the one that is not: float32 without its lower half.
_NUMBERS = frozenset({"F64", "F32", "F16", "BF16", "I8", "U8", "I16", "I32", "I64"})

# Where model2vec's files are: its own layout, and the two that sentence-transformers saves a StaticEmbedding in.
# Configuration, folder of the rest, name of the matrix.
_LAYOUTS = (
    ("config.json", ".", "embeddings"),
    ("config_sentence_transformers.json", ".", "embedding.weight"),
    ("config_sentence_transformers.json", "0_StaticEmbedding", "embedding.weight"),
)
_HUB_FILES = [*(config for config, _, _ in _LAYOUTS[:2]), "model.safetensors", "tokenizer.json", "0_StaticEmbedding/*"]


@dataclass(frozen=True)
class TokenVectors:
    """The vectors of a vocabulary.

    Attributes:
        matrix: [m, d] vectors.
        rows: [vocabulary] the row of each token; None where tokens are rows.
        weights: [vocabulary] what each token counts; None where all count the same.
    """

    matrix: NDArray[Any]
    rows: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None

    def check(self, tokenizer: Tokenizer, name: str) -> None:
        """Raise an EncoderError unless every token of the vocabulary has a vector."""
        size = max(tokenizer.get_vocab().values(), default=-1) + 1
        for what, array in (("a row", self.rows), ("a weight", self.weights)):
            if array is not None and (array.ndim != 1 or len(array) < size):
                raise EncoderError(
                    f"encoder {name!r}: {what} for each of {size} tokens was expected, not {array.shape}"
                )
        if self.rows is not None and (self.rows.dtype.kind not in "iu" or self.rows.min(initial=0) < 0):
            raise EncoderError(f"encoder {name!r}: the mapping of tokens to rows holds something else than row numbers")
        needed = size if self.rows is None else int(self.rows.max(initial=-1)) + 1
        if self.matrix.ndim != 2 or self.matrix.shape[1] == 0 or len(self.matrix) < needed:
            raise EncoderError(
                f"encoder {name!r}: the vectors have shape {self.matrix.shape}, but the tokenizer's vocabulary needs "
                f"{needed} rows; they are not of one model"
            )

    def mean(self, ids: list[int]) -> NDArray[Any]:
        """The mean over tokens, at least one, summed in float32 or wider and rounded to the type of what is summed."""
        total: Any = 0
        dtype: np.dtype[Any] = np.dtype(np.float32)
        for start in range(0, len(ids), _LOOKUP):
            some = ids[start : start + _LOOKUP]
            found = self.matrix[some if self.rows is None else self.rows[some]]
            if self.weights is not None:
                found = found * self.weights[some][:, None]
            dtype = np.dtype(np.float64) if found.dtype.kind in "iu" else found.dtype
            total = total + found.sum(axis=0, dtype=np.result_type(dtype, np.float32))
        return np.asarray(total / len(ids), dtype)


class StaticEncoder(Encoder):
    """The mean of the vectors of a sentence's tokens; no token, no vector: the result is zero.

    Args:
        vectors: the vectors.
        tokenizer: without truncation.
        spec: what it is.
        dtype: what vectors are rounded to.
    """

    def __init__(
        self, vectors: TokenVectors, tokenizer: Tokenizer, spec: EncoderSpec, *, dtype: type[np.floating] = np.float32
    ) -> None:
        vectors.check(tokenizer, spec.name)
        self._vectors = vectors
        self._tokenizer = tokenizer
        self._spec = spec
        self._dtype = dtype

    @property
    def spec(self) -> EncoderSpec:
        """Everything that changes the numbers."""
        return self._spec

    @property
    def concurrent(self) -> bool:
        """Tokenizers take several threads, and vectors are only read."""
        return True

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        """The mean of the tokens' vectors."""
        result = np.zeros((len(sentences), self._spec.dim), self._dtype)
        for row, ids in zip(result, self._tokens(sentences), strict=True):
            if ids:
                row[:] = self._vectors.mean(ids)
        return result

    def _tokens(self, sentences: list[str]) -> Iterator[list[int]]:
        return all_ids(self._tokenizer, sentences, special=False)


class Model2VecEncoder(StaticEncoder):
    """A model2vec model: static vectors, encoded as model2vec does it, without that package.

    Texts are cut, first to as many characters as `max_length` tokens of median length have, then to so many tokens; the
    unknown token is left out. Vectors of 16 bits stay so: what model2vec returns is rounded, and so is this.

    Args:
        vectors: the vectors.
        tokenizer: without truncation.
        spec: what it is, its `max_length` and `normalize` included.
    """

    def __init__(self, vectors: TokenVectors, tokenizer: Tokenizer, spec: EncoderSpec) -> None:
        half = vectors.matrix.dtype == np.float16
        super().__init__(vectors, tokenizer, spec, dtype=np.float16 if half else np.float32)
        self._characters: int | None = None
        if spec.max_length is not None:
            tokenizer.enable_truncation(spec.max_length)
            self._characters = spec.max_length * int(np.median([len(token) for token in tokenizer.get_vocab()]))
        self._unknown = _unknown_token(tokenizer)

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        """The mean of the known tokens' vectors, normalised where the model is."""
        result = super().embed(sentences)
        if self._spec.normalize:
            wide = result.astype(np.float32)
            # The formula of model2vec: another one may round to another number of 16 bits.
            result = (wide / (np.linalg.norm(wide, axis=1, keepdims=True) + 1e-32)).astype(self._dtype)
        return result

    def _tokens(self, sentences: list[str]) -> Iterator[list[int]]:
        for ids in super()._tokens([sentence[: self._characters] for sentence in sentences]):
            yield [i for i in ids if i != self._unknown]


def open_static(request: Request) -> StaticEncoder:
    """`static:FILE` or a folder with model.safetensors; or a short name of the catalogue."""
    options = request.options() if request.entry else request.options(tensor=str)
    path = request.path
    file = path / "model.safetensors" if path.is_dir() else path
    tensors = _tensors(file)
    tensor = options.get("tensor", tensors[0] if len(tensors) == 1 else None)
    if tensor not in tensors:
        raise InputError(
            f"{file} has {'several tensors' if tensor is None else f'no tensor {tensor!r}'}; say which one holds the "
            f"vectors, as tensor=NAME: {', '.join(tensors)}"
        )
    tokenizer = open_tokenizer(file.with_name("tokenizer.json"), request.name)
    matrix = _read_tensor(file, tensor).astype(np.float32)
    # Where there is but one tensor, the hash of the file says it all.
    extra = (("tensor", tensor),) if len(tensors) > 1 else ()
    revision = request.revision or _revision(file, request)
    spec = EncoderSpec(request.name, "static", matrix.shape[-1] if matrix.ndim else 0, revision, extra=extra)
    return StaticEncoder(TokenVectors(matrix), tokenizer, spec)


def open_model2vec(request: Request) -> Model2VecEncoder:
    """`model2vec:PATH-OR-NAME`, a folder here or a model on the hub."""
    options = request.options(max_length=at_least(0), revision=str)
    folder, commit = request.path, None
    if not folder.exists():
        if not is_hub_name(request.location):
            raise InputError(f"{request.location!r} is neither a folder here nor a name on the hub")
        commit = chosen_commit(request.location, options.get("revision"), request.pinned)
        folder = snapshot(request.location, commit, _HUB_FILES, progress=request.progress)
    elif "revision" in options:
        raise InputError(f"encoder {request.name!r}: {folder} is here, where files have no revision; leave it out")
    config, file, tensor = _layout(folder)
    tensors = _tensors(file)
    if tensor not in tensors:
        raise EncoderError(f"{file} holds {', '.join(tensors) or 'nothing'}, not the {tensor} of a model2vec model")
    tokenizer = open_tokenizer(file.with_name("tokenizer.json"), request.name)
    arrays = {name: _read_tensor(file, name) for name in (tensor, "mapping", "weights") if name in tensors}
    vectors = TokenVectors(arrays[tensor], arrays.get("mapping"), arrays.get("weights"))
    spec = EncoderSpec(
        request.name,
        "model2vec",
        vectors.matrix.shape[-1] if vectors.matrix.ndim else 0,
        commit or _revision(file, request),
        max_length=options.get("max_length", config["max_length"]) or None,
        normalize=config["normalize"],
    )
    return Model2VecEncoder(vectors, tokenizer, spec)


def _revision(file: Path, request: Request) -> str:
    files = {"model.safetensors": file, "tokenizer.json": file.with_name("tokenizer.json")}
    return revision_of(files, label=f"hash {file.name}", progress=request.progress)


def _layout(folder: Path) -> tuple[dict[str, Any], Path, str]:
    """Where the parts of a model2vec model are: its configuration, the file of its tensors, the name of the matrix."""
    for config, place, tensor in _LAYOUTS:
        file = folder / place / "model.safetensors"
        if file.is_file() and (folder / config).is_file():
            return _read_config(folder / config), file, tensor
    raise InputError(f"{folder} is no model2vec model: it needs config.json, model.safetensors and tokenizer.json")


def _read_config(path: Path) -> dict[str, Any]:
    """What counts of a configuration, with the defaults of model2vec."""
    try:
        config: dict[str, Any] = {"max_length": 512, "normalize": False} | json.loads(path.read_bytes())
    except (OSError, TypeError, ValueError) as error:
        raise EncoderError(f"{path} is not the configuration of a model2vec model: {error}") from error
    length, normalize = config["max_length"], config["normalize"]
    if not (length is None or (isinstance(length, int) and length > 0)) or not isinstance(normalize, bool):
        raise EncoderError(f"{path} has the values max_length={length!r}, normalize={normalize!r}, which make no sense")
    return config


def _tensors(file: Path) -> list[str]:
    """The names of the tensors in a safetensors file, in order."""
    from safetensors import safe_open

    if not file.is_file():
        raise InputError(f"there is no file {file}")
    try:
        with safe_open(file, framework="numpy") as tensors:
            return sorted(tensors.keys())
    except Exception as error:  # the library's own error was not always public, and it raises others
        raise EncoderError(f"{file} is no safetensors file, or a torn one: {error}") from error


def _read_tensor(file: Path, tensor: str) -> NDArray[Any]:
    """One tensor of a safetensors file that `_tensors` found whole."""
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as tensors:
        kind = tensors.get_slice(tensor).get_dtype()
        if kind not in _NUMBERS:
            raise EncoderError(
                f"{file}: tensor {tensor!r} is of type {kind}; vectors are {', '.join(sorted(_NUMBERS))}"
            )
        if kind != "BF16":
            return np.asarray(tensors.get_tensor(tensor))
    # numpy has no bfloat16, which is the upper half of a float32: its bytes are read where the header says they are.
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        about = json.loads(stream.read(size))[tensor]
        start, end = about["data_offsets"]
        stream.seek(8 + size + start)
        halves = np.frombuffer(stream.read(end - start), "<u2")
    return np.asarray((halves.astype(np.uint32) << 16).view(np.float32).reshape(about["shape"]))


def _unknown_token(tokenizer: Tokenizer) -> int | None:
    """The number of the token that stands for what is not in the vocabulary; None where there is none."""
    model: Any = tokenizer.model
    if not hasattr(model, "unk_token"):  # the unigram model knows its number only
        number: int | None = json.loads(tokenizer.to_str())["model"].get("unk_id")
        return number
    return None if model.unk_token is None else tokenizer.token_to_id(model.unk_token)
