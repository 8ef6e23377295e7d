"""`python -m experiments.words_table`: GloVe's words pooled by mean, SIF and uSIF, on STS-B and STS12-16.

Pulls `glove` and STS-B, fits what sif and usif need on the unlabelled sentences of STS-B train, and writes `words.md`
and `words.json`. `rescale` was chosen on STS-B dev; no score was used for any other setting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensembed.encoders.words.word_pooling import Pooling
from ensembed.encoders.words.words_encoder import WordsEncoder
from ensembed.fetch.catalog import entry, require
from ensembed.fetch.fetcher import pull
from ensembed.paper.findings import DEV, mean_score
from ensembed.paper.named_corpora import STSB_TRAIN, NamedCorpus, open_corpora
from ensembed.sts.datasets import Dataset
from ensembed.sts.find import find_available, text_version
from ensembed.sts.protocol import Result, Score, evaluate_all
from ensembed.support.progress import Progress, bars
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table, text_table
from experiments import run, write_results

POOLINGS = {
    "mean": Pooling("mean"),
    "sif, components=0": Pooling("sif", components=0),
    "sif": Pooling("sif"),
    "sif, frequencies=corpus": Pooling("sif", frequencies="corpus"),
    "usif": Pooling("usif"),
    "usif, rescale=false": Pooling("usif", rescale=False),
    "usif, frequencies=corpus": Pooling("usif", frequencies="corpus"),
}


@dataclass(frozen=True)
class WordsTable:
    """Scores of word vectors under several poolings.

    Attributes:
        encoders: by the label of their row.
        results: of every encoder, by label: one per data set, in the same order.
        corpus: what sif and usif were fitted on.
    """

    encoders: Mapping[str, WordsEncoder]
    results: Mapping[str, Sequence[Result]]
    corpus: NamedCorpus

    @classmethod
    def of(
        cls,
        path: Path,
        corpus: NamedCorpus,
        datasets: Sequence[Dataset],
        *,
        name: str,
        revision: str | None = None,
        progress: Progress,
    ) -> WordsTable:
        """Open the vectors under every pooling, and score them."""
        encoders = {}
        for label, pooling in POOLINGS.items():
            needed = corpus.corpus if pooling.uses_corpus else None
            encoders[f"{name} {label}"] = WordsEncoder(
                path, pooling=pooling, corpus=needed, name=f"{name} {label}", revision=revision, progress=progress
            )
        results = {label: evaluate_all(encoder, datasets) for label, encoder in encoders.items()}
        return cls(encoders, results, corpus)

    def mean(self, label: str) -> Score:
        """The mean over the test sets: all data sets but STS-B dev."""
        return mean_score([result.score for result in self.results[label] if result.dataset != DEV])

    def text(self) -> str:
        """For a terminal."""
        return text_table(*self._cells()) + "\n\n" + "\n".join(self._notes())

    def markdown(self) -> str:
        """The table and the notes, with provenance."""
        facts = ", ".join(f"{key} {value}" for key, value in provenance().items())
        notes = [f"- {note}" for note in (*self._notes(), f"Made with {facts}.")]
        return "\n".join([markdown_table(*self._cells()), "", *notes, ""])

    def to_json(self) -> dict[str, Any]:
        """Everything as data."""
        return {
            "provenance": provenance(),
            "corpus": {"what": self.corpus.what, "sentences": len(self.corpus.corpus)},
            "rows": [
                {
                    "label": label,
                    "encoder": encoder.spec.to_json(),
                    "mean": self.mean(label).to_json(),
                    "results": [result.to_json() for result in self.results[label]],
                }
                for label, encoder in self.encoders.items()
            ],
        }

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        first = next(iter(self.results.values()))
        names = [result.dataset for result in first if result.dataset != DEV]
        rows = []
        for label, results in self.results.items():
            scores = {result.dataset: str(result.score) for result in results}
            rows.append([label, *(scores[name] for name in names), str(self.mean(label)), scores[DEV]])
        return ["", *names, "mean", DEV], rows

    def _notes(self) -> list[str]:
        first = next(iter(self.results.values()))
        frequencies = {dict(encoder.spec.extra).get("frequencies", "") for encoder in self.encoders.values()}
        wordfreq = ", ".join(sorted(source for source in frequencies if source.startswith("wordfreq")))
        return [
            f"Pearson's r / Spearman's rho, x 100. Protocol: {first[0].protocol} over a year's sub-testsets.",
            f"Text: {text_version(first)}.",
            f"Word frequencies: {wordfreq}, unless they are counted on the corpus.",
            f"Common components, and the counts, are those of {len(self.corpus.corpus)} sentences: {self.corpus.what}.",
            "rescale was chosen on STS-B dev; no score was used for any other setting.",
            *(f"{result.dataset} is without {', '.join(result.missing)}." for result in first if result.missing),
        ]


def main(out: Path = Path("results")) -> None:
    """Print the table and write `words.md` and `words.json`."""
    with bars() as progress:
        pull(["glove", "stsb"], progress=progress)
        glove = entry("glove")
        (file,) = glove.files
        [corpus] = open_corpora([STSB_TRAIN])
        table = WordsTable.of(
            require("glove") / file, corpus, find_available(), name="glove", revision=glove.revision, progress=progress
        )
    print(table.text())
    head = "# Word vectors: three ways to pool them\n\nPrinted and written by `python -m experiments.words_table`.\n\n"
    write_results(out, "words", head + table.markdown(), json.dumps(table.to_json(), indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    run(main)
