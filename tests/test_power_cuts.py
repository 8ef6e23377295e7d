"""What is left of files when the power is cut: the old state or the new one, and the next run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from power_cut_points import CASES

pytestmark = pytest.mark.timeout(1800)  # the first test waits for all cases

HERE = Path(__file__).parent
_LIBRARIES = {
    "checkpoint": "torch",
    "vectors": "usearch",
    "graph": "usearch",
    "export": "onnx",
    "student": "torch",
    "job": "torch",
    "FAISS": "faiss",
    "experiment": "pydantic",
}  # by the last word of a case


# One process for all cases: importing takes longer than most of them.
@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int] | str]:
    folder = tmp_path_factory.mktemp("power")
    possible = [case for case in CASES if find_spec(_LIBRARIES.get(case.rsplit(maxsplit=1)[-1], "ensembed"))]
    done = subprocess.run(
        [sys.executable, str(HERE / "power_cut_points.py"), str(folder), *possible],
        env=os.environ | {"ENSEMBED_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[int] | str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_power_cut_at_any_operation_leaves_the_old_state_or_the_new(
    case: str, outcomes: dict[str, list[int] | str]
) -> None:
    if library := _LIBRARIES.get(case.rsplit(maxsplit=1)[-1]):
        pytest.importorskip(library)
    outcome = outcomes[case]
    assert not isinstance(outcome, str), outcome
    disks, complete = outcome
    assert disks > 5
    # Some power cuts come before the change counts, and some after it; compacting changes no row.
    assert 0 < complete < disks or case == "compact"
