"""Save a static student in model2vec's format: one vector per token, in float32, float16 or int8.

model2vec, sentence-transformers' `StaticEmbedding`, and `model2vec:` and `static:` here open the folder. In int8 every
token has a scale of its own, in the tensor `weights`, which `static:` does not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from ensembed.errors import InputError

Precision: TypeAlias = Literal["float32", "float16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
_NORMALIZE = "sentence_transformers.models.Normalize"


def static_files(
    vectors: NDArray[np.float32], tokenizer: str, precision: Precision, facts: Mapping[str, Any]
) -> dict[str, bytes]:
    """Return the files of a static model, by name.

    Args:
        vectors: [V, d] a vector per token, finite; that of the unknown token is zero.
        tokenizer: the content of `tokenizer.json`.
        precision: how the vectors are stored.
        facts: what `config.json` says besides.
    """
    modules = [
        {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"},
        {"idx": 1, "name": "1", "path": "1_Normalize", "type": _NORMALIZE},
    ]
    config = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "hidden_dim": int(vectors.shape[1]),
        "normalize": True,
        "max_length": None,  # sentence-transformers cuts nothing off, either
        "embedding_dtype": precision,
        **facts,
    }
    tensors = stored_vectors(vectors, precision)
    return {
        "model.safetensors": save({name: np.ascontiguousarray(array) for name, array in tensors.items()}),
        "tokenizer.json": tokenizer.encode(),
        "modules.json": json.dumps(modules, indent=1).encode() + b"\n",
        "config_sentence_transformers.json": b'{"similarity_fn_name": "cosine", "prompts": {}}\n',
        "config.json": json.dumps(config, indent=1).encode() + b"\n",
    }


def check_precision(precision: str) -> None:
    """Raise an InputError if vectors cannot be stored in this precision."""
    if precision not in PRECISIONS:
        raise InputError(f"precision is {' or '.join(PRECISIONS)}, not {precision!r}")


def stored_vectors(vectors: NDArray[np.float32], precision: Precision) -> dict[str, NDArray[Any]]:
    """Return the tensors that hold the vectors [V, d] in a precision."""
    check_precision(precision)
    # Vectors are scaled to the same mean length: float16 has no digits for very small or large ones, cosines no scale.
    length = float(np.sqrt(np.square(vectors.astype(np.float64)).sum(axis=1).mean())) or 1.0
    vectors = (vectors / length).astype(np.float32)
    if precision == "float32":
        return {"embeddings": vectors}
    if precision == "float16":
        return {"embeddings": vectors.astype(np.float16)}
    scales = np.abs(vectors).max(axis=1) / 127
    codes = np.rint(vectors / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)
    return {"embeddings": codes, "weights": scales.astype(np.float32)}


def without_unknown(vectors: NDArray[np.float32], unknown: int | None) -> NDArray[np.float32]:
    """Return the vectors with zeros for the unknown token, which model2vec leaves out."""
    if unknown is not None:
        vectors = vectors.copy()
        vectors[unknown] = 0
    return vectors


def save_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a student into a new folder, or replace an earlier student's, all or none."""
    from ensembed.support.atomic_files import alone, new_folder, sync
    from ensembed.support.progress import silent

    with alone(folder.with_name(f".{folder.name}.lock"), "save", silent), new_folder(folder) as temporary:
        for name, data in files.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            sync(path)
