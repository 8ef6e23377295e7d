"""`model2vec:NAME-OR-PATH`: models of the package model2vec, encoded as it does, without that package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import EncoderSpec
from ensembed.encoders.model_files import read_object
from ensembed.encoders.names_and_consent import Checked, Request, place_effects
from ensembed.encoders.static_encoder import StaticEncoder, read_tensor, revision_of_tensors, tensor_names
from ensembed.encoders.token_ids import open_tokenizer
from ensembed.errors import EncoderError, InputError
from ensembed.fetch.hub_files import chosen_commit, is_hub_name, snapshot
from ensembed.support.file_limits import LARGEST_LENGTH

if TYPE_CHECKING:
    from tokenizers import Tokenizer

OPENS = "NAME-OR-PATH of a model2vec model"
effects = place_effects

# Configuration, folder of the other files, name of the matrix: model2vec's layout, and sentence-transformers' two.
_LAYOUTS = (
    ("config.json", ".", "embeddings"),
    ("config_sentence_transformers.json", ".", "embedding.weight"),
    ("config_sentence_transformers.json", "0_StaticEmbedding", "embedding.weight"),
)
_LENGTH = Checked(
    int, range(LARGEST_LENGTH + 1).__contains__, f"a whole number from 0, for no limit, to {LARGEST_LENGTH}"
)
_HUB_FILES = [*(config for config, _, _ in _LAYOUTS[:2]), "model.safetensors", "tokenizer.json", "0_StaticEmbedding/*"]


class Model2VecEncoder(StaticEncoder):
    """A model2vec model: static vectors, cut, pooled and rounded as model2vec does, without the unknown token."""

    def __init__(
        self, spec: EncoderSpec, tokenizer: Tokenizer, matrix: NDArray[Any], *rows_and_weights: NDArray[Any] | None
    ) -> None:
        dtype = np.float16 if matrix.dtype == np.float16 else np.float32
        super().__init__(spec, tokenizer, matrix, *rows_and_weights, dtype=dtype)
        self._characters: int | None = None
        if spec.max_length is not None:
            tokenizer.enable_truncation(spec.max_length)
            self._characters = spec.max_length * int(np.median([len(token) for token in tokenizer.get_vocab()] or [1]))
        self._unknown = unknown_token(tokenizer)

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        """Return the mean of the known tokens' vectors, normalised if the model is."""
        result = super().embed(sentences)
        if self.spec.normalize:
            wide = result.astype(np.float32)
            # model2vec's formula: another one may round to another number of 16 bits.
            result = (wide / (np.linalg.norm(wide, axis=1, keepdims=True) + 1e-32)).astype(self._dtype)
        return result

    def _token_ids(self, sentences: list[str]) -> Iterator[list[int]]:
        for ids in super()._token_ids([sentence[: self._characters] for sentence in sentences]):
            yield [i for i in ids if i != self._unknown]


def open_model2vec(request: Request) -> Model2VecEncoder:
    """Open `model2vec:NAME-OR-PATH`, a folder or a model on the hub."""
    options = request.options(max_length=_LENGTH, revision=str)
    folder, commit = request.path, None
    if not folder.exists():
        if not is_hub_name(request.location):
            raise InputError(f"{request.location!r} is neither a folder here nor a name on the hub")
        commit = chosen_commit(request.location, options.get("revision"), request.pinned, offline=request.offline)
        folder = snapshot(request.location, commit, _HUB_FILES, offline=request.offline, progress=request.progress)
    elif "revision" in options:
        raise InputError(f"encoder {request.name!r}: {folder} is a folder, and only hub models have revisions")
    config, file, tensor = _find_files(folder)
    tensors = tensor_names(file)
    if tensor not in tensors:
        raise EncoderError(f"{file} holds {', '.join(tensors) or 'nothing'}, not the {tensor} of a model2vec model")
    arrays = {name: read_tensor(file, name) for name in (tensor, "mapping", "weights") if name in tensors}
    length = options.get("max_length", config["max_length"]) or None
    dim, revision = (0, *arrays[tensor].shape)[-1], commit or revision_of_tensors(file, request)
    spec = EncoderSpec(request.name, "model2vec", dim, revision, max_length=length, normalize=config["normalize"])
    tokenizer = open_tokenizer(file.with_name("tokenizer.json"), request.name)
    return Model2VecEncoder(spec, tokenizer, arrays[tensor], arrays.get("mapping"), arrays.get("weights"))


def _find_files(folder: Path) -> tuple[dict[str, Any], Path, str]:
    """Return the configuration of a model2vec model, the file of its tensors and the name of the matrix."""
    for config, place, tensor in _LAYOUTS:
        file = folder / place / "model.safetensors"
        if file.is_file() and (folder / config).is_file():
            return _read_config(folder / config), file, tensor
    raise InputError(f"{folder} is no model2vec model: it needs config.json, model.safetensors and tokenizer.json")


def _read_config(path: Path) -> dict[str, Any]:
    """Return a configuration's length limit and normalisation, with model2vec's defaults."""
    config = read_object(path, "download the model again")
    length, normalize = config.get("max_length", 512), config.get("normalize", False)
    usable = length is None or (type(length) is int and 0 < length <= LARGEST_LENGTH)
    if not usable or not isinstance(normalize, bool):
        raise EncoderError(f"{path} has the values max_length={length!r}, normalize={normalize!r}, which make no sense")
    return {"max_length": length, "normalize": normalize}


def unknown_token(tokenizer: Tokenizer) -> int | None:
    """Return the number of the token for unknown text; None if there is none."""
    model: Any = tokenizer.model
    if not hasattr(model, "unk_token"):  # the unigram model knows only the number
        number: int | None = json.loads(tokenizer.to_str())["model"].get("unk_id")
        return number
    return None if model.unk_token is None else tokenizer.token_to_id(model.unk_token)
