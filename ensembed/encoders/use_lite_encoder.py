"""`use-lite`: Universal Sentence Encoder lite (Cer et al. 2018), read from its TF.js files and run in numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.model_files import read_bytes, read_json, revision_of
from ensembed.encoders.names_and_consent import Request, place_effects
from ensembed.encoders.sentencepiece_unigram import MAX_CHARACTERS, UnigramTokenizer
from ensembed.errors import EncoderError, InputError
from ensembed.numerics.moments import one_blas_thread
from ensembed.support.checks import fits
from ensembed.support.file_limits import USE_LITE_PIECES, check_shape
from ensembed.support.machine import available_cores

OPENS = "folder with the TF.js Universal Sentence Encoder lite"
effects = place_effects

# Token rows in one pass through the layers: matrix products at full speed, and few activations (1,536 floats a row).
_ROWS = 1024

# Names in the graph.
_ENCODER = "module_apply_default/Encoder_en"
_KONA = f"{_ENCODER}/KonaTransformer"
_STACK = f"{_KONA}/Encode/TransformerStack"
_TIMESCALES = f"{_STACK}/Layer_0/AddTimingSignal/TimingSignal/ExpandDims_1"
_EPSILON = f"{_STACK}/Layer_1/TransformerLayer/FFN/layer_prepostprocess/layer_norm/Cast/x"
_HEADS = f"{_STACK}/Layer_1/TransformerLayer/MultiheadAttention/split_heads/split_last_dimension/Reshape/shape/2"
_LIMIT = f"{_KONA}/ClipToMaxLength/Less/y"
_FLOOR = f"{_ENCODER}/hidden_layers/l2_normalize/Maximum/y"
_TANH = "module/Encoder_en/hidden_layers/tanh_layer_0"
_HINT = "pull the encoder again"

_Span = tuple[slice, int]
_Constants = dict[str, FloatArray]


class UseLiteEncoder(Encoder):
    """Universal Sentence Encoder lite: 512 dimensions, vectors of length one.

    Args:
        folder: where `model.json`, `vocab.json` and `group1-shard1of7` ... `group1-shard7of7` are.
        name, revision: the encoder's name, and what pins the files.
        max_length: pieces of a sentence to use; the model takes at most 128.
        threads: batches that are computed at the same time, each by one BLAS thread; None for one per processor.
    """

    concurrent = True

    def __init__(
        self, folder: Path, *, name: str = "use-lite", revision: str, max_length: int = 128, threads: int | None = 1
    ) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"encoder {name!r}: threads is {threads}; give 1 or more, or None for one per processor")
        vocabulary = _read_vocabulary(folder / "vocab.json")
        self._network = _Network(folder)
        self._tokenizer = UnigramTokenizer(vocabulary)
        self._threads = threads or available_cores()
        if len(vocabulary) > len(self._network.tokens):
            counts = f"{len(vocabulary)} pieces but the model only {len(self._network.tokens)} token vectors"
            raise EncoderError(f"{folder / 'vocab.json'} has {counts}: the files are of different models; {_HINT}")
        limit = len(self._network.timing)
        if not 1 <= max_length <= limit:
            raise InputError(f"encoder {name!r}: max_length is {max_length}; the model takes 1 to {limit} pieces")
        extra = (("max_characters", str(MAX_CHARACTERS)),)
        dim = self._network.dim
        self._spec = EncoderSpec(name, "use-lite", dim, revision, max_length=max_length, normalize=True, extra=extra)

    def embed(self, sentences: list[str]) -> FloatArray:
        """Return vectors [n, 512]; a row does not depend on the other sentences, up to rounding."""
        ids = [self._tokenizer.encode(sentence)[: self._spec.max_length] for sentence in sentences]
        vectors = np.empty((len(ids), self._spec.dim), np.float32)

        def fill(batch: NDArray[np.intp]) -> None:
            vectors[batch] = self._network.run([ids[i] for i in batch])

        lengths = np.array([len(i) for i in ids])
        order = np.argsort(lengths, kind="stable")
        ends = np.flatnonzero(np.diff(np.cumsum(lengths[order]) // _ROWS)) + 1
        with one_blas_thread(), ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(fill, np.split(order, ends)))
        return vectors


class _Dense(NamedTuple):
    """An affine map of rows."""

    weight: FloatArray
    bias: FloatArray

    def __call__(self, X: FloatArray) -> FloatArray:
        result: FloatArray = X @ self.weight
        return np.add(result, self.bias, out=result)

    def after_norm(self, scale: FloatArray, shift: FloatArray) -> _Dense:
        """Return this map of `scale * x + shift` as a map of x, so that these parameters of a norm cost nothing."""
        weight = self.weight.astype(np.float64)
        bias = shift @ weight + self.bias
        return _Dense((scale[:, None] * weight).astype(np.float32), bias.astype(np.float32))


class _Layer:
    """One pre-norm transformer layer, 0 or 1 of the graph; the first maps the residual to another width."""

    def __init__(self, constants: _Constants, layer: int) -> None:
        variables = f"{_KONA}/Encode/Layer_{layer}/TransformerLayer"
        attention = f"Encoder_en/KonaTransformer/Encode/Layer_{layer}/TransformerLayer/MultiheadAttention"
        graph = f"{_STACK}/Layer_{layer}/TransformerLayer"

        def variable(name: str) -> FloatArray:
            return constants[f"{variables}/{name}/ConcatPartitions/concat"]

        def norm(where: str) -> tuple[FloatArray, FloatArray]:
            prefix = f"{where}layer_prepostprocess/layer_norm"
            return variable(f"{prefix}/layer_norm_scale"), variable(f"{prefix}/layer_norm_bias")

        def projection(name: str) -> _Dense:
            kernel = constants[f"module/{attention}/{name}/kernel/part_0"]  # a 1 x 1 convolution
            return _Dense(kernel.reshape(kernel.shape[-2:]), variable(f"MultiheadAttention/{name}/bias"))

        def feed_forward(name: str) -> _Dense:
            return _Dense(constants[f"{graph}/FFN/{name}/Tensordot/Reshape_1"], variable(f"FFN/{name}/bias"))

        self._qkv = projection("qkv_transform_single").after_norm(*norm(""))
        for queries in np.split(self._qkv.weight, 3, axis=1)[0], np.split(self._qkv.bias, 3)[0]:
            queries *= constants[f"{graph}/MultiheadAttention/mul/y"]
        self._out = projection("output_transform_single")
        self._up = feed_forward("conv1").after_norm(*norm("FFN/"))
        self.down = feed_forward("conv2")
        self._shortcut = _Dense(variable("dense/kernel"), variable("dense/bias")) if layer == 0 else None
        self._heads, self._epsilon = int(constants[_HEADS]), float(constants[_EPSILON])

    def attend(self, X: FloatArray, spans: Sequence[_Span]) -> FloatArray:
        """Return the residual stream after attention, in which a token sees the tokens of its own sentence."""
        qkv = self._qkv(_normalized(X, self._epsilon))
        mixed = np.empty((len(X), qkv.shape[1] // 3), np.float32)
        for rows, length in spans:
            by_head = qkv[rows].reshape(-1, length, 3, self._heads, mixed.shape[1] // self._heads)
            Q, K, V = by_head.transpose(2, 0, 3, 1, 4)
            A = Q @ K.swapaxes(-1, -2)
            A -= A.max(axis=-1, keepdims=True)
            np.exp(A, out=A)
            A /= A.sum(axis=-1, keepdims=True)
            mixed[rows] = (A @ V).swapaxes(1, 2).reshape(-1, mixed.shape[1])
        return self._out(mixed) + (X if self._shortcut is None else self._shortcut(X))

    def hidden(self, X: FloatArray) -> FloatArray:
        """Return the feed-forward block's hidden activations."""
        hidden = self._up(_normalized(X, self._epsilon))
        return np.maximum(hidden, 0.0, out=hidden)


class _Network:
    """The whole graph. Tokens of all sentences lie below each other, without padding, in rows of one matrix."""

    def __init__(self, folder: Path) -> None:
        constants = _read_constants(folder)
        try:
            self.timing = _timing(float(constants[_LIMIT]), constants[_TIMESCALES])
            # The graph adds the token vectors twice: alone, and with the timing signal.
            self.tokens = 2 * constants["module/Embeddings_en"]
            self._layers = _Layer(constants, 0), _Layer(constants, 1)
            self._tanh = _Dense(constants[f"{_TANH}/weights"], constants[f"{_TANH}/bias"])
            self._floor = float(constants[_FLOOR])
            self.dim = self.run([[], [0]]).shape[1]  # a trial run
        except KeyError as error:
            what = f"{error}: this is not the TF.js Universal Sentence Encoder lite"
            raise EncoderError(f"model.json has no constant {what}; {_HINT}") from error
        except (ValueError, IndexError, TypeError, ArithmeticError) as error:
            file = folder / "model.json"
            raise EncoderError(f"the constants of {file} do not fit together ({error}); {_HINT}") from error

    def run(self, ids: Sequence[Sequence[int]]) -> FloatArray:
        """Return vectors [n, d] of sentences given as token ids, shortest first."""
        lengths = np.array([len(i) for i in ids])
        empty = int(np.count_nonzero(lengths == 0))
        pooled = np.zeros((len(ids), len(self._tanh.weight)), np.float32)  # zeros without tokens, as in the graph
        if empty < len(ids):
            pooled[empty:] = self._pool(ids[empty:], lengths[empty:])
        result = np.tanh(self._tanh(pooled))
        result /= np.sqrt(np.maximum(np.einsum("ij,ij->i", result, result), self._floor))[:, None]
        return result

    def _pool(self, ids: Sequence[Sequence[int]], lengths: NDArray[np.intp]) -> FloatArray:
        spans = _spans(lengths)
        first, second = self._layers
        X = self.tokens[np.concatenate([np.asarray(i) for i in ids])]
        X += self.timing[np.concatenate([np.arange(n) for n in lengths])]
        X = first.attend(X, spans)
        X += first.down(first.hidden(X))
        X = second.attend(X, spans)
        # The mean commutes with the last affine map: one product per sentence instead of one per token.
        return second.down(_means(second.hidden(X), spans)) + _means(X, spans)


def _timing(limit: float, timescales: FloatArray) -> FloatArray:
    """Return the signal of each of `limit` positions."""
    if not 0 < limit <= USE_LITE_PIECES:
        raise ValueError(f"it takes {limit} pieces of a sentence")
    angles = np.arange(int(limit), dtype=np.float32)[:, None] * timescales
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _spans(lengths: NDArray[np.intp]) -> list[_Span]:
    """Return the rows of the sentences of each length, and the length: equal lengths need no padding and no mask."""
    distinct, counts = np.unique(lengths, return_counts=True)
    ends = np.cumsum(distinct * counts).tolist()
    starts = [0, *ends[:-1]]
    return [(slice(a, b), n) for a, b, n in zip(starts, ends, distinct.tolist(), strict=True)]


def _means(X: FloatArray, spans: Sequence[_Span]) -> FloatArray:
    """Return the mean row of each sentence."""
    return np.concatenate([X[rows].reshape(-1, length, X.shape[1]).mean(axis=1) for rows, length in spans])


def _normalized(X: FloatArray, epsilon: float) -> FloatArray:
    """Return the rows with mean 0 and variance 1."""
    result: FloatArray = X - X.mean(axis=1, keepdims=True)
    result /= np.sqrt(np.einsum("ij,ij->i", result, result) / X.shape[1] + np.float32(epsilon))[:, None]
    return result


def _read_constants(folder: Path) -> _Constants:
    """Read the graph's constants, as float32: they lie behind each other in the shards of each group."""
    constants: _Constants = {}
    for paths, weights in _read_manifest(folder):
        shards = b"".join(read_bytes(folder / path, _HINT) for path in paths)
        described = sum(4 * math.prod(shape) for _, _, shape, _ in weights)
        if described != len(shards):
            sizes = f"{len(shards)} bytes but model.json describes {described}"
            raise EncoderError(f"the shards in {folder} hold {sizes}; {_HINT}")
        start = 0
        for name, dtype, shape, quantization in weights:
            if dtype not in {"float32", "int32"} or quantization is not None:
                kind = f"{dtype} (quantization {quantization})"
                raise EncoderError(f"constant {name!r} in {folder} is of type {kind}; use the original files")
            size = math.prod(shape)
            array = np.frombuffer(shards, np.dtype(dtype).newbyteorder("<"), size, start)
            constants[name] = array.reshape(shape).astype(np.float32)
            start += 4 * size
    return constants


def _read_manifest(folder: Path) -> list[tuple[list[str], list[tuple[str, str, list[int], object]]]]:
    """Read the shards of each group in `model.json`, and name, type, shape and quantisation of its constants."""
    path = folder / "model.json"
    groups = []
    try:
        for group in read_json(path, _HINT)["weightsManifest"]:
            if not fits(group, {"paths": [str], "weights": list}):
                raise TypeError("a group has no lists of paths and weights")  # noqa: TRY301 - it is reported as all others
            weights = [(str(w["name"]), str(w["dtype"]), w["shape"], w.get("quantization")) for w in group["weights"]]
            for _, _, shape, _ in weights:
                check_shape(shape)
            groups.append(([Path(shard).name for shard in group["paths"]], weights))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EncoderError(f"{path} is not a TF.js graph model ({error!r}); {_HINT}") from error
    return groups


def _read_vocabulary(path: Path) -> list[tuple[str, float | None]]:
    data = read_json(path, _HINT)
    try:
        return [(str(piece), None if score is None else float(score)) for piece, score in data]
    except (TypeError, ValueError, OverflowError) as error:
        raise EncoderError(f"{path} is not a list of pieces and scores ({error}); {_HINT}") from error


def open_use_lite(request: Request) -> UseLiteEncoder:
    """Open `use-lite`, or `use-lite:DIR` with the same files."""
    options = request.options(max_length=int)
    folder, revision = request.path, request.revision
    if revision is None:  # only the files that are read count: others in the folder do not make another encoder
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder")
        names = ["model.json", "vocab.json", *(shard for shards, _ in _read_manifest(folder) for shard in shards)]
        files = {name: folder / name for name in names}
        revision = revision_of(files, label=f"hash {folder.name}", progress=request.progress)
    return UseLiteEncoder(folder, name=request.name, revision=revision, threads=request.threads, **options)
