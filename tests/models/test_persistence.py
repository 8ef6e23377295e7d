"""Saved models: what was saved comes back to the bit, and what is damaged never loads as something else."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from ensembed import Ensemble, MetaEncoder, load
from ensembed.errors import DimensionError, InputError, ModelError
from ensembed.methods import GCCA, SVD, Autoencoder, Average, Concat, Method, UpProjection
from ensembed.models import saved_model
from ensembed.models.saved_model import CONFIG, FORMAT_VERSION, TENSORS, _seal, read_model
from ensembed.support.file_limits import CONFIG_BYTES, TENSOR_HEADER_BYTES

GOLDEN = Path(__file__).parents[1] / "golden"
SENTENCES = [
    f"{who} {does} the {what}" for who in ("one", "a dog", "she") for does in ("sees", "has") for what in "abcd"
]
NEW = ["she has a dog", "", "something else entirely", "one sees the a"]
METHODS = [
    Concat(),
    Average(),
    SVD(dim=3),
    GCCA(dim=3),
    GCCA(dim=np.int64(3), tau=np.float32(0.5)),
    Autoencoder(dim=3, hidden_layers=0, loss="mse"),
    Autoencoder(dim=3, epochs=2, seed=np.int64(1), betas=(np.float32(0.5), 0.9)),
    Autoencoder(dim=4, hidden_layers=2, hidden_dim=5, activation="tanh", kind="decoupled", epochs=2),
]


def _fit(method: Method, *encoders: str) -> MetaEncoder:
    return Ensemble(encoders or ["demo?dim=5&seed=1", "demo?dim=4&seed=2"]).fit(SENTENCES, method)


def files_of(folder: Path) -> set[str]:
    """The names in a folder, less the lock's, whose file stays and is empty."""
    return {path.name for path in folder.iterdir()} - {".lock"}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved model whose configuration has numbers in it that tensors do not."""
    _fit(Average()).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    """A saved model with projections in tensors."""
    _fit(GCCA(dim=3)).save(tmp_path / "dense")
    return tmp_path / "dense"


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A saved model with networks of two layers, of 5 and 2 columns, side by side."""
    _fit(Autoencoder(dim=4, hidden_dim=5, kind="concatenated", epochs=1)).save(tmp_path / "network")
    return tmp_path / "network"


@pytest.mark.parametrize("method", METHODS)
def test_a_loaded_model_encodes_as_the_saved_one_to_the_bit(method: Method, tmp_path: Path) -> None:
    model = _fit(method)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    np.testing.assert_array_equal(again.encode(NEW), model.encode(NEW))
    assert again.spec.key == model.spec.key
    assert again.meta.method == model.meta.method
    assert again.meta.rows == model.meta.rows
    assert again.corpus == model.corpus
    if model.meta.spectrum is not None:
        assert again.meta.spectrum is not None
        np.testing.assert_array_equal(again.meta.spectrum, model.meta.spectrum)


def test_saving_what_was_loaded_gives_the_same_files(dense: Path, tmp_path: Path) -> None:
    load(dense).save(tmp_path / "again")
    for name in (CONFIG, TENSORS):
        assert (tmp_path / "again" / name).read_bytes() == (dense / name).read_bytes()


@pytest.mark.parametrize("k", [1, np.int64(2), 3])
@pytest.mark.parametrize(
    "method", [SVD(dim=4), Concat(), Autoencoder(dim=4, epochs=1), Autoencoder(dim=4, epochs=1, kind="concatenated")]
)
def test_a_truncated_model_is_saved_truncated(method: Method, k: int, tmp_path: Path) -> None:
    whole = _fit(method)
    short = whole.truncate(k)
    short.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").encode(NEW), short.encode(NEW))
    np.testing.assert_allclose(short.encode(NEW), whole.meta.shorten(whole.encode(NEW), k), rtol=1e-5, atol=1e-6)


def test_leading_directions_are_saved_and_a_model_without_any_is_of_format_1(tmp_path: Path) -> None:
    whole = _fit(Concat())
    whole.save(tmp_path / "whole")
    again = load(tmp_path / "whole")
    assert json.loads((tmp_path / "whole" / CONFIG).read_text())["format"] == 2
    np.testing.assert_array_equal(again.encode(NEW), whole.encode(NEW))
    np.testing.assert_array_equal(again.truncate(2).encode(NEW), whole.truncate(2).encode(NEW))
    whole.truncate(2).save(tmp_path / "short")
    assert json.loads((tmp_path / "short" / CONFIG).read_text())["format"] == 1


def test_truncating_a_concatenation_that_knows_no_directions_says_what_to_do() -> None:
    model = load(GOLDEN / "model-format-1" / "conc")
    with pytest.raises(
        DimensionError, match=r"fitted without sentences or by ensembed 0.1, or .*; fit it again .*dim=3"
    ):
        model.truncate(3)
    assert model.truncate(model.meta.dim).spec.dim == model.meta.dim


def test_an_up_projection_is_saved(tmp_path: Path) -> None:
    model = _fit(UpProjection(dim=9), "demo?dim=5")
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").encode(NEW), model.encode(NEW))


def test_a_model_is_two_files_without_code(dense: Path) -> None:
    assert files_of(dense) == {CONFIG, TENSORS}
    config = json.loads((dense / CONFIG).read_text())
    assert config["format"] == 1
    assert config["rows"] == len(SENTENCES)
    assert [member["name"] for member in config["members"]] == ["demo?dim=5&seed=1", "demo?dim=4&seed=2"]
    assert sorted(load_tensors((dense / TENSORS).read_bytes())) == [
        "fingerprint.0", "fingerprint.1", "projection.0.matrix", "projection.0.offset", "projection.1.matrix",
        "projection.1.offset", "spectrum",
    ]  # fmt: skip


def test_saving_replaces_the_model_that_is_there(saved: Path) -> None:
    model = _fit(GCCA(dim=2), "demo?dim=7&seed=8", "demo?dim=6&seed=9")
    model.save(str(saved))
    np.testing.assert_array_equal(load(str(saved)).encode(NEW), model.encode(NEW))


def test_saving_where_nothing_can_be_written_says_so(saved: Path) -> None:
    model = load(saved)
    for place in (saved / CONFIG, saved / CONFIG / "below"):
        with pytest.raises(ModelError, match="cannot save the model in"):
            model.save(place)
    assert load(saved).encode(NEW).shape == model.encode(NEW).shape


@pytest.mark.parametrize("flip", [0x01, 0x02, 0x10, 0x80])
def test_a_changed_byte_of_the_configuration_changes_no_numbers(saved: Path, flip: int) -> None:
    expected = load(saved).encode(NEW)
    data = (saved / CONFIG).read_bytes()
    refused = 0
    for i in range(len(data)):
        (saved / CONFIG).write_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])
        try:
            found = load(saved).encode(NEW)
        except ModelError:
            refused += 1
        else:
            np.testing.assert_array_equal(found, expected)
    assert refused > 0.6 * len(data)  # the rest is white space


def test_a_changed_byte_of_the_tensors_is_found(dense: Path) -> None:
    data = (dense / TENSORS).read_bytes()
    for i in range(len(data)):
        (dense / TENSORS).write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        with pytest.raises(ModelError, match="do not belong together"):
            read_model(dense)


@pytest.mark.parametrize("name", [CONFIG, TENSORS])
def test_files_cut_short_are_refused(dense: Path, name: str) -> None:
    data = (dense / name).read_bytes()
    for size in (0, 1, len(data) // 2, len(data) - 2):
        (dense / name).write_bytes(data[:size])
        with pytest.raises(ModelError):
            load(dense)


@pytest.mark.parametrize("name", [CONFIG, TENSORS])
def test_a_missing_file_is_named(dense: Path, name: str) -> None:
    (dense / name).unlink()
    with pytest.raises(ModelError, match=f"is not a saved model: {name} is missing"):
        load(dense)
    (dense / name).mkdir()
    with pytest.raises(ModelError, match="cannot be read"):
        load(dense)


def test_load_refuses_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a saved model"):
        load(tmp_path / "nothing")
    (tmp_path / "file").write_text("text")
    with pytest.raises(ModelError, match="is a file, and a saved model is a folder"):
        load(tmp_path / "file")


def test_an_empty_name_is_not_the_present_folder(dense: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(dense)
    monkeypatch.chdir(dense)
    with pytest.raises(InputError, match=r"'\.' is the current folder"):
        model.truncate(2).save("")
    assert load(dense).dim == 3
    model.truncate(2).save(".")
    assert load(dense).dim == 2


def test_tensors_and_configuration_of_two_saves_do_not_mix(saved: Path, dense: Path) -> None:
    (saved / TENSORS).write_bytes((dense / TENSORS).read_bytes())
    with pytest.raises(ModelError, match="do not belong together: the save was interrupted"):
        load(saved)


def test_a_save_that_was_killed_after_its_switch_is_the_new_model(saved: Path, dense: Path) -> None:
    new = load(dense).encode(NEW)
    seal = json.loads((dense / CONFIG).read_bytes())["sha256"]
    (dense / CONFIG).replace(saved / CONFIG)
    (dense / TENSORS).replace(saved / f"model-{seal[:16]}.safetensors")
    np.testing.assert_array_equal(load(saved).encode(NEW), new)
    load(saved).save(saved)  # finishes it
    assert files_of(saved) == {CONFIG, TENSORS}
    np.testing.assert_array_equal(load(saved).encode(NEW), new)


def test_a_save_that_was_killed_before_its_switch_is_the_old_model(saved: Path, dense: Path) -> None:
    old = load(saved).encode(NEW)
    (dense / TENSORS).replace(saved / f"model-{'0' * 16}.safetensors")
    np.testing.assert_array_equal(load(saved).encode(NEW), old)
    (saved / "model-00001-of-00002.safetensors").touch()  # somebody else's
    load(saved).save(saved)
    assert files_of(saved) == {CONFIG, TENSORS, "model-00001-of-00002.safetensors"}


def test_what_a_killed_save_left_is_removed(saved: Path) -> None:
    (saved / ".config.json.0123abcd.tmp").write_bytes(b"{")
    (saved / f".model-{'0' * 16}.safetensors.0123abcd.tmp").write_bytes(b"half of")
    (saved / ".notes.0123abcd.tmp").touch()  # somebody else's
    load(saved).save(saved)
    assert files_of(saved) == {CONFIG, TENSORS, ".notes.0123abcd.tmp"}


def test_a_model_that_is_saved_over_while_it_is_read_is_read_again(
    saved: Path, dense: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = load(dense)
    expected = new.encode(NEW)
    seal = saved_model._seal

    def save_before_sealing(*_: object) -> str:
        monkeypatch.setattr(saved_model, "_seal", seal)
        new.save(saved)
        return ""  # what is compared then does not belong together

    monkeypatch.setattr(saved_model, "_seal", save_before_sealing)
    np.testing.assert_array_equal(load(saved).encode(NEW), expected)


def test_models_that_two_threads_save_are_whole_whenever_they_are_read(tmp_path: Path) -> None:
    models = [_fit(GCCA(dim=3)), _fit(SVD(dim=2))]
    known = {model.encode(NEW).tobytes() for model in models}
    place, done = tmp_path / "model", threading.Event()
    models[0].save(place)
    problems: list[ModelError] = []

    def save(model: MetaEncoder) -> None:
        try:
            while not done.is_set():
                model.save(place)
        except ModelError as error:
            problems.append(error)

    writers = [threading.Thread(target=save, args=(model,)) for model in models]
    for writer in writers:
        writer.start()
    try:
        for _ in range(200):
            assert load(place).encode(NEW).tobytes() in known
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert problems == []
    assert load(place).encode(NEW).tobytes() in known
    assert files_of(place) == {CONFIG, TENSORS}


@pytest.mark.parametrize("name", [CONFIG, TENSORS])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_file_that_may_have_no_end_is_refused(dense: Path, name: str, kind: str) -> None:
    (dense / name).unlink()
    if kind == "pipe":
        os.mkfifo(dense / name)
    else:
        (dense / name).symlink_to("/dev/zero")
    with pytest.raises(ModelError, match=f"cannot be read: {name} is no"):
        load(dense)


def test_a_configuration_that_is_too_large_is_refused(dense: Path) -> None:
    with (dense / CONFIG).open("ab") as file:
        file.write(b" " * CONFIG_BYTES)
    with pytest.raises(ModelError, match=r"config.json is no file of at most 4,194,304 bytes"):
        load(dense)


def test_a_header_that_is_too_large_is_refused(dense: Path) -> None:
    config = json.loads((dense / CONFIG).read_text())
    del config["sha256"]
    data = (TENSOR_HEADER_BYTES + 1).to_bytes(8, "little") + b" " * (TENSOR_HEADER_BYTES + 1)
    (dense / TENSORS).write_bytes(data)
    (dense / CONFIG).write_text(json.dumps(config | {"sha256": _seal(config, data)}))
    with pytest.raises(ModelError, match=r"the header of model.safetensors is said to have 4,194,305 bytes"):
        load(dense)


@pytest.mark.parametrize("config", ["", "{", "[]", "null", "3", '"text"', "{}", "\xff", "[" * 100_000])
def test_load_refuses_a_file_that_is_not_a_configuration(dense: Path, config: str) -> None:
    (dense / CONFIG).write_bytes(config.encode("latin-1"))
    with pytest.raises(ModelError):
        load(dense)


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, 99, "1", [1]])
def test_another_format_version_is_refused_by_name(dense: Path, version: Any) -> None:  # noqa: ANN401 - none of them is right
    _rewrite(dense, lambda config, _: config.update(format=version))
    with pytest.raises(ModelError, match=r"has model format .*; ensembed .* reads 1 to 3: upgrade ensembed"):
        load(dense)


def test_a_configuration_of_another_kind_is_no_model(dense: Path) -> None:
    (dense / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError, match=r"is not a saved model: its config.json is of another kind$"):
        load(dense)
    (dense / "modules.json").write_text("[]")
    with pytest.raises(ModelError, match=f"is of another kind; as an encoder it is called st:{dense}"):
        load(dense)


@pytest.mark.parametrize(
    "key", ["method", "dim", "normalize", "rows", "corpus", "members", "projections", "has_spectrum"]
)
@pytest.mark.parametrize("value", ["missing", None, 1.5, [None], {}])
def test_facts_that_are_missing_or_wrong_are_refused(dense: Path, key: str, value: Any) -> None:  # noqa: ANN401 - none of them is right
    """Whoever writes such a file seals it too."""
    if value == "missing":
        _rewrite(dense, lambda config, _: config.pop(key))
    else:
        _rewrite(dense, lambda config, _: config.update({key: value}))
    with pytest.raises(ModelError, match="is damaged"):
        load(dense)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", None),
        ("name", ["gcca"]),
        ("weights", [1.0]),
        ("weights", [1.0, "2"]),
        ("weights", None),
        ("weights", [10**400, 1]),
        ("whitened", [2]),
        ("whitened", "1"),
        ("weights_from", {}),
        ("decided", []),
        ("trusted", 2),
        ("trusted", True),
        ("sure", "yes"),
        pytest.param("sure", 10**400, id="sure-huge"),
        ("needed", "many"),
        ("predicts", [1]),
        ("recall_10", {"member": 0.5}),
        ("tuned", {"pairs": 3, "gain": 1, "error": 1}),
        ("tuned", {"pairs": 3, "gain": -(10**400), "error": 1, "kept": True}),
        ("neighbours_kept", [0.5]),
        ("neighbours_kept", {"half": 0.5}),
        ("neighbours_kept", {"2": "most"}),
        ("neighbours_kept", {"2": 10**400}),
        ("seed", float("nan")),
        ("note", "\ud800"),
    ],
)
def test_facts_of_a_method_that_could_not_be_shown_are_refused(dense: Path, key: str, value: object) -> None:
    _rewrite(dense, lambda config, _: config["method"].update({key: value}))
    with pytest.raises(ModelError, match=str(dense)):
        load(dense)


def test_facts_of_a_method_that_another_version_writes_are_shown(dense: Path) -> None:
    facts = {"neighbours_kept": {"2": 0.5}, "weights_from": "reliability", "decided": "in a new way", "more": [{}]}
    facts |= {"predicts": ["demo"]}  # and not how well
    _rewrite(dense, lambda config, _: config["method"].update(facts))
    told = str(load(dense))
    assert "0.50 at 2" in told
    assert "by reliability" in told


def test_a_model_of_a_stranger_shows_no_escape_sequences(dense: Path) -> None:
    _rewrite(dense, lambda config, _: config["method"].update({"name": "a\x1b[31m\u202eb"}))
    model = load(dense)
    for text in (str(model), repr(model.meta), model._repr_html_()):
        assert "\\u001b[31m" in text or "\\x1b[31m" in text
        assert not {"\x1b", "\u202e"} & set(text + repr(model))


def _set(tensors: dict[str, Any], name: str, change: Callable[[Any], Any]) -> None:
    tensors[name] = np.ascontiguousarray(change(tensors[name]))


@pytest.mark.parametrize("change", [
    lambda _, tensors: tensors.update(extra=np.zeros(1)),
    lambda _, tensors: tensors.pop("spectrum"),
    lambda _, tensors: tensors.pop("projection.1.offset"),
    lambda _, tensors: tensors.pop("fingerprint.0"),
    lambda _, tensors: _set(tensors, "projection.0.matrix", lambda x: x.T),
    lambda _, tensors: _set(tensors, "projection.0.offset", lambda x: x[:-1]),
    lambda _, tensors: _set(tensors, "spectrum", lambda x: x[:-1]),
    lambda _, tensors: _set(tensors, "fingerprint.1", lambda x: x[:1]),
    lambda config, _: config.update(dim=2),
    lambda config, _: config["members"].pop(),
    lambda config, _: config["projections"].pop(),
    lambda config, _: config["projections"][0].update(kind="code"),
    lambda config, _: config["projections"][0].update(kind="placement", start=0, columns=5, scale=1.0),
    lambda config, _: config["members"][0].update(dim=4),
    lambda config, _: config["members"][0].update(surprise=1),
    lambda config, _: config["members"][0].pop("extra"),
])  # fmt: skip
def test_tensors_that_are_unknown_missing_or_misshapen_are_refused(dense: Path, change: Any) -> None:  # noqa: ANN401 - a function that damages
    _rewrite(dense, change)
    with pytest.raises(ModelError, match="is damaged"):
        load(dense)


def _network(change: dict[str, Any]) -> Callable[[Any, Any], object]:
    return lambda config, _: config["projections"][1].update(change)


@pytest.mark.parametrize("change", [
    _network({"activation": "gelu"}),
    _network({"activation": None}),
    _network({"activation": ["relu"]}),
    _network({"start": -1}),
    _network({"start": 3}),
    _network({"start": 2.0}),
    _network({"start": True}),
    _network({"start": "2"}),
    _network({"start": None}),
    _network({"widths": []}),
    _network({"widths": None}),
    _network({"widths": 2}),
    _network({"widths": [5]}),
    _network({"widths": [2]}),
    _network({"widths": [2, 5]}),
    _network({"widths": [5, 1]}),
    _network({"widths": [5, 2, 2]}),
    _network({"widths": ["5", "2"]}),
    _network({"kind": "dense"}),
    lambda config, _: config["projections"][1].pop("activation"),
    lambda config, _: config["projections"][1].pop("start"),
    lambda config, _: config.update(dim=3),
    lambda _, tensors: tensors.pop("projection.0.layer.0.matrix"),
    lambda _, tensors: tensors.pop("projection.1.layer.1.bias"),
    lambda _, tensors: _set(tensors, "projection.0.layer.0.matrix", lambda x: x[:-1]),
    lambda _, tensors: _set(tensors, "projection.0.layer.1.matrix", lambda x: x.T),
    lambda _, tensors: _set(tensors, "projection.0.layer.1.bias", lambda x: x[:, None]),
    lambda _, tensors: tensors.update({"projection.0.layer.2.bias": np.zeros(2, np.float32)}),
])  # fmt: skip
def test_networks_that_are_damaged_are_refused(network: Path, change: Any) -> None:  # noqa: ANN401 - a function that damages
    load(network)
    _rewrite(network, change)
    with pytest.raises(ModelError, match="is damaged"):
        load(network)


def test_the_tensors_of_a_network_are_its_layers(network: Path) -> None:
    layers = [f"projection.{j}.layer.{i}.{part}" for j in (0, 1) for i in (0, 1) for part in ("bias", "matrix")]
    assert sorted(load_tensors((network / TENSORS).read_bytes())) == [
        "fingerprint.0", "fingerprint.1", "leading.directions", "leading.values", *layers,
    ]  # fmt: skip
    assert json.loads((network / CONFIG).read_text())["projections"][1] == {
        "kind": "network", "start": 2, "activation": "relu", "widths": [5, 2],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["ae", "gcca", "conc"])
def test_models_of_format_1_load_and_give_the_vectors_they_gave(name: str) -> None:
    folder = GOLDEN / "model-format-1" / name
    golden = json.loads((folder / "golden.json").read_text())
    model = load(folder)
    np.testing.assert_allclose(model.encode(golden["sentences"]), golden["vectors"], rtol=1e-5, atol=1e-6)
    assert json.loads((folder / CONFIG).read_text())["format"] == 1


@pytest.mark.parametrize("name", ["auto", "conc"])
def test_models_of_format_2_give_the_vectors_they_gave_whole_and_truncated(name: str) -> None:
    folder = GOLDEN / "model-format-2" / name
    golden = json.loads((folder / "golden.json").read_text())
    model = load(folder)
    np.testing.assert_allclose(model.encode(golden["sentences"]), golden["vectors"], rtol=1e-5, atol=1e-6)
    short = model.truncate(3).encode(golden["sentences"])
    np.testing.assert_allclose(short, golden["truncated to 3"], rtol=1e-5, atol=1e-6)
    assert json.loads((folder / CONFIG).read_text())["format"] == 2


def test_models_of_format_3_give_the_vectors_they_gave_predict_and_translate() -> None:
    folder = GOLDEN / "model-format-3" / "predicting"
    golden = json.loads((folder / "golden.json").read_text())
    model = load(folder, missing="predict")
    np.testing.assert_allclose(model.encode(golden["sentences"]), golden["vectors"], rtol=1e-5, atol=1e-6)
    views = [encoder.encode(golden["sentences"]) for encoder in model.members]
    completed = model.meta_without([1]).transform([views[0], None, views[2]])
    np.testing.assert_allclose(completed, golden["without the second"], rtol=1e-4, atol=1e-5)
    folder = GOLDEN / "model-format-3" / "translation"
    golden = json.loads((folder / "golden.json").read_text())
    model = load(folder)
    np.testing.assert_allclose(model.encode(golden["sentences"]), golden["vectors"], rtol=1e-5, atol=1e-6)
    assert model.translation is not None
    assert model.translation.figures["translated"].recall_10.value == pytest.approx(golden["recall"], abs=1e-4)
    assert json.loads((folder / CONFIG).read_text())["format"] == 3


def test_every_format_version_has_its_golden_models() -> None:
    assert sorted(path.name for path in GOLDEN.glob("model-format-*")) == [
        f"model-format-{v + 1}" for v in range(FORMAT_VERSION)
    ]


def _rewrite(folder: Path, change: Callable[[Any, Any], object]) -> None:
    """Change the facts and tensors of a saved model and seal it again."""
    config = json.loads((folder / CONFIG).read_text())
    tensors = load_tensors((folder / TENSORS).read_bytes())
    del config["sha256"]
    change(config, tensors)
    data = save_tensors(tensors)
    (folder / TENSORS).write_bytes(data)
    (folder / CONFIG).write_text(json.dumps(config | {"sha256": _seal(config, data)}))
