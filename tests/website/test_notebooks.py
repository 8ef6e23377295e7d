"""The notebooks run from top to bottom, and show what they give: numbers may differ by rounding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from website.notebook_pages import to_page
from website.notebooks import FOLDER, clean, outputs_of, run_notebook, same_output

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.real
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_gives_its_output(path: Path, tmp_path: Path, pulled: Callable[[str], Path]) -> None:
    pulled("stsb")  # and the user's cache, where the notebook finds what it pulls
    committed = json.loads(path.read_text())
    executed = run_notebook(path, tmp_path)
    assert same_output(outputs_of(executed), outputs_of(committed)), "run: make notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_committed_with_output_and_without_volatile_parts(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert clean(notebook) == notebook
    assert outputs_of(notebook).strip()
    page = to_page(notebook, path.name)
    assert page.startswith("# ")
    assert "```text" in page


def test_outputs_are_compared_by_words_and_rounded_numbers() -> None:
    assert same_output("minilm 87.01\n", "minilm   87.02")
    assert not same_output("minilm 87.0", "minilm 89.9")
    assert not same_output("minilm 87.0", "wordllama 87.0")
