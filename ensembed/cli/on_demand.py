"""A group of commands whose modules are imported when they are used: help and completion must not wait for numpy."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem


class OnDemandGroup(click.Group):
    """A group that knows its commands by name and by the first sentence of their help.

    Args:
        summaries: these sentences; command NAME is called NAME in `ensembed.cli.NAME`.
        settings: the arguments of `click.Group`.
    """

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
