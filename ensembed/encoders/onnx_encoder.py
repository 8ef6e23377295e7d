"""`onnx:DIR`: transformers in ONNX form, a graph and its `tokenizer.json`, on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.model_files import revision_of
from ensembed.encoders.names_and_consent import Convert, Request, one_of, place_effects
from ensembed.encoders.onnx_files import OnnxSettings, read_graph, read_settings
from ensembed.encoders.token_ids import first_ids, open_tokenizer
from ensembed.errors import EncoderError, InputError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.file_limits import LARGEST_LENGTH
from ensembed.support.machine import available_cores

OPENS = "folder with model.onnx and tokenizer.json"
effects = place_effects

# Tokens per run, padding included. MiniLM on one core: 286 to 292 sentences a second at 96 to 512, 180 at 4,096.
_LEAST, _MOST = 96, 384
_TURNS = 4  # runs for each thread, so that all threads end at about the same time
# A single run of at least so many tokens gets all threads, in a session of its own (0.2 s to open, the weights again).
_WIDE = 128
_USUAL = 512  # tokens that every BERT-like model takes

# The inputs that a graph may have, and their types.
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_TYPES = {"int64": np.int64, "int32": np.int32, "float": np.float32, "float16": np.float16, "bool": np.bool_}

# Functions of hidden states [b, l, d] and a mask [b, l] of the sentences' tokens, by the names that options have.
POOLINGS: dict[str, Callable[[NDArray[Any], NDArray[np.bool_]], NDArray[Any]]] = {
    "mean": lambda hidden, mask: np.einsum("bld,bl->bd", hidden, mask.astype(np.float32)) / mask.sum(1, keepdims=True),
    "cls": lambda hidden, _mask: hidden[:, 0],
    "max": lambda hidden, mask: np.where(mask[:, :, None], hidden, -np.inf).max(axis=1),
    "last": lambda hidden, mask: hidden[np.arange(len(hidden)), mask.sum(axis=1) - 1],  # padding is on the right
}


class OnnxEncoder(Encoder):
    """A transformer whose last hidden states are pooled over the sentence's tokens.

    Args:
        model: the ONNX file; weights in files of their own are found beside it.
        tokenizer: the `tokenizer.json`.
        settings: how the model is meant to be used. Without a pooling, it is the graph's own, or else the mean.
        name, revision: the encoder's name, and what pins the weights.
        batch_size: the most sentences per run.
        rounds: whether the graph rounds its activations: then it runs one sentence at a time, for equal vectors.
        threads: runs at the same time, each on one thread, which is faster than several in a run; None for all cores.
    """

    concurrent = True  # sessions and tokenizers take several threads

    def __init__(
        self,
        model: Path,
        tokenizer: Path,
        settings: OnnxSettings,
        *,
        name: str,
        revision: str,
        batch_size: int = 32,
        rounds: bool = False,
        threads: int | None = None,
    ) -> None:
        self._tokenizer = open_tokenizer(tokenizer, name)
        self._threads = threads or available_cores()
        self._graph = _Graph(model, name=name, threads=self._threads)
        self._batch_size = 1 if rounds or self._graph.alone else batch_size
        self._rounds = rounds
        limits = [limit for limit in (settings.positions, self._graph.length) if limit is not None]
        self._max_length = min([_USUAL, *limits]) if settings.max_length is None else settings.max_length
        least = self._tokenizer.num_special_tokens_to_add(is_pair=False) + 1
        most = min([LARGEST_LENGTH, *limits])
        if not least <= self._max_length <= most:
            raise InputError(f"encoder {name!r}: max_length must be from {least} to {most}, not {self._max_length}")
        if settings.lowercase:
            from tokenizers.normalizers import Lowercase
            from tokenizers.normalizers import Sequence as Normalizers

            others = [self._tokenizer.normalizer] if self._tokenizer.normalizer else []
            self._tokenizer.normalizer = Normalizers([Lowercase(), *others])
        self._tokenizer.enable_truncation(self._max_length)
        pooling, dim = self._graph.choose(settings.pooling)
        if not limits and self._max_length > _USUAL:  # no file says how many positions there are: better now than later
            self._graph.check_length(self._max_length)
        extra = (("lowercase", "true"),) if settings.lowercase else ()
        self._spec = EncoderSpec(
            name, "onnx", dim, revision, settings.prompt, self._max_length, pooling, settings.normalize, extra
        )

    def embed(self, sentences: list[str]) -> FloatArray:
        """Return pooled vectors; sentences of similar length run together, so that there is little padding."""
        prompted = [self._spec.prompt + sentence for sentence in sentences]
        tokens = first_ids(self._tokenizer, prompted, self._max_length)
        result = np.zeros((len(sentences), self._spec.dim), np.float32)
        lengths, graph = [len(ids) for ids in tokens], self._graph
        runs = batches(lengths, size=self._batch_size, threads=self._threads, fixed=graph.length, mixed=graph.masked)
        # A graph that rounds stays on one thread: sums in another order may differ in their last bit.
        wide = len(runs) == 1 and not self._rounds and self._threads > 1

        def fill(rows: list[int]) -> None:
            # Any token does for padding, since no other token looks at it.
            ids = np.zeros((len(rows), graph.length or lengths[rows[0]]), np.int64)
            for i, row in enumerate(rows):
                ids[i, : lengths[row]] = tokens[row]
            mask = np.arange(ids.shape[1]) < np.array([lengths[row] for row in rows])[:, None]
            output = graph.run(ids, mask, wide=wide and ids.size >= _WIDE)
            result[rows] = output if self._spec.pooling == "model" else POOLINGS[self._spec.pooling](output, mask)

        if self._threads == 1 or len(runs) < 2:
            for rows in runs:
                fill(rows)
        else:
            with ThreadPoolExecutor(min(self._threads, len(runs))) as pool:
                list(pool.map(fill, runs))
        return unit_rows(result) if self._spec.normalize else result


def batches(lengths: Sequence[int], *, size: int, threads: int, fixed: int | None, mixed: bool) -> list[list[int]]:
    """Return the row numbers of sentences with so many tokens, longest first, in batches of at most `size`.

    Each is padded to `fixed` tokens, or to the longest of its batch. Unless lengths may be `mixed`, a batch has one.
    """
    padded = [fixed or length if length else 0 for length in lengths]
    budget = min(_MOST, max(_LEAST, -(-sum(padded) // (threads * _TURNS))))
    result: list[list[int]] = []
    for row in sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row]):
        batch = result[-1] if result else []
        fits = 0 < len(batch) < size and (len(batch) + 1) * padded[batch[0]] <= budget
        if fits and (mixed or lengths[row] == lengths[batch[0]]):
            batch.append(row)
        else:
            result.append([row])
    return result


def open_session(model: Path, threads: int, name: str, *, spinning: bool = True) -> Any:  # noqa: ANN401 - has no types
    """Open a graph on the CPU; raise an EncoderError that names the encoder if that fails."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    options.log_severity_level = 4  # its warnings concern devices that are not used here, its errors are raised
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises bare Exceptions
        raise EncoderError(f"encoder {name!r} cannot be opened from {model}: {error}") from error


class _Graph:
    """A graph: token numbers in, token vectors or sentence vectors out."""

    def __init__(self, model: Path, *, name: str, threads: int) -> None:
        self._model, self._name, self._threads = model, name, threads
        self._session = open_session(model, 1, name)  # several threads may use it at once
        self._wide_session: Any = None
        self._opening = threading.Lock()  # several threads may encode their first long text at once
        try:
            inputs = self._session.get_inputs()
            types = {node.name: node.type.removeprefix("tensor(").removesuffix(")") for node in inputs}
            self._outputs = [node.name for node in self._session.get_outputs()]
            shape: list[Any] = next((node.shape for node in inputs if node.name == "input_ids"), [])
        except UnicodeDecodeError as error:
            raise EncoderError(f"encoder {name!r}: a name in the graph of {model} is not UTF-8: {error}") from error
        self._inputs = {key: _TYPES.get(dtype) for key, dtype in types.items()}
        unusable = [key for key, dtype in self._inputs.items() if key not in _INPUTS or dtype is None]
        if unusable or "input_ids" not in self._inputs:
            wanted = ", ".join(unusable[:6]) or "no input_ids"
            way_out = f"a sentence can be given as {', '.join(_INPUTS)}. Export the model for feature extraction"
            raise EncoderError(f"encoder {name!r}: the graph of {model} wants {wanted}; {way_out}")
        sizes = [size if isinstance(size, int) else None for size in shape]
        self.masked = "attention_mask" in self._inputs  # it says which tokens are padding
        self.alone = sizes[:1] == [1]  # it takes one sentence at a time
        self.length = sizes[1] if len(sizes) == 2 else None  # the only number of tokens that it takes
        usable = self.length is None or (self.masked and 0 < self.length <= LARGEST_LENGTH)
        if len(sizes) != 2 or sizes[0] not in (None, 1) or not usable:
            takes = f"input_ids of shape {shape}{'' if self.masked else ' and no attention_mask'}"
            raise EncoderError(f"encoder {name!r}: the graph of {model} takes {takes}; export it with open axes")

    def choose(self, pooling: str | None) -> tuple[str, int]:
        """Choose the output that a pooling needs; return the pooling and the length of a vector."""
        ids = np.zeros((1, self.length or 1), np.int64)
        try:
            arrays = self._session.run(None, self._feeds(ids, np.arange(ids.shape[1])[None] < 1))
        except Exception as error:  # the library raises bare Exceptions of its own
            raise EncoderError(f"encoder {self._name!r}: the graph cannot be run: {error}") from error
        # The shapes of what it returns, not those it declares: exporters leave these open.
        shapes = {name: np.shape(array) for name, array in zip(self._outputs, arrays, strict=True)}
        first = ("last_hidden_state", "token_embeddings", "sentence_embedding")
        names = sorted(shapes, key=lambda name: first.index(name) if name in first else len(first))
        tokens = [name for name in names if len(shapes[name]) == 3]
        pooled = [name for name in names if len(shapes[name]) == 2]
        if pooling is None:
            pooling = "model" if pooled[:1] == ["sentence_embedding"] else "mean"
        if not tokens and pooled:
            pooling = "model"
        chosen = pooled if pooling == "model" else tokens
        if not chosen:
            made = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            message = f"the graph has no output for pooling={pooling}; of one token it makes {made}"
            raise (InputError if tokens else EncoderError)(f"encoder {self._name!r}: {message}")
        self._outputs = chosen[:1]
        return pooling, shapes[chosen[0]][-1]

    def check_length(self, tokens: int) -> None:
        """Raise an InputError unless a sentence of so many tokens can be run."""
        ids = np.zeros((1, tokens), np.int64)
        try:
            self.run(ids, np.ones_like(ids, np.bool_), wide=False)
        except Exception as error:  # the library raises bare Exceptions of its own
            raise InputError(f"encoder {self._name!r}: the graph does not take max_length={tokens} tokens") from error

    def run(self, ids: NDArray[np.int64], mask: NDArray[np.bool_], *, wide: bool) -> FloatArray:
        """Return the chosen output, as float32; computed by one thread or, if `wide`, by all of them."""
        session = self._session
        if wide:
            with self._opening:
                if self._wide_session is None:
                    # Threads that spin while they wait double a run's time where the cores are busy.
                    self._wide_session = open_session(self._model, self._threads, self._name, spinning=False)
                session = self._wide_session
        return np.asarray(session.run(self._outputs, self._feeds(ids, mask))[0], np.float32)

    def _feeds(self, ids: NDArray[np.int64], mask: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        feeds = dict(zip(_INPUTS, (ids, mask, np.zeros_like(ids), positions), strict=True))
        return {name: feeds[name].astype(dtype) for name, dtype in self._inputs.items()}


def open_onnx(request: Request) -> OnnxEncoder:
    """Open `onnx:DIR`, or a short name of the catalogue."""
    how: dict[str, Convert] = {"pooling": one_of(*POOLINGS, "model"), "max_length": int}
    options = request.options(**how) if request.entry else request.options(**how, file=str)
    folder = request.path
    model = folder / "model.onnx" if request.entry else _model_file(folder, options.get("file"))
    graph = read_graph(model)
    tokenizer = folder / "tokenizer.json"
    if request.entry:
        settings = OnnxSettings(options["pooling"], options["max_length"], options["positions"])
        revision = request.entry.revision
    else:
        settings = read_settings(folder, pooling=options.get("pooling"))
        settings = replace(settings, max_length=options.get("max_length", settings.max_length))
        # The names that files have in a model, whatever they are called here; the graph names files with weights.
        files = {"model.onnx": model, "tokenizer.json": tokenizer}
        files |= {f"data/{name}": model.parent / name for name in graph.external}
        revision = revision_of(files, label=f"hash {folder.name}", progress=request.progress)
    how_to_run: dict[str, Any] = {"batch_size": options.get("batch_size", 32), "rounds": graph.rounds}
    how_to_run |= {"name": request.name, "revision": revision, "threads": request.threads}
    encoder = OnnxEncoder(model, tokenizer, settings, **how_to_run)
    if options.get("pooling", encoder.spec.pooling) != encoder.spec.pooling:
        raise InputError(f"encoder {request.name!r}: the graph pools by itself; leave pooling out")
    return encoder


def _model_file(folder: Path, file: str | None) -> Path:
    """Return the ONNX file of a folder: the one asked for, the usual one, or the only one."""
    if folder.is_file():
        raise InputError(f"{folder} is a file; write onnx:{folder.parent}?file={folder.name}, beside tokenizer.json")
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: name one with an exported model, or see: ensembed encoders")
    present = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx") if path.is_file())
    choices = [file] if file else ["model.onnx", "onnx/model.onnx", *(present if len(present) == 1 else [])]
    if chosen := next((folder / choice for choice in choices if (folder / choice).is_file()), None):
        return chosen
    if file is None and present:
        raise InputError(f"{folder} has several ONNX files; say which, as file={present[0]}: {', '.join(present)}")
    way_out = f"it has: {', '.join(present)}" if present else "export a model to it"
    raise InputError(f"{folder} has no {f'file {file!r}' if file else 'ONNX file'}; {way_out}")
