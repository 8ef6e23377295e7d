"""The options that say which method is fitted, and with which hyper-parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, get_args

import click

from ensembed.cli.common import options
from ensembed.errors import InputError
from ensembed.methods import METHODS, make_method
from ensembed.methods.autoencoder.method import Kind, Loss, Precision, Solver
from ensembed.methods.projections import ACTIVATIONS
from ensembed.methods.weights import Weights, checked_weights


def weights(value: str) -> Weights:
    """What a method takes as `weights`: a word, or numbers with commas between them."""
    if value in ("equal", "reliability"):
        return checked_weights(value)
    try:
        numbers = [float(number) for number in value.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither 'equal' nor 'reliability' nor numbers such as 1,0.5,0.2"
        ) from None
    try:
        return checked_weights(numbers)
    except InputError as error:
        raise click.BadParameter(str(error)) from error


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
    @options(
        *(
            click.option(f"--{name.replace('_', '-')}", name, type=kind, help=text)
            for name, (kind, text) in _PARAMETERS.items()
        )
    )
    @functools.wraps(function)
    def command(*arguments: Any, method: str, **values: Any) -> Any:  # noqa: ANN401 - whatever the command takes
        parameters = {name: values.pop(name) for name in _PARAMETERS}
        given = {name: value for name, value in parameters.items() if value is not None}
        return function(*arguments, method=make_method(method, **given), **values)

    return command
