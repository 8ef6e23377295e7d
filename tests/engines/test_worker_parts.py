"""The parts of a worker by themselves: reading, marks of attempts, places for actors."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed.corpora.corpus import ListCorpus, TextCorpus
from ensembed.encoders import demo_encoder, open_encoder
from ensembed.encoders.base import UntrustedName
from ensembed.encoders.demo_encoder import DemoEncoder, open_demo
from ensembed.encoders.names_and_consent import Request, allow
from ensembed.engines.ray import shard_worker
from ensembed.engines.ray.cluster_resources import Resources, Room
from ensembed.engines.ray.shard_worker import DiedError, Reader, Result, counted_try
from ensembed.engines.ray.view_filling import Job, waves
from ensembed.engines.ray.worker_encoder import Source
from ensembed.errors import CorpusError, EngineError, InputError, MissingError
from ensembed.fetch import fetcher
from ensembed.support.progress import silent
from ensembed.views.view_folder import Repeats, ViewFiles

sys.path.insert(0, str(Path(__file__).parents[1] / "encoders"))  # small transformers are made there

from make_st import make_st

LINES = [f"line {i}" for i in range(9000)]


@pytest.mark.parametrize("zipped", [False, True])
def test_stretches_are_read_in_any_order(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "corpus"
    data = "\n".join(LINES).encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    corpus = TextCorpus(path)
    reader = Reader(corpus, len(corpus))
    numbers = random.Random(0)  # noqa: S311 - no secret
    starts = [0, 10, 10, 5, 8990, 0, *(numbers.randrange(8990) for _ in range(60)), *range(100, 400, 10)]
    for start in starts:
        assert reader.texts(start, start + 10) == LINES[start : start + 10]


def test_a_corpus_that_got_shorter_is_an_error() -> None:
    with pytest.raises(CorpusError, match="ends before row 3"):
        Reader(ListCorpus(["one", "two"]), 3).texts(0, 3)


def test_a_shard_that_was_begun_too_often_is_given_up(tmp_path: Path) -> None:
    begun = partial(counted_try, tmp_path / "pending", 2)
    with begun(0), begun(8), begun(0), pytest.raises(DiedError, match="each of the 2"):
        begun(0).__enter__()
    with begun(0), begun(0):  # those that ended do not count, whichever way
        pass
    with pytest.raises(KeyError), begun(0):
        raise KeyError
    assert not list((tmp_path / "pending").iterdir())


def job(number: int, resources: Resources, rows: int = 64) -> Job:
    corpus = ListCorpus([f"sentence {i}" for i in range(rows)])
    files = ViewFiles(Path("store") / "corpus" / "encoder", corpus.key, DemoEncoder(4).spec, rows, 8)
    return Job(number, files, resources, corpus, silent, {})


def room() -> Room:
    return Room([{"CPU": 4.0}, {"CPU": 2.0, "GPU": 1.0}])


def test_views_share_the_cluster_if_they_fit_together() -> None:
    jobs = [job(0, Resources(2)), job(1, Resources(1, 1)), job(2, Resources(4))]
    found = [[(one.number, count) for one, count in wave] for wave in waves(jobs, room)]
    # The third one wants the whole of the first node, of which the first one gets what is left to share out.
    assert found == [[(0, 2), (1, 1)], [(2, 1)]]


def test_no_more_actors_than_shards_or_than_asked_for() -> None:
    for resources, expected in ((Resources(), 8), (Resources(actors=(1, 3)), 3), (Resources(shards=3), 3)):
        found = list(waves([job(0, resources)], lambda: Room([{"CPU": 16.0}])))
        assert [[count for _, count in wave] for wave in found] == [[expected]]


def test_a_node_lost_between_waves_raises_an_engine_error() -> None:
    rooms = iter([room(), Room([{"CPU": 2.0, "GPU": 1.0}])])
    coming = waves([job(0, Resources(2)), job(1, Resources(4))], lambda: next(rooms))
    assert [one.number for one, _ in next(coming)] == [0]
    with pytest.raises(EngineError, match=r"of 4 CPU and 0 GPU, .* room for 0 \(its nodes: 2 CPU, 1 GPU\)"):
        next(coming)


def test_an_actor_must_fit_on_one_node() -> None:
    with pytest.raises(EngineError, match=r"room for 0 \(its nodes: 2 CPU, 0 GPU; 2 CPU, 0 GPU\)"):
        Room([{"CPU": 2.0}, {"CPU": 2.0}]).check("demo", Resources(3), 1)


def test_a_shard_stays_pending_when_a_new_listing_lacks_what_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ViewFiles(tmp_path / "corpus" / "encoder", "corpus", DemoEncoder(4).spec, 24, 8)
    files.folder.mkdir(parents=True)
    first, second = (files.write(start, np.full((8, 4), start, np.float32)) for start in (0, 8))
    listings = iter([{0: files.folder / first}, {}, {8: files.folder / second}, {}])
    monkeypatch.setattr(shard_worker, "_listed", lambda _folder: next(listings))
    monkeypatch.setattr(shard_worker, "_LISTING_SHARE", float("inf"))
    shards, result = shard_worker.KnownShards(files), Result(0, 16, 8)
    shards.write(result, Repeats(np.array([1, 2]), np.array([0, 8])), lambda: np.ones((8, 4), np.float32))
    assert result.pending
    assert not result.name


def test_a_result_that_comes_twice_counts_once() -> None:
    one = job(0, Resources())
    for _ in range(2):
        one.take(Result(0, 8, 8, name="a shard", worker="here"))
    assert one.rows_done == 8
    assert 8 not in one.missing


def test_encoders_of_the_catalogue_travel_by_name_and_others_do_not() -> None:
    assert Source.of(DemoEncoder(4), 1).pickled is None
    assert Source.of(DemoEncoder(4), 1).open().spec == DemoEncoder(4).spec


@pytest.mark.parametrize("trust", [False, "network"])
def test_a_worker_uses_the_network_only_for_names_that_may(monkeypatch: pytest.MonkeyPatch, trust: str | bool) -> None:
    encoder = open_encoder(allow(UntrustedName("demo?dim=4"), trust))
    requests: list[Request] = []

    def opened(request: Request) -> DemoEncoder:
        requests.append(request)
        return open_demo(request)

    monkeypatch.setattr(demo_encoder, "open_demo", opened)
    Source.of(encoder, 1).open()
    assert [request.offline for request in requests] == [not trust]


@pytest.mark.parametrize("offline", [False, True])
def test_a_worker_fetches_what_it_lacks_of_the_catalogue_which_needs_no_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path))
    pulled: list[list[str]] = []
    monkeypatch.setattr(fetcher, "pull", pulled.append)
    with pytest.raises(MissingError, match="minilm"):  # nothing was fetched in truth
        Source(replace(DemoEncoder(4).spec, name="minilm"), 1, offline=offline).open()
    assert pulled == [["minilm"]]


class Counted(DemoEncoder):
    """Remembers how many sentences it was given in each call."""

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        self.calls = [*getattr(self, "calls", []), len(sentences)]
        return super().embed(sentences)


def test_an_encoder_without_a_batch_size_is_given_so_many_sentences_in_a_call() -> None:
    encoder = Counted(4)
    found = Source(encoder.spec, 1, 4).encode(encoder, LINES[:10])
    assert encoder.calls == [4, 4, 2]
    np.testing.assert_array_equal(found, DemoEncoder(4).encode(LINES[:10]))
    assert Source(encoder.spec, 1, 4).encode(encoder, []).shape == (0, 4)
    Source(encoder.spec, 1).encode(encoder, LINES[:10])
    assert encoder.calls[3:] == [10]


@pytest.mark.parametrize("options", ["", "?prompt=query"])
def test_an_encoder_that_has_a_batch_size_is_opened_with_it(tmp_path: Path, options: str) -> None:
    encoder = open_encoder(make_st(tmp_path) + options)
    source = Source.of(encoder, 1, 3)
    opened = source.open()
    assert opened.spec.key == encoder.spec.key
    sizes: list[int] = []
    opened._model.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0]["input_ids"])))  # type: ignore[attr-defined]  # of its own class
    found = source.encode(opened, LINES[:7])
    assert sorted(sizes) == [1, 3, 3]
    np.testing.assert_allclose(found, encoder.encode(LINES[:7]), rtol=0, atol=1e-5)
    assert Source.of(encoder, 1).open()._arguments["batch_size"] == 32  # type: ignore[attr-defined]  # of its own class


def test_a_batch_size_that_belongs_into_the_name_is_refused(tmp_path: Path) -> None:
    name = make_st(tmp_path)
    with pytest.raises(InputError, match="sets a batch_size, and its resources set 3: set it once"):
        Source.of(open_encoder(f"{name}?batch_size=8"), 1, 3)
    rounded = open_encoder(f"{name}?precision=bfloat16")
    with pytest.raises(InputError, match=r"a part of its name: add &batch_size=3 to it"):
        Source.of(rounded, 1, 3)
    assert Source.of(rounded, 1).open().spec == rounded.spec


def test_pending_shards_that_cannot_be_used_are_removed(tmp_path: Path) -> None:
    files = ViewFiles(tmp_path / "corpus" / "encoder", "corpus", DemoEncoder(4).spec, 20, 8)
    files.clear_pending()  # there is no folder yet
    shard = DemoEncoder(4).encode(LINES[:8])
    good = {files.keep_pending(0, shard), files.keep_pending(16, shard[:4])}
    files.keep_pending(8, shard[:4])  # of 4 rows a shard
    files.keep_pending(4, shard)
    files.keep_pending(24, shard)
    torn = files.pending / files.keep_pending(8, shard)
    torn.write_bytes(torn.read_bytes()[:-1] + b"x")
    with counted_try(files.pending, 2, 0):  # as a process that died leaves it
        assert len(list(files.pending.iterdir())) == 7
        files.clear_pending()
        assert {path.name for path in files.pending.iterdir()} == good


def test_importing_the_worker_loads_neither_scipy_nor_the_methods() -> None:
    code = "import sys, ensembed.engines.ray.shard_worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "ensembed.engines.ray.shard_worker" in loaded
    assert {"scipy", "torch", "ray", "pyarrow", "ensembed.methods"}.isdisjoint(loaded)
