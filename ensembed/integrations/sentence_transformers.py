"""A meta-encoder as a `SentenceTransformer` of sentence-transformers 6, and back.

model = to_sentence_transformer(ensembed.load("my-model"))   # its encode, evaluators, util.semantic_search, ...
model.save("folder")                                         # ensembed.load("folder") opens it, too
model = load("folder")                                       # no trust_remote_code, no code from the folder
"""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import check_sentences
from ensembed.encoders import AdjustedEncoder, Encoder, EncoderLike, EncoderSpec, open_encoder
from ensembed.encoders.base import AllowedName
from ensembed.encoders.names_and_consent import Trust
from ensembed.encoders.st_encoder import SentenceTransformerEncoder
from ensembed.encoders.st_loading import check_declared_weights, refuse_special_files
from ensembed.errors import EncoderError, InputError, MissingError, ModelError
from ensembed.integrations.model_card import model_card
from ensembed.integrations.model_source import as_meta_encoder, untrusted
from ensembed.methods.meta import Meta, Network
from ensembed.models.ensemble import Ensemble, MetaEncoder, Missing
from ensembed.models.opening import ModelLike, open_model
from ensembed.models.opening import load as load_model
from ensembed.models.saved_model import CONFIG, TENSORS
from ensembed.support.extras import import_extra
from ensembed.support.file_limits import read_json
from ensembed.support.progress import Progress, silent

__all__ = ["MetaEncoderModule", "load", "to_sentence_transformer", "to_stock_sentence_transformer"]

_WHAT = "the integration with sentence-transformers"
_LEAST_VERSION = 6
_SETTINGS, _MODULES, _CARD = "config_sentence_transformers.json", "modules.json", "README.md"
_SAVED_MODULE = "ensembed.integrations.st_modules"  # where saved folders say that the module is, since version 0.1
_OURS = f"{_SAVED_MODULE}.MetaEncoderModule"
# The types of the library's settings that are kept beside the modules.
_SETTING_TYPES = {"prompts": dict, "default_prompt_name": str, "similarity_fn_name": str, "truncate_dim": int}
_PROMPT = "ensembed"
_USAGE = """
## As a SentenceTransformer

With `pip install 'ensembed[st]'`, and without `trust_remote_code`:

```python
from ensembed.integrations.sentence_transformers import load

model = load("FOLDER")
```
"""

try:
    _installed = version("sentence-transformers")
except PackageNotFoundError:
    _installed = ""  # the import below says what to install
if _installed and int(_installed.partition(".")[0]) < _LEAST_VERSION:
    _upgrade = f"pip install 'ensembed[st]' 'sentence-transformers>={_LEAST_VERSION}'"
    raise MissingError(f"{_WHAT} needs version {_LEAST_VERSION}, and {_installed} is installed; upgrade: {_upgrade}")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the libraries' own, when they are imported
    _library = import_extra("sentence_transformers", "st", _WHAT)
    base_modules = import_extra("sentence_transformers.base.modules", "st", _WHAT)
    torch = import_extra("torch", "st", _WHAT)


class _Vectors(torch.Tensor):  # type: ignore[misc, name-defined] # torch's types are not read
    """A meta-encoder's vectors whose `[..., :k]`, as the library truncates, are the best k dimensions, not the first.

    They stay such vectors when they are normalised; whatever else is computed from them is a plain tensor.
    """

    meta: Meta

    @classmethod
    def of(cls, rows: Any, meta: Meta) -> _Vectors:  # noqa: ANN401 - a tensor
        """Return rows [n, d] of `meta.transform` as such vectors."""
        vectors: _Vectors = rows.as_subclass(cls)
        vectors.meta = meta
        return vectors

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - a tensor's
        rows = self.as_subclass(torch.Tensor)
        match index:
            case (EllipsisType(), slice(start=None, stop=int(k), step=None)) if k < self.meta.dim:
                return torch.from_numpy(self.meta.shorten(rows.float().cpu().numpy(), k)).to(rows)
        return rows[index]

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **(kwargs or {}))
        return cls.of(result, args[0].meta) if function is torch.nn.functional.normalize else result


class MetaEncoderModule(base_modules.InputModule):  # type: ignore[misc, name-defined] # the library's types are not read
    """The only module of a model, a meta-encoder without weights to train."""

    save_in_root = True

    def __init__(self, encoder: MetaEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        # Empty: it holds the device and precision that the library wants, and follows `model.to(...)`.
        self.register_buffer("place", torch.empty(0), persistent=False)

    @property
    def max_seq_length(self) -> int | None:
        """The number of tokens that every member reads; None if none has a limit."""
        limits = [encoder.spec.max_length for encoder in self.encoder.ensemble.encoders]
        return min((limit for limit in limits if limit is not None), default=None)

    def preprocess(
        self, inputs: Sequence[str], prompt: str | None = None, task: str | None = None, **_options: object
    ) -> dict[str, Any]:
        """Check the sentences and put the prompt before them; it replaces what members put before queries."""
        sentences = check_sentences(inputs)
        if prompt:
            return {"sentences": [prompt + sentence for sentence in sentences]}
        return {"sentences": sentences, "task": task}

    def forward(self, features: dict[str, Any], **_options: object) -> dict[str, Any]:
        """Add the meta-encoder's vectors, on the library's device."""
        roles = {"query": self.encoder.query_encoder, "document": self.encoder.document_encoder}
        encoder = roles.get(features.get("task") or "", self.encoder)
        rows = torch.from_numpy(encoder.encode(features["sentences"])).to(self.place)
        return features | {"sentence_embedding": _Vectors.of(rows, self.encoder.meta)}

    def get_embedding_dimension(self) -> int:
        """Return the length of a vector."""
        return self.encoder.spec.dim

    def get_config_dict(self) -> dict[str, Any]:
        """Return what `repr` shows."""
        return {"encoder": self.encoder.spec.name, "dim": self.encoder.spec.dim}

    def save(self, output_path: str, *_arguments: object, **_options: object) -> None:
        """Write what `MetaEncoder.save` writes: `ensembed.load` opens the folder, too."""
        self.encoder.save(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> MetaEncoderModule:  # noqa: ANN401 - whatever the library passes
        """Open a folder for `SentenceTransformer(folder, trust_remote_code=True)`; only `load` takes `trust=True`."""
        places = ("token", "cache_folder", "revision", "local_files_only")
        where = {name: options[name] for name in places if name in options}
        paths = [cls.load_file_path(model_name_or_path, name, subfolder, **where) for name in (TENSORS, CONFIG)]
        if None in paths:
            raise ModelError(f"{model_name_or_path} is not a saved model: {CONFIG} or {TENSORS} is missing")
        return cls(load_model(Path(paths[1]).parent))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle how to make the encoder in another process: sessions and locks cannot be copied."""
        return self.__dict__ | {"encoder": _recipe(self.encoder)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"encoder": _made(state["encoder"])})


MetaEncoderModule.__module__ = _SAVED_MODULE

_Recipe: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]


def _recipe(encoder: Encoder) -> _Recipe:
    """Return the function and arguments that make an encoder in another process: by name where it has one."""
    if isinstance(encoder, MetaEncoder):
        settings = encoder.settings
        members = tuple(map(_recipe, settings.pop("ensemble").encoders))
        return _made_meta, (members, settings)
    named = encoder.spec.kind != "object"
    if named and type(encoder).__module__.startswith("ensembed."):
        return _opened_again, (encoder.spec, encoder.offline)
    try:
        return pickle.loads, (pickle.dumps(encoder),)  # read in a process of this program, never from a file
    except Exception as error:  # whatever an object's own pickling raises
        if named:  # the encoder of a plug-in
            return _opened_again, (encoder.spec, encoder.offline)
        problem = f"encoder {encoder.spec.name!r} is an object that cannot be copied to another process: {error}"
        raise EncoderError(f"{problem}; encode without a pool, or make it picklable") from error


def _made(recipe: _Recipe) -> Any:  # noqa: ANN401 - an Encoder
    return recipe[0](*recipe[1])


def _made_meta(members: tuple[_Recipe, ...], settings: dict[str, Any]) -> MetaEncoder:
    return MetaEncoder(Ensemble([_made(member) for member in members]), **settings)


def _opened_again(spec: EncoderSpec, offline: bool) -> Encoder:
    encoder = open_encoder(AllowedName(spec.name, offline), pinned=spec.revision)
    if encoder.spec.key != spec.key:
        raise EncoderError(f"encoder {spec.name!r} opens as another one now: its files have changed")
    return encoder


def to_sentence_transformer(
    model: ModelLike,
    *,
    prompts: Mapping[str, str] | None = None,
    default_prompt_name: str | None = None,
    similarity_fn_name: str | None = None,
    truncate_dim: int | None = None,
    device: str | None = None,
    trust: Trust = False,
) -> Any:  # noqa: ANN401 - the library's class
    """Return a `SentenceTransformer` that gives the model's vectors.

    Args:
        model: a meta-encoder or any other encoder, the folder of a saved model, or an encoder's name.
        prompts: texts to put before sentences, by name; `query` and `document` are for `encode_query` and so on.
        default_prompt_name: the prompt that `encode` takes.
        similarity_fn_name: `cosine` (also for None), `dot`, `euclidean` or `manhattan`.
        truncate_dim: the number of dimensions to keep, the best ones; None for all.
        device: where the library puts the vectors; members compute where they were opened (`st:NAME?device=cuda`).
        trust: also open encoders that run code or use a network; see `ensembed.load`.

    Example:
        >>> from ensembed import Ensemble
        >>> from ensembed.methods import Concat
        >>> model = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"]).fit([], Concat())
        >>> to_sentence_transformer(model).encode(["a dog barks"]).shape
        (1, 14)
    """
    module = MetaEncoderModule(as_meta_encoder(open_model(untrusted(model), trust=trust)))
    names = {"default_prompt_name": default_prompt_name, "similarity_fn_name": similarity_fn_name}
    return _build([module], prompts=dict(prompts or {}), truncate_dim=truncate_dim, device=device, **names)


# The arguments of `ensembed.load`, written out: editors and type checkers show them.
def load(
    folder: str | Path,
    *,
    encoders: Mapping[str, EncoderLike] | None = None,
    threads: int | None = None,
    missing: Missing = "error",
    trust: Trust = False,
    device: str | None = None,
    progress: Progress = silent,
) -> Any:  # noqa: ANN401 - the library's class
    """Open a saved meta-encoder or its `SentenceTransformer`. No code of the folder runs: its modules are a ModelError.

    Args:
        folder: the folder that `SentenceTransformer.save` or `MetaEncoder.save` wrote.
        encoders: members that cannot be opened by name, as for `ensembed.load`.
        threads: cores per encoder.
        missing: "drop" goes on without members that fail, as for `ensembed.load`.
        trust: also open members that run code or use a network, as for `ensembed.load`.
        device: where the library puts the vectors.
        progress: receives long work that opening a member takes.
    """
    folder = Path(folder)
    settings = _settings(folder)
    kinds = _modules(folder)  # refused before members are opened, which takes time
    model = load_model(folder, encoders=encoders, threads=threads, missing=missing, trust=trust, progress=progress)
    modules = [MetaEncoderModule(model)]
    refuse_special_files(str(folder), folder)
    for kind, path in kinds:
        config = _read(folder / path / "config.json", dict, {})
        check_declared_weights(str(folder), folder / path / "config.json", config)
        activation = config.get("activation_function", "torch.nn.")
        if not str(activation).startswith("torch.nn."):  # the library would silently replace it by another one
            raise ModelError(f"{folder / path} has the activation {activation!r}, not torch's own, and it is not run")
        try:
            modules.append(kind.load(str(folder), subfolder=path, local_files_only=True, trust_remote_code=False))
        except Exception as error:  # each module raises its own errors
            raise ModelError(f"{folder}: the module in {path} is damaged: {error}") from error
    _check_followers(folder, modules)
    try:
        transformer = _build(modules, device=device, **settings)
    except ValueError as error:  # settings that contradict each other
        raise ModelError(f"{folder / _SETTINGS} is damaged: {error}") from error
    if (folder / _CARD).is_file():
        transformer._model_card_text = (folder / _CARD).read_text(encoding="utf-8", errors="replace")
    return transformer


def _check_followers(folder: Path, modules: list[Any]) -> None:
    """Raise a ModelError if the modules behind ours cannot take its vectors: their settings are read as they are."""
    features: dict[str, Any] = {"sentence_embedding": torch.zeros(1, modules[0].encoder.meta.dim)}
    try:
        with torch.no_grad():
            for module in modules[1:]:
                features = module(features)
        features["sentence_embedding"].shape[1]
    except Exception as error:  # each module raises its own errors
        raise ModelError(f"{folder}: a module cannot follow the meta-encoder: {error!r}") from error


def _build(modules: list[Any], **settings: Any) -> Any:  # noqa: ANN401 - the library's arguments and class
    transformer = _library.SentenceTransformer(modules=modules, **settings)
    # The card that the library would write tells people to load the folder in a way that it then refuses.
    transformer._model_card_text = model_card(modules[0].encoder) + _USAGE
    return transformer


def _settings(folder: Path) -> dict[str, Any]:
    """Return the library's settings; none if a meta-encoder was saved without it."""
    path = folder / _SETTINGS
    saved = _read(path, dict, {})
    settings = {name: saved[name] for name in _SETTING_TYPES if saved.get(name) is not None}
    wrong = {name: value for name, value in settings.items() if not isinstance(value, _SETTING_TYPES[name])}
    wrong = wrong or {f"prompt {k!r}": v for k, v in settings.get("prompts", {}).items() if not isinstance(v, str)}
    for name, value in wrong.items():
        raise ModelError(f"{path} is damaged: {name} is {value!r}")
    return settings


def _modules(folder: Path) -> list[tuple[Any, str]]:
    """Return the classes and folders of the modules behind ours."""
    modules = _read(folder / _MODULES, list, [{"type": _OURS, "path": ""}])
    if not all(isinstance(module, dict) and {"type", "path"} <= module.keys() for module in modules):
        raise ModelError(f"{folder / _MODULES} is damaged: it is no list of modules")
    if not modules or (modules[0]["type"], modules[0]["path"]) != (_OURS, ""):
        first = modules[0]["type"] if modules else None
        other = "open a model of the library's own with SentenceTransformer(folder), or as st:FOLDER"
        raise ModelError(f"{folder} holds no meta-encoder: its first module is {first!r}; {other}")
    root, followers = folder.resolve(), []
    for module in modules[1:]:
        path = str(module["path"])
        if not path or "\0" in path or root not in (root / path).resolve().parents:
            raise ModelError(f"{folder / _MODULES} is damaged: {path!r} is no folder below it")
        followers.append((_stock_class(folder, str(module["type"])), path))
    return followers


def _stock_class(folder: Path, name: str) -> Any:  # noqa: ANN401 - a class of the library
    module, _, attribute = name.rpartition(".")
    try:
        # Only parts of the installed library are imported, hence nothing that a folder could bring along.
        stock = module.startswith("sentence_transformers.")
        kind = getattr(import_module(module), attribute, None) if stock else None
    except ImportError:
        kind = None
    usable = isinstance(kind, type) and issubclass(kind, base_modules.Module)
    if not usable or issubclass(kind, base_modules.InputModule):  # type: ignore[arg-type] # a class if `usable`
        raise ModelError(f"{folder} names the module {name!r}, which is none of the library's that can follow another")
    return kind


def _read(path: Path, kind: type, default: object) -> Any:  # noqa: ANN401 - a `kind`
    """Read a JSON file whose content is of this type; return the default if there is no such file."""
    try:
        content = read_json(path)
    except FileNotFoundError:
        return default
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, kind):
        raise ModelError(f"{path} is damaged: it holds a {type(content).__name__}, not a {kind.__name__}")
    return content


def to_stock_sentence_transformer(model: MetaEncoder, *, device: str | None = None) -> Any:  # noqa: ANN401 - the library's
    """Return a `SentenceTransformer` of the library's own modules that gives the same vectors, to 1e-6 of their length.

    Saved, it opens anywhere without ensembed. A model that stock modules cannot express is an InputError.

    Args:
        model: a meta-encoder whose vectors depend on one member, a float32 `st:` model; others have weight 0.
        device: where to put it; None takes a GPU if there is one.
    """
    if not isinstance(model, MetaEncoder):
        raise InputError(f"stock modules are made from a meta-encoder, not from a {type(model).__name__}")
    counted = model.meta.counted
    if len(counted) != 1:
        names = ", ".join(repr(model.ensemble.encoders[j].spec.name) for j in counted)
        problem = f"{len(counted)} members count ({names}), and no module of sentence-transformers joins their vectors"
        raise InputError(f"{problem}: use to_sentence_transformer, or fit on one member")
    (j,) = counted
    member = model.ensemble.encoders[j]
    modules = [*_member_modules(member), *([base_modules.Normalize()] if model.meta.normalize else [])]
    modules += _network_modules(model.meta.projections[j].as_network(model.meta.dim))
    # `encode_query` and `encode_document` would take the model's own prompts, and a member has one prompt for all.
    prompt = member.spec.prompt
    prompts = {"query": prompt, "document": prompt} | ({_PROMPT: prompt} if prompt else {})
    default = _PROMPT if prompt else None
    return _library.SentenceTransformer(modules=modules, prompts=prompts, default_prompt_name=default, device=device)


def _member_modules(member: Encoder) -> Iterator[Any]:
    """Yield the modules of a member, and those for the options in its name."""
    name, extra = member.spec.name, dict(member.spec.extra)
    inner = member._encoder if isinstance(member, AdjustedEncoder) else member
    if not isinstance(inner, SentenceTransformerEncoder):
        raise InputError(f"member {name!r} is no model of sentence-transformers (st:...): stock modules cannot hold it")
    refused = {"trust_remote_code": "runs its own code", "task": "treats queries and documents apart"}
    for key, reason in (refused | {"long": "reads long texts in chunks"}).items():
        if key in extra:
            raise InputError(f"member {name!r} {reason}: that needs more than stock modules")
    if extra["precision"] != "float32":
        problem = f"member {name!r} has {extra['precision']} weights, to which the library would round the projection"
        raise InputError(f"{problem}: open it with precision=float32")
    if "prompt" in extra and member.spec.prompt != inner.spec.prompt:
        raise InputError(f"member {name!r} has a prompt that is not pooled and a prefix that is: leave one out")
    yield from (copy.deepcopy(module) for module in inner._model)
    with inner._model.truncate_embeddings(None):  # the length that the last module gives
        dim: int = inner._model.get_embedding_dimension()
    if member.spec.dim < dim:
        yield _linear(np.eye(dim, member.spec.dim, dtype=np.float32))
    if isinstance(member, AdjustedEncoder) and member.spec.normalize:
        yield base_modules.Normalize()


def _network_modules(network: Network) -> Iterator[Any]:
    """Yield the modules of a network; none if it changes nothing."""
    matrix, bias = network.layers[0].matrix, network.layers[0].bias
    if len(network.layers) == 1 and np.array_equal(matrix, np.eye(len(matrix))) and not bias.any():
        return
    activation = {"relu": torch.nn.ReLU(), "tanh": torch.nn.Tanh()}.get(network.activation)
    for layer in network.layers[:-1]:
        yield _linear(layer.matrix, layer.bias, activation)
        if network.activation == "unit":
            yield base_modules.Normalize()
    yield _linear(network.layers[-1].matrix, network.layers[-1].bias)


def _linear(matrix: NDArray[np.float32], bias: NDArray[np.float32] | None = None, activation: object = None) -> Any:  # noqa: ANN401 - a module
    """Return the library's dense layer x -> activation(x' matrix + bias)."""
    weight = torch.from_numpy(np.ascontiguousarray(matrix.T))
    initial = {"init_weight": weight, "init_bias": None if bias is None else torch.from_numpy(np.array(bias))}
    return base_modules.Dense(*matrix.shape, bias=bias is not None, activation_function=activation, **initial)
