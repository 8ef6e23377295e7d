"""How an encoder comes to a worker: by its name, which the worker opens for itself, or as a pickled object."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from typing import Any

from ensembed.encoders import Encoder, EncoderSpec, open_encoder
from ensembed.encoders.names import parse_name
from ensembed.encoders.openai.revisions import PROBED
from ensembed.errors import EncoderError, EnsembedError, InputError, MissingError


@dataclass(frozen=True)
class Source:
    """What a worker needs to come by an encoder.

    Attributes:
        spec: what it has to be.
        threads: cores it may use, where it is opened by name.
        pickled: a reference to the object's bytes in the object store; None for an encoder that is opened by name.
    """

    spec: EncoderSpec
    threads: int
    pickled: Any = None

    @classmethod
    def of(cls, encoder: Encoder, threads: int) -> Source:
        """The source of an encoder that is open here.

        Raises:
            EncoderError: it can neither be opened by name nor pickled.
        """
        if _has_name(encoder):
            return cls(encoder.spec, threads)
        import ray
        from ray import cloudpickle

        try:
            data = cloudpickle.dumps(encoder)  # type: ignore[no-untyped-call] # the library has no types
        except Exception as error:  # whatever an object's own pickling raises
            raise EncoderError(
                f"encoder {encoder.spec.name!r} is an object that cannot be sent to other processes: {error!r}; name "
                "an encoder that workers open themselves, or give the object's class a `__reduce__`"
            ) from error
        return cls(encoder.spec, threads, ray.put(data))

    def open(self) -> Encoder:
        """The encoder, in a worker; the files of one in the catalogue are fetched if this node lacks them.

        Raises:
            EncoderError: it cannot be opened here, or is another one than on the driver.
        """
        where = f"encoder {self.spec.name!r} on the node {socket.gethostname()}"
        try:
            encoder = self._open()
        except EnsembedError as error:
            raise type(error)(f"{where}: {error}") from error
        except Exception as error:  # a class that cannot be imported here, a model that does not load
            raise EncoderError(f"{where} cannot be opened: {error!r}") from error
        if not _same(encoder.spec, self.spec):
            raise EncoderError(
                f"{where} is not the one the driver has: it has the key {encoder.spec.key}, not {self.spec.key}; use "
                "the same files and the same ensembed on all nodes"
            )
        return encoder

    def _open(self) -> Encoder:
        if self.pickled is not None:
            import ray
            from ray import cloudpickle

            encoder: Encoder = cloudpickle.loads(ray.get(self.pickled))
            return encoder
        known = parse_name(self.spec.name).entry
        try:
            return self._by_name()
        except MissingError:
            if known is None:
                raise
            from ensembed.encoders.pull import pull

            pull([known.name])
            return self._by_name()

    def _by_name(self) -> Encoder:
        return open_encoder(self.spec.name, threads=self.threads, pinned=self.spec.revision)


def _has_name(encoder: Encoder) -> bool:
    """Whether a worker would get the same encoder by name; a wrapper around one may well carry its name."""
    if encoder.spec.kind == "object" or not type(encoder).__module__.startswith("ensembed.encoders."):
        return False
    try:
        parse_name(encoder.spec.name)
    except InputError:
        return False
    return True


def _same(found: EncoderSpec, wanted: EncoderSpec) -> bool:
    # The revision of a server is the hash of the vectors that one machine saw first, with their noise.
    if found.revision.startswith(PROBED) and wanted.revision.startswith(PROBED) and found.kind == wanted.kind:
        found = replace(found, revision=wanted.revision)
    return found.key == wanted.key
