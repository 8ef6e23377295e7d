"""Files that version 0.1 wrote still open, and give what they gave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed import ListCorpus, ViewStore, load, open_encoder
from ensembed.integrations.faiss import FaissStore
from ensembed.integrations.sentence_transformers import load as load_sentence_transformer
from ensembed.integrations.usearch import UsearchStore
from ensembed.search import Index

VERSION = Path(__file__).parent / "golden" / "version-0.1"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy of the files, which a test may lock and write to."""
    return Path(shutil.copytree(VERSION, tmp_path / "golden"))


def _facts(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(path.read_text())
    return facts


def test_views_are_found_under_their_keys_and_nothing_is_encoded_again(
    golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = _facts(golden / "views.json")
    encoders = [open_encoder(name) for name in facts["encoders"]]
    monkeypatch.setattr("ensembed.encoders.demo_encoder.DemoEncoder.embed", None)
    views = ViewStore(golden / "views").embed_all(ListCorpus(facts["sentences"]), encoders, verify=True)
    assert [str(view.folder.relative_to(golden / "views")) for view in views] == facts["folders"]
    for view, rows in zip(views, facts["rows"], strict=True):
        np.testing.assert_array_equal(np.asarray(view)[::5], np.array(rows, np.float32))
        assert view.damaged() == []


@pytest.mark.parametrize("name", sorted(path.name for path in (VERSION / "models").iterdir()))
def test_models_give_the_vectors_they_gave(golden: Path, name: str) -> None:
    facts = _facts(golden / "models" / name / "golden.json")
    vectors = load(golden / "models" / name).encode(facts["sentences"])
    np.testing.assert_allclose(vectors, facts["vectors"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(path.stem for path in (VERSION / "indexes").glob("*.json")))
def test_indexes_find_what_they_found_and_take_new_rows(golden: Path, name: str) -> None:
    facts = _facts(golden / "indexes" / f"{name}.json")
    index = Index.open(golden / "indexes" / name, verify=True)
    assert len(index) == facts["rows"]
    for hits, expected in zip(index.search(facts["queries"], k=3), facts["hits"], strict=True):
        assert [(hit.id, hit.text, hit.metadata) for hit in hits] == [
            (hit["id"], hit["text"], hit["metadata"]) for hit in expected
        ]
        np.testing.assert_allclose([hit.score for hit in hits], [hit["score"] for hit in expected], atol=1e-6)
    index.add(["something new"], ids=["new"])
    assert [hit.id for hit in index.search(["something new"], k=1)[0]] == ["new"]


@pytest.mark.parametrize(("name", "kind"), [("faiss", FaissStore), ("usearch", UsearchStore)])
def test_vector_stores_find_what_they_found(golden: Path, name: str, kind: type[FaissStore | UsearchStore]) -> None:
    facts = _facts(golden / "vector-stores" / f"{name}.json")
    ids, scores = kind.open(golden / "vector-stores" / name, golden / "models" / "svd").search(facts["queries"], k=3)
    assert ids.tolist() == facts["ids"]
    np.testing.assert_allclose(scores, facts["scores"], atol=1e-5)


def test_folders_of_sentence_transformers_give_the_vectors_of_the_model(golden: Path) -> None:
    facts = _facts(golden / "models" / "svd" / "golden.json")
    model = load_sentence_transformer(golden / "sentence-transformers" / "svd")
    np.testing.assert_allclose(model.encode(facts["sentences"]), facts["vectors"], rtol=1e-5, atol=1e-6)
