"""What is shown of the errors of pip, npm and the hub's client."""

from __future__ import annotations

import sys
from pathlib import Path

from ensembed.fetch.child_process import run

# Shortened: what pip and npm print without a network.
PIP = """\
WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'Error(<0x7f35>: Connection refused)': /x
WARNING: Retrying (Retry(total=1, connect=None)) after connection broken by 'Error(<0x7f36>: Connection refused)': /x
WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'Error(<0x7f37>: Connection refused)': /x
ERROR: No matching distribution found for wordllama==0.4.0
"""
NPM = "npm error code ECONNREFUSED\nnpm error {\nnpm error   errno: -111\nnpm error }\nnpm error\n"


def complaint(text: str, work: Path) -> list[str]:
    work.mkdir()
    command = [sys.executable, "-c", f"import sys; sys.stderr.write({text!r}); sys.exit(1)"]
    return run(command, work, lambda _size: None).complaint.splitlines()


def test_the_retries_of_pip_are_shown_once(tmp_path: Path) -> None:
    lines = complaint(PIP, tmp_path / "work")
    assert [line.partition("(total=")[2][:1] for line in lines] == ["0", ""]


def test_lines_of_npm_without_words_are_left_out(tmp_path: Path) -> None:
    assert complaint(NPM, tmp_path / "work") == ["npm error code ECONNREFUSED", "npm error   errno: -111"]
