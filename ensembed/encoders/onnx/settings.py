"""What the files beside an exported transformer say of its use: pooling, length, normalisation, prompt.

They are those that transformers and sentence-transformers write. All of them may be absent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensembed.errors import EncoderError

# sentence-transformers' words for a pooling, up to version 5 as flags, from 6 on as names: ours, or None for those we
# lack.
_POOLINGS: dict[str, str | None] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "lasttoken": "last",
    "mean_sqrt_len_tokens": None,
    "weightedmean": None,
}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

# Models whose positions count from behind the padding token's number: with 514 embeddings they take 512 tokens.
_OFFSET_POSITIONS = (
    *("camembert", "data2vec-text", "ibert", "longformer", "luke", "mpnet", "roberta", "roberta-prelayernorm"),
    *("xlm-roberta", "xlm-roberta-xl", "xmod"),
)

# transformers writes 10^30 where a tokenizer has no limit.
_SANE = 1_000_000


@dataclass(frozen=True)
class OnnxSettings:
    """How a model is meant to be used; None where no file says.

    Attributes:
        pooling: how token vectors become one.
        max_length: tokens at the most, the special ones included.
        positions: the most tokens that the model can take.
        normalize: whether vectors are scaled to length one.
        lowercase: whether sentences are put in lower case, whatever the tokenizer does.
        prompt: put before every sentence.
    """

    pooling: str | None = None
    max_length: int | None = None
    positions: int | None = None
    normalize: bool = False
    lowercase: bool = False
    prompt: str = ""


def read_settings(folder: Path, *, pooling: str | None = None) -> OnnxSettings:
    """Read the settings of a model's folder.

    Args:
        folder: where the files are.
        pooling: what the user wants, whatever the files say; with `model`, which leaves all to the graph, modules that
            would be missed otherwise are no trouble.

    Raises:
        EncoderError: a file is damaged, or asks for what we do not have.
    """
    config = _read(folder / "config.json")
    transformer = _read(folder / "sentence_bert_config.json")
    modules = _modules(folder)
    for kind, path in modules:
        if kind not in ("Transformer", "Pooling", "Normalize") and pooling != "model":
            raise EncoderError(
                f"{folder / 'modules.json'} puts a {kind} module ({path}) behind the transformer, which onnx: does not "
                "run; open the original with st:, or export all of it as a graph with an output sentence_embedding "
                "and say pooling=model"
            )
    pooled = folder / next((path for kind, path in modules if kind == "Pooling"), "1_Pooling") / "config.json"
    prompt = _prompt(folder / "config_sentence_transformers.json")
    if prompt and _read(pooled).get("include_prompt") is False:
        raise EncoderError(
            f"{pooled} leaves the default prompt {prompt!r} out of the pooling, which onnx: does not do; open the "
            "original with st:"
        )
    if pooling is None:
        pooling = _pooling(pooled)
    positions = _positions(config)
    max_length = _max_length(folder, transformer)
    return OnnxSettings(
        pooling=pooling,
        max_length=min((limit for limit in (max_length, positions) if limit is not None), default=None),
        positions=positions,
        normalize=any(kind == "Normalize" for kind, _ in modules),
        lowercase=transformer.get("do_lower_case") is True,
        prompt=prompt,
    )


def _modules(folder: Path) -> list[tuple[str, str]]:
    """The modules of `modules.json`: the last part of their types' names, and where their files are."""
    path = folder / "modules.json"
    modules = _json(path)
    try:
        return [(module["type"].rpartition(".")[2], module["path"]) for module in modules or ()]
    except (AttributeError, KeyError, TypeError) as error:
        raise EncoderError(f"{path} is not a list of modules ({error!r})") from error


def _prompt(path: Path) -> str:
    """The prompt that is used where nobody asks for one."""
    config = _read(path)
    name = config.get("default_prompt_name")
    if name is None:
        return ""
    # As in sentence-transformers: every model has these two, empty where it says nothing of them.
    prompts = {"query": "", "document": ""}
    try:
        prompt = (prompts | (config.get("prompts") or {}))[name]
    except (KeyError, TypeError) as error:
        raise EncoderError(f"{path} has no prompt {name!r}, which it calls the default one") from error
    if not isinstance(prompt, str):
        raise EncoderError(f"{path} has a prompt {name!r} that is no text: {prompt!r}")
    return prompt


def _pooling(path: Path) -> str | None:
    """The pooling that a module's configuration names; None without a file."""
    config = _read(path)
    if not config:
        return None
    modes = config.get("pooling_mode")
    if modes is None:
        # As sentence-transformers has it: no flag at all means the mean.
        modes = [mode for flag, mode in _FLAGS.items() if config.get(flag)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    ours = _POOLINGS.get(modes[0]) if isinstance(modes, list) and len(modes) == 1 else None
    if ours is None:
        words = " and ".join(map(str, modes)) if isinstance(modes, list) else repr(modes)
        known = ", ".join(mode for mode in _POOLINGS.values() if mode)
        raise EncoderError(f"{path} asks for pooling by {words}, which onnx: lacks; it has {known}, as pooling=mean")
    return ours


def _max_length(folder: Path, transformer: Mapping[str, Any]) -> int | None:
    """The length that the files ask for: sentence-transformers' own, then transformers', then the tokenizer's."""
    tokenizer = _read(folder / "tokenizer_config.json")
    for value in (transformer.get("max_seq_length"), tokenizer.get("model_max_length")):
        if length := _length(value):
            return length
    truncation = _read(folder / "tokenizer.json").get("truncation")
    return _length(truncation.get("max_length")) if isinstance(truncation, dict) else None


def _positions(config: Mapping[str, Any]) -> int | None:
    """The most tokens that a model takes, by its `config.json`."""
    embeddings = _length(config.get("max_position_embeddings"))
    if embeddings is None or config.get("model_type") not in _OFFSET_POSITIONS:
        return embeddings
    pad = config.get("pad_token_id")
    return embeddings - (pad if isinstance(pad, int) else 1) - 1


def _length(value: Any) -> int | None:  # noqa: ANN401 - whatever the file holds
    """The value where it is a number of tokens."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if number and 1 <= value <= _SANE else None


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is no file."""
    data = _json(path)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise EncoderError(f"{path} holds a JSON {type(data).__name__}, not an object")
    return data


def _json(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds; None where there is none
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise EncoderError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise EncoderError(f"{path} is not JSON ({error}); export or fetch the model again") from error
