"""`paranmt:`: the authors' numbers, the forms of the file, and what is refused."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_paranmt import UNKNOWN, make_paranmt, make_paranmt_zip, model_data

from ensembed.encoders import model_files, open_encoder, paranmt_encoder
from ensembed.encoders.base import FloatArray
from ensembed.encoders.paranmt_encoder import MEMBER
from ensembed.errors import EncoderError, InputError
from ensembed.support.machine import cache_dir
from ensembed.testing import SENTENCES

# A pickle that cPickle of Python 2.7.18 with numpy 1.16.6 wrote, some of its words byte strings, and the vectors that
# the authors' way of looking up gave there.
GOLDEN = json.loads((Path(__file__).parent / "golden" / "paranmt.json").read_text())
SENTENCE = ["A man is playing a guitar."]


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    file = tmp_path / "python2.pickle"
    file.write_bytes(base64.b64decode(GOLDEN["pickle"]))
    return file


def save(file: Path, value: object, protocol: int = 2) -> str:
    file.write_bytes(pickle.dumps(value, protocol))
    return f"paranmt:{file}"


def oracle(sentence: str, data: list[Any]) -> FloatArray:
    """Slowly and obviously, the trigrams' mean and the words'."""
    halves = []
    phrase = sentence.strip().lower()
    padded = f" {phrase} "
    for vectors, index, units in zip(
        data[:2], data[2], ([padded[i : i + 3] for i in range(len(padded) - 2)], phrase.split()), strict=True
    ):
        rows = []
        for unit in units:
            bare = "".join(c for c in unit if not unicodedata.category(c).startswith("P"))
            rows.append(index[unit] if unit in index else index.get(bare, index[UNKNOWN]))
        halves.append(np.mean([vectors[row] for row in rows or [index[UNKNOWN]]], axis=0, dtype=np.float64))
    return np.concatenate(halves).astype(np.float32)


def test_pickle_of_python_2_gives_the_authors_vectors(golden: Path) -> None:
    vectors = open_encoder(f"paranmt:{golden}").encode(GOLDEN["sentences"])
    np.testing.assert_allclose(vectors, GOLDEN["vectors"], atol=1e-6)


def test_maker_gives_an_encoder_of_24_dimensions(tmp_path: Path) -> None:
    encoder = open_encoder(make_paranmt(tmp_path))
    assert isinstance(encoder, paranmt_encoder.ParaNMTEncoder)
    assert encoder.spec.dim == 24


def test_vectors_equal_the_oracle(tmp_path: Path) -> None:
    data = model_data((5, 7))
    encoder = open_encoder(save(tmp_path / "m.pickle", data))
    sentences = [*SENTENCES, "", " \t ", ".", "snow. SNOW, (snow)", "Zq 'a' b"]
    np.testing.assert_allclose(encoder.encode(sentences), [oracle(s, data) for s in sentences], atol=1e-6)


def test_byte_strings_are_decoded_as_utf8_or_latin1(tmp_path: Path) -> None:
    vectors = np.eye(4, dtype=np.float32)
    words = {UNKNOWN.encode(): 0, "größe".encode(): 1, "naïve".encode("latin-1"): 2, "東京": 3}
    encoder = open_encoder(save(tmp_path / "m.pickle", [vectors, words]))
    np.testing.assert_array_equal(encoder.encode(["Größe", "naïve", "東京", "?"]), vectors[[1, 2, 3, 0]])


def test_empty_sentence_has_the_vector_of_the_unknown(tmp_path: Path) -> None:
    data: list[Any] = model_data()
    expected = np.concatenate([vectors[index[UNKNOWN]] for vectors, index in zip(data[:2], data[2], strict=True)])
    np.testing.assert_array_equal(open_encoder(save(tmp_path / "m.pickle", data)).encode([""])[0], expected)


def test_combination_add_adds_the_two_means(tmp_path: Path) -> None:
    name = make_paranmt(tmp_path)
    concat, default, add = (open_encoder(name + o) for o in ("?combination=concat", "", "?combination=add"))
    assert concat.spec.key == default.spec.key != add.spec.key
    both, total = concat.encode(SENTENCE), add.encode(SENTENCE)
    np.testing.assert_allclose(total, both[:, :12] + both[:, 12:], atol=1e-6)


def test_models_of_one_table_give_half_of_the_vector(tmp_path: Path) -> None:
    data: list[Any] = model_data()
    trigrams, words, (trigram_rows, word_rows) = data
    both = open_encoder(make_paranmt(tmp_path)).encode(SENTENCE)
    for half, table in ((both[:, :12], [trigrams, trigram_rows]), (both[:, 12:], [words, word_rows])):
        encoder = open_encoder(save(tmp_path / "half.pickle", table))
        np.testing.assert_array_equal(encoder.encode(SENTENCE), half)
        with pytest.raises(InputError, match=r"combination=add needs two"):
            open_encoder(f"{encoder.spec.name}?combination=add")


def test_combination_add_needs_vectors_of_one_length(tmp_path: Path) -> None:
    name = save(tmp_path / "m.pickle", model_data((3, 4)))
    with pytest.raises(InputError, match=r"vectors of \[3, 4\]"):
        open_encoder(f"{name}?combination=add")


def test_options_are_checked_before_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'mean' is not a value for combination"):
        open_encoder(f"paranmt:{tmp_path / 'absent'}?combination=mean")
    with pytest.raises(InputError, match="no option 'size'; it has: combination"):
        open_encoder(f"paranmt:{tmp_path / 'absent'}?size=3")
    with pytest.raises(InputError, match="there is no file"):
        open_encoder(f"paranmt:{tmp_path / 'absent'}")
    with pytest.raises(InputError, match="there is no file"):
        open_encoder(f"paranmt:{tmp_path}")


def test_urls_other_than_http_are_refused() -> None:
    with pytest.raises(InputError, match=r"encoder 'paranmt:file:///etc/hostname': 'file:///.* http://"):
        open_encoder("paranmt:file:///etc/hostname")


def test_every_format_of_a_file_has_the_same_key(tmp_path: Path) -> None:
    names = [make_paranmt(tmp_path), save(tmp_path / "protocol5.pickle", model_data(), 5)]
    data: list[Any] = model_data()
    wide = [data[0].astype(">f8"), np.asfortranarray(data[1]), list(data[2])]
    names.append(save(tmp_path / "wide.pkl", wide))
    names.append(save(tmp_path / "bytes.pkl", [*data[:2], [{k.encode(): v for k, v in d.items()} for d in data[2]]]))
    make_paranmt_zip(tmp_path / "demo.zip")
    names.append(f"paranmt:{tmp_path / 'demo.zip'}")
    first = open_encoder(names[0])
    names.append(f"paranmt:{shutil.copy(next((cache_dir() / 'paranmt').iterdir()), tmp_path / 'mine.safetensors')}")
    for name in names:
        encoder = open_encoder(name)
        assert encoder.spec.key == first.spec.key, name
        assert encoder.spec.name == name
        np.testing.assert_array_equal(encoder.encode(SENTENCE), first.encode(SENTENCE))
    assert len(list((cache_dir() / "paranmt").iterdir())) == 1
    assert open_encoder(save(tmp_path / "other.pickle", model_data(seed=1))).spec.key != first.spec.key


def test_file_is_converted_once_and_again_if_the_conversion_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "_TICK_NS", -1)  # believe the times of a file that was just written
    name = make_paranmt(tmp_path)
    reports: list[str] = []
    first = open_encoder(name, progress=lambda label, *_: reports.append(label))
    assert "convert ngram-word.pickle" in reports
    calls = counted(monkeypatch, "read_pickle")
    assert open_encoder(name).spec == first.spec
    assert not calls
    # What was converted is gone, or damaged: it is made again.
    (converted,) = (cache_dir() / "paranmt").iterdir()
    for damage in (converted.unlink, lambda: converted.write_bytes(b"nothing"), lambda: os.truncate(converted, 1000)):
        damage()
        calls.clear()
        np.testing.assert_array_equal(open_encoder(name).encode(SENTENCE), first.encode(SENTENCE))
        assert len(calls) == 1
    # Another file under the same name.
    save(tmp_path / "ngram-word.pickle", model_data(seed=5))
    os.utime(tmp_path / "ngram-word.pickle", ns=(1, 1))
    assert open_encoder(name).spec.revision != first.spec.revision


def counted(monkeypatch: pytest.MonkeyPatch, function: str) -> list[object]:
    calls: list[object] = []
    original: Callable[..., object] = getattr(paranmt_encoder, function)

    def count(*arguments: Any, **options: Any) -> object:  # noqa: ANN401 - it passes them on
        calls.append(arguments)
        return original(*arguments, **options)

    monkeypatch.setattr(paranmt_encoder, function, count)
    return calls


def test_interrupted_conversion_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make_paranmt(tmp_path)

    def interrupt(_folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        open_encoder(name)
    assert list((cache_dir() / "paranmt").iterdir()) == []


def test_unwritable_cache_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EncoderError, match=r"cannot be converted into .*ENSEMBED_CACHE"):
        open_encoder(make_paranmt(tmp_path))


def changed(**changes: object) -> list[Any]:
    data: list[Any] = model_data()
    if "vectors" in changes:
        data[1] = changes["vectors"]
    data[2][1].update(changes.get("rows", {}))
    return data


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": 1}, "another kind of model: it holds 0 arrays"),
        ([], "another kind of model"),
        (None, "another kind of model"),
        ([np.ones((2, 2), "f4")], "another kind of model"),
        ([*[np.ones((2, 2), "f4")] * 9, {UNKNOWN: 0}], "it holds 9 arrays.*LSTM"),
        ([np.ones((2, 2), "f4"), [{UNKNOWN: 0}, {UNKNOWN: 0}]], "it holds 1 arrays"),
        ([np.ones((2, 2), "f4"), {"a": 0}], "words have no vector for the unknown, UUUNKKK"),
        ([np.ones((2, 2), "f4"), {UNKNOWN: "0"}], "a str for a str"),
        ([np.ones((2, 2), "f4"), {7: 0}], "a int for a int|an int for"),
        ([np.ones((2, 2), "f4"), {UNKNOWN: True}], "a bool for a str"),
        (changed(vectors=np.ones((99, 2), "i4")), "words are int32"),
        (changed(vectors=np.ones(99, "f4")), r"words are float32 of shape \(99,\)"),
        (changed(vectors=np.ones((3, 2), "f4")), "there are 3 vectors"),
        (changed(rows={"a": -1}), "row numbers"),
        (changed(vectors=np.full((99, 2), np.nan, "f4")), "NaN or Inf"),
    ],
)
def test_other_models_are_refused(tmp_path: Path, value: object, message: str) -> None:
    name = save(tmp_path / "m.pickle", value)
    with pytest.raises(EncoderError, match=message) as failure:
        open_encoder(name)
    assert repr(name) in str(failure.value)


def test_pickle_that_calls_a_function_is_refused(tmp_path: Path) -> None:
    file, marker = tmp_path / "m.pickle", tmp_path / "marker"
    command = f"touch {marker}".encode()
    file.write_bytes(b"\x80\x02cos\nsystem\nU" + bytes([len(command)]) + command + b"\x85R.")
    with pytest.raises(EncoderError, match=r"m.pickle is refused: it asks for os.system"):
        open_encoder(f"paranmt:{file}")
    assert not marker.exists()


def test_truncated_pickles_are_refused(tmp_path: Path) -> None:
    name = make_paranmt(tmp_path)
    file = tmp_path / "ngram-word.pickle"
    whole = file.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(EncoderError, match=r"ngram-word\.pickle is (cut short|not a pickle)"):
            open_encoder(name)


def test_truncated_or_damaged_zips_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "demo.zip"
    make_paranmt_zip(file)
    whole = file.read_bytes()
    for length in (0, 100, len(whole) - 30):
        file.write_bytes(whole[:length])
        with pytest.raises(EncoderError, match=r"demo\.zip cannot be read: .*get it again"):
            open_encoder(f"paranmt:{file}")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    file.write_bytes(damaged)
    with pytest.raises(EncoderError, match=r"demo\.zip"):
        open_encoder(f"paranmt:{file}")


def test_zips_without_the_model_or_with_a_bomb_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "nothing")
    with pytest.raises(EncoderError, match=rf"should hold one {MEMBER}; its pickles: none"):
        open_encoder(f"paranmt:{file}")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.pickle", b"\x80\x02" + b"\0" * 10_000_000)
    with pytest.raises(EncoderError, match="would unpack from"):
        open_encoder(f"paranmt:{file}")


def test_damaged_converted_files_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    open_encoder(make_paranmt(tmp_path))
    whole = next((cache_dir() / "paranmt").iterdir())
    file = tmp_path / "m.safetensors"
    tensors = load_file(whole)
    for change, message in (
        ({"words.rows": tensors["words.rows"] + 1}, "row numbers"),
        ({"words.rows": tensors["words.rows"][1:]}, "damaged"),
        ({"words.ends": tensors["words.ends"][1:]}, "damaged"),
        ({"words.text": tensors["words.text"] | 0x80}, "damaged"),
        ({"words.text": tensors["words.text"].astype(np.int64)}, "damaged"),
        ({"words.vectors": tensors["words.vectors"][0]}, "holds the tensors"),
        ({"more": tensors["words.rows"]}, "holds the tensors"),
    ):
        save_file({**tensors, **change}, file)
        with pytest.raises(EncoderError, match=message):
            open_encoder(f"paranmt:{file}")
    file.write_bytes(whole.read_bytes()[:500])
    with pytest.raises(EncoderError, match="cannot be opened"):
        open_encoder(f"paranmt:{file}")


def test_sentence_longer_than_a_block_is_averaged(tmp_path: Path) -> None:
    data: list[Any] = model_data()
    encoder = open_encoder(save(tmp_path / "m.pickle", data))
    unit = "two dogs run through the snow . "
    long = encoder.encode([unit * (10_000_000 // len(unit))])
    np.testing.assert_allclose(long, encoder.encode([unit * 1000]), atol=1e-4)
