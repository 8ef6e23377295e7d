"""`ensembed embed --engine ray`, on a real cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ray_nodes import Nodes

from ensembed.cli import main
from ensembed.cli.options import EngineChoice
from ensembed.testing import files_of

pytestmark = pytest.mark.timeout(600)


def test_the_command_writes_the_views_and_says_what_it_took(
    cluster: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(f"sentence {i % 31}" for i in range(50)))
    line = ["embed", str(corpus), "-e", "demo?dim=4", "--shard-rows", "8", "--quiet"]
    ray = ["--engine", "ray", "--address", cluster.address, "--resources", "demo?dim=4:num_cpus=0.5,actors=1-2"]
    assert main([*line, "--store", str(tmp_path / "a"), *ray, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [view["rows"] for view in found["views"]] == [50]
    stages = {stage["stage"]: stage for stage in found["stages"]}
    assert stages["demo?dim=4"]["rows"] == 50
    assert 1 <= stages["demo?dim=4"]["workers"] <= 2
    assert {"index", "read"} <= stages.keys()
    assert main([*line, "--store", str(tmp_path / "b")]) == 0
    ours, theirs = ({k: v for k, v in files_of(tmp_path / name).items() if ".lock" not in k} for name in "ab")
    assert ours == theirs
    # What is complete already is said at once.
    capsys.readouterr()
    assert main([*line, "--store", str(tmp_path / "a"), *ray]) == 0
    said = capsys.readouterr()
    assert "demo?dim=4" in said.out
    assert "index" in said.err


def test_messages_of_ray_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with EngineChoice("ray").open():  # which connects when it is first needed
        print("(raylet) A worker died")
    print("the result")
    printed = capsys.readouterr()
    assert printed.out == "the result\n"
    assert printed.err == "(raylet) A worker died\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--address", "auto"], "--address is for --engine ray"),
        (["--engine", "ray", "--resources", "demo:cores=2"], "'cores=2' is not a setting of resources"),
    ],
)
def test_invalid_options_of_the_ray_engine_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("one\ntwo")
    assert main(["embed", str(corpus), "-e", "demo", *options]) != 0
    assert message in " ".join(capsys.readouterr().err.split())
