"""Token numbers of sentences by a `tokenizer.json`, in bounded memory for texts of any length."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ensembed.encoders.base import is_failure
from ensembed.errors import EncoderError
from ensembed.support.file_limits import TOKEN_CHARACTERS, TOKENIZER_BYTES, TOKENIZER_VALUES, parse_json
from ensembed.support.shown_objects import short_value

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CHARACTERS = 1_000_000  # tokenised together: the library takes up to 430 bytes for each (measured on punctuation)
_PER_TOKEN, _LEAST = 16, 4096  # characters, where a long text is cut first: four times as many as in English
_GROWTH = 4
_LONG = re.compile(rb'"[^"]{%d}' % TOKEN_CHARACTERS)  # of a JSON text at least as long, or of what looks like one


def open_tokenizer(path: Path, name: str) -> Tokenizer:
    """Return the tokenizer of a file, without padding and truncation; an EncoderError if it is absent or damaged."""
    if not path.is_file():
        way_out = "save the model's tokenizer there, in the format of the tokenizers library"
        raise EncoderError(f"encoder {name!r}: there is no {path}; {way_out}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EncoderError(f"encoder {name!r}: {path} cannot be read: {error}") from error
    return read_tokenizer(data, f"encoder {name!r}: {path}")


def read_tokenizer(data: bytes, where: str) -> Tokenizer:
    """Return a tokenizer, without padding and truncation, or raise an EncoderError; `where` begins its message."""
    from tokenizers import Tokenizer

    try:
        check_tokens(data)
        tokenizer = Tokenizer.from_buffer(data)
    except BaseException as error:  # the library raises bare Exceptions, and panics
        if not is_failure(error):
            raise
        raise EncoderError(f"{where} is not a tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def check_tokens(data: bytes) -> None:
    """Raise a ValueError if a `tokenizer.json` has a Unigram token so long that the library would crash.

    It need not say that it is one of Unigram: the library takes any list of tokens for that. An AttributeError, a
    KeyError and a TypeError say that it is no tokenizer. Neither is a file with a key twice: the library makes
    both, and Python keeps the last.
    """
    if _LONG.search(data.replace(rb"\"", b"''")):  # few files are parsed, and most of them have no long text
        content = parse_json(
            data, most_bytes=TOKENIZER_BYTES, most_values=TOKENIZER_VALUES, parse_object=_with_each_key_once
        )
        vocabulary = content["model"].get("vocab")
        longest = max((len(token) for token, _ in vocabulary), default=0) if isinstance(vocabulary, list) else 0
        if longest > TOKEN_CHARACTERS:
            raise ValueError(f"a token has {longest:,} characters; at most {TOKEN_CHARACTERS:,} are allowed")


def _with_each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key, value in pairs:
        if key in facts:
            raise ValueError(f"it has the key {short_value(key)} twice")
        facts[key] = value
    return facts


def all_ids(tokenizer: Tokenizer, sentences: list[str], *, special: bool) -> Iterator[list[int]]:
    """Yield the tokens of each sentence, with or without the special ones."""
    start = characters = 0
    for end, sentence in enumerate(sentences):
        if end > start and characters + len(sentence) > _CHARACTERS:
            yield from _encode(tokenizer, sentences[start:end], special=special)
            start, characters = end, 0
        characters += len(sentence)
    yield from _encode(tokenizer, sentences[start:], special=special)


def _encode(tokenizer: Tokenizer, sentences: list[str], *, special: bool = True) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(sentences, add_special_tokens=special)]


def first_ids(tokenizer: Tokenizer, sentences: list[str], length: int) -> list[list[int]]:
    """Return the first tokens of each sentence, special ones included, tokenising only its beginning."""
    beginnings = [cut(sentence, length, lambda text: _encode(tokenizer, [text])[0]) for sentence in sentences]
    return list(all_ids(tokenizer, beginnings, special=True))


def cut(text: str, tokens: int, first_ids: Callable[[str], list[int]]) -> str:
    """Return a beginning of a text that has the same first tokens as the whole.

    A cut changes only the tokens close to it. If a beginning and one four times as long have the same first `tokens`
    tokens, the shorter one is enough. A text that never has enough tokens is kept whole.

    Example:
        >>> len(cut("word " * 2_000_000, 256, lambda text: [len(word) for word in text.split()[:256]]))
        4096
    """
    size = max(_LEAST, _PER_TOKEN * tokens)
    ids = first_ids(text[:size]) if size < len(text) else []
    while size < len(text):
        longer = first_ids(text[: size * _GROWTH])
        if len(longer) == tokens and longer == ids:
            return text[:size]
        size, ids = size * _GROWTH, longer
    return text
