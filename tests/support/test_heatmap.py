"""Heat maps can be read: on a terminal, without colours, without Unicode, and as SVG on any page."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ensembed.support.heatmap import Panel, _color, _ink, can_show, figure, print_heatmap, short_names, svg_heatmap

NAMES = [
    "minilm",
    "openai:https://user@api.example.com:8080/v1/embeddings?x=1#text-embedding-3-large",
    "<b> & \"c\" 'd'",
]
MATRIX = np.array([[1.0, 0.5, -0.2], [0.5, 1.0, 0.03], [-0.2, 0.03, 0.0]])
SVG = "{http://www.w3.org/2000/svg}"


def _printed(*, terminal: bool, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding, newline="\n")
    console = Console(file=stream, force_terminal=terminal, width=40, color_system="truecolor", legacy_windows=False)
    print_heatmap(NAMES, Panel("How alike", MATRIX), console)
    stream.seek(0)
    return stream.read()


def test_without_a_terminal_cells_have_figures_and_shades() -> None:
    lines = _printed(terminal=False).splitlines()
    assert lines[0] == "How alike"
    assert lines[1].split() == ["1", "2", "3"]
    assert lines[2].split() == ["1", "minilm", "1.00", "█", "0.50", "▒", "-0.20"]
    assert lines[3].startswith("2 openai:https://u…")
    assert lines[3].split()[-3:] == ["1.00", "█", "0.03"]
    assert len(lines) == 5  # nothing wrapped, however narrow the terminal
    assert max(len(line) for line in lines) <= 80
    assert abs(lines[2].index(".") - lines[1].index("1")) <= 2  # columns stand below their numbers


def test_an_encoding_without_blocks_gets_other_shades() -> None:
    text = _printed(terminal=False, encoding="ascii")
    assert "1.00 #" in text
    assert "0.50 :" in text
    assert "..." in text
    assert text.isascii()


def test_a_terminal_gets_colours() -> None:
    text = _printed(terminal=True)
    assert "\x1b[" in text
    assert "█" not in text
    assert text.count(f"{'1.00':^8}\x1b[0m") == 2  # whole cells, to the right edge too
    assert "48;2;255;248;214" in text  # the colour of 0, and of what is below it
    assert re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()[2].split() == ["1", "minilm", "1.00", "0.50", "-0.20"]


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = _printed(terminal=True)
    assert "\x1b[" not in text
    assert "1.00 █" in text


def test_the_svg_is_valid_and_self_contained() -> None:
    text = svg_heatmap(NAMES, [Panel("One & two", MATRIX), Panel("Other", MATRIX.T)], ["seed 0 <>"])
    root = ET.fromstring(text)  # noqa: S314 - we wrote it
    assert root.tag == f"{SVG}svg"
    assert not [item for item in root.iter() if item.tag.split("}")[1] in ("script", "image", "use", "style", "a")]
    assert "http" not in re.sub(r">[^<]*<", "><", text).replace("http://www.w3.org/2000/svg", "")  # but as text
    shown = ["".join(item.itertext()) for item in root.iter(f"{SVG}text")]
    assert any("One & two" in item for item in shown)
    assert any(item.endswith("3 <b> & \"c\" 'd'") for item in shown)
    assert sum(item.endswith("-0.20") for item in shown) == 4
    # The whole name is there to be pointed at.
    assert NAMES[1] in [item.text for item in root.iter(f"{SVG}title")]
    first = next(root.iter(f"{SVG}rect"))
    assert (first.get("width"), first.get("fill")) == ("100%", "#ffffff")


@pytest.mark.parametrize("count", [2, 5, 20])
def test_everything_in_the_svg_is_inside_it_and_nothing_overlaps(count: int) -> None:
    names = ["n" * 90] * count
    panels = [Panel("Correlation of cosines", np.eye(count)), Panel("CKA", np.eye(count)), Panel("x", np.eye(count))]
    root = ET.fromstring(svg_heatmap(names, panels, ["caption " * 9, "and more"]))  # noqa: S314 - we wrote it
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    cells = [
        [float(rect.get(key, "nan")) for key in ("x", "y", "width", "height")]
        for rect in list(root.iter(f"{SVG}rect"))[1:]
    ]
    assert len(cells) == 3 * count**2
    assert len({(x, y) for x, y, _, _ in cells}) == len(cells)
    assert max(x + w for x, _, w, _ in cells) < width
    assert max(y + h for _, y, _, h in cells) < height
    labels = [text for text in root.iter(f"{SVG}text") if "".join(text.itertext()).endswith("n")]
    assert len(labels) == count
    longest = max(len("".join(text.itertext())) - 90 for text in labels)  # its title has all 90
    assert longest <= 40
    assert min(x for x, *_ in cells) > 16 + 6 * longest


@given(st.text(max_size=50))
def test_any_name_can_be_in_the_svg(name: str) -> None:
    ET.fromstring(svg_heatmap([name, "\x00\x1b\ud800"], [Panel(name, np.eye(2))], [name, name]))  # noqa: S314 - we wrote it


@given(st.lists(st.text(max_size=40), min_size=1, max_size=6, unique=True), st.integers(12, 30))
def test_short_names_fit(names: list[str], limit: int) -> None:
    short = short_names(names, limit)
    assert max(len(name) for name in short) <= limit
    assert all(a == b for a, b in zip(names, short, strict=True) if len(a) <= limit - 2 and short.count(b) == 1)


def test_short_names_that_collide_are_numbered() -> None:
    short = short_names(["st:" + "a" * 20 + middle + "b" * 20 for middle in "xyz"], 20)
    assert len(set(short)) == 3
    assert [name[0] for name in short] == ["1", "2", "3"]


@pytest.mark.parametrize("value", np.linspace(-0.2, 1.2, 29))
def test_figures_have_contrast_and_colours_darken(value: float) -> None:
    """WCAG asks for a contrast of 4.5."""

    def luminance(color: tuple[int, int, int]) -> float:
        linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    back = luminance(_color(value))
    light, dark = sorted([back, luminance(_ink(_color(value)))], reverse=True)
    assert (light + 0.05) / (dark + 0.05) > 4.5
    assert back <= luminance(_color(value - 0.05))


def test_figures_have_no_negative_zero() -> None:
    assert [figure(value) for value in (-0.0, -0.004, -0.006, 1, 0.999)] == ["0.00", "0.00", "-0.01", "1.00", "1.00"]


def test_what_an_encoding_can_show() -> None:
    assert can_show("█", "utf-8")
    assert not can_show("█", "cp1252")
    assert not can_show("█", None)
    assert not can_show("a", "no-such-encoding")
