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

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "integrations").glob("*.md"))
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.real
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_example_runs(page: Path, tmp_path: Path, pulled: Callable[[str], Path]) -> None:
    for encoder in ("minilm", "minilm-int8", "wordllama"):
        pulled(encoder)
    blocks = _BLOCK.findall(page.read_text())
    assert blocks, f"{page.name} has no example"
    (tmp_path / "example.py").write_text("\n".join(blocks))
    # A process of its own, as a user's: what one library leaves behind must not help or hurt the next.
    settings = {"HF_HUB_OFFLINE": "1", "ANONYMIZED_TELEMETRY": "False"}
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


def test_every_integration_has_a_page_and_every_page_an_integration() -> None:
    folder = ROOT / "ensembed" / "integrations"
    public = {path.stem for path in folder.iterdir() if path.stem not in ("__init__", "__pycache__")}
    assert {page.stem for page in PAGES} <= public
