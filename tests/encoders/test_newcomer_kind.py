"""A newcomer's kind of encoder: one file, as a package of its own or in ensembed's tree, and nothing else to edit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ensembed
from ensembed import Ensemble, load
from ensembed.cli import main
from ensembed.encoders import open_encoder
from ensembed.methods import Concat
from ensembed.testing import check_encoder

# All that a newcomer writes: it counts letters.
KIND = """
import numpy as np
from ensembed.encoders import Encoder, EncoderSpec, Request, at_least

OPENS = "a number of buckets"


class LettersEncoder(Encoder):
    concurrent = True

    def __init__(self, dim, shift=0, *, name="letters"):
        self._shift = shift
        self._spec = EncoderSpec(name, "letters", dim, revision="1", extra=(("shift", str(shift)),))

    def embed(self, sentences):
        result = np.zeros((len(sentences), self._spec.dim), np.float32)
        for row, sentence in zip(result, sentences, strict=True):
            np.add.at(row, [(ord(letter) + self._shift) % len(row) for letter in sentence], 1)
        return result


def open_letters(request: Request) -> Encoder:
    return LettersEncoder(int(request.location), **request.options(shift=at_least(0)), name=request.name)
"""
# "a dog" in four buckets: the code points of its letters are 97, 32, 100, 111 and 103.
A_DOG = [2, 1, 0, 2]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what installing a package with one module and one entry point leaves, in a folder that Python looks in."""
    site = tmp_path / "site"
    facts = site / "ensembed_letters-1.2.dist-info"
    facts.mkdir(parents=True)
    (site / "ensembed_letters.py").write_text(KIND)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: ensembed-letters\nVersion: 1.2\n")
    (facts / "entry_points.txt").write_text("[ensembed.encoders]\nletters = ensembed_letters:open_letters\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "ensembed_letters", raising=False)


@pytest.mark.usefixtures("package")
def test_a_package_adds_a_kind_to_python() -> None:
    check_encoder(open_encoder("letters:4?shift=1&normalize=true"))
    assert open_encoder("letters:4").encode(["a dog"]).tolist() == [A_DOG]


@pytest.mark.usefixtures("package")
def test_a_package_adds_a_kind_to_saved_models(tmp_path: Path) -> None:
    model = Ensemble(["letters:4", "demo?dim=3"]).fit(["a dog", "a cat"], Concat())
    model.save(tmp_path / "model")
    again = load(tmp_path / "model", trust="code")
    np.testing.assert_array_equal(again.encode(["a dog"]), model.encode(["a dog"]))


@pytest.mark.usefixtures("package")
def test_a_package_adds_a_kind_to_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_text("a dog\n")
    assert main(["encode", "-e", "letters:4", str(tmp_path / "lines.txt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["vector"] == A_DOG
    assert main(["encoders", "--json"]) == 0
    kinds = json.loads(capsys.readouterr().out)["kinds"]
    assert {"scheme": "letters", "opens": "a plugin", "from": "ensembed-letters 1.2"} in kinds


def test_one_file_in_the_tree_adds_a_kind(tmp_path: Path) -> None:
    source = Path(ensembed.__file__).parent
    shutil.copytree(source, tmp_path / "ensembed", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "ensembed" / "encoders" / "letters_encoder.py").write_text(KIND)
    code = (
        "from ensembed.encoders import open_encoder\nfrom ensembed.cli import main\n"
        "print(open_encoder('letters:4').encode(['a dog']).tolist())\n"
        "main(['encode', '-e', 'letters:4?shift=4', '--json'])\nmain(['encoders'])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        input="a dog\n",
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert result.stdout.startswith(f"{[[float(count) for count in A_DOG]]}\n"), result.stderr
    assert json.loads(result.stdout.splitlines()[1])["vector"] == A_DOG
    assert re.search(r"^letters: +a number of buckets +ensembed *$", result.stdout, re.MULTILINE)
