"""Folders of Qdrant's embedded mode, looked at before its client reads them.

The client keeps points as pickles, and whoever unpickles a stranger's file runs the stranger's code. What a folder of
its own holds are the client's own data classes and nothing else, so that is all that is let through.
"""

from __future__ import annotations

import io
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path

from ensembed.errors import StoreError

_MODELS = "qdrant_client.http.models"


class _OnlyModels(pickle.Unpickler):  # it refuses everything that could run
    def find_class(self, module: str, name: str) -> type:
        """A data class of the client's, or an error."""
        from pydantic import BaseModel

        if module == _MODELS or module.startswith(f"{_MODELS}."):
            found = super().find_class(module, name)
            if isinstance(found, type) and issubclass(found, BaseModel):
                return found
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def check_folder(folder: Path) -> None:
    """Refuse a folder whose pickles hold anything but points.

    Raises:
        StoreError: one does, or a file is damaged.
    """
    for path in sorted(folder.rglob("*.sqlite")):
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                for (blob,) in database.execute("SELECT point FROM points"):
                    _OnlyModels(io.BytesIO(blob)).load()
        except (pickle.UnpicklingError, sqlite3.Error, EOFError, AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"{path} is damaged, or not Qdrant's own: {error}; it is not opened") from error
