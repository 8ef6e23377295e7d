"""Batches of row-aligned views on a device, in a new order every epoch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensembed.errors import ViewError
from ensembed.numerics.row_matrices import Matrix, non_finite
from ensembed.support.progress import Progress

# Rows that are read together: a shard of a stored view has as many.
_CHUNK = 4096
# Views that take less than this part of a device's memory stay there. Of all its memory, not of what is free: whether
# they do changes the order of rows, and the same device is to give the same result.
_RESIDENT = 0.5
# Where nothing tells.
_USUAL_MEMORY = 8 << 30


class Batches(Protocol):
    """Where batches come from."""

    def begin(self, epoch: int) -> None:
        """Draw a new order."""

    def fill(self, buffers: Sequence[Tensor], keep: Tensor | None) -> None:
        """Put the next rows into buffers [b, d_j], and which views they keep into keep [J, b, 1]."""

    def close(self) -> None:
        """There are no more epochs."""


def make_batches(
    views: Sequence[Matrix], dtype: torch.dtype, device: str, seed: int, dropout: float, progress: Progress
) -> Batches:
    """Batches from the device's own memory where the views fit, else streamed to it."""
    kind = Resident if are_resident(views, dtype, device) else Streamed
    return kind(views, dtype, device, seed, dropout, progress)


def are_resident(views: Sequence[Matrix], dtype: torch.dtype, device: str) -> bool:
    """Whether the views stay in the device's memory."""
    size = sum(view.shape[0] * view.shape[1] for view in views) * int(dtype.itemsize)
    return size <= _RESIDENT * _memory(device)


class Resident:
    """All rows on the device, drawn without replacement.

    Args:
        views: arrays, memory maps or stored views [n, d_j].
        dtype: what they are kept in.
        device: where.
        seed: of the order and of dropout.
        dropout: the part of views that are left out.
        progress: told of rows that are read.
    """

    def __init__(
        self, views: Sequence[Matrix], dtype: torch.dtype, device: str, seed: int, dropout: float, progress: Progress
    ) -> None:
        n = views[0].shape[0]
        self._views = [torch.empty(n, view.shape[1], dtype=dtype, device=device) for view in views]
        for start in range(0, n, _CHUNK):
            for target, block in zip(self._views, _read(views, start, min(start + _CHUNK, n)), strict=True):
                target[start : start + len(block)] = torch.from_numpy(block).to(device)
            progress("read views", min(start + _CHUNK, n), n)
        self._seed, self._dropout, self._device = seed, dropout, device
        self._order = torch.empty(0, dtype=torch.long, device=device)
        self._next = 0

    def begin(self, epoch: int) -> None:
        """Draw a new order."""
        generator = torch.Generator(self._device).manual_seed(_mixed(self._seed, epoch))
        self._order = torch.randperm(len(self._views[0]), generator=generator, device=self._device)
        self._generator = generator
        self._next = 0

    def fill(self, buffers: Sequence[Tensor], keep: Tensor | None) -> None:
        """Put the next rows into the buffers."""
        rows = self._order[self._next : self._next + len(buffers[0])]
        self._next += len(rows)
        for buffer, view in zip(buffers, self._views, strict=True):
            torch.index_select(view, 0, rows, out=buffer)
        if keep is not None:
            draw_kept(keep, self._dropout, self._generator)

    def close(self) -> None:
        """Nothing is under way."""


class Streamed:
    """Rows that are read from where they are, window by window, while the device computes.

    An epoch visits chunks of neighbouring rows in random order, some at a time, and mixes the rows of those.

    Args:
        views: arrays, memory maps or stored views [n, d_j].
        dtype: what batches are in.
        device: where they go.
        seed: of the order and of dropout.
        dropout: the part of views that are left out.
        progress: not told: reading is part of every epoch.
        window: chunks whose rows are mixed; while one is used and the next is read, some four times its size is in
            memory.
    """

    def __init__(
        self,
        views: Sequence[Matrix],
        dtype: torch.dtype,
        device: str,
        seed: int,
        dropout: float,
        progress: Progress,  # noqa: ARG002 - as the other kind has it
        window: int = 32,
    ) -> None:
        self._views, self._dtype, self._device = views, dtype, device
        self._seed, self._dropout, self._window = seed, dropout, window
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="ensembed-read")
        self._windows: Iterator[NDArray[np.intp]] = iter(())
        self._following: Future[list[Tensor]] | None = None
        self._rows: list[Tensor] = []
        self._next = 0

    def begin(self, epoch: int) -> None:
        """Draw a new order, and begin to read."""
        self._generator = torch.Generator(self._device).manual_seed(_mixed(self._seed, epoch))
        self._random = np.random.default_rng([self._seed, epoch])
        chunks = self._random.permutation(-(-self._views[0].shape[0] // _CHUNK))
        self._windows = iter([chunks[i : i + self._window] for i in range(0, len(chunks), self._window)])
        self._rows, self._next = [], 0
        self._following = self._read_ahead()

    def fill(self, buffers: Sequence[Tensor], keep: Tensor | None) -> None:
        """Put the next rows into the buffers."""
        done = 0
        while done < len(buffers[0]):
            if not self._rows or self._next == len(self._rows[0]):
                if self._following is None:
                    raise RuntimeError("an epoch has no more rows")
                self._rows, self._next = self._following.result(), 0
                self._following = self._read_ahead()
            count = min(len(buffers[0]) - done, len(self._rows[0]) - self._next)
            for buffer, rows in zip(buffers, self._rows, strict=True):
                buffer[done : done + count].copy_(rows[self._next : self._next + count], non_blocking=True)
            self._next += count
            done += count
        if keep is not None:
            draw_kept(keep, self._dropout, self._generator)

    def close(self) -> None:
        """Stop reading ahead."""
        self._reader.shutdown(cancel_futures=True)

    def _read_ahead(self) -> Future[list[Tensor]] | None:
        chunks = next(self._windows, None)
        # The order within a window is drawn here, where it does not depend on when the reader runs.
        seed = int(self._random.integers(2**63))
        return None if chunks is None else self._reader.submit(self._read_window, chunks, seed)

    def _read_window(self, chunks: NDArray[np.intp], seed: int) -> list[Tensor]:
        n = self._views[0].shape[0]
        parts = [_read(self._views, int(c) * _CHUNK, min((int(c) + 1) * _CHUNK, n)) for c in chunks]
        order = torch.from_numpy(np.random.default_rng(seed).permutation(sum(len(part[0]) for part in parts)))
        rows = [torch.from_numpy(np.concatenate(blocks)).to(self._dtype)[order] for blocks in zip(*parts, strict=True)]
        return [X.pin_memory() for X in rows] if self._device.startswith("cuda") else rows


def draw_kept(keep: Tensor, dropout: float, generator: torch.Generator) -> None:
    """Fill keep [J, b, 1] with ones, and zeros where a view is left out; of every row at least one view is kept."""
    drawn = torch.rand(keep.shape, generator=generator, device=keep.device)
    # The view with the largest number stays whatever happens.
    keep.copy_((drawn >= dropout) | (drawn == drawn.max(0, keepdim=True).values))


def _read(views: Sequence[Matrix], start: int, stop: int) -> list[NDArray[Any]]:
    """Rows of every view, in numbers that torch knows, or a ViewError that names one which is none."""
    blocks = [np.ascontiguousarray(view[start:stop]) for view in views]
    for j, block in enumerate(blocks):
        if not np.isfinite(block).all():
            raise ViewError(non_finite([block], start, [j]))
    # torch wants arrays that it may write to, and those of a stored view are not.
    kinds = [np.float64 if block.dtype.itemsize > 4 else np.float32 for block in blocks]
    return [block.astype(kind, copy=not block.flags.writeable) for block, kind in zip(blocks, kinds, strict=True)]


def _memory(device: str) -> int:
    """All the memory of a device, in bytes."""
    if device.startswith("cuda"):
        return int(torch.cuda.get_device_properties(torch.device(device)).total_memory)
    if not hasattr(os, "sysconf"):  # Windows
        return _USUAL_MEMORY
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError, ValueError):  # a container may have less than its machine
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(sizes)


def _mixed(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> np.uint64(1))
