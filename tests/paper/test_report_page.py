"""The report is one well-formed file that loads nothing, shows all there is, and takes no text for markup."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest
from sample_findings import sample_findings

from ensembed.errors import MissingError
from ensembed.paper.findings import DEV, MEAN, Changes, Comparison, Findings, Likeness, Metric
from ensembed.paper.report import page as page_module
from ensembed.paper.report.drawing import Figure
from ensembed.paper.report.page import all_figures, headline, report_html
from ensembed.paper.tables.table_formats import all_tables

VOID = {"meta", "br", "hr", "img", "input", "link", "wbr"}
HOSTILE = "</script></style></title><script>alert(1)</script><img src=//x.example onerror=alert(2)>\"'{{ 7 * 7 }}"


class Page(HTMLParser):
    """Elements with their attributes, the text outside of style and script, and what is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.elements if attribute in attributes]

    def tags(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


@cache
def figures() -> tuple[Figure, ...]:
    """Those of the sample, drawn once: drawing takes seconds."""
    return all_figures(sample_findings())


@cache
def whole() -> str:
    return report_html(sample_findings(), figures())


def check(text: str, findings: Findings, drawn: Sequence[Figure]) -> Page:
    """What holds for every report."""
    page = Page(text)
    assert not page.open
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    tables = [table.name for table in all_tables(findings)]
    assert sorted(one["id"] for one in page.tags("figure")) == sorted(f"figure-{figure.name}" for figure in drawn)
    assert sorted(one["id"] for one in page.tags("table")) == sorted(f"table-{name}" for name in tables)
    files = {f"tables/{name}.{ending}" for name in tables for ending in ("md", "csv", "json", "tex")}
    links = [link["href"] for link in page.tags("a")]
    assert {link for link in links if not link.startswith("#")} == {*files, "findings.json"}
    assert {link[1:] for link in page.values("href") if link.startswith("#")} <= set(ids)
    sections = [one["id"] for one in page.tags("section")]
    assert links[1 : 1 + len(sections)] == [f"#{name}" for name in sections]  # the contents, after the skip link
    return page


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that a page is made with, as it is made."""
    kept: list[Figure] = []

    def draw(findings: Findings) -> list[Figure]:
        kept.extend(all_figures(findings))
        return kept

    monkeypatch.setattr(page_module, "all_figures", draw)
    return kept


def test_page_has_every_table_and_figure_once() -> None:
    page = check(whole(), sample_findings(), figures())
    assert whole().startswith("<!doctype html>\n<html lang")
    sections = "main-table significance scatter search ablation dimensions corpus likeness cost pairs appendix making"
    assert [one["id"] for one in page.tags("section")] == sections.split()
    assert len(page.tags("h1")) == len(page.tags("main")) == len(page.tags("nav")) == len(page.tags("header")) == 1
    assert len(page.tags("caption")) == len(page.tags("table"))
    assert all("scope" in header for header in page.tags("th"))
    for said in ("0123456789abcdef", "136,628 sentences", "20 epochs of batches of 256", "2026-01-01 00:00 UTC"):
        assert said in page.text
    assert sample_findings().command in page.text


def test_page_loads_nothing() -> None:
    page = Page(whole())
    assert not page.values("src") + page.values("srcset") + page.values("action") + page.values("xlink:href")
    assert not page.tags("link") + page.tags("iframe") + page.tags("base") + page.tags("object")
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert set(re.findall(r"url\(['\"]?(.)", whole())) <= {"#"}
    assert "@import" not in whole()
    [policy] = [one["content"] for one in page.tags("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_marks_and_printed_rows() -> None:
    findings = sample_findings()
    best = max(one.score("sts12").pearson for one in findings.systems)
    member = max(one.score("sts12").pearson for one in findings.systems if one.kind == "single")
    assert f'<span class="r best">{100 * best:.1f}</span>' in whole()
    assert f'<span class="r best-member">{100 * member:.1f}</span>' in whole()
    printed = re.findall(r'<tr class="printed[^"]*"><th scope="row" class="text">([^<]*)', whole())
    assert {"paper single:USE", "paper meta:gcca", "Raffel 2019, supervised SoTA"} <= set(printed)
    assert not [label for label in printed if label.startswith(("single:", "meta:"))]
    # Over sub-testsets with SMT: both figures can be hidden, the star stays.
    assert re.search(r'<span class="r">62.1</span><span class="slash">/</span><span class="rho">62.4</span>\*', whole())


def test_page_escapes_text() -> None:
    page = Page(whole())
    assert "single:<odd> & 'name' \\ 100%_$" in page.text
    assert "A <b>dog</b> runs & jumps." in page.text
    assert 'The "puppy" is running; 100%.' in page.text
    assert "not ours to pass on" not in page.text


def test_hostile_names_stay_text(drawn: list[Figure]) -> None:
    """Members, corpora, settings, provenance, command, sentences: whatever holds free text."""
    text = sample_findings().to_json().decode()
    for word in ("minilm", "news.txt", "20 epochs", "Linux", "puppy", "MIT"):
        assert word in text
        text = text.replace(word, json.dumps(HOSTILE)[1:-1])
    findings = Findings.from_json(text.encode())
    page = check(report_html(findings), findings, drawn)
    for tag in ("script", "style", "title"):  # figures have styles and titles of their own
        assert len(page.tags(tag)) == 1 + sum(figure.svg.count(f"<{tag}") for figure in drawn)
    assert not any("<script" in figure.svg for figure in drawn)
    assert not page.tags("img")
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.text.count(HOSTILE) > 20


def test_page_without_texts_says_where_the_pairs_are() -> None:
    findings = sample_findings(texts=False)
    page = check(report_html(findings, figures()), findings, figures())
    change = findings.changes.better[0]
    assert f"sts12 / MSRpar, row {change.pair}, gold score 3.25" in page.text
    assert "not ours to pass on" in page.text
    assert "without --no-texts" in page.text
    assert not page.tags("blockquote")


def test_page_of_a_small_run_has_no_empty_sections(drawn: list[Figure]) -> None:
    """The main table only, on one test set."""
    findings = sample_findings()
    names = ("stsb-test", DEV)
    systems = tuple(
        replace(one, results=tuple(each for each in one.results if each.dataset in names)) for one in findings.systems
    )
    small = replace(
        findings,
        datasets=tuple(one for one in findings.datasets if one.name in names),
        systems=systems,
        intervals=tuple(one for one in findings.intervals if one.dataset in (*names, MEAN)),
        comparisons=tuple(one for one in findings.comparisons if one.dataset in (*names, MEAN)),
        autoencoders=(),
        ablations=(),
        dimensions=(),
        sizes=(),
        domains=(),
        costs=(),
        likeness=Likeness((), {}),
        scatters=(),
        changes=Changes("meta:svd", "single:minilm", (), ()),
    )
    page = check(report_html(small), small, drawn)
    assert [one["id"] for one in page.tags("section")] == ["main-table", "significance", "search", "making"]
    assert "On stsb-test, " in page.text
    assert "test sets above" not in page.text


def test_missing_jinja2_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(
        MissingError, match=r"the report needs jinja2; install it with: pip install 'ensembed\[report\]'"
    ):
        report_html(sample_findings())


def _compared(
    pearson: dict[str, tuple[float, float]], spearman: dict[str, tuple[float, float]] | None = None
) -> Findings:
    """Findings with these differences and p-values on the mean."""
    tested: dict[Metric, dict[str, tuple[float, float]]] = {"pearson": pearson, "spearman": spearman or pearson}
    comparisons = [
        Comparison(
            f"meta:{name}", "single:minilm", MEAN, metric, difference, difference - 0.01, difference + 0.01, p, p
        )
        for metric, tests in tested.items()
        for name, (difference, p) in tests.items()
    ]
    return replace(sample_findings(), comparisons=tuple(comparisons))


def test_the_headline_says_which_beat_their_best_member() -> None:
    said = headline(
        _compared({"avg": (-0.031, 0.001), "gcca": (0.02, 0.0), "conc": (0.004, 0.3), "svd": (0.021, 0.04)})
    )
    assert said.title == "Two of four meta-embeddings beat their best member, minilm"
    assert said.lead == (
        "On the mean over 6 test sets, svd (+2.1) and gcca (+2.0) beat minilm; conc (+0.4) does not differ "
        "significantly from it; avg (-3.1) is below it. Pearson's r and Spearman's rho agree on that."
    )
    assert [(one.name, one.outcome) for one in said.verdicts] == [
        ("svd", "above"), ("gcca", "above"), ("conc", "undecided"), ("avg", "below")
    ]  # fmt: skip
    assert said.verdicts[1].sentences[:3] == ("beats minilm", "+1.0 to +3.0 (95%)", "p < 0.001")


@pytest.mark.parametrize(
    ("tests", "title"),
    [
        ({"svd": (0.02, 0.01), "gcca": (0.01, 0.01)}, "Both meta-embeddings beat their best member, minilm"),
        (
            {"svd": (0.02, 0.05), "gcca": (-0.01, 0.01)},
            "Neither of the two meta-embeddings beats its best member, minilm",
        ),
        ({"svd": (0.02, 0.04), "gcca": (-0.01, 0.01)}, "One of two meta-embeddings beats its best member, minilm"),
        (dict.fromkeys("abc", (0.02, 0.01)), "All three meta-embeddings beat their best member, minilm"),
        (dict.fromkeys("abc", (0.02, 0.5)), "None of the three meta-embeddings beats its best member, minilm"),
        ({"svd": (-0.02, 0.04)}, "svd is below minilm, the best of its members"),
        ({}, "What the encoders score on their own"),
    ],
)
def test_title_counts_winners(tests: dict[str, tuple[float, float]], title: str) -> None:
    assert headline(_compared(tests)).title == title


def test_the_headline_says_which_method_is_not_the_papers() -> None:
    ours = "Of these auto is this library's own method; the others are the paper's."
    assert headline(_compared({"auto": (0.02, 0.01), "svd": (0.01, 0.01)})).lead.endswith(f"agree on that. {ours}")
    assert ours not in headline(_compared({"svd": (0.02, 0.01), "gcca": (0.01, 0.01)})).lead
    assert ours not in headline(_compared({"auto": (0.02, 0.01)})).lead


def test_the_headline_names_what_rho_says_otherwise() -> None:
    said = headline(
        _compared({"svd": (0.02, 0.01), "gcca": (0.03, 0.01)}, {"svd": (-0.001, 0.9), "gcca": (0.03, 0.01)})
    )
    assert said.lead.endswith(
        "That is by Pearson's r; by Spearman's rho svd (-0.1) does not differ significantly from it."
    )


def test_the_headline_names_another_best_member_by_rho() -> None:
    def by_rho(findings: Findings) -> str:
        comparisons = tuple(
            replace(one, member="single:use-lite") if one.metric == "spearman" else one for one in findings.comparisons
        )
        return headline(replace(findings, comparisons=comparisons)).lead

    assert by_rho(_compared({"svd": (0.02, 0.01)})) == (
        "On the mean over 6 test sets, svd (+2.0) beats minilm. "
        "By Spearman's rho the best member is use-lite, and the verdicts are the same."
    )
    assert by_rho(_compared({"svd": (0.02, 0.01)}, {"svd": (0.001, 0.9)})).endswith(
        "by Spearman's rho, whose best member is use-lite, svd (+0.1) does not differ significantly from it."
    )


def test_the_fine_print_says_what_dev_shares_with_the_test_sets() -> None:
    text = Page(whole()).text
    said = "chosen on stsb-dev alone. Pairs of the test sets that are in stsb-dev, too: 12 of sts12"
    assert text.count(said) == 2  # there, and among what holds for all tables
    header, _, _ = text.partition("The main table")
    assert said in header
    findings = replace(sample_findings(), shared_pairs={}, absent=("sts16",))
    text = Page(report_html(findings, figures())).text
    assert "chosen on stsb-dev alone. sts13 is without SMT. Test sets of the paper that were not there: sts16." in text
    assert "too: 12" not in text


def test_page_uses_given_figures_without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "all_figures", lambda _: pytest.fail("drawn again"))
    check(report_html(sample_findings(), figures()[:2]), sample_findings(), figures()[:2])


def test_the_headline_counts_test_sets() -> None:
    findings = _compared({"svd": (0.02, 0.01)})
    single = [
        replace(findings.comparisons[0], dataset=name, difference=difference, p_holm=p)
        for name, difference, p in (("sts12", 0.03, 0.01), ("sts13", 0.02, 0.2), ("sts14", -0.03, 0.01))
    ]
    findings = replace(findings, comparisons=(*findings.comparisons, *single))
    assert headline(findings).verdicts[0].sentences[-1] == "1 of 3 test sets above, 1 below"
