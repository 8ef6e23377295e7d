"""Models on the Hugging Face hub: which commit a name means, and the folder with its files at that commit.

The user's own hub cache is used, so that models which other programs have downloaded are not downloaded again, and what
was opened once opens offline. `HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE` work as everywhere.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ensembed.errors import InputError, MissingError
from ensembed.support.progress import Progress, silent

_COMMIT = re.compile(r"[0-9a-f]{40}")

# Small files of which every model has one: with them the hub's client notes the commit that a branch means.
_LANDMARKS = ("config.json", "modules.json", "README.md")


def is_hub_name(text: str) -> bool:
    """Whether it can be the name of a model on the hub: `name` or `organisation/name`, and no path on this machine.

    Example:
        >>> is_hub_name("BAAI/bge-small-en-v1.5"), is_hub_name("a/b/c"), is_hub_name(".")
        (True, False, False)
    """
    return is_repo_name(text) and not Path(text).expanduser().exists()


def is_repo_name(text: str) -> bool:
    """Whether the hub could have a repository of that name, whatever there is on this machine.

    Example:
        >>> is_repo_name("BAAI/bge-small-en-v1.5"), is_repo_name("a b")
        (True, False)
    """
    from huggingface_hub.errors import HFValidationError

    try:
        _utils().validate_repo_id(text)
    except HFValidationError:
        return False
    return text.isascii()


def commit_of(repo: str, revision: str | None = None) -> str:
    """The commit that a branch, a tag or None (the main branch) means now.

    Where the hub cannot be reached, it is the commit that the revision meant when it was last asked for.

    Args:
        repo: a name on the hub.
        revision: a branch, a tag, or a commit, which is returned as it is.

    Raises:
        InputError: this cannot be a name on the hub.
        MissingError: neither the hub nor the cache has it, or the hub does not give it to this user.
    """
    if revision is not None and _COMMIT.fullmatch(revision.lower()):
        return revision.lower()
    # Not `model_info`, which leaves no trace in the cache: offline the revision would be unknown the next time.
    return _download(repo, revision, _LANDMARKS, (), silent).name


def chosen_commit(repo: str, revision: str | None, pinned: str | None) -> str:
    """The commit to open a model at: that of the revision a user named, else the one a saved model was fitted on.

    Args:
        repo: a name on the hub.
        revision: what the user named.
        pinned: the revision of a saved model's member; a hash, no commit, if the model lay in a folder then.

    Raises:
        MissingError: as `commit_of`.
    """
    return commit_of(repo, revision or (pinned if pinned and _COMMIT.fullmatch(pinned) else None))


def snapshot(
    repo: str, commit: str, patterns: Sequence[str], *, ignore: Sequence[str] = (), progress: Progress = silent
) -> Path:
    """The folder, in the user's hub cache, with the repository's files at a commit; what is there is not fetched again.

    Args:
        repo: a name on the hub.
        commit: what `commit_of` returned.
        patterns: which files to fetch, as `*.json`; a star also crosses slashes. The folder may hold others as well.
        ignore: patterns of files not to fetch.
        progress: told of bytes, with a total that grows until every file is known; by huggingface_hub from 1 on.

    Raises:
        MissingError: neither the hub nor the cache has it, or the hub does not give it to this user.
    """
    return _download(repo, commit, patterns, ignore, progress)


def fetch(
    repo: str,
    revision: str | None,
    patterns: Sequence[str],
    *,
    ignore: Sequence[str] = (),
    progress: Progress = silent,
    token: str | None = None,
    cache_dir: str | Path | None = None,
) -> Path:
    """As `snapshot`, at any revision, with the errors as the hub's client raises them; the folder's name is the commit.

    Args:
        repo: a name on the hub.
        revision: a branch, a tag, a commit, or None for the main branch.
        patterns: which files to fetch.
        ignore: patterns of files not to fetch.
        progress: told of bytes.
        token: to be let in with, if not by the user's own.
        cache_dir: where to keep the files, if not in the user's hub cache.
    """
    from huggingface_hub import snapshot_download

    bars = _bars(repo, progress)
    with _no_bars.during():
        folder = snapshot_download(
            repo,
            revision=revision,
            allow_patterns=list(patterns),
            ignore_patterns=list(ignore),
            tqdm_class=bars,
            token=token,
            cache_dir=cache_dir,
        )
    bars.finish()
    return Path(folder)


def _download(
    repo: str, revision: str | None, patterns: Sequence[str], ignore: Sequence[str], progress: Progress
) -> Path:
    with _explaining(repo, revision):
        return fetch(repo, revision, patterns, ignore=ignore, progress=progress)


def _utils() -> Any:  # noqa: ANN401 - a module that says not which of its names are public
    return importlib.import_module("huggingface_hub.utils")


@contextmanager
def _explaining(repo: str, revision: str | None) -> Iterator[None]:
    """Turn what the hub's client raises into errors that say what to do."""
    from huggingface_hub import errors

    try:
        yield
    except errors.HFValidationError:
        raise InputError(f"{repo!r} is neither a folder here nor a name on the hub, such as BAAI/bge-m3") from None
    except Exception as error:  # its transport has been three different libraries, each with errors of its own
        found = explained(error, repo, revision, or_folder=True)
        if found is None:
            found = MissingError(f"{repo!r} cannot be fetched from the hub: {type(error).__name__}: {error}")
        raise found from error


def explained(error: Exception, repo: str, revision: str | None, *, or_folder: bool) -> MissingError | None:
    """What it means and what to do, where the hub's client says that it cannot have a model; None for other errors.

    Args:
        error: what the client raised.
        repo: the name on the hub that was asked for.
        revision: the revision of it.
        or_folder: whether a folder of that name would have done, too.
    """
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


class _NoBars:
    """Keeps the hub's client from drawing bars of single files, which versions before 1 do whatever class is passed.

    The switch is one for the whole process: the first of several downloads turns it, the last one turns it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._downloads = 0
        self._turned = False

    @contextmanager
    def during(self) -> Iterator[None]:
        from huggingface_hub import constants

        group = "huggingface_hub"
        with self._lock:
            if not self._downloads:
                # With HF_HUB_DISABLE_PROGRESS_BARS=0 the user asks for them, and the client warns of whoever would not
                # draw them.
                asked = constants.HF_HUB_DISABLE_PROGRESS_BARS is False
                self._turned = not asked and not _utils().are_progress_bars_disabled(group)
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
    """A class of bars for the hub's client that draws nothing and reports bytes to `progress`."""

    class Bars(_utils().tqdm):  # type: ignore[misc]  # of no type that could be read
        # Two bars count bytes, those that came and those that are on disk: the one that is ahead is reported.
        done, whole = 0, 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - whatever the client passes
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
