"""The index as code uses it: adding, deleting, finding, and everything that cannot be done."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed.encoders.base import Encoder, UntrustedName
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.wrappers import AdjustedEncoder, ObjectEncoder
from ensembed.errors import DamagedIndexError, EncoderError, InputError, ModelError, SearchIndexError
from ensembed.methods import Concat
from ensembed.models.ensemble import Ensemble, MetaEncoder
from ensembed.search import Index
from ensembed.search.migration import migrate

ENCODER = DemoEncoder(8)
TEXTS = ["a dog barks", "a cat sleeps", "the dog sleeps", "stocks fell"]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    made = Index.create(tmp_path / "index", ENCODER, source="demo?dim=8")
    made.add(TEXTS, ["a", "b", "c", "d"], [{"page": 1}, None, {"tags": ["x"]}, {}])
    return made


def test_a_hit_has_id_text_metadata_and_a_cosine(index: Index) -> None:
    [first, second] = index.search(["a dog barks", "stocks"], k=2)
    assert (first[0].id, first[0].text, first[0].metadata) == ("a", "a dog barks", {"page": 1})
    assert first[0].score == pytest.approx(1)
    assert first[1].score == pytest.approx(float(ENCODER.similarity(["a dog barks"], [first[1].text])[0, 0]), abs=1e-6)
    assert second[0].id == "d"
    assert [hit.id for hit in index.search(ENCODER.encode(["stocks"]) * 7, k=1)[0]] == ["d"]


def test_vectors_that_may_lack_a_member_do_not_come_into_an_index(index: Index, tmp_path: Path) -> None:
    model = Ensemble(["demo?dim=4&seed=1", "demo?dim=4&seed=2"]).fit(TEXTS, Concat())
    dropping = MetaEncoder(model.ensemble, model.meta, name="dropping", missing="drop")
    for encoder in (dropping, AdjustedEncoder(dropping, prefix="text: ")):
        for change in (
            partial(Index.create, tmp_path / "new"),
            index.change_model,
            partial(migrate, index.folder, tmp_path / "new"),
        ):
            with pytest.raises(SearchIndexError, match="not always the same"):
                change(encoder)
    assert not (tmp_path / "new").exists()
    assert index.manifest.spec.dim == 8
    dropping = MetaEncoder(model.ensemble, model.meta, missing="drop")  # of the same name
    prefixed = AdjustedEncoder(model, prefix="text: "), AdjustedEncoder(dropping, prefix="text: ")
    pairs: list[tuple[Encoder, Encoder]] = [(model, dropping), prefixed]
    for whole, lacking in pairs:
        folder = tmp_path / type(whole).__name__
        Index.create(folder, whole).add(TEXTS)
        again = Index.open(folder, lacking)
        assert again.search(["a dog barks"], k=1)[0][0].text == "a dog barks"
        with pytest.raises(SearchIndexError, match="not always the same"):
            again.add(["a new text"])


class Turned(DemoEncoder):
    """An encoder of the same name whose vectors have changed, or which fails."""

    sign = 1.0
    down = False

    def embed(self, sentences: list[str]) -> Any:  # noqa: ANN401 - an array
        if self.down:
            raise EncoderError("down")
        return self.sign * super().embed(sentences)


def test_a_model_that_may_lack_a_member_is_compared_unless_it_lacks_one(tmp_path: Path) -> None:
    member = Turned(8)
    model = Ensemble([member, "demo?dim=4&seed=2"]).fit(TEXTS, Concat())
    Index.create(tmp_path / "index", model).add(TEXTS)
    dropping = MetaEncoder(model.ensemble, model.meta, missing="drop")
    Index.open(tmp_path / "index", dropping)
    member.down = True
    Index.open(tmp_path / "index", dropping)
    member.down, member.sign = False, -1.0
    with pytest.raises(SearchIndexError, match="another"):
        Index.open(tmp_path / "index", dropping)


def test_search_returns_all_rows_if_k_is_larger_and_none_of_an_empty_index(index: Index, tmp_path: Path) -> None:
    assert sorted(hit.id for hit in index.search(["dog"], k=10**6)[0]) == ["a", "b", "c", "d"]
    empty = Index.create(tmp_path / "empty", "demo")
    assert len(empty) == 0
    assert empty.search(["dog"]) == [[]]
    assert empty.add([]) == []
    assert index.search([]) == []


def test_equal_rows_come_in_the_order_of_adding(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", "demo")
    for start in range(0, 30, 10):
        index.add(["the same"] * 10, [f"{i:02d}" for i in range(start, start + 10)])
    assert [hit.id for hit in index.search(["the same"], k=15)[0]] == [f"{i:02d}" for i in range(15)]


def test_open_uses_the_saved_source_of_the_model(index: Index, tmp_path: Path) -> None:
    assert Index.open(index.folder).search(["dog"]) == index.search(["dog"])
    model = Ensemble(["demo?dim=4&seed=1", "demo?dim=4&seed=2"]).fit(TEXTS, Concat())
    model.save(tmp_path / "model")
    made = Index.create(tmp_path / "of-model", model, source=str(tmp_path / "model"))
    made.add(TEXTS)
    assert Index.open(made.folder).search(["dog"]) == made.search(["dog"])
    (tmp_path / "model").rename(tmp_path / "moved")
    with pytest.raises(SearchIndexError, match="no longer in"):
        Index.open(made.folder).search(["dog"])
    opened = Index.open(made.folder, model)
    opened.remember(str(tmp_path / "moved"))
    assert Index.open(made.folder).search(["dog"]) == made.search(["dog"])


def test_open_refuses_another_model(index: Index, tmp_path: Path) -> None:
    with pytest.raises(SearchIndexError, match="was made with 'demo"):
        Index.open(index.folder, "demo?dim=8&seed=5")

    class Shifted(DemoEncoder):
        def embed(self, sentences: list[str]) -> Any:  # noqa: ANN401 - an array
            return super().embed(sentences)[:, ::-1]

    with pytest.raises(SearchIndexError, match="probe vectors"):
        Index.open(index.folder, Shifted(8))
    unnamed = Index.create(tmp_path / "object", ObjectEncoder(ENCODER, name="mine"))
    with pytest.raises(SearchIndexError, match="made with the object 'mine'"):
        Index.open(unnamed.folder).search(["dog"])


def test_a_saved_source_that_sends_sentences_away_needs_trust(tmp_path: Path) -> None:
    source = "openai:https://models.example.com/v1#embedding"
    made = Index.create(tmp_path / "index", ENCODER, source=source)
    with pytest.raises(ModelError, match="trust"):
        _ = Index.open(made.folder).model


def test_an_open_index_keeps_its_state_until_refresh(index: Index) -> None:
    reader = Index.open(index.folder, ENCODER)
    before = reader.search(["dog"], k=9)
    index.delete(["a", "c"])
    index.compact()
    index.add(["a new dog"])
    assert reader.search(["dog"], k=9) == before
    assert reader.refresh()
    assert not reader.refresh()
    assert reader.search(["dog"], k=9) == index.search(["dog"], k=9) != before


def test_two_objects_can_write_in_turn(index: Index) -> None:
    other = Index.open(index.folder, ENCODER)
    assert index.add(["one"]) == ["4"]
    assert other.add(["two"]) == ["5"]
    index.delete(["5"])
    assert other.refresh()
    assert len(other) == 5


def test_an_id_that_exists_is_refused_unless_replace(index: Index) -> None:
    with pytest.raises(InputError, match="the id 'a' is in the index already: nothing was added"):
        index.add(["x", "y"], ["e", "a"])
    with pytest.raises(InputError, match="'e' is given twice"):
        index.add(["x", "y"], ["e", "e"])
    assert len(index) == 4
    index.add(["x", "y", "z"], ["e", "a", "e"], replace=True)
    assert [one["text"] for one in index.get(["a", "e"])] == ["y", "z"]
    assert len(index) == 5
    index.add(["w"], ["8"])
    assert index.add(["v"]) == ["7"]
    assert index.add(["u"]) == ["8+"]
    assert "8+" in index
    assert "\ud800" not in index
    assert 8 not in index


def test_unknown_ids_delete_nothing(index: Index) -> None:
    with pytest.raises(InputError, match="no row has the id 'x' and 1 others: nothing was deleted"):
        index.delete(["a", "x", "y"])
    assert len(index) == 4
    assert index.delete(["a", "a"]) == 1
    assert index.delete([]) == 0
    with pytest.raises(InputError, match="no row has the id 'a'"):
        index.get(["a"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: i.search(["dog", " "]), "query 1 is blank"),
        (lambda i: i.search(b"dog"), "expected a list"),
        (lambda i: i.search([7]), "not a string"),
        (lambda i: i.search(["dog"], k=0), "k is a whole number"),
        (lambda i: i.search(["dog"], k=True), "k is a whole number"),
        (lambda i: i.search(np.ones((1, 3))), r"shape \[n, 8\]"),
        (lambda i: i.search(np.full((1, 8), np.nan)), "NaN or Inf"),
        (lambda i: i.add(["x", ""]), "text 1 is blank"),
        (lambda i: i.add(["\ud800"]), "lone surrogate"),
        (lambda i: i.add(["x"], ["1", "2"]), "2 ids for 1 texts"),
        (lambda i: i.add(["x"], [""]), "id 0 is ''"),
        (lambda i: i.add(["x"], [7]), "id 0 is 7"),
        (lambda i: i.add(["x"], metadata=[{"a": float("nan")}]), "no JSON"),
        (lambda i: i.add(["x"], metadata=[{"a": object()}]), "no JSON"),
        (lambda i: i.add(["x"], metadata=[{"a": ["\ud800"]}]), "metadata of row 0 .*surrogates not allowed"),
        (lambda i: i.add(["x"], metadata=[{"\ud800": 1}]), "metadata of row 0 is no JSON"),
        (lambda i: i.add(["x"], metadata=[{"a": {1: "one"}}]), "row 0 is no JSON: its key 1 is no string"),
        (lambda i: i.add(["x"], metadata=[{"a": [{"b": ({None: 2},)}]}]), "no JSON: its key None is no string"),
        (lambda i: i.add(["x"], metadata=[]), "metadata of 0 rows"),
        (lambda i: i.add(["x"], metadata=["a"]), "is a mapping"),
        (lambda i: i.add(["x"], vectors=np.ones((2, 8))), "2 vectors for 1 texts"),
        (lambda i: i.delete("abc"), "expected a list of ids"),
    ],
)
def test_bad_input_is_refused_and_nothing_changes(index: Index, call: Any, message: str) -> None:  # noqa: ANN401 - any function
    before = (index.folder / "index.json").read_bytes()
    with pytest.raises(InputError, match=message):
        call(index)
    assert (index.folder / "index.json").read_bytes() == before


def test_create_and_open_take_the_folder_of_a_saved_model(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = Ensemble(["demo?dim=4&seed=1", "demo?dim=4&seed=2"]).fit(TEXTS, Concat())
    model.save(folder)
    sources: dict[str, str | Path] = {"text": str(folder), "path": folder}
    for name, given in sources.items():
        made = Index.create(tmp_path / name, given)
        made.add(TEXTS)
        assert made.manifest.source == UntrustedName(str(folder))
        hits = Index.open(made.folder, given).search(["dog"])
        assert hits == Index.open(made.folder).search(["dog"]) == Index.open(made.folder, model).search(["dog"])


def test_remake_replaces_an_index_that_never_had_a_row(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    Index.create(folder, "demo?dim=4")
    with pytest.raises(SearchIndexError, match="already"):
        Index.create(folder, ENCODER)
    # As if a process had died in the middle of it.
    (folder / "fingerprint.npy").write_bytes(b"torn")
    made = Index.create(folder, ENCODER, dtype="int8", remake=True)
    made.add(["one"])
    assert [hit.text for hit in Index.open(folder, ENCODER, verify=True).search(["one"])[0]] == ["one"]


def test_files_that_another_process_replaces_are_no_damage(index: Index) -> None:
    index.add(["one more"])
    reader, other = Index.open(index.folder), Index.open(index.folder)

    def compact_once(_label: str, done: int, _total: int | None, /) -> None:
        if done == 1:
            other.compact()

    reader.verify(progress=compact_once)
    assert reader.manifest == other.manifest
    other.change_model("demo?dim=4")
    with pytest.raises(SearchIndexError, match=r"is another index now, of 'demo\?dim=4': open it again"):
        reader.search(["dog"])


def test_create_and_open_refuse_bad_arguments_and_folders(index: Index, tmp_path: Path) -> None:
    for remake in (False, True):
        with pytest.raises(SearchIndexError, match="already"):
            Index.create(index.folder, ENCODER, remake=remake)
    with pytest.raises(InputError, match="kind is one of"):
        Index.create(tmp_path / "x", ENCODER, kind="fast")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InputError, match="rescore is a whole number"):
        Index.create(tmp_path / "x", ENCODER, rescore=0)
    with pytest.raises(SearchIndexError, match="is not a search index"):
        Index.open(tmp_path / "absent")
    with pytest.raises(SearchIndexError, match="is not a search index"):
        Index.open("a text " * 100)
    (tmp_path / "file").write_text("x")
    with pytest.raises(SearchIndexError, match="is not a folder"):
        Index.create(tmp_path / "file" / "x", ENCODER)
    facts = json.loads((index.folder / "index.json").read_text())
    (index.folder / "index.json").write_text(json.dumps(facts | {"format": 2}))
    with pytest.raises(DamagedIndexError, match=r"index\.json is damaged: its checksum"):
        Index.open(index.folder)


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_verify_names_the_damaged_file(tmp_path: Path, damage: str) -> None:
    made = Index.create(tmp_path / "index", ENCODER, dtype="int8")
    made.add(TEXTS)
    made.delete(["0"])
    files = [*(file.name for file in made.manifest.files()), "index.json"]
    assert len(files) == 11
    for name in files:
        path = made.folder / name
        data = path.read_bytes()
        if damage == "flip":
            path.write_bytes(data[:-3] + bytes([data[-3] ^ 4]) + data[-2:])
        elif damage == "cut":
            path.write_bytes(data[:-2])
        else:
            path.unlink()
        with pytest.raises(SearchIndexError, match=name):
            Index.open(made.folder, verify=True)
        path.write_bytes(data)
    Index.open(made.folder, ENCODER, verify=True)


def test_a_damaged_text_is_neither_returned_nor_compacted(index: Index) -> None:
    path = next(index.folder.glob("*.records.jsonl"))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"a dog barks", b"a dog barkt"))
    opened = Index.open(index.folder, ENCODER)
    with pytest.raises(DamagedIndexError, match=r"records\.jsonl is damaged: the checksum of row 0"):
        opened.search(["a dog barks"])
    opened.delete(["d"])
    with pytest.raises(DamagedIndexError, match=r"records\.jsonl"):
        opened.compact()
    path.write_bytes(data)
    assert len(Index.open(index.folder, ENCODER, verify=True)) == 3


def test_small_segments_are_merged_and_files_of_the_user_stay(index: Index) -> None:
    (index.folder / "notes.txt").write_text("mine")
    (index.folder / "000099.vectors.npy").write_text("left by a crash")
    for i in range(40):
        index.add([f"text {i}"])
    assert len(index) == 44
    assert index.facts["segments"] < 16
    names = {path.name for path in index.folder.iterdir()}
    assert names == {file.name for file in index.manifest.files()} | {"notes.txt", ".lock", "index.json"}
    index.compact()
    assert index.facts["segments"] == 1
    index.delete([str(i) for i in range(4, 44)])
    assert (index.facts["segments"], index.facts["deleted"], len(index)) == (1, 0, 4)
    index.delete(["a", "b", "c", "d"])
    assert (index.facts["segments"], len(index)) == (0, 0)


def test_an_index_is_brought_over_to_another_model(index: Index, tmp_path: Path) -> None:
    index.add([f"text {i}" for i in range(20)], [f"t{i}" for i in range(20)])
    index.delete(["b", "t3"])
    reader = Index.open(index.folder)
    index.change_model("demo?dim=5&seed=7")
    reopened = Index.open(index.folder, verify=True)
    expected = Index.create(tmp_path / "other", "demo?dim=5&seed=7")
    expected.add(["a dog barks", "the dog sleeps", "stocks fell"], ["a", "c", "d"], [{"page": 1}, {"tags": ["x"]}, {}])
    expected.add([f"text {i}" for i in range(20) if i != 3], [f"t{i}" for i in range(20) if i != 3])
    for query in ("dog", "text 7"):
        hits = expected.search([query], 30)
        assert index.search([query], 30) == reopened.search([query], 30) == hits
    assert reopened.facts["model"] == "demo?dim=5&seed=7"
    index.add(["one more"])
    with pytest.raises(SearchIndexError, match="is another index now"):
        reader.refresh()


@pytest.mark.parametrize("dtype", ["int8", "binary"])
def test_codes_follow_a_change_of_model(tmp_path: Path, dtype: Any) -> None:  # noqa: ANN401 - a literal
    index = Index.create(tmp_path / "index", "demo?dim=64", dtype=dtype)
    index.add(TEXTS)
    index.change_model("demo?dim=70&seed=3")
    assert [hits[0].text for hits in index.search(TEXTS, 1)] == TEXTS


def test_a_change_of_model_that_fails_leaves_the_index_as_it_was(index: Index) -> None:
    class Failing(DemoEncoder):
        def embed(self, sentences: list[str]) -> Any:  # noqa: ANN401 - an array
            if "stocks fell" in sentences:
                raise OSError("gone")
            return super().embed(sentences)

    before = index.search(["dog"])
    with pytest.raises(EncoderError, match="gone"):
        index.change_model(Failing(5))
    assert Index.open(index.folder, "demo?dim=8", verify=True).search(["dog"]) == before
    index.add(["one more"])
    assert not list(index.folder.glob("fingerprint-*"))


def test_no_index_is_made_beside_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SearchIndexError, match=r"other files, notes\.txt for instance"):
        Index.create(tmp_path, "demo?dim=8")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "fingerprint.npy").write_bytes(b"what a killed process left")
    assert len(Index.create(tmp_path / "killed", "demo?dim=8")) == 0
