"""The documentation site builds without a warning, opens from the disk, fits any screen, and everybody can use it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import chromium, find_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
WIDTHS = (360, 768, 1280)
# One of every make: a landing page, pictures, wide tables, code, a generated reference, a notebook, a foreign page.
PAGES = (
    "index.html",
    "start/faq.html",
    "start/first_model.html",
    "guides/members.html",
    "explanation/results.html",
    "explanation/when_not.html",
    "reference/python.html",
    "notebooks/distil_and_serve.html",
    "repository/CONTRIBUTING.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a link that leads nowhere, or a page outside of the menu, fails."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def browser(site: Path) -> Iterator[Browser]:
    """A browser, once the site is there."""
    assert site.is_dir()
    find_chromium()
    with chromium() as opened:
        yield opened


def open_page(browser: Browser, path: Path, width: int, colours: str) -> tuple[Page, list[str]]:
    """Return an open page, and the addresses outside of the disk that it asked for."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=colours)  # type: ignore[arg-type]
    page.set_default_timeout(120_000)  # for machines that do other work
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if not _local(request.url) else None)
    page.goto(path.as_uri())
    # A box that still moves to its place after a change of width is not a page that is too wide.
    page.add_style_tag(content="*, *::before, *::after { transition: none !important; animation: none !important }")
    return page, asked


def _local(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:"))


@pytest.mark.parametrize("name", PAGES)
def test_page_fits_every_width_asks_no_server_and_has_no_serious_fault(name: str, site: Path, browser: Browser) -> None:
    for colours in ("light", "dark"):
        page, asked = open_page(browser, site / name, max(WIDTHS), colours)
        assert serious_faults(page) == []
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert overflow <= 0, f"{name} is {overflow} pixels too wide at {width}"
            heights = page.evaluate(
                "[...document.querySelectorAll('.drawing text')].map(text => text.getBoundingClientRect().height)"
            )
            assert all(height >= 12 for height in heights), f"text of a picture in {name} is too small at {width}"
        page.close()
        assert asked == []


def serious_faults(page: Page) -> list[str]:
    """Return what axe-core calls serious or critical."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{fault['id']}: {fault['nodes'][0]['html'][:200]} ({len(fault['nodes'])} places)"
        for fault in Axe().run(page).response["violations"]
        if fault["impact"] in ("serious", "critical")
    ]


def test_lists_are_lists(site: Path) -> None:
    """GitHub and Python-Markdown disagree about blank lines and indents in lists."""
    code = re.compile(r"<(pre|script|style)\b.*?</\1>", re.DOTALL)
    for page in site.rglob("*.html"):
        items = re.findall(r"\n(?:\d+\.|-) .*", code.sub("", page.read_text()))
        assert not items, page


def test_links_to_notebooks_lead_to_their_pages(site: Path) -> None:
    page = (site / "start" / "faq.html").read_text()
    assert 'href="../notebooks/trust.html"' in page
    assert ".ipynb" not in page
    assert 'href="trust.ipynb"' in (site / "notebooks" / "trust.html").read_text()


def test_search_works_from_the_disk(site: Path, browser: Browser) -> None:
    page, asked = open_page(browser, site / "guides" / "fit.html", 1280, "light")
    page.locator("input.md-search__input").click()
    page.keyboard.type("near-identical")
    page.locator(".md-search-result__link").first.wait_for()
    links = page.locator(".md-search-result__link").evaluate_all("links => links.map(link => link.href)")
    page.close()
    assert any("guides/groups.html" in link for link in links)
    assert asked == []


def test_page_shows_its_pictures_in_the_chosen_colours(site: Path, browser: Browser) -> None:
    inks = []
    for colours in ("light", "dark"):
        page, _ = open_page(browser, site / "index.html", 768, colours)
        inks.append(page.evaluate("getComputedStyle(document.querySelector('.drawing text')).fill"))
        page.close()
    assert inks[0] != inks[1]
