"""Models loaded from a hub on this machine, by the hub's real client over HTTP."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_server import READER, HubServer, Repository, fresh_session, hub_server
from small_hub import MEMBERS, REPO, SENTENCES, UPLOADS, hub_model

from ensembed import Ensemble
from ensembed.cli import main
from ensembed.encoders.base import UntrustedName
from ensembed.errors import InputError, MissingError, ModelError
from ensembed.integrations.hub import HubModel, Pushed, from_pretrained, push_to_hub
from ensembed.integrations.model_card import model_card
from ensembed.methods import GCCA, Concat
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.hub_models import parse_hub_name
from ensembed.models.saved_model import SavedModel, read_model, write_model

pytestmark = UPLOADS


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    with hub_server(monkeypatch, tmp_path) as hub:
        yield hub


@pytest.fixture
def model() -> MetaEncoder:
    return hub_model()


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    fresh_session()


def test_pushed_model_loads_with_the_same_vectors(hub: HubServer, model: MetaEncoder) -> None:
    pushed = push_to_hub(model, REPO)
    assert pushed == Pushed(REPO, hub.repositories[REPO].branches["main"], f"{hub.url}/{REPO}/commit/{pushed.revision}")
    assert set(hub.files(REPO)) == {".gitattributes", "config.json", "model.safetensors", "README.md"}
    assert hub.repositories[REPO].messages == ["initial commit", "gcca of 2 encoders, 4 dimensions"]
    assert not hub.repositories[REPO].private
    assert hub.files(REPO)["README.md"].decode() == model_card(model, repo=REPO)
    loaded = from_pretrained(REPO)
    assert isinstance(loaded, HubModel)
    assert (loaded.repo, loaded.revision) == (REPO, pushed.revision)
    assert loaded.spec.name == f"{REPO}@{pushed.revision}"
    assert loaded.spec.key == model.spec.key
    assert loaded.corpus == model.corpus
    np.testing.assert_array_equal(loaded.encode(SENTENCES), model.encode(SENTENCES))


def test_only_two_files_are_fetched(hub: HubServer, model: MetaEncoder, tmp_path: Path) -> None:
    push_to_hub(model, REPO)
    hub.repositories[REPO].commit(
        "main", {"pytorch_model.bin": b"pickle", "sub/config.json": b"{}", "code.py": b"boom"}, "more"
    )
    hub.asked.clear()
    from_pretrained(REPO, cache_dir=tmp_path / "elsewhere")
    got = {line.rpartition("/")[2] for line in hub.asked if "/resolve/" in line}
    assert got == {"config.json", "model.safetensors"}
    kept = {path.name for path in (tmp_path / "elsewhere").rglob("snapshots/*/*")}
    assert kept == {"config.json", "model.safetensors"}
    assert not (tmp_path / "hub").exists()


def test_revision_selects_a_branch_or_a_commit(hub: HubServer, model: MetaEncoder) -> None:
    first = push_to_hub(model, REPO)
    other = Ensemble(MEMBERS).fit(SENTENCES, Concat())
    second = push_to_hub(other, REPO)
    third = push_to_hub(model, REPO, revision="small")
    assert from_pretrained(REPO).revision == second.revision
    assert from_pretrained(REPO, revision="small").revision == third.revision
    old = from_pretrained(REPO, revision=first.revision)
    np.testing.assert_array_equal(old.encode(SENTENCES), model.encode(SENTENCES))
    assert from_pretrained(REPO).encode(["a"]).shape == (1, 14)
    assert hub.files(REPO, "small") != hub.files(REPO)
    with pytest.raises(MissingError, match=r"the hub's model 'me/model' has no revision 'v9'"):
        from_pretrained(REPO, revision="v9")
    with pytest.raises(InputError, match="is a commit, which cannot change: name the branch"):
        push_to_hub(model, REPO, revision=first.revision)


def test_model_that_was_opened_once_opens_offline(
    hub: HubServer, model: MetaEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_to_hub(model, REPO)
    push_to_hub(model, "me/other")
    online = from_pretrained(REPO)
    count = len(hub.asked)
    offline(monkeypatch)
    for revision in (None, "main", online.revision):
        again = from_pretrained(REPO, revision=revision)
        assert again.revision == online.revision
        np.testing.assert_array_equal(again.encode(SENTENCES), model.encode(SENTENCES))
    with pytest.raises(MissingError, match=r"'me/other' is not complete in the hub's cache, and .*HF_HUB_OFFLINE"):
        from_pretrained("me/other")
    with pytest.raises(MissingError, match="HF_HUB_OFFLINE is set: unset it"):
        push_to_hub(model, REPO)
    assert len(hub.asked) == count


def test_cached_model_opens_while_the_hub_is_down(hub: HubServer, model: MetaEncoder) -> None:
    push_to_hub(model, REPO)
    online = from_pretrained(REPO)
    hub.failing = {"/api/models": (500, {}, b"{}")}
    assert from_pretrained(REPO).revision == online.revision
    with pytest.raises(MissingError, match=r"'me/absent' is not complete in .* cannot be reached.*500"):
        from_pretrained("me/absent")


def test_unreachable_hub_is_a_missing_error(
    hub: HubServer, model: MetaEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(MissingError, match="cannot be reached"):
        push_to_hub(model, REPO)
    with pytest.raises(MissingError, match="cannot be reached"):
        from_pretrained(REPO)
    assert not hub.asked


def test_private_model_needs_a_token(hub: HubServer, model: MetaEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    push_to_hub(model, REPO, private=True)
    assert hub.repositories[REPO].private
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(MissingError, match=r"has no model 'me/model', or a private one.*`hf auth login`"):
        from_pretrained(REPO)
    with pytest.raises(MissingError, match=r"does not let you do this with 'me/model': .*Invalid credentials"):
        from_pretrained(REPO, token="hf_wrong")  # noqa: S106 - no secret
    assert from_pretrained(REPO, token=READER).repo == REPO
    with pytest.raises(MissingError, match="has no model 'me/absent'"):
        from_pretrained("me/absent")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"model.safetensors": b"large"},
            r"me/model at \w{7} is on the hub, but is no ensembed model: it has no config.json",
        ),
        ({"config.json": b'{"model_type": "bert"}'}, r"no ensembed model: its config.json is .* as in st:me/model"),
        ({"config.json": b"[1]"}, "its config.json is of another kind"),
        ({"config.json": b"{torn"}, r"config.json of me/model at \w{7}, from the hub, cannot be read"),
        ({"config.json": b'{"format": 1, "members": []}'}, "model.safetensors is missing"),
        ({"config.json": b'{"format": 99, "members": []}', "model.safetensors": b""}, "has model format 99"),
    ],
)
def test_repository_without_a_model_is_refused_before_its_weights_are_fetched(
    hub: HubServer, files: dict[str, bytes], message: str
) -> None:
    hub.repositories[REPO] = Repository(private=False)
    hub.repositories[REPO].commit("main", files, "x")
    with pytest.raises(ModelError, match=message):
        from_pretrained(REPO)
    fetched = any("model.safetensors" in line for line in hub.asked)
    assert fetched == ("format 99" in message)


def test_damaged_weights_are_refused(hub: HubServer, model: MetaEncoder) -> None:
    push_to_hub(model, REPO)
    damaged = bytearray(hub.files(REPO)["model.safetensors"])
    damaged[-1] ^= 1
    hub.repositories[REPO].commit("main", {"model.safetensors": bytes(damaged)}, "flipped")
    with pytest.raises(ModelError, match=r"me/model at \w{7}, from the hub: .*do not belong together"):
        from_pretrained(REPO)


@pytest.mark.usefixtures("hub")
def test_model_from_the_hub_may_not_send_sentences_away(model: MetaEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    saved = read_model(tmp_path / "m")
    spec = dataclasses.replace(saved.members[0], name=UntrustedName("openai:https://example.org/v1#x"))
    write_model(tmp_path / "m", SavedModel(saved.meta, (spec, saved.members[1]), saved.fingerprints, saved.corpus))
    push_to_hub(tmp_path / "m", REPO)
    with pytest.raises(ModelError, match=r"sends your sentences to https://example\.org/v1/embeddings"):
        from_pretrained(REPO)
    secret = dataclasses.replace(spec, name=UntrustedName("tfhub:https://me:pass@example.org/x"))
    write_model(tmp_path / "m", SavedModel(saved.meta, (secret, saved.members[1]), saved.fingerprints, saved.corpus))
    with pytest.raises(InputError, match=r"'tfhub:https://\*\*\*@example.org/x' holds a user or a password"):
        push_to_hub(tmp_path / "m", REPO, allow_local_members=True)


@pytest.mark.parametrize("name", ["model", "a/b/c", "a b/c", "", "me/", "me/mo--del", "ä/b"])
def test_impossible_names_are_refused(model: MetaEncoder, name: str) -> None:
    for call in (lambda: push_to_hub(model, name), lambda: from_pretrained(name)):
        with pytest.raises(InputError, match="is no name on the hub: write ORG/NAME"):
            call()


def test_folders_and_single_encoders_are_refused_with_advice(
    model: MetaEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(tmp_path / "saved")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"the model in the folder saved is opened by ensembed\.load"):
        from_pretrained("saved")
    with pytest.raises(ModelError, match="is not a saved model"):
        push_to_hub(tmp_path / "absent", REPO)
    with pytest.raises(InputError, match="a fitted model or the folder of a saved one is wanted"):
        push_to_hub(model.ensemble.encoders[0], REPO)  # type: ignore[arg-type] # it is refused


def test_hub_name_is_split_into_repository_and_revision() -> None:
    assert parse_hub_name("hub:a/b@v1") == ("a/b", "v1")
    with pytest.raises(InputError, match="has no revision"):
        parse_hub_name("hub:a/b@")


def test_push_command_and_hub_names_of_other_commands(
    hub: HubServer, model: MetaEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "saved")
    model.save(folder)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("5\tred dog\tred dog\n1\tred dog\tblue fox\n3\told cat\told fox\n")
    capsys.readouterr()
    assert main(["evaluate", folder, MEMBERS[0], "--pairs", str(pairs), "--json", "-q"]) == 0
    scores = tmp_path / "scores.json"
    scores.write_text(capsys.readouterr().out)
    assert main(["push", folder, REPO, "--scores", str(scores), "--message", "hello", "--json"]) == 0
    pushed = json.loads(capsys.readouterr().out)
    assert pushed["repo"] == REPO
    assert pushed["revision"] == hub.repositories[REPO].branches["main"]
    card = hub.files(REPO)["README.md"].decode()
    assert "| **this model** |" in card
    assert "demo?dim=8\\&seed=1 |" in card
    assert main(["push", folder, REPO, "--revision", "b", "--no-card"]) == 0
    assert f"{REPO} is at revision {hub.repositories[REPO].branches['b']}" in capsys.readouterr().out
    for source in (folder, f"hub:{REPO}", f"hub:{REPO}@{pushed['revision']}"):
        assert main(["similarity", source, "red dog", "red fox", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == lines[1] == lines[2]
    assert main(["push", folder, REPO, "--scores", folder]) == 1
    assert "cannot be read as JSON" in capsys.readouterr().err
    assert main(["similarity", "hub:me/absent", "a", "b"]) == 3
    assert "the hub has no model 'me/absent'" in capsys.readouterr().err


def test_another_process_opens_the_model_online_and_offline(hub: HubServer, model: MetaEncoder, tmp_path: Path) -> None:
    push_to_hub(model, REPO)
    program = (
        "from ensembed.integrations.hub import from_pretrained\n"
        "model = from_pretrained('me/model')\n"
        "print(model.revision, model.encode(['red dog']).tolist())"
    )
    outputs = []
    for off in (False, True):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env=hub.environment(tmp_path / "hf", offline=off),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0].split()[0] == hub.repositories[REPO].branches["main"]


def test_examples_of_the_page_run_with_a_hub(hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The blocks that need a hub are marked `py`, so that they run here alone, in their places among the others."""
    page = Path(__file__).parents[2] / "docs" / "integrations" / "hub.md"
    blocks = re.findall(r"(?ms)^```(?:python|py)\n(.*?)^```", page.read_text(encoding="utf-8"))
    assert len(blocks) >= 3
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), space)  # noqa: S102 - the page's own examples
    assert os.listdir(tmp_path)  # noqa: PTH208 - as a user would look
    assert "me/my-model" in hub.repositories


@pytest.mark.real
def test_real_members_are_opened_by_their_names(hub: HubServer, pulled: Callable[[str], Path]) -> None:
    members = ["minilm", "wordllama"]
    for name in members:
        pulled(name)
    model = Ensemble(members).fit(SENTENCES, GCCA(dim=8))
    pushed = push_to_hub(model, REPO)
    loaded = from_pretrained(REPO, revision=pushed.revision)
    np.testing.assert_array_equal(loaded.encode(SENTENCES), model.encode(SENTENCES))
    card = hub.files(REPO)["README.md"].decode()
    assert "- sentence-transformers/all-MiniLM-L6-v2" in card
    assert "ensembed pull minilm wordllama" in card
