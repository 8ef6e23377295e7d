"""Execute the notebooks of docs/notebooks: `python -m website.notebooks [NAME…]` writes their output into them.

`run_notebook` gives a notebook as it is committed: without times, execution counts, ids and warnings of the machine.
The notebooks run in an empty folder, as a reader's do.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
# A notebook may take three minutes on two cores; a machine that does other work takes longer.
SECONDS = 600
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


def run_notebook(path: Path, folder: Path) -> dict[str, Any]:
    """Return the executed notebook. Its kernel runs in `folder` and imports this checkout's package."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    here = str(FOLDER.parents[1])
    # STS-B as it is pulled, and no other copy of it.
    plain = {key: value for key, value in os.environ.items() if key != "ENSEMBED_DATA"}
    environment = plain | {"PYTHONPATH": here, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}
    client = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    with client.setup_kernel(env=environment):
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
    return clean(json.loads(nbformat.writes(notebook)))


def clean(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook without what differs between two runs: counts, ids, times, what was written to stderr."""
    cells = []
    for index, cell in enumerate(notebook["cells"]):
        kept = {"cell_type": cell["cell_type"], "id": f"cell-{index}", "metadata": {}, "source": cell["source"]}
        if cell["cell_type"] == "code":
            kept |= {"execution_count": None, "outputs": _clean_outputs(cell["outputs"])}
        cells.append(kept)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _clean_outputs(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outputs of a cell with all that was printed in one, however it was flushed."""
    cleaned: list[dict[str, Any]] = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue
        if output["output_type"] == "stream":
            text = _joined(output["text"])
            if cleaned and cleaned[-1]["output_type"] == "stream":
                text = _joined(cleaned.pop()["text"]) + text
            cleaned.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
        else:
            cleaned.append(output | ({"execution_count": None} if "execution_count" in output else {}))
    return cleaned


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def outputs_of(notebook: dict[str, Any]) -> str:
    """Return all text that a notebook shows, for comparison."""
    shown: list[str] = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("text") or output.get("data", {}).get("text/plain", "")
            shown.append(_joined(data))
    return "\n".join(shown)


def same_output(first: str, second: str, tolerance: float = 0.02) -> bool:
    """Whether two texts have the same words, and numbers that differ by no more than rounding on other machines."""
    if _NUMBER.sub("0", first).split() != _NUMBER.sub("0", second).split():
        return False
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=tolerance, abs_tol=tolerance) for a, b in pairs)


def main(names: list[str]) -> None:
    """Execute these notebooks, or all, and write them."""
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = run_notebook(path, Path(folder))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
        print(f"{path.name}: {len(outputs_of(notebook).splitlines())} lines of output")


if __name__ == "__main__":
    main(sys.argv[1:])
