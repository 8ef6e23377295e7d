"""TensorFlow Hub: SavedModels that take a batch of strings; downloads go to `TFHUB_CACHE_DIR` or our cache."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import numpy as np

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.model_files import revision_of
from ensembed.encoders.names_and_consent import Request, at_least, place_effects
from ensembed.encoders.tfhub.saved_model_checks import check_graph
from ensembed.encoders.tfhub.tensorflow_start import import_quietly, one_line, start_tensorflow
from ensembed.errors import EncoderError, InputError, MissingError, PullError
from ensembed.fetch.archives import ArchiveError, extract
from ensembed.fetch.download import TIMEOUT, download, forget
from ensembed.support.atomic_files import alone, new_folder
from ensembed.support.file_limits import ARCHIVE_RATIO, SAVED_MODEL_BYTES, SAVED_MODEL_FREE
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress

OPENS = "URL, folder or .tar.gz of a TensorFlow SavedModel"

_Run: TypeAlias = Callable[[Any], Any]

_BATCH_CHARS = 32_768  # per run, the longest sentence counting for all: attention takes memory with the square
_TIMEOUT = TIMEOUT  # seconds without a byte after which a download has failed
# The files that change the numbers: not `fingerprint.pb`, `assets.extra` or a README.
_PARTS = ("saved_model.pb", "tfhub_module.pb", "variables/*", "assets/**/*")


class TfHubEncoder(Encoder):
    """A TensorFlow SavedModel that turns a batch of strings into a batch of vectors, in the TF1 or the TF2 format.

    A SavedModel is a program that TensorFlow runs: open only models you trust. Its graph may hold only ops that compute
    (see `saved_model_checks`) and may read no files but its own; that is no sandbox, since ops may have bugs. On a GPU,
    memory is taken as it is needed and TensorFloat-32 is off, which would make a vector depend on its batch.

    Args:
        folder: holds `saved_model.pb`.
        name: how to call the encoder.
        revision: pins the weights.
        signature: the function to call; by default the model itself, else `default`, `serving_default` or the only one.
        output: the output to take; by default `default`, `outputs` or the only one that holds vectors.
        max_chars: characters beyond these are cut off, since some models need memory with the square of the length.
        batch_size: the most sentences per call.
        threads: the size of TensorFlow's thread pools; it counts only if the process has not used TensorFlow before.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        revision: str,
        signature: str | None = None,
        output: str | None = None,
        max_chars: int = 10_000,
        batch_size: int = 32,
        threads: int | None = None,
    ) -> None:
        self._tf = start_tensorflow(threads)
        self._max_chars, self._batch_size = max_chars, batch_size
        self._model = _load(folder, self._tf, name)  # kept: a function holds its variables by weak references only
        self._run, signature = _runner(self._model, signature, name)
        self._output, dim = self._probe(output, name)
        extra = (("max_chars", str(max_chars)), ("output", self._output), ("signature", signature))
        self._spec = EncoderSpec(name, "tfhub", dim, revision, pooling="unknown", extra=extra)

    @property
    def device(self) -> str:
        """Where TensorFlow computes: it takes a GPU if there is one."""
        return "gpu" if self._tf.config.list_physical_devices("GPU") else "cpu"

    def embed(self, sentences: list[str]) -> FloatArray:
        """Return the model's vectors; sentences of similar length run together, so that models pad little."""
        texts = [sentence[: self._max_chars] for sentence in sentences]
        result = np.empty((len(texts), self._spec.dim), np.float32)
        for rows in self._batches([len(text) for text in texts]):
            vectors = self._outputs([texts[row] for row in rows])[self._output]
            expected = (len(rows), self._spec.dim)
            if vectors.shape != expected:  # numpy would broadcast a single row
                seen = f"an array of shape {tuple(vectors.shape)} for {len(rows)} sentences"
                raise EncoderError(f"encoder {self._spec.name!r} returned {seen}; {expected} was expected")
            result[rows] = self._tf.cast(vectors, self._tf.float32).numpy()
        return result

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Yield row numbers in batches, in order of length."""
        batch = list[int]()
        for row in sorted(range(len(lengths)), key=lengths.__getitem__):
            if len(batch) == self._batch_size or (batch and (len(batch) + 1) * lengths[row] > _BATCH_CHARS):
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _outputs(self, texts: list[str]) -> Mapping[str, Any]:
        result = self._run(self._tf.constant([text.encode() for text in texts], self._tf.string))
        return result if isinstance(result, Mapping) else {"": result}

    def _probe(self, wanted: str | None, name: str) -> tuple[str, int]:
        """Return which output to take and its dimension, from a call: graphs do not always say their shapes."""
        try:
            outputs = self._outputs(["a probe", "of two sentences"])
        except Exception as error:  # whatever a model does with strings that it was not made for
            failure = f"the model does not take a list of strings: {one_line(error)}"
            raise EncoderError(f"encoder {name!r}: {failure}") from error
        seen = ", ".join(f"{key or 'one without a name'} ({_shape(value)})" for key, value in sorted(outputs.items()))
        arrays = {key: value for key, value in outputs.items() if hasattr(value, "numpy") and value.dtype.is_floating}
        usable = [key for key, value in arrays.items() if value.shape.rank == 2 and value.shape[0] == 2]
        chosen = _first(usable, "default", "outputs") if wanted is None else wanted
        if chosen is None:
            way_out = "say which with output=NAME" if usable else "one vector of floats per sentence is needed"
            raise EncoderError(f"encoder {name!r}: the model has these outputs: {seen}; {way_out}")
        if chosen not in usable:
            raise InputError(f"encoder {name!r}: no output {chosen!r} holds one vector per sentence; there are: {seen}")
        return chosen, int(outputs[chosen].shape[1])


def effects(request: Request) -> dict[str, str]:
    """Return what needs consent: the program, and its place."""
    return {"code": "runs the program that a SavedModel is"} | place_effects(request)


def open_tfhub(request: Request) -> TfHubEncoder:
    """Open `tfhub:URL`, `tfhub:DIR` or `tfhub:FILE.tar.gz`; a URL is downloaded once."""
    options = request.options(signature=str, output=str, max_chars=at_least(1), batch_size=at_least(1))
    scheme = re.match(r"([a-z][a-z0-9+.-]*)://", request.location, re.IGNORECASE)
    if scheme and scheme[1].lower() not in ("http", "https"):
        places = "http and https addresses or from folders"
        raise InputError(f"encoder {request.name!r}: models come from {places}, not from {scheme[0]}")
    url = request.location.partition("#")[0]  # a `#` may separate the query of a URL from our options
    folder = _downloaded(url, request.name, request.progress) if scheme else request.path
    try:
        if folder.name.endswith((".tar.gz", ".tgz")) and folder.is_file():
            folder = _unpacked(folder, request.name, request.progress)
        if not _is_model(folder):
            raise InputError(f"encoder {request.name!r}: {folder} is no folder with a saved_model.pb")
    except OSError as error:  # a folder without permission, a name that is too long
        raise InputError(f"encoder {request.name!r}: {folder} cannot be read: {error.strerror or error}") from error
    files = {path.relative_to(folder).as_posix(): path for part in _PARTS for path in folder.glob(part)}
    files = {name: path for name, path in files.items() if path.is_file() and not path.name.startswith(".")}
    revision = revision_of(files, label=f"hash {folder.name}", progress=request.progress)
    return TfHubEncoder(folder, name=request.name, revision=revision, threads=request.threads, **options)


def _downloaded(url: str, name: str, progress: Progress) -> Path:
    """Return the folder with the model of a URL of tfhub.dev, of kaggle.com or of any .tar.gz."""
    # The name that tensorflow_hub gives: each finds what the other has downloaded.
    folder = _cached(hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest())
    if _is_model(folder):
        return folder

    def unpack(target: Path) -> None:
        parts = urlsplit(url)
        # This query asks tfhub.dev and kaggle.com for the archive instead of the page; others ignore it.
        address = parts._replace(query="&".join(filter(None, [parts.query, "tf-hub-format=compressed"]))).geturl()
        archive = download(address, progress=progress, timeout=_TIMEOUT, label=f"download {parts.path}")
        try:
            _extract_model(archive, target, progress)
        except ArchiveError:
            forget(address)  # nothing was computed with it: the next try may bring another file
            raise
        archive.unlink()  # its hash is kept

    hint = "check the address and the network, or get the model's .tar.gz another way and name it: tfhub:FILE.tar.gz"
    try:
        _make(folder, unpack, progress)
    except (PullError, InputError, ValueError) as error:
        raise MissingError(f"encoder {name!r}: {url} cannot be downloaded: {error}; {hint}") from error
    except ArchiveError as error:
        raise MissingError(f"encoder {name!r}: {url} is no archive of a model: {one_line(error)}; {hint}") from error
    except OSError as error:
        raise MissingError(f"encoder {name!r}: {url} cannot be unpacked to {folder}: {error}") from error
    return folder


def _unpacked(archive: Path, name: str, progress: Progress) -> Path:
    """Return the folder of the cache with the model of a .tar.gz."""
    folder = _cached(revision_of({"archive": archive}, label=f"hash {archive.name}", progress=progress))
    try:
        _make(folder, lambda target: _extract_model(archive, target, progress), progress)
    except (ArchiveError, OSError) as error:
        raise EncoderError(f"encoder {name!r}: {archive} cannot be unpacked: {one_line(error)}") from error
    return folder


def _cached(name: str) -> Path:
    chosen = os.environ.get("TFHUB_CACHE_DIR", "")
    local = chosen and "://" not in chosen  # tensorflow_hub can keep models in a bucket; we cannot
    return Path(chosen if local else cache_dir() / "tfhub").expanduser().absolute() / name


def _is_model(folder: Path) -> bool:
    return (folder / "saved_model.pb").is_file()


def _extract_model(archive: Path, target: Path, progress: Progress) -> None:
    # The largest encoders have 2 GB. Weights compress badly: what grows a hundredfold is no model, unless it is small.
    most = min(SAVED_MODEL_BYTES, max(SAVED_MODEL_FREE, ARCHIVE_RATIO * archive.stat().st_size))
    extract(archive, target, most=most, progress=progress)
    if not _is_model(target):
        raise ArchiveError("the archive holds no saved_model.pb")


def _make(folder: Path, unpack: Callable[[Path], None], progress: Progress) -> None:
    """Fill the folder with `unpack`, whole or not at all, by one process at a time; do nothing if it is there."""
    if not _is_model(folder):
        with alone(folder.with_name(f".{folder.name}.lock"), f"unpacking of {folder.name}", progress):
            if not _is_model(folder):  # another process may have made it while we waited
                with new_folder(folder) as temporary:
                    unpack(temporary)


def _load(folder: Path, tf: Any, name: str) -> Any:  # noqa: ANN401 - a module and an object without types
    """Return the model, with its variables and lookup tables filled."""
    tags = check_graph(folder / "saved_model.pb", name)
    try:
        try:
            return tf.saved_model.load(str(folder.absolute()), tags=tags)
        except (RuntimeError, tf.errors.NotFoundError) as error:
            if "Op type not registered" not in str(error):
                raise
            try:
                import_quietly("tensorflow_text")  # registers the ops of the multilingual encoders
            except MissingError:
                lack = f"encoder {name!r} needs an op that TensorFlow lacks; the multilingual encoders have theirs from"
                install = "tensorflow_text: pip install tensorflow-text"
                raise MissingError(f"{lack} {install}. {one_line(error)}") from error
            return tf.saved_model.load(str(folder.absolute()), tags=tags)
    except MissingError:
        raise
    except Exception as error:  # TensorFlow's errors have no common root
        way_out = "if its files are damaged, remove the folder and fetch the model again"
        raise EncoderError(f"encoder {name!r} cannot be opened from {folder}: {one_line(error)}; {way_out}") from error


def _runner(model: Any, wanted: str | None, name: str) -> tuple[_Run, str]:  # noqa: ANN401 - a loaded model
    """Return the function to call with a tensor of strings, and its signature's name ("" for the model itself)."""
    if wanted is None and callable(model):
        return model, ""
    signatures = getattr(model, "signatures", {})
    chosen = _first(list(signatures), "default", "serving_default") if wanted is None else wanted
    known = ", ".join(sorted(signatures)) or "none"
    if chosen is None:
        raise EncoderError(f"encoder {name!r}: say which function to call with signature=NAME; there are: {known}")
    if chosen not in signatures:
        raise InputError(f"encoder {name!r}: the model has no signature {chosen!r}; there are: {known}")
    function = signatures[chosen]
    inputs = function.structured_input_signature[1]
    texts = [key for key, spec in inputs.items() if spec.dtype.name == "string" and spec.shape.rank in (1, None)]
    if len(inputs) != 1 or not texts:
        takes = ", ".join(f"{key} ({_shape(spec)})" for key, spec in sorted(inputs.items())) or "nothing"
        raise EncoderError(f"encoder {name!r}: signature {chosen!r} takes no single list of strings but: {takes}")
    return lambda text: function(**{texts[0]: text}), chosen


def _first(names: list[str], *preferred: str) -> str | None:
    """Return the first preferred name that exists, else the only name."""
    return next((name for name in preferred if name in names), names[0] if len(names) == 1 else None)


def _shape(value: Any) -> str:  # noqa: ANN401 - whatever a model takes or returns
    """Return type and shape of a tensor, for messages."""
    return f"{value.dtype.name} {value.shape}" if hasattr(value, "shape") else type(value).__name__
