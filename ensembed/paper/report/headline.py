"""The report's first words: which meta-embeddings beat their best member, and which do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ensembed.paper.findings import MEAN, OWN, Comparison, Findings
from ensembed.paper.report.drawing import listing, short
from ensembed.paper.tables.marked_table import points
from ensembed.paper.tables.table_notes import VERBS, deciding, difference_texts, outcome, p_text, place

_NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


@dataclass(frozen=True)
class Verdict:
    """How a meta-embedding did against its best member."""

    outcome: str  # `above`, `below` or `undecided`
    name: str  # the meta-embedding, without its kind: `gcca`
    difference: str  # in points of Pearson's r
    sentences: tuple[str, ...]  # the verdict, the paired test, and on how many test sets it holds


@dataclass(frozen=True)
class Headline:
    """The first thing a reader sees: one line, a few sentences, and a verdict per meta-embedding, the best first."""

    title: str
    lead: str
    verdicts: tuple[Verdict, ...]


def headline(findings: Findings) -> Headline:
    """Put the paired tests into words; Pearson's r decides, as in the paper, and rho is named where it disagrees."""
    by_r = sorted(deciding(findings, "pearson"), key=lambda test: -test.difference)
    if not by_r:
        return Headline("What the encoders score on their own", "No meta-embedding was compared with a member.", ())
    lead = [f"On {place(findings)}, {_grouped(by_r)}.", *_by_rho(by_r, deciding(findings, "spearman"))]
    if any(test.label == OWN for test in by_r) and len(by_r) > 1:
        lead.append(f"Of these {short(OWN)} is this library's own method; the others are the paper's.")
    return Headline(_title(by_r), " ".join(lead), tuple(_verdict(test, findings) for test in by_r))


def _verdict(comparison: Comparison, findings: Findings) -> Verdict:
    difference, low, high = difference_texts(comparison)
    sentences = [_beats(comparison, short(comparison.member)), f"{low} to {high} (95%)", p_text(comparison.p_holm)]
    on_sets = [
        outcome(test)
        for test in findings.comparisons
        if (test.label, test.metric) == (comparison.label, "pearson") and test.dataset != MEAN
    ]
    if len(on_sets) > 1:
        counts = f"{on_sets.count('above')} of {len(on_sets)} test sets above"
        sentences.append(f"{counts}, {on_sets.count('below')} below" if "below" in on_sets else counts)
    return Verdict(outcome(comparison), short(comparison.label), difference, tuple(sentences))


def _title(by_r: Sequence[Comparison]) -> str:
    member, total = short(by_r[0].member), len(by_r)
    winners = sum(outcome(test) == "above" for test in by_r)
    if total == 1:
        return f"{short(by_r[0].label)} {_beats(by_r[0], member)}, the best of its members"
    if winners == total:
        all_of_them = "Both" if total == 2 else f"All {_count(total).lower()}"
        return f"{all_of_them} meta-embeddings beat their best member, {member}"
    if winners == 0:
        none = "Neither" if total == 2 else "None"
        return f"{none} of the {_count(total).lower()} meta-embeddings beats its best member, {member}"
    verb = "beats its" if winners == 1 else "beat their"
    return f"{_count(winners)} of {_count(total).lower()} meta-embeddings {verb} best member, {member}"


def _grouped(by_r: Sequence[Comparison]) -> str:
    """Return `svd (+2.1) and gcca (+1.4) beat minilm; avg (-0.3) cannot be told from it`."""
    clauses: list[str] = []
    for result, (singular, plural) in VERBS.items():
        if named := [_named(test) for test in by_r if outcome(test) == result]:
            member = "it" if clauses else short(by_r[0].member)
            clauses.append(f"{listing(named)} {plural if len(named) > 1 else singular} {member}")
    return "; ".join(clauses)


def _by_rho(by_r: Sequence[Comparison], by_rho: Sequence[Comparison]) -> list[str]:
    """Say so where Spearman's rho leads to another verdict, or has another best member."""
    if not by_rho:
        return []
    outcomes = {test.label: outcome(test) for test in by_r}
    others = [f"{_named(test)} {_beats(test, 'it')}" for test in by_rho if outcome(test) != outcomes[test.label]]
    member = "" if by_rho[0].member == by_r[0].member else short(by_rho[0].member)
    if others:
        where = f", whose best member is {member}," if member else ""
        return [f"That is by Pearson's r; by Spearman's rho{where} {listing(others)}."]
    if member:
        return [f"By Spearman's rho the best member is {member}, and the verdicts are the same."]
    return ["Pearson's r and Spearman's rho agree on that."]


def _beats(comparison: Comparison, member: str) -> str:
    return f"{VERBS[outcome(comparison)][0]} {member}"


def _named(comparison: Comparison) -> str:
    return f"{short(comparison.label)} ({points(comparison.difference).text})"


def _count(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)
