"""The parts of a worker by themselves: reading, marks of attempts, places for actors."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from ensembed.corpus import ListCorpus, TextCorpus
from ensembed.encoders.demo import DemoEncoder
from ensembed.engines.ray.jobs import Job, Room, waves
from ensembed.engines.resources import Resources
from ensembed.errors import CorpusError, EngineError
from ensembed.progress import silent
from ensembed.view_files import ViewFiles
from ensembed.workers.opening import Source
from ensembed.workers.reading import Reader
from ensembed.workers.results import Result
from ensembed.workers.tries import DiedError, Tries

LINES = [f"line {i}" for i in range(9000)]


@pytest.mark.parametrize("zipped", [False, True])
def test_stretches_are_read_in_any_order(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "corpus"
    data = "\n".join(LINES).encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    corpus = TextCorpus(path)
    reader = Reader(corpus, len(corpus))
    numbers = random.Random(0)  # noqa: S311
    starts = [0, 10, 10, 5, 8990, 0, *(numbers.randrange(8990) for _ in range(60)), *range(100, 400, 10)]
    for start in starts:
        assert reader.texts(start, start + 10) == LINES[start : start + 10]


def test_a_corpus_that_got_shorter_is_an_error() -> None:
    with pytest.raises(CorpusError, match="ends before row 3"):
        Reader(ListCorpus(["one", "two"]), 3).texts(0, 3)


def test_a_shard_that_was_begun_too_often_is_given_up(tmp_path: Path) -> None:
    tries = Tries(tmp_path / "pending", 2)
    with tries.one_more(0), tries.one_more(8), tries.one_more(0), pytest.raises(DiedError, match="each of the 2"):
        tries.one_more(0).__enter__()
    with tries.one_more(0), tries.one_more(0):  # those that ended do not count, whichever way
        pass
    with pytest.raises(KeyError), tries.one_more(0):
        raise KeyError
    assert not list((tmp_path / "pending").iterdir())
    tries.one_more(0).__enter__()
    tries.forget()
    assert not list((tmp_path / "pending").iterdir())


def job(number: int, resources: Resources, rows: int = 64) -> Job:
    corpus = ListCorpus([f"sentence {i}" for i in range(rows)])
    files = ViewFiles(Path("store") / "corpus" / "encoder", corpus.key, DemoEncoder(4).spec, rows, 8)
    return Job(number, files, resources, corpus, silent, {})


def test_views_share_the_cluster_if_they_fit_together() -> None:
    room = Room([{"CPU": 4.0}, {"CPU": 2.0, "GPU": 1.0}])
    jobs = [job(0, Resources(2)), job(1, Resources(1, 1)), job(2, Resources(4))]
    found = [[(one.number, count) for one, count in wave] for wave in waves(jobs, room)]
    # The third one wants the whole of the first node, of which the first one gets what is left to share out.
    assert found == [[(0, 2), (1, 1)], [(2, 1)]]


def test_no_more_actors_than_shards_or_than_asked_for() -> None:
    room = Room([{"CPU": 16.0}])
    assert [[count for _, count in wave] for wave in waves([job(0, Resources())], room)] == [[8]]
    assert [[count for _, count in wave] for wave in waves([job(0, Resources(actors=(1, 3)))], room)] == [[3]]
    assert [[count for _, count in wave] for wave in waves([job(0, Resources(shards=3))], room)] == [[3]]


def test_an_actor_must_fit_on_one_node() -> None:
    with pytest.raises(EngineError, match=r"room for 0 \(its nodes: 2 CPU, 0 GPU; 2 CPU, 0 GPU\)"):
        Room([{"CPU": 2.0}, {"CPU": 2.0}]).check(job(0, Resources(3)))


def test_a_result_that_comes_twice_counts_once() -> None:
    one = job(0, Resources())
    for _ in range(2):
        one.take(Result(0, 8, 8, name="a shard", worker="here"))
    assert one.rows_done == 8
    assert 8 not in one.missing


def test_encoders_of_the_catalogue_travel_by_name_and_others_do_not() -> None:
    assert Source.of(DemoEncoder(4), 1).pickled is None
    assert Source.of(DemoEncoder(4), 1).open().spec == DemoEncoder(4).spec
