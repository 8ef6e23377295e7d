"""Methods that no other module knows by class or name: each says itself what it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from ensembed import Ensemble, ViewStore
from ensembed.methods import METHODS, Concat, Meta, Method
from ensembed.methods.passes import Passes
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.summary import summary
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Views

MEMBERS = ["demo?dim=4&seed=1", "demo?dim=3&seed=2"]
FOLDERS: list[Path] = []


@dataclass(frozen=True)
class Patient(Method):
    """A method that trains, keeps its training, and has no weights."""

    epochs: int = 3
    shade: str = "none"

    name: ClassVar[str] = "patient"
    fit_options: ClassVar[tuple[str, ...]] = ("threads", "progress", "checkpoint")
    later_fields: ClassVar[tuple[str, ...]] = ("shade",)
    signed_spectrum: ClassVar[bool] = True

    @property
    def trains(self) -> bool:
        return True

    def combine(self, views: Views, how: Pass, passes: Passes) -> Meta:  # noqa: ARG002 - nothing is learnt
        assert how.checkpoint is not None
        assert how.checkpoint.is_dir()
        FOLDERS.append(how.checkpoint)
        return _meta(self, [view.shape[1] for view in views])


def _meta(method: Method, dims: Sequence[int]) -> Meta:
    built = Concat().build(dims)
    return Meta(method.to_json(), built.dim, built.projections, normalize=True, spectrum=np.arange(3.0, -4.0, -1.0))


def test_a_method_without_weights_gets_a_folder_for_its_training(tmp_path: Path) -> None:
    FOLDERS.clear()
    for epochs in (3, 3, 4):
        store = ViewStore(tmp_path)
        assert Ensemble(MEMBERS).fit(["a dog", "a cat"], Patient(epochs), store=store).spec.dim == 7
    first, same, other = FOLDERS
    assert first == same != other


def test_defaults_of_fields_that_were_added_later_are_not_saved() -> None:
    assert Patient().to_json() == {"name": "patient", "epochs": 3}
    assert Patient(shade="red").to_json() == {"name": "patient", "epochs": 3, "shade": "red"}


def test_the_summary_counts_the_dimensions_along_which_members_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "patient", Patient)
    rows = dict(summary(MetaEncoder(Ensemble(MEMBERS), _meta(Patient(), [4, 3]))))
    assert rows["positive"].startswith("3 of 7 dimensions")
    monkeypatch.setattr(Patient, "signed_spectrum", False)
    assert "positive" not in dict(summary(MetaEncoder(Ensemble(MEMBERS), _meta(Patient(), [4, 3]))))
