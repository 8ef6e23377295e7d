from __future__ import annotations

import hashlib
import importlib
import json
import re
from pathlib import Path

import pytest
from closed_folder import close

from ensembed.encoders.names_and_consent import KINDS
from ensembed.errors import InputError, MissingError, PullError, UnknownEncoderError
from ensembed.fetch.catalog import (
    CatalogEntry,
    PinnedFile,
    catalog,
    entry,
    folder_of,
    is_pulled,
    read_catalog,
    require,
)
from ensembed.fetch.fetcher import pull
from ensembed.fetch.mpnet_graph import CONVERSIONS, GRAPH
from ensembed.support.file_limits import SETTINGS_VALUES
from ensembed.support.machine import cache_dir

# By name: `ensembed.encoders` exports the function under the name of its module.
catalog_module = importlib.import_module("ensembed.fetch.catalog")
ENTRIES = list(catalog().values())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path))
    return tmp_path


def test_the_catalogue_has_the_entries_the_documentation_names() -> None:
    encoders = {"minilm": 384, "minilm-int8": 384, "gte-small": 384, "wordllama": 256, "use-lite": 512, "glove": 100}
    encoders |= {"mpnet": 768, "mpnet-int8": 768, "use-m3": 512, "paraphrase": 384}
    assert {e.name: e.dim for e in ENTRIES} == {**encoders, "stsb": None}


@pytest.mark.parametrize("found", ENTRIES, ids=lambda e: e.name)
def test_every_entry_is_complete_and_pinned(found: CatalogEntry) -> None:
    assert found.title
    assert found.licence
    assert found.kind in {*KINDS, "dataset"}
    assert (found.dim is None) == (found.kind == "dataset")
    assert found.sources
    for name, file in {**found.files, **found.inputs}.items():
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name)  # a plain name: it becomes a path in the cache
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert file.size > 0
    for source in found.package_sources:
        paths = [name for package in (source, *source.others) for name in package.paths]
        made = {GRAPH} if found.conversion in CONVERSIONS else set()
        assert sorted(paths) == sorted({*found.files, *found.inputs} - made)
        assert (sum(part.size for part in source.parts) or source.size) == source.size
        assert len({part.sha256 for part in source.parts}) == len(source.parts)
        assert len(set(source.paths.values())) == len(source.paths)
        assert source.size > 0
        if source.registry == "hub":
            assert re.fullmatch(r"[0-9a-f]{40}", source.version)


def test_the_settings_of_onnx_encoders_are_those_of_the_reference_implementations() -> None:
    settings = {e.name: e.settings for e in ENTRIES if e.kind == "onnx"}
    shared = {"pooling": "mean", "positions": 512}
    assert settings == {
        "minilm": {"max_length": 256, "batch_size": 32, **shared},
        "minilm-int8": {"max_length": 256, "batch_size": 1, **shared},
        "gte-small": {"max_length": 512, "batch_size": 32, **shared},
        "mpnet": {"max_length": 384, "batch_size": 32, **shared},
        "mpnet-int8": {"max_length": 384, "batch_size": 1, **shared},
        "paraphrase": {"max_length": 128, "batch_size": 32, **shared},
    }


def test_minilm_and_gte_small_share_one_npm_archive_and_fall_back_to_the_hub() -> None:
    first, second = entry("minilm").sources, entry("gte-small").sources
    assert [source.registry for source in first] == ["npm", "hub"]
    assert first[0].label == second[0].label
    assert first[1].label != entry("minilm-int8").sources[1].label  # the same repository, but another file


def test_the_platform_wheel_is_chosen_explicitly() -> None:
    (source,) = entry("wordllama").sources
    assert (source.platform, source.python) == ("manylinux2014_x86_64", "3.11")


def test_the_catalogue_is_read_once() -> None:
    assert catalog() is catalog()


def test_the_revision_changes_with_any_file_and_with_nothing_else() -> None:
    found = entry("minilm")
    files = {"model.onnx": PinnedFile("0" * 64, 1), "tokenizer.json": found.files["tokenizer.json"]}
    other = CatalogEntry(**{**vars(found), "files": files})
    renamed = CatalogEntry(**{**vars(found), "title": "x", "files": dict(sorted(found.files.items(), reverse=True))})
    assert re.fullmatch(r"[0-9a-f]{16}", found.revision)
    assert other.revision != found.revision == renamed.revision
    assert len({e.revision for e in ENTRIES}) == len(ENTRIES)


def test_an_unknown_name_gets_suggestions_and_the_list() -> None:
    with pytest.raises(UnknownEncoderError, match=r"no 'minlm' \(did you mean 'minilm'.*it has: minilm, mini"):
        entry("minlm")
    with pytest.raises(UnknownEncoderError, match=r"no 'zzz' .*; it has"):
        entry("zzz")


def test_encoders_and_data_sets_have_their_own_folders(cache: Path) -> None:
    assert folder_of(entry("minilm")) == cache / "encoders" / "minilm"
    assert folder_of(entry("stsb")) == cache / "datasets" / "stsb"


def test_is_pulled_checks_sizes_and_require_checks_hashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {"a": PinnedFile(hashlib.sha256(b"abc").hexdigest(), 3), "b": PinnedFile(hashlib.sha256().hexdigest(), 0)}
    tiny = CatalogEntry(**{**vars(entry("minilm")), "name": "tiny", "files": files})
    monkeypatch.setattr(catalog_module, "catalog", lambda: {"tiny": tiny})
    folder = folder_of(tiny)
    assert not is_pulled(tiny)
    folder.mkdir(parents=True)
    (folder / "a").write_bytes(b"ab")
    (folder / "b").touch()
    assert not is_pulled(tiny)
    with pytest.raises(MissingError, match=r"ensembed pull tiny$"):
        require("tiny")
    (folder / "a").write_bytes(b"abc")
    assert is_pulled(tiny)
    assert require("tiny") == folder
    (folder / "a").write_bytes(b"abd")
    assert is_pulled(tiny)
    with pytest.raises(MissingError, match=r"a is damaged: .* ensembed pull tiny$"):
        require("tiny")
    (folder / "b").unlink()
    assert not is_pulled(tiny)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sources": [{"registry": "web", "paths": {}, "urls": "http://a.b/c"}]}, "its urls are no list"),
        ({"kind": "dataset", "terms": "CC0"}, "its terms are no list"),
        ({"settings": {"a": [0] * SETTINGS_VALUES}}, "more than 20,000 values"),
    ],
)
def test_a_damaged_catalogue_is_refused(changes: dict[str, object], problem: str) -> None:
    facts = {"name": "a", "title": "A", "kind": "static", "licence": "MIT", "sources": [], **changes}
    with pytest.raises(InputError, match=problem):
        read_catalog(json.dumps([facts]))


def test_require_refuses_an_unknown_name() -> None:
    with pytest.raises(UnknownEncoderError):
        require("zzz")


def test_what_is_in_a_cache_that_may_not_be_looked_at_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    close(cache_dir(), monkeypatch)
    assert not is_pulled(entry("minilm"))
    with pytest.raises(MissingError, match="fetch them with: ensembed pull minilm"):
        require("minilm")
    with pytest.raises(PullError, match=r"cannot write to the cache .*Permission denied.*set its rights"):
        pull(["minilm"])
