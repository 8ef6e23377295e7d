"""Search over your own texts: an index is a folder that any process can open, add to and search."""

from __future__ import annotations

from ensembed.search.index import Hit, Index

__all__ = ["Hit", "Index"]
