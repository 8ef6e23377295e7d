"""A small model in the form of Wieting and Gimpel's: a pickle of trigram vectors, word vectors and their indices."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np

from ensembed.encoders.paranmt_encoder import MEMBER
from ensembed.testing import SENTENCES

UNKNOWN = "UUUNKKK"


def model_data(dims: tuple[int, int] = (12, 12), seed: int = 0) -> list[object]:
    """`[We_trigrams, We_words, (trigrams, words)]` over the sentences of the contract."""
    words = sorted({word.strip(".,!") for sentence in SENTENCES for word in sentence.lower().split()} - {""})
    trigrams = sorted({f" {word} "[i : i + 3] for word in words for i in range(len(word))})
    generator = np.random.default_rng(seed)
    indices = tuple({unit: row for row, unit in enumerate([*units, UNKNOWN])} for units in (trigrams, words))
    vectors = [
        generator.standard_normal((len(index), dim)).astype(np.float32)
        for index, dim in zip(indices, dims, strict=True)
    ]
    return [*vectors, indices]


def make_paranmt(folder: Path) -> str:
    """Write a pickle into the folder; the name of its encoder."""
    file = folder / "ngram-word.pickle"
    file.write_bytes(pickle.dumps(model_data(), 2))
    return f"paranmt:{file}"


def make_paranmt_zip(file: Path) -> None:
    """Write an archive like the release's: the model in a folder, beside other files."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("para-nmt-50m-demo/sts-test.txt", "a\tb\t1.0\n")
        archive.writestr("para-nmt-50m-demo/bilstmavg-4096-40.pickle", b"\x80\x02N.")
        archive.writestr(f"para-nmt-50m-demo/{MEMBER}", pickle.dumps(model_data(), 2))
