"""A layer of BERT on a GPU, forward and backward: matrix products, and one kernel for what lies between two of them.

What is computed is that of `bert_layer` in `bert_student`, which defines it. Attention is for sentences of at most 128
tokens: a program reads queries, keys and values of one head of one sentence where the product of the layer left them,
on a tile as long as the sentence, where torch's kernels work on 64 or 128 tokens at a time. Sums over all tokens, the
gradients of biases and of layer norms, are taken by the kernels that read the numbers anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 128
_SMALLEST = 16  # rows of a tile that the matrix units take
_PROGRAMS = 1024  # that share the rows of a layer norm, and of a sum over rows
_ROWS, _COLUMNS = 32, 128  # of a tile of a sum over rows


@triton.jit
def _probabilities(q, k, rows, count, scale):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - no types in triton
    """Return what each token takes of the first `count` tokens [l, l]."""
    S = tl.dot(q, tl.trans(k)) * scale
    S = tl.where(rows[None, :] < count, S, float("-inf"))
    P = tl.exp(S - tl.max(S, axis=1)[:, None])
    return P / tl.sum(P, axis=1)[:, None]


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def _attention_kernel(  # type: ignore[no-untyped-def]  # noqa: ANN202 - triton reads no types
    QKV, counts, A, length, heads, scale,  # noqa: ANN001 - triton reads no types
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One head of one sentence."""
    sentence, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, D)
    width = heads * D
    shift = (sentence * length + rows)[:, None] * (3 * width) + head * D + columns[None, :]
    inside = (rows < length)[:, None]
    q = tl.load(QKV + shift, mask=inside, other=0.0)
    k = tl.load(QKV + shift + width, mask=inside, other=0.0)
    v = tl.load(QKV + shift + 2 * width, mask=inside, other=0.0)
    P = _probabilities(q, k, rows, tl.load(counts + sentence), scale)
    place = A + (sentence * length + rows)[:, None] * width + head * D + columns[None, :]
    tl.store(place, tl.dot(P.to(v.dtype), v).to(A.dtype.element_ty), mask=inside)


# The tiles are loaded as in `_attention_kernel`, written out: each kernel can be read, and tuned on a GPU, alone.
@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def _attention_gradient_kernel(  # type: ignore[no-untyped-def]  # noqa: ANN202 - triton reads no types
    QKV, counts, G, R, length, heads, scale,  # noqa: ANN001 - triton reads no types
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One head of one sentence: from the gradient G of the result to R, that of queries, keys and values."""
    sentence, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, D)
    width = heads * D
    shift = (sentence * length + rows)[:, None] * (3 * width) + head * D + columns[None, :]
    inside = (rows < length)[:, None]
    q = tl.load(QKV + shift, mask=inside, other=0.0)
    k = tl.load(QKV + shift + width, mask=inside, other=0.0)
    v = tl.load(QKV + shift + 2 * width, mask=inside, other=0.0)
    g = tl.load(G + (sentence * length + rows)[:, None] * width + head * D + columns[None, :], mask=inside, other=0.0)
    P = _probabilities(q, k, rows, tl.load(counts + sentence), scale)
    dP = tl.dot(g, tl.trans(v))
    dS = (P * (dP - tl.sum(P * dP, axis=1)[:, None]) * scale).to(q.dtype)
    kind = R.dtype.element_ty
    tl.store(R + shift, tl.dot(dS, k).to(kind), mask=inside)
    tl.store(R + shift + width, tl.dot(tl.trans(dS), q).to(kind), mask=inside)
    tl.store(R + shift + 2 * width, tl.dot(tl.trans(P.to(g.dtype)), g).to(kind), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def _norm_kernel(  # type: ignore[no-untyped-def]  # noqa: ANN202 - triton reads no types
    H, bias, X, scale, shift, Z, Y, statistics, epsilon,  # noqa: ANN001 - triton reads no types
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row: Z = H + bias + X, and Y, its layer norm; the mean and one over the deviation are kept."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < D
    z = tl.load(H + row * D + columns, mask=inside, other=0.0).to(tl.float32)
    z += tl.load(X + row * D + columns, mask=inside, other=0.0).to(tl.float32)
    z += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(z, axis=0) / D
    centred = tl.where(inside, z - mean, 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / D + epsilon)
    y = centred * inverse * tl.load(scale + columns, mask=inside, other=0.0).to(tl.float32)
    y += tl.load(shift + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(Z + row * D + columns, z.to(Z.dtype.element_ty), mask=inside)
    tl.store(Y + row * D + columns, y.to(Y.dtype.element_ty), mask=inside)
    tl.store(statistics + 2 * row, mean)
    tl.store(statistics + 2 * row + 1, inverse)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def _norm_gradient_kernel(  # type: ignore[no-untyped-def]  # noqa: ANN202 - triton reads no types
    G, Z, statistics, scale, R, sums, n,  # noqa: ANN001 - triton reads no types
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Some rows: from the gradient G of Y to R, that of Z, and the sums of those of scale, shift and bias [p, 3, D]."""
    columns = tl.arange(0, BLOCK)
    inside = columns < D
    weight = tl.load(scale + columns, mask=inside, other=0.0).to(tl.float32)
    of_scale, of_shift = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    of_bias = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        place = (columns * 0 + row).to(tl.int64) * D + columns
        g = tl.load(G + place, mask=inside, other=0.0).to(tl.float32)
        z = tl.load(Z + place, mask=inside, other=0.0).to(tl.float32)
        inverse = tl.load(statistics + 2 * row + 1)
        unit = tl.where(inside, (z - tl.load(statistics + 2 * row)) * inverse, 0.0)
        weighted = g * weight
        r = (weighted - tl.sum(weighted, axis=0) / D - unit * (tl.sum(weighted * unit, axis=0) / D)) * inverse
        r = tl.where(inside, r, 0.0)
        tl.store(R + place, r.to(R.dtype.element_ty), mask=inside)
        of_scale += g * unit
        of_shift += g
        of_bias += r
    place = sums + tl.program_id(0) * 3 * D + columns
    tl.store(place, of_scale, mask=inside)
    tl.store(place + D, of_shift, mask=inside)
    tl.store(place + 2 * D, of_bias, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def _gelu_kernel(U, bias, V, D, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
    """Some numbers: V = gelu(U + bias)."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    u = tl.load(U + places, mask=inside, other=0.0).to(tl.float32)
    u += tl.load(bias + places % D, mask=inside, other=0.0).to(tl.float32)
    v = 0.5 * u * (1.0 + tl.erf(u * 0.7071067811865476))
    tl.store(V + places, v.to(V.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def _column_kernel(  # type: ignore[no-untyped-def]  # noqa: ANN202 - triton reads no types
    G, U, bias, R, sums, n, D,  # noqa: ANN001 - triton reads no types
    GELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Some columns of some rows: the sums of G [p, D], or of R, the gradient of U + bias if G is that of its gelu."""
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(tl.program_id(0) * ROWS, n, tl.num_programs(0) * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        inside = (rows < n)[:, None] & (columns < D)[None, :]
        place = rows[:, None] * D + columns[None, :]
        g = tl.load(G + place, mask=inside, other=0.0).to(tl.float32)
        if GELU:
            u = tl.load(U + place, mask=inside, other=0.0).to(tl.float32)
            u += tl.load(bias + columns, mask=columns < D, other=0.0).to(tl.float32)[None, :]
            slope = 0.5 * (1.0 + tl.erf(u * 0.7071067811865476))
            g = g * (slope + u * 0.3989422804014327 * tl.exp(-0.5 * u * u))
            tl.store(R + place, g.to(R.dtype.element_ty), mask=inside)
        total += g
    tl.store(sums + tl.program_id(0) * D + columns, tl.sum(total, axis=0), mask=columns < D)


def check_heads(width: int, heads: int) -> None:
    """Raise a RuntimeError if the kernels do not take heads of this width."""
    D = width // heads
    if D < _SMALLEST or D & (D - 1):
        raise RuntimeError(f"the kernels take heads of 16, 32, 64 … numbers, not {D}")


class _Layer(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not read
    """A layer, of hidden states [b, l, h], the numbers of tokens [b], how many heads, epsilon, and twelve weights."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, counts: Tensor, heads: int, epsilon: float, *weights: Tensor) -> Tensor:  # noqa: ANN401 - torch's own type
        qkv, qkv_bias, out, out_bias, scale, shift, up, up_bias, down, down_bias, last_scale, last_shift = weights
        length, rows = X.shape[1], X.reshape(-1, X.shape[2])
        QKV = torch.addmm(qkv_bias, rows, qkv.T)
        A = torch.empty_like(rows)
        _attend(_attention_kernel, QKV, counts, (A,), length, heads)
        first = _normed(A @ out.T, out_bias, rows, scale, shift, epsilon)
        U = first[0] @ up.T
        V = torch.empty_like(U)
        block = 1024
        _gelu_kernel[(triton.cdiv(U.numel(), block),)](U, up_bias, V, U.shape[1], U.numel(), BLOCK=block, num_warps=4)
        second = _normed(V @ down.T, down_bias, first[0], last_scale, last_shift, epsilon)
        ctx.save_for_backward(rows, counts, QKV, A, *first, U, V, *second[1:], *weights)
        ctx.heads, ctx.length = heads, length
        return second[0].view_as(X)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's own type
        rows, counts, QKV, A, Y, Z, statistics, U, V, last_Z, last_statistics, *weights = ctx.saved_tensors
        qkv, _, out, _, scale, _, up, up_bias, down, _, last_scale, _ = weights
        G, last = _norm_gradient(gradient.reshape(rows.shape), last_Z, last_statistics, last_scale)
        dU, of_up_bias = _column_sums(G @ down, U, up_bias)
        of_down = G.T @ V
        G.addmm_(dU, up)  # the way around the two products, and the one through them
        G, first = _norm_gradient(G, Z, statistics, scale)
        dQKV = torch.empty_like(QKV)
        _attend(_attention_gradient_kernel, QKV, counts, (G @ out, dQKV), ctx.length, ctx.heads)
        of_out = G.T @ A
        G.addmm_(dQKV, qkv)
        of_attention = dQKV.T @ rows, _column_sums(dQKV)[1], of_out, first[2], first[0], first[1]
        of_inner = dU.T @ Y, of_up_bias, of_down, last[2], last[0], last[1]
        return G.view_as(gradient), None, None, None, *of_attention, *of_inner


def fused_layer(X: Tensor, counts: Tensor, heads: int, epsilon: float, weights: Sequence[Tensor]) -> Tensor:
    """Return the hidden states [b, l, h] after a layer.

    Args:
        X: the hidden states before it; l is at most `LONGEST`.
        counts: [b] how many tokens each sentence has, of the l places; 32-bit integers, none of them zero.
        heads: how many heads there are; `check_heads` says which there can be.
        epsilon: of the layer norms.
        weights: those of the layer, in the order of `bert_layer`.
    """
    result: Tensor = _Layer.apply(X, counts, heads, epsilon, *weights)
    return result


def _attend(kernel: Any, QKV: Tensor, counts: Tensor, rest: Sequence[Tensor], length: int, heads: int) -> None:  # noqa: ANN401 - triton's
    D, block = QKV.shape[1] // (3 * heads), max(_SMALLEST, triton.next_power_of_2(length))
    kernel[(len(counts) * heads,)](
        QKV, counts, *rest, length, heads, D**-0.5, D=D, BLOCK=block, num_warps=max(1, block // 32)
    )  # fmt: skip


def _normed(
    H: Tensor, bias: Tensor, X: Tensor, scale: Tensor, shift: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the layer norm Y of Z = H + bias + X, Z, and means and inverse deviations [n, 2]; all rows [n, D]."""
    n, D = H.shape
    Z, Y = H, torch.empty_like(H)  # in the same place: a row is read before it is written
    statistics = torch.empty(n, 2, dtype=torch.float32, device=H.device)
    block = triton.next_power_of_2(D)
    _norm_kernel[(n,)](
        H, bias, X, scale, shift, Z, Y, statistics, epsilon, D=D, BLOCK=block, num_warps=max(1, block // 256)
    )  # fmt: skip
    return Y, Z, statistics


def _norm_gradient(G: Tensor, Z: Tensor, statistics: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of Z from that of Y, and those of scale, shift and bias [3, D]."""
    n, D = Z.shape
    R, programs, block = torch.empty_like(Z), min(n, _PROGRAMS), triton.next_power_of_2(D)
    sums = torch.empty(programs, 3, D, dtype=torch.float32, device=Z.device)
    _norm_gradient_kernel[(programs,)](
        G.contiguous(), Z, statistics, scale, R, sums, n, D=D, BLOCK=block, num_warps=max(1, block // 256)
    )  # fmt: skip
    return R, sums.sum(dim=0).to(Z.dtype)


def _column_sums(G: Tensor, U: Tensor | None = None, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return G [n, D] and its sums [D]; given U and its bias, the gradient of U from that of its gelu, and its sums."""
    n, D = G.shape
    parts = triton.cdiv(D, _COLUMNS)
    programs = max(1, min(triton.cdiv(n, _ROWS), _PROGRAMS // parts))
    sums = torch.empty(programs, D, dtype=torch.float32, device=G.device)
    _column_kernel[(programs, parts)](
        G, G if U is None else U, G if bias is None else bias, G, sums, n, D,
        GELU=U is not None, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=4,
    )  # fmt: skip
    return G, sums.sum(dim=0).to(G.dtype)
