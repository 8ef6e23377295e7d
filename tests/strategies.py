"""Hypothesis strategies that several tests share."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

# What Python counts as a character of text, without lone surrogates: those are no text.
characters = st.characters(exclude_categories=["Cs"])
# Characters at which `str.splitlines` splits although a line of a file does not end there, and other white space.
awkward_characters = st.sampled_from("\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e\u00a0\u3000\ufeff\r\t \0")
texts = st.text(st.one_of(characters, awkward_characters), max_size=20)

sentences = texts.filter(lambda text: bool(text.strip()))
"""Sentences that are not blank."""

line_texts = texts.filter(lambda text: "\n" not in text and not text.endswith("\r") and not text.startswith("\ufeff"))
"""Texts that a line of a file can hold."""


def repeating(elements: st.SearchStrategy[str], *, max_size: int = 40) -> st.SearchStrategy[list[str]]:
    """Lists that are not empty and in which equal elements are frequent."""
    choose: Callable[[list[str]], st.SearchStrategy[list[str]]] = lambda few: st.lists(  # noqa: E731 - a name for a long argument
        st.sampled_from(few), min_size=1, max_size=max_size
    )
    return st.lists(elements, min_size=1, max_size=8).flatmap(choose)
