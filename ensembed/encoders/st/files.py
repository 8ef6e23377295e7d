"""Which files of a sentence-transformers model count: those that the library reads, and that change the vectors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ensembed.encoders.fingerprints import revision_of
from ensembed.fetch import hub_files as hub
from ensembed.support.progress import Progress

# What neither the library nor a model's own code reads: texts and pictures, the same weights for other programs, what
# training left behind. A star crosses slashes.
_NOT_READ = (
    *("*.md", "LICENSE*", "NOTICE*", ".*", "*/.*", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg", "*.webp", "*.pdf"),
    *("*.onnx", "*.onnx_data", "onnx/*", "openvino/*", "*.h5", "*.msgpack", "*.ot", "*.tflite", "*.gguf", "*.mlmodel"),
    *("*.mlpackage/*", "coreml/*", "checkpoint-*/*", "runs/*", "eval/*", "*training_args.bin", "*optimizer.*"),
    *("*.log", "*trainer_state.json", "*_results.json", "data_config.json", "modelcard.json"),
)

# What the library reads apart from weights: settings of modules, tokenizers of every format, templates of chats.
_READ = (
    *("*.json", "*.jinja", "*vocab.txt", "*merges.txt", "*dict.txt", "*.model", "*.spm", "*.codes", "*.tokenizer"),
    "*.tiktoken",
)

# Where the weights of a module are looked for, in this order; an index names files that hold a part each.
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_INDEX = ".index.json"
_OLD_WEIGHTS = "pytorch_model*.bin"


def revision_of_model(folder: Path, *, code: bool, progress: Progress) -> str:
    """The hash over the files of a folder that change the vectors.

    Args:
        folder: the model's.
        code: whether the model's own code runs. It may read any file: all of them count, but those that hold no data.
        progress: told of bytes.

    Raises:
        InputError: a file cannot be read.
    """
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    files = {name: path for name, path in files.items() if not _matches(name, _NOT_READ)}
    if not code:
        weights = [file for parent in sorted({path.parent for path in files.values()}) for file in _weights(parent)]
        files = {name: path for name, path in files.items() if _matches(name, _READ) and not name.endswith(_INDEX)}
        files |= {os.path.relpath(file, folder): file for file in weights}
    return revision_of(files, label=f"hash {folder.name}", progress=progress)


def fetch(repo: str, commit: str, *, code: bool, progress: Progress) -> Path:
    """The folder with the files that the library reads; weights of the older format only where there are no others."""
    # The patterns of old weights are those of a repository's root: modules behind the transformer have small ones.
    wanted = ["*"] if code else [*_READ, "*.safetensors", f"*/{_OLD_WEIGHTS}", _OLD_WEIGHTS]
    folder = hub.snapshot(repo, commit, wanted, ignore=[*_NOT_READ, _OLD_WEIGHTS], progress=progress)
    if not any(folder.glob("*.safetensors")):
        folder = hub.snapshot(repo, commit, wanted, ignore=_NOT_READ, progress=progress)
    return folder


def outside(folder: Path, *, code: bool) -> str | None:
    """What a model takes from elsewhere, where the key does not see it change, and what to do; None without.

    A model's own code may have other uses for such files in other folders: with it, only the model's own ones count.
    """
    for file in sorted(folder.glob("*_config.json") if code else folder.rglob("*_config.json")):
        if _matches(file.relative_to(folder).as_posix(), _NOT_READ):
            continue
        config = _read(file)
        if file.name == "adapter_config.json":
            return (
                f"{file} makes the model an adapter of {config.get('base_model_name_or_path')!r}, whose weights are "
                "not in the folder: merge the adapter into its base model first (peft: merge_and_unload) and save that"
            )
        if file.name.startswith("sentence_") and config.get("tokenizer_name_or_path"):
            return (
                f"{file} takes the tokenizer from {config['tokenizer_name_or_path']!r}, which is not in the folder: "
                "copy its files there, and remove tokenizer_name_or_path"
            )
    return None


def _weights(folder: Path) -> Iterator[Path]:
    """The files that the weights of a module are read from."""
    named = _read(folder / "config.json").get("transformers_weights")  # which version 4 of transformers does not heed
    first = next((name for name in _WEIGHTS if (folder / name).is_file()), None)
    for name in {str(name) for name in (named, first) if name}:
        index = _read(folder / name).get("weight_map") if name.endswith(_INDEX) else None
        parts = set(index.values()) if isinstance(index, dict) else set()
        yield from (folder / file for file in (name, *map(str, parts)) if (folder / file).is_file())


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none: the library says what is wrong with a damaged file."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
