"""The method: what it takes, what it refuses, what it gives back, and what it needs torch for."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from method_views import Array, make_views
from small_store import CORPUS

from ensembed import Ensemble
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import InputError, MissingError, TrainingError
from ensembed.methods import Autoencoder, make_method
from ensembed.methods.meta import Network
from ensembed.views import ViewStore

pytestmark = pytest.mark.usefixtures("one_thread")

LOSSES = ["mse", "mae", "kld", "cos"]
KINDS = ["cross", "averaged", "concatenated", "decoupled"]
QUICK: dict[str, Any] = {"dim": 6, "epochs": 3, "batch_size": 32}


def _views(rows: int = 100, dims: tuple[int, ...] = (6, 5, 4)) -> list[Array]:
    return [view.astype(np.float32) / 10 for view in make_views(rows, dims)]


def _losses(method: Autoencoder, views: list[Array]) -> list[float]:
    """The loss of every epoch, as it is reported."""
    found = []

    def report(label: str, _done: int, _total: int | None, /) -> None:
        if label.startswith("train · loss "):
            found.append(float(label.removeprefix("train · loss ")))

    method.fit(views, progress=report)
    return found


@pytest.mark.parametrize(("parameters", "message"), [
    ({"dim": 0}, "dim must be a whole number of at least 1, not 0"),
    ({"dim": 2.5}, "dim must be a whole number"),
    ({"hidden_dim": 0}, "hidden_dim must be a whole number of at least 1"),
    ({"hidden_layers": 3}, "hidden_layers is 0, 1 or 2, not 3"),
    ({"hidden_layers": -1}, "hidden_layers must be a whole number of at least 0"),
    ({"activation": "gelu"}, "activation is relu or tanh, not 'gelu'"),
    ({"loss": "huber"}, "loss is mse or mae or kld or cos, not 'huber'"),
    ({"kind": "stacked"}, "kind is cross or averaged or concatenated or decoupled, not 'stacked'"),
    ({"precision": "int8"}, "precision is auto or float64 or float32 or tf32 or bfloat16, not 'int8'"),
    ({"solver": "exact"}, "solver is auto or moments or batches, not 'exact'"),
    ({"temperature": 0}, "temperature must be a number above 0, not 0"),
    ({"temperature": math.nan}, "temperature must be a number above 0, not nan"),
    ({"learning_rate": -1.0}, "learning_rate must be a number above 0, not -1.0"),
    ({"learning_rate": "1e-3"}, "learning_rate must be a number above 0, not '1e-3'"),
    ({"learning_rate": math.inf}, "learning_rate must be a number above 0, not inf"),
    ({"view_dropout": 1.0}, "view_dropout must be a number from 0 to below 1, not 1.0"),
    ({"view_dropout": -0.1}, "view_dropout must be a number from 0 to below 1"),
    ({"epochs": 0}, "epochs must be a whole number of at least 1, not 0"),
    ({"batch_size": 0}, "batch_size must be a whole number of at least 1, not 0"),
    ({"patience": 0}, "patience must be a whole number of at least 1, not 0"),
    ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
    ({"seed": 2**63}, "seed must be below"),
    ({"betas": (0.9,)}, "betas are two numbers from 0 to below 1"),
    ({"betas": 0.9}, "betas are two numbers"),
    ({"betas": (0.9, 1.0)}, "betas are two numbers"),
    ({"betas": "ab"}, "betas are two numbers"),
    ({"device": 0}, "device is a name such as 'cpu' or 'cuda', not 0"),
    ({"solver": "moments"}, 'solver="moments" is for loss="mse"'),
])  # fmt: skip
def test_invalid_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Autoencoder(**parameters)


def test_the_defaults_are_the_papers() -> None:
    method = Autoencoder()
    assert (method.loss, method.hidden_layers, method.kind, method.epochs) == ("kld", 1, "cross", 500)
    assert (method.batch_size, method.learning_rate, method.betas) == (10_000, 1e-3, (0.9, 0.999))
    assert method.patience is None
    assert make_method("ae", dim=7, betas=[0.5, 0.9]) == Autoencoder(dim=7, betas=(0.5, 0.9))


def test_numpy_numbers_are_accepted_as_parameters() -> None:
    method = Autoencoder(
        dim=np.int64(6), hidden_dim=np.int32(5), epochs=np.int64(2), batch_size=np.int64(32), seed=np.int64(3),
        learning_rate=np.float32(0.01), betas=(np.float64(0.9), np.float32(0.99)), patience=np.int8(2),
        view_dropout=np.float32(0.1), temperature=np.float64(2),
    )  # fmt: skip
    plain = Autoencoder(**{key: value for key, value in method.to_json().items() if key != "name"})
    np.testing.assert_array_equal(method.fit(_views()).transform(_views()), plain.fit(_views()).transform(_views()))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns_under_every_loss(kind: str, loss: str) -> None:
    method = Autoencoder(dim=6, kind=kind, loss=loss, epochs=40, batch_size=32, learning_rate=0.01, activation="tanh")  # type: ignore[arg-type] # one of the words it takes
    losses = _losses(method, _views())
    assert len(losses) == 40
    assert np.mean(losses[-5:]) < 0.75 * losses[0]


@pytest.mark.parametrize("hidden_layers", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_encoders_have_the_shapes_that_were_asked_for(kind: str, hidden_layers: int) -> None:
    meta = Autoencoder(**QUICK, hidden_layers=hidden_layers, hidden_dim=7, kind=kind).fit(_views())  # type: ignore[arg-type] # one of the words it takes
    assert (meta.dim, meta.view_dims, meta.rows, meta.normalize, meta.spectrum) == (6, (6, 5, 4), 100, False, None)
    split = kind in ("concatenated", "decoupled")
    for j, projection in enumerate(meta.projections):
        assert isinstance(projection, Network)
        widths = [layer.matrix.shape[1] for layer in projection.layers]
        assert widths == [7] * hidden_layers + [2 if split else 6]
        assert projection.start == (2 * j if split else 0)


def test_dimensions_that_are_not_given_are_those_of_the_largest_view() -> None:
    meta = Autoencoder(epochs=1).fit(_views())
    assert meta.dim == 6
    assert all([layer.matrix.shape[1] for layer in p.layers] == [6, 6] for p in meta.projections)


@pytest.mark.parametrize("kind", ["concatenated", "decoupled"])
def test_a_dimension_that_cannot_be_split_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match=f"kind='{kind}' splits dim=7 among 3 views: choose a multiple of that"):
        Autoencoder(dim=7, kind=kind).fit(_views())  # type: ignore[arg-type] # one of the words it takes
    with pytest.raises(InputError, match="splits dim=7 among 2 views"):  # before anything is encoded
        Autoencoder(dim=7, kind=kind, weights=(1, 0, 1)).check((6, 5, 4))  # type: ignore[arg-type] # as above


def test_the_vectors_are_those_of_the_encoders_summed() -> None:
    views = _views()
    for kind in KINDS:
        meta = Autoencoder(**QUICK, kind=kind, hidden_layers=2).fit(views)  # type: ignore[arg-type] # one of the words it takes
        expected = np.zeros((5, 6))
        for view, p in zip(views, meta.projections, strict=True):
            assert isinstance(p, Network)
            layers = [(layer.matrix, layer.bias) for layer in p.layers]
            for row in range(5):
                code = oracles.network(view[row], layers, p.activation)
                expected[row, p.start : p.start + len(code)] += code
        assert oracles.error(meta.transform([view[:5] for view in views]), expected) < 1e-5


def test_one_view_is_a_plain_autoencoder_of_whatever_kind() -> None:
    X = _views(dims=(6,))
    found = [Autoencoder(**QUICK, kind=kind).fit(X).transform(X) for kind in KINDS]  # type: ignore[arg-type] # one of the words it takes
    for Z in found[1:]:
        np.testing.assert_array_equal(Z, found[0])


def test_a_plain_autoencoder_reconstructs_what_its_code_has_room_for() -> None:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((200, 3)) @ generator.standard_normal((3, 8))
    method = Autoencoder(
        dim=3, hidden_layers=0, loss="mse", solver="batches", epochs=300, batch_size=100, learning_rate=0.01
    )
    losses = _losses(method, [X])
    assert losses[-1] < 1e-3 * losses[0]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bits_and_another_one_others(kind: str, dropout: float) -> None:
    def vectors(seed: int) -> Array:
        method = Autoencoder(**QUICK, kind=kind, view_dropout=dropout, seed=seed)  # type: ignore[arg-type] # one of the words it takes
        return method.fit(_views()).transform(_views())

    np.testing.assert_array_equal(vectors(0), vectors(0))
    assert oracles.gram_error(vectors(1), vectors(0)) > 1e-3


def test_dropping_views_makes_the_mean_code_bear_a_missing_one() -> None:
    """Reconstructed from one view alone, by the best linear decoder, the others are closer where views were dropped."""
    generator = np.random.default_rng(0)
    latent = generator.standard_normal((400, 3))
    views = [latent @ generator.standard_normal((3, 6)) + 0.3 * generator.standard_normal((400, 6)) for _ in range(2)]

    def error(dropout: float) -> float:
        method = Autoencoder(
            dim=3, hidden_layers=0, loss="mse", kind="averaged", view_dropout=dropout, epochs=150, batch_size=100,
            learning_rate=0.02,
        )  # fmt: skip
        meta = method.fit(views)
        codes = np.vstack([meta.transform([views[0], None]), meta.transform([None, views[1]])])
        codes = np.hstack([codes, np.ones((len(codes), 1))])
        targets = np.vstack([np.hstack(views)] * 2)
        return float(np.square(codes @ np.linalg.lstsq(codes, targets, rcond=None)[0] - targets).mean())

    assert error(0.5) < error(0.0)


def test_progress_tells_of_epochs_with_the_loss_and_ends() -> None:
    reports: list[tuple[str, int, int | None]] = []
    Autoencoder(**QUICK).fit(_views(), progress=lambda *report: reports.append(report))
    assert reports[0] == ("read views", 100, 100)
    epochs = reports[1:-1]
    assert [done for _, done, _ in epochs] == [1, 2, 3]
    assert all(label.startswith("train · loss ") and total == 3 for label, _, total in epochs)
    assert reports[-1] == ("train", 3, 3)


def test_the_loss_that_is_reported_is_the_mean_over_rows() -> None:
    """A step of almost no length leaves the loss of the first weights, whatever the batches are."""
    losses = [
        _losses(Autoencoder(dim=4, loss="mse", epochs=1, batch_size=size, learning_rate=1e-30), _views())[0]
        for size in (100, 30, 7, 1)
    ]
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)


def test_early_stopping_waits_for_a_fall() -> None:
    settled = Autoencoder(dim=4, loss="mse", epochs=3000, batch_size=100, learning_rate=0.05, patience=5)
    losses = _losses(settled, _views())
    assert 10 < len(losses) < 3000
    assert min(losses[:-5]) * (1 - 2e-4) < min(losses[-5:])
    # Steps of almost no length: nothing ever falls, and the first epoch is the best.
    assert len(_losses(Autoencoder(**{**QUICK, "epochs": 50}, learning_rate=1e-30, patience=4), _views())) == 5


def test_a_loss_that_falls_slowly_does_not_stop_training_early() -> None:
    """Every epoch by less than a ten-thousandth, but by more in the ten epochs that are waited for."""
    method = Autoencoder(dim=4, loss="mse", epochs=60, batch_size=100, learning_rate=2e-5, patience=10)
    losses = np.array(_losses(method, _views()))
    falls = 1 - losses[1:] / losses[:-1]
    assert 1e-5 < falls.max() < 1e-4
    assert len(losses) == 60


@pytest.mark.parametrize("parameters", [{"learning_rate": 1e30}, {"learning_rate": 1e12, "hidden_layers": 2}])
def test_diverging_training_raises_a_training_error(parameters: dict[str, Any]) -> None:
    with pytest.raises(TrainingError, match=r"in epoch \d+: lower learning_rate=1"):
        Autoencoder(**(QUICK | {"epochs": 50, "loss": "mse"} | parameters)).fit(_views())


def test_values_beyond_float32_raise_an_error() -> None:
    with pytest.raises(TrainingError, match="or scale the views down"):
        Autoencoder(**QUICK, loss="mae").fit([view.astype(float) * 1e200 for view in _views()])


def test_stored_views_can_be_trained_on(tmp_path: Path) -> None:
    views = ViewStore(tmp_path, shard_rows=4).embed_all(CORPUS, [DemoEncoder(6, seed=1), DemoEncoder(5, seed=2)])
    meta = Autoencoder(**QUICK).fit(views)
    expected = Autoencoder(**QUICK).fit([view[:] for view in views])
    np.testing.assert_array_equal(meta.transform(views), expected.transform([view[:] for view in views]))


@pytest.mark.parametrize(("parameters", "message"), [
    ({"device": "cuda:99"}, "there is no device 'cuda:99' here"),
    ({"device": "abacus"}, "there is no device 'abacus' here"),
    ({"device": "meta"}, "there is no device 'meta' here"),
    ({"device": "cpu", "precision": "bfloat16"}, "precision='bfloat16' is for CUDA devices; on cpu"),
    ({"device": "cpu", "precision": "tf32"}, "precision='tf32' is for CUDA devices; on cpu"),
])  # fmt: skip
def test_a_device_that_is_not_here_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Autoencoder(**QUICK, **parameters).fit(_views())


def test_double_precision_is_close_to_single() -> None:
    found = [
        Autoencoder(**QUICK, device="cpu", precision=precision).fit(_views()).transform(_views())
        for precision in ("float32", "float64")
    ]
    assert found[0].dtype == found[1].dtype == np.float32
    assert 0 < oracles.error(found[1], found[0]) < 1e-4


def test_without_torch_the_error_has_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingError, match="training an autoencoder needs torch") as caught:
        Autoencoder(**QUICK).fit(_views())
    assert str(caught.value).endswith("pip install 'ensembed[ae]'")
    Autoencoder(dim=4, hidden_layers=0, loss="mse").fit(_views())


def test_a_fitted_autoencoder_needs_no_torch(tmp_path: Path) -> None:
    """Loading, encoding, truncating and saving, and the solved autoencoder from beginning to end."""
    members = ["demo?dim=5&seed=1", "demo?dim=4&seed=2"]
    sentences = [f"{a} {b}" for a in ("dog", "cat", "one", "two") for b in ("sees", "has", "is")]
    model = Ensemble(members).fit(sentences, Autoencoder(dim=3, epochs=2), store=ViewStore(tmp_path / "views"))
    model.save(tmp_path / "trained")
    np.save(tmp_path / "vectors.npy", model.encode(sentences))
    script = f"""
import sys
sys.modules["torch"] = None
import numpy as np
from pathlib import Path
from ensembed import Ensemble, load
from ensembed.methods import Autoencoder
from ensembed.views import ViewStore
folder, sentences = Path({str(tmp_path)!r}), {sentences!r}
model = load(folder / "trained")
np.testing.assert_allclose(model.encode(sentences), np.load(folder / "vectors.npy"), rtol=1e-6, atol=1e-6)
model.truncate(2).save(folder / "short")
assert load(folder / "short").encode(["dog"]).shape == (1, 2)
solved = Ensemble({members!r}).fit(
    sentences, Autoencoder(dim=3, hidden_layers=0, loss="mse"), store=ViewStore(folder / "views")
)
solved.save(folder / "solved")
np.testing.assert_array_equal(load(folder / "solved").encode(sentences), solved.encode(sentences))
assert sys.modules["torch"] is None
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
