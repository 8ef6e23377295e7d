from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ensembed import Ensemble, load
from ensembed.cli import main
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.names import effect_needing_consent
from ensembed.errors import InputError, ModelError
from ensembed.integrations.faiss import FaissStore
from ensembed.methods import Concat
from ensembed.models.saved_model import read_model, write_model
from ensembed.search import Index

REMOTE = "openai:https://embeddings.example.org/v1#model"


def test_code_of_a_model_and_servers_without_a_key_need_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert effect_needing_consent("st:a/b?trust_remote_code=true") == "runs code that comes with its weights"
    assert effect_needing_consent(REMOTE) == "sends your sentences to https://embeddings.example.org/v1/embeddings"
    monkeypatch.setenv("ENSEMBED_API_KEY_EMBEDDINGS_EXAMPLE_ORG", "secret")
    assert effect_needing_consent(REMOTE) is None


HARMLESS = [
    *("minilm", "demo?dim=3", "st:a/b", "st:a/b?trust_remote_code=false"),
    *("openai:http://localhost:8000/v1#m", "openai:http://127.0.0.1/v1#m?dimensions=4"),
]


@pytest.mark.parametrize("name", HARMLESS)
def test_other_names_need_no_consent(name: str) -> None:
    assert effect_needing_consent(name) is None


def test_malformed_trust_remote_code_is_refused() -> None:
    with pytest.raises(InputError, match="not a value for trust_remote_code"):
        effect_needing_consent("st:a/b?trust_remote_code=perhaps")


@pytest.fixture
def foreign_model(tmp_path: Path) -> Path:
    """A model whose member is a server that we never chose."""
    folder = tmp_path / "model"
    Ensemble(["demo?dim=4"]).fit(["a"], Concat()).save(folder)
    saved = read_model(folder)
    member = replace(saved.members[0], name=f"{REMOTE}?retries=0&timeout=1", kind="openai")
    write_model(folder, replace(saved, members=(member,)))
    return folder


def test_loading_opens_a_server_without_a_key_only_with_trust(
    foreign_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("ensembed.models.opening.open_encoder", lambda name, **_: opened.append(name))
    with pytest.raises(ModelError, match=r"sends your sentences to https://embeddings.example.org.*trust=True"):
        load(foreign_model)
    assert not opened
    with pytest.raises(AttributeError):  # the stand-in is no encoder: it was opened
        load(foreign_model, trust=True)
    assert opened == [f"{REMOTE}?retries=0&timeout=1"]


def test_command_line_refuses_and_names_the_trust_option(
    foreign_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["similarity", str(foreign_model), "a", "b"]) != 0
    assert "--trust" in capsys.readouterr().err
    config = json.loads((foreign_model / "config.json").read_text())
    assert REMOTE in config["members"][0]["name"]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are opened; behind each of them is the demo encoder."""
    names: list[str] = []

    def open_demo(source: object, **_: object) -> DemoEncoder:
        names.extend([source] if isinstance(source, str) else [])
        return DemoEncoder()

    monkeypatch.setattr("ensembed.models.opening.open_encoder", open_demo)
    return names


@pytest.mark.parametrize("setting", [("--kind", "exact"), ("--dtype", "int8"), ()])
def test_an_index_without_rows_connects_to_its_saved_server_only_with_trust(
    tmp_path: Path, opened: list[str], capsys: pytest.CaptureFixture[str], setting: tuple[str, ...]
) -> None:
    folder, lines = tmp_path / "index", tmp_path / "lines.txt"
    lines.write_text("a dog barks\n")
    manifest = Index.create(folder, DemoEncoder()).manifest
    (folder / "index.json").write_bytes(replace(manifest, source=REMOTE).to_bytes())
    command = ["index", str(folder), str(lines), *setting]
    assert main(command) == 1
    assert "sends your sentences to https://embeddings.example.org/v1/embeddings" in capsys.readouterr().err
    assert opened == []
    assert main([*command, "--trust"]) == 0
    assert opened == [REMOTE]
    assert len(Index.open(folder)) == 1


def test_the_message_on_consent_is_true_of_a_typed_name_too(tmp_path: Path, opened: list[str]) -> None:
    with pytest.raises(ModelError) as caught:
        FaissStore.create(tmp_path / "store", REMOTE)
    assert str(caught.value).endswith("/v1/embeddings. To allow that, pass trust=True (--trust)")
    assert opened == []
