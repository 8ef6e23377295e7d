from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensembed.encoders import open_encoder
from ensembed.encoders.names_and_consent import KINDS, Request, at_least, describe_kinds, flag, one_of, parse_name
from ensembed.errors import InputError, UnknownEncoderError


@pytest.mark.parametrize(
    ("name", "scheme", "location", "query"),
    [
        ("minilm", "onnx", "minilm", {}),
        ("minilm?max_length=64", "onnx", "minilm", {"max_length": "64"}),
        ("demo", "demo", "", {}),
        ("onnx:models/bge", "onnx", "models/bge", {}),
        ("onnx:/a b/c.d?pooling=cls&max_length=9", "onnx", "/a b/c.d", {"pooling": "cls", "max_length": "9"}),
        ("st:org/model?prefix=query%3A%20", "st", "org/model", {"prefix": "query: "}),
        ("st:org/model?prefix=query: ", "st", "org/model", {"prefix": "query: "}),
        ("st:org/model?prefix=", "st", "org/model", {"prefix": ""}),
        ("openai:http://h:1/v1#m", "openai", "http://h:1/v1#m", {}),
        ("openai:http://h/v1#m?batch_items=2", "openai", "http://h/v1#m", {"batch_items": "2"}),
        ("openai:http://h/v1?api-version=1#m", "openai", "http://h/v1?api-version=1#m", {}),
        ("openai:http://h/v1?api-version=1#m?x=2", "openai", "http://h/v1?api-version=1#m", {"x": "2"}),
        ("tfhub:https://tfhub.dev/google/use/4", "tfhub", "https://tfhub.dev/google/use/4", {}),
        ("words:C:\\glove.txt", "words", "C:\\glove.txt", {}),
        ("my-plugin+2:x", "my-plugin+2", "x", {}),
    ],
)
def test_names_are_parsed(name: str, scheme: str, location: str, query: dict[str, str]) -> None:
    request = parse_name(name)
    assert (request.name, request.scheme, request.location, dict(request.query)) == (name, scheme, location, query)


@pytest.mark.parametrize("name", ["./models/bge", "models/bge", "/models/bge", "models\\bge"])
def test_a_path_without_a_kind_says_how_to_write_it(name: str) -> None:
    with pytest.raises(UnknownEncoderError, match="say how to read it"):
        parse_name(name)


def test_an_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(UnknownEncoderError, match=r"no kind of encoder 'onx' \(did you mean 'onnx'\?\).*words"):
        open_encoder("onx:models/bge")


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="option 'dim' twice"):
        parse_name("demo?dim=3&dim=4")


@pytest.mark.parametrize("scheme", sorted(KINDS.keys() - {"demo"}))  # which needs no location
def test_every_kind_refuses_an_empty_location(scheme: str) -> None:
    with pytest.raises(InputError, match=scheme):
        open_encoder(f"{scheme}:")


@pytest.mark.parametrize("scheme", KINDS)
def test_every_kind_refuses_unknown_options(scheme: str) -> None:
    with pytest.raises(InputError, match=r"has no option 'nonsense'; it has: .*prefix, truncate_dim, normalize"):
        open_encoder(f"{scheme}:{'http://localhost/v1#m' if scheme == 'openai' else '/no/such/place'}?nonsense=1")


@pytest.mark.parametrize("scheme", KINDS)
def test_every_kind_says_what_it_opens(scheme: str) -> None:
    (kind,) = (kind for kind in describe_kinds() if kind["scheme"] == scheme)
    assert kind["opens"]
    assert kind["from"] == "ensembed"
    assert callable(KINDS[scheme].load())


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        request = parse_name(text)
    except InputError:
        return
    assert isinstance(request, Request)
    assert request.name == text


def test_converters_convert_or_refuse() -> None:
    assert [flag(value) for value in ("true", "1", "False", "0")] == [True, True, False, False]
    assert one_of("a", "b")("b") == "b"
    assert at_least(2)("3") == 3
    assert at_least(0.5)("0.5") == 0.5
    for convert, value in [(one_of("a"), "b"), (at_least(2), "1"), (at_least(0.5), "nan"), (at_least(1), "1.5")]:
        with pytest.raises(ValueError):
            convert(value)


def test_values_are_taken_as_they_are_written() -> None:
    assert parse_name("demo?prefix=C++ 50% of a+b%26c=d").query == {"prefix": "C++ 50% of a+b&c=d"}


@pytest.mark.parametrize("rest", ["a=1&a=2", "truncate_dim=x", "nonsense=1"])
def test_a_password_is_shown_in_no_message(rest: str) -> None:
    with pytest.raises(InputError) as failure:
        open_encoder(f"openai:https://me:hunter2@host/v1#m?{rest}")
    assert "hunter2" not in str(failure.value)


def test_listing_the_kinds_imports_no_heavy_library() -> None:
    code = "import sys; import ensembed.encoders.names_and_consent as n; n.describe_kinds(); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    heavy = {"torch", "transformers", "tensorflow", "onnxruntime", "tokenizers", "httpx", "wordfreq"}
    assert heavy.isdisjoint(result.stdout.split())
