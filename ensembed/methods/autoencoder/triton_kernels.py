"""The loss with its gradient as one GPU kernel, which reads every number once.

It computes the same as `replace_by_gradient` of `cross_view_network`, which defines the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_LOSSES = {"mse": 0, "mae": 1, "kld": 2, "cos": 3}
_TINY = 1e-12


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def _loss_kernel(  # type: ignore[no-untyped-def]  # noqa: ANN202 - triton reads no types
    Y, X, counts, losses,  # noqa: ANN001 - triton reads no types
    y_m, y_b, x_b, c_m, c_b,  # noqa: ANN001 - triton reads no types
    b_rows, temperature, scale,  # noqa: ANN001 - triton reads no types
    D: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr, LOSS: tl.constexpr, COUNTED: tl.constexpr,
    TINY: tl.constexpr,
):  # fmt: skip
    """One row of a view against its M reconstructions: losses [M, b] are written, Y becomes the gradient."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < D
    x = tl.load(X + row * x_b + columns, mask=inside, other=0.0).to(tl.float32)
    p, log_p, unit = x, x, x
    if LOSS == 2:
        x = tl.where(inside, x / temperature, float("-inf"))
        x = x - tl.max(x, axis=0)
        total = tl.sum(tl.exp(x), axis=0)
        log_p = tl.where(inside, x - tl.log(total), 0.0)
        p = tl.where(inside, tl.exp(x) / total, 0.0)
    if LOSS == 3:
        unit = x / tl.sqrt(tl.sum(x * x, axis=0) + TINY)
    for m in tl.static_range(M):
        place = Y + m * y_m + row * y_b + columns
        y = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        if LOSS == 0:
            r = y - x
            loss = tl.sum(r * r, axis=0) / D
            gradient = r * (2.0 / D)
        elif LOSS == 1:
            r = y - x
            loss = tl.sum(tl.abs(r), axis=0) / D
            gradient = tl.where(r > 0, 1.0, tl.where(r < 0, -1.0, 0.0)) / D
        elif LOSS == 2:
            y = tl.where(inside, y / temperature, float("-inf"))
            y = y - tl.max(y, axis=0)
            total = tl.sum(tl.exp(y), axis=0)
            log_q = tl.where(inside, y - tl.log(total), 0.0)
            loss = tl.sum(p * (log_p - log_q), axis=0)
            gradient = (tl.where(inside, tl.exp(y) / total, 0.0) - p) / temperature
        else:
            length = tl.sqrt(tl.sum(y * y, axis=0) + TINY)
            cosine = tl.sum(y * unit, axis=0) / length
            loss = (1.0 - cosine) * (1.0 - cosine)
            gradient = (cosine - 1.0) * 2.0 * (unit - cosine * y / length) / length
        if COUNTED:
            count = tl.load(counts + m * c_m + row * c_b).to(tl.float32)
            loss, gradient = loss * count, gradient * count
        tl.store(place, (gradient * scale).to(Y.dtype.element_ty), mask=inside)
        tl.store(losses + m * b_rows + row, loss)


def loss_kernel(name: str, temperature: float) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """What `replace_by_gradient` does, for the loss of that name."""

    def replace_by_gradient(Y: Tensor, X: Tensor, counts: Tensor | None) -> Tensor:
        M, b, D = Y.shape
        losses = torch.empty(M, b, dtype=torch.float32, device=Y.device)
        block = triton.next_power_of_2(D)
        c_m, c_b = (0, 0) if counts is None else counts.expand(M, b, 1).stride()[:2]
        options: dict[str, Any] = {"num_warps": min(max(block // 256, 1), 16)}
        _loss_kernel[(b,)](
            Y, X, X if counts is None else counts, losses, Y.stride(0), Y.stride(1), X.stride(0), c_m, c_b,
            b, float(temperature), 1.0 / b,
            D=D, M=M, BLOCK=block, LOSS=_LOSSES[name], COUNTED=counts is not None, TINY=_TINY, **options,
        )  # fmt: skip
        return losses.sum() / b

    return replace_by_gradient
