"""Every registered method against the slow, obvious version of it in `tests/oracles.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import pytest
from method_views import make_views

from ensembed.methods import METHODS, make_method

# What makes a method one that its slow version computes: most have it by their defaults.
PARAMETERS: dict[str, dict[str, Any]] = {
    "ae": {"hidden_layers": 0, "loss": "mse"},
    "auto": {"weights": (1.0, 0.5, 0.25)},
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("rows", [80, 400])
@pytest.mark.parametrize("name", METHODS)
def test_method_gives_the_dot_products_of_its_slow_version(name: str, rows: int, seed: int) -> None:
    assert name in oracles.SLOW, f"add a slow, obvious version of {name} to SLOW in tests/oracles.py"
    dims = (6,) if name == "up" else (6, 9, 5)
    train, views = make_views(rows, dims, seed=seed), make_views(50, dims, seed=seed + 10)
    has_dim = any(field.name == "dim" for field in METHODS[name].parameters())
    method = make_method(name, **({"dim": 4} if has_dim else {}), **PARAMETERS.get(name, {}))
    vectors = method.fit(train).transform(views).astype(np.float64)
    expected = oracles.SLOW[name](method, train, views)
    assert vectors.shape == expected.shape
    assert oracles.gram_error(vectors, expected) < 1e-4
