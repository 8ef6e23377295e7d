"""What happens to a view when the process that writes it is killed, interrupted, locked out or out of disk."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from crash_points import SENTENCES as CRASH_SENTENCES
from crash_points import embed as embed_crash_corpus
from puppet import Puppet

from ensembed.corpora.corpus import TextCorpus
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import StoreBusyError
from ensembed.testing import Recorder, files_of
from ensembed.views import ViewStore
from ensembed.views.view_folder import MANIFEST

HERE = Path(__file__).parents[1]  # of the programs that are killed
KILLS = 24
SHARDS = 150
ENCODER = DemoEncoder(4)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A file of 150 shards of 4 sentences, one in four of which was there before."""
    numbers = random.Random(0)  # noqa: S311 - the same numbers in every run
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


def not_in_first(corpus: Path, shards: int) -> list[str]:
    """The distinct sentences, in their order, that do not occur in the first so many shards."""
    lines = corpus.read_text().splitlines()
    done = set(lines[: 4 * shards])
    return [line for line in dict.fromkeys(lines) if line not in done]


def test_a_store_that_was_killed_at_random_points_ends_with_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    root, numbers = tmp_path / "killed", random.Random(0)  # noqa: S311 - the same numbers in every run
    progress, strays = [0], 0
    for _ in range(KILLS):
        before, calls = shards_in(root), numbers.randrange(10)
        puppet = Puppet(corpus, root, [ENCODER.spec.dim])
        puppet.step(calls)
        # A shard takes a few milliseconds, so this hits everything on the way to the next one, or to the first.
        puppet.kill(numbers.uniform(0, 0.005 if calls else 0.05))
        after = shards_in(root)
        assert before <= after, "a finished shard was lost"
        assert len(after) >= len(before) + calls - 1, "a shard was not kept when the next one was begun"
        assert not list(root.rglob(MANIFEST)), "an unfinished view was marked complete"
        progress.append(len(after))
        strays += len(list(root.rglob(".*.tmp")))
    assert len(set(progress)) >= 10, f"the kills did not hit different amounts of progress: {progress}"

    finished, recorder = shards_in(root), Recorder(ENCODER)
    view = ViewStore(root, shard_rows=4).embed(TextCorpus(corpus), recorder)
    store = ViewStore(tmp_path / "at a stretch", shard_rows=4)
    store.embed(TextCorpus(corpus), ENCODER)
    assert files_of(root) == files_of(store.root), f"({strays} temporary files were left by kills on the way)"
    assert len(view.manifest.shards) == SHARDS
    assert recorder.seen == not_in_first(corpus, len(finished))


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
    puppet = Puppet(corpus, root, [ENCODER.spec.dim])
    puppet.step(3)
    puppet.interrupt()
    finished = shards_in(root)
    assert 3 <= len(finished) < SHARDS
    assert not list(root.rglob(".*.tmp"))

    recorder = Recorder(ENCODER)
    view = ViewStore(root, shard_rows=4).embed(TextCorpus(corpus), recorder)
    assert recorder.seen == not_in_first(corpus, len(finished))
    assert finished <= shards_in(root)
    assert np.array_equal(view[:], ENCODER.encode(corpus.read_text().splitlines()))


def test_a_second_process_is_told_at_once_that_the_view_is_being_written(corpus: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    process = child(corpus, root, "--seconds", 600)
    try:
        await_line(process, "encoding")
        with pytest.raises(StoreBusyError, match="another process is writing"):
            ViewStore(root, shard_rows=4).embed(TextCorpus(corpus), ENCODER)
        with pytest.raises(StoreBusyError):
            ViewStore(root, shard_rows=4).embed(TextCorpus(corpus), ENCODER, verify=True)
        second = child(corpus, root)
        assert second.communicate(timeout=120)[1].startswith("StoreBusyError")
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
