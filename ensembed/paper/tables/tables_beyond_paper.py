"""The tables beyond the paper's: significance, curves, corpora, cost, and what was used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ensembed.paper.experiments.bootstrap import ALPHA
from ensembed.paper.findings import DEV, MEAN, NO_CORPUS, OWN, CurvePoint, Findings
from ensembed.paper.tables.marked_table import (
    Aside,
    Cell,
    Number,
    Row,
    RowKind,
    Table,
    points,
    probability,
    spread,
    with_mean,
)
from ensembed.paper.verdicts import outcome

_DRAWN = "Pairs are drawn with replacement, and one that is in several data sets as often in each of them."
"""What a reader has to know of every bootstrap interval."""


def further_tables(findings: Findings) -> list[Table]:
    """All of them; those for which nothing was run have no rows."""
    return [
        significance_table(findings),
        intervals_table(findings),
        curve_table("dimensions", f"Truncated to fewer dimensions, on {DEV}", findings.dimensions, "dimensions"),
        curve_table("corpus-size", f"Fitted on fewer sentences, on {DEV}", findings.sizes, "sentences"),
        domain_table(findings),
        cost_table(findings),
        worth_table(findings),
        members_table(findings),
        datasets_table(findings),
        likeness_table(findings),
    ]


def significance_table(findings: Findings) -> Table:
    """Every meta-embedding against the member that is best on the same data set by the same metric."""
    rows = [
        Row(
            "meta",
            (
                one.dataset,
                one.label,
                one.member,
                one.metric,
                outcome(one),
                points(one.difference),
                points(one.low),
                points(one.high),
                probability(one.p),
                probability(one.p_holm),
            ),
        )
        for one in sorted(findings.comparisons, key=lambda one: _place(findings, one.dataset))
        if one.dataset in with_mean(findings.tests)
    ]
    return Table(
        "significance",
        "Meta-embeddings against their best member",
        ("data set", "system", "best member", "metric", "outcome", "difference", "low", "high", "p", "p Holm"),
        tuple(rows),
        (
            "best member: the one with the highest score on the data set by the metric.",
            "difference: meta-embedding minus best member; low and high: of its 95% bootstrap interval.",
            "p: two-sided, of a paired bootstrap test on the same resampled pairs that there is no difference.",
            "p Holm: corrected for the number of meta-embeddings tested on a data set by a metric.",
            f"outcome: above or below where p Holm is under {ALPHA:g}; undecided otherwise.",
            _DRAWN,
        ),
        left=5,
    )


def intervals_table(findings: Findings) -> Table:
    """The interval of every score."""
    systems = {system.label: system for system in findings.systems}
    rows = [
        Row(
            systems[one.label].kind,
            (one.dataset, one.label, systems[one.label].score(one.dataset), one.low, one.high),
        )
        for one in sorted(findings.intervals, key=lambda one: _place(findings, one.dataset))
        if one.dataset in (*with_mean(findings.tests), DEV)
    ]
    notes = ("low and high: of the 95% bootstrap interval.", _DRAWN)
    headers = ("data set", "system", "score", "low", "high")
    return Table("intervals", "95% bootstrap intervals", headers, tuple(rows), notes, left=2, marks="none")


def curve_table(name: str, title: str, curve: Sequence[CurvePoint], what: str) -> Table:
    """A row per system, a column per point; below it the spread over draws, where there are several."""
    found = {(point.label, point.x): point for point in curve}
    xs = sorted({point.x for point in curve})
    rows = []
    for label in dict.fromkeys(point.label for point in curve):
        here = [found.get((label, x)) for x in xs]
        rows.append(Row(_kind(label), (label, *(None if point is None else point.score for point in here))))
        spreads = [None if point is None else spread(point.spread) for point in here]
        if any(spreads):
            rows.append(Row(_kind(label), (f"{label}, spread", *spreads)))
    draws = sorted({point.draws for point in curve if point.spread is not None})
    notes = [f"Columns: {what}."]
    if draws:
        several = " or ".join(map(str, draws))
        notes.append(f"spread: the standard deviation over {several} draws, of which the row above is the mean.")
    return Table(name, title, ("system", *map(str, xs)), tuple(rows), tuple(notes))


def domain_table(findings: Findings) -> Table:
    """What the methods score, by the corpus they were fitted on."""
    columns = [*with_mean(findings.tests), DEV]
    labels = list(dict.fromkeys(system.label for system in findings.domains))
    rows = [
        Row(system.kind, (system.label, system.corpus, system.dim, *(system.score(name) for name in columns)))
        for system in sorted(findings.domains, key=lambda system: labels.index(system.label))
    ]
    headers = ("system", "corpus", "d", *columns)
    notes = tuple(_domain_notes(findings, labels))
    return Table("corpus-domain", "By the corpus that was fitted on", headers, tuple(rows), notes, left=2)


def cost_table(findings: Findings) -> Table:
    """Milliseconds beside quality."""
    rows = [
        Row(
            _kind(one.label),
            (one.label, _milliseconds(one.milliseconds), _milliseconds(one.combining), one.dim, one.dev, one.mean),
        )
        for one in findings.costs
    ]
    return Table(
        "cost",
        "What a sentence costs",
        ("system", "ms per sentence", "of which combining", "d", DEV, MEAN),
        tuple(rows),
        (f"mean: over the test sets. Times were taken on {_machine(findings)}.",),
    )


def worth_table(findings: Findings) -> Table:
    """What each member buys: the ensemble with it against the ensemble without it."""
    costs = {one.label: one for one in findings.costs}
    rows = []
    for one in findings.costs:
        label, without, member = one.label.partition(" without ")
        if not without or label not in costs:
            continue
        whole = costs[label]
        gain = Aside(whole.dev.pearson - one.dev.pearson, whole.dev.spearman - one.dev.spearman, "+")
        milliseconds = whole.milliseconds - one.milliseconds
        rows.append(Row("meta", (member, label, whole.dev, one.dev, gain, _milliseconds(milliseconds))))
    return Table(
        "cost-members",
        f"What each member buys, on {DEV}",
        ("member", "system", "with it", "without it", "gain", "ms per sentence"),
        tuple(rows),
        ("gain: with the member minus without it. ms per sentence: the same difference of times.",),
        left=2,
        marks="none",
    )


def members_table(findings: Findings) -> Table:
    """The ensemble."""
    rows = [Row("single", (one.name, one.dim, one.licence or "unknown", one.key)) for one in findings.members]
    notes = ("key: the hash of everything that changes a member's numbers; its parts are in the JSON file.",)
    return Table("members", "The members", ("member", "d", "licence", "key"), tuple(rows), notes)


def datasets_table(findings: Findings) -> Table:
    """What was scored."""
    rows = []
    for one in findings.datasets:
        rows += [Row("", (one.name, part, n, one.layout, one.fingerprint)) for part, n in one.parts.items()]
        rows += [Row("", (one.name, part, None, "missing", None)) for part in one.missing]
    notes = ("fingerprint: the hash of a data set's sentences and scores.",)
    headers = ("data set", "sub-testset", "pairs", "layout", "fingerprint")
    return Table("datasets", "The data sets", headers, tuple(rows), notes, left=2)


def likeness_table(findings: Findings) -> Table:
    """How alike the members are, by every measure."""
    likeness = findings.likeness
    rows: list[Row] = []
    for measure, matrix in likeness.measures.items():
        for name, values in zip(likeness.names, matrix, strict=True):
            cells: list[Cell] = [Number(value, f"{value:.2f}") for value in values]
            rows.append(Row("single", (measure, name, *cells)))
    headers = ("measure", "member", *(f"with {name}" for name in likeness.names))
    notes = ("1 is as alike as can be; these are no scores, and not x 100.",)
    return Table("likeness", "How alike the members are", headers, tuple(rows), notes, left=2)


def _domain_notes(findings: Findings, labels: Sequence[str]) -> Iterator[str]:
    if any(system.corpus == NO_CORPUS for system in findings.domains):
        yield f"{NO_CORPUS}: methods that learn nothing."
    if "meta:gcca" in labels:
        yield f"GCCA's tau is chosen anew on each corpus, on {DEV}."
    if "meta:ae" in labels and findings.corpora:
        yield f"The autoencoder's depth and loss are those of the search on {findings.corpora[0].name}, on {DEV}."
    if OWN in labels:
        yield "The weights of auto, which is this library's own, are found anew on each corpus, without a score."
    for system in findings.domains:
        if system.note:
            yield f"{system.label}, {system.corpus}: {system.note}."


def _place(findings: Findings, dataset: str) -> int:
    """Data sets in their order, their mean last."""
    names = [one.name for one in findings.datasets]
    return names.index(dataset) if dataset in names else len(names)


def _kind(label: str) -> RowKind:
    return "single" if label.startswith("single:") else "meta"


def _machine(findings: Findings) -> str:
    facts = findings.provenance
    return facts.get("processor") or facts.get("system") or "an unknown machine"


def _milliseconds(value: float) -> Number:
    return Number(value, f"{value:.2f}")
