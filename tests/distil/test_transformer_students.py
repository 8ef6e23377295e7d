"""Transformer students: the network, layers, training, and the saved folder under st: and onnx:."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from distil_cases import CORPUS, SENTENCES, TEACHER
from make_st import write_st
from safetensors.numpy import load_file, save_file

from ensembed.corpora.corpus import ListCorpus
from ensembed.distil import bert_student, student_sources
from ensembed.distil.bert_files import read_bert
from ensembed.distil.bert_student import same_vectors
from ensembed.distil.distillation import Plan, distil, prepare
from ensembed.distil.student_sources import open_bert
from ensembed.distil.student_training import train
from ensembed.encoders import open_encoder
from ensembed.errors import EncoderError, InputError, ModelError
from ensembed.integrations.onnx_bert import export_bert
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.progress import silent
from ensembed.views import ViewStore

PLAN: dict[str, Any] = {"epochs": 4, "batch_size": 32, "learning_rate": 1e-3, "dim": 12}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_st(tmp_path_factory.mktemp("bert") / "model")


def cosines(X: Any, Y: Any) -> Any:  # noqa: ANN401 - arrays
    return np.einsum("ij,ij->i", unit_rows(X), unit_rows(Y))


def test_the_network_is_that_of_transformers(bert: Path) -> None:
    assert same_vectors(read_bert(bert), open_encoder(f"st:{bert}"))
    assert not same_vectors(read_bert(bert).with_layers(1), open_encoder(f"st:{bert}"))


def test_a_student_learns_and_opens_everywhere(bert: Path, tmp_path: Path) -> None:
    """Half of the layers; sentence-transformers, our network, ONNX in float32 and int8 give the same vectors."""
    out, graphs, store = tmp_path / "out", tmp_path / "onnx", ViewStore(tmp_path / "store")
    student = distil(TEACHER, CORPUS, Plan(student=f"st:{bert}?layers=1", **PLAN), out, store=store, threads=1)
    start, best = student.result["start"], student.result["best"]
    assert best["spearman"] > start["spearman"]
    assert best["overlap"] > start["overlap"]
    assert json.loads((out / "config.json").read_text())["num_hidden_layers"] == 1
    assert "A BERT of 1 layer with" in (out / "README.md").read_text()
    texts = [*SENTENCES[:20], "dogs " * 30]
    vectors = open_encoder(f"st:{out}").encode(texts)
    assert vectors.shape == (21, 12)
    export_bert(out, graphs)
    assert cosines(vectors, open_encoder(f"onnx:{graphs}").encode(texts)).min() > 1 - 1e-4
    assert cosines(vectors, open_encoder(f"onnx:{graphs}?file=model_quantized.onnx").encode(texts)).min() > 0.95
    again = distil(TEACHER, CORPUS, Plan(student=f"st:{out}", **{**PLAN, "epochs": 1}), tmp_path / "2", store=store)
    assert again.facts["bert"]["num_hidden_layers"] == 1  # a student may start from a student
    export_bert(out, graphs)  # over an earlier export
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "model.onnx").write_bytes(b"the user's own graph")
    for other in (bert, tmp_path / "own"):
        with pytest.raises(ModelError, match="it holds other files"):
            export_bert(out, other)
    assert (tmp_path / "own" / "model.onnx").read_bytes() == b"the user's own graph"


@pytest.mark.parametrize("padding", ["<pad>", "nothing"])
def test_a_student_of_a_bert_with_other_special_tokens_pads_sentences(padding: str, bert: Path, tmp_path: Path) -> None:
    """Multilingual BERTs have RoBERTa's tokens: padding with BERT's is a token beyond their vocabulary."""
    other = shutil.copytree(bert, tmp_path / "other")
    names = {"[PAD]": padding, "[UNK]": "<unk>", "[CLS]": "<s>", "[SEP]": "</s>"}
    for file in (other / "tokenizer.json", other / "tokenizer_config.json"):
        text = file.read_text()
        for old, new in names.items():
            text = text.replace(old, new)
        file.write_text(text)
    out, plan = tmp_path / "out", Plan(student=f"st:{other}", **{**PLAN, "epochs": 1})
    distil(TEACHER, CORPUS, plan, out, store=ViewStore(tmp_path / "store"), threads=1)
    encoder, texts = open_encoder(f"st:{out}"), ["a man", "two dogs run so a guitar in the snow"]
    alone = np.vstack([encoder.encode([text]) for text in texts])
    assert cosines(encoder.encode(texts), alone).min() > 1 - 1e-5
    about = json.loads((out / "tokenizer_config.json").read_text())
    assert [about[f"{role}_token"] for role in ("pad", "unk", "cls", "sep")] == list(names.values())


def test_an_interrupted_training_goes_on_to_the_same_bits(bert: Path, tmp_path: Path) -> None:
    plan, store = Plan(student=f"st:{bert}", **{**PLAN, "epochs": 2}), ViewStore(tmp_path / "store")
    whole = train(prepare(TEACHER, CORPUS, plan, tmp_path / "whole", store=store), threads=1)
    job = prepare(TEACHER, CORPUS, plan, tmp_path / "job", store=store)

    def stop(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train ·") and done == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(job, threads=1, keep_every=0, progress=stop)
    steps: list[int] = []
    again = train(job, threads=1, progress=lambda _label, done, _total: steps.append(done))
    assert steps[0] > 4
    assert again.best == whole.best
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(again.weights[name], weights)


def test_folders_that_are_no_bert(bert: Path, tmp_path: Path) -> None:
    config = json.loads((bert / "config.json").read_text())
    tensors = load_file(bert / "model.safetensors")
    name = "encoder.layer.1.output.dense.weight"
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"model_type": "gpt2"}, {}, "of type 'gpt2'"),
        ({"hidden_act": "relu"}, {}, "with 'relu'"),
        ({"position_embedding_type": "relative_key"}, {}, "relative_key"),
        ({"num_hidden_layers": 3}, {}, r"encoder.layer.2.* is missing"),
        ({"num_attention_heads": 5}, {}, "5 heads and 32 units are no BERT"),
        ({"num_hidden_layers": "two"}, {}, "'two' layers"),
        ({"num_hidden_layers": 10**9}, {}, "1000000000 layers"),
        ({"layer_norm_eps": None}, {}, "layer_norm_eps is None"),
        ({}, {name: np.zeros((2, 2), np.float32)}, rf"{name} has shape \(2, 2\)"),
        ({}, {name: np.full_like(tensors[name], np.nan)}, f"{name} holds NaN or Inf"),
    ]
    for number, (changes, arrays, problem) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config | changes))
        (folder / "tokenizer.json").write_bytes((bert / "tokenizer.json").read_bytes())
        save_file(tensors | arrays, folder / "model.safetensors")
        with pytest.raises(EncoderError, match=problem):
            read_bert(folder)
    (folder / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(EncoderError, match="no safetensors file"):
        read_bert(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(EncoderError, match="there is no"):
        read_bert(folder)


def test_options_that_a_student_does_not_have(bert: Path, tmp_path: Path) -> None:
    for name, problem in [
        (f"st:{bert}?layers=3", "2 layers: layers=3"),
        (f"st:{bert}?pooling=cls", "no option 'pooling'; it has: layers"),
        (f"st:{bert}?layers=0", "layers"),
        ("demo", "a student is `static`, or a BERT"),
        (f"onnx:{tmp_path}", "no model.onnx"),
    ]:
        with pytest.raises(InputError, match=problem):
            open_bert(name, threads=1, progress=silent)
    with pytest.raises(InputError, match="max_length=500 is too many"):
        distil(TEACHER, CORPUS, Plan(student=f"st:{bert}", max_length=500), tmp_path / "out")


def test_a_student_is_trained_on_fewer_tokens_than_its_bert_reads_and_reads_as_many_again(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(student_sources, "_USUAL_LENGTH", 40)
    corpus, store = ListCorpus([*SENTENCES, "dogs " * 90]), ViewStore(tmp_path / "store")
    for most, (trained, reads) in {None: (40, 64), 20: (20, 20)}.items():
        plan = Plan(student=f"st:{bert}", max_length=most, **PLAN)
        job = prepare(TEACHER, corpus, plan, tmp_path / str(most), store=store)
        assert (job.lengths.max(), job.facts["max_length"]) == (trained, reads)


@pytest.mark.real
def test_minilm_is_read_from_its_graph(pulled: Callable[[str], Path]) -> None:
    """The number of heads, which the graph does not tell, is found by the vectors."""
    pulled("minilm")
    bert = open_bert("minilm?layers=3", threads=1, progress=silent)
    assert (bert.config["num_attention_heads"], bert.config["num_hidden_layers"], bert.max_length) == (12, 3, 256)


def test_a_job_of_other_sentences_is_another_job(bert: Path, tmp_path: Path) -> None:
    """Otherwise the student of the first would be saved as that of the second."""
    store, how = ViewStore(tmp_path / "store"), {"student": f"st:{bert}?layers=1", **PLAN}
    jobs = [prepare(TEACHER, CORPUS, Plan(**how, sentences=n), tmp_path / str(n), store=store) for n in (120, 150)]
    assert jobs[0].identity != jobs[1].identity


def test_a_tokenizer_that_would_end_the_process_is_refused(bert: Path, tmp_path: Path) -> None:
    """A token of 200,000 characters overflows the library's stack."""
    folder, vocabulary = tmp_path / "model", [["<unk>", 0.0], ["a", -1.0], ["x" * 200_000, -2.0]]
    shutil.copytree(bert, folder)
    content = json.loads((bert / "tokenizer.json").read_text())
    content |= dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder")) | {"added_tokens": []}
    content["model"] = {"type": "Unigram", "unk_id": 0, "vocab": vocabulary, "byte_fallback": False}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    plan = Plan(student=f"st:{folder}", **PLAN)
    with pytest.raises(EncoderError, match=r"tokenizer of 'st:.*has 200,000 characters; at most 10,000"):
        prepare(TEACHER, CORPUS, plan, tmp_path / "job", store=ViewStore(tmp_path / "store"))


def test_steps_and_rate_are_numbers_as_cuda_reads_them_whatever_the_default_is(bert: Path, tmp_path: Path) -> None:
    job = prepare(TEACHER, CORPUS, Plan(student=f"st:{bert}", **PLAN), tmp_path, store=ViewStore(tmp_path / "store"))
    torch.set_default_dtype(torch.float64)
    try:
        student = bert_student.BertStudent(job, torch.device("cpu"))
    finally:
        torch.set_default_dtype(torch.float32)
    assert student._steps.dtype == student._rate.dtype == torch.float32


class OutOfResourcesError(Exception):
    """As triton's: of no other kind."""


@pytest.mark.parametrize(("longest", "fused"), [(60, True), (200, False)])
def test_students_train_without_kernels_that_a_gpu_has_no_room_for(
    monkeypatch: pytest.MonkeyPatch, longest: int, fused: bool
) -> None:
    """The tiles are as long as the sentences: whether there is room is known before training, not in a step of it."""
    weight = torch.ones(3, requires_grad=True)

    class Network:
        def __init__(self, *_: object) -> None: ...

        def fuse(self) -> int:
            return 128

        def pooled(self, ids: Any, mask: Any) -> Any:  # noqa: ANN401 - tensors
            assert mask.all()
            if ids.shape[1] > 64:
                raise OutOfResourcesError("out of resource: shared memory")
            return weight * ids.shape[1]

    monkeypatch.setattr(bert_student, "BertNetwork", Network)
    monkeypatch.setitem(sys.modules, "triton", cast("Any", SimpleNamespace()))
    monkeypatch.setitem(sys.modules, "triton.errors", cast("Any", SimpleNamespace(TritonError=OutOfResourcesError)))
    student: Any = SimpleNamespace(_config={}, _parameters={}, _copies={"w": weight}, _device="cpu", _network=None)
    with nullcontext() if fused else pytest.warns(RuntimeWarning, match="own kernels: out of resource"):
        bert_student.BertStudent._fuse(student, longest)
    assert isinstance(student._network, Network) == fused
