"""What `ensembed reproduce` measures, as data (`findings.json`) for tables, figures and the report.

Correlations are fractions here; they become x 100 where they are printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from ensembed.errors import InputError
from ensembed.paper.notebook import from_json, to_json
from ensembed.sts.protocol import Protocol, Result, Score

Kind: TypeAlias = Literal["single", "up", "meta"]
Metric: TypeAlias = Literal["pearson", "spearman"]
METRICS: tuple[Metric, ...] = get_args(Metric)

DEV = "stsb-dev"  # the data set on which everything is chosen; every other one is a test set
MEAN = "mean"  # stands for the plain mean over the test sets where a data set's name could stand
NO_CORPUS = "none"  # stands for the corpus of methods that learn nothing
BESIDE = "beside:"  # begins the label of an encoder that is no member
OWN = "meta:auto"  # the meta-embedding that is this library's own; all others are the paper's


@dataclass(frozen=True)
class MemberFacts:
    """One encoder of the ensemble."""

    name: str
    dim: int
    licence: str  # of its weights; empty if unknown
    key: str  # the hash of everything that changes its numbers
    spec: dict[str, Any]  # everything that changes its numbers


@dataclass(frozen=True)
class CorpusFacts:
    """What methods were fitted on."""

    name: str  # short, for columns and legends: `stsb-train`
    what: str  # a description for the reader
    sentences: int
    key: str  # the hash of its content


@dataclass(frozen=True)
class DatasetFacts:
    """One data set that was scored."""

    name: str  # `sts12` to `sts16`, `stsb-test`, `stsb-dev`
    layout: str  # which version of the text
    fingerprint: str  # the hash of sentences and scores
    parts: dict[str, int]  # sub-testsets and their numbers of pairs
    missing: tuple[str, ...]  # sub-testsets that could not be read


@dataclass(frozen=True)
class System:
    """Something that was scored on every data set: a row of the main table."""

    label: str  # as in the paper: `single:minilm`, `single:minilm up`, `meta:gcca`
    kind: Kind  # a member, its up-projection, or a meta-embedding
    dim: int
    corpus: str  # the name of the corpus it was fitted on, or `none`
    note: str  # for instance how a hyper-parameter was chosen
    results: tuple[Result, ...]  # one per data set; means over seeds, where there are several
    spread: dict[str, Score]  # the standard deviation over seeds by data set (and `mean`); empty without seeds

    def score(self, dataset: str) -> Score:
        """Return the score on a data set, or the plain mean over the test sets for `mean`."""
        if dataset == MEAN:
            return mean_score([result.score for result in self.results if result.dataset != DEV])
        for result in self.results:
            if result.dataset == dataset:
                return result.score
        raise InputError(f"{self.label} was not scored on {dataset!r}")


@dataclass(frozen=True)
class TauPoint:
    """GCCA with one tau, on STS-B dev."""

    tau: float
    score: Score


@dataclass(frozen=True)
class AutoencoderPoint:
    """One autoencoder of the search, on STS-B dev."""

    hidden_layers: int
    loss: str  # `mse`, `mae`, `kld` or `cos`, or `untrained`: its random weights
    score: Score
    seconds: float  # that training took


@dataclass(frozen=True)
class Interval:
    """A 95% bootstrap interval of a system's score on a data set (or `mean`)."""

    label: str
    dataset: str
    low: Score
    high: Score


@dataclass(frozen=True)
class Comparison:
    """A meta-embedding against the best member on the same data set by the same metric, on the same resamples."""

    label: str
    member: str
    dataset: str  # a test set, or `mean`
    metric: Metric
    difference: float  # meta-embedding minus member
    low: float  # of the 95% interval of the difference
    high: float
    p: float  # of a two-sided paired bootstrap test of "no difference"
    p_holm: float  # corrected (Holm) for the number of meta-embeddings tested on this data set by this metric


@dataclass(frozen=True)
class Ablation:
    """A method without one member, on STS-B dev; `without` is empty for the whole ensemble."""

    method: str
    without: str
    dim: int
    score: Score


@dataclass(frozen=True)
class CurvePoint:
    """A point of a curve on STS-B dev."""

    label: str
    x: int  # dimensions or sentences
    score: Score  # the mean over draws
    spread: Score | None  # the standard deviation over draws, if there are several
    draws: int


@dataclass(frozen=True)
class Cost:
    """The time and the dimensions of a sentence's vector, beside the scores."""

    label: str
    milliseconds: float  # per sentence, encoders and combination together
    combining: float  # the combination's part of it; 0 for a member
    dim: int
    dev: Score
    mean: Score | None  # None for what is not in the main table


@dataclass(frozen=True)
class Likeness:
    """How alike the members are: one symmetric matrix for each measure, in the members' order."""

    names: tuple[str, ...]
    measures: dict[str, tuple[tuple[float, ...], ...]]


@dataclass(frozen=True)
class Scatter:
    """Cosine against gold score, pair by pair, on one data set."""

    label: str
    dataset: str
    gold: tuple[float, ...]
    predicted: tuple[float, ...]


@dataclass(frozen=True)
class Change:
    """A pair whose rank in its sub-testset, from 0 (least alike) to 1, differs from the best member's."""

    dataset: str
    part: str
    pair: int  # the row of the pair in its sub-testset, from 0
    gold: float
    gold_place: float
    member_place: float
    meta_place: float
    gain: float  # how much nearer the meta-embedding's place is to the gold place
    sentences: tuple[str, str] | None  # None where they are left out, since the data is not ours to pass on


@dataclass(frozen=True)
class Changes:
    """The pairs that improved most and those that got worse most, `label` against `member`."""

    label: str
    member: str
    better: tuple[Change, ...]
    worse: tuple[Change, ...]


@dataclass(frozen=True)
class Findings:
    """Everything that a run measured."""

    command: str  # the line that makes it again
    provenance: dict[str, str]  # versions, machine, time
    settings: dict[str, str]  # seeds, numbers of resamples, the autoencoder's training, and so on, in words
    protocol: Protocol
    members: tuple[MemberFacts, ...]
    corpora: tuple[CorpusFacts, ...]  # the first is that of the main tables
    datasets: tuple[DatasetFacts, ...]  # the test sets, then STS-B dev
    absent: tuple[str, ...]  # test sets of the paper that were not found
    shared_pairs: dict[str, int]  # by test set, how many of its pairs are also in STS-B dev
    taus: tuple[TauPoint, ...]  # Table 1, GCCA
    autoencoders: tuple[AutoencoderPoint, ...]  # Table 1
    systems: tuple[System, ...]  # Table 2 and the appendix: members, up-projections, meta-embeddings (our own last)
    intervals: tuple[Interval, ...]
    comparisons: tuple[Comparison, ...]
    ablations: tuple[Ablation, ...] = ()  # Table 3
    dimensions: tuple[CurvePoint, ...] = ()  # curves over dimensions, by truncation
    sizes: tuple[CurvePoint, ...] = ()  # curves over the size of the main corpus
    domains: tuple[System, ...] = ()  # meta-embeddings by corpus, the main one included; conc and avg for none
    costs: tuple[Cost, ...] = ()  # members, meta-embeddings, `meta:… without …`, `beside:…`
    spectrum: tuple[float, ...] = ()  # GCCA's eigenvalues, falling
    likeness: Likeness = Likeness((), {})
    scatters: tuple[Scatter, ...] = ()  # of the best member and every meta-embedding
    changes: Changes = Changes("", "", (), ())  # of the best meta-embedding on STS-B dev

    @property
    def tests(self) -> list[str]:
        """The names of the test sets."""
        return [dataset.name for dataset in self.datasets if dataset.name != DEV]

    @property
    def singles(self) -> list[System]:
        """The members' rows of the main table."""
        return [system for system in self.systems if system.kind == "single"]

    @property
    def best_member(self) -> System:
        """The member with the highest mean over the test sets by Pearson's r."""
        return max(self.singles, key=lambda system: system.score(MEAN).pearson)

    def to_json(self) -> bytes:
        """Write the findings as JSON text."""
        return to_json(Findings, self, indent=1)

    @classmethod
    def from_json(cls, text: bytes) -> Findings:
        """Read what `to_json` wrote; raise InputError for anything else."""
        return from_json(Findings, text)


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the plain mean of both correlations."""
    return Score(*(float(np.mean([getattr(score, metric) for score in scores])) for metric in METRICS))
