"""The files of `deploy/`: parsed, checked by the rules of hadolint that apply, verified by systemd, run as written."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import click
import pytest

from ensembed import Ensemble
from ensembed.cli import cli
from ensembed.fetch.catalog import catalog
from ensembed.methods import Concat

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "ensembed.service"
INSTRUCTIONS = ["ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "USER", "WORKDIR"]


def _instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions: comments dropped, continued lines joined."""
    lines = [line for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(name, value.strip()) for name, _, value in pairs]


DOCKER = _instructions()


def _values(name: str) -> list[str]:
    return [value for instruction, value in DOCKER if instruction == name]


def _check_ensembed(words: list[str]) -> None:
    """Raise a UsageError unless these are the words of a command line that can be parsed."""
    name, *arguments = words
    parent = click.Context(cli, **cli.context_settings)  # a command keeps the names of its first context's help option
    command = cli.get_command(parent, name)
    assert command is not None
    command.make_context(name, arguments, parent=parent)


def test_the_dockerfile_parses() -> None:
    assert {name for name, _ in DOCKER} <= set(INSTRUCTIONS)
    assert DOCKER[0][0] == "FROM"
    for name in ("ENTRYPOINT", "CMD"):  # DL3025: in JSON, so that signals reach the server and not a shell
        [value] = _values(name)
        assert all(isinstance(word, str) for word in json.loads(value))
    [health] = _values("HEALTHCHECK")
    assert json.loads(health.partition("CMD ")[2])


def test_the_dockerfile_keeps_the_rules_of_hadolint() -> None:
    images = [value.split() for value in _values("FROM")]
    stages = [words[2] for words in images if len(words) == 3 and words[1] == "AS"]
    for image, *_ in images:  # DL3006, DL3007: tagged, and not with latest
        assert re.fullmatch(r"[a-z]+:\d[\w.-]*", image), image
    for command in _values("RUN"):
        assert "sudo" not in command.split()  # DL3004
        assert "|" not in command.replace("||", "")  # DL4006
        if "apt-get install" in command:
            assert re.search(r"apt-get update && apt-get install -y --no-install-recommends", command)  # DL3009, 14, 15
            assert command.endswith("rm -rf /var/lib/apt/lists/*")  # DL3009
        if "pip install" in command:
            assert "--no-cache-dir" in command  # DL3042
            assert "--constraint constraints.txt" in command  # DL3013: pinned versions
    for value in _values("COPY"):  # DL3021, DL3022
        source = re.match(r"--from=(\w+)", value)
        assert source is None or source[1] in stages
        assert len(value.split()) == 2 or value.endswith("/") or source
    assert all(value.startswith("/") for value in _values("WORKDIR"))  # DL3000
    last = max(i for i, (name, _) in enumerate(DOCKER) if name == "FROM")
    users = [value for name, value in DOCKER[last:] if name == "USER"]
    assert users[-1:] not in ([], ["root"], ["0"])  # DL3002
    assert f"useradd --system --no-create-home {users[-1]}" in " ".join(_values("RUN"))


def test_what_the_dockerfile_copies_and_installs_is_there() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    for value in _values("COPY"):
        for source in [] if value.startswith("--from") else value.split()[:-1]:
            assert source == "deploy/model" or (ROOT / source).exists(), source  # the user puts the model there
            assert not any(fnmatch.fnmatch(source, pattern) for pattern in ignored), source
    [install] = [value for value in _values("RUN") if "pip install" in value]
    [extras] = re.findall(r"'\.\[([\w,-]+)\]'", install)
    assert set(extras.split(",")) <= set(metadata("ensembed").get_all("Provides-Extra") or ())
    version = tuple(map(int, re.findall(r"\d+", _values("FROM")[0])[:2]))
    assert version >= tuple(map(int, re.findall(r"\d+", metadata("ensembed")["Requires-Python"])[:2]))
    [members] = [value.partition("=")[2].strip('"').split() for value in _values("ARG")]
    assert set(members) <= set(catalog())


def test_the_package_is_built_from_what_the_dockerfile_copies(tmp_path: Path) -> None:
    for value in _values("COPY"):
        for source in [] if value.startswith("--from") else value.split()[:-1]:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
            elif source != "deploy/model":
                shutil.copy(ROOT / source, tmp_path)
    command = "import setuptools.build_meta as b; print(b.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert list((tmp_path / "dist").glob("ensembed-*.whl"))


def test_every_command_line_in_the_deployment_files_can_be_parsed() -> None:
    lines = [*UNIT.read_text().splitlines(), *(ROOT / "deploy" / "Dockerfile").read_text().splitlines()]
    commands = [words for line in lines for words in re.findall(r"(?:/bin/|^#\s+|&& )ensembed ([^&>\"]+)", line)]
    assert len(commands) >= 4
    for words in commands:
        words = words.replace("$MEMBERS", "minilm").replace(" \\", "").partition("     #")[0]
        if not words.startswith("similarity"):  # its sentences are quoted
            _check_ensembed(shlex.split(words))
    _check_ensembed([*json.loads(_values("ENTRYPOINT")[0])[1:], *json.loads(_values("CMD")[0])])


def _unit() -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            settings.setdefault(key, []).append(value)
    return settings


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed here")
    unit = tmp_path / UNIT.name
    program = tmp_path / "ensembed"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit.write_text(UNIT.read_text().replace("/opt/ensembed/bin/ensembed", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The folders of a deployment: a model, and an empty cache."""
    folder = tmp_path_factory.mktemp("deployed")
    (folder / "cache").mkdir()
    Ensemble(["demo?seed=1", "demo?seed=2"]).fit(["a dog", "a cat"], Concat()).save(folder / "model")
    return {"all": str(folder), "model": str(folder / "model"), "cache": str(folder / "cache")}


def _run(**job: Any) -> dict[str, Any]:  # noqa: ANN401 - see deployed_root
    if subprocess.run(["unshare", "-rmn", "true"], check=False, capture_output=True).returncode:
        pytest.skip("there are no user namespaces here")
    paths = [str(ROOT)]
    script = Path(__file__).with_name("deployed_root.py")
    command = ["unshare", "-rmn", sys.executable, str(script), json.dumps(job | {"search_path": paths})]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _check_served(result: dict[str, Any]) -> None:
    said = result["errors"].splitlines()
    assert (result["rc"], result["vectors"]) == (0, 2), said
    assert said[-1].startswith("stopped after")
    assert all(line.startswith(("serving ", "stopped ", "warning: 0.0.0.0 is open to others")) for line in said)


def test_the_units_command_serves_as_written(places: dict[str, str]) -> None:
    unit = _unit()
    result = _run(
        command=shlex.split(unit["ExecStart"][0]),
        environment=dict(pair.split("=") for pair in unit["Environment"][0].split()),
        health=None,
        stop_seconds=int(unit["TimeoutStopSec"][0]),
        places={"/var/lib/ensembed": places["all"]},
    )
    _check_served(result)


def test_the_containers_command_serves_and_is_healthy_as_written(places: dict[str, str]) -> None:
    environment = dict(pair.split("=") for pair in _values("ENV")[-1].split())
    result = _run(
        command=[*json.loads(_values("ENTRYPOINT")[0]), *json.loads(_values("CMD")[0])],
        environment=environment,
        health=json.loads(_values("HEALTHCHECK")[0].partition("CMD ")[2]),
        stop_seconds=45,
        places={"/model": places["model"], "/cache": places["cache"]},
    )
    _check_served(result)
    assert result["health"] == 0
