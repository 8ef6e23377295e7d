"""What has to stand under tables: how figures were made, what they say, and whose the quoted ones are."""

from __future__ import annotations

from ensembed.sts import paper
from ensembed.sts.find import text_version
from ensembed.sts.protocol import Protocol
from ensembed.sts.reproduce.findings import MEAN, Comparison, Findings, System
from ensembed.sts.reproduce.table import points, probability

ALPHA = 0.05
"""A difference counts where its p, after Holm's correction, is below this."""

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
    """What every table of a run has to say: unit, protocol, text, sub-testsets, members, corpora."""
    members = ", ".join(f"{member.name} ({member.key[:8]})" for member in findings.members)
    notes = [
        f"Pearson's r / Spearman's rho, x 100. Protocol: {findings.protocol}, {_PROTOCOLS[findings.protocol]}.",
        f"Text: {text_version(findings.systems[0].results)}.",
        *(
            f"{dataset.name} is without {', '.join(dataset.missing)}."
            for dataset in findings.datasets
            if dataset.missing
        ),
        *("sts13 is with SMT." for dataset in findings.datasets if dataset.name == "sts13" and "SMT" in dataset.parts),
        f"Members (and the first digits of their keys): {members}.",
    ]
    for i, corpus in enumerate(findings.corpora):
        use = "Fitted without labels on" if i == 0 else "Another corpus:"
        notes.append(f"{use} {corpus.name} ({corpus.key[:8]}): {corpus.sentences} sentences, {corpus.what}.")
    return notes


def outcome(comparison: Comparison) -> str:
    """`above`, `below`, or `undecided` where the difference may be chance."""
    if comparison.p_holm >= ALPHA:
        return "undecided"
    return "above" if comparison.difference > 0 else "below"


def verdicts(findings: Findings) -> list[str]:
    """Say of every meta-embedding whether it beats its best member on the mean over the test sets."""
    return [_verdict(system, findings) for system in findings.systems if system.kind == "meta"]


def _verdict(system: System, findings: Findings) -> str:
    tests = {comparison.metric: comparison for comparison in _comparisons(system, findings)}
    decisive = tests.get("pearson")
    best = findings.best_member
    if decisive is not None:
        best = next(one for one in findings.systems if one.label == decisive.member)
    if decisive is not None and outcome(decisive) == "undecided":
        word = "neither clearly above nor clearly below"
    else:
        word = "above" if system.score(MEAN).pearson > best.score(MEAN).pearson else "BELOW"
    where = "the mean over the test sets" if len(findings.tests) > 1 else findings.tests[0]
    tested = "; ".join(f"{metric.capitalize()} {_tested(test)}" for metric, test in tests.items())
    return (
        f"{system.label} ({system.score(MEAN)}) is {word} its best member {best.label} ({best.score(MEAN)}) "
        f"on {where}{f' ({tested})' if tested else ''}."
    )


def _comparisons(system: System, findings: Findings) -> list[Comparison]:
    """The tests on the mean over the test sets, which may be that on the only one."""
    own = [one for one in findings.comparisons if one.label == system.label]
    means = [one for one in own if one.dataset == MEAN]
    return means or [one for one in own if [one.dataset] == findings.tests]


def _tested(comparison: Comparison) -> str:
    difference, low, high = (points(x).text for x in (comparison.difference, comparison.low, comparison.high))
    p, corrected = probability(comparison.p).text, probability(comparison.p_holm).text
    return f"{difference} [{low}, {high}], p {p if p.startswith('<') else f'= {p}'}, corrected {corrected}"


def literature() -> list[str]:
    """The sources of Table 2's quoted rows."""
    rows = [row for row in paper.table2() if row.key.startswith("literature:")]
    return [f"{row.label}: {SOURCES[row.key.partition(':')[2]]}{f'; {row.note}' if row.note else ''}." for row in rows]
