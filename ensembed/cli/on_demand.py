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
        self.commands = _Commands(summaries)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        """Return the names."""
        return sorted(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's own
        """Import a command."""
        return self.commands[cmd_name] if cmd_name in self.summaries else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Do what click does, but suggest similar names for an unknown one."""
        name = args[0]
        if name not in self.summaries and not name.startswith("-"):
            close = get_close_matches(name, self.summaries, n=3)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

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


class _Commands(dict[str, click.Command]):
    """Commands by name, imported when they are first asked for."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, name: str) -> click.Command:
        if name not in self._names:
            raise KeyError(name)
        self[name] = command = getattr(import_module(f"ensembed.cli.{name}"), name)
        return command  # type: ignore[no-any-return] # what the module calls by its name
