"""The bounds on what is read, and the table of them in the documentation."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensembed.support import file_limits as limits
from ensembed.support.file_limits import LimitError, UnpackedGzip, parse_json, read_json

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"


def test_the_documentation_says_what_every_constant_bounds() -> None:
    constants = {name: f"{value:,}" for name, value in vars(limits).items() if re.fullmatch(r"[A-Z_]+", name)}
    table = DOCS.read_text().partition("| --- | ---: | --- |\n")[2].partition("\n\n")[0]
    assert dict(re.findall(r"^\| `([A-Z_]+)` \| ([0-9,]+) \| \S.* \|$", table, re.MULTILINE)) == constants


@pytest.mark.parametrize("value", [1, "x" * 1000, [], {"a": [{"b": [1, 2, {}]}]}, json.loads("[" * 100 + "]" * 100)])
def test_json_within_the_bounds_is_read(tmp_path: Path, value: object) -> None:
    (tmp_path / "a.json").write_text(json.dumps(value))
    assert read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize("depth", [101, 900, 10**6])
@pytest.mark.parametrize("start", ["[", '{"a":'])
def test_json_that_is_nested_deeply_is_a_value_error(depth: int, start: str) -> None:
    text = start * depth + "1" + ("]" if start == "[" else "}") * depth
    with pytest.raises(LimitError, match="nested more than 100 levels"):
        parse_json(text.encode())


def test_large_json_and_what_is_no_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JSON_BYTES", 100)
    monkeypatch.setattr(limits, "JSON_VALUES", 10)
    path = tmp_path / "a.json"
    for text, problem in (("x" * 101, "more than 100 bytes"), ("[" + "1," * 20 + "1]", "more than 10 values")):
        path.write_text(text)
        with pytest.raises(LimitError, match=problem):
            read_json(path)
    path.write_bytes(b'"\xff"')
    with pytest.raises(ValueError, match="utf-8"):
        read_json(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="no regular file"):
        read_json(path)


# Strings of the characters that have a meaning in JSON.
STRINGS = st.text(st.sampled_from('",[]{}:\\ aé\n'), max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | STRINGS, lambda some: st.lists(some) | st.dictionaries(STRINGS, some), max_leaves=20
)


def number_of_values(value: object) -> int:
    """The slow version: all values below this one, and one for an empty list or object, which has a bracket, too."""
    children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return sum(1 + number_of_values(child) for child in children) or int(isinstance(value, dict | list))


@given(VALUES, st.booleans())
def test_values_are_counted_outside_of_strings(value: object, ascii_only: bool) -> None:
    assert limits.count_values(json.dumps(value, ensure_ascii=ascii_only).encode()) == number_of_values(value)


def test_commas_in_strings_are_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JSON_VALUES", 10)
    text = [",[{" * 100, '\\"' * 20, "x"]
    assert parse_json(json.dumps(text).encode()) == text
    with pytest.raises(LimitError, match="more than 10 values"):
        parse_json(json.dumps([*text, *range(10)]).encode())
    with pytest.raises(ValueError, match="utf-8"):
        parse_json(json.dumps(["a"]).encode("utf-16"))


def test_gzip_files_unpack_within_their_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bytes(range(256)) * 5000
    assert io.BufferedReader(UnpackedGzip(io.BytesIO(gzip.compress(plain)))).read() == plain
    monkeypatch.setattr(limits, "GZIP_FREE", 100_000)
    with pytest.raises(LimitError, match="it unpacks to more than"):
        io.BufferedReader(UnpackedGzip(io.BytesIO(gzip.compress(bytes(10**7))))).read()
