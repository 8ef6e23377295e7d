"""A newcomer's method: one file, as a package of its own or in ensembed's tree, and nothing else to edit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ensembed

# All that a newcomer writes: the members' vectors side by side, each scaled to length one and multiplied by a number.
METHOD = '''
from dataclasses import dataclass
from typing import ClassVar

from ensembed.methods.base import NaiveMethod
from ensembed.methods.meta import Meta
from ensembed.methods.meta import Placement


@dataclass(frozen=True)
class Louder(NaiveMethod):
    """The members' vectors side by side, louder.

    Args:
        volume: what every vector is multiplied by. There is no upper bound.
        side: which side is louder: left or right.
    """

    volume: float = 2.0
    side: str = "left"

    name: ClassVar[str] = "louder"

    def build(self, dims):
        starts = [sum(dims[:j]) for j in range(len(dims))]
        placed = tuple(Placement(start, dim, float(self.volume)) for start, dim in zip(starts, dims))
        return Meta(self.to_json(), sum(dims), placed, normalize=True)
'''
# Fits by Python and by the command line, loads what was saved, and shows the help.
USE = """
import numpy as np
from ensembed import Ensemble, load
from ensembed.cli import main
from ensembed.methods import make_method

names = ["demo?dim=4&seed=1", "demo?dim=3&seed=2"]
model = Ensemble(names).fit(["a dog"], make_method("louder", volume=3.0))
print(np.linalg.norm(model.encode(["a cat"])[0, :4]).round(4))
members = ["-q", "-e", names[0], "-e", names[1]]
assert main(["fit", "lines.txt", *members, "--method", "louder", "--volume", "3", "--out", "model", "--json"]) == 0
assert (load("model").encode(["a cat"]) == model.encode(["a cat"])).all()
assert main(["fit", "lines.txt", *members, "--method", "svd", "--volume", "3", "--out", "other", "-q"]) == 2
main(["fit", "--help"])
"""


def _install(site: Path, name: str, code: str) -> None:
    """Write the files that an installed package with one module and one entry point has."""
    facts = site / f"ensembed_{name}-1.0.dist-info"
    facts.mkdir(parents=True)
    (site / f"ensembed_{name}.py").write_text(code)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ensembed-{name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[ensembed.methods]\n{name} = ensembed_{name}:{name.title()}\n")


def _use(path: Path, folder: Path) -> tuple[str, dict[str, object], str]:
    """Run `USE` in a process that looks for modules in `path` first; return what each of its three parts printed."""
    (folder / "lines.txt").write_text("a dog\na cat\n")
    places = os.pathsep.join([str(path), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    result = subprocess.run(
        [sys.executable, "-c", USE],
        env={**os.environ, "PYTHONPATH": places},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "--method svd does not take --volume" in " ".join(result.stderr.split())
    norm, facts, *rest = result.stdout.splitlines()
    return norm, json.loads(facts), " ".join(" ".join(rest).split())


@pytest.mark.parametrize("place", ["package", "tree"])
def test_one_file_adds_a_method_with_its_options(place: str, tmp_path: Path) -> None:
    if place == "package":
        _install(tmp_path / "site", "louder", METHOD)
    else:
        source = Path(ensembed.__file__).parent
        shutil.copytree(source, tmp_path / "site" / "ensembed", ignore=shutil.ignore_patterns("__pycache__"))
        (tmp_path / "site" / "ensembed" / "methods" / "louder.py").write_text(METHOD)
    norm, fitted, text = _use(tmp_path / "site", tmp_path)
    assert norm == "3.0"
    assert fitted["method"] == {"name": "louder", "volume": 3.0, "side": "left"}
    assert "|louder" in text
    assert "--volume FLOAT louder: what every vector is multiplied by. [default: 2]" in text
    assert "--side TEXT louder: which side is louder: left or right. [default: left]" in text


def test_the_example_of_the_docs_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
    [code] = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert 'boosted = "ensembed_boosted:Boosted"' in page
    _install(tmp_path / "site", "boosted", code)
    use = (
        "import numpy as np; from ensembed import Ensemble; from ensembed.methods import make_method\n"
        "ensemble = Ensemble(['demo?dim=4&seed=1', 'demo?dim=3&seed=2'])\n"
        "model = ensemble.fit(['a dog'], make_method('boosted', boost=3.0))\n"
        "print([float(np.linalg.norm(part).round(4)) for part in np.split(model.encode(['a cat'])[0], [4])])\n"
    )
    places = os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    environment = {**os.environ, "PYTHONPATH": places}
    result = subprocess.run(
        [sys.executable, "-c", use], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.stdout == "[3.0, 1.0]\n", result.stderr
