"""The graphs of MPNet models against transformers' own MPNet, and against sentence-transformers on the real weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from ensembed.encoders import open_encoder
from ensembed.encoders.onnx_files import read_graph
from ensembed.errors import PullError
from ensembed.fetch import mpnet_graph
from ensembed.fetch.mpnet_graph import write_graph, write_int8_graph

PAD = 1


def tiny_mpnet(folder: Path) -> Any:  # noqa: ANN401 - an MPNetModel
    """Write a small MPNet with random weights, and return it."""
    import torch
    from transformers import MPNetConfig, MPNetModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 40}
    model = MPNetModel(MPNetConfig(vocab_size=50, max_position_embeddings=302, layer_norm_eps=1e-5, **sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # large enough that every part of the graph shows in the vectors
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return model


def run(folder: Path, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    (hidden,) = session.run(None, {"input_ids": ids, "attention_mask": mask})
    return np.asarray(hidden, np.float32)


def test_graph_gives_the_vectors_of_transformers(tmp_path: Path) -> None:
    import torch

    model = tiny_mpnet(tmp_path)
    write_graph(tmp_path)
    rng = np.random.default_rng(0)
    for lengths in ([1], [5, 9, 2], [300, 140]):  # 300 tokens: all buckets of relative positions
        ids = rng.integers(0, 50, (len(lengths), max(lengths)))  # padding tokens within a sentence, too
        mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
        ids[mask == 0] = PAD
        with torch.no_grad():
            expected = model(torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)).last_hidden_state.numpy()
        actual = run(tmp_path, ids, mask)
        np.testing.assert_allclose(actual[mask == 1], expected[mask == 1], atol=2e-5)
    assert read_graph(tmp_path / "model.onnx").external == ("model.safetensors",)


def test_int8_graph_is_close_and_a_row_does_not_depend_on_its_batch(tmp_path: Path) -> None:
    tiny_mpnet(tmp_path)
    write_graph(tmp_path)
    ids = np.random.default_rng(0).integers(2, 50, (4, 12))
    mask = np.ones_like(ids)
    expected = run(tmp_path, ids, mask)
    write_int8_graph(tmp_path)
    (tmp_path / "model.safetensors").unlink()  # all is in the graph
    actual = run(tmp_path, ids, mask)
    cosines = (actual * expected).sum(-1) / np.linalg.norm(actual, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert cosines.min() > 0.98
    alone = np.concatenate([run(tmp_path, ids[i : i + 1], mask[i : i + 1]) for i in range(4)])
    np.testing.assert_allclose(alone, actual, atol=1e-5)
    assert read_graph(tmp_path / "model.onnx").rounds


def test_the_same_weights_give_the_same_bytes_wherever_they_are(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        tiny_mpnet(tmp_path / name)
    for write in (write_graph, write_int8_graph):
        graphs = set()
        for name in ("one", "two"):
            write(tmp_path / name)
            graphs.add((tmp_path / name / "model.onnx").read_bytes())
        assert len(graphs) == 1


def test_graphs_are_valid_onnx(tmp_path: Path) -> None:
    import onnx

    tiny_mpnet(tmp_path)
    for write in (write_graph, write_int8_graph):
        write(tmp_path)
        onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)


def write_tensors(path: Path, header: object, size: int) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))


def tensor(start: int, *shape: int, end: int | None = None) -> dict[str, object]:
    offsets = [start, start + 4 * int(np.prod(shape)) if end is None else end]
    return {"dtype": "F32", "shape": list(shape), "data_offsets": offsets}


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"a": tensor(0, 2, 3)}, "holds no MPNet model: KeyError"),
        ({"a": tensor(0, 2, 3, end=20)}, r"shape \(2, 3\) at 0 to 20"),
        ({"a": tensor(0, 99)}, "at 0 to 396"),
        ({"a": tensor(-4, 1)}, "at -4 to 0"),
        ({"a": {"dtype": "F32"}}, "KeyError"),
        ({"a": tensor(0, 2, 0)}, r"shape \(2, 0\) at 0 to 0"),
        # The product would be a list of gigabytes, a text of them, or a number of a million digits.
        ({"a": tensor(0, 1) | {"shape": [2**30, [1]]}}, r"is said to have the shape \[1073741824, \[1\]\]"),
        ({"a": tensor(0, 1) | {"shape": [2**30, "a"]}}, "is said to have the shape"),
        ({"a": tensor(0, 1) | {"shape": [2**60] * 100_000}}, "is said to have the shape"),
        ([1], "AttributeError"),
        (
            {
                "embeddings.word_embeddings.weight": tensor(0, 2, 3),
                "embeddings.position_embeddings.weight": tensor(0, 2, 3),
                "encoder.relative_attention_bias.weight": tensor(0, 3, 3),
                "encoder.layer.0.x": tensor(0, 1),
            },
            "3 buckets of positions, 3 heads and 3 dimensions",
        ),
        (
            {
                "embeddings.word_embeddings.weight": tensor(0, 2, 3),
                "embeddings.position_embeddings.weight": tensor(0, 2, 3),
                "encoder.relative_attention_bias.weight": tensor(0, 32, 1),
                "encoder.layer.0.x": tensor(0, 1),
            },
            "it has no embeddings.LayerNorm.weight",
        ),
    ],
)
def test_other_files_are_refused(header: object, reason: str, tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", header, 200)
    with pytest.raises(PullError, match=reason):
        write_graph(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(PullError, match="no safetensors file"):
        write_int8_graph(tmp_path)


def test_tensors_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    tiny_mpnet(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "encoder.layer.0.attention.attn.q.weight"
    for shape in ((12, 48), (-1,)):
        save_file({**tensors, name: tensors[name].reshape(shape)}, tmp_path / "model.safetensors")
        with pytest.raises(PullError, match="its tensors do not belong together"):
            write_int8_graph(tmp_path)


def test_buckets_are_those_of_transformers() -> None:
    import torch
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    expected = MPNetEncoder.relative_position_bucket(torch.arange(-511, 512))
    np.testing.assert_array_equal(mpnet_graph._buckets(511), expected.numpy())


@pytest.mark.real
def test_real_weights_give_the_vectors_of_sentence_transformers(pulled: Callable[[str], Path], tmp_path: Path) -> None:
    folder = pulled("mpnet")
    sentences = [
        "A man is playing a guitar.",
        "Stock prices fell sharply after the report, analysts said on Tuesday. " * 4,
        "Ein Gürtel aus Leder kostet 12,50 €!",
        "<pad> hello <mask> world",
        "",
    ]
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).symlink_to(folder / name)
    config = {"model_type": "mpnet", "vocab_size": 30527, "hidden_size": 768, "num_hidden_layers": 12}
    config |= {"num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 514}
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["MPNetModel"], "pad_token_id": 1}))
    expected = open_encoder(f"st:{tmp_path}").encode(sentences)
    actual = open_encoder("mpnet").encode(sentences)
    cosines = (actual * expected).sum(1) / np.linalg.norm(actual, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 1 - 1e-5
