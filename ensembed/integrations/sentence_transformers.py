"""A meta-encoder as a `SentenceTransformer` of sentence-transformers 6, and back.

model = to_sentence_transformer(ensembed.load("my-model"))   # its encode, evaluators, util.semantic_search, ...
model.save("folder")                                         # ensembed.load("folder") opens it, too
model = load("folder")                                       # no trust_remote_code, no code from the folder
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from ensembed.encoders import EncoderLike
from ensembed.errors import ModelError
from ensembed.integrations.st_modules import MetaEncoderModule, as_meta_encoder, base_modules
from ensembed.integrations.st_stock import to_stock_sentence_transformer
from ensembed.models.ensemble import Missing
from ensembed.models.opening import ModelLike, open_model
from ensembed.models.opening import load as load_model
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent

__all__ = ["MetaEncoderModule", "load", "to_sentence_transformer", "to_stock_sentence_transformer"]

SentenceTransformer: TypeAlias = Any
"""The library's class, whose types are not read."""

_SETTINGS, _MODULES, _CARD = "config_sentence_transformers.json", "modules.json", "README.md"
_OURS = f"{MetaEncoderModule.__module__}.{MetaEncoderModule.__name__}"
_LIBRARY = "sentence_transformers."


def to_sentence_transformer(
    model: ModelLike,
    *,
    prompts: Mapping[str, str] | None = None,
    default_prompt_name: str | None = None,
    similarity_fn_name: str | None = None,
    truncate_dim: int | None = None,
    device: str | None = None,
    trust: bool = False,
) -> SentenceTransformer:
    """A `SentenceTransformer` that gives the model's vectors.

    Args:
        model: a meta-encoder or any other encoder, the folder of a saved model, or an encoder's name.
        prompts: texts to put before sentences, by name; `encode_query` and `encode_document` take those called `query`
            and `document`.
        default_prompt_name: the prompt that `encode` takes.
        similarity_fn_name: `cosine`, which None is, too, `dot`, `euclidean` or `manhattan`.
        truncate_dim: how many dimensions to keep; None for all.
        device: where the library puts the vectors. The members compute where they were opened
            (`st:NAME?device=cuda`).
        trust: also open what runs code that comes with it, or sends sentences away.

    Example:
        >>> from ensembed import Ensemble
        >>> from ensembed.methods import Concat
        >>> model = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"]).fit([], Concat())
        >>> to_sentence_transformer(model).encode(["a dog barks"]).shape
        (1, 14)
    """
    return _build(
        [MetaEncoderModule(as_meta_encoder(open_model(model, trust=trust, from_file=True)))],
        prompts=dict(prompts or {}),
        default_prompt_name=default_prompt_name,
        similarity_fn_name=similarity_fn_name,
        truncate_dim=truncate_dim,
        device=device,
    )


def load(
    folder: str | Path,
    *,
    encoders: Mapping[str, EncoderLike] | None = None,
    threads: int | None = None,
    missing: Missing = "error",
    trust: bool = False,
    device: str | None = None,
    progress: Progress = silent,
) -> SentenceTransformer:
    """The `SentenceTransformer` of a folder that it or a meta-encoder was saved in.

    No code runs that the folder names or holds: the first module is ours, and those behind it must be of the library.

    Args:
        folder: where `SentenceTransformer.save` or `MetaEncoder.save` wrote.
        encoders: members that cannot be opened by name, as for `ensembed.load`.
        threads: cores per encoder.
        missing: "drop" goes on without members that fail, as for `ensembed.load`.
        trust: also open members that run code that comes with them or send sentences away, as for `ensembed.load`.
        device: where the library puts the vectors.
        progress: told of long work that opening a member takes.

    Raises:
        ModelError: the folder holds no model, is damaged, or names a module that is neither ours nor the library's.
    """
    folder = Path(folder)
    settings = _settings(folder)
    kinds = _modules(folder)  # refused before members are opened, which takes time
    model = load_model(folder, encoders=encoders, threads=threads, missing=missing, trust=trust, progress=progress)
    modules = [MetaEncoderModule(model)]
    for kind, path in kinds:
        _check_activation(folder / path)
        try:
            modules.append(kind.load(str(folder), subfolder=path, local_files_only=True, trust_remote_code=False))
        except Exception as error:  # each module raises errors of its own
            raise ModelError(f"{folder}: the module in {path} is damaged: {error}") from error
    try:
        made = _build(modules, device=device, **settings)
    except ValueError as error:  # settings that do not fit each other
        raise ModelError(f"{folder / _SETTINGS} is damaged: {error}") from error
    if (folder / _CARD).is_file():
        made._model_card_text = (folder / _CARD).read_text(encoding="utf-8", errors="replace")
    return made


def _check_activation(folder: Path) -> None:
    """Refuse a module whose activation the library would replace by another one, with no more than a line in a log."""
    config = _read(folder / "config.json", {})
    if not isinstance(config, dict):
        raise ModelError(f"{folder / 'config.json'} is damaged: it holds a {type(config).__name__}")
    activation = config.get("activation_function", "torch.")
    if not str(activation).startswith("torch."):
        raise ModelError(
            f"{folder} has the activation {activation!r}, which is not torch's own and is not run from a file"
        )


def _build(modules: list[Any], **settings: Any) -> SentenceTransformer:  # noqa: ANN401 - the library's arguments
    library = import_extra("sentence_transformers", "st", "to_sentence_transformer")
    made = library.SentenceTransformer(modules=modules, **settings)
    # The card that the library would write says to load the folder in a way that it then refuses.
    made._model_card_text = _card(modules[0])
    return made


def _settings(folder: Path) -> dict[str, Any]:
    """What the library keeps beside the modules; nothing where a meta-encoder was saved without it."""
    settings = _read(folder / _SETTINGS, {})
    types = {
        "prompts": dict,
        "default_prompt_name": str,
        "similarity_fn_name": str,
        "truncate_dim": int,
    }
    if not isinstance(settings, dict):
        raise ModelError(f"{folder / _SETTINGS} is damaged: it holds a {type(settings).__name__}")
    found = {name: settings[name] for name in types if settings.get(name) is not None}
    for name, value in found.items():
        if not isinstance(value, types[name]):
            raise ModelError(f"{folder / _SETTINGS} is damaged: {name} is {value!r}")
    for name, prompt in found.get("prompts", {}).items():
        if not isinstance(prompt, str):
            raise ModelError(f"{folder / _SETTINGS} is damaged: the prompt {name!r} is {prompt!r}")
    return found


def _modules(folder: Path) -> list[tuple[Any, str]]:
    """The classes and folders of the modules behind ours."""
    modules = _read(folder / _MODULES, [{"type": _OURS, "path": ""}])
    if not isinstance(modules, list) or not all(
        isinstance(module, dict) and {"type", "path"} <= module.keys() for module in modules
    ):
        raise ModelError(f"{folder / _MODULES} is damaged: it is no list of modules")
    if not modules or (modules[0]["type"], modules[0]["path"]) != (_OURS, ""):
        first = modules[0]["type"] if modules else None
        raise ModelError(
            f"{folder} holds no meta-encoder: its first module is {first!r}; a model of the library's own is opened "
            "with SentenceTransformer(folder), or as an encoder by st:FOLDER"
        )
    return [(_stock_class(folder, str(module["type"])), _below(folder, str(module["path"]))) for module in modules[1:]]


def _stock_class(folder: Path, name: str) -> Any:  # noqa: ANN401 - a class of the library
    module, _, attribute = name.rpartition(".")
    try:
        # The name of a part of the installed library, hence nothing that a folder could bring along.
        kind = getattr(import_module(module), attribute, None) if module.startswith(_LIBRARY) else None
    except ImportError:
        kind = None
    usable = isinstance(kind, type) and issubclass(kind, base_modules.Module)
    if not usable or issubclass(kind, base_modules.InputModule):  # type: ignore[arg-type] # a class if `usable`
        raise ModelError(f"{folder} names the module {name!r}, which is none of the library's that can follow another")
    return kind


def _below(folder: Path, path: str) -> str:
    root = folder.resolve()
    if not path or "\0" in path or root not in (root / path).resolve().parents:
        raise ModelError(f"{folder / _MODULES} is damaged: {path!r} is no folder below it")
    return path


def _read(path: Path, default: object) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return default
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


def _card(module: MetaEncoderModule) -> str:
    members = "\n".join(f"- `{encoder.spec.name}`" for encoder in module.encoder.ensemble.encoders)
    return f"""---
library_name: ensembed
pipeline_tag: sentence-similarity
tags:
- ensembed
- sentence-transformers
- feature-extraction
---

# {module.encoder.spec.name}

One sentence embedding of {module.get_embedding_dimension()} dimensions, made by
[ensembed](https://pypi.org/project/ensembed/) (method: `{module.encoder.meta.method["name"]}`) out of

{members}

Open it as a `SentenceTransformer`, with `pip install 'ensembed[st]'` and without `trust_remote_code`:

```python
from ensembed.integrations.sentence_transformers import load

model = load("THIS FOLDER")
```

or without sentence-transformers: `ensembed.load("THIS FOLDER")`.
"""
