"""The formats that ensembed writes: models, views, indexes, stores of vectors, checkpoints, caches, exports."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import zlib
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ensembed import Ensemble, load
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.base import PROBES, EncoderSpec
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.model_files import remembered
from ensembed.errors import InputError
from ensembed.methods import GCCA
from ensembed.methods.meta import Layer, Meta, Network, Placement
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.saved_model import SavedModel, write_model
from ensembed.search import Index
from ensembed.support.file_limits import read_json
from ensembed.views import ViewStore
from fuzz.mutations import Files
from fuzz.workers import Format

TEXTS = [
    "A dog runs.",
    "Two dogs are running through the snow.",
    "Prices fell.",
    "A dog runs.",
    "the end",
    "so",
    "12 cats",
]


CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def sha256_of(data: bytes) -> str:
    """Return the hash of some bytes."""
    return hashlib.sha256(data).hexdigest()


def json_seal(facts: Any) -> str:  # noqa: ANN401 - plain JSON
    """Return the hash of facts, however they are laid out."""
    return sha256_of(json.dumps(facts, sort_keys=True).encode())


def content_of(files: Files, name: str) -> bytes:
    """Return the bytes of a file; a TypeError, so that nothing is repaired, if it is none."""
    content = files.get(name)
    if not isinstance(content, bytes):
        raise TypeError(f"{name} is no file")
    return content


# --- Saved models -----------------------------------------------------------------------------------------------------


# Everything that a model may tell about its method.
_TOLD = {
    "weights": [1.0, 0.5],
    "whitened": [1],
    "weights_from": "reliability",
    "decided": "lead",
    "trusted": 0,
    "sure": 0.9,
    "needed": 100,
    "predicts": ["demo"],
    "recall_10": {"member": 0.5, "cheap": 0.6},
    "tuned": {"pairs": 40, "kept": False, "gain": 0.03, "error": 0.01},
    "neighbours_kept": {"2": 0.7},
}


def _make_model(folder: Path) -> None:
    model = Ensemble(["demo?dim=4&seed=1", "demo?dim=3&seed=2"]).fit(TEXTS * 2, GCCA(dim=3))
    meta = replace(model.meta, method={**model.meta.method, **_TOLD})
    MetaEncoder(model.ensemble, meta, corpus=model.corpus).save(folder)


def _make_network(folder: Path) -> None:
    encoders = [DemoEncoder(4, seed=1), DemoEncoder(3, seed=2)]
    rng = np.random.default_rng(0)

    def layer(rows: int, columns: int) -> Layer:
        return Layer(rng.standard_normal((rows, columns), np.float32), rng.standard_normal(columns, np.float32))

    projections = (Network((layer(4, 5), layer(5, 3)), "relu"), Placement(1, 3, 0.5))
    meta = Meta({"name": "ae"}, 4, projections, normalize=True, rows=7)
    members: tuple[EncoderSpec, ...] = tuple(encoder.spec for encoder in encoders)
    write_model(folder, SavedModel(meta, members, tuple(encoder.encode(PROBES) for encoder in encoders), "key"))


def _read_model(folder: Path) -> object:
    model = load(folder)
    vectors = model.encode(TEXTS).tobytes(), model.similarity(TEXTS[:1], TEXTS[1:2]).tobytes()
    return vectors, model.spec.key, shown(model, folder)


def shown(model: MetaEncoder, folder: Path) -> object:
    """Return what notebooks, the server and the hub show of a model."""
    from ensembed.integrations.model_card import model_card
    from ensembed.serve.served_model import ServedModel

    texts = repr(model), str(model), model._repr_html_(), model_card(folder)
    if any(CONTROL.search(text) for text in texts[:2]):
        raise AssertionError("print(model) writes control characters")
    card = json.dumps(ServedModel(model, ["model"]).card(None), allow_nan=False, ensure_ascii=False).encode()
    return [text.replace(str(folder), "") for text in texts], card, model.weights


def repair_model(files: Files) -> None:
    """Make the hash of a saved model right."""
    config = json.loads(content_of(files, "config.json"))
    config.pop("sha256", None)
    seal = sha256_of(json.dumps(config, sort_keys=True).encode() + b"\0" + content_of(files, "model.safetensors"))
    files["config.json"] = json.dumps(config | {"sha256": seal}).encode()


# --- Views ------------------------------------------------------------------------------------------------------------

_CORPUS, _ENCODER = ListCorpus([*TEXTS, "one more", "and another one"]), DemoEncoder(4)


def _make_view(folder: Path) -> None:
    ViewStore(folder, shard_rows=4).embed(_CORPUS, _ENCODER)


def _read_view(folder: Path) -> object:
    view = ViewStore(folder, shard_rows=4).view(_CORPUS, _ENCODER.spec)
    return view[2:7].tobytes(), np.asarray(view).tobytes(), view.damaged(), view.spec.key


def _embed_view(folder: Path) -> object:
    view = ViewStore(folder, shard_rows=4).embed(_CORPUS, _ENCODER, verify=True)
    return np.asarray(view).tobytes(), view.damaged(), sorted(path.name for path in view.folder.iterdir())


def _repair_view(files: Files) -> None:
    for name in list(files):
        match = re.fullmatch(r"(.*/)shard-(\d+)-([0-9a-f]{32})\.npy", name)
        content = files[name]
        if not match or not isinstance(content, bytes):
            continue
        digest = sha256_of(content)[:32]
        files[f"{match[1]}shard-{match[2]}-{digest}.npy"] = files.pop(name)
        manifest = f"{match[1]}manifest.json"
        files[manifest] = content_of(files, manifest).replace(match[3].encode(), digest.encode())
    for name in [name for name in files if name.endswith("manifest.json")]:
        facts = json.loads(content_of(files, name))
        facts.pop("checksum", None)
        facts["checksum"] = sha256_of(json.dumps(facts, sort_keys=True).encode())[:32]
        files[name] = json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n"


# --- Indexes ----------------------------------------------------------------------------------------------------------


def _make_index(folder: Path, rows: int = 12, **settings: Any) -> None:  # noqa: ANN401 - settings of all types
    index = Index.create(folder, "demo?dim=8", **settings)
    index.add([f"text number {i}" for i in range(rows)], metadata=[{"row": i} for i in range(rows)])
    index.add(["a later text"], ["later"])
    index.delete(["3", "4"])
    if settings.get("kind") == "hnsw":
        index.build_graph()


def _read_index(folder: Path, k: int = 20) -> object:
    index = Index.open(folder)
    hits = index.search(["text number 7", "another"], k=k)
    try:
        rows = index.get(["later", "0"])
    except InputError:  # a stranger's index may have other ids
        rows = []
    return [[(hit.id, hit.score, hit.text, hit.metadata) for hit in some] for some in hits], rows


def _verify_index(folder: Path) -> object:
    index = Index.open(folder, verify=True)
    return len(index), _read_index(folder)


def _change_index(folder: Path) -> object:
    index = Index.open(folder)
    index.add(["new"], ["0"], replace=True)
    try:
        index.delete(["later"])
    except InputError:  # a stranger's index may have other ids
        return None
    index.compact()
    index = Index.open(folder, verify=True)
    hits = index.search(["text number 7"], k=20)
    index.change_model("demo?dim=3")
    hits += Index.open(folder, verify=True).search(["text number 7"], k=20)
    return [[(hit.id, hit.score, hit.text, hit.metadata) for hit in some] for some in hits], len(index)


def repair_index(files: Files) -> None:
    """Make the hashes, sizes and checksums of an index right."""
    facts = json.loads(content_of(files, "index.json"))
    for segment in facts["segments"]:
        if not isinstance(segment, dict):
            continue
        named = {content: file["name"] for content, file in segment["files"].items()}
        _repair_places(files, named)
        sums = b""
        for content in ("vectors", "keys", "ids", "places", "codes", "scales"):
            if content in named:
                data = content_of(files, named[content])
                data = data[10 + struct.unpack("<H", data[8:10])[0] :]
                for start in range(0, len(data), 1 << 16):
                    sums += struct.pack("<I", zlib.crc32(data[start : start + (1 << 16)]))
        if "blocks" in named:
            data = content_of(files, named["blocks"])
            files[named["blocks"]] = data[: 10 + struct.unpack("<H", data[8:10])[0]] + sums
    repair_facts(files, facts)
    facts.pop("sha256", None)
    files["index.json"] = json.dumps(facts | {"sha256": json_seal(facts)}, indent=1).encode() + b"\n"


def _repair_places(files: Files, named: dict[str, str]) -> None:
    """Let the places of rows be those of the lines in `records`."""
    lines = content_of(files, named["records"]).splitlines(keepends=True)
    data = content_of(files, named["places"])
    start = 10 + struct.unpack("<H", data[8:10])[0]
    if len(data) - start == 16 * (len(lines) + 1):
        begins = np.cumsum([0, *map(len, lines)])
        sums = [*(zlib.crc32(line) for line in lines), 0]
        files[named["places"]] = data[:start] + np.stack([begins, sums], axis=1).astype("<i8").tobytes()


def repair_facts(files: Files, facts: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    """Make size and hash right wherever a file is described."""
    if isinstance(facts, dict):
        content = files.get(facts["name"]) if isinstance(facts.get("name"), str) else None
        if {"name", "size", "sha256"} <= facts.keys() and isinstance(content, bytes):
            facts |= {"size": len(content), "sha256": sha256_of(content)}
    for item in facts.values() if isinstance(facts, dict) else facts if isinstance(facts, list) else ():
        repair_facts(files, item)


# --- Stores of vectors ------------------------------------------------------------------------------------------------


def _store(name: str) -> Any:  # noqa: ANN401 - a class
    if name == "faiss":
        from ensembed.integrations.faiss import FaissStore

        return FaissStore
    from ensembed.integrations.usearch import UsearchStore

    return UsearchStore


def _make_store(name: str, folder: Path, **settings: Any) -> None:  # noqa: ANN401 - settings of all types
    with _store(name).create(folder, "demo?dim=8", **settings) as store:
        store.add(range(7), [f"text number {i}" for i in range(7)])
    (index,) = folder.glob("index-*")
    index.rename(folder / "index-0123456789abcdef")
    text = (folder / "store.json").read_text().replace(index.name, "index-0123456789abcdef")
    (folder / "store.json").write_text(text)


def _read_store(name: str, folder: Path) -> object:
    with _store(name).open(folder, "demo?dim=8") as store:
        hits = store.search(["text number 5", "another"], k=5)
        return hits.ids.tolist(), hits.scores.tobytes(), len(store)


def _repair_store(files: Files) -> None:
    facts = json.loads(content_of(files, "store.json"))
    facts["sha256"] = sha256_of(content_of(files, facts["index"]))
    files["store.json"] = json.dumps(facts).encode()


def _make_qdrant(folder: Path) -> None:
    from ensembed.integrations.qdrant import QdrantStore

    with QdrantStore.create(folder, "demo?dim=8") as store:
        store.add(range(3), TEXTS[:3])


def _read_qdrant(folder: Path) -> object:
    from ensembed.integrations.qdrant import QdrantStore

    with QdrantStore.open(folder, "demo?dim=8") as store:
        hits = store.search(["A dog ran."], k=2)
        return hits.ids.tolist(), hits.scores.tobytes(), store.texts([0])


def _read_comment(folder: Path) -> object:
    """Open a table of pgvector whose comment is a file."""
    import psycopg

    from ensembed.integrations import pgvector

    class Connection(psycopg.Connection[Any]):
        def __init__(self) -> None:
            pass

        def __del__(self, *_: object) -> None:
            pass

        def transaction(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - a context
            from contextlib import nullcontext

            return nullcontext()

        def execute(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - a cursor
            class Cursor:
                def fetchone(self) -> tuple[bool, str]:
                    # PostgreSQL gives valid text only.
                    path = folder / "comment.json"
                    return True, path.read_text(errors="ignore") if path.is_file() else ""

            return Cursor()

    def identity(self: Any, _: object = None) -> str:  # noqa: ANN401 - a class of psycopg
        return str(self._obj)

    pgvector._adapters.register_vector = lambda _: None
    pgvector.sql.Identifier.as_string = identity
    return pgvector.PgvectorStore.open(Connection(), "demo?dim=8").facts


def _make_comment(folder: Path) -> None:
    settings = {"column": "vector", "index": True, "truncate": None, "ef_search": 100}
    facts = {"format": 1, "backend": "pgvector", "model": "demo?dim=8", "key": DemoEncoder(8).spec.key, "dim": 8}
    (folder / "comment.json").write_text(json.dumps(facts | {"settings": settings}))


# --- Training ---------------------------------------------------------------------------------------------------------


def _train(folder: Path, stop: int | None = None) -> object:
    from ensembed.methods import Autoencoder
    from ensembed.methods.autoencoder import training_loop

    rng = np.random.default_rng(0)
    views = [rng.standard_normal((12, d)).astype(np.float32) for d in (3, 2)]

    def report(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train") and done == stop:
            raise KeyboardInterrupt

    training_loop._KEEP_EVERY = 1e9
    method = Autoencoder(dim=2, epochs=3, batch_size=12, device="cpu", patience=None)
    return method.fit(views, threads=1, checkpoint=folder / "training", progress=report).transform(views).tobytes()


def _make_checkpoint(folder: Path) -> None:
    try:
        _train(folder, stop=3)
    except KeyboardInterrupt:
        return


def _repair_checkpoint(files: Files) -> None:
    from safetensors.numpy import load as load_tensors

    from ensembed.support.training_checkpoint import seal

    data = content_of(files, "training/training.safetensors")
    end = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:end])
    try:
        arrays = load_tensors(data)
    except Exception as error:
        raise ValueError(str(error)) from error
    header["__metadata__"]["sha256"] = seal(arrays, header["__metadata__"]["facts"])
    text = json.dumps(header).encode()
    files["training/training.safetensors"] = struct.pack("<Q", len(text)) + text + data[end:]


# --- Caches -----------------------------------------------------------------------------------------------------------


def _make_word_cache(folder: Path) -> None:
    from make_words import glove_text, small_vectors

    (folder / "vectors.txt").write_bytes(glove_text(small_vectors(80, 4)))
    (folder / "corpus.txt").write_text(
        "".join(f"{text}\n" for text in [*TEXTS, "the dog is not a cat", "two men in snow"])
    )
    _read_word_cache(folder)


def _read_word_cache(folder: Path) -> object:
    from ensembed.encoders import open_encoder

    os.environ["ENSEMBED_CACHE"] = str(folder / "cache")
    name = f"words:{folder}/vectors.txt?pooling=usif&components=2&frequencies=corpus&corpus={folder}/corpus.txt"
    encoder = open_encoder(name)
    return encoder.encode(["the dog runs", "Two men", "well-known snow"]).tobytes()


def _repair_word_cache(files: Files) -> None:
    for name in [name for name in files if re.fullmatch(r"cache/words/[^/]*/manifest\.json", name)]:
        facts = json.loads(content_of(files, name))
        facts.pop("checksum", None)
        for part in facts["files"]:
            content = files.get(f"{Path(name).parent}/{part}")
            if isinstance(content, bytes):
                facts["files"][part] = sha256_of(f"{part} {sha256_of(content)}\n".encode())[:16]
        facts["checksum"] = sha256_of(json.dumps(facts, sort_keys=True).encode())[:16]
        files[name] = json.dumps(facts).encode()


def _remember(folder: Path) -> object:
    """Ask for what is remembered of a file, where the file of the artefact is what is remembered."""
    path = folder.parent / "outside" / "secret"
    name = sha256_of(json.dumps([str(path.resolve()), "test"]).encode())[:32]
    os.environ["ENSEMBED_CACHE"] = str(folder)
    target = folder / "remembered" / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    if os.path.lexists(folder / "entry.json"):
        (folder / "entry.json").rename(target)
    return remembered(path, "test", lambda: "right")


def _make_entry(folder: Path) -> None:
    (folder / "entry.json").write_text(json.dumps({"path": "x", "what": "test", "state": [1, 2, 3], "value": "wrong"}))


# --- Exports and reports ----------------------------------------------------------------------------------------------


def _make_export(folder: Path) -> None:
    from make_onnx import write_onnx

    from ensembed.integrations.onnx import export_model

    write_onnx(folder.parent / "tmp" / "small")
    export_model("onnx:tmp/small?max_length=16", folder)


def _read_export(folder: Path) -> object:
    from ensembed.integrations.onnx import OnnxModel

    return OnnxModel(folder, threads=1).encode(TEXTS).tobytes()


def _repair_export(files: Files) -> None:
    config = json.loads(content_of(files, "config.json"))
    for name in config["sha256"]:
        content = files.get(name)
        if isinstance(content, bytes):
            config["sha256"][name] = sha256_of(content)
    config.pop("seal", None)
    seal = sha256_of(json.dumps(config, sort_keys=True).encode())
    files["config.json"] = json.dumps(config | {"seal": seal}).encode()


def _make_transformer(folder: Path) -> None:
    """A folder that sentence-transformers opens, with two modules of its own behind ours."""
    models: Any = import_module("sentence_transformers.models")
    from ensembed.integrations.sentence_transformers import to_sentence_transformer

    transformer = to_sentence_transformer(
        Ensemble(["demo?dim=4&seed=1", "demo?dim=3&seed=2"]).fit(TEXTS * 2, GCCA(dim=3)), device="cpu"
    )
    transformer.append(models.Dense(in_features=3, out_features=2))
    transformer.append(models.Normalize())
    transformer.save(str(folder))


def _read_transformer(folder: Path) -> object:
    from ensembed.integrations.sentence_transformers import load as load_transformer

    return load_transformer(folder, device="cpu", threads=1).encode(TEXTS, show_progress_bar=False).tobytes()


@dataclass(frozen=True)
class _Note:
    """What an experiment writes down."""

    scores: dict[str, list[float]]
    corpus: str | None


def _take_note(folder: Path) -> object:
    """Ask for the record of an experiment, which is computed again if what is there is damaged."""
    from ensembed.paper.notebook import Notebook

    return Notebook(folder / "notes").record(_Note, ["facts"], lambda: _Note({"sts12": [0.5, 0.25]}, "corpus"))


def _make_note(folder: Path) -> None:
    _take_note(folder)
    (folder / "notes" / ".lock").unlink(missing_ok=True)


def _make_scores(folder: Path) -> None:
    score = {"dataset": "stsb-dev", "protocol": "mean", "pearson": 0.5, "spearman": 0.4}
    scores = {"models": {"m": [score], "demo": [score]}, "provenance": {"ensembed": "0.1"}}
    (folder / "scores.json").write_text(json.dumps(scores))
    _make_model(folder / "model")


def _read_scores(folder: Path) -> object:
    """Do what `ensembed push --scores` does before it talks to the hub."""
    from ensembed.integrations.model_card import model_card

    try:
        scores = read_json(folder / "scores.json")
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: {error}") from error
    return model_card(folder / "model", scores, repo="me/model")


def _make_findings(folder: Path) -> None:
    from sample_findings import sample_findings

    (folder / "findings.json").write_bytes(sample_findings().to_json())


def _read_findings(folder: Path) -> object:
    from ensembed.paper.report.page import earlier_tables

    tables = earlier_tables(folder)
    if any(path.parent != folder / "tables" for path in tables):
        raise AssertionError("a table outside of its folder, which a new report would delete")
    return sorted(tables)


SHOWING = ("ensembed.integrations.model_card", "ensembed.serve.served_model", "huggingface_hub.repocard_data")
# A model with huge weights opens, and fails when it is used; a member may be another file, which is named.
MODEL_NAMES = ("artefact", "values too large", "NaN or Inf", "outside/")

FORMATS: dict[str, Format] = {
    "model": Format(_make_model, _read_model, repair_model, sealed=True, names=MODEL_NAMES, modules=SHOWING),
    "model-network": Format(_make_network, _read_model, repair_model, sealed=True, names=MODEL_NAMES, modules=SHOWING),
    "view": Format(_make_view, _read_view, _repair_view, sealed=True),
    "view-embed": Format(_make_view, _embed_view, _repair_view, sealed=True),
    "index": Format(_make_index, _read_index, repair_index, sealed=True),
    "index-int8": Format(lambda folder: _make_index(folder, dtype="int8"), _read_index, repair_index, sealed=True),
    "index-binary": Format(
        lambda folder: _make_index(folder, dtype="binary"), _verify_index, repair_index, sealed=True
    ),
    "index-change": Format(_make_index, _change_index, repair_index, sealed=True),
    "index-graph": Format(
        lambda folder: _make_index(folder, rows=1100, kind="hnsw"),
        lambda folder: _read_index(folder, k=3),
        repair_index,
        sealed=True,
        modules=("usearch.index",),
    ),
    "store-faiss": Format(
        lambda folder: _make_store("faiss", folder),
        lambda folder: _read_store("faiss", folder),
        _repair_store,
        sealed=True,
        modules=("ensembed.integrations.faiss",),
    ),
    "store-faiss-graph": Format(
        lambda folder: _make_store("faiss", folder, kind="hnsw"),
        lambda folder: _read_store("faiss", folder),
        _repair_store,
        sealed=True,
        modules=("ensembed.integrations.faiss",),
    ),
    "store-usearch": Format(
        lambda folder: _make_store("usearch", folder),
        lambda folder: _read_store("usearch", folder),
        _repair_store,
        sealed=True,
        modules=("ensembed.integrations.usearch",),
    ),
    "store-qdrant": Format(
        _make_qdrant,
        _read_qdrant,
        names=("qdrant", "artefact", "collection"),
        modules=("ensembed.integrations.qdrant",),
        slow=True,
    ),
    "scores": Format(
        _make_scores, _read_scores, names=("artefact", "score"), modules=("ensembed.integrations.model_card",)
    ),
    "pgvector-comment": Format(
        _make_comment,
        _read_comment,
        names=("the pgvector table", "truncate_dim"),
        modules=("ensembed.integrations.pgvector",),
    ),
    "checkpoint": Format(
        _make_checkpoint,
        _train,
        _repair_checkpoint,
        sealed=True,
        names=("training", "autoencoder"),
        parts={"training/training.safetensors|tensors|string:__metadata__/facts": ("json", "bytes")},
        modules=("ensembed.methods.autoencoder.training_loop",),
    ),
    "word-cache": Format(_make_word_cache, _read_word_cache, _repair_word_cache, names=("artefact",)),
    "remembered": Format(_make_entry, _remember, sealed=True),
    "onnx-export": Format(
        _make_export, _read_export, _repair_export, sealed=True, modules=("onnxruntime", "tokenizers")
    ),
    "notes": Format(_make_note, _take_note, modules=("pydantic",)),
    "transformer": Format(
        _make_transformer,
        _read_transformer,
        repair_model,
        names=MODEL_NAMES,
        modules=("ensembed.integrations.sentence_transformers", *SHOWING),
        slow=True,
    ),
    "findings": Format(_make_findings, _read_findings, modules=("ensembed.paper.report.page",)),
}
