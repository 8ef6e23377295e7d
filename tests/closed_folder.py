"""A folder whose files may not even be looked at; root, who runs the tests in containers, may look at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest


def close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to look at, to make or to list what is in the folder."""

    def closed(function: Any) -> Any:  # noqa: ANN401 - a function of the system
        def guarded(path: Any, *args: Any, **how: Any) -> Any:  # noqa: ANN401 - see above
            if isinstance(path, str | os.PathLike) and folder in Path(path).absolute().parents:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return function(path, *args, **how)

        return guarded

    for name in ("stat", "mkdir", "open"):
        monkeypatch.setattr(os, name, closed(getattr(os, name)))
