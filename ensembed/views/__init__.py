"""Views on disk: one encoder's vectors of one corpus, in checksummed shards that survive an interruption.

It may import `encoders`, `numerics`, `corpora` and what is below them.
"""

from __future__ import annotations

from ensembed.views.store import View, ViewStore

__all__ = ["View", "ViewStore"]
