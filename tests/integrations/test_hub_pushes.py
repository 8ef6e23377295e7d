"""What may be pushed to a hub, by whom, and what an interrupted push leaves: the real client, a hub here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_server import READER, WRITER, HubServer, Repository, hub_server
from small_hub import MEMBERS, REPO, SENTENCES, UPLOADS, hub_model

from ensembed import Ensemble
from ensembed.encoders.wrappers import ObjectEncoder
from ensembed.errors import EnsembedError, InputError, MissingError, ModelError
from ensembed.integrations.hub import from_pretrained, push_to_hub
from ensembed.methods import GCCA, Concat
from ensembed.models.ensemble import MetaEncoder

pytestmark = UPLOADS


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    with hub_server(monkeypatch, tmp_path) as hub:
        yield hub


@pytest.fixture
def model() -> MetaEncoder:
    return hub_model()


def test_saved_folder_is_pushed_without_opening_its_members(
    hub: HubServer, model: MetaEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(tmp_path / "saved")
    (tmp_path / "saved" / "notes.txt").write_text("mine")
    monkeypatch.setattr("ensembed.encoders.demo_encoder.DemoEncoder.embed", None)
    push_to_hub(tmp_path / "saved", REPO, commit_message="first", card=False)
    assert set(hub.files(REPO)) == {".gitattributes", "config.json", "model.safetensors"}
    for name in ("config.json", "model.safetensors"):
        assert hub.files(REPO)[name] == (tmp_path / "saved" / name).read_bytes()
    assert hub.repositories[REPO].messages[-1] == "first"


def test_private_push_to_a_public_repository_is_refused(hub: HubServer, model: MetaEncoder) -> None:
    push_to_hub(model, REPO)
    before = hub.files(REPO)
    with pytest.raises(InputError, match="me/model is on the hub already, and public"):
        push_to_hub(model, REPO, private=True, commit_message="secret")
    assert hub.files(REPO) is before


@pytest.mark.parametrize(
    ("token", "message"), [("", "`hf auth login`"), (READER, "may write"), ("hf_wrong", "`hf auth login`")]
)
def test_push_without_permission_says_what_to_do(
    hub: HubServer, model: MetaEncoder, monkeypatch: pytest.MonkeyPatch, token: str, message: str
) -> None:
    hub.repositories[REPO] = Repository(private=False)
    hub.repositories[REPO].commit("main", {}, "initial commit")
    monkeypatch.setenv("HF_TOKEN", token) if token else monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(MissingError, match=message):
        push_to_hub(model, REPO)
    assert hub.files(REPO) == {}


@pytest.mark.parametrize(
    ("part", "answer", "message"),
    [
        ("PUT /lfs/", (403, {}, b"expired"), "its files are unchanged. Try again.*403"),
        ("POST /api/models/me/model/commit", (500, {}, b"{}"), "its files are unchanged. Try again.*500"),
        ("POST /api/models/me/model/commit", (412, {}, b"{}"), "was changed on the hub by somebody else"),
    ],
)
def test_failed_push_changes_nothing(
    hub: HubServer, model: MetaEncoder, part: str, answer: tuple[int, dict[str, str], bytes], message: str
) -> None:
    push_to_hub(Ensemble(MEMBERS).fit(SENTENCES, GCCA(dim=2)), REPO)
    before, head = hub.files(REPO), hub.repositories[REPO].branches["main"]
    hub.failing = {part: answer}
    with pytest.raises(EnsembedError, match=f"(?s){message}"):
        push_to_hub(model, REPO)
    assert hub.repositories[REPO].branches == {"main": head}
    assert hub.files(REPO) == before
    hub.failing = {}
    push_to_hub(model, REPO)
    np.testing.assert_array_equal(from_pretrained(REPO).encode(SENTENCES), model.encode(SENTENCES))


def test_commit_of_another_writer_in_between_is_an_error(
    hub: HubServer, model: MetaEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_to_hub(model, REPO)
    batch = hub._batch

    def meanwhile(objects: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - what the server answers
        hub.repositories[REPO].commit("main", {"README.md": b"theirs"}, "theirs")
        return batch(objects)

    monkeypatch.setattr(hub, "_batch", meanwhile)
    with pytest.raises(ModelError, match="was changed on the hub by somebody else"):
        push_to_hub(Ensemble(MEMBERS).fit(SENTENCES, GCCA(dim=2)), REPO)
    assert hub.files(REPO)["README.md"] == b"theirs"


def test_killed_push_leaves_the_hub_as_it_was(hub: HubServer, model: MetaEncoder, tmp_path: Path) -> None:
    push_to_hub(model, REPO)
    before = hub.files(REPO)
    Ensemble(MEMBERS).fit(SENTENCES, GCCA(dim=2)).save(tmp_path / "new")
    hub.hold = "PUT /lfs/"
    child = subprocess.Popen(
        [sys.executable, "-m", "ensembed", "push", str(tmp_path / "new"), REPO],
        env=hub.environment(tmp_path / "hf", token=WRITER),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert hub.held.wait(60)
    child.kill()
    child.wait()
    hub.released.set()
    assert hub.files(REPO) == before
    np.testing.assert_array_equal(from_pretrained(REPO).encode(SENTENCES), model.encode(SENTENCES))


class Reversed:
    def encode(self, sentences: list[str]) -> Any:  # noqa: ANN401 - lists, as an object of a user may give
        return [[float(len(text)), float(text.count("e"))] for text in sentences]


def test_local_members_are_refused_unless_allowed(hub: HubServer, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("dog 1 0\ncat 0 1\nred 1 1\n")
    own = ObjectEncoder(Reversed(), name="mine|*own*")
    model = Ensemble([MEMBERS[0], f"words:{vectors}", own]).fit(SENTENCES, Concat())
    with pytest.raises(
        InputError, match=r"on this machine alone: 'words:.*' \(it is a file.*'mine\|\*own\*' \(it is an"
    ):
        push_to_hub(model, REPO)
    assert not hub.repositories
    push_to_hub(model, REPO, allow_local_members=True)
    assert "mine\\|\\*own\\*" in hub.files(REPO)["README.md"].decode()
    with pytest.raises(ModelError, match="is an object"):
        from_pretrained(REPO)
    loaded = from_pretrained(REPO, encoders={"mine|*own*": Reversed()})
    np.testing.assert_array_equal(loaded.encode(SENTENCES), model.encode(SENTENCES))


def test_card_can_be_a_text_or_left_out(hub: HubServer, model: MetaEncoder) -> None:
    push_to_hub(model, REPO, card="---\nlicense: mit\n---\nmy own\n")
    assert hub.files(REPO)["README.md"].endswith(b"my own\n")
    push_to_hub(Ensemble(MEMBERS).fit(SENTENCES, GCCA(dim=2)), REPO, card=False)
    assert hub.files(REPO)["README.md"].endswith(b"my own\n")
    with pytest.raises(InputError, match=r"the hub does not take the card of 'me/model': .*no metadata"):
        push_to_hub(model, REPO, card="no front matter")
    with pytest.raises(InputError, match="card is True, False or the text"):
        push_to_hub(model, REPO, card=3)  # type: ignore[arg-type] # it is refused
    with pytest.raises(InputError, match="leave card=True"):
        push_to_hub(model, REPO, card=False, scores=[])
