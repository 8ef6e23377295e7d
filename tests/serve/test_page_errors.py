"""What the page says when the server is busy, down, wants a key, or refuses; in a real browser, on a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from browser import chromium
from numpy.typing import NDArray
from page_host import Hosted, Tab

from ensembed import Ensemble, MetaEncoder, ObjectEncoder
from ensembed.methods import Concat
from ensembed.serve import Settings, create_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

KEY = "a-key-of-the-tests"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def model() -> MetaEncoder:
    return Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"]).fit(["a"], Concat())


@pytest.fixture
def hosted(model: MetaEncoder) -> Iterator[Hosted]:
    with Hosted(create_app(model, settings=Settings(max_characters=100, max_similarity=10))) as hosted:
        yield hosted


def opened(browser: Browser, hosted: Hosted) -> tuple[Tab, Page]:
    tab = Tab(browser, hosted.address)
    tab.page.goto(tab.address)
    return tab, tab.page


def drawn(page: Page, last: str) -> None:
    page.locator(f".matrix:first-child tbody tr:last-child th[title='{last}']").wait_for()


def test_too_little_and_too_much(browser: Browser, hosted: Hosted) -> None:
    tab, page = opened(browser, hosted)
    page.locator("td.active").first.wait_for()
    page.fill("#sentences", " \n ")
    assert page.inner_text("#compare-status") == "Write two sentences or more."
    assert page.locator("#seen").is_hidden()
    assert page.locator("#disputed-part").is_hidden()
    page.fill("#sentences", "one")
    assert "second sentence" in page.inner_text("#compare-status")
    page.fill("#sentences", "one\ntwo")
    drawn(page, "two")
    page.fill("#sentences", "one\n" + "x" * 101)
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text() == "Sentence 2 has 101 characters, at most 100 are taken: shorten it."
    assert "stale" in (page.get_attribute("#seen", "class") or "")  # still there, but faint
    page.fill("#sentences", "\n".join("abcdefghijk"))
    page.get_by_role("alert").filter(has_text="too many").wait_for()
    assert page.get_by_role("alert").inner_text() == "11 sentences are too many: at most 10 are compared."
    assert page.locator("#compare-notice button").count() == 0  # asking the same again is of no use
    page.fill("#sentences", "one\nthree")
    drawn(page, "three")
    assert page.locator("[role=alert]").count() == 0
    assert "stale" not in (page.get_attribute("#seen", "class") or "")
    tab.close(refusals=True)


def test_a_server_that_is_down_is_asked_again_until_it_is_back(browser: Browser, model: MetaEncoder) -> None:
    with Hosted(create_app(model)) as first:
        tab, page = opened(browser, first)
        page.locator("td.active").first.wait_for()
    page.fill("#sentences", "one\ntwo")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text().startswith("The server cannot be reached.")
    page.locator(".count", has_text="Trying again in").wait_for()
    with Hosted(create_app(model), port=first.port):
        drawn(page, "two")  # nobody pressed anything
        assert page.locator("[role=alert]").count() == 0
        tab.close(refusals=True)


class Gate:
    """An encoder that waits while it is shut."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()

    def encode(self, sentences: Sequence[str]) -> NDArray[np.float64]:
        self.reached.set()
        assert self.open.wait(30)
        return np.array([[len(text), text.count("e"), 1.0] for text in sentences])


def test_a_busy_server_is_asked_again_when_it_said(browser: Browser) -> None:
    gate = Gate()
    model = Ensemble([ObjectEncoder(gate, name="gate"), "demo?dim=8"]).fit(["a"], Concat())
    with Hosted(create_app(model, settings=Settings(queue_texts=1))) as hosted:
        tab, page = opened(browser, hosted)
        page.locator("td.active").first.wait_for()
        gate.reached.clear()
        gate.open.clear()
        others = [threading.Thread(target=flood, args=(hosted.address, text)) for text in ("first", "second")]
        try:
            others[0].start()
            assert gate.reached.wait(20)  # the first is being encoded; then the queue takes one more
            others[1].start()
            waiting_in(hosted.address, 1)
            page.fill("#sentences", "one\ntwo")
            alert = page.get_by_role("alert")
            alert.wait_for()
            assert alert.inner_text().startswith("The server is busy.")
            assert "Trying again in 1 s." in page.inner_text("#compare-notice")
        finally:
            gate.open.set()
            for thread in others:
                thread.join(20)
        drawn(page, "two")
        assert page.locator("[role=alert]").count() == 0
        tab.close(refusals=True)


def flood(address: str, text: str) -> None:
    httpx.post(f"{address}similarity", json={"texts": [text]}, timeout=30)


def waiting_in(address: str, texts: int) -> None:
    """Wait until so many texts wait in the server's queue."""
    for _ in range(2000):
        told = httpx.get(f"{address}metrics").text
        if any(line.split()[-1] == f"{texts}.0" for line in told.splitlines() if "queue" in line and line[0] != "#"):
            return
    raise AssertionError(told)


def test_a_key_is_asked_for_kept_for_the_tab_and_asked_again_when_wrong(browser: Browser, model: MetaEncoder) -> None:
    with Hosted(create_app(model, settings=Settings(keys=(KEY,)))) as hosted:
        tab, page = opened(browser, hosted)
        field = page.get_by_label("wants an API key")
        field.wait_for()
        assert field.get_attribute("type") == "password"
        page.keyboard.type("wrong-key")  # the field has the focus
        page.keyboard.press("Enter")
        page.get_by_text("The key was not accepted.").wait_for()
        page.keyboard.type("ключ")
        page.keyboard.press("Enter")
        page.get_by_text("only visible ASCII").wait_for()
        field.fill(KEY)
        page.keyboard.press("Enter")
        page.locator("td.active").first.wait_for()
        page.locator(".members").wait_for()
        assert page.locator("#key-form").is_hidden()
        assert page.evaluate("[...Object.values(sessionStorage)].includes('" + KEY + "')")
        assert page.evaluate("Object.values(localStorage).length") == 0
        assert not any(KEY in url for url in tab.requests)
        page.reload()
        page.locator("td.active").first.wait_for()
        assert page.locator("#key-form").is_hidden()
        tab.close(refusals=True)


def test_a_late_refusal_does_not_hide_what_was_said_of_the_next_key(browser: Browser, model: MetaEncoder) -> None:
    with Hosted(create_app(model, settings=Settings(keys=(KEY,)))) as hosted:
        tab, page = opened(browser, hosted)
        field = page.get_by_label("wants an API key")
        field.wait_for()
        held: list[Route] = []
        page.route("**/similarity", lambda route: held.append(route))  # noqa: PLW0108 - playwright wants a plain function
        field.fill("wrong-key")
        page.keyboard.press("Enter")
        page.get_by_text("The key was not accepted.").wait_for()
        field.fill("ключ")
        page.keyboard.press("Enter")
        page.get_by_text("only visible ASCII").wait_for()
        with page.expect_response("**/similarity"):
            held.pop().continue_()
        page.wait_for_timeout(200)
        assert page.get_by_text("only visible ASCII").is_visible()
        tab.close(refusals=True)


@pytest.mark.parametrize(
    ("status", "body"), [(500, '{"error": {"message": "it broke"}}'), (502, "<h1>gateway</h1>"), (200, "{")]
)
def test_a_server_that_fails_can_be_asked_again_by_hand(
    browser: Browser, hosted: Hosted, status: int, body: str
) -> None:
    tab, page = opened(browser, hosted)
    page.locator("td.active").first.wait_for()
    page.route("**/similarity", lambda route: route.fulfill(status=status, body=body, content_type="application/json"))
    page.fill("#sentences", "one\ntwo")
    page.get_by_role("alert").wait_for()
    told = page.get_by_role("alert").inner_text()
    assert told == ("It broke." if status == 500 else f"The server's answer ({status}) cannot be read.")
    page.unroute("**/similarity")
    page.get_by_role("button", name="Try now").press("Enter")
    drawn(page, "two")
    tab.close(refusals=True)
