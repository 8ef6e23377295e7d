"""Read what the files of an exported transformer say about its use, without onnxruntime."""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ensembed.corpora.corpus import shorten
from ensembed.encoders.model_files import read_json, read_object
from ensembed.errors import EncoderError
from ensembed.support.file_limits import GRAPH_FIELDS, LARGEST_LENGTH, PROMPT_CHARACTERS, LimitError
from ensembed.support.protobuf import read_fields

# Operations that round activations to few bits. `DynamicQuantize…` choose one scale for all the activations of a run,
# so that a sentence's vector depends on its neighbours (cosines down to 0.97 seen). The others are a precaution.
_ROUNDING = ("DynamicQuantize", "QuantizeLinear", "MatMulInteger", "ConvInteger", "QLinear", "QAttention", "QGemm")
_WEIGHT_ONLY = ("MatMulNBits", "MatMulBnb4", "GatherBlockQuantized")  # some have their activations rounded, too
_HALVES = frozenset({10, 16, 17, 18, 19, 20})  # of TensorProto.DataType: floats of 16 bits and of 8

# The messages inside each message, by field number. A tensor's entries say where its content is.
_INSIDE = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {13: "entry"},
    "entry": {},
}

# sentence-transformers' flags for a pooling (up to version 5), and its names (from 6 on) with ours, where we have one.
_FLAGS = {
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}
_FLAGS |= {"weightedmean_tokens": "weightedmean", "lasttoken": "lasttoken"}
_POOLINGS = {"cls": "cls", "max": "max", "mean": "mean", "lasttoken": "last"}

# Models whose positions start behind the padding token's number: with 514 embeddings they take 512 tokens.
_OFFSET_POSITIONS = (
    *("camembert", "data2vec-text", "ibert", "longformer", "luke", "mpnet", "roberta", "roberta-prelayernorm"),
    *("xlm-roberta", "xlm-roberta-xl", "xmod"),
)
_INNER = re.compile(r"([\w .-][\w ./-]{0,200})?")  # a folder within that of a model
_HINT = "export or fetch the model again"


@dataclass(frozen=True)
class GraphFacts:
    """What has to be known of a graph before it runs."""

    operations: frozenset[str]  # their types, those of nested graphs included
    types: frozenset[int]  # of weights and constants, and those that it casts to, by ONNX's number
    external: tuple[str, ...]  # files that hold weights, relative to the graph's own folder

    @property
    def rounds(self) -> bool:
        """Whether activations are rounded to 16 bits or fewer: then sentences must run one at a time."""
        coarse = any(op.startswith(_ROUNDING + _WEIGHT_ONLY) for op in self.operations)
        return coarse or not self.types.isdisjoint(_HALVES)


def read_graph(path: Path) -> GraphFacts:
    """Read the facts from an ONNX file, which is a protobuf message. Weights are skipped, so that 2 GB take no time."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            facts = _facts(data)
    except OSError as error:
        raise EncoderError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # an empty file cannot be mapped
        raise EncoderError(f"{path} is no ONNX file, or incomplete ({error}); export or fetch it again") from error
    for location in facts.external:
        parts = PurePosixPath(location).parts
        if not parts or ".." in parts or PurePosixPath(location).is_absolute() or set(location) & {"\\", "\0"}:
            raise EncoderError(f"{path} says that weights are in {location!r}, outside of its own folder")
    return facts


def _facts(data: mmap.mmap) -> GraphFacts:
    operations, external, types = set[str](), set[str](), set[int]()
    messages: list[tuple[str, int, int]] = [("model", 0, len(data))]
    left = GRAPH_FIELDS
    while messages:
        kind, start, end = messages.pop()
        texts: dict[int, bytes] = {}
        numbers: dict[int, int] = {}
        for number, value in read_fields(data, start, end):
            left -= 1
            if left < 0:
                raise LimitError(f"it has more than {GRAPH_FIELDS:,} fields")
            if isinstance(value, int):
                numbers[number] = value
            elif isinstance(value, float):
                continue  # an attribute, none of which matters here
            elif number in _INSIDE[kind]:
                messages.append((_INSIDE[kind][number], *value))
            elif kind in ("node", "attribute", "entry"):  # never the weights, which are a tensor's fields
                texts[number] = data[slice(*value)]
        if kind == "node" and 4 in texts:
            operations.add(texts[4].decode())
        elif kind == "tensor":
            types.add(numbers.get(2, 0))
        elif kind == "attribute" and texts.get(1) == b"to":  # of a Cast: the type it casts to
            types.add(numbers.get(3, 0))
        elif kind == "entry" and texts.get(1) == b"location":
            external.add(texts.get(2, b"").decode())
    if not operations:
        raise ValueError("there is no graph in it")
    return GraphFacts(frozenset(operations), frozenset(types), tuple(sorted(external)))


@dataclass(frozen=True)
class OnnxSettings:
    """How a model is meant to be used; None where no file says."""

    pooling: str | None = None
    max_length: int | None = None  # the most tokens to use, special ones included
    positions: int | None = None  # the most tokens that the model can take
    normalize: bool = False  # scale vectors to length one
    lowercase: bool = False  # put sentences in lower case, whatever the tokenizer does
    prompt: str = ""  # put before every sentence


def read_settings(folder: Path, *, pooling: str | None = None) -> OnnxSettings:
    """Read the settings of a model's folder; an EncoderError if a file is damaged or asks for something unsupported.

    `pooling` is the user's choice. `model` leaves everything to the graph, so modules behind the pooling are no error.
    """
    transformer = read_object(folder / "sentence_bert_config.json", _HINT)
    modules = _modules(folder / "modules.json")
    for kind, path in modules:
        if kind not in ("Transformer", "Pooling", "Normalize") and pooling != "model":
            raise EncoderError(
                f"{folder / 'modules.json'} puts a {kind} module ({path}) behind the transformer, which onnx: does not "
                "run; use st:, or export all of it with an output sentence_embedding and say pooling=model"
            )
    pooling_file = folder / next((path for kind, path in modules if kind == "Pooling"), "1_Pooling") / "config.json"
    prompt = _default_prompt(folder / "config_sentence_transformers.json")
    if prompt and read_object(pooling_file, _HINT).get("include_prompt") is False:
        what = f"the default prompt {prompt!r} out of the pooling"
        raise EncoderError(f"{pooling_file} leaves {what}, which onnx: does not do; open the original with st:")
    positions = _positions(read_object(folder / "config.json", _HINT))
    limits = (_max_length(folder, transformer), positions)
    return OnnxSettings(
        pooling=_pooling(pooling_file) if pooling is None else pooling,
        max_length=min((limit for limit in limits if limit is not None), default=None),
        positions=positions,
        normalize=any(kind == "Normalize" for kind, _ in modules),
        lowercase=transformer.get("do_lower_case") is True,
        prompt=prompt,
    )


def _modules(path: Path) -> list[tuple[str, str]]:
    """Return the class name and the folder of each module in `modules.json`."""
    modules = read_json(path, _HINT) if path.is_file() else []
    try:
        named = [(module["type"].rpartition(".")[2], str(module["path"])) for module in modules]
    except (AttributeError, KeyError, TypeError) as error:
        raise EncoderError(f"{path} is not a list of modules ({error!r})") from error
    if outer := [place for _, place in named if not _INNER.fullmatch(place) or ".." in place]:
        raise EncoderError(f"{path} names {shorten(outer[0])}, which is no folder in that of the model")
    return named


def _default_prompt(path: Path) -> str:
    """Return the prompt that is used where a caller names none."""
    config = read_object(path, _HINT)
    name = config.get("default_prompt_name")
    if name is None:
        return ""
    prompts = {"query": "", "document": ""}  # as in sentence-transformers, every model has these two
    try:
        prompt = (prompts | (config.get("prompts") or {}))[name]
    except (KeyError, TypeError) as error:
        raise EncoderError(f"{path} has no prompt {name!r}, which it calls the default one") from error
    if not isinstance(prompt, str):
        raise EncoderError(f"{path} has a prompt {name!r} that is no text: {prompt!r}")
    if len(prompt) > PROMPT_CHARACTERS:
        raise EncoderError(
            f"{path} has a prompt of {len(prompt):,} characters; at most {PROMPT_CHARACTERS:,} are allowed"
        )
    return prompt


def _pooling(path: Path) -> str | None:
    """Return our name of the pooling that a module's configuration asks for; None without a file."""
    if not (config := read_object(path, _HINT)):
        return None
    modes = config.get("pooling_mode")
    if modes is None:  # as in sentence-transformers: no flag at all means the mean
        modes = [mode for flag, mode in _FLAGS.items() if config.get(f"pooling_mode_{flag}")] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    pooling = _POOLINGS.get(str(modes[0])) if isinstance(modes, list) and len(modes) == 1 else None
    if pooling is None:
        words = " and ".join(map(str, modes)) if isinstance(modes, list) else repr(modes)
        known = ", ".join(_POOLINGS.values())
        raise EncoderError(f"{path} asks for pooling by {words}, which onnx: lacks; it has {known}, as pooling=mean")
    return pooling


def _max_length(folder: Path, transformer: Mapping[str, Any]) -> int | None:
    """Return the length that the files ask for: sentence-transformers', then transformers', then the tokenizer's."""
    tokenizer = read_object(folder / "tokenizer_config.json", _HINT)
    truncation = read_object(folder / "tokenizer.json", _HINT).get("truncation")
    cut = truncation.get("max_length") if isinstance(truncation, dict) else None
    return _length(transformer.get("max_seq_length")) or _length(tokenizer.get("model_max_length")) or _length(cut)


def _positions(config: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a model takes, by its `config.json`."""
    embeddings = _length(config.get("max_position_embeddings"))
    if embeddings is None or config.get("model_type") not in _OFFSET_POSITIONS:
        return embeddings
    pad = config.get("pad_token_id")
    return embeddings - (pad if isinstance(pad, int) and 0 <= pad < embeddings - 1 else 1) - 1


def _length(value: object) -> int | None:
    """Return the value if it is a number of tokens."""
    # transformers writes 10^30 for a tokenizer without a limit.
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and 1 <= value <= LARGEST_LENGTH
    return int(value) if number else None  # type: ignore[call-overload]  # it is a number
