"""The autoencoders' losses against loops over rows and numbers, their gradients against finite differences."""

from __future__ import annotations

from functools import partial

import numpy as np
import oracles
import pytest
import torch
from method_views import Array

from ensembed.methods.autoencoder.cross_view_network import (
    CrossViewNetwork,
    Design,
    Parameters,
    loss_function,
    replace_by_gradient,
)
from ensembed.methods.meta import ACTIVATIONS, Activation

pytestmark = pytest.mark.usefixtures("one_thread")

LOSSES = ["mse", "mae", "kld", "cos"]
KINDS = ["cross", "averaged", "concatenated", "decoupled"]
DIMS, CODE, HIDDEN, ROWS, TEMPERATURE = (5, 4, 6), 3, 7, 8, 0.5


def _design(kind: str, hidden_layers: int, activation: Activation, dims: tuple[int, ...] = DIMS) -> Design:
    return Design(dims, CODE, hidden_layers, HIDDEN, activation, kind)


def _parameters(design: Design, dtype: torch.dtype = torch.float64) -> Parameters:
    return Parameters(design.shapes(), dtype, "cpu", seed=1)


def _network(design: Design, parameters: Parameters, loss: str) -> CrossViewNetwork:
    return CrossViewNetwork(design, parameters, partial(replace_by_gradient, loss_function(loss, TEMPERATURE)))


def _views(dims: tuple[int, ...] = DIMS) -> list[Array]:
    return [np.random.default_rng(j).standard_normal((ROWS, size)) for j, size in enumerate(dims)]


def _kept(dropped: bool, views: int = 3) -> Array:
    """[J, n] which views a row has: every set of three that is not empty is among them."""
    if not dropped:
        return np.ones((views, ROWS))
    sets = [[(i >> j) & 1 for i in range(1, ROWS + 1)] for j in range(views)]
    sets[0][-1] = 1
    return np.array(sets, float)


def _layers(design: Design, weights: dict[str, Array]) -> tuple[list[list[tuple[Array, Array]]], ...]:
    """The layers of every encoder, and of every decoder, taken out of the tensors in which they are stacked."""
    encoders, decoders = [], []
    ends = np.cumsum(design.first_widths)
    for j in range(design.views):
        encoder = [(weights[f"encoder.0.{j}"], weights[f"encoder.0.{j}.bias"])]
        place = slice(ends[j] - design.first_widths[j], ends[j])
        decoder = [(weights["decoder.0"][:, place], weights["decoder.0.bias"][place])]
        for layer in range(1, design.hidden_layers + 1):
            encoder.append((weights[f"encoder.{layer}.{j}"], weights[f"encoder.{layer}.{j}.bias"]))
            decoder.append((weights[f"decoder.{layer}.{j}"], weights[f"decoder.{layer}.{j}.bias"]))
        encoders.append(encoder)
        decoders.append(decoder)
    return encoders, decoders


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden_layers", [0, 1, 2])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_equal_the_oracle_and_autograd(
    kind: str, loss: str, hidden_layers: int, activation: Activation, dropped: bool
) -> None:
    design = _design(kind, hidden_layers, activation)
    parameters = _parameters(design)
    network = _network(design, parameters, loss)
    views, kept = _views(), _kept(dropped)
    X = [torch.from_numpy(view) for view in views]
    keep = torch.from_numpy(kept)[:, :, None] if dropped else None

    found = float(network(X, keep))
    gradients = {name: gradient.clone() for name, gradient in parameters.gradients.items()}
    weights = parameters.named()

    encoders, decoders = (
        [partial(oracles.network, layers=layers, activation=activation) for layers in stacks]
        for stacks in _layers(design, {name: weight.numpy() for name, weight in weights.items()})
    )
    distance = partial(oracles.reconstruction_loss, loss, temperature=TEMPERATURE)
    expected = oracles.autoencoder_loss(views, encoders, decoders, distance, kind, kept)
    assert found == pytest.approx(expected, rel=1e-9)

    # Along one random direction of every weight: an error in any of its entries shows.
    generator = torch.Generator().manual_seed(0)
    for name, weight in weights.items():
        direction = torch.randn(weight.shape, dtype=torch.float64, generator=generator)
        step = 1e-6 * direction
        weight += step
        above = float(network(X, keep))
        weight -= 2 * step
        below = float(network(X, keep))
        weight += step
        slope = float((gradients[name] * direction).sum())
        assert slope == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-7), name


@pytest.mark.parametrize("loss", LOSSES)
def test_each_loss_is_the_obvious_one_and_its_gradient_that_of_torch(loss: str) -> None:
    generator = np.random.default_rng(0)
    Y, X = generator.standard_normal((2, 5, 7)), generator.standard_normal((5, 7))
    reconstructions = torch.tensor(Y, requires_grad=True)
    losses, gradient = loss_function(loss, TEMPERATURE)(reconstructions, torch.tensor(X))
    expected = [[oracles.reconstruction_loss(loss, y, x, TEMPERATURE) for y, x in zip(m, X, strict=True)] for m in Y]
    assert oracles.error(losses.detach().numpy(), np.array(expected)) < 1e-10
    losses.sum().backward()
    assert reconstructions.grad is not None
    assert oracles.error(gradient.detach().numpy(), reconstructions.grad.numpy()) < 1e-10


@pytest.mark.parametrize("loss", LOSSES)
def test_a_perfect_reconstruction_costs_nothing(loss: str) -> None:
    X = torch.tensor(_views()[0])
    losses, gradient = loss_function(loss, TEMPERATURE)(X.clone()[None], X)
    assert float(losses.abs().max()) < 1e-12
    assert float(gradient.abs().max()) < 1e-12


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zero_vectors_and_large_ones_have_finite_losses(loss: str, dtype: torch.dtype) -> None:
    rows = torch.tensor([[0.0, 0, 0], [1e4, -1e4, 1], [1, 2, 3]], dtype=dtype)
    for X in (rows, torch.zeros_like(rows)):
        losses, gradient = loss_function(loss, 1.0)(rows[None].flip(1), X)
        assert losses.dtype == gradient.dtype == torch.float32
        assert losses.isfinite().all()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_in_sixteen_bits_have_the_same_direction(kind: str, loss: str) -> None:
    design = _design(kind, 1, "relu")
    found = {}
    for dtype in (torch.float64, torch.bfloat16):
        parameters = _parameters(design, dtype)
        X = [torch.from_numpy(view).to(dtype) for view in _views()]
        keep = torch.from_numpy(_kept(dropped=True)).to(dtype)[:, :, None]
        value = _network(design, parameters, loss)(X, keep)
        assert value.dtype == (torch.float32 if dtype == torch.bfloat16 else dtype)  # no sums in 16 bits
        found[dtype] = float(value), parameters.gradient.double()
    (exact, gradient), (rough, other) = found[torch.float64], found[torch.bfloat16]
    assert rough == pytest.approx(exact, rel=0.02)
    assert float(torch.cosine_similarity(gradient, other, dim=0)) > 0.99


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("hidden_layers", [0, 1, 2])
def test_one_view_is_a_plain_autoencoder_of_whatever_kind(hidden_layers: int, loss: str) -> None:
    found = []
    for kind in KINDS:
        design = _design(kind, hidden_layers, "tanh", DIMS[:1])
        parameters = _parameters(design)
        value = float(_network(design, parameters, loss)([torch.from_numpy(_views()[0])]))
        found.append((value, parameters.gradient.clone()))
    encoders, decoders = _layers(design, {name: weight.numpy() for name, weight in parameters.named().items()})
    expected = 0.0
    for x in _views()[0]:
        y = oracles.network(oracles.network(x, encoders[0], "tanh"), decoders[0], "tanh")
        expected += oracles.reconstruction_loss(loss, y, x, TEMPERATURE) / ROWS
    for value, gradient in found:
        assert value == pytest.approx(expected, rel=1e-9)
        torch.testing.assert_close(gradient, found[0][1])
