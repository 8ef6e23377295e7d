"""The tables beyond the paper's: significance, curves, corpora, cost, and what was used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ensembed.paper.experiments.bootstrap import ALPHA
from ensembed.paper.findings import DEV, MEAN, NO_CORPUS, OWN, CurvePoint, Findings
from ensembed.paper.tables.marked_table import (
    Aside,
    Number,
    Row,
    RowKind,
    Table,
    points,
    probability,
    spread,
    with_mean,
)
from ensembed.paper.tables.table_notes import outcome

_DRAWN = "Pairs are drawn with replacement, and one that is in several data sets as often in each of them."


def tables_beyond_paper(findings: Findings) -> list[Table]:
    """Return all of them; those for which nothing was run have no rows."""
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
    shown = with_mean(findings.tests)
    rows = [
        Row(
            "meta",
            (
                *(test.dataset, test.label, test.member, test.metric, outcome(test)),
                *map(points, (test.difference, test.low, test.high)),
                *map(probability, (test.p, test.p_holm)),
            ),
        )
        for test in sorted(
            (test for test in findings.comparisons if test.dataset in shown), key=lambda test: shown.index(test.dataset)
        )
    ]
    return Table(
        "significance",
        "Meta-embeddings against their best member",
        ("data set", "system", "best member", "metric", "outcome", "difference", "low", "high", "p", "p Holm"),
        rows,
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
    """The interval of every score; the mean comes last."""
    systems = {system.label: system for system in findings.systems}
    order = list(dict.fromkeys([*(data.name for data in findings.datasets), *with_mean(findings.tests)]))
    rows = [
        Row(systems[end.label].kind, (end.dataset, end.label, systems[end.label].score(end.dataset), end.low, end.high))
        for end in sorted(
            (end for end in findings.intervals if end.dataset in order), key=lambda end: order.index(end.dataset)
        )
    ]
    notes = ("low and high: of the 95% bootstrap interval.", _DRAWN)
    headers = ("data set", "system", "score", "low", "high")
    return Table("intervals", "95% bootstrap intervals", headers, rows, notes, left=2, marks="none")


def curve_table(name: str, title: str, curve: Sequence[CurvePoint], what: str) -> Table:
    """A row per system, a column per point; below it the spread over draws, where there are several."""
    by_place = {(point.label, point.x): point for point in curve}
    xs = sorted({point.x for point in curve})
    rows = []
    for label in dict.fromkeys(point.label for point in curve):
        on_row = [by_place.get((label, x)) for x in xs]
        rows.append(Row(_kind(label), (label, *(point.score if point else None for point in on_row))))
        spreads = [spread(point.spread) if point else None for point in on_row]
        if any(spreads):
            rows.append(Row(_kind(label), (f"{label}, spread", *spreads)))
    notes = [f"Columns: {what}."]
    if draws := sorted({point.draws for point in curve if point.spread is not None}):
        several = " or ".join(map(str, draws))
        notes.append(f"spread: the standard deviation over {several} draws, of which the row above is the mean.")
    return Table(name, title, ("system", *map(str, xs)), rows, notes)


def domain_table(findings: Findings) -> Table:
    """Scores by the corpus that methods were fitted on."""
    columns = [*with_mean(findings.tests), DEV]
    labels = list(dict.fromkeys(system.label for system in findings.domains))
    rows = [
        Row(system.kind, (system.label, system.corpus, system.dim, *map(system.score, columns)))
        for system in sorted(findings.domains, key=lambda system: labels.index(system.label))
    ]
    headers = ("system", "corpus", "d", *columns)
    notes = tuple(_domain_notes(findings, labels))
    return Table("corpus-domain", "By the corpus that was fitted on", headers, rows, notes, left=2)


def cost_table(findings: Findings) -> Table:
    """Milliseconds beside quality."""
    rows = [
        Row(
            _kind(cost.label),
            (cost.label, *map(_two_digits, (cost.milliseconds, cost.combining)), cost.dim, cost.dev, cost.mean),
        )
        for cost in findings.costs
    ]
    facts = findings.provenance
    machine = facts.get("processor") or facts.get("system") or "an unknown machine"
    headers = ("system", "ms per sentence", "of which combining", "d", DEV, MEAN)
    notes = (f"mean: over the test sets. Times were taken on {machine}.",)
    return Table("cost", "What a sentence costs", headers, rows, notes)


def worth_table(findings: Findings) -> Table:
    """What each member adds: the ensemble with it against the ensemble without it."""
    costs = {cost.label: cost for cost in findings.costs}
    rows = []
    for cost in findings.costs:
        label, without, member = cost.label.partition(" without ")
        if not without or label not in costs:
            continue
        whole = costs[label]
        gain = Aside(whole.dev.pearson - cost.dev.pearson, whole.dev.spearman - cost.dev.spearman, "+")
        milliseconds = _two_digits(whole.milliseconds - cost.milliseconds)
        rows.append(Row("meta", (member, label, whole.dev, cost.dev, gain, milliseconds)))
    headers = ("member", "system", "with it", "without it", "gain", "ms per sentence")
    notes = ("gain: with the member minus without it. ms per sentence: the same difference of times.",)
    return Table("cost-members", f"What each member buys, on {DEV}", headers, rows, notes, left=2, marks="none")


def members_table(findings: Findings) -> Table:
    """The ensemble."""
    rows = [
        Row("single", (member.name, member.dim, member.licence or "unknown", member.key)) for member in findings.members
    ]
    notes = ("key: the hash of everything that changes a member's numbers; its parts are in the JSON file.",)
    return Table("members", "The members", ("member", "d", "licence", "key"), rows, notes)


def datasets_table(findings: Findings) -> Table:
    """The data sets that were scored."""
    rows = []
    for data in findings.datasets:
        rows += [Row("", (data.name, part, n, data.layout, data.fingerprint)) for part, n in data.parts.items()]
        rows += [Row("", (data.name, part, None, "missing", None)) for part in data.missing]
    notes = ("fingerprint: the hash of a data set's sentences and scores.",)
    headers = ("data set", "sub-testset", "pairs", "layout", "fingerprint")
    return Table("datasets", "The data sets", headers, rows, notes, left=2)


def likeness_table(findings: Findings) -> Table:
    """How alike the members are, by every measure."""
    likeness = findings.likeness
    rows = [
        Row("single", (measure, name, *map(_two_digits, values)))
        for measure, matrix in likeness.measures.items()
        for name, values in zip(likeness.names, matrix, strict=True)
    ]
    headers = ("measure", "member", *(f"with {name}" for name in likeness.names))
    notes = ("1 is as alike as can be; these are no scores, and not x 100.",)
    return Table("likeness", "How alike the members are", headers, rows, notes, left=2)


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


def _kind(label: str) -> RowKind:
    return "single" if label.startswith("single:") else "meta"


def _two_digits(value: float) -> Number:
    return Number(value, f"{value:.2f}")
