"""Pickles of arrays, dicts and lists, read without pickle: nothing that a file asks for is ever imported or called.

A pickle is a program, and Python's own reader runs it with whatever it names. This one is another interpreter of that
language, which knows only the operations that plain data and numpy arrays need. The few functions that arrays are
rebuilt with are replaced by ones of ours, which check what they are given. All else is refused by its name.
"""

from __future__ import annotations

import math
import pickletools
import re
import struct
from collections.abc import Callable
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import EncoderError
from ensembed.support.progress import Progress, silent

# Bytes at a time: a length that the file claims but does not have must not be allocated.
_BLOCK = 1 << 24
# No vocabulary comes near; each operation costs a byte in the file but may cost a hundred in memory.
_MOST_OPERATIONS = 30_000_000
_MOST_CONTAINERS = 100_000
# Bytes of arrays per byte of the file; the bytes of an array may be made first and the array then.
_MOST_MADE = 4
_LONGEST_NAME = 256

_LATIN = ("latin1", "latin-1", "iso-8859-1")
_DTYPE = re.compile(r"[fiu][1248]")


class _RefusedError(Exception):
    """What the file asks for is refused; the message says what that is."""


class _Dtype:
    """The type of an array's numbers; a pickle names it first and tells the byte order later."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.order = "="

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


def read_pickle(stream: BinaryIO, *, name: str, size: int, label: str = "read", progress: Progress = silent) -> object:
    """The value in a pickle of protocol 2 or later, made of None, bools, ints, text, bytes, lists, dicts and arrays.

    Strings of Python 2 come out as bytes, as with `pickle.load(file, encoding="bytes")`.

    Args:
        stream: the file, at its beginning; wants to be buffered.
        name: what errors call the file.
        size: its length in bytes, which nothing in it can exceed.
        label: what progress reports call the work.
        progress: told how many bytes have been read.

    Raises:
        EncoderError: it is no pickle, is cut short or damaged, or asks for anything else.

    Example:
        >>> import io, pickle
        >>> data = pickle.dumps({"a": [1, 2]}, protocol=2)
        >>> read_pickle(io.BytesIO(data), name="it", size=len(data))
        {'a': [1, 2]}
    """
    machine = _Machine(stream, size, label, progress)
    try:
        return machine.run()
    except _RefusedError as error:
        raise EncoderError(f"{name} is refused: {error}; nothing of it was run") from None
    except EOFError:
        raise EncoderError(f"{name} is cut short: it ends in the middle of a value; get it again") from None
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, MemoryError, struct.error) as error:
        raise EncoderError(f"{name} is not a pickle of word vectors, or is damaged: {error}") from error


class _Machine:
    """The stack, the marks and the memory of one run."""

    def __init__(self, stream: BinaryIO, size: int, label: str, progress: Progress) -> None:
        self._read = stream.read
        self._readline = stream.readline
        self._left = size
        self._size = size
        self._label = label
        self._progress = progress
        self._stack: list[Any] = []
        self._marked: list[list[Any]] = []
        self._memory: dict[int, Any] = {}
        self._containers = 0
        self._made = 0

    def run(self) -> object:
        """Every operation until STOP; no recursion anywhere, so that nesting cannot exhaust the stack."""
        if self._read(1) != b"\x80" or self._number("<B") not in (2, 3, 4, 5):
            raise ValueError("it does not begin like a pickle of protocol 2 to 5")
        for _ in range(_MOST_OPERATIONS):
            code = self._read(1)
            if code == b".":
                (value,) = self._stack
                self._progress(self._label, self._size, self._size)
                return value
            operation = _OPERATIONS.get(code)
            if operation is None:
                self._refuse(code)
            else:
                operation(self)
        raise _RefusedError(f"it has more than {_MOST_OPERATIONS:,} operations")

    def _refuse(self, code: bytes) -> None:
        if not code:
            raise EOFError
        if code == b"i":  # INST names what it wants to call: so does the message
            self._global()
        name = next((known.name for known in pickletools.opcodes if known.code == code.decode("latin-1")), None)
        if name is None:
            raise ValueError(f"there is no pickle operation {code!r}")
        raise _RefusedError(f"it uses the pickle operation {name}, which word vectors do not need")

    def _take(self, count: int) -> bytes:
        """Exactly so many bytes; only large pieces are counted, since the file's end stops the small ones."""
        if count < 0:
            raise ValueError("it has a string of negative length")
        if count > self._left:
            raise EOFError
        if count <= _BLOCK:
            data = self._read(count)
            if len(data) != count:
                raise EOFError
            return data
        blocks = []
        for start in range(0, count, _BLOCK):
            blocks.append(self._take(min(_BLOCK, count - start)))
            self._progress(self._label, min(self._size - self._left + start, self._size), self._size)
        self._left -= count
        return b"".join(blocks)

    def _number(self, form: str) -> int:
        (number,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(number)

    def _line(self) -> str:
        line = self._readline(_LONGEST_NAME)
        if not line.endswith(b"\n"):
            raise EOFError if len(line) < _LONGEST_NAME else ValueError("a name in it is too long")
        return line[:-1].decode()

    def _items(self) -> list[Any]:
        """What was put on the stack since the last mark."""
        if not self._marked:
            raise ValueError("it takes what it never put down")
        items, self._stack = self._stack, self._marked.pop()
        return items

    def _contain(self, value: object) -> None:
        self._containers += 1
        if self._containers > _MOST_CONTAINERS:
            raise _RefusedError(f"it has more than {_MOST_CONTAINERS:,} lists, dicts and tuples")
        self._stack.append(value)

    # The operations, by the names that pickletools gives them.

    def _mark(self) -> None:
        if len(self._marked) >= _MOST_CONTAINERS:
            raise _RefusedError(f"it is nested more than {_MOST_CONTAINERS:,} deep")
        self._marked.append(self._stack)
        self._stack = []

    def _put(self, form: str) -> None:
        self._memory[self._number(form)] = self._stack[-1]

    def _memoize(self) -> None:
        self._memory[len(self._memory)] = self._stack[-1]

    def _get(self, form: str) -> None:
        self._stack.append(self._memory[self._number(form)])

    def _integer(self, form: str) -> None:
        self._stack.append(self._number(form))

    def _long1(self) -> None:
        self._stack.append(int.from_bytes(self._take(self._number("<B")), "little", signed=True))

    def _constant(self, value: object) -> None:
        self._stack.append(value)

    def _bytes(self, form: str) -> None:
        self._stack.append(self._take(self._number(form)))

    def _text(self, form: str) -> None:
        self._stack.append(self._take(self._number(form)).decode("utf-8", "surrogatepass"))

    def _tuple(self) -> None:
        self._contain(tuple(self._items()))

    def _tuple_of(self, count: int) -> None:
        if len(self._stack) < count:
            raise ValueError("it takes what it never put down")
        items = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._contain(items)

    def _append(self) -> None:
        value = self._stack.pop()
        self._target(list).append(value)

    def _appends(self) -> None:
        items = self._items()
        self._target(list).extend(items)

    def _setitem(self) -> None:
        value = self._stack.pop()
        key = self._stack.pop()
        self._fill([key, value])

    def _setitems(self) -> None:
        self._fill(self._items())

    def _fill(self, items: list[Any]) -> None:
        target = self._target(dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, bytes, int)):  # the hash of a tuple of tuples of … would be a recursion
                raise TypeError(f"a {type(key).__name__} is a key in it")
            target[key] = value

    def _target(self, kind: type[Any]) -> Any:  # noqa: ANN401 - a list or a dict
        target = self._stack[-1]
        if type(target) is not kind:
            raise TypeError(f"it fills a {type(target).__name__} as if it were a {kind.__name__}")
        return target

    def _global(self) -> None:
        module = self._line()
        self._find(module, self._line())

    def _stack_global(self) -> None:
        name = self._stack.pop()
        self._find(self._stack.pop(), name)

    def _find(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("it asks for something that has no name")
        found = _GLOBALS.get(f"{module}.{name}")
        if found is None:
            raise _RefusedError(f"it asks for {module[:100]}.{name[:100]}, which word vectors do not need")
        self._stack.append(found)

    def _reduce(self) -> None:
        arguments = self._stack.pop()
        function = self._stack.pop()
        # Functions get on the stack by `_find` alone, and that gives only ours.
        if not callable(function) or type(arguments) is not tuple:
            raise TypeError(f"it calls a {type(function).__name__}")
        value = function(*arguments)
        self._count_made(value)
        self._stack.append(value)

    def _build(self) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if isinstance(target, _Dtype):
            _set_order(target, state)
        elif isinstance(target, np.ndarray):
            _set_numbers(target, state)
            self._count_made(target)
        else:
            raise _RefusedError(f"it sets the state of a {type(target).__name__}, which word vectors do not need")

    def _count_made(self, value: object) -> None:
        """A file can say a thing once and have it made a thousand times."""
        self._made += len(value) if isinstance(value, bytes) else value.nbytes if isinstance(value, np.ndarray) else 0
        if self._made > _MOST_MADE * self._size:
            raise _RefusedError(f"it would take more than {_MOST_MADE} times its size in memory")


def _ndarray(*_arguments: object) -> None:
    raise _RefusedError("it calls numpy.ndarray, which word vectors do not need")


def _reconstruct(kind: object, _shape: object, _code: object) -> NDArray[Any]:
    """Stands for numpy's: an empty array, whose content comes later."""
    if kind is not _ndarray:
        raise TypeError("it makes arrays of another class than numpy.ndarray")
    return np.empty(0, np.int8)


def _from_buffer(data: object, dtype: object, shape: object, order: object) -> NDArray[Any]:
    """Stands for numpy's: an array with its content."""
    if not isinstance(order, str) or order not in ("C", "F"):
        raise ValueError("it has an array in an order that is neither C nor F")
    array = np.empty(0, np.int8)
    _set_numbers(array, (1, shape, dtype, order == "F", data))
    return array


def _dtype(code: object, *_flags: object) -> _Dtype:
    """Stands for numpy.dtype: numbers only, since an array of objects holds whatever the file wants it to."""
    text = code.decode("latin-1") if isinstance(code, bytes) else code
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        shown = text[:100] if isinstance(text, str) else type(text).__name__
        what = " (objects)" if shown.lstrip("|<>=").startswith("O") else ""
        raise _RefusedError(f"it has an array of dtype {shown!r}{what}, not of numbers")
    return _Dtype(text)


def _encode(text: object, encoding: object) -> bytes:
    """Stands for codecs.encode, by which Python 3 writes bytes for Python 2."""
    if not isinstance(text, str) or not isinstance(encoding, str) or encoding not in _LATIN:
        raise _RefusedError("it asks for _codecs.encode to something else than Latin-1, which word vectors do not need")
    return text.encode("latin-1")


def _set_order(target: _Dtype, state: object) -> None:
    if type(state) is not tuple or len(state) < 5 or any(part is not None for part in state[2:5]):
        raise TypeError("it has an array of something else than plain numbers")
    order = state[1].decode("latin-1") if isinstance(state[1], bytes) else state[1]
    if not isinstance(order, str) or order not in ("<", ">", "=", "|"):
        raise ValueError("it has an array with an unknown byte order")
    target.order = order


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


_Operation: TypeAlias = Callable[[_Machine], object]


def _with(method: Callable[[_Machine, Any], object], argument: object) -> _Operation:
    return lambda machine: method(machine, argument)


_OPERATIONS: dict[bytes, _Operation] = {
    b"\x95": _with(_Machine._take, 8),  # FRAME: a length that only helps a reader to plan
    b"(": _Machine._mark,
    b"q": _with(_Machine._put, "<B"),
    b"r": _with(_Machine._put, "<I"),
    b"\x94": _Machine._memoize,
    b"h": _with(_Machine._get, "<B"),
    b"j": _with(_Machine._get, "<I"),
    b"J": _with(_Machine._integer, "<i"),
    b"K": _with(_Machine._integer, "<B"),
    b"M": _with(_Machine._integer, "<H"),
    b"\x8a": _Machine._long1,
    b"N": _with(_Machine._constant, None),
    b"\x88": _with(_Machine._constant, True),
    b"\x89": _with(_Machine._constant, False),
    b"T": _with(_Machine._bytes, "<i"),
    b"U": _with(_Machine._bytes, "<B"),
    b"B": _with(_Machine._bytes, "<I"),
    b"C": _with(_Machine._bytes, "<B"),
    b"\x8e": _with(_Machine._bytes, "<Q"),
    b"\x96": _with(_Machine._bytes, "<Q"),
    b"X": _with(_Machine._text, "<I"),
    b"\x8c": _with(_Machine._text, "<B"),
    b"\x8d": _with(_Machine._text, "<Q"),
    b"]": lambda machine: machine._contain([]),
    b"}": lambda machine: machine._contain({}),
    b")": lambda machine: machine._contain(()),
    b"t": _Machine._tuple,
    b"\x85": _with(_Machine._tuple_of, 1),
    b"\x86": _with(_Machine._tuple_of, 2),
    b"\x87": _with(_Machine._tuple_of, 3),
    b"a": _Machine._append,
    b"e": _Machine._appends,
    b"s": _Machine._setitem,
    b"u": _Machine._setitems,
    b"c": _Machine._global,
    b"\x93": _Machine._stack_global,
    b"R": _Machine._reduce,
    b"b": _Machine._build,
}
_GLOBALS: dict[str, Callable[..., Any]] = {
    "numpy.ndarray": _ndarray,
    "numpy.dtype": _dtype,
    "_codecs.encode": _encode,
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "numpy.core.numeric._frombuffer": _from_buffer,
    "numpy._core.numeric._frombuffer": _from_buffer,
}
