"""`python -m experiments.before_after`: where each member and the ensemble rank the answers to questions on ensembed.

The questions are the headings of this repository's own pages, the answers the first sentences below them: real
sentences that anybody may print. Every heading is asked of all answers; the rank of its own is what counts. The
ensemble is that of the README, fitted on the sentences of the pages, without labels. Writes `before_after.md` and
`before_after.json`, from which website/pictures.py draws the questions of docs/start/faq.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed import Ensemble, open_encoder
from ensembed.encoders.base import Encoder
from ensembed.fetch.fetcher import pull
from ensembed.models.named_ensembles import named_ensemble
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from experiments import run, write_results

ROOT = Path(__file__).parents[1]
MEMBERS = named_ensemble("default")  # those of the README
SHOWN = "docs/start/faq.md"  # whose questions are listed one by one
_PAGES = ("start", "guides", "explanation", "reference")
_GENERATED = ("cli.md", "python.md")
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.:!?]) (?=[A-Z])")


def paragraphs(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield heading and sentences of every paragraph and list of a page; not of code, tables and pictures."""
    heading = ""
    for block in re.split(r"\n\s*\n", _FENCE.sub("", page)):
        if block.startswith("#"):
            heading, _, block = block.partition("\n")  # a paragraph may follow at once
            heading = heading.lstrip("# ")
        if block.strip() and not block.startswith(("    ", "|", "<", "!", "\n")):
            plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", block)
            yield heading, _SENTENCE.split(" ".join(re.sub(r"[`*]|^- ", "", plain, flags=re.MULTILINE).split()))


def ranks(encoder: Encoder, questions: Sequence[str], answers: Sequence[str]) -> NDArray[np.int64]:
    """Return the rank of every question's own answer among all answers, 1 for the first."""
    cosines = unit_rows(encoder.encode(list(questions))) @ unit_rows(encoder.encode(list(answers))).T
    own = np.diagonal(cosines)
    ranked: NDArray[np.int64] = 1 + (cosines > own[:, None]).sum(axis=1)
    return ranked


def measure(pages: Sequence[Path]) -> dict[str, Any]:
    """Return ranks of members and ensemble on the headings of pages."""
    found: dict[tuple[str, str], str] = {}
    corpus: dict[str, None] = {}
    for page in pages:
        for heading, sentences in paragraphs(page.read_text()):
            found.setdefault((page.relative_to(ROOT).as_posix(), heading), sentences[0])
            corpus.update(dict.fromkeys(sentences))
    members = list(MEMBERS)
    pull(members)
    model = Ensemble(members).fit(list(corpus))
    systems = {name: open_encoder(name) for name in members} | {"ensemble": model}
    questions, answers = [heading for _, heading in found], list(found.values())
    ranked = {name: ranks(encoder, questions, answers) for name, encoder in systems.items()}
    shown = [i for i, (page, _) in enumerate(found) if page == SHOWN]
    return {
        "systems": list(systems),
        "answers": len(answers),
        "sentences": len(corpus),
        "questions": [
            {
                "question": questions[i],
                "answer": answers[i],
                "ranks": {name: int(ranked[name][i]) for name in systems},
            }
            for i in shown
        ],
        "mean_reciprocal_rank": {
            "shown": {name: round(float((1 / ranked[name][shown]).mean()), 3) for name in systems},
            "all": {name: round(float((1 / ranked[name]).mean()), 3) for name in systems},
        },
        "provenance": provenance(),
    }


def page(results: dict[str, Any]) -> str:
    """Return the results as a page."""
    systems = results["systems"]
    means = results["mean_reciprocal_rank"]
    rows = [[one["question"], *(str(one["ranks"][name]) for name in systems)] for one in results["questions"]]
    rows += [
        [
            f"mean reciprocal rank, these {len(results['questions'])}",
            *(f"{means['shown'][name]:.3f}" for name in systems),
        ],
        [
            f"mean reciprocal rank, all {results['answers']} headings",
            *(f"{means['all'][name]:.3f}" for name in systems),
        ],
    ]
    notes = (
        f"- Rank of a question's own answer among the first sentences of all {results['answers']} sections of this "
        "repository's pages; 1 is best.\n"
        f"- `ensemble` is that of the README, fitted on their {results['sentences']} sentences, without labels.\n"
        "- A few questions show what happens, not how good a model is: a change of the pages changes the ranks.\n"
        f"- Made with {', '.join(f'{key} {value}' for key, value in results['provenance'].items())}."
    )
    table = markdown_table(["question", *systems], rows)
    return f"# Before and after\n\nWritten by `python -m experiments.before_after`.\n\n{table}\n\n{notes}\n"


def main() -> None:
    """Measure and write."""
    pages = [p for kind in _PAGES for p in sorted((ROOT / "docs" / kind).glob("*.md")) if p.name not in _GENERATED]
    results = measure(pages)
    text = page(results)
    print(text)
    write_results(ROOT / "results", "before_after", text, json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    run(main)
