"""Small SavedModels in both formats of TensorFlow Hub, and in numpy what they compute."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.tfhub.tensorflow_start import start_tensorflow

Tensor: TypeAlias = Any  # TensorFlow has no types
Function: TypeAlias = Callable[[Tensor], Tensor]

WORDS = ["a", "man", "is", "playing", "two", "dogs", "cats", "the", "snow", "stock", "東京は日本の首都です。", "a\0"]
BUCKETS = 16
DIM = 8

_random = np.random.default_rng(7)
TABLE: NDArray[np.float32] = _random.normal(size=(len(WORDS) + BUCKETS, DIM)).astype(np.float32)
MATRIX: NDArray[np.float32] = _random.normal(size=(DIM, DIM)).astype(np.float32)


def expected(sentences: list[str], *, max_chars: int = 10_000) -> NDArray[np.float64]:
    """What the models compute: tanh of a matrix times the sum of the words' vectors over the root of their number.

    A word that is not in the vocabulary has the vector of its length.
    """
    rows = np.zeros((len(sentences), DIM))
    known = {word.encode(): i for i, word in enumerate(WORDS)}
    for row, sentence in zip(rows, sentences, strict=True):
        words = sentence[:max_chars].encode().split()
        ids = [known.get(word, len(WORDS) + len(word) % BUCKETS) for word in words]
        row += TABLE[ids].sum(axis=0, dtype=np.float64) / max(len(ids), 1) ** 0.5
    return np.tanh(rows @ MATRIX)


def make_tfhub(folder: Path) -> str:
    """A model in the TF2 format: an object that can be called, as the Universal Sentence Encoder from version 4 on."""
    return f"tfhub:{make_tf2(folder / 'tf2')}"


def make_tf2(path: Path) -> Path:
    """A TF2 model with a vocabulary in a file."""
    tf = start_tensorflow()

    model = tf.Module()
    model.table = _vocabulary(tf, path)
    model.vectors = tf.Variable(TABLE)
    model.matrix = tf.Variable(MATRIX)
    return make_function(path, lambda text: _graph(tf, text, model.table, model.vectors, model.matrix), model=model)


def make_tf1(path: Path) -> Path:
    """A hub module of TF1, as the Universal Sentence Encoder to version 3: two graphs, tables filled by no main op."""
    tf = start_tensorflow()
    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(str(path))
    for tags in ([], ["train"]):
        with tf.Graph().as_default(), v1.Session() as session:
            text = v1.placeholder(tf.string, [None], name="text")
            with v1.variable_scope("module", use_resource=True):
                vectors = v1.get_variable("vectors", initializer=TABLE)
                matrix = v1.get_variable("matrix", initializer=MATRIX)
            vectors_out = _graph(tf, text, _vocabulary(tf, path), vectors, matrix)
            if tags:
                vectors_out = -vectors_out  # loading the wrong graph gives other vectors
            signature = v1.saved_model.predict_signature_def({"text": text}, {"default": vectors_out})
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            if tags:
                builder.add_meta_graph(tags, signature_def_map={"default": signature})
            else:
                assets = v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS)
                builder.add_meta_graph_and_variables(
                    session, tags, signature_def_map={"default": signature}, assets_collection=assets
                )
    builder.save()
    (path / "tfhub_module.pb").write_bytes(b"\x08\x03")  # a ModuleDef whose format is 3
    return path


def make_signatures(path: Path) -> Path:
    """A TF2 model that cannot be called: only its signatures can, none of which is the default."""
    tf = start_tensorflow()
    model = tf.Module()
    model.matrix = tf.Variable(MATRIX)
    text = tf.TensorSpec([None], tf.string, name="text")

    def encode(text: Tensor) -> dict[str, Tensor]:
        lengths = tf.strings.length(text)
        vectors = tf.cast(lengths, tf.float32)[:, None] * model.matrix[0]
        return {"long": vectors, "short": vectors[:, :3], "lengths": lengths, "flat": vectors[:, 0]}

    functions = {
        "encode": tf.function(encode, input_signature=[text]),
        "counts": tf.function(lambda text: {"n": tf.strings.length(text)}, input_signature=[text]),
        "numbers": tf.function(lambda x: {"y": x}, input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")]),
        "pair": tf.function(
            lambda a, b: {"y": tf.strings.join([a, b])},
            input_signature=[tf.TensorSpec([None], tf.string, name=name) for name in "ab"],
        ),
    }
    tf.saved_model.save(model, str(path), signatures=functions)
    return path


def make_function(path: Path, function: Function, *, model: Tensor = None) -> Path:
    """A TF2 model that is just a function of a list of strings; `model` holds the variables that it uses."""
    tf = start_tensorflow()
    model = model or tf.Module()
    model.__call__ = tf.function(function, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    tf.saved_model.save(model, str(path))
    return path


def pack(folder: Path, archive: Path) -> Path:
    """The archive as tfhub.dev has it: gzipped, its paths relative to the model."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=".")
    return archive


def _vocabulary(tf: ModuleType, path: Path) -> Tensor:
    file = path.with_name(f"{path.name}-words.txt")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes("\n".join(WORDS).encode())
    initializer = tf.lookup.TextFileInitializer(
        str(file), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    return tf.lookup.StaticHashTable(initializer, -1)


def _graph(tf: ModuleType, text: Tensor, table: Tensor, vectors: Tensor, matrix: Tensor) -> Tensor:
    words = tf.strings.split(text)
    lengths = tf.cast(tf.strings.length(words.flat_values), tf.int64)
    ids = table.lookup(words.flat_values)
    ids = tf.where(ids >= 0, ids, len(WORDS) + lengths % BUCKETS)
    # Padded to the longest sentence of the batch and masked, as transformers are.
    padded = words.with_flat_values(ids).to_tensor(-1)
    mask = tf.cast(padded >= 0, tf.float32)
    found = tf.gather(vectors, tf.maximum(padded, 0)) * mask[:, :, None]
    count = tf.maximum(tf.reduce_sum(mask, axis=1, keepdims=True), 1)
    return tf.tanh(tf.matmul(tf.reduce_sum(found, axis=1) / tf.sqrt(count), matrix))
