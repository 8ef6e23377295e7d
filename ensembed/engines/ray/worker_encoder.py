"""How a worker gets an encoder: by its name, which the worker opens itself, or as a pickled object."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensembed.encoders import Encoder, EncoderSpec, open_encoder
from ensembed.encoders.base import AllowedName, FloatArray, same_settings
from ensembed.encoders.names_and_consent import parse_name
from ensembed.errors import EncoderError, EnsembedError, InputError, MissingError

_BATCHING = ("st", "tfhub")  # kinds whose names have an option `batch_size`: the sentences of one run of the model


@dataclass(frozen=True)
class Source:
    """What a worker needs to get an encoder.

    Attributes:
        spec: the encoder's; the worker opens its name, without the network if `offline`.
        threads: cores to use.
        batch_size: sentences in a call or a run of the model; None leaves it to the encoder.
        pickled: refers to an object's bytes; None for an encoder that is opened by name.
    """

    spec: EncoderSpec
    threads: int
    batch_size: int | None = None
    pickled: Any = None
    offline: bool = False

    @classmethod
    def of(cls, encoder: Encoder, threads: int, batch_size: int | None = None) -> Source:
        """Return the source of an encoder that is open here."""
        if _has_name(encoder):
            source = cls(encoder.spec, threads, batch_size, offline=encoder.offline)
            source._check_batch_size()
            return source
        import ray
        from ray import cloudpickle

        try:
            data = cloudpickle.dumps(encoder)
        except Exception as error:  # whatever an object's own pickling raises
            raise EncoderError(
                f"encoder {encoder.spec.name!r} is an object that cannot be sent to other processes: {error!r}; name "
                "an encoder that workers open themselves, or give the object's class a `__reduce__`"
            ) from error
        return cls(encoder.spec, threads, batch_size, ray.put(data))

    @property
    def batches_itself(self) -> bool:
        """Whether the encoder knows the batch size, and takes any number of sentences in a call."""
        return self.batch_size is None or (self.pickled is None and parse_name(self.spec.name).scheme in _BATCHING)

    def encode(self, encoder: Encoder, sentences: list[str]) -> FloatArray:
        """Return the vectors of the sentences by the opened encoder, `batch_size` sentences at a time."""
        if self.batch_size is None or self.batches_itself or not sentences:
            return encoder.encode(sentences)
        starts = range(0, len(sentences), self.batch_size)
        return np.concatenate([encoder.encode(sentences[k : k + self.batch_size]) for k in starts])

    def open(self) -> Encoder:
        """Open the encoder in a worker; files of the catalogue are fetched if this node lacks them."""
        subject = f"encoder {self.spec.name!r} on the node {socket.gethostname()}"
        try:
            encoder = self._open()
        except EnsembedError as error:
            raise type(error)(f"{subject}: {error}") from error
        except Exception as error:  # a class that cannot be imported here, a model that does not load
            raise EncoderError(f"{subject} cannot be opened: {error!r}") from error
        if not same_settings(encoder.spec, self.spec):
            raise EncoderError(
                f"{subject} is not the one the driver has: it has the key {encoder.spec.key}, not {self.spec.key}; use "
                "the same files and the same ensembed on all nodes"
            )
        return encoder

    def _open(self) -> Encoder:
        if self.pickled is not None:
            import ray
            from ray import cloudpickle

            encoder: Encoder = cloudpickle.loads(ray.get(self.pickled))
            return encoder
        name = self.spec.name
        if self.batch_size is not None and self.batches_itself:
            name += self._batch_size_option
        # What was opened without the network is so here, too. Files of the catalogue are fetched: they need no consent.
        allowed = AllowedName(name, self.offline)
        try:
            return open_encoder(allowed, threads=self.threads, pinned=self.spec.revision)
        except MissingError:
            entry = parse_name(self.spec.name).entry
            if entry is None:
                raise
            from ensembed.fetch.fetcher import pull

            pull([entry.name])
            return open_encoder(allowed, threads=self.threads, pinned=self.spec.revision)

    @property
    def _batch_size_option(self) -> str:
        """The end of a name that sets the batch size; as `parse_name`, look for options after a `#` if there is one."""
        head, _, tail = self.spec.name.partition("#")
        return f"{'&' if '?' in (tail or head) else '?'}batch_size={self.batch_size}"

    def _check_batch_size(self) -> None:
        if self.batch_size is None or not self.batches_itself:
            return
        name = self.spec.name
        if "batch_size" in parse_name(name).query:
            problem = f"the name of {name!r} sets a batch_size, and its resources set {self.batch_size}"
            raise InputError(f"{problem}: set it once")
        if "batch_size" in dict(self.spec.extra):
            raise InputError(
                f"the vectors of {name!r} depend on its batch_size, which is therefore a part of its name: add "
                f"{self._batch_size_option} to it, and leave it out of the resources"
            )


def _has_name(encoder: Encoder) -> bool:
    """Return whether a worker would get the same encoder by name; a wrapper around one may carry its name."""
    if encoder.spec.kind == "object" or not type(encoder).__module__.startswith("ensembed.encoders."):
        return False
    try:
        parse_name(encoder.spec.name)
    except InputError:
        return False
    return True
