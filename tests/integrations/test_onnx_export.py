from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import ensembed
from ensembed import Ensemble
from ensembed.encoders import AdjustedEncoder, open_encoder
from ensembed.errors import DimensionError, InputError, MissingError, ModelError
from ensembed.integrations.onnx import OnnxModel, export_meta, export_model
from ensembed.methods import GCCA, SVD, Auto, Autoencoder, Average, Concat, Meta, UpProjection
from ensembed.models.ensemble import MetaEncoder
from ensembed.testing import SENTENCES

sys.path.insert(0, str(Path(__file__).parents[1] / "encoders"))  # small transformers are made there

from make_onnx import INPUTS, small_graph, write_json, write_onnx

DIMS = (6, 4, 5)

TEXTS = [
    "a dog barks",
    "the cat sleeps",
    "a cat and a dog",
    "the dog sleeps",
    "a dog, a cat and the rest",
    "barks",
    "?",
]


def views(rows: int = 50, seed: int = 0) -> list[NDArray[np.float32]]:
    """Three views that share some of what they say; a row of each is zero, one is tiny and one is huge."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((rows, 5))
    made = [shared @ rng.standard_normal((5, d)) + 0.3 * rng.standard_normal((rows, d)) + 1 for d in DIMS]
    for j, view in enumerate(made):
        view[j] = 0
    return [view.astype(np.float32) for view in made]


def run(path: Path, given: list[NDArray[Any]]) -> NDArray[Any]:
    """What the graph makes of the views that it takes."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {node.name: given[int(node.name.removeprefix("view_"))] for node in session.get_inputs()}
    return np.asarray(session.run(["vector"], feeds)[0])


METAS: dict[str, Callable[[], Meta]] = {
    "concat": lambda: Concat().fit(views()),
    "concat, truncated within a view": lambda: Concat().fit(views()).truncate(8),
    "concat, truncated to one view": lambda: Concat().fit(views()).truncate(5),
    "average": lambda: Average(weights=(1, 2, 3)).fit(views()),
    "average, truncated": lambda: Average().fit(views()).truncate(3),
    "svd": lambda: SVD(dim=4).fit(views()),
    "svd without a member": lambda: SVD(dim=4, weights=(1, 0, 2)).fit(views()),
    "gcca": lambda: GCCA(dim=5, tau=0.1).fit(views()),
    "gcca, truncated": lambda: GCCA(dim=5).fit(views()).truncate(2),
    "auto": lambda: Auto().fit(views()),
    "auto, whitened": lambda: Auto(weights=(1, 0.5, 0.3), whitened=(1, 2)).fit(views()),
    "auto, whitened and projected": lambda: Auto(dim=4, weights=(1, 0.5, 0.3), whitened=(1, 2)).fit(views()),
    "linear autoencoder": lambda: Autoencoder(4, 0, loss="mse").fit(views()),
    "autoencoder, relu": lambda: Autoencoder(4, epochs=2, device="cpu").fit(views()),
    "autoencoder, tanh": lambda: Autoencoder(4, 2, 7, "tanh", epochs=2, device="cpu").fit(views()),
    "autoencoder, concatenated": lambda: Autoencoder(6, kind="concatenated", epochs=2, device="cpu").fit(views()),
    "autoencoder, truncated": lambda: (
        Autoencoder(6, kind="concatenated", epochs=2, device="cpu").fit(views()).truncate(3)
    ),
    "up-projection": lambda: UpProjection(dim=9).fit(views()[:1]),
}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", METAS)
def test_graph_gives_the_vectors_of_the_meta_embedding(name: str, tmp_path: Path) -> None:
    meta = METAS[name]()
    export_meta(meta, tmp_path / "meta.onnx")
    onnx.checker.check_model(str(tmp_path / "meta.onnx"), full_check=True)
    given = views(rows=7, seed=1)[: len(meta.projections)]
    wanted = meta.transform(given)
    np.testing.assert_allclose(run(tmp_path / "meta.onnx", given), wanted, atol=1e-5)
    one = run(tmp_path / "meta.onnx", [view[2:3] for view in given])
    np.testing.assert_allclose(one, wanted[2:3], atol=1e-5)
    assert run(tmp_path / "meta.onnx", [view[:0] for view in given]).shape == (0, meta.dim)


def test_rows_of_any_length_are_scaled_and_zero_rows_stay_zero(tmp_path: Path) -> None:
    meta = Concat().build([3, 2])
    export_meta(meta, tmp_path / "meta.onnx")
    rows = np.array([[3, 4, 0], [0, 0, 0], [3e-30, 4e-30, 0], [3e25, 4e25, 0], [-3, 0, 4]], np.float32)
    vectors = run(tmp_path / "meta.onnx", [rows, np.ones((5, 2), np.float32)])
    np.testing.assert_allclose(vectors, meta.transform([rows, np.ones((5, 2), np.float32)]), atol=1e-6)
    np.testing.assert_array_equal(vectors[1, :3], 0)


def test_graph_has_metadata_and_inputs_only_for_views_that_count(tmp_path: Path) -> None:
    export_meta(SVD(dim=4, weights=(1, 0, 2)).fit(views()), tmp_path / "meta.onnx")
    model = onnx.load(tmp_path / "meta.onnx")
    assert [node.name for node in model.graph.input] == ["view_0", "view_2"]
    assert [axis.dim_param or axis.dim_value for axis in model.graph.input[1].type.tensor_type.shape.dim] == [
        "batch",
        5,
    ]
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(facts["method"])["name"] == "svd"
    assert json.loads(facts["view_dims"]) == list(DIMS)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 13)]


def test_export_meta_refuses_methods_and_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="takes a fitted meta-embedding"):
        export_meta(GCCA(dim=2), tmp_path / "meta.onnx")  # type: ignore[arg-type] # it is refused
    with pytest.raises(ModelError, match="cannot write"):
        export_meta(Concat().build([2, 2]), tmp_path / "absent" / "meta.onnx")
    assert list(tmp_path.iterdir()) == []


def test_folders_can_be_read_without_onnx_and_writing_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_model(small_model(tmp_path), tmp_path / "out")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert OnnxModel(tmp_path / "out").encode(["a dog"]).shape == (1, 5)
    with pytest.raises(MissingError, match=r"pip install 'ensembed\[onnx\]'"):
        export_meta(Concat().build([2]), tmp_path / "meta.onnx")


def small_model(
    folder: Path, *, options: tuple[str, str] = ("", "pooling=cls"), how: tuple[Any, Any] = ({}, {"seed": 1})
) -> MetaEncoder:
    """Two small transformers under SVD."""
    names = [f"onnx:{write_onnx(folder / f'encoder{j}', **how[j])}?{options[j]}".rstrip("?") for j in range(2)]
    return Ensemble(names).fit([*TEXTS, *SENTENCES[:6]], SVD(dim=5))


def largest_gap(a: NDArray[Any], b: NDArray[Any]) -> float:
    """As a part of the vectors' length."""
    return float((np.linalg.norm(a - b, axis=1) / np.maximum(np.linalg.norm(b, axis=1), 1e-6)).max())


FLOATS = dict.fromkeys(INPUTS, TensorProto.INT32) | {"attention_mask": TensorProto.FLOAT}
WITH_POSITIONS = INPUTS | {"position_ids": TensorProto.INT64, "attention_mask": TensorProto.BOOL}
ONLY_IDS = {"input_ids": TensorProto.INT64}

MODELS: dict[str, dict[str, Any]] = {
    "mean and cls": {},
    "max and last": {"options": ("pooling=max", "pooling=last")},
    "the graph's own pooling": {"options": ("pooling=model", ""), "how": ({"outputs": ["sentence_embedding"]}, {})},
    "normalised, prefixed, cut": {
        "options": ("normalize=true&prefix=a dog: ", "truncate_dim=4&normalize=true&max_length=5")
    },
    "inputs of other types": {"how": ({"inputs": FLOATS}, {"inputs": WITH_POSITIONS, "seed": 1})},
    "no mask": {"how": ({"inputs": ONLY_IDS}, {"seed": 1})},
    "one sentence of sixteen tokens": {"how": ({"shape": (1, 16)}, {"seed": 1})},
    "half precision": {"how": ({"dtype": np.float16}, {"seed": 1})},
    "no special tokens": {"how": ({"special": False}, {"special": False, "seed": 1})},
}


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_exported_folder_gives_the_vectors_of_the_model(name: str, merged: bool, tmp_path: Path) -> None:
    model = small_model(tmp_path, **MODELS[name])
    export_model(model, tmp_path / "out", merged=merged)
    for file in (tmp_path / "out").glob("*.onnx"):
        onnx.checker.check_model(str(file), full_check=True)
    read = OnnxModel(tmp_path / "out")
    sentences = [*SENTENCES, *TEXTS, ""]
    # Of half precision the runtime keeps more digits where what follows has them: the pooling that is in the graph now.
    rounding = 2e-4 if name == "half precision" else 1e-5
    assert largest_gap(read.encode(sentences), model.encode(sentences)) < rounding
    assert read.spec.dim == model.spec.dim
    assert read.encode([]).shape == (0, 5)
    assert sorted(file.name for file in (tmp_path / "out").glob("*.onnx")) == (
        ["model.onnx"] if merged else ["combiner.onnx", "member_0.onnx", "member_1.onnx"]
    )


def test_padding_changes_nothing(tmp_path: Path) -> None:
    model = small_model(tmp_path, options=("pooling=max", "pooling=last"))
    export_model(model, tmp_path / "out", merged=True)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    assert [node.name for node in session.get_inputs()] == ["input_ids", "attention_mask"]  # one tokenizer for both
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer_0.json"))
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(TEXTS)
    feeds = {
        "input_ids": np.array([tokens.ids for tokens in encoded], np.int64),
        "attention_mask": np.array([tokens.attention_mask for tokens in encoded], np.int64),
    }
    assert largest_gap(session.run(["vector"], feeds)[0], model.encode(TEXTS)) < 1e-5


def test_members_with_different_tokens_have_their_own_inputs(tmp_path: Path) -> None:
    model = small_model(tmp_path, options=("", "max_length=4"))
    export_model(model, tmp_path / "out", merged=True)
    graph = onnx.load(tmp_path / "out" / "model.onnx").graph
    names = [f"{name}_{t}" for t in range(2) for name in ("input_ids", "attention_mask")]
    assert [node.name for node in graph.input] == names
    assert largest_gap(OnnxModel(tmp_path / "out").encode(SENTENCES), model.encode(SENTENCES)) < 1e-5


def test_names_in_nested_graphs_get_the_prefix_too(tmp_path: Path) -> None:
    graph = small_graph()
    branches = []
    for name, constant in (("then", "scale"), ("else", "yes")):  # constants of the graph around the branches
        nodes = [helper.make_node("Mul", ["hidden", constant], [f"{name}_out"])]
        outputs = [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)]
        branches.append(helper.make_graph(nodes, name, [], outputs))
    graph.graph.node[-1].output[0] = "hidden"
    always = helper.make_node("Constant", [], ["always"], value=helper.make_tensor("", TensorProto.BOOL, [], [True]))
    choice = helper.make_node("If", ["always"], ["last_hidden_state"], then_branch=branches[0], else_branch=branches[1])
    graph.graph.node.extend([always, choice])
    folder = write_onnx(tmp_path / "nested")
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    write_onnx(tmp_path / "other", seed=1)
    model = Ensemble([f"onnx:{folder}", f"onnx:{tmp_path / 'other'}"]).fit(TEXTS, Concat())
    for merged in (False, True):
        export_model(model, tmp_path / "out", merged=merged)
        assert largest_gap(OnnxModel(tmp_path / "out").encode(TEXTS), model.encode(TEXTS)) < 1e-5


def test_external_weights_are_included(tmp_path: Path) -> None:
    folder = write_onnx(tmp_path / "large")
    onnx.save(small_graph(), folder / "model.onnx", save_as_external_data=True, location="weights", size_threshold=200)
    assert (folder / "weights").is_file()
    encoder = open_encoder(f"onnx:{folder}")
    export_model(encoder, tmp_path / "out")
    assert not (tmp_path / "out" / "weights").exists()
    assert largest_gap(OnnxModel(tmp_path / "out").encode(TEXTS), encoder.encode(TEXTS)) < 1e-5


def test_member_of_weight_0_is_left_out(tmp_path: Path) -> None:
    write_onnx(tmp_path / "one")
    members = ["demo?dim=8&seed=1", f"onnx:{tmp_path / 'one'}"]
    model = Ensemble(members).fit(TEXTS, Concat(weights=(0, 1)))
    export_model(model, tmp_path / "out")
    assert not (tmp_path / "out" / "member_0.onnx").exists()
    assert largest_gap(OnnxModel(tmp_path / "out").encode(TEXTS), model.encode(TEXTS)) < 1e-5


def test_saved_model_and_encoder_are_opened_by_name(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    model.save(tmp_path / "saved")
    for name in (tmp_path / "saved", str(tmp_path / "saved")):
        export_model(name, tmp_path / "out")
        assert largest_gap(OnnxModel(tmp_path / "out").encode(TEXTS), model.encode(TEXTS)) < 1e-5
    export_model(f"onnx:{tmp_path / 'encoder0'}", tmp_path / "out", merged=True)
    alone = open_encoder(f"onnx:{tmp_path / 'encoder0'}")
    assert largest_gap(OnnxModel(tmp_path / "out").encode(TEXTS), alone.encode(TEXTS)) < 1e-5


def test_member_that_is_no_graph_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    write_onnx(tmp_path / "one")
    model = Ensemble([f"onnx:{tmp_path / 'one'}", "demo?dim=8&seed=1"]).fit(TEXTS, Concat())
    with pytest.raises(InputError, match=r"member 'demo\?dim=8&seed=1' is a 'demo' encoder"):
        export_model(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="an encoder is a name or an object"):
        export_model(model.meta, tmp_path / "out")  # type: ignore[arg-type] # it is refused


def test_operations_of_different_or_old_versions_are_refused(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    for version, message in ((18, "of version 18, one before it of 17"), (10, "operations of version 10")):
        graph = onnx.load(tmp_path / "encoder1" / "model.onnx")
        graph.opset_import[0].version = version
        (tmp_path / "encoder1" / "model.onnx").write_bytes(graph.SerializeToString())
        with pytest.raises(InputError, match=message):
            export_model(model, tmp_path / "out", merged=True)
        with pytest.raises(ModelError, match=r"config\.json is missing"):
            OnnxModel(tmp_path / "out")


def test_operations_with_axes_as_inputs_are_supported(tmp_path: Path) -> None:
    for j in range(2):
        graph = small_graph(seed=j)
        graph.opset_import[0].version = 18
        (write_onnx(tmp_path / f"encoder{j}") / "model.onnx").write_bytes(graph.SerializeToString())
    names = [f"onnx:{tmp_path / 'encoder0'}?pooling=max&normalize=true", f"onnx:{tmp_path / 'encoder1'}"]
    model = Ensemble(names).fit(TEXTS, Concat())
    for merged in (False, True):
        export_model(model, tmp_path / "out", merged=merged)
        assert largest_gap(OnnxModel(tmp_path / "out").encode(TEXTS), model.encode(TEXTS)) < 1e-5


def test_an_export_is_not_cut_to_its_first_member(tmp_path: Path) -> None:
    names = [f"onnx:{write_onnx(tmp_path / f'encoder{j}')}" for j in range(2)]
    export_model(Ensemble(names).fit(TEXTS, Concat()), tmp_path / "out")
    exported = OnnxModel(tmp_path / "out")
    vectors = exported.encode(TEXTS)
    np.testing.assert_array_equal(exported.shorten(vectors, exported.dim), vectors)
    cuts: list[Callable[[], object]] = [
        lambda: exported.truncate(3),
        lambda: exported.shorten(vectors, 3),
        lambda: AdjustedEncoder(exported, truncate_dim=3),
    ]
    for cut in cuts:
        with pytest.raises(DimensionError, match=r"export_model\(model.truncate\(3\), FOLDER\)"):
            cut()


def test_settings_beside_a_graph_are_exported(tmp_path: Path) -> None:
    folder = write_onnx(tmp_path / "asking")
    modules = [{"type": f"models.{kind}", "path": ""} for kind in ("Transformer", "Normalize")]
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"do_lower_case": True, "max_seq_length": 9})
    prompts = {"default_prompt_name": "p", "prompts": {"p": "the snow: "}}
    write_json(folder / "config_sentence_transformers.json", prompts)
    encoder = open_encoder(f"onnx:{folder}?truncate_dim=5")
    export_model(encoder, tmp_path / "out")
    assert largest_gap(OnnxModel(tmp_path / "out").encode(SENTENCES), encoder.encode(SENTENCES)) < 1e-5


def test_merged_functions_of_one_name_must_be_equal(tmp_path: Path) -> None:
    for j, op in enumerate(("Relu", "Relu", "Abs")):
        graph = small_graph(seed=j)
        body = [helper.make_node(op, ["x"], ["y"])]
        graph.functions.append(helper.make_function("ours", "F", ["x"], ["y"], body, [helper.make_opsetid("", 17)]))
        graph.opset_import.append(helper.make_opsetid("ours", 1))
        graph.graph.node[-1].output[0] = "hidden"
        graph.graph.node.append(helper.make_node("F", ["hidden"], ["last_hidden_state"], domain="ours"))
        (write_onnx(tmp_path / f"encoder{j}") / "model.onnx").write_bytes(graph.SerializeToString())
    names = [f"onnx:{tmp_path / f'encoder{j}'}" for j in range(3)]
    same = Ensemble(names[:2]).fit(TEXTS, Concat())
    export_model(same, tmp_path / "out", merged=True)
    assert largest_gap(OnnxModel(tmp_path / "out").encode(TEXTS), same.encode(TEXTS)) < 1e-5
    different = Ensemble(names).fit(TEXTS, Concat())
    export_model(different, tmp_path / "out")
    assert largest_gap(OnnxModel(tmp_path / "out").encode(TEXTS), different.encode(TEXTS)) < 1e-5
    with pytest.raises(InputError, match="different functions 'F'"):
        export_model(different, tmp_path / "out", merged=True)


def test_saved_model_is_not_overwritten(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    model.save(tmp_path / "saved")
    with pytest.raises(ModelError, match=r"config\.json of something else"):
        export_model(model, tmp_path / "saved")
    assert ensembed.load(tmp_path / "saved").encode(TEXTS).shape == (7, 5)
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="not a folder"):
        export_model(model, tmp_path / "file")


@pytest.mark.parametrize("file", ["config.json", "combiner.onnx", "member_1.onnx", "tokenizer_0.json"])
def test_truncated_or_missing_file_is_an_error(file: str, tmp_path: Path) -> None:
    export_model(small_model(tmp_path), tmp_path / "out")
    path = tmp_path / "out" / file
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match=file):
        OnnxModel(tmp_path / "out")
    path.unlink()
    with pytest.raises(ModelError, match=file):
        OnnxModel(tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "other"}, "of another kind"),
        ({"version": 99}, "has format 99"),
        ({"graphs": [{"file": "../evil.onnx"}]}, "is damaged"),
        ({"sha256": {"../secret": ""}}, "no file of the folder"),
        ({"method": None}, "is damaged"),
    ],
)
def test_foreign_configuration_is_an_error(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    export_model(small_model(tmp_path), tmp_path / "out")
    path = tmp_path / "out" / "config.json"
    facts = json.loads(path.read_bytes())
    del facts["seal"]  # exports of version 0.1 have none
    path.write_text(json.dumps(facts | change))
    with pytest.raises(ModelError, match=message):
        OnnxModel(tmp_path / "out")


def test_changed_configuration_is_an_error_unless_it_has_no_seal(tmp_path: Path) -> None:
    export_model(small_model(tmp_path), tmp_path / "out")
    path = tmp_path / "out" / "config.json"
    facts = json.loads(path.read_bytes())
    path.write_text(json.dumps(facts | {"name": "other"}))
    with pytest.raises(ModelError, match=r"config\.json is damaged: its content does not fit its hash"):
        OnnxModel(tmp_path / "out")
    del facts["seal"]
    path.write_text(json.dumps(facts))
    assert OnnxModel(tmp_path / "out").encode(TEXTS).shape == (7, 5)


@pytest.mark.real
@pytest.mark.parametrize(("other", "merged"), [("gte-small", False), ("minilm-int8", False), ("minilm-int8", True)])
def test_real_encoders_export_with_equal_vectors(
    other: str, merged: bool, pulled: Callable[[str], Path], tmp_path: Path
) -> None:
    for name in ("minilm", other):
        pulled(name)
    sentences = [*SENTENCES, *TEXTS, "", "a long one, " * 70]  # more tokens than minilm takes
    model = Ensemble(["minilm", other], threads=1).fit(sentences, GCCA(dim=16))
    export_model(model, tmp_path / "out", merged=merged)
    read = OnnxModel(tmp_path / "out", threads=1)
    assert largest_gap(read.encode(sentences), model.encode(sentences)) < 1e-5


def test_onnx_model_can_be_a_member_of_an_ensemble(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    export_model(model, tmp_path / "out")
    read = OnnxModel(tmp_path / "out")
    np.testing.assert_allclose(read.similarity(TEXTS, TEXTS), model.similarity(TEXTS, TEXTS), atol=1e-5)
    again = Ensemble([read, "demo?dim=8"]).fit(TEXTS, Concat())
    assert again.encode(TEXTS).shape == (7, 13)
    assert OnnxModel(tmp_path / "out").spec == read.spec
