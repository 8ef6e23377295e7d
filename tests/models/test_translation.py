"""Models that give another's vectors, members that are predicted or too slow, cheap models, and the page about them."""

from __future__ import annotations

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed import Ensemble, MetaEncoder, load
from ensembed.encoders.base import Encoder
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.wrappers import AdjustedEncoder
from ensembed.errors import DimensionError, EncoderError, InputError, ModelError
from ensembed.methods import SVD, Concat
from ensembed.methods.encoder_maps import named_kinds
from ensembed.models.ensemble import Missing
from ensembed.models.saved_model import CONFIG
from ensembed.models.summary import summary
from ensembed.models.translation import Verdict, translate, verdict
from ensembed.reliability.familiarity import Familiarity
from ensembed.reliability.search_agreement import Estimate, Figure
from ensembed.views import ViewStore

WORDS = ["dog", "cat", "fox", "man", "red", "old", "blue", "runs", "eats", "sees", "tree", "car"]
TEXTS = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS]
MEMBERS = ["demo?dim=24&seed=1", "demo?dim=16&seed=2", "demo?dim=8&seed=3"]
NEW = ["a red dog", "one old car", ""]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ViewStore:
    return ViewStore(tmp_path_factory.mktemp("views"))


@pytest.fixture(scope="module")
def model(store: ViewStore) -> MetaEncoder:
    return Ensemble(MEMBERS).fit(TEXTS, SVD(dim=12), store=store)


def test_a_translation_is_a_model_that_opens_like_any_other(tmp_path: Path, store: ViewStore) -> None:
    made = translate(MEMBERS[0], MEMBERS[1], TEXTS[:800], store=store)
    assert made.translation is not None
    assert made.translation.figures["translated"].recall_10.value > 0.5
    made.save(tmp_path / "map")
    again = load(tmp_path / "map")
    assert again.translation is not None
    np.testing.assert_array_equal(again.encode(NEW), made.encode(NEW))
    assert again.spec.key == made.spec.key
    for name, figure in made.translation.figures.items():
        assert again.translation.figures[name].to_json() == figure.to_json()
    assert again.translation.target.name.text == MEMBERS[1]
    assert "vectors of" in str(again)
    real = DemoEncoder(16, seed=2).encode(TEXTS[:100], normalize_embeddings=True)
    assert (again.encode(TEXTS[:100], normalize_embeddings=True) * real).sum(axis=1).mean() > 0.8
    for sample in (0, -1, 2.5):
        with pytest.raises(InputError, match=f"sample must be a whole number of at least 1, not {sample}"):
            translate("demo?dim=8", "demo?dim=6", ["a dog"], sample=sample)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InputError, match="the same model"):
        translate(MEMBERS[0], MEMBERS[0], TEXTS, store=store)
    config = json.loads((tmp_path / "map" / CONFIG).read_text())
    assert config["format"] == 3
    config["translation"]["figures"] = {}
    (tmp_path / "map" / CONFIG).write_text(json.dumps(config))
    with pytest.raises(ModelError):
        load(tmp_path / "map")


def test_a_meta_encoder_is_translated_through_its_own_projections(model: MetaEncoder, store: ViewStore) -> None:
    made = translate(model, MEMBERS[0], TEXTS[:800], store=store, kinds=named_kinds("ridge"))
    assert [encoder.spec.name for encoder in made.members] == MEMBERS
    projection = made.meta.projections[0]
    assert projection.columns == 24
    assert made.translation is not None
    assert made.translation.figures["translated"].recall_10.value > 0.8  # the member is in the model


def test_a_map_with_regions_is_translated_on_and_not_of_an_ensemble(model: MetaEncoder, store: ViewStore) -> None:
    local = named_kinds("local")
    made = translate(MEMBERS[0], MEMBERS[1], TEXTS, store=store, kinds=local)
    again = translate(made, MEMBERS[2], TEXTS, store=store)
    assert again.translation is not None
    assert again.translation.figures["translated"].recall_10.value > 0.3  # by chance it would be below 0.01
    real = DemoEncoder(8, seed=3).encode(TEXTS, normalize_embeddings=True)
    assert (again.encode(TEXTS, normalize_embeddings=True) * real).sum(axis=1).mean() > 0.5
    for translated in (made, again):
        with pytest.raises(DimensionError, match=r"or translate to TARGET\?truncate_dim=4"):
            translated.truncate(4)
    with pytest.raises(InputError, match="maps with regions are for single encoders"):
        translate(model, MEMBERS[0], TEXTS, store=store, kinds=local)


@pytest.mark.parametrize("missing", ["drop", "predict"])
def test_a_translated_model_goes_on_without_its_first_member(
    missing: Missing, model: MetaEncoder, store: ViewStore, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    member = Failing(24, 1)
    original = load(tmp_path / "model", encoders={MEMBERS[0]: member})
    made = translate(original, "demo?dim=20&seed=7", TEXTS[:800], store=store, kinds=named_kinds("ridge"))
    settings: Any = {"predictor": model.predictor, "translation": made.translation, "missing": missing}
    translated = MetaEncoder(original.ensemble, model.meta, **settings)
    member.problem = "it is down"
    with pytest.warns(RuntimeWarning) as caught:
        assert translated.encode(TEXTS[:50]).shape == (50, model.dim)
    assert ["it is down" in str(warning.message) for warning in caught] == [True]  # none about texts unlike the sample


def test_a_late_member_is_busy_for_queries_and_documents_too(model: MetaEncoder) -> None:
    member = Failing(24, 1)
    roles = AdjustedEncoder(member, query_prefix="query: ", document_prefix="text: ")
    ensemble = Ensemble([roles, *MEMBERS[1:]])
    late = MetaEncoder(ensemble, model.meta, missing="drop", time_limit=0.2)
    others = [late.query_encoder, late.document_encoder, late.truncate(4), late]
    assert late.query_encoder is not late
    member.problem = 3.0
    with pytest.warns(RuntimeWarning, match="took longer than 0.2 seconds"):
        late.encode(TEXTS[:3])
    for other in others:
        with pytest.warns(RuntimeWarning, match="still busy"):
            other.encode(TEXTS[:3])


def test_a_member_that_was_interrupted_is_busy(model: MetaEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread goes on after Ctrl-C."""
    member = Failing(24, 1)
    limited = MetaEncoder(Ensemble([member, *MEMBERS[1:]]), model.meta, time_limit=30.0)

    def join(*_: object) -> None:
        raise KeyboardInterrupt

    member.problem = 3.0
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", join)
        with pytest.raises(KeyboardInterrupt):
            limited._encode_in_time(0, member, TEXTS[:3])
    with pytest.raises(EncoderError, match="still busy with an earlier call"):
        limited.encode(TEXTS[:3])


def test_calls_of_several_threads_that_are_in_time_do_not_fail(model: MetaEncoder) -> None:
    member = Failing(24, 1)
    limited = MetaEncoder(Ensemble([member, *MEMBERS[1:]]), model.meta, time_limit=30.0)
    member.problem = 0.3
    with ThreadPoolExecutor(3) as pool:
        for vectors in pool.map(limited.encode, [TEXTS[:3]] * 3):
            np.testing.assert_allclose(vectors, model.encode(TEXTS[:3]), atol=1e-6)


def test_what_is_promised_holds_for_text_unlike_the_sample_less_an_interval() -> None:
    def figure(value: float, falls: float) -> Figure:
        estimate = Estimate(value, value - 0.02, value + 0.02)
        return Figure(estimate, estimate, estimate, estimate, estimate, rows=1000, falls=falls)

    like, unlike = figure(0.5, -0.01), figure(0.4, -0.03)
    expected = verdict(like, unlike, 4000, least=0.31)
    assert expected.most == pytest.approx(0.48)
    assert expected.expected == pytest.approx(0.30)  # two doublings below 0.36
    assert expected.falls_short
    assert "expect 0.30 of the ten nearest in an index of 4,000 texts, and up to 0.48" in str(expected)
    assert not verdict(like, unlike, 4000, least=0.29).falls_short
    # 0.90 would not look like less than 0.9.
    assert "expect 0.899 of the ten" in str(Verdict(500, 0.8997, 0.95, 0.9))
    assert "expect 0.90 of the ten" in str(Verdict(500, 0.9001, 0.95, 0.9))
    assert verdict(like, unlike, 10**12).expected == 0
    assert verdict(unlike, like, 1000).expected == pytest.approx(0.4)  # never more than the other figure


def test_texts_unlike_the_sample_give_a_warning() -> None:
    chance = np.random.default_rng(0)
    sample = chance.standard_normal((400, 20)) * np.r_[np.ones(10), np.zeros(10)] + 0.1
    other = chance.standard_normal((400, 20)) * np.r_[np.zeros(10), np.ones(10)] + 0.1
    familiar = Familiarity.of(sample[:300])
    assert not familiar.is_unlike(sample[300:])
    assert familiar.is_unlike(other)
    assert not familiar.is_unlike(np.zeros((0, 20)))
    assert sum(familiar.is_unlike(row[None]) for row in sample[300:]) <= 5
    assert sum(familiar.is_unlike(row[None]) for row in other) > 200


class Failing(Encoder):
    """An encoder that fails, or takes its time, when it is told to."""

    def __init__(self, dim: int, seed: int) -> None:
        self._demo = DemoEncoder(dim, seed=seed)
        self._spec = self._demo.spec
        self.problem: str | float = 0.0

    def embed(self, sentences: list[str]) -> NDArray[np.float32]:
        if isinstance(self.problem, str):
            raise EncoderError(self.problem)
        time.sleep(self.problem)
        return self._demo.embed(sentences)


def test_a_member_that_fails_or_is_slow_is_predicted_from_the_others(model: MetaEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    member = Failing(24, 1)
    usual: Any = {"encoders": {MEMBERS[0]: member}}
    whole = model.encode(TEXTS[:200], normalize_embeddings=True)
    cosines = {}
    for missing in ("drop", "predict"):
        member.problem = 0.0
        loaded = load(tmp_path / "model", missing=missing, **usual)
        np.testing.assert_allclose(loaded.encode(TEXTS[:200], normalize_embeddings=True), whole, atol=1e-6)
        member.problem = "it is down"
        with pytest.warns(RuntimeWarning, match="it is down"):
            vectors = loaded.encode(TEXTS[:200], normalize_embeddings=True)
        cosines[missing] = float((vectors * whole).sum(axis=1).mean())
    assert cosines["predict"] > cosines["drop"]
    member.problem = 0.0
    slow = load(tmp_path / "model", missing="predict", time_limit=0.5, **usual)
    np.testing.assert_allclose(slow.encode(TEXTS[:200], normalize_embeddings=True), whole, atol=1e-6)
    member.problem = 3.0
    begin = time.monotonic()
    with pytest.warns(RuntimeWarning, match="took longer than 0.5 seconds"):
        slow.encode(TEXTS[:3])
    with pytest.warns(RuntimeWarning, match="still busy"):
        slow.encode(TEXTS[:3])
    assert time.monotonic() - begin < 3.0
    for limit in (0.0, float("nan"), float("inf"), 1e12, "5"):
        with pytest.raises(InputError, match="seconds above 0"):
            load(tmp_path / "model", time_limit=limit)  # type: ignore[arg-type]  # wrong on purpose
    wrong: Any = "ignore"
    with pytest.raises(InputError, match="missing is 'error', 'drop' or 'predict', not 'ignore'"):
        load(tmp_path / "model", missing=wrong, encoders={MEMBERS[0]: "words:/nonexistent"})


def test_small_models_keep_the_old_format_and_cannot_predict(tmp_path: Path, store: ViewStore) -> None:
    few = Ensemble(MEMBERS).fit(TEXTS[:500], Concat(), store=store)
    few.save(tmp_path / "few")
    assert json.loads((tmp_path / "few" / CONFIG).read_text())["format"] in (1, 2)
    with pytest.raises(ModelError, match="cannot predict a missing member: it was fitted on fewer than 1000 sentences"):
        load(tmp_path / "few", missing="predict")
    many = Ensemble(MEMBERS).fit(TEXTS, Concat(), store=store)
    with pytest.raises(InputError, match=r"need none \(conc, avg\)"):  # there are sentences enough
        MetaEncoder(**many.settings | {"missing": "predict"})
    with pytest.raises(InputError, match="cannot predict"):
        few.cheap(MEMBERS[0])


def test_a_summary_says_what_is_kept_without_members_that_count(store: ViewStore) -> None:
    model = Ensemble(MEMBERS).fit(TEXTS, SVD(dim=8, weights=(1, 1, 0)), store=store)
    without = dict(summary(model))["without"]
    assert MEMBERS[0] in without
    assert MEMBERS[2] not in without  # whose loss changes nothing: it was said that nothing is kept


def test_a_cheap_model_has_one_member_and_is_nearer_to_the_whole_one(model: MetaEncoder, tmp_path: Path) -> None:
    cheap = model.cheap(MEMBERS[0])
    assert [encoder.spec.name for encoder in cheap.members] == MEMBERS[:1]
    cheap.save(tmp_path / "cheap")
    np.testing.assert_array_equal(load(tmp_path / "cheap").encode(NEW), cheap.encode(NEW))
    kept = cheap.method["recall_10"]
    assert kept["cheap"] > kept["member"]
    with pytest.raises(InputError, match="no member that counts"):
        model.cheap("minilm")


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "cache"))
    page = (Path(__file__).parents[2] / "docs" / "guides" / "translate.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(examples) == 4
    names: dict[str, object] = {"sentences": TEXTS}
    with pytest.warns(
        RuntimeWarning
    ):  # weights by reliability want more words than these have; "a text" is unlike them
        exec("\n".join(examples), names)  # noqa: S102 - our own page
    assert names["translated"].shape == (10, 32)  # type: ignore[attr-defined]
