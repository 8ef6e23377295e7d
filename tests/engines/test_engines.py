"""Engines: what fits is the same wherever it runs, and what cannot run says so."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_nodes import Nodes

from ensembed import Ensemble, MetaEncoder, ViewStore
from ensembed.cli import main
from ensembed.engines import Engine, Local, Ray, Stage
from ensembed.engines.ray.cluster_resources import Cluster
from ensembed.engines.ray.ray_engine import _check_answers
from ensembed.engines.ray.shard_worker import Usage
from ensembed.errors import EngineError, InputError, MissingError
from ensembed.methods import GCCA, SVD, Auto, Autoencoder, Concat, Method
from ensembed.methods.passes import LOCAL
from ensembed.numerics.moments import Moments
from ensembed.support.progress import Progress, silent

# Ray's own: its data sets warn of settings that they make themselves.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")

WORDS = ["dog", "cat", "fox", "man", "red", "old", "blue", "runs", "eats"]
SENTENCES = [f"{a} {b} {c}" for a in WORDS for b in WORDS[:4] for c in WORDS[4:]]
MEMBERS = ["demo?dim=8&seed=1", "demo?dim=6&seed=2"]
PAIRS = [
    (float(len(set(one.split()) & set(other.split()))), one, other)
    for one, other in zip(SENTENCES[:120:3], SENTENCES[1::4], strict=False)
]


class Counting(Local):
    """The local engine, which counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_all(self, *arguments: Any, **options: Any) -> list[Any]:  # noqa: ANN401 - those of the engine
        self.asked.append("embed")
        return super().embed_all(*arguments, **options)

    def moments(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the protocol has it
        self.asked.append("moments")
        return super().moments(*arguments, **options)

    def train(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the protocol has it
        self.asked.append("train")
        return super().train(*arguments, **options)


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        (Concat(), ["embed"]),
        (GCCA(dim=4), ["embed", "moments"]),
        (SVD(dim=4, weights="reliability"), ["embed", "moments"]),
        (Auto(), ["embed"]),
        (Auto(dim=4), ["embed", "moments"]),
        (Autoencoder(dim=4, hidden_layers=0, loss="mse"), ["embed", "moments"]),
        (Autoencoder(dim=4, loss="mse", epochs=2, device="cpu"), ["embed", "train"]),
    ],
    ids=["conc", "gcca", "svd", "auto", "auto-dim", "linear", "trained"],
)
def test_everything_that_takes_long_goes_through_the_engine(tmp_path: Path, method: Method, asked: list[str]) -> None:
    engine = Counting()
    found = Ensemble(MEMBERS).fit(SENTENCES, method, store=ViewStore(tmp_path), engine=engine)
    assert engine.asked == asked
    expected = Ensemble(MEMBERS).fit(SENTENCES, method, store=ViewStore(tmp_path))
    np.testing.assert_array_equal(found.encode(WORDS), expected.encode(WORDS))


def test_tuning_goes_through_the_engine(tmp_path: Path) -> None:
    engine = Counting()
    Ensemble(MEMBERS).fit(SENTENCES, GCCA(dim=4), tune=PAIRS, store=ViewStore(tmp_path), engine=engine)
    assert engine.asked[:2] == ["embed", "embed"]
    assert set(engine.asked[2:]) == {"moments"}
    assert len(engine.asked) >= 5


def test_the_local_engine_records_no_stages() -> None:
    engine: Engine = Local()
    assert engine.stages == ()
    assert LOCAL.moments([np.ones((3, 2))]).n == 3


@pytest.mark.parametrize(
    "wrong", [{"blocks": 0}, {"train_workers": 0}, {"attempts": -1}, {"blocks": 1.5}, {"keep_every": -1.0}]
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Ray(**wrong)


def test_an_engine_connects_when_it_is_needed() -> None:
    code = "import sys; from ensembed.engines import Ray; Ray('nowhere:1').close(); print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False"]


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingError, match=r"pip install 'ensembed\[ray\]'"):
        Ray().moments([np.ones((3, 2))])


class _Nodes:
    """What ray says about nodes."""

    def __init__(self, *resources: dict[str, float]) -> None:
        self._resources = resources

    def nodes(self) -> list[dict[str, Any]]:
        dead = {"Alive": False, "Resources": {"CPU": 64.0}}
        return [dead, *({"Alive": True, "Resources": one} for one in self._resources)]


def test_a_cluster_is_what_is_alive_and_has_cores() -> None:
    cluster = Cluster.of(_Nodes({"CPU": 4.0, "GPU": 1.0}, {"CPU": 16.0}, {"memory": 1.0}))
    assert cluster == Cluster((4, 16), 1)
    assert cluster.smallest == 4
    assert [cluster.slots(cores) for cores in (1, 3, 16, 99)] == [20, 6, 1, 1]
    with pytest.raises(EngineError, match="no CPU for tasks"):
        Cluster.of(_Nodes({"CPU": 0.0}))


def test_a_worker_that_reports_twice_is_counted_once() -> None:
    assert Usage.total([Usage("a:1", 5), Usage("a:2", 9), Usage("a:1", 7)]) == (2, 9)
    assert Usage.total([]) == (0, 0)
    assert Stage("x", 10, 2.0, 1, 0).rate == 5


@pytest.mark.usefixtures("cluster")
def test_close_leaves_a_cluster_running_that_the_engine_did_not_start() -> None:
    """What the engine started itself, it stops: tests/engines/test_scaling_docs.py."""
    import ray

    X = np.random.default_rng(0).standard_normal((500, 4))
    with Ray("127.0.0.1:1") as engine:  # this process has its cluster already
        np.testing.assert_allclose(engine.moments([X]).scatter, Moments.of(X).scatter, rtol=1e-12)
    assert ray.is_initialized()


def fitted(method: Method | None, engine: Engine | None, folder: Path, progress: Progress = silent) -> MetaEncoder:
    tune = PAIRS if isinstance(method, GCCA) else None
    store = ViewStore(folder, shard_rows=32)
    return Ensemble(MEMBERS).fit(SENTENCES, method, tune=tune, store=store, engine=engine, threads=1, progress=progress)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the cluster fills once."""
    return tmp_path_factory.mktemp("embedded")


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "method",
    [None, GCCA(dim=4), Auto(dim=4), Autoencoder(dim=4, hidden_layers=0, loss="mse")],
    ids=["auto", "tuned", "auto-dim", "linear"],
)
def test_a_fit_on_the_cluster_equals_the_local_fit(tmp_path: Path, embedded: Path, method: Method | None) -> None:
    engine = Ray(blocks=3)
    found = fitted(method, engine, embedded)
    expected = fitted(method, None, tmp_path / "local")
    assert found.meta.method == expected.meta.method
    assert found.corpus == expected.corpus
    np.testing.assert_allclose(found.encode(WORDS), expected.encode(WORDS), rtol=0, atol=1e-6)
    assert engine.stages


def test_the_command_fits_on_a_cluster(cluster: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES))
    common = ["fit", str(tmp_path / "corpus.txt"), "-e", MEMBERS[0], "-e", MEMBERS[1], "--method", "gcca", "--dim", "4"]
    ray = ["--engine", "ray", "--address", cluster.address, "--store", str(tmp_path / "ray")]
    assert main([*common, *ray, "--out", str(tmp_path / "a"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {stage["stage"] for stage in said["stages"]} >= {"moments"}
    assert all(stage["seconds"] >= 0 for stage in said["stages"])
    assert main([*common, *ray, "--out", str(tmp_path / "b")]) == 0
    assert "moments" in capsys.readouterr().err
    assert main([*common, "--store", str(tmp_path / "local"), "--out", str(tmp_path / "c"), "--json"]) == 0
    local = json.loads(capsys.readouterr().out)
    assert "stages" not in local
    assert local["spectrum"] == pytest.approx(said["spectrum"], rel=1e-5)


@pytest.mark.parametrize(
    "options", [["--address", "auto"], ["--resources", "num_cpus=2"], ["--train-workers", "2"]], ids=lambda one: one[0]
)
def test_cluster_options_without_the_ray_engine_are_refused(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "corpus.txt", "-e", MEMBERS[0], "--out", "model", *options]) == 2
    assert f"{options[0]} is for --engine ray" in capsys.readouterr().err


def test_an_address_where_nothing_listens_raises_at_once() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # taken, so that nobody else listens there, either
        with pytest.raises(EngineError, match="cannot be reached"):
            _check_answers(f"ray://127.0.0.1:{probe.getsockname()[1]}")
