"""What an adaptor is given: a model, or the folder or name that opens one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from ensembed.encoders import EncoderLike, open_encoder
from ensembed.encoders.base import Encoder
from ensembed.encoders.consent import needs_consent
from ensembed.errors import InputError, ModelError, UnknownEncoderError
from ensembed.models.opening import load
from ensembed.models.saved_model import CONFIG

ModelLike: TypeAlias = EncoderLike | Path


def open_model(given: ModelLike, *, threads: int | None = None, trust: bool = False) -> Encoder:
    """The saved model in that folder, the encoder of that name, or the given object as an encoder.

    Args:
        given: a meta-encoder or any encoder, the folder of a saved model, or an encoder's name. A folder counts only if
            a model was saved in it: any other may share its name with an encoder.
        threads: cores per encoder; None leaves it to each encoder.
        trust: also open what runs code that comes with its weights, or sends sentences to a server that is neither on
            this machine nor has its key set. The configuration of another library can come from a stranger.

    Raises:
        ModelError: the folder is not a model, is damaged, or needs `trust`.
        UnknownEncoderError: it is neither a folder with a model nor a name.
    """
    if isinstance(given, Path):
        return load(given, threads=threads, trust=trust)
    if not isinstance(given, str):
        return open_encoder(given, threads=threads)
    if given and (Path(given) / CONFIG).is_file():
        return load(given, threads=threads, trust=trust)
    with explaining_names(given):
        if not trust and (deed := needs_consent(given)):
            raise ModelError(f"encoder {given!r} {deed}; if you want that, say so: trust=True")
        return open_encoder(given, threads=threads)


@contextmanager
def explaining_names(name: str) -> Iterator[None]:
    """Say of a name that opens no encoder that it is no saved model either, and what it may be."""
    try:
        yield
    except UnknownEncoderError as error:
        if name and Path(name).exists():
            raise ModelError(
                f"{name} is not a saved model: there is no {CONFIG} in it. If it is an encoder, say of which kind, "
                f"as in st:{name}, onnx:{name} or words:{name}"
            ) from None
        raise UnknownEncoderError(f"{name!r} is neither a folder with a saved model nor an encoder: {error}") from None


class Source:
    """A model that is opened when it is first asked for, and what can be written down of it.

    Args:
        given: a meta-encoder or any encoder, the folder of a saved model, or an encoder's name.
        threads: cores per encoder that is opened; None leaves it to each encoder.
        trust: as for `open_model`.

    Example:
        >>> source = Source("demo?dim=4")
        >>> source.name, source.model.encode(["a dog"]).shape
        ('demo?dim=4', (1, 4))
    """

    def __init__(self, given: ModelLike, *, threads: int | None = None, trust: bool = False) -> None:
        if given is None or (isinstance(given, str) and not given):
            raise InputError(
                f"a model is an encoder, the folder of a saved model or an encoder's name, not {given!r}. A "
                "configuration has none where the model was an object in memory: pass that object again"
            )
        self.name = str(given) if isinstance(given, (str, Path)) else None
        self._given = given
        self._threads = threads
        self._trust = trust
        self._lock = threading.Lock()
        self._model: Encoder | None = None

    @property
    def model(self) -> Encoder:
        """The model, opened once, whichever thread asks."""
        with self._lock:
            if self._model is None:
                self._model = open_model(self._given, threads=self._threads, trust=self._trust)
            return self._model

    @property
    def lasting_name(self) -> str | None:
        """The name for another working directory: a folder's is its whole path; None for an object in memory."""
        if self.name is not None and (isinstance(self._given, Path) or (Path(self.name) / CONFIG).is_file()):
            return str(Path(self.name).absolute())
        return self.name

    def require_name(self, what: str) -> str:
        """The folder or name as it was given, or an InputError: `what` needs one, and the model is an object."""
        if self.name is None:
            raise InputError(
                f"{what} keeps a model by its folder or name, and this one is an object in memory "
                f"({type(self._given).__name__}): save it with model.save(folder) and pass the folder instead"
            )
        return self.name

    def __copy__(self) -> Source:
        """Itself: a model is frozen, and one in memory could not be opened a second time."""
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Source:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: the name, by which the model is opened again; weights and sessions do not travel."""
        self.require_name("pickle")
        return {"given": self.lasting_name, "threads": self._threads, "trust": self._trust}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc] # a new object, made as any other
