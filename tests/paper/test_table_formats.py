"""Tables in every format: what is written reads back as what it was, whatever the names are."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from sample_findings import sample_findings
from strategies import texts

from ensembed.errors import InputError
from ensembed.paper.tables.marked_table import Aside, Cell, Number, Row, Table, cell_text, points
from ensembed.paper.tables.table_formats import (
    escape_latex,
    escape_markdown,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
    to_text,
)
from ensembed.sts.protocol import Score

FINDINGS = sample_findings()
ODD = "<odd> & 'name' \\ 100%_$"

TABLE = Table(
    "toy",
    "A | title with *stars*",
    ("system", "d", "sts13", "p"),
    (
        Row("single", ("single:a|b", 3, Score(0.7123, 0.725), None)),
        Row("single", (f"single:{ODD}", 4, Score(0.71, 0.7249), Number(0.00012, "< 0.001"))),
        Row("up", ("up", 5, Aside(0.002, 0.003, "±"), None)),
        Row("meta", ("meta:svd", 5, Score(0.7094, 0.7312), Number(0.25, "0.250"))),
        Row("paper", ("paper", None, Aside(0.999, None, "*"), None)),
    ),
    ("1. A note with a [link](x) and an &amp; entity.",),
)


def marks(table: Table, row: int, column: int) -> str:
    """The cell with B around what is the best and U around what is the best member."""
    text = ""
    for piece in table.pieces(row, column):
        one = f"U{piece.text}U" if piece.best_member else piece.text
        text += f"B{one}B" if piece.best else one
    return text


def test_the_best_and_the_best_member_are_marked_for_each_metric_and_ties_share() -> None:
    assert marks(TABLE, 0, 2) == "BU71.2UB/U72.5U"
    assert marks(TABLE, 1, 2) == "71.0/U72.5U"  # 0.7249 reads as 0.725 does
    assert marks(TABLE, 3, 2) == "70.9/B73.1B"
    assert (marks(TABLE, 2, 2), marks(TABLE, 4, 2)) == ("±0.2/0.3", "99.9/-*")  # neither competes
    assert (marks(TABLE, 0, 3), TABLE.pieces(0, 3)) == ("", [])


def test_marks_of_a_whole_table_and_without_marks() -> None:
    cells = ("0", Score(0.7, 0.8), Score(0.75, 0.7))
    grid = Table("grid", "", ("depth", "mse", "mae"), (Row("meta", cells),), marks="table")
    assert (marks(grid, 0, 1), marks(grid, 0, 2)) == ("70.0/B80.0B", "B75.0B/70.0")
    plain = Table("grid", "", ("depth", "mse", "mae"), (Row("meta", cells),), marks="none")
    assert (marks(plain, 0, 1), marks(plain, 0, 2)) == ("70.0/80.0", "75.0/70.0")


def test_negative_scores_can_be_the_best() -> None:
    table = Table("t", "", ("s", "x"), (Row("single", ("a", Score(-0.2, -0.1))), Row("meta", ("b", Score(-0.3, 0)))))
    assert (marks(table, 0, 1), marks(table, 1, 1)) == ("BU-20.0UB/U-10.0U", "-30.0/B0.0B")


def test_a_table_that_does_not_fit_together_is_refused() -> None:
    with pytest.raises(InputError, match="2 columns, but a row of 1"):
        Table("t", "", ("a", "b"), (Row("", ("x",)),))
    with pytest.raises(InputError, match="not all different: a, a"):
        Table("t", "", ("a", "a"), ())


def test_a_difference_that_rounds_to_nothing_has_no_sign() -> None:
    assert [points(x).text for x in (0.0004, -0.0004, -0.0051, 0.01)] == ["0.0", "0.0", "-0.5", "+1.0"]


def test_text_separates_kinds_and_aligns() -> None:
    lines = to_text(TABLE, FINDINGS).splitlines()
    assert lines[0].split() == ["system", "d", "sts13", "p"]
    assert [line for line in lines[:9] if not line] == ["", "", ""]  # between single, up, meta and paper
    assert lines[2].split() == ["single:a|b", "3", "71.2/72.5"]
    assert TABLE.notes[0] in lines


def test_markdown() -> None:
    text = to_markdown(TABLE, FINDINGS)
    assert text.startswith("# A \\| title with \\*stars\\*\n\nWritten by\n\n    ensembed reproduce --corpus news.txt")
    assert "| single:a\\|b | 3 | **_71.2_**/_72.5_ |  |" in text
    assert "| meta:svd | 5 | 70.9/**73.1** | 0.250 |" in text
    assert "| paper |  | 99.9/-\\* |  |" in text
    assert "- In bold: the best of our figures in the column; in italics: the best member's." in text
    assert "- 1\\. A note" in text
    assert "- Made with ensembed 0.0, python 3.11, system Linux, time 2026-01-01 00:00 UTC.\n" in text
    assert "Settings: seed: 0; resamples: 2000;" in text


MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def rendered(text: str) -> str:
    """What a reader of the Markdown sees, as HTML; GitHub's tables and strikethrough among it."""
    return str(MARKDOWN.render(text))


def test_a_markdown_parser_reads_the_cells_as_they_are() -> None:
    html = rendered(to_markdown(TABLE, FINDINGS))
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", html)
    assert len(cells) == 4 * (1 + len(TABLE.rows))
    assert [unescape(cell) for cell in cells[4:12:4]] == ["single:a|b", f"single:{ODD}"]
    assert cells[6] == "<strong><em>71.2</em></strong>/<em>72.5</em>"
    assert "<li>1. A note with a [link](x) and an &amp;amp; entity.</li>" in html


awkward = st.text(st.sampled_from("ab1 \\`*_{}[]()<>#+-.!|~$&%^\"';:/=@é"), max_size=20)


@given(st.one_of(awkward, texts))
def test_escaped_markdown_reads_as_the_text(text: str) -> None:
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    table = Table("t", "t", ("system", "x"), (Row("", (text, 1)),), (text,))
    html = rendered(to_markdown(table, FINDINGS))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    assert len(cells) == 2
    assert unescape(cells[0]) == plain
    assert f"<li>{cells[0]}</li>" in html


@given(st.one_of(awkward, texts))
def test_escaped_latex_reads_as_the_text(text: str) -> None:
    escaped = escape_latex(text)
    # Everything that LaTeX acts on has to be part of an escape of ours.
    left = re.sub(r"\\text(\w+)\{\}|\\[{}$&#_%]|\{[\[\]*]\}|\$-\$|\$\\pm\$", "", escaped)
    assert not re.search(r"[\\{}$&#_%~^<>|\[\]*`\"\n]", left)
    assert "\n" not in escaped


def test_latex_has_as_many_cells_as_columns_and_closes_what_it_opens() -> None:
    text = to_latex(TABLE, FINDINGS)
    comments = [line for line in text.splitlines() if line.startswith("%")]
    assert comments[0].startswith("% Written by ensembed reproduce")
    assert any("python 3.11" in line for line in comments)
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    assert re.findall(r"\\(?:begin|end)\{(\w+)\}", text) == ["table", "tabular", "tabular", "table"]
    assert r"\begin{tabular}{lrrr}" in text
    assert r"\caption{A \textbar{} title with {*}stars{*}}" in text
    assert r"\label{tab:toy}" in text
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert len(rows) == 1 + len(TABLE.rows)
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {3}
    assert r"\textbf{\underline{71.2}}/\underline{72.5}" in rows[1]
    assert rows[2].startswith(r"single:\textless{}odd\textgreater{} \& 'name' \textbackslash{} 100\%\_\$ & 4 & ")
    assert r"$\pm$0.2/0.3" in rows[3]
    assert text.count(r"\midrule") == 4
    assert text.count("{") == text.count("}")


def test_a_command_of_several_lines_stays_in_its_comment_and_block() -> None:
    findings = replace(FINDINGS, command="ensembed reproduce \\\n  --corpus `a`")
    latex = to_latex(TABLE, findings)
    assert latex.startswith("% Written by ensembed reproduce \\\n%   --corpus `a`\n")
    assert "<code>ensembed reproduce \\\n  --corpus `a`\n</code>" in rendered(to_markdown(TABLE, findings))


def test_csv_holds_fractions_with_every_digit() -> None:
    text = to_csv(TABLE)
    assert "\r" not in text
    header, *rows = list(csv.reader(io.StringIO(text)))
    assert header == ["kind", "system", "d", "sts13 pearson", "sts13 spearman", "sts13 star", "p"]
    assert rows[0] == ["single", "single:a|b", "3", "0.7123", "0.725", "", ""]
    assert rows[1] == ["single", f"single:{ODD}", "4", "0.71", "0.7249", "", "0.00012"]
    assert rows[4] == ["paper", "paper", "", "0.999", "", "*", ""]


cells: st.SearchStrategy[Cell] = st.one_of(st.none(), texts, st.integers(), st.builds(Number, st.floats(-1, 1), texts))
fractions = st.floats(-1, 1)
pairs: st.SearchStrategy[Cell] = st.one_of(
    st.builds(Score, fractions, fractions),
    st.builds(
        Aside,
        st.one_of(st.none(), fractions),
        st.one_of(st.none(), fractions),
        st.sampled_from(["", "*", "±", "+"]),
    ),
    st.none(),
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    kinds = draw(st.lists(st.sampled_from(["single", "meta", "paper"]), min_size=1, max_size=4))
    rows = tuple(Row(kind, (draw(texts), draw(cells), draw(pairs))) for kind in kinds)  # type: ignore[arg-type] # they are the kinds
    return Table("t", draw(texts), ("a", "b", "c"), rows, (draw(texts),))


@given(tables())
def test_csv_and_json_read_back_as_what_they_were(table: Table) -> None:
    data = json.loads(to_json(table, FINDINGS))
    header, *lines = list(csv.reader(io.StringIO(to_csv(table), newline="")))
    assert len(lines) == len(data["rows"]) == len(table.rows)
    for row, line, record in zip(table.rows, lines, data["rows"], strict=True):
        a, b, c = row.cells
        assert record["kind"] == row.kind == line[0]
        assert record["cells"]["a"] == a == line[1]
        value = b.value if isinstance(b, Number) else b
        assert record["cells"]["b"] == value
        assert line[2] == ("" if value is None else str(value))
        if isinstance(c, Score | Aside):
            assert (record["cells"]["c"]["pearson"], record["cells"]["c"]["spearman"]) == (c.pearson, c.spearman)
            found = line[header.index("c pearson")], line[header.index("c spearman")]
            assert [float(text) if text else None for text in found] == [c.pearson, c.spearman]
        else:
            assert record["cells"]["c"] is None
            assert not any(line[3:])


@given(tables())
def test_every_format_has_every_row(table: Table) -> None:
    html = rendered(to_markdown(table, FINDINGS))
    assert html.count("<tr>") == 1 + len(table.rows)
    assert html.count("<td") == 3 * len(table.rows)
    latex = [line for line in to_latex(table, FINDINGS).splitlines() if line.endswith(r" \\")]
    assert [len(re.findall(r"(?<!\\)&", line)) for line in latex] == [2] * (1 + len(table.rows))
    text = to_text(table, FINDINGS)
    for row in table.rows:
        assert not cell_text(row.cells[2]) or cell_text(row.cells[2]) in text


def test_json_says_where_it_comes_from() -> None:
    data = json.loads(to_json(TABLE, FINDINGS))
    assert data["command"] == FINDINGS.command
    assert data["provenance"] == FINDINGS.provenance
    assert data["settings"] == FINDINGS.settings
    assert data["protocol"] == "mean"
    assert [member["key"] for member in data["members"]] == [member.key for member in FINDINGS.members]
    assert [corpus["sentences"] for corpus in data["corpora"]] == [136_628, 10_536]
    assert data["datasets"][1]["missing"] == ["SMT"]
    assert data["columns"] == list(TABLE.headers)
    assert data["notes"][-1] == TABLE.notes[0]


def test_every_format_names_its_own_unit() -> None:
    unit = "Scores are Pearson's r / Spearman's rho, x 100"
    for write in (to_text, to_markdown, to_latex):
        assert write(TABLE, FINDINGS).count("x 100") == write(TABLE, FINDINGS).count(unit) == 1
    data = json.loads(to_json(TABLE, FINDINGS))
    assert "differences of scores are fractions" in data["unit"]
    assert not [note for note in data["notes"] if "x 100" in note]


def test_underscores_inside_words_are_not_escaped() -> None:
    assert escape_markdown("news_mix_tok") == "news_mix_tok"
    assert escape_markdown("_x_ __y") == "\\_x\\_ \\_\\_y"
