"""What stands in for something slow in the tests of what uses it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensembed.reliability import Reliability


def trusted(
    weights: Sequence[float], names: Sequence[str] = (), *, whitened: tuple[int, ...] = (), rows: int = 0, seed: int = 0
) -> Reliability:
    """A reliability that gives members these weights; those of weight 0 are mute."""
    given = np.array(weights, float)
    names = tuple(names) or tuple(f"view {j}" for j in range(len(given)))
    return Reliability(
        names=names,
        sufficiency=np.eye(len(given)),
        lead=given,
        lead_low=given,
        lead_high=given,
        agreement=given,
        weights=given,
        weights_low=given,
        weights_high=given,
        origin={"weights_from": "reliability", "decided": "lead", "trusted": int(given.argmax()), "sure": 1.0},
        whitened_weights=given,
        whitened=whitened,
        mute=tuple(name for name, weight in zip(names, given, strict=True) if not weight),
        copies=tuple(range(len(given))),
        sentences=rows,
        pairs=5,
        lexical=True,
        seed=seed,
        best=int(given.argmax()),
    )
