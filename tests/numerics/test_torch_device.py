"""What torch computes is what numpy computes; the device here is the CPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from numpy.typing import NDArray

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import InputError, TrainingError, ViewError
from ensembed.methods import GCCA, SVD, Auto
from ensembed.numerics.eigen import top_eigh
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import TensorMatrix, check_views
from ensembed.numerics.torch_device import checked_device, gcca_on, memory_errors, top_eigh_on
from ensembed.views import ViewStore

torch = pytest.importorskip("torch")


def _views(n: int = 300, dims: tuple[int, ...] = (7, 4, 3)) -> list[NDArray[np.float32]]:
    generator = np.random.default_rng(0)
    shared = generator.standard_normal((n, 5))
    found = []
    for dim in dims:
        X = shared @ generator.standard_normal((5, dim)) + 0.5 * generator.standard_normal((n, dim)) + 3.0
        found.append(X.astype(np.float32))
    return found


def _close(found: Moments, expected: Moments, tolerance: float = 1e-12) -> None:
    assert found.n == expected.n
    assert found.resolution == expected.resolution
    assert oracles.error(found.mean, expected.mean) < tolerance
    assert oracles.error(found.scatter, expected.scatter) < tolerance
    np.testing.assert_array_equal(found.scatter, found.scatter.T)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", ["arrays", "tensors", "mixed"])
def test_moments_on_a_device_equal_those_of_numpy(normalize: bool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensembed.numerics.torch_device._BLOCK", 128)
    monkeypatch.setattr("ensembed.numerics.torch_device._TILE", 5)
    arrays = _views()
    arrays[1][7] = 0.0
    views: list[Any] = [X if kind == "arrays" else torch.tensor(X) for X in arrays]
    views[0] = arrays[0] if kind == "mixed" else views[0]
    expected = Moments.of_views([X.astype(np.float64) for X in arrays], normalize=normalize)
    reports: list[tuple[int, int | None]] = []
    how = Pass(device="cpu", progress=lambda _label, done, total, /: reports.append((done, total)))
    found = Moments.of_views(views, how, normalize=normalize)
    _close(found, expected)
    assert found.device == "cpu"
    assert reports == [(128, 300), (256, 300), (300, 300)]


def test_stored_views_and_other_types_are_taken(tmp_path: Path) -> None:
    corpus = ListCorpus([f"sentence {i}" for i in range(20)])
    stored = ViewStore(tmp_path, shard_rows=8).embed(corpus, DemoEncoder(4))
    whole = np.random.default_rng(0).integers(0, 9, (20, 2))
    others = [whole.astype(kind) for kind in ("int16", "uint8", ">f4", "float16", "bool")]
    _close(Moments.of_views([stored, *others], Pass(device="cpu")), Moments.of_views([stored, *others]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32"])
def test_tensors_are_matrices_for_numpy_too(dtype: str) -> None:
    tensor = torch.arange(12).reshape(6, 2).to(getattr(torch, dtype))
    (matrix,) = check_views([tensor])
    assert isinstance(matrix, TensorMatrix)
    assert matrix.tensor.data_ptr() == tensor.data_ptr()
    np.testing.assert_array_equal(np.asarray(matrix[1:3]), [[2, 3], [4, 5]])
    _close(Moments.of(tensor), Moments.of(np.arange(12.0).reshape(6, 2)))


def test_tensors_with_a_gradient_are_read_and_others_are_refused() -> None:
    learnt = torch.ones((2, 3), requires_grad=True)
    np.testing.assert_array_equal(np.asarray(check_views([learnt])[0][:]), np.ones((2, 3)))
    with pytest.raises(ViewError, match="view 0 holds complex64"):
        check_views([torch.ones((2, 3), dtype=torch.complex64)])
    with pytest.raises(ViewError, match="view 0"):
        check_views([torch.ones((2, 3)).to_sparse()])


@pytest.mark.parametrize("kind", ["arrays", "tensors"])
def test_nan_and_inf_are_named_by_view_and_row(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensembed.numerics.torch_device._BLOCK", 64)
    views: list[Any] = list(_views())
    views[1][200, 2] = np.inf
    if kind == "tensors":
        views = [torch.from_numpy(X) for X in views]
    with pytest.raises(ViewError, match="view 1 holds NaN or Inf in row 200;"):
        Moments.of_views(views, Pass(device="cpu"))


@pytest.mark.parametrize(("device", "message"), [
    ("toaster", "torch has no device 'toaster'"),
    ("mps", "cannot compute in float64"),
])  # fmt: skip
def test_devices_that_cannot_be_used_are_refused(device: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Moments.of_views(_views(), Pass(device=device))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
class EndsEarly:
    """A matrix that has fewer rows than its shape says, such as a file that was cut."""

    shape, dtype = (200, 3), np.dtype(np.float32)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return np.ones((100, 3), np.float32)[rows]


@pytest.mark.parametrize("device", [None, "cpu"])
def test_rows_that_are_not_there_are_not_counted(device: str | None) -> None:
    with pytest.raises(ViewError, match="view 1 has 200 rows by its shape, but ends at row 100"):
        Moments.of_views([np.ones((200, 2)), EndsEarly()], Pass(device=device))
    with pytest.raises(ViewError, match="view 0 has 200 rows by its shape, but ends at row 100"):
        Moments.of_views([EndsEarly()], Pass(device=device))


def test_training_on_a_missing_gpu_raises_an_engine_error() -> None:
    with pytest.raises(InputError, match=re.escape("device 'cuda:0': torch")):
        checked_device("cuda:0")


@pytest.mark.parametrize("k", [1, 4, 14])
def test_eigenvectors_on_a_device_equal_those_of_numpy(k: int) -> None:
    S = Moments.of_views(_views()).covariance
    values, V = top_eigh_on("cpu", S, k)
    expected = top_eigh(S, k)[0]
    np.testing.assert_allclose(values, expected, rtol=1e-10)
    np.testing.assert_allclose(S @ V, V * values, atol=1e-10 * values[0])
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-12)


@pytest.mark.parametrize("tau", [0.0, 0.1, 10.0])
@pytest.mark.parametrize("dim", [1, 6, 14])
def test_gcca_on_a_device_equals_that_of_numpy(tau: float, dim: int) -> None:
    views = _views()
    dims = [X.shape[1] for X in views]
    moments = Moments.of_views(views)
    found = gcca_on("cpu", moments.covariance, dims, tau=tau, dim=dim, resolution=moments.resolution)
    assert found is not None
    rho, theta = found
    expected = GCCA(dim, tau).solve(moments, dims)
    assert expected.spectrum is not None
    np.testing.assert_allclose(rho, expected.spectrum, atol=1e-10)
    matrices: list[Any] = [projection.matrix for projection in expected.projections]  # type: ignore[attr-defined] # Dense
    np.testing.assert_allclose(theta, np.concatenate(matrices), rtol=1e-4, atol=1e-5 * np.abs(theta).max())


def test_gcca_leaves_a_block_without_full_rank_to_the_host() -> None:
    X = _views()[0]
    S = Moments.of_views([X, np.hstack([X, X[:, :1]])]).covariance
    assert gcca_on("cpu", S, (7, 8), tau=1.0, dim=3, resolution=1e-11) is None
    assert gcca_on("cpu", S[:7, :7], (4, 3), tau=1.0, dim=8, resolution=1e-11) is None


@pytest.mark.parametrize("method", [GCCA(3), SVD(3), SVD(3, weights="reliability"), Auto(3)])
def test_a_fit_with_torch_on_a_device_equals_the_fit_with_numpy(method: Any) -> None:  # noqa: ANN401 - each is of another class
    views = _views()
    tensors = [torch.from_numpy(X) for X in views]
    found = method.fit(tensors, device="cpu")
    np.testing.assert_allclose(found.transform(tensors), method.fit(views).transform(views), rtol=1e-3, atol=1e-4)
    assert found.rows == len(views[0])


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory. Tried to allocate\n1 GiB"), MemoryError()])
def test_full_memory_is_a_training_error_with_a_way_out(error: Exception) -> None:
    way_out = r"not enough memory to train: .*; lower batch_size=7, or choose another device"
    with pytest.raises(TrainingError, match=way_out), memory_errors("batch_size=7"):
        raise error


def test_errors_that_are_not_of_memory_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes differ"), memory_errors("batch_size=7"):
        raise RuntimeError("shapes differ")
