"""What `translate`, `fit` and `migrate` write: models that stand for others or predict members, migrated indexes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ensembed import Ensemble, load
from ensembed.encoders.base import SavedSpec
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import InputError
from ensembed.methods import GCCA
from ensembed.methods.encoder_maps import KINDS, MapKind, Ridge
from ensembed.models.translation import figure_rows, translate, verdict
from ensembed.search import Index
from ensembed.search.migration import MAP, STATE, migrate
from ensembed.views import ViewStore
from fuzz.mutations import Files
from fuzz.own_formats import (
    MODEL_NAMES,
    SHOWING,
    TEXTS,
    content_of,
    json_seal,
    repair_facts,
    repair_index,
    repair_model,
    sha256_of,
    shown,
)
from fuzz.workers import Format

_WORDS = ["dog", "cat", "fox", "man", "red", "old", "blue", "runs", "eats", "sees"]
_SENTENCES = [f"{a} {b} {c}" for a in _WORDS for b in _WORDS for c in _WORDS]
_OLD, _NEW = "demo?dim=8", "demo?dim=6&seed=1"


def _store(folder: Path) -> ViewStore:
    return ViewStore(folder.parent / "tmp" / "views")


# --- Models -----------------------------------------------------------------------------------------------------------


def _make_translation(kinds: Sequence[MapKind], folder: Path) -> None:
    translate(_OLD, _NEW, _SENTENCES[:300], kinds=kinds, store=_store(folder)).save(folder)


def _read_translation(folder: Path) -> object:
    """Do what `search --query-model` and `translate --json` do with a saved translation."""
    model = load(folder)
    vectors = model.encode(TEXTS).tobytes()
    known = model.translation
    if known is None:
        return vectors, model.spec.key, shown(model, folder)
    told = (
        figure_rows(known.figures),
        str(verdict(known.figures["translated"], known.figures["unlike"], 1000)),
        dict(known.kind),
    )
    return vectors, model.spec.key, shown(model, folder), told, known.is_for(SavedSpec.of(DemoEncoder(6, seed=1).spec))


def _make_predictor(folder: Path) -> None:
    encoders = ["demo?dim=4&seed=1", "demo?dim=3&seed=2"]
    Ensemble(encoders).fit(_SENTENCES, GCCA(dim=3), store=_store(folder)).save(folder)


def _read_predictor(folder: Path) -> object:
    """Encode with all members, and with the first one alone."""
    model = load(folder)
    if model.predictor is None:
        return model.encode(TEXTS).tobytes(), shown(model, folder)
    cheap = model.cheap(model.members[model.meta.counted[0]].spec.name)
    without = load(folder, missing="predict").meta_without([model.meta.counted[0]])
    views = [encoder.encode(TEXTS) for encoder in model.members]
    return (
        model.encode(TEXTS).tobytes(),
        cheap.encode(TEXTS).tobytes(),
        without.transform(views).tobytes(),
        shown(model, folder),
    )


# --- Indexes ----------------------------------------------------------------------------------------------------------


def _make_old(folder: Path, rows: int = 300) -> None:
    index = Index.create(folder, _OLD)
    for start in range(0, rows, 100):
        numbers = range(start, start + 100)
        index.add([_SENTENCES[i] for i in numbers], [f"t{i}" for i in numbers], [{"row": i} for i in numbers])
    index.add(["a text without a vector"], ["zero"], vectors=np.zeros((1, 8)))
    index.delete(["t3", "t150"])


def _migrate(old: Path, new: Path, progress: object = None) -> Index:
    report = progress if callable(progress) else (lambda *_: None)
    kinds = [Ridge()]
    return migrate(old, new, _NEW, sample=220, kinds=kinds, least=0.0, store=_store(old.parent), progress=report)


def _make_migrated(folder: Path) -> None:
    old = folder.parent / "tmp" / "old"
    _make_old(old)
    _migrate(old, folder)
    (folder / ".lock").unlink(missing_ok=True)


def _rows_of(index: Index) -> object:
    hits = index.search(["red fox runs", "another"], k=5)
    try:
        origin = index.is_translated(["t1", "t2", "zero"])
    except InputError:  # a stranger's index may have other ids
        origin = []
    return [[(hit.id, hit.score, hit.text, hit.metadata) for hit in some] for some in hits], origin, len(index)


def _read_migrated(folder: Path) -> object:
    index = Index.open(folder)
    facts = index.facts
    return _rows_of(index), {name: facts.get(name) for name in ("translated", "translated_from", "expected_recall")}


def _embed_migrated(folder: Path) -> object:
    """Do what `index --embed-translated` does, and compact."""
    index = Index.open(folder)
    count = index.embed_translated(30, batch=15)
    index.compact()
    return count, _rows_of(Index.open(folder, verify=True))


def _make_migration(folder: Path) -> None:
    """An index, and beside it a migration of it that was interrupted after some of its segments."""
    _make_old(folder / "old")

    def stop(label: str, done: int, _total: int | None, /) -> None:
        if label == "migrate" and done >= 200:
            raise KeyboardInterrupt

    try:
        _migrate(folder / "old", folder / "new", stop)
    except KeyboardInterrupt:
        for lock in folder.rglob(".lock"):
            lock.unlink()
        return
    raise AssertionError("the migration was not interrupted")


def _finish_migration(folder: Path) -> object:
    """Go on with the migration; the index must be as that of one that nobody interrupted."""
    _migrate(folder / "old", folder / "new")
    return _rows_of(Index.open(folder / "new", verify=True))


def _repair_migration(files: Files) -> None:
    old = {name.removeprefix("old/"): content for name, content in files.items() if name.startswith("old/")}
    repair_index(old)
    files |= {f"old/{name}": content for name, content in old.items()}
    state = json.loads(content_of(files, f"new/{STATE}"))
    state.pop("sha256", None)
    state["map"] = sha256_of(content_of(files, f"new/{MAP}"))
    new = {name.removeprefix("new/"): content for name, content in files.items() if name.startswith("new/")}
    repair_facts(new, [facts for _, facts in state["done"]])
    repair_facts(old, [facts for facts, _ in state["done"]])
    files[f"new/{STATE}"] = json.dumps(state | {"sha256": json_seal(state)}).encode()


_REGIONS = [kind for kind in KINDS if kind.regions > 1]

FORMATS: dict[str, Format] = {
    "translation": Format(
        partial(_make_translation, [Ridge()]),
        _read_translation,
        repair_model,
        sealed=True,
        names=MODEL_NAMES,
        modules=SHOWING,
    ),
    "translation-regions": Format(
        partial(_make_translation, _REGIONS),
        _read_translation,
        repair_model,
        sealed=True,
        names=MODEL_NAMES,
        modules=SHOWING,
    ),
    "model-predictor": Format(
        _make_predictor, _read_predictor, repair_model, sealed=True, names=MODEL_NAMES, modules=SHOWING
    ),
    "index-translated": Format(_make_migrated, _read_migrated, repair_index, sealed=True),
    "index-embed": Format(_make_migrated, _embed_migrated, repair_index, sealed=True),
    "migration": Format(_make_migration, _finish_migration, _repair_migration, sealed=True),
}
