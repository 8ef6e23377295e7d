"""A small file of word vectors in GloVe's format, and the same in every other format we read."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WORDS = """
    the a an of to and in on is are was were not n't 's man men woman dog dogs cat guitar plays playing run runs
    through snow while third one two sleeps sofa dreams cats stock prices fell sharply after report analysts said
    tuesday do did does can will well known well-known word gürtel aus leder ein 12,50 u.s. us The May may New_York
""".split()  # noqa: SIM905 - a list of strings would take a page
DIM = 16


def small_vectors(count: int = 300, dim: int = DIM) -> dict[str, NDArray[np.float32]]:
    """Random vectors of `WORDS` and of `word0`, `word1`, …; frequent directions are shared, as in real ones."""
    generator = np.random.default_rng(0)
    words = [*WORDS, *(f"word{i}" for i in range(count - len(WORDS)))]
    numbers = generator.standard_normal((len(words), dim)) + 0.5 * generator.standard_normal(dim)
    # Five digits, as in GloVe's files.
    return {
        word: np.array([float(f"{x:.5g}") for x in row], np.float32) for word, row in zip(words, numbers, strict=True)
    }


def glove_text(vectors: Mapping[str, NDArray[np.float32]]) -> bytes:
    return "".join(f"{word} {' '.join(str(x) for x in vector)}\n" for word, vector in vectors.items()).encode()


def word2vec_text(vectors: Mapping[str, NDArray[np.float32]]) -> bytes:
    return f"{len(vectors)} {_dim(vectors)}\n".encode() + glove_text(vectors)


def fasttext_text(vectors: Mapping[str, NDArray[np.float32]]) -> bytes:
    return word2vec_text(vectors).replace(b"\n", b" \n")


def word2vec_binary(vectors: Mapping[str, NDArray[np.float32]], end: bytes = b"") -> bytes:
    parts = [f"{len(vectors)} {_dim(vectors)}\n".encode()]
    parts += [word.encode() + b" " + struct.pack(f"<{len(v)}f", *v) + end for word, v in vectors.items()]
    return b"".join(parts)


def wink_json(vectors: Mapping[str, NDArray[np.float32]]) -> bytes:
    dim = _dim(vectors)
    rows = {
        word: [*(float(str(x)) for x in vector), round(float(np.linalg.norm(vector)), 8), rank]
        for rank, (word, vector) in enumerate(vectors.items())
    }
    facts = {"precision": 8, "l2NormIndex": dim, "wordIndex": dim + 1, "size": len(vectors), "dimensions": dim}
    return json.dumps(
        {**facts, "words": list(vectors), "vectors": rows, "unkVector": [0] * (dim + 2)}, ensure_ascii=False
    ).encode()


def all_formats(vectors: Mapping[str, NDArray[np.float32]]) -> dict[str, tuple[str, bytes]]:
    """By a label: the format and the bytes of a file."""
    files = {
        "glove": ("glove", glove_text(vectors)),
        "glove with CRLF": ("glove", glove_text(vectors).replace(b"\n", b"\r\n")),
        "glove with a BOM": ("glove", b"\xef\xbb\xbf" + glove_text(vectors)),
        "glove without a last newline": ("glove", glove_text(vectors).rstrip()),
        "word2vec": ("word2vec", word2vec_text(vectors)),
        "fasttext": ("word2vec", fasttext_text(vectors)),
        "word2vec-bin": ("word2vec-bin", word2vec_binary(vectors)),
        "word2vec-bin with newlines": ("word2vec-bin", word2vec_binary(vectors, b"\n")),
        "wink": ("wink", wink_json(vectors)),
    }
    return files | {f"{label}, gzipped": (form, gzip.compress(data, 1)) for label, (form, data) in files.items()}


def make_words(folder: Path) -> str:
    """The name of an encoder over a small GloVe file, made in the folder."""
    path = folder / "vectors.txt"
    path.write_bytes(glove_text(small_vectors()))
    return f"words:{path}"


def _dim(vectors: Mapping[str, NDArray[np.float32]]) -> int:
    return len(next(iter(vectors.values())))
