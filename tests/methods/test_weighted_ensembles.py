"""Ensembles whose members have weights: found with the sentences, saved, and not encoded where they are 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from stand_ins import trusted

import ensembed.reliability.trust_estimate
from ensembed import Ensemble, MetaEncoder, ViewStore, load
from ensembed.encoders import DemoEncoder
from ensembed.encoders.base import Encoder
from ensembed.errors import EncoderError
from ensembed.methods import GCCA, SVD, Auto, Autoencoder, Average, Concat, Method
from ensembed.reliability import Reliability
from ensembed.support.progress import Progress
from ensembed.testing import Recorder

NAMES = ["demo?dim=5&seed=1", "demo?dim=4&seed=2", "demo?dim=6&seed=3"]
SENTENCES = [
    f"{who} {does} the {what}" for who in ("one", "a dog", "she") for does in ("sees", "has") for what in "abcd"
]
NEW = ["she has a dog", "something else entirely", "one sees the a"]
WEIGHTS = (0.5, 1.0, 0.25)
TRAINED = Autoencoder(dim=4, epochs=3, batch_size=8, device="cpu")
METHODS: list[Method] = [Auto(), Auto(4), Concat(), Average(), SVD(4), GCCA(4), TRAINED]


class Broken(Recorder):
    """An encoder that fails when told to."""

    fails = False

    def embed(self, sentences: list[str]) -> Any:  # noqa: ANN401 - what the encoder gives
        if self.fails:
            raise EncoderError("the server is down")
        return super().embed(sentences)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `reliability` is called with; it always finds the same."""
    seen: list[dict[str, Any]] = []

    def reliability(views: Sequence[Any], **given: Any) -> Reliability:  # noqa: ANN401 - whatever the method passes
        seen.append({"views": list(views), **given})
        return trusted(WEIGHTS)

    monkeypatch.setattr(ensembed.reliability.trust_estimate, "reliability", reliability)
    return seen


def same(model: MetaEncoder, other: MetaEncoder) -> None:
    np.testing.assert_array_equal(model.encode(NEW), other.encode(NEW))


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_weights_are_found_with_the_sentences(calls: list[dict[str, Any]], tmp_path: Path, method: Method) -> None:
    store = ViewStore(tmp_path / "store")
    model = Ensemble(NAMES).fit(SENTENCES, method.with_weights("reliability"), store=store)
    (call,) = calls
    assert list(call["sentences"]) == SENTENCES
    assert call["names"] == [encoder.spec.name for encoder in model.ensemble.encoders]
    for view, encoder in zip(call["views"], model.ensemble.encoders, strict=True):
        np.testing.assert_array_equal(view[0 : len(SENTENCES)], encoder.encode(SENTENCES))
    assert model.meta.method["weights"] == list(WEIGHTS)
    assert model.meta.method["weights_from"] == "reliability"
    assert model.meta.rows == len(SENTENCES)
    assert model.corpus
    same(model, Ensemble(NAMES).fit(SENTENCES, method.with_weights(WEIGHTS), store=store))
    assert len(calls) == 1
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.meta.method == model.meta.method
    same(again, model)


def test_auto_is_what_is_fitted_when_nothing_is_said(calls: list[dict[str, Any]]) -> None:
    model = Ensemble(NAMES).fit(SENTENCES)
    assert model.meta.method["name"] == "auto"
    assert len(calls) == 1
    members = [oracles.unit(encoder.encode(NEW)) for encoder in model.ensemble.encoders]
    expected = np.average([X @ X.T for X in members], axis=0, weights=WEIGHTS)
    assert oracles.error(model.similarity(NEW, NEW), expected) < 1e-6


@pytest.mark.parametrize("method", [Concat(), Average(), Auto(weights=WEIGHTS), Concat(WEIGHTS)], ids=str)
def test_given_weights_need_no_corpus(calls: list[dict[str, Any]], method: Method) -> None:
    members = [Recorder(DemoEncoder(dim, seed)) for seed, dim in enumerate((5, 4, 6))]
    model = Ensemble(members).fit([], method)
    assert not any(member.seen for member in members)
    assert not calls
    assert model.meta.rows == 0


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_member_of_weight_zero_is_no_longer_encoded(tmp_path: Path, method: Method) -> None:
    members = [Broken(DemoEncoder(dim, seed)) for seed, dim in enumerate((5, 4, 6))]
    weighted = method.with_weights((0.5, 0.0, 1.0))
    model = Ensemble(members).fit(SENTENCES, weighted, store=ViewStore(tmp_path))
    smaller = Ensemble(members[::2]).fit(SENTENCES, method.with_weights((0.5, 1.0)), store=ViewStore(tmp_path))
    members[1].seen.clear()
    members[1].fails = True
    same(model, smaller)
    assert not members[1].seen
    lenient = MetaEncoder(model.ensemble, model.meta, missing="drop")
    members[0].fails = True
    with pytest.warns(RuntimeWarning, match="going on without encoder"):
        np.testing.assert_array_equal(lenient.encode(NEW), model.meta.transform([None, None, members[2].encode(NEW)]))
    members[2].fails = True
    with pytest.raises(EncoderError, match="every member of"):
        lenient.encode(NEW)


def test_a_training_is_kept_whatever_the_weights_and_is_that_of_the_members_that_count(tmp_path: Path) -> None:
    def report(stop: int | None, seen: list[int]) -> Progress:
        def progress(label: str, done: int, _total: int | None, /) -> None:
            if label.startswith("train · "):
                seen.append(done)
                if done == stop:
                    raise KeyboardInterrupt

        return progress

    store = ViewStore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        Ensemble(NAMES[:2]).fit(SENTENCES, TRAINED, store=store, progress=report(2, []))
    seen: list[int] = []
    Ensemble(NAMES).fit(SENTENCES, TRAINED.with_weights((1, 0.3, 0)), store=store, progress=report(None, seen))
    assert seen[0] in (2, 3)
    assert not list((tmp_path / "training").iterdir())


def test_truncating_keeps_the_weights(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    model = Ensemble(NAMES).fit(SENTENCES, Auto(6), store=ViewStore(tmp_path))
    assert len(calls) == 1
    short = model.truncate(3)
    assert short.meta.method == model.meta.method
    assert oracles.error(short.encode(NEW), model.encode(NEW)[:, :3]) < 1e-6
    members: Sequence[Encoder] = model.ensemble.encoders
    assert short.meta.counted == tuple(range(len(members)))
