"""Views on disk: an encoder's vectors of a corpus, in checksummed shards. May import `encoders` and all below it."""

from __future__ import annotations

from ensembed.views.store import View, ViewStore

__all__ = ["View", "ViewStore"]
