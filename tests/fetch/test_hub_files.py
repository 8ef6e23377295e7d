"""The hub's real client against a hub on this machine, in interpreters of its own."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import COMMIT, LoopbackHub, loopback_hub

from ensembed.errors import InputError
from ensembed.fetch.hub_files import _no_bars, chosen_commit, commit_of, is_hub_name

WEIGHTS = os.urandom(300_000)
FILES = {"config.json": b"{}", "model.bin": WEIGHTS, "sub/config.json": b"[]", "other.onnx": b"not wanted"}

# Does what the arguments say and prints what came of it: the result, or the error's class and message.
PROGRAM = """
import json, sys
from ensembed.fetch.hub_files import commit_of, snapshot
from ensembed.errors import EnsembedError

repo, revision, *patterns = sys.argv[1:]
reports = []
try:
    result = commit_of(repo, revision or None)
    if patterns:
        result = str(snapshot(repo, result, patterns, progress=lambda *report: reports.append(report)))
except EnsembedError as error:
    result = [type(error).__name__, str(error)]
print(json.dumps({"result": result, "reports": reports}))
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LoopbackHub]:
    for name, content in FILES.items():
        (tmp_path / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repo" / name).write_bytes(content)
    with loopback_hub(tmp_path / "repo", "me/demo") as hub:
        yield hub


def ask(hub: LoopbackHub, home: Path, *arguments: str, offline: bool = False) -> dict[str, Any]:
    done = hub.python(PROGRAM, *arguments, home=home, offline=offline)
    assert done.returncode == 0, done.stderr
    assert not done.stderr  # no bars, no warnings, no log lines
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_only_the_wanted_files_of_a_commit_are_fetched_and_cached(hub: LoopbackHub, tmp_path: Path) -> None:
    answer = ask(hub, tmp_path / "hf", "me/demo", "", "*.json", "model.bin")
    folder = Path(answer["result"])
    assert folder.name == COMMIT
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == {name: content for name, content in FILES.items() if name != "other.onnx"}
    dones, totals = zip(*[(done, total) for label, done, total in answer["reports"] if label == "me/demo"], strict=True)
    assert dones[-1] == totals[-1] == len(WEIGHTS) + 2
    assert list(dones) == sorted(dones)
    assert all(done < total for done, total in zip(dones[:-1], totals[:-1], strict=True))
    # A second time only the commit is asked for; offline and from a broken hub the cache serves.
    count = len(hub.asked)
    assert ask(hub, tmp_path / "hf", "me/demo", "", "*.json", "model.bin")["result"] == str(folder)
    assert hub.asked[count:] == ["GET /api/models/me/demo/revision/main"]
    assert ask(hub, tmp_path / "hf", "me/demo", "", "*.json", offline=True)["result"] == str(folder)
    assert ask(hub, tmp_path / "hf", "me/demo", COMMIT, "model.bin", offline=True)["result"] == str(folder)
    assert hub.asked[count + 1 :] == []
    hub.broken = True
    assert ask(hub, tmp_path / "hf", "me/demo", "", "*.json")["result"] == str(folder)
    # What is not in the cache is not made up.
    kind, message = ask(hub, tmp_path / "hf", "me/demo", "", "other.onnx", offline=True)["result"]
    assert kind == "MissingError"
    assert "other.onnx" in message


@pytest.mark.parametrize(("revision", "commit"), [("", COMMIT), ("v1", COMMIT), (COMMIT.upper(), COMMIT)])
def test_branches_tags_and_commits_resolve_to_a_commit(
    hub: LoopbackHub, tmp_path: Path, revision: str, commit: str
) -> None:
    assert ask(hub, tmp_path / "hf", "me/demo", revision)["result"] == commit


@pytest.mark.parametrize(
    ("arguments", "trouble", "message"),
    [
        (("me/absent", ""), "", "there is no folder 'me/absent' here, and the hub has no model of that name"),
        (("me/demo", "v9"), "", "the hub's model 'me/demo' has no revision 'v9'"),
        (("me/demo", "f" * 40, "*.json"), "", f"'me/demo' has no revision '{'f' * 40}'"),
        (("me/demo", ""), "gated", "accepted its terms: accept them on the model's page, then run `hf auth login`"),
        (("me/demo", ""), "broken", "the hub cannot be reached: connect to it .*500"),
        (("me/demo", ""), "offline", r"the hub cannot be reached: connect to it \(HF_HUB_OFFLINE must not be set\)"),
        (("me/demo", "v1"), "offline", "'me/demo' at revision 'v1' is neither a folder here nor complete in"),
    ],
)
def test_errors_of_the_hub_say_what_to_do(
    hub: LoopbackHub, tmp_path: Path, arguments: tuple[str, ...], trouble: str, message: str
) -> None:
    hub.gated, hub.broken = trouble == "gated", trouble == "broken"
    kind, found = ask(hub, tmp_path / "hf", *arguments, offline=trouble == "offline")["result"]
    assert kind == "MissingError"
    assert re.search(message, found), found
    assert bool(hub.asked) == (trouble != "offline")


def test_an_unreachable_hub_is_explained(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.url = "http://127.0.0.1:9"  # nobody listens there
    kind, message = ask(hub, tmp_path / "hf", "me/demo", "")["result"]
    assert kind == "MissingError"
    assert "the hub cannot be reached" in message


def test_names_of_the_hub_are_told_from_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert [name for name in ("minilm", "BAAI/bge-m3", "models/absent") if not is_hub_name(name)] == []
    for name in ("models", "models/here", "./models", "/", "a/b/c", "a--b", "", "a b", "a/", "ä"):
        assert not is_hub_name(name)
    with pytest.raises(InputError, match=r"'a/b/c' is neither a folder here nor a name on the hub"):
        commit_of("a/b/c")


def test_a_saved_model_opens_its_members_at_the_commit_it_was_fitted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr("ensembed.fetch.hub_files.commit_of", lambda _repo, revision, **_: asked.append(revision))
    chosen_commit("me/demo", None, COMMIT)
    chosen_commit("me/demo", "v2", COMMIT)
    chosen_commit("me/demo", None, "0123456789abcdef")  # the hash of a folder
    chosen_commit("me/demo", None, None)
    assert asked == [COMMIT, "v2", None, None]


@pytest.mark.parametrize("hidden", [False, True])
def test_progress_bars_of_the_hub_client_are_restored_after_overlapping_downloads(
    monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    from huggingface_hub import constants

    utils = importlib.import_module("huggingface_hub.utils")
    group = "huggingface_hub"
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", None)
    before = utils.are_progress_bars_disabled(group)
    (utils.disable_progress_bars if hidden else utils.enable_progress_bars)(group)
    try:
        one, two = _no_bars.during(), _no_bars.during()
        one.__enter__()
        two.__enter__()
        one.__exit__(None, None, None)
        assert utils.are_progress_bars_disabled(group)  # the other one still runs
        two.__exit__(None, None, None)
        assert utils.are_progress_bars_disabled(group) == hidden
    finally:
        (utils.disable_progress_bars if before else utils.enable_progress_bars)(group)
