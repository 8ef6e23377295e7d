"""A model hub on this machine: a real web server that serves a folder as one repository at one commit."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from loopback import serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class LoopbackHub:
    """What the hub's client asks a hub: the commit of a revision, the list of files, and the files.

    Args:
        folder: the files of the repository.
        repo: its name.
        commit: its only commit; the branch `main` and the tag `v1` mean it.

    Attributes:
        asked: the requests so far, as `GET /path`.
        gated: refuse to give out files, as a hub does to those who have not accepted a model's terms.
        broken: answer everything with status 500.
    """

    def __init__(self, folder: Path, repo: str, commit: str = COMMIT) -> None:
        self.folder, self.repo, self.commit = folder, repo, commit
        self.asked: list[str] = []
        self.gated = self.broken = False
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = unquote(urlsplit(self.path).path)
                if "/api/" not in path or "/models/" in path:  # not what the client asks for its own statistics
                    hub.asked.append(f"{self.command} {path}")
                status, headers, body = hub._answer(path)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815 - the name http.server calls

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def environment(self, home: Path, *, offline: bool = False) -> dict[str, str]:
        """The variables that point the hub's client at this server, and its cache at a folder of the test."""
        names = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HF_ENDPOINT": self.url, "HF_HOME": str(home)}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        return kept | names | ({"HF_HUB_OFFLINE": "1"} if offline else {})

    def python(
        self, program: str, *arguments: str, home: Path, offline: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a fresh interpreter: the hub's client reads its settings when it is imported."""
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", program, *arguments],
            env=self.environment(home, offline=offline),
            capture_output=True,
            text=True,
            check=False,
        )

    def _answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a path."""
        api = f"/api/models/{self.repo}"
        files = {p.relative_to(self.folder).as_posix(): p for p in sorted(self.folder.rglob("*")) if p.is_file()}
        if self.broken:
            return 500, {}, b"{}"
        if path in (api, *(f"{api}/revision/{name}" for name in ("main", "v1", self.commit))):
            about = {"id": self.repo, "sha": self.commit, "siblings": [{"rfilename": name} for name in files]}
            return 200, {}, json.dumps(about).encode()
        if path == f"{api}/tree/{self.commit}":
            tree = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": self._hash(file)}
                for name, file in files.items()
            ]
            return 200, {}, json.dumps(tree).encode()
        for revision in ("main", "v1", self.commit):
            start = f"/{self.repo}/resolve/{revision}/"
            if path.startswith(start):
                if self.gated:
                    return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, b"{}"
                if path.removeprefix(start) not in files:
                    return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": self.commit}, b"{}"
                file = files[path.removeprefix(start)]
                return 200, {"ETag": f'"{self._hash(file)}"', "X-Repo-Commit": self.commit}, file.read_bytes()
        known = path.startswith((f"{api}/", f"/{self.repo}/"))
        return 404, {"X-Error-Code": "RevisionNotFound" if known else "RepoNotFound"}, b"{}"

    @staticmethod
    def _hash(file: Path) -> str:
        return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def loopback_hub(folder: Path, repo: str, commit: str = COMMIT) -> Iterator[LoopbackHub]:
    """The hub, running for as long as the block."""
    hub = LoopbackHub(folder, repo, commit)
    with serving(hub.server):
        yield hub
