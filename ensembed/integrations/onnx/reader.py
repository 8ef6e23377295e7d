"""Running an exported folder, by onnxruntime and tokenizers alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.token_ids import first_ids, open_tokenizer
from ensembed.errors import ModelError
from ensembed.support.machine import available_cores

CONFIG = "config.json"
KIND = "ensembed-onnx"
VERSION = 1


class OnnxModel(Encoder):
    """A model that `export_model` has written; an encoder like any other.

    Sentences of the same number of tokens run together, so that nothing is padded.

    Args:
        folder: where it was written.
        threads: of a run; None takes all cores. Graphs that round their activations run on one.

    Raises:
        ModelError: the folder is no such model, or damaged.
    """

    def __init__(self, folder: str | Path, *, threads: int | None = None) -> None:
        self._folder = Path(folder)
        config, digest = _read_config(self._folder)
        try:
            _check_files(self._folder, config["sha256"])
            self._texts = [_Text(self._folder / _plain(text["tokenizer"]), text) for text in config["texts"]]
            self._graphs = [_Graph(self._folder, graph, threads or available_cores()) for graph in config["graphs"]]
            name = config["combiner"]
            self._combiner = None if name is None else _session(self._folder / _plain(name), 1)
            dim = (self._combiner or self._graphs[0].session).get_outputs()[0].shape[1]
            said = config["dim"]
            self._spec = EncoderSpec(str(config["name"]), KIND, dim, digest[:16], pooling=str(config["method"]["name"]))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelError(f"{self._folder / CONFIG} is damaged: {error!r}; export again") from error
        if said != dim:
            raise ModelError(
                f"{self._folder / CONFIG} is damaged: its dim is {said!r}, and the graph gives {dim}; export again"
            )

    @property
    def spec(self) -> EncoderSpec:
        """Everything that changes the numbers."""
        return self._spec

    def embed(self, sentences: list[str]) -> FloatArray:
        """Tokens, the members' graphs, and the combiner."""
        tokens = [text.tokens(sentences) for text in self._texts]
        views = {graph.view: graph.run(tokens, self._texts) for graph in self._graphs}
        if self._combiner is None:
            return next(iter(views.values()))
        return np.asarray(self._combiner.run(["vector"], views)[0])


class _Text:
    """How sentences become tokens."""

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self._tokenizer = open_tokenizer(path, path.parent.name)
        self._prompt: str = facts["prompt"]
        self._max_length: int = facts["max_length"]
        self.length: int | None = facts["length"]
        self._tokenizer.enable_truncation(self._max_length)

    def tokens(self, sentences: list[str]) -> list[list[int]]:
        return first_ids(self._tokenizer, [self._prompt + sentence for sentence in sentences], self._max_length)


class _Graph:
    """A graph from tokens to vectors."""

    def __init__(self, folder: Path, facts: Mapping[str, Any], threads: int) -> None:
        self.view: str = facts["view"] or "vector"
        self._inputs = [(feed["text"], feed["input_ids"], feed["attention_mask"]) for feed in facts["inputs"]]
        self._batch: int = facts["batch"]
        self.session = _session(folder / _plain(facts["file"]), 1 if self._batch == 1 else threads)

    def run(self, tokens: Sequence[list[list[int]]], texts: Sequence[_Text]) -> FloatArray:
        """Vectors [n, d] of n sentences, whose tokens are there for each text."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for row in range(len(tokens[0])):
            # A graph takes one token at the least; that of a sentence without any is masked.
            lengths = tuple(max(len(tokens[t][row]), 1) for t, _, _ in self._inputs)
            groups.setdefault(lengths, []).append(row)
        found: dict[int, FloatArray] = {}
        for lengths, rows in groups.items():
            for start in range(0, len(rows), self._batch):
                batch = rows[start : start + self._batch]
                feeds: dict[str, NDArray[np.int64]] = {}
                for (t, ids_name, mask_name), length in zip(self._inputs, lengths, strict=True):
                    ids = np.zeros((len(batch), texts[t].length or length), np.int64)
                    mask = np.zeros_like(ids)
                    for i, row in enumerate(batch):
                        ids[i, : len(tokens[t][row])] = tokens[t][row]
                        mask[i, : len(tokens[t][row])] = 1
                    feeds |= {ids_name: ids, mask_name: mask}
                found |= dict(zip(batch, self.session.run(["vector"], feeds)[0], strict=True))
        return np.stack([found[row] for row in range(len(found))])


def _session(path: Path, threads: int) -> Any:  # noqa: ANN401 - the library has no types
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # its warnings concern devices that we do not use, its errors are raised
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises bare Exceptions of its own
        raise ModelError(f"{path} cannot be opened: {error}") from error


def _read_config(folder: Path) -> tuple[dict[str, Any], str]:
    """The configuration, and its hash."""
    try:
        data = (folder / CONFIG).read_bytes()
        config = json.loads(data)
    except FileNotFoundError:
        raise ModelError(f"{folder} is not an exported model: {CONFIG} is missing; export it again") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{folder / CONFIG} cannot be read: {error}") from error
    if not isinstance(config, dict) or config.get("kind") != KIND:
        raise ModelError(f"{folder} is not an exported model: its {CONFIG} is of another kind")
    if config.get("version") != VERSION:
        raise ModelError(f"{folder} has format {config.get('version')!r}; this ensembed reads {VERSION}: upgrade it")
    return config, hashlib.sha256(data).hexdigest()


def _check_files(folder: Path, hashes: Mapping[str, str]) -> None:
    """Every file must be as it was written."""
    for name, wanted in hashes.items():
        try:
            with (folder / _plain(name)).open("rb") as file:
                found = hashlib.sha256()
                while block := file.read(1 << 20):
                    found.update(block)
        except OSError as error:
            raise ModelError(f"{folder / name} cannot be read: {error.strerror or error}; export again") from error
        if found.hexdigest() != wanted:
            raise ModelError(f"{folder / name} is not as it was written: export again")


def _plain(name: str) -> str:
    """The name of a file of the folder itself."""
    if name != Path(name).name or "\\" in name or not name.strip("."):
        raise ValueError(f"{name!r} is no file of the folder")
    return name
