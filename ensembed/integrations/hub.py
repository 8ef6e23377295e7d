"""Models on the Hugging Face hub: `push_to_hub` publishes a fitted model, `from_pretrained` opens a published one.

`HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE` work as in huggingface_hub.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ensembed.encoders.base import SavedSpec
from ensembed.errors import InputError
from ensembed.integrations.model_card import Licences, Scores, facts_of, member_of, model_card
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.hub_models import CARD, HubModel, check_name, explaining, from_pretrained
from ensembed.models.saved_model import CONFIG, TENSORS, read_model

__all__ = ["HubModel", "Pushed", "from_pretrained", "model_card", "push_to_hub"]

_PASSWORD = re.compile("//[^/]*@")


@dataclass(frozen=True)
class Pushed:
    """The place of a pushed model: its name on the hub, the commit that holds it, and the page of that commit."""

    repo: str
    revision: str
    url: str


def push_to_hub(
    model: MetaEncoder | str | Path,
    repo: str,
    *,
    private: bool = False,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    card: str | bool = True,
    scores: Scores | None = None,
    licences: Licences = None,
    allow_local_members: bool = False,
) -> Pushed:
    """Put a model on the hub in one commit.

    Args:
        model: a fitted model, or the folder of a saved one, whose members are not opened.
        repo: the name on the hub, `org/name`; it is created if necessary.
        private: create a private repository. An existing public one is refused.
        token: the access token; by default that of `hf auth login` or HF_TOKEN.
        revision: the branch to commit to, created if necessary; None for the main branch.
        commit_message: the message of the commit.
        card: True replaces the README by `model_card`, a text becomes the README, False leaves it as it is.
        scores: STS scores for the card, see `model_card`.
        licences: licences of members for the card, see `model_card`.
        allow_local_members: push although others do not have a member; its name is public then.

    Raises:
        InputError: the repository cannot have that name, or others do not have a member.
        MissingError: the hub cannot be reached, or does not let this user write there.
        ModelError: there is no model in the folder, or another user has changed the repository meanwhile.
    """
    check_name(repo)
    if revision is not None and re.fullmatch("[0-9a-f]{40}", revision):
        raise InputError(f"revision {revision!r} is a commit, which cannot change: name the branch to commit to")
    if not isinstance(card, (str, bool)):
        raise InputError(f"card is True, False or the text of a README, not {card!r}")
    if (scores is not None or licences) and card is not True:
        raise InputError("scores and licences are for the generated card: leave card=True, or write them into yours")
    _check_members(facts_of(model).members, allow_local=allow_local_members)  # before anything is copied
    with tempfile.TemporaryDirectory(prefix="ensembed-") as work:
        # A copy, so that what is checked is what is pushed, even if another process saves into the folder meanwhile.
        if isinstance(model, MetaEncoder):
            model.save(work)
        else:
            for name in (CONFIG, TENSORS):
                shutil.copyfile(Path(model) / name, Path(work) / name)
        saved = read_model(Path(work))
        _check_members(saved.members, allow_local=allow_local_members)
        files = {name: (Path(work) / name).read_bytes() for name in (CONFIG, TENSORS)}
    if card is not False:
        text = card if isinstance(card, str) else model_card(saved, scores, repo=repo, licences=licences)
        files[CARD] = text.encode()
    summary = f"{saved.meta.method['name']} of {len(saved.members)} encoders, {saved.meta.dim} dimensions"
    with explaining(repo, revision):
        return _commit(repo, files, private, token, revision or "main", commit_message or summary)


def _check_members(specs: Sequence[SavedSpec], *, allow_local: bool) -> None:
    """Raise an InputError if others cannot open a member, or if a member's name holds a password."""
    for spec in specs:
        if _PASSWORD.search(spec.name.text):
            hidden = _PASSWORD.sub("//***@", spec.name.text)
            raise InputError(f"the name of member {hidden!r} holds a user or a password: fit with a name without it")
    local = [f"{member.spec.name.text!r} ({member.local})" for member in map(member_of, specs) if member.local]
    if local and not allow_local:
        raise InputError(
            f"the model would not open elsewhere, since these members are on this machine alone: {', '.join(local)}. "
            "Put them on the hub and fit on st:ORG/NAME; or, if others have them, set allow_local_members=True "
            "(--allow-local-members): their names become public, and loading takes encoders={NAME: THEIR OWN}"
        )


def _commit(
    repo: str, files: Mapping[str, bytes], private: bool, token: str | None, branch: str, message: str
) -> Pushed:
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(token=token)
    api.create_repo(repo, private=private, exist_ok=True)
    if private and not api.model_info(repo).private:
        raise InputError(f"{repo} is on the hub already, and public: make it private in its settings, then push again")
    if branch != "main":
        api.create_branch(repo, branch=branch, exist_ok=True)
    operations = [CommitOperationAdd(name, content) for name, content in files.items()]
    parent = api.model_info(repo, revision=branch).sha  # refused if somebody else commits in between
    done = api.create_commit(repo, operations, commit_message=message, revision=branch, parent_commit=parent)
    return Pushed(repo, str(done.oid), str(done.commit_url))
