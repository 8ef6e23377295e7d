"""Tokens so long that the tokenizers library would end the process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from make_st import write_st

from ensembed.encoders import open_encoder
from ensembed.encoders.token_ids import check_tokens, read_tokenizer
from ensembed.errors import EncoderError
from ensembed.support.file_limits import JSON_VALUES


def content(model: dict[str, Any]) -> str:
    """Return the text of a tokenizer.json without anything but a model."""
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return json.dumps({"version": "1.0", **parts, "added_tokens": [], "model": model})


def unigram(token: str) -> str:
    """Return the text of a Unigram tokenizer with a token."""
    vocabulary = [["<unk>", 0.0], ["a", -1.0], [token, -2.0]]
    return content({"type": "Unigram", "unk_id": 0, "vocab": vocabulary, "byte_fallback": False})


LONG = unigram("x" * 200_000)
SPELLINGS = {
    "plain": LONG,
    "escaped": LONG.replace('"Unigram"', '"Uni\\u0067ram"'),
    "without a type": LONG.replace('"type": "Unigram", ', ""),
    "quotes": unigram('x"' * 100_000),
    "backslashes": unigram('x\\"' * 70_000),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_long_tokens_are_refused_however_the_file_is_written(spelling: str) -> None:
    with pytest.raises(EncoderError, match=r"here is not a tokenizer: a token has 2\d0,000 characters"):
        read_tokenizer(SPELLINGS[spelling].encode(), "here")


def test_a_model_that_another_follows_is_refused(tmp_path: Path) -> None:
    twice = LONG.removesuffix("}") + ', "model": ' + json.dumps(json.loads(unigram("x"))["model"]) + "}"
    with pytest.raises(EncoderError, match="here is not a tokenizer: it has the key 'model' twice"):
        read_tokenizer(twice.encode(), "here")
    folder = write_st(tmp_path / "model")
    (folder / "tokenizer.json").write_text(twice)
    with pytest.raises(EncoderError, match=r"tokenizer\.json is not a tokenizer: it has the key 'model' twice"):
        open_encoder(f"st:{folder}")


def test_long_tokens_are_refused_in_a_model_of_sentence_transformers(tmp_path: Path) -> None:
    folder = write_st(tmp_path / "model")
    (folder / "tokenizer.json").write_text(LONG)
    with pytest.raises(EncoderError, match=r"tokenizer\.json is not a tokenizer: a token has 200,000 characters"):
        open_encoder(f"st:{folder}")


def test_other_tokenizers_may_have_the_word_and_long_texts() -> None:
    words: dict[str, Any] = {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##"}
    words |= {"max_input_chars_per_word": 100, "vocab": {"<unk>": 0, "Unigram": 1, "x" * 20_000: 2}}
    assert read_tokenizer(content(words).encode(), "here").get_vocab_size() == 3
    assert read_tokenizer(unigram("x" * 9_000).encode(), "here").get_vocab_size() == 3


def test_a_large_tokenizer_may_have_long_texts() -> None:
    numbers = [0] * (JSON_VALUES + 1)
    check_tokens(json.dumps({"model": {"vocab": [["a", -1.0]]}, "normalizer": "x" * 20_000, "ids": numbers}).encode())
