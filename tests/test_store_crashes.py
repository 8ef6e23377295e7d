"""What happens to a view when the process that writes it is killed, interrupted, locked out or out of disk."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from crash_points import SENTENCES as CRASH_SENTENCES
from crash_points import embed as embed_crash_corpus

from ensembed.corpus import TextCorpus
from ensembed.encoders.demo import DemoEncoder
from ensembed.errors import StoreBusyError
from ensembed.shards import MANIFEST
from ensembed.testing import Recorder, files_of
from ensembed.views import ViewStore

HERE = Path(__file__).parent
KILLS = 24
SHARDS = 250
ENCODER = DemoEncoder(4)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A file of 250 shards of 4 sentences, one in four of which was there before."""
    numbers = random.Random(0)  # noqa: S311
    lines = [f"sentence {i if numbers.random() < 0.75 else numbers.randrange(i + 1)}" for i in range(4 * SHARDS)]
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(lines))
    return path


def child(corpus: Path, root: Path, *options: object) -> subprocess.Popen[str]:
    command = [sys.executable, *map(str, (HERE / "embed_child.py", corpus, root, *options))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def await_line(process: subprocess.Popen[str], start: str) -> None:
    """Wait until the child prints a line that begins so."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return
    raise AssertionError(f"the child never printed {start!r}: {process.communicate()[1]}")


def shards_in(root: Path) -> set[str]:
    return {path.name for path in root.rglob("shard-*.npy")}


def test_a_store_that_was_killed_at_random_points_ends_with_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    root, delays = tmp_path / "killed", random.Random(0)  # noqa: S311
    hits, progress, strays = 0, [], 0
    while hits < KILLS:
        before = shards_in(root)
        process = child(corpus, root, "--seconds", 0.008)
        await_line(process, "ready")
        time.sleep(delays.uniform(0, 0.12))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, f"it was done after {hits} kills: make the corpus longer"
        hits += 1
        after = shards_in(root)
        assert before <= after, "a finished shard was lost"
        assert not list(root.rglob(MANIFEST)), "an unfinished view was marked complete"
        progress.append(len(after))
        strays += len(list(root.rglob(".*.tmp")))
    assert hits >= 20
    assert len(set(progress)) >= 10, f"the kills did not hit different amounts of progress: {progress}"
    assert 0 < progress[-1] < SHARDS

    finish = child(corpus, root)
    output, errors = finish.communicate()
    assert finish.returncode == 0, errors
    store = ViewStore(tmp_path / "at a stretch", shard_rows=4)
    view = store.embed(TextCorpus(corpus), ENCODER)
    assert files_of(root) == files_of(store.root), f"({strays} temporary files were left by kills on the way)"
    assert len(view.manifest.shards) == SHARDS
    # Only what no earlier run had finished was encoded in the last one.
    assert output.count("encoding") <= SHARDS - progress[-1]


def test_a_store_that_was_killed_at_any_file_operation_ends_with_the_same_bytes(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "crash_points.py"), str(tmp_path / "killed")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    deaths = int(done.stdout)
    # Three shards and a manifest, each with a temporary file, its sync, a rename and the sync of the folder.
    assert deaths >= 4 * 4
    embed_crash_corpus(tmp_path / "at a stretch")
    expected = files_of(tmp_path / "at a stretch")
    assert len([name for name in expected if "shard-" in name]) == -(-len(CRASH_SENTENCES) // 4)
    for n in range(1, deaths + 1):
        assert files_of(tmp_path / "killed" / str(n)) == expected, f"killed at file operation {n}"


def test_an_interrupt_from_the_keyboard_loses_nothing_that_is_finished(corpus: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    process = child(corpus, root, "--seconds", 0.05)
    for _ in range(3):
        await_line(process, "encoding")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    finished = shards_in(root)
    assert 2 <= len(finished) < 10
    assert not list(root.rglob(".*.tmp"))

    recorder = Recorder(ENCODER)
    view = ViewStore(root, shard_rows=4).embed(TextCorpus(corpus), recorder)
    lines = corpus.read_text().splitlines()
    done = set(lines[: 4 * len(finished)])
    assert recorder.seen == [line for line in dict.fromkeys(lines) if line not in done]
    assert finished <= shards_in(root)
    assert np.array_equal(view[:], ENCODER.encode(lines))


def test_a_second_process_is_told_at_once_that_the_view_is_being_written(corpus: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    process = child(corpus, root, "--seconds", 60)
    try:
        await_line(process, "encoding")
        begun = time.monotonic()
        with pytest.raises(StoreBusyError, match="another process is writing"):
            ViewStore(root, shard_rows=4).embed(TextCorpus(corpus), ENCODER)
        with pytest.raises(StoreBusyError):
            ViewStore(root, shard_rows=4).embed(TextCorpus(corpus), ENCODER, verify=True)
        assert time.monotonic() - begun < 5
        second = child(corpus, root)
        assert second.communicate(timeout=30)[1].startswith("StoreBusyError")
        assert shards_in(root) == set()

        begun = time.monotonic()
        with pytest.raises(StoreBusyError):
            ViewStore(root, shard_rows=4, wait=0.3).embed(TextCorpus(corpus), ENCODER)
        assert time.monotonic() - begun >= 0.3
    finally:
        process.kill()
        process.communicate()
    # The lock goes with the process that held it.
    view = ViewStore(root, shard_rows=4).embed(TextCorpus(corpus), ENCODER)
    assert np.array_equal(view[:], ENCODER.encode(corpus.read_text().splitlines()))


def test_a_process_that_waits_finds_the_view_done(corpus: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    process = child(corpus, root, "--seconds", 0.004)
    await_line(process, "encoding")
    recorder = Recorder(ENCODER)
    view = ViewStore(root, shard_rows=4, wait=60).embed(TextCorpus(corpus), recorder)
    assert recorder.seen == []
    assert view.damaged() == []
    assert process.communicate()[1] == ""
    assert process.returncode == 0
    assert np.array_equal(view[:], ENCODER.encode(corpus.read_text().splitlines()))


def test_processes_that_wait_for_each_other_write_the_view_once(corpus: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    processes = [child(corpus, root, "--wait", 60) for _ in range(4)]
    outputs = [process.communicate() for process in processes]
    assert [errors for _, errors in outputs] == [""] * 4
    assert sorted("encoding" in output for output, _ in outputs) == [False, False, False, True]
    store = ViewStore(tmp_path / "alone", shard_rows=4)
    store.embed(TextCorpus(corpus), ENCODER)
    assert files_of(root) == files_of(store.root)


def test_a_file_that_may_not_grow_is_a_store_error_and_the_shards_stay(corpus: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shard = 128 + 4 * 4 * 4
    limited = child(corpus, root, "--file-limit", shard - 1)
    assert limited.communicate()[1].startswith("StoreError: cannot write the view")
    assert limited.returncode == 1
    assert shards_in(root) == set()

    limited = child(corpus, root, "--file-limit", shard)  # enough for every shard, not for the manifest
    assert limited.communicate()[1].startswith("StoreError: cannot write the view")
    assert len(shards_in(root)) == SHARDS
    assert not list(root.rglob("*manifest*"))
    assert not list(root.rglob(".*.tmp"))

    recorder = Recorder(ENCODER)
    assert len(ViewStore(root, shard_rows=4).embed(TextCorpus(corpus), recorder)) == 4 * SHARDS
    assert recorder.seen == []
