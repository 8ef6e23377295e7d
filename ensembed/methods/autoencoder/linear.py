"""The autoencoder without hidden layers under squared error, solved from second moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ensembed.errors import DimensionError, ViewError
from ensembed.methods.meta import Meta
from ensembed.methods.projections import Dense
from ensembed.methods.weights import CountedMembers
from ensembed.numerics.eigen import effective_rank, fix_signs, top_eigh, whitener
from ensembed.numerics.moments import Moments


def solve_linear(moments: Moments, counted: CountedMembers, d: int, method: Mapping[str, Any]) -> Meta:
    r"""The encoders that minimise `sum_j sum_j' |x_j' - D_j' E_j x_j|^2 / d_j'`, with biases, over all rows.

    Write x for the concatenated views, centred, each divided by sqrt(d_j), S for its covariance and S_j for the d_j
    columns of S that belong to view j. With the decoders stacked to D, the loss is the sum over j of the error of
    predicting all of x from x_j through d numbers. For a given D, whose columns may be taken orthonormal, the best
    encoder is E_j = D' S_j S_jj^-1, and what remains to be maximised is

        trace(D' M D),   M = sum_j S_j S_jj^-1 S_j'

    so that D holds the d leading eigenvectors of M: a sum of reduced-rank regressions. (E_j and D may be multiplied by
    a matrix and its inverse without a change in the loss; training ends at some such pair, this is the one with
    orthonormal decoders.) The encoders of members that count less are scaled at the end: `Autoencoder.weights`.
    """
    moments, dims = counted.moments(moments), counted.dims
    scales = np.concatenate([np.full(size, size**-0.5) for size in dims])
    S = moments.covariance * np.outer(scales, scales)
    ends = np.cumsum(dims)
    places = [slice(end - size, end) for end, size in zip(ends, dims, strict=True)]
    if not moments.varies():
        raise ViewError("every row of the views is the same: there is nothing to learn from")
    # W W' is the inverse of S_jj, on the directions in which the view varies.
    whiteners = [
        whitener(S[place, place], 0.0, moments.resolution) if moments.varies(place) else np.zeros((size, 0))
        for place, size in zip(places, dims, strict=True)
    ]
    half = [S[:, place] @ W for place, W in zip(places, whiteners, strict=True)]
    M = np.asarray(sum(part @ part.T for part in half))
    if d <= len(M):
        values, D = top_eigh(M, d)
    if d > len(M) or values[-1] <= moments.resolution * values[0]:
        rank = effective_rank(M, moments.resolution)
        raise DimensionError(
            f"ae with dim={d}: {moments.n} sentences with {len(M)} columns support at most dim={rank}", rank
        )
    encoders = [W @ (part.T @ D) for W, part in zip(whiteners, half, strict=True)]
    theta = fix_signs(np.vstack(encoders) * scales[:, None] * counted.column_scales[:, None])
    means = np.split(moments.mean, ends[:-1])
    projections = [Dense.centred(theta[place], mean) for place, mean in zip(places, means, strict=True)]
    return Meta(method, d, counted.projections(projections), normalize=False, spectrum=values, rows=moments.n)
