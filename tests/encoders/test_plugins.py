"""Packages that add a kind of encoder: the example, really installed, and some that are up to no good."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "ensembed-chargrams"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed into a folder that Python can be pointed at: our own environment stays as it is."""
    target = tmp_path_factory.mktemp("site")
    # A copy, since building leaves files beside the source.
    copy = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / EXAMPLE.name)
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run(
        [*command, "--disable-pip-version-check", "--target", str(target), str(copy)], check=True, timeout=300
    )
    return target


def package(site: Path, name: str, scheme: str, code: str) -> None:
    """Leaves what an installation of a package leaves that has one module, whose `opener` opens the scheme."""
    module = name.replace("-", "_")
    (site / f"{module}.py").write_text(code)
    facts = site / f"{module}-2.5.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
    (facts / "entry_points.txt").write_text(f"[ensembed.encoders]\n{scheme} = {module}:opener\n")


def python(site: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        input=text,
        env={**os.environ, "PYTHONPATH": str(site)},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_example_keeps_the_contract(site: Path) -> None:
    check = (
        "from ensembed.encoders import open_encoder; from ensembed.testing import check_encoder\n"
        "encoder = open_encoder('chargrams:64?n=4&truncate_dim=32')\n"
        "check_encoder(encoder); print(encoder.spec.name, encoder.spec.dim)"
    )
    result = python(site, "-c", check)
    assert result.stdout == "chargrams:64?n=4&truncate_dim=32 32\n", result.stderr


def test_the_example_works_on_the_command_line_and_in_saved_models(site: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(f"sentence number {i} of {i % 7}" for i in range(40)))
    fit = python(
        site, "-m", "ensembed", "fit", str(corpus), "-e", "chargrams:16", "-e", "demo", "--dim", "4", "--method", "svd",
        "--out", str(tmp_path / "model"), "--store", str(tmp_path / "store"),
    )  # fmt: skip
    assert fit.returncode == 0, fit.stderr
    encoded = python(site, "-m", "ensembed", "encode", str(tmp_path / "model"), "--json", "--trust", text="a dog\n")
    assert encoded.stdout.count('"vector"') == 1, encoded.stderr
    assert "ensembed-chargrams 1.0.0" in python(site, "-m", "ensembed", "encoders").stdout


def test_wrong_locations_and_options_are_refused_by_the_example(site: Path) -> None:
    for name, message in [("chargrams:x", "write chargrams:DIM"), ("chargrams:8?m=1", "it has: n, prefix")]:
        result = python(site, "-m", "ensembed", "encode", "-e", name, text="a\n")
        assert result.returncode != 0
        assert message in result.stderr
        assert "Traceback" not in result.stderr


def test_without_the_package_there_is_no_such_kind(tmp_path: Path) -> None:
    result = python(tmp_path, "-m", "ensembed", "encode", "-e", "chargrams:8", text="a\n")
    assert "there is no kind of encoder 'chargrams'" in result.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def opener(request): raise OSError('no disk')", "no disk"),
        ("def opener(request): return [1]", "returned a list, not an ensembed.encoders.Encoder"),
        ("import no_such_module_at_all", "no_such_module_at_all"),
        ("other = 1", "opener"),
    ],
)
def test_error_names_a_package_that_fails(tmp_path: Path, code: str, message: str) -> None:
    package(tmp_path, "bad-plugin", "bad", code)
    result = python(tmp_path, "-m", "ensembed", "encode", "-e", "bad:1", text="a\n")
    assert "bad-plugin 2.5" in result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_two_packages_with_one_scheme_are_refused_and_built_in_schemes_stay(tmp_path: Path) -> None:
    code = "def opener(request): raise SystemExit('taken over')"
    package(tmp_path, "plugin-one", "same", code)
    package(tmp_path, "plugin-two", "same", code)
    package(tmp_path, "plugin-three", "demo", code)
    clash = python(tmp_path, "-m", "ensembed", "encode", "-e", "same:1", text="a\n")
    assert "plugin-one 2.5" in clash.stderr
    assert "plugin-two 2.5" in clash.stderr
    ours = python(tmp_path, "-m", "ensembed", "encode", "-e", "demo", "--json", text="a\n")
    assert ours.returncode == 0, ours.stderr
