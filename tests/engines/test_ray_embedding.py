"""Embedding on a real cluster: whatever dies or fails meanwhile, the views have the bytes that one process gives."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from ray_encoders import Changing, Down, Locked, Poisoned, Sized, Watched
from ray_nodes import Nodes
from small_store import Interrupted

from ensembed.corpora.corpus import Corpus, ListCorpus, TextCorpus
from ensembed.encoders import open_encoder
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.engines import Ray, Resources
from ensembed.engines.ray import view_filling as embedding
from ensembed.engines.ray.cluster_resources import Room
from ensembed.engines.ray.view_filling import Job
from ensembed.errors import CorpusError, EncoderError, EngineError, InputError, StoreBusyError
from ensembed.support.progress import silent
from ensembed.testing import Recorder, files_of
from ensembed.views import View, ViewStore
from ensembed.views.view_folder import MANIFEST, ViewFiles

pytestmark = [
    pytest.mark.usefixtures("cluster"),
    pytest.mark.timeout(600),
]

SHARD_ROWS = 8
ROWS = 203
POISON = 100  # a row in the middle


def sentences() -> list[str]:
    """A third repeat an earlier one, near or far; the poison stands once."""
    numbers = random.Random(3)  # noqa: S311 - no secret
    lines: list[str] = []
    for i in range(ROWS):
        new = f"sentence {i} of {numbers.randrange(9)}"
        lines.append(numbers.choice(lines) if i > 3 and numbers.random() < 0.3 else new)
    lines[POISON] = "here is poison indeed"
    return lines


@pytest.fixture
def corpus(tmp_path: Path) -> TextCorpus:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(sentences()))
    return TextCorpus(path)


@pytest.fixture
def store(tmp_path: Path) -> ViewStore:
    return ViewStore(tmp_path / "store", shard_rows=SHARD_ROWS)


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """Where encoders leave marks."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


def check_as_local(views: Sequence[View], corpus: Corpus, tmp_path: Path) -> None:
    """The views' folders hold what the local engine writes, and nothing is pending."""
    local = ViewStore(tmp_path / "local", shard_rows=SHARD_ROWS)
    for view in views:
        expected = local.embed(corpus, DemoEncoder(view.shape[1]))
        assert files_of(view.folder) == files_of(expected.folder)
        assert not (view.folder.parent.parent / "pending" / view.folder.parent.name / view.folder.name).exists()


class Once:
    """A progress that does something at the first report of a view after so many rows, and keeps all reports."""

    def __init__(self, rows: int = 0, act: object = None) -> None:
        self.reports: list[tuple[str, int, int | None]] = []
        self._rows = rows
        self._act = act

    def __call__(self, label: str, done: int, total: int | None, /) -> None:
        self.reports.append((label, done, total))
        if done > self._rows and callable(self._act):
            act, self._act = self._act, None
            act()

    @property
    def acted(self) -> bool:
        return self._act is None


ONE = Resources(actors=(1, 1))  # a process takes seconds to start: tests that need one take one
TWO = Resources(actors=(2, 2))


def test_several_views_have_the_bytes_of_the_local_engine(corpus: TextCorpus, store: ViewStore, tmp_path: Path) -> None:
    engine, progress = Ray(), Once()
    views = engine.embed_all(store, corpus, [DemoEncoder(8), DemoEncoder(5)], progress=progress)
    check_as_local(views, corpus, tmp_path)
    stages = {stage.name: stage for stage in engine.stages}
    assert {"index", "read", "demo?dim=8&seed=0", "demo?dim=5&seed=0"} <= stages.keys()
    assert stages["index"].rows == stages["demo?dim=8&seed=0"].rows == stages["demo?dim=5&seed=0"].rows == ROWS
    assert stages["read"].rows == 2 * ROWS
    assert stages["demo?dim=8&seed=0"].memory > 1e7
    for name in ("demo?dim=8&seed=0", "demo?dim=5&seed=0"):
        counts = [done for label, done, _ in progress.reports if label == name]
        assert counts == sorted(counts)
        assert counts[-1] == ROWS
        assert len(counts) == -(-ROWS // SHARD_ROWS)
    # A second run has nothing to do and asks for nothing.
    again = Ray().embed_all(store, corpus, [DemoEncoder(8)])
    assert again[0].folder == views[0].folder


def test_a_killed_worker_does_not_change_the_views(
    corpus: TextCorpus, store: ViewStore, marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "_FILL_HERE", 0)  # the cluster fills, too

    def kill() -> None:
        os.kill(int(next(marks.iterdir()).name), signal.SIGKILL)

    progress, engine = Once(30, kill), Ray(resources=TWO)
    views = engine.embed_all(store, corpus, [Watched(4, marks, 0.05)], progress=progress)
    assert progress.acted
    assert len(list(marks.iterdir())) > 1, "there was but one worker"
    # One was long at the first shard, while the other found sentences of it again.
    assert engine.stages[-1].name == "fill"
    check_as_local(views, corpus, tmp_path)


def test_a_removed_node_does_not_change_the_views(
    cluster: Nodes, corpus: TextCorpus, store: ViewStore, marks: Path, tmp_path: Path
) -> None:
    progress = Once(60, lambda: cluster.remove(cluster.others[0]))
    try:
        views = Ray().embed_all(store, corpus, [Watched(4, marks, 0.1)], progress=progress)
    finally:
        if progress.acted:
            cluster.add()
    assert progress.acted
    check_as_local(views, corpus, tmp_path)


def test_a_poisoned_block_is_named_and_all_others_are_kept(
    corpus: TextCorpus, store: ViewStore, marks: Path, tmp_path: Path
) -> None:
    with pytest.raises(EncoderError) as failure:
        Ray(attempts=1, resources=ONE).embed_all(store, corpus, [DemoEncoder(5), Poisoned(4, "poison", marks)])
    first = POISON - POISON % SHARD_ROWS
    assert f"fails on the block of rows {first}..{first + SHARD_ROWS - 1}" in str(failure.value)
    assert f"this is poison (row {POISON})" in str(failure.value)
    assert "'demo?dim=4&seed=0'" in str(failure.value)
    check_as_local([store.view(corpus, DemoEncoder(5).spec)], corpus, tmp_path)
    folder = store.folder(corpus, DemoEncoder(4).spec)
    assert not (folder / MANIFEST).exists()
    # The local engine goes on where the cluster stopped: it encodes the block, and those that repeat it.
    recorder = Recorder(DemoEncoder(4))
    check_as_local([store.embed(corpus, recorder)], corpus, tmp_path)
    assert sentences()[POISON] in recorder.seen
    assert len(recorder.seen) < 4 * SHARD_ROWS


def test_a_sentence_that_kills_every_process_is_named(
    corpus: TextCorpus, store: ViewStore, marks: Path, tmp_path: Path
) -> None:
    with pytest.raises(EncoderError, match=r"rows 96\.\.103: its process died each of the 2 times"):
        Ray(attempts=1, resources=TWO).embed_all(store, corpus, [Poisoned(4, "poison", marks, deadly=True)])
    assert len(list(marks.iterdir())) == 2
    # Run again with a cure: what was written counts.
    views = Ray(resources=ONE).embed_all(store, corpus, [DemoEncoder(4)])
    check_as_local(views, corpus, tmp_path)


def test_a_block_that_fails_once_is_tried_again(
    corpus: TextCorpus, store: ViewStore, marks: Path, tmp_path: Path
) -> None:
    views = Ray(resources=ONE).embed_all(store, corpus, [Poisoned(4, "poison", marks, times=1)])
    assert len(list(marks.iterdir())) == 1
    check_as_local(views, corpus, tmp_path)


def test_no_sentence_is_named_if_the_encoder_fails_on_all_of_them(corpus: TextCorpus, store: ViewStore) -> None:
    with pytest.raises(EncoderError, match="the server is down") as failure:
        Ray(attempts=0, resources=ONE).embed_all(store, corpus, [Down()])
    assert "(row " not in str(failure.value)
    assert "25 others failed, too" in str(failure.value)


def test_a_local_run_that_was_cut_off_is_finished_on_the_cluster(
    corpus: TextCorpus, store: ViewStore, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        store.embed(corpus, Interrupted(DemoEncoder(4), 9, KeyboardInterrupt))
    progress = Once()
    views = Ray(resources=ONE).embed_all(store, corpus, [DemoEncoder(4)], progress=progress)
    assert ("demo?dim=4&seed=0", 8 * SHARD_ROWS, ROWS) in progress.reports
    check_as_local(views, corpus, tmp_path)


def test_an_interrupted_cluster_run_is_finished_by_the_local_engine(
    corpus: TextCorpus, store: ViewStore, marks: Path, tmp_path: Path
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Ray(resources=ONE).embed_all(store, corpus, [Watched(4, marks, 0.05)], progress=Once(50, interrupt))
    folder = store.folder(corpus, DemoEncoder(4).spec)
    assert not (folder / MANIFEST).exists()
    assert list(folder.glob("shard-*"))
    recorder = Recorder(DemoEncoder(4))
    check_as_local([store.embed(corpus, recorder)], corpus, tmp_path)  # the lock is free
    assert len(recorder.seen) < len(set(sentences())), "nothing of the first run was used"


def test_pending_shards_of_a_run_that_was_cut_off_are_used(
    corpus: TextCorpus, store: ViewStore, marks: Path, tmp_path: Path
) -> None:
    with pytest.raises(EncoderError):  # what repeats the poisoned block's sentences stays pending
        Ray(attempts=0, resources=ONE).embed_all(store, corpus, [Poisoned(4, "sentence", marks, times=1)])
    pending = store.root / "pending" / corpus.key / DemoEncoder(4).spec.key
    kept = {path.name for path in pending.glob("shard-*")}
    assert kept
    views = Ray(resources=ONE).embed_all(store, corpus, [Poisoned(4, "poisonous", marks)])
    check_as_local(views, corpus, tmp_path)
    assert not pending.exists()


def test_pending_shards_of_other_sizes_or_torn_do_not_stop_a_run(
    corpus: TextCorpus, store: ViewStore, marks: Path, tmp_path: Path
) -> None:
    folder, spec = store.folder(corpus, DemoEncoder(4).spec), DemoEncoder(4).spec
    other = ViewFiles(folder, corpus.key, spec, ROWS, SHARD_ROWS // 2)
    for start in range(0, ROWS, SHARD_ROWS):
        other.keep_pending(start, np.ones((SHARD_ROWS // 2, 4), np.float32))
    torn = other.pending / other.keep_pending(SHARD_ROWS, np.ones((SHARD_ROWS, 4), np.float32))
    torn.write_bytes(torn.read_bytes()[:-1])
    # One worker is long at the first shard, while the other finds sentences of it again and looks where they are.
    views = Ray(resources=TWO).embed_all(store, corpus, [Watched(4, marks, 0.05)])
    check_as_local(views, corpus, tmp_path)


def test_an_encoder_is_given_so_many_sentences_at_a_time(
    corpus: TextCorpus, store: ViewStore, marks: Path, tmp_path: Path
) -> None:
    engine = Ray(resources=Resources(actors=(1, 1), batch_size=3))
    views = engine.embed_all(store, corpus, [Sized(4, marks)])
    sizes = [int(path.name.partition("-")[0]) for path in marks.iterdir()]
    assert set(sizes) == {1, 2, 3}
    assert sum(sizes) == len(set(sentences()))
    check_as_local(views, corpus, tmp_path)


def test_lost_blocks_raise_if_no_node_is_left_for_them(
    corpus: TextCorpus, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Room, "of", lambda _: Room([]))
    with store.unfinished(corpus, [DemoEncoder(4)]) as [(files, encoder)]:
        job = Job(0, files, ONE, corpus, silent, {})
        run = embedding._Run(Ray(), corpus, {0: encoder})
        with pytest.raises(EngineError, match="room for 0"):
            run._try_again([job], None)


def test_a_second_shard_of_the_same_rows_is_removed(store: ViewStore, tmp_path: Path) -> None:
    encoder = DemoEncoder(4)
    path = tmp_path / "distinct.txt"  # where nothing is repeated, nothing is filled in after the last report
    path.write_text("\n".join(f"line {i}" for i in range(ROWS)))
    corpus = TextCorpus(path)
    stray = ViewStore(tmp_path / "stray", shard_rows=SHARD_ROWS).embed(corpus, DemoEncoder(4, seed=9)).folder

    def intrude() -> None:
        for path in stray.glob("shard-*"):
            (store.folder(corpus, encoder.spec) / path.name).write_bytes(path.read_bytes())

    # When the last shard is there: a worker that found one of these before it began would take it for its own.
    views = Ray(resources=ONE).embed_all(store, corpus, [encoder], progress=Once(ROWS - 1, intrude))
    check_as_local(views, corpus, tmp_path)


def test_embedding_raises_while_another_process_writes_the_view(corpus: TextCorpus, store: ViewStore) -> None:
    with store.unfinished(corpus, [DemoEncoder(4)]), pytest.raises(StoreBusyError, match="another process"):
        Ray().embed_all(store, corpus, [DemoEncoder(4)])


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (Resources(num_cpus=2), "2 CPU and 0 GPU, and the cluster has room for 0"),
        (Resources(actors=(4, None)), "at least 4 actors of 1 CPU and 0 GPU, and the cluster has room for 3"),
        (Resources(num_gpus=1), "1 CPU and 1 GPU"),
    ],
)
def test_resources_that_the_cluster_does_not_have_raise_at_once(
    corpus: TextCorpus, store: ViewStore, resources: Resources, message: str
) -> None:
    began = time.perf_counter()
    with pytest.raises(EngineError, match=message):
        Ray(resources=resources).embed_all(store, corpus, [DemoEncoder(4)])
    assert time.perf_counter() - began < 5


def test_views_that_do_not_fit_together_are_filled_one_after_the_other(
    corpus: TextCorpus, store: ViewStore, tmp_path: Path
) -> None:
    encoders = [DemoEncoder(4), DemoEncoder(5)]
    resources = {encoder.spec.name: Resources(actors=(2, 2), shards=4) for encoder in encoders}
    check_as_local(Ray(resources=resources).embed_all(store, corpus, encoders), corpus, tmp_path)


def test_resources_for_an_unknown_encoder_are_refused(corpus: TextCorpus, store: ViewStore) -> None:
    with pytest.raises(InputError, match="'minilm', which is none of the encoders: demo"):
        Ray(resources={"minilm": Resources()}).embed_all(store, corpus, [DemoEncoder(4)])


def test_an_encoder_that_cannot_be_pickled_is_named(corpus: TextCorpus, store: ViewStore) -> None:
    with pytest.raises(EncoderError, match="cannot be sent to other processes"):
        Ray().embed_all(store, corpus, [Locked()])


def test_an_encoder_that_differs_on_the_node_is_refused(corpus: TextCorpus, store: ViewStore) -> None:
    with pytest.raises(EncoderError, match="is not the one the driver has"):
        Ray(resources=ONE).embed_all(store, corpus, [Changing()])
    assert not list(store.root.rglob("shard-*"))


def test_a_corpus_that_changes_is_an_error(corpus: TextCorpus, store: ViewStore, marks: Path) -> None:
    def change() -> None:
        with corpus.path.open("a") as file:
            file.write("\none more")

    with pytest.raises(CorpusError, match="changed"):
        Ray(resources=ONE).embed_all(store, corpus, [Watched(4, marks, 0.02)], progress=Once(30, change))
    assert not list(store.root.rglob(MANIFEST))


def test_damaged_shards_of_a_list_are_encoded_again(store: ViewStore, tmp_path: Path) -> None:
    corpus = ListCorpus(sentences())
    view = store.embed(corpus, DemoEncoder(4))
    path = sorted(view.folder.glob("shard-*"))[3]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    views = Ray().embed_all(store, corpus, [DemoEncoder(4)], verify=True)
    check_as_local(views, corpus, tmp_path)
    assert np.isfinite(np.asarray(views[0])).all()


@pytest.mark.real
def test_real_encoders_are_opened_on_the_nodes(
    pulled: Callable[[str], Path], corpus: TextCorpus, store: ViewStore, tmp_path: Path
) -> None:
    for name in ("minilm", "wordllama"):
        pulled(name)
    encoders = [open_encoder(name, threads=1) for name in ("minilm", "wordllama")]
    views = Ray(resources=ONE).embed_all(store, corpus, encoders)
    local = ViewStore(tmp_path / "local", shard_rows=SHARD_ROWS).embed_all(corpus, encoders)
    assert [files_of(view.folder) for view in views] == [files_of(view.folder) for view in local]
