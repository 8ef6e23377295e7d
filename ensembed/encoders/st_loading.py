"""Files of sentence-transformers models: which ones count, and loading them without output or untrusted code."""

from __future__ import annotations

import logging
import math
import os
import re
import stat
import threading
import unicodedata
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path, PureWindowsPath
from typing import Any

from ensembed.encoders.model_files import read_json, read_object, revision_of
from ensembed.encoders.token_ids import check_tokens
from ensembed.errors import EncoderError
from ensembed.fetch import hub_files as hub
from ensembed.support.extras import import_extra
from ensembed.support.file_limits import (
    POSITION_NUMBERS,
    SETTINGS_VALUES,
    TOKEN_CHARACTERS,
    TOKENIZER_BYTES,
    TOKENIZER_VALUES,
    TRANSFORMER_EXPERTS,
    TRANSFORMER_LAYERS,
    open_regular,
    parse_json,
)
from ensembed.support.progress import Progress
from ensembed.support.shown_objects import short_value

# Files that are not needed: texts, pictures, weights for other programs, what training left. A star crosses slashes.
_NOT_READ = (
    *("*.md", "LICENSE*", "NOTICE*", ".*", "*/.*", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg", "*.webp", "*.pdf"),
    *("*.onnx", "*.onnx_data", "onnx/*", "openvino/*", "*.h5", "*.msgpack", "*.ot", "*.tflite", "*.gguf", "*.mlmodel"),
    *("*.mlpackage/*", "coreml/*", "checkpoint-*/*", "runs/*", "eval/*", "*training_args.bin", "*optimizer.*"),
    *("*.log", "*trainer_state.json", "*_results.json", "data_config.json", "modelcard.json"),
)

# Files that the library reads besides weights: settings of modules, tokenizers of every format, templates of chats.
_READ = (
    *("*.json", "*.jinja", "*vocab.txt", "*merges.txt", "*dict.txt", "*.model", "*.spm", "*.codes", "*.tokenizer"),
    "*.tiktoken",
)

# Where the library looks for the weights of a module, in this order; an index names files that hold a part each.
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_INDEX = ".index.json"
# Settings of a transformer whose product is at most the number of its weights, of which the smallest have 4 bits.
_WIDTHS, _PER_BYTE = ("hidden_size", "d_model", "n_embd", "dim"), 2
_ROWS = re.compile(
    "vocab_size|intermediate_size|d_ff|ffn_dim|n_inner|position_embeddings|n_positions|hidden_size|d_model"
)
_COUNTED = re.compile("layer|depth|experts|num_labels|num_hidden_groups|inner_group_num")
# Settings whose product is at most the number of a module's weights: of dense, recurrent, convolution and norm layers.
_SIZES = (
    ("in_features", "out_features"),
    ("hidden_dim", "hidden_dim", "num_layers"),
    ("in_word_embedding_dimension", "out_channels"),
    ("dimension",),
)
# What a tokenizer has, which the library also takes from files, and whose arguments the settings may give.
_TABLES, _MADE = ("vocab", "merges"), ("model", "tokenizer", "processor", "config")
_TOKENIZER_FILES = ("tokenizer_config.json", "special_tokens_map.json")
_OLD_WEIGHTS = "pytorch_model*.bin"

# Code in another repository of the hub, as in `organisation/name--module.Class`.
_ELSEWHERE = re.compile(r'"([\w.-]+/[\w.-]+?)--[\w.]+"')

# The classes of modules and of activations that the libraries have themselves.
_MODULE = re.compile(r"sentence_transformers(\.\w+)*\.(models|modules)(\.\w+)*\.[A-Z]\w*")
_ACTIVATION = re.compile(r"torch\.nn(\.\w+)*\.[A-Z]\w*")
_COPY = ": copy what belongs to the model into its folder"

# The weights of the layer on top of BERT that only its pre-training used: many models are published without it.
_UNUSED = "pooler"
_MISSING = re.compile(r"^(\S+)\s*\|[^|\n]*MISSING", re.MULTILINE)
_MISSING_BEFORE_5 = re.compile(r"newly initialized: \[(.*?)\]", re.DOTALL)

# What the libraries log if they go on with something else than a model's files ask for.
_IGNORED = re.compile(r"is not trusted|unrecognized \w+ config key|silently ignored|^Unknown keys in")

# Loggers, progress bars and filters of warnings belong to the whole process: one thread at a time may change them.
_lock = threading.RLock()


def revision_of_model(folder: Path, *, code: bool, progress: Progress) -> str:
    """Return the hash over the files that change the vectors; with `code`, which may read any file, all with data."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    files = {name: path for name, path in files.items() if not _matches(name, _NOT_READ)}
    if not code:
        weights = [file for parent in sorted({path.parent for path in files.values()}) for file in _weights(parent)]
        files = {name: path for name, path in files.items() if _matches(name, _READ) and not name.endswith(_INDEX)}
        files |= {os.path.relpath(file, folder): file for file in weights}
    return revision_of(files, label=f"hash {folder.name}", progress=progress)


def fetch(repo: str, commit: str, *, code: bool, offline: bool, progress: Progress) -> Path:
    """Fetch the files that the library reads; weights of the older format only if there are no others."""
    # The patterns of old weights are those of a repository's root: modules behind the transformer have small ones.
    wanted = ["*"] if code else [*_READ, "*.safetensors", f"*/{_OLD_WEIGHTS}", _OLD_WEIGHTS]
    how: dict[str, Any] = {"offline": offline, "progress": progress}
    folder = hub.snapshot(repo, commit, wanted, ignore=[*_NOT_READ, _OLD_WEIGHTS], **how)
    if not any(folder.glob("*.safetensors")):
        folder = hub.snapshot(repo, commit, wanted, ignore=_NOT_READ, **how)
    return folder


def code_repositories(folder: Path) -> list[str]:
    """Return the other repositories of the hub whose code a model names."""
    text = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("*config.json")))
    return sorted(set(_ELSEWHERE.findall(text)))


def import_libraries(name: str) -> tuple[Any, Any, Any]:
    """Import sentence-transformers, transformers and torch without their warnings."""
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = ("sentence_transformers", "transformers", "torch")
        library, transformers, torch = (import_extra(module, "st", f"encoder {name!r}") for module in names)
    return library, transformers, torch


def load(name: str, folder: Path, *, device: str | None, precision: str, trust_remote_code: bool) -> Any:  # noqa: ANN401 - the library's own class
    """Load the model of a folder from nothing but the files in it and the code they name, or raise an EncoderError."""
    refuse_special_files(name, folder)
    _refuse_outside_files(name, folder, code=trust_remote_code)
    _refuse_tokenizers(name, folder, code=trust_remote_code)
    _refuse_long_tokens(name, folder)
    if not any((folder / file).is_file() for file in ("modules.json", "config.json")):
        raise EncoderError(f"encoder {name!r}: {folder} has neither modules.json nor config.json: it holds no model")
    if not trust_remote_code:
        _refuse_code(name, folder)
    library, transformers, torch = import_libraries(name)
    dtype = getattr(torch, precision)
    key = "dtype" if int(transformers.__version__.partition(".")[0]) >= 5 else "torch_dtype"
    with quiet() as messages:
        try:
            # Trusted code may lie in another repository.
            trust = {"trust_remote_code": trust_remote_code, "local_files_only": not trust_remote_code}
            model = library.SentenceTransformer(str(folder), device=device, model_kwargs={key: dtype}, **trust)
            # The other modules, too; their buffers stay as they are: rotary frequencies must not be rounded.
            for parameter in model.parameters():
                if parameter.is_floating_point():
                    parameter.data = parameter.data.to(dtype)
        except Exception as error:  # each of the libraries below raises errors of its own
            hint = _code_hint(name) if "trust_remote_code" in str(error) else ""
            raise EncoderError(f"encoder {name!r} cannot be opened from {folder}: {error}{hint}") from error
    _check_messages(name, folder, messages)
    return model.eval()


def _check_messages(name: str, folder: Path, messages: list[str]) -> None:
    """Raise an EncoderError if the libraries logged that they left something out or made up weights."""
    if ignored := next((message for message in messages if _IGNORED.search(message)), None):
        hint = _code_hint(name) if "not trusted" in ignored else ""
        raise EncoderError(f"encoder {name!r}: the vectors would not be those of the model: {ignored}{hint}")
    text = "\n".join(messages)
    missing = _MISSING.findall(text) + re.findall(r"'([^']+)'", " ".join(_MISSING_BEFORE_5.findall(text)))
    if absent := [tensor for tensor in missing if _UNUSED not in tensor]:
        lack = f"{len(absent)} tensors, among them {absent[0]}: random numbers would take their place"
        raise EncoderError(f"encoder {name!r}: the weights in {folder} lack {lack}; download the model again")


def check_declared_weights(name: str, file: Path, config: Mapping[str, Any]) -> None:
    """Raise an EncoderError if a module's settings declare more weights than its files have bytes.

    The library makes weights of the declared sizes before it reads the files.
    """
    for keys in _SIZES:
        sizes = [config.get(key) for key in keys]
        if all(type(size) is int for size in sizes):
            declared = math.prod(size for size in sizes if isinstance(size, int))
            if declared > sum(path.stat().st_size for path in file.parent.iterdir() if path.is_file()):
                told = ", ".join(f"{key}={config[key]}" for key in dict.fromkeys(keys))
                raise EncoderError(f"encoder {name!r}: {file} says {told}: the files beside it have no such weights")


def refuse_special_files(name: str, folder: Path) -> None:
    """Raise an EncoderError if there is a pipe or a device in a model's folder: the library would read without end."""
    for path in folder.rglob("*"):
        with suppress(OSError):  # a link that leads nowhere
            mode = path.stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise EncoderError(f"encoder {name!r}: {path} is neither a file nor a folder")


def _refuse_outside_files(name: str, folder: Path, *, code: bool) -> None:
    """Raise an EncoderError if a model takes files from elsewhere; a model's own `code` may do so in subfolders."""
    for file_name, file in _json_files(folder, everywhere=not code):
        if not file_name.endswith("_config.json") or _matches(file.relative_to(folder).as_posix(), _NOT_READ):
            continue
        config = _read_settings(file)
        if file_name == "adapter_config.json":
            raise EncoderError(
                f"encoder {name!r}: {file} makes the model an adapter of {config.get('base_model_name_or_path')!r}, "
                "whose weights are not in the folder: merge the adapter into its base model (peft: merge_and_unload)"
            )
        if not isinstance(config.get("max_seq_length"), int | None):
            raise EncoderError(
                f"encoder {name!r}: {file} has a max_seq_length that is no number; download the model again"
            )
        if file_name.startswith("sentence_") and config.get("tokenizer_name_or_path"):
            raise EncoderError(
                f"encoder {name!r}: {file} takes the tokenizer from {config['tokenizer_name_or_path']!r}, which is not "
                "in the folder: copy its files there, and remove tokenizer_name_or_path"
            )


def _refuse_tokenizers(name: str, folder: Path, *, code: bool) -> None:
    """Raise an EncoderError if a tokenizer's settings name files: the library would read any file that they name.

    It takes a text in the place of a vocabulary or of merges for the name of a file, which may be a pipe. Special
    tokens of a million characters, of which it takes 250 bytes each, are refused, too. Some versions of
    transformers, 5.5 for instance, take the tokenizer's files from where `tokenizer_config.json` says.
    """
    for file_name, file in _json_files(folder, everywhere=not code):
        places: list[object]
        if file_name == "tokenizer.json":
            content = _read_tokenizer(name, file)
            places = [content.get("model") if isinstance(content, dict) else None]
        elif file_name in _TOKENIZER_FILES or re.fullmatch(r"sentence_.*_config\.json", file_name, re.DOTALL):
            try:  # what exceeds the bounds of our reader would still be read by the library
                config = read_object(file, "download the model again")
            except EncoderError as error:
                raise EncoderError(f"encoder {name!r}: {error}") from error
            places = [config, *(config.get(f"{what}_{kind}") for what in _MADE for kind in ("args", "kwargs"))]
            versions = config.get("fast_tokenizer_files")
            if isinstance(versions, list) and (outer := [v for v in versions if not _is_plain(v)]):
                raise EncoderError(
                    f"encoder {name!r}: {file} names {short_value(outer[0])}, which is no file beside it"
                )
        else:
            continue
        for key, value in ((k, v) for place in places if isinstance(place, dict) for k, v in place.items()):
            if isinstance(value, str) and key.endswith("_token") and len(value) > TOKEN_CHARACTERS:
                told = f"{key} has {len(value):,} characters; at most {TOKEN_CHARACTERS:,} are allowed"
                raise EncoderError(f"encoder {name!r}: {file} is of no tokenizer: {told}")
            # Honest settings may name a file of the machine that they are from, which is not here.
            ignored = file_name == "tokenizer_config.json" and not _lies_elsewhere(value, folder)
            names_file = key in _TABLES or (key.endswith("_file") and not ignored)
            if isinstance(value, str) and names_file:
                raise EncoderError(
                    f"encoder {name!r}: {file} takes {key} from the file {short_value(value)}, which may lie anywhere: "
                    "save the tokenizer again, with its vocabulary in tokenizer.json"
                )


def _lies_elsewhere(place: object, folder: Path) -> bool:
    """Return whether this names a file or a folder that is there, and not in the model's own folder."""
    if not isinstance(place, str) or not os.path.exists(place):  # noqa: PTH110 - False for any text
        return False
    return not Path(place).resolve().is_relative_to(folder.resolve())


def _read_tokenizer(name: str, file: Path) -> object:
    """Read a `tokenizer.json`, which may be larger than other settings; an EncoderError if it is beyond its bounds."""
    try:
        return parse_json(_tokenizer_bytes(file), most_bytes=TOKENIZER_BYTES, most_values=TOKENIZER_VALUES)
    except (OSError, ValueError) as error:
        raise EncoderError(f"encoder {name!r}: {file} cannot be read: {error}; download the model again") from error


def _refuse_long_tokens(name: str, folder: Path) -> None:
    """Raise an EncoderError if the library would crash on a tokenizer, whichever `tokenizer….json` it reads."""
    for file_name, file in _json_files(folder):
        if file_name.startswith("tokenizer."):
            try:
                check_tokens(_tokenizer_bytes(file))
            except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
                raise EncoderError(f"encoder {name!r}: {file} is not a tokenizer: {error}") from error


def _tokenizer_bytes(file: Path) -> bytes:
    with open_regular(file) as stream:
        return stream.read(TOKENIZER_BYTES + 1)


def _refuse_code(name: str, folder: Path) -> None:
    """Raise an EncoderError if a model names code from outside the libraries, or folders that are not below its own.

    Versions of the library before 6 import whatever class a local model names. They find names in these files of every
    folder below the model's, and nowhere else, if no path and no link leads out of it.
    A `config.json` with so many values that the library would spend seconds on copying them is refused, too.
    """
    for link in (path for path in folder.rglob("*") if path.is_symlink() and path.is_dir()):
        if not link.resolve().is_relative_to(folder.resolve()):
            raise EncoderError(f"encoder {name!r}: {link} leads out of the model's folder, to {link.resolve()}{_COPY}")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    for file_name, file in _json_files(folder):
        if file_name not in ("modules.json", "config.json", "router_config.json", "wordembedding_config.json"):
            continue
        most = SETTINGS_VALUES if file_name == "config.json" else None
        try:
            content = read_json(file, "download the model again", most_values=most)
        except EncoderError as error:
            raise EncoderError(f"encoder {name!r}: {error}") from error
        classes, activations, places = list[object](), list[object](), list[object]()
        if file_name == "modules.json":
            if not isinstance(content, list) or not all(isinstance(m, dict) and "type" in m for m in content):
                raise EncoderError(f"encoder {name!r}: {file} is no list of modules; download the model again")
            classes, places = [module["type"] for module in content], [module.get("path", "") for module in content]
        elif not isinstance(content, dict):
            continue
        elif deep := next((fact for fact in _facts(content) if _is_deep(*fact)), None):
            told = f"{deep[0]}={short_value(deep[1])}"
            raise EncoderError(f"encoder {name!r}: {file} says {told}: no transformer is so deep")
        else:  # a file may look like several of these, and the library reads it as only one
            _check_sizes(name, file, content, most=_PER_BYTE * size)
            check_declared_weights(name, file, content)
            if isinstance(content.get("types"), dict):  # a router's modules
                classes, places = list(content["types"].values()), list(content["types"])
            if file_name.startswith("word"):
                classes.append(content.get("tokenizer_class"))
            if "in_features" in content or "." in str(content.get("activation_function", "")):  # a dense layer
                activations.append(content.get("activation_function", "torch.nn.Tanh"))
        for named, pattern, library in (
            (classes, _MODULE, "sentence-transformers"),
            (activations, _ACTIVATION, "torch"),
        ):
            if foreign := [cls for cls in named if not pattern.fullmatch(str(cls))]:
                outside = f"{foreign[0]!r}, which is no part of {library}"
                raise EncoderError(f"encoder {name!r}: {file} names {outside}.{_code_hint(name)}")
        if outer := [place for place in places if not _is_below(str(place))]:
            raise EncoderError(f"encoder {name!r}: {file} names {outer[0]!r}, outside of the model's folder{_COPY}")


def _json_files(folder: Path, *, everywhere: bool = True) -> list[tuple[str, Path]]:
    """Return the files that some system may open under a name that ends in .json, with that name, in a fixed order.

    macOS and Windows do not tell Modules.JSON from modules.json, and macOS ignores characters that are not shown.
    """
    files = []
    for path in sorted(folder.rglob("*") if everywhere else folder.glob("*")):
        folded = unicodedata.normalize("NFKC", path.name).casefold()
        name = "".join(letter for letter in folded if unicodedata.category(letter) != "Cf")
        files += [(name, path)] if name.endswith(".json") else []
    return files


def _is_plain(name: object) -> bool:
    """Return whether this is the name of a file in the same folder, on every system."""
    return isinstance(name, str) and PureWindowsPath(name).name == name


def _check_sizes(name: str, file: Path, config: Mapping[str, Any], *, most: int) -> None:
    """Raise an EncoderError if a transformer's settings, or those of a part of it, declare a matrix of more numbers.

    The library makes matrices of the declared sizes, and fills them, before it finds that the files have others.
    """
    width = max([1, *(size for key in _WIDTHS if type(size := config.get(key)) is int)])
    for key, value in config.items():
        if isinstance(value, dict):
            _check_sizes(name, file, value, most=most)
        elif (
            type(value) is int
            and _ROWS.search(key)
            and value * width > max(most, POSITION_NUMBERS * ("position" in key))
        ):
            told = f"{key}={short_value(value)} with vectors of {short_value(width)} numbers"
            raise EncoderError(f"encoder {name!r}: {file} says {told}: the model's files have no such weights")


def _facts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the keys and values of JSON objects within each other; the items of a list have the key of the list."""
    for key, item in value.items() if isinstance(value, dict) else ():
        for part in item if isinstance(item, list) else [item]:
            yield key, part
            yield from _facts(part)


def _is_deep(key: str, value: object) -> bool:
    """Return whether this is a number of layers or labels that the library would never finish making."""
    most = SETTINGS_VALUES if key == "num_labels" else TRANSFORMER_EXPERTS if "experts" in key else TRANSFORMER_LAYERS
    return isinstance(value, int) and value > most and "size" not in key and bool(_COUNTED.search(key))


def _is_below(place: str) -> bool:
    """Return whether a path of a model's file stays in the folder, on every system."""
    path = PureWindowsPath(place)  # which knows both kinds of slashes
    return not (path.anchor or ".." in path.parts)


def _code_hint(name: str) -> str:
    wanted = f"{name}{'&' if '?' in name else '?'}trust_remote_code=true"
    return f" The model brings code of its own, which would run here. If you have read and trust it, ask for {wanted}"


def _weights(folder: Path) -> Iterator[Path]:
    """Yield the files that the weights of a module are read from."""
    named = _read_settings(folder / "config.json").get("transformers_weights")  # transformers 4 ignores it
    first = next((name for name in _WEIGHTS if (folder / name).is_file()), None)
    for name in {str(name) for name in (named, first) if name}:
        index = _read_settings(folder / name).get("weight_map") if name.endswith(_INDEX) else None
        parts = set(index.values()) if isinstance(index, dict) else set()
        yield from (folder / file for file in (name, *map(str, parts)) if (folder / file).is_file())


def _read_settings(path: Path) -> dict[str, Any]:
    with suppress(EncoderError):  # the library reports damaged files
        return read_object(path, "")
    return {}


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


@contextmanager
def quiet() -> Iterator[list[str]]:
    """Keep bars, log lines and warnings of the libraries off the screen, and yield what they log, even if it is off."""
    messages: list[str] = []
    logger_class: Any = logging.Logger  # whose methods are replaced for a while
    handle, is_enabled = logger_class.handle, logger_class.isEnabledFor

    def is_of_the_libraries(logger: logging.Logger) -> bool:
        return logger.name.partition(".")[0] in ("transformers", "sentence_transformers")

    def capture(logger: logging.Logger, record: logging.LogRecord) -> None:
        messages.append(record.getMessage()) if is_of_the_libraries(logger) else handle(logger, record)

    def captures(logger: logging.Logger, level: int) -> bool:
        return bool(level >= logging.WARNING if is_of_the_libraries(logger) else is_enabled(logger, level))

    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = import_module("transformers.utils.logging")
        bars = settings.is_progress_bar_enabled()
        settings.disable_progress_bar()
        logger_class.handle, logger_class.isEnabledFor = capture, captures
        try:
            yield messages
        finally:
            logger_class.handle, logger_class.isEnabledFor = handle, is_enabled
            if bars:
                settings.enable_progress_bar()
