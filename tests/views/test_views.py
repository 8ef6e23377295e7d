from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from closed_folder import close
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_store import CORPUS, ENCODER, SENTENCES, Interrupted
from strategies import repeating, sentences

from ensembed.corpora.corpus import CorpusIndex, ListCorpus, TextCorpus
from ensembed.encoders.base import Encoder, FloatArray
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import (
    CorpusError,
    EncoderError,
    MissingError,
    StoreBusyError,
    StoreError,
)
from ensembed.support.file_limits import MANIFEST_BYTES
from ensembed.testing import Recorder, check_store, files_of
from ensembed.views import ViewStore, view_folder
from ensembed.views.view_folder import MANIFEST, Manifest, is_whole


class Reporter:
    """A progress that keeps the reports."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, int, int | None]] = []

    def __call__(self, label: str, done: int, total: int | None, /) -> None:
        self.reports.append((label, done, total))


def shards_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("shard-*"))


@pytest.mark.parametrize("shard_rows", [1, 3, 7, 49, 50, 51, 4096])
def test_the_store_keeps_its_contract(tmp_path: Path, shard_rows: int) -> None:
    check_store(ViewStore(tmp_path, shard_rows=shard_rows))


def test_the_store_is_in_the_cache_by_default(tmp_path: Path) -> None:
    assert ViewStore().embed(CORPUS, ENCODER).folder.is_relative_to(tmp_path / "cache" / "views")


@pytest.mark.parametrize("shard_rows", [0, -1])
def test_a_shard_has_at_least_one_row(tmp_path: Path, shard_rows: int) -> None:
    with pytest.raises(StoreError, match=f"at least 1, not {shard_rows}"):
        ViewStore(tmp_path, shard_rows=shard_rows)


def test_shards_that_no_manifest_has_room_for_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = MANIFEST_BYTES // 64
    names = tuple(f"shard-{4096 * k:09d}-{k:032x}.npy" for k in range(most))
    manifest = Manifest("key", ENCODER.spec, 4096 * most, 4096, names)
    data = manifest.to_bytes()
    assert len(data) <= MANIFEST_BYTES
    assert Manifest.from_bytes(data, tmp_path) == manifest
    monkeypatch.setattr(view_folder, "MANIFEST_BYTES", 64 * len(SENTENCES) - 64)
    encoder = Recorder(ENCODER)
    with pytest.raises(StoreError, match=r"shards of 1: take more rows per shard \(`shard_rows`, --shard-rows\)"):
        ViewStore(tmp_path, shard_rows=1).embed(CORPUS, encoder)
    assert not encoder.seen


def test_a_store_that_may_not_be_looked_at_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close(tmp_path, monkeypatch)
    with pytest.raises(StoreError, match=r"cannot write in the view store .*Permission denied.*set its rights"):
        ViewStore(tmp_path / "store").embed(CORPUS, ENCODER)


@settings(max_examples=40)
@given(repeating(sentences), st.integers(1, 10))
def test_a_view_holds_what_the_encoder_says_and_each_sentence_is_encoded_once(texts: list[str], size: int) -> None:
    recorder = Recorder(ENCODER)
    with tempfile.TemporaryDirectory() as folder:
        view = ViewStore(folder, shard_rows=size).embed(ListCorpus(texts), recorder)
        assert np.array_equal(view[:], ENCODER.encode(texts))
        assert recorder.seen == list(dict.fromkeys(texts))
        assert files_of(view.folder).keys() == {MANIFEST, *view.manifest.shards}


def test_every_slice_is_that_of_a_plain_array(tmp_path: Path) -> None:
    for rows in (1, 4, 7, 9):
        X = ENCODER.encode(SENTENCES[:rows])
        for size in (1, 2, 3, 4, 5, 20):
            store = ViewStore(tmp_path / f"{rows}-{size}", shard_rows=size)
            view = store.embed(ListCorpus(SENTENCES[:rows]), ENCODER)
            bounds = [None, *range(-rows - 2, rows + 3)]
            for a in bounds:
                for b in bounds:
                    assert np.array_equal(view[a:b], X[a:b]), f"view[{a}:{b}] of {rows} rows, {size} a shard"
                    assert view[a:b].dtype == np.float32


def test_a_view_is_an_array_of_float32(store: ViewStore) -> None:
    view, X = store.embed(CORPUS, ENCODER), ENCODER.encode(SENTENCES)
    assert (view.shape, view.dtype, view.ndim, len(view)) == ((25, 4), np.dtype(np.float32), 2, 25)
    assert view.spec == ENCODER.spec
    assert np.array_equal(np.asarray(view), X)
    assert np.array_equal(np.asarray(view, np.float64), X.astype(np.float64))
    assert np.array_equal(np.array(view) + 1, X + 1)
    with pytest.raises(ValueError, match="always a copy"):
        view.__array__(copy=False)


@pytest.mark.parametrize("step", [2, -1, 3])
def test_a_view_has_no_steps(store: ViewStore, step: int) -> None:
    with pytest.raises(IndexError, match="step must be 1"):
        store.embed(CORPUS, ENCODER)[::step]


def test_a_view_is_not_read_row_by_row(store: ViewStore) -> None:
    view = store.embed(CORPUS, ENCODER)
    with pytest.raises(TypeError, match=r"view\[a:b\]"):
        view[3]  # type: ignore[index] # it is refused
    with pytest.raises(TypeError, match=r"view\[a:b\]"):
        list(view)  # type: ignore[call-overload] # it is refused


def test_the_rows_on_disk_cannot_be_written_to(store: ViewStore) -> None:
    with pytest.raises(ValueError, match="read-only"):
        store.embed(CORPUS, ENCODER)[0:2][0, 0] = 1.0


def test_views_of_other_corpora_and_encoders_have_other_folders(store: ViewStore) -> None:
    folders = {
        store.folder(CORPUS, ENCODER.spec),
        store.folder(CORPUS, DemoEncoder(4, seed=4).spec),
        store.folder(ListCorpus(SENTENCES[1:]), ENCODER.spec),
    }
    assert len(folders) == 3
    assert store.folder(CORPUS, DemoEncoder(4, seed=3, name="another name").spec) in folders


def test_a_view_that_is_not_complete_is_missing(store: ViewStore) -> None:
    with pytest.raises(MissingError, match=r"not complete.*ensembed embed"):
        store.view(CORPUS, ENCODER.spec)
    with pytest.raises(KeyboardInterrupt):
        store.embed(CORPUS, Interrupted(ENCODER, 3, KeyboardInterrupt))
    with pytest.raises(MissingError):
        store.view(CORPUS, ENCODER.spec)


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (KeyboardInterrupt, KeyboardInterrupt),
        (SystemExit, SystemExit),
        (RuntimeError, EncoderError),
        (MemoryError, EncoderError),
    ],
)
@pytest.mark.parametrize("call", [1, 2, 3])
def test_an_interruption_loses_nothing_that_is_finished(
    store: ViewStore, whole: dict[str, bytes], call: int, error: type[BaseException], seen: type[BaseException]
) -> None:
    first, second = Interrupted(ENCODER, call, error), Recorder(ENCODER)
    with pytest.raises(seen):
        store.embed(CORPUS, first)
    folder = store.folder(CORPUS, ENCODER.spec)
    assert files_of(folder).keys() == set(sorted(whole.keys() - {MANIFEST})[: call - 1])
    view = store.embed(CORPUS, second)
    assert first.seen + second.seen == list(dict.fromkeys(SENTENCES))
    assert files_of(folder) == whole
    assert np.array_equal(view[:], ENCODER.encode(SENTENCES))


def test_repeated_sentences_are_taken_from_the_shards_of_earlier_runs(store: ViewStore) -> None:
    texts = ["a", "b", "c", "d", "e", "b", "a", "f", "d", "g", "b", "b"]
    with pytest.raises(KeyboardInterrupt):
        store.embed(ListCorpus(texts), Interrupted(ENCODER, 2, KeyboardInterrupt))
    recorder = Recorder(ENCODER)
    view = store.embed(ListCorpus(texts), recorder)
    assert recorder.seen == ["e", "f", "g"]
    assert np.array_equal(view[:], ENCODER.encode(texts))


def test_damage_to_a_shard_of_an_earlier_run_is_not_copied_into_new_ones(store: ViewStore) -> None:
    texts = ["a", "b", "c", "d", "e", "b", "a", "f"]
    with pytest.raises(KeyboardInterrupt):
        store.embed(ListCorpus(texts), Interrupted(ENCODER, 2, KeyboardInterrupt))
    (path,) = store.folder(ListCorpus(texts), ENCODER.spec).iterdir()
    data = bytearray(path.read_bytes())
    data[-1] ^= 64
    path.write_bytes(data)
    view = store.embed(ListCorpus(texts), ENCODER)
    assert np.array_equal(view[:], ENCODER.encode(texts))
    assert view.damaged() == []


@pytest.mark.parametrize("sizes", [(6, 4), (4, 6), (3, 6), (6, 3), (10, 4), (4, 25), (100, 4)])
def test_a_view_that_was_begun_keeps_its_shard_size(tmp_path: Path, sizes: tuple[int, int]) -> None:
    corpus = ListCorpus([f"sentence {i}" for i in range(10)])
    view = ViewStore(tmp_path, shard_rows=sizes[0]).embed(corpus, ENCODER)
    (view.folder / MANIFEST).unlink()  # as if the process had been killed before the last step
    recorder = Recorder(ENCODER)
    again = ViewStore(tmp_path, shard_rows=sizes[1]).embed(corpus, recorder)
    assert np.array_equal(again[:], ENCODER.encode(list(iter(corpus))))
    if sizes[0] < len(corpus):  # a view of one shard does not tell how long its shards would be
        assert recorder.seen == []
        assert again.manifest == view.manifest


def test_a_shard_of_another_size_is_not_taken_for_the_wrong_rows(tmp_path: Path) -> None:
    corpus = ListCorpus([f"sentence {i}" for i in range(10)])
    six = ViewStore(tmp_path / "six", shard_rows=6).embed(corpus, ENCODER)
    four = ViewStore(tmp_path / "four", shard_rows=4).folder(corpus, ENCODER.spec)
    four.mkdir(parents=True)
    last = six.folder / six.manifest.shards[1]  # rows 6 to 9: as long as rows 4 to 7
    (four / last.name).write_bytes(last.read_bytes())
    view = ViewStore(tmp_path / "four", shard_rows=4).embed(corpus, ENCODER)
    assert np.array_equal(view[:], ENCODER.encode(list(iter(corpus))))


def test_one_encoder_under_two_names_is_written_once(store: ViewStore) -> None:
    recorder = Recorder(DemoEncoder(4, seed=3, name="other"))
    views = store.embed_all(CORPUS, [ENCODER, recorder])
    assert views[0].folder == views[1].folder
    assert recorder.seen in ([], list(dict.fromkeys(SENTENCES)))


def test_vectors_that_may_lack_a_member_are_not_kept(store: ViewStore) -> None:
    class Moody(DemoEncoder):
        cacheable = False

    with pytest.raises(StoreError, match="not always the same"):
        store.embed(CORPUS, Moody())
    assert not store.root.exists()


def test_a_complete_view_keeps_its_shard_size(tmp_path: Path, whole: dict[str, bytes]) -> None:
    view = ViewStore(tmp_path, shard_rows=4).embed(CORPUS, ENCODER)
    (view.folder / view.manifest.shards[2]).unlink()
    recorder = Recorder(ENCODER)
    ViewStore(tmp_path, shard_rows=5).embed(CORPUS, recorder, verify=True)
    assert files_of(view.folder) == whole
    assert len(recorder.seen) <= 4


def test_other_shards_and_unfinished_files_are_removed(store: ViewStore, whole: dict[str, bytes]) -> None:
    folder = store.folder(CORPUS, ENCODER.spec)
    folder.mkdir(parents=True)
    (shard,) = [name for name in whole if name.startswith("shard-000000008")]
    strays = [f".{shard}.tmp", f".{MANIFEST}.tmp", shard.replace("000000008", "000000100")]
    for name in [*strays, shard.replace("000000008", "000000006"), shard[:-5] + "0.npy"]:
        (folder / name).write_bytes(whole[shard])
    (folder / shard).write_bytes(whole[shard][:-1])
    store.embed(CORPUS, ENCODER)
    assert files_of(folder) == whole


class Meddler(Recorder):
    """Does something to the corpus file when it is asked for the second time."""

    def __init__(self, path: Path, data: bytes | None) -> None:
        super().__init__(ENCODER)
        self._path = path
        self._data = data

    def embed(self, sentences: list[str]) -> FloatArray:
        result = super().embed(sentences)
        if len(self.seen) > len(sentences):
            if self._data is None:
                self._path.unlink(missing_ok=True)
            else:
                self._path.write_bytes(self._data)
                os.utime(self._path, ns=(1, 1))
        return result


@pytest.mark.parametrize("data", [b"other\n" * 25, b"one\n", b"", b"\xff\n" * 25, None])
def test_nothing_is_kept_of_a_file_that_changes_meanwhile(tmp_path: Path, data: bytes | None) -> None:
    lines = [f"sentence {i}" for i in range(25)]
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(lines))
    corpus = TextCorpus(path)
    store = ViewStore(tmp_path / "store", shard_rows=4)
    with pytest.raises(CorpusError):
        store.embed(corpus, Meddler(path, data))
    folder = store.folder(corpus, ENCODER.spec)
    assert len(shards_in(folder)) == len(files_of(folder)) == 1, "only the shard from before the change is there"
    path.write_text("\n".join(lines))
    view = store.embed(TextCorpus(path), ENCODER)
    assert view.folder == folder
    assert np.array_equal(view[:], ENCODER.encode(lines))


def test_a_file_that_changes_between_two_runs_gets_its_own_view(tmp_path: Path) -> None:
    path, store = tmp_path / "corpus.txt", ViewStore(tmp_path / "store", shard_rows=4)
    folders = []
    for lines in (["a", "b"], ["a", "c"], ["a", "b"]):
        path.write_text("\n".join(lines))
        view = store.embed(TextCorpus(path), ENCODER)
        assert np.array_equal(view[:], ENCODER.encode(lines))
        folders.append(view.folder)
    assert folders[0] == folders[2] != folders[1]


class Broken(Recorder):
    def embed(self, sentences: list[str]) -> FloatArray:
        return super().embed(sentences) * np.nan


def test_nothing_is_kept_of_an_encoder_that_fails(store: ViewStore, whole: dict[str, bytes]) -> None:
    with pytest.raises(EncoderError, match="NaN"):
        store.embed(CORPUS, Broken(ENCODER))
    folder = store.folder(CORPUS, ENCODER.spec)
    assert files_of(folder) == {}
    store.embed(CORPUS, ENCODER)
    assert files_of(folder) == whole


class InTheMiddle(Recorder):
    """Lets something else happen in the middle of a run."""

    def __init__(self, encoder: Encoder, begun: threading.Event, go_on: threading.Event) -> None:
        super().__init__(encoder)
        self._begun = begun
        self._go_on = go_on

    def embed(self, sentences: list[str]) -> FloatArray:
        self._begun.set()
        assert self._go_on.wait(120)
        return super().embed(sentences)


def test_two_threads_do_not_write_the_same_view(tmp_path: Path, whole: dict[str, bytes]) -> None:
    begun, go_on = threading.Event(), threading.Event()
    store = ViewStore(tmp_path, shard_rows=4)
    thread = threading.Thread(target=store.embed, args=(CORPUS, InTheMiddle(ENCODER, begun, go_on)))
    thread.start()
    try:
        assert begun.wait(120)
        with pytest.raises(StoreBusyError, match="another process is writing"):
            store.embed(CORPUS, ENCODER)
        store.embed(CORPUS, DemoEncoder(4, seed=9))  # another view is free
    finally:
        go_on.set()
        thread.join()
    assert files_of(store.folder(CORPUS, ENCODER.spec)) == whole


def test_progress_grows_to_the_number_of_rows(store: ViewStore) -> None:
    reporter = Reporter()
    store.embed(CORPUS, ENCODER, progress=reporter)
    labels, done, totals = zip(*reporter.reports, strict=True)
    assert set(labels) == {ENCODER.spec.name}
    assert set(totals) == {25}
    assert list(done) == sorted(done)
    assert done[-1] == 25


def test_the_progress_of_a_resumed_run_counts_the_rows_that_are_there(store: ViewStore) -> None:
    with pytest.raises(KeyboardInterrupt):
        store.embed(CORPUS, Interrupted(ENCODER, 3, KeyboardInterrupt))
    reporter = Reporter()
    store.embed(CORPUS, ENCODER, progress=reporter)
    assert reporter.reports[:2] == [(f"verify {ENCODER.spec.name}", k, 2) for k in (1, 2)]
    assert reporter.reports[2] == (ENCODER.spec.name, 4, 25)
    assert reporter.reports[-1] == (ENCODER.spec.name, 25, 25)


def test_verifying_reports_shards(store: ViewStore) -> None:
    reporter = Reporter()
    assert store.embed(CORPUS, ENCODER).damaged(progress=reporter) == []
    assert reporter.reports == [(f"verify {ENCODER.spec.name}", k, 7) for k in range(1, 8)]


def test_every_shard_is_a_file_that_numpy_reads(store: ViewStore) -> None:
    view = store.embed(CORPUS, ENCODER)
    paths = [view.folder / name for name in view.manifest.shards]
    assert all(is_whole(path) for path in paths)
    assert np.array_equal(np.concatenate([np.load(path) for path in paths]), view[:])


def test_the_index_of_a_corpus_is_made_once(store: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(key: str, *arrays: NDArray[np.int64]) -> CorpusIndex:
        made.append(key)
        return CorpusIndex(key, *arrays)

    monkeypatch.setattr("ensembed.corpora.corpus.CorpusIndex", make)
    corpus = ListCorpus(SENTENCES)
    store.embed(corpus, ENCODER)
    store.embed(corpus, DemoEncoder(3))
    assert made == [corpus.key]
