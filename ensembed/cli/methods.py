"""The options that say which method is fitted, and with which hyper-parameters."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_args

import click

from ensembed.cli.common import options
from ensembed.errors import InputError
from ensembed.methods import METHODS, Method, make_method
from ensembed.methods.autoencoder.autoencoder_method import Kind, Loss, Precision, Solver
from ensembed.methods.projections import ACTIVATIONS
from ensembed.methods.weights import Weights, checked_weights


def weights(value: str) -> Weights:
    """What a method takes as `weights`: a word, or numbers with commas between them."""
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


# Every option is named as the parameter it sets. Bounds are the method's own affair: it knows why it has them.
_PARAMETERS: dict[str, tuple[Any, str]] = {
    "dim": (
        click.IntRange(min=1),
        "Dimension of the result. [default: the largest member's; auto: the members' together]",
    ),
    "weights": (
        weights,
        "What members count: equal, reliability, or numbers: 1,0.5,0.2. [default: equal, for auto reliability]",
    ),
    "tau": (float, "gcca's regularisation. [default: 10]"),
    "seed": (int, "up's and ae's random seed. [default: 0]"),
    "hidden_layers": (click.IntRange(0, 2), "ae: of every encoder and decoder. [default: 1]"),
    "hidden_dim": (click.IntRange(min=1), "ae: units of a hidden layer. [default: --dim]"),
    "activation": (click.Choice(list(ACTIVATIONS)), "ae: after a hidden layer. [default: relu]"),
    "loss": (click.Choice(get_args(Loss)), "ae: of a reconstruction. [default: kld]"),
    "temperature": (float, "ae: of kld's softmax. [default: 1]"),
    "kind": (click.Choice(get_args(Kind)), "ae: what views are reconstructed from. [default: cross, each from each]"),
    "view_dropout": (float, "ae: the part of views left out at random in training. [default: 0]"),
    "epochs": (click.IntRange(min=1), "ae: passes over the corpus. [default: 500]"),
    "batch_size": (click.IntRange(min=1), "ae: sentences per step. [default: 10000]"),
    "learning_rate": (float, "ae: Adam's. [default: 0.001]"),
    "patience": (click.IntRange(min=1), "ae: stop when the loss has not fallen in so many epochs. [default: never]"),
    "device": (str, "ae: cpu, cuda, cuda:1 or mps. [default: a GPU if there is one]"),
    "solver": (
        click.Choice(get_args(Solver)),
        "ae: mse without hidden layers is solved or trained. [default: auto, solved]",
    ),
    "precision": (click.Choice(get_args(Precision)), "ae: of the products. [default: auto, bfloat16 on CUDA devices]"),
}


def option(parameter: str) -> str:
    """The option that sets a parameter."""
    return f"--{parameter.replace('_', '-')}"


def in_options(message: str) -> str:
    """What the library says of parameters, in the words of the command line.

    Example:
        >>> in_options("let all count the same (weights='equal'), or leave `tune` out")
        'let all count the same (--weights equal), or leave --tune out'
        >>> in_options("learning_rate must be a number above 0")
        '--learning-rate must be a number above 0'
    """
    names, long = "|".join(_PARAMETERS), "|".join(name for name in _PARAMETERS if "_" in name)
    # Names stand alone: those in an encoder's name (demo?dim=8) or in a path are no parameters.
    message = re.sub(
        rf"(?<![^\s(])({names})=([\"']?)([\w.:]+)\2", lambda found: f"{option(found[1])} {found[3]}", message
    )
    message = re.sub(rf"^({names})(?= (?:must|is) )|(?<![^\s(])({long})\b", lambda found: option(found[0]), message)
    return message.replace("`tune`", "--tune")


@contextmanager
def said_in_options(*, bad_options: bool = False) -> Iterator[None]:
    """Make errors about parameters errors about options; where nothing else can be at fault, of the command line."""
    try:
        yield
    except InputError as error:
        message = in_options(str(error))
        if bad_options:
            raise click.UsageError(message) from error
        error.args = (message, *error.args[1:])
        raise


def not_default(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters of a fitted method that are not what they are by default."""
    fields = dataclasses.fields(METHODS[facts["name"]])
    defaults = {
        field.name: list(field.default) if isinstance(field.default, tuple) else field.default for field in fields
    }
    return {name: value for name, value in facts.items() if name in defaults and value not in (None, defaults[name])}


def _made(name: str, given: Mapping[str, Any]) -> Method:
    """The method with the parameters that were given as options."""
    fields = dataclasses.fields(METHODS[name])
    takes = ", ".join(option(field.name) for field in fields if field.name in _PARAMETERS)
    for parameter in given:
        if parameter not in [field.name for field in fields]:
            raise click.UsageError(f"--method {name} does not take {option(parameter)}; it takes: {takes}")
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in given:
            raise click.UsageError(f"--method {name} needs {option(field.name)}")
    with said_in_options(bad_options=True):
        return make_method(name, **given)


def method_option(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - what click's decorators return
    """`--method` and the hyper-parameters of all methods, which a command gets as one `method`.

    A parameter that is given and that the method does not have is refused.
    """

    @click.option(
        "--method",
        type=click.Choice(list(METHODS)),
        default="auto",
        show_default=True,
        help="How the members are combined. auto is recommended: it finds out which members can be trusted.",
    )
    @options(*(click.option(option(name), name, type=kind, help=text) for name, (kind, text) in _PARAMETERS.items()))
    @functools.wraps(function)
    def command(*arguments: Any, method: str, **values: Any) -> Any:  # noqa: ANN401 - whatever the command takes
        parameters = {name: values.pop(name) for name in _PARAMETERS}
        given = {name: value for name, value in parameters.items() if value is not None}
        return function(*arguments, method=_made(method, given), **values)

    return command
