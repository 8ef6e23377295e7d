"""A real PostgreSQL with pgvector for tests, from Debian's packages."""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any, cast

import pytest

# Where `make postgres` puts one on a Debian that has PostgreSQL without pgvector.
OWN = Path(__file__).parents[1] / ".postgres"
USER = "ensembed"
# Whatever happens to the tests, the server ends after this many seconds.
_LONGEST = 3600
_START = """
set -e
"$1/initdb" -D "$2/data" -U "$3" --auth=trust --no-sync --encoding=UTF8 --locale=C >"$2/log" 2>&1
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c full_page_writes=off -c shared_buffers=16MB \
    -c max_connections=20 -c jit=off >>"$2/log" 2>&1 &
server=$!
trap 'kill -INT $server 2>/dev/null; wait $server; rm -rf "$2"' EXIT
for try in $(seq 300); do
    if [ -S "$2/.s.PGSQL.5432" ] && "$1/pg_isready" -q -h "$2"; then echo ready; break; fi
    kill -0 $server; sleep 0.1
done
timeout "$4" cat >/dev/null || true
"""


def find_postgres() -> Path:
    """The folder `.../lib/postgresql/NUMBER` of a server that has pgvector.

    Without one tests are skipped, but never where CI is set: there they fail.
    """
    for prefix in (OWN / "usr", Path("/usr")):
        found = sorted(prefix.glob("lib/postgresql/*/lib/vector.so"), key=lambda path: int(path.parents[1].name))
        if found:
            return found[-1].parents[1]
    why = "there is no PostgreSQL with pgvector: run `make postgres`, as root if the package postgresql is not there"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@functools.cache
def _running() -> str:
    """The connection string of a new cluster, which listens on a socket in a temporary folder only.

    The shell that starts the server waits for the end of its input, and then stops it and removes the folder: the
    input ends when this process does, however it does.
    """
    installed = find_postgres()
    folder = Path(tempfile.mkdtemp(prefix="ensembed-pg-"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # as which PostgreSQL refuses to run
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        if OWN in installed.parents:  # may be in a folder that others cannot read; it finds its files by its own place
            share = Path("share/postgresql") / installed.name
            shutil.copytree(OWN / "usr" / share, folder / share)
            shutil.copytree(installed, folder / "lib/postgresql" / installed.name, symlinks=True)
            installed = folder / "lib/postgresql" / installed.name
        for path in (folder, *folder.rglob("*")):
            os.chown(path, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)
    script = ["sh", "-c", _START, "sh", str(installed / "bin"), str(folder), USER, str(_LONGEST)]
    shell = subprocess.Popen(
        script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", text=True, env={"PATH": os.defpath}, **user
    )

    given, said = cast("IO[str]", shell.stdin), cast("IO[str]", shell.stdout)

    def stop() -> None:
        given.close()
        shell.wait(timeout=60)
        said.close()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    if said.readline() != "ready\n":
        log = folder / "log"
        pytest.fail(f"PostgreSQL did not start: {log.read_text() if log.exists() else 'it wrote no log'}")
    return f"host={folder} user={USER} dbname=postgres"


def postgres() -> str:
    """The connection string of a server that all tests of this run share; each uses tables or databases of its own."""
    find_postgres()  # a skip is not remembered by the cache
    return _running()
