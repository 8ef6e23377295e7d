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


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_tar_archive_with_a_large_header(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = kind, 800 << 20
    path = tmp_path / "model.tar.gz"
    gzip_members(path, (header.tobuf(tarfile.GNU_FORMAT), 1), (b"x" * (1 << 20), 800))
    code = """
    try:
        extract(Path(sys.argv[1]), Path(sys.argv[2]), most=2 * 10**9)
    except ArchiveError as error:
        raise EnsembedError(str(error))
    """
    before = "from pathlib import Path\nfrom ensembed.fetch.archives import ArchiveError, extract"
    assert "it has a header of 838,860,800 bytes" in refusal(code, path, tmp_path, before=before)


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
