"""Texts, numbers and values that a file may hold where a reader expects others.

A text is a string, or `[before, unit, count, behind]` for a long one, so that recipes stay short.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Text: TypeAlias = "str | list[Any]"

NUMBERS = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    65535,
    65536,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**62,
    2**63,
    2**64 - 1,
)


def spelled(text: Text) -> bytes:
    """Return a text as bytes; a lone surrogate stands for a byte that is not UTF-8."""
    before, unit, count, behind = text if isinstance(text, list) else (text, "", 0, "")
    return f"{before}{unit * count}{behind}".encode("utf-8", "surrogateescape")


_SHORT = ["", "\0", "\udcff\udcfe", "\n", "\r\n", "\t", '"', ",", "{", "[", " ", "PK\x03\x04", "\x1f\udc8b",
          "\udc93NUMPY", "PAR1", "\ufeff", "\u2028", "nan inf -inf 1e999", "\x1b[31m",
          "cos\nsystem\n(S'touch outside/x'\ntR."]  # fmt: skip
_LONG = [("\0", 4096), ("a", 100_000), ("[", 100_000), ('{"a":', 20_000), ("a ", 200_000), ("\n", 20_000),
         ("\U0001f600", 300_000), ("0,", 200_000), ("a", 3_000_000)]  # fmt: skip
TEXTS: list[Text] = [*_SHORT, *(["", unit, count, ""] for unit, count in _LONG)]
"""What is put into any file."""

_SURROGATE = "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
_CELLS = ["", "nan", "inf", "-1", "0", "1e999", "1_0", "999999999999", "99999999999999999999", "0x10", "+1", "\0",
          "\udcff", '"', '"a', "'", "a b", "a\tb", "a,b", "\u2028", _SURROGATE]  # fmt: skip
FIELDS: list[Text] = [*_CELLS, ["", "9", 5000, ""], ["", "a", 2_000_000, ""], ["", "e\u0301", 100_000, ""]]
"""What is put in the place of a word, a number or a cell."""

# Paths and names: outside of the artefact, devices, other machines, code, too many dimensions.
_STRINGS: list[str] = r"""
    a \ud800 \u0000 \u001b[31m é . .. / ../../outside/secret /etc/passwd /dev/zero outside/pipe //host/share
    file:///etc/passwd http://192.0.2.1/x ~nobody/x C:\\x a/../../b tfhub:http://192.0.2.1/x tfhub:outside
    paranmt:http://192.0.2.1/a.zip openai:http://192.0.2.1/v1#m st:artefact?trust_remote_code=true
    st:org/name hub:org/name model2vec:org/name
    words:/dev/zero words:outside/pipe words:outside/secret?corpus=/dev/zero onnx:outside static:outside/secret demo
    demo?dim=300000000 demo?dim=-1 demo?dim=4&seed=9 demo?truncate_dim=1 minilm default plugin:x os.system builtins.eval
    __import__('os') nan F64 BF16 I64 U8 C64 BOOL float64
""".split()  # noqa: SIM905 - a list of strings would take a page
_PLAIN = """
    null true false 0 -1 1 2 3 7 0.5 -0.0 NaN Infinity -Infinity 1e999 1e-999 2147483648 4294967296 9007199254740992
    4611686018427387904 9223372036854775808 18446744073709551616 -9223372036854775808 1000000000000000000000000000000
    [] {} [[]] {"":{}} [0] [1,2] [0,4611686018427387904] ["a","b"] {"a":1} [null] [{}] ""
""".split()  # noqa: SIM905 - as above
VALUES: list[Text] = [
    *_PLAIN,
    *(f'"{text}"' for text in _STRINGS),
    *(["[" * depth, "", 0, "]" * depth] for depth in (90, 150, 900, 990)),
    ["1", "0", 400, ""],
    ["", "9", 5000, ""],
    ['"', "a", 1_000_000, '"'],
    ['"', "\\ud83d\\ude00", 100_000, '"'],
    ["[", "0,", 100_000, "0]"],
    ["[", "{},", 200_000, "{}]"],
    ["{", '"a":0,', 10_000, '"b":0}'],
    ["", "[", 100_000, ""],
    ["", '{"a":', 5000, ""],
]
"""JSON texts of values."""

DTYPES = (
    "'<f4'",
    "'<f8'",
    "'<i8'",
    "'>f4'",
    "'|O'",
    "'|S1000000000'",
    "'|V0'",
    "[('a', '<f4')]",
    "'<U9'",
    "None",
    "'x'",
)
SHAPES = (
    "()",
    "(0,)",
    "(1,)",
    "(-1,)",
    "(2, 2)",
    "(9999999999, 9999999999)",
    "(4611686018427387904,)",
    "3",
    "('a',)",
    "(",
)
MEMBERS = [
    "../outside/x",
    "/outside/x",
    "a/../../x",
    "..",
    ".",
    "",
    "a:b",
    "a\\b",
    "\0",
    "\udcff",
    "a" * 300,
    "é",
    "link/x",
]
TAR_TYPES = ["0", "1", "2", "3", "4", "5", "6", "7", "L", "K", "x", "g", "S", "X", "Z", "\0"]
TAR_SIZES = ["0", "1", "777", "77777777777", "-1", "x", "\udc80\0\0\0\0\0\0\x7f\udcff\udcff\udcff\udcff"]
