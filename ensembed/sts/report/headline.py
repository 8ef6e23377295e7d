"""What came out, in words: which meta-embeddings beat their best member, and which do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ensembed.sts.report.figures.style import listing, short
from ensembed.sts.reproduce.findings import MEAN, Comparison, Findings
from ensembed.sts.reproduce.notes import outcome
from ensembed.sts.reproduce.table import points, probability

_NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
_VERBS = {
    "above": ("beats", "beat"),
    "undecided": ("cannot be told from", "cannot be told from"),
    "below": ("is below", "are below"),
}


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
    tested = [one for one in findings.comparisons if one.metric == "pearson"]
    if not tested:
        return Headline("What the encoders score on their own", "No meta-embedding was compared with a member.", ())
    # A single test set is its own mean.
    where = MEAN if any(one.dataset == MEAN for one in tested) else tested[0].dataset
    deciding = sorted((one for one in tested if one.dataset == where), key=lambda one: -one.difference)
    on = f"the mean over {len(findings.tests)} test sets" if len(findings.tests) > 1 else findings.tests[0]
    lead = [f"On {on}, {_grouped(deciding)}.", *_by_rho(findings, deciding)]
    return Headline(_title(deciding), " ".join(lead), tuple(_verdict(one, tested) for one in deciding))


def _verdict(comparison: Comparison, tested: Sequence[Comparison]) -> Verdict:
    difference, low, high = (points(x).text for x in (comparison.difference, comparison.low, comparison.high))
    p = probability(comparison.p_holm).text
    sentences = [
        f"{_VERBS[outcome(comparison)][0]} {short(comparison.member)}",
        f"{low} to {high} (95%)",
        f"p {p if p.startswith('<') else f'= {p}'}",
    ]
    each = [outcome(one) for one in tested if one.label == comparison.label and one.dataset != MEAN]
    if len(each) > 1:
        counts = f"{each.count('above')} of {len(each)} test sets above"
        sentences.append(f"{counts}, {each.count('below')} below" if "below" in each else counts)
    return Verdict(outcome(comparison), short(comparison.label), difference, tuple(sentences))


def _title(deciding: Sequence[Comparison]) -> str:
    member, first = short(deciding[0].member), deciding[0]
    winners, of = sum(outcome(one) == "above" for one in deciding), len(deciding)
    if of == 1:
        return f"{short(first.label)} {_VERBS[outcome(first)][0]} {member}, the best of its members"
    if winners == of:
        return f"{'Both' if of == 2 else f'All {_count(of).lower()}'} meta-embeddings beat their best member, {member}"
    if winners == 0:
        none = "Neither" if of == 2 else "None"
        return f"{none} of the {_count(of).lower()} meta-embeddings beats its best member, {member}"
    verb = "beats its" if winners == 1 else "beat their"
    return f"{_count(winners)} of {_count(of).lower()} meta-embeddings {verb} best member, {member}"


def _grouped(deciding: Sequence[Comparison]) -> str:
    """`svd (+2.1) and gcca (+1.4) beat minilm; avg (-0.3) cannot be told from it`."""
    clauses: list[str] = []
    for result, (one, many) in _VERBS.items():
        named = [_named(each) for each in deciding if outcome(each) == result]
        if named:
            member = "it" if clauses else short(deciding[0].member)
            clauses.append(f"{listing(named)} {many if len(named) > 1 else one} {member}")
    return "; ".join(clauses)


def _by_rho(findings: Findings, deciding: Sequence[Comparison]) -> list[str]:
    """Say so where Spearman's rho leads to another verdict."""
    by_r = {one.label: outcome(one) for one in deciding}
    by_rho = [one for one in findings.comparisons if one.metric == "spearman" and one.dataset == deciding[0].dataset]
    if not by_rho:
        return []
    others = [f"{_named(one)} {_VERBS[outcome(one)][0]} it" for one in by_rho if outcome(one) != by_r[one.label]]
    if not others:
        return ["Pearson's r and Spearman's rho agree on that."]
    return [f"That is by Pearson's r; by Spearman's rho {listing(others)}."]


def _named(comparison: Comparison) -> str:
    return f"{short(comparison.label)} ({points(comparison.difference).text})"


def _count(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)
