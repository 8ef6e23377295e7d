"""The example of docs/guides/scaling.md, as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_runs(tmp_path: Path) -> None:
    [example] = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "guides" / "scaling.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (tmp_path / "example.py").write_text(f"{example}\nimport ray\nprint('running:', ray.is_initialized())\n")
    home = tmp_path / "home"  # Ray keeps the token that it makes for a local cluster there
    home.mkdir()
    settings = {"PYTHONPATH": str(ROOT), "HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0"}
    others = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env=others | settings,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    stages = {line.partition(":")[0] for line in done.stdout.splitlines()}
    assert {"demo?dim=32&seed=1", "demo?dim=24&seed=2", "moments"} <= stages
    assert done.stdout.splitlines()[-1] == "running: False"  # the engine has stopped the cluster that it started
    assert (home / ".ray" / "auth_token").exists()  # authentication was on
