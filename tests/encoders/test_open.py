from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closed_folder import close

from ensembed.encoders import DemoEncoder, ObjectEncoder, open_encoder
from ensembed.errors import EncoderError, InputError, MissingError, UnknownEncoderError
from ensembed.fetch.catalog import catalog

ENCODERS = [entry.name for entry in catalog().values() if entry.dim is not None]


@pytest.mark.parametrize(
    ("name", "dim", "seed"),
    [
        ("demo", 32, 0),
        ("demo?", 32, 0),
        ("demo?dim=16", 16, 0),
        ("demo?seed=1", 32, 1),
        ("demo?dim=16&seed=1", 16, 1),
        ("demo?seed=1&dim=16", 16, 1),
        ("demo?seed=-1", 32, -1),
    ],
)
def test_the_demo_encoder_is_opened_by_name_with_options(name: str, dim: int, seed: int) -> None:
    encoder = open_encoder(name)
    assert encoder.spec.name == name
    assert encoder.spec.key == DemoEncoder(dim, seed).spec.key
    assert np.array_equal(encoder.encode(["a word"]), DemoEncoder(dim, seed).encode(["a word"]))


@pytest.mark.parametrize(
    ("name", "option"), [("demo?size=3", "size"), ("demo?dim=3&Seed=1", "Seed"), ("demo?=3", ""), ("demo?3", "3")]
)
def test_an_unknown_option_is_refused_and_the_known_ones_listed(name: str, option: str) -> None:
    with pytest.raises(InputError, match=rf"has no option '{option}'; it has: dim, seed"):
        open_encoder(name)


@pytest.mark.parametrize("name", ["demo?dim=", "demo?dim", "demo?dim=x", "demo?dim=1.5", "demo?seed=1e3"])
def test_a_malformed_value_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"is not a value for (dim|seed)"):
        open_encoder(name)


@pytest.mark.parametrize("name", ["demo?dim=0", "demo?dim=-3", "demo?seed=99999999999999999999"])
def test_a_value_out_of_range_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="must"):
        open_encoder(name)


@pytest.mark.parametrize("name", ["", "?", "Demo", "demo ", "no-such-encoder", "minilm2", "../minilm"])
def test_an_unknown_name_is_refused_and_the_known_ones_listed(name: str) -> None:
    with pytest.raises(UnknownEncoderError, match="minilm"):
        open_encoder(name)


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_that_was_not_pulled_says_how_to_pull_it(name: str) -> None:
    with pytest.raises(MissingError, match=f"ensembed pull {name}$"):
        open_encoder(name)


@pytest.mark.parametrize("name", ENCODERS)
def test_options_are_checked_before_anything_has_to_be_pulled(name: str) -> None:
    with pytest.raises(InputError, match="has no option 'nonsense'"):
        open_encoder(f"{name}?nonsense=1")


@pytest.mark.parametrize("name", ["minilm?max_length=x", "minilm?normalize=perhaps", "use-lite?max_length="])
def test_malformed_values_are_refused_before_anything_has_to_be_pulled(name: str) -> None:
    with pytest.raises(InputError, match="is not a value for"):
        open_encoder(name)


def test_name_of_a_data_set_is_refused() -> None:
    with pytest.raises(InputError, match="'stsb' is a dataset, not an encoder"):
        open_encoder("stsb")


def test_encoder_object_is_returned_as_it_is() -> None:
    encoder = DemoEncoder(4)
    assert open_encoder(encoder) is encoder


def test_an_object_with_encode_is_wrapped() -> None:
    class Lengths:
        def encode(self, sentences: list[str]) -> list[list[int]]:
            return [[len(sentence), 1] for sentence in sentences]

    encoder = open_encoder(Lengths())
    assert isinstance(encoder, ObjectEncoder)
    assert encoder.spec.name == "Lengths"
    assert encoder.encode(["abc"]).tolist() == [[3, 1]]


@pytest.mark.parametrize("source", [None, 3, b"demo", ["demo"], object()])
def test_source_of_another_type_is_refused(source: Any) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(InputError, match=f"not {type(source).__name__}"):
        open_encoder(source)


@pytest.mark.parametrize("kind", ["onnx", "static", "model2vec"])
def test_a_folder_that_may_not_be_looked_at_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    close(tmp_path, monkeypatch)
    with pytest.raises(EncoderError, match=rf"encoder '{kind}:.*' cannot be opened: .*Permission denied"):
        open_encoder(f"{kind}:{tmp_path}")
