"""Static token vectors: a `tokenizer.json` and one vector per token, averaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.fingerprints import revision_of_folder
from ensembed.encoders.names import Request
from ensembed.errors import EncoderError

# Tokens looked up at a time: bounds the memory that one very long sentence takes.
_LOOKUP = 65536


class StaticEncoder(Encoder):
    """The mean of the vectors of a sentence's tokens; no token, no vector: the result is zero.

    Args:
        folder: holds `tokenizer.json` and `model.safetensors` with one matrix [vocabulary, d].
        name: what to call it.
        revision: pins the weights.
    """

    def __init__(self, folder: Path, *, name: str, revision: str) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        try:
            tensors = load_file(folder / "model.safetensors")
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except (OSError, SafetensorError) as error:
            raise EncoderError(f"encoder {name!r} cannot be opened from {folder}: {error}") from error
        except Exception as error:  # tokenizers raises bare Exceptions
            raise EncoderError(f"encoder {name!r}: {folder / 'tokenizer.json'} is not a tokenizer: {error}") from error
        if len(tensors) != 1:
            raise EncoderError(
                f"encoder {name!r}: {folder / 'model.safetensors'} holds {sorted(tensors)}, not one matrix"
            )
        self._vectors = next(iter(tensors.values())).astype(np.float32)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._spec = EncoderSpec(name, "static", self._vectors.shape[1], revision)

    @property
    def spec(self) -> EncoderSpec:
        """Everything that changes the numbers."""
        return self._spec

    def embed(self, sentences: list[str]) -> FloatArray:
        """The mean of the tokens' vectors."""
        result = np.zeros((len(sentences), self._spec.dim), np.float32)
        for row, encoding in zip(
            result, self._tokenizer.encode_batch_fast(sentences, add_special_tokens=False), strict=True
        ):
            ids = encoding.ids
            for start in range(0, len(ids), _LOOKUP):
                row += self._vectors[ids[start : start + _LOOKUP]].sum(axis=0)
            row /= max(len(ids), 1)
        return result


def open_static(request: Request) -> StaticEncoder:
    """`static:FILE`, or a short name of the catalogue."""
    options = request.options()
    folder = request.path
    revision = request.revision or revision_of_folder(folder, progress=request.progress)
    return StaticEncoder(folder, name=request.name, revision=revision, **options)
