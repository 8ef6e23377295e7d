"""A tiny Universal Sentence Encoder lite with random weights, in the files of the TF.js release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KONA = "module_apply_default/Encoder_en/KonaTransformer"
STACK = f"{KONA}/Encode/TransformerStack"
HEADS = f"{STACK}/Layer_1/TransformerLayer/MultiheadAttention/split_heads/split_last_dimension/Reshape/shape/2"
TINY_VOCABULARY = [
    *[(f"reserved {i}", 0) for i in range(6)],
    *[("▁", -3.0), ("a", -2.0), ("b", -2.5), ("▁ab", -2.2), (":", None), ("ba", -3.5)],
]


def tiny_constants(seed: int = 0) -> dict[str, NDArray[Any]]:
    """Constants with the names of the real graph: 8 wide, then 12, 4 heads, 5 dimensions, 16 pieces at the most."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.normal(size=shape).astype(np.float32)

    constants: dict[str, NDArray[Any]] = {
        "module/Embeddings_en": normal(14, 8),
        f"{STACK}/Layer_0/AddTimingSignal/TimingSignal/ExpandDims_1": np.array([[1, 0.1, 0.01, 0.001]], np.float32),
        f"{STACK}/Layer_1/TransformerLayer/FFN/layer_prepostprocess/layer_norm/Cast/x": np.array(1e-6, np.float32),
        f"{KONA}/ClipToMaxLength/Less/y": np.array(16, np.int32),
        # Small, so that the tanh is not saturated: then all sentences would have the same vector.
        "module/Encoder_en/hidden_layers/tanh_layer_0/weights": normal(12, 5) / 50,
        "module/Encoder_en/hidden_layers/tanh_layer_0/bias": normal(5),
        "module_apply_default/Encoder_en/hidden_layers/l2_normalize/Maximum/y": np.array(1e-12, np.float32),
        HEADS: np.array(4, np.int32),
        f"{KONA}/Encode/Layer_0/TransformerLayer/dense/kernel/ConcatPartitions/concat": normal(8, 12),
        f"{KONA}/Encode/Layer_0/TransformerLayer/dense/bias/ConcatPartitions/concat": normal(12),
    }
    for layer, width in enumerate([8, 12]):
        variables = f"{KONA}/Encode/Layer_{layer}/TransformerLayer"
        attention = f"module/Encoder_en/KonaTransformer/Encode/Layer_{layer}/TransformerLayer/MultiheadAttention"
        graph = f"{STACK}/Layer_{layer}/TransformerLayer"
        named = {
            f"{attention}/qkv_transform_single/kernel/part_0": normal(1, 1, width, 3 * width),
            f"{attention}/output_transform_single/kernel/part_0": normal(1, 1, width, 12),
            f"{graph}/MultiheadAttention/mul/y": np.array((width // 4) ** -0.5, np.float32),
            f"{graph}/FFN/conv1/Tensordot/Reshape_1": normal(12, 20),
            f"{graph}/FFN/conv2/Tensordot/Reshape_1": normal(20, 12),
        }
        for name, size in {
            "MultiheadAttention/qkv_transform_single/bias": 3 * width,
            "MultiheadAttention/output_transform_single/bias": 12,
            "layer_prepostprocess/layer_norm/layer_norm_scale": width,
            "layer_prepostprocess/layer_norm/layer_norm_bias": width,
            "FFN/layer_prepostprocess/layer_norm/layer_norm_scale": 12,
            "FFN/layer_prepostprocess/layer_norm/layer_norm_bias": 12,
            "FFN/conv1/bias": 20,
            "FFN/conv2/bias": 12,
        }.items():
            named[f"{variables}/{name}/ConcatPartitions/concat"] = normal(size)
        constants |= named
    return constants


def write_use_lite(folder: Path, constants: dict[str, NDArray[Any]]) -> Path:
    """Write the constants as a TF.js graph model of two shards, the first of which ends within a number."""
    weights = [{"name": name, "shape": list(a.shape), "dtype": str(a.dtype)} for name, a in constants.items()]
    data = b"".join(array.tobytes() for array in constants.values())
    manifest = [{"paths": ["group1-shard1of2", "group1-shard2of2"], "weights": weights}]
    (folder / "group1-shard1of2").write_bytes(data[:1001])
    (folder / "group1-shard2of2").write_bytes(data[1001:])
    (folder / "model.json").write_text(json.dumps({"modelTopology": {}, "weightsManifest": manifest}))
    (folder / "vocab.json").write_text(json.dumps(TINY_VOCABULARY))
    return folder


def make_use_lite(folder: Path) -> str:
    """Write a tiny model; returns the encoder's name."""
    return f"use-lite:{write_use_lite(folder, tiny_constants())}?max_length=16"
