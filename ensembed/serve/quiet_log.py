"""The server's log. Nothing that a client sent is in it: no text, no query, no path that is not ours, no key."""

from __future__ import annotations

import logging
from pathlib import PurePath

log = logging.getLogger("ensembed.serve")


def where(error: BaseException) -> str:
    """The kind of an error and the place it was raised, with its causes; messages can quote a text, so they are not."""
    told: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(told) < 4:
        frame = seen.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = ""
        if frame is not None:
            path = PurePath(frame.tb_frame.f_code.co_filename)
            place = f" at {path.parent.name}/{path.name}:{frame.tb_lineno}"
        told.append(type(seen).__name__ + place)
        seen = seen.__cause__
    return ", caused by ".join(told)
