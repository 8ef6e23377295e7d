"""The page of clusters: in a real browser it loads nothing, and points, search and clusters work together."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from browser import chromium
from click.testing import CliRunner

from ensembed.cli import cli
from ensembed.search.groups import cluster_page, find_clusters
from ensembed.search.groups.cluster_page import MOST_LISTED, layout_points
from ensembed.views import ViewStore

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PETS = [f"the {a} {b} {c}" for a in ("old", "red", "big") for b in ("dog", "cat") for c in ("sleeps", "barks")]
SHARES = [f"{a} stocks {b} on {c}" for a in ("tech", "bank") for b in ("fell", "rose") for c in ("Monday", "Friday")]
ODD = ["the <script>alert(1)</script> dog & §@map§ sleeps"]
NAME = "demo?dim=64&seed=1"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    store = ViewStore(tmp_path_factory.mktemp("views"))
    clusters = find_clusters(PETS + SHARES + ODD, NAME, clusters=2, store=store)
    return cluster_page(clusters, NAME, title="A < B", store=store)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def test_texts_cannot_become_markup(page: str) -> None:
    assert "<h1>A &lt; B</h1>" in page
    assert "<script>alert" not in page
    assert page.count("the &lt;script&gt;alert(1)&lt;/script&gt; dog &amp; §@map§ sleeps") == 2  # a point and a line
    assert page.count("<circle") == page.count("<li>") == len(PETS + SHARES + ODD)
    assert "21 sentences in 2 clusters" in page


def test_the_name_of_a_file_in_the_title_may_be_no_text(tmp_path: Path) -> None:
    store = ViewStore(tmp_path)
    page = cluster_page(find_clusters(PETS, NAME, clusters=2, store=store), NAME, title="caf\udce9", store=store)
    assert "<h1>caf?</h1>" in page
    assert page.encode()


def test_repeated_sentences_are_listed_once_and_hide_no_others(tmp_path: Path) -> None:
    store = ViewStore(tmp_path)
    texts = PETS[:1] * (MOST_LISTED + 1) + PETS + SHARES
    page = cluster_page(find_clusters(texts, NAME, clusters=2, store=store), NAME, store=store)
    assert page.count("<li>") == page.count("<circle") == len(PETS + SHARES)
    assert f"{len(texts)} sentences ({len(PETS + SHARES)} different ones) in 2 clusters" in page
    assert "not listed here" not in page
    assert "The map shows" not in page


def test_names_on_the_map_do_not_lie_on_each_other(tmp_path: Path) -> None:
    store = ViewStore(tmp_path)
    page = cluster_page(find_clusters(PETS + SHARES + ODD, NAME, clusters=8, store=store), NAME, store=store)
    places = [(int(x), int(y)) for x, y in re.findall(r'<text x="(\d+)" y="(\d+)">', page)]
    assert len(places) > 2
    for (x, y), (left, top) in itertools.combinations(places, 2):
        assert abs(x - left) >= 229 or abs(y - top) >= 17


def test_names_stay_inside_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All clusters lie at its lower edge, where there is no room below them."""
    module = sys.modules["ensembed.search.groups.cluster_page"]
    monkeypatch.setattr(module, "layout_points", lambda U, **_: np.ones((len(U), 2)))
    store = ViewStore(tmp_path)
    page = cluster_page(find_clusters(PETS + SHARES + ODD, NAME, clusters=8, store=store), NAME, store=store)
    heights = sorted(int(y) for y in re.findall(r'<text x="\d+" y="(\d+)">', page))
    assert len(heights) == 8
    assert heights[-1] == 680
    assert (np.diff(heights) == 18).all()


def test_sentences_that_are_not_listed_are_counted(tmp_path: Path) -> None:
    store = ViewStore(tmp_path)
    texts = [f"dog number {i} barks" for i in range(MOST_LISTED + 7)]
    page = cluster_page(find_clusters(texts * 2, NAME, clusters=1, store=store), NAME, store=store)
    assert page.count("<li>") == MOST_LISTED
    assert "and 7 others, not listed here" in page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_clusters_are_browsed_without_a_network(browser: Browser, page: str, tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "clusters.html"
    file.write_text(page, encoding="utf-8")
    context = browser.new_context(offline=True, color_scheme=scheme)  # type: ignore[arg-type] # one of two words
    tab, complaints, requests = context.new_page(), [], []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(file.as_uri())
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]
    # The last point may be on top of others; a click on the element opens its own cluster.
    tab.locator("circle").last.dispatch_event("click")
    assert tab.locator("details[open]").count() == 1
    assert tab.locator("details[open] li", has_text="dog").count() > 0
    tab.locator("circle.faint").first.wait_for(state="attached")
    tab.locator("#find").fill("stocks friday")
    assert tab.locator("li:not([hidden])").count() == 4
    assert tab.locator("details:not([hidden])").count() == 1
    assert tab.locator("circle:not(.faint)").count() == 4
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert complaints == []
    context.close()


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    texts, file = tmp_path / "texts.txt", tmp_path / "clusters.html"
    texts.write_text("\n".join(PETS + SHARES))
    line = ["cluster", NAME, str(texts), "-k", "2", "--html", str(file), "--store", str(tmp_path / "views")]
    result = CliRunner().invoke(cli, line)
    assert result.exit_code == 0, result.output
    assert f"{file}: the clusters to browse, with a map" in result.output
    assert "<title>texts.txt</title>" in file.read_text(encoding="utf-8")
    again = CliRunner().invoke(cli, line)
    assert again.exit_code != 0
    assert "is there already" in str(again.output) + str(again.exception)


def test_the_map_keeps_neighbours_together() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    U = (np.eye(8)[labels] + 0.1 * random.standard_normal((60, 8))).astype(np.float32)
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    places = layout_points(U)
    assert places.min() == 0
    assert places.max() == 1
    distances = np.linalg.norm(places[:, None] - places[None], axis=2) + np.eye(60) * 9
    assert (labels[distances.argmin(axis=1)] == labels).all()
    assert layout_points(U[:2]).shape == (2, 2)
    assert layout_points(U[:1]).tolist() == [[0, 0]]
