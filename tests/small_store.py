"""A small corpus, an encoder that can be interrupted, and a store: what the tests of views share."""

from __future__ import annotations

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.base import Encoder, FloatArray
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.testing import Recorder

SENTENCES = [f"sentence {i % 7} of {i % 3}" for i in range(25)]
CORPUS = ListCorpus(SENTENCES)
ENCODER = DemoEncoder(4, seed=3)


class Interrupted(Recorder):
    """Raises when it is asked for the n-th time (from 1 on)."""

    def __init__(self, encoder: Encoder, call: int, error: type[BaseException]) -> None:
        super().__init__(encoder)
        self._calls_left = call
        self._error = error

    def embed(self, sentences: list[str]) -> FloatArray:
        self._calls_left -= 1
        if self._calls_left == 0:
            raise self._error
        return super().embed(sentences)
