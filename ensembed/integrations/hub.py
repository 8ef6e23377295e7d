"""Models on the Hugging Face hub: `push_to_hub` gives a fitted model to others, `from_pretrained` opens one.

A repository holds `config.json`, `model.safetensors` and a card, README.md. Nothing else is ever fetched from it: no
pickle, no code. `HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE` work as everywhere.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ensembed.errors import InputError
from ensembed.integrations.card_scores import Scores
from ensembed.integrations.hub_members import check_members
from ensembed.integrations.model_card import described, model_card
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.hub_models import CARD, HubModel, check_name, explaining, from_pretrained
from ensembed.models.saved_model import CONFIG, TENSORS, SavedModel, read_model

__all__ = ["HubModel", "Pushed", "from_pretrained", "model_card", "push_to_hub"]

_MAIN = "main"


@dataclass(frozen=True)
class Pushed:
    """Where a model went.

    Attributes:
        repo: its name on the hub.
        revision: the commit that holds it.
        url: the page of that commit.
    """

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
    licences: Mapping[str, str] | None = None,
    allow_local_members: bool = False,
) -> Pushed:
    """Put a model on the hub, in one commit: if that is interrupted, the hub has what it had before.

    Args:
        model: a fitted model, or the folder of a saved one, whose members are not opened.
        repo: the name on the hub, `org/name`; it is made if it is not there.
        private: make it so that only its owners see it. One that is there and public is refused.
        token: to be let in with; by default that of `hf auth login` or HF_TOKEN.
        revision: the branch to commit to, which is made if it is not there; None for the main one.
        commit_message: what the commit says of itself.
        card: True writes the README (`model_card`) in place of the one that is there, a text becomes the README, False
            leaves it alone.
        scores: figures on STS for the card, see `model_card`.
        licences: of members, for the card, see `model_card`.
        allow_local_members: push although members are files or objects that others have not; they then need their own,
            and the names of yours are public.

    Raises:
        InputError: this cannot be a name on the hub, or a member cannot travel.
        MissingError: the hub cannot be reached, or does not let this user write there.
        ModelError: the folder holds no model, or the repository was changed by another meanwhile.
    """
    check_name(repo)
    if revision is not None and re.fullmatch("[0-9a-f]{40}", revision):
        raise InputError(f"revision {revision!r} is a commit, which is as it is: name the branch to commit to")
    if not isinstance(card, (str, bool)):
        raise InputError(f"card is True, False or the text of a README, not {card!r}")
    if (scores is not None or licences) and card is not True:
        raise InputError("scores and licences are for the card that is written here: leave card=True, or write them in")
    check_members(described(model).members, allow_local=allow_local_members)  # before anything is copied
    with tempfile.TemporaryDirectory(prefix="ensembed-") as work:
        # A copy: what is checked is what is pushed, though somebody may save into that folder meanwhile.
        if isinstance(model, MetaEncoder):
            model.save(work)
        else:
            for name in (CONFIG, TENSORS):
                shutil.copyfile(Path(model) / name, Path(work) / name)
        saved = read_model(Path(work))
        check_members(saved.members, allow_local=allow_local_members)
        files = {name: (Path(work) / name).read_bytes() for name in (CONFIG, TENSORS)}
        if card is not False:
            text = card if isinstance(card, str) else model_card(saved, scores, repo=repo, licences=licences)
            files[CARD] = text.encode()
        with explaining(repo, revision):
            return _commit(repo, files, private, token, revision or _MAIN, commit_message or _message(saved))


def _message(saved: SavedModel) -> str:
    return f"{saved.meta.method['name']} of {len(saved.members)} encoders, {saved.meta.dim} dimensions"


def _commit(
    repo: str, files: Mapping[str, bytes], private: bool, token: str | None, branch: str, message: str
) -> Pushed:
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(token=token)
    api.create_repo(repo, private=private, exist_ok=True)
    if private and not api.model_info(repo).private:
        raise InputError(f"{repo} is on the hub already, and public: make it private in its settings, then push again")
    if branch != _MAIN:
        api.create_branch(repo, branch=branch, exist_ok=True)
    # The commit is refused if somebody else commits in between.
    head = api.model_info(repo, revision=branch).sha
    done = api.create_commit(
        repo,
        [CommitOperationAdd(name, content) for name, content in files.items()],
        commit_message=message,
        revision=branch,
        parent_commit=head,
    )
    return Pushed(repo, str(done.oid), str(done.commit_url))
