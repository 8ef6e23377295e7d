"""Every example in docs/integrations runs as it stands, with the real libraries."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from postgres import postgres

from ensembed.fetch.catalog import catalog

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "integrations" / "index.md"
PAGES = sorted(page for page in INDEX.parent.glob("*.md") if page != INDEX)
# Modules that integrations share, which have no page of their own.
SHARED = {
    "__init__",
    "model_card",
    "model_source",
    "onnx_bert",
    "mteb_tasks",
    "onnx_graphs",
    "sources",
    "st_modules",
    "vector_stores",
}
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.real
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_a_page_run(page: Path, tmp_path: Path, pulled: Callable[[str], Path]) -> None:
    for encoder in ("minilm", "minilm-int8", "wordllama"):
        pulled(encoder)
    blocks = _BLOCK.findall(page.read_text())
    assert blocks, f"{page.name} has no example"
    (tmp_path / "example.py").write_text("\n".join(blocks))
    # A process of its own, as a user's: what one library leaves behind must not help or hurt the next.
    # UMAP, which BERTopic imports and the example leaves out, would be compiled for twenty seconds.
    settings = {"HF_HUB_OFFLINE": "1", "ANONYMIZED_TELEMETRY": "False", "NUMBA_DISABLE_JIT": "1"}
    if page.stem == "pgvector":
        settings["DATABASE_URL"] = postgres()
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env=os.environ | settings | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_says_how_to_fetch_the_encoders_of_its_example(page: Path) -> None:
    text = page.read_text()
    used = {name for block in _BLOCK.findall(text) for name in re.findall(r'"([\w-]+)"', block) if name in catalog()}
    fetched = re.findall(r"^    ensembed pull ([\w -]+?) +#", text, re.MULTILINE)
    assert used == {name for names in fetched for name in names.split()}


def test_every_integration_has_a_page_and_a_line_in_the_table() -> None:
    folder = ROOT / "ensembed" / "integrations"
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    pages = {page.stem for page in PAGES}
    assert pages == modules - SHARED
    assert modules >= SHARED
    linked = re.findall(r"^\| \[[^]]+\]\((\w+)\.md\) \|", INDEX.read_text(), re.MULTILINE)
    assert sorted(linked) == sorted(pages)
