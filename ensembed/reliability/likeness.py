"""How alike encoders are on a corpus, without labels: linear CKA, correlation of cosines, overlap of neighbours.

All use rows of length one and do not change when a view is rotated or scaled. An encoder that gives all sentences the
same vector has 0 in all three, even with itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus
from ensembed.encoders import Encoder
from ensembed.errors import InputError
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Matrix, Views, batches, check_views
from ensembed.reliability.trust_estimate import sample_vectors
from ensembed.support.checks import check_whole
from ensembed.support.heatmap import Panel, figure, svg_heatmap
from ensembed.support.progress import Progress, silent
from ensembed.support.provenance import provenance
from ensembed.support.shown_objects import Shown
from ensembed.support.text_tables import markdown_table

Matrix64 = NDArray[np.float64]

LEAST_ROWS = 4
"""Fewer rows have no unbiased HSIC: it divides by n - 3."""

# Rows read at a time.
_BLOCK = 4096
# Cosines in memory at a time, over all views: 32 MB.
_COSINES = 1 << 22
# An HSIC of a view with itself below this part of its biased one is rounding: all rows are equally far apart.
_NOISE = 1e-12
# Cosines of float32 vectors have errors of about 1e-8; a variance of less than this is rounding.
_LEAST_VARIANCE = 1e-14
# Cosines are rounded, so that equal vectors tie wherever in a matrix product their cosine is computed.
_DECIMALS = 10


HEADERS = ["encoder", "encoder", "CKA", "cosines", "overlap"]
# From this CKA on, an encoder adds next to nothing to the other under a linear method.
_TWINS = 0.95
_LIMITS = (
    "Different does not mean good, and these figures do not show which encoder is better: `ensembed reliability` "
    "estimates that without labels, and `ensembed evaluate` measures it on pairs that have labels. Look for "
    "members that are good and differ."
)
# The page says what the help says, with the references.
_MEANINGS = """\
All figures are of vectors scaled to length one, and of each distinct sentence once.
CKA: linear centred kernel alignment (Kornblith et al. 2019) with the unbiased estimate of HSIC (Song et al. 2012; \
Nguyen et al. 2021): 0 for encoders with nothing in common.
cosines: Pearson's r between the cosines of all pairs of sampled sentences.
overlap: the mean part of a sampled sentence's nearest neighbours, by cosine among the sampled ones, that two encoders \
share.""".splitlines()


@dataclass(frozen=True)
class Pair:
    """How alike two encoders are; the attributes are those of `Comparison`."""

    first: str
    second: str
    cka: float
    cosines: float
    overlap: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """How alike J encoders are.

    Attributes:
        names: the names of the encoders.
        cka: [J, J] linear CKA, debiased, over all rows, in [-1, 1]; near 0 for views that have nothing in common.
        cosines: [J, J] Pearson's r between the cosines of all pairs of sampled sentences.
        overlap: [J, J] the mean part that two encoders share of the nearest neighbours of a sampled sentence.
        rows: the number of sentences.
        sampled: how many of them `cosines` and `overlap` use.
        neighbours: how many nearest neighbours a sentence has in `overlap`.
        seed: seed of the random sample.
    """

    names: tuple[str, ...]
    cka: Matrix64
    cosines: Matrix64
    overlap: Matrix64
    rows: int
    sampled: int
    neighbours: int
    seed: int

    @property
    def chance(self) -> float:
        """The overlap of neighbours that are chosen at random."""
        return self.neighbours / (self.sampled - 1)

    @property
    def mute(self) -> tuple[str, ...]:
        """The encoders that tell no sentences apart, so that their figures are 0."""
        diagonals = zip(self.names, self.cka.diagonal(), self.cosines.diagonal(), strict=True)
        return tuple(name for name, cka, cosines in diagonals if cka == 0 or cosines == 0)

    @property
    def pairs(self) -> list[Pair]:
        """Every pair once, the most alike by CKA first."""
        pairs = [
            Pair(self.names[i], self.names[j], *(float(M[i, j]) for M in (self.cka, self.cosines, self.overlap)))
            for i, j in itertools.combinations(range(len(self.names)), 2)
        ]
        return sorted(pairs, key=lambda pair: pair.cka, reverse=True)


def compare(
    views: Sequence[Any],
    *,
    names: Sequence[str] | None = None,
    among: NDArray[np.integer[Any]] | None = None,
    rows: int = 2000,
    neighbours: int = 10,
    seed: int = 0,
    progress: Progress = silent,
) -> Comparison:
    """Compare the encoders' views of the same sentences.

    This takes two passes over the views, in memory that does not depend on the number of rows, and all pairs of a
    sample. Linear CKA is `HSIC(X, Y) / sqrt(HSIC(X, X) HSIC(Y, Y))` (Kornblith et al. 2019) with the unbiased HSIC of
    Song et al. (2012): the usual estimate gives two random views of d columns a CKA of about d / n.

    Args:
        views: row-aligned arrays [n, d_j], memory maps or stored views, at least two.
        names: the names of the encoders; by default `view 0`, `view 1` and so on.
        among: [m] the numbers of the rows to use, rising; by default all. Repeated sentences should count once.
        rows: how many of them to sample for the cosines and the neighbours; all if there are no more.
        neighbours: how many nearest neighbours of a sentence to compare, by cosine, among the sampled ones.
        seed: seed of the random sample.
        progress: receives the number of rows that are done.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 8))
        >>> comparison = compare([X, X[:, ::-1], np.ones((100, 3))])
        >>> comparison.cka.round(6) + 0.0
        array([[1., 1., 0.],
               [1., 1., 0.],
               [0., 0., 0.]])
        >>> comparison.mute
        ('view 2',)
    """
    checked = check_views(views)
    if len(checked) < 2:
        raise InputError("there is one view alone: comparing takes at least two")
    names = [f"view {j}" for j in range(len(checked))] if names is None else list(names)
    if len(names) != len(checked):
        raise InputError(f"there are {len(checked)} views and {len(names)} names: {names}")
    for name, value, least in (("rows", rows, LEAST_ROWS), ("neighbours", neighbours, 1), ("seed", seed, 0)):
        check_whole(name, value, least)
    chosen = _chosen(among, checked[0].shape[0])
    check_sample(len(chosen), rows, neighbours)
    sample = chosen
    if rows < len(chosen):
        sample = np.sort(np.random.default_rng(seed).choice(chosen, rows, replace=False))
    cka = _cka([_UnitRows(view, chosen, j) for j, view in enumerate(checked)], progress)
    sampled = [sample_vectors(view, sample, j) for j, view in enumerate(checked)]
    cosines, overlap = _pairwise(sampled, neighbours, progress)
    return Comparison(tuple(names), cka, cosines, overlap, len(chosen), len(sample), neighbours, seed)


def check_sample(distinct: int, rows: int, neighbours: int) -> None:
    """Raise an InputError unless there are enough distinct sentences for so many sampled rows and neighbours."""
    if distinct < LEAST_ROWS:
        raise InputError(f"comparing takes at least {LEAST_ROWS} distinct sentences, got {distinct}")
    sampled = min(rows, distinct)
    if neighbours >= sampled:
        raise InputError(
            f"{sampled} sampled sentences have at most {sampled - 1} neighbours each, not {neighbours}: "
            "ask for fewer neighbours (neighbours=…, --neighbours) or more rows (--rows), or take a larger corpus"
        )


class _UnitRows:
    """Some rows of a view, each of length one, in float64: float32 would add rounding that a narrow cone shows."""

    def __init__(self, view: Matrix, rows: NDArray[np.int64], number: int) -> None:
        self.shape = (len(rows), view.shape[1])
        self.dtype = np.dtype(np.float64)
        self._view, self._rows, self._number = view, rows, number

    def __getitem__(self, rows: slice, /) -> Matrix64:
        return sample_vectors(self._view, self._rows[rows], self._number)


def _chosen(among: NDArray[np.integer[Any]] | None, n: int) -> NDArray[np.int64]:
    """Return the numbers of the rows to use, checked."""
    rows = np.arange(n) if among is None else np.asarray(among)
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):  # numpy takes an empty list for floats
        raise InputError(f"among is a list of row numbers, not {rows.dtype} of shape {rows.shape}")
    rows = rows.astype(np.int64)
    if len(rows) and (rows[0] < 0 or rows[-1] >= n or not (np.diff(rows) > 0).all()):
        raise InputError(f"among must rise from 0 to at most {n - 1}: the views have {n} rows")
    return rows


def _cka(views: Views, progress: Progress) -> Matrix64:
    """Return the debiased linear CKA [J, J].

    The unbiased HSIC leaves the diagonals out of the two Gram matrices K and L [n, n]. In terms of centred views, whose
    Gram matrices have rows that sum to zero, it is (up to a factor that CKA does not see)

        ||X'Y||_F^2 - n / (n - 2) sum_i p_i q_i + sum_i p_i sum_i q_i / ((n - 1) (n - 2))

    where p_i and q_i are the squared lengths of the centred rows, and an inner product: Cauchy and Schwarz bound CKA.
    """
    moments = Moments.of_views(views, Pass(progress=progress))
    n, J = moments.n, len(views)
    ends = np.cumsum([view.shape[1] for view in views])
    columns = [slice(int(end) - view.shape[1], int(end)) for view, end in zip(views, ends, strict=True)]
    biased = np.array([[np.square(moments.scatter[a, b]).sum() for b in columns] for a in columns])
    sums, products = np.zeros(J), np.zeros((J, J))
    done = 0
    for blocks in batches(views, _BLOCK):
        centred = [block - moments.mean[a] for block, a in zip(blocks, columns, strict=True)]
        P = np.stack([np.einsum("ij,ij->i", X, X) for X in centred], axis=1)
        sums += P.sum(axis=0)
        products += P.T @ P
        done += len(P)
        progress("centred lengths", done, n)
    hsic = biased - products * (n / (n - 2)) + np.outer(sums, sums) / ((n - 1) * (n - 2))
    varies = np.array([moments.varies(a) for a in columns])
    return _correlation(hsic, varies & (hsic.diagonal() > _NOISE * biased.diagonal()))


def _pairwise(sample: Sequence[Matrix64], k: int, progress: Progress) -> tuple[Matrix64, Matrix64]:
    """Return the correlation of cosines and the overlap of the k nearest neighbours, [J, J], of rows of length one."""
    J, n = len(sample), len(sample[0])
    moments, shared = Moments.zero(J), np.zeros((J, J))
    size = max(1, _COSINES // (J * n))
    for start in range(0, n, size):
        cosines = np.stack([np.round(X[start : start + size] @ X.T, _DECIMALS) for X in sample])  # [J, b, n]
        own = start + np.arange(cosines.shape[1])
        later = np.arange(n) > own[:, None]  # every pair once
        moments += Moments.of(cosines[:, later].T)
        # A row is not its own neighbour, and a zero row, which is equally near to all, has none.
        cosines[:, np.arange(len(own)), own] = -np.inf
        near = [_nearest(C, k) for C in cosines]
        for j, X in enumerate(sample):
            near[j][~X[own].any(axis=1)] = False
        shared += [[np.count_nonzero(a & b) for b in near] for a in near]
        progress("cosines", start + len(own), n)
    varies = moments.covariance.diagonal() > _LEAST_VARIANCE
    overlap = np.where(np.outer(varies, varies), shared / (k * n), 0.0)
    return _correlation(moments.scatter, varies), overlap


def _nearest(C: Matrix64, k: int) -> NDArray[np.bool_]:
    """Return where [b, n] the k largest entries of each row of C [b, n] are; of equal ones the first count."""
    least = np.partition(C, C.shape[1] - k, axis=1)[:, -k, None]
    above, level = least < C, least == C
    room = k - above.sum(axis=1, keepdims=True)
    return np.asarray(above | (level & (np.cumsum(level, axis=1) <= room)))


def _correlation(S: Matrix64, counts: NDArray[np.bool_]) -> Matrix64:
    """Return the correlations of second moments S [J, J]; 0 for members that do not count."""
    scale = np.sqrt(np.where(counts, S.diagonal(), 1.0))
    # Cauchy and Schwarz bound the entries, but for rounding.
    return np.where(np.outer(counts, counts), np.clip(S / np.outer(scale, scale), -1.0, 1.0), 0.0)


@dataclass(frozen=True)
class LikenessReport:
    """A comparison and what it is about.

    Attributes:
        comparison: the figures.
        what: a description of the sentences.
        corpus: the sentences.
        members: the encoders, in the order of the comparison's names.
    """

    comparison: Comparison
    what: str
    corpus: Corpus
    members: Sequence[Encoder]

    def rows(self, labels: Sequence[str]) -> list[list[str]]:
        """Return a row of the table for every pair, the most alike first; `labels` are the names to show."""
        shown = dict(zip(self.comparison.names, labels, strict=True))
        return [
            [shown[pair.first], shown[pair.second], figure(pair.cka), figure(pair.cosines), figure(pair.overlap)]
            for pair in self.comparison.pairs
        ]

    def panels(self) -> list[Panel]:
        """Return the three heat maps."""
        return [
            Panel("CKA", self.comparison.cka),
            Panel("Correlation of cosines", self.comparison.cosines),
            Panel(f"Overlap of {self.comparison.neighbours} neighbours", self.comparison.overlap),
        ]

    def protocol(self) -> list[str]:
        """Return what the figures were measured on."""
        result = self.comparison
        sample = f"{result.sampled} of them, seed {result.seed}" if result.sampled < result.rows else "all of them"
        return [
            f"CKA: {result.rows} sentences, {self.what}.",
            f"Cosines and {result.neighbours} neighbours: {sample}. Overlap by chance: {result.chance:.3f}.",
        ]

    def advice(self, labels: Sequence[str]) -> list[str]:
        """Return what the figures say about the encoders, a sentence each."""
        shown = dict(zip(self.comparison.names, labels, strict=True))

        def both(pair: Pair) -> str:
            return f"{shown[pair.first]} and {shown[pair.second]} (CKA {figure(pair.cka)})"

        mute = set(self.comparison.mute)
        lines = [f"{shown[name]} tells no sentences apart: its figures are 0." for name in self.comparison.mute]
        pairs = [pair for pair in self.comparison.pairs if not {pair.first, pair.second} & mute]
        if pairs and pairs[0].cka >= _TWINS:
            lines.append(f"Most alike: {both(pairs[0])}: the one adds little to the other.")
        elif len(pairs) > 1:
            lines.append(f"Most alike: {both(pairs[0])}.")
        if len(pairs) > 1:
            lines.append(f"Most different: {both(pairs[-1])}.")
        return [*lines, _LIMITS]

    def svg(self) -> str:
        """Return the heat maps as an SVG document."""
        return svg_heatmap(self.comparison.names, self.panels(), self.protocol())

    def page(self, origin: str, picture: str = "") -> str:
        """Return everything as a Markdown page.

        Args:
            origin: the sentence that says how the page was made.
            picture: the address of the heat maps, if they were written.
        """
        labels = [name.replace("|", "\\|") for name in self.comparison.names]
        specs = ", ".join(f"{spec.name} ({spec.dim}, {spec.revision})" for spec in (m.spec for m in self.members))
        made = ", ".join(f"{name} {value}" for name, value in provenance().items())
        notes = [*self.protocol(), f"The corpus's key: {self.corpus.key}.", *_MEANINGS, *self.advice(labels)]
        notes += [f"Encoders (dimension, revision): {specs}.", f"Made with {made}."]
        image = [f"![heat maps]({quote(picture)})", ""] if picture else []
        table = markdown_table(HEADERS, self.rows(labels), left=2)
        lines = ["# How alike encoders are", "", origin, "", *image, table, "", *(f"- {note}" for note in notes)]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        result = self.comparison

        def rounded(matrix: NDArray[Any]) -> list[list[float]]:
            return [[round(float(value), 6) for value in row] for row in matrix]

        key, sentences = self.corpus.key, len(self.corpus)
        return {
            "corpus": {"what": self.what, "sentences": sentences, "distinct": result.rows, "key": key},
            "encoders": [
                {"encoder": name, "spec": member.spec.to_json(), "key": member.spec.key}
                for name, member in zip(result.names, self.members, strict=True)
            ],
            **{name: getattr(result, name) for name in ("rows", "sampled", "neighbours", "seed", "chance")},
            "mute": list(result.mute),
            **{name: rounded(getattr(result, name)) for name in ("cka", "cosines", "overlap")},
            "pairs": [
                {"encoders": [pair.first, pair.second]}
                | {name: getattr(pair, name) for name in ("cka", "cosines", "overlap")}
                for pair in result.pairs
            ],
        }
