"""The help of every command as one Markdown page: `python -m ensembed.cli.reference > docs/reference/cli.md`."""

from __future__ import annotations

import click

from ensembed.cli import SUMMARIES, cli

# As in a terminal, and no wider than a page of the site.
_WIDTH = 80
_FIRST = "`ensembed COMMAND --help` prints the same. This page is written by `python -m ensembed.cli.reference`."


def reference() -> str:
    """Return the page; a test compares it with the one in `docs/`."""
    parts = ["# Commands", "", _FIRST, ""]
    context = click.Context(cli, info_name="ensembed", terminal_width=_WIDTH, **cli.context_settings)
    parts += ["## ensembed", "", "```text", cli.get_help(context), "```", ""]
    for name in SUMMARIES:
        parts += _sections(f"ensembed {name}", cli.get_command(context, name) or cli, context)
    return "\n".join(parts)


def _sections(title: str, command: click.Command, parent: click.Context) -> list[str]:
    """Return a command's help, then that of its subcommands."""
    context = click.Context(command, info_name=title.rpartition(" ")[2], parent=parent, terminal_width=_WIDTH)
    parts = [f"## {title}", "", "```text", command.get_help(context), "```", ""]
    for name, child in command.commands.items() if isinstance(command, click.Group) else ():
        parts += _sections(f"{title} {name}", child, context)
    return parts


if __name__ == "__main__":
    print(reference(), end="")
