"""`ensembed serve` on the command line."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from serving import serving

from ensembed import Ensemble
from ensembed.cli import main
from ensembed.methods import SVD
from ensembed.serve.uvicorn_server import address_of, is_loopback, listen


def test_saved_model_is_served_under_the_name_of_its_folder(tmp_path: Path) -> None:
    model = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"]).fit([f"{a} {b}" for a in "abc" for b in "def"], SVD(3))
    model.save(tmp_path / "my-model")
    with serving(tmp_path, "cli", str(tmp_path / "my-model"), "--port", "0", "--host", "0.0.0.0") as server:  # noqa: S104 - what is tested
        assert "no API key is needed" in server.logged
        url = f"http://127.0.0.1:{server.port}"
        assert [entry["id"] for entry in httpx.get(f"{url}/v1/models").json()["data"]] == ["my-model"]
        card = httpx.get(f"{url}/card").json()
        assert (card["name"], card["dim"], card["rows"], len(card["members"])) == ("my-model", 3, 9, 2)
        assert server.stop() == 0
        assert "stopped after" in server.logged


def test_an_option_with_a_path_does_not_hide_the_name_of_the_encoder(tmp_path: Path) -> None:
    with serving(tmp_path, "cli", "demo?dim=8&query_prefix=/a/b", "--port", "0") as server:
        [model] = httpx.get(f"{server.url}/v1/models").json()["data"]
    assert model["id"] == "demo?dim=8&query_prefix=b"


def test_serving_is_said_when_connections_are_accepted() -> None:
    command = [sys.executable, "-m", "ensembed", "serve", "demo?dim=8", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            socket.create_connection(("127.0.0.1", int(line.rpartition(":")[2]))).close()
        finally:
            process.terminate()
    assert line.startswith("serving demo")


def test_port_in_use_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "demo?dim=8", "--port", str(port)]) == 1
    assert "choose another `port` (--port)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo?dim=8", "--keys", "absent"], "cannot be read"),
        (["demo?dim=8", "--index", "absent", "--port", "0"], "no index"),
        (["no-such-model", "--port", "0"], "neither a folder"),
        (["demo?dim=8", "--host", "192.0.2.1", "--port", "0"], "cannot listen"),
    ],
)
def test_wrong_arguments_are_errors(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *arguments]) == 1
    assert said in capsys.readouterr().err


def test_loopback_addresses_are_recognised() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")  # noqa: S104 - nothing is bound
    assert not is_loopback("example.org")
    with listen("127.0.0.1", 0) as bound:
        assert address_of(bound).startswith("http://127.0.0.1:")
