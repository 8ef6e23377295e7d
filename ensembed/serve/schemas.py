"""The replies, as OpenAPI describes them."""

from __future__ import annotations

from typing import Any

_NUMBER, _TEXT, _WHOLE = {"type": "number"}, {"type": "string"}, {"type": "integer"}
_MAYBE = {"type": ["string", "null"]}


def _object(**properties: Any) -> dict[str, Any]:  # noqa: ANN401 - schemas
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_MATRIX = _list(_list(_NUMBER))

EMBEDDINGS = _object(
    object={"const": "list"},
    data=_list(
        _object(object={"const": "embedding"}, index=_WHOLE, embedding={"anyOf": [_list(_NUMBER), _TEXT]}),
    ),
    model=_TEXT,
    usage=_object(prompt_tokens=_WHOLE, total_tokens=_WHOLE),
)
MODELS = _object(
    object={"const": "list"},
    data=_list(_object(id=_TEXT, object={"const": "model"}, created=_WHOLE, owned_by=_TEXT)),
)
SIMILARITY = _object(
    members=_list(_object(name=_TEXT, matrix=_MATRIX)),
    missing=_list(_TEXT),
    meta=_MATRIX,
    disagreement=_list(
        _object(first=_WHOLE, second=_WHOLE, spread=_NUMBER, difference=_NUMBER, highest=_MAYBE, lowest=_MAYBE)
    ),
)
SEARCH = _object(hits=_list(_object(id=_TEXT, score=_NUMBER, text=_MAYBE, metadata={})))
CARD = _object(
    name=_TEXT,
    dim=_WHOLE,
    key=_TEXT,
    method={"type": ["object", "null"]},
    members=_list(_object(name=_TEXT, dim=_WHOLE, weight=_NUMBER, whitened={"type": "boolean"})),
    rows=_WHOLE,
    corpus=_MAYBE,
    index={"type": ["object", "null"]},
)
STATUS = _object(status=_TEXT)
