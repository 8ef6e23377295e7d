"""The other endpoints: similarity, search, the card, and what watches over a server asks for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from ensembed.serve.bodies import Bodies
from ensembed.serve.metrics import Metrics
from ensembed.serve.replies import ApiError, json_reply
from ensembed.serve.searches import Searches
from ensembed.serve.served import VECTORS, VIEWS, Hit, Served, SupportsSearch
from ensembed.serve.settings import Settings
from ensembed.serve.shapes import SearchRequest, SimilarityRequest, parse
from ensembed.serve.similarity import similarity_facts
from ensembed.serve.vectors import Vectors, check_texts


class Endpoints:
    """All that is not OpenAI's.

    Args:
        served: the model.
        vectors: gives rows.
        bodies: reads requests.
        settings: limits.
        metrics: what is counted.
        index: what is searched, if anything.
    """

    def __init__(
        self,
        served: Served,
        vectors: Vectors,
        bodies: Bodies,
        settings: Settings,
        metrics: Metrics,
        index: SupportsSearch | None,
    ) -> None:
        self._served = served
        self._vectors = vectors
        self._bodies = bodies
        self._settings = settings
        self._metrics = metrics
        self._index = index
        self._searches = None if index is None else Searches(index, settings)
        self.warm = False
        self.stopping = False

    async def similarity(self, request: Request) -> Response:
        """How alike texts are under each member and under the model, and where the members disagree."""
        body = await self._bodies.read(request, "texts", self._settings.max_similarity)
        asked = parse(SimilarityRequest, body)
        check_texts(asked.texts, self._settings, "texts", self._settings.max_similarity)
        rows = np.array(await self._vectors.rows(VIEWS, asked.texts, request))
        views, meta = self._served.split(rows)
        return json_reply(similarity_facts([encoder.spec.name for encoder in self._served.members], views, meta))

    async def search(self, request: Request) -> Response:
        """The texts of the index that are nearest to a query."""
        asked = parse(SearchRequest, await self._bodies.read(request, "query", 1))
        check_texts([asked.query], self._settings, "query")
        if asked.k > self._settings.max_hits:
            message = f"k is {asked.k}, at most {self._settings.max_hits} hits are given"
            raise ApiError(400, message, param="k", code="too_many_hits")
        if self._searches is None:
            message = "this server has no index: start it with --index FOLDER, which `ensembed index` makes"
            raise ApiError(404, message, code="no_index")
        query = np.array(await self._vectors.rows(VECTORS, [asked.query], request))
        hits = await self._searches.nearest(query, asked.k)
        return json_reply({"hits": [_plain(hit) for hit in hits]})

    async def card(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """What the model is made of."""
        return json_reply(self._served.card(self._index))

    async def health(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """Whether the process answers."""
        return json_reply({"status": "ok"})

    async def ready(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """Whether requests should be sent here."""
        if self.stopping or not self.warm:
            state = "the server is stopping" if self.stopping else "the model is not ready yet"
            raise ApiError(503, state, code="not_ready", headers={"Retry-After": "1"})
        if self._vectors.batcher.busy_seconds > self._settings.request_seconds:
            raise ApiError(503, "the model hangs", code="not_ready")
        return json_reply({"status": "ready"})

    async def metrics(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """What Prometheus reads."""
        text = self._metrics.text(self._vectors.recent, self._vectors.batcher.queued)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def close(self) -> None:
        """End the thread that searches."""
        if self._searches is not None:
            self._searches.close()


def _plain(hit: Hit) -> dict[str, Any]:
    score = float(hit.score)
    if not math.isfinite(score):
        raise ApiError(500, "the index gave a score that is not a finite number", code="index_failed")
    return {"id": hit.id, "score": score, "text": hit.text, "metadata": hit.metadata}
