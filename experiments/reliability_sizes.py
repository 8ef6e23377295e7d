"""`python -m experiments.reliability_sizes`: how many sentences it takes to tell which member is the best.

Estimates the members' reliability on random samples of two corpora, and writes `reliability-sizes.md` and
`reliability-sizes.json`: how often the best member is the one that all sentences show, and what trusting it gains or
loses on STS-B dev, beside weights that prefer no member. No test set is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import ListCorpus, TextCorpus
from ensembed.encoders import open_encoder
from ensembed.errors import MissingError
from ensembed.methods import Auto
from ensembed.reliability import reliability
from ensembed.sts.find import find_sts
from ensembed.sts.protocol import distinct_sentences, evaluate
from ensembed.support.machine import data_dirs
from ensembed.support.progress import bars
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table, text_table
from ensembed.views import ViewStore
from experiments import run, write_results

ENSEMBLES = (("minilm", "wordllama"), ("minilm", "use-lite"), ("use-lite", "wordllama"), ("gte-small", "wordllama"),
             ("minilm", "use-lite", "wordllama"))  # fmt: skip
SIZES = (60, 120, 250, 500, 1000)
SEEDS = (0, 1, 2)
_NEWS = "corpus/leipzig_eng_news_2016_raw.txt.gz"
_LINES = {"news": 2500, "STS-B train": 6000}
HEADERS = ["sentences", "samples", "right", "sure though wrong", "trusting it, worst", "mean",
           "preferring none, worst", "mean"]  # fmt: skip
_NOTES = """\
right: samples in which the best member is the one that 2500 sentences of the corpus show; sure though wrong: the \
largest part of bootstrap samples in which a wrong member came first.
trusting it: Pearson's r x 100 on STS-B dev, less that of the best member, with the weights of the estimate; \
preferring none: with those that `reliability` gives where there are too few sentences.
Ensembles: {ensembles}. Corpora: the first {news} lines of Leipzig news 2016 and {stsb} distinct sentences of STS-B \
train, without their labels; {seeds} random samples of each size.""".format(
    ensembles="; ".join(" + ".join(members) for members in ENSEMBLES),
    news=_LINES["news"],
    stsb=_LINES["STS-B train"],
    seeds=len(SEEDS),
).splitlines()


def corpora() -> dict[str, list[str]]:
    """Return the sentences of each corpus."""
    news = next((folder / _NEWS for folder in data_dirs() if (folder / _NEWS).is_file()), None)
    if news is None:
        raise MissingError(f"{_NEWS} is in no data folder: set ENSEMBED_DATA")
    lines = list(dict.fromkeys(islice(TextCorpus(news), _LINES["news"])))
    return {"news": lines, "STS-B train": distinct_sentences([find_sts("stsb-train")])[: _LINES["STS-B train"]]}


def trials() -> list[dict[str, Any]]:
    """Return a record of every sample."""
    names = list(dict.fromkeys(name for members in ENSEMBLES for name in members))
    encoders, store, dev = [open_encoder(name) for name in names], ViewStore(), find_sts("stsb-dev")
    texts = distinct_sentences([dev])
    place = {text: i for i, text in enumerate(texts)}
    records = []
    with bars() as progress:
        scored = [np.asarray(view) for view in store.embed_all(ListCorpus(texts), encoders, progress=progress)]

        def score(Z: NDArray[np.float32]) -> float:
            return 100 * evaluate(lambda sentences: Z[[place[text] for text in sentences]], dev).score.pearson

        alone = [score(X) for X in scored]
        for corpus, sentences in corpora().items():
            views = [np.asarray(view) for view in store.embed_all(ListCorpus(sentences), encoders, progress=progress)]
            for members in ENSEMBLES:
                places = [names.index(name) for name in members]
                whole = reliability([views[j] for j in places], sentences=sentences, rows=2500, resamples=1).best
                for size, seed in product(SIZES, SEEDS):
                    rows = np.sort(np.random.default_rng([size, seed]).choice(len(sentences), size, replace=False))
                    sample, some = [views[j][rows] for j in places], [sentences[row] for row in rows]
                    estimate = reliability(sample, sentences=some, resamples=20, needed=50)
                    none = reliability(sample, sentences=some, resamples=1, needed=size + 1)
                    gains = [
                        score(Auto().trusting(one).fit(sample).transform([scored[j] for j in places]))
                        - max(alone[j] for j in places)
                        for one in (estimate, none)
                    ]
                    right, sure = estimate.best == whole, estimate.sure
                    facts = {"corpus": corpus, "members": members, "size": size, "seed": seed}
                    records.append(facts | {"right": right, "sure": sure, "trusting": gains[0], "none": gains[1]})
                    progress(f"{corpus}, {' + '.join(members)}", SIZES.index(size) + 1, len(SIZES))
    return records


def table(records: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a row for every size."""
    rows = []
    for size in SIZES:
        some = [record for record in records if record["size"] == size]
        wrong = [record["sure"] for record in some if not record["right"]]
        gains = [[record[name] for record in some] for name in ("trusting", "none")]
        cells = [f"{figure:+.1f}" for values in gains for figure in (min(values), float(np.mean(values)))]
        right = len(some) - len(wrong)
        rows.append([str(size), str(len(some)), str(right), f"{max(wrong):.0%}" if wrong else "-", *cells])
    return rows


def main() -> None:
    """Run the trials and write the table."""
    records = trials()
    rows = table(records)
    print(text_table(HEADERS, rows))
    facts = ", ".join(f"{key} {value}" for key, value in provenance().items())
    notes = [f"- {note}" for note in (*_NOTES, f"Made with {facts}.")]
    origin = "Written by `python -m experiments.reliability_sizes`."
    title = "# How many sentences show which member is the best"
    page = "\n".join([title, "", origin, "", markdown_table(HEADERS, rows), "", *notes, ""])
    data = json.dumps({"provenance": provenance(), "samples": records}, indent=1) + "\n"
    write_results(Path("results"), "reliability-sizes", page, data)


if __name__ == "__main__":
    run(main)
