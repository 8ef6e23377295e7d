"""What came out, in words: which meta-embeddings beat their best member, and which do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ensembed.paper.findings import MEAN, OWN, Comparison, Findings
from ensembed.paper.report.figures.style import listing, short
from ensembed.paper.tables.marked_table import points
from ensembed.paper.tables.table_notes import VERBS, deciding, outcome, p_text, place

_NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


@dataclass(frozen=True)
class Verdict:
    """How a meta-embedding did against its best member.

    Attributes:
        outcome: `above`, `below` or `undecided`.
        name: the meta-embedding, without its kind: `gcca`.
        difference: in points of Pearson's r.
        sentences: the verdict, the paired test, and on how many test sets it holds.
    """

    outcome: str
    name: str
    difference: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Headline:
    """The first thing a reader sees.

    Attributes:
        title: one line.
        lead: a few sentences.
        verdicts: one per meta-embedding, the best first.
    """

    title: str
    lead: str
    verdicts: tuple[Verdict, ...]


def headline(findings: Findings) -> Headline:
    """Put the paired tests into words; Pearson's r decides, as in the paper, and rho is named where it disagrees."""
    by_r = sorted(deciding(findings, "pearson"), key=lambda one: -one.difference)
    if not by_r:
        return Headline("What the encoders score on their own", "No meta-embedding was compared with a member.", ())
    lead = [f"On {place(findings)}, {_grouped(by_r)}.", *_by_rho(by_r, deciding(findings, "spearman"))]
    if any(one.label == OWN for one in by_r) and len(by_r) > 1:
        lead.append(f"Of these {short(OWN)} is this library's own method; the others are the paper's.")
    return Headline(_title(by_r), " ".join(lead), tuple(_verdict(one, findings) for one in by_r))


def _verdict(comparison: Comparison, findings: Findings) -> Verdict:
    difference, low, high = (points(x).text for x in (comparison.difference, comparison.low, comparison.high))
    sentences = [
        f"{VERBS[outcome(comparison)][0]} {short(comparison.member)}",
        f"{low} to {high} (95%)",
        p_text(comparison.p_holm),
    ]
    each = [
        outcome(one)
        for one in findings.comparisons
        if (one.label, one.metric) == (comparison.label, "pearson") and one.dataset != MEAN
    ]
    if len(each) > 1:
        counts = f"{each.count('above')} of {len(each)} test sets above"
        sentences.append(f"{counts}, {each.count('below')} below" if "below" in each else counts)
    return Verdict(outcome(comparison), short(comparison.label), difference, tuple(sentences))


def _title(by_r: Sequence[Comparison]) -> str:
    member, first = short(by_r[0].member), by_r[0]
    winners, of = sum(outcome(one) == "above" for one in by_r), len(by_r)
    if of == 1:
        return f"{short(first.label)} {VERBS[outcome(first)][0]} {member}, the best of its members"
    if winners == of:
        return f"{'Both' if of == 2 else f'All {_count(of).lower()}'} meta-embeddings beat their best member, {member}"
    if winners == 0:
        none = "Neither" if of == 2 else "None"
        return f"{none} of the {_count(of).lower()} meta-embeddings beats its best member, {member}"
    verb = "beats its" if winners == 1 else "beat their"
    return f"{_count(winners)} of {_count(of).lower()} meta-embeddings {verb} best member, {member}"


def _grouped(by_r: Sequence[Comparison]) -> str:
    """`svd (+2.1) and gcca (+1.4) beat minilm; avg (-0.3) cannot be told from it`."""
    clauses: list[str] = []
    for result, (one, many) in VERBS.items():
        named = [_named(each) for each in by_r if outcome(each) == result]
        if named:
            member = "it" if clauses else short(by_r[0].member)
            clauses.append(f"{listing(named)} {many if len(named) > 1 else one} {member}")
    return "; ".join(clauses)


def _by_rho(by_r: Sequence[Comparison], by_rho: Sequence[Comparison]) -> list[str]:
    """Say so where Spearman's rho leads to another verdict, or has another best member."""
    if not by_rho:
        return []
    outcomes = {one.label: outcome(one) for one in by_r}
    others = [f"{_named(one)} {VERBS[outcome(one)][0]} it" for one in by_rho if outcome(one) != outcomes[one.label]]
    member = "" if by_rho[0].member == by_r[0].member else short(by_rho[0].member)
    if others:
        where = f", whose best member is {member}," if member else ""
        return [f"That is by Pearson's r; by Spearman's rho{where} {listing(others)}."]
    if member:
        return [f"By Spearman's rho the best member is {member}, and the verdicts are the same."]
    return ["Pearson's r and Spearman's rho agree on that."]


def _named(comparison: Comparison) -> str:
    return f"{short(comparison.label)} ({points(comparison.difference).text})"


def _count(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)
