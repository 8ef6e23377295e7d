"""What only a CUDA device runs: kernels of our own, graphs, streaming through pinned memory."""

from __future__ import annotations

import dataclasses
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed.methods.autoencoder import Autoencoder

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def views(rows: int = 3000) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    latent = generator.standard_normal((rows, 6))
    return [(latent @ generator.standard_normal((6, d))).astype(np.float32) for d in (24, 37, 16)]


@pytest.mark.parametrize("counted", [None, "rows", "views"])
@pytest.mark.parametrize("d", [37, 600, 1024])
@pytest.mark.parametrize("name", ["mse", "mae", "kld", "cos"])
def test_the_loss_kernel_equals_the_loss_function(name: str, d: int, counted: str | None) -> None:
    from ensembed.methods.autoencoder.cross_view_network import loss_function, replace_by_gradient
    from ensembed.methods.autoencoder.triton_kernels import loss_kernel

    torch.manual_seed(0)
    whole = torch.randn(3 * 50, d + 13, device="cuda")
    X = torch.randn(50, d, device="cuda")
    counts = {
        None: None,
        "rows": (torch.rand(3, 50, 1, device="cuda") > 0.3).float(),
        "views": torch.tensor([0.0, 1.0, 0.0], device="cuda").view(3, 1, 1),
    }[counted]
    ours, theirs = whole[:, 5 : 5 + d], whole[:, 5 : 5 + d].clone()  # the kernel works on columns of a larger matrix
    loss = loss_kernel(name, 0.3)(ours.unflatten(0, (3, 50)), X, counts)
    expected = replace_by_gradient(loss_function(name, 0.3), theirs.unflatten(0, (3, 50)), X, counts)
    torch.testing.assert_close(loss, expected, rtol=2e-5, atol=0)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5 * float(theirs.abs().max()))


@pytest.mark.parametrize("kind", ["cross", "averaged", "concatenated", "decoupled"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_cuda_graphs_train_to_the_same_weights_as_plain_steps(
    kind: str, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ensembed.methods.autoencoder.training_loop import Stepper

    method = Autoencoder(12, loss="mse", epochs=4, batch_size=700, kind=kind, view_dropout=dropout,  # type: ignore[arg-type] # one of the words it takes
                         device="cuda", precision="float32")  # fmt: skip
    graphs = method.fit(views()).transform(views())
    monkeypatch.setattr(Stepper, "_graph", lambda _self, step: step)
    plain = method.fit(views()).transform(views())
    np.testing.assert_allclose(graphs, plain, rtol=1e-3, atol=1e-4 * np.abs(plain).max())


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_lower_precisions_train_to_nearly_the_same_loss(precision: str) -> None:
    exact = Autoencoder(12, loss="mse", epochs=20, batch_size=500, device="cuda", precision="float32")
    other = dataclasses.replace(exact, precision=precision)  # type: ignore[arg-type] # one of the words it takes
    a, b = (method.fit(views()).transform(views()) for method in (exact, other))
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert cosines.min() > 0.98


def test_streaming_delivers_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all rows in one batch their order does not matter: streamed and resident training are the same."""
    from ensembed.methods.autoencoder import training_batches as batches

    method = Autoencoder(12, loss="mse", epochs=5, device="cuda", precision="float32")
    resident = method.fit(views()).transform(views())
    monkeypatch.setattr(batches, "_RESIDENT", 0.0)
    monkeypatch.setattr(batches, "_CHUNK", 256)
    monkeypatch.setattr(batches, "Streamed", partial(batches.Streamed, window=3))
    streamed = method.fit(views()).transform(views())
    np.testing.assert_allclose(streamed, resident, rtol=1e-3, atol=1e-4 * np.abs(resident).max())


def test_an_interrupted_training_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    method = Autoencoder(12, epochs=6, batch_size=700, device="cuda")

    def interrupt(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train ·") and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        method.fit(views(), progress=interrupt, checkpoint=tmp_path / "kept")
    resumed = method.fit(views(), checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(resumed.transform(views()), method.fit(views()).transform(views()))


def test_memory_may_be_pinned_while_a_step_is_captured() -> None:
    """As the reader of batches to come does; a capture that minded other threads would fail."""
    stop = threading.Event()

    def pin() -> None:
        while not stop.is_set():
            torch.empty(1 << 26, dtype=torch.uint8).pin_memory()

    thread = threading.Thread(target=pin)
    thread.start()
    try:
        for seed in range(10):
            Autoencoder(12, epochs=1, batch_size=700, device="cuda", seed=seed).fit(views())
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("resident", [True, False])
def test_the_same_seed_gives_the_same_bits(resident: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from ensembed.methods.autoencoder import training_batches as batches

    monkeypatch.setattr(batches, "_RESIDENT", 0.5 if resident else 0.0)
    monkeypatch.setattr(batches, "_CHUNK", 256)
    monkeypatch.setattr(batches, "Streamed", partial(batches.Streamed, window=3))
    method = Autoencoder(12, epochs=3, batch_size=700, device="cuda")
    first, second = (method.fit(views()).transform(views()) for _ in range(2))
    np.testing.assert_array_equal(first, second)
