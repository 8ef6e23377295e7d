"""A small tokenizer, and token vectors for it."""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

# Words, letters and punctuation: whatever is in English gets tokens, other scripts are unknown.
LETTERS = string.ascii_lowercase + string.digits
WORDS = [
    "a",
    "man",
    "is",
    "playing",
    "guitar",
    "two",
    "dogs",
    "dog",
    "run",
    "runs",
    "the",
    "snow",
    "cats",
    "stock",
    "so",
]
VOCABULARY = list(
    dict.fromkeys(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *".,!?'"]
    )
)
DIM = 8


def small_tokenizer(*, special: bool = True) -> Tokenizer:
    """WordPiece over the vocabulary, with BERT's special tokens around a sentence, or without."""
    ids = {token: i for i, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106 - a token of no secret
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if special:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair=None, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    return tokenizer


def small_vectors(seed: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """A vector for each token of the vocabulary."""
    return np.random.default_rng(seed).standard_normal((len(VOCABULARY), DIM), np.float32)


def make_static(folder: Path) -> str:
    """Write token vectors and the tokenizer beside them; returns the encoder's name."""
    small_tokenizer().save(str(folder / "tokenizer.json"))
    save_file({"vectors": small_vectors()}, folder / "vectors.safetensors")
    return f"static:{folder / 'vectors.safetensors'}"
