"""The module of sentence-transformers that a meta-encoder is, and how it travels between processes."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ensembed.corpora.corpus import check_sentences
from ensembed.encoders import Encoder, open_encoder
from ensembed.encoders.base import EncoderSpec
from ensembed.errors import EncoderError, MissingError, ModelError
from ensembed.methods.meta import Meta
from ensembed.methods.projections import Placement
from ensembed.models.ensemble import Ensemble, MetaEncoder, Missing
from ensembed.models.opening import load
from ensembed.models.saved_model import CONFIG, TENSORS
from ensembed.support.extras import import_extra

_WHAT = "the integration with sentence-transformers"
_LEAST = 6

try:
    _installed = version("sentence-transformers")
except PackageNotFoundError:
    _installed = ""  # the import below says what to install
if _installed and int(_installed.partition(".")[0]) < _LEAST:
    raise MissingError(
        f"{_WHAT} needs version {_LEAST} of it, and {_installed} is installed; upgrade it with: "
        f"pip install 'ensembed[st]' 'sentence-transformers>={_LEAST}'"
    )
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the libraries have to say when they are imported
    import_extra("sentence_transformers", "st", _WHAT)
    base_modules = import_extra("sentence_transformers.base.modules", "st", _WHAT)
    torch = import_extra("torch", "st", _WHAT)


class MetaEncoderModule(base_modules.InputModule):  # type: ignore[misc, name-defined] # the library's types are not read
    """A meta-encoder as the first, and most often only, module of a `SentenceTransformer`.

    Its `preprocess` checks sentences and puts the prompt in front; its `forward` asks the meta-encoder. It has no
    weights that could be trained.

    Args:
        encoder: the meta-encoder.
    """

    save_in_root = True

    def __init__(self, encoder: MetaEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        # Empty: it says where and in which precision the library wants its vectors, and follows `model.to(...)`.
        self.register_buffer("place", torch.empty(0), persistent=False)

    @property
    def max_seq_length(self) -> int | None:
        """Tokens that every member reads; None where none has a limit."""
        limits = [encoder.spec.max_length for encoder in self.encoder.ensemble.encoders]
        return min((limit for limit in limits if limit is not None), default=None)

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **_options: object) -> dict[str, Any]:
        """The sentences, checked, with the prompt in front."""
        sentences = check_sentences(inputs)
        return {"sentences": [prompt + sentence for sentence in sentences] if prompt else sentences}

    def forward(self, features: dict[str, Any], **_options: object) -> dict[str, Any]:
        """The meta-encoder's vectors, where the library computes."""
        vectors = torch.from_numpy(self.encoder.encode(features["sentences"]))
        return features | {"sentence_embedding": vectors.to(self.place)}

    def get_embedding_dimension(self) -> int:
        """The length of a vector."""
        return self.encoder.spec.dim

    def get_config_dict(self) -> dict[str, Any]:
        """What a person sees of it."""
        return {"encoder": self.encoder.spec.name, "dim": self.encoder.spec.dim}

    def save(self, output_path: str, *_arguments: object, **_options: object) -> None:
        """Write what `MetaEncoder.save` writes: `ensembed.load` opens the folder, too."""
        self.encoder.save(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> MetaEncoderModule:  # noqa: ANN401 - whatever the library passes
        """What `SentenceTransformer(folder, trust_remote_code=True)` calls; that flag is not asked for by this class.

        Members that run code of their own or send sentences away are not opened: for those there is `load` of
        `ensembed.integrations.sentence_transformers`, with `trust=True`.
        """
        places = ("token", "cache_folder", "revision", "local_files_only")
        where = {name: options[name] for name in places if name in options}
        paths = [cls.load_file_path(model_name_or_path, name, subfolder, **where) for name in (TENSORS, CONFIG)]
        if None in paths:
            raise ModelError(f"{model_name_or_path} is not a saved model: {CONFIG} or {TENSORS} is missing")
        return cls(load(Path(paths[1]).parent))

    def __getstate__(self) -> dict[str, Any]:
        """For a process of a pool: members go by name where they have one, as sessions and locks cannot be copied."""
        return self.__dict__ | {"encoder": _pack(self.encoder)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"encoder": _unpack(state["encoder"])})


def as_meta_encoder(encoder: Encoder) -> MetaEncoder:
    """The meta-encoder itself; any other encoder as the only member of one that gives its very vectors."""
    if isinstance(encoder, MetaEncoder):
        return encoder
    dim = encoder.spec.dim
    meta = Meta({"name": "single"}, dim, (Placement(0, dim),), normalize=False)
    return MetaEncoder(Ensemble([encoder]), meta, name=encoder.spec.name)


@dataclass(frozen=True)
class _Named:
    """An encoder that another process opens by its name."""

    spec: EncoderSpec

    def open(self) -> Encoder:
        encoder = open_encoder(self.spec.name, pinned=self.spec.revision)
        if encoder.spec.key != self.spec.key:
            raise EncoderError(f"encoder {self.spec.name!r} opens as another one now: its files have changed")
        return encoder


@dataclass(frozen=True)
class _Copied:
    """An encoder that is copied to another process."""

    data: bytes

    def open(self) -> Encoder:
        # Made by `_pack` a moment ago in the process that started this one; nothing like it is ever read from a file.
        encoder: Encoder = pickle.loads(self.data)  # noqa: S301 - made by `_pack`
        return encoder


@dataclass(frozen=True)
class _Packed:
    """A meta-encoder on its way to another process."""

    members: tuple[_Named | _Copied | _Packed, ...]
    meta: Meta
    name: str
    missing: Missing
    corpus: str

    def open(self) -> MetaEncoder:
        return _unpack(self)


def _pack(encoder: MetaEncoder) -> _Packed:
    members = tuple(_pack_member(member) for member in encoder.ensemble.encoders)
    return _Packed(members, encoder.meta, encoder.spec.name, encoder.missing, encoder.corpus)


def _pack_member(encoder: Encoder) -> _Named | _Copied | _Packed:
    if isinstance(encoder, MetaEncoder):
        return _pack(encoder)
    named = encoder.spec.kind != "object"
    if named and type(encoder).__module__.startswith("ensembed."):
        return _Named(encoder.spec)
    try:
        return _Copied(pickle.dumps(encoder))
    except Exception as error:  # whatever a foreign object raises
        if named:  # a plug-in's
            return _Named(encoder.spec)
        raise EncoderError(
            f"encoder {encoder.spec.name!r} is an object that cannot be copied to another process: {error}; encode "
            "without a pool, or make it picklable"
        ) from error


def _unpack(packed: _Packed) -> MetaEncoder:
    ensemble = Ensemble([member.open() for member in packed.members])
    return MetaEncoder(ensemble, packed.meta, name=packed.name, missing=packed.missing, corpus=packed.corpus)
