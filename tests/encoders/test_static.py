"""`static:FILE`, against a mean written out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_static import DIM, VOCABULARY, make_static, small_tokenizer, small_vectors
from numpy.typing import NDArray
from safetensors.numpy import save_file

from ensembed.encoders import open_encoder
from ensembed.errors import EncoderError, InputError
from ensembed.testing import SENTENCES, check_encoder

# A bfloat16 is the upper half of a float32.
ROUNDED = (small_vectors().view(np.uint32) >> 16 << 16).view(np.float32)


def oracle(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """The mean of the vectors of the tokens, one after the other."""
    ids = [small_tokenizer().encode(sentence, add_special_tokens=False).ids for sentence in SENTENCES]
    return np.array([np.mean([vectors[i].astype(np.float64) for i in row], axis=0) for row in ids])


def save_bf16(vectors: NDArray[np.float32], path: Path) -> None:
    halves = (vectors.view(np.uint32) >> 16).astype("<u2").tobytes()
    # Behind another tensor, so that it does not begin where the data begin.
    about = {
        "another": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
        "vectors": {"dtype": "BF16", "shape": vectors.shape, "data_offsets": [12, 12 + len(halves)]},
    }
    header = json.dumps(about).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(12) + halves)


def test_vectors_are_means(tmp_path: Path) -> None:
    encoder = open_encoder(make_static(tmp_path))
    np.testing.assert_allclose(encoder.encode(SENTENCES), oracle(small_vectors()), atol=1e-6)
    assert not encoder.encode([" "]).any()
    check_encoder(encoder)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint8, np.int32])
def test_vectors_of_other_number_types_are_read(tmp_path: Path, dtype: type[np.number]) -> None:
    name = make_static(tmp_path)
    vectors = (20 * np.abs(small_vectors())).astype(dtype)
    save_file({"vectors": vectors}, tmp_path / "vectors.safetensors")
    encoder = open_encoder(name)
    np.testing.assert_allclose(encoder.encode(SENTENCES), oracle(vectors), rtol=1e-5)
    check_encoder(encoder)


def test_bfloat16_is_read(tmp_path: Path) -> None:
    name = make_static(tmp_path)
    save_bf16(small_vectors(), tmp_path / "vectors.safetensors")
    encoder = open_encoder(f"{name}?tensor=vectors")
    np.testing.assert_allclose(encoder.encode(SENTENCES), oracle(ROUNDED), atol=1e-6)


def test_tensor_option_chooses_one_of_several(tmp_path: Path) -> None:
    name = make_static(tmp_path)
    key = open_encoder(name).spec.key
    assert open_encoder(f"{name}?tensor=vectors").spec.key == key
    with pytest.raises(
        InputError, match="no tensor 'weight'; say which one holds the vectors, as tensor=NAME: vectors"
    ):
        open_encoder(f"{name}?tensor=weight")
    save_file({"b": small_vectors(), "a": small_vectors(7), "line": np.ones(3)}, tmp_path / "vectors.safetensors")
    with pytest.raises(InputError, match=r"has several tensors; say which one .* as tensor=NAME: a, b, line"):
        open_encoder(name)
    first, second = open_encoder(f"{name}?tensor=a"), open_encoder(f"{name}?tensor=b")
    assert first.spec.key != second.spec.key
    np.testing.assert_allclose(first.encode(SENTENCES), oracle(small_vectors(7)), atol=1e-6)
    with pytest.raises(EncoderError, match=r"the vectors have shape \(3,\)"):
        open_encoder(f"{name}?tensor=line")


def test_a_folder_will_do_and_the_key_is_that_of_the_contents(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    known = open_encoder(make_static(tmp_path / "a")).spec.key
    folder = shutil.copytree(tmp_path / "a", tmp_path / "b")
    (folder / "vectors.safetensors").rename(folder / "model.safetensors")
    (folder / "README.md").write_text("Read me.")
    assert open_encoder(f"static:{folder}").spec.key == known
    save_file({"vectors": small_vectors(1)}, folder / "model.safetensors")
    assert open_encoder(f"static:{folder}").spec.key != known
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"there is no file .*model\.safetensors"):
        open_encoder(f"static:{folder}")


@pytest.mark.parametrize("shape", [(len(VOCABULARY) - 1, DIM), (len(VOCABULARY), 0), (len(VOCABULARY), DIM, 2), ()])
def test_vectors_that_do_not_fit_the_vocabulary_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    name = make_static(tmp_path)
    save_file({"vectors": np.ones(shape, np.float32)}, tmp_path / "vectors.safetensors")
    with pytest.raises(EncoderError, match=rf"vocabulary needs {len(VOCABULARY)} rows"):
        open_encoder(name)


def test_more_vectors_than_tokens_are_accepted(tmp_path: Path) -> None:
    name = make_static(tmp_path)
    padded = np.concatenate([small_vectors(), np.ones((5, DIM), np.float32)])
    save_file({"vectors": padded}, tmp_path / "vectors.safetensors")
    np.testing.assert_allclose(open_encoder(name).encode(SENTENCES), oracle(small_vectors()), atol=1e-6)


def test_types_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    name = make_static(tmp_path)
    save_file({"vectors": np.ones((len(VOCABULARY), DIM), np.bool_)}, tmp_path / "vectors.safetensors")
    with pytest.raises(EncoderError, match="'vectors' is of type BOOL"):
        open_encoder(name)


@pytest.mark.parametrize("file", ["vectors.safetensors", "tokenizer.json"])
def test_damaged_and_absent_files_are_named(tmp_path: Path, file: str) -> None:
    name = make_static(tmp_path)
    whole = (tmp_path / file).read_bytes()
    for content in (whole[:-1], whole[:100], whole[:7], b"", b"\xff" * 64):
        (tmp_path / file).write_bytes(content)
        with pytest.raises(EncoderError, match=file):
            open_encoder(name)
    (tmp_path / file).unlink()
    with pytest.raises((EncoderError, InputError), match=file):
        open_encoder(name)


def test_a_long_sentence_is_looked_up_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = open_encoder(make_static(tmp_path))
    whole = encoder.encode(SENTENCES)
    monkeypatch.setattr("ensembed.encoders.static_encoder._LOOKUP", 3)
    monkeypatch.setattr("ensembed.encoders.token_ids._CHARACTERS", 30)
    np.testing.assert_allclose(encoder.encode(SENTENCES), whole, atol=1e-6)
