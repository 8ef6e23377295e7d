"""Start TensorFlow without noise and without taking all of a GPU."""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from tempfile import TemporaryFile
from typing import Any

from ensembed.errors import MissingError
from ensembed.support.extras import import_extra

# Lines of TensorFlow's C++ log.
_LOG = re.compile(rb"[IWE]\d{4} \d\d:|WARNING: All log messages before absl|To enable the following instructions:")
_STARTING = threading.Lock()


def start_tensorflow(threads: int | None = None) -> Any:  # noqa: ANN401 - a module without types
    """Return the tensorflow module with its devices started; `threads` has no effect if they were started before."""
    # A program that has imported it before has seen its log.
    with _STARTING, nullcontext() if "tensorflow" in sys.modules else _without_log():
        tf = _imported("tensorflow")
        gpus, pools = tf.config.list_physical_devices("GPU"), tf.config.threading
        settings = [partial(tf.config.experimental.set_memory_growth, gpu, True) for gpu in gpus]
        if threads is not None:
            settings.append(partial(pools.set_intra_op_parallelism_threads, threads))
            settings.append(partial(pools.set_inter_op_parallelism_threads, threads))
        for change in settings:
            with suppress(RuntimeError, ValueError):  # TensorFlow has started already
                change()
        if gpus:  # products of 10-bit numbers would make a vector depend on its batch in the third digit
            tf.config.experimental.enable_tensor_float_32_execution(False)
        tf.constant(0)  # the first tensor starts the devices, which log their names
    return tf


def import_quietly(module: str) -> Any:  # noqa: ANN401 - a module without types
    """Import a module that builds on TensorFlow, without the warnings that this causes."""
    start_tensorflow()
    with _STARTING:
        return _imported(module)


def one_line(error: Exception) -> str:
    """Return an error on one line of reasonable length: TensorFlow's hold whole graphs."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}{'…' if len(text) > 300 else ''}"


def _imported(module: str) -> Any:  # noqa: ANN401 - a module without types
    if loaded := sys.modules.get(module):
        return loaded
    with warnings.catch_warnings():  # not safe among threads, hence only once, and under our lock
        warnings.simplefilter("ignore")
        try:
            return import_extra(module, "tfhub", "a TensorFlow model")
        except ImportError as error:  # a binary that does not fit this machine, another version of numpy
            repair = "repair it with: pip install --force-reinstall 'ensembed[tfhub]'"
            raise MissingError(f"{module} is installed but cannot be imported: {one_line(error)}; {repair}") from error


@contextmanager
def _without_log() -> Iterator[None]:
    """Drop the lines of TensorFlow's log from standard error, unless the user has set `TF_CPP_MIN_LOG_LEVEL`."""
    try:
        real = None if "TF_CPP_MIN_LOG_LEVEL" in os.environ else os.dup(2)
    except OSError:  # there is no standard error
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
