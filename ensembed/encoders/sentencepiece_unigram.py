"""SentencePiece's unigram tokenizer, exactly as in the TF.js port that `use-lite` was released with."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

# Characters read of a text: four times what 128 known pieces of at most 16 characters need. Without a cut, a line of
# 10 MB would take seconds, and hours if it consists of combining marks: their normalisation is quadratic.
MAX_CHARACTERS = 8192
RESERVED = 6  # the unknown piece, control symbols and user-defined symbols come first and never match text

_UNKNOWN, _SPACE = 0, "▁"
_PIECE = ""  # the key of a trie node's own piece, which no character can be


class UnigramTokenizer:
    """Splits a text into the pieces with the greatest total score, by Viterbi's algorithm.

    The library `tokenizers` breaks ties the other way. The rules are exactly those of the original:

    - the text is normalised (NFKC), spaces become `▁`, and one more `▁` goes in front;
    - a character where no piece starts is unknown: id 0 with score 0, and a run of them is a single id;
    - of two segmentations with equal scores, the one that ends in the shorter piece wins;
    - a best score of exactly 0 counts as "none yet" and is replaced by any other;
    - of two equal pieces, the later id counts; a score of null is 0.

    Args:
        vocabulary: pairs of piece and score, in the order of their ids.
        reserved: how many ids at the start never match text.

    Example:
        >>> pieces = [("<unk>", 0.0), ("▁", -3.0), ("▁a", -1.0), ("b", -1.5), ("ab", -1.0)]
        >>> UnigramTokenizer(pieces, reserved=1).encode("ab 中中")
        [2, 3, 1, 0]

    Reference:
        Kudo, "Subword regularization", ACL 2018.
    """

    def __init__(self, vocabulary: Sequence[tuple[str, float | None]], *, reserved: int = RESERVED) -> None:
        self._trie: dict[str, Any] = {}
        for i, (piece, score) in enumerate(vocabulary[reserved:], start=reserved):
            node = self._trie
            for character in piece:
                node = node.setdefault(character, {})
            node[_PIECE] = (score or 0.0, i)
        self._lengths = [1 if i == _UNKNOWN else len(piece) for i, (piece, _) in enumerate(vocabulary)]

    def encode(self, text: str) -> list[int]:
        """Return the ids of the pieces of the text, of which at most `MAX_CHARACTERS` are read."""
        normalized = unicodedata.normalize("NFKC", text[:MAX_CHARACTERS])
        if not normalized:
            return []
        last_piece = self._last_pieces(_SPACE + normalized.replace(" ", _SPACE))
        ids: list[int] = []
        end = len(last_piece) - 1
        while end > 0:
            i = last_piece[end]
            if i != _UNKNOWN or not ids or ids[-1] != _UNKNOWN:
                ids.append(i)
            end -= self._lengths[i]
        ids.reverse()
        return ids

    def _last_pieces(self, text: str) -> list[int]:
        """Return, for every end in 0..len(text), the last piece of the best segmentation of `text[:end]`."""
        size, trie = len(text), self._trie
        best, last = [0.0] * (size + 1), [_UNKNOWN] * (size + 1)
        # Starts ascend, so `best[start]` is final and, with `>=`, the shortest of equal pieces wins. An end that no
        # piece reaches keeps best 0 and the unknown id, as in the original.
        for start in range(size):
            so_far, node = best[start], trie.get(text[start])
            end, known = start, False
            while node is not None:
                end += 1
                if _PIECE in node:
                    known = True
                    score, i = node[_PIECE]
                    score += so_far
                    if score >= best[end] or best[end] == 0.0:
                        best[end], last[end] = score, i
                if end == size:
                    break
                node = node.get(text[end])
            if not known and (so_far >= best[start + 1] or best[start + 1] == 0.0):
                best[start + 1], last[start + 1] = so_far, _UNKNOWN
        return last
