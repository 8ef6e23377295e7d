"""Run a deployed server's command as it is written, in namespaces of its own: `unshare -rmn python FILE JSON`.

The root is an empty tmpfs into which the folders of this machine are mounted, and beside them what the deployment puts
there: `/opt/ensembed` and the model. There is no network but the loopback, so that the port is free, and nothing can be
written but `/tmp`. The JSON has `command`, `environment`, `health` (a command, or null), `stop_seconds`, `places` (what
is mounted where, read-only) and `search_path` (of Python). The result is printed as JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

NEW = {"opt": Path("/opt"), "var": Path("/var"), "var/lib": Path("/var/lib")}
"""Folders that are not mounted as they are: they get new entries."""


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def make_root(places: dict[str, str], search_path: list[str]) -> Path:
    root = Path(tempfile.mkdtemp())
    mount("-t", "tmpfs", "tmpfs", root)
    for inside, folder in {"": Path("/"), **NEW}.items():
        for entry in folder.iterdir():
            new = root / inside / entry.name
            if entry.is_symlink():
                new.symlink_to(entry.readlink())
            elif entry.is_dir():
                new.mkdir()
                if entry not in NEW.values():
                    mount("--rbind", entry, new)
    programs = root / "opt/ensembed/bin"
    programs.mkdir(parents=True)
    for name, arguments in (("python", ""), ("ensembed", " -m ensembed")):
        paths = ":".join(search_path)
        (programs / name).write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec {sys.executable}{arguments} "$@"\n')
        (programs / name).chmod(0o755)
    for place, source in places.items():
        target = root / place.lstrip("/")
        target.mkdir(parents=True)
        mount("--bind", source, target)
        mount("-o", "remount,bind,ro", target)
    mount("-o", "remount,ro", root)
    return root


def start_loopback() -> None:
    get_flags, set_flags, up = 0x8913, 0x8914, 0x1
    with socket.socket() as opened:
        name = struct.pack("16sh", b"lo", 0)
        flags = struct.unpack("16sh", fcntl.ioctl(opened, get_flags, name))[1]
        fcntl.ioctl(opened, set_flags, struct.pack("16sh", b"lo", flags | up))


def ask(path: str, body: Any = None) -> Any:  # noqa: ANN401 - JSON
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:8080{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310 - the server of this test
        return json.loads(reply.read() or b"null")


def main(job: dict[str, Any]) -> dict[str, Any]:
    root = make_root(job["places"], job["search_path"])
    start_loopback()
    os.chroot(root)
    os.chdir("/")
    environment = {"PATH": "/usr/bin:/bin", **job["environment"]}
    server = subprocess.Popen(job["command"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while server.poll() is None and time.monotonic() < deadline:
            try:
                ask("/ready")
                break
            except OSError:
                time.sleep(0.2)
        if server.poll() is not None:
            return {"rc": server.returncode, "errors": server.stderr.read() if server.stderr else ""}
        reply = ask("/v1/embeddings", {"model": "model", "input": ["a dog", "a cat"]})
        health = job["health"] and subprocess.run(job["health"], env=environment, check=False, timeout=30).returncode
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=job["stop_seconds"])
    finally:
        if server.poll() is None:
            server.kill()
    return {"rc": server.returncode, "errors": errors, "health": health, "vectors": len(reply["data"])}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
