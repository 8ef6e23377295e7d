"""The vectors of recent texts, in a bounded number of bytes."""

from __future__ import annotations

import os
from collections import OrderedDict
from hashlib import blake2b

from ensembed.encoders.base import FloatArray

# What an entry takes besides its numbers: a key, an array's head, a place in the order. Measured, rounded up.
_OVERHEAD = 400


class Recent:
    """Forgets what was not asked for the longest.

    Texts are known by a keyed hash: none is kept longer than its request, and nobody outside can make two collide.

    Args:
        limit: bytes; 0 keeps nothing.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._secret = os.urandom(16)
        self._rows: OrderedDict[bytes, FloatArray] = OrderedDict()
        self.size = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, kind: str, text: str) -> FloatArray | None:
        """The row of that kind for the text, if it is here."""
        if not self._limit:
            return None
        key = self._key(kind, text)
        row = self._rows.get(key)
        if row is None:
            self.misses += 1
            return None
        self.hits += 1
        self._rows.move_to_end(key)
        return row

    def put(self, kind: str, text: str, row: FloatArray) -> None:
        """Keep a row, and forget old ones where there is no room."""
        size = row.nbytes + _OVERHEAD
        if size > self._limit:
            return
        key = self._key(kind, text)
        if key in self._rows:
            self._rows.move_to_end(key)
            return
        kept = row.copy()  # a row of a batch would keep the whole batch
        kept.flags.writeable = False
        self._rows[key] = kept
        self.size += size
        while self.size > self._limit:
            _, old = self._rows.popitem(last=False)
            self.size -= old.nbytes + _OVERHEAD

    def _key(self, kind: str, text: str) -> bytes:
        return blake2b(text.encode(), digest_size=16, key=self._secret, person=kind.encode()).digest()
