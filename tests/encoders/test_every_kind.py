"""Every kind of encoder, on small files that the tests make: one contract, one command line, one rule of keys."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from ensembed import Ensemble, load
from ensembed.cli import main
from ensembed.encoders import Encoder, open_encoder
from ensembed.encoders.names_and_consent import KINDS, parse_name
from ensembed.errors import EnsembedError, InputError
from ensembed.methods import Concat
from ensembed.testing import check_encoder

# `make_KIND.py` beside this file has `make_KIND(folder)`, which writes a small model and returns its name. It says
# `ON_DISK = False` if there are no files whose bytes are the weights.
MODULES = {
    path.stem.removeprefix("make_").replace("_", "-"): import_module(path.stem)
    for path in sorted(Path(__file__).parent.glob("make_*.py"))
}
ON_DISK = [kind for kind, module in MODULES.items() if getattr(module, "ON_DISK", True)]
SENTENCES = ["a dog runs", "", "two cats sleep", "The man is playing a guitar, 12 times."]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    made: dict[str, str] = {}

    def name(kind: str) -> str:
        if kind not in made:
            make = getattr(MODULES[kind], f"make_{kind.replace('-', '_')}")
            made[kind] = make(tmp_path_factory.mktemp(kind))
        return made[kind]

    return name


@pytest.fixture(params=MODULES, scope="module")
def name(request: pytest.FixtureRequest, names: Callable[[str], str]) -> str:
    return names(request.param)


@pytest.fixture(scope="module")
def encoder(name: str) -> Encoder:
    """The encoder, opened once for all tests: it keeps nothing of what it has encoded."""
    return open_encoder(name)


def test_every_kind_has_a_maker() -> None:
    assert MODULES.keys() == KINDS.keys()


def test_encoder_keeps_the_contract(encoder: Encoder) -> None:
    check_encoder(encoder)


def test_spec_has_the_name_that_the_user_wrote(name: str, encoder: Encoder) -> None:
    assert encoder.spec.name == name


def test_text_of_ten_megabytes_is_encoded(encoder: Encoder) -> None:
    rows = encoder.encode(["word " * 1_000_000 + "ö" * 5_000_000, "a dog"])
    assert np.isfinite(rows).all()


def test_prefix_truncate_dim_and_normalize_work(name: str, encoder: Encoder) -> None:
    changed = open_encoder(f"{name}{'&' if parse_name(name).query else '?'}prefix=so &truncate_dim=3&normalize=true")
    assert changed.spec.key != encoder.spec.key
    expected = encoder.encode(["so a dog", "so two cats"])[:, :3]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(changed.encode(["a dog", "two cats"]), expected, atol=1e-5)


def test_command_line_gives_the_same_vectors(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a dog runs\n\ntwo cats sleep\n")
    expected = open_encoder(name).encode(["a dog runs", "", "two cats sleep"])
    assert main(["encode", "-e", name, str(lines), "--json"]) == 0
    vectors = [json.loads(line)["vector"] for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_saved_and_loaded_model_gives_the_same_vectors(tmp_path: Path, encoder: Encoder) -> None:
    model = Ensemble([encoder, "demo?dim=7"]).fit(["a dog"], Concat())
    model.save(tmp_path / "model")
    sentences = ["two cats sleep", "a dog"]
    trust = "code" if encoder.spec.kind == "tfhub" else False
    np.testing.assert_allclose(
        load(tmp_path / "model", trust=trust).encode(sentences), model.encode(sentences), atol=1e-5
    )


def test_opening_it_again_gives_the_same_key(name: str, encoder: Encoder) -> None:
    assert open_encoder(name, threads=1).spec.key == encoder.spec.key


@pytest.mark.parametrize("kind", ON_DISK)
def test_copied_files_have_the_same_key(names: Callable[[str], str], tmp_path: Path, kind: str) -> None:
    name = names(kind)
    path = Path(parse_name(name).location)
    root = path if path.is_dir() else path.parent
    elsewhere = shutil.copytree(root, tmp_path / "elsewhere" / "deep")
    moved = name.replace(str(root), str(elsewhere))
    assert moved != name
    assert open_encoder(moved).spec.key == open_encoder(name).spec.key


@pytest.mark.parametrize("kind", ON_DISK)
def test_other_weights_have_another_key_or_are_refused(names: Callable[[str], str], tmp_path: Path, kind: str) -> None:
    """Every file of the model is damaged in turn, in a digit or its last byte: never the same key, other numbers."""
    name = names(kind)
    path = Path(parse_name(name).location)
    root = path if path.is_dir() else path.parent
    expected, key = open_encoder(name).encode(SENTENCES), open_encoder(name).spec.key
    changes = 0
    for file in sorted(file for file in root.rglob("*") if file.is_file()):
        copy = shutil.copytree(root, tmp_path / f"copy-{changes}")
        data = file.read_bytes()
        place = max((i for digit in b"0123456789" if (i := data.rfind(digit)) >= 0), default=len(data) - 1)
        changed = copy / file.relative_to(root)
        changed.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        changes += 1
        try:
            other = open_encoder(name.replace(str(root), str(copy)))
        except EnsembedError:
            continue
        if other.spec.key == key:
            np.testing.assert_allclose(other.encode(SENTENCES), expected, atol=1e-6, err_msg=str(file))
    assert changes


@pytest.mark.parametrize("kind", ON_DISK)
def test_error_names_an_absent_file(tmp_path: Path, kind: str) -> None:
    with pytest.raises(EnsembedError, match="nothing-here"):
        open_encoder(f"{kind}:{tmp_path}/nothing-here")


@pytest.mark.parametrize("path", ["~no-such-user-here/x", "x" * 300])
@pytest.mark.parametrize("scheme", ON_DISK)
def test_location_that_cannot_be_a_path_is_refused(scheme: str, path: str) -> None:
    with pytest.raises(InputError, match="cannot be a path"):
        open_encoder(f"{scheme}:{path}")
