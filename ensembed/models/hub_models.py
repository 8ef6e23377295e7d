"""Saved models on the Hugging Face hub. Only `config.json` and `model.safetensors` are fetched: no pickle, no code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import EnsembedError, InputError, MissingError, ModelError
from ensembed.fetch.hub_files import explained, fetch, is_repo_name
from ensembed.models.ensemble import MetaEncoder, Missing
from ensembed.models.opening import HUB, Opening, Replacements, load
from ensembed.models.saved_model import CONFIG, TENSORS, is_model
from ensembed.support.file_limits import read_json
from ensembed.support.progress import Progress, silent

CARD = "README.md"


class HubModel(MetaEncoder):
    """A meta-encoder that came from the hub. It is called `org/name@commit`.

    Attributes:
        repo: its name on the hub.
        revision: the commit that it was loaded at, whatever branch or tag was asked for.
    """

    def __init__(self, model: MetaEncoder, repo: str, revision: str) -> None:
        super().__init__(**model.settings | {"name": f"{repo}@{revision}"})
        self.repo, self.revision = repo, revision


def from_pretrained(
    repo: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: str | Path | None = None,
    encoders: Replacements | None = None,
    threads: int | None = None,
    missing: Missing = "error",
    time_limit: float | None = None,
    trust: Trust = False,
    offline: bool = False,
    progress: Progress = silent,
) -> HubModel:
    """Open a model of the hub. A model that was opened once opens without the hub.

    Args:
        repo: the name on the hub, `org/name`.
        revision: a branch, a tag or, to have the same vectors for good, a commit; None for the main branch.
        token: for private models; by default that of `hf auth login` or HF_TOKEN.
        cache_dir: where files are kept; by default in the hub's own cache.
        encoders: members that have moved or cannot be opened by name, as in `ensembed.load`.
        threads: cores per encoder; None leaves it to each encoder.
        missing: as in `ensembed.load`.
        time_limit: as in `ensembed.load`.
        trust: what the members may do, as in `ensembed.load`.
        offline: open it from the cache only.
        progress: receives bytes, and long work that opening a member takes.

    Raises:
        InputError: this cannot be a name on the hub.
        MissingError: neither the hub nor the cache has the model, or this user may not read it.
        ModelError: this is not an ensembed model, it is damaged, or a member no longer gives the vectors it gave.
    """
    check_name(repo)

    def fetched(commit: str | None, *names: str) -> Path:
        with explaining(repo, revision):
            return fetch(repo, commit, names, progress=progress, token=token, cache_dir=cache_dir, offline=offline)

    folder = fetched(revision, CONFIG)
    commit = folder.name
    _check_config(folder / CONFIG, repo, commit)
    folder = fetched(commit, CONFIG, TENSORS)
    opening = Opening(
        encoders=encoders, threads=threads, missing=missing, time_limit=time_limit, trust=trust, progress=progress
    )
    try:
        model = load(folder, **opening)
    except ModelError as error:
        raise type(error)(f"{repo} at {commit[:7]}, from the hub: {error}") from error
    return HubModel(model, repo, commit)


def parse_hub_name(text: str) -> tuple[str, str | None]:
    """Return name and revision of `hub:org/name@revision`.

    Example:
        >>> parse_hub_name("hub:me/model@v1"), parse_hub_name("hub:me/model")
        (('me/model', 'v1'), ('me/model', None))
    """
    repo, at, revision = text.removeprefix(HUB).partition("@")
    if at and not revision:
        raise InputError(f"{text!r} has no revision behind the @: leave the @ out for the main branch")
    return repo, revision or None


def check_name(repo: str) -> None:
    """Raise an InputError if this cannot be the name of a repository, with its owner."""
    if not (isinstance(repo, str) and is_repo_name(repo) and repo.count("/") == 1):
        is_folder = isinstance(repo, str) and is_model(repo)
        hint = f"; the model in the folder {repo} is opened by ensembed.load" if is_folder else ""
        raise InputError(f"{repo!r} is no name on the hub: write ORG/NAME, as in me/my-model{hint}")


def _check_config(file: Path, repo: str, commit: str) -> None:
    """Raise a ModelError for a repository of another kind, before its weights, which may be large, are fetched."""
    try:
        config = read_json(file)
    except FileNotFoundError:
        config = None
    except (OSError, ValueError) as error:
        raise ModelError(f"{CONFIG} of {repo} at {commit[:7]}, from the hub, cannot be read: {error}") from error
    if not (isinstance(config, dict) and "format" in config and "members" in config):
        why = f"it has no {CONFIG}" if config is None else f"its {CONFIG} is of another kind"
        raise ModelError(
            f"{repo} at {commit[:7]} is on the hub, but is no ensembed model: {why}. If it is a single encoder, "
            f"name it by its kind, as in st:{repo} or model2vec:{repo}"
        )


@contextmanager
def explaining(repo: str, revision: str | None) -> Iterator[None]:
    """Turn errors of the hub's client into errors that say what to do."""
    try:
        yield
    except EnsembedError:
        raise
    except Exception as error:  # its transport has been three different libraries, each with errors of its own
        raise (explained(error, repo, revision, or_folder=False) or _failure(repo, error)) from error


def _failure(repo: str, error: Exception) -> EnsembedError:
    """Return the error for a push or a fetch that failed in another way than `explained` knows."""
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    unreachable = not isinstance(error, errors.HfHubHTTPError)
    cause = (error.__cause__ or error) if unreachable else error
    # The client's message on one line, without its advice on where to read more.
    reason = " ".join(re.sub(r"For more information check: \S+", "", str(cause)).split())
    match error:
        case errors.OfflineModeIsEnabled():
            return MissingError(f"{repo!r} cannot be reached while HF_HUB_OFFLINE is set: unset it")
        case errors.HfHubHTTPError() if status in (401, 403):
            return MissingError(
                f"the hub does not let you do this with {repo!r}: run `hf auth login` with a token that may (to push, "
                f"one that may write), set HF_TOKEN or pass token=. {reason}"
            )
        case errors.HfHubHTTPError() if status == 412:
            return ModelError(f"{repo!r} was changed on the hub by somebody else: look at it, then push again")
        case errors.HfHubHTTPError():
            return MissingError(f"the hub failed for {repo!r}; its files are unchanged. Try again. {reason}")
        case ValueError() if CARD in str(error):
            return InputError(f"the hub does not take the card of {repo!r}: {reason}")
        case ValueError():
            return MissingError(f"the hub's answer for {repo!r} cannot be read: {error}")
    return MissingError(
        f"the hub cannot be reached for {repo!r}, or broke off; its files are unchanged. Try again. "
        f"{type(cause).__name__}: {reason}"
    )
