"""A hub on this machine that can be written to: a real web server with repositories, branches, commits and tokens.

It speaks what huggingface_hub speaks: create a repository or a branch, check a card, ask how to upload, upload large
files, commit, ask for a revision, list a tree, get files.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import pytest
from loopback import serving

Answer: TypeAlias = tuple[int, dict[str, str], bytes]
Files: TypeAlias = dict[str, bytes]

WRITER, READER = "hf_writer", "hf_reader"


@dataclass
class Repository:
    """Its commits, each with all of its files, and what the branches mean."""

    private: bool
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, branch: str, files: Mapping[str, bytes], message: str) -> str:
        """Add files to what the branch has; the commit's name."""
        whole = {**self.commits.get(self.branches.get(branch, ""), {}), **files}
        self.messages.append(message)
        name = hashlib.sha1(f"{branch} {len(self.messages)} {message}".encode()).hexdigest()  # noqa: S324 - as git does
        self.commits[name] = whole
        self.branches[branch] = name
        return name

    def find(self, revision: str) -> str | None:
        """The commit that a branch or a commit means."""
        return self.branches.get(revision, revision if revision in self.commits else None)


class HubServer:
    """The hub.

    Attributes:
        repositories: by their names.
        asked: the requests so far, as `GET /path`.
        failing: answers to give instead, by a part of `METHOD /path`.
        hold: a part of `METHOD /path` of requests that are never answered.
        held: set once there was such a request.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.asked: list[str] = []
        self.failing: dict[str, Answer] = {}
        self.hold = ""
        self.held = threading.Event()
        self.released = threading.Event()
        self._large: Files = {}
        self._lock = threading.Lock()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                path = unquote(urlsplit(self.path).path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
                status, headers, answer = hub._answer(self.command, path, body, token)
                try:
                    self.send_response(status)
                    for name, value in {**headers, "Content-Length": str(len(answer))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(answer)
                except ConnectionError:  # a client that was killed
                    self.close_connection = True

            do_GET = do_HEAD = do_POST = do_PUT = _serve  # noqa: N815 - the names http.server calls

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def environment(self, home: Path, *, token: str = "", offline: bool = False) -> dict[str, str]:
        """The variables that point another interpreter's client at this server."""
        names = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HF_ENDPOINT": self.url, "HF_HOME": str(home)}
        names["HF_HUB_DISABLE_XET"] = "1"  # large files by LFS, which plain HTTP can serve
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        return kept | names | ({"HF_TOKEN": token} if token else {}) | ({"HF_HUB_OFFLINE": "1"} if offline else {})

    def files(self, repo: str, revision: str = "main") -> Files:
        """What the hub has of a repository at a revision."""
        found = self.repositories[repo]
        return found.commits[found.find(revision) or ""]

    def _answer(self, method: str, path: str, body: bytes, token: str) -> Answer:
        line = f"{method} {path}"
        with self._lock:
            self.asked.append(line)
        if self.hold and self.hold in line:
            self.held.set()
            self.released.wait(30)
        for part, answer in self.failing.items():
            if part in line:
                return answer
        if token not in ("", WRITER, READER):
            return 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b"{}"
        with self._lock:
            if method in ("POST", "PUT"):
                return self._write(path, body, token)
            return self._read(path, token)

    def _write(self, path: str, body: bytes, token: str) -> Answer:
        if path == "/api/validate-yaml":
            valid = json.loads(body)["content"].startswith("---\n")
            errors = [] if valid else [{"message": "no metadata"}]
            return 200 if valid else 400, {}, json.dumps({"errors": errors, "warnings": []}).encode()
        if path.startswith("/lfs/"):  # let in by the address itself, as with signed URLs
            if hashlib.sha256(body).hexdigest() != path.removeprefix("/lfs/"):
                return 400, {}, b"torn"
            self._large[path.removeprefix("/lfs/")] = body
            return 200, {}, b""
        if token != WRITER:
            return 401 if not token else 403, {"X-Error-Message": "You have no right to write here"}, b"{}"
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked['organization']}/{asked['name']}"
            page = json.dumps({"url": f"{self.url}/{repo}"}).encode()
            if repo in self.repositories:
                return 409, {}, page
            private = asked.get("private", asked.get("visibility") == "private")
            self.repositories[repo] = Repository(private)
            self.repositories[repo].commit("main", {".gitattributes": b""}, "initial commit")
            return 200, {}, page
        if path.endswith(".git/info/lfs/objects/batch"):
            return self._batch(json.loads(body)["objects"])
        repo, action, rest = self._parts(path)
        found = self.repositories.get(repo)
        if found is None:
            return self._absent()
        if action == "branch":
            if rest in found.branches:
                return 409, {}, b"{}"
            found.branches[rest] = found.branches["main"]
            return 200, {}, b"{}"
        head = found.find(rest)
        if head is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        if action == "preupload":
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            return 200, {}, json.dumps({"files": files}).encode()
        if action == "commit":
            return self._commit(repo, found, rest, [json.loads(line) for line in body.splitlines()])
        return 404, {}, b"{}"

    def _batch(self, objects: list[dict[str, Any]]) -> Answer:
        told = []
        for one in objects:
            upload = {"upload": {"href": f"{self.url}/lfs/{one['oid']}"}}
            told.append({**one, **({} if one["oid"] in self._large else {"actions": upload})})
        return 200, {}, json.dumps({"objects": told, "transfer": "basic"}).encode()

    def _commit(self, repo: str, found: Repository, branch: str, lines: list[dict[str, Any]]) -> Answer:
        files: Files = {}
        message = ""
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                message = value["summary"]
                if value.get("parentCommit", found.branches[branch]) != found.branches[branch]:
                    return 412, {"X-Error-Message": "The branch has moved"}, b"{}"
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                files[value["path"]] = self._large[value["oid"]]
        name = found.commit(branch, files, message)
        return 200, {}, json.dumps({"commitUrl": f"{self.url}/{repo}/commit/{name}", "commitOid": name}).encode()

    def _read(self, path: str, token: str) -> Answer:
        repo, action, rest = self._parts(path)
        found = self.repositories.get(repo)
        if found is None or (found.private and not token):
            return self._absent()
        if action == "resolve":
            revision, _, name = rest.partition("/")
        else:
            revision, name = (rest or "main"), ""
        commit = found.find(revision)
        if commit is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        files = found.commits[commit]
        if action == "resolve":
            if name not in files:
                return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, b"{}"
            etag = hashlib.sha256(files[name]).hexdigest()
            return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": commit}, files[name]
        if action == "tree":
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha256(data).hexdigest()}
                for name, data in files.items()
            ]
            return 200, {}, json.dumps(tree).encode()
        siblings = [{"rfilename": name} for name in files]
        about = {"id": repo, "sha": commit, "private": found.private, "siblings": siblings}
        return 200, {}, json.dumps(about).encode()

    @staticmethod
    def _absent() -> Answer:
        return 401, {"X-Error-Code": "RepoNotFound"}, b"{}"

    @staticmethod
    def _parts(path: str) -> tuple[str, str, str]:
        """Repository, what is asked of it, and what follows."""
        words = path.removeprefix("/api/models").strip("/").split("/")
        return "/".join(words[:2]), words[2] if len(words) > 2 else "", "/".join(words[3:])


@contextmanager
def hub_server(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[HubServer]:
    """The hub, running for as long as the block, and this process's client turned to it, with a cache in the folder."""
    hub = HubServer()
    with serving(hub.server), _turned_to(hub, monkeypatch, folder):
        try:
            yield hub
        finally:
            hub.released.set()


@contextmanager
def _turned_to(hub: HubServer, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Turn this process's client to the hub, with the writer's token and a cache in the folder."""
    from huggingface_hub import constants

    settings = {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(folder / "hub"),
        "HF_TOKEN_PATH": str(folder / "token"),
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_OFFLINE": False,
    }
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", WRITER)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    fresh_session()
    yield
    fresh_session()


def fresh_session() -> None:
    """Make the client forget its connections, and what it read of the environment for them."""
    utils = importlib.import_module("huggingface_hub.utils")
    getattr(utils, "close_session", lambda: None)()
