"""TensorFlow, started without noise and without taking all of a GPU; and graphs, checked before they run."""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ensembed.encoders.extras import import_extra
from ensembed.errors import EncoderError, MissingError

# Ops that read or write files of their own choice, run Python or talk to other machines. Not among them: what savers
# are made of (SaveV2, RestoreV2), which every SavedModel has, and InitializeTableFromTextFile, for vocabularies.
_REACHES_OUT = re.compile(
    r"(?<!Text)File(?!name|spec)|Reader|PyFunc|Debug(Identity|N)|Create\w+Writer|PrintV2|DumpTensor|StatisticsSaver|"
    r"Skipgram|ImportEvent|RemoteCall|Rpc|DataService|(TextLine|Record|CSV|LMDB|Sql|Save|Load|Snapshot\w*|Cache)Dataset"
)
# Lines of TensorFlow's C++ log.
_LOG = re.compile(rb"[IWE]\d{4} \d\d:|WARNING: All log messages before absl|To enable the following instructions:")
_STARTING = threading.Lock()


def start_tensorflow(threads: int | None = None) -> Any:  # noqa: ANN401 - a module without types
    """The tensorflow module, its devices started.

    Args:
        threads: for its pools, which have their size for good once TensorFlow has started: later it has no effect.

    Raises:
        MissingError: it is not installed, or cannot be imported.
    """
    # Where somebody else has imported it, its greetings are past.
    with _STARTING, nullcontext() if "tensorflow" in sys.modules else _without_log():
        tf = _imported("tensorflow")
        if threads is not None:
            _try(tf.config.threading.set_intra_op_parallelism_threads, threads)
            _try(tf.config.threading.set_inter_op_parallelism_threads, threads)
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            _try(tf.config.experimental.set_memory_growth, gpu, True)
        if gpus:  # products of 10-bit numbers would make a vector depend on its batch in the third digit
            tf.config.experimental.enable_tensor_float_32_execution(False)
        tf.constant(0)  # the first tensor starts the devices, which log their names
    return tf


def import_quietly(module: str) -> Any:  # noqa: ANN401 - a module without types
    """A module that builds on TensorFlow, without the warnings that importing it causes.

    Raises:
        MissingError: it is not installed, or cannot be imported.
    """
    start_tensorflow()
    with _STARTING:
        return _imported(module)


def check_graph(path: Path, name: str) -> list[str]:
    """Refuse a SavedModel that could do more than compute, before any of it runs; return the tags to load it by.

    Raises:
        EncoderError: it is damaged, or holds ops that reach out of the graph.
    """
    saved = import_quietly("tensorflow.core.protobuf.saved_model_pb2").SavedModel()
    try:
        saved.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's own, of a path that has changed between versions
        raise EncoderError(f"encoder {name!r}: {path} is damaged or no SavedModel: {one_line(error)}") from error
    if not saved.meta_graphs:
        raise EncoderError(f"encoder {name!r}: {path} is damaged or no SavedModel: there is no graph in it")
    ops: set[str] = set()
    for graph in (meta.graph_def for meta in saved.meta_graphs):
        called = {node.op for node in graph.node}
        called |= {node.op for function in graph.library.function for node in function.node_def}
        ops |= called - {function.signature.name for function in graph.library.function}
    if refused := sorted(op for op in ops if _REACHES_OUT.search(op)):
        raise EncoderError(
            f"encoder {name!r} is refused: its graph holds {', '.join(refused)}, which can read or write files, run "
            "Python or reach other machines; no encoder of text needs that"
        )
    tags = [sorted(meta.meta_info_def.tags) for meta in saved.meta_graphs]
    # Hub modules of TF1 have an untagged graph for inference beside those for training.
    choices = [choice for choice in ([], ["serve"]) if choice in tags] or tags
    if len(choices) > 1 and choices is tags:
        raise EncoderError(f"encoder {name!r}: which of the model's graphs is for inference? Their tags are {tags}")
    return choices[0]


def one_line(error: Exception) -> str:
    """An error on one line of reasonable length: TensorFlow's hold whole graphs."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}{'…' if len(text) > 300 else ''}"


def _imported(module: str) -> Any:  # noqa: ANN401 - a module without types
    if found := sys.modules.get(module):
        return found
    with warnings.catch_warnings():  # not safe among threads, hence only once, and under our lock
        warnings.simplefilter("ignore")
        try:
            return import_extra(module, "tfhub", "a TensorFlow model")
        except ImportError as error:  # a binary that does not fit this machine, another version of numpy
            raise MissingError(
                f"{module} is installed but cannot be imported: {one_line(error)}; "
                "repair it with: pip install --force-reinstall 'ensembed[tfhub]'"
            ) from error


def _try(set_up: Callable[..., object], *values: object) -> None:
    """Set up what TensorFlow lets nobody change once it has started."""
    with suppress(RuntimeError, ValueError):
        set_up(*values)


@contextmanager
def _without_log() -> Iterator[None]:
    """Keep TensorFlow's greetings off standard error: its C++ part writes some there whatever the log level.

    Only its own lines are dropped; what else was written in the meantime follows. Everything comes through where
    `TF_CPP_MIN_LOG_LEVEL` is set: somebody wants to see the log.
    """
    try:
        real = None if "TF_CPP_MIN_LOG_LEVEL" in os.environ else os.dup(2)
    except OSError:  # no standard error, no noise
        real = None
    if real is None:
        yield
        return
    with TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(real, 2)
            os.close(real)
            held.seek(0)
            if rest := b"".join(line for line in held if not _LOG.match(line)):
                os.write(2, rest)
