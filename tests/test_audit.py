"""What an audit found in version 0.1, by names that version 0.1 has, too: every one of these tests fails on it.

The artefacts are those of a stranger: every hash in them is right. Other findings have their tests in the rooms.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from child_memory import refusal
from loopback import Stranger, recording_server
from make_st import name_a_module, write_code, write_st

from ensembed import Ensemble, load
from ensembed.errors import EnsembedError
from ensembed.methods import Concat
from ensembed.search import Index


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with recording_server() as server:
        yield server


def make_index(folder: Path, source: str, *, rows: bool = True) -> Path:
    """An index whose model is opened from `source`."""
    index = Index.create(folder, "demo?dim=4")
    if rows:
        index.add(["a dog barks"])
    facts = json.loads((folder / "index.json").read_text())
    del facts["sha256"]
    facts["model"]["source"] = source
    seal = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    (folder / "index.json").write_text(json.dumps(facts | {"sha256": seal}))
    return folder


def make_model(folder: Path, member: str) -> Path:
    """A saved model whose only member has this name."""
    Ensemble(["demo?dim=4"]).fit(["a dog barks"], Concat()).save(folder)
    config = json.loads((folder / "config.json").read_text())
    del config["sha256"]
    config["members"][0]["name"] = member
    tensors = (folder / "model.safetensors").read_bytes()
    seal = hashlib.sha256(json.dumps(config, sort_keys=True).encode() + b"\0" + tensors).hexdigest()
    (folder / "config.json").write_text(json.dumps(config | {"sha256": seal}))
    return folder


def run(*words: object, **environment: str) -> None:
    """Run a command, which must fail, but not by a traceback."""
    command = [sys.executable, "-m", "ensembed", *map(str, words)]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr


def add_lines(folder: Path, *options: str) -> None:
    (folder.parent / "lines.txt").write_text("a cat sleeps\n")
    run("index", folder, folder.parent / "lines.txt", *options)


WAYS: dict[str, Callable[[Path], object]] = {
    "search": lambda folder: run("search", folder, "my secret query"),
    "index": add_lines,
    "index without rows": lambda folder: add_lines(folder, "--kind", "exact"),
    "Index.model": lambda folder: Index.open(folder).model,
    "Index.search": lambda folder: Index.open(folder).search(["my secret query"]),
    "Index.add": lambda folder: Index.open(folder).add(["a text"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_index_of_a_stranger_sends_nothing(tmp_path: Path, stranger: Stranger, way: str) -> None:
    index = make_index(tmp_path / "index", f"openai:{stranger.url}/v1#m?retries=0", rows=way != "index without rows")
    with suppress(EnsembedError):
        WAYS[way](index)
    assert stranger.asked == []


def test_an_index_of_a_stranger_runs_no_code(tmp_path: Path) -> None:
    folder, marker = write_st(tmp_path / "code"), tmp_path / "ran"
    write_code(folder, marker)
    name_a_module(folder)
    index = make_index(tmp_path / "index", f"st:{folder}?trust_remote_code=true")
    run("search", index, "a dog", HF_MODULES_CACHE=str(tmp_path / "modules"))
    assert not marker.exists()


@pytest.mark.parametrize("member", ["tfhub:{}/model.tar.gz", "paranmt:{}/vectors.pickle"])
def test_a_saved_model_of_a_stranger_fetches_nothing(tmp_path: Path, stranger: Stranger, member: str) -> None:
    with pytest.raises(EnsembedError):
        load(make_model(tmp_path / "model", member.format(stranger.url)))
    assert stranger.asked == []


def test_an_archive_with_a_header_of_800_megabytes_takes_little_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 800 << 20
    path = tmp_path / "model.tar.gz"
    block = gzip.compress(b"x" * (1 << 20))  # gzip files may be put behind each other
    noise = gzip.compress(os.urandom(10 << 20), 0)  # so that the archive is not too small for what it unpacks to
    path.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT)) + 790 * block + noise)
    before = "from ensembed.encoders import open_encoder"
    assert str(path) in refusal("open_encoder('tfhub:' + sys.argv[1])", path, before=before)


SAVE = """
import os, sys
from ensembed import Ensemble
from ensembed.methods import Concat

folder, left = sys.argv[1], int(sys.argv[2])
Ensemble(["demo?dim=3"]).fit(["a dog"], Concat()).save(folder)
model = Ensemble(["demo?dim=5"]).fit(["a dog"], Concat())

def counted(function):
    def run(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(9)  # as after SIGKILL
        return function(*arguments, **options)
    return run

os.rename, os.replace, os.unlink = map(counted, (os.rename, os.replace, os.unlink))
model.save(folder)
"""


def test_a_save_that_is_killed_between_any_two_renames_leaves_a_whole_model(tmp_path: Path) -> None:
    dims = []
    for left in range(20):
        folder = tmp_path / str(left)
        child = subprocess.run([sys.executable, "-c", SAVE, str(folder), str(left)], check=False, timeout=60)
        vectors = load(folder).encode(["a dog"])
        dims.append(vectors.shape[1])
        if child.returncode == 0:
            break
        assert child.returncode == 9
    assert dims == sorted(dims)
    assert {dims[0], dims[-1]} == {3, 5}
