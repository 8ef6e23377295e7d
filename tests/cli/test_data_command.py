"""`ensembed data`: what is here, and fetching the rest from a server of our own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from served_data import Site, by_member, described, serving, year_files, zipped

from ensembed.cli import main
from ensembed.fetch.catalog import data_sets
from ensembed.fetch.download import download
from ensembed.support.machine import fetched_dir

# By this name the package has the command, not its module.
command_module = import_module("ensembed.cli.data")


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    """A machine without data, and a server that has 2012 and 2013 but not 2016."""
    monkeypatch.delenv("ENSEMBED_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "somewhere").mkdir()
    monkeypatch.chdir(tmp_path / "somewhere")
    with serving() as running:
        known = {}
        for name in ("sts12", "sts13", "sts16"):
            files = year_files(name)
            if name != "sts16":
                running.files[f"/{name}.zip"] = zipped(by_member(files))
            folder = f"senteval/downstream/STS/STS{name[3:]}-en-test"
            known[name] = described(name, folder, files, f"{running.url}/{name}.zip")
        monkeypatch.setattr("ensembed.fetch.catalog.data_sets", lambda: known)
        monkeypatch.setattr(command_module, "data_sets", lambda: known)
        yield running


def test_data_lists_where_every_set_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["data"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("sts")}
    assert rows["sts12"].split()[1] == "-"
    assert main(["data", "fetch", "sts12", "-q"]) == 0
    capsys.readouterr()
    assert main(["data"]) == 0
    output = capsys.readouterr().out
    assert "sts12  fetched  4 pairs" in output
    assert f"looked in: {fetched_dir()}" in output
    assert main(["data", "--json"]) == 0
    facts = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert (facts["sts12"]["here"], facts["sts12"]["where"]) == (True, "fetched")
    assert facts["sts12"]["folder"] == str(tmp_path / "cache" / "data")
    assert (facts["sts16"]["here"], facts["sts16"]["where"], facts["sts16"]["folder"]) == (False, None, None)
    next(fetched_dir().rglob("STS.gs.MSRpar.txt")).write_text("not a score\n")
    assert main(["data"]) == 0
    output = capsys.readouterr().out
    assert "fetched, damaged" in output
    assert "sts12 is damaged: " in output


def test_every_real_set_is_listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "data_sets", data_sets)
    assert main(["data"]) == 0
    output = capsys.readouterr().out
    for name in ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "billion-word"):
        assert f"\n{name} " in output
    assert "Linguistic Data Consortium" in output


def test_fetching_shows_the_licence_and_is_done_once(
    capsys: pytest.CaptureFixture[str], site: Site, tmp_path: Path
) -> None:
    command = ["data", "fetch", "sts12", "sts13", "--data", str(tmp_path / "mine"), "--json"]
    assert main(command) == 0
    output = capsys.readouterr()
    assert "sts12: made up\n  a term\n" in output.err
    first, second = json.loads(output.out)
    assert first["source"] == f"{site.url}/sts12.zip"
    assert Path(second["folder"]) == tmp_path / "mine/senteval/downstream/STS/STS13-en-test"
    assert main(command) == 0
    assert [one["source"] for one in json.loads(capsys.readouterr().out)] == [None, None]
    assert main([*command, "--force", "--keep-archives"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["source"] == f"{site.url}/sts12.zip"
    assert len(site.asked) == 4
    download(f"{site.url}/sts12.zip")
    assert len(site.asked) == 4, "it was kept"


def test_a_failing_data_set_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "sts16", "sts12"]) == 1
    output = capsys.readouterr()
    assert "sts12  http://127.0.0.1" in output.out
    assert "error: sts16 could not be fetched:" in output.err
    place = fetched_dir() / "senteval/downstream/STS/STS16-en-test/STS.gs.headlines.txt"
    assert f"sts2016-english-with-gs-v1.0/STS2016.gs.headlines.txt             ->  {place}" in output.err
    assert main(["data", "fetch", "--all", "--json"]) == 1
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["sts12"]["error"] is None
    assert found["sts13"]["source"] is not None
    assert "could not be fetched" in found["sts16"]["error"]


def test_wrong_arguments_of_data_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["data", "fetch"]) == 2
    assert "--all" in capsys.readouterr().err
    assert main(["data", "fetch", "sts21"]) == 1
    assert "there is no data set 'sts21' to fetch (did you mean" in capsys.readouterr().err
    assert main(["data", "--json", "fetch", "sts12"]) == 2
    assert "put --json behind fetch" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["data", "fetch", "sts12", "--data", str(tmp_path / "file" / "data")]) == 1
    assert "name another folder (folder=…, --data)" in capsys.readouterr().err
