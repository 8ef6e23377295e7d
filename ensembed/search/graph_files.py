"""The structure of a file that usearch wrote, checked before usearch opens it.

usearch believes its files: a link to a row that is not there makes it read any address, and crashes the process. A hash
does not help, since whoever wrote the links wrote the hash, too. So every count, size, level and link is checked here.
Then a search reads only rows and lists of links that are in the file. What the vectors say does not matter for that.

A file has the number and width of the vectors, the vectors, a head, the level of every node, and the nodes. A node is
a key, its level, and a list of links for level 0 and each level up to its own. A list has room for a fixed number of
links, and counts those that it has. `tests/search/test_graph_files.py` compares all this with what usearch writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_SIZES = np.dtype([("rows", "<u4"), ("width", "<u4")])
_HEAD = np.dtype(
    [
        *(("magic", "S7"), ("version", "<u2"), ("minor", "<u4"), ("kinds", "<u4")),
        *(("present", "<u8"), ("deleted", "<u8"), ("dim", "<u8"), ("rest", "S23")),
        *(("nodes", "<u8"), ("links", "<u8"), ("base_links", "<u8"), ("top", "<u8"), ("entry", "<u8")),
    ]
)
_FIXED = ("magic", "version", "kinds", "dim", "rest", "links", "base_links")  # the same in all files of one kind
_NODE = np.dtype([("key", "<u8"), ("level", "<i2")])
_NODES = 1 << 15  # nodes that are checked at a time


def check_graph_file(path: Path, empty: Any) -> None:  # noqa: ANN401 - usearch has no types
    """Raise a ValueError if a file is not the whole graph of an index like `empty`, which has no rows."""
    file = _File(path)
    new = np.frombuffer(bytes(empty.save()), np.uint8)
    width, expected = int(new[: _SIZES.itemsize].view(_SIZES)["width"][0]), new[_SIZES.itemsize :].view(_HEAD)[0]
    sizes = file.read(_SIZES)[0]
    rows = int(sizes["rows"])
    file.skip(rows * int(sizes["width"]))
    head = file.read(_HEAD)[0]
    if sizes["width"] != width or any(head[name] != expected[name] for name in _FIXED):
        raise ValueError("it is the graph of other rows")
    if not rows == head["nodes"] == int(head["present"]) + int(head["deleted"]):
        raise ValueError(f"it has {rows} vectors for {head['nodes']} nodes")
    levels = file.read("<i2", rows).astype(np.int64)
    list_bytes, base_bytes = (4 + 4 * int(head[name]) for name in ("links", "base_links"))
    ends = file.position + np.cumsum(_NODE.itemsize + base_bytes + list_bytes * levels)
    if (levels < 0).any() or (ends[-1] if rows else file.position) != file.size:
        raise ValueError("its nodes have other sizes than the file")
    if not rows:
        return
    entry = int(head["entry"])
    if entry >= rows or int(head["top"]) > levels[entry]:
        raise ValueError(f"a search would begin at node {entry}, level {head['top']}, which is not there")
    starts = np.concatenate([[file.position], ends[:-1]])
    for first in range(0, rows, _NODES):
        nodes = np.arange(first, min(first + _NODES, rows))
        if (file.gather(starts[nodes], _NODE)["level"] != levels[nodes]).any():
            raise ValueError("a node has another level than the list of levels says")
        _check_links(file, starts[nodes] + _NODE.itemsize, int(head["base_links"]), levels, 0)
        upper, level = nodes[levels[nodes] > 0], 1
        while len(upper):
            begin = starts[upper] + _NODE.itemsize + base_bytes + list_bytes * (level - 1)
            _check_links(file, begin, int(head["links"]), levels, level)
            upper, level = upper[levels[upper] > level], level + 1


def _check_links(file: _File, starts: NDArray[np.int64], room: int, levels: NDArray[np.int64], level: int) -> None:
    """Raise a ValueError if a list has more links than room, or a link to a node that is not on its level."""
    lists = file.gather(starts, np.dtype([("count", "<u4"), ("nodes", "<u4", (room,))]))
    links = lists["nodes"][np.arange(room) < lists["count"][:, None]]
    if (lists["count"] > room).any() or (links >= len(levels)).any() or (levels[links] < level).any():
        raise ValueError(f"a link of level {level} leads nowhere")


class _File:
    """A file in memory that is read from its start."""

    def __init__(self, path: Path) -> None:
        self._bytes = np.memmap(path, np.uint8, "r")
        self.size, self.position = len(self._bytes), 0

    def skip(self, size: int) -> None:
        """Go on; a ValueError if the file ends before that."""
        self.position += size
        if self.position > self.size:
            raise ValueError("it is cut off")

    def read(self, dtype: DTypeLike, count: int = 1) -> NDArray[Any]:
        """Return the next values [count]."""
        begin = self.position
        self.skip(np.dtype(dtype).itemsize * count)
        return np.asarray(self._bytes[begin : self.position]).view(dtype)

    def gather(self, starts: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return copies of the values at these places, all of them in the file."""
        everywhere = np.ndarray((self.size - dtype.itemsize + 1,), dtype, self._bytes, strides=(1,))
        copies: NDArray[Any] = everywhere[starts]
        return copies
