"""What has to stand under tables: how figures were made, and whose the quoted ones are."""

from __future__ import annotations

from ensembed.paper import published as paper
from ensembed.paper.findings import DEV, Findings
from ensembed.sts.find import text_version
from ensembed.sts.protocol import Protocol

READ = "Scores are Pearson's r / Spearman's rho, x 100; differences of scores are in the same points."
"""The unit of what people read."""
HELD = (
    "Scores (Pearson's r and Spearman's rho) and differences of scores are fractions; "
    "where a note quotes one, it is x 100."
)
"""The unit of what machines read."""

SOURCES = {
    "ethayarajh2018unsupervised": (
        'Ethayarajh, "Unsupervised Random Walk Sentence Embeddings: A Strong but Simple Baseline", '
        "Workshop on Representation Learning for NLP (RepL4NLP) 2018"
    ),
    "wieting2018paranmt": (
        'Wieting and Gimpel, "ParaNMT-50M: Pushing the Limits of Paraphrastic Sentence Embeddings with Millions of '
        'Machine Translations", ACL 2018'
    ),
    "tang2019improving": (
        'Tang and de Sa, "Improving Sentence Representations with Multi-view Frameworks", '
        "arXiv:1810.01064 (2018, revised 2019)"
    ),
    "hassan2019uests": (
        'Hassan, Abdelrahman, Bahgat and Farag, "UESTS: An Unsupervised Ensemble Semantic Textual Similarity Method", '
        "IEEE Access 7, 2019"
    ),
    "poerner2019multiview": (
        'Poerner and Schütze, "Multi-View Domain Adapted Sentence Embeddings for Low-Resource Unsupervised Duplicate '
        'Question Detection", EMNLP-IJCNLP 2019'
    ),
    "reimers2019sentence": (
        'Reimers and Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", EMNLP-IJCNLP 2019'
    ),
    "raffel2019exploring": (
        "Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li and Liu, "
        '"Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", arXiv:1910.10683, 2019'
    ),
}
"""Where the literature's figures come from, by the key of the paper's bibliography."""

_PROTOCOLS: dict[Protocol, str] = {
    "mean": "the unweighted mean over a year's sub-testsets",
    "wmean": "the mean over a year's sub-testsets, weighted by their pairs",
    "all": "one correlation over the pooled pairs of a year",
}


def shared_notes(findings: Findings) -> list[str]:
    """What every table of a run has to say but its unit: protocol, text, sub-testsets, choices, members, corpora."""
    members = ", ".join(f"{member.name} ({member.key[:8]})" for member in findings.members)
    notes = [
        f"Protocol: {findings.protocol}, {_PROTOCOLS[findings.protocol]}.",
        f"Text: {text_version(findings.systems[0].results)}.",
        *absences(findings),
        *("sts13 is with SMT." for dataset in findings.datasets if dataset.name == "sts13" and "SMT" in dataset.parts),
        *choices(findings),
        f"Members (and the first digits of their keys): {members}.",
    ]
    for i, corpus in enumerate(findings.corpora):
        use = "Fitted without labels on" if i == 0 else "Another corpus:"
        notes.append(f"{use} {corpus.name} ({corpus.key[:8]}): {corpus.sentences} sentences, {corpus.what}.")
    return notes


def choices(findings: Findings) -> list[str]:
    """On what everything was chosen, and what that has to do with the test sets."""
    notes = [f"All that was chosen was chosen on {DEV} alone."]
    shared = [f"{pairs} of {name}" for name, pairs in findings.shared_pairs.items() if pairs]
    if shared:
        notes.append(
            f"Pairs of the test sets that are in {DEV}, too: {', '.join(shared)}; "
            "the STS Benchmark is drawn from the shared tasks of 2012 to 2017."
        )
    return notes


def absences(findings: Findings) -> list[str]:
    """What belongs to the paper's test sets and was not there."""
    notes = [f"{one.name} is without {', '.join(one.missing)}." for one in findings.datasets if one.missing]
    if findings.absent:
        notes.append(f"Test sets of the paper that were not there: {', '.join(findings.absent)}.")
    return notes


def literature() -> list[str]:
    """The sources of Table 2's quoted rows."""
    rows = [row for row in paper.table2() if row.key.startswith("literature:")]
    return [f"{row.label}: {SOURCES[row.key.partition(':')[2]]}{f'; {row.note}' if row.note else ''}." for row in rows]
