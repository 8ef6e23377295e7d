"""Small files that would take gigabytes: they are refused by name, within 300 MB."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from child_memory import refusal
from safetensors.numpy import save

from ensembed import Ensemble
from ensembed.methods import Concat

WORDS = "from ensembed.encoders import open_encoder; import ensembed.encoders.words.word_vector_files"


def gzip_members(path: Path, *parts: tuple[bytes, int]) -> None:
    """Write a gzip file of parts that are repeated: gzip files may be put behind each other."""
    with path.open("wb") as file:
        for part, times in parts:
            packed = gzip.compress(part)
            file.writelines(packed for _ in range(times))


PARTS = {
    "empty lists": b"[]," * 300_000,
    "long strings": b'"' + b"a" * 900_000 + b'",',
    "deep lists": b"[" * 900_000,
    "wide characters": b'"\xf0\x9f\x98\x80",' * 130_000,
    "spaces": b" " * 900_000,
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_gzipped_json_of_word_vectors(tmp_path: Path, part: bytes) -> None:
    path = tmp_path / "wink.json.gz"
    gzip_members(path, (b'{"dimensions": 3, "size": 2, "words": [', 1), (part, 800))
    assert path.stat().st_size < 1.5e6
    message = refusal("open_encoder('words:' + sys.argv[1])", path, before=WORDS)
    assert str(path) in message


def test_gzipped_text_of_word_vectors(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt.gz"
    gzip_members(path, (b"word " + b"0.0 " * 99 + b"0.0\n", 1), ((b"word " + b"0.0 " * 99 + b"0.0\n") * 2400, 1200))
    message = refusal("open_encoder('words:' + sys.argv[1])", path, before=WORDS)
    assert "it unpacks to more than" in message
    assert str(path) in message


CORPORA = {
    "sentences": b"ab\n" * 300_000,
    "one line": b"a" * 900_000,
    "wide characters": b"\xf0\x9f\x98\x80" * 225_000,
    "spaces": b" \n" * 450_000,
}


@pytest.mark.parametrize("part", CORPORA.values(), ids=CORPORA)
def test_gzipped_corpus(tmp_path: Path, part: bytes) -> None:
    path = tmp_path / "corpus.txt.gz"
    gzip_members(path, (part, 800))
    assert path.stat().st_size < 1.5e6
    message = refusal("open_corpus(sys.argv[1]).key", path, before="from ensembed.corpora import open_corpus")
    assert f"{path} cannot be read: it unpacks to more than" in message
    assert "unpack it with gunzip first" in message


LINES = {
    "one line": ("a.txt", b"a" * (200 << 20), "line 1 has 33,554,432 bytes or more"),
    "open quote": ("a.csv", b'text\n"' + b"ab\n" * (10 << 20), "a record has more than 2,000,000 lines or cells"),
    "many cells": ("a.csv", b"text" + b",ab" * (10 << 20), "a record has more than 2,000,000 lines or cells"),
    "many values": ("a.jsonl", b'{"text": [' + b"[]," * (9 << 20) + b"1]}", "it has more than 2,000,000 values"),
    "deep": ("a.jsonl", b'{"text": ' + b"[" * (1 << 20), "nested more than 100 levels"),
}


@pytest.mark.parametrize(("name", "content", "problem"), LINES.values(), ids=LINES)
def test_record_that_is_too_large(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    before = "from pathlib import Path; from ensembed.corpora.record_files import RecordFile"
    message = refusal("list(RecordFile(Path(sys.argv[1]), sys.argv[1]))", path, before=before)
    assert str(path) in message
    assert problem in message


def refused_archive(path: Path) -> str:
    """Read an archive that is refused, and return why."""
    code = """
    try:
        read_members(Path(sys.argv[1]), ["absent"], lambda name, stream: None, most=2 * 10**9)
    except ArchiveError as error:
        raise EnsembedError(str(error))
    """
    before = "from pathlib import Path\nfrom ensembed.fetch.archives import ArchiveError, read_members"
    return refusal(code, path, before=before)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_tar_archive_with_a_large_header(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = kind, 800 << 20
    path = tmp_path / "model.tar.gz"
    gzip_members(path, (header.tobuf(tarfile.GNU_FORMAT), 1), (b"x" * (1 << 20), 800))
    assert "it has headers of 838,860,800 bytes" in refused_archive(path)


def global_headers(count: int, members: int) -> bytes:
    """The parts of a tar archive: headers with a megabyte of records, and empty files."""
    parts = []
    for number in range(count):
        records = b"".join(b"12 %07x=\n" % (number * 80_000 + k) for k in range(80_000))
        header = tarfile.TarInfo("pax")
        header.type, header.size = tarfile.XGLTYPE, len(records)
        parts.append(header.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % 512))
    parts += [tarfile.TarInfo(f"f{number}").tobuf(tarfile.USTAR_FORMAT) for number in range(members)]
    return b"".join([*parts, bytes(1024)])


def test_tar_archive_with_many_headers(tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    path.write_bytes(gzip.compress(global_headers(10, members=1), 1))
    assert "it has headers of" in refused_archive(path)


def test_tar_archive_whose_headers_hold_for_many_members(tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    path.write_bytes(gzip.compress(global_headers(1, members=400), 1))
    assert "it does not hold absent" in refused_archive(path)


@pytest.mark.parametrize("announced", [600_000, 1])
def test_zip_archive_with_many_members(tmp_path: Path, announced: int) -> None:
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, 0, 0, 0, 33, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0)
    directory = b"".join(entry + b"%07d" % number for number in range(600_000))
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, announced, announced, len(directory), 4)
    end += struct.pack("<4sLQL", b"PK\6\7", 0, 4 + len(directory), 1)
    end += struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    (tmp_path / "data.zip").write_bytes(b"PK\3\4" + directory + end)
    assert "it holds more than 10,000 members" in refused_archive(tmp_path / "data.zip")


@pytest.mark.parametrize("change", ["dim", "members"])
def test_model_whose_config_declares_a_large_dim(tmp_path: Path, change: str) -> None:
    model = Ensemble(["demo?dim=4&seed=1", "demo?dim=4&seed=2"]).fit(["a", "b"], Concat())
    model.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["sha256"]
    config["dim"] = 3 * 10**8
    tensors = (tmp_path / "model.safetensors").read_bytes()
    if change == "members":
        config |= {"members": [], "projections": []}
        tensors = save({})
        (tmp_path / "model.safetensors").write_bytes(tensors)
    seal = hashlib.sha256(json.dumps(config, sort_keys=True).encode() + b"\0" + tensors).hexdigest()
    (tmp_path / "config.json").write_text(json.dumps(config | {"sha256": seal}))
    message = refusal("load(sys.argv[1]).encode(['a', 'b'])", tmp_path, before="from ensembed import load")
    assert "dim is 300000000" in message


def test_safetensors_with_a_large_header(tmp_path: Path) -> None:
    header = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}' + b" " * (90 << 20) + b"}"
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + np.zeros(1, "<f4").tobytes())
    before = "from ensembed.encoders import open_encoder; import ensembed.encoders.static_encoder"
    assert "header" in refusal("open_encoder('static:' + sys.argv[1])", tmp_path / "model.safetensors", before=before)
