"""Weights of members, in every method that has them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import oracles
import pytest
from method_views import Array, make_views
from stand_ins import trusted

import ensembed.reliability.trust_estimate
from ensembed.errors import InputError, ViewError
from ensembed.methods import (
    GCCA,
    METHODS,
    SVD,
    Auto,
    Autoencoder,
    Average,
    Concat,
    Meta,
    Method,
    UpProjection,
    make_method,
)
from ensembed.methods.meta import Dense, Network
from ensembed.methods.weights import Weights, checked_weights, scales
from ensembed.reliability import Reliability

pytestmark = pytest.mark.usefixtures("one_thread")

DIMS = (6, 9, 5)
WEIGHTS = (0.3, 1.2, 0.7)
TRAINED = Autoencoder(dim=4, hidden_dim=5, epochs=2, batch_size=60, device="cpu")
CASES: dict[str, Method] = {
    "conc": Concat(),
    "avg": Average(),
    "svd": SVD(dim=4),
    "gcca": GCCA(dim=4, tau=1.0),
    "auto": Auto(),
    "auto dim": Auto(dim=4),
    "ae solved": Autoencoder(dim=4, hidden_layers=0, loss="mse"),
    "ae cross": TRAINED,
    "ae averaged": dataclasses.replace(TRAINED, kind="averaged"),
    "ae decoupled": dataclasses.replace(TRAINED, kind="decoupled", dim=12),
}


@pytest.fixture(params=CASES)
def method(request: pytest.FixtureRequest) -> Method:
    return CASES[request.param]


@pytest.fixture
def views() -> list[Array]:
    return make_views(120, DIMS)


def weigh(method: Method, weights: Weights, views: Sequence[Array]) -> Array:
    """The vectors of the views that the method with these weights is fitted on."""
    return method.with_weights(weights).fit(views).transform(views)


def cosines(Z: Array) -> Array:
    return np.asarray(oracles.unit(Z) @ oracles.unit(Z).T)


def found(weights: Sequence[float], calls: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - a stand-in for a function
    """What finds these weights, and writes down what it was given."""

    def reliability(views: Sequence[Any], **given: Any) -> Reliability:  # noqa: ANN401 - whatever the method passes
        calls.append({"views": list(views), **given})
        return trusted(weights)

    return reliability


def test_every_method_with_weights_is_among_the_cases() -> None:
    having = {name for name, cls in METHODS.items() if "weights" in [field.name for field in dataclasses.fields(cls)]}
    assert {method.name for method in CASES.values()} == having == set(METHODS) - {"up"}


@pytest.mark.parametrize("weights", [WEIGHTS, (2.0, 0.5, 0.0), (0, 0, 3)])
def test_weighted_methods_are_the_formulas(views: list[Array], weights: tuple[float, ...]) -> None:
    new = [view[::-3] + 1 for view in views]
    pairs = [
        (Concat(weights), oracles.weighted_conc(new, weights)),
        (Average(weights), oracles.weighted_avg(new, weights)),
        (SVD(4, weights), oracles.weighted_svd(views, new, weights, 4)),
        (Auto(None, weights), oracles.weighted_conc(new, weights)),
        (Auto(4, weights), oracles.auto(views, new, weights, 4)[0]),
    ]
    if np.count_nonzero(weights) > 1:
        pairs.append((GCCA(4, 1.0, weights), oracles.weighted_gcca(views, new, weights, 4, 1.0)))
    for one, expected in pairs:
        assert oracles.error_up_to_signs(one.fit(views).transform(new), expected) < 1e-5, one


@pytest.mark.parametrize("name", ["gcca", "ae solved", "ae cross", "ae averaged", "ae decoupled"])
def test_the_parts_of_members_are_scaled_after_the_fit(name: str, views: list[Array]) -> None:
    plain, weighted = CASES[name].fit(views), CASES[name].with_weights(WEIGHTS).fit(views)
    expected = np.zeros((120, plain.dim))
    for j, weight in enumerate(WEIGHTS):
        alone = plain.transform([view if i == j else None for i, view in enumerate(views)])
        expected += np.sqrt(weight / 1.2) * alone
    assert oracles.error_up_to_signs(weighted.transform(views), expected) < 1e-5
    assert oracles.error(weighted.transform(views), plain.transform(views)) > 0.01
    if plain.spectrum is not None:
        np.testing.assert_array_equal(weighted.spectrum, plain.spectrum)


def test_equal_weights_are_the_same_as_ones_to_the_bit(method: Method, views: list[Array]) -> None:
    np.testing.assert_array_equal(weigh(method, "equal", views), weigh(method, (1, 1, 1), views))


def test_only_the_ratios_of_weights_matter(method: Method, views: list[Array]) -> None:
    one, other = weigh(method, WEIGHTS, views), weigh(method, tuple(1000 * w for w in WEIGHTS), views)
    assert oracles.error(other, one) < 1e-6


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_a_weight_of_zero_leaves_a_member_out(method: Method, views: list[Array], left_out: int) -> None:
    """Whatever it says: also where it is constant, which gcca would refuse."""
    views[left_out][:] = 3.0
    there = [j for j in range(3) if j != left_out]
    weights = tuple(0.0 if j == left_out else WEIGHTS[j] for j in range(3))
    meta = method.with_weights(weights).fit(views)
    smaller = method.with_weights(tuple(WEIGHTS[j] for j in there)).fit([views[j] for j in there])
    expected = smaller.transform([views[j] for j in there])
    assert meta.dim == smaller.dim
    assert meta.view_dims == DIMS
    assert meta.counted == tuple(there)
    np.testing.assert_array_equal(meta.transform(views), expected)
    other = [np.random.default_rng(0).random(v.shape) if j == left_out else v for j, v in enumerate(views)]
    np.testing.assert_array_equal(meta.transform(other), expected)
    missing = [None if j == left_out else v for j, v in enumerate(views)]
    np.testing.assert_array_equal(meta.transform(missing), expected)
    short = smaller.truncate(3).transform([views[j] for j in there])
    np.testing.assert_allclose(meta.truncate(3).transform(views), short, rtol=1e-5, atol=1e-6)


def test_the_default_dimension_is_that_of_the_largest_member_that_counts(views: list[Array]) -> None:
    solved = Autoencoder(hidden_layers=0, loss="mse")
    for one in (Average(), SVD(), GCCA(), solved, dataclasses.replace(TRAINED, dim=None)):
        assert one.with_weights((1, 0, 1)).fit(views).dim == 6, one
    assert Auto(weights=(1, 0, 1)).fit(views).dim == Concat((1, 0, 1)).fit(views).dim == 11


def test_a_view_that_gcca_refuses_is_named_by_its_place(views: list[Array]) -> None:
    views[2][:] = 3.0
    with pytest.raises(ViewError, match="view 2 is the same in every row"):
        GCCA(2, weights=(0, 1, 1)).fit(views)
    with pytest.raises(ViewError, match="at least two whose weight is not 0; use svd for one"):
        GCCA(2, weights=(0, 1, 0)).fit(views)


def test_the_cosine_is_the_weighted_mean_of_the_members_cosines(views: list[Array]) -> None:
    expected = np.average([cosines(view) for view in views], axis=0, weights=WEIGHTS)
    assert oracles.error(cosines(weigh(Auto(), WEIGHTS, views)), expected) < 1e-6
    assert oracles.error(cosines(weigh(Concat(), WEIGHTS, views)), expected) < 1e-6
    assert oracles.error(cosines(weigh(Auto(dim=20), WEIGHTS, views)), expected) < 1e-5


def test_weights_are_plain_data(method: Method) -> None:
    assert method.with_weights(np.array([1, 0.5, 0])) == method.with_weights((1.0, 0.5, 0.0))  # type: ignore[arg-type] # arrays are taken, too
    weighted = method.with_weights([1, np.float32(0.5), 0])  # type: ignore[arg-type] # numpy's numbers are taken, too
    facts = json.loads(json.dumps(weighted.to_json()))
    assert facts["weights"] == [1.0, 0.5, 0.0]
    assert make_method(facts.pop("name"), **facts) == weighted
    equal = method.with_weights("equal")
    assert ("weights" in equal.to_json()) == isinstance(method, Auto)
    facts = equal.to_json()
    assert make_method(facts.pop("name"), **facts) == equal


def test_what_was_saved_before_there_were_weights_has_the_same_facts() -> None:
    assert GCCA(4).to_json() == {"name": "gcca", "dim": 4, "tau": 10.0}
    assert Concat().to_json() == {"name": "conc"}
    assert "weights" not in TRAINED.to_json()


NO_WEIGHTS = ["best", "1", (), (0, 0), (1, -1), (1, np.nan), (1, np.inf), 1.0, None, ("1",), (10**400, 1), np.eye(2)]
NO_WEIGHTS += [[1, [2, 3]], np.array(1.0), b"12"]


@pytest.mark.parametrize("weights", NO_WEIGHTS, ids=str)
def test_what_are_no_weights_is_refused(method: Method, weights: Any) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(InputError, match="weights are 'equal', 'reliability', or a number of at least 0 per member"):
        method.with_weights(weights)
    with pytest.raises(InputError, match="weights are"):
        checked_weights(weights)


def test_there_is_a_weight_for_every_member(method: Method, views: list[Array]) -> None:
    with pytest.raises(InputError, match="there are 2 weights for 3 members"):
        method.with_weights((1, 1)).fit(views)


def test_up_has_no_weights() -> None:
    assert UpProjection(4).weighting == "equal"
    with pytest.raises(InputError, match="method up has no weights"):
        UpProjection(4).with_weights((1,))


def test_weights_that_are_not_found_yet_cannot_be_used() -> None:
    assert Concat("reliability").needs_rows
    assert not Concat().needs_rows
    for call in (lambda: Concat("reliability").build([3]), lambda: scales("reliability", 2)):
        with pytest.raises(InputError, match="have to be found before a method is solved: call `fit`"):
            call()
    for one in (SVD(2), Auto(), Auto(2, (1,))):
        with pytest.raises(InputError, match="learns from the rows of views: call `fit`"):
            one.build([3])


def test_bare_arrays_are_weighted_by_what_they_say(
    monkeypatch: pytest.MonkeyPatch, method: Method, views: list[Array]
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(ensembed.reliability.trust_estimate, "reliability", found(WEIGHTS, calls))
    wanting = method.with_weights("reliability")
    assert wanting.weighting == "reliability"
    meta: Meta = wanting.fit(views)
    (call,) = calls
    assert call["sentences"] is None
    assert [view.shape[1] for view in call["views"]] == list(DIMS)
    origin = {"weights_from": "reliability", "trusted": int(np.argmax(WEIGHTS)), "decided": "lead", "sure": 1.0}
    assert meta.method == {**method.with_weights(WEIGHTS).to_json(), **origin}
    assert meta.rows == 120
    np.testing.assert_array_equal(meta.transform(views), weigh(method, WEIGHTS, views))
    method.with_weights("equal").fit(views)
    method.with_weights(WEIGHTS).fit(views)
    assert len(calls) == 1
    with pytest.raises(InputError, match="at least two sentences to learn from, got 1"):
        wanting.fit([view[:1] for view in views])


def test_reliability_itself_leaves_out_what_says_nothing() -> None:
    generator = np.random.default_rng(0)
    signal = generator.standard_normal((400, 12))
    good, fair = (signal + part * generator.standard_normal((400, 12)) for part in (0.2, 0.8))
    constant = np.ones((400, 3))
    meta = Auto().fit([fair, constant, good])
    assert meta.method["weights"][1] == 0
    assert max(meta.method["weights"]) == 1
    assert 1 not in meta.counted
    assert meta.dim == 12 * len(meta.counted)


def test_scaling_a_network_by_one_changes_nothing(views: list[Array]) -> None:
    network = TRAINED.fit(views).projections[0]
    assert isinstance(network, Network)
    assert network.scaled(1.0) is network
    half = network.scaled(0.5)
    np.testing.assert_array_equal(half.layers[-1].matrix, network.layers[-1].matrix / 2)
    np.testing.assert_array_equal(half.layers[-1].bias, network.layers[-1].bias / 2)
    np.testing.assert_array_equal(half.layers[0].matrix, network.layers[0].matrix)


def test_a_weighted_checkpoint_is_that_of_the_same_training(views: list[Array], tmp_path: Any) -> None:  # noqa: ANN401 - a fixture
    """Weights are applied afterwards: what was interrupted without them goes on with them."""

    def stop(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train · ") and done == 2:
            raise KeyboardInterrupt

    def watch(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train · "):
            seen.append(done)

    seen: list[int] = []
    longer = dataclasses.replace(TRAINED, epochs=4)
    with pytest.raises(KeyboardInterrupt):
        longer.fit(views, checkpoint=tmp_path, progress=stop)
    weighted = longer.with_weights(WEIGHTS)
    went_on = weighted.fit(views, checkpoint=tmp_path, progress=watch)
    assert seen[0] in (2, 3)
    assert seen[-1] == 4
    np.testing.assert_array_equal(went_on.transform(views), weighted.fit(views).transform(views))


def test_signs_are_fixed_with_the_weights(views: list[Array]) -> None:
    for one in (SVD(4), GCCA(4), Auto(4), Autoencoder(dim=4, hidden_layers=0, loss="mse")):
        parts = one.with_weights((1e-6, 1, 1e-6)).fit(views).projections
        theta = np.vstack([part.matrix for part in parts if isinstance(part, Dense)])
        assert (theta[np.abs(theta).argmax(axis=0), np.arange(4)] > 0).all()
