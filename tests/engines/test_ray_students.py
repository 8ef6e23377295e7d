"""A student on Ray Train: one worker is the local trainer, more share every batch, killed workers and drivers go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distil_cases import CORPUS, SENTENCES, TEACHER
from make_st import write_st
from ray_kills import KillAt
from ray_nodes import Nodes

from ensembed.cli import main
from ensembed.distil.distillation import Distilled, Plan, distil
from ensembed.encoders import open_encoder
from ensembed.engines import Ray
from ensembed.engines.ray import ray_training as training
from ensembed.errors import InputError, TrainingError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.views import ViewStore

pytestmark = [
    # Ray's own: its data sets warn of settings that they make themselves.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
    pytest.mark.usefixtures("one_thread"),
]

STEPS = 1400
KILL = 60


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    bert = write_st(tmp_path_factory.mktemp("bert") / "model")
    return Plan(student=f"st:{bert}?layers=1", epochs=200, batch_size=32, learning_rate=5e-5, dim=12)


@pytest.fixture(scope="module")
def local(plan: Plan, tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Distilled:  # noqa: ARG001 - it sets them
    folder = tmp_path_factory.mktemp("local")
    student = distil(TEACHER, CORPUS, plan, folder / "out", store=ViewStore(folder / "store"), threads=1)
    assert student.result["facts"]["best_step"] > KILL
    return student


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_LOOK_EVERY", 0.02)
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")


def figures(student: Distilled) -> dict[str, Any]:
    """The result without the time that it took."""
    facts = {name: value for name, value in student.result["facts"].items() if name != "seconds"}
    return {name: student.result[name] for name in ("start", "best", "saved")} | {"facts": facts}


def assert_same(student: Distilled, expected: Distilled) -> None:
    assert figures(student) == figures(expected)
    assert student.files["model.safetensors"] == expected.files["model.safetensors"]


@pytest.mark.usefixtures("cluster")
def test_one_worker_gives_the_bits_of_the_local_trainer_though_it_was_killed(
    tmp_path: Path, plan: Plan, local: Distilled
) -> None:
    engine, kill, store = Ray(keep_every=0), KillAt(KILL), ViewStore(tmp_path / "store")
    out = tmp_path / "out"
    student = distil(TEACHER, CORPUS, plan, out, store=store, engine=engine, threads=1, progress=kill)
    assert len(kill.killed) == 1
    assert KILL - 7 <= min(kill.after) < kill.after[-1] == STEPS
    assert_same(student, local)
    stages = {stage.name: stage for stage in engine.stages}
    assert stages[TEACHER.spec.name].rows == len(SENTENCES)  # the engine encodes, too
    assert (stages["train"].rows, stages["train"].workers) == (len(SENTENCES), 1)
    assert list((tmp_path / "store" / "training").iterdir()) == []


@pytest.mark.usefixtures("cluster")
def test_two_workers_give_the_student_of_one_up_to_rounding_though_one_was_killed(
    tmp_path: Path, plan: Plan, local: Distilled
) -> None:
    engine, kill, store = Ray(train_workers=2, keep_every=0), KillAt(KILL), ViewStore(tmp_path / "store")
    out = tmp_path / "out"
    student = distil(TEACHER, CORPUS, plan, out, store=store, engine=engine, threads=1, progress=kill)
    assert len(kill.killed) == 1
    assert KILL - 7 <= min(kill.after) < kill.after[-1] == STEPS
    assert engine.stages[-1].workers == 2
    assert student.result["start"]["spearman"] + 0.05 < student.result["best"]["spearman"]
    (tmp_path / "local").mkdir()
    for name, data in local.files.items():
        path = tmp_path / "local" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    found, expected = (unit_rows(open_encoder(f"st:{tmp_path / name}").encode(SENTENCES)) for name in ("out", "local"))
    assert np.einsum("ij,ij->i", found, expected).min() > 1 - 1e-5


@pytest.mark.usefixtures("cluster")
def test_a_training_that_diverges_on_the_cluster_says_what_the_local_trainer_says(tmp_path: Path, plan: Plan) -> None:
    how: dict[str, Any] = {"store": ViewStore(tmp_path / "store"), "threads": 1}
    steep = replace(plan, learning_rate=1e20, epochs=2)
    problems = []
    for engine in (Ray(train_workers=2), None):
        with pytest.raises(TrainingError, match=r"became nan at step \d+: lower learning_rate=1e\+20") as caught:
            distil(TEACHER, CORPUS, steep, tmp_path / "out", engine=engine, **how)
        problems.append(str(caught.value))
    assert problems[0] == problems[1]


KILLED = """
import os, signal, sys
from pathlib import Path
from distil_cases import CORPUS, TEACHER
from ensembed.distil.distillation import Plan, distil
from ensembed.engines import Ray
from ensembed.views import ViewStore

def kill(label, done, total):
    if label.startswith("train ·") and done >= {kill}:
        os.kill(os.getpid(), signal.SIGKILL)

store, engine = ViewStore(Path({store!r})), Ray({address!r}, keep_every=0)
distil(TEACHER, CORPUS, {plan!r}, Path("out"), store=store, engine=engine, threads=1, progress=kill)
"""


def test_a_killed_driver_and_an_interrupted_one_go_on_to_the_same_bits(
    cluster: Nodes, tmp_path: Path, plan: Plan, local: Distilled
) -> None:
    """The first two train on the cluster, the last without it."""
    store, out = tmp_path / "store", tmp_path / "out"
    program = KILLED.format(kill=KILL, store=str(store), address=cluster.address, plan=plan)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == -signal.SIGKILL
    [folder] = (store / "training").iterdir()
    assert (folder / "ray").exists()  # Ray Train's own, of the killed one
    steps: list[int] = []

    def interrupt(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train ·"):
            steps.append(done)
            if done > 5 * KILL:
                raise KeyboardInterrupt

    how: dict[str, Any] = {"store": ViewStore(store), "threads": 1}
    with pytest.raises(KeyboardInterrupt):
        distil(TEACHER, CORPUS, plan, out, engine=Ray(keep_every=0), progress=interrupt, **how)
    assert KILL - 7 <= steps[0] < steps[-1]
    assert not (folder / "ray").exists()
    rest = KillAt(10**9)
    student = distil(TEACHER, CORPUS, plan, out, progress=rest, **how)
    assert steps[-1] - 7 <= rest.epochs[0] < rest.epochs[-1] == STEPS
    assert_same(student, local)
    assert list((store / "training").iterdir()) == []


def test_the_command_trains_on_the_cluster(
    cluster: Nodes, tmp_path: Path, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(SENTENCES))
    line = ["distil", "demo?dim=24", str(corpus), "--student", plan.student, "--dim", "12", "--epochs", "2", "--quiet"]
    line += ["--store", str(tmp_path / "store"), "--threads", "1"]
    ray = ["--engine", "ray", "--address", cluster.address]
    assert main([*line, "--out", str(tmp_path / "a"), *ray, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert {"demo?dim=24", "train"} <= {stage["stage"] for stage in made["stages"]}
    assert main([*line, "--out", str(tmp_path / "b"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == made["best"]
    ours, theirs = ((tmp_path / name / "model.safetensors").read_bytes() for name in "ab")
    assert ours == theirs


def test_what_a_cluster_does_not_train_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"a static student trains in this process.*name a transformer"):
        distil(TEACHER, CORPUS, Plan(), tmp_path / "out", engine=Ray("nowhere:1"))
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(SENTENCES))
    for words, code, problem in [
        (["--out", str(tmp_path / "a")], 1, "a static student trains in this process, in minutes on two cores"),
        (["--prepare", str(tmp_path / "a")], 2, "--engine ray trains: it is for --out"),
        (["--out", str(tmp_path / "a"), "--trained", str(tmp_path)], 2, "--engine ray trains: it is for --out"),
        (["--report", "demo"], 2, "--engine ray trains: it is for --out"),
    ]:
        assert main(["distil", "demo", str(corpus), *words, "--engine", "ray", "--address", "nowhere:1"]) == code
        assert problem in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == [corpus]
