"""What a model's card says, read back by the hub's own reader."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stand_ins import trusted

from ensembed import Ensemble
from ensembed.encoders.base import EncoderSpec, SavedSpec
from ensembed.errors import InputError, ModelError
from ensembed.integrations.model_card import escaped, member_of, model_card
from ensembed.methods import GCCA, Concat
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.saved_model import SavedModel
from ensembed.sts import Dataset, Pairs, evaluate

SENTENCES = [f"the {color} {animal} {verb}" for color in ("red", "blue") for animal in ("dog", "cat")
             for verb in ("runs", "sleeps")]  # fmt: skip
MEMBERS = ["demo?dim=8&seed=1", "demo?dim=6&seed=2"]
PAIRS = Dataset.of(Pairs("toy", ("a b", "a", "c d"), ("a b", "b", "c a"), np.array([5.0, 0.0, 2.5])))
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def model() -> MetaEncoder:
    return Ensemble(MEMBERS).fit(SENTENCES, GCCA(dim=4, tau=2.5))


def spec(name: str, kind: str, revision: str = "abc") -> SavedSpec:
    return SavedSpec.of(EncoderSpec(name, kind, 8, revision))


def of(model: MetaEncoder, *specs: SavedSpec, **method: Any) -> SavedModel[SavedSpec]:  # noqa: ANN401 - whatever a method keeps
    """The model's facts with other members, whose weights these tests do not need."""
    meta = dataclasses.replace(model.meta, method={**model.meta.method, **method})
    return SavedModel(meta, specs, (), model.corpus)


def front(card: str) -> dict[str, Any]:
    from huggingface_hub import ModelCard

    facts: dict[str, Any] = ModelCard(card).data.to_dict()  # type: ignore[no-untyped-call] # the library's
    return facts


def test_card_names_members_method_and_corpus(model: MetaEncoder) -> None:
    card = model_card(model, repo="me/model")
    facts = front(card)
    assert facts["library_name"] == "ensembed"
    assert facts["pipeline_tag"] == "sentence-similarity"
    assert {"ensembed", "sentence-similarity"} <= set(facts["tags"])
    assert facts["license"] == "apache-2.0"
    assert "base_model" not in facts
    assert "model-index" not in facts
    assert "| demo?dim=8\\&seed=1 | demo | 1 | Apache-2.0 | 8 |" in card
    assert "- method: gcca\n- dim: 4\n- tau: 2.5\n" in card
    assert f"- corpus: 8 unlabelled sentences, key `{model.corpus}`" in card
    assert 'from_pretrained("me/model")' in card
    assert "All members count the same." in card
    assert card == model_card(model, repo="me/model")
    titles = re.findall("(?m)^## (.*)$", card)
    assert titles == ["Members", "How it was made", "How to use it", "Intended use and limits", "Versions"]


def test_folder_has_the_card_of_its_model(model: MetaEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    for folder in (tmp_path / "m", str(tmp_path / "m")):
        assert model_card(folder, repo="me/m") == model_card(model, repo="me/m")
    assert model_card(tmp_path / "m").count("# m\n") == 1
    assert 'ensembed.load("FOLDER")' in model_card(tmp_path / "m")
    with pytest.raises(ModelError, match="is not a saved model"):
        model_card(tmp_path)
    with pytest.raises(InputError, match="a fitted model or the folder"):
        model_card(model.ensemble.encoders[0])  # type: ignore[arg-type] # it is refused


def test_licences_come_from_the_catalogue(model: MetaEncoder) -> None:
    same = model_card(of(model, spec("minilm", "onnx"), spec("use-lite", "use-lite")), repo="a/b")
    assert front(same)["license"] == "apache-2.0"
    assert front(same)["base_model"] == ["sentence-transformers/all-MiniLM-L6-v2"]
    assert "ensembed pull minilm use-lite" in same
    words = model_card(of(model, spec("glove", "words")))
    assert front(words)["license"] == "pddl"
    mixed = model_card(of(model, spec("minilm", "onnx"), spec("wordllama", "static"), spec("gte-small", "onnx")))
    assert front(mixed)["license"] == "other"
    assert front(mixed)["license_name"] == "those-of-the-members"
    assert front(mixed)["base_model"] == ["sentence-transformers/all-MiniLM-L6-v2", "thenlper/gte-small"]
    for licence in ("Apache-2.0", "MIT package; vectors derived from Llama-2-family embeddings", "| MIT |"):
        assert licence in mixed


def test_unknown_licence_is_called_unknown(model: MetaEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    members = of(model, spec("st:org/one", "st", COMMIT), spec("minilm", "onnx"))
    card = model_card(members)
    assert f"| st:org/one | st | {COMMIT} | unknown |" in card
    assert "The licence of st:org/one is not known to ensembed" in card
    assert front(card)["license"] == "other"
    assert front(card)["base_model"] == ["org/one", "sentence-transformers/all-MiniLM-L6-v2"]
    card = model_card(members, licences={"st:org/one": "apache-2.0"})
    assert front(card)["license"] == "apache-2.0"
    assert "unknown" not in card
    with pytest.raises(InputError, match=r"licences are given for \['st:org/two'\]"):
        model_card(members, licences={"st:org/two": "mit"})


@pytest.mark.parametrize(
    ("front_matter", "licence"),
    [
        ("---\nlicense: mit\ntags: [a]\n---\ntext", "mit"),
        ('---\nlicense: "cc-by-nc-4.0"\n---\n', "cc-by-nc-4.0"),
        ("---\nlicense: other\nlicense_name: own-terms\n---\n", "own-terms"),
        ("no front matter\nlicense: mit\n", ""),
    ],
)
def test_member_from_the_hub_has_the_licence_of_its_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, front_matter: str, licence: str
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--org--one" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(front_matter)
    member = member_of(spec("st:org/one?prompt=x", "st", f"{COMMIT}+{COMMIT}"))
    assert (member.licence, member.base_model, member.local) == (licence, "org/one", "")


@pytest.mark.parametrize(
    ("name", "kind", "local"),
    [
        ("st:./folder", "st", "it is a file or folder"),
        ("onnx:models/x", "onnx", "it is a file or folder"),
        ("paranmt:x.pickle", "paranmt", "it is a file or folder"),
        ("tfhub:https://example.org/x", "tfhub", ""),
        ("openai:http://localhost:8000/v1#m", "openai", "its server is on this machine"),
        ("openai:https://api.openai.com/v1#m", "openai", ""),
        ("plugin:whatever", "plugin", ""),
        ("mine", "object", "it is an object of your program"),
        ("gcca(a, b)", "meta", "it is an object of your program"),
        ("gone", "onnx", "its name cannot be opened: "),
    ],
)
def test_members_that_others_cannot_open_say_why(name: str, kind: str, local: str) -> None:
    assert member_of(spec(name, kind)).local.startswith(local)
    assert bool(member_of(spec(name, kind)).local) == bool(local)


def test_path_in_the_scheme_of_a_package_is_local(tmp_path: Path) -> None:
    assert member_of(spec(f"plugin:{tmp_path}", "plugin")).local == "it is a file or folder"


def test_card_shows_weights_and_their_origin(model: MetaEncoder) -> None:
    estimate = trusted([0.25, 0.75], MEMBERS)
    specs = [SavedSpec.of(encoder.spec) for encoder in model.ensemble.encoders]
    card = model_card(of(model, *specs, weights=[0.25, 0.75], **estimate.origin))
    assert "| demo | 1 | Apache-2.0 | 6 | 0.75 |" in card
    assert "found by the members' reliability on the corpus, without labels; the most trusted member is" in card
    assert "demo?dim=6\\&seed=2 (" in card
    assert "- weights" not in card
    # Facts from a file that somebody else wrote may be anything.
    assert "most trusted" not in model_card(of(model, *specs, weights_from="reliability", trusted=7))


def test_card_says_if_no_corpus_was_needed() -> None:
    card = model_card(Ensemble(MEMBERS).fit(SENTENCES, Concat()))
    assert "- corpus: none was needed" in card
    assert "- dimensions: 14" in card


def test_names_are_escaped_in_markdown_and_yaml(model: MetaEncoder) -> None:
    evil = "x|y](http://e) <script> `a` **b**\n---\nlicense: mit\n# title"
    card = model_card(of(model, spec(evil, "object")), scores={evil: evaluate(model, PAIRS)})
    assert front(card)["license"] == "other"
    assert "<script>" not in re.sub(r"\\<", "", card.partition("```python")[0])
    assert "\n# title" not in card
    assert f"| {escaped(evil)} | object |" in card
    assert re.findall("(?m)^# .*$", card) == ["# An ensembed model"]
    assert escaped("a_b\\c") == "a\\_b\\\\c"


def test_scores_are_accepted_in_every_form(model: MetaEncoder) -> None:
    result = evaluate(model, PAIRS)
    line = f"| **this model** | {100 * result.score.pearson:.1f} / {100 * result.score.spearman:.1f} |"
    printed = {"provenance": {"ensembed": "9.9"}, "protocol": "mean", "models": {"folder": [result.to_json()]}}
    task = {"task": "mine", "kind": "retrieval", "items": 3, "main": "map", "figures": {"map": {"value": 0.5}}}
    of_both = {**printed, "models": {"folder": [result.to_json(), task]}, "comparisons": []}
    forms: list[Any] = [result, [result], result.to_json(), {"folder": [result]}, of_both]
    forms += [json.loads(json.dumps(printed))]
    for scores in forms:
        card = model_card(model, scores, repo="me/model")
        assert line in card
        (index,) = front(card)["model-index"]
        assert index["name"] == "me/model"
        assert [metric["type"] for metric in index["results"][0]["metrics"]] == ["pearson", "spearman"]
        assert index["results"][0]["metrics"][0]["value"] == round(100 * result.score.pearson, 2)
    assert "Scored by ensembed 9.9." in card


def test_card_shows_scores_of_members_beside_the_model(model: MetaEncoder) -> None:
    ours, theirs = evaluate(model, PAIRS), evaluate(model.ensemble.encoders[0], PAIRS)
    card = model_card(model, {MEMBERS[0]: [theirs], "folder": [ours]}, repo="me/model")
    rows = re.findall(r"(?m)^\| (.*?) \| -?[\d.]+ / ", card)
    assert rows == ["demo?dim=8\\&seed=1", "**this model**"]
    # With several unknown names it is not clear which is the model: the table shows them, the hub gets none.
    card = model_card(model, {"one": [theirs], "two": [ours]}, repo="me/model")
    assert "this model" not in card
    assert "model-index" not in front(card)


@pytest.mark.parametrize(
    "scores",
    [
        {},
        {"models": {}},
        [],
        {"m": []},
        {"m": [{"task": "mine", "figures": {}}]},
        "scores.json",
        3,
        [3],
        [{"dataset": "x"}],
        [{"dataset": "x", "protocol": "mean", "pearson": 80.0, "spearman": 0.5}],
        [{"dataset": "x", "protocol": "mean", "pearson": float("nan"), "spearman": 0.5}],
        [{"dataset": "x", "protocol": "mean", "pearson": "0.5", "spearman": 0.5}],
    ],
)
def test_invalid_scores_are_refused(model: MetaEncoder, scores: Any) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(InputError, match="score"):
        model_card(model, scores)
