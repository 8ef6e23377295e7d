"""The report's figures: whole, apart from each other, true to the findings, and left out where there is nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest
from sample_findings import MEMBERS, METHODS, sample_findings

from ensembed.errors import MissingError
from ensembed.paper import published as paper
from ensembed.paper.findings import DEV, MEAN, Cost, Findings, Likeness, System
from ensembed.paper.report.cost_figure import cost, pareto
from ensembed.paper.report.dev_figures import likeness, sizes, spectrum
from ensembed.paper.report.drawing import Figure, figure, look, short, spread
from ensembed.paper.report.page import all_figures
from ensembed.paper.report.score_figures import bars, significance
from ensembed.sts.protocol import Score
from ensembed.support.heatmap import figure as heat_figure

SVG = "{http://www.w3.org/2000/svg}"
NAMES = [
    "bars",
    "significance",
    "scatter",
    "tau",
    "autoencoders",
    "spectrum",
    "ablation",
    "likeness",
    "dimensions",
    "sizes",
    "domains",
    "cost",
]
EMPTY: dict[str, tuple[object, ...]] = dict.fromkeys(
    ("taus", "autoencoders", "comparisons", "ablations", "dimensions", "sizes", "domains", "costs", "spectrum"), ()
)


@pytest.fixture(scope="module")
def findings() -> Findings:
    return sample_findings()


@pytest.fixture(scope="module")
def figures(findings: Findings) -> dict[str, Figure]:
    return {one.name: one for one in all_figures(findings)}


def parsed(one: Figure | None) -> ET.Element:
    assert one is not None
    return ET.fromstring(one.svg)  # noqa: S314 - our own


def texts(one: Figure | None) -> list[str]:
    return [element.text or "" for element in parsed(one).iter(f"{SVG}text")]


def references(root: ET.Element) -> Iterator[str]:
    for element in root.iter():
        for key, value in element.attrib.items():
            yield from re.findall(r"url\(#([^)]+)\)", value)
            if key == "href":
                yield value.removeprefix("#")


def test_every_figure_is_drawn_with_title_and_description(figures: dict[str, Figure]) -> None:
    assert list(figures) == NAMES
    for one in figures.values():
        root = parsed(one)
        assert one.svg.startswith("<svg")
        assert root.get("role") == "img"
        assert root.get("width") == "100%"
        assert re.fullmatch(r"0 0 \d+ \d+", root.get("viewBox", ""))
        title, description = list(root)[:2]
        assert (title.tag, title.text, description.tag, description.text) == (
            f"{SVG}title",
            one.title,
            f"{SVG}desc",
            one.caption,
        )
        assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
        assert one.caption.endswith(".")
        assert "metadata" not in one.svg


def test_ids_are_unique_over_the_page_and_every_reference_is_within_its_figure(figures: dict[str, Figure]) -> None:
    ids = {name: [e.attrib["id"] for e in parsed(one).iter() if "id" in e.attrib] for name, one in figures.items()}
    everywhere = [key for own in ids.values() for key in own]
    assert len(everywhere) == len(set(everywhere))
    for name, one in figures.items():
        assert set(references(parsed(one))) <= set(ids[name])
        assert all(key.startswith(f"svg-{name}-") for key in ids[name])
    assert any(references(parsed(figures["bars"])))  # the hatches


def test_figures_load_nothing_and_hold_vectors_only(figures: dict[str, Figure]) -> None:
    for one in figures.values():
        assert one.svg.count("http") == 1  # the name space
        assert "<image" not in one.svg
        assert "data:" not in one.svg.replace(one.caption, "")
        assert "NaN" not in one.svg
        assert "nan" not in re.sub("<text.*?</text>|<desc.*?</desc>", "", one.svg)


def test_equal_findings_give_equal_bytes_whatever_the_users_settings(
    findings: Findings, figures: dict[str, Figure]
) -> None:
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path", "text.usetex": True, "svg.hashsalt": None}):
        before = dict(mpl.rcParams)
        assert {one.name: one for one in all_figures(findings)} == figures
        assert dict(mpl.rcParams) == before


def test_pyplot_is_not_imported() -> None:
    code = (
        "import sys; from sample_findings import sample_findings; "
        "from ensembed.paper.report.page import all_figures; "
        "assert 'matplotlib' not in sys.modules; "
        "all_figures(sample_findings()); print('matplotlib.pyplot' in sys.modules)"
    )
    path = str(Path(__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); {code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout, run.stderr) == ("False\n", "")


def test_missing_matplotlib_error_says_how_to_install_it(findings: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingError, match=r"needs matplotlib; .*pip install 'ensembed\[report\]'"):
        all_figures(findings)


def test_names_in_figures_stay_text(figures: dict[str, Figure]) -> None:
    for name in ("bars", "ablation", "likeness", "cost"):
        shown = " ".join(texts(figures[name]))
        assert all(member in shown for member in MEMBERS), name
    for name in ("bars", "significance", "scatter", "domains"):
        assert set(METHODS) <= set(texts(figures[name])), name


def test_names_of_any_kind_can_be_drawn(findings: Findings) -> None:
    strange = "句子\x00\n$x^2$ \u202e" + "long" * 30
    likely = Likeness((strange, "minilm"), {"CKA": ((1.0, 0.5), (0.5, 1.0))})
    shown = texts(likeness(replace(findings, likeness=likely)))
    assert any(text.startswith("句子��$x^2$") for text in shown)


def test_negative_likeness_widens_the_scale(findings: Findings, figures: dict[str, Figure]) -> None:
    assert "from 0 (dark) to 1 (light)" in figures["likeness"].caption

    def fills(value: float) -> list[str]:
        likely = Likeness(("a", "b"), {"cosines": ((1.0, value), (value, 1.0)), "CKA": ((1.0, 0.0), (0.0, 1.0))})
        drawn = likeness(replace(findings, likeness=likely))
        assert drawn is not None
        assert f"from {heat_figure(value) if value else 0} (dark)" in drawn.caption
        return re.findall(r"fill: (#\w{6})", " ".join(e.get("style", "") for e in parsed(drawn).iter(f"{SVG}path")))

    assert len(set(fills(-0.3))) > len(set(fills(0.0)))  # -0.3 is another colour than 0


def test_figures_without_data_are_left_out(findings: Findings) -> None:
    bare = replace(findings, **EMPTY, scatters=(), likeness=Likeness((), {}))  # type: ignore[arg-type] # mypy cannot see into EMPTY
    assert [one.name for one in all_figures(bare)] == ["bars"]
    assert all_figures(replace(bare, systems=findings.systems[:3])) == ()
    one_corpus = tuple(one for one in findings.domains if one.corpus != "stsb-train")
    assert "domains" not in [one.name for one in all_figures(replace(bare, domains=one_corpus))]


def test_bars_show_every_score_and_the_highest_in_bold(findings: Findings, figures: dict[str, Figure]) -> None:
    systems = [one for one in findings.systems if one.kind != "up"]
    shown = texts(figures["bars"])
    for dataset in (*findings.tests, MEAN):
        assert all(figure(one.score(dataset).pearson) in shown for one in systems)
    bold = [e.text for e in parsed(figures["bars"]).iter(f"{SVG}text") if "font-weight: 700" in e.get("style", "")]
    best = [figure(max(one.score(name).pearson for one in systems)) for name in (*findings.tests, MEAN)]
    assert sorted(text for text in bold if text and text != MEAN) == sorted(best)
    assert f"the best member there, {short(findings.best_member.label)} at" in figures["bars"].caption


def test_bars_compare_with_the_best_member_of_each_data_set(
    findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[float] = []
    monkeypatch.setattr("matplotlib.axes.Axes.axvline", lambda _axes, x, **_look: lines.append(x))

    def level(system: System, scores: list[float]) -> System:
        results = tuple(
            replace(result, score=Score(score, score)) for result, score in zip(system.results, scores, strict=True)
        )
        return replace(system, results=results)

    # Of seven data sets (the last is dev), each member is the best of some; the meta-embedding beats it on two.
    first = level(findings.systems[0], [0.9, 0.9, 0.3, 0.3, 0.3, 0.3, 0.3])
    second = level(findings.systems[1], [0.3, 0.3, 0.9, 0.9, 0.6, 0.6, 0.6])
    meta = level(findings.systems[-1], [0.8] * 7)
    drawn = bars(replace(findings, systems=(first, second, meta), intervals=()))
    assert drawn is not None
    assert (
        f"best member there, {short(second.label)} at 60.0. It is ahead of the best member of 2 of 6" in drawn.caption
    )
    assert lines == [90, 90, 90, 90, 60, 60, pytest.approx(60)]


def test_single_test_set_gives_one_panel(findings: Findings) -> None:
    names = {"stsb-test", DEV}
    systems = tuple(
        replace(one, results=tuple(each for each in one.results if each.dataset in names)) for one in findings.systems
    )
    datasets = tuple(one for one in findings.datasets if one.name in names)
    compared = tuple(one for one in findings.comparisons if one.dataset in ("stsb-test", MEAN))
    small = replace(findings, systems=systems, datasets=datasets, comparisons=compared)
    for drawn in (bars(small), significance(small)):
        assert drawn is not None
        assert MEAN not in texts(drawn)
        assert " mean" not in drawn.caption


def test_bars_begin_at_zero_when_a_score_is_low(findings: Findings) -> None:
    low = findings.systems[0]
    results = tuple(replace(result, score=Score(-0.04, -0.04)) for result in low.results)
    drawn = bars(replace(findings, systems=(replace(low, results=results), *findings.systems[1:])))
    assert drawn is not None
    assert "not at 0" not in drawn.caption
    assert "−4.0" in texts(drawn)


def test_scatters_have_a_dot_for_every_pair_and_stay_small(findings: Findings, figures: dict[str, Figure]) -> None:
    dots = [group for group in parsed(figures["scatter"]).iter(f"{SVG}g") if len(group.findall(f"{SVG}use")) > 1]
    assert [len(group) for group in dots] == [len(one.gold) for one in findings.scatters]
    shown = " ".join(texts(figures["scatter"]))
    systems = {one.label: one for one in findings.systems}
    for one in findings.scatters:  # not of the rounded cosines
        score = systems[one.label].score(one.dataset)
        assert f"r {figure(score.pearson)}\N{EN SPACE}ρ {figure(score.spearman)}" in shown
    assert len(figures["scatter"].svg) / sum(len(one.gold) for one in findings.scatters) < 200  # bytes of a dot


def test_significant_differences_have_filled_marks(findings: Findings, figures: dict[str, Figure]) -> None:
    pearson = [one for one in findings.comparisons if one.metric == "pearson"]
    hollow = "fill: #ffffff; stroke: #0072b2"
    sets = len(findings.tests) + 1
    assert figures["significance"].svg.count(hollow) >= sets  # p_holm = 0.05 is not below 0.05
    certain = tuple(replace(one, p_holm=0.01) for one in findings.comparisons)
    drawn = significance(replace(findings, comparisons=certain))
    assert drawn is not None
    assert hollow not in drawn.svg
    gains = sum(one.difference > 0 for one in pearson if one.dataset != MEAN)
    assert f"{gains} of {len(METHODS) * len(findings.tests)} differences are significant gains" in drawn.caption
    assert "no difference is significant" in figures["significance"].caption


def test_the_caption_of_differences_names_every_best_member(findings: Findings, figures: dict[str, Figure]) -> None:
    member = short(findings.comparisons[0].member)
    assert f"by Pearson's r ({member}) with" in figures["significance"].caption
    several = tuple(
        replace(one, member="single:other") if one.dataset in ("sts12", MEAN) else one for one in findings.comparisons
    )
    drawn = significance(replace(findings, comparisons=several))
    assert drawn is not None
    on = "sts13, sts14, sts15, sts16 and stsb-test"
    assert f"(other on sts12 and mean, {member} on {on})" in drawn.caption


def test_the_search_names_the_best_and_has_the_papers_figures(findings: Findings, figures: dict[str, Figure]) -> None:
    best = max(findings.taus, key=lambda point: point.score.pearson)
    assert f"τ = {best.tau:g} at {figure(best.score.pearson)}" in figures["tau"].caption
    shown = texts(figures["tau"])
    assert all(f"{one.pearson}" in shown for one in paper.table1_gcca().values())
    assert all(figure(point.score.pearson) in shown for point in findings.taus)
    cells = " ".join(texts(figures["autoencoders"]))
    printed = [one for row in paper.table1_autoencoder().values() for one in row.values()]
    assert all(f"{one.pearson}" in cells and f"{one.spearman}" in cells for one in printed)
    assert all(figure(point.score.pearson) in cells for point in findings.autoencoders)


def test_the_spectrum_counts_what_is_positive(findings: Findings, figures: dict[str, Figure]) -> None:
    positive = sum(value > 0 for value in findings.spectrum)
    assert f"{positive} of {len(findings.spectrum)} dimensions are positive" in texts(figures["spectrum"])
    drawn = spectrum(replace(findings, spectrum=(1.5, 0.5)))
    assert drawn is not None
    assert "2 of 2 dimensions are positive, so every one" in drawn.caption


def test_curves_have_their_points_and_their_bands(findings: Findings, figures: dict[str, Figure]) -> None:
    ticks = texts(figures["sizes"])
    assert {"1,000", "136,628"} <= set(ticks)
    assert "one standard deviation" in figures["sizes"].caption
    plain = sizes(replace(findings, sizes=tuple(replace(point, spread=None) for point in findings.sizes)))
    assert plain is not None
    assert "standard deviation" not in plain.caption
    assert figures["dimensions"].svg.count("<use ") == len(findings.dimensions)


def test_ablation_tells_the_largest_loss(findings: Findings, figures: dict[str, Figure]) -> None:
    full = {one.method: one.score.pearson for one in findings.ablations if not one.without}
    worst = min(
        (one for one in findings.ablations if one.without), key=lambda one: one.score.pearson - full[one.method]
    )
    assert f"that of {worst.method} without {short(worst.without)}" in figures["ablation"].caption
    assert "ae without SBERT (−56.4)" in figures["ablation"].caption


def test_pareto_front_holds_what_nothing_beats(findings: Findings) -> None:
    front = pareto(findings.costs)

    def beaten(one: Cost) -> bool:
        return any(
            other.milliseconds <= one.milliseconds
            and other.dev.pearson >= one.dev.pearson
            and (other.milliseconds, other.dev.pearson) != (one.milliseconds, one.dev.pearson)
            for other in findings.costs
        )

    assert {one.label for one in front} == {one.label for one in findings.costs if not beaten(one)}


def test_labels_of_the_cost_figure_do_not_overlap(findings: Findings) -> None:
    score = findings.systems[0].score(DEV)
    crowd = tuple(
        Cost(f"single:member number {i}", 1.0 + 0.01 * i, 0.0, 8, Score(score.pearson + 0.001 * i, 0.0), None)
        for i in range(12)
    )
    root = parsed(cost(replace(findings, costs=crowd)))
    found = [element for element in root.iter(f"{SVG}text") if (element.text or "").startswith("member number")]
    assert len(found) == len(crowd)
    places = [(float(element.attrib["x"]), float(element.attrib["y"])) for element in found]
    for (x1, y1), (x2, y2) in combinations(places, 2):
        assert abs(y1 - y2) > 11 or abs(x1 - x2) > 100


def test_systems_differ_in_more_than_colour(findings: Findings) -> None:
    looks = [look(f"single:{name}", findings) for name in MEMBERS] + [
        look(f"meta:{name}", findings) for name in METHODS
    ]
    assert len({one.marker for one in looks}) == len(looks)
    assert len({one.dashes for one in looks}) == len(looks)
    assert len({one.hatch for one in looks if one.hatch}) == len(MEMBERS)
    assert look("meta:svd without minilm", findings) == look("meta:svd", findings)


@pytest.mark.parametrize("values", [[0, 0, 0], [3, 1, 2], [5, 4.9, 0, 0.2, 10], [1.0]])
def test_spread_keeps_order_and_distance(values: list[float]) -> None:
    places = spread(values, 1)
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert all(places[b] - places[a] >= 1 - 1e-9 for a, b in pairwise(order))
    assert sum(places) == pytest.approx(sum(values))
