"""`make demo`: the paper's main table on encoders that the package registries give, beside the paper's own.

Pulls three encoders and STS-B, fits every method on the unlabelled sentences of STS-B train, and scores members and
meta-embeddings on STS-B and, where the data is there, on STS12-16. GCCA's tau is chosen on STS-B dev, as in the paper;
nothing is chosen on a test set.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ensembed.corpus import ListCorpus
from ensembed.encoders.pull import pull
from ensembed.errors import DatasetError, EnsembedError, InputError
from ensembed.files import write_atomically
from ensembed.methods import GCCA, SVD, Average, Concat
from ensembed.model import Ensemble
from ensembed.paths import data_dir
from ensembed.progress import bars
from ensembed.provenance import provenance
from ensembed.sts import paper
from ensembed.sts.datasets import Dataset
from ensembed.sts.experiments import Laboratory, Row
from ensembed.sts.find import YEARS, find_sts
from ensembed.sts.protocol import Score
from ensembed.tables import markdown_table, text_table
from ensembed.views import ViewStore

ENCODERS = ("minilm", "use-lite", "wordllama")
TAUS = (0.01, 0.1, 1.0, 10.0, 100.0)
DEV, TEST = "stsb-dev", "stsb-test"


def main(out: Path = Path("results")) -> None:
    """Run the demo and write `demo.md` and `demo.json`."""
    with bars() as progress:
        pull([*ENCODERS, "stsb"], progress=progress)
        datasets = _datasets()
        train = find_sts("stsb-train").parts[0]
        corpus = ListCorpus(list(dict.fromkeys([*train.sentences1, *train.sentences2])))
        ensemble = Ensemble(ENCODERS)
        store = ViewStore(wait=600)
        laboratory = Laboratory.prepare(ensemble, corpus, datasets, store=store, progress=progress)
    rows = _rows(laboratory)
    text, markdown, data = _report(rows, datasets, len(corpus), corpus.key)
    print(text)
    out.mkdir(exist_ok=True)
    write_atomically(out / "demo.md", markdown.encode())
    write_atomically(out / "demo.json", (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())
    print(f"\nwritten: {out / 'demo.md'}, {out / 'demo.json'}")


def _datasets() -> list[Dataset]:
    """STS-B dev and test, and the years where the data is there."""
    years = []
    if data_dir() is not None:
        for name in YEARS:
            try:
                years.append(find_sts(name))
            except DatasetError as error:
                print(f"without {name}: {error}", file=sys.stderr)
    return [*years, find_sts(TEST), find_sts(DEV)]


def _rows(laboratory: Laboratory) -> list[Row]:
    """The paper's Table 2: members, controls, meta-embeddings; d is the dimension of the largest member."""
    dim = max(laboratory.ensemble.dims)
    searched = {tau: laboratory.meta(GCCA(dim, tau), f"tau={tau:g}, the best of {TAUS} on STS-B dev") for tau in TAUS}
    best = max(TAUS, key=lambda tau: searched[tau].scores[DEV].pearson)
    return [
        *laboratory.singles(),
        *laboratory.up_projections(dim),
        laboratory.meta(Concat()),
        laboratory.meta(Average()),
        laboratory.meta(SVD(dim)),
        searched[best],
    ]


def _report(
    rows: Sequence[Row], datasets: Sequence[Dataset], sentences: int, corpus: str
) -> tuple[str, str, dict[str, Any]]:
    """The table as text, as Markdown and as data, with what a reader has to know to trust it."""
    tests = [dataset for dataset in datasets if dataset.name != DEV]
    headers = ["", "d", *(dataset.name for dataset in tests), "mean", DEV]
    ours = [
        [
            row.label,
            str(row.dim),
            *(str(row.scores[test.name]) for test in tests),
            str(_mean_score(row, tests)),
            str(row.scores[DEV]),
        ]
        for row in rows
    ]
    papers = _paper_rows(tests)
    notes = [
        "Pearson's r / Spearman's rho, x 100. Protocol: mean over a year's sub-testsets, STS-B as a whole.",
        f"Members: {', '.join(ENCODERS)}. Fitted without labels on the {sentences} distinct sentences of STS-B train.",
        "STS-B is drawn from STS12-17, so its train sentences overlap with STS12-16 (texts only, no score was used).",
        *(f"{row.label}: {row.note}." for row in rows if row.note),
        *(
            f"{t.name} is without {', '.join(t.missing)}, here and in the paper's rows (* with it)."
            for t in tests
            if t.missing
        ),
        f"Text: {', '.join(dict.fromkeys(t.layout for t in tests))}. The paper's rows: {paper.CITATION}.",
        *_verdicts(rows, tests),
    ]
    facts = provenance()
    blank = [""] * len(headers)
    text = text_table(headers, [*ours, blank, *papers]) + "\n\n" + "\n".join(notes)
    markdown = "\n".join(
        [
            "# The demo's table",
            "",
            "Printed and written by `make demo`.",
            "",
            markdown_table(headers, [*ours, *papers]),
            "",
            *(f"- {note}" for note in notes),
            f"- Made with: {', '.join(f'{key} {value}' for key, value in facts.items())}.",
            "",
        ]
    )
    data = {
        "provenance": facts,
        "protocol": "mean",
        "encoders": ENCODERS,
        "corpus": {"what": "distinct sentences of STS-B train", "sentences": sentences, "key": corpus},
        "datasets": [
            {"name": d.name, "pairs": len(d), "layout": d.layout, "missing": d.missing, "fingerprint": d.fingerprint}
            for d in datasets
        ],
        "rows": [
            {"label": r.label, "dim": r.dim, "note": r.note, "scores": {k: s.to_json() for k, s in r.scores.items()}}
            for r in rows
        ],
    }
    return text, markdown, data


def _mean_score(row: Row, tests: Sequence[Dataset]) -> Score:
    scores = [row.scores[test.name] for test in tests]
    return Score(sum(s.pearson for s in scores) / len(scores), sum(s.spearman for s in scores) / len(scores))


def _paper_rows(tests: Sequence[Dataset]) -> list[list[str]]:
    """The paper's single and meta rows, its STS13 recomputed over the sub-testsets that we have."""
    rows = []
    for row in paper.table2():
        if row.kind not in ("single", "meta"):
            continue
        cells = [_paper_cell(row, test) for test in tests]
        rows.append([f"paper {row.key}", str(row.dim), *(cell for cell in cells), "", ""])
    return rows


def _paper_cell(row: paper.Row, test: Dataset) -> str:
    name = "stsb" if test.name == TEST else test.name
    figure, mark = row.figures[name], ""
    if test.missing:
        try:
            figure = paper.mean_over(row.key.partition(":")[2], name, [part.name for part in test.parts])
        except InputError:  # the appendix has no up-projections
            mark = "*"
    return f"{figure.pearson:.1f}/{figure.spearman:.1f}{mark}"


def _verdicts(rows: Sequence[Row], tests: Sequence[Dataset]) -> list[str]:
    """Say of every meta-embedding whether it beats its best member on the mean over the test sets."""
    singles = [row for row in rows if row.label.startswith("single:") and not row.note]
    best = max(singles, key=lambda row: _mean_score(row, tests).pearson)
    target = _mean_score(best, tests)
    lines = []
    for row in rows:
        if row.label.startswith("meta:"):
            found = _mean_score(row, tests)
            word = "above" if found.pearson > target.pearson else "BELOW"
            lines.append(f"{row.label} ({found}) is {word} its best member {best.label} ({target}) on the mean.")
    return lines


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: what was encoded is kept, run `make demo` again to go on")
    except EnsembedError as error:
        sys.exit(f"error: {error}")
