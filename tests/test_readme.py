"""The README tells the truth: its table is the demo's, its commands exist, its Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ensembed import Ensemble
from ensembed.cli import cli
from ensembed.methods import METHODS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_table_is_the_one_that_the_demo_wrote() -> None:
    rows = [line for line in README.splitlines() if line.startswith(("| single:", "| meta:"))]
    assert len(rows) == 10
    assert set(rows) <= set((ROOT / "results" / "demo.md").read_text().splitlines())


def test_the_figures_of_the_pair_are_those_that_the_demo_wrote() -> None:
    table = (ROOT / "results" / "demo-use-lite-wordllama.md").read_text()
    means = {line.split(" | ")[0]: line.split(" | ")[-2] for line in table.splitlines() if line.startswith("| ")}
    svd, ae = means["| meta:svd"], means["| meta:ae"]
    assert f"{means['| single:wordllama']} for the best member, {svd} for svd, {ae} for ae" in README


def test_every_command_and_option_it_names_exists() -> None:
    named = re.findall(r"^    ensembed (\w+)(.*)$", README, re.MULTILINE)
    assert len(named) >= 5
    for name, rest in named:
        options = {option for parameter in cli.commands[name].params for option in parameter.opts}
        assert set(re.findall(r"(?<= )--?[a-z][a-z-]*", rest)) <= options


def test_every_method_is_in_its_table() -> None:
    for name, method in METHODS.items():
        assert f"`{method.__name__}` (`{name}`)" in README


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    words = ["dog", "cat", "fox", "man", "car"]
    Path("corpus.txt").write_text("\n".join(f"{a} {b} {c}" for a in words for b in words for c in words))
    members = '["demo?dim=8&seed=1", "demo?dim=6&seed=2", "demo?dim=4&seed=3"]'
    code = blocks[0].replace('["minilm", "use-lite", "wordllama"]', members).replace("512", "5")
    encoded = np.random.default_rng(0).standard_normal((300, 1300))
    arrays = {f"{letter}{j}": encoded[:, 400 * j : 400 * j + 400] for letter in "XY" for j in (1, 2, 3)}
    names: dict[str, object] = {"Ensemble": Ensemble, **arrays}
    exec(code, names)  # noqa: S102 - it is our own README
    exec(blocks[1].replace("1024", "256"), names)  # noqa: S102
    assert Path("my-model", "model.safetensors").exists()
