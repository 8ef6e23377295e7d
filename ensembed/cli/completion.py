"""Types of arguments that a shell completes with the Tab key: encoders, models, and what can be pulled.

The shell asks after `eval "$(_ENSEMBED_COMPLETE=bash_source ensembed)"`; zsh_source and fish_source are the other two.
Files, folders and choices are completed by click itself.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from ensembed.encoders.names_and_consent import KINDS, plugins
from ensembed.fetch.catalog import catalog, data_sets
from ensembed.models.named_ensembles import ENSEMBLES
from ensembed.models.saved_model import CONFIG


@dataclass(eq=False)
class NamesType(click.types.StringParamType):
    """A name, or several with commas between them; `names` returns what can be written, each with what it is."""

    names: Callable[[str], Mapping[str, str]]
    name: str = "encoder"

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's own signature
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the names that begin like this; the shell completes files where there are none."""
        before, comma, last = incomplete.rpartition(",")
        names = [(name, what) for name, what in self.names(last).items() if name.startswith(last)]
        items = [CompletionItem(before + comma + name, help=what) for name, what in names]
        return items or [CompletionItem(incomplete, type="file")]


def _encoders(_incomplete: str) -> dict[str, str]:
    encoders = {name: entry.title for name, entry in catalog().items() if entry.kind != "dataset"}
    kinds = dict.fromkeys((f"{scheme}:" for scheme in (*KINDS, *plugins())), "a kind of encoder")
    return encoders | {"demo": "hashed words, for trying things out"} | kinds


def _ensembles(incomplete: str) -> dict[str, str]:
    return {name: ", ".join(members) for name, members in ENSEMBLES.items()} | _encoders(incomplete)


def _models(incomplete: str) -> dict[str, str]:
    """Return the folders of saved models that begin like this, then the encoders."""
    paths = glob.glob(f"{glob.escape(incomplete)}*")  # noqa: PTH207 - begins with what was typed, even ./
    folders = sorted(path for path in paths if (Path(path) / CONFIG).is_file())
    return dict.fromkeys(folders, "a saved model") | _encoders(incomplete)


ENCODER, ENSEMBLE, MODEL = NamesType(_encoders), NamesType(_ensembles, "ensemble"), NamesType(_models, "model")
PULLED = NamesType(lambda _: {name: entry.title for name, entry in catalog().items()})
DATA_SET = NamesType(lambda _: {name: entry.title for name, entry in data_sets().items()})
