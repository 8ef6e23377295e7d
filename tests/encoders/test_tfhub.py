"""TensorFlow models: both formats against numpy, the choice of function and output, downloads, and what is refused."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from make_tfhub import (
    DIM,
    MATRIX,
    WORDS,
    Function,
    expected,
    make_function,
    make_signatures,
    make_tf1,
    make_tf2,
)

from ensembed.encoders import open_encoder
from ensembed.encoders.tfhub.tensorflow_start import start_tensorflow
from ensembed.errors import EncoderError, EnsembedError, InputError, MissingError
from ensembed.testing import SENTENCES, check_encoder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all models; each is made once."""
    folder = tmp_path_factory.mktemp("saved-models")
    make_tf2(folder / "tf2")
    make_tf1(folder / "tf1")
    make_signatures(folder / "signatures")
    return folder


@pytest.fixture
def copy(models: Path, tmp_path: Path) -> Path:
    """A copy of the TF2 model, to be damaged."""
    return shutil.copytree(models / "tf2", tmp_path / "copy")


def test_tf1_model_keeps_the_contract(models: Path) -> None:
    check_encoder(open_encoder(f"tfhub:{models / 'tf1'}"))


@pytest.mark.parametrize("kind", ["tf2", "tf1"])
@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_vectors_equal_those_computed_with_numpy(models: Path, kind: str, batch_size: int) -> None:
    sentences = [*SENTENCES, *WORDS, "", "  ", "a\0", "\0", "the snow " * 3000, *(f"{i} dogs" for i in range(90))]
    found = open_encoder(f"tfhub:{models / kind}?batch_size={batch_size}").encode(sentences)
    np.testing.assert_allclose(found, expected(sentences), atol=5e-5)  # 2,000 words summed in float32
    assert not np.allclose(*expected(["a", "a\0"]))  # so that a lost NUL would be seen


def test_both_formats_give_the_same_vectors(models: Path) -> None:
    tf2, tf1 = (open_encoder(f"tfhub:{models / kind}") for kind in ("tf2", "tf1"))
    np.testing.assert_allclose(tf1.encode(SENTENCES), tf2.encode(SENTENCES), atol=1e-6)
    assert tf1.spec.key != tf2.spec.key


def test_long_text_is_cut_at_max_chars(models: Path) -> None:
    whole, cut = (open_encoder(f"tfhub:{models / 'tf2'}{options}") for options in ("", "?max_chars=5"))
    assert whole.spec.key != cut.spec.key
    np.testing.assert_allclose(cut.encode(["a man is"]), expected(["a man is"], max_chars=5), atol=1e-6)
    np.testing.assert_allclose(cut.encode(["東京は日本の首都です。"]), whole.encode(["東京は日本"]), atol=1e-6)


def test_key_holds_settings_that_change_the_numbers_only(models: Path, copy: Path) -> None:
    key = open_encoder(f"tfhub:{models / 'tf2'}").spec.key
    (copy / "README.md").write_text("How good it is")
    (copy / "variables" / ".DS_Store").write_text("")
    (copy / "fingerprint.pb").unlink()
    same = open_encoder(f"tfhub:{copy}?batch_size=7&max_chars=10000", threads=2)
    assert same.spec.key == key
    (copy / "assets" / "tf2-words.txt").write_text("\n".join([*WORDS[::-1]]))
    assert open_encoder(f"tfhub:{copy}").spec.key != key


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("", EncoderError, "signature=NAME; there are: .*numbers"),
        ("?signature=default", InputError, "no signature 'default'; there are: .*encode"),
        ("?signature=numbers", EncoderError, r"takes no single list of strings but: x \(float32 \(None, 3\)\)"),
        ("?signature=pair", EncoderError, "takes no single list of strings but: a .*, b "),
        ("?signature=counts", EncoderError, r"n \(int32 \(2,\)\); one vector of floats per sentence is needed"),
        ("?signature=encode", EncoderError, "long .*short .*; say which with output=NAME"),
        ("?signature=encode&output=lengths", InputError, "no output 'lengths' holds one vector per sentence"),
        ("?signature=encode&output=flat", InputError, "no output 'flat' holds one vector per sentence"),
        ("?signature=encode&output=none", InputError, r"there are: .*short \(float32 \(2, 3\)\)"),
        ("?max_chars=0", InputError, "'0' is not a value for max_chars"),
        ("?batch_size=x", InputError, "'x' is not a value for batch_size"),
        ("?pooling=mean", InputError, "no option 'pooling'; it has: signature, output, max_chars, batch_size"),
    ],
)
def test_wrong_signature_or_output_lists_the_existing_ones(
    models: Path, options: str, error: type[EnsembedError], message: str
) -> None:
    with pytest.raises(error, match=message):
        open_encoder(f"tfhub:{models / 'signatures'}{options}")


def test_signature_and_output_can_be_chosen(models: Path) -> None:
    name = f"tfhub:{models / 'signatures'}?signature=encode&output="
    short, long = open_encoder(f"{name}short"), open_encoder(f"{name}long")
    np.testing.assert_allclose(short.encode(["abc", ""]), np.outer([3, 0], MATRIX[0, :3]), rtol=1e-6)
    assert (short.spec.dim, long.spec.dim) == (3, DIM)
    assert short.spec.key != long.spec.key


def test_default_signature_can_be_named(models: Path) -> None:
    plain, named = (open_encoder(f"tfhub:{models / 'tf1'}{options}") for options in ("", "?signature=default"))
    assert plain.spec.key == named.spec.key
    named = open_encoder(f"tfhub:{models / 'tf2'}?signature=serving_default")
    np.testing.assert_allclose(named.encode(["a man"]), expected(["a man"]), atol=1e-6)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda tf: tf.strings.length, "one without a name .*one vector of floats per sentence"),
        (lambda tf: lambda text: tf.zeros([tf.minimum(tf.size(text), 1), 4]), r"float32 \(1, 4\)\)"),
        (lambda tf: lambda text: [tf.zeros([2, 4]), text], "ListWrapper|list|tuple"),
        (lambda tf: lambda text: tf.io.parse_tensor(text[0], tf.float32), "does not take a list of strings"),
    ],
)
def test_model_that_takes_no_strings_is_refused(
    tmp_path: Path, function: Callable[[ModuleType], Function], message: str
) -> None:
    model = make_function(tmp_path / "model", function(start_tensorflow()))
    with pytest.raises(EncoderError, match=message):
        open_encoder(f"tfhub:{model}")


def test_missing_rows_are_reported(tmp_path: Path) -> None:
    tf = start_tensorflow()
    model = make_function(tmp_path / "model", lambda text: tf.ones([tf.minimum(tf.size(text), 2), 4]))
    with pytest.raises(EncoderError, match=r"shape \(2, 4\) for 3 sentences; \(3, 4\) was expected"):
        open_encoder(f"tfhub:{model}").encode(["a", "b", "c"])


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    tf = start_tensorflow()
    model = make_function(
        tmp_path / "model", lambda text: {"outputs": tf.cast(tf.strings.length(text), tf.bfloat16)[:, None], "n": text}
    )
    np.testing.assert_array_equal(open_encoder(f"tfhub:{model}").encode(["abc", ""]), [[3], [0]])


def test_ops_of_tensorflow_text_name_the_package(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = copy / "saved_model.pb"
    graph.write_bytes(graph.read_bytes().replace(b"StringSplitV2", b"NormalizeUTF8"))  # same length: still a protobuf
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)  # as if it were not installed
    with pytest.raises(MissingError, match=r"pip install tensorflow-text\. .*NormalizeUTF8"):
        open_encoder(f"tfhub:{copy}")
    monkeypatch.setitem(sys.modules, "tensorflow_text", ModuleType("tensorflow_text"))  # which lacks it too
    with pytest.raises(EncoderError, match=r"cannot be opened from .*NormalizeUTF8"):
        open_encoder(f"tfhub:{copy}")


@pytest.mark.parametrize("kind", ["tf2", "tf1"])
@pytest.mark.parametrize(
    "file", ["saved_model.pb", "variables/variables.index", "variables/variables.data*", "assets/*"]
)
@pytest.mark.parametrize("damage", ["torn", "garbage", "empty", "absent"])
def test_damaged_models_raise_encoder_errors(models: Path, tmp_path: Path, kind: str, file: str, damage: str) -> None:
    copy = shutil.copytree(models / kind, tmp_path / "copy")
    (path,) = copy.glob(file)
    content = path.read_bytes()
    if damage == "absent":
        path.unlink()
    else:
        path.write_bytes(
            {"torn": content[: len(content) // 2], "garbage": os.urandom(len(content)), "empty": b""}[damage]
        )
    if file == "assets/*" and damage in ("torn", "garbage"):  # another vocabulary: another encoder, if it is one
        with suppress(EncoderError):
            assert open_encoder(f"tfhub:{copy}").spec.key != open_encoder(f"tfhub:{models / kind}").spec.key
    else:
        with pytest.raises((EncoderError, InputError), match="copy"):
            open_encoder(f"tfhub:{copy}")


def test_several_graphs_without_known_tags_are_refused(copy: Path) -> None:
    start_tensorflow()
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((copy / "saved_model.pb").read_bytes())
    saved.meta_graphs.add().CopyFrom(saved.meta_graphs[0])
    for graph, tag in zip(saved.meta_graphs, ("gpu", "tpu"), strict=True):
        graph.meta_info_def.ClearField("tags")
        graph.meta_info_def.tags.append(tag)
    (copy / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(EncoderError, match=r"Their tags are \[\['gpu'\], \['tpu'\]\]"):
        open_encoder(f"tfhub:{copy}")
