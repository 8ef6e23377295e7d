"""Models on the Hugging Face hub: which commit a name means, and the folder with its files at that commit.

The user's own hub cache is used. `HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE` work as everywhere.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ensembed.errors import ConsentError, EnsembedError, InputError, MissingError
from ensembed.support.progress import Progress, silent

_COMMIT = re.compile(r"[0-9a-f]{40}")

# Small files of which every model has one: when they are fetched, the hub's client notes the commit of a branch.
_LANDMARKS = ("config.json", "modules.json", "README.md")


def is_hub_name(text: str) -> bool:
    """Return whether this can be a model on the hub (`name` or `organisation/name`), and is no path on this machine.

    Example:
        >>> is_hub_name("BAAI/bge-small-en-v1.5"), is_hub_name("a/b/c"), is_hub_name(".")
        (True, False, False)
    """
    return is_repo_name(text) and not Path(text).expanduser().exists()


def is_repo_name(text: str) -> bool:
    """Return whether the hub could have a repository of that name."""
    from huggingface_hub.errors import HFValidationError

    try:
        _utils().validate_repo_id(text)
    except HFValidationError:
        return False
    return text.isascii()


def commit_of(repo: str, revision: str | None = None, *, offline: bool = False) -> str:
    """Return the commit that a branch, a tag or None (the main branch) means now, or meant last if we are offline."""
    if revision is not None and _COMMIT.fullmatch(revision.lower()):
        return revision.lower()
    # Not `model_info`, which leaves no trace in the cache: offline the revision would be unknown the next time.
    return snapshot(repo, revision, _LANDMARKS, offline=offline).name


def chosen_commit(repo: str, revision: str | None, pinned: str | None, *, offline: bool = False) -> str:
    """Return the commit to open a model at: that of the revision a user named, else the one a saved model has."""
    known = pinned if pinned and _COMMIT.fullmatch(pinned) else None
    return commit_of(repo, revision or known, offline=offline)


def snapshot(
    repo: str,
    revision: str | None,
    patterns: Sequence[str],
    *,
    ignore: Sequence[str] = (),
    offline: bool = False,
    progress: Progress = silent,
) -> Path:
    """Return the folder of a repository's files in the user's hub cache; in patterns a star also crosses slashes."""
    from huggingface_hub import errors

    try:
        return fetch(repo, revision, patterns, ignore=ignore, offline=offline, progress=progress)
    except EnsembedError:
        raise
    except errors.HFValidationError:
        raise InputError(f"{repo!r} is neither a folder here nor a name on the hub, such as BAAI/bge-m3") from None
    except Exception as error:  # its transport has been three different libraries, each with errors of its own
        unknown = MissingError(f"{repo!r} cannot be fetched from the hub: {type(error).__name__}: {error}")
        raise explained(error, repo, revision, or_folder=True) or unknown from error


# The options of `snapshot`, written out: editors and type checkers show them.
def fetch(
    repo: str,
    revision: str | None,
    patterns: Sequence[str],
    *,
    ignore: Sequence[str] = (),
    offline: bool = False,
    progress: Progress = silent,
    token: str | None = None,
    cache_dir: str | Path | None = None,
) -> Path:
    """Do the same as `snapshot`, but raise the errors of the hub's client; take a token and another cache folder.

    `offline` is for a name out of a file: no request is sent, and a model that is not in the cache is a ConsentError.
    """
    from huggingface_hub import errors, snapshot_download

    bars = _bars(repo, progress)
    chosen: dict[str, Any] = {"allow_patterns": list(patterns), "ignore_patterns": list(ignore), "tqdm_class": bars}
    chosen |= {"token": token, "cache_dir": cache_dir, "local_files_only": offline}
    try:
        with _no_bars.during():
            folder = snapshot_download(repo, revision=revision, **chosen)
    except errors.LocalEntryNotFoundError as error:
        if not offline:
            raise
        effect = "is not in the hub's cache and would be downloaded"
        raise ConsentError.of(f"the model {repo!r}", {"network": effect}) from error
    bars.finish()
    return Path(folder)


def explained(error: Exception, repo: str, revision: str | None, *, or_folder: bool) -> MissingError | None:
    """Return what a hub error means and what to do, or None; `or_folder`: a folder of that name would do, too."""
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            return MissingError(
                f"the hub gives {repo!r} only to those who accepted its terms: accept them on the model's page, then "
                "run `hf auth login` or set HF_TOKEN"
            )
        case errors.RepositoryNotFoundError():
            absent = f"there is no folder {repo!r} here, and the hub has no model of that name"
            return MissingError(
                f"{absent if or_folder else f'the hub has no model {repo!r}'}, or a private one: check the name; for a "
                f"private model run `hf auth login`{' or' if or_folder else ','} set HF_TOKEN"
                f"{'' if or_folder else ' or pass token='}"
            )
        case errors.RevisionNotFoundError():
            return MissingError(f"the hub's model {repo!r} has no revision {revision!r}: see its page for them")
        case errors.LocalEntryNotFoundError():
            reason = str(error.__cause__ or error).partition("\n")[0]
            version = f" at revision {revision!r}" if revision else ""
            return MissingError(
                f"{repo!r}{version} is {'neither a folder here nor' if or_folder else 'not'} complete in the hub's "
                "cache, and the hub cannot be reached: connect to it (HF_HUB_OFFLINE must not be set)"
                f"{' or copy the model to a folder here' if or_folder else ''}. {reason}"
            )
    return None


def _utils() -> Any:  # noqa: ANN401 - a module that does not say which of its names are public
    return importlib.import_module("huggingface_hub.utils")


class _NoBars:
    """Keeps the hub's client from drawing bars: the first of several downloads sets the switch, the last resets it."""

    def __init__(self) -> None:
        self._lock, self._downloads, self._turned = threading.Lock(), 0, False

    @contextmanager
    def during(self) -> Iterator[None]:
        from huggingface_hub import constants

        group = "huggingface_hub"
        with self._lock:
            if not self._downloads:
                # With HF_HUB_DISABLE_PROGRESS_BARS=0 the user asks for them, and the client warns if they are disabled.
                wanted = constants.HF_HUB_DISABLE_PROGRESS_BARS is False
                self._turned = not wanted and not _utils().are_progress_bars_disabled(group)
                if self._turned:
                    _utils().disable_progress_bars(group)
            self._downloads += 1
        try:
            yield
        finally:
            with self._lock:
                self._downloads -= 1
                if self._turned and not self._downloads:
                    _utils().enable_progress_bars(group)


_no_bars = _NoBars()


def _bars(repo: str, progress: Progress) -> Any:  # noqa: ANN401 - a class made for one download
    """Return a class of bars for the hub's client that draws nothing and reports bytes to `progress`."""

    class Bars(_utils().tqdm):  # type: ignore[misc]  # it has no types
        # Two bars count bytes, those that came and those that are on disk: the larger count is reported.
        done, whole = 0, 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as the client passes them
            self._bytes = kwargs.get("unit") == "B"
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self._bytes:
                Bars.done, Bars.whole = max(Bars.done, int(self.n)), max(Bars.whole, int(self.total or 0))
                # The end is reported when all is over: until then files may be added.
                progress(repo, min(Bars.done, max(Bars.whole - 1, 0)), Bars.whole)

        @classmethod
        def finish(cls) -> None:
            if cls.whole:
                progress(repo, cls.whole, cls.whole)

    return Bars
