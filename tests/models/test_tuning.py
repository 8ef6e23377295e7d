"""Tuning on labelled pairs: what is chosen, when the label-free choice stays, and that nothing else reads a score."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import oracles
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from ensembed import Ensemble, ViewStore, load
from ensembed.cli import cli
from ensembed.encoders.base import Encoder, EncoderSpec
from ensembed.errors import InputError
from ensembed.methods import GCCA, SVD, Auto, Concat, Meta, Method
from ensembed.models.cross_validation import Choice, decide
from ensembed.models.tuning import LabelledPairs, describe, offer, tune_method
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass

SENTENCES = [f"{who} {does} {what}" for who in "abcdefghij" for does in ("sees", "has", "wants") for what in "klmnop"]


class Topics(Encoder):
    """Says the hidden topic of a sentence with more or less noise."""

    def __init__(self, name: str, noise: float, seed: int) -> None:
        self._noise, self._seed, self._name = noise, seed, name

    @property
    def spec(self) -> EncoderSpec:
        return EncoderSpec(self._name, "test", 12, f"{self._noise}-{self._seed}")

    def embed(self, sentences: list[str]) -> NDArray[np.float32]:
        rows = [topic(text) + self._noise * _random(f"{self._seed} {text}") for text in sentences]
        return np.array(rows, np.float32)


def _random(text: str) -> NDArray[np.float64]:
    row: NDArray[np.float64] = np.random.default_rng(list(text.encode())).standard_normal(12)
    return row


def topic(text: str) -> NDArray[np.float64]:
    """The hidden truth."""
    row: NDArray[np.float64] = np.sum([_random(word) for word in text.split()], axis=0)
    return row


def truth(first: str, second: str) -> float:
    a, b = topic(first), topic(second)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def labelled(n: int, seed: int = 0) -> list[tuple[float, str, str]]:
    rng = np.random.default_rng(seed)
    pairs = [rng.choice(len(SENTENCES), 2, replace=False) for _ in range(n)]
    return [(5 * truth(SENTENCES[i], SENTENCES[j]), SENTENCES[i], SENTENCES[j]) for i, j in pairs]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ViewStore:
    return ViewStore(tmp_path_factory.mktemp("views"))


@pytest.fixture
def ensemble() -> Ensemble:
    return Ensemble([Topics("good", 0.3, 1), Topics("bad", 1.2, 2), Topics("worse", 2.0, 3)])


def pearson_of(model: Any, pairs: list[tuple[float, str, str]]) -> float:  # noqa: ANN401 - any encoder
    a, b = (oracles.unit(model.encode([pair[k] for pair in pairs])) for k in (1, 2))
    return float(np.corrcoef((a * b).sum(axis=1), [pair[0] for pair in pairs])[0, 1])


def test_labels_improve_a_poor_method(ensemble: Ensemble, store: ViewStore) -> None:
    before = ensemble.fit(SENTENCES, Concat(), store=store)
    after = ensemble.fit(SENTENCES, Concat(), store=store, tune=labelled(60))
    held = labelled(200, seed=1)
    assert pearson_of(after, held) > pearson_of(before, held) + 0.05
    note = after.meta.method["tuned"]
    assert note["pairs"] == 60
    assert not note["kept"]
    assert note["gain"] > note["error"] > 0
    assert set(note) == {
        "pairs",
        "kept",
        "gain",
        "error",
        "shrinkage",
        "seed",
    }  # all that docs/guides/tuning.md explains
    assert after.meta.rows == len(SENTENCES)


def test_what_was_chosen_is_saved_with_the_model_and_can_be_fitted_again(
    ensemble: Ensemble, store: ViewStore, tmp_path: Path
) -> None:
    model = ensemble.fit(SENTENCES, Concat(), store=store, tune=labelled(60))
    model.save(tmp_path / "m")
    again = load(tmp_path / "m", encoders={one.spec.name: one for one in ensemble.encoders})
    assert again.meta.method["tuned"] == model.meta.method["tuned"]
    facts = dict(model.meta.method)
    assert facts.pop("tuned")
    methods: dict[str, type[Method]] = {"conc": Concat, "svd": SVD, "gcca": GCCA, "auto": Auto}
    method = methods[facts.pop("name")](**facts)
    assert oracles.error(ensemble.fit(SENTENCES, method, store=store).encode(SENTENCES), model.encode(SENTENCES)) < 1e-5


def test_scores_that_tell_nothing_leave_the_label_free_choice(ensemble: Ensemble, store: ViewStore) -> None:
    before = ensemble.fit(SENTENCES, store=store)
    kept = 0
    for seed in range(4):
        noise = np.random.default_rng(seed).standard_normal(25)
        pairs = [(float(x), a, b) for x, (_, a, b) in zip(noise, labelled(25, seed), strict=True)]
        after = ensemble.fit(SENTENCES, store=store, tune=pairs)
        if after.meta.method["tuned"]["kept"]:
            kept += 1
            np.testing.assert_array_equal(after.encode(SENTENCES[:5]), before.encode(SENTENCES[:5]))
            assert {key: value for key, value in after.meta.method.items() if key != "tuned"} == before.meta.method
    assert kept >= 3


def test_the_same_labels_give_the_same_choice(ensemble: Ensemble, store: ViewStore) -> None:
    one, two = (ensemble.fit(SENTENCES, store=store, tune=labelled(40)).meta for _ in range(2))
    assert one.method == two.method


def test_a_dim_that_was_asked_for_is_kept(ensemble: Ensemble, store: ViewStore) -> None:
    model = ensemble.fit(SENTENCES, SVD(dim=7), store=store, tune=labelled(60))
    assert model.meta.dim == 7
    assert not model.meta.method["tuned"]["kept"]


@dataclass(frozen=True, eq=False)
class Sealed:
    """Pairs whose scores must not be read."""

    sentences1: tuple[str, ...]
    sentences2: tuple[str, ...]

    @property
    def scores(self) -> NDArray[np.float64]:
        raise AssertionError("a score was read")


def test_without_tune_no_score_is_read(
    ensemble: Ensemble, store: ViewStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = Sealed(tuple(SENTENCES[::2]), tuple(SENTENCES[1::2]))
    with pytest.raises(AssertionError, match="a score was read"):
        ensemble.fit(SENTENCES, store=store, tune=sealed)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a score was read")

    # Whatever reads or holds scores refuses to: fitting without `tune` does not notice.
    monkeypatch.setattr("ensembed.models.tuning._columns", refuse)
    monkeypatch.setattr("ensembed.sts.datasets._score", refuse)
    monkeypatch.setattr("ensembed.sts.datasets.Pairs.__post_init__", refuse)
    texts = [*sealed.sentences1, *sealed.sentences2]
    for method in (None, Auto(dim=4), SVD(dim=4, weights="reliability"), Concat(weights="reliability")):
        assert "tuned" not in ensemble.fit(texts, method, store=store).meta.method
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(texts))
    args = ["fit", str(file), "-e", "demo?seed=1", "-e", "demo?seed=2", "-o", str(tmp_path / "m"), "-q", "--force"]
    result = CliRunner().invoke(cli, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_what_is_offered_depends_on_no_score(ensemble: Ensemble) -> None:
    pairs = LabelledPairs.of(labelled(30))
    views = [one.encode(SENTENCES) for one in ensemble.encoders]
    vectors = [one.encode(list(pairs.texts)) for one in ensemble.encoders]
    blind = replace(pairs, scores=np.full(len(pairs), np.nan))

    def fit(one: Method) -> Meta:
        return one.fit(views)

    offered = offer(Auto(weights=(1.0, 0.5, 0.1)), views, vectors, blind, (1.0, 0.5, 0.1), fit=fit)
    assert np.isfinite(offered.candidates.fixed).all()
    # The cosines offered for a method are those of the method fitted on its own.
    for k in range(0, len(offered.methods), 4):
        method = offered.methods[k]
        expected = pairs.cosines(method.fit(views).transform(vectors))
        np.testing.assert_allclose(offered.candidates.fixed[:, k], expected, atol=2e-4, err_msg=str(method))
    assert {method.name for method in offered.methods} == {"auto", "svd", "gcca"}
    assert {getattr(method, "tau", None) for method in offered.methods} == {None, 1.0, 10.0, 100.0}
    assert {method.dim for method in offered.methods if isinstance(method, SVD)} == {12, 6, 3}
    mixed = pairs.cosines(Concat(weights=(1.0, 0.5, 0.1)).fit(views).transform(vectors))
    predicted = offered.candidates.predict(Choice(None, (1.0, 0.5, 0.1))) / 1.6
    np.testing.assert_allclose(predicted, mixed, atol=1e-6)


def test_methods_are_offered_with_a_member_of_weight_0_and_a_short_corpus() -> None:
    rng = np.random.default_rng(0)
    views = [rng.standard_normal((8, 12)), np.ones((8, 5)), rng.standard_normal((8, 6))]
    pairs = LabelledPairs.of([(i, f"t{i}", f"t{i + 1}") for i in range(12)])
    vectors = [rng.standard_normal((13, 12)), np.ones((13, 5)), rng.standard_normal((13, 6))]
    label_free = Auto(weights=(0.5, 0.0, 1.0))
    offered = offer(label_free, views, vectors, pairs, (0.5, 0.0, 1.0), fit=lambda one: one.fit(views))
    assert all(method.dim <= 12 for method in offered.methods if isinstance(method, SVD | GCCA) and method.dim)
    assert all(method.weights[1] == 0 for method in offered.methods if isinstance(method, GCCA))
    assert any(isinstance(method, GCCA) for method in offered.methods)
    decide(offered.candidates, pairs.scores)


@pytest.mark.parametrize(("labels", "message"), [
    ([(1.0, "a", "b")] * 9, "at least 10 labelled pairs, got 9"),
    ([(1.0, f"a {i}", "b") for i in range(12)], "all 12 labelled pairs have the score 1.0"),
    ([(float(i) if i else float("nan"), "a", "b") for i in range(12)], "score of pair 0 is nan"),
    ([(float(i), "a", " " if i == 3 else "b") for i in range(12)], "text of labelled pair 3 is empty"),
    ([(float(i), "a") for i in range(12)], r"pair 0 is not \(score, text, text\)"),
    ([("1", "a", "b") for _ in range(12)], "score of labelled pair 0 is not a number: '1'"),
    ([(float(i), *("ab" if i % 2 else "ba")) for i in range(12)], "10 different labelled pairs, got 1"),
    (SimpleNamespace(scores=range(12), sentences1="a" * 12, sentences2="b" * 11), "12 scores, 12 first and 11 second"),
    (SimpleNamespace(scores=range(13), sentences1="a" * 12, sentences2="b" * 12), "13 scores, 12 first and 12 second"),
    (SimpleNamespace(scores=["5"] * 12, sentences1="a" * 12, sentences2="b" * 12), "pair 0 is not a number: '5'"),
    (SimpleNamespace(scores=np.array(["5"] * 12), sentences1="a" * 12, sentences2="b" * 12), "is not a number"),
    ([(10**400 + i, f"a {i}", "b") for i in range(12)], "a score of the labelled pairs is too large"),
    (Path("pairs.tsv"), "read by ensembed.sts.read_pairs"),
    ("pairs.tsv", "read by ensembed.sts.read_pairs"),
])  # fmt: skip
def test_what_cannot_be_tuned_on_is_refused_before_anything_is_encoded(labels: Any, message: str) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(InputError, match=message):
        Ensemble(["demo?seed=1"]).fit(SENTENCES, tune=labels, store=ViewStore("/nonexistent"))


def test_one_member_can_be_tuned(store: ViewStore) -> None:
    model = Ensemble([Topics("good", 0.3, 1)]).fit(SENTENCES, store=store, tune=labelled(40))
    assert model.meta.method["tuned"]["pairs"] == 40


def test_arrays_can_be_tuned_without_sentences() -> None:
    rng = np.random.default_rng(0)
    good, noise = rng.standard_normal((2, 300, 8))
    unit = oracles.unit(good)
    pairs = LabelledPairs.of([(float(unit[i] @ unit[i + 1]), f"t{i}", f"t{i + 1}") for i in range(0, 200, 2)])
    meta = tune_method(Concat(), [good, noise], pairs, [good[:200], noise[:200]])
    assert not meta.method["tuned"]["kept"]


def test_the_command_tunes_on_a_file(tmp_path: Path) -> None:
    corpus, pairs = tmp_path / "corpus.txt", tmp_path / "pairs.tsv"
    corpus.write_text("\n".join(SENTENCES))
    pairs.write_text("".join(f"{score}\t{a}\t{b}\n" for score, a, b in labelled(40)))
    args = ["fit", str(corpus), "-e", "demo?seed=1&dim=16", "-e", "demo?seed=2&dim=8", "--tune", str(pairs), "-q"]
    result = CliRunner().invoke(cli, [*args, "-o", str(tmp_path / "m"), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["method"]["tuned"]["pairs"] == 40
    assert load(tmp_path / "m").meta.method == facts["method"]
    result = CliRunner().invoke(cli, [*args, "-o", str(tmp_path / "n")], catch_exceptions=False)
    assert "on 40 labelled pairs" in result.stdout
    pairs.write_text("1.0\ta\tb\n")
    result = CliRunner().invoke(cli, [*args, "-o", str(tmp_path / "k")])
    assert result.exit_code != 0


def test_distances_are_refused(ensemble: Ensemble, store: ViewStore) -> None:
    distances = [(5 - score, a, b) for score, a, b in labelled(40)]
    with pytest.raises(InputError, match="larger must mean more similar"):
        ensemble.fit(SENTENCES, store=store, tune=distances)


def test_a_corpus_too_small_for_reliability_can_be_tuned_if_the_method_does_not_need_it(store: ViewStore) -> None:
    members = Ensemble([Topics("good", 0.3, 1), Topics("worse", 2.0, 3)])
    for method in (Concat(), Auto(weights="equal"), Concat(weights=(0.5, 1.0))):
        model = members.fit(SENTENCES[:3], method, store=store, tune=labelled(60))
        assert not model.meta.method["tuned"]["kept"]
    with pytest.raises(InputError, match="distinct sentences"):
        members.fit(SENTENCES[:3], store=store, tune=labelled(60))


def test_threads_reach_the_passes_over_the_views(
    ensemble: Ensemble, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    of_views = Moments.of_views

    def watched(views: Any, how: Pass, **options: Any) -> Moments:  # noqa: ANN401 - whatever it takes
        seen.append(how.threads)
        return of_views(views, how, **options)

    monkeypatch.setattr(Moments, "of_views", watched)
    ensemble.fit(SENTENCES, Auto(weights="equal"), store=store, tune=labelled(20), threads=1)
    assert len(seen) >= 2
    assert set(seen) == {1}


def test_progress_says_what_is_tried(ensemble: Ensemble, store: ViewStore) -> None:
    told = []
    ensemble.fit(
        SENTENCES,
        Concat(weights=(1.0, 0.5, 0.25)),
        store=store,
        tune=labelled(20),
        progress=lambda label, done, total: told.append((label, done, total)),
    )
    tuning = [(label, done, total) for label, done, total in told if label.startswith("tuning · ")]
    labels = [label for label, _, _ in tuning]
    assert labels[0] == "tuning · conc"
    assert "tuning · svd, weights 1 1 1" in labels
    assert "tuning · gcca, tau 100" in labels
    assert [done for _, done, _ in tuning] == list(range((tuning[0][2] or 0) + 1))


def test_description_of_a_tuning_says_loss_for_a_negative_gain() -> None:
    note = {"pairs": 40, "kept": True, "gain": -0.022, "error": 0.01}
    assert "another would lose 2.2% (standard error 1.0%)" in describe(note)
    assert "another would gain 0.4%" in describe({**note, "gain": 0.004})
    assert "nothing else is better" in describe({**note, "gain": 0.0, "error": 0.0})
    assert "noise" not in describe({**note, "gain": 0.05})
