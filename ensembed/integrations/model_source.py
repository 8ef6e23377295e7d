"""The model of an adaptor: opened on first use, and written to another library's files by its folder or name."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from ensembed.encoders.base import Encoder, UntrustedName
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import InputError
from ensembed.methods.meta import Meta, Placement
from ensembed.models.ensemble import Ensemble, MetaEncoder
from ensembed.models.opening import ModelLike, open_model
from ensembed.models.saved_model import is_model


def untrusted(model: ModelLike) -> ModelLike | UntrustedName:
    """Return a name as an untrusted one: another library may have read it from a file of its own."""
    return UntrustedName(model) if isinstance(model, str) else model


class Source:
    """A model that is opened when it is first used.

    Args:
        given: a meta-encoder or any encoder, the folder of a saved model, or an encoder's name.
        threads: cores per encoder that is opened; None leaves it to each encoder.
        trust: as for `open_model`; the name may come from another library's configuration file.

    Example:
        >>> source = Source("demo?dim=4")
        >>> source.name, source.model.encode(["a dog"]).shape
        ('demo?dim=4', (1, 4))
    """

    def __init__(self, given: ModelLike, *, threads: int | None = None, trust: Trust = False) -> None:
        if given is None or (isinstance(given, str) and not given):
            raise InputError(
                f"a model is an encoder, the folder of a saved model or an encoder's name, not {given!r}; if it was an "
                "object in memory, pass that object again"
            )
        self.name = str(given) if isinstance(given, (str, Path)) else None
        self._given, self._threads, self._trust = given, threads, trust
        self._lock = threading.Lock()
        self._model: Encoder | None = None

    @property
    def model(self) -> Encoder:
        """The model; it is opened once, also if several threads ask."""
        with self._lock:
            if self._model is None:
                self._model = open_model(untrusted(self._given), threads=self._threads, trust=self._trust)
            return self._model

    @property
    def lasting_name(self) -> str | None:
        """The name for use in another working directory, a folder's absolute path; None for an object in memory."""
        if self.name is not None and (isinstance(self._given, Path) or is_model(self.name)):
            return str(Path(self.name).absolute())
        return self.name

    def require_name(self, what: str) -> str:
        """Return the folder or name; raise an InputError, which says that `what` needs one, for an object in memory."""
        if self.name is None:
            problem = f"{what} keeps a model by its folder or name, and this one is an object in memory"
            raise InputError(f"{problem} ({type(self._given).__name__}): model.save(folder), then pass the folder")
        return self.name

    def __deepcopy__(self, _memo: object = None) -> Source:
        """Return the source itself: a model is frozen, and one in memory could not be opened a second time."""
        return self

    __copy__ = __deepcopy__

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the name, which opens the model again, and not the weights."""
        self.require_name("pickle")
        return {"given": self.lasting_name, "threads": self._threads, "trust": self._trust}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc] # a new object


def as_meta_encoder(encoder: Encoder) -> MetaEncoder:
    """Return a meta-encoder itself, and any other encoder as the only member of one that gives the same vectors."""
    if isinstance(encoder, MetaEncoder):
        return encoder
    dim = encoder.spec.dim
    meta = Meta({"name": "single"}, dim, (Placement(0, dim),), normalize=False)
    return MetaEncoder(Ensemble([encoder]), meta, name=encoder.spec.name)
