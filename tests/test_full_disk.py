"""A disk that becomes full at any write of a command: an error that says where, and the same command can continue."""

from __future__ import annotations

import errno
import importlib
import itertools
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_disk import full_disk

from ensembed import load
from ensembed.cli import main
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import DiskFullError, StoreError
from ensembed.search import Index
from ensembed.support.atomic_files import disk_error, make_folder, write_atomically
from ensembed.views import View

MEMBERS = ["-e", "demo?dim=5&seed=1", "-e", "demo?dim=4&seed=2"]
TEXTS = [f"sentence {i} of {i % 7} and {i % 5}" for i in range(40)]


def views(work: Path) -> list[bytes]:
    return sorted(np.asarray(View(manifest.parent)).tobytes() for manifest in work.rglob("manifest.json"))


def model(work: Path) -> bytes:
    return load(work / "model").encode(TEXTS).tobytes() if (work / "model" / "config.json").exists() else b""


def trained(work: Path) -> bytes:
    # A model that was trained further than one that was interrupted is the same to the bit.
    return load(work / "trained").encode(TEXTS).tobytes() if (work / "trained" / "config.json").exists() else b""


def rows(work: Path) -> list[str]:
    if not (work / "index" / "index.json").exists():
        return []
    index = Index.open(work / "index")
    index.verify()
    [hits] = index.search(["sentence"], k=1000) if len(index) else [[]]
    return sorted(f"{hit.id} {hit.text} {hit.score:.6f}" for hit in hits)


INDEX = ["index", "index", "corpus.txt", "--model", "demo?dim=4", "--batch", "16"]
FIT = ["fit", "corpus.txt", *MEMBERS, "--store", "store", "--out"]
COMMANDS: dict[str, tuple[list[list[str]], list[str], Callable[[Path], Any]]] = {
    "embed": (
        [["embed", "corpus.txt", "-e", "demo?dim=3", "--store", "store"]],
        ["embed", "corpus.txt", "-e", "demo?dim=5", "--store", "store"],
        views,
    ),
    "fit": ([], [*FIT, "model", "--method", "svd", "--dim", "3"], model),
    "fit over a model": (
        [[*FIT, "model", "--method", "conc"]],
        [*FIT, "model", "--method", "gcca", "--dim", "3"],
        model,
    ),
    "train": (
        [],
        [*FIT, "trained", *["--method", "ae", "--dim", "2", "--epochs", "3", "--hidden-layers", "1"]],
        trained,
    ),
    "index": ([], INDEX, rows),
    "add": ([INDEX], ["index", "index", "more.txt"], rows),
    "delete": ([INDEX], ["index", "index", *itertools.chain(*(["--delete", str(i)] for i in (0, 1, 2, 20)))], rows),
    "compact": ([INDEX, ["index", "index", "--delete", "3"]], ["index", "index", "--compact"], rows),
    "encode": (
        [],
        ["encode", "-e", "demo?dim=4", "corpus.txt", "--out", "v.npy"],
        lambda work: (work / "v.npy").exists(),
    ),
}


@pytest.mark.filterwarnings("default:.*the change is saved:RuntimeWarning")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_becomes_full_at_any_write_is_named_and_the_command_can_continue(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier, arguments, state = COMMANDS[command]
    if command == "train":
        pytest.importorskip("torch")
        from ensembed.methods.autoencoder import training_loop

        monkeypatch.setattr(training_loop, "_KEEP_EVERY", 0.0)
    base = tmp_path / "base"
    base.mkdir()
    (base / "corpus.txt").write_text("\n".join(TEXTS))
    (base / "more.txt").write_text("one more\nand another\n")
    monkeypatch.chdir(base)
    for line in earlier:
        assert main([*line, "--quiet"]) == 0
    before = state(base)
    shutil.copytree(base, tmp_path / "done")
    monkeypatch.chdir(tmp_path / "done")
    assert main([*arguments, "--quiet"]) == 0
    after = state(tmp_path / "done")

    for n in itertools.count(1):
        work = tmp_path / "work"
        shutil.copytree(base, work)
        monkeypatch.chdir(work)
        capsys.readouterr()
        with full_disk(tmp_path, n) as disk:
            code = main([*arguments, "--quiet"])
        told = capsys.readouterr().err
        if code == 0:  # also if only a cache could not be written, or a compaction waits
            assert state(work) == after
        else:
            assert code == 1
            assert "cannot" in told
            assert str(work) in told or "v.npy" in told, told
            assert "free space" in told or "make room" in told, told
            # What was there before is there; of several commits of one command, some may have been made.
            now = state(work)
            assert now in (before, after) or (command == "index" and set(now) < set(after)), (n, told)
            assert main([*arguments, "--quiet"]) == 0, (n, capsys.readouterr().err)
            assert state(work) == after
        shutil.rmtree(work)
        if not disk.failed:
            assert n > 4
            return


def test_a_full_disk_is_an_error_of_ensembed_and_of_the_system(tmp_path: Path) -> None:
    with full_disk(tmp_path, 1), pytest.raises(DiskFullError, match=rf"{tmp_path}/a cannot .*free space .*{tmp_path}"):
        write_atomically(tmp_path / "a", b"data")
    with full_disk(tmp_path, 1), pytest.raises(OSError, match="No space left on device; free space"):
        make_folder(tmp_path / "b" / "c")
    assert "quota exceeded; free" in str(disk_error(OSError(errno.EDQUOT, "Disk quota exceeded"), tmp_path))
    assert disk_error(OSError(errno.EIO, "input/output error"), tmp_path / "a").filename == str(tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("store", ["faiss", "usearch"])
def test_a_store_that_does_not_fit_on_the_disk_keeps_its_last_state(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(store)
    module = importlib.import_module(f"ensembed.integrations.{store}")
    Store: Any = module.FaissStore if store == "faiss" else module.UsearchStore
    kept = Store.create(tmp_path / "store", DemoEncoder(8))
    kept.add([1], ["one"])
    kept.save()
    kept.add(list(range(2, 50)), [f"text {i}" for i in range(2, 50)])
    monkeypatch.setattr(secrets, "token_hex", lambda n: "0" * 2 * n)
    temporary = tmp_path / "store" / ".index-0000000000000000.00000000.tmp"
    temporary.symlink_to("/dev/full")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(StoreError, match=r"cannot save .*No space left on device; free space"):
        kept.save()
    assert Store.open(tmp_path / "store", DemoEncoder(8)).search(["one"], k=10).ids.tolist() == [[1]]
    kept.save()
    assert len(Store.open(tmp_path / "store", DemoEncoder(8)).search(["one"], k=100).ids[0]) == 49


@pytest.mark.parametrize("rows", [3, 1500])  # one graph fails in its last bytes, one before
def test_a_graph_that_does_not_fit_on_the_disk_is_named(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("usearch")
    index = Index.create(tmp_path / "index", DemoEncoder(4), kind="hnsw", graph_rows=10_000)
    monkeypatch.setattr(secrets, "token_hex", lambda n: "0" * 2 * n)
    temporary = tmp_path / "index" / ".graph-000002.usearch.00000000.tmp"
    texts = [f"text {i}" for i in range(rows)]
    if rows > 1000:  # the graph is built when rows are added: these are kept without it
        link_after_cleaning(monkeypatch, temporary)
        with pytest.warns(
            RuntimeWarning, match=r"the change is saved; .*graph-000002.*: No space left on device; free space"
        ):
            index.add(texts)
    else:
        index.add(texts)
        link_after_cleaning(monkeypatch, temporary)
        with pytest.raises(
            DiskFullError, match=r"graph-000002.* cannot be written: No space left on device; free space"
        ):
            index.build_graph()
    again = Index.open(tmp_path / "index", DemoEncoder(4), verify=True)
    assert again.manifest.graph is None
    assert len(again) == rows
    monkeypatch.undo()
    again.build_graph()
    assert Index.open(tmp_path / "index", DemoEncoder(4), verify=True).manifest.graph is not None


def link_after_cleaning(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    """Have the file of a graph written to a full disk."""
    from ensembed.search import hnsw_graph

    usual = hnsw_graph._empty_graph
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))

    def empty_graph(manifest: Any) -> Any:  # noqa: ANN401 - usearch has no types
        temporary.symlink_to("/dev/full")
        return usual(manifest)

    monkeypatch.setattr(hnsw_graph, "_empty_graph", empty_graph)


def test_standard_output_on_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    command = [sys.executable, "-m", "ensembed", "encode", "-e", "demo?dim=4", str(tmp_path / "corpus.txt"), "--json"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "error: output cannot be written: [Errno 28] No space left on device; free space" in done.stderr
    assert "Traceback" not in done.stderr
