"""Training: as torch's own autograd and Adam would do it, and after any interruption to the same weights."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import oracles
import pytest
import torch
from method_views import Array, make_views
from train_child import METHOD, views

from ensembed.errors import ModelError, TrainingError
from ensembed.methods import Autoencoder, Meta
from ensembed.methods.autoencoder import training_loop as training
from ensembed.methods.autoencoder.cross_view_network import CrossViewNetwork, Design, Parameters
from ensembed.methods.meta import Network
from ensembed.numerics.torch_device import kernel_errors

pytestmark = pytest.mark.usefixtures("one_thread")

NAME = "training.safetensors"


class Reports:
    """Progress that remembers the epochs that were reported, and may raise in one."""

    def __init__(self, raise_in: int | None = None, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.epochs: list[int] = []
        self._raise_in, self._error = raise_in, error

    def __call__(self, label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train ·"):
            self.epochs.append(done)
            if done == self._raise_in:
                raise self._error


def _weights(meta: Meta) -> list[Array]:
    return [
        array
        for projection in meta.projections
        if isinstance(projection, Network)
        for layer in projection.layers
        for array in (layer.matrix, layer.bias)
    ]


def _assert_same(found: Meta, expected: Meta) -> None:
    assert len(_weights(found)) == len(_weights(expected)) > 0
    for a, b in zip(_weights(found), _weights(expected), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def expected() -> Meta:
    """What training gives that nothing interrupts."""
    return METHOD.fit(views(), threads=1)


@pytest.fixture
def every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every epoch."""
    monkeypatch.setattr(training, "_KEEP_EVERY", 0.0)


def _go_on(folder: Path) -> tuple[Meta, Reports]:
    reports = Reports()
    return METHOD.fit(views(), threads=1, progress=reports, checkpoint=folder), reports


@pytest.mark.parametrize("dims", [(6,), (6, 5, 4)])
@pytest.mark.parametrize("hidden_layers", [0, 1, 2])
def test_training_equals_autograd_and_adam_of_torch(hidden_layers: int, dims: tuple[int, ...]) -> None:
    """All rows are one batch here, so that their order does not matter."""
    X = [torch.from_numpy(view / 10) for view in make_views(40, dims)]
    design = Design(dims, 4, hidden_layers, 3, "tanh", "cross")
    first = Parameters(design.shapes(), torch.float64, "cpu", seed=7).named()
    weights = {name: weight.clone().requires_grad_() for name, weight in first.items()}
    optimiser = torch.optim.Adam(weights.values(), lr=0.01, betas=(0.8, 0.99))
    ends = np.cumsum(design.first_widths)

    def layer(x: torch.Tensor, name: str, number: int) -> torch.Tensor:
        y = x @ weights[name] + weights[f"{name}.bias"]
        return torch.tanh(y) if number < hidden_layers else y

    for _ in range(20):
        optimiser.zero_grad()
        total = torch.zeros((), dtype=torch.float64)
        for j, x in enumerate(X):
            for number in range(hidden_layers + 1):
                x = layer(x, f"encoder.{number}.{j}", number)
            decoded = layer(x, "decoder.0", 0)
            for k, target in enumerate(X):
                y = decoded[:, ends[k] - design.first_widths[k] : ends[k]]
                for number in range(1, hidden_layers + 1):
                    y = layer(y, f"decoder.{number}.{k}", number)
                total = total + torch.nn.functional.mse_loss(y, target)
        total.backward()
        optimiser.step()

    meta = Autoencoder(
        dim=4, hidden_layers=hidden_layers, hidden_dim=3, activation="tanh", loss="mse", epochs=20, learning_rate=0.01,
        betas=(0.8, 0.99), seed=7, precision="float64", solver="batches",
    ).fit([x.numpy() for x in X])  # fmt: skip
    expected = [
        weights[f"encoder.{number}.{j}{kind}"].detach().numpy()
        for j in range(len(dims))
        for number in range(hidden_layers + 1)
        for kind in ("", ".bias")
    ]
    for found, weight in zip(_weights(meta), expected, strict=True):
        assert oracles.error(found, weight) < 1e-6


@pytest.mark.usefixtures("every_epoch")
@pytest.mark.parametrize(("event", "number", "goes_on_with"), [("epoch", 5, 5), ("sync", 4, 4)])
def test_training_that_was_killed_goes_on_to_the_same_weights(
    event: str, number: int, goes_on_with: int, tmp_path: Path, expected: Meta
) -> None:
    folder = tmp_path / "kept"
    child = [sys.executable, str(Path(__file__).with_name("train_child.py")), str(folder), event, str(number)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    assert subprocess.run(child, env=environment, check=False).returncode == -9
    assert (folder / NAME).is_file()
    found, reports = _go_on(folder)
    assert reports.epochs == list(range(goes_on_with, METHOD.epochs + 1))
    _assert_same(found, expected)
    assert not folder.exists()


@pytest.mark.parametrize("epoch", [1, 2, 8])
def test_an_interruption_keeps_the_last_whole_epoch(epoch: int, tmp_path: Path, expected: Meta) -> None:
    """Although the last checkpoint is not half a minute old."""
    with pytest.raises(KeyboardInterrupt):
        METHOD.fit(views(), threads=1, progress=Reports(raise_in=epoch), checkpoint=tmp_path / "kept")
    found, reports = _go_on(tmp_path / "kept")
    assert reports.epochs[0] == epoch
    _assert_same(found, expected)


def test_an_interruption_within_an_epoch_loses_that_epoch_only(
    tmp_path: Path, expected: Meta, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, calls = CrossViewNetwork.__call__, iter(range(1000))

    def interrupted(self: CrossViewNetwork, *args: Any) -> torch.Tensor:  # noqa: ANN401 - whatever the method takes
        if next(calls) == 14:  # the third batch of the fourth epoch
            raise KeyboardInterrupt
        return call(self, *args)

    monkeypatch.setattr(CrossViewNetwork, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        METHOD.fit(views(), threads=1, checkpoint=tmp_path / "kept")
    monkeypatch.undo()
    found, reports = _go_on(tmp_path / "kept")
    assert reports.epochs[0] == 4
    _assert_same(found, expected)


def test_an_interruption_while_an_epoch_is_copied_keeps_nothing_of_it() -> None:
    class Interrupting:
        def copy_(self, _tensor: torch.Tensor) -> None:
            raise KeyboardInterrupt

    design = Design((3,), 2, 0, 2, "relu", "cross")
    whole = training._WholeEpoch(Parameters(design.shapes(), torch.float32, "cpu", seed=0))
    whole.take({"epoch": 1})
    assert whole.facts == {"epoch": 1}
    whole._held["second"] = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        whole.take({"epoch": 2})
    assert not whole.facts


def test_training_can_be_interrupted_again_and_again(tmp_path: Path, expected: Meta) -> None:
    for epoch in (2, 3, 3, 6):
        with pytest.raises(KeyboardInterrupt):
            METHOD.fit(views(), threads=1, progress=Reports(raise_in=epoch), checkpoint=tmp_path / "kept")
    _assert_same(_go_on(tmp_path / "kept")[0], expected)


def test_early_stopping_goes_on_where_it_was(tmp_path: Path) -> None:
    method = Autoencoder(dim=4, loss="mse", epochs=400, batch_size=200, learning_rate=0.05, patience=3)
    whole = Reports()
    expected = method.fit(views(), progress=whole)
    assert 3 < len(whole.epochs) < 400
    for epoch in (whole.epochs[-1] - 1, whole.epochs[-1]):
        with pytest.raises(KeyboardInterrupt):
            method.fit(views(), progress=Reports(raise_in=epoch), checkpoint=tmp_path / "kept")
    rest = Reports()
    _assert_same(method.fit(views(), progress=rest, checkpoint=tmp_path / "kept"), expected)
    assert rest.epochs == whole.epochs[-1:]


def _interrupted(folder: Path) -> Path:
    with pytest.raises(KeyboardInterrupt):
        METHOD.fit(views(), threads=1, progress=Reports(raise_in=6), checkpoint=folder)
    return folder / NAME


def _flip(at: float) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        i = int(at * (len(data) - 1))
        return data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]

    return change


@pytest.mark.parametrize("change", [
    lambda _: b"", lambda data: data[:100], lambda data: data[:-1], lambda data: data[: len(data) // 2],
    lambda _: b"\xff" * 1000, lambda data: data + b"\0", _flip(0), _flip(0.02), _flip(0.3), _flip(0.5), _flip(0.8),
    _flip(1),
])  # fmt: skip
def test_a_damaged_checkpoint_is_ignored(change: Callable[[bytes], bytes], tmp_path: Path, expected: Meta) -> None:
    path = _interrupted(tmp_path / "kept")
    path.write_bytes(change(path.read_bytes()))
    found, reports = _go_on(tmp_path / "kept")
    assert reports.epochs[0] == 1
    _assert_same(found, expected)


@pytest.mark.parametrize("change", [
    {"seed": 1}, {"learning_rate": 1e-3}, {"epochs": 10}, {"loss": "mae"}, {"precision": "float64"}, {"hidden_dim": 9},
])  # fmt: skip
def test_the_checkpoint_of_another_method_is_not_taken(change: dict[str, Any], tmp_path: Path) -> None:
    _interrupted(tmp_path / "kept")
    other = _other(change)
    reports = Reports()
    _assert_same(other.fit(views(), progress=reports, checkpoint=tmp_path / "kept"), other.fit(views()))
    assert reports.epochs[0] == 1


def _other(change: dict[str, Any]) -> Autoencoder:
    facts = METHOD.to_json() | change
    del facts["name"]
    return Autoencoder(**facts)


@pytest.mark.parametrize("row", [0, 100, 199])
def test_the_checkpoint_of_other_sentences_is_not_taken(row: int, tmp_path: Path) -> None:
    _interrupted(tmp_path / "kept")
    other = views()
    other[1][row] += 1
    reports = Reports()
    METHOD.fit(other, progress=reports, checkpoint=tmp_path / "kept")
    assert reports.epochs[0] == 1


@pytest.mark.usefixtures("every_epoch")
def test_a_full_disk_raises_an_error_that_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ensembed.support.training_checkpoint.write_atomically", full)
    with pytest.raises(ModelError, match=r"cannot keep the training in .*kept: .*No space left on device"):
        METHOD.fit(views(), checkpoint=tmp_path / "kept")


@pytest.mark.usefixtures("every_epoch")
def test_a_checkpoint_folder_that_cannot_be_made_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ModelError, match="cannot keep the training in"):
            METHOD.fit(views(), checkpoint=place)
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.usefixtures("every_epoch")
def test_the_checkpoint_is_removed_and_other_files_of_the_folder_stay(tmp_path: Path, expected: Meta) -> None:
    folder = tmp_path / "a" / "b"
    _assert_same(METHOD.fit(views(), threads=1, checkpoint=folder), expected)
    assert not folder.exists()
    folder.mkdir()
    (folder / "mine.txt").write_text("do not touch")
    (folder / f".{NAME}.0badcafe.tmp").write_bytes(b"left by a writer that was killed")
    METHOD.fit(views(), threads=1, checkpoint=folder)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_a_training_that_diverges_leaves_no_bad_checkpoint(tmp_path: Path) -> None:
    method = Autoencoder(dim=4, loss="mse", epochs=50, batch_size=64, learning_rate=1e20)
    with pytest.raises(TrainingError, match=r"loss became (nan|inf) in epoch \d+: lower learning_rate=1e\+20"):
        method.fit(views(), checkpoint=tmp_path / "kept")
    assert not (tmp_path / "kept" / NAME).exists()


@pytest.mark.parametrize("hidden_layers", [0, 1, 2])
def test_values_too_large_for_adam_raise_an_error(hidden_layers: int) -> None:
    """The loss is a number in every epoch, but the square of its gradient is none."""
    method = Autoencoder(dim=4, loss="mse", hidden_layers=hidden_layers, epochs=3, solver="batches")
    large = [view * np.float32(1e14) for view in views()]
    with pytest.raises(TrainingError, match=r"at a loss of .*e\+\d+, .* gradient became too large in epoch 1: lower"):
        method.fit(large)


def test_weights_that_are_not_finite_are_found_after_the_last_step() -> None:
    with pytest.raises(TrainingError, match=r"gradient became too large in epoch 1: lower learning_rate=1e\+39"):
        Autoencoder(dim=4, loss="mse", epochs=1, learning_rate=1e39).fit(views())


@pytest.mark.parametrize("fails", [False, True])
def test_settings_of_the_process_are_restored_after_training(fails: bool) -> None:
    state = torch.get_rng_state()
    torch.set_num_threads(3)
    before = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32, torch.get_default_dtype()
    reports = Reports(raise_in=2 if fails else None, error=ValueError)
    try:
        METHOD.fit(views(), threads=1, progress=reports)
    except ValueError:
        assert fails
    after = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32, torch.get_default_dtype()
    torch.set_num_threads(1)
    assert after == before
    assert torch.equal(torch.get_rng_state(), state)


class TritonError(Exception):
    """As in triton: of no other kind."""


@pytest.mark.parametrize(
    "error",
    [RuntimeError("no compiler"), subprocess.CalledProcessError(1, ["gcc"]), TritonError("sm_999 is not known")],
)
def test_training_goes_on_where_triton_cannot_compile(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setitem(sys.modules, "triton.errors", cast("Any", SimpleNamespace(TritonError=TritonError)))
    monkeypatch.setitem(sys.modules, "triton", cast("Any", SimpleNamespace()))

    def loss_kernel(*_: object) -> None:
        raise error

    module = "ensembed.methods.autoencoder.triton_kernels"
    monkeypatch.setitem(sys.modules, module, cast("Any", SimpleNamespace(loss_kernel=loss_kernel)))
    buffer, loss = SimpleNamespace(is_cuda=True), torch.zeros(())
    stepper: Any = SimpleNamespace(_method=Autoencoder(), _buffers=[buffer], _loss=loss)
    with pytest.warns(RuntimeWarning, match="without our own kernel"):
        assert callable(training.Stepper._loss_function(stepper))


@pytest.mark.parametrize("problem", ["ImportError", "RuntimeError", "OSError"])
def test_a_triton_that_cannot_start_is_no_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text(f"raise {problem}")
    monkeypatch.syspath_prepend(tmp_path)
    assert ImportError in kernel_errors()


def test_steps_are_counted_as_cuda_reads_them_whatever_the_default_is() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        parameters = Parameters({"layer": (2, 2)}, torch.float32, "cpu", 0)
    finally:
        torch.set_default_dtype(torch.float32)
    assert parameters.steps.dtype == torch.float32
