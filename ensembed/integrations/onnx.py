"""Meta-embeddings and whole models as ONNX graphs, and a reader of them; only writing needs the extra `onnx`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.onnx_encoder import open_session
from ensembed.encoders.token_ids import first_ids, open_tokenizer
from ensembed.errors import DimensionError, EncoderError, InputError, ModelError
from ensembed.integrations import onnx_graphs as graphs
from ensembed.integrations.model_source import as_meta_encoder
from ensembed.integrations.onnx_graphs import Member, Nodes, Operations, Text, used_views
from ensembed.methods.meta import Meta
from ensembed.models.opening import ModelLike, open_model
from ensembed.support.atomic_files import finish_switch, make_folder, why_not_writable, write_atomically, write_output
from ensembed.support.checks import check_whole, sha256_of
from ensembed.support.file_limits import JSON_BYTES, PROMPT_CHARACTERS, open_regular, parse_json, read_json
from ensembed.support.machine import available_cores
from ensembed.support.version import __version__

__all__ = ["OnnxModel", "export_meta", "export_model"]

CONFIG = "config.json"
KIND = "ensembed-onnx"
VERSION = 1
_UNSEALED = {"kind", "version", "ensembed", "name", "method", "dim", "texts", "graphs", "combiner", "sha256"}
_FILES = r"config\.json|tokenizer_\d+\.json|(combiner|model|member_\d+)\.onnx"
_APART = "they cannot be in one graph; leave merged out"
_OPSET = 13  # every runtime since the end of 2020 understands these operations


def export_meta(meta: Meta, path: str | Path) -> None:
    """Write a fitted meta-embedding as one ONNX graph.

    The inputs `view_0`, `view_1`, ... are the members' vectors, float32 [batch, d_j], for any batch; views of weight 0
    have no input. The output `vector` is [batch, d]. NaN and Inf pass through, and no view can be left out.

    Args:
        meta: a fitted meta-embedding: `GCCA(...).fit(views)`, or `model.meta`.
        path: the file to write; one that cannot be written is a ModelError.

    Example:
        >>> import tempfile
        >>> from ensembed.methods import Concat
        >>> export_meta(Concat().build([4, 3]), Path(tempfile.mkdtemp()) / "meta.onnx")
    """
    if not isinstance(meta, Meta):
        raise InputError(f"export_meta takes a fitted meta-embedding, such as model.meta, not a {type(meta).__name__}")
    try:
        write_output(Path(path), _combiner(meta))
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error}") from error


def export_model(model: ModelLike, folder: str | Path, *, merged: bool = False) -> None:
    """Write a whole model, whose members are all ONNX encoders, to a folder that `OnnxModel` reads.

    Each member has a graph `member_0.onnx` from `input_ids` and `attention_mask`, int64 [batch, length], to `vector`,
    and a `tokenizer_0.json`; `combiner.onnx` is that of `export_meta`. Members of weight 0 are left out. Replacing
    `config.json` is the switch from an earlier export: until then new files have their hash in their names.

    Args:
        model: a meta-encoder, the folder of a saved one, or an ONNX encoder or its name; others are an InputError.
        folder: the folder to write; an earlier export is replaced, any other `config.json` is a ModelError.
        merged: write one graph `model.onnx` from tokens to the model's vector; its inputs have numbers if they differ.
    """
    folder = Path(folder)
    graphs.onnx_package()
    encoder = as_meta_encoder(open_model(model))
    meta = encoder.meta
    members = [graphs.member_of(encoder.ensemble.encoders[j], j) for j in used_views(meta)]
    texts = list(dict.fromkeys(member.text for member in members))
    _check_folder(folder)
    config: dict[str, Any] = {"kind": KIND, "version": VERSION, "ensembed": __version__, "name": encoder.spec.name}
    config |= {"method": dict(meta.method), "dim": meta.dim}
    config["texts"] = [text._asdict() | {"tokenizer": f"tokenizer_{t}.json"} for t, text in enumerate(texts)]
    config |= {"graphs": [], "combiner": None if merged else "combiner.onnx", "sha256": {}}

    def write(name: str, data: bytes) -> None:
        config["sha256"][name] = digest = hashlib.sha256(data).hexdigest()
        write_atomically(folder / _new_name(name, digest), data)

    try:
        make_folder(folder)
        with FileLock(folder / ".lock"):
            try:
                for t, text in enumerate(texts):
                    write(f"tokenizer_{t}.json", text.tokenizer.encode())
                for group in [members] if merged else [[member] for member in members]:  # large: one at a time
                    facts, data = _tokens_to_vectors(group, texts, meta if merged else None)
                    config["graphs"].append(facts)
                    write(facts["file"], data)
                if not merged:
                    write("combiner.onnx", _combiner(meta))
                config["seal"] = _seal(config)
                write_atomically(folder / CONFIG, json.dumps(config, indent=1, ensure_ascii=False).encode() + b"\n")
            finally:
                _finish_export(folder)
    except OSError as error:
        raise ModelError(f"cannot write the graphs to {folder}: {error}") from error


def _finish_export(folder: Path) -> None:
    """Give the files of the present configuration their plain names; remove what interrupted exports left."""
    try:
        hashes = dict(_read_config(folder)[0]["sha256"])
    except (ModelError, LookupError, TypeError, ValueError):  # no export that could be kept
        hashes = {}
    finish_switch(folder, _FILES, {name: str(digest) for name, digest in hashes.items()})


def _check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, or that holds something else."""
    if problem := why_not_writable(folder):
        raise ModelError(f"cannot write the graphs to {folder}: {problem}")
    try:
        config = read_json(folder / CONFIG)
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        config = None
    if not isinstance(config, dict) or config.get("kind") != KIND:
        raise ModelError(f"{folder} has a {CONFIG} of something else: choose another folder")


def _combiner(meta: Meta) -> bytes:
    nodes = Nodes(_OPSET)
    names = {j: f"view_{j}" for j in used_views(meta)}
    float32 = nodes.onnx.TensorProto.FLOAT
    inputs = [nodes.value(name, float32, ["batch", meta.view_dims[j]]) for j, name in names.items()]
    facts = {"ensembed": __version__, "method": json.dumps(meta.method), "view_dims": json.dumps(meta.view_dims)}
    model = nodes.model("combiner", inputs, (graphs.combine(nodes, meta, names), meta.dim), facts)
    data: bytes = model.SerializeToString()
    return data


def _tokens_to_vectors(members: list[Member], texts: list[Text], meta: Meta | None) -> tuple[dict[str, Any], bytes]:
    """Return the entry in the configuration of a graph from tokens to vectors (combined by `meta`), and the graph."""
    models = [graphs.read_member(member) for member in members]
    operations = _common_operations(members, models)
    nodes = Nodes(operations.versions[""])
    batch: int | str = 1 if any(member.batch == 1 for member in members) else "batch"
    used = [t for t, text in enumerate(texts) if any(member.text == text for member in members)]
    inputs, feeds = [], {}
    for t in used:
        suffix = f"_{t}" if len(used) > 1 else ""
        names = [f"input_ids{suffix}", f"attention_mask{suffix}"]
        shape = [batch, texts[t].length or f"length{suffix}"]
        inputs += [nodes.value(name, nodes.onnx.TensorProto.INT64, shape) for name in names]
        feeds[texts[t]] = {"text": t, "input_ids": names[0], "attention_mask": names[1]}
    views = {}
    for member, model in zip(members, models, strict=True):
        feed = feeds[member.text]
        ids, mask = str(feed["input_ids"]), str(feed["attention_mask"])
        views[member.place] = graphs.add_member(nodes, member, model.graph, ids=ids, mask=mask)
    facts = {
        "file": f"member_{members[0].place}.onnx" if meta is None else "model.onnx",
        "encoders": [member.spec.name for member in members],
        "inputs": list(feeds.values()),
        "batch": min(member.batch for member in members),
        "padded": all(member.padded for member in members),
        "view": f"view_{members[0].place}" if meta is None else None,
    }
    if meta is None:
        name, vectors = f"member {members[0].place}", (views[members[0].place], members[0].spec.dim)
        metadata = {"ensembed": __version__, "encoder": members[0].spec.name}
    else:
        name, vectors = "model", (graphs.combine(nodes, meta, views), meta.dim)
        metadata = {"ensembed": __version__, "method": json.dumps(meta.method)}
    return facts, nodes.model(name, inputs, vectors, metadata, operations).SerializeToString()


def _common_operations(members: list[Member], models: list[Any]) -> Operations:
    """Return the operations of several models; raise an InputError if one graph cannot have them all."""
    versions: dict[str, int] = {}
    functions: dict[tuple[str, str, str], Any] = {}
    for member, model in zip(members, models, strict=True):
        for domain, version in graphs.versions_of(model).items():
            if versions.setdefault(domain, version) != version:
                problem = f"ONNX operations {domain!r} of version {version}, one before it of {versions[domain]}"
                raise InputError(f"member {member.spec.name!r} has {problem}: {_APART}")
        for function in model.functions:
            key = (function.domain, function.name, getattr(function, "overload", ""))
            if functions.setdefault(key, function) != function:
                problem = f"have different functions {function.name!r}"
                raise InputError(f"member {member.spec.name!r} and one before it {problem}: {_APART}")
    return Operations(versions, list(functions.values()), max(model.ir_version for model in models))


class OnnxModel(Encoder):
    """An encoder that `export_model` has written. It never pads: sentences with the same number of tokens run together.

    Args:
        folder: the exported folder; any other, or a damaged one, is a ModelError.
        threads: threads per run; None takes all cores. Graphs that round their activations run on one.
    """

    def __init__(self, folder: str | Path, *, threads: int | None = None) -> None:
        if threads is not None:
            check_whole("threads", threads, 1)
        folder = Path(folder)
        before = None
        while True:
            config, digest = _read_config(folder)
            try:
                self._open(folder, config, digest, threads)
            except ModelError:
                if digest == before:
                    raise
                before = digest  # another process may have exported to the folder meanwhile: read again
            else:
                break

    def _open(self, folder: Path, config: dict[str, Any], digest: str, threads: int | None) -> None:
        try:
            files = _checked_files(folder, config["sha256"])
            self._texts = [_Tokens(files[text["tokenizer"]], text) for text in config["texts"]]
            threads = threads or available_cores()
            self._graphs = [_Graph(files[graph["file"]], graph, threads) for graph in config["graphs"]]
            name = config["combiner"]
            self._combiner = None if name is None else open_session(files[name], 1, folder.name)
            dim = (self._combiner or self._graphs[0].session).get_outputs()[0].shape[1]
            recorded = config["dim"]
            self._spec = EncoderSpec(str(config["name"]), KIND, dim, digest[:16], pooling=str(config["method"]["name"]))
        except (ArithmeticError, AttributeError, EncoderError, LookupError, TypeError, ValueError) as error:
            raise ModelError(f"{folder / CONFIG} is damaged: {error!r}; export again") from error
        if recorded != dim:
            raise ModelError(f"{folder / CONFIG} is damaged: its dim is {recorded!r}, the graph's {dim}; export again")

    def truncate(self, k: int) -> NoReturn:
        """Raise a DimensionError: an export does not know the leading dimensions of its model."""
        raise DimensionError(
            f"an exported model cannot be truncated to {k} dimensions, because the first are not always the best: "
            f"export the shorter model, export_model(model.truncate({k}), FOLDER)"
        )

    def shorten(self, vectors: FloatArray, k: int) -> FloatArray:
        """Return all dimensions; fewer are a DimensionError, as for `truncate`."""
        return vectors if k == self.dim else self.truncate(k)

    def embed(self, sentences: list[str]) -> FloatArray:
        """Run the tokenizers, the members' graphs and the combiner."""
        tokens = [text.ids(sentences) for text in self._texts]
        views = {graph.view: graph.run(tokens, self._texts) for graph in self._graphs}
        if self._combiner is None:
            return next(iter(views.values()))
        return np.asarray(self._combiner.run(["vector"], views)[0])


class _Tokens:
    """The tokenizer of one or several graphs."""

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self._tokenizer = open_tokenizer(path, path.parent.name)
        if not isinstance(facts["prompt"], str) or len(facts["prompt"]) > PROMPT_CHARACTERS:
            raise ValueError(f"a prompt is no text of at most {PROMPT_CHARACTERS:,} characters")
        self._prompt, self._max_length, self.length = facts["prompt"], facts["max_length"], facts["length"]
        self._tokenizer.enable_truncation(self._max_length)

    def ids(self, sentences: list[str]) -> list[list[int]]:
        return first_ids(self._tokenizer, [self._prompt + sentence for sentence in sentences], self._max_length)


class _Graph:
    """A graph from tokens to vectors."""

    def __init__(self, path: Path, facts: Mapping[str, Any], threads: int) -> None:
        self.view: str = facts["view"] or "vector"
        self._inputs = [(feed["text"], feed["input_ids"], feed["attention_mask"]) for feed in facts["inputs"]]
        self._batch: int = facts["batch"]
        threads = 1 if self._batch == 1 else threads
        self.session = open_session(path, threads, path.parent.name)

    def run(self, tokens: Sequence[list[list[int]]], texts: Sequence[_Tokens]) -> FloatArray:
        """Return the vectors [n, d] of n sentences, whose tokens are given for each text."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for row in range(len(tokens[0])):
            # A graph takes at least one token; that of a sentence without any is masked.
            lengths = tuple(max(len(tokens[t][row]), 1) for t, _, _ in self._inputs)
            groups.setdefault(lengths, []).append(row)
        vectors: dict[int, FloatArray] = {}
        for lengths, rows in groups.items():
            for start in range(0, len(rows), self._batch):
                batch = rows[start : start + self._batch]
                feeds: dict[str, NDArray[np.int64]] = {}
                for (t, ids_name, mask_name), length in zip(self._inputs, lengths, strict=True):
                    ids = np.zeros((len(batch), texts[t].length or length), np.int64)
                    mask = np.zeros_like(ids)
                    for i, row in enumerate(batch):
                        ids[i, : len(tokens[t][row])] = tokens[t][row]
                        mask[i, : len(tokens[t][row])] = 1
                    feeds |= {ids_name: ids, mask_name: mask}
                vectors |= dict(zip(batch, self.session.run(["vector"], feeds)[0], strict=True))
        return np.stack([vectors[row] for row in range(len(vectors))])


def _read_config(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the configuration and its hash."""
    try:
        with open_regular(folder / CONFIG) as file:
            data = file.read(JSON_BYTES + 1)
        config = parse_json(data)
    except FileNotFoundError:
        raise ModelError(f"{folder} is not an exported model: {CONFIG} is missing; export it again") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / CONFIG} cannot be read: {error}") from error
    if not isinstance(config, dict) or config.get("kind") != KIND:
        raise ModelError(f"{folder} is not an exported model: its {CONFIG} is of another kind")
    if config.get("version") != VERSION:
        raise ModelError(f"{folder} has format {config.get('version')!r}; this ensembed reads {VERSION}: upgrade it")
    # Exports of version 0.1 have no seal.
    if not (config.keys() == _UNSEALED or config.pop("seal", None) == _seal(config)):
        raise ModelError(f"{folder / CONFIG} is damaged: its content does not fit its hash; export again")
    return config, hashlib.sha256(data).hexdigest()


def _seal(config: Mapping[str, Any]) -> str:
    """Return the hash of a configuration, however it is laid out."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _checked_files(folder: Path, hashes: Mapping[str, str]) -> dict[str, Path]:
    """Return the files by name, after comparing their hashes; those of an export that was killed may have new names."""
    files = {}
    for name, digest in hashes.items():
        if name != Path(name).name or "\\" in name or not name.strip("."):
            raise ValueError(f"{name!r} is no file of the folder")
        try:
            files[name] = folder / _new_name(name, re.sub("[^0-9a-f]", "", digest))
            if not files[name].exists():
                files[name] = folder / name
            unchanged = sha256_of(files[name]) == digest
        except OSError as error:
            raise ModelError(f"{folder / name} cannot be read: {error.strerror or error}; export again") from error
        if not unchanged:
            raise ModelError(f"{folder / name} has changed since it was written: export again")
    return files


def _new_name(name: str, digest: str) -> str:
    return f"{Path(name).stem}-{digest[:16]}{Path(name).suffix}"
