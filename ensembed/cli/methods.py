"""`--method` and the hyper-parameters of all methods, made from the methods' fields and docstrings."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import cleandoc
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from ensembed.cli.options import Decorator, Gathered
from ensembed.errors import InputError
from ensembed.methods import METHODS, Method, all_methods
from ensembed.methods.registry import UNUSABLE
from ensembed.methods.weights import Weights, checked_weights


def weights(value: str) -> Weights:
    """Read the weights of a method: a word, or numbers with commas between them."""
    if value in ("equal", "reliability"):
        return checked_weights(value)
    try:
        numbers = [float(number) for number in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither equal nor reliability nor numbers such as 1,0.5,0.2") from None
    if not any(numbers):
        raise click.BadParameter(f"{value!r} lets no member count: one number must be above 0")
    try:
        return checked_weights(numbers)
    except InputError:
        raise click.BadParameter(f"{value!r} is not equal, reliability, or a number of at least 0 per member") from None


# How a command line gives a field of each type; fields of other types it cannot give.
_TYPES: dict[Any, Any] = {Weights: weights, **{kind: kind for kind in (int, float, str)}}
_TYPES |= {kind | None: kind for kind in (int, float, str)}


@functools.cache
def parameters() -> dict[str, Decorator]:
    """Return one option for every hyper-parameter of any method that a command line can give.

    The type comes from the field's annotation, the help from the `Args` of the docstring. Bounds are checked by the
    method, which knows why it has them.
    """
    users: dict[str, list[type[Method]]] = {}
    for kind in all_methods().values():
        for field in kind.parameters():
            users.setdefault(field.name, []).append(kind)
    made = {}
    for name, kinds in users.items():
        annotation = get_type_hints(kinds[0])[name]
        value_type = click.Choice(get_args(annotation)) if get_origin(annotation) is Literal else _TYPES.get(annotation)
        if value_type is not None:
            made[name] = click.option(f"--{name.replace('_', '-')}", name, type=value_type, help=_help(name, kinds))
    return made


def _help(name: str, kinds: list[type[Method]]) -> str:
    """Return what each method that has a parameter says about it, and its defaults.

    The text is the first sentence in the `Args` of the docstring. One that begins with `Default:` is the default.
    """
    texts: dict[str, list[str]] = {}
    defaults: dict[str, list[str]] = {}
    required: list[str] = []
    for kind in kinds:
        entry = re.search(rf"^ {{4}}{name}: (.+?)(?=^ {{4}}\w+: |^\s*$|\Z)", cleandoc(kind.__doc__ or ""), re.M | re.S)
        text, *more = re.split(r"(?<=[.]) ", " ".join(entry[1].split()) if entry else name.replace("_", " "))
        texts.setdefault(text.replace("`", "").rstrip("."), []).append(kind.name)
        [value] = [field.default for field in kind.parameters() if field.name == name]
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        for sentence in more:
            if sentence.startswith("Default: "):
                shown = re.sub(r"`(\w+)`", r"--\1", sentence.removeprefix("Default: ").rstrip("."))
        (required if value is dataclasses.MISSING else defaults.setdefault(shown, [])).append(kind.name)
    usual = max(defaults, key=lambda shown: len(defaults[shown]), default="")
    others = "".join(f", for {', '.join(methods)} {shown}" for shown, methods in defaults.items() if shown != usual)
    notes = [f"default: {usual}{others}"] if defaults else []
    notes += [f"required for {', '.join(required)}"] if required else []
    explained = "; ".join(f"{', '.join(methods)}: {text}" for text, methods in texts.items())
    return f"{explained}. [{'; '.join(notes)}]"


def option(parameter: str) -> str:
    """Return the option that sets a parameter."""
    return f"--{parameter.replace('_', '-')}"


def in_options(message: str) -> str:
    """Rewrite what the library says of parameters in the words of the command line.

    Example:
        >>> in_options("let all count the same (weights='equal'), or leave `tune` out")
        'let all count the same (--weights equal), or leave --tune out'
        >>> in_options("learning_rate must be a number above 0")
        '--learning-rate must be a number above 0'
    """
    names, long = "|".join(parameters()), "|".join(name for name in parameters() if "_" in name)
    # Names stand alone: those in an encoder's name (demo?dim=8) or in a path are no parameters.
    message = re.sub(
        rf"(?<![^\s(])({names})=([\"']?)([\w.:]+)\2", lambda match: f"{option(match[1])} {match[3]}", message
    )
    message = re.sub(rf"^({names})(?= (?:must|is) )|(?<![^\s(])({long})\b", lambda match: option(match[0]), message)
    return message.replace("`tune`", "--tune")


@contextmanager
def errors_name_options(*, usage: bool = False) -> Iterator[None]:
    """Make errors about parameters name options; with `usage`, they are errors of the command line."""
    try:
        yield
    except InputError as error:
        message = in_options(str(error))
        if usage:
            raise click.UsageError(message) from error
        error.args = (message, *error.args[1:])
        raise


def _method(method: str, **values: Any) -> Method:  # noqa: ANN401 - of any parameter
    """Make the method of that name; a parameter that is given and that it does not have is refused."""
    if method in UNUSABLE:
        raise InputError(UNUSABLE[method])
    given = {name: value for name, value in values.items() if value is not None}
    fields = METHODS[method].parameters()
    for name in given:
        if name not in [field.name for field in fields]:
            takes = ", ".join(option(field.name) for field in fields if field.name in parameters())
            raise click.UsageError(f"--method {method} does not take {option(name)}; it takes: {takes}")
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in given:
            raise click.UsageError(f"--method {method} needs {option(field.name)}")
    with errors_name_options(usage=True):
        return METHODS[method](**given)


method_options = Gathered(
    "method",
    _method,
    {
        "method": click.option(
            "--method",
            # Those that cannot be used are refused with a reason.
            type=click.Choice(list({**all_methods(), **UNUSABLE}), case_sensitive=False),
            metavar=f"[{'|'.join(all_methods())}]",
            default="auto",
            help="How the members are combined. auto is recommended: it finds out which members can be trusted.",
        ),
        **parameters(),
    },
)
"""`--method` and the hyper-parameters of all methods, which a command receives as one `method`."""
