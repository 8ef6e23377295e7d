"""Writing graphs: the combiner alone, one graph per member and the combiner, or all in one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ensembed.encoders import Encoder, open_encoder
from ensembed.errors import InputError, ModelError
from ensembed.integrations.onnx.combiner import combine, used_views
from ensembed.integrations.onnx.members import Member, Text, add_member, member_of, read_member, version_of
from ensembed.integrations.onnx.nodes import Nodes, onnx_package
from ensembed.integrations.onnx.reader import CONFIG, KIND, VERSION
from ensembed.methods.meta import Meta
from ensembed.methods.projections import Placement
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.opening import load
from ensembed.support.atomic_files import why_not_writable, write_atomically
from ensembed.support.version import __version__

# Understood by every runtime since the end of 2020.
_OPSET = 13
_IR = 7


def export_meta(meta: Meta, path: str | Path) -> None:
    """Write a fitted meta-embedding as one ONNX graph.

    The inputs `view_0`, `view_1`, ... are the members' vectors, float32 [batch, d_j], for any batch; views that the
    result does not depend on (weight 0) have none. The output `vector` is [batch, d]. What `meta.transform` refuses,
    NaN and Inf, goes through the graph, and a view cannot be left out.

    Args:
        meta: what was fitted: `GCCA(...).fit(views)`, or `model.meta`.
        path: the file to write.

    Raises:
        MissingError: the package `onnx` is not installed.
        ModelError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> from ensembed.methods import Concat
        >>> export_meta(Concat().build([4, 3]), Path(tempfile.mkdtemp()) / "meta.onnx")
    """
    if not isinstance(meta, Meta):
        raise InputError(f"export_meta takes a fitted meta-embedding, such as model.meta, not a {type(meta).__name__}")
    onnx_package()
    _write(Path(path), _combiner(meta))


def export_model(model: Encoder | str | Path, folder: str | Path, *, merged: bool = False) -> None:
    """Write a whole model, whose members are all ONNX encoders, to a folder that `OnnxModel` reads.

    There is a graph per member, `member_0.onnx` and so on: `input_ids` and `attention_mask`, int64 [batch, length], in,
    pooling and scaling done, `vector` out; `combiner.onnx` as of `export_meta`; `tokenizer_0.json` and so on; and
    `config.json`, which says how they go together. Members of weight 0 are left out.

    Args:
        model: a meta-encoder, the folder of a saved one, or an ONNX encoder or its name.
        folder: where to write; it is made. An earlier export is replaced, anything else with a `config.json` is not.
        merged: write one graph `model.onnx` instead, from tokens to the model's vector. Members that cut sentences into
            the same tokens share the inputs; others have a pair each, `input_ids_0`, `attention_mask_0` and so on.

    Raises:
        InputError: a member is no ONNX encoder, or the members' graphs cannot be merged.
        MissingError: the package `onnx` is not installed.
        ModelError: the folder cannot be written to.
    """
    folder = Path(folder)
    onnx_package()
    encoder, meta, encoders = _opened(model)
    places = used_views(meta)
    members = [member_of(encoders[j]) for j in places]
    texts = list(dict.fromkeys(member.text for member in members))
    _check_folder(folder)
    config: dict[str, Any] = {
        "kind": KIND,
        "version": VERSION,
        "ensembed": __version__,
        "name": encoder.spec.name,
        "method": dict(meta.method),
        "dim": meta.dim,
        "texts": [_text_facts(text, f"tokenizer_{t}.json") for t, text in enumerate(texts)],
        "graphs": [],
        "combiner": None if merged else "combiner.onnx",
        "sha256": {},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).unlink(missing_ok=True)  # until it is there again, the folder is no model
        for t, text in enumerate(texts):
            _keep(folder, f"tokenizer_{t}.json", text.tokenizer.encode(), config)
        graphs = [_merged(meta, places, members, texts)] if merged else _separate(places, members, texts)
        for facts, graph in graphs:
            config["graphs"].append(facts)
            _keep(folder, facts["file"], graph.SerializeToString(), config)
        if not merged:
            _keep(folder, "combiner.onnx", _combiner(meta).SerializeToString(), config)
        write_atomically(folder / CONFIG, json.dumps(config, indent=1, ensure_ascii=False).encode() + b"\n")
    except OSError as error:
        raise ModelError(f"cannot write the graphs to {folder}: {error}") from error


def _opened(model: Encoder | str | Path) -> tuple[Encoder, Meta, tuple[Encoder, ...]]:
    """The model, what combines its members, and these; an encoder that has no members is its own."""
    if isinstance(model, Path) or (isinstance(model, str) and model and (Path(model) / CONFIG).is_file()):
        model = load(model)
    elif isinstance(model, str):
        model = open_encoder(model)
    if isinstance(model, MetaEncoder):
        return model, model.meta, model.ensemble.encoders
    if not isinstance(model, Encoder):
        raise InputError(f"export_model takes a model or an encoder, not a {type(model).__name__}")
    dim = model.spec.dim
    return model, Meta({"name": model.spec.name}, dim, (Placement(0, dim),), normalize=False), (model,)


def _check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, or holds something else."""
    if problem := why_not_writable(folder):
        raise ModelError(f"cannot write the graphs to {folder}: {problem}")
    try:
        found = json.loads((folder / CONFIG).read_bytes())
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise ModelError(f"{folder} has a {CONFIG} of something else: choose another folder")


def _combiner(meta: Meta) -> Any:  # noqa: ANN401 - a ModelProto
    nodes = Nodes(_OPSET)
    names = {j: f"view_{j}" for j in used_views(meta)}
    float32 = nodes.onnx.TensorProto.FLOAT
    inputs = [nodes.value(name, float32, ["batch", meta.view_dims[j]]) for j, name in names.items()]
    nodes.add("Identity", combine(nodes, meta, names), output="vector")
    facts = {"ensembed": __version__, "method": json.dumps(meta.method), "view_dims": json.dumps(meta.view_dims)}
    return nodes.model("combiner", inputs, ("vector", meta.dim), ir_version=_IR, facts=facts)


def _separate(places: list[int], members: list[Member], texts: list[Text]) -> Iterator[tuple[dict[str, Any], Any]]:
    """What the configuration says of each member's graph, and the graph; one at a time, as they are large."""
    for j, member in zip(places, members, strict=True):
        prefix = "member/"
        model = read_member(member, prefix)
        nodes = Nodes(version_of(model))
        inputs, ids, mask = _token_inputs(nodes, member.text, "", alone=member.batch == 1)
        vectors = add_member(nodes, member, model.graph, prefix, ids=ids, mask=mask)
        nodes.add("Identity", vectors, output="vector")
        graph = nodes.model(
            f"member {j}",
            inputs,
            ("vector", member.dim),
            versions=_versions(model),
            functions=model.functions,
            ir_version=model.ir_version,
            facts={"ensembed": __version__, "encoder": member.name},
        )
        feeds = [{"text": texts.index(member.text), "input_ids": ids, "attention_mask": mask}]
        yield _graph_facts(f"member_{j}.onnx", [member], feeds) | {"view": f"view_{j}"}, graph


def _merged(meta: Meta, places: list[int], members: list[Member], texts: list[Text]) -> tuple[dict[str, Any], Any]:
    """What the configuration says of the one graph, and the graph."""
    prefixes = [f"member_{j}/" for j in places]
    models = [read_member(member, prefix) for member, prefix in zip(members, prefixes, strict=True)]
    versions: dict[str, int] = {}
    functions: dict[tuple[str, str, str], Any] = {}
    for member, model in zip(members, models, strict=True):
        for domain, version in _versions(model).items():
            if versions.setdefault(domain, version) != version:
                raise InputError(
                    f"member {member.name!r} has ONNX operations {domain!r} of version {version}, one before it of "
                    f"{versions[domain]}: these cannot be one graph; leave merged out"
                )
        for function in model.functions:
            key = (function.domain, function.name, getattr(function, "overload", ""))
            if functions.setdefault(key, function) != function:
                raise InputError(
                    f"member {member.name!r} and one before it have different functions {function.name!r}: these "
                    "cannot be one graph; leave merged out"
                )
    nodes = Nodes(versions[""])
    alone = any(member.batch == 1 for member in members)
    inputs, feeds = [], []
    for t, text in enumerate(texts):
        values, ids, mask = _token_inputs(nodes, text, f"_{t}" if len(texts) > 1 else "", alone=alone)
        inputs += values
        feeds.append({"text": t, "input_ids": ids, "attention_mask": mask})
    views = {}
    for j, member, model, prefix in zip(places, members, models, prefixes, strict=True):
        feed = feeds[texts.index(member.text)]
        views[j] = add_member(
            nodes, member, model.graph, prefix, ids=str(feed["input_ids"]), mask=str(feed["attention_mask"])
        )
    nodes.add("Identity", combine(nodes, meta, views), output="vector")
    graph = nodes.model(
        "model",
        inputs,
        ("vector", meta.dim),
        versions=versions,
        functions=list(functions.values()),
        ir_version=max(model.ir_version for model in models),
        facts={"ensembed": __version__, "method": json.dumps(meta.method)},
    )
    return _graph_facts("model.onnx", members, feeds) | {"view": None}, graph


def _versions(model: Any) -> dict[str, int]:  # noqa: ANN401 - a ModelProto
    """The versions of the operations of each domain; the usual one has two names."""
    return {"" if opset.domain == "ai.onnx" else opset.domain: int(opset.version) for opset in model.opset_import}


def _token_inputs(nodes: Nodes, text: Text, suffix: str, *, alone: bool) -> tuple[list[Any], str, str]:
    """The two inputs of a sentence's tokens, and their names."""
    names = [f"input_ids{suffix}", f"attention_mask{suffix}"]
    shape: list[int | str] = [1 if alone else "batch", text.length or f"length{suffix}"]
    return [nodes.value(name, nodes.onnx.TensorProto.INT64, shape) for name in names], names[0], names[1]


def _text_facts(text: Text, file: str) -> dict[str, Any]:
    return {"tokenizer": file, "prompt": text.prompt, "max_length": text.max_length, "length": text.length}


def _graph_facts(file: str, members: list[Member], feeds: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "file": file,
        "encoders": [member.name for member in members],
        "inputs": feeds,
        "batch": min(member.batch for member in members),
        "padded": all(member.padded for member in members),
    }


def _keep(folder: Path, name: str, data: bytes, config: dict[str, Any]) -> None:
    """Write a file of the folder and note its hash."""
    config["sha256"][name] = hashlib.sha256(data).hexdigest()
    write_atomically(folder / name, data)


def _write(path: Path, model: Any) -> None:  # noqa: ANN401 - a ModelProto
    try:
        write_atomically(path, model.SerializeToString())
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error}") from error
