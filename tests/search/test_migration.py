"""Indexes that become those of another model: complete, resumable, the old one untouched, each row's origin known."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import DamagedIndexError, IndexBusyError, InputError, SearchIndexError
from ensembed.models.translation import translate
from ensembed.search import Index, migration, segments
from ensembed.search.index_files import FileFacts, Manifest, TranslatedFacts, read_manifest
from ensembed.search.migration import MAP, STATE, migrate, query_map
from ensembed.views import ViewStore

WORDS = ["dog", "cat", "fox", "man", "red", "old", "blue", "runs", "eats", "sees", "tree", "car"]
TEXTS = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS[:6]]
OLD, NEW = "demo?dim=24", "demo?dim=16&seed=1"
SAMPLE = 400


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ViewStore:
    return ViewStore(tmp_path_factory.mktemp("views"))


def build(folder: Path, dtype: str = "float32") -> Index:
    """Make an index of several segments, with deleted rows, metadata and a row without words, whose vector is zero."""
    index = Index.create(folder, OLD, dtype=dtype)  # type: ignore[arg-type]
    for start in range(0, len(TEXTS), 300):
        part = TEXTS[start : start + 300]
        index.add(part, [f"t{start + i}" for i in range(len(part))], [{"n": start + i} for i in range(len(part))])
    index.add(["a text that the old model gave no vector"], ["zero"], vectors=np.zeros((1, 24)))
    index.delete(["t0", "t5", "t500"])
    return index


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("content", ["vectors", "ids", "keys", "places"])
def test_damage_in_an_index_of_version_0_1_gets_no_valid_checksum(
    tmp_path: Path, store: ViewStore, content: str
) -> None:
    index = build(tmp_path / "old")
    segment = index.manifest.segments[0]
    old = [
        replace(each, files={k: v for k, v in each.files.items() if k != "blocks"}) for each in index.manifest.segments
    ]
    (index.folder / "index.json").write_bytes(replace(index.manifest, segments=tuple(old)).to_bytes())
    path = index.folder / segment.files[content].name
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    for change in (
        lambda: migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1),
        lambda: Index.open(tmp_path / "old").change_model(NEW),
    ):
        with pytest.raises(DamagedIndexError, match=path.name):
            change()


def test_nobody_writes_to_the_new_index_while_it_is_compacted(
    tmp_path: Path, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "old")
    compact = segments.compact

    def compact_while_another_adds(snapshot: segments.Snapshot, *arguments: Any) -> Manifest:  # noqa: ANN401 - passed on
        monkeypatch.undo()
        with pytest.raises(IndexBusyError):
            Index.open(tmp_path / "new").add(["a late text"], ["late"])
        return compact(snapshot, *arguments)

    monkeypatch.setattr(segments, "due_compactions", segments.all_compactions)
    monkeypatch.setattr(segments, "compact", compact_while_another_adds)
    new = migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1)
    assert new.facts["segments"] == 1


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_migrated_index_has_the_rows_and_finds_them_with_the_new_model(
    tmp_path: Path, store: ViewStore, dtype: str
) -> None:
    old = build(tmp_path / "old", dtype)
    before = hashes(tmp_path / "old")
    new = migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1)
    assert hashes(tmp_path / "old") == before
    assert not (tmp_path / "new" / STATE).exists()
    assert not (tmp_path / "new" / MAP).exists()
    again = Index.open(tmp_path / "new", verify=True)
    ids = [f"t{i}" for i in range(len(TEXTS)) if i not in (0, 5, 500)] + ["zero"]
    assert again.get(ids) == old.get(ids)
    assert "t0" not in again
    assert again.manifest.settings == old.manifest.settings
    # Embedded: the sample's rows, to the bit, and the row that could not be translated.
    flags = dict(zip(ids, again.is_translated(ids), strict=True))
    assert not flags["zero"]
    assert 0 < SAMPLE - sum(not flag for flag in flags.values()) + 1 < SAMPLE / 10  # some sampled texts are the same
    assert again.facts["translated"] == sum(flags.values())
    encoder = DemoEncoder(16, seed=1)
    places = again.snapshot.find(ids)
    exact = encoder.encode([row["text"] for row in again.get(ids)], normalize_embeddings=True)
    rows = again.snapshot.vectors(np.array([places[id_] for id_ in ids]))
    same = (np.abs(rows - exact) <= 1e-6).all(axis=1).tolist()
    assert same == [not flag for flag in flags.values()]
    assert (rows * exact).sum(axis=1).mean() > 0.8
    assert set(new.search(["red fox runs"], k=1)[0][0].text.split()) == {"red", "fox", "runs"}
    # New rows are embedded, and those that replace translated ones are, too.
    id_ = next(id_ for id_, flag in flags.items() if flag)
    again.add(["something new", "another text"], ["new", id_], replace=True)
    assert again.is_translated(["new", id_]) == [False, False]
    again.compact()
    assert again.is_translated(ids) == [flag and name != id_ for name, flag in flags.items()]
    left = again.facts["translated"]
    wrong: list[dict[str, Any]] = [{"limit": -1}, {"limit": 1.5}, {"batch": 0}]
    for settings in wrong:
        with pytest.raises(InputError, match=f"{next(iter(settings))} must be a whole number"):
            again.embed_translated(**settings)
    assert again.embed_translated(50) == 50
    assert again.facts["translated"] == left - 50
    again.embed_translated()
    assert Index.open(tmp_path / "new", verify=True).facts["translated"] == 0
    assert len(again) == len(ids) + 1


def test_an_interrupted_migration_goes_on_and_notices_that_the_old_index_has_changed(
    tmp_path: Path, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = build(tmp_path / "old")
    whole = migrate(tmp_path / "old", tmp_path / "whole", NEW, sample=SAMPLE, store=store, least=0.1)
    usual = migration._Migration._translate_segment
    calls: list[int] = []

    def stop(self: migration._Migration, *arguments: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return usual(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(migration._Migration, "_translate_segment", stop)
    with pytest.raises(KeyboardInterrupt):
        migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1)
    with pytest.raises(SearchIndexError, match="not a search index"):
        Index.open(tmp_path / "new")
    with pytest.raises(SearchIndexError, match="another index or to another model"):
        migrate(tmp_path / "old", tmp_path / "new", "demo?dim=8", sample=SAMPLE, store=store, least=0.1)
    for name in (migration.STATE, migration.MAP):  # as a killed process leaves them
        (tmp_path / "new" / f".{name}.0123abcd.tmp").write_bytes(b"half")
    monkeypatch.setattr(migration, "fit_map", None)  # the map is kept
    new = migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1)
    assert len(calls) == 2 + 1 + len(old.manifest.segments) - 2
    assert hashes(tmp_path / "new") == hashes(tmp_path / "whole")
    assert len(new) == len(whole)
    with pytest.raises(SearchIndexError, match="there is an index"):
        migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store)


def test_a_migration_with_a_large_sample_goes_on(
    tmp_path: Path, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> object:
        raise KeyboardInterrupt

    build(tmp_path / "old")
    command = (tmp_path / "old", tmp_path / "new", NEW)
    with monkeypatch.context() as patched:
        patched.setattr(migration._Migration, "_translate_segment", stop)
        with pytest.raises(KeyboardInterrupt):
            migrate(*command, sample=SAMPLE, store=store, least=0.1)
    # As if the sample had a million texts, so that the state were larger than other files of JSON may be.
    large = (tmp_path / "new" / STATE).stat().st_size - 1
    assert (tmp_path / "old" / "index.json").stat().st_size < large
    monkeypatch.setattr("ensembed.support.file_limits.JSON_BYTES", large)
    monkeypatch.setattr(migration, "fit_map", None)  # the map is kept
    assert len(migrate(*command, sample=SAMPLE, store=store, least=0.1)) == len(TEXTS) - 2
    monkeypatch.setattr(migration, "_MOST_SAMPLE", 100)
    with pytest.raises(InputError, match="sample is at most 100 texts, not 400"):
        migrate(tmp_path / "old", tmp_path / "other", NEW, sample=SAMPLE, store=store)


def test_a_writer_that_replaces_segments_of_the_old_index_does_not_end_a_migration(
    tmp_path: Path, store: ViewStore
) -> None:
    build(tmp_path / "old")
    calls: list[int] = []

    def compact_once(label: str, done: int, _total: int | None, /) -> None:
        if label == "migrate" and done and not calls:
            calls.append(done)
            writer = Index.open(tmp_path / "old")
            writer.delete(["t7"])
            writer.compact()

    new = migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1, progress=compact_once)
    assert calls
    assert "t7" not in new
    assert len(new) == len(Index.open(tmp_path / "old"))
    new.verify()


def test_rows_that_come_and_go_during_an_interruption_are_as_in_the_old_index(
    tmp_path: Path, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = build(tmp_path / "old")
    usual = migration._Migration.finish

    def stop(_: migration._Migration) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(migration._Migration, "finish", stop)
    with pytest.raises(KeyboardInterrupt):
        migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1)
    monkeypatch.setattr(migration._Migration, "finish", usual)
    old.delete(["t7"])
    old.add(["a late text"], ["late"])
    new = migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1)
    assert "t7" not in new
    assert new.get(["late"])[0]["text"] == "a late text"
    new.verify()
    assert len(new) == len(old)


@pytest.mark.parametrize("last", [False, True], ids=["before the last step", "after it"])
def test_another_index_does_not_go_on_where_a_migration_was_interrupted(
    tmp_path: Path, store: ViewStore, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    build(tmp_path / "old")
    other = Index.create(tmp_path / "other", OLD)  # keys and spec are those of the old index, the texts are not
    other.add(TEXTS[::-1])

    usual_unlink, usual_finish = Path.unlink, migration._Migration.finish

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name == STATE:
            raise KeyboardInterrupt
        usual_unlink(path, missing_ok)

    def finish(run: migration._Migration) -> None:
        if not last:
            raise KeyboardInterrupt
        usual_finish(run)

    monkeypatch.setattr(Path, "unlink", unlink)
    monkeypatch.setattr(migration._Migration, "finish", finish)
    with pytest.raises(KeyboardInterrupt):
        migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1)
    monkeypatch.undo()
    assert ((tmp_path / "new" / "index.json").exists(), (tmp_path / "new" / MAP).exists()) == (last, not last)
    with pytest.raises(SearchIndexError, match="another index or to another model"):
        migrate(tmp_path / "other", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1)
    new = migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1)
    assert new.get(["t1"])[0]["text"] == TEXTS[1]
    assert not (tmp_path / "new" / STATE).exists()


def test_rows_that_others_change_while_translated_ones_are_embedded_stay_changed(
    tmp_path: Path, store: ViewStore
) -> None:
    build(tmp_path / "old")
    new = migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1)
    ids = [f"t{i}" for i in range(600, len(TEXTS))]
    replaced, deleted = [id_ for id_, flag in zip(ids, new.is_translated(ids), strict=True) if flag][-2:]
    rows, reports = new.facts["translated"], []

    def change(_: str, done: int, total: int | None) -> None:
        reports.append((done, total))
        if len(reports) == 1:
            another = Index.open(tmp_path / "new")
            another.add(["a newer text"], [replaced], replace=True)
            another.delete([deleted])

    assert new.embed_translated(batch=256, progress=change) == rows - 2
    assert new.get([replaced])[0]["text"] == "a newer text"
    assert deleted not in new
    assert new.facts["translated"] == 0
    assert reports[-1] == (rows - 2, rows - 2)


def test_prefixes_of_queries_and_documents_are_those_of_a_new_index(tmp_path: Path, store: ViewStore) -> None:
    build(tmp_path / "old")
    model = f"{NEW}&query_prefix=query: &document_prefix=passage: "
    new = migrate(tmp_path / "old", tmp_path / "new", model, sample=SAMPLE, store=store, least=0.1)
    again = Index.open(tmp_path / "new", model)
    assert again.has_roles
    ids = [f"t{i}" for i in range(6, 500)]
    id_ = ids[again.is_translated(ids).index(False)]
    row = again.snapshot.vectors(np.array([again.snapshot.find([id_])[id_]]))[0]
    expected = DemoEncoder(16, seed=1).encode("passage: " + again.get([id_])[0]["text"], normalize_embeddings=True)
    np.testing.assert_allclose(row, expected, atol=1e-6)
    with pytest.raises(InputError, match="already: there is nothing to migrate"):
        migrate(tmp_path / "new", tmp_path / "more", model, store=store)
    own = query_map(new, model, store=store)
    assert own.fitted is None
    np.testing.assert_array_equal(own.vectors(["a dog"]), DemoEncoder(16, seed=1).encode(["query: a dog"]))


@pytest.mark.parametrize("centres", [0, 1, 2.0, True])
def test_an_index_with_a_wrong_count_of_centres_is_refused(tmp_path: Path, centres: float) -> None:
    file = FileFacts("familiar-000001.npy", 0, "")
    Index.create(tmp_path, OLD)
    facts = TranslatedFacts(file, 1, file, 2, (0.0, 0.0), "demo", (0.5, 0.5))
    assert TranslatedFacts.from_json(asdict(facts)) == facts
    manifest = replace(read_manifest(tmp_path), translated=replace(facts, centres=centres))  # type: ignore[arg-type]
    (tmp_path / "index.json").write_bytes(manifest.to_bytes())
    with pytest.raises(DamagedIndexError, match="centres of translated rows"):
        Index.open(tmp_path)


def test_damage_is_an_error_in_the_old_index_and_in_the_state(
    tmp_path: Path, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = build(tmp_path / "old")
    name = old.manifest.segments[1].files["records"].name
    data = bytearray((tmp_path / "old" / name).read_bytes())
    data[-3] ^= 1
    (tmp_path / "old" / name).write_bytes(data)
    monkeypatch.setattr(migration, "sample_of", lambda *_: _sample(old, store))
    with pytest.raises(DamagedIndexError, match=name):
        migrate(tmp_path / "old", tmp_path / "new", NEW, store=store, least=0.1)
    state = json.loads((tmp_path / "new" / STATE).read_text())
    (tmp_path / "new" / STATE).write_text(json.dumps(state | {"next_segment": 99}))
    with pytest.raises(DamagedIndexError, match="remove the folder"):
        migrate(tmp_path / "old", tmp_path / "new", NEW, store=store, least=0.1)


def _sample(index: Index, store: ViewStore) -> migration.Sample:
    """A sample without reading the damaged record."""
    texts = TEXTS[6:300]
    places = index.snapshot.find([f"t{i}" for i in range(6, 300)])
    rows = np.array(list(places.values()))
    other = np.asarray(store.embed(ListCorpus(texts), DemoEncoder(16, seed=1))[:])
    return migration.Sample(texts, index.snapshot.keys[rows], index.snapshot.vectors(rows), other)


def test_a_map_that_falls_short_is_asked_about_and_nothing_is_written(tmp_path: Path, store: ViewStore) -> None:
    build(tmp_path / "old")
    asked: list[str] = []

    def agree(_: object, verdict: object) -> bool:
        asked.append(str(verdict))
        return False

    with pytest.raises(SearchIndexError, match="nothing was migrated: expect 0"):
        migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.999)
    with pytest.raises(SearchIndexError, match=r"less than the 0\.999 asked for"):
        migrate(
            tmp_path / "old",
            tmp_path / "new",
            NEW,
            sample=SAMPLE,
            store=store,
            least=0.999,
            confirm=agree,
        )
    assert len(asked) == 1
    assert {path.name for path in (tmp_path / "new").iterdir()} <= {".lock"}
    with pytest.raises(InputError, match="already: there is nothing to migrate"):
        migrate(tmp_path / "old", tmp_path / "new", OLD, store=store)
    with pytest.raises(InputError, match="sample must be a whole number of at least 1, not -1"):
        migrate(tmp_path / "old", tmp_path / "new", NEW, sample=-1)
    with pytest.raises(InputError, match="least is a part of the ten nearest from 0 to 1, not nan"):
        migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=float("nan"))
    with pytest.raises(InputError, match="sample must be a whole number of at least 1, not 0"):
        query_map(Index.open(tmp_path / "old"), NEW, sample=0)
    with pytest.raises(InputError, match="wait is a number of seconds from 0 on, not -1"):
        Index.open(tmp_path / "old", wait=-1).delete(["t1"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(
        SearchIndexError, match=r"mine: it holds other files, notes\.txt for instance; name a new folder"
    ):
        migrate(tmp_path / "old", tmp_path / "mine", NEW, store=store)
    with pytest.raises(InputError, match="name a new folder"):
        migrate(tmp_path / "old", tmp_path / "old", NEW, store=store)


def test_an_index_is_searched_with_another_model_or_with_a_map(tmp_path: Path, store: ViewStore) -> None:
    index = build(tmp_path / "old")
    queries = ["red fox runs", "old car sees"]
    expected = [{hit.text for hit in hits[:5]} for hits in index.search(queries)]
    mapped = query_map(index, NEW, sample=SAMPLE, store=store)
    assert mapped.fitted is not None
    found = [{hit.text for hit in hits} for hits in index.search(mapped.vectors(queries))]
    assert all(len(texts & hits) >= 3 for texts, hits in zip(expected, found, strict=True))
    model = translate(NEW, OLD, TEXTS, store=store)
    model.save(tmp_path / "map")
    ready = query_map(index, tmp_path / "map", store=store)
    assert ready.fitted is None
    found = [{hit.text for hit in hits} for hits in index.search(ready.vectors(queries))]
    assert all(len(texts & hits) >= 3 for texts, hits in zip(expected, found, strict=True))


def test_queries_unlike_the_sample_give_a_warning(tmp_path: Path, store: ViewStore) -> None:
    build(tmp_path / "old")
    new = migrate(tmp_path / "old", tmp_path / "new", NEW, sample=SAMPLE, store=store, least=0.1)
    new.search(["red fox runs"])
    rows = new.snapshot.vectors(np.arange(len(TEXTS)))
    with pytest.warns(RuntimeWarning, match="queries look unlike the texts"):
        new.search(-rows.mean(axis=0))
