"""Pages of results say what they were made with and on."""

from __future__ import annotations

import json
from pathlib import Path

from ensembed import __version__
from ensembed.tasks import Clustering
from experiments.tasks_sets import write_tables


def test_a_page_has_the_versions_and_the_fingerprints_of_its_sets(tmp_path: Path) -> None:
    task = Clustering("pets", ("a dog", "a cat", "a bird"), ("dog", "cat", "bird"))
    write_tables(tmp_path, "mine", "# Mine", [["a", "1.0"]], [task])
    page, data = (tmp_path / "mine.md").read_text(), json.loads((tmp_path / "mine.json").read_text())
    assert page.startswith("# Mine\n\nMade with ensembed")
    assert f"pets clustering {task.fingerprint}" in page
    assert data["sets"] == {"pets clustering": task.fingerprint}
    assert data["provenance"]["ensembed"] == __version__
    assert data["rows"] == [["a", "1.0"]]
