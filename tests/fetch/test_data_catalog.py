"""The pinned hashes are those of the real files, and the page about the data tells what `catalog.json` says."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from served_data import serving, tarred, zipped

from ensembed.errors import InputError
from ensembed.fetch.catalog import DataSet, Source, data_set, data_sets
from ensembed.sts.datasets import PARTS, SPLITS, load_sts
from ensembed.sts.find import fetch_data

DOCS = (Path(__file__).parents[2] / "docs" / "reference" / "data.md").read_text()
STS = [one for one in data_sets().values() if not one.is_corpus]


def organisers(one: DataSet, name: str, data: Path) -> bytes:
    """A file as its publisher made it: those of 2016 may be there with two columns, and the whole ones beside them."""
    folder = data / one.folder
    original = folder / "original" / f"{PurePosixPath(one.sources[-1].paths[name]).name}.gz"
    path = original if original.is_file() else folder / name
    if not path.is_file():
        pytest.skip(f"{data} has no {one.folder}/{name}")
    return gzip.decompress(path.read_bytes()) if path == original else path.read_bytes()


@pytest.mark.parametrize("one", STS, ids=lambda one: one.name)
def test_the_hashes_are_those_of_the_real_files(one: DataSet, sts_data: Path) -> None:
    for name, file in one.files.items():
        content = organisers(one, name, sts_data)
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (file.sha256, file.size), name


@pytest.mark.parametrize("one", STS, ids=lambda one: one.name)
def test_an_archive_of_the_real_files_is_fetched_as_the_whole_data_set(
    one: DataSet, sts_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    paths = one.sources[-1].paths
    content = {member: organisers(one, name, sts_data) for name, member in paths.items()}
    with serving() as site:
        site.files["/archive"] = tarred(content) if one.urls[0].endswith(".tar.gz") else zipped(content)
        fetch_data(replace(one, sources=(Source("web", f"{site.url}/archive", paths),)), tmp_path)
    names = [one.name] if one.name in PARTS else list(SPLITS)
    assert sum(len(load_sts(name, tmp_path)) for name in names) == one.count
    for name in names:
        assert load_sts(name, tmp_path).fingerprint == load_sts(name, sts_data).fingerprint


def test_every_data_set_has_terms_hashes_and_safe_paths() -> None:
    assert list(data_sets()) == ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "billion-word"]
    for one in data_sets().values():
        assert one.terms
        pinned = all(file.sha256 and file.size for file in one.files.values())
        assert pinned or all(source.sha256 and source.size for source in one.sources)
        for name in (one.folder, *one.files):
            assert ".." not in PurePosixPath(name).parts
            assert not PurePosixPath(name).is_absolute()


def test_an_unknown_data_set_gets_suggestions() -> None:
    with pytest.raises(InputError, match=r"'sts17' to fetch \(did you mean .*'sts1.'.*there are: sts12, "):
        data_set("sts17")


@pytest.mark.parametrize("one", data_sets().values(), ids=lambda one: one.name)
def test_docs_name_every_data_set_address_member_and_term(one: DataSet) -> None:
    assert f"## {one.name}\n" in DOCS
    section = DOCS.partition(f"## {one.name}\n")[2].partition("\n## ")[0]
    for wanted in (*one.urls, one.folder, one.holds, *one.terms, *([one.note] if one.note else [])):
        assert wanted in section, wanted
    for name, member in one.sources[-1].paths.items():
        assert f"`{member}`" in section
        assert f"`{name}`" in section
    assert (one.sources[-1].sha256 or "") in section
