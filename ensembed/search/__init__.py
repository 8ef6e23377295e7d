"""The search index, a folder that any process can open, and groups of sentences. May import `sts` and all below it."""

from __future__ import annotations

from ensembed.search.search_index import Hit, Index

__all__ = ["Hit", "Index"]
