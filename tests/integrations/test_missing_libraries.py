"""Without its library an integration cannot be imported, and the error names the line that installs it."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path

import pytest

import ensembed.integrations
from ensembed.errors import MissingError

# The library of each integration that cannot be imported without it, and the extra where that has another name.
LIBRARIES = {
    "bertopic": "bertopic",
    "chroma": "chromadb",
    "faiss": "faiss",
    "haystack": "haystack",
    "langchain": "langchain_core",
    "llama_index": "llama_index.core",
    "mteb": "mteb",
    "pgvector": "psycopg",
    "qdrant": "qdrant_client",
    "sentence_transformers": "sentence_transformers",
    "sklearn": "sklearn",
    "usearch": "usearch.index",
}
EXTRAS = {"llama_index": "llama-index", "sentence_transformers": "st"}


@pytest.mark.parametrize("module", LIBRARIES)
def test_integration_without_its_library_names_the_install_line(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, LIBRARIES[module], None)
    monkeypatch.delitem(sys.modules, f"ensembed.integrations.{module}", raising=False)
    with pytest.raises(MissingError, match=rf"pip install 'ensembed\[{EXTRAS.get(module, module)}\]'"):
        importlib.import_module(f"ensembed.integrations.{module}")


def test_every_integration_with_a_library_is_listed() -> None:
    folder = Path(ensembed.integrations.__path__[0])
    importing = {path.stem for path in folder.glob("*.py") if "\nimport_extra(" in path.read_text()}
    assert importing <= LIBRARIES.keys()


def test_sentence_transformers_5_names_the_line_that_upgrades_it(monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version
    older = {"sentence-transformers": "5.7.1"}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: older.get(name) or version(name))
    monkeypatch.delitem(sys.modules, "ensembed.integrations.sentence_transformers", raising=False)
    with pytest.raises(MissingError, match="'sentence-transformers>=6'"):
        importlib.import_module("ensembed.integrations.sentence_transformers")
