"""What the page says when the server is busy, down, wants a key, or refuses; in a real browser, on a real server."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from browser import chromium
from numpy.typing import NDArray
from page_host import BOUND, Hosted, Tab, settled
from playwright.sync_api import expect

from ensembed import Ensemble, MetaEncoder, ObjectEncoder
from ensembed.methods import Concat
from ensembed.search import Index
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


def test_too_few_and_too_many_sentences_are_explained(browser: Browser, hosted: Hosted) -> None:
    tab, page = opened(browser, hosted)
    page.locator("td.active").first.wait_for()
    page.fill("#sentences", " \n ")
    expect(page.locator("#compare-status")).to_have_text("Write two sentences or more.")
    expect(page.locator("#seen")).to_be_hidden()
    expect(page.locator("#disputed-part")).to_be_hidden()
    page.fill("#sentences", "one")
    expect(page.locator("#compare-status")).to_contain_text("second sentence")
    page.fill("#sentences", "one\ntwo")
    drawn(page, "two")
    page.fill("#sentences", "one\n" + "x" * 101)
    alert = page.get_by_role("alert")
    expect(alert).to_have_text("Sentence 2 has 101 characters, the limit is 100: shorten it.")
    expect(page.locator("#seen.stale")).to_be_visible()  # still there, but faint
    page.fill("#sentences", "\n".join("abcdefghijk"))
    expect(alert).to_have_text("11 sentences are too many: at most 10 are compared.")
    expect(page.locator("#compare-notice button")).to_have_count(0)  # asking the same again is of no use
    # Refused before it is parsed. Put there at once: line by line, as playwright types, takes Chromium half a minute.
    page.evaluate("""() => {
        const field = document.getElementById("sentences");
        field.value = "a\\n".repeat(2000);
        field.dispatchEvent(new Event("input", { bubbles: true }));
    }""")
    expect(alert).to_have_text("Too many sentences: at most 10 are compared.")
    page.fill("#sentences", "one\nthree")
    drawn(page, "three")
    expect(page.locator("[role=alert], #seen.stale")).to_have_count(0)
    tab.close(refusals=True)


def test_page_retries_until_a_server_that_is_down_is_back(browser: Browser, model: MetaEncoder) -> None:
    with Hosted(create_app(model)) as first:
        tab, page = opened(browser, first)
        page.locator("td.active").first.wait_for()
    page.fill("#sentences", "one\ntwo")
    expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached.")
    page.locator(".count", has_text="Trying again in").wait_for()
    with Hosted(create_app(model), port=first.port):
        drawn(page, "two")  # nobody pressed anything
        expect(page.locator("[role=alert]")).to_have_count(0)
        tab.close(refusals=True)


class Gate:
    """An encoder that waits while it is shut."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()

    def encode(self, sentences: Sequence[str]) -> NDArray[np.float64]:
        self.reached.set()
        assert self.open.wait(2 * BOUND)
        return np.array([[len(text), text.count("e"), 1.0] for text in sentences])


def test_page_retries_a_busy_server_when_retry_after_says(browser: Browser) -> None:
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
            assert gate.reached.wait(BOUND)  # the first is being encoded; then the queue takes one more
            others[1].start()
            waiting_in(hosted.address, 1)
            page.fill("#sentences", "one\ntwo")
            # How long it is to wait depends on how quick the model was; the seconds may have been counted down by now.
            expect(page.get_by_role("alert")).to_have_text(
                re.compile(r"The server is busy\. It is asked again in \d+ s\.")
            )
            expect(page.locator("#compare-notice .count")).to_have_text(re.compile(r"Trying again in \d+ s\."))
        finally:
            gate.open.set()
            for thread in others:
                thread.join(BOUND)
        drawn(page, "two")
        expect(page.locator("[role=alert]")).to_have_count(0)
        tab.close(refusals=True)


def flood(address: str, text: str) -> None:
    httpx.post(f"{address}similarity", json={"texts": [text]}, timeout=2 * BOUND)


def waiting_in(address: str, texts: int) -> None:
    """Wait until so many texts wait in the server's queue."""
    deadline = time.monotonic() + BOUND
    while f"ensembed_queued_texts {texts}.0" not in httpx.get(f"{address}metrics", timeout=BOUND).text:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_page_asks_for_a_key_and_keeps_it_for_the_tab(browser: Browser, model: MetaEncoder) -> None:
    with Hosted(create_app(model, settings=Settings(keys=(KEY,)))) as hosted:
        tab, page = opened(browser, hosted)
        field = page.get_by_label("wants an API key")
        expect(field).to_be_focused()
        expect(field).to_have_attribute("type", "password")
        page.keyboard.type("wrong-key")
        page.keyboard.press("Enter")
        page.get_by_text("The key was not accepted.").wait_for()
        expect(field).to_be_focused()
        page.keyboard.type("ключ")
        page.keyboard.press("Enter")
        page.get_by_text("only visible ASCII").wait_for()
        field.fill(KEY)
        page.keyboard.press("Enter")
        page.locator("td.active").first.wait_for()
        page.locator(".members").wait_for()
        expect(page.locator("#key-form")).to_be_hidden()
        assert page.evaluate("[...Object.values(sessionStorage)].includes('" + KEY + "')")
        assert page.evaluate("Object.values(localStorage).length") == 0
        assert not any(KEY in url for url in tab.requests)
        page.reload()
        page.locator("td.active").first.wait_for()
        expect(page.locator("#key-form")).to_be_hidden()
        tab.close(refusals=True)


def test_late_refusal_of_one_key_does_not_hide_the_result_of_the_next(browser: Browser, model: MetaEncoder) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if "authorization" in route.request.headers:  # asked with the wrong key
            held.append(route)
        else:
            route.continue_()

    with Hosted(create_app(model, settings=Settings(keys=(KEY,)))) as hosted:
        tab = Tab(browser, hosted.address)
        page = tab.page
        page.route("**/similarity", hold)
        page.goto(tab.address)
        field = page.get_by_label("wants an API key")
        field.wait_for()
        field.fill("wrong-key")
        page.keyboard.press("Enter")
        page.get_by_text("The key was not accepted.").wait_for()
        field.fill("ключ")
        page.keyboard.press("Enter")
        page.get_by_text("only visible ASCII").wait_for()
        deadline = time.monotonic() + BOUND
        while not held:
            assert time.monotonic() < deadline
            page.wait_for_timeout(10)  # lets the handler run
        with page.expect_response("**/similarity"):
            held.pop().continue_()
        settled(page)
        expect(page.get_by_text("only visible ASCII")).to_be_visible()
        tab.close(refusals=True)


@pytest.mark.parametrize(
    ("status", "body"), [(500, '{"error": {"message": "it broke"}}'), (502, "<h1>gateway</h1>"), (200, "{")]
)
def test_user_can_retry_after_a_server_error(browser: Browser, hosted: Hosted, status: int, body: str) -> None:
    tab, page = opened(browser, hosted)
    page.locator("td.active").first.wait_for()
    page.route("**/similarity", lambda route: route.fulfill(status=status, body=body, content_type="application/json"))
    page.fill("#sentences", "one\ntwo")
    told = "It broke." if status == 500 else f"The server's answer ({status}) cannot be read."
    expect(page.get_by_role("alert")).to_have_text(told)
    page.unroute("**/similarity")
    page.get_by_role("button", name="Try now").press("Enter")
    drawn(page, "two")
    tab.close(refusals=True)


class Flaky:
    """An encoder that fails while it is down."""

    down = False

    def encode(self, sentences: Sequence[str]) -> NDArray[np.float64]:
        if self.down:
            raise OSError("not reached")
        return np.array([[len(text), text.count("e"), 1.0] for text in sentences])


def test_page_names_a_member_that_is_down_with_the_hits(browser: Browser, tmp_path: Path) -> None:
    flaky = Flaky()
    fitted = Ensemble([ObjectEncoder(flaky, name="flaky", revision="1"), "demo?dim=8"]).fit(["a"], Concat())
    Index.create(tmp_path / "index", fitted).add(["a dog barks", "a cat sleeps"])
    model = MetaEncoder(fitted.ensemble, fitted.meta, missing="drop")
    with Hosted(create_app(model, index=Index.open(tmp_path / "index", model))) as hosted:
        tab, page = opened(browser, hosted)
        status = page.locator("#search-status")
        page.fill("#query", "a dog")
        expect(status).to_have_text("2 hits of 2 texts.")
        flaky.down = True
        page.fill("#query", "a cat")
        expect(status).to_have_text("2 hits of 2 texts. No answer from flaky.")
        flaky.down = False
        page.fill("#query", "a cat sleeps")
        expect(status).to_have_text("2 hits of 2 texts.")
        tab.close()


def test_page_names_a_member_that_is_down_in_place_of_its_matrix(browser: Browser) -> None:
    flaky = Flaky()
    fitted = Ensemble([ObjectEncoder(flaky, name="flaky", revision="1"), "demo?dim=8"]).fit(["a"], Concat())
    model = MetaEncoder(fitted.ensemble, fitted.meta, missing="drop")
    with Hosted(create_app(model)) as hosted:
        tab, page = opened(browser, hosted)
        names = page.locator(".matrix figcaption b")
        expect(names).to_have_text(["All together", "flaky", "demo?dim=8"])
        flaky.down = True
        page.fill("#sentences", "one\ntwo\nthree")
        drawn(page, "three")
        expect(names).to_have_text(["All together", "demo?dim=8", "flaky"])
        expect(page.locator(".matrix.silent p")).to_have_text("no answer from flaky")
        expect(page.locator(".matrix table")).to_have_count(2)
        expect(page.locator("#compare-status")).to_contain_text("No answer from flaky.")
        expect(page.locator("#disputed-part")).to_be_hidden()  # one member alone
        page.locator(".matrix").nth(1).locator("td[data-at='1,2,0']").click()
        expect(page.locator("#pair tbody th")).to_have_text(["All together", "demo?dim=8"])
        flaky.down = False
        page.fill("#sentences", "one\ntwo\nfour")
        drawn(page, "four")
        expect(names).to_have_text(["All together", "flaky", "demo?dim=8"])
        tab.close()
