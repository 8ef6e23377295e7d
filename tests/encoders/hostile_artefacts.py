"""Models and indexes that name a member which needs consent, and a record of what reaches the kinds of encoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ensembed import Ensemble
from ensembed.encoders import Encoder, Request
from ensembed.encoders.base import UntrustedName
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.names_and_consent import KINDS
from ensembed.methods import Concat
from ensembed.models.saved_model import read_model, write_model
from ensembed.search import Index

REMOTE = "openai:https://embeddings.example.org/v1#model"
SENTENCE = "a dog barks"


def hostile_model(folder: Path, name: str) -> Path:
    """A saved model with right hashes whose only member has this name."""
    Ensemble([DemoEncoder(4)]).fit([SENTENCE], Concat()).save(folder)
    saved = read_model(folder)
    write_model(folder, replace(saved, members=(replace(saved.members[0], name=UntrustedName(name)),)))
    return folder


def hostile_index(folder: Path, name: str, *, rows: bool = True) -> Path:
    """An index with right hashes whose model has this name."""
    index = Index.create(folder, DemoEncoder(4))
    if rows:
        index.add([SENTENCE])
    (folder / "index.json").write_bytes(replace(index.manifest, source=UntrustedName(name)).to_bytes())
    return folder


def record_requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Return a list that gets the requests that reach a kind; behind each of them is the demo encoder."""
    requests: list[Request] = []

    class Recorded(EntryPoint):
        def load(self) -> Callable[[Request], Encoder]:
            def opener(request: Request) -> Encoder:
                requests.append(request)
                return DemoEncoder(4)

            return opener

    for scheme in KINDS.keys() - {"demo"}:
        monkeypatch.setitem(KINDS, scheme, Recorded(scheme, KINDS[scheme].value, ""))
    plugin = Recorded("shout", "nowhere:opener", "")
    monkeypatch.setattr("ensembed.encoders.names_and_consent.plugins", lambda: {"shout": [plugin]})
    monkeypatch.setattr("ensembed.encoders.names_and_consent.package_of", lambda _: "loud 1.0")
    return requests
