"""Several views at once: whatever stops the process or a member, they end as if each had been made alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from puppet import SHARD_ROWS, Puppet

from ensembed.corpora.corpus import Corpus, TextCorpus
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import EncoderError
from ensembed.testing import Recorder, files_of
from ensembed.views import ViewStore
from ensembed.views.view_folder import MANIFEST

SHARDS = 40  # more than the stops below allow to be written
DIMS = [3, 4, 6]
ENCODERS = [DemoEncoder(dim) for dim in DIMS]


class Breaks(Encoder):
    """An encoder that fails at its n-th call."""

    def __init__(self, encoder: Encoder, n: int) -> None:
        self._encoder = encoder
        self._left = n

    @property
    def spec(self) -> EncoderSpec:
        return self._encoder.spec

    def embed(self, sentences: list[str]) -> FloatArray:
        self._left -= 1
        if not self._left:
            raise ConnectionError("the server is down")
        return self._encoder.encode(sentences)


@pytest.fixture
def corpus(tmp_path: Path) -> TextCorpus:
    """A file whose last shard is short; every shard begins with a new sentence, a third of the others is not new."""
    numbers = random.Random(1)  # noqa: S311 - the same numbers in every run
    rows = range(SHARD_ROWS * SHARDS - 1)
    lines = [f"sentence {i if i % SHARD_ROWS == 0 or numbers.random() < 0.67 else numbers.randrange(i)}" for i in rows]
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(lines))
    return TextCorpus(path)


@pytest.fixture
def store(tmp_path: Path) -> ViewStore:
    return ViewStore(tmp_path / "store", shard_rows=SHARD_ROWS)


def made_alone(corpus: Corpus, root: Path, encoders: Sequence[Encoder] = ENCODERS) -> dict[str, bytes]:
    """The files of a store in which every view was made by a run of its own, at a stretch."""
    alone = ViewStore(root, shard_rows=SHARD_ROWS)
    for encoder in encoders:
        alone.embed(corpus, encoder)
    return files_of(alone.root)


def shards_of(store: ViewStore, corpus: Corpus) -> list[set[Path]]:
    """Every member's finished shards."""
    return [set(store.folder(corpus, encoder.spec).glob("shard-*.npy")) for encoder in ENCODERS]


def versions(folder: Path) -> dict[Path, tuple[int, int]]:
    """What changes when a file is written again, even with the same bytes."""
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items()}


def check_the_rest_is_done(store: ViewStore, corpus: Corpus, expected: dict[str, bytes]) -> None:
    """One more run encodes what is missing and nothing else, and the views are those that were made alone."""
    before = versions(store.root)
    finished = [len(shards) for shards in shards_of(store, corpus)]
    recorders = [Recorder(encoder) for encoder in ENCODERS]
    store.embed_all(corpus, recorders)
    assert files_of(store.root) == expected
    sentences = list(corpus)
    for recorder, count in zip(recorders, finished, strict=True):
        done = set(sentences[: SHARD_ROWS * count])
        assert recorder.seen == [sentence for sentence in dict.fromkeys(sentences) if sentence not in done]
    after = versions(store.root)
    kept = [path for path in before if path.suffix == ".npy"]
    assert {path: after[path] for path in kept} == {path: before[path] for path in kept}


def test_views_whose_process_was_killed_and_interrupted_are_those_made_alone(
    corpus: TextCorpus, tmp_path: Path, store: ViewStore
) -> None:
    numbers = random.Random(0)  # noqa: S311 - the same numbers in every run
    progress = {0}
    ways: set[bool] = set()

    def stop(calls: int, *, interrupt: bool) -> None:
        before = shards_of(store, corpus)
        puppet = Puppet(corpus.path, store.root, DIMS)
        puppet.step(calls)
        if interrupt:
            ways.add(puppet.interrupt())
            assert not list(store.root.rglob(".*.tmp"))
        else:
            puppet.kill(numbers.uniform(0, 0.005 if calls else 0.05))
        after = shards_of(store, corpus)
        assert all(old <= new for old, new in zip(before, after, strict=True)), "a finished shard was lost"
        assert not list(store.root.rglob(MANIFEST)), "an unfinished view was marked complete"
        progress.add(sum(len(shards) for shards in after))

    for calls in (1, 4, 0, 5, 2, 3):
        stop(numbers.randrange(10), interrupt=False)
        stop(calls, interrupt=True)
    assert ways == {True, False}, "not both ways, one after the other and side by side, were interrupted"
    assert len(progress) >= 6, f"the stops did not hit different amounts of progress: {progress}"
    check_the_rest_is_done(store, corpus, made_alone(corpus, tmp_path / "alone"))


@pytest.mark.parametrize("broken", range(len(DIMS)))
@pytest.mark.parametrize("call", [1, 2, 30])  # the first run is one after the other, the second side by side
def test_a_member_that_fails_midway_is_named_and_the_others_keep_what_they_have(
    corpus: TextCorpus, tmp_path: Path, store: ViewStore, broken: int, call: int
) -> None:
    members: list[Encoder] = list(ENCODERS)
    members[broken] = Breaks(ENCODERS[broken], call)
    with pytest.raises(EncoderError) as failure:
        store.embed_all(corpus, members)
    assert repr(ENCODERS[broken].spec.name) in str(failure.value)
    assert "the server is down" in str(failure.value)
    finished = [len(shards) for shards in shards_of(store, corpus)]
    assert finished[broken] >= call - 1
    assert all(abs(count - finished[broken]) <= 1 for count in finished)
    assert not list(store.root.rglob(MANIFEST))
    assert not list(store.root.rglob(".*.tmp"))
    check_the_rest_is_done(store, corpus, made_alone(corpus, tmp_path / "alone"))


def test_a_member_that_fails_at_its_last_shard_leaves_it_to_the_next_run(
    corpus: TextCorpus, tmp_path: Path, store: ViewStore
) -> None:
    with pytest.raises(EncoderError, match="the server is down"):
        store.embed_all(corpus, [*ENCODERS[:2], Breaks(ENCODERS[2], SHARDS)])
    check_the_rest_is_done(store, corpus, made_alone(corpus, tmp_path / "alone"))


@pytest.mark.parametrize("complete", [[0], [1], [0, 2], [0, 1, 2]])
def test_complete_views_are_not_written_again(
    corpus: TextCorpus, tmp_path: Path, store: ViewStore, complete: list[int]
) -> None:
    for j in complete:
        store.embed(corpus, ENCODERS[j])
    before = versions(store.root)
    recorders = [Recorder(encoder) for encoder in ENCODERS]
    views = store.embed_all(corpus, recorders)
    assert [bool(recorder.seen) for recorder in recorders] == [j not in complete for j in range(len(DIMS))]
    after = versions(store.root)
    assert {path: after[path] for path in before} == before
    assert [view.spec for view in views] == [encoder.spec for encoder in ENCODERS]
    assert files_of(store.root) == made_alone(corpus, tmp_path / "alone")
