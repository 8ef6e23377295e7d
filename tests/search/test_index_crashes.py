"""What happens to an index when the process that writes it is killed, or another one writes at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import IndexBusyError
from ensembed.search import Index

HERE = Path(__file__).parent
_SLOW = """
import sys, time
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.search import Index

class Slow(DemoEncoder):
    def embed(self, sentences):
        if len(sentences) > 2:
            print("encoding", flush=True)
            time.sleep(600)
        return super().embed(sentences)

Index.open(sys.argv[1], Slow(4)).add(["one", "two", "three"])
"""


def test_a_kill_at_any_file_operation_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "index_crash_points.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for change, (deaths, late) in json.loads(done.stdout).items():
        assert deaths > 10, change
        # Some deaths come before the manifest is replaced, and some after it.
        # (Compacting changes no row.)
        assert 0 < late < deaths or change == "compact", change


def test_a_second_writer_gets_an_error_and_readers_continue(tmp_path: Path) -> None:
    encoder = DemoEncoder(4)
    index = Index.create(tmp_path / "index", encoder)
    index.add(["a dog"])
    child = subprocess.Popen([sys.executable, "-c", _SLOW, str(index.folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "encoding\n"
        for change in (lambda: index.add(["a cat"]), lambda: index.delete(["0"]), index.compact):
            with pytest.raises(IndexBusyError, match="another process is writing"):
                change()
        begun = time.monotonic()
        with pytest.raises(IndexBusyError):
            Index.open(index.folder, encoder, wait=0.3).add(["a cat"])
        assert time.monotonic() - begun >= 0.3
        assert [hit.id for hit in Index.open(index.folder, encoder).search(["a dog"])[0]] == ["0"]
    finally:
        child.kill()
        child.communicate()
    # The lock goes with the process that held it.
    assert index.add(["a cat"]) == ["1"]
