"""Loading of sentence-transformers folders: no code that comes with a model, no other numbers than its, no noise."""

from __future__ import annotations

import json
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ensembed.encoders.st.files import outside
from ensembed.errors import EncoderError
from ensembed.support.extras import import_extra

_ELSEWHERE = re.compile(r'"([\w.-]+/[\w.-]+?)--[\w.]+"')

# The weights of the layer on top of BERT that only its pre-training used: many models are published without.
_UNUSED = "pooler"
_MISSING = re.compile(r"^(\S+)\s*\|[^|\n]*MISSING", re.MULTILINE)
_MISSING_BEFORE_5 = re.compile(r"newly initialized: \[(.*?)\]", re.DOTALL)

# What the libraries say where they go on with something else than a model's files ask for.
_IGNORED = re.compile(r"is not trusted|unrecognized \w+ config key|silently ignored|^Unknown keys in")

# Loggers, bars and filters of warnings are those of the whole process: one at a time may change them.
_lock = threading.RLock()


def code_repositories(folder: Path) -> list[str]:
    """The other repositories of the hub whose code a model names, as in `organisation/name--module.Class`."""
    text = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("*config.json")))
    return sorted(set(_ELSEWHERE.findall(text)))


def import_libraries(name: str) -> tuple[Any, Any, Any]:
    """sentence-transformers, transformers and torch, without what they have to say when they are imported."""
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = [
            import_extra(module, "st", f"encoder {name!r}")
            for module in ("sentence_transformers", "transformers", "torch")
        ]
    return modules[0], modules[1], modules[2]


def load(name: str, folder: Path, *, device: str | None, precision: str, trust_remote_code: bool) -> Any:  # noqa: ANN401 - the library's own class
    """The model of a folder, ready to encode, from nothing but the files in there and the code they name.

    Raises:
        EncoderError: it is no model, is damaged or incomplete, takes parts from elsewhere, needs code of its own to
            run, or asks for what the library would leave out.
        MissingError: sentence-transformers is not installed.
    """
    if taken := outside(folder, code=trust_remote_code):
        raise EncoderError(f"encoder {name!r}: {taken}")
    if not any((folder / file).is_file() for file in ("modules.json", "config.json")):
        raise EncoderError(f"encoder {name!r}: {folder} has neither modules.json nor config.json: it holds no model")
    if not trust_remote_code:
        _refuse_code(name, folder)
    library, transformers, torch = import_libraries(name)
    dtype = getattr(torch, precision)
    key = "dtype" if int(transformers.__version__.partition(".")[0]) >= 5 else "torch_dtype"
    with quiet() as messages:
        try:
            model = library.SentenceTransformer(
                str(folder),
                device=device,
                local_files_only=not trust_remote_code,  # its code may lie in another repository
                trust_remote_code=trust_remote_code,
                model_kwargs={key: dtype},
            )
            # The other modules, too; their buffers stay as they are: rotary frequencies must not be rounded.
            for parameter in model.parameters():
                if parameter.is_floating_point():
                    parameter.data = parameter.data.to(dtype)
        except Exception as error:  # each of the libraries below raises errors of its own
            hint = _code_hint(name) if "trust_remote_code" in str(error) else ""
            raise EncoderError(f"encoder {name!r} cannot be opened from {folder}: {error}{hint}") from error
    ignored = next((message for message in messages if _IGNORED.search(message)), None)
    if ignored:
        hint = _code_hint(name) if "not trusted" in ignored else ""
        raise EncoderError(f"encoder {name!r}: the vectors would not be those of the model: {ignored}{hint}")
    absent = [tensor for message in messages for tensor in _missing_tensors(message) if _UNUSED not in tensor]
    if absent:
        raise EncoderError(
            f"encoder {name!r}: the weights in {folder} lack {len(absent)} tensors, among them {absent[0]}: random "
            "numbers would take their place; download the model again"
        )
    return model.eval()


def _missing_tensors(message: str) -> list[str]:
    """The tensors that a report of transformers says it did not find."""
    before = _MISSING_BEFORE_5.search(message)
    return _MISSING.findall(message) + (re.findall(r"'([^']+)'", before[1]) if before else [])


def _refuse_code(name: str, folder: Path) -> None:
    """Refuse a model that names classes from outside the libraries.

    Version 5 of sentence-transformers imports modules from any folder, and an activation that it does not import it
    replaces by another one.
    """
    for file, kinds, library in _classes(name, folder):
        foreign = [kind for kind in kinds if not str(kind).startswith(f"{library}.")]
        if foreign:
            raise EncoderError(
                f"encoder {name!r}: {file} names {foreign[0]!r}, which is no part of "
                f"{library.replace('_', '-')}.{_code_hint(name)}"
            )


def _classes(name: str, folder: Path) -> Iterator[tuple[Path, list[object], str]]:
    """The files of a model that name classes to import, those classes, and the library they have to be from."""
    ours = "sentence_transformers"
    for file in sorted(folder.rglob("*.json")):
        if file.name not in ("modules.json", "config.json", "router_config.json", "wordembedding_config.json"):
            continue
        try:
            content = json.loads(file.read_bytes())
        except (OSError, ValueError) as error:
            raise EncoderError(f"encoder {name!r}: {file} is damaged: {error}") from error
        if file.name == "modules.json":
            if not isinstance(content, list) or not all(isinstance(m, dict) and "type" in m for m in content):
                raise EncoderError(f"encoder {name!r}: {file} is damaged: it is no list of modules")
            yield file, [module["type"] for module in content], ours
        elif not isinstance(content, dict):
            continue
        elif isinstance(content.get("types"), dict):  # a router's modules
            yield file, list(content["types"].values()), ours
        elif file.name.startswith("word"):
            yield file, [content.get("tokenizer_class")], ours
        elif {"in_features", "activation_function"} <= content.keys():  # a dense layer's
            yield file, [content["activation_function"]], "torch"


def _code_hint(name: str) -> str:
    more = "&" if "?" in name else "?"
    return (
        " The model brings code of its own, which would run on this machine. If you have read it and trust it, ask for "
        f"{name + more}trust_remote_code=true"
    )


@contextmanager
def quiet() -> Iterator[list[str]]:
    """Keep the bars, log lines and warnings of the libraries off the screen; what they log is yielded.

    Also what the user has switched off is yielded: that tensors are missing is only logged.
    """
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = import_module("transformers.utils.logging")
        bars = settings.is_progress_bar_enabled()
        captured = _Captured()
        disabled = logging.root.manager.disable
        loggers = _loggers()
        before = [(logger, logger.handlers, logger.level, logger.propagate, logger.disabled) for logger in loggers]
        settings.disable_progress_bar()
        logging.disable(min(disabled, logging.INFO))
        for logger in loggers:
            top = "." not in logger.name
            logger.handlers, logger.propagate, logger.disabled = [captured] if top else [], not top, False
            logger.setLevel(logging.WARNING if top else logging.NOTSET)
        try:
            yield captured.messages
        finally:
            for logger, handlers, level, propagate, off in before:
                logger.handlers, logger.propagate, logger.disabled = handlers, propagate, off
                logger.setLevel(level)
            logging.disable(disabled)
            if bars:
                settings.enable_progress_bar()


def _loggers() -> list[logging.Logger]:
    """The loggers of the libraries, and those below them that are not as they were made."""
    names = ("transformers", "sentence_transformers")
    below = [
        logger
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and name.startswith(tuple(f"{name}." for name in names))
    ]
    changed = [child for child in below if child.handlers or child.level or child.disabled or not child.propagate]
    return [*map(logging.getLogger, names), *changed]


class _Captured(logging.Handler):
    """Keeps messages instead of printing them."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
