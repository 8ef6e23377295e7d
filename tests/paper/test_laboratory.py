"""Trials: what they say is what the fitted model says, and what is known is not found out again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from invented_sts import CORPUS, MEMBERS
from small_laboratory import DATASETS, small_laboratory

from ensembed import Ensemble
from ensembed.errors import DimensionError, InputError
from ensembed.methods import GCCA, SVD, Autoencoder, Average, Concat, Meta, Method, UpProjection
from ensembed.numerics.moments import Moments
from ensembed.numerics.row_matrices import Views
from ensembed.paper.findings import DEV, NO_CORPUS
from ensembed.paper.laboratory import Laboratory, Outcome, Trial
from ensembed.paper.notebook import Notebook
from ensembed.sts import predict

ALL = (0, 1, 2)
QUICK = Autoencoder(dim=8, hidden_layers=0, epochs=3, batch_size=100, device="cpu", precision="float32")
METHODS = [Concat(), Average(), SVD(4), GCCA(4, 1.0), GCCA(4, 10.0), QUICK, replace(QUICK, loss="mse")]
DEV_ONLY = [DATASETS[-1]]


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    return small_laboratory(tmp_path)


def corpus_of(method: Method) -> str:
    return NO_CORPUS if isinstance(method, Concat | Average | UpProjection) else "main"


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_predictions_are_those_of_the_fitted_model(laboratory: Laboratory, method: Method) -> None:
    model = laboratory.ensemble.fit(CORPUS, method)
    outcome = laboratory.outcome(Trial(method, ALL, corpus_of(method)), DATASETS)
    assert outcome.dim == model.spec.dim
    for dataset, expected in zip(DATASETS, predict(model, DATASETS), strict=True):
        for ours, theirs in zip(outcome.cosines(dataset.name), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_trial_of_a_single_member_gives_its_own_vectors_truncated(laboratory: Laboratory) -> None:
    for j, encoder in enumerate(laboratory.ensemble.encoders):
        [expected] = predict(encoder, DEV_ONLY)
        outcome = laboratory.outcome(Trial(None, (j,)), DEV_ONLY)
        np.testing.assert_allclose(outcome.cosines(DEV)[0], expected[0], atol=1e-6)
        assert (outcome.dim, outcome.spectrum) == (encoder.spec.dim, None)
    [expected] = predict(lambda texts: laboratory.ensemble.encoders[0].encode(texts)[:, :3], DEV_ONLY)
    cut = laboratory.outcome(Trial(None, (0,), keep=3), DEV_ONLY)
    np.testing.assert_allclose(cut.cosines(DEV)[0], expected[0], atol=1e-6)
    assert cut.dim == 3


def test_what_a_fit_depends_on_has_torch_only_where_something_is_trained(laboratory: Laboratory) -> None:
    versions = [laboratory.facts(Trial(method, ALL, "main"))[-1] for method in (SVD(4), replace(QUICK, loss="mse"))]
    assert versions[0] == versions[1]
    assert laboratory.facts(Trial(QUICK, ALL, "main"))[-1][:-2] == versions[0]


@pytest.mark.parametrize("method", [SVD(4), GCCA(4, 1.0), replace(QUICK, loss="mse"), QUICK])
def test_trial_of_some_members_equals_an_ensemble_of_them(laboratory: Laboratory, method: Method) -> None:
    model = Ensemble([MEMBERS[0], MEMBERS[2]]).fit(CORPUS, method)
    outcome = laboratory.outcome(Trial(method, (0, 2), "main"), DEV_ONLY)
    np.testing.assert_allclose(outcome.cosines(DEV)[0], predict(model, DEV_ONLY)[0][0], atol=2e-5)


@pytest.mark.parametrize("method", [SVD(4), QUICK])
def test_trial_on_a_sample_equals_a_fit_on_those_sentences(laboratory: Laboratory, method: Method) -> None:
    rows = np.sort(np.random.default_rng(1).permutation(len(CORPUS))[:60])
    sentences = list(CORPUS)
    model = laboratory.ensemble.fit([sentences[i] for i in rows], method)
    outcome = laboratory.outcome(Trial(method, ALL, "main", rows=60, draw=1), DEV_ONLY)
    np.testing.assert_allclose(outcome.cosines(DEV)[0], predict(model, DEV_ONLY)[0][0], atol=2e-5)
    other = laboratory.outcome(Trial(method, ALL, "main", rows=60, draw=2), DEV_ONLY)
    assert other.predictions != outcome.predictions


def test_trial_with_keep_equals_the_truncated_model(laboratory: Laboratory) -> None:
    model = laboratory.ensemble.fit(CORPUS, SVD(6))
    [expected] = predict(
        lambda texts: model.meta.truncate(2).transform([one.encode(texts) for one in model.ensemble.encoders]), DEV_ONLY
    )
    outcome = laboratory.outcome(Trial(SVD(6), ALL, "main", keep=2), DEV_ONLY)
    np.testing.assert_allclose(outcome.cosines(DEV)[0], expected[0], atol=2e-5)
    assert outcome.dim == 2


@pytest.mark.parametrize("method", [SVD(14), GCCA(14, 1.0), replace(QUICK, dim=14, loss="mse")])
def test_dim_is_reduced_to_what_the_data_supports(laboratory: Laboratory, method: Method) -> None:
    views = [laboratory.corpora["main"][j] for j in (0, 2)]
    with pytest.raises(DimensionError) as caught:
        method.fit(views)
    outcome = laboratory.outcome(Trial(method, (0, 2), "main"), DEV_ONLY)
    assert outcome.dim == caught.value.supported
    assert 8 < outcome.dim < 14


def test_recorded_outcomes_are_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(QUICK, ALL, "main")
    known = small_laboratory(tmp_path).outcome(trial, DEV_ONLY)

    def refuse(*_arguments: object, **_options: object) -> Meta:
        raise AssertionError("trained again")

    monkeypatch.setattr(Autoencoder, "fit", refuse)
    monkeypatch.setattr("ensembed.encoders.demo_encoder.DemoEncoder.embed", refuse)
    again = small_laboratory(tmp_path)
    assert again.outcome(trial, DEV_ONLY) == known
    changed: list[Trial] = [
        replace(trial, method=replace(QUICK, seed=1)),
        replace(trial, corpus="other"),
        replace(trial, members=(0, 1)),
        replace(trial, rows=50),
    ]
    for other in changed:
        with pytest.raises(AssertionError, match="trained again"):
            again.outcome(other, DEV_ONLY)
    with pytest.raises(AssertionError, match="trained again"):
        again.outcome(trial, DATASETS)
    with pytest.raises(AssertionError, match="trained again"):
        small_laboratory(tmp_path, fresh=True).outcome(trial, DEV_ONLY)


def test_interrupted_training_continues_to_the_same_result(tmp_path: Path) -> None:
    def stop(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train") and done == 2:
            raise KeyboardInterrupt

    whole = small_laboratory(tmp_path / "whole").outcome(Trial(QUICK, ALL, "main"), DEV_ONLY)
    with pytest.raises(KeyboardInterrupt):
        small_laboratory(tmp_path, progress=stop).outcome(Trial(QUICK, ALL, "main"), DEV_ONLY)
    epochs: list[int] = []

    def count(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train · loss"):
            epochs.append(done)

    resumed = small_laboratory(tmp_path, progress=count).outcome(Trial(QUICK, ALL, "main"), DEV_ONLY)
    assert resumed.predictions == whole.predictions
    assert epochs == [2, 3]  # not from the beginning


def test_fresh_notebook_trains_from_the_beginning(tmp_path: Path) -> None:
    def stop(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train") and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_laboratory(tmp_path, progress=stop).outcome(Trial(QUICK, ALL, "main"), DEV_ONLY)
    epochs: list[int] = []

    def count(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train · loss"):
            epochs.append(done)

    small_laboratory(tmp_path, progress=count, fresh=True).outcome(Trial(QUICK, ALL, "main"), DEV_ONLY)
    assert epochs == [1, 2, 3]


def test_trials_that_differ_in_keep_or_data_sets_share_a_fit(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = []
    fit = Autoencoder.fit

    def counted(method: Autoencoder, views: Any, **options: Any) -> Meta:  # noqa: ANN401 - what `fit` takes
        fits.append(method)
        return fit(method, views, **options)

    monkeypatch.setattr(Autoencoder, "fit", counted)
    trial = Trial(QUICK, ALL, "main")
    laboratory.outcome(trial, DEV_ONLY)
    for seed in range(30):  # what is quick to build takes no place
        laboratory.outcome(Trial(UpProjection(8, seed), (1,)), DEV_ONLY)
    laboratory.outcome(trial, DATASETS)
    laboratory.outcome(replace(trial, keep=3), DEV_ONLY)
    assert len(fits) == 1


def test_trials_on_one_corpus_share_one_pass_over_its_views(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    of_views = Moments.of_views

    def counting(views: Views, *how: Any, **options: Any) -> Moments:  # noqa: ANN401 - handed on
        passes.append(len(views))
        return of_views(views, *how, **options)

    monkeypatch.setattr(Moments, "of_views", counting)
    for members in (ALL, (0, 2)):
        for tau in (1.0, 10.0):
            laboratory.outcome(Trial(GCCA(4, tau), members, "main"), DEV_ONLY)
    assert passes == [3]


def test_second_process_waits_and_reads_the_first_ones_record(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path)
    outcome = Outcome(3, {}, None, 0.5)
    begun, found = threading.Event(), []

    def slowly() -> Outcome:
        begun.set()
        time.sleep(0.3)
        return outcome

    def never() -> Outcome:
        raise AssertionError("found out twice")

    first = threading.Thread(target=lambda: found.append(notebook.record(Outcome, 1, slowly)))
    first.start()
    begun.wait()
    assert Notebook(tmp_path).record(Outcome, 1, never) == outcome
    first.join()
    assert found == [outcome]


def test_method_that_learns_without_a_corpus_is_an_error(laboratory: Laboratory) -> None:
    with pytest.raises(InputError, match="has to be fitted on one of: main, other"):
        laboratory.outcome(Trial(SVD(4), ALL), DEV_ONLY)


@pytest.mark.parametrize("damage", [lambda _text: b"", lambda text: text[:-20], lambda _text: b'{"dim": "x"}'])
def test_damaged_record_is_computed_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    notebook = Notebook(tmp_path)
    outcome = Outcome(3, {"a": ((0.1, 1 / 3),)}, None, 0.5)
    calls: list[int] = []

    def find() -> Outcome:
        calls.append(1)
        return outcome

    def found(facts: Any = None) -> Outcome:  # noqa: ANN401 - whatever JSON can hold
        return notebook.record(Outcome, facts, find)

    assert found() == found() == outcome  # every digit of it
    assert len(calls) == 1
    [path] = tmp_path.glob("*.json")
    path.write_bytes(damage(path.read_bytes()))
    assert found() == outcome
    assert len(calls) == 2
    assert found(["other"]) == outcome
    assert len(calls) == 3
