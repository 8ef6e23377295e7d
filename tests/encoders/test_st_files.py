"""Which files of a sentence-transformers folder make another encoder: those that the library reads, and no others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from loopback_hub import COMMIT, loopback_hub
from make_st import write_json, write_st
from safetensors.numpy import load_file, save_file

from ensembed.encoders import open_encoder
from ensembed.encoders.st_loading import revision_of_model
from ensembed.errors import EncoderError
from ensembed.support.progress import silent
from ensembed.testing import SENTENCES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_st(tmp_path / "model")


def revision(folder: Path, *, code: bool = False) -> str:
    return revision_of_model(folder, code=code, progress=silent)


def make_old(folder: Path) -> None:
    """Put the weights into a file of the older format."""
    import torch

    tensors = {name: torch.from_numpy(array) for name, array in load_file(folder / "model.safetensors").items()}
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def split(folder: Path) -> None:
    """Put the weights into two files and an index."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, folder / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, part in parts.items() for name in part}}
    write_json(folder / "model.safetensors.index.json", index)


UNREAD = (
    *("pytorch_model.bin", "pytorch_model.bin.index.json", "model.safetensors.index.json", "model.fp16.safetensors"),
    *("train.log", "events.out.tfevents.1", "notes.txt", "requirements.txt", "trainer_state.json", "eval_results.json"),
    *("rust_model.ot", "tf_model.h5", "custom.py", "1_Pooling/training_args.bin", "checkpoint-5/config.json"),
)


@pytest.mark.parametrize("file", UNREAD)
def test_files_that_are_not_read_do_not_change_the_revision(folder: Path, file: str) -> None:
    before = revision(folder)
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_bytes(b"junk")
    assert revision(folder) == before


def test_library_does_not_read_files_that_do_not_count(folder: Path) -> None:
    expected = open_encoder(f"st:{folder}")
    vectors = expected.encode(SENTENCES)
    for file in UNREAD:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(b"junk" if "checkpoint" not in file else b"{}")
    encoder = open_encoder(f"st:{folder}")
    assert encoder.spec.key == expected.spec.key
    np.testing.assert_allclose(encoder.encode(SENTENCES), vectors, atol=1e-7)


@pytest.mark.parametrize(
    "file",
    [
        *("model.safetensors", "config.json", "modules.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"),
        *("sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json"),
        *("merges.txt", "sentencepiece.bpe.model", "chat_template.jinja", "2_Dense/pytorch_model.bin"),
    ],
)
def test_files_that_are_read_change_the_revision(folder: Path, file: str) -> None:
    before = revision(folder)
    (folder / file).parent.mkdir(exist_ok=True)
    with (folder / file).open("ab") as target:
        target.write(b" ")
    assert revision(folder) != before


@pytest.mark.parametrize(
    ("change", "file"),
    [
        (make_old, "pytorch_model.bin"),
        (split, "model.safetensors.index.json"),
        (split, "model-00002-of-00002.safetensors"),
    ],
)
def test_weights_of_other_forms_count_where_they_are_used(
    folder: Path, change: Callable[[Path], object], file: str
) -> None:
    expected = open_encoder(f"st:{folder}").encode(SENTENCES)
    change(folder)
    np.testing.assert_allclose(open_encoder(f"st:{folder}").encode(SENTENCES), expected, atol=1e-6)
    before = revision(folder)
    with (folder / file).open("ab") as target:
        target.write(b" ")
    assert revision(folder) != before


def test_weights_that_the_configuration_names_count(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "mine.safetensors")
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", config | {"transformers_weights": "mine.safetensors"})
    before = revision(folder)
    with (folder / "mine.safetensors").open("ab") as target:
        target.write(b" ")
    assert revision(folder) != before


def test_the_code_of_a_model_may_read_any_file(folder: Path) -> None:
    before = revision(folder, code=True)
    for file in ("custom.py", "table.npz"):
        (folder / file).write_bytes(b"x")
        after = revision(folder, code=True)
        assert after != before
        before = after
    (folder / "README.md").write_text("# About")
    assert revision(folder, code=True) == before


PROGRAM = """
import sys
from ensembed.encoders.st_loading import fetch
from ensembed.support.progress import silent

folder = fetch("me/model", sys.argv[1], code=sys.argv[2] == "code", offline=False, progress=silent)
print(*sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()))
"""


def test_only_files_that_count_are_fetched(folder: Path, tmp_path: Path) -> None:
    read = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    dense = "2_Dense/pytorch_model.bin"  # beside newer weights of the transformer: usual for converted models
    for file in ("pytorch_model.bin", "train.log", "notes.txt", "onnx/model.onnx", "custom.py", dense):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(b"junk")
    with loopback_hub(folder, "me/model") as hub:
        for how, expected in (("data", {dense}), ("code", {dense, "custom.py", "notes.txt"})):
            done = hub.python(PROGRAM, COMMIT, how, home=tmp_path / how, offline=False)
            assert done.returncode == 0, done.stderr
            assert set(done.stdout.split()) == read | expected
        (folder / "model.safetensors").unlink()
    with loopback_hub(folder, "me/model") as hub:
        done = hub.python(PROGRAM, COMMIT, "data", home=tmp_path / "old", offline=False)
        assert set(done.stdout.split()) == (read - {"model.safetensors"}) | {dense, "pytorch_model.bin"}


@pytest.mark.parametrize("options", ["", "?trust_remote_code=true"])
def test_an_adapter_is_refused_whose_base_model_is_elsewhere(folder: Path, tmp_path: Path, options: str) -> None:
    write_json(folder / "adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "org/base"})
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(folder / "adapter_config.json", bare)
    for adapter in (folder, bare):
        with pytest.raises(EncoderError, match=r"an adapter of 'org/base', .*: merge the adapter into its base model"):
            open_encoder(f"st:{adapter}{options}")


def test_adapters_of_modules_are_refused_and_those_of_training_are_not(folder: Path) -> None:
    write_json(folder / "checkpoint-5" / "adapter_config.json", {"base_model_name_or_path": "org/base"})
    open_encoder(f"st:{folder}")
    write_json(folder / "1_Pooling" / "adapter_config.json", {"base_model_name_or_path": "org/base"})
    with pytest.raises(EncoderError, match=r"1_Pooling/adapter_config.json makes the model an adapter"):
        open_encoder(f"st:{folder}")


def test_a_tokenizer_from_elsewhere_is_refused(folder: Path, tmp_path: Path) -> None:
    other = write_st(tmp_path / "other")
    settings = {"max_seq_length": 64, "do_lower_case": False, "tokenizer_name_or_path": str(other)}
    write_json(folder / "sentence_bert_config.json", settings)
    with pytest.raises(EncoderError, match=r"takes the tokenizer from '.*other', which is not in the folder: copy"):
        open_encoder(f"st:{folder}")
