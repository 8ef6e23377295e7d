"""The report in a real browser: nothing fails or is loaded, all is seen, switches and sorting work, it prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import chromium, find_chromium
from sample_findings import sample_findings

from ensembed.paper.findings import MEAN
from ensembed.paper.report.page import report_html
from ensembed.paper.tables.table_formats import all_tables

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


SAMPLE = sample_findings()
# With differences that count.
FINDINGS = replace(SAMPLE, comparisons=tuple(replace(one, p_holm=0.01) for one in SAMPLE.comparisons))
FIGURES = (
    "bars", "significance", "scatter", "tau", "autoencoders", "spectrum",
    "ablation", "dimensions", "sizes", "domains", "likeness", "cost",
)  # fmt: skip
MAIN = "#table-table2-main"
UNFOLD = "document.querySelectorAll('details').forEach(details => details.open = true)"

SIZES = """names => Object.fromEntries(names.map(name => {
  const element = document.querySelector(name), box = element.getBoundingClientRect();
  return [name, element.checkVisibility() ? Math.min(box.width, box.height) : 0];
}))"""


# What the texts, or else the paths, of all figures are drawn with.
COLOURS = """of => [...document.querySelectorAll(of === 'fill' ? '.canvas text' : '.canvas path')]
  .map(element => getComputedStyle(element)[of])"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def address(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: ARG001 - skip before drawing
    file: Path = tmp_path_factory.mktemp("a folder") / "report & more #1.html"
    file.write_text(report_html(FINDINGS), encoding="utf-8")
    return file.as_uri()


class Opened:
    """The report in a tab of its own, with what it complained about and asked for."""

    def __init__(self, browser: Browser, address: str, **context: Any) -> None:  # noqa: ANN401 - playwright's options
        self.context = browser.new_context(**{"offline": True, "viewport": {"width": 1280, "height": 900}, **context})
        self.context.set_default_timeout(120_000)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    opened = Opened(browser, address)
    with opened as page:
        yield page
        assert opened.complaints == []
        assert opened.requests == [address]


def _labels(page: Page, table: str = MAIN) -> list[str]:
    return [label for label in page.locator(f"{table} tbody th").all_inner_texts() if label]


def _ours(page: Page) -> list[str]:
    return [label for label in _labels(page) if label.startswith(("single:", "meta:")) and "spread" not in label]


@pytest.mark.parametrize("script", [True, False])
def test_every_table_and_figure_is_visible(browser: Browser, address: str, *, script: bool) -> None:
    figures = [f"#figure-{name} svg" for name in FIGURES]
    tables = [f"#table-{table.name}" for table in all_tables(FINDINGS)]
    assert len(tables) >= 15
    opened = Opened(browser, address, java_script_enabled=script)
    with opened as page:
        assert page.title() == page.locator("h1").inner_text()
        page.evaluate(UNFOLD)
        sizes = page.evaluate(SIZES, [*figures, *tables])
        assert {name: size for name, size in sizes.items() if size < 50} == {}
        assert len(sizes) == len(figures) + len(tables)
        assert opened.complaints == []
        assert opened.requests == [address]


@pytest.mark.parametrize("script", [True, False])
def test_switches_hide_metrics_and_printed_rows(browser: Browser, address: str, *, script: bool) -> None:
    with Opened(browser, address, java_script_enabled=script) as page:
        cell = page.locator(f"{MAIN} tbody tr:first-child td").nth(1)
        r, rho = (f"{100 * figure:.1f}" for figure in vars(FINDINGS.systems[0].score("sts12")).values())
        assert cell.inner_text() == f"{r}/{rho}"
        page.get_by_label("Pearson’s r").check()
        assert cell.inner_text() == r
        page.get_by_label("Spearman’s rho").check()
        assert cell.inner_text() == rho
        page.get_by_label("r and rho").check()
        assert cell.inner_text() == f"{r}/{rho}"

        printed = page.locator(f"{MAIN} .printed")
        assert printed.count() > 10
        assert printed.first.is_visible()
        page.get_by_label("Hide printed rows").check()
        assert not any(row.is_visible() for row in printed.all())
        assert page.locator(f"{MAIN} tbody tr").first.is_visible()


def test_sorting_by_mouse_and_keyboard(page: Page) -> None:
    before, systems = _labels(page), {one.label: one for one in FINDINGS.systems}
    header = page.locator(f"{MAIN} thead th", has_text=re.compile(f"^{MEAN}$"))
    button = header.get_by_role("button")

    button.click()
    assert header.get_attribute("aria-sort") == "descending"
    assert _ours(page) == sorted(systems, key=lambda label: -round(100 * systems[label].score(MEAN).pearson, 1))
    printed = [label for label in _labels(page) if label not in systems and "spread" not in label]
    assert _labels(page)[-len(printed) :] == printed  # the paper's rows stay below ours

    button.focus()
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    assert _ours(page) == sorted(systems, key=lambda label: round(100 * systems[label].score(MEAN).pearson, 1))
    page.keyboard.press("Space")
    assert header.get_attribute("aria-sort") == "none"
    assert _labels(page) == before

    page.get_by_label("Spearman’s rho").check()
    button.click()
    assert _ours(page) == sorted(systems, key=lambda label: -round(100 * systems[label].score(MEAN).spearman, 1))
    page.locator(f"{MAIN} thead th").first.get_by_role("button").click()
    assert _ours(page) == sorted(systems, key=str.casefold, reverse=True)
    assert page.locator("[aria-sort$=scending]").count() == 1


@pytest.mark.parametrize("table", [MAIN, "#table-corpus-size"])
def test_a_spread_stays_below_its_row(page: Page, table: str) -> None:
    page.evaluate(UNFOLD)
    spreads = [label for label in _labels(page, table) if label.endswith(", spread")]
    assert len(spreads) > 1
    headers = page.locator(f"{table} thead th")
    orders = set()
    for column in range(headers.count()):
        for _ in range(3):
            headers.nth(column).get_by_role("button").click()
            labels = _labels(page, table)
            orders.add(tuple(labels))
            above = {label: labels[i - 1] for i, label in enumerate(labels) if i}
            assert {label: f"{above[label]}, spread" for label in spreads} == {label: label for label in spreads}
    assert len(orders) > 3


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_does_not_scroll_sideways(browser: Browser, address: str, width: int) -> None:
    with Opened(browser, address, viewport={"width": width, "height": 800}) as page:
        page.evaluate(UNFOLD)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        frames = page.evaluate(
            "[...document.querySelectorAll('.frame')].map(frame => frame.scrollWidth > frame.clientWidth)"
        )
        assert any(frames) == (width == 390)  # wide tables do, in their frames


def test_the_contents_lead_to_sections(page: Page) -> None:
    link = page.locator("nav a").nth(3)
    link.focus()
    page.keyboard.press("Enter")
    page.locator("nav li:nth-child(4) a[aria-current=true]").wait_for()
    section = page.locator("section").nth(3)
    assert section.get_attribute("id") == (link.get_attribute("href") or "")[1:]
    assert page.locator("nav [aria-current=true]").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_palettes_can_be_read(browser: Browser, address: str, scheme: str) -> None:
    with Opened(browser, address, color_scheme=scheme) as page:

        def colour(selector: str, of: str) -> str:
            found: str = page.evaluate(f"getComputedStyle(document.querySelector({selector!r})).{of}")
            return found

        paper = colour("body", "backgroundColor")
        assert (_luminance(paper) > 0.5) == (scheme == "light")
        for selector in ("body", ".fine", "nav a", "summary", "figcaption", ".above .points"):
            assert _contrast(colour(selector, "color"), paper) >= 4.5, selector
        canvas = colour(".canvas", "backgroundColor")
        assert (_luminance(canvas) > 0.5) == (scheme == "light")
        on_cells = ("rgb(33, 33, 33)", "rgb(254, 254, 254)", "rgb(153, 153, 153)")  # and a dash where there is no cell
        texts = set(page.evaluate(COLOURS, "fill")) - set(on_cells)
        assert texts
        assert min(_contrast(text, canvas) for text in texts) >= 4.5
        lines = {line for line in page.evaluate(COLOURS, "stroke") if line != "none"}
        assert min(_contrast(line, canvas) for line in lines) >= 1.2  # the grid


@pytest.mark.parametrize("script", [True, False])
def test_printing_unfolds_everything(browser: Browser, address: str, *, script: bool) -> None:
    with Opened(browser, address, java_script_enabled=script) as page:
        folded = page.locator("details:not([open])")
        assert folded.count() > 10
        printed = page.pdf(prefer_css_page_size=True)
        assert printed.startswith(b"%PDF-")
        assert folded.count() > 10  # folded again
        # What is folded is printed: nothing changes when it is unfolded by hand, but much when it is taken out.
        page.evaluate(UNFOLD)
        assert _pages(page.pdf(prefer_css_page_size=True)) == _pages(printed)
        if script:
            page.evaluate("document.querySelectorAll('details').forEach(details => details.remove())")
            assert 4 < _pages(page.pdf(prefer_css_page_size=True)) < _pages(printed) - 4
        page.emulate_media(media="print")
        assert not page.locator("nav").is_visible()
        assert not page.locator(".switches").is_visible()
        assert page.locator(MAIN).is_visible()


def test_policy_blocks_injected_content(browser: Browser, address: str) -> None:
    opened, blocked = Opened(browser, address, offline=False), {}
    opened.page.on("requestfailed", lambda request: blocked.update({request.url: request.failure}))
    with opened as page:
        page.evaluate(
            """() => {
              const script = document.createElement("script"), image = document.createElement("img");
              script.textContent = "document.title = 'got in'";
              image.src = "http://127.0.0.1:9/x.png";
              document.body.append(script, image);
              return new Promise(resolve => image.addEventListener("error", resolve));
            }"""
        )
        assert page.title() != "got in"
        assert len([text for text in opened.complaints if "Content Security Policy" in text]) == 2
        assert blocked == {"http://127.0.0.1:9/x.png": "csp"}


def test_without_chromium_tests_are_skipped_but_not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="chromium"):
        find_chromium()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="make browser"):
        find_chromium()


def _pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def _luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)
