"""Members that fail midway, have changed, or cannot be opened by name: nothing wrong is computed in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed import Ensemble, ListCorpus, MetaEncoder, ObjectEncoder, ViewStore, load
from ensembed.encoders import DemoEncoder
from ensembed.errors import ModelError, StoreError
from ensembed.methods import GCCA, SVD, Concat

SENTENCES = [f"sentence {i} has word{i % 11} and word{i % 7}" for i in range(1200)]
OTHER = "demo?dim=6&seed=2"


class Flaky(DemoEncoder):
    """Fails in one call of `embed`."""

    def __init__(self, failing_call: int | None = None) -> None:
        super().__init__(8, seed=1, name="flaky")
        self.calls = 0
        self.failing_call = failing_call

    def embed(self, sentences: list[str]) -> NDArray[np.float32]:
        self.calls += 1
        if self.calls == self.failing_call:
            raise ConnectionError("down for a moment")
        return super().embed(sentences)


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_member_that_fails_midway_is_left_out_of_every_row_of_the_call(call: int) -> None:
    flaky = Flaky()
    fitted = Ensemble([flaky, OTHER]).fit(SENTENCES, SVD(dim=4))
    model = MetaEncoder(fitted.ensemble, fitted.meta, missing="drop")
    flaky.calls, flaky.failing_call = 0, call
    with pytest.warns(RuntimeWarning, match="going on without encoder 'flaky'"):
        found = model.encode(SENTENCES)
    expected = model.meta.transform([None, fitted.ensemble.encoders[1].encode(SENTENCES)])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_model_that_may_drop_members_is_not_cached_but_the_same_one_that_may_not_is(tmp_path: Path) -> None:
    corpus, store = ListCorpus(SENTENCES), ViewStore(tmp_path)
    fitted = Ensemble([Flaky(), OTHER]).fit(SENTENCES, SVD(dim=4))
    with pytest.raises(StoreError, match="not always the same"):
        store.embed(corpus, MetaEncoder(fitted.ensemble, fitted.meta, missing="drop"))
    assert store.embed(corpus, fitted).shape == (1200, 4)


def test_a_model_is_cacheable_only_if_its_members_are() -> None:
    fitted = Ensemble([Flaky(), OTHER]).fit(SENTENCES, SVD(dim=4))
    dropping = MetaEncoder(fitted.ensemble, fitted.meta, name="inner", missing="drop")
    outer = Ensemble([dropping, "demo?dim=5&seed=9"])
    assert not MetaEncoder(outer, Concat().build(outer.dims)).cacheable
    assert MetaEncoder(fitted.ensemble, fitted.meta).cacheable
    limited = MetaEncoder(fitted.ensemble, fitted.meta, time_limit=60)  # a late member is an error: no vector lacks it
    assert limited.cacheable
    assert not limited.concurrent


class Scaled:
    """A foreign encoder with a volume knob."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def encode(self, sentences: list[str], /) -> NDArray[Any]:
        return self.factor * DemoEncoder(8).encode(sentences)


@pytest.mark.parametrize("factor", [1.0, 1.001, 0.5, 10.0, -1.0])
def test_a_member_that_has_another_scale_is_refused(tmp_path: Path, factor: float) -> None:
    Ensemble([ObjectEncoder(Scaled(1.0), name="it"), OTHER]).fit(SENTENCES, GCCA(dim=4)).save(tmp_path)
    if abs(factor - 1) < 0.01:
        load(tmp_path, encoders={"it": Scaled(factor)})
        return
    with pytest.raises(ModelError, match="'it' is not the encoder this model was fitted on"):
        load(tmp_path, encoders={"it": Scaled(factor)})


def test_a_named_member_with_other_settings_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ensemble(["demo?dim=8", OTHER]).fit(SENTENCES, GCCA(dim=4)).save(tmp_path)
    initial = DemoEncoder.__init__

    def other_default(self: DemoEncoder, dim: int = 32, seed: int = 5, *, name: str | None = None) -> None:
        initial(self, dim, seed, name=name)

    monkeypatch.setattr(DemoEncoder, "__init__", other_default)
    with pytest.raises(
        ModelError, match=r"member 'demo\?dim=8' is not the encoder .*: it has changed: seed was .*; fit again"
    ):
        load(tmp_path)


def test_a_member_of_an_own_class_is_asked_for_by_name(tmp_path: Path) -> None:
    model = Ensemble([Flaky(), OTHER]).fit(SENTENCES, GCCA(dim=4))
    model.save(tmp_path)
    with pytest.raises(ModelError, match=r"load\(..., encoders=\{'flaky': it\}\)"):
        load(tmp_path)
    again = load(tmp_path, encoders={"flaky": Flaky()})
    np.testing.assert_array_equal(again.encode(SENTENCES[:9]), model.encode(SENTENCES[:9]))


def test_an_overwrite_that_fails_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = Ensemble(["demo?dim=8", OTHER])
    ensemble.fit(SENTENCES, GCCA(dim=4)).save(tmp_path)
    before = load(tmp_path).encode(SENTENCES[:9])
    other = ensemble.fit(SENTENCES, SVD(dim=4))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ModelError, match="No space left"):
        other.save(tmp_path)
    monkeypatch.undo()
    np.testing.assert_array_equal(load(tmp_path).encode(SENTENCES[:9]), before)


def test_representations_name_the_members() -> None:
    ensemble = Ensemble(["demo?dim=8", OTHER])
    assert repr(ensemble) == "Ensemble(['demo?dim=8', 'demo?dim=6&seed=2'])"
    model = ensemble.fit(SENTENCES, SVD(dim=4))
    assert repr(model) == "MetaEncoder('svd(demo?dim=8, demo?dim=6&seed=2)', dim=4)"
    assert model.truncate(2).spec.name == "svd(demo?dim=8, demo?dim=6&seed=2)?truncate_dim=2"
    assert model.truncate(3).truncate(2).spec == model.truncate(2).spec
