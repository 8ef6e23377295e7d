"""Where a static student starts: token vectors from encoders, mapped to the teacher by ridge regression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ensembed.corpora.corpus import ListCorpus
from ensembed.distil.distil_job import decode
from ensembed.encoders.base import Encoder
from ensembed.encoders.static_encoder import StaticEncoder
from ensembed.errors import InputError
from ensembed.models.model_vectors import model_vectors
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.progress import Progress
from ensembed.views import ViewStore

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SIF = 1e-3  # tokens of this frequency count half as much as rare ones (Arora, Liang and Ma 2017)
_RIDGE = 1e-3  # of the mean variance of the sentences' features
_BLOCK = 8192  # sentences at a time
_MARKS = (
    "##",
    "▁",
    "Ġ",
    "</w>",
)  # what WordPiece, SentencePiece and byte-level BPE put before or after a piece of text


def starting_table(features: NDArray[np.float32] | None, rows: TokenRows, seed: int) -> NDArray[np.float32]:
    """Return the first vectors [V, d] of tokens with these features [V, D]; without any, they are random.

    The mean length of the vectors is one, so that a learning rate means the same for every start.
    """
    if features is None:
        table = np.random.default_rng([seed, 2]).standard_normal((rows.vocabulary, rows.dim), np.float32)
    else:
        table = ridge_table(features, sif_weights(rows.counts), rows)
    length = np.sqrt(np.square(table, dtype=np.float64).sum(axis=1).mean())
    return (table / (length or 1.0)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class TokenRows:
    """The sentences of a job, of which some are chosen to fit a start on."""

    tokens: NDArray[Any]
    offsets: NDArray[np.int64]
    targets: NDArray[np.int8]
    vocabulary: int
    chosen: NDArray[np.bool_]

    @classmethod
    def in_folder(cls, folder: Path, vocabulary: int, held: NDArray[np.int64]) -> TokenRows:
        """Return the sentences of a job that is being prepared in a folder; those that are held out are not chosen."""
        names = ("tokens.npy", "offsets.npy", "targets.npy")
        arrays = [np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in names]
        chosen = np.ones(len(arrays[2]), bool)
        chosen[held] = False
        return cls(arrays[0], arrays[1], arrays[2], vocabulary, chosen)

    @property
    def dim(self) -> int:
        """The dimensions of the targets."""
        return int(self.targets.shape[1])

    @property
    def counts(self) -> NDArray[np.int64]:
        """[V] how often each token occurs."""
        total = np.zeros(self.vocabulary, np.int64)
        for start in range(0, len(self.tokens), 1 << 22):
            total += np.bincount(self.tokens[start : start + (1 << 22)], minlength=self.vocabulary)
        return total

    def blocks(self, weights: NDArray[np.float32]) -> Iterator[tuple[Any, NDArray[np.float32]]]:
        """Yield sparse matrices [b, V] that average chosen sentences' tokens with weights [V], and the targets."""
        for start in range(0, len(self.targets), _BLOCK):
            stop = min(start + _BLOCK, len(self.targets))
            offsets = self.offsets[start : stop + 1]
            tokens = np.asarray(self.tokens[offsets[0] : offsets[-1]], np.int64)
            lengths = np.diff(offsets)
            data = weights[tokens] / np.repeat(lengths, lengths).astype(np.float32)
            shape = (stop - start, self.vocabulary)
            C, chosen = csr_array((data, tokens, offsets - offsets[0]), shape), self.chosen[start:stop]
            yield C[chosen], decode(self.targets[start:stop][chosen])


def sif_weights(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the weights a / (a + p) [V] of tokens that occur so often."""
    p = (counts + 1) / (counts.sum() + len(counts))
    return np.asarray(_SIF / (_SIF + p), np.float32)


def ridge_table(features: NDArray[np.float32], weights: NDArray[np.float32], rows: TokenRows) -> NDArray[np.float32]:
    """Return the token vectors [V, d] whose means predict the teacher's vectors best, linear in the features [V, D].

    With x the mean of a sentence's weighted features and t its target, both centred, the map is the ridge regression
    (X'X + lambda)^-1 X'T, from one pass. The mean of x becomes a part of every token's vector.
    """
    D, d, n = features.shape[1], rows.dim, int(rows.chosen.sum())
    products, mixed = np.zeros((D, D)), np.zeros((D, d))
    total, total_targets = np.zeros(D), np.zeros(d)
    for C, T in rows.blocks(weights):
        X = (C @ features).astype(np.float32)
        products += X.T @ X
        mixed += X.T @ T
        total += X.sum(axis=0, dtype=np.float64)
        total_targets += T.sum(axis=0, dtype=np.float64)
    mean = total / n
    products -= np.outer(mean, mean) * n
    mixed -= np.outer(mean, total_targets)
    products[np.diag_indices(D)] += _RIDGE * np.trace(products) / D + np.finfo(np.float32).tiny
    M = np.linalg.solve(products, mixed)
    table = (features * weights[:, None]).astype(np.float64) @ M - mean @ M
    return table.astype(np.float32)


def token_features(tokenizer: Tokenizer, encoder: Encoder, store: ViewStore, progress: Progress) -> NDArray[np.float32]:
    """Return an encoder's vectors of each token's text alone, centred, of length one [V, d].

    Tokens without a text of their own, such as special ones, have zeros. The vectors are kept in the store.
    """
    texts = token_texts(tokenizer)
    known = np.array([i for i, text in enumerate(texts) if text], np.int64)
    if not len(known):
        raise InputError("no token of the tokenizer has a text: start from nothing (start=('none',), --start none)")
    X = model_vectors(ListCorpus([texts[i] for i in known]), [encoder], store, progress=progress)[0]
    X = unit_rows(np.asarray(X[0 : len(known)]))
    features = np.zeros((len(texts), X.shape[1]), np.float32)
    features[known] = unit_rows(X - X.mean(axis=0))
    return features


def token_texts(tokenizer: Tokenizer) -> list[str]:
    """Return the text of each token, by number; empty for special tokens and for numbers without a token."""
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    texts = [""] * (max(tokenizer.get_vocab().values(), default=-1) + 1)
    for token, number in tokenizer.get_vocab().items():
        if number not in special and not (token.startswith("[unused") and token.endswith("]")):
            for mark in _MARKS:
                token = token.removeprefix(mark).removesuffix(mark)
            texts[number] = token.strip()
    return texts


def static_table(encoder: StaticEncoder, size: int) -> NDArray[np.float32]:
    """Return the vectors [V, d] of a static model's tokens, with their weights in them, centred."""
    numbers = np.arange(size)
    table = np.asarray(encoder.token_vectors(numbers), np.float32)
    table = table - table.mean(axis=0)
    length = np.sqrt(np.square(table, dtype=np.float64).sum(axis=1).mean())
    return np.asarray(table / (length or 1.0), np.float32)
