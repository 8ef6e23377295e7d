"""How many cores there are, and that one setting bounds everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import ensembed
from ensembed import Ensemble
from ensembed.cli import main
from ensembed.corpora.corpus import ListCorpus
from ensembed.errors import InputError
from ensembed.support.machine import available_cores, blas_threads, cache_dir, chosen_data_dir


def _groups(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "1000 100000\n"}, 1),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 64),
        ("0::/a/b\n", {"sys/fs/cgroup/a/cpu.max": "300000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, 3),
        ("0::/outside/of/here\n", {"sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),
        (
            "4:cpu,cpuacct:/docker/x\n0::/\n",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "500000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
            5,
        ),
        (
            "4:cpu,cpuacct:/\n",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
            64,
        ),
        ("damaged\n", {}, 64),
    ],
)
def test_cores_are_bounded_by_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(64), raising=False)
    assert available_cores(_groups(tmp_path, groups, files)) == cores
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: [0], raising=False)
    assert available_cores(tmp_path) == 1


def test_no_control_groups_are_no_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(7), raising=False)
    assert available_cores(tmp_path) == 7


def _blas() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_limit_threads_bounds_this_process_and_its_children() -> None:
    torch = pytest.importorskip("torch")
    ensembed.limit_threads(1)
    assert available_cores() == 1
    assert _blas() == {1}
    assert torch.get_num_threads() == 1
    code = (
        "import json, numpy, scipy.linalg, threadpoolctl, os\n"
        "pools = [pool['num_threads'] for pool in threadpoolctl.threadpool_info()]\n"
        "print(json.dumps([pools, os.environ['RAYON_NUM_THREADS']]))"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pools, tokenizers = json.loads(child.stdout)
    assert set(pools) == {1}
    assert tokenizers == "1"
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


@pytest.mark.parametrize("threads", [0, 2.5, "2", None])
def test_a_number_of_threads_that_is_none_changes_nothing(threads: Any) -> None:  # noqa: ANN401 - wrong on purpose
    before = available_cores()
    with pytest.raises(InputError, match=f"at least 1, not {threads!r}"):
        ensembed.limit_threads(threads)
    assert available_cores() == before


def test_no_threads_are_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ensembed.distil.distillation import Plan, distil
    from ensembed.encoders import DemoEncoder, open_encoder
    from ensembed.methods import Concat

    def encode(*_: object) -> None:
        raise AssertionError("sentences were encoded")

    views, texts = [np.eye(3), np.eye(3)], [f"sentence {i}" for i in range(9)]
    ensemble, teacher = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"]), DemoEncoder(8)
    monkeypatch.setattr(DemoEncoder, "embed", encode)
    calls: list[Callable[[Any], Any]] = [
        lambda threads: Concat().fit(views, threads=threads),
        lambda threads: ensemble.fit(texts, Concat(), threads=threads),
        lambda threads: distil(teacher, ListCorpus(texts), Plan(start=("none",)), tmp_path / "s", threads=threads),
        lambda threads: open_encoder("demo", threads=threads),
    ]
    for call in calls:
        for threads in (0, -1, 1.5):
            with pytest.raises(InputError, match=f"threads must be a whole number of at least 1, not {threads}"):
                call(threads)


def test_blas_uses_no_more_cores_than_there_are_and_no_more_than_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensembed.support.machine.available_cores", lambda: 2)
    for told, used in ((4, 2), (1, 1)):
        with threadpool_limits(told, user_api="blas"):
            with blas_threads(None):
                assert _blas() == {used}
            assert _blas() == {told}


def test_threads_of_a_fit_bound_blas_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from ensembed.methods import Auto
    from ensembed.numerics.eigen import top_eigh

    seen: list[set[int]] = []

    def noted(*given: Any) -> Any:  # noqa: ANN401 - those of `top_eigh`
        seen.append(_blas())
        return top_eigh(*given)

    monkeypatch.setattr("ensembed.methods.method.top_eigh", noted)
    ensemble = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"])
    with blas_threads(2):
        ensemble.fit([f"sentence {i} of {i % 7}" for i in range(60)], Auto(weights="equal", whitened=(1,)), threads=1)
        assert _blas() == {2}
    assert seen == [{1}]


def test_threads_of_a_command_bound_blas_and_tokenizers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("a dog\na cat\n")
    assert main(["encode", "-e", "demo", str(texts), "--out", str(tmp_path / "v.npy"), "--threads", "1"]) == 0
    capsys.readouterr()
    assert _blas() == {1}
    assert os.environ["RAYON_NUM_THREADS"] == "1"


@pytest.mark.parametrize(("name", "below"), [("ENSEMBED_CACHE", "."), ("XDG_CACHE_HOME", "ensembed")])
def test_the_cache_is_the_same_folder_for_programs_that_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, below: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ENSEMBED_CACHE", raising=False)
    monkeypatch.setenv(name, "my-cache")
    assert cache_dir() == tmp_path / "my-cache" / below


def test_without_a_home_folder_the_cache_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", str)  # as for a user whom the system does not know
    for chosen in ("", "~nobody/cache"):
        monkeypatch.setenv("ENSEMBED_CACHE", chosen)
        with pytest.raises(InputError, match=r"no folder for the cache: .*home directory\. Name a folder"):
            cache_dir()
    monkeypatch.setenv("ENSEMBED_DATA", "~nobody/data")
    assert chosen_data_dir() == Path("~nobody/data")
