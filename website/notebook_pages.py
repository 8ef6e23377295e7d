"""A notebook as a page of the site: Markdown as it is, code in fences, and each cell's output below it."""

from __future__ import annotations

from typing import Any

# The richest form of an output that a page can show.
_FORMS = ("image/svg+xml", "text/html", "text/markdown", "text/plain")


def to_page(notebook: dict[str, Any], name: str) -> str:
    """Return the Markdown page of a parsed notebook whose file is called `name`."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        text = _text(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif cell["cell_type"] == "code" and text.strip():
            parts += [_fence(text, "python"), *(_output(one) for one in cell["outputs"])]
    parts.append(f"[Download this notebook]({name}){{ download }}. A test executes it and compares the output.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _fence(_text(output["text"]), "text")
    form = next((form for form in _FORMS if form in output.get("data", {})), None)
    if form is None:
        return ""
    text = _text(output["data"][form])
    if form == "text/plain":
        return _fence(text, "text")
    # Markdown would read an empty or indented line inside of HTML as the beginning of something else.
    return text if form == "text/markdown" else "\n".join(line.strip() for line in text.splitlines() if line.strip())


def _fence(text: str, language: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)
