"""`python -m experiments.tuning_table`: how many labelled pairs it takes to beat the label-free choice.

Methods are fitted on the unlabelled sentences of STS-B train. Random subsamples of STS-B dev are what is tuned on;
STS-B test is scored at the end and has no part in any choice. Writes `tuning.md` and `tuning.json`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus, ListCorpus
from ensembed.methods import Auto
from ensembed.models.cross_validation import Choice, decide
from ensembed.models.ensemble import Ensemble
from ensembed.models.named_ensembles import named_ensemble
from ensembed.models.tuning import LabelledPairs, Offer, offer
from ensembed.numerics.pass_options import Pass
from ensembed.paper.findings import DEV
from ensembed.paper.named_corpora import STSB_TRAIN, open_corpora
from ensembed.reliability import reliability
from ensembed.sts.datasets import Dataset
from ensembed.sts.find import find_available
from ensembed.sts.protocol import Score, distinct_sentences, pearson, spearman
from ensembed.support.progress import Progress, bars, silent
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table, text_table
from ensembed.views import ViewStore
from experiments import run, write_results

ENSEMBLES = ("minilm,use-lite,wordllama", "gte-small,minilm,wordllama", "use-lite,wordllama")
SIZES = (25, 50, 100, 200, 400, 800, 1500)
DRAWS = 20
TEST = "stsb-test"
CLEARLY = 0.1
"""A smaller difference of correlations x 100 is noise."""


@dataclass(frozen=True)
class Row:
    """What tuning on one number of pairs gave, over the draws.

    Attributes:
        pairs: how many labelled pairs.
        draws: how many subsamples; one where all pairs are in it.
        kept: in how many of them the label-free choice was kept.
        pearson: how much the tuned one is above the label-free one on the test set, x 100, in the mean.
        spearman: the same.
        worst: the least of the Pearson differences.
        best: the largest.
        chosen: how often each method was.
    """

    pairs: int
    draws: int
    kept: int
    pearson: float
    spearman: float
    worst: float
    best: float
    chosen: Mapping[str, int]

    @property
    def cells(self) -> list[str]:
        """For the table."""
        chosen = ", ".join(f"{name} {count}" for name, count in self.chosen.items())
        differences = [f"{value:+.2f}" for value in (self.pearson, self.spearman, self.worst, self.best)]
        return [str(self.pairs), str(self.draws), str(self.kept), *differences, chosen]


@dataclass(frozen=True)
class EnsembleRows:
    """One ensemble's rows.

    Attributes:
        members: the names.
        weights: of the members, label-free.
        best_member: the member with the highest Pearson correlation on the test set.
        member: its score on the test set.
        label_free: the score of auto on the test set.
        rows: one per number of pairs.
    """

    members: Sequence[str]
    weights: Sequence[float]
    best_member: str
    member: Score
    label_free: Score
    rows: Sequence[Row]

    @property
    def enough(self) -> int | None:
        """The smallest number of pairs from which on both means are above the label-free choice by `CLEARLY`."""
        pairs = None
        for row in reversed(self.rows):
            if min(row.pearson, row.spearman) < CLEARLY:
                break
            pairs = row.pairs
        return pairs

    @property
    def title(self) -> str:
        """The ensemble."""
        return ", ".join(self.members)

    def to_json(self) -> dict[str, Any]:
        """Everything as data."""
        return {
            "members": list(self.members),
            "weights": list(self.weights),
            "best_member": {"name": self.best_member, **self.member.to_json()},
            "label_free": self.label_free.to_json(),
            "enough": self.enough,
            "rows": [asdict(row) for row in self.rows],
        }

    @property
    def says(self) -> str:
        """What is compared, and the answer."""
        weights = ", ".join(f"{weight:.3g}" for weight in self.weights)
        answer = f"from {self.enough} pairs on" if self.enough else f"not with {self.rows[-1].pairs} pairs"
        return (
            f"Label-free auto (weights {weights}): {self.label_free}; best member, {self.best_member}: {self.member}. "
            f"Tuning beats the label-free choice by {CLEARLY} or more in both means: {answer}."
        )


def tune_ensemble(
    ensemble: Ensemble,
    corpus: Corpus,
    texts: Corpus,
    dev: Dataset,
    test: Dataset,
    *,
    sizes: Sequence[int] = SIZES,
    draws: int = DRAWS,
    store: ViewStore | None = None,
    progress: Progress = silent,
) -> EnsembleRows:
    """Tune one ensemble on subsamples of dev, and score on test.

    Args:
        ensemble: the members.
        corpus: the unlabelled sentences that methods are fitted on.
        texts: sentences among which are those of dev and test; they are encoded together.
        dev: what subsamples are drawn from.
        test: what is scored.
        sizes: numbers of pairs; those that dev does not have are left out, except that the last is then all of it.
        draws: subsamples of each size.
        store: where views are kept.
        progress: told of rows and methods.
    """
    store = store or ViewStore()
    views = store.embed_all(corpus, ensemble.encoders, progress=progress)
    names = [encoder.spec.name for encoder in ensemble.encoders]
    estimate = reliability(views, sentences=corpus, names=names, progress=progress)
    weights, method = tuple(float(weight) for weight in estimate.weights), Auto().trusting(estimate)
    pairs = LabelledPairs.of([*_triples(dev), *_triples(test)])
    place = {text: i for i, text in enumerate(texts)}
    rows = [place[text] for text in pairs.texts]
    vectors = [np.asarray(view)[rows] for view in store.embed_all(texts, ensemble.encoders, progress=progress)]
    how = Pass(progress=progress)
    offered = offer(method, views, vectors, pairs, weights, fit=lambda method: method.fit(views), how=how)
    known = pairs.scores.copy()
    known[len(dev) :] = np.nan  # a test score that is read before the end is NaN
    tested = np.arange(len(dev), len(pairs))
    gold = pairs.scores[tested]

    def scored(choice: Choice) -> Score:
        return _score(offered.candidates.predict(choice, tested), gold)

    label_free = scored(Choice(0))
    alone = [_score(pairs.cosines(X)[tested], gold) for X in vectors]
    best = int(np.argmax([score.pearson for score in alone]))
    by_size = []
    for done, size in enumerate(dict.fromkeys(min(size, len(dev)) for size in sizes), 1):
        choices = list(_draw(offered, known, len(dev), size, draws))
        by_size.append(_row(size, choices, offered, label_free, scored))
        progress(f"tuning {'+'.join(names)}", done, len(sizes))
    return EnsembleRows(names, weights, names[best], alone[best], label_free, by_size)


def _draw(offered: Offer, scores: NDArray[np.float64], n: int, size: int, draws: int) -> Iterator[Choice]:
    """What is chosen on each subsample; all of the pairs are a sample only once."""
    for draw in range(draws if size < n else 1):
        rows = np.random.default_rng(draw).permutation(n)[:size]
        yield decide(offered.candidates, scores, rows=rows, seed=draw).choice


def _row(size: int, choices: Sequence[Choice], offered: Offer, before: Score, scored: Callable[[Choice], Score]) -> Row:
    after = [scored(choice) for choice in choices]
    r = 100 * np.array([score.pearson - before.pearson for score in after])
    rho = 100 * np.array([score.spearman - before.spearman for score in after])
    chosen = Counter("label-free" if choice.fixed == 0 else offered.method(choice).name for choice in choices)
    return Row(
        size,
        len(choices),
        chosen["label-free"],
        float(r.mean()),
        float(rho.mean()),
        float(r.min()),
        float(r.max()),
        dict(sorted(chosen.items(), key=lambda item: -item[1])),
    )


def _score(predictions: NDArray[np.float64], gold: NDArray[np.float64]) -> Score:
    return Score(pearson(predictions, gold), spearman(predictions, gold))


def _triples(dataset: Dataset) -> Iterator[tuple[float, str, str]]:
    for part in dataset.parts:
        yield from zip(part.scores.tolist(), part.sentences1, part.sentences2, strict=True)


HEADERS = ["pairs", "draws", "label-free kept", "Pearson", "Spearman", "worst", "best", "chosen"]
NOTES = (
    "Pearson, Spearman: how far the tuned method is above label-free auto on STS-B test, x 100, mean over the draws.",
    "worst, best: of the draws, in Pearson. A draw in which the label-free choice is kept counts 0.",
    "Pairs are random subsamples of STS-B dev; methods are fitted on the sentences of STS-B train, without scores.",
    "The test set is scored at the end; no choice depends on it.",
)


def markdown(tuned: Sequence[EnsembleRows]) -> str:
    """The page."""
    facts = ", ".join(f"{key} {value}" for key, value in provenance().items())
    parts = [
        "# Tuning on a few labelled pairs",
        "Printed and written by `python -m experiments.tuning_table`.",
        *(
            text
            for table in tuned
            for text in (f"## {table.title}", table.says, markdown_table(HEADERS, [row.cells for row in table.rows]))
        ),
        "\n".join(f"- {note}" for note in (*NOTES, f"Made with {facts}.")),
    ]
    return "\n\n".join(parts) + "\n"


def main(out: Path = Path("results")) -> None:
    """Print the tables and write `tuning.md` and `tuning.json`."""
    tuned = []
    with bars() as progress:
        [corpus] = open_corpora([STSB_TRAIN])
        datasets = find_available()
        texts = ListCorpus(distinct_sentences(datasets))
        by_name = {dataset.name: dataset for dataset in datasets}
        for name in ENSEMBLES:
            ensemble = Ensemble(named_ensemble(name), progress=progress)
            tuned.append(tune_ensemble(ensemble, corpus.corpus, texts, by_name[DEV], by_name[TEST], progress=progress))
    for table in tuned:
        print(f"{table.title}\n{table.says}\n\n{text_table(HEADERS, [row.cells for row in table.rows])}\n")
    facts = {"provenance": provenance(), "corpus": corpus.what, "ensembles": [table.to_json() for table in tuned]}
    write_results(out, "tuning", markdown(tuned), json.dumps(facts, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    run(main)
