"""What a server of `/v1/embeddings` replies: taken apart, and refused unless every vector is there and is one."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np

from ensembed.corpora.corpus import shorten
from ensembed.encoders.base import FloatArray


class ReplyError(Exception):
    """What is wrong with a reply; it goes on from the name of the server.

    Args:
        what: what is wrong.
        code: the status that the server would have given, had it not said that all is well.
    """

    def __init__(self, what: str, code: object = None) -> None:
        super().__init__(what)
        self.code = code


def read_reply(
    data: bytes, texts: Sequence[str], dim: int | None, show: Callable[[object], str] = shorten
) -> FloatArray:
    """The vectors [n, d] of the texts, in their order.

    Rows may come in any order if they are numbered. Without numbers their order has to be that of the texts.

    Args:
        data: JSON with `data`, a list of objects with `embedding` and `index`.
        texts: what was asked for.
        dim: the length of a vector; None where it is not known yet.
        show: makes a value presentable for errors.

    Raises:
        ReplyError: the reply is anything else.

    Example:
        >>> read_reply(b'{"data": [{"index": 1, "embedding": [3]}, {"index": 0, "embedding": [2]}]}', ["a", "b"], 1)
        array([[2.],
               [3.]], dtype=float32)
    """
    reply = parse(data)
    if reply is None:
        raise ReplyError(f"replies with something that is not JSON: {show(data.decode('utf-8', 'replace'))}", 502)
    rows = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(rows, list):
        facts = error_of(reply)
        raise ReplyError(f"replies with something else than vectors: {show(facts['message'])}", facts.get("code"))
    if not all(isinstance(row, dict) for row in rows):
        raise ReplyError(f"replies with a list of something else than objects: {show(rows)}")
    if len(rows) != len(texts):
        raise ReplyError(f"gives {len(rows)} vectors for {len(texts)} sentences")
    vectors = []
    for row, text in zip(_ordered(rows, show), texts, strict=True):
        try:
            vector = read_vector(row.get("embedding"), show)
        except ValueError as error:
            raise ReplyError(f"gives {error} for the sentence {shorten(text)}") from None
        dim = dim or len(vector)
        if len(vector) != dim:
            raise ReplyError(f"gives {len(vector)} dimensions instead of {dim} for the sentence {shorten(text)}")
        vectors.append(vector)
    return np.stack(vectors)


def _ordered(rows: list[dict[str, Any]], show: Callable[[object], str]) -> list[dict[str, Any]]:
    indices = [row.get("index") for row in rows]
    if all(index is None for index in indices):
        return rows
    place = {index: row for index, row in zip(indices, rows, strict=True) if type(index) is int}
    if sorted(place) != list(range(len(rows))):
        raise ReplyError(f"numbers its {len(rows)} vectors {show(indices)}, not from 0 to {len(rows) - 1}")
    return [place[i] for i in range(len(rows))]


def read_vector(raw: object, show: Callable[[object], str] = shorten) -> FloatArray:
    """The vector [d] that a reply holds as numbers, or as base64 of little-endian float32.

    Raises:
        ValueError: it is none; the message says what it is.

    Example:
        >>> read_vector("AACAPwAAAMA=")
        array([ 1., -2.], dtype=float32)
    """
    if isinstance(raw, str):
        try:
            data = base64.b64decode(raw, validate=True)
        except ValueError:
            raise ValueError(f"{show(raw)}, which is not base64,") from None
        if len(data) % 4:
            raise ValueError(f"{len(data)} bytes, which are no whole float32 numbers,")
        vector = np.frombuffer(data, "<f4").astype(np.float32)
    else:
        if not isinstance(raw, list) or not {type(number) for number in raw} <= {float, int}:
            raise ValueError(f"{show(raw)} instead of numbers")
        try:
            with np.errstate(over="ignore"):  # it becomes Inf, which is reported below
                vector = np.array(raw, np.float64).astype(np.float32)
        except OverflowError:  # an integer of 400 digits
            raise ValueError("NaN or Inf") from None
    if not len(vector):
        raise ValueError("a vector without numbers")
    if not np.isfinite(vector).all():
        raise ValueError("NaN or Inf")
    return vector


def parse(data: bytes) -> Any:  # noqa: ANN401 - whatever the server sent
    """What the bytes say, or None where they are not JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def error_of(reply: object) -> dict[str, Any]:
    """The facts of an error, wherever the server puts them; `message` is always among them.

    Example:
        >>> error_of({"error": {"message": "no such model", "code": 404}})
        {'message': 'no such model', 'code': 404}
        >>> error_of({"detail": "no such model"})["message"]
        'no such model'
    """
    inner = reply.get("error", reply) if isinstance(reply, dict) else reply
    facts = inner if isinstance(inner, dict) else {"message": inner}
    said = facts.get("message") or facts.get("detail") or reply
    return facts | {"message": said if isinstance(said, str) else json.dumps(said)}


def retry_after(value: str | None) -> float:
    """The seconds that the header `Retry-After` asks for, which holds seconds or a date; 0 where it says neither.

    Example:
        >>> retry_after("2"), retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), retry_after("soon")
        (2.0, 0.0, 0.0)
    """
    value = (value or "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return 0.0
    date = date if date.tzinfo else date.replace(tzinfo=timezone.utc)
    return max(0.0, (date - datetime.now(timezone.utc)).total_seconds())
