"""From findings to tables: every figure is in its place, and nothing is claimed that was not found."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sample_findings import NOTES, sample_findings

from ensembed.paper import published as paper
from ensembed.paper.findings import DEV, MEAN, Ablation, Comparison, Findings, Likeness, System
from ensembed.paper.published import table2
from ensembed.paper.tables.marked_table import Cell, Row, Table, cell_text
from ensembed.paper.tables.table_formats import all_tables, main_text, write_tables
from ensembed.paper.tables.table_notes import choices, literature, outcome, shared_notes, verdicts
from ensembed.sts.protocol import PartScore, Result, Score

FINDINGS = sample_findings()
TABLES = {table.name: table for table in all_tables(FINDINGS)}


def row(table: Table, *first: str) -> Row:
    """The row that begins with these cells."""
    (found,) = [one for one in table.rows if one.cells[: len(first)] == first]
    return found


def cell(table: Table, header: str, *first: str) -> Cell:
    return row(table, *first).cells[table.headers.index(header)]


def reduced() -> Findings:
    """Two members, STS-B alone, one corpus, and nothing but the main table, its tests and what was used."""
    names = {"stsb-test", DEV}
    members = FINDINGS.members[:2]
    labels = {f"single:{member.name}" for member in members} | {"meta:conc", "meta:svd"}
    systems = tuple(
        replace(system, results=tuple(result for result in system.results if result.dataset in names), spread={})
        for system in FINDINGS.systems
        if system.label in labels
    )
    return replace(
        FINDINGS,
        settings={},
        members=members,
        corpora=FINDINGS.corpora[:1],
        datasets=tuple(dataset for dataset in FINDINGS.datasets if dataset.name in names),
        taus=(),
        autoencoders=(),
        systems=systems,
        intervals=(),
        comparisons=tuple(one for one in FINDINGS.comparisons if one.label in labels and one.dataset == "stsb-test"),
        ablations=(),
        dimensions=(),
        sizes=(),
        domains=(),
        costs=(),
        likeness=Likeness(tuple(member.name for member in members), {}),
    )


def test_every_expected_table_exists_once() -> None:
    years = [f"appendix-sts{year}" for year in range(12, 17)]
    beyond = ["significance", "intervals", "dimensions", "corpus-size", "corpus-domain", "cost", "cost-members"]
    used = ["members", "datasets", "likeness"]
    main = ["table1-gcca", "table1-autoencoder", "table2-main", "table3-ablation"]
    assert [table.name for table in all_tables(FINDINGS)] == [*main, *years, *beyond, *used]


def test_the_search_for_tau_stands_beside_the_papers() -> None:
    table = TABLES["table1-gcca"]
    assert [cell_text(one.cells[0]) for one in table.rows] == ["0.01", "0.1", "1", "10", "100"]
    assert [one.cells[1] for one in table.rows] == [point.score for point in FINDINGS.taus]
    assert [cell_text(one.cells[2]) for one in table.rows][:2] == ["84.2/84.1", "84.8/84.7"]


def test_tau_missing_in_the_paper_has_an_empty_cell() -> None:
    findings = replace(FINDINGS, taus=(replace(FINDINGS.taus[0], tau=0.5),))
    (table,) = [one for one in all_tables(findings) if one.name == "table1-gcca"]
    assert [cell_text(one) for one in table.rows[0].cells][::2] == ["0.5", ""]


def test_autoencoder_table_has_depths_losses_and_printed_rows() -> None:
    table = TABLES["table1-autoencoder"]
    assert table.headers == ("hidden layers", "untrained", "mse", "mae", "kld", "cos")
    for point in FINDINGS.autoencoders:
        assert cell(table, point.loss, str(point.hidden_layers)) == point.score
    papers = row(table, "paper, 1")
    assert [cell_text(one) for one in papers.cells[1:]] == ["", "82.7/83.9", "83.8/84.6", "85.1/85.5", "83.3/83.4"]
    assert "Training took 12 to 12 s per autoencoder, 150 s in all." in table.notes
    best = max(FINDINGS.autoencoders, key=lambda point: point.score.pearson)
    i, j = table.rows.index(row(table, str(best.hidden_layers))), table.headers.index(best.loss)
    assert table.pieces(i, j)[0].best


def test_the_main_table_has_every_system_on_every_set() -> None:
    table = TABLES["table2-main"]
    for system in FINDINGS.systems:
        found = row(table, system.label)
        assert (found.kind, found.cells[1]) == (system.kind, system.dim)
        for name in (*FINDINGS.tests, MEAN, DEV):
            assert cell(table, name, system.label) == system.score(name)
    assert cell_text(cell(table, "sts12", "single:minilm up, spread")) == "±0.2/0.3"


def test_the_papers_sts13_is_over_the_sub_testsets_that_we_have() -> None:
    table = TABLES["table2-main"]
    printed = paper.appendix("gcca", "sts13")
    figures = [printed[part].pearson or 0.0 for part in ("FNWN", "OnWN", "headlines")]
    assert cell_text(cell(table, "sts13", "paper meta:gcca")).split("/")[0] == f"{sum(figures) / 3:.1f}"
    assert cell_text(cell(table, "sts12", "paper meta:gcca")) == "72.8/71.6"
    assert cell_text(cell(table, "stsb-test", "paper meta:gcca")) == "83.9/84.4"
    pearsons = [72.8, sum(figures) / 3, 81.7, 84.2, 81.3, 83.9]
    assert cell_text(cell(table, MEAN, "paper meta:gcca")).split("/")[0] == f"{np.mean(pearsons):.1f}"
    # The appendix has no up-projections: as printed, starred, and without a mean.
    assert cell_text(cell(table, "sts13", "paper single:USE up")) == "57.0/57.5*"
    assert cell(table, MEAN, "paper single:USE up") is None
    assert "The paper's sts13 is recomputed without SMT from its appendix; * with it, as printed." in table.notes


def test_with_smt_the_papers_figures_are_the_printed_ones() -> None:
    datasets = tuple(
        replace(one, parts={**one.parts, "SMT": 100}, missing=()) if one.name == "sts13" else one
        for one in FINDINGS.datasets
    )
    findings = replace(FINDINGS, datasets=datasets)
    table = {one.name: one for one in all_tables(findings)}["table2-main"]
    assert cell_text(cell(table, "sts13", "paper meta:gcca")) == "69.6/69.4"
    assert cell_text(cell(table, "sts13", "paper single:USE up")) == "57.0/57.5"
    assert cell_text(cell(table, "sts13", "Wieting 2018, unsupervised")) == "62.8/-"
    assert cell_text(cell(table, MEAN, "Wieting 2018, unsupervised")) == "74.5/-"  # 446.8 / 6
    assert "sts13 is with SMT." in shared_notes(findings)
    assert "sts13 is without SMT." in shared_notes(FINDINGS)


def test_the_literature_is_quoted_with_its_sources() -> None:
    table = TABLES["table2-main"]
    quoted = [one for one in table.rows if one.kind == "literature"]
    assert len(quoted) == len(literature()) == 7
    assert cell_text(cell(table, "stsb-test", "Raffel 2019, supervised SoTA")) == "93.1/92.8"
    assert cell_text(cell(table, "stsb-test", "Reimers 2019, sup. siamese SoTA")) == "-/86.2"
    assert set(literature()) <= set(table.notes)
    assert all(row.source for row in table2() if row.is_literature)
    best = [
        any(piece.best for j in range(len(table.headers)) for piece in table.pieces(i, j))
        for i in range(len(table.rows))
    ]
    assert not any(best[i] for i, one in enumerate(table.rows) if one.kind in ("paper", "literature"))


def test_ablation_table_has_a_row_per_left_out_member() -> None:
    table = TABLES["table3-ablation"]
    assert table.headers == ("members", "d", "svd", "gcca", "ae")
    for one in FINDINGS.ablations:
        label = f"without {one.without}" if one.without else "all members"
        assert cell(table, one.method, label) == one.score
    assert cell_text(cell(table, "ae", "paper, without SBERT")) == "28.7/41.0"
    assert cell_text(cell(table, "gcca", "paper, all members")) == "85.5/86.1"


def test_dimensions_that_differ_between_methods_are_both_named() -> None:
    ablations = (Ablation("svd", "", 512, Score(0.7, 0.7)), Ablation("ae", "", 384, Score(0.7, 0.7)))
    (table,) = [one for one in all_tables(replace(FINDINGS, ablations=ablations)) if one.name == "table3-ablation"]
    assert cell(table, "d", "all members") == "384 or 512"


@pytest.mark.parametrize("year", ["sts12", "sts13", "sts14", "sts15", "sts16"])
def test_appendix_tables_have_every_sub_testset(year: str) -> None:
    table = TABLES[f"appendix-{year}"]
    for system in FINDINGS.systems:
        (result,) = [one for one in system.results if one.dataset == year]
        assert {part.name: part.score for part in result.parts} == {
            part: cell(table, part, system.label) for part in table.headers[1:-1]
        }
        assert cell(table, year, system.label) == result.score
    papers = [one for one in table.rows if one.kind == "paper"]
    assert len(papers) == 8
    for method in ("single:ParaNMT", "meta:ae"):
        for part in table.headers[1:-1]:
            figure = paper.appendix(method.partition(":")[2], year)[part]
            assert cell_text(cell(table, part, f"paper {method}")) == f"{figure.pearson:.1f}/{figure.spearman:.1f}"


def comparison(difference: float, p_holm: float) -> Comparison:
    low, high = difference - 0.003, difference + 0.003
    return Comparison("meta:svd", "single:minilm", MEAN, "pearson", difference, low, high, 0.0009, p_holm)


def test_a_difference_counts_when_its_corrected_p_is_small() -> None:
    assert [outcome(comparison(*one)) for one in ((0.01, 0.049), (-0.01, 0.049), (0.01, 0.05), (-0.2, 0.9))] == [
        "above",
        "below",
        "undecided",
        "undecided",
    ]


def constant(label: str, level: float) -> System:
    """A system with one score on everything."""
    score = Score(level, level - 0.006)
    kind = "single" if label.startswith("single:") else "meta"
    results = tuple(
        Result(name, "tsv", "0", "mean", score, (PartScore(name, 9, score),)) for name in (*FINDINGS.tests, DEV)
    )
    return System(label, kind, 3, "news", "", results, {})  # type: ignore[arg-type] # one of the kinds


@pytest.mark.parametrize(
    ("difference", "p_holm", "word"),
    [(-0.005, 0.002, "is below"), (0.005, 0.002, "beats"), (0.005, 0.2, "does not differ significantly from")],
)
def test_the_verdict_says_where_a_meta_embedding_is_not_better(difference: float, p_holm: float, word: str) -> None:
    systems = (constant("single:minilm", 0.783), constant("single:b", 0.7), constant("meta:svd", 0.783 + difference))
    findings = replace(FINDINGS, systems=systems, comparisons=(comparison(difference, p_holm),))
    (verdict,) = verdicts(findings)
    tested = {-0.005: "Pearson -0.5 [-0.8, -0.2]", 0.005: "Pearson +0.5 [+0.2, +0.8]"}[difference]
    scores = {-0.005: "77.8/77.2", 0.005: "78.8/78.2"}[difference]
    assert verdict == (
        f"meta:svd ({scores}) {word} its best member single:minilm (78.3/77.7) on the mean over 6 test sets "
        f"({tested}, p < 0.001, corrected {p_holm:.3f})."
    )
    assert verdict in main_text(findings)


def test_the_verdict_names_another_best_member_by_rho() -> None:
    systems = (constant("single:minilm", 0.783), constant("single:b", 0.7), constant("meta:svd", 0.788))
    by_r = comparison(0.005, 0.002)
    by_rho = replace(by_r, metric="spearman", difference=0.01, low=-0.001, high=0.02)
    (same,) = verdicts(replace(FINDINGS, systems=systems, comparisons=(by_r, by_rho)))
    assert "corrected 0.002; Spearman +1.0 [-0.1, +2.0], p < 0.001, corrected 0.002)." in same
    other = replace(by_rho, member="single:b")
    (verdict,) = verdicts(replace(FINDINGS, systems=systems, comparisons=(by_r, other)))
    assert "beats its best member single:minilm (78.3/77.7) on" in verdict
    assert "; Spearman, where the best member is single:b (70.0/69.4), +1.0 [-0.1, +2.0]," in verdict


def test_notes_say_what_was_chosen_on_dev_and_what_dev_shares() -> None:
    assert choices(FINDINGS)[1].startswith(
        "Pairs of the test sets that are in stsb-dev, too: 12 of sts12, 12 of sts13,"
    )
    findings = replace(FINDINGS, shared_pairs={"sts12": 300, "sts13": 0, "stsb-test": 2}, absent=("sts14", "sts16"))
    notes = shared_notes(findings)
    assert "All that was chosen was chosen on stsb-dev alone." in notes
    assert (
        "Pairs of the test sets that are in stsb-dev, too: 300 of sts12, 2 of stsb-test; the STS Benchmark is drawn "
        "from the shared tasks of 2012 to 2017." in notes
    )
    assert "Test sets of the paper that were not there: sts14, sts16." in notes
    apart = shared_notes(replace(findings, shared_pairs={"sts12": 0}, absent=()))
    assert not [note for note in apart if "too:" in note or "not there" in note]
    assert not [note for table in TABLES.values() for note in table.notes if "never" in note]


def test_significance_and_intervals_follow_the_data_sets() -> None:
    table = TABLES["significance"]
    assert list(dict.fromkeys(one.cells[0] for one in table.rows)) == [*FINDINGS.tests, MEAN]
    assert len(table.rows) == len(FINDINGS.comparisons)
    one = FINDINGS.comparisons[3]
    found = row(table, one.dataset, one.label, one.member, one.metric)
    values = [getattr(value, "value", value) for value in found.cells[5:]]
    assert values == [one.difference, one.low, one.high, one.p, one.p_holm]
    others = replace(one, member="single:use-lite")
    (table,) = [table for table in all_tables(replace(FINDINGS, comparisons=(others,))) if table.name == "significance"]
    assert [each.cells[2] for each in table.rows] == ["single:use-lite"]
    assert "best member: the one with the highest score on the data set by the metric." in table.notes
    table = TABLES["intervals"]
    interval = FINDINGS.intervals[-1]
    assert row(table, interval.dataset, interval.label).cells[3:] == (interval.low, interval.high)


def test_curves_have_a_column_per_point() -> None:
    table = TABLES["corpus-size"]
    assert table.headers == ("system", "1000", "3000", "10000", "30000", "136628")
    for point in FINDINGS.sizes:
        assert cell(table, str(point.x), point.label) == point.score
    assert cell_text(cell(table, "1000", "meta:svd, spread")) == "±0.4/0.5"
    assert "meta:ae, spread" not in [one.cells[0] for one in table.rows]
    assert "3 draws" in table.notes[1]
    holed = replace(FINDINGS, dimensions=FINDINGS.dimensions[1:])
    (table,) = [one for one in all_tables(holed) if one.name == "dimensions"]
    assert cell(table, "16", "meta:svd") is None


def test_domain_table_groups_rows_by_method() -> None:
    table = TABLES["corpus-domain"]
    assert [one.cells[:2] for one in table.rows] == [
        ("meta:conc", "none"),
        ("meta:avg", "none"),
        *((f"meta:{method}", corpus) for method in ("svd", "gcca", "ae", "auto") for corpus in ("news", "stsb-train")),
    ]
    assert cell(table, MEAN, "meta:auto", "stsb-train") == FINDINGS.domains[-1].score(MEAN)


def test_the_table_of_corpora_says_how_methods_were_chosen() -> None:
    domains = tuple(
        replace(one, note=f"tau={i}, the best") if one.label == "meta:gcca" else one
        for i, one in enumerate(FINDINGS.domains)
    )
    (table,) = [one for one in all_tables(replace(FINDINGS, domains=domains)) if one.name == "corpus-domain"]
    assert table.notes == (
        "none: methods that learn nothing.",
        "GCCA's tau is chosen again on each corpus, on stsb-dev.",
        "The autoencoder's depth and loss are those of the search on news, on stsb-dev.",
        "The weights of auto, which is this library's own, are estimated again on each corpus, without a score.",
        "meta:gcca, news: tau=3, the best.",
        f"meta:auto, news: {NOTES['auto']}.",
        "meta:gcca, stsb-train: tau=7, the best.",
    )
    learned = tuple(one for one in domains if one.label == "meta:svd")
    (table,) = [one for one in all_tables(replace(FINDINGS, domains=learned)) if one.name == "corpus-domain"]
    assert table.notes == ()


def test_worth_table_has_differences_of_score_and_time() -> None:
    costs = {one.label: one for one in FINDINGS.costs}
    whole, without = costs["meta:svd"], costs["meta:svd without use-lite"]
    found = row(TABLES["cost-members"], "use-lite", "meta:svd")
    gain, time = found.cells[4:]
    assert getattr(gain, "pearson", None) == whole.dev.pearson - without.dev.pearson
    assert cell_text(gain)[0] in "+-0"
    assert cell_text(time) == "1.50"
    assert cell_text(cell(TABLES["cost"], "ms per sentence", "meta:svd")) == "4.60"


def test_members_data_sets_and_likeness_tables() -> None:
    assert [one.cells for one in TABLES["members"].rows] == [
        (one.name, one.dim, one.licence, one.key) for one in FINDINGS.members
    ]
    pairs = [one.cells[2] for one in TABLES["datasets"].rows if one.cells[3] != "missing"]
    assert sum(int(str(n)) for n in pairs) == sum(sum(one.parts.values()) for one in FINDINGS.datasets)
    assert row(TABLES["datasets"], "sts13", "SMT").cells[3] == "missing"
    assert cell_text(cell(TABLES["likeness"], "with use-lite", "CKA", "minilm")) == "0.62"


def test_every_file_names_its_protocol_text_members_and_corpus(tmp_path: Path) -> None:
    files = write_tables(FINDINGS, tmp_path / "new" / "tables")
    assert sorted(path.name for path in files) == sorted(path.name for path in files[0].parent.iterdir())
    assert len(files) == 4 * len(TABLES)
    for path in files:
        text = path.read_text("utf-8")
        assert b"\r" not in path.read_bytes()
        if path.suffix != ".csv":
            for words in ("Protocol: mean", "Text: raw", "sts13 is without SMT", "minilm", "news (aaaaaaaa): 136628"):
                assert words in text, (path.name, words)
            assert FINDINGS.command in text
            assert "2026-01-01" in text


def test_files_hold_the_findings_to_the_last_digit(tmp_path: Path) -> None:
    write_tables(FINDINGS, tmp_path)
    with (tmp_path / "table2-main.csv").open(newline="", encoding="utf-8") as file:
        records = {record["system"]: record for record in csv.DictReader(file)}
    data = json.loads((tmp_path / "table2-main.json").read_text("utf-8"))
    rows = {one["cells"]["system"]: one["cells"] for one in data["rows"]}
    for system in FINDINGS.systems:
        for name in (*FINDINGS.tests, MEAN, DEV):
            score = system.score(name)
            assert Score(**rows[system.label][name]) == score
            record = records[system.label]
            assert Score(float(record[f"{name} pearson"]), float(record[f"{name} spearman"])) == score
    assert records["paper single:USE up"]["sts13 star"] == "*"
    assert records["paper single:USE"]["sts12 pearson"] == "0.626"


def test_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    first = {path: path.read_bytes() for path in write_tables(FINDINGS, tmp_path)}
    assert {path: path.read_bytes() for path in write_tables(FINDINGS, tmp_path)} == first


def test_reduced_findings_leave_out_what_was_not_run(tmp_path: Path) -> None:
    findings = reduced()
    tables = {table.name: table for table in all_tables(findings)}
    assert list(tables) == ["table2-main", "significance", "members", "datasets"]
    assert tables["table2-main"].headers == ("system", "d", "stsb-test", DEV)  # a single test set is its own mean
    assert cell(tables["table2-main"], "stsb-test", "meta:svd") == findings.systems[-1].score(MEAN)
    assert cell_text(cell(tables["table2-main"], "stsb-test", "paper meta:gcca")) == "83.9/84.4"
    assert len(write_tables(findings, tmp_path)) == 16
    text = main_text(findings)
    assert "on stsb-test (Pearson " in text
    assert "SMT" not in text
    assert "Another corpus" not in text
    assert "Settings" not in (tmp_path / "members.md").read_text("utf-8")


def test_verdict_without_a_paired_test_compares_scores() -> None:
    findings = replace(reduced(), comparisons=())
    best = findings.best_member
    for system, verdict in zip(findings.systems[2:], verdicts(findings), strict=True):
        word = "beats" if system.score(MEAN).pearson > best.score(MEAN).pearson else "is below"
        assert f"{system.label} ({system.score(MEAN)}) {word} its best member {best.label}" in verdict
        assert verdict.endswith(" on stsb-test.")


def test_notes_name_other_protocols() -> None:
    assert "Protocol: all, one correlation over the pooled pairs" in main_text(replace(FINDINGS, protocol="all"))
    assert "Protocol: wmean, " in main_text(replace(FINDINGS, protocol="wmean"))
