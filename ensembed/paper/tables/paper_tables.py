"""The paper's tables for any ensemble, its figures beside ours, and those beyond: significance, curves, cost, data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from ensembed.errors import InputError
from ensembed.paper import published
from ensembed.paper.experiments.bootstrap import ALPHA
from ensembed.paper.findings import BESIDE, DEV, MEAN, METRICS, NO_CORPUS, OWN, CurvePoint, DatasetFacts, Findings
from ensembed.paper.published import Printed
from ensembed.paper.tables import marked_table
from ensembed.paper.tables.marked_table import Aside, Number, Row, Table, spread, with_mean
from ensembed.paper.tables.table_notes import literature, outcome, verdicts

OTHERS = f"The paper's figures are of other members and another corpus: {published.CITATION}"
_DRAWN = "Pairs are drawn with replacement, and one that is in several data sets as often in each of them."


def paper_tables(findings: Findings) -> list[Table]:
    """Return Tables 1 to 3 and the appendix; those for which nothing was run have no rows."""
    years = [dataset for dataset in findings.datasets if tuple(dataset.parts) != (dataset.name,)]
    numbered = (tau_table, autoencoder_table, main_table, ablation_table)
    return [*(table(findings) for table in numbered), *(appendix_table(findings, year) for year in years)]


def tau_table(findings: Findings) -> Table:
    """Table 1, below: GCCA's tau."""
    printed = published.table1_gcca()
    rows = [
        Row("meta", (Number(point.tau, f"{point.tau:g}"), point.score, _quoted(printed.get(f"{point.tau:g}"))))
        for point in findings.taus
    ]
    notes = (f"tau is chosen by Pearson's r on {DEV}.", f"{OTHERS}, Table 1.")
    return Table("table1-gcca", f"The paper's Table 1: GCCA by tau on {DEV}", ("tau", DEV, "paper"), rows, notes)


def autoencoder_table(findings: Findings) -> Table:
    """Table 1, above: the autoencoder's depth and loss."""
    scores = {(point.hidden_layers, point.loss): point.score for point in findings.autoencoders}
    losses, depths = list(dict.fromkeys(loss for _, loss in scores)), sorted({depth for depth, _ in scores})
    printed = published.table1_autoencoder()
    rows = [Row("meta", (str(depth), *(scores.get((depth, loss)) for loss in losses))) for depth in depths]
    rows += [
        Row("paper", (f"paper, {depth}", *(_quoted(printed[str(depth)].get(loss)) for loss in losses)))
        for depth in depths
        if str(depth) in printed
    ]
    notes = [f"Depth and loss are chosen by Pearson's r on {DEV}."]
    if "untrained" in losses:
        notes.append("untrained: the weights as they are drawn, random projections of the members as they are.")
    if seconds := [point.seconds for point in findings.autoencoders if point.loss != "untrained"]:
        took = f"{min(seconds):.0f} to {max(seconds):.0f} s per autoencoder, {sum(seconds):.0f} s in all"
        notes.append(f"Training took {took}.")
    title = f"The paper's Table 1: the autoencoder by hidden layers and loss on {DEV}"
    headers = ("hidden layers", *losses)
    return Table("table1-autoencoder", title, headers, rows, (*notes, f"{OTHERS}, Table 1."), marks="table")


def main_table(findings: Findings) -> Table:
    """Table 2: every system on every test set, the paper's rows, and the literature's as printed."""
    tests = [dataset for dataset in findings.datasets if dataset.name != DEV]
    columns = [*with_mean(findings.tests), DEV]
    rows = []
    for system in findings.systems:
        rows.append(Row(system.kind, (system.label, system.dim, *map(system.score, columns))))
        if system.spread:
            spreads = [spread(system.spread.get(name)) for name in columns]
            rows.append(Row(system.kind, (f"{system.label}, spread", None, *spreads)))
    for row in published.table2():
        figures = [_paper_figure(row, test) for test in tests]
        means = [_mean(figures)] if len(figures) > 1 else []
        cells = (_paper_label(row), row.dim, *figures, *means, None)
        rows.append(Row("literature" if row.is_literature else "paper", cells))
    title = "The paper's Table 2: every system on every test set"
    return Table("table2-main", title, ("system", "d", *columns), rows, tuple(_main_notes(findings, tests)))


def ablation_table(findings: Findings) -> Table:
    """Table 3: leave one member out."""
    ablations = {(point.method, point.without): point for point in findings.ablations}
    methods = list(dict.fromkeys(method for method, _ in ablations))
    rows = []
    for without in dict.fromkeys(without for _, without in ablations):
        points = [ablations.get((method, without)) for method in methods]
        dims = sorted({point.dim for point in points if point is not None})
        dim = dims[0] if len(dims) == 1 else " or ".join(map(str, dims))
        label = f"without {without}" if without else "all members"
        rows.append(Row("meta", (label, dim, *(point.score if point else None for point in points))))
    printed = published.table3()
    for without in next(iter(printed.values())) if rows else ():
        label = "all members" if without == "full" else without
        figures = [_quoted(printed[method].get(without)) if method in printed else None for method in methods]
        rows.append(Row("paper", (f"paper, {label}", None, *figures)))
    title = f"The paper's Table 3: leave one member out, on {DEV}"
    return Table("table3-ablation", title, ("members", "d", *methods), rows, (f"{OTHERS}, Table 3.",))


def appendix_table(findings: Findings, year: DatasetFacts) -> Table:
    """The appendix: every sub-testset of a year."""
    rows = []
    for system in findings.systems:
        result = next(result for result in system.results if result.dataset == year.name)
        scores = {part.name: part.score for part in result.parts}
        rows.append(Row(system.kind, (system.label, *map(scores.get, year.parts), result.score)))
    for row in published.table2():
        try:
            printed = published.appendix(row.method, year.name)
        except InputError:  # up-projections, the literature, and years that the appendix does not have
            continue
        figures = [_quoted(printed.get(part)) for part in year.parts]
        rows.append(Row("paper", (_paper_label(row), *figures, _paper_figure(row, year))))
    title = f"The paper's appendix: the sub-testsets of {year.name}"
    note = f"The last column is the score of the year; the paper's is by the protocol mean. {OTHERS}, appendix."
    return Table(f"appendix-{year.name}", title, ("system", *year.parts, year.name), rows, (note,))


def _main_notes(findings: Findings, tests: Sequence[DatasetFacts]) -> Iterator[str]:
    yield from verdicts(findings)
    for corpus in findings.corpora:
        if fitted := [system.label for system in findings.systems if system.corpus == corpus.name]:
            yield f"Fitted on {corpus.name}: {', '.join(fitted)}."
    yield from (f"{system.label}: {system.note}." for system in findings.systems if system.note)
    if any(system.spread for system in findings.systems):
        yield "spread: the standard deviation over seeds."
    yield f"{OTHERS}, Table 2; by the protocol mean."
    for test in tests:
        if test.missing:
            absent = ", ".join(test.missing)
            yield f"The paper's {test.name} is recomputed without {absent} from its appendix; * with it, as printed."
    yield "The rows below the paper's are the literature's, as the paper prints them; a dash where it prints none."
    yield from literature()


def _paper_label(row: published.Row) -> str:
    if row.is_literature:
        return f"{row.label.partition(' (')[0]}, {row.kind}"
    return f"paper {row.key.replace(' -- up-projection', ' up')}"


def _paper_figure(row: published.Row, test: DatasetFacts) -> Aside | None:
    """Return a figure of the paper's Table 2, over the sub-testsets that we have; * where that cannot be computed."""
    name = "stsb" if test.name == "stsb-test" else test.name
    figure = row.figures.get(name)
    if figure is None or not test.missing or figure == Printed(None, None):
        return _quoted(figure)
    try:
        return _quoted(published.mean_over(row.method, name, list(test.parts)))
    except InputError:  # the appendix has neither up-projections nor the literature
        return _quoted(figure, "*")


def _quoted(printed: Printed | None, sign: Literal["", "*"] = "") -> Aside | None:
    if printed is None:
        return None
    # Rounded, so that 62.7 becomes 0.627 and not 0.6270000000000001.
    r, rho = (value if value is None else round(value / 100, 12) for value in (printed.pearson, printed.spearman))
    return Aside(r, rho, sign)


def _mean(figures: Sequence[Aside | None]) -> Aside | None:
    """Return the mean of quoted figures, where all of them were printed and are over our sub-testsets."""
    if any(figure is None or figure.sign for figure in figures):
        return None
    columns = ([getattr(figure, metric) for figure in figures] for metric in METRICS)
    r, rho = (None if None in column else sum(column) / len(column) for column in columns)
    return None if r is rho is None else Aside(r, rho)


def tables_beyond_paper(findings: Findings) -> list[Table]:
    """Return all of them; those for which nothing was run have no rows."""
    curves = (
        curve_table("dimensions", f"Truncated to fewer dimensions, on {DEV}", findings.dimensions, "dimensions"),
        curve_table("corpus-size", f"Fitted on fewer sentences, on {DEV}", findings.sizes, "sentences"),
    )
    others = (domain_table, cost_table, worth_table, members_table, datasets_table, likeness_table)
    tests = (significance_table(findings), intervals_table(findings))
    return [*tests, *curves, *(table(findings) for table in others)]


def significance_table(findings: Findings) -> Table:
    """Every meta-embedding against the member that is best on the same data set by the same metric."""
    shown = with_mean(findings.tests)
    rows = []
    for test in (test for name in shown for test in findings.comparisons if test.dataset == name):
        numbers = map(marked_table.points, (test.difference, test.low, test.high))
        p_values = map(marked_table.probability, (test.p, test.p_holm))
        names = (test.dataset, test.label, test.member, test.metric, outcome(test))
        rows.append(Row("meta", (*names, *numbers, *p_values)))
    headers = ("data set", "system", "best member", "metric", "outcome", "difference", "low", "high", "p", "p Holm")
    notes = (
        "best member: the one with the highest score on the data set by the metric.",
        "difference: meta-embedding minus best member; low and high: of its 95% bootstrap interval.",
        "p: two-sided, of a paired bootstrap test on the same resampled pairs that there is no difference.",
        "p Holm: corrected for the number of meta-embeddings tested on a data set by a metric.",
        f"outcome: above or below where p Holm is under {ALPHA:g}; undecided otherwise.",
        _DRAWN,
    )
    return Table("significance", "Meta-embeddings against their best member", headers, rows, notes, left=5)


def intervals_table(findings: Findings) -> Table:
    """The interval of every score; the mean comes last."""
    systems = {system.label: system for system in findings.systems}
    order = list(dict.fromkeys([*(data.name for data in findings.datasets), *with_mean(findings.tests)]))
    rows = [
        Row(systems[end.label].kind, (end.dataset, end.label, systems[end.label].score(end.dataset), end.low, end.high))
        for name in order
        for end in findings.intervals
        if end.dataset == name
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
    rows = []
    for cost in findings.costs:
        times = map(_two_digits, (cost.milliseconds, cost.combining))
        rows.append(Row(_kind(cost.label), (cost.label, *times, cost.dim, cost.dev, cost.mean)))
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
    return Table("cost-members", f"What each member adds, on {DEV}", headers, rows, notes, left=2, marks="none")


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
        yield f"GCCA's tau is chosen again on each corpus, on {DEV}."
    if "meta:ae" in labels and findings.corpora:
        yield f"The autoencoder's depth and loss are those of the search on {findings.corpora[0].name}, on {DEV}."
    if OWN in labels:
        yield "The weights of auto, which is this library's own, are estimated again on each corpus, without a score."
    yield from (f"{system.label}, {system.corpus}: {system.note}." for system in findings.domains if system.note)


def _kind(label: str) -> marked_table.RowKind:
    return "single" if label.startswith(("single:", BESIDE)) else "meta"


def _two_digits(value: float) -> Number:
    return Number(value, f"{value:.2f}")
