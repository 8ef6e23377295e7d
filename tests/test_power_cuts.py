"""What is left of files when the power is cut: the old state or the new one, and the next run goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from power_cut_points import CASES

HERE = Path(__file__).parent
_LIBRARIES = {
    "checkpoint": "torch",
    "vectors": "usearch",
    "graph": "usearch",
    "export": "onnx",
    "student": "torch",
}  # by the last word of a case


@pytest.mark.parametrize("case", CASES)
def test_a_power_cut_at_any_operation_leaves_the_old_state_or_the_new(case: str, tmp_path: Path) -> None:
    if library := _LIBRARIES.get(case.rsplit(maxsplit=1)[-1]):
        pytest.importorskip(library)
    command = [sys.executable, str(HERE / "power_cut_points.py"), case, str(tmp_path / "root")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    disks, complete = json.loads(done.stdout)
    assert disks > 5
    # Some power cuts come before the change counts, and some after it; compacting changes no row.
    assert 0 < complete < disks or case == "compact"
