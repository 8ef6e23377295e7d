"""The two endpoints of OpenAI's that clients of embeddings use."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Sequence

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from ensembed.encoders.base import FloatArray
from ensembed.serve.bodies import Bodies
from ensembed.serve.replies import ApiError, json_bytes, json_reply
from ensembed.serve.served import VECTORS, Served
from ensembed.serve.settings import Settings
from ensembed.serve.shapes import EmbeddingsRequest, parse
from ensembed.serve.vectors import Vectors, check_texts

# Numbers that are written before others get their turn: some milliseconds of work.
_BREATH = 65_536


class OpenAI:
    """`/v1/embeddings` and `/v1/models`.

    Args:
        served: the model.
        vectors: gives its rows.
        bodies: reads requests.
        settings: limits, and other names of the model.
    """

    def __init__(self, served: Served, vectors: Vectors, bodies: Bodies, settings: Settings) -> None:
        self._served = served
        self._vectors = vectors
        self._bodies = bodies
        self._settings = settings
        self.names = (served.name, *settings.aliases)

    async def embeddings(self, request: Request) -> Response:
        """Embed a text or a list of texts, as OpenAI's servers do."""
        asked = parse(EmbeddingsRequest, await self._bodies.read(request))
        self._check_model(asked.model)
        dim = self._served.dim if asked.dimensions is None else asked.dimensions
        if dim > self._served.dim:
            message = f"dimensions is {dim}, the model has {self._served.dim}: ask for at most so many"
            raise ApiError(400, message, param="dimensions", code="too_many_dimensions")
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        check_texts(texts, self._settings, "input")
        rows = await self._vectors.rows(VECTORS, texts, request)
        # Members count tokens differently, so words are counted.
        words = sum(len(text.split()) for text in texts)
        return json_bytes(await _written(rows, dim, asked.encoding_format == "base64", asked.model, words))

    async def models(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """List the model, under each of its names."""
        return json_reply({"object": "list", "data": [self._described(name) for name in self.names]})

    async def model(self, request: Request) -> Response:
        """The model of that name."""
        name = request.path_params["name"]
        self._check_model(name)
        return json_reply(self._described(name))

    def _described(self, name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": 0, "owned_by": "ensembed"}

    def _check_model(self, name: str) -> None:
        if name not in self.names:  # which is not repeated: it may hold anything
            message = f"there is no such model here: this server has {', '.join(self.names)}"
            raise ApiError(404, message, param="model", code="model_not_found")


async def _written(rows: Sequence[FloatArray], dim: int, packed: bool, model: str, words: int) -> bytes:
    """The reply. Rows are finite: the batcher has checked them."""
    tail = f'],"model":{json.dumps(model)},"usage":{{"prompt_tokens":{words},"total_tokens":{words}}}}}'
    parts = [b'{"object":"list","data":[']
    written = 0
    for part in _items(rows, dim, packed):
        parts.append(part)
        written += dim
        if written > _BREATH:
            written = 0
            await asyncio.sleep(0)
    return b"".join([*parts, tail.encode()])


def _items(rows: Sequence[FloatArray], dim: int, packed: bool) -> Iterator[bytes]:
    for i, row in enumerate(rows):
        numbers = row[:dim]
        if packed:
            value = b'"' + base64.b64encode(numbers.astype("<f4", copy=False).tobytes()) + b'"'
        else:
            value = to_json(numbers.tolist())
        yield b'%s{"object":"embedding","index":%d,"embedding":%s}' % (b"," if i else b"", i, value)
