"""Batches of row-aligned views on a device, in a new order every epoch."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensembed.errors import ViewError
from ensembed.numerics.process_group import mixed_seed
from ensembed.numerics.row_matrices import Matrix, non_finite
from ensembed.support.progress import Progress

_CHUNK = 4096  # rows that are read together: a shard of a stored view has as many
# Views up to this part of a device's whole memory stay there. The free part would not give the same result every time.
_RESIDENT = 0.5
_USUAL_MEMORY = 8 << 30  # memory of a machine that does not say how much it has


def make_batches(
    views: Sequence[Matrix], dtype: torch.dtype, device: str, seed: int, dropout: float, progress: Progress
) -> Batches:
    """Return batches from the device's own memory if the views fit, and otherwise streamed to it."""
    if are_resident(views, dtype, device):
        return Resident(views, dtype, device, seed, dropout, progress)
    return Streamed(views, dtype, device, seed, dropout)


def are_resident(views: Sequence[Matrix], dtype: torch.dtype, device: str) -> bool:
    """Return whether the views stay in the device's memory."""
    size = sum(view.shape[0] * view.shape[1] for view in views) * int(dtype.itemsize)
    return size <= _RESIDENT * _memory(device)


class Batches(ABC):
    """A source of batches."""

    def __init__(self, device: str, seed: int, dropout: float) -> None:
        self._device, self._seed, self._dropout = device, seed, dropout
        self._next = 0

    def begin(self, epoch: int) -> None:
        """Draw a new order."""
        self._generator = torch.Generator(self._device).manual_seed(mixed_seed(self._seed, epoch))
        self._next = 0

    def fill(self, buffers: Sequence[Tensor], keep: Tensor | None) -> None:
        """Put the next rows into buffers [b, d_j], and which views they keep into keep [J, b, 1]."""
        self._put_rows(buffers)
        if keep is not None:
            draw_kept(keep, self._dropout, self._generator)

    def close(self) -> None:  # noqa: B027 - most have nothing to stop
        """Stop: there are no more epochs."""

    @abstractmethod
    def _put_rows(self, buffers: Sequence[Tensor]) -> None:
        """Put the next rows into the buffers."""


class Resident(Batches):
    """All rows on the device, drawn without replacement; see `make_batches`."""

    def __init__(
        self, views: Sequence[Matrix], dtype: torch.dtype, device: str, seed: int, dropout: float, progress: Progress
    ) -> None:
        super().__init__(device, seed, dropout)
        n = views[0].shape[0]
        self._views = [torch.empty(n, view.shape[1], dtype=dtype, device=device) for view in views]
        for start in range(0, n, _CHUNK):
            for target, block in zip(self._views, _read(views, start, min(start + _CHUNK, n)), strict=True):
                target[start : start + len(block)] = torch.from_numpy(block).to(device)
            progress("read views", min(start + _CHUNK, n), n)
        self._order = torch.empty(0, dtype=torch.long, device=device)

    def begin(self, epoch: int) -> None:
        """Draw a new order."""
        super().begin(epoch)
        self._order = torch.randperm(len(self._views[0]), generator=self._generator, device=self._device)

    def _put_rows(self, buffers: Sequence[Tensor]) -> None:
        rows = self._order[self._next : self._next + len(buffers[0])]
        self._next += len(rows)
        for buffer, view in zip(buffers, self._views, strict=True):
            torch.index_select(view, 0, rows, out=buffer)


class Streamed(Batches):
    """Rows read from disk while the device computes: random chunks, `window` at a time, with their rows mixed."""

    def __init__(
        self, views: Sequence[Matrix], dtype: torch.dtype, device: str, seed: int, dropout: float, window: int = 32
    ) -> None:
        super().__init__(device, seed, dropout)
        self._views, self._dtype, self._window = views, dtype, window
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="ensembed-read")
        self._windows: Iterator[NDArray[np.intp]] = iter(())
        self._following: Future[list[Tensor]] | None = None
        self._rows: list[Tensor] = []

    def begin(self, epoch: int) -> None:
        """Draw a new order, and begin to read."""
        super().begin(epoch)
        self._random = np.random.default_rng([self._seed, epoch])
        chunks = self._random.permutation(-(-self._views[0].shape[0] // _CHUNK))
        self._windows = iter([chunks[i : i + self._window] for i in range(0, len(chunks), self._window)])
        self._rows = []
        self._following = self._read_ahead()

    def _put_rows(self, buffers: Sequence[Tensor]) -> None:
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

    def close(self) -> None:
        """Stop reading ahead."""
        self._reader.shutdown(cancel_futures=True)

    def _read_ahead(self) -> Future[list[Tensor]] | None:
        chunks = next(self._windows, None)
        # The order within a window is drawn here, so that it does not depend on when the reader runs.
        seed = int(self._random.integers(2**63))
        return None if chunks is None else self._reader.submit(self._read_window, chunks, seed)

    def _read_window(self, chunks: NDArray[np.intp], seed: int) -> list[Tensor]:
        n = self._views[0].shape[0]
        parts = [_read(self._views, int(c) * _CHUNK, min((int(c) + 1) * _CHUNK, n)) for c in chunks]
        order = torch.from_numpy(np.random.default_rng(seed).permutation(sum(len(part[0]) for part in parts)))
        rows = [torch.from_numpy(np.concatenate(blocks)).to(self._dtype)[order] for blocks in zip(*parts, strict=True)]
        return [X.pin_memory() for X in rows] if self._device.startswith("cuda") else rows


def draw_kept(keep: Tensor, dropout: float, generator: torch.Generator) -> None:
    """Fill keep [J, b, 1] with ones, and zeros where a view is left out; every row keeps at least one view."""
    drawn = torch.rand(keep.shape, generator=generator, device=keep.device)
    # The view with the largest number always stays.
    keep.copy_((drawn >= dropout) | (drawn == drawn.max(0, keepdim=True).values))


def _read(views: Sequence[Matrix], start: int, stop: int) -> list[NDArray[Any]]:
    """Return rows of every view as float32 or float64; a ViewError names a row with NaN or Inf."""
    blocks = [np.ascontiguousarray(view[start:stop]) for view in views]
    for j, block in enumerate(blocks):
        if not np.isfinite(block).all():
            raise ViewError(non_finite([block], start, [j]))
    # torch needs writable arrays, and those of a stored view are not.
    kinds = [np.float64 if block.dtype.itemsize > 4 else np.float32 for block in blocks]
    return [block.astype(kind, copy=not block.flags.writeable) for block, kind in zip(blocks, kinds, strict=True)]


def _memory(device: str) -> int:
    """Return the total memory of a device, in bytes."""
    if device.startswith("cuda"):
        return int(torch.cuda.get_device_properties(torch.device(device)).total_memory)
    if not hasattr(os, "sysconf"):  # Windows
        return _USUAL_MEMORY
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError, ValueError):  # a container may have less than its machine
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(sizes)
