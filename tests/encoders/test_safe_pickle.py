"""Pickles read without pickle: what arrays need comes out as pickle gives it, and nothing else gets anywhere."""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import io
import os
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensembed.encoders import safe_pickle
from ensembed.encoders.safe_pickle import read_pickle
from ensembed.errors import EncoderError


def read(data: bytes) -> Any:  # noqa: ANN401 - whatever is in it
    return read_pickle(io.BytesIO(data), name="it.pickle", size=len(data))


# The form that cPickle of Python 2 gives to [float32 [[1, 2]], {"UUUNKKK": 0, u"é": 1}] with protocol 2.
PYTHON2 = (
    b"\x80\x02]q\x01(cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85U\x01b\x87Rq\x04"
    b"(K\x01K\x01K\x02\x86cnumpy\ndtype\nq\x05U\x02f4K\x00K\x01\x87Rq\x06(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff"
    b"\xffK\x00tb\x89U\x08\x00\x00\x80?\x00\x00\x00@tb}q\x07(U\x07UUUNKKKq\x08K\x00X\x02\x00\x00\x00\xc3\xa9q\tK\x01ue."
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.text(st.characters()) | st.binary(min_size=1),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner)
        | st.tuples(inner, inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.binary(min_size=1) | st.integers(), inner)
    ),
    max_leaves=30,
)


@given(plain, st.integers(2, 5))
def test_plain_data_equals_what_pickle_loads(value: object, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    assert read(data) == pickle.loads(data) == value  # noqa: S301 - we have just made it


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "f2", "i8", "u1"])
def test_arrays_equal_what_pickle_loads(protocol: int, dtype: str) -> None:
    array = np.random.default_rng(0).integers(0, 99, (5, 7)).astype(dtype)
    shared = array[:2].copy()
    value = [array, np.asfortranarray(array), array[::2], array[0], shared, shared, {"a": array.T}]
    data = pickle.dumps(value, protocol)
    found, known = read(data), pickle.loads(data)  # noqa: S301 - we have just made it
    for got, expected in zip(found[:-1], known[:-1], strict=True):
        assert got.dtype == expected.dtype.newbyteorder("=")  # it is made native
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(found[-1]["a"], array.T)
    assert found[4] is found[5]


def test_pickle_of_python_2_is_read() -> None:
    array, index = read(PYTHON2)
    np.testing.assert_array_equal(array, np.array([[1, 2]], np.float32))
    assert index == {b"UUUNKKK": 0, "é": 1}
    known, _ = pickle.loads(PYTHON2, encoding="bytes")  # noqa: S301 - it is ours
    np.testing.assert_array_equal(array, known)


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self.call


def marker_calls(marker: Path) -> dict[str, tuple[bytes, str]]:
    """Pickles that make the file `marker` when a reader runs them, each with the name that has to be refused."""
    line = f"touch {marker}"
    code = f"open({str(marker)!r}, 'w').close()"
    text = line.encode()
    short = b"U" + bytes([len(text)]) + text
    objects = np.empty(2, object)
    objects[0] = Call(os.system, line)
    return {
        "REDUCE by GLOBAL": (b"\x80\x02cos\nsystem\n" + short + b"\x85R.", "os.system"),
        "REDUCE by GLOBAL, as Python 3 writes it": (pickle.dumps(Call(os.system, line), 2), f"{os.name}.system"),
        "REDUCE by STACK_GLOBAL": (pickle.dumps(Call(os.system, line), 4), f"{os.name}.system"),
        "INST": (b"\x80\x02(" + short + b"ios\nsystem\n.", "os.system"),
        "OBJ": (b"\x80\x02(cos\nsystem\n" + short + b"o.", "os.system"),
        "NEWOBJ": (b"\x80\x02csubprocess\nPopen\n" + short + b"\x85\x81.", "subprocess.Popen"),
        "NEWOBJ_EX": (b"\x80\x04csubprocess\nPopen\n" + short + b"\x85}\x92.", "subprocess.Popen"),
        "eval": (pickle.dumps(Call(builtins.eval, code), 3), "builtins.eval"),
        "eval of Python 2": (pickle.dumps(Call(builtins.eval, code), 2), "__builtin__.eval"),
        "exec in a list in a dict": (pickle.dumps({"a": [1, Call(builtins.exec, code)]}, 4), "builtins.exec"),
        "functools.partial": (
            pickle.dumps(Call(functools.partial(os.system, line)), 4),  # calls the partial with nothing
            "functools.partial",
        ),
        "object array": (pickle.dumps(objects, 2), "objects"),
        "object array, protocol 5": (pickle.dumps(objects, 5), "objects"),
        "defaultdict of a payload": (pickle.dumps(Call(collections.defaultdict, os.getcwd), 4), "collections.default"),
        "getattr": (pickle.dumps(Call(getattr, "a", "upper"), 4), "builtins.getattr"),
        "a dotted name": (b"\x80\x04\x8c\x05numpy\x8c\x0bf2py.os.abc\x93.", "numpy.f2py.os.abc"),
        "a memory map": (pickle.dumps(Call(np.memmap, str(marker), "uint8", "w+", 0, (1,)), 2), "numpy.memmap"),
        "numpy.load": (pickle.dumps(Call(np.load, str(marker)), 4), "numpy.*load"),
    }


NAMES = list(marker_calls(Path("m")))


@pytest.mark.parametrize("name", NAMES)
def test_calls_are_refused_by_name_and_not_made(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    data, refused = marker_calls(marker)[name]
    with pytest.raises(EncoderError, match=f"it.pickle is refused.*{refused}.*nothing of it was run"):
        read(data)
    assert not marker.exists()


def test_payloads_run_in_pickle_itself(tmp_path: Path) -> None:
    """Else the test above would show nothing."""
    for name in ("REDUCE by GLOBAL", "REDUCE by STACK_GLOBAL", "INST", "OBJ", "eval", "object array"):
        marker = tmp_path / name.replace(" ", "-")
        pickle.loads(marker_calls(marker)[name][0], encoding="latin-1")  # noqa: S301 - the point of it
        assert marker.exists(), name


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        (b"\x80\x02}}U\x01xK\x01sb.", "state of a dict"),  # BUILD that sets attributes
        (b"\x80\x02cnumpy\ndtype\n}U\x01xK\x01sb.", "state of a type"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "NEWOBJ"),
        (b"\x80\x02cnumpy\nndarray\n)R.", "numpy.ndarray"),
        (b"\x80\x02Pid\n.", "PERSID"),
        (b"\x80\x02U\x02idQ.", "BINPERSID"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x02\x83\x01\x00.", "EXT2"),
        (b"\x80\x02\x84\x01\x00\x00\x00.", "EXT4"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"\x80\x02cnumpy\ndtype\nU\x02O8\x85R.", "dtype 'O8' .objects"),
        (b"\x80\x02cnumpy\ndtype\nU\x05f4,O8\x85R.", "f4,O8"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00base64\x86R.", "Latin-1"),
        (b"\x80\x02c_codecs\ndecode\n.", "_codecs.decode"),
    ],
)
def test_other_operations_and_functions_are_refused(data: bytes, refused: str) -> None:
    with pytest.raises(EncoderError, match=refused):
        read(data)


HUGE = struct.pack("<q", 10**18)
DTYPE = b"cnumpy\ndtype\nU\x02f4\x85R"
EMPTY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        # A shape of 10^18 numbers, and four bytes.
        (
            EMPTY + b"(K\x01\x8a\x08" + HUGE + b"\x85" + DTYPE + b"\x89U\x04aaaatb",
            "4 bytes for it",
        ),
        (EMPTY + b"(K\x01J\xff\xff\xff\xff\x85" + DTYPE + b"\x89U\x04aaaatb", "without a shape"),
        (EMPTY + b"(K\x01K\x01\x85" + DTYPE + b"\x89]tb", "something else than numbers"),
        (EMPTY + b"(K\x01K\x01\x85U\x02f4\x89U\x04aaaatb", "something else than numbers"),
        (EMPTY + b"Nb", "without content"),
        (EMPTY + b"\x85R", "calls a tuple|calls a|damaged"),
        (EMPTY.replace(b"cnumpy\nndarray", b"cnumpy\ndtype"), "another class than numpy.ndarray"),
        (DTYPE + b"(K\x03U\x01<U\x01aNNtb", "plain numbers"),
        (DTYPE + b"(K\x03U\x01!NNNtb", "byte order"),
        (DTYPE + b"]b", "plain numbers"),
        (b"]]\x85\x93", "damaged"),
        (b"U\x01a(K\x01e", "appends to what is not a list"),
        (b"K\x01K\x02a", "appends to what is not a list"),
        (b"]K\x00K\x01s", "fills a list as if it were a dict"),
        (b"}(]K\x01u", "a list is a key"),
        (b"}(K\x01u", "shorter|damaged"),
        (b"T\xff\xff\xff\xff", "negative byte count"),
        (b"K\x01R", "damaged"),
        (b"h\x07", "damaged"),
        (b"e", "uses a value that is not there"),
        (b"\x85", "uses a value that is not there"),
        (b"K\x01K\x02", "damaged"),
        (b"\xff", "no pickle operation"),
        (b"c" + b"a" * 999, "too long"),
    ],
)
def test_malformed_pickles_raise_encoder_errors(data: bytes, message: str) -> None:
    with pytest.raises(EncoderError, match=message):
        read(b"\x80\x02" + data + b".")


def test_claimed_length_is_not_allocated() -> None:
    with pytest.raises(EncoderError, match="cut short"):
        read(b"\x80\x04\x8e" + struct.pack("<Q", 2**50) + b"abc.")


def test_value_cannot_be_copied_a_thousand_times() -> None:
    once = b"X" + struct.pack("<I", 2**20) + b"a" * 2**20 + b"q\x01X\x06\x00\x00\x00latin1q\x020"
    data = b"\x80\x02" + once.removesuffix(b"0") + b"c_codecs\nencode\nh\x01h\x02\x86R" * 1000 + b"."
    with pytest.raises(EncoderError, match="more than 4 times its size"):
        read(data)


@pytest.mark.parametrize("deep", [b"]" * 10**6, b"(" * 10**6, b")" + b"\x85" * 10**6, b"}" + b"U\x01a}" * 10**6])
def test_deep_nesting_is_refused(deep: bytes) -> None:
    with pytest.raises(EncoderError, match="more than 100,000"):
        read(b"\x80\x02" + deep + b".")


def test_nesting_within_the_limit_does_not_overflow_the_stack() -> None:
    depth = 90_000
    value = read(b"\x80\x02" + b")" + b"\x85" * depth + b".")
    assert isinstance(value, tuple)
    with pytest.raises(EncoderError, match="a tuple is a key"):
        read(b"\x80\x02})" + b"\x85" * depth + b"K\x01s.")
    with pytest.raises(EncoderError, match="STACK_GLOBAL requires str"):
        read(b"\x80\x02)" + b"\x85" * depth + b"U\x01a\x93.")
    with pytest.raises(EncoderError, match="Latin-1"):
        read(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00a)" + b"\x85" * depth + b"\x86R.")


def test_too_many_operations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_pickle, "PICKLE_OPERATIONS", 1000)
    with pytest.raises(EncoderError, match="more than 1,000 operations"):
        read(b"\x80\x02N" + b"\x94" * 10_000 + b".")


def test_file_truncated_anywhere_is_refused() -> None:
    data = pickle.dumps([np.ones((3, 2), np.float32), {"a": 1}], 4)
    for length in range(len(data)):
        with pytest.raises(EncoderError, match=r"it\.pickle is (cut short|not a pickle)"):
            read(data[:length])


@pytest.mark.parametrize("data", [b"", b"the 0.1 0.2\n", b"PK\x03\x04", b"\x80", b"\x80\x09.", b"(lp0\n."])
def test_files_that_are_no_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(EncoderError, match=r"it\.pickle is (cut short|not a pickle)"):
        read(data)


def test_damaged_files_raise_encoder_errors_only() -> None:
    chance = random.Random(0)  # noqa: S311 - no secrets here
    originals = [PYTHON2, pickle.dumps([np.ones((3, 2), "f4"), ({"abc": 1, "UUUNKKK": 0}, {b"w": 2})], 4)]
    for _ in range(4000):
        data = bytearray(chance.choice(originals))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with contextlib.suppress(EncoderError):
            read(bytes(data))


def test_progress_is_reported() -> None:
    data = pickle.dumps(np.zeros(6_000_000, np.float64), 4)
    reports: list[tuple[str, int, int | None]] = []
    read_pickle(
        io.BytesIO(data), name="n", size=len(data), label="big", progress=lambda *report: reports.append(report)
    )
    assert len(reports) >= 3
    assert reports[-1] == ("big", len(data), len(data))
    assert [done for _, done, _ in reports] == sorted(done for _, done, _ in reports)
