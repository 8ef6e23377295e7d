"""`ensembed serve --missing … --time-limit …`: a server whose model has a member that fails, hangs or is not there."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from loopback_openai import LoopbackOpenAI, fails, good, hangs
from numpy.typing import NDArray
from serving import BOUND, Running, metric, serving

from ensembed import Ensemble, load
from ensembed.cli import main
from ensembed.methods import SVD
from ensembed.models.ensemble import Missing
from ensembed.search import Index

_WORDS = ("dogs", "cats", "stocks", "rivers", "trains", "apples", "judges", "songs", "lamps", "clouds", "coins")
CORPUS = [f"{a} see {b} with {c}" for a, b, c in itertools.product(_WORDS, repeat=3)]
TEXTS = CORPUS[:3]


@pytest.fixture
def remote() -> Iterator[LoopbackOpenAI]:
    with LoopbackOpenAI() as server:
        yield server


@pytest.fixture
def folder(remote: LoopbackOpenAI, tmp_path: Path) -> Path:
    """A saved model; its first member is the remote server."""
    members = [f"openai:{remote.url}#m?retries=0", "demo?dim=12&seed=1", "demo?dim=10&seed=2"]
    Ensemble(members).fit(CORPUS, SVD(dim=12)).save(tmp_path / "model")
    return tmp_path / "model"


def _name(remote: LoopbackOpenAI) -> str:
    return f"openai:{remote.url}#m?retries=0"


def _embeddings(server: Running, texts: list[str]) -> tuple[NDArray[Any], dict[str, Any]]:
    reply = httpx.post(f"{server.url}/v1/embeddings", json={"input": texts, "model": "model"}, timeout=BOUND)
    assert reply.status_code == 200, reply.text
    facts = reply.json()
    return np.array([row["embedding"] for row in facts["data"]], np.float32), facts


@pytest.mark.parametrize("missing", ["drop", "predict"])
def test_replies_name_a_member_that_fails_and_are_whole_again_after_it(
    missing: Missing, remote: LoopbackOpenAI, folder: Path, tmp_path: Path
) -> None:
    model = load(folder, missing=missing)
    whole = model.encode(TEXTS)
    with serving(tmp_path, "cli", str(folder), "--port", "0", "--missing", missing) as server:
        vectors, facts = _embeddings(server, TEXTS)
        np.testing.assert_allclose(vectors, whole, atol=1e-6)
        assert "missing" not in facts
        remote.behave = fails(503)
        vectors, facts = _embeddings(server, TEXTS)
        assert facts["missing"] == [_name(remote)]
        with pytest.warns(RuntimeWarning, match="openai"):
            np.testing.assert_allclose(vectors, model.encode(TEXTS), atol=1e-6)
        assert np.abs(vectors - whole).max() > 0.01
        assert httpx.get(f"{server.url}/ready").status_code == 200
        remote.behave = good
        vectors, facts = _embeddings(server, TEXTS)
        np.testing.assert_allclose(vectors, whole, atol=1e-6)
        assert "missing" not in facts
        assert metric(server, "ensembed_cache_rows") == 0
        way = "predicting" if missing == "predict" else "going on without"
        assert f"{way} openai:" in server.logged


def test_a_request_of_several_batches_names_a_member_that_failed_in_one(
    remote: LoopbackOpenAI, folder: Path, tmp_path: Path
) -> None:
    arguments = ("cli", str(folder), "--port", "0", "--missing", "drop", "--batch-texts", "2")
    with serving(tmp_path, *arguments) as server:
        remote.script.append(fails(503))
        _, facts = _embeddings(server, TEXTS)
        assert facts["missing"] == [_name(remote)]


def test_a_member_that_hangs_is_left_after_the_time_limit(remote: LoopbackOpenAI, folder: Path, tmp_path: Path) -> None:
    arguments = ("cli", str(folder), "--port", "0", "--missing", "drop", "--time-limit", "0.5")
    with serving(tmp_path, *arguments) as server:
        remote.behave = hangs
        for _ in range(2):  # the second time it is still busy
            _, facts = _embeddings(server, TEXTS)
            assert facts["missing"] == [_name(remote)]
        reply = httpx.post(f"{server.url}/similarity", json={"texts": TEXTS}, timeout=BOUND).json()
        assert (reply["missing"], len(reply["members"])) == ([_name(remote)], 2)


def test_a_member_that_is_down_from_the_start_is_missing_in_all_replies(
    remote: LoopbackOpenAI, folder: Path, tmp_path: Path
) -> None:
    index = Index.create(tmp_path / "index", folder)
    index.add(CORPUS[:20])
    remote.behave = fails(503)
    arguments = ("cli", str(folder), "--port", "0", "--missing", "drop", "--index", str(tmp_path / "index"))
    with serving(tmp_path, *arguments) as server:
        assert "going on without encoder 'openai:" in server.logged
        remote.behave = good
        _, facts = _embeddings(server, TEXTS)
        assert facts["missing"] == [_name(remote)]
        found = httpx.post(f"{server.url}/search", json={"query": CORPUS[7], "k": 1}, timeout=BOUND).json()
        assert found["hits"][0]["text"] == CORPUS[7]
        assert found["missing"] == [_name(remote)]


def test_without_the_options_a_failing_member_fails_the_request(
    remote: LoopbackOpenAI, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, "cli", str(folder), "--port", "0") as server:
        remote.behave = fails(503)
        reply = httpx.post(f"{server.url}/v1/embeddings", json={"input": "new", "model": "model"}, timeout=BOUND)
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "model_failed")
        assert httpx.get(f"{server.url}/ready").status_code == 200
    assert main(["serve", str(folder), "--port", "0"]) == 1
    assert "openai" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--missing", "drop"], ["--time-limit", "2"]])
def test_a_single_encoder_has_no_member_that_could_be_missing(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "demo?dim=8", "--port", "0", *options]) == 1
    assert "no members that could be missing" in capsys.readouterr().err


def test_a_model_of_few_sentences_cannot_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Ensemble(["demo?dim=12&seed=1", "demo?dim=10&seed=2"]).fit(CORPUS[:99], SVD(dim=12)).save(tmp_path / "few")
    assert main(["serve", str(tmp_path / "few"), "--port", "0", "--missing", "predict"]) == 1
    assert "cannot predict a missing member" in capsys.readouterr().err


def test_encode_present_reports_failures_without_warnings(remote: LoopbackOpenAI, folder: Path) -> None:
    model = load(folder, missing="drop")
    remote.behave = fails(503)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vectors, failures = model.encode_present(TEXTS)
    assert (vectors.shape, list(failures)) == ((3, model.dim), [0])
