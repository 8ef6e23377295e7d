"""Read pickles of arrays, dicts and lists without importing or calling anything that the file names.

This is Python's own `pickle._Unpickler`, cut down to plain data and numpy arrays. `find_class` returns stand-ins of
ours. `pickle.Unpickler` in C is not safe even with an allow-list: a few bytes made it ask for more than 8 GB. numpy's
own reader runs any pickle.
"""

from __future__ import annotations

import math
import pickle
import pickletools
import re
import struct
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import EncoderError
from ensembed.support.file_limits import PICKLE_CONTAINERS, PICKLE_NAME_BYTES, PICKLE_OPERATIONS, PICKLE_RATIO
from ensembed.support.progress import Progress, silent

_BLOCK = 1 << 24  # bytes read at a time: a length that the file claims but does not have must not be allocated

_DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
_PROBLEMS = {IndexError: "it uses a value that is not there", AttributeError: "it appends to what is not a list"}
_LATIN = ("latin1", "latin-1", "iso-8859-1")
_DTYPE = re.compile(r"[fiu][1248]")
# The operations that are carried out as pickle does it, by the names of `pickletools`.
_PLAIN = """
    FRAME MARK BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET BININT BININT1 BININT2 LONG1 NONE NEWTRUE NEWFALSE
    BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 BINUNICODE SHORT_BINUNICODE BINUNICODE8
    EMPTY_LIST APPEND APPENDS EMPTY_DICT EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 GLOBAL STACK_GLOBAL
"""
_CONTAINERS = "MARK EMPTY_LIST EMPTY_DICT EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3"  # these make one, or nest
_CODES = {operation.name: ord(operation.code) for operation in pickletools.opcodes}
_CONTAINER_CODES = frozenset(_CODES[name] for name in _CONTAINERS.split())


class _RefusedError(Exception):
    """The file asks for something that is not allowed; the message says for what."""


def read_pickle(stream: BinaryIO, *, name: str, size: int, label: str = "read", progress: Progress = silent) -> object:
    """Return the value in a pickle of protocol 2 or later: None, bools, ints, text, bytes, lists, dicts and arrays.

    Strings of Python 2 become bytes, as with `pickle.load(file, encoding="bytes")`. Anything else is refused with an
    EncoderError, which calls the file `name`. `stream` should be buffered; no value can be larger than its `size`.

    Example:
        >>> import io, pickle
        >>> data = pickle.dumps({"a": [1, 2]}, protocol=2)
        >>> read_pickle(io.BytesIO(data), name="it", size=len(data))
        {'a': [1, 2]}
    """
    file = _BoundedFile(stream, size, lambda done: progress(label, done, size))
    try:
        if file.read(1) != b"\x80" or file.read(1) not in (b"\2", b"\3", b"\4", b"\5"):
            raise ValueError("it does not begin like a pickle of protocol 2 to 5")
        value = _DataUnpickler(file, size).load()
    except _RefusedError as error:
        raise EncoderError(f"{name} is refused: {error}; nothing of it was run") from None
    except EOFError:
        raise EncoderError(f"{name} is cut short: it ends in the middle of a value; get it again") from None
    except (*_DAMAGE, struct.error, pickle.UnpicklingError) as error:
        problem = _PROBLEMS.get(type(error), error)
        raise EncoderError(f"{name} is not a pickle of word vectors, or is damaged: {problem}") from error
    progress(label, size, size)
    return value


class _BoundedFile:
    """The file as the unpickler reads it: exactly as many bytes as it asks for, never more than the file has."""

    def __init__(self, stream: BinaryIO, size: int, report: Callable[[int], None]) -> None:
        self._stream, self._size, self._left, self._report = stream, size, size, report

    def read(self, count: int) -> bytes:
        if count > self._left:
            raise EOFError
        if count <= _BLOCK:
            if len(data := self._stream.read(count)) != count:
                raise EOFError
            self._left -= count
            return data
        blocks = []
        for start in range(0, count, _BLOCK):
            blocks.append(self.read(min(_BLOCK, count - start)))
            self._report(self._size - self._left)
        return b"".join(blocks)

    def readline(self) -> bytes:
        line = self._stream.readline(PICKLE_NAME_BYTES)
        if not line.endswith(b"\n"):
            raise EOFError if len(line) < PICKLE_NAME_BYTES else ValueError("a name in it is too long")
        self._left -= len(line)
        return line


class _Operations(dict[int, Callable[["_DataUnpickler"], None]]):
    """The operations by their code; it counts how often they are looked up and refuses all others by name."""

    count = containers = 0

    def __getitem__(self, code: int) -> Callable[[_DataUnpickler], None]:
        self.count += 1
        self.containers += code in _CONTAINER_CODES
        if self.count > PICKLE_OPERATIONS:
            raise _RefusedError(f"it has more than {PICKLE_OPERATIONS:,} operations")
        if self.containers > PICKLE_CONTAINERS:
            raise _RefusedError(f"it has more than {PICKLE_CONTAINERS:,} lists, dicts, tuples and marks")
        return super().__getitem__(code)

    def __missing__(self, code: int) -> NoReturn:
        name = next((name for name, known in _CODES.items() if known == code), None)
        if name is None:
            raise ValueError(f"there is no pickle operation {bytes([code])!r}")
        raise _RefusedError(f"it uses the pickle operation {name}, which word vectors do not need")


_PythonUnpickler: Any = pickle._Unpickler  # its types are those of the one in C


class _DataUnpickler(_PythonUnpickler):  # type: ignore[misc] # see above
    """Python's unpickler with fewer operations; those that change a value check what kind of value it is."""

    def __init__(self, file: _BoundedFile, size: int) -> None:
        super().__init__(file, encoding="bytes")
        self._size, self._made = size, 0
        known = _PythonUnpickler.dispatch
        self.dispatch = _Operations({_CODES[name]: known[_CODES[name]] for name in _PLAIN.split()})
        self.dispatch[_CODES["BYTEARRAY8"]] = known[_CODES["BINBYTES8"]]  # pickle's would allocate what is claimed
        for name in ("SETITEM", "SETITEMS", "REDUCE", "BUILD", "INST", "STOP"):
            self.dispatch[_CODES[name]] = getattr(type(self), f"load_{name.lower()}")

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a function or a class
        if f"{module}.{name}" not in _STAND_INS:
            raise _RefusedError(f"it asks for {module[:100]}.{name[:100]}, which word vectors do not need")
        return _STAND_INS[f"{module}.{name}"]

    def load_inst(self) -> NoReturn:
        self.load_global()  # refuses most names, and names them
        raise _RefusedError("it uses the pickle operation INST, which word vectors do not need")

    def load_setitem(self) -> None:
        items = [self.stack.pop(), self.stack.pop()]
        self.load_setitems(items[::-1])

    def load_setitems(self, items: list[Any] | None = None) -> None:
        items = self.pop_mark() if items is None else items
        target = self.stack[-1]
        if type(target) is not dict:  # an array would convert nested lists of any size
            raise TypeError(f"it fills a {type(target).__name__} as if it were a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, bytes, int)):  # the hash of a tuple of tuples of … would be a recursion
                raise TypeError(f"a {type(key).__name__} is a key in it")
            target[key] = value

    def load_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        # Functions get on the stack by `find_class` alone.
        if not callable(function) or type(arguments) is not tuple:
            raise TypeError(f"it calls a {type(function).__name__}")
        self.append(value := function(*arguments))
        self._count_made(value)

    def load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, _Dtype):
            target.set_order(state)
        elif isinstance(target, np.ndarray):
            _set_numbers(target, state)
            self._count_made(target)
        else:
            raise _RefusedError(f"it sets the state of a {type(target).__name__}, which word vectors do not need")

    def _count_made(self, value: object) -> None:
        """Refuse a file that holds a value once and has it copied a thousand times."""
        self._made += len(value) if isinstance(value, bytes) else value.nbytes if isinstance(value, np.ndarray) else 0
        if self._made > PICKLE_RATIO * self._size:
            raise _RefusedError(f"it would take more than {PICKLE_RATIO} times its size in memory")

    def load_stop(self) -> None:
        if len(self.stack) != 1:
            raise ValueError(f"it ends with {len(self.stack)} values")
        super().load_stop()


class _Dtype:
    """The type of an array's numbers. A pickle gives the byte order after the type."""

    def __init__(self, code: object, *_flags: object) -> None:
        text = code.decode("latin-1") if isinstance(code, bytes) else code
        if not isinstance(text, str) or not _DTYPE.fullmatch(text):
            shown = text[:100] if isinstance(text, str) else type(text).__name__
            what = " (objects)" if shown.lstrip("|<>=").startswith("O") else ""
            raise _RefusedError(f"it has an array of dtype {shown!r}{what}, not of numbers")
        self._code, self.dtype = text, np.dtype(text)

    def set_order(self, state: object) -> None:
        if type(state) is not tuple or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise TypeError("it has an array of something else than plain numbers")
        order = state[1].decode("latin-1") if isinstance(state[1], bytes) else state[1]
        if not isinstance(order, str) or order not in ("<", ">", "=", "|"):
            raise ValueError("it has an array with an unknown byte order")
        self.dtype = np.dtype(order + self._code)


def _ndarray(*_arguments: object) -> NoReturn:
    raise _RefusedError("it calls numpy.ndarray, which word vectors do not need")


def _reconstruct(kind: object, _shape: object, _code: object) -> NDArray[Any]:
    """Return an empty array, whose content follows."""
    if kind is not _ndarray:
        raise TypeError("it makes arrays of another class than numpy.ndarray")
    return np.empty(0, np.int8)


def _from_buffer(data: object, dtype: object, shape: object, order: object) -> NDArray[Any]:
    """Return an array with its content."""
    if not isinstance(order, str) or order not in ("C", "F"):
        raise ValueError("it has an array in an order that is neither C nor F")
    array = np.empty(0, np.int8)
    _set_numbers(array, (1, shape, dtype, order == "F", data))
    return array


def _encode(text: object, encoding: object) -> bytes:
    """Return the bytes that Python 3 wrote for Python 2."""
    if not isinstance(text, str) or not isinstance(encoding, str) or encoding not in _LATIN:
        raise _RefusedError("it asks for _codecs.encode to something else than Latin-1, which word vectors do not need")
    return text.encode("latin-1")


def _set_numbers(target: NDArray[Any], state: object) -> None:
    if type(state) is not tuple or len(state) != 5:
        raise TypeError("it has an array without content")
    _, shape, dtype, fortran, data = state
    if type(shape) is not tuple or not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 8:
        raise TypeError("it has an array without a shape")
    if not isinstance(dtype, _Dtype) or type(data) is not bytes:
        raise TypeError("it has an array of something else than numbers")
    if math.prod(shape) * dtype.dtype.itemsize != len(data):
        raise ValueError(f"it has an array of shape {shape} and {dtype.dtype}, but {len(data)} bytes for it")
    target.__setstate__((1, shape, dtype.dtype, bool(fortran), data))  # type: ignore[arg-type]  # wants numpy's bool


_STAND_INS: dict[str, Any] = {"numpy.ndarray": _ndarray, "numpy.dtype": _Dtype, "_codecs.encode": _encode}
for _core in ("core", "_core"):  # before numpy 2, and since
    _STAND_INS[f"numpy.{_core}.multiarray._reconstruct"] = _reconstruct
    _STAND_INS[f"numpy.{_core}.numeric._frombuffer"] = _from_buffer
