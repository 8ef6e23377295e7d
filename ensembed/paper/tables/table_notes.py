"""The words under tables and in the report: how figures were made, whose quoted ones are, what paired tests say."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ensembed.paper import published
from ensembed.paper.experiments.bootstrap import ALPHA
from ensembed.paper.findings import DEV, MEAN, METRICS, Comparison, Findings, Metric, System
from ensembed.paper.tables.marked_table import points, probability
from ensembed.sts.find import text_version
from ensembed.sts.protocol import Protocol

# The units of the formats for people and for programs.
READ = "Scores are Pearson's r / Spearman's rho, x 100; differences of scores are in the same points."
_FRACTIONS = "Scores (Pearson's r and Spearman's rho) and differences of scores are fractions"
HELD = f"{_FRACTIONS}; where a note quotes one, it is x 100."

_PROTOCOLS: dict[Protocol, str] = {
    "mean": "the unweighted mean over a year's sub-testsets",
    "wmean": "the mean over a year's sub-testsets, weighted by their pairs",
    "all": "one correlation over the pooled pairs of a year",
}

Outcome: TypeAlias = Literal["above", "undecided", "below"]
# The verb for one meta-embedding against a member, and for several.
VERBS: dict[Outcome, tuple[str, str]] = {
    "above": ("beats", "beat"),
    "undecided": ("does not differ significantly from", "do not differ significantly from"),
    "below": ("is below", "are below"),
}


def shared_notes(findings: Findings) -> list[str]:
    """Return the notes of every table of a run: protocol, text, sub-testsets, choices, members, corpora."""
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
    """Return on what everything was chosen, and how many pairs of the test sets are in it."""
    notes = [f"All that was chosen was chosen on {DEV} alone."]
    if shared := [f"{pairs} of {name}" for name, pairs in findings.shared_pairs.items() if pairs]:
        drawn = "the STS Benchmark is drawn from the shared tasks of 2012 to 2017"
        notes.append(f"Pairs of the test sets that are in {DEV}, too: {', '.join(shared)}; {drawn}.")
    return notes


def absences(findings: Findings) -> list[str]:
    """Return which of the paper's test sets and sub-testsets are missing."""
    notes = [f"{data.name} is without {', '.join(data.missing)}." for data in findings.datasets if data.missing]
    if findings.absent:
        notes.append(f"Test sets of the paper that were not there: {', '.join(findings.absent)}.")
    return notes


def literature() -> list[str]:
    """Return the sources of Table 2's quoted rows."""
    rows = [row for row in published.table2() if row.is_literature]
    return [f"{row.label}: {row.source}{f'; {row.note}' if row.note else ''}." for row in rows]


def outcome(comparison: Comparison) -> Outcome:
    """Return above or below, or undecided where the difference may be chance."""
    if comparison.p_holm >= ALPHA:
        return "undecided"
    return "above" if comparison.difference > 0 else "below"


def deciding(findings: Findings, metric: Metric) -> list[Comparison]:
    """Return the tests on the mean over the test sets, or on the only one: one per meta-embedding."""
    where = MEAN if len(findings.tests) > 1 else findings.tests[0]
    return [test for test in findings.comparisons if (test.dataset, test.metric) == (where, metric)]


def place(findings: Findings) -> str:
    """Name the data of the deciding tests."""
    return f"the mean over {len(findings.tests)} test sets" if len(findings.tests) > 1 else findings.tests[0]


def p_text(value: float) -> str:
    """Return a p-value for a sentence: `p = 0.012` or `p < 0.001`."""
    text = probability(value).text
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def difference_texts(comparison: Comparison) -> tuple[str, str, str]:
    """Return the difference and the ends of its interval, in points."""
    difference, low, high = (points(x).text for x in (comparison.difference, comparison.low, comparison.high))
    return difference, low, high


def verdicts(findings: Findings) -> list[str]:
    """Say of every meta-embedding whether it beats its best member on the mean over the test sets."""
    return [_verdict(system, findings) for system in findings.systems if system.kind == "meta"]


def _verdict(system: System, findings: Findings) -> str:
    systems = {other.label: other for other in findings.systems}
    tests = [test for metric in METRICS for test in deciding(findings, metric) if test.label == system.label]
    if tests:
        member, result = systems[tests[0].member], outcome(tests[0])
    else:
        member = findings.best_member
        result = "above" if system.score(MEAN).pearson > member.score(MEAN).pearson else "below"
    tested = "; ".join(_tested(test, member, systems[test.member]) for test in tests)
    where = f"{place(findings)} ({tested})" if tested else place(findings)
    return f"{_scored(system)} {VERBS[result][0]} its best member {_scored(member)} on {where}."


def _tested(comparison: Comparison, named: System, member: System) -> str:
    difference, low, high = difference_texts(comparison)
    against = "" if member == named else f", where the best member is {_scored(member)},"
    p = f"{p_text(comparison.p)}, corrected {probability(comparison.p_holm).text}"
    return f"{comparison.metric.capitalize()}{against} {difference} [{low}, {high}], {p}"


def _scored(system: System) -> str:
    return f"{system.label} ({system.score(MEAN)})"
