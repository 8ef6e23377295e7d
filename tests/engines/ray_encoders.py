"""Encoders with faults, which the workers of a cluster import."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from pathlib import Path

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import EncoderError


class Watched(Encoder):
    """A slow encoder that leaves the number of its process in a folder; it is slowest on sentence 0."""

    def __init__(self, dim: int, folder: Path, seconds: float = 0.0) -> None:
        self._dim = dim
        self._folder = folder
        self._seconds = seconds

    @property
    def spec(self) -> EncoderSpec:
        return DemoEncoder(self._dim).spec

    def embed(self, sentences: list[str]) -> FloatArray:
        (self._folder / str(os.getpid())).touch()
        time.sleep(self._seconds * (20 if any(sentence.startswith("sentence 0 ") for sentence in sentences) else 1))
        return DemoEncoder(self._dim).embed(sentences)


class Sized(Encoder):
    """Leaves the numbers of sentences that it was given at a time."""

    def __init__(self, dim: int, folder: Path) -> None:
        self._dim = dim
        self._folder = folder

    @property
    def spec(self) -> EncoderSpec:
        return DemoEncoder(self._dim).spec

    def embed(self, sentences: list[str]) -> FloatArray:
        (self._folder / f"{len(sentences)}-{uuid.uuid4()}").touch()
        return DemoEncoder(self._dim).embed(sentences)


class Poisoned(Encoder):
    """Fails on sentences with one word, or dies on them: always, or so many times."""

    def __init__(self, dim: int, word: str, folder: Path, *, times: int | None = None, deadly: bool = False) -> None:
        self._dim = dim
        self._word = word
        self._folder = folder
        self._times = times
        self._deadly = deadly

    @property
    def spec(self) -> EncoderSpec:
        return DemoEncoder(self._dim).spec

    def embed(self, sentences: list[str]) -> FloatArray:
        if any(self._word in sentence.split() for sentence in sentences):
            done = len(list(self._folder.iterdir()))
            if self._times is None or done < self._times:
                (self._folder / f"failed-{done}-{os.getpid()}").touch()
                if self._deadly:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise EncoderError("this is poison")
        return DemoEncoder(self._dim).embed(sentences)


class Down(Encoder):
    """Fails on everything."""

    @property
    def spec(self) -> EncoderSpec:
        return DemoEncoder(3).spec

    def embed(self, sentences: list[str]) -> FloatArray:
        raise ConnectionError(f"the server is down, {len(sentences)} sentences were not sent")


class Locked(Encoder):
    """Cannot be sent to another process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def spec(self) -> EncoderSpec:
        return DemoEncoder(3).spec

    def embed(self, sentences: list[str]) -> FloatArray:
        return DemoEncoder(3).embed(sentences)


class Changing(Encoder):
    """Is another encoder in another process."""

    def __init__(self) -> None:
        self._seed = 1

    def __reduce__(self) -> tuple[object, tuple[object, ...], dict[str, int]]:
        return Changing, (), {"_seed": 2}

    @property
    def spec(self) -> EncoderSpec:
        return DemoEncoder(3, self._seed).spec

    def embed(self, sentences: list[str]) -> FloatArray:
        return DemoEncoder(3, self._seed).embed(sentences)
