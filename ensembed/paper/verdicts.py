"""What the paired tests say, in words: does a meta-embedding beat its best member? Tables and report say it alike."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ensembed.paper.experiments.bootstrap import ALPHA
from ensembed.paper.findings import MEAN, METRICS, Comparison, Findings, Metric, System
from ensembed.paper.tables.marked_table import points, probability

Outcome: TypeAlias = Literal["above", "undecided", "below"]

VERBS: dict[Outcome, tuple[str, str]] = {
    "above": ("beats", "beat"),
    "undecided": ("cannot be told from", "cannot be told from"),
    "below": ("is below", "are below"),
}
"""What one meta-embedding does to a member, and what several do."""


def outcome(comparison: Comparison) -> Outcome:
    """Above or below, or undecided where the difference may be chance."""
    if comparison.p_holm >= ALPHA:
        return "undecided"
    return "above" if comparison.difference > 0 else "below"


def deciding(findings: Findings, metric: Metric) -> list[Comparison]:
    """The tests on the mean over the test sets, or on the only one: one per meta-embedding, all with one member."""
    where = MEAN if len(findings.tests) > 1 else findings.tests[0]
    return [one for one in findings.comparisons if (one.dataset, one.metric) == (where, metric)]


def place(findings: Findings) -> str:
    """Where that is."""
    return f"the mean over {len(findings.tests)} test sets" if len(findings.tests) > 1 else findings.tests[0]


def p_text(value: float) -> str:
    """A p-value in a sentence.

    >>> p_text(0.0123), p_text(0.0002)
    ('p = 0.012', 'p < 0.001')
    """
    text = probability(value).text
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def verdicts(findings: Findings) -> list[str]:
    """Say of every meta-embedding whether it beats its best member on the mean over the test sets."""
    return [_verdict(system, findings) for system in findings.systems if system.kind == "meta"]


def _verdict(system: System, findings: Findings) -> str:
    systems = {one.label: one for one in findings.systems}
    tests = [one for metric in METRICS for one in deciding(findings, metric) if one.label == system.label]
    if tests:
        member, verb = systems[tests[0].member], VERBS[outcome(tests[0])][0]
    else:
        member = findings.best_member
        verb = VERBS["above" if system.score(MEAN).pearson > member.score(MEAN).pearson else "below"][0]
    tested = "; ".join(_tested(one, member, systems[one.member]) for one in tests)
    return (
        f"{system.label} ({system.score(MEAN)}) {verb} its best member {_scored(member)} "
        f"on {place(findings)}{f' ({tested})' if tested else ''}."
    )


def _tested(comparison: Comparison, named: System, member: System) -> str:
    difference, low, high = (points(x).text for x in (comparison.difference, comparison.low, comparison.high))
    against = "" if member == named else f", where the best member is {_scored(member)},"
    corrected = probability(comparison.p_holm).text
    return (
        f"{comparison.metric.capitalize()}{against} {difference} [{low}, {high}], {p_text(comparison.p)}, "
        f"corrected {corrected}"
    )


def _scored(system: System) -> str:
    return f"{system.label} ({system.score(MEAN)})"
