"""An extension of griffe: our docstrings write `Example:`, which it only knows as `Examples:`."""

from __future__ import annotations

from typing import Any

import griffe


class DocstringExamples(griffe.Extension):  # type: ignore[misc] # the types of griffe are not read
    """Renames the section of examples in every docstring."""

    def on_object(self, *, obj: griffe.Object, **_kwargs: Any) -> None:  # noqa: ANN401 - griffe's own
        """Rename it in one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
