"""A newcomer's method: one file, as a package of its own or in ensembed's tree, and nothing else to edit."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ensembed
from ensembed.methods import METHODS, registry

# All that a newcomer writes: the members' vectors side by side, each scaled to length one and multiplied by a number.
METHOD = '''
from dataclasses import dataclass
from typing import ClassVar

from ensembed.methods.method import NaiveMethod
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


def _install(site: Path, package: str, method: str, code: str, kind: str = "Louder") -> None:
    """Write the files that an installed package with one module and one entry point has."""
    module = package.replace("-", "_")
    facts = site / f"{module}-1.5.dist-info"
    facts.mkdir(parents=True)
    (site / f"{module}.py").write_text(code)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
    (facts / "entry_points.txt").write_text(f"[ensembed.methods]\n{method} = {module}:{kind}\n")


def _run(code: str, path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process that looks for modules in `path` first."""
    places = os.pathsep.join([str(path), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": places},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _use(path: Path, folder: Path) -> tuple[str, dict[str, object], str]:
    """Run `USE`; return what each of its three parts printed."""
    (folder / "lines.txt").write_text("a dog\na cat\n")
    result = _run(USE, path, folder)
    assert result.returncode == 0, result.stderr
    assert "--method svd does not take --volume" in " ".join(result.stderr.split())
    norm, facts, *rest = result.stdout.splitlines()
    return norm, json.loads(facts), " ".join(" ".join(rest).split())


@pytest.mark.parametrize("place", ["package", "tree"])
def test_one_file_adds_a_method_with_its_options(place: str, tmp_path: Path) -> None:
    if place == "package":
        _install(tmp_path / "site", "ensembed-louder", "louder", METHOD)
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
    page = (Path(__file__).parents[2] / "docs" / "guides" / "plugins.md").read_text()
    [_, code] = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert 'boosted = "ensembed_boosted:Boosted"' in page
    _install(tmp_path / "site", "ensembed-boosted", "boosted", code, "Boosted")
    use = (
        "import numpy as np; from ensembed import Ensemble; from ensembed.methods import make_method\n"
        "ensemble = Ensemble(['demo?dim=4&seed=1', 'demo?dim=3&seed=2'])\n"
        "model = ensemble.fit(['a dog'], make_method('boosted', boost=3.0))\n"
        "print([float(np.linalg.norm(part).round(4)) for part in np.split(model.encode(['a cat'])[0], [4])])\n"
    )
    result = _run(use, tmp_path / "site", tmp_path)
    assert result.stdout == "[3.0, 1.0]\n", result.stderr


# Asks for each of the methods, and for the help, by Python and on the command line.
ASK = """
import json, warnings
from ensembed.cli import main
from ensembed.errors import InputError
from ensembed.methods import METHODS, all_methods, make_method

members = ["-q", "-e", "demo?dim=4&seed=1", "-e", "demo?dim=3&seed=2", "--out", "model"]
said = {}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name in ("absent", "unsuitable", "renamed", "twin", "gcca"):
        try:
            make_method(name)
        except InputError as error:
            said[name] = str(error)
        assert main(["fit", "lines.txt", *members, "--method", name]) == 1
    assert main(["fit", "lines.txt", *members, "--method", "conc", "--json"]) == 0
    assert main(["fit", "--help"]) == 0
said["warnings"] = sorted(str(warning.message) for warning in caught)
said["order"] = list(METHODS)
print(json.dumps(said))
"""


def test_a_package_whose_method_cannot_be_used_is_named_and_the_others_work(tmp_path: Path) -> None:
    site = tmp_path / "site"
    _install(site, "lost-cause", "absent", "import a_library_that_is_absent")
    _install(site, "no-method", "unsuitable", "Louder = 3")
    _install(site, "other-name", "renamed", METHOD)
    _install(site, "twin-one", "twin", METHOD.replace('"louder"', '"twin"'))
    _install(site, "twin-two", "twin", METHOD.replace('"louder"', '"twin"'))
    _install(site, "usurper", "gcca", METHOD.replace('"louder"', '"gcca"'))
    early = METHOD.replace("side: str", "order: ClassVar[int] = 3\n    side: str")
    for name in ("zebra", "ape"):
        _install(site, f"the-{name}", name, early.replace('"louder"', f'"{name}"'))
    (tmp_path / "lines.txt").write_text("a dog\na cat\n")
    result = _run(ASK, site, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    said = json.loads(result.stdout.splitlines()[-1])
    absent = "method 'absent' of package lost-cause 1.5 cannot be used: ModuleNotFoundError(\"No module named "
    assert said["absent"].startswith(absent)
    assert "package no-method 1.5" in said["unsuitable"]
    assert "no_method:Louder is not a dataclass that is a Method and has the name 'unsuit" in said["unsuitable"]
    assert "other_name:Louder is not a dataclass that is a Method and has the name 'renamed'" in said["renamed"]
    assert said["twin"] == "twin-one 1.5 and twin-two 1.5 both have a method 'twin'; uninstall one package"
    assert said["gcca"] == "ensembed and usurper 1.5 both have a method 'gcca'; uninstall one package"
    assert said["warnings"] == sorted(said[name] for name in ("absent", "unsuitable", "renamed"))  # each once
    assert said["order"] == ["auto", "conc", "avg", "ape", "svd", "zebra", "gcca", "ae", "up"]
    for name in ("absent", "unsuitable", "renamed", "twin", "gcca"):
        assert f"error: {said[name]}" in result.stderr
    assert "[auto|conc|avg|ape|svd|zebra|gcca|ae|up]" in result.stdout


class _LooksLikeAClass:
    """What `list[str]` is in Python 3.10: an instance of `type` that `issubclass` refuses."""

    __class__: Any = property(lambda _self: type)


def test_an_alias_of_a_type_in_a_module_of_methods_is_no_method(monkeypatch: pytest.MonkeyPatch) -> None:
    alias = _LooksLikeAClass()
    assert isinstance(alias, type)
    monkeypatch.setattr("ensembed.methods.concat.Alias", alias, raising=False)
    assert runpy.run_path(registry.__file__)["METHODS"].keys() == METHODS.keys()
