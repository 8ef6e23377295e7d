"""What `distil` reads and writes: jobs, their trainings, students, teachers' vectors, and BERTs to start from."""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders import open_encoder
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.support.progress import silent
from ensembed.views import ViewStore
from fuzz.mutations import Files
from fuzz.own_formats import content_of, sha256_of
from fuzz.workers import Format

_PARTS = (("a man", "two dogs", "cats"), ("run", "runs so", "a guitar"), ("the snow", "a stock", "so"), (".", "a dog"))
_SENTENCES = [" ".join(words) for words in itertools.product(*_PARTS, ("", "and cats"))]
_CORPUS, _TEACHER = ListCorpus(_SENTENCES), DemoEncoder(dim=8)
_TEXTS = ["two dogs run the snow", "a guitar", "", "é 12"]
_STEPS = 30  # of a training: a stranger's job may have any number of them


def _plan(folder: Path, student: str) -> Any:  # noqa: ANN401 - a Plan: the module takes long to import
    from ensembed.distil.distillation import Plan

    how: dict[str, Any] = {"epochs": 2, "batch_size": 32, "dim": 4, "leading": (2,)}
    if student == "bert":
        from make_st import write_st

        return Plan(student=f"st:{write_st(folder.parent / 'tmp' / 'bert')}?layers=1", **how)
    from make_static import small_tokenizer

    tokenizer = folder.parent / "tmp" / "tokenizer.json"
    small_tokenizer().save(str(tokenizer))
    return Plan(start=("none",), tokenizer=tokenizer, **how)


# --- Jobs and their trainings -----------------------------------------------------------------------------------------


def _make_job(student: str, folder: Path) -> None:
    from ensembed.distil.distillation import prepare

    prepare(_TEACHER, _CORPUS, _plan(folder, student), folder, store=ViewStore(folder.parent / "tmp" / "views"))


def _train(folder: Path, stop: int = _STEPS) -> object:
    """Train a job as another machine would, at most so many steps."""
    from ensembed.distil.distil_job import Job
    from ensembed.distil.student_training import train, write_trained

    def report(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train ·") and done >= stop:
            raise KeyboardInterrupt

    job = Job.open(folder)
    try:
        trained = train(job, device="cpu", threads=1, progress=report, keep_every=0)
    except KeyboardInterrupt:
        return "interrupted"
    write_trained(job, trained)
    # A network's products differ in the last bit with the place of its arrays in memory.
    exact = job.facts["student"] == "static"
    weights = {name: array.tobytes() if exact else array.shape for name, array in trained.weights.items()}
    return weights, trained.facts["sentences"], trained.facts["held_out"]


def _make_checkpoint(folder: Path) -> None:
    _make_job("static", folder)
    if _train(folder, stop=2) != "interrupted" or not (folder / "training.safetensors").exists():
        raise AssertionError("there is no checkpoint")


def _repair_job(files: Files) -> None:
    from ensembed.distil.distil_job import seal

    facts = json.loads(content_of(files, "job.json"))
    facts.pop("seal", None)
    for name in facts["sha256"]:
        facts["sha256"][name] = sha256_of(content_of(files, name))
    identity = seal(facts)
    files["job.json"] = json.dumps(facts | {"seal": identity}).encode()
    if "result.json" in files:
        result = json.loads(content_of(files, "result.json"))
        result.pop("sha256", None)
        result["job"] = identity[:32]
        result["sha256"] = seal(result, content_of(files, "trained.safetensors"))
        files["result.json"] = json.dumps(result).encode()
    if "training.safetensors" in files:
        _repair_training(files, identity[:32])


def _repair_training(files: Files, identity: str) -> None:
    import torch
    from safetensors import SafetensorError
    from safetensors.numpy import load

    from ensembed.support.training_checkpoint import seal

    data = content_of(files, "training.safetensors")
    end = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:end])
    try:
        arrays = load(data)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    facts = header["__metadata__"]
    facts |= {"identity": f"{identity} cpu {torch.__version__}", "sha256": seal(arrays, facts["facts"])}
    text = json.dumps(header).encode()
    files["training.safetensors"] = struct.pack("<Q", len(text)) + text + data[end:]


def _make_trained(student: str, folder: Path) -> None:
    _make_job(student, folder)
    _train(folder)


def _save_trained(folder: Path) -> object:
    """Do what `distil --trained` does; the student's files are the answer."""
    from ensembed.distil.distillation import save_trained

    return dict(save_trained(folder, folder.parent / "tmp" / "student").files)


# --- Students and BERTs to start from ---------------------------------------------------------------------------------


def _make_student(student: str, precision: str, folder: Path) -> None:
    from ensembed.distil.distillation import distil

    plan = replace(_plan(folder, student), precision=precision)
    out = folder.parent / "tmp" / "student"
    distil(_TEACHER, _CORPUS, plan, out, store=ViewStore(folder.parent / "tmp" / "views"), threads=1)
    for path in out.iterdir():
        path.rename(folder / path.name)


def _read_student(folder: Path) -> object:
    """Open a static student, and ask whether another one may take its place."""
    from ensembed.distil.distillation import is_student

    encoder = open_encoder(f"model2vec:{folder}", threads=1)
    return encoder.encode(_TEXTS).tobytes(), is_student(folder)


def _export_student(folder: Path) -> object:
    """Write the graph of a transformer student, as `distil --onnx` does, and open it."""
    from ensembed.integrations.onnx_bert import export_bert

    out = folder.parent / "tmp" / "graphs"
    export_bert(folder, out, int8=False)
    return open_encoder(f"onnx:{out}", threads=1).encode(_TEXTS).tobytes()


def _make_bert(folder: Path) -> None:
    from make_st import write_st

    write_st(folder / "model")


def _start(name: str, folder: Path) -> object:
    """Open what a transformer student starts from: its tokens and its first weights."""
    from ensembed.distil.distillation import Plan
    from ensembed.distil.student_sources import BertSource

    source = BertSource(Plan(student=name.format(folder=folder)), threads=1, progress=silent)
    weights = source.start(folder, 0, ViewStore(folder.parent / "tmp" / "views"), silent)
    arrays = {name: array.tobytes() for name, array in weights.items()}
    return source.token_ids(_TEXTS), arrays, dict(source.facts), source.max_length


def _make_bert_graph(folder: Path) -> None:
    """The graph of a BERT, in which nodes and weights have the names that torch's export gives them."""
    import onnx
    from make_st import write_st
    from safetensors.numpy import load_file, save_file

    from ensembed.distil.bert_files import read_bert
    from ensembed.integrations.onnx_bert import export_bert

    place = write_st(folder.parent / "tmp" / "bert")
    rng = np.random.default_rng(1)
    first = load_file(place / "model.safetensors")
    drawn = {name: rng.standard_normal(array.shape, np.float32) for name, array in first.items()}
    save_file(drawn, place / "model.safetensors")  # no two of them are equal: weights are found by their content below
    export_bert(place, folder, int8=False)
    tensors = read_bert(place).tensors
    named = {array.tobytes(): name for name, array in tensors.items()}
    matrices = {np.ascontiguousarray(tensors[name].T).tobytes(): name for name in tensors if ".dense.w" in name}
    matrices |= {np.ascontiguousarray(tensors[name].T).tobytes(): name for name in tensors if ".self." in name}
    model = onnx.load(str(folder / "model.onnx"))
    renamed, layers = dict[str, str](), dict[str, str]()
    for tensor in model.graph.initializer:
        content = onnx.numpy_helper.to_array(tensor).tobytes()
        if (name := named.get(content)) is not None:
            renamed[tensor.name] = tensor.name = name
        elif (name := matrices.get(content)) is not None:
            layers[tensor.name] = "/" + name.removesuffix(".weight").replace(".", "/").replace("layer/", "layer.")
    types = "embeddings.token_type_embeddings.weight"
    model.graph.initializer.append(onnx.numpy_helper.from_array(tensors[types], types))
    for node in model.graph.node:
        node.name = next((f"{layers[name]}/MatMul" for name in node.input if name in layers), node.name)
        node.input[:] = [renamed.get(name, name) for name in node.input]
    (folder / "model.onnx").write_bytes(model.SerializeToString())


# --- Teachers ---------------------------------------------------------------------------------------------------------


def _make_vectors(folder: Path) -> None:
    np.save(folder / "vectors.npy", _TEACHER.encode(_SENTENCES))


def _teach(folder: Path) -> object:
    """Prepare a job from a file of vectors, as `distil vectors.npy` does."""
    from ensembed.distil.distillation import prepare

    job = prepare(folder / "vectors.npy", _CORPUS, _plan(folder, "static"), folder.parent / "tmp" / "job")
    return job.identity, np.asarray(job.targets).tobytes()


_TORCH = ("torch", "ensembed.distil.distillation", "ensembed.distil.student_training")
_BERT = (*_TORCH, "ensembed.distil.bert_student", "onnx", "onnxruntime")

_TRAINED = ("artefact", "learning_rate=")  # a training may diverge

FORMATS: dict[str, Format] = {
    "distil-job": Format(
        partial(_make_job, "static"),
        _train,
        _repair_job,
        sealed=True,
        names=_TRAINED,
        modules=(*_TORCH, "ensembed.distil.static_student"),
    ),
    "distil-job-bert": Format(
        partial(_make_job, "bert"), _train, _repair_job, sealed=True, names=_TRAINED, modules=_BERT, slow=True
    ),
    "distil-checkpoint": Format(
        _make_checkpoint,
        _train,
        _repair_job,
        sealed=True,
        names=_TRAINED,
        parts={"training.safetensors|tensors|string:__metadata__/facts": ("json", "bytes")},
        modules=(*_TORCH, "ensembed.distil.static_student"),
    ),
    "distil-trained": Format(partial(_make_trained, "static"), _save_trained, _repair_job, sealed=True, modules=_TORCH),
    "distil-trained-bert": Format(
        partial(_make_trained, "bert"), _save_trained, _repair_job, sealed=True, modules=_BERT
    ),
    "student-static": Format(partial(_make_student, "static", "int8"), _read_student, modules=("tokenizers",)),
    "student-bert": Format(partial(_make_student, "bert", "float32"), _export_student, modules=_BERT),
    "bert-folder": Format(_make_bert, partial(_start, "st:{folder}/model?layers=1"), modules=_BERT),
    "bert-graph": Format(_make_bert_graph, partial(_start, "onnx:{folder}"), modules=_BERT),
    "teacher-vectors": Format(
        _make_vectors, _teach, names=("artefact", "the teacher's vectors"), modules=("ensembed.distil.distillation",)
    ),
}
