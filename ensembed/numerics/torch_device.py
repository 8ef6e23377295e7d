"""Moments and eigenproblems on a GPU, or wherever else torch computes, all in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from subprocess import SubprocessError
from typing import Any

import numpy as np

from ensembed.errors import InputError, TrainingError, ViewError
from ensembed.numerics.moments import tiles
from ensembed.numerics.row_matrices import Array64, TensorMatrix, Views, column_slices, find_non_finite
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent

# Rows per product: a float64 copy of so many rows of 2,136 columns takes half a gigabyte.
_BLOCK = 32_768
# Largest number of columns of a tile: only wide products use a whole GPU.
_TILE = 720


def checked_device(device: str) -> Any:  # noqa: ANN401 - torch's own type
    """Return the torch device of that name; an InputError or MissingError says what is wrong with it."""
    torch = import_extra("torch", "ae", f"device={device!r}")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"torch has no device {device!r}: {str(error).splitlines()[0]}") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {device!r}: torch {torch.__version__} finds no CUDA device here; leave `device` out")
    if chosen.type == "mps":
        raise InputError("device 'mps' cannot compute in float64; leave `device` out")
    return chosen


@contextmanager
def memory_errors(lower: str) -> Iterator[None]:
    """Raise a TrainingError if memory runs out; `lower` names what to lower."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # torch's own for a GPU is a RuntimeError; for the CPU it has none
        if isinstance(error, MemoryError) or "memory" in str(error).lower():
            reason = str(error).splitlines()[0][:200] if str(error) else "memory is full"
            way = f"lower {lower}, or choose another device"
            raise TrainingError(f"there is not enough memory to train: {reason}; {way}") from error
        raise


def kernel_errors() -> tuple[type[Exception], ...]:
    """Return what making a kernel of our own may raise: triton is for Linux, and needs more than itself.

    A C compiler (RuntimeError, OSError), Python's headers (SubprocessError), and a GPU that it knows and that has room
    for the kernel's tiles (an error of its own).
    """
    others = (ImportError, RuntimeError, OSError, SubprocessError)
    try:
        from triton.errors import TritonError
    except others:  # it is not here, or cannot start
        return others
    return (*others, TritonError)


def shifted_sums_on(
    device: str, views: Views, *, normalize: bool = False, progress: Progress = silent
) -> tuple[Array64, Array64, Array64]:
    """Return what `moments.shifted_sums` returns, computed on a device in float64.

    Tensors on the device are used as they are; everything else is read in threads and copied in blocks.
    """
    torch = import_extra("torch", "ae", f"device={device!r}")
    where = checked_device(device)
    n, dims = views[0].shape[0], [view.shape[1] for view in views]
    D = sum(dims)
    double: dict[str, Any] = {"dtype": torch.float64, "device": where}
    products, total, shift = (torch.zeros(shape, **double) for shape in ((D, D), D, D))
    X = torch.empty((min(_BLOCK, n), D), **double)
    parts = tiles(D, _TILE)
    with torch.no_grad():
        for start, blocks in _blocks(torch, views, where):
            rows = X[: len(blocks[0])]
            for place, block in zip(torch.split(rows, dims, dim=1), blocks, strict=True):
                place.copy_(block)
                if normalize:
                    _scale_rows(torch, place)
            if start == 0:
                shift = rows.mean(dim=0)
            rows -= shift
            total += rows.sum(dim=0)
            for i, j in parts:
                products[i, j].addmm_(rows[:, i].T, rows[:, j])
            progress("moments", start + len(rows), n)
        for i, j in parts:
            if i != j:
                products[j, i] = products[i, j].T
            else:
                products[i, i] = torch.triu(products[i, i]) + torch.triu(products[i, i], 1).T
        # Checked once at the end: a check of every block would make the device wait for the host.
        if not bool(torch.isfinite(total).all()):
            problem = find_non_finite(views)
            raise ViewError(problem or "the views hold values too large to compute with; scale them down")
        host: list[Array64] = [tensor.cpu().numpy() for tensor in (shift, total, products)]
    return host[0], host[1], host[2]


def top_eigh_on(device: str, S: Array64, k: int) -> tuple[Array64, Array64]:
    """Return what `eigen.top_eigh` returns: the k largest eigenvalues of S [D, D], descending, and vectors [D, k]."""
    torch = import_extra("torch", "ae", f"device={device!r}")
    values, vectors = _top_eigh(torch, torch.as_tensor(S, device=checked_device(device)), k)
    return values.cpu().numpy(), vectors.cpu().numpy()


def gcca_on(
    device: str, covariance: Array64, dims: Sequence[int], *, tau: float, dim: int, resolution: float
) -> tuple[Array64, Array64] | None:
    """Return the `dim` largest rho of GCCA's problem, descending, and theta [D, dim] with theta' B theta = 1.

    None if a block does not have full rank or there are fewer than `dim` columns: the host then reports the error.
    """
    torch = import_extra("torch", "ae", f"device={device!r}")
    if dim > sum(dims):
        return None
    with torch.no_grad():
        S = torch.as_tensor(covariance, device=checked_device(device))
        places = column_slices(dims)
        factors, ranks = [], []
        for place in places:
            block = S[place, place]
            trace = torch.trace(block)
            # Full rank as on the host: no pivot of the block without its ridge vanishes.
            plain, wrong = torch.linalg.cholesky_ex(block)
            ranks.append((wrong == 0) & (plain.diagonal().square().min() > resolution * trace))
            eye = torch.eye(len(block), dtype=S.dtype, device=S.device)
            factors.append(torch.linalg.cholesky_ex(block + (tau / len(block) * trace) * eye)[0])
        if not bool(torch.stack(ranks).all()):
            return None
        # M = L^-1 offdiagonal(S) L^-T by triangular solves, which keep more digits than inverses.
        M = torch.zeros_like(S)
        for i, a in enumerate(places):
            row = S[a, : a.start]
            if i:
                row = torch.linalg.solve_triangular(factors[i], row, upper=False)
                for j, b in enumerate(places[:i]):
                    M[a, b] = torch.linalg.solve_triangular(factors[j], row[:, b].T, upper=False).T
                    M[b, a] = M[a, b].T
        rho, U = _top_eigh(torch, M, dim)
        theta = torch.cat(
            [torch.linalg.solve_triangular(L.T, U[a], upper=True) for L, a in zip(factors, places, strict=True)]
        )
        largest = torch.gather(theta, 0, theta.abs().argmax(dim=0, keepdim=True))
        theta = theta * torch.where(largest < 0, -1.0, 1.0)
        return rho.cpu().numpy(), theta.cpu().numpy()


def _top_eigh(torch: Any, S: Any, k: int) -> tuple[Any, Any]:  # noqa: ANN401 - torch has no types here
    """Compute all eigenvectors: divide and conquer is faster on a device than methods for a part of them."""
    values, vectors = torch.linalg.eigh(S)
    return values.flip(0)[:k], vectors.flip(1)[:, :k]


def _scale_rows(torch: Any, X: Any) -> None:  # noqa: ANN401 - torch is imported when it is used
    """Scale rows to length one in place; in float64 no square of a float32 overflows or vanishes."""
    largest = X.abs().amax(dim=1, keepdim=True)
    X /= torch.where(largest == 0, 1.0, largest)
    lengths = torch.linalg.vector_norm(X, dim=1, keepdim=True)
    X /= torch.where(lengths == 0, 1.0, lengths)


def _blocks(torch: Any, views: Views, where: Any) -> Iterator[tuple[int, list[Any]]]:  # noqa: ANN401 - torch is imported when it is used
    """Yield first row and tensors of every block; the next block of views that are not tensors is read meanwhile."""
    n = views[0].shape[0]

    def part(j: int, start: int) -> Any:  # noqa: ANN401 - torch is imported when it is used
        view = views[j]
        if isinstance(view, TensorMatrix):
            return view.tensor[start : start + _BLOCK]
        block = np.ascontiguousarray(view[start : start + _BLOCK])
        if len(block) != min(_BLOCK, n - start):
            raise ViewError(f"view {j} has {n} rows by its shape, but ends at row {start + len(block)}")
        known = block.dtype in (np.float32, np.float64, np.float16)
        # torch warns of read-only arrays: a block inside one shard is copied.
        return torch.from_numpy(block.astype(block.dtype if known else np.float64, copy=not block.flags.writeable))

    if all(isinstance(view, TensorMatrix) for view in views):
        for start in range(0, n, _BLOCK):
            yield start, [part(j, start).to(where) for j in range(len(views))]
        return
    with ThreadPoolExecutor(len(views)) as pool:
        ahead = [pool.submit(part, j, 0) for j in range(len(views))]
        for start in range(0, n, _BLOCK):
            blocks = [read.result() for read in ahead]
            if start + _BLOCK < n:
                ahead = [pool.submit(part, j, start + _BLOCK) for j in range(len(views))]
            yield start, [block.to(where) for block in blocks]
