"""What `ensembed reproduce` finds out, as data: all that tables, figures and the report are made from.

Correlations are fractions here; they become x 100 where they are printed. `findings.json` holds a `Findings` whole, so
that pages can be made again, or differently, without running anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from ensembed.errors import InputError
from ensembed.paper.records import from_json, to_json
from ensembed.sts.protocol import Protocol, Result, Score

Kind: TypeAlias = Literal["single", "up", "meta"]
Metric: TypeAlias = Literal["pearson", "spearman"]
METRICS: tuple[Metric, ...] = get_args(Metric)

DEV = "stsb-dev"
"""Where everything is chosen. Every other data set is a test set."""
MEAN = "mean"
"""The plain mean over the test sets, where a data set's name could stand."""
NO_CORPUS = "none"
"""What stands for the corpus of methods that learn nothing."""
OWN = "meta:auto"
"""The meta-embedding that is this library's own; all others are the paper's."""


@dataclass(frozen=True)
class MemberFacts:
    """One encoder of the ensemble.

    Attributes:
        name: what tables call it.
        dim: the length of its vectors.
        licence: of its weights, or nothing where it is not known.
        key: the hash of everything that changes its numbers.
        spec: all of that.
    """

    name: str
    dim: int
    licence: str
    key: str
    spec: dict[str, Any]


@dataclass(frozen=True)
class CorpusFacts:
    """What methods were fitted on.

    Attributes:
        name: short, for the columns and legends: `news_mix_tok`, `stsb-train`.
        what: for a person.
        sentences: how many.
        key: the hash of its content.
    """

    name: str
    what: str
    sentences: int
    key: str


@dataclass(frozen=True)
class DatasetFacts:
    """One data set that was scored.

    Attributes:
        name: `sts12` to `sts16`, `stsb-test`, `stsb-dev`.
        layout: which version of the text.
        fingerprint: the hash of sentences and scores.
        parts: sub-testsets and their numbers of pairs.
        missing: sub-testsets that were not there.
    """

    name: str
    layout: str
    fingerprint: str
    parts: dict[str, int]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class System:
    """Something that was scored on every data set: a row of the main table.

    Attributes:
        label: as in the paper: `single:minilm`, `single:minilm up`, `meta:gcca`.
        kind: a member, its up-projection, or a meta-embedding.
        dim: the length of its vectors.
        corpus: the name of the corpus it was fitted on, or `none`.
        note: what a reader has to know, for instance how a hyper-parameter was chosen.
        results: one per data set, with every sub-testset; means over seeds, where there are several.
        spread: the standard deviation over seeds by data set (and `mean`); empty without seeds.
    """

    label: str
    kind: Kind
    dim: int
    corpus: str
    note: str
    results: tuple[Result, ...]
    spread: dict[str, Score]

    def score(self, dataset: str) -> Score:
        """On a data set, or the plain mean over the test sets for `mean`."""
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
    """One autoencoder of the search, on STS-B dev.

    Attributes:
        hidden_layers: 0, 1 or 2.
        loss: `mse`, `mae`, `kld` or `cos`, or `untrained`: its random weights as they are drawn.
        score: on STS-B dev.
        seconds: that training took.
    """

    hidden_layers: int
    loss: str
    score: Score
    seconds: float


@dataclass(frozen=True)
class Interval:
    """A 95% bootstrap interval of a system's score on a data set (or `mean`)."""

    label: str
    dataset: str
    low: Score
    high: Score


@dataclass(frozen=True)
class Comparison:
    """A meta-embedding against the member that is best on the same data set by the same metric, on the same resamples.

    Attributes:
        label: the meta-embedding.
        member: that member's label.
        dataset: a test set, or `mean`.
        metric: which correlation.
        difference: meta-embedding minus member.
        low: of the 95% interval of the difference.
        high: of the same.
        p: two-sided, of the paired bootstrap test that there is no difference.
        p_holm: the same, corrected (Holm) for the number of meta-embeddings tested on this data set by this metric.
    """

    label: str
    member: str
    dataset: str
    metric: Metric
    difference: float
    low: float
    high: float
    p: float
    p_holm: float


@dataclass(frozen=True)
class Ablation:
    """A method without one member, on STS-B dev; `without` is empty for the whole ensemble."""

    method: str
    without: str
    dim: int
    score: Score


@dataclass(frozen=True)
class CurvePoint:
    """A point of a curve on STS-B dev.

    Attributes:
        label: the system.
        x: dimensions or sentences.
        score: the mean over draws.
        spread: the standard deviation over draws; None where there is one.
        draws: how many there are.
    """

    label: str
    x: int
    score: Score
    spread: Score | None
    draws: int


@dataclass(frozen=True)
class Cost:
    """What a sentence costs, beside what it buys.

    Attributes:
        label: the system.
        milliseconds: per sentence, encoders and combination together.
        combining: the part of it that is the combination; 0 for a member.
        dim: the length of a vector, which is what an index pays for.
        dev: the score on STS-B dev.
        mean: the score on the mean over the test sets; None for what is not in the main table.
    """

    label: str
    milliseconds: float
    combining: float
    dim: int
    dev: Score
    mean: Score | None


@dataclass(frozen=True)
class Likeness:
    """How alike the members are: one symmetric matrix for each measure, in the members' order."""

    names: tuple[str, ...]
    measures: dict[str, tuple[tuple[float, ...], ...]]


@dataclass(frozen=True)
class Scatter:
    """Cosine against gold, pair by pair, on one data set."""

    label: str
    dataset: str
    gold: tuple[float, ...]
    predicted: tuple[float, ...]


@dataclass(frozen=True)
class Change:
    """A pair whose place in the order of its sub-testset changed between the best member and a meta-embedding.

    Places run from 0 (least alike) to 1. `gain` is how much nearer the meta-embedding's place is to the gold place.

    Attributes:
        dataset: the test set.
        part: its sub-testset.
        pair: the row of the pair in it, from 0.
        gold: the gold score.
        gold_place: of the gold score.
        member_place: of the best member's cosine.
        meta_place: of the meta-embedding's cosine.
        gain: |member_place - gold_place| - |meta_place - gold_place|.
        sentences: the two texts; None where they are left out, since the data is not ours to pass on.
    """

    dataset: str
    part: str
    pair: int
    gold: float
    gold_place: float
    member_place: float
    meta_place: float
    gain: float
    sentences: tuple[str, str] | None


@dataclass(frozen=True)
class Changes:
    """The pairs that improved most and those that got worse most, `label` against `member`."""

    label: str
    member: str
    better: tuple[Change, ...]
    worse: tuple[Change, ...]


@dataclass(frozen=True)
class Findings:
    """Everything that a run found out.

    Attributes:
        command: the line that makes it again.
        provenance: versions, machine, time.
        settings: seeds, numbers of resamples, the autoencoder's training, and so on, for a person.
        protocol: how sub-testsets become a score.
        members: the ensemble.
        corpora: what was fitted on; the first is that of the main tables.
        datasets: the test sets, then STS-B dev.
        absent: test sets of the paper that were not there.
        shared_pairs: by test set, how many of its pairs are in STS-B dev, too, on which all is chosen.
        taus: Table 1, GCCA.
        autoencoders: Table 1, above.
        systems: Table 2 and the appendix: members, up-projections, meta-embeddings (our own last), in this order.
        intervals: of every member and meta-embedding.
        comparisons: of every meta-embedding with its best member.
        ablations: Table 3.
        dimensions: curves over dimensions, by truncation.
        sizes: curves over the size of the main corpus.
        domains: meta-embeddings by corpus, those of the main one among them; conc and avg for none.
        costs: members, meta-embeddings, and `meta:… without …`.
        spectrum: GCCA's eigenvalues, falling.
        likeness: of the members.
        scatters: of the best member and every meta-embedding.
        changes: of the best meta-embedding on STS-B dev.
    """

    command: str
    provenance: dict[str, str]
    settings: dict[str, str]
    protocol: Protocol
    members: tuple[MemberFacts, ...]
    corpora: tuple[CorpusFacts, ...]
    datasets: tuple[DatasetFacts, ...]
    absent: tuple[str, ...]
    shared_pairs: dict[str, int]
    taus: tuple[TauPoint, ...]
    autoencoders: tuple[AutoencoderPoint, ...]
    systems: tuple[System, ...]
    intervals: tuple[Interval, ...]
    comparisons: tuple[Comparison, ...]
    ablations: tuple[Ablation, ...]
    dimensions: tuple[CurvePoint, ...]
    sizes: tuple[CurvePoint, ...]
    domains: tuple[System, ...]
    costs: tuple[Cost, ...]
    spectrum: tuple[float, ...]
    likeness: Likeness
    scatters: tuple[Scatter, ...]
    changes: Changes

    @property
    def tests(self) -> list[str]:
        """The names of the test sets."""
        return [dataset.name for dataset in self.datasets if dataset.name != DEV]

    @property
    def best_member(self) -> System:
        """The member with the highest mean over the test sets by Pearson's r."""
        return max(
            (system for system in self.systems if system.kind == "single"), key=lambda one: one.score(MEAN).pearson
        )

    def to_json(self) -> bytes:
        """As JSON text."""
        return to_json(Findings, self, indent=1)

    @classmethod
    def from_json(cls, text: bytes) -> Findings:
        """The reverse of `to_json`.

        Raises:
            InputError: the text is not of this form.
        """
        return from_json(Findings, text)


def mean_score(scores: Sequence[Score]) -> Score:
    """The plain mean of both correlations."""
    return Score(
        float(np.mean([score.pearson for score in scores])), float(np.mean([score.spearman for score in scores]))
    )
