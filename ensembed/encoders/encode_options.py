"""Arguments of sentence-transformers' `encode`: what they do here, or what to write instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypedDict

from ensembed.errors import InputError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.progress import Progress, bars, silent

if TYPE_CHECKING:
    from ensembed.encoders.base import Encoder, FloatArray


class EncodeOptions(TypedDict, total=False):
    """Those of sentence-transformers' arguments that `encode` knows besides `batch_size`.

    `show_progress_bar` and `normalize_embeddings` do the same as there. The others are accepted with the value that
    describes what `encode` does anyway; any other value is an InputError that says what to write instead.
    """

    show_progress_bar: bool | None
    normalize_embeddings: bool
    convert_to_numpy: bool
    convert_to_tensor: bool
    device: Any
    prompt: str | None
    prompt_name: str | None
    output_value: str
    precision: str
    truncate_dim: int | None
    pool: Any
    chunk_size: int | None


_LIBRARY = "ensembed.integrations.sentence_transformers.to_sentence_transformer(model)"
_PROMPT = (
    "a prompt is part of an encoder's name, because it changes the vectors: 'st:intfloat/e5-small-v2?prefix=query: ' "
    "or, for a prompt that the model names itself, 'st:NAME?prompt=query'; for single calls, put it before the texts"
)
# What each argument may be, and what to write instead of another value.
_FIXED: dict[str, tuple[object, str]] = {
    "convert_to_numpy": (True, "the vectors are a numpy array; list(model.encode(texts)) is a list of them"),
    "convert_to_tensor": (
        False,
        "the vectors are a numpy array: write torch.from_numpy(model.encode(texts)); a model that gives tensors is "
        + _LIBRARY,
    ),
    "device": (
        None,
        "an encoder's device is part of its name, as in 'st:NAME?device=cuda'; other kinds compute on the CPU",
    ),
    "prompt": (None, _PROMPT),
    "prompt_name": (None, _PROMPT),
    "output_value": ("sentence_embedding", "encoders give one vector per sentence, and no token vectors"),
    "precision": (
        "float32",
        "vectors are float32; an index keeps int8 or binary ones: ensembed.search.Index.create(..., dtype='int8')",
    ),
    "truncate_dim": (
        None,
        "write model.truncate(k).encode(texts), or 'NAME?truncate_dim=k' for an encoder that was trained to be cut",
    ),
    "pool": (None, "one process encodes on all cores; several machines: Ensemble.fit(..., engine=Ray())"),
    "chunk_size": (None, "it belongs to `pool`, which there is not; batch_size bounds what is encoded at a time"),
}


INSTEAD = {
    "get_sentence_embedding_dimension": "model.dim",
    "get_embedding_dimension": "model.dim",
    "eval": "nothing: a model never changes",
    "similarity_pairwise": "model.similarity(texts1, texts2).diagonal()",
    "save_pretrained": "model.save(folder), and ensembed.integrations.hub.push_to_hub(model, 'org/name')",
    "push_to_hub": "ensembed.integrations.hub.push_to_hub(model, 'org/name')",
    "to": "the device in the name of an encoder, as in 'st:NAME?device=cuda'",
    "start_multi_process_pool": "model.encode(texts), which uses all cores",
    "encode_multi_process": "model.encode(texts), which uses all cores",
    "max_seq_length": "max_length in the name of an encoder, as in 'minilm?max_length=64'",
    "tokenizer": _LIBRARY,
    "tokenize": _LIBRARY,
}
"""What to write instead of other attributes that a model of sentence-transformers has."""


def encode_with_options(
    encoder: Encoder,
    sentences: Iterable[str],
    options: EncodeOptions,
    *,
    batch_size: int,
    progress: Progress = silent,
) -> FloatArray:
    """Return the vectors [n, d] of the sentences, or the vector [d] of one string, as the options ask for.

    Raises:
        InputError: an option has a value that `encode` cannot honour.
        TypeError: there is no such option.
    """
    for name, value in options.items():
        if name not in EncodeOptions.__annotations__:
            known = ", ".join(("progress", "batch_size", *EncodeOptions.__annotations__))
            raise TypeError(f"{type(encoder).__name__}.encode() takes no argument {name!r}; it takes: {known}")
        accepted, instead = _FIXED.get(name, (value, ""))
        if name == "device":  # "cuda" is "cuda:0" as well; members may have different ones
            accepted = value if all(f"{used}:".startswith(f"{value}:") for used in encoder.device.split(", ")) else None
        usual = value is None and name != "output_value"  # where None asks for all that there is, token vectors too
        if not usual and value != accepted:
            raise InputError(f"encode(..., {name}={value!r}): {instead}")
    texts = [sentences] if isinstance(sentences, str) else sentences
    if options.get("show_progress_bar"):
        with bars(enabled=True) as bar:
            vectors = encoder.encode(texts, batch_size=batch_size, progress=bar)
    else:
        vectors = encoder.encode(texts, batch_size=batch_size, progress=progress)
    if options.get("normalize_embeddings"):
        vectors = unit_rows(vectors)
    return vectors[0] if isinstance(sentences, str) else vectors
