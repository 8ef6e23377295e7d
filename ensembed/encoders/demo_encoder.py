"""`demo`: an encoder that needs no file, for tests, examples and trying things out."""

from __future__ import annotations

import hashlib
import re

import numpy as np

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.names_and_consent import Request
from ensembed.errors import InputError

OPENS = "nothing: vectors of hashed words, for trying things out"
effects = None

_MOST = 65536  # dimensions, and words in the cache: both bound its memory
_WORD = re.compile(r"\w+|[^\w\s]")


class DemoEncoder(Encoder):
    """The mean of one random vector per word, seeded by the word's hash.

    It knows no meaning, but sentences that share words are alike, which is enough to see things work.

    Args:
        dim: the length of a vector.
        seed: encoders of different seeds give the same word different vectors.
        name: the encoder's name.

    Example:
        >>> DemoEncoder(dim=4).encode(["a b", "b a"]).shape
        (2, 4)
    """

    concurrent = True  # only a cache is written, a word at a time

    def __init__(self, dim: int = 32, seed: int = 0, *, name: str | None = None) -> None:
        if not 1 <= dim <= _MOST:
            raise InputError(f"the demo encoder's dim must be from 1 to {_MOST}, not {dim}")
        if not -(2**63) <= seed < 2**63:
            raise InputError(f"the demo encoder's seed must fit in 64 bits, unlike {seed}")
        name = name or f"demo?dim={dim}&seed={seed}"
        self._spec = EncoderSpec(name, "demo", dim, revision="1", extra=(("seed", str(seed)),))
        self._vectors: dict[str, FloatArray] = {}
        self._salt = seed.to_bytes(8, "little", signed=True)

    def embed(self, sentences: list[str]) -> FloatArray:
        """Return the mean of each sentence's word vectors; a sentence without words gets zeros."""
        result = np.zeros((len(sentences), self._spec.dim), np.float32)
        for row, sentence in zip(result, sentences, strict=True):
            vectors = []
            for word in _WORD.findall(sentence.lower()):
                vector = self._vectors.get(word)
                if vector is None:
                    digest = hashlib.blake2b(word.encode(), digest_size=8, salt=self._salt).digest()
                    generator = np.random.default_rng(int.from_bytes(digest, "little"))
                    vector = generator.standard_normal(self._spec.dim, dtype=np.float32)
                    if len(self._vectors) >= _MOST:
                        self._vectors.clear()
                    self._vectors[word] = vector
                vectors.append(vector)
            if vectors:
                row[:] = np.mean(vectors, axis=0)
        return result


def open_demo(request: Request) -> DemoEncoder:
    """Open `demo`, with the options `dim` and `seed`."""
    options = request.options(dim=int, seed=int)
    if request.location:
        raise InputError(f"encoder {request.shown!r}: the demo encoder has no location; write demo")
    return DemoEncoder(**options, name=request.name)
