"""The command line: one file per command (options in, one call, table or JSON out). It may import every other room.

`options` holds shared options, `methods` those of `fit`; `console` reads input and prints; `reference` writes
docs/reference/cli.md; `exit_codes` prints errors. Commands are imported when they are used: help and completion must
not wait for numpy.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from ensembed.cli.exit_codes import exit_code
from ensembed.errors import EFFECTS, EnsembedError
from ensembed.support.version import __version__

# The first sentence of each command's help, in the order of docs/reference/cli.md. It is here so that the list can be
# printed without importing them; a test compares it with the commands.
SUMMARIES = {
    "demo": "Repeat the paper's main table on the default encoders, or on ENCODERS of the catalogue, from nothing.",
    "encoders": "List the encoders and data sets of the catalogue and which are here, and every kind of encoder.",
    "pull": "Fetch encoders (or the data set stsb) by NAME and check them against their pinned hashes.",
    "data": (
        "List the STS sets and the paper's corpus, and where they are on this machine; fetch them with `data fetch`."
    ),
    "compare": "Show how alike ENCODERs (names, folders of saved models) are, without labels.",
    "reliability": "Estimate which members to trust on the unlabelled sentences of CORPUS.",
    "choose": "Choose encoders, and an ensemble of them, for the unlabelled sentences of CORPUS.",
    "embed": "Encode CORPUS with each encoder and keep the vectors.",
    "fit": "Fit a meta-embedding on the unlabelled sentences of CORPUS and save it.",
    "encode": "Turn the lines of a file into vectors.",
    "similarity": "Print how alike sentences are.",
    "dedupe": "Find sentences of FILE that say the same.",
    "cluster": "Find out what the sentences of FILE are about.",
    "evaluate": "Score MODELS (folders of saved models, names of encoders) on semantic textual similarity, "
    "or on tasks.",
    "distil": "Train one small student to give the vectors of TEACHER, on the unlabelled sentences of CORPUS.",
    "push": "Put the saved model in the folder MODEL on the Hugging Face hub as REPO (org/name).",
    "reproduce": "Run everything the paper reports, and more, on an ensemble, and write tables and a report.",
    "index": "Make a search index in FOLDER of the texts in FILE, or add them to the one that is there.",
    "search": "Find the texts in the index FOLDER that are nearest to each QUERY.",
    "translate": "Fit a map that gives TARGET's vectors of texts that SOURCE encodes, and say how good it is.",
    "migrate": (
        "Make the index in FOLDER one of another model by translating its vectors; the texts are not embedded again."
    ),
    "serve": "Serve MODEL (a saved model's folder, an encoder's name) over HTTP.",
    "bench": "Measure what the members of an ensemble cost on this machine.",
}
_RESUMABLE = frozenset(SUMMARIES) - {"encoders", "encode", "similarity", "push", "search", "serve", "bench"}


class OnDemandGroup(click.Group):
    """A group that imports a command when it is used, and knows the first sentence of its help."""

    def __init__(self, *, summaries: Mapping[str, str], **settings: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(**settings)
        self.summaries = summaries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        """Return the names."""
        return sorted(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; suggest similar names for an unknown one."""
        if cmd_name in self.summaries:
            command: click.Command = getattr(import_module(f"ensembed.cli.{cmd_name}"), cmd_name)
            return command
        if not cmd_name.startswith("-") and not ctx.resilient_parsing:
            close = get_close_matches(cmd_name, self.summaries, n=3)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            ctx.fail(f"No such command {cmd_name!r}.{hint}")
        return None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands, without importing them, and options."""
        options = click.Command.shell_complete(self, ctx, incomplete)
        names = sorted(name for name in self.summaries if name.startswith(incomplete))
        return [*(CompletionItem(name, help=self.summaries[name]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's own
        """Write the list of commands as click does."""
        limit = formatter.width - 6 - max(map(len, self.summaries))
        commands = (click.Command(name, help=text) for name, text in sorted(self.summaries.items()))
        with formatter.section("Commands"):
            formatter.write_dl([(command.name or "", command.get_short_help_str(limit)) for command in commands])


_HELP = """One better sentence embedding out of the encoders you already have, without labels.

\b
Example, from nothing to a scored model:
  ensembed pull minilm use-m3 stsb
  ensembed fit corpus.txt --out my-model
  ensembed similarity my-model "A dog runs." "A puppy is running." "Stocks fell."
  ensembed evaluate my-model minilm use-m3 --sts stsb-dev

Tab completes commands, options, encoders, models and files after eval "$(_ENSEMBED_COMPLETE=bash_source ensembed)";
zsh_source and fish_source are for the other shells.

Exit codes: 0 done, 1 bad input or data, 2 bad command line, 3 something must be pulled or installed first,
130 interrupted, 141 nobody reads the output any more.
"""

cli = click.version_option(__version__, prog_name="ensembed")(
    OnDemandGroup(
        name="cli",
        summaries=SUMMARIES,
        help=_HELP,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
    )
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process, and return its exit code."""
    if arguments is None:
        warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # without file and line
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() == "utf-8":
            sys.stdout.reconfigure(errors="surrogateescape")  # the bytes of a file's name need not be UTF-8
        arguments = sys.argv[1:]
    words, output = [*arguments[1:], "--help"] if arguments[:1] == ["help"] else list(arguments), sys.stdout
    if any("=~" in word for word in words):
        words = _with_home(words)
    try:
        given = _with_effects(words) if any(word.partition("=")[0] == "--trust" for word in words) else words
        cli.main(given, prog_name="ensembed", standalone_mode=False)
        sys.stdout.flush()  # while an error can still be reported
    except (SystemExit, KeyboardInterrupt, RuntimeError, OSError, click.ClickException, EnsembedError) as error:
        return exit_code(error, words, output, resumable=bool(words) and words[0] in _RESUMABLE)
    return 0


def _with_home(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the home folder where `--out=~/x` has a ~, which shells expand after a blank only."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = list(arguments)
    for i, word in enumerate(words[:end]):
        option, _, value = word.partition("=")
        # An id of a row may look like a path.
        if option.startswith("--") and option != "--delete" and value.startswith("~/"):
            words[i] = f"{option}={os.path.expanduser(value)}"  # noqa: PTH111 - without a home folder it stays
    return words


def _with_effects(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with one `--trust=EFFECTS`, which `--trust` alone, or before other words, does not have.

    Click would take any word behind it for its value. A word that looks like misspelt effects is an error, not consent
    to all of them.
    """

    def correct(effect: str) -> list[str]:
        return get_close_matches(effect.strip().lower(), EFFECTS, n=1, cutoff=0.75)

    def is_meant(word: str) -> bool:
        return "," in word or all(map(correct, word.split()))

    rest, others, effects = list(arguments), list[str](), list[str]()
    while rest and rest[0] != "--":
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if option != "--trust":
            others.append(word)
            continue
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("-") and is_meant(rest[0]) else ",".join(EFFECTS)
        effects += value.split(",")
    if unknown := [effect for effect in effects if effect not in EFFECTS]:
        close = [match for effect in effects for word in effect.split() for match in correct(word)]
        hint = f" Did you mean --trust={','.join(dict.fromkeys(close))}?" if close else ""
        known = f"--trust takes {', '.join(EFFECTS)}, with commas between them"
        raise click.UsageError(f"{known}, not {unknown[0]!r}.{hint} To allow everything, write --trust at the end.")
    return [*others, f"--trust={','.join(effects)}", *rest]
