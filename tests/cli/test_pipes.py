"""Pipes in and out: what has no end is streamed, what is read twice is kept first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ensembed.cli import main


def test_a_corpus_from_a_named_pipe_is_the_same_corpus(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = b"a dog\na cat\n\nthe fox\n"
    (tmp_path / "plain.txt").write_bytes(text)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    for source in (tmp_path / "plain.txt", pipe):
        writer = threading.Thread(target=lambda: pipe.write_bytes(text), daemon=True)
        if source == pipe:
            writer.start()
        assert main(["embed", str(source), "-e", "demo", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]


def test_a_table_of_an_endless_input_begins_at_once() -> None:
    shell = f'yes "hello there" | "{sys.executable}" -m ensembed encode demo | head -n 3'
    found = subprocess.run(["bash", "-c", shell], check=True, capture_output=True, text=True, timeout=120)
    assert found.stderr == ""
    assert [line[:11] for line in found.stdout.splitlines()] == ["sentence   ", "hello there", "hello there"]


def test_an_error_in_the_first_lines_comes_before_any_output(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"a dog\nb\xe4r\n")
    assert main(["encode", "demo", str(tmp_path / "latin.txt")]) == 1
    assert capsys.readouterr().out == ""


def test_bytes_that_are_not_utf8_can_be_replaced(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("café\nplain\n".encode("latin-1"))
    out = tmp_path / "v.npy"
    command = ["encode", "demo", str(tmp_path / "latin.txt"), "--out", str(out)]
    assert main(command) == 1
    assert "is not UTF-8" in capsys.readouterr().err
    assert main([*command, "--errors", "replace"]) == 0
    assert np.load(out).shape == (2, 32)
