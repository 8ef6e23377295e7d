"""The schemas of requests with this server's own limits in them, so that a client can know them beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ensembed.serve.settings import Settings
from ensembed.serve.shapes import EmbeddingsRequest, SearchRequest, SimilarityRequest


class Bounds:
    """JSON schemas of the requests.

    Args:
        settings: the limits.
        names: of the model.
        dim: of its vectors.
    """

    def __init__(self, settings: Settings, names: Sequence[str], dim: int) -> None:
        self._settings = settings
        self._names = list(names)
        self._dim = dim

    def embeddings(self) -> dict[str, Any]:
        """Of `/v1/embeddings`."""
        schema = EmbeddingsRequest.model_json_schema()
        fields = schema["properties"]
        self._limit(fields["input"], self._settings.max_items)
        fields["model"]["enum"] = self._names
        for kind in fields["dimensions"]["anyOf"]:
            if kind["type"] == "integer":
                kind["maximum"] = self._dim
        return schema

    def similarity(self) -> dict[str, Any]:
        """Of `/similarity`."""
        schema = SimilarityRequest.model_json_schema()
        self._limit(schema["properties"]["texts"], min(self._settings.max_similarity, self._settings.max_items))
        return schema

    def search(self) -> dict[str, Any]:
        """Of `/search`."""
        schema = SearchRequest.model_json_schema()
        self._limit(schema["properties"]["query"], 1)
        schema["properties"]["k"]["maximum"] = self._settings.max_hits
        return schema

    def _limit(self, field: dict[str, Any], items: int) -> None:
        """Add the limits to a text, a list of texts, or either."""
        for kind in field.get("anyOf", ()):
            self._limit(kind, items)
        if field.get("type") == "string":
            field["maxLength"] = self._settings.max_characters
        elif field.get("type") == "array":
            field["maxItems"] = items
            self._limit(field["items"], items)
