"""What an audit found in the readers of version 0.1, by names that it has, too: every test fails on it."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from child_memory import refusal
from make_onnx import write_onnx
from make_static import make_static
from make_use_lite import tiny_constants, write_use_lite
from test_audit import change_model, make_model

from ensembed import ListCorpus, ViewStore, open_encoder
from ensembed.errors import EnsembedError
from ensembed.search import Index

DEEP = "[" * 10**5 + "]" * 10**5
ENCODER = "demo?dim=8"


def test_a_megabyte_of_gzipped_json_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "wink.json.gz"
    block = gzip.compress(b"[]," * 300_000)  # gzip files may be put behind each other
    path.write_bytes(gzip.compress(b'{"dimensions": 3, "size": 2, "words": [') + 40 * block)
    assert path.stat().st_size < 1e6
    before = "from ensembed.encoders import open_encoder"
    assert str(path) in refusal("open_encoder('words:' + sys.argv[1])", path, before=before)


def test_a_config_that_declares_300_million_dimensions_takes_little_memory(tmp_path: Path) -> None:
    model = change_model(make_model(tmp_path / "model", "demo?dim=4"), lambda config: config.update(dim=3 * 10**8))
    before = "from ensembed import load"
    assert "dim is 300000000" in refusal("load(sys.argv[1]).encode(['a', 'b'])", model, before=before)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "zip": lambda path: path.write_bytes(b"PK\x03\x04" + path.read_bytes()[4:]),
    "open bracket": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00v\x00(" + b" " * (path.stat().st_size - 11)),
    "loop": loop,
}


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_plain_damage_to_an_index_is_an_error_of_the_package(tmp_path: Path, damage: str, verify: bool) -> None:
    encoder = open_encoder(ENCODER)
    index = Index.create(tmp_path / "whole", encoder, source=ENCODER)
    index.add(["a dog", "a cat", "a bird"])
    expected = index.search(["a dog"])
    for path in sorted((tmp_path / "whole").glob("*.npy")):
        folder = tmp_path / "damaged"
        shutil.copytree(tmp_path / "whole", folder)
        DAMAGES[damage](folder / path.name)
        try:
            assert Index.open(folder, encoder, verify=verify).search(["a dog"]) == expected
            assert not verify
        except EnsembedError as error:
            assert path.name in str(error)  # noqa: PT017 - a search that needs no damaged file is right, too
        shutil.rmtree(folder)


def a_view(folder: Path) -> Callable[[], object]:
    corpus, encoder = ListCorpus(["a dog"]), open_encoder(ENCODER)
    ViewStore(folder / "store").embed(corpus, encoder)
    next((folder / "store").rglob("manifest.json")).write_text(DEEP)
    return lambda: ViewStore(folder / "store").view(corpus, encoder.spec)


def an_encoder(write: Callable[[Path], object], scheme: str, file: str) -> Callable[[Path], Callable[[], object]]:
    def made(folder: Path) -> Callable[[], object]:
        write(folder / "encoder")
        (folder / "encoder" / file).parent.mkdir(exist_ok=True)
        (folder / "encoder" / file).write_text(DEEP)
        return lambda: open_encoder(f"{scheme}:{folder / 'encoder'}")

    return made


def write_tiny_use_lite(folder: Path) -> None:
    folder.mkdir()
    write_use_lite(folder, tiny_constants())


def wink(folder: Path) -> Callable[[], object]:
    (folder / "wink.json").write_text('{"dimensions": 3, "size": 1, "words": ["a"], "vectors": {"a": ' + DEEP + "}}")
    return lambda: open_encoder(f"words:{folder / 'wink.json'}")


READERS = {
    "view": a_view,
    "onnx": an_encoder(write_onnx, "onnx", "config.json"),
    "onnx, modules": an_encoder(write_onnx, "onnx", "modules.json"),
    "onnx, pooling": an_encoder(write_onnx, "onnx", "1_Pooling/config.json"),
    "onnx, length": an_encoder(write_onnx, "onnx", "sentence_bert_config.json"),
    "use-lite": an_encoder(write_tiny_use_lite, "use-lite", "vocab.json"),
    "wink": wink,
}


@pytest.mark.parametrize("reader", READERS)
def test_deeply_nested_json_is_refused_by_an_error_of_the_package(tmp_path: Path, reader: str) -> None:
    with pytest.raises(EnsembedError):
        READERS[reader](tmp_path)()


def test_deeply_nested_json_in_the_cache_of_word_vectors_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "cache"))
    (tmp_path / "vectors.txt").write_text("a 1 0 1\ndog 0 1 1\n")
    expected = open_encoder(f"words:{tmp_path / 'vectors.txt'}").encode(["a dog"])
    [manifest] = (tmp_path / "cache").rglob("manifest.json")
    manifest.write_text(DEEP)
    np.testing.assert_array_equal(open_encoder(f"words:{tmp_path / 'vectors.txt'}").encode(["a dog"]), expected)


def test_numbers_of_word_vectors_that_no_float_holds_are_an_error_of_the_package(tmp_path: Path) -> None:
    facts = {"dimensions": 1, "size": 1, "l2NormIndex": 1, "wordIndex": 2, "words": ["a"]}
    (tmp_path / "wink.json").write_text(json.dumps(facts | {"vectors": {"a": [10**400, 1, 0]}}))
    with pytest.raises(EnsembedError, match=r"wink\.json"):
        open_encoder(f"words:{tmp_path / 'wink.json'}")


@pytest.mark.parametrize("shape", [[2**63, 0], [0, 2**64 - 1], [2**40, 0, 2**40]])
def test_tensors_of_impossible_shapes_are_an_error_of_the_package(tmp_path: Path, shape: list[int]) -> None:
    make_static(tmp_path)
    header = json.dumps({"vectors": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(EnsembedError):
        open_encoder(f"static:{tmp_path}")


def test_a_padding_token_of_400_digits_is_no_overflow(tmp_path: Path) -> None:
    write_onnx(tmp_path)
    settings = {"max_position_embeddings": 256, "model_type": "roberta", "pad_token_id": -(10**400)}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert open_encoder(f"onnx:{tmp_path}").encode(["a dog"]).shape[0] == 1


def test_a_name_in_a_graph_that_is_no_text_is_an_error_of_the_package(tmp_path: Path) -> None:
    write_onnx(tmp_path)
    path = tmp_path / "model.onnx"
    path.write_bytes(path.read_bytes().replace(b"last_hidden_state", b"last_hidden_st\xffte"))
    with pytest.raises(EnsembedError, match=r"model\.onnx"):
        open_encoder(f"onnx:{tmp_path}")


GRAPH = """
import resource, shutil, signal, sys
from ensembed.errors import EnsembedError
from ensembed.search import Index

index = Index.open(sys.argv[1], "demo?dim=8")
shutil.disk_usage = lambda path: shutil._ntuple_diskusage(10, 10, 0)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # as a disk that is full from there on
try:
    index.build_graph()
except EnsembedError as error:
    print(error)
"""


def test_a_graph_that_does_not_fit_on_the_disk_is_an_error_of_the_package(tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    folder = tmp_path / "index"
    Index.create(folder, ENCODER, kind="hnsw").add([f"text {i}" for i in range(500)])
    command = [sys.executable, "-c", GRAPH, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert str(folder) in done.stdout
    assert len(Index.open(folder, ENCODER, verify=True)) == 500
