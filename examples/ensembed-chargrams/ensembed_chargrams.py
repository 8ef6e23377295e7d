"""`chargrams:DIM`: counts of hashed character n-grams, which see spelling and nothing else."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders import Encoder, EncoderSpec, Request, at_least
from ensembed.errors import InputError


class ChargramEncoder(Encoder):
    """Counts every n-gram of a sentence in one of `dim` buckets.

    Args:
        dim: buckets.
        n: characters per n-gram.
        name: the encoder's name.
    """

    def __init__(self, dim: int, n: int = 3, *, name: str = "chargrams") -> None:
        self._n = n
        # Everything that changes the numbers is in the spec: views are cached by its key.
        self._spec = EncoderSpec(name, "chargrams", dim, revision="1", pooling="sum", extra=(("n", str(n)),))

    def embed(self, sentences: list[str]) -> NDArray[np.float32]:
        """Return one row per sentence; the base class does the checks, duplicates and progress."""
        result = np.zeros((len(sentences), self._spec.dim), np.float32)
        for row, sentence in zip(result, sentences, strict=True):
            text = f" {sentence} "
            grams = (text[i : i + self._n] for i in range(max(len(text) - self._n + 1, 1)))
            buckets = [zlib.crc32(gram.encode()) % self._spec.dim for gram in grams]
            np.add.at(row, buckets, 1)
        return result


def open_chargrams(request: Request) -> ChargramEncoder:
    """Open `chargrams:DIM?n=N`."""
    options = request.options(n=at_least(1))
    if not request.location.isdecimal() or int(request.location) < 1:
        raise InputError(f"encoder {request.name!r}: write chargrams:DIM, as in chargrams:256")
    return ChargramEncoder(int(request.location), **options, name=request.name)
