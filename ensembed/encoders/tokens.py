"""Tokenizers of `tokenizer.json` files, and the tokens of sentences of any length in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ensembed.encoders.long_texts import cut
from ensembed.errors import EncoderError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Characters tokenised together: the library takes up to 430 bytes for each (measured on punctuation).
_CHARACTERS = 1_000_000


def open_tokenizer(path: Path, name: str) -> Tokenizer:
    """The tokenizer of a file, without padding and truncation.

    Raises:
        EncoderError: the file is absent or damaged.
    """
    from tokenizers import Tokenizer

    if not path.is_file():
        raise EncoderError(
            f"encoder {name!r}: there is no {path}; save the model's tokenizer there, "
            "in the format of the tokenizers library"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exceptions
        raise EncoderError(f"encoder {name!r}: {path} is not a tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def all_ids(tokenizer: Tokenizer, sentences: list[str], *, special: bool) -> Iterator[list[int]]:
    """The tokens of each sentence, with or without the special ones."""
    for batch in _batches(sentences):
        for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=special):
            yield encoding.ids


def first_ids(tokenizer: Tokenizer, sentences: list[str], length: int) -> list[list[int]]:
    """The first tokens of each sentence, the special ones included, from a tokenizer whose truncation is `length`.

    It tokenises all of a text before it cuts: 10 MB of punctuation take 15 s and 4 GB. Of a long text we therefore give
    it only the beginning.
    """
    beginnings = [cut(sentence, length, lambda text: _ids(tokenizer, text)) for sentence in sentences]
    return list(all_ids(tokenizer, beginnings, special=True))


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode_batch_fast([text])[0].ids


def _batches(sentences: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for sentence in sentences:
        if batch and characters + len(sentence) > _CHARACTERS:
            yield batch
            batch, characters = [], 0
        batch.append(sentence)
        characters += len(sentence)
    if batch:
        yield batch
