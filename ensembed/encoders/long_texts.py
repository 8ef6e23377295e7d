"""Texts far longer than a model reads, cut before a tokenizer sees them: it takes 100 to 400 bytes for a character."""

from __future__ import annotations

from collections.abc import Callable

# Characters to try for each token, about four times what English has; texts of up to so many are left alone.
_CHARACTERS = 16
_LEAST = 4096
_GROWTH = 4


def cut(text: str, tokens: int, first_ids: Callable[[str], list[int]]) -> str:
    """The beginning of a text that has the same first tokens as the whole.

    No number of characters is always enough: a megabyte of spaces may be no token, and one of letters a single one. So
    the tokenizer decides. A cut changes tokens, but only close to it: a word in two, an accent off its letter. Tokens
    that are all there, and are the same for a beginning and for one four times as long, are far from both cuts. Texts
    that never have enough tokens are kept whole.

    Args:
        text: the text.
        tokens: how many the model reads, from the beginning, with the special ones.
        first_ids: these tokens of a text.

    Example:
        >>> len(cut("word " * 2_000_000, 256, lambda text: [len(word) for word in text.split()[:256]]))
        4096
    """
    size = max(_LEAST, _CHARACTERS * tokens)
    head, before = text[:size], first_ids(text[:size]) if size < len(text) else []
    while size < len(text):
        size *= _GROWTH
        ids = first_ids(text[:size])
        if len(ids) == tokens and ids == before:
            return head
        head, before = text[:size], ids
    return text
