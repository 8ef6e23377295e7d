"""The page in a real browser: the matrices, the search, the card, keys, both themes, a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browser import chromium, find_chromium
from page_host import CONTRASTS, Hosted, Tab, close_to, cosines, drawn, open_page, settled, shown, stand_still, write
from playwright.sync_api import expect

from ensembed import Ensemble, MetaEncoder, ObjectEncoder, open_encoder
from ensembed.methods import Auto, Concat
from ensembed.search import Index
from ensembed.serve import create_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

CORPUS = [f"{a} {b} {c}" for a in ("a", "the", "one") for b in ("dog", "cat", "cow") for c in ("barks", "sleeps")]
MARKUP = "<img src=x onerror=alert(1)> & <b>bold</b>"
TEXTS = [*CORPUS, MARKUP]
FIRST = "a dog barks\nthe cat sleeps\na cow barks at the dog\none more"
PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def model() -> MetaEncoder:
    find_chromium()
    members = ["demo?dim=8&seed=1", "demo?dim=6&seed=2", "demo?dim=5&seed=3"]
    return Ensemble(members).fit(CORPUS, Auto(weights=(1.0, 0.5, 0.0)))


@pytest.fixture(scope="module")
def index(model: MetaEncoder, tmp_path_factory: pytest.TempPathFactory) -> Index:
    index = Index.create(tmp_path_factory.mktemp("search") / "index", model)
    index.add(TEXTS, metadata=[{"line": i} for i in range(len(TEXTS))])
    return index


@pytest.fixture(scope="module")
def hosted(model: MetaEncoder, index: Index) -> Iterator[Hosted]:
    with Hosted(create_app(model, name="tiny", index=index)) as hosted:
        yield hosted


@pytest.fixture
def tab(browser: Browser, hosted: Hosted) -> Iterator[Tab]:
    tab = Tab(browser, hosted.address)
    open_page(tab)
    yield tab
    tab.close()


def test_page_opens_with_the_matrices_of_its_example(tab: Tab, model: MetaEncoder) -> None:
    page = tab.page
    texts = page.input_value("#sentences").split("\n")
    assert len(texts) >= 6
    assert page.locator(".matrix figcaption b").all_text_contents() == [
        "All together", *[encoder.spec.name for encoder in model.ensemble.encoders],
    ]  # fmt: skip
    assert close_to(shown(page, 0), cosines(model.encode(texts)))
    for at, encoder in enumerate(model.ensemble.encoders):
        assert close_to(shown(page, at + 1), cosines(encoder.encode(texts)))
    assert tab.asked("similarity") == 1


def test_typing_updates_the_matrices_with_one_request_per_pause(tab: Tab, model: MetaEncoder) -> None:
    page = tab.page
    write(page, FIRST)
    before, asked = shown(page, 0), tab.asked("similarity")
    stand_still(page)
    page.locator("#sentences").press("Control+End")
    for letter in "\nthe last one":
        page.locator("#sentences").press_sequentially(letter)
        page.clock.run_for(100)
    page.clock.run_for(1000)
    drawn(page, 5, "the last one")
    texts = [*FIRST.split("\n"), "the last one"]
    assert close_to(shown(page, 0), cosines(model.encode(texts)))
    assert shown(page, 0) != before
    assert page.locator("#mirror [data-n]").count() == 5
    assert tab.asked("similarity") - asked == 1  # of 13 letters


def test_spaces_and_empty_lines_are_ignored(tab: Tab) -> None:
    write(tab.page, "  a dog barks \n\n   \nthe cat sleeps\n")
    assert tab.page.locator("#mirror [data-n]").evaluate_all("rows => rows.map(row => row.dataset.n)") == ["1", "2"]
    asked = tab.asked("similarity")
    stand_still(tab.page)
    tab.page.fill("#sentences", "a dog barks\nthe cat sleeps")  # the same two
    tab.page.clock.run_for(1000)
    settled(tab.page)
    assert tab.asked("similarity") == asked


def test_disagreement_is_marked_in_every_matrix_and_listed(tab: Tab, hosted: Hosted) -> None:
    page = tab.page
    texts = page.input_value("#sentences").split("\n")
    answer = page.request.post(f"{hosted.address}similarity", data={"texts": texts}).json()
    expected = [pair for pair in answer["disagreement"] if pair["spread"] >= 0.25][:5]
    assert expected
    for matrix in page.locator(".matrix").all():
        assert matrix.locator("td.marked").count() == 2 * len(expected)  # (i, j) and (j, i)
    listed = page.locator("#disputed li")
    assert listed.count() == len(expected)
    for item, pair in zip(listed.all(), expected, strict=True):
        numbers = item.locator(".quote b").all_text_contents()
        assert numbers == [str(pair["first"] + 1), str(pair["second"] + 1)]
        assert pair["highest"] in item.inner_text()
        assert pair["lowest"] in item.inner_text()
    lowest = [matrix["name"] for matrix in answer["members"]].index(expected[0]["lowest"])
    cell = (
        page.locator(".matrix")
        .nth(lowest + 1)
        .locator(f"td[data-at$=',{expected[0]['first']},{expected[0]['second']}']")
    )
    assert "lowest" in (cell.get_attribute("class") or "")
    assert "disagree" in (cell.get_attribute("aria-label") or "")
    listed.last.locator("button").click()  # leads to the pair
    expect(page.locator(f"td[data-at='0,{expected[-1]['first']},{expected[-1]['second']}']")).to_be_focused()


def test_colours_are_by_rank_or_by_cosine(tab: Tab) -> None:
    page = tab.page
    levels = "document.querySelectorAll('.matrix')[1].querySelectorAll('tbody td')"
    read = f"[...{levels}].map(cell => [cell.dataset.level, cell.textContent])"
    by_rank = [int(level) for level, _ in page.evaluate(read) if level != "none"]
    assert (min(by_rank), max(by_rank)) == (0, 10)
    page.get_by_label("by cosine").check()
    for level, text in page.evaluate(read):
        if level != "none":
            cosine = float(text.replace("\N{MINUS SIGN}", "-"))
            assert abs(int(level) - 10 * max(cosine, 0)) <= 0.56
    write(page, "a dog barks\nthe cat sleeps")
    expect(page.get_by_label("by rank")).to_be_disabled()  # a single pair has none
    expect(page.locator("#disputed-note")).to_contain_text("third sentence")
    write(page, FIRST)
    expect(page.get_by_label("by cosine")).to_be_checked()  # what was chosen before


def test_selected_pair_is_shown_in_full(tab: Tab) -> None:
    page = tab.page
    write(page, FIRST)
    page.locator(".matrix").nth(2).locator("td[data-at$=',2,0']").click()
    expect(page.locator("#pair .quote")).to_have_text(["3a cow barks at the dog", "1a dog barks"])
    rows = page.locator("#pair tbody tr")
    expect(rows).to_have_count(4)
    assert rows.nth(2).locator("td").nth(1).inner_text().replace("0.", ".") == shown(page, 2)[2][0]
    expect(page.locator("td.active")).to_have_count(4)


def test_search_finds_hits_while_typing(tab: Tab, index: Index) -> None:
    page = tab.page
    stand_still(page)
    page.keyboard.press("/")
    for letter in "the cat sleeps":
        page.keyboard.type(letter)
        page.clock.run_for(50)
    page.clock.run_for(1000)
    expected = index.search(["the cat sleeps"], k=10)[0]
    expect(page.locator("#hits .text")).to_have_text([str(hit.text) for hit in expected])
    expect(page.locator("#hits .score").first).to_have_text("1.00")
    expect(page.locator("#hits small").first).to_contain_text("line: ")
    assert tab.asked("search") == 1  # of 14 letters
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")  # the first hit, to the sentences
    page.clock.run_for(1000)
    drawn(page, 9, "the cat sleeps")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Escape")
    expect(page.locator("#query")).to_have_value("")
    expect(page.locator("#hits li")).to_have_count(0)
    expect(page.locator("#search-status")).to_contain_text(str(len(index)))


@pytest.mark.parametrize(("path", "field"), [("similarity", "#sentences"), ("search", "#query")])
def test_late_reply_is_ignored(tab: Tab, path: str, field: str) -> None:
    page = tab.page
    held: list[Route] = []

    def hold(route: Route) -> None:
        if "one more" in json.dumps(route.request.post_data_json):
            held.append(route)
        else:
            route.continue_()

    page.route(f"**/{path}", hold)
    with page.expect_request(lambda request: "one more" in (request.post_data or "")):
        page.fill(field, "a dog barks\none more")
    page.fill(field, "the cow sleeps\na dog barks")
    seen = "#hits .text" if path == "search" else ".matrix:first-child tbody th[title='the cow sleeps']"
    page.locator(seen).first.wait_for()
    before = page.inner_html("main")
    matrix = [[1, 0], [0, 1]]
    hit = {"id": "late", "score": 1, "text": "late", "metadata": None}
    members = [{"name": "late", "matrix": matrix}]
    late = {"hits": [hit], "members": members, "missing": [], "meta": matrix, "disagreement": []}
    held[0].fulfill(json=late)
    settled(page)
    assert page.inner_html("main") == before


def test_markup_is_shown_as_text(tab: Tab) -> None:
    page = tab.page
    write(page, f"{MARKUP}\n<script>alert(2)</script>\nplain")
    page.fill("#query", MARKUP)
    page.locator("#hits li").first.wait_for()
    expect(page.locator("#hits .text").filter(has_text=MARKUP)).to_have_count(1)
    assert page.locator("main img, main script, main b:text-is('bold')").count() == 0
    assert page.locator("#pair .quote").first.inner_text().endswith(MARKUP)


def test_card_shows_the_members(tab: Tab, model: MetaEncoder) -> None:
    rows = tab.page.locator(".members tbody tr")
    told = [row.inner_text() for row in rows.all()]
    assert [one.split()[0] for one in told] == [encoder.spec.name for encoder in model.ensemble.encoders]
    assert [re.findall(r"\b[01]\.\d\d\b", one) for one in told] == [["1.00"], ["0.50"], ["0.00"]]
    assert "does not count" in told[2]
    facts = tab.page.inner_text(".plain")
    assert "auto" in facts
    assert model.spec.key in facts
    assert f"{len(TEXTS)} texts" in facts
    assert tab.page.title() == "tiny · ensembed"


def test_keyboard_reaches_every_part(tab: Tab) -> None:
    page = tab.page
    at = "document.activeElement.id || document.activeElement.dataset.at || document.activeElement.name"
    page.evaluate("document.activeElement.blur()")
    stops = []
    for _ in range(6):
        page.keyboard.press("Tab")
        stops.append(page.evaluate(at) or page.evaluate("document.activeElement.className"))
        seen = page.evaluate(  # an outline, or the frame of the sentences' sheet
            "getComputedStyle(document.activeElement).outlineStyle !== 'none' ||"
            "getComputedStyle(document.activeElement.parentElement).boxShadow !== 'none'"
        )
        assert seen, stops
    assert stops == ["skip", "theme", "help-open", "example", "sentences", "shade"]
    page.keyboard.press("Tab")
    assert page.evaluate(at) == "0,0,1"
    for key, place in [
        ("ArrowDown", "0,1,1"), ("ArrowRight", "0,1,2"), ("End", "0,1,7"), ("ArrowRight", "0,1,7"),
        ("Home", "0,1,0"), ("Control+End", "0,7,7"), ("ArrowUp", "0,6,7"), ("ArrowLeft", "0,6,6"),
        ("Control+Home", "0,0,0"), ("ArrowUp", "0,0,0"), ("ArrowRight", "0,0,1"), ("Tab", "1,0,1"),
        ("ArrowDown", "1,1,1"), ("Shift+Tab", "0,1,1"),
    ]:  # fmt: skip
        page.keyboard.press(key)
        assert page.evaluate(at) == place, key
    page.keyboard.press("e")
    assert page.evaluate(at) == "sentences"
    page.keyboard.type("d")  # a letter there, and no shortcut
    drawn(page, 8, page.input_value("#sentences").split("\n")[-1])
    expect(page.locator("#sentences")).to_have_value(re.compile("d$"))
    page.keyboard.press("Escape")
    assert page.evaluate(at) == "0,1,1"  # where it was before, whatever was asked and answered since
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    page.keyboard.press("d")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert page.evaluate("document.documentElement.dataset.theme") is None
    page.keyboard.press("m")
    assert page.evaluate(at) == "0,1,1"


def test_single_letters_can_be_switched_off(tab: Tab) -> None:
    page = tab.page
    page.click("#help-open")
    page.get_by_label("single letters").uncheck()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    open_page(tab)
    page.keyboard.press("d")
    assert page.evaluate("document.documentElement.dataset.theme") is None


def test_theme_follows_the_system_until_switched_and_is_remembered(tab: Tab) -> None:
    page = tab.page
    dark, light = page.locator("#theme[aria-pressed=true]"), page.locator("#theme[aria-pressed=false]")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    expect(light).to_be_visible()
    page.emulate_media(color_scheme="dark")
    expect(dark).to_be_visible()
    expect(page.locator("body")).not_to_have_css("background-color", paper)
    page.keyboard.press("d")
    expect(light).to_be_visible()
    expect(page.locator("body")).to_have_css("background-color", paper)
    open_page(tab)
    expect(light).to_be_visible()  # remembered
    expect(page.locator("body")).to_have_css("background-color", paper)
    page.click("#theme")
    expect(dark).to_be_visible()
    expect(page.locator("body")).not_to_have_css("background-color", paper)
    page.emulate_media(color_scheme="light")
    expect(light).to_be_visible()  # what the system says again is nothing to remember
    expect(page.locator("body")).to_have_css("background-color", paper)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_is_readable_and_differs_from_the_next_in_lightness(tab: Tab, scheme: Any) -> None:  # noqa: ANN401 - playwright's literal
    tab.page.emulate_media(color_scheme=scheme)
    tab.page.locator(f"#theme[aria-pressed={'true' if scheme == 'dark' else 'false'}]").wait_for()
    facts = tab.page.evaluate(CONTRASTS)
    assert facts["dark"] == (scheme == "dark")
    assert min(step["contrast"] for step in facts["scale"]) >= 4.5
    lightness = np.array([116 * step["paper"] ** (1 / 3) - 16 for step in facts["scale"]])
    steps = np.diff(lightness) * (1 if scheme == "dark" else -1)
    assert steps.min() > 4  # CIE lightness


@pytest.mark.parametrize("count", [2, 8, 24])
def test_page_never_scrolls_sideways_on_a_phone(browser: Browser, hosted: Hosted, count: int) -> None:
    tab = Tab(browser, hosted.address, **PHONE)
    page = open_page(tab)
    write(page, "\n".join([*(f"sentence number {i}" for i in range(count - 1)), "x" * 300]))
    page.fill("#query", "a dog barks")
    page.locator("#hits li").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    box = page.locator(".matrix tbody td").first.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) >= 24
    page.locator(".matrix").nth(1).locator("td[data-at='1,0,1']").tap()
    expect(page.locator("td[data-at='1,0,1']")).to_be_focused()
    pair = page.locator("#pair").bounding_box()
    assert pair is not None
    assert pair["y"] + pair["height"] <= 740  # in sight, whichever matrix is touched
    tab.close()


def test_many_sentences_are_drawn(tab: Tab) -> None:
    write(tab.page, "\n".join(f"sentence {i}" for i in range(64)))
    assert tab.page.locator(".matrix").first.locator("td[data-at]").count() == 64 * 64


def test_reload_keeps_the_sentences_and_the_example_can_be_restored(tab: Tab) -> None:
    page = tab.page
    example = page.input_value("#sentences")
    write(page, FIRST)
    open_page(tab)
    expect(page.locator("#sentences")).to_have_value(FIRST)
    page.get_by_role("button", name="Example").click()
    expect(page.locator("#sentences")).to_have_value(example)


def test_single_encoder_has_one_matrix_and_a_missing_index_is_explained(browser: Browser) -> None:
    with Hosted(create_app(open_encoder("demo?dim=8"), name="alone")) as hosted:
        tab = Tab(browser, hosted.address)
        page = open_page(tab)
        expect(page.locator(".matrix")).to_have_count(1)
        expect(page.locator("#disputed-part")).to_be_hidden()
        expect(page.locator("#query")).to_be_hidden()
        expect(page.locator("#search-none")).to_contain_text("--index")
        expect(page.locator("#model-line")).to_contain_text("one encoder")
        page.keyboard.press("/")
        tab.close()


def test_nothing_is_marked_if_members_agree(browser: Browser) -> None:
    one = open_encoder("demo?dim=8")
    twins = Ensemble([one, ObjectEncoder(one, name="twin", revision="1")]).fit(CORPUS, Concat())
    with Hosted(create_app(twins)) as hosted:
        tab = Tab(browser, hosted.address)
        page = open_page(tab)
        expect(page.locator("#disputed-note")).to_contain_text("much the same order")
        expect(page.locator("td.marked, #disputed li")).to_have_count(0)
        expect(page.locator("#mark-legend")).to_be_hidden()
        tab.close()


def test_every_control_has_an_accessible_name(tab: Tab) -> None:
    page = tab.page
    for role, name in [
        ("textbox", "One sentence a line"), ("searchbox", "Search the index"), ("grid", "All together"),
        ("region", "Members"), ("button", "Keys"), ("button", "Dark"), ("group", "Colour"),
        ("region", "Where the members disagree"),
    ]:  # fmt: skip
        assert page.get_by_role(role, name=name, exact=True).count() == 1, name  # type: ignore[arg-type]  # playwright's literal
    assert page.locator("[id]").evaluate_all("all => new Set(all.map(one => one.id)).size === all.length")
