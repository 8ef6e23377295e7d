"""The command line of the running command: to repeat it in a report."""

from __future__ import annotations

import shlex

import click
from click.core import ParameterSource


def command_line(*leave_out: str) -> str:
    """Return the line that runs the current command again, without these parameters."""
    context = click.get_current_context()
    words = context.command_path.split()
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) != ParameterSource.COMMANDLINE or name in leave_out:
            continue
        value = context.params[name]
        if isinstance(value, bool):
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
            continue
        option = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
        for item in value if isinstance(value, tuple) else (value,):
            words += [*option, str(item)]
    return shlex.join(words)
