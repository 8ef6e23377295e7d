"""The replies of `/v1/embeddings`: vectors are accepted only if there is a finite one for every sentence."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Sequence
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np

from ensembed.corpora.corpus import shorten
from ensembed.encoders.base import FloatArray


class ReplyError(Exception):
    """A reply is unusable; `code` is the error code in a reply whose status is success."""

    def __init__(self, what: str, code: object = None) -> None:
        super().__init__(what)
        self.code = code


def read_reply(
    data: bytes, texts: Sequence[str], dim: int | None, show: Callable[[object], str] = shorten
) -> FloatArray:
    """Return the vectors [n, d] of the texts, in their order.

    Rows may come in any order if they are numbered. Without numbers their order has to be that of the texts. `dim` is
    None where the length of a vector is not known yet; `show` prints a value for errors.

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
    by_index = {index: row for index, row in zip(indices, rows, strict=True) if type(index) is int}
    if sorted(by_index) != list(range(len(rows))):
        raise ReplyError(f"numbers its {len(rows)} vectors {show(indices)}, not from 0 to {len(rows) - 1}")
    return [by_index[i] for i in range(len(rows))]


def read_vector(raw: object, show: Callable[[object], str] = shorten) -> FloatArray:
    """Return the vector [d] that a reply holds as numbers, or as base64 of little-endian float32, or a ValueError."""
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
    """Parse JSON; return None where it is not JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def error_of(reply: object) -> dict[str, Any]:
    """Return the facts of an error, wherever the server puts them; `message` is always among them."""
    inner = reply.get("error", reply) if isinstance(reply, dict) else reply
    facts = inner if isinstance(inner, dict) else {"message": inner}
    message = facts.get("message") or facts.get("detail") or reply
    return facts | {"message": message if isinstance(message, str) else json.dumps(message)}


def retry_after(value: str | None) -> float:
    """Return the seconds of the header `Retry-After`, which holds seconds or a date; 0 where it holds neither."""
    value = (value or "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return 0.0
    return max(0.0, date.replace(tzinfo=date.tzinfo or timezone.utc).timestamp() - time.time())
