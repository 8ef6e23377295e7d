"""SentencePiece's unigram tokenizer as its own library runs it, read from a `.model` file, which is a protobuf message.

`sentencepiece_unigram.py` has the TF.js port of `use-lite`, whose rules differ in small things.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ensembed.encoders.model_files import read_bytes
from ensembed.encoders.token_ids import cut
from ensembed.errors import EncoderError
from ensembed.support.file_limits import (
    PIECE_CHARACTERS,
    RULE_BYTES,
    SENTENCEPIECE_BYTES,
    SENTENCEPIECE_PIECES,
    LimitError,
)
from ensembed.support.protobuf import read_fields

_SPACE = "▁"
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # kinds of pieces that matter here
_UNKNOWN_PENALTY = 10.0  # below the least score of a piece
_MOST_WORDS = 100_000  # whose pieces are kept, if they have at most so many characters
_LONGEST_WORD = 64


class SentencePieceModel(NamedTuple):
    """What a `.model` file says: pieces in the order of their numbers, and how a text is normalised.

    Attributes:
        pieces: text, score and kind of every piece.
        rules: what is replaced in a text before it is split.
        begin, end: the numbers of the pieces that stand for the begin and the end of a text.
    """

    pieces: list[tuple[str, float, int]]
    rules: Rules
    begin: int
    end: int


class SentencePieceTokenizer:
    """Splits a text into the pieces with the greatest total score, by Viterbi's algorithm.

    - The text is normalised by the rules of the model (mostly NFKC), runs of spaces become one and those at both ends
      are removed; a space becomes `▁`, and one `▁` goes in front.
    - A character that is no piece is the unknown one, and a run of unknown characters is a single piece.
    - Of two segmentations with equal scores, the one whose last piece is longer wins. (The library adds up scores in
      32 bits, so that rounding may decide: in 1 of 20,000 sentences, such as one that ends in "sssssssssssss".)

    Example:
        >>> pieces = [("<unk>", 0.0, 2), ("▁", -3.0, 1), ("▁a", -1.0, 1), ("b", -1.5, 1), ("ab", -1.0, 1)]
        >>> SentencePieceTokenizer(SentencePieceModel(pieces, Rules(b""), 1, 2)).encode(" ab  中中")
        [2, 3, 1, 0]

    Reference:
        Kudo and Richardson, "SentencePiece", EMNLP 2018.
    """

    def __init__(self, model: SentencePieceModel) -> None:
        normal = [score for _, score, kind in model.pieces if kind == _NORMAL]
        highest, lowest = max(normal, default=0.0), min(normal, default=0.0)
        self._unknown = next((i for i, (_, _, kind) in enumerate(model.pieces) if kind == _UNKNOWN), 0)
        self._unknown_score = lowest - _UNKNOWN_PENALTY
        self._pieces: dict[str, tuple[float, int]] = {}
        for i, (piece, score, kind) in enumerate(model.pieces):
            if kind == _USER_DEFINED:
                score = len(piece.encode()) * highest - 0.1  # so that nothing within it wins
            if kind in (_NORMAL, _USER_DEFINED) and piece:
                self._pieces[piece] = (score, i)
        self._longest = max(map(len, self._pieces), default=1)
        self._rules = model.rules
        # If no rule and no piece reaches over a space, a word has its own best pieces, whatever is around it.
        reaching = any(_SPACE in piece[1:] for piece in self._pieces) or model.rules.continues(" ")
        self._by_word = not reaching and _SPACE in self._pieces
        self._known: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the numbers of the pieces of a text; none for a text of spaces."""
        ids: list[int] = []
        known = self._known
        for word in text.split(" ") if self._by_word and _SPACE not in text else [text]:
            pieces = known.get(word)
            if pieces is None:
                pieces = self._split(self.normalize(word))
                if len(word) <= _LONGEST_WORD:  # a text without spaces is one word, and does not come again
                    if len(known) >= _MOST_WORDS:
                        known.clear()
                    known[word] = pieces
            ids += pieces
        return ids

    def first_ids(self, text: str, count: int) -> list[int]:
        """Return the numbers of the first pieces of a text, of any length, of which only the beginning is read."""
        return self.encode(cut(text, count, lambda beginning: self.encode(beginning)[:count]))[:count]

    def normalize(self, text: str) -> str:
        """Return the text as the pieces have it: `▁` for spaces and in front; nothing for a text of spaces."""
        spaced = re.sub("  +", " ", self._rules.apply(text)).strip(" ").replace(" ", _SPACE).rstrip(_SPACE)
        return _SPACE + spaced if spaced else ""

    def _split(self, text: str) -> tuple[int, ...]:
        """Return the best pieces of a normalised text."""
        size, pieces, longest = len(text), self._pieces, self._longest
        best = [0.0, *[-np.inf] * size]
        last = [(0, self._unknown)] * (size + 1)  # where the last piece of the best segmentation starts, and its number
        for start in range(size):
            so_far = best[start]
            if text[start : start + 1] not in pieces:
                score = so_far + self._unknown_score
                if score > best[start + 1]:
                    best[start + 1], last[start + 1] = score, (start, self._unknown)
            for end in range(start + 1, min(start + longest, size) + 1):
                piece = pieces.get(text[start:end])
                if piece is not None and so_far + piece[0] > best[end]:
                    best[end], last[end] = so_far + piece[0], (start, piece[1])
        ids: list[int] = []
        end = size
        while end > 0:
            end, i = last[end]
            if i != self._unknown or not ids or ids[-1] != self._unknown:
                ids.append(i)
        return tuple(reversed(ids))


class Rules:
    """What the normalisation replaces by what: a trie as a double array (Darts), and the texts that it leads to.

    A unit of the array has a label in its lowest byte, whether a key ends there in bit 8, and the distance of its
    children above. A child is at the distance, XOR its label; the one with label 0 has the place of the text.

    Args:
        data: the size of the array in 4 bytes, the array, the texts; nothing if nothing is replaced.

    Raises:
        ValueError: they do not fit together.
    """

    def __init__(self, data: bytes) -> None:
        size = int.from_bytes(data[:4], "little")
        if size % 4 or size > len(data):
            raise ValueError(f"the trie of its normalisation is said to have {size:,} bytes")
        self._units: list[int] = np.frombuffer(data, "<u4", size // 4, 4).tolist() if size else []
        self._texts = data[4 + size :]
        # What becomes of ASCII text, character by character, unless a rule has two of them.
        self._ascii = {b: self._longest(bytes([b]), 0)[0].decode() for b in range(128)}
        self._plain = not any(self._reach(bytes([a, b]), 0)[0] == 2 for a in range(128) for b in range(128))

    def apply(self, text: str) -> str:
        """Replace from left to right, the longest that matches first."""
        if self._plain and text.isascii():
            return text.translate(self._ascii)
        data, at = text.encode(), 0
        parts = []
        try:
            while at < len(data):
                part, size = self._longest(data, at)
                parts.append(part)
                at += size
            return b"".join(parts).decode()
        except (IndexError, UnicodeDecodeError) as error:
            raise EncoderError(f"the rules of the SentencePiece model are damaged ({error})") from error

    def continues(self, character: str) -> bool:
        """Return whether a longer text that starts with this character is replaced."""
        data = character.encode()
        return any(self._reach(data + bytes([b]), 0)[0] > len(data) for b in range(256))

    def _longest(self, data: bytes, at: int) -> tuple[bytes, int]:
        """Return what becomes of the longest key that the data has at a place, or of one character, and its size."""
        _, size, place = self._reach(data, at)
        if size:
            end = self._texts.find(b"\0", place, place + RULE_BYTES)
            if end < 0:
                raise EncoderError("a rule of the SentencePiece model replaces a character by a text that never ends")
            return self._texts[place:end], size
        size = next((n for n, first in ((1, 0x80), (2, 0xE0), (3, 0xF0)) if data[at] < first), 4)
        return data[at : at + size], size

    def _reach(self, data: bytes, at: int) -> tuple[int, int, int]:
        """Return how many bytes the trie follows, how many of them are the longest key, and the place of its text."""
        units = self._units
        if not units:
            return 0, 0, 0
        node, start, size, place = units[0] >> 10 << ((units[0] & 0x200) >> 6), at, 0, 0
        while at < len(data):
            node ^= data[at]
            unit = units[node]
            if unit & 0x800000FF != data[at]:
                break
            node ^= unit >> 10 << ((unit & 0x200) >> 6)
            at += 1
            if unit & 0x100:
                size, place = at - start, units[node] & 0x7FFFFFFF
        return at - start, size, place


def read_sentencepiece(path: Path, hint: str) -> SentencePieceModel:
    """Read a SentencePiece model of the unigram kind; an EncoderError that ends in the hint if it is damaged."""
    data = read_bytes(path, hint)
    try:
        if len(data) > SENTENCEPIECE_BYTES:
            raise LimitError(f"it has more than {SENTENCEPIECE_BYTES:,} bytes")
        return _read_model(data)
    except (ValueError, IndexError, struct.error, EncoderError) as error:
        raise EncoderError(f"{path} is no SentencePiece model, or damaged ({error}); {hint}") from error


def _read_model(data: bytes) -> SentencePieceModel:
    pieces: list[tuple[str, float, int]] = []
    trainer, normalizer = dict[int, object](), dict[int, object]()
    for number, value in read_fields(data, 0, len(data)):
        if not isinstance(value, tuple):
            continue
        if number == 1:
            facts = dict(read_fields(data, *value))
            text, score, kind = facts.get(1, (0, 0)), facts.get(2, 0.0), facts.get(3, _NORMAL)
            if not isinstance(text, tuple) or not isinstance(score, float) or not isinstance(kind, int):
                raise ValueError(f"piece {len(pieces)} is not a text with a score")
            piece = data[slice(*text)].decode()
            if len(piece) > PIECE_CHARACTERS or not np.isfinite(score):
                raise ValueError(f"piece {len(pieces)} has {len(piece):,} characters and the score {score}")
            if len(pieces) == SENTENCEPIECE_PIECES:
                raise LimitError(f"it has more than {SENTENCEPIECE_PIECES:,} pieces")
            pieces.append((piece, score, kind))
        elif number == 2:
            trainer = dict(read_fields(data, *value))
        elif number == 3:
            normalizer = dict(read_fields(data, *value))
    if not pieces:
        raise ValueError("there is no piece in it")
    if trainer.get(3, 1) != 1:
        raise ValueError(f"it is of kind {trainer[3]}, not of the unigram kind")
    for field, what in ((3, "puts no space in front"), (4, "keeps runs of spaces"), (5, "keeps spaces as they are")):
        if normalizer.get(field, 1) != 1:
            raise ValueError(f"its normalisation {what}, which is not supported")
    rules = normalizer.get(2)
    begin, end = (trainer.get(field, usual) for field, usual in ((41, 1), (42, 2)))
    if not all(isinstance(i, int) and i < len(pieces) for i in (begin, end)):
        raise ValueError(f"begin and end of a text are pieces {begin} and {end}")
    replacing = Rules(data[slice(*rules)] if isinstance(rules, tuple) else b"")
    return SentencePieceModel(pieces, replacing, begin, end)  # type: ignore[arg-type]  # two integers
