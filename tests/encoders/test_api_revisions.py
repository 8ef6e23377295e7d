"""Revisions of servers: the same for almost the same vectors, another for others, whatever happens to the memory."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ensembed.encoders.base import FloatArray
from ensembed.encoders.openai.openai_encoder import SERVER_PROBES, probed_revision
from ensembed.support.machine import cache_dir


def drawn(seed: int = 0, dim: int = 16) -> FloatArray:
    return np.random.default_rng(seed).standard_normal((len(SERVER_PROBES), dim), dtype=np.float32)


def moved(vectors: FloatArray, part: float, row: int | None = None) -> FloatArray:
    """Rows (or one of them) that are that part of their length away."""
    noise = np.random.default_rng(9).standard_normal(vectors.shape)
    noise *= part * np.linalg.norm(vectors, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
    if row is not None:
        noise[np.arange(len(noise)) != row] = 0
    return (vectors + noise).astype(np.float32)


def memory() -> Path:
    (found,) = (cache_dir() / "servers").glob("*.json")
    return found


def test_revision_has_a_prefix_and_a_hash() -> None:
    assert re.fullmatch(r"probed-[0-9a-f]{16}", probed_revision("m", None, drawn()))


def test_noise_does_not_change_the_revision() -> None:
    known = probed_revision("m", None, drawn())
    assert probed_revision("m", None, drawn()) == known
    assert probed_revision("m", None, moved(drawn(), 0.009)) == known
    before = memory().read_bytes()
    assert probed_revision("m", None, moved(drawn(), 0.001)) == known
    assert memory().read_bytes() == before


@pytest.mark.parametrize("row", [None, 0, 1, 2])
def test_change_of_any_row_changes_the_revision(row: int | None) -> None:
    known = probed_revision("m", None, drawn())
    other = probed_revision("m", None, moved(drawn(), 0.011, row))
    assert other != known
    assert probed_revision("m", None, drawn()) == known  # both are remembered
    assert probed_revision("m", None, moved(drawn(), 0.011, row)) == other


def test_revision_is_compared_with_the_first_vectors_seen() -> None:
    """Every step is small, but it is compared with what was first seen and not with the step before."""
    revisions = {probed_revision("m", None, np.float32(1 + 0.004 * step) * drawn()) for step in range(10)}
    assert len(revisions) > 2


def test_models_and_dimensions_have_their_own_revisions() -> None:
    near = moved(drawn(), 0.005)
    assert probed_revision("m", None, drawn()) != probed_revision("n", None, near)
    assert probed_revision("m", None, drawn()) != probed_revision("m", 16, near)


def test_vectors_of_another_length_get_another_revision() -> None:
    assert probed_revision("m", None, drawn(dim=16)) != probed_revision("m", None, drawn(dim=8))


def test_zero_vectors_have_a_revision() -> None:
    zeros = np.zeros((len(SERVER_PROBES), 4), np.float32)
    known = probed_revision("m", None, zeros)
    assert probed_revision("m", None, zeros) == known
    assert probed_revision("m", None, zeros + 1) != known


def test_remembered_revisions_are_bounded_and_the_oldest_go() -> None:
    revisions = [probed_revision("m", None, drawn(seed)) for seed in range(40)]
    seen = json.loads(memory().read_bytes())["seen"]
    assert [entry["revision"] for entry in seen] == revisions[-16:]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"17",
        b'{"seen": 3}',
        b'{"seen": [3]}',
        b'{"seen": [{}]}',
        b"\xff\x00",
        b"[" * 100000,
        b'{"seen": [{"revision": "probed-x", "vectors": "?"}]}',
        b'{"seen": [{"revision": 3, "vectors": "AAAAAAAAAAAAAAAA"}]}',
        b'{"seen": [{"revision": "probed-x", "vectors": "AADAfwAAwH8AAMB/"}]}',
    ],
)
def test_damaged_file_of_revisions_is_replaced(damage: bytes) -> None:
    known = probed_revision("m", None, drawn())
    memory().write_bytes(damage)
    assert probed_revision("m", None, drawn()) == known
    assert probed_revision("m", None, moved(drawn(), 0.005)) == known


def test_revision_without_a_cache_is_the_hash_of_the_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = probed_revision("m", None, drawn())
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "file"))
    assert probed_revision("m", None, drawn()) == known
    assert probed_revision("m", None, moved(drawn(), 0.005)) != known


def test_failed_write_leaves_the_file_of_revisions_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    probed_revision("m", None, drawn())
    before = memory().read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert probed_revision("m", None, drawn(1)).startswith("probed-")
    assert memory().read_bytes() == before
    assert sorted(path.suffix for path in memory().parent.iterdir() if path.suffix != ".lock") == [".json"]


def test_threads_that_see_a_model_first_agree_on_its_revision() -> None:
    """Whichever of the noisy vectors came first, all get its revision."""
    noisy = [moved(drawn(), 0.0001 * i) for i in range(16)]
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda vectors: probed_revision("m", None, vectors), noisy))) == 1
