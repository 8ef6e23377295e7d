"""The paper's own tables for any ensemble, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from ensembed.errors import InputError
from ensembed.paper import published
from ensembed.paper.findings import DEV, METRICS, DatasetFacts, Findings
from ensembed.paper.published import Printed
from ensembed.paper.tables.marked_table import Aside, Number, Row, Table, spread, with_mean
from ensembed.paper.tables.table_notes import literature, verdicts

OTHERS = f"The paper's figures are of other members and another corpus: {published.CITATION}"


def paper_tables(findings: Findings) -> list[Table]:
    """Return Tables 1 to 3 and the appendix; those for which nothing was run have no rows."""
    years = [dataset for dataset in findings.datasets if tuple(dataset.parts) != (dataset.name,)]
    return [
        tau_table(findings),
        autoencoder_table(findings),
        main_table(findings),
        ablation_table(findings),
        *(appendix_table(findings, year) for year in years),
    ]


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
