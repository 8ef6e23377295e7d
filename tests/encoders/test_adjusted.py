from __future__ import annotations

import numpy as np
import pytest

from ensembed import Ensemble
from ensembed.encoders import AdjustedEncoder, DemoEncoder, open_encoder
from ensembed.errors import InputError
from ensembed.methods import Concat
from ensembed.numerics.row_matrices import unit_rows
from ensembed.testing import check_encoder

SENTENCES = ["a dog runs", "", "two cats sleep"]


def test_adjusted_encoder_keeps_the_contract() -> None:
    check_encoder(open_encoder("demo?dim=16&prefix=query: &truncate_dim=8&normalize=true"))


def test_a_prefix_is_put_before_every_sentence() -> None:
    vectors = open_encoder("demo?prefix=query: ").encode(SENTENCES)
    assert np.array_equal(vectors, DemoEncoder().encode([f"query: {sentence}" for sentence in SENTENCES]))


def test_dimensions_are_cut_before_vectors_are_scaled() -> None:
    plain = DemoEncoder(16).encode(SENTENCES)
    assert np.array_equal(open_encoder("demo?dim=16&truncate_dim=4").encode(SENTENCES), plain[:, :4])
    unit = open_encoder("demo?dim=16&truncate_dim=4&normalize=true").encode(SENTENCES)
    lengths = np.linalg.norm(plain[:, :4], axis=1, keepdims=True)
    np.testing.assert_allclose(unit, plain[:, :4] / np.where(lengths > 0, lengths, 1), rtol=1e-6)
    assert np.linalg.norm(unit, axis=1).tolist() == pytest.approx([1, 0, 1])


def test_the_key_changes_with_the_numbers_and_only_then() -> None:
    changed = ["demo", "demo?prefix=a", "demo?prefix=b", "demo?truncate_dim=4", "demo?truncate_dim=5",
               "demo?normalize=true", "demo?truncate_dim=4&normalize=true", "demo?dim=4"]  # fmt: skip
    assert len({open_encoder(name).spec.key for name in changed}) == len(changed)
    for same in ("demo?prefix=", "demo?truncate_dim=32", "demo?normalize=false"):
        assert open_encoder(same).spec.key == DemoEncoder().spec.key


def test_truncated_unit_vectors_are_not_called_normalised() -> None:
    unit = AdjustedEncoder(DemoEncoder(8), normalize=True)
    assert unit.spec.normalize
    part = AdjustedEncoder(unit, truncate_dim=4)
    assert not part.spec.normalize
    assert np.array_equal(part.encode(SENTENCES), unit.encode(SENTENCES)[:, :4])


@pytest.mark.parametrize("dim", [0, -1, 33])
def test_truncate_dim_out_of_range_is_refused(dim: int) -> None:
    with pytest.raises(InputError, match=f"has 32 dimensions: truncate_dim cannot be {dim}"):
        open_encoder(f"demo?truncate_dim={dim}")


def test_normalize_false_is_refused_for_an_encoder_of_unit_vectors() -> None:
    unit = AdjustedEncoder(DemoEncoder(8), normalize=True)
    with pytest.raises(InputError, match="itself gives vectors of length one"):
        AdjustedEncoder(unit, normalize=False)


def test_a_truncated_meta_encoder_keeps_all_members() -> None:
    model = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"]).fit([f"a dog {i} barks" for i in range(40)], Concat())
    adjusted = AdjustedEncoder(model, truncate_dim=3, normalize=True)
    np.testing.assert_allclose(adjusted.encode(SENTENCES), unit_rows(model.truncate(3).encode(SENTENCES)), atol=1e-6)
