"""A tiny Universal Sentence Encoder multilingual with random weights, and a SentencePiece model for it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.support.protobuf import message

ORDERS = (2, 3, 5)
# Text, score, kind: 2 for the unknown piece, 3 for control symbols, 4 for those of the user.
PIECES = [
    *[("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("[X]", 0.0, 4)],
    *[
        ("▁", -3.0, 1),
        ("a", -2.0, 1),
        ("b", -2.5, 1),
        ("▁ab", -2.2, 1),
        (":", -4.0, 1),
        ("ba", -3.5, 1),
        ("é", -5.0, 1),
    ],
]


def double_array(rules: Mapping[str, str]) -> bytes:
    """Return replacements as SentencePiece stores them: a trie in a double array (Darts), then the texts."""
    texts, places = b"", {}
    for key, value in rules.items():
        places[key.encode()] = len(texts)
        texts += value.encode() + b"\0"
    size = 1 << 14
    units = [0] * size
    nodes = [(0, b"")]
    block = 256  # every node's children have 256 units of their own: wasteful, and obvious
    while nodes:
        node, prefix = nodes.pop()
        labels = sorted({key[len(prefix)] for key in places if key.startswith(prefix) and len(key) > len(prefix)})
        distance = node ^ block
        units[node] |= distance << 10
        if prefix in places:
            units[node] |= 0x100
            units[block] = 0x80000000 | places[prefix]
        for label in labels:
            units[block ^ label] = label
            nodes.append((block ^ label, prefix + bytes([label])))
        block += 256
    array = struct.pack(f"<{block}I", *units[:block])
    return struct.pack("<I", len(array)) + array + texts


def write_sentencepiece(
    path: Path, pieces: list[tuple[str, float, int]], rules: Mapping[str, str], kind: int = 1, **spaces: int
) -> None:
    """Write a SentencePiece model of the unigram kind."""
    listed = [(1, message((1, piece), (2, score), (3, what))) for piece, score, what in pieces]
    normalizer: list[tuple[int, int | bytes]] = [
        (2, double_array(rules)),
        (3, spaces.get("prefix", 1)),
        (4, spaces.get("strip", 1)),
    ]
    trainer = message((3, kind), (41, 1), (42, 2))
    path.write_bytes(message(*listed, (2, trainer), (3, message((1, "tiny"), *normalizer))))


def tiny_arrays(seed: int = 0) -> dict[str, NDArray[Any]]:
    """Return arrays with the names of the real file: 34 tokens of 6 dimensions, and vectors of 5 in the end."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[np.float32]:
        return np.asarray(rng.normal(size=shape) / shape[0] ** 0.5, np.float32)

    arrays: dict[str, NDArray[Any]] = {f"q{i}": rng.integers(0, 64, (2, 6), np.uint8) for i in range(1, 18)}
    arrays |= {
        "scale": np.linspace(0.02, 0.05, 17, dtype=np.float32),
        "lo": np.linspace(-1, -0.5, 17, dtype=np.float32),
    }
    arrays |= {"eps": np.array(1e-6), "bits": np.array([6], np.uint8)}  # the last one is in the file and not used
    for n in ORDERS:
        arrays |= {f"proj{n}": normal(6, 4), f"proj_b{n}": normal(4), f"ln_g{n}": normal(4), f"ln_b{n}": normal(4)}
        arrays |= {f"w1_{n}": normal(4 * n, 4), f"b1_{n}": normal(4), f"w2_{n}": normal(4 * n, 4), f"b2_{n}": normal(4)}
    arrays |= {"ln_g": normal(18), "ln_b": normal(18), "cnn_W": normal(18, 7), "cnn_b": normal(7)}
    arrays |= {"d0": normal(7, 3), "d1": normal(3, 8), "p1": normal(7, 8), "d2": normal(8, 4), "p3": normal(8, 5)}
    return arrays | {"d3": normal(4, 5)}


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a compressed npz file."""
    np.savez_compressed(path, **arrays)


def write_use_m3(folder: Path, arrays: Mapping[str, NDArray[Any]] | None = None) -> Path:
    """Write both files; returns the folder."""
    write_arrays(folder / "weights.npz", tiny_arrays() if arrays is None else arrays)
    write_sentencepiece(folder / "sp.model", PIECES, {"ａ": "a", "e\u0301": "é", "\t": " ", "\0": ""})
    return folder


def make_use_m3(folder: Path) -> str:
    """Write a tiny model; returns the encoder's name."""
    return f"use-m3:{write_use_m3(folder)}"
