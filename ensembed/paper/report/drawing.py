"""How the report's figures look, and how matplotlib draws them as SVG; nothing is told by colour alone."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.etree import ElementTree as ET

from ensembed.paper.findings import BESIDE, MEAN, Findings
from ensembed.paper.tables import marked_table
from ensembed.support.extras import import_extra
from ensembed.support.heatmap import shorten_middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDTH = 960  # pixels across the page
INK, MUTED, FAINT, GRID = "#222222", "#555555", "#999999", "#e4e4e4"
# Letters on coloured cells, which stay as they are where report.css turns the page dark: it knows the greys by number.
ON_LIGHT, ON_DARK = "#212121", "#fefefe"
SIZE, SMALL = 13, 11.5
Style: TypeAlias = dict[str, Any]  # keyword arguments of matplotlib
DASHED: Style = {"color": INK, "linewidth": 1, "dashes": (4, 3)}  # the best member, or what others are compared with
GAP = "\N{EN SPACE}"  # browsers make one of several plain spaces
DEV_AXIS = "Pearson’s r × 100 on STS-B dev"
TEST_AXIS = "Pearson’s r × 100"

_AROUND = 80  # pixels of a figure's height that are not its axes, about
_FONT = "DejaVu Sans"  # text is measured with it: it comes with matplotlib, and it is the widest of the usual fonts
_PAGE_FONTS = "system-ui, -apple-system, 'Segoe UI', Arial, 'DejaVu Sans', sans-serif"

# Okabe and Ito's colours, which people who see no red or no green can tell apart; none of them stands alone.
_METAS = {
    "conc": ("#e69f00", "s", (4, 1.5)),
    "avg": ("#56b4e9", "D", (1.2, 1.2)),
    "svd": ("#0072b2", "o", (1, 0)),
    "gcca": ("#009e73", "^", (6, 1.5)),
    "ae": ("#d55e00", "v", (6, 1.5, 1.2, 1.5)),
    "auto": ("#cc79a7", "P", (3, 1, 1, 1)),
}
_OTHER_META = ("#222222", "X", (2, 1, 1, 1))
_GREYS = ("#3d3d3d", "#8a8a8a", "#5f5f5f", "#a8a8a8")
_MEMBER_MARKS = "<>pd*hX8"
_HATCHES = ("///", "..", "\\\\\\", "xx", "---", "|||", "++", "o")
_LONGEST, _LONGEST_LEFT_OUT = 26, 18  # letters of a name, and of one behind "without"

_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_REFERENCE = re.compile(r"url\(#([\w-]+)\)")
_FRACTION = re.compile(r"\d+\.\d{3,}")


@dataclass(frozen=True)
class Figure:
    """A figure of the report."""

    name: str  # its id: `bars`, `scatter`, ...
    title: str
    caption: str  # how to read it and what it shows, in plain text
    svg: str  # an `<svg>` element that can be put into HTML unchanged


@dataclass(frozen=True)
class Look:
    """How a system looks, in every figure."""

    color: str
    marker: str  # matplotlib's name of the mark
    dashes: tuple[float, ...]  # lengths of dash and gap, in line widths
    hatch: str  # of bars; empty for meta-embeddings, whose bars are solid

    @property
    def face(self) -> str:
        """The inside of a mark: members are hollow."""
        return "white" if self.hatch else self.color


_BESIDE = Look("#a06cd5", "*", (1, 0), "")


def look(label: str, findings: Findings) -> Look:
    """Return the look of a system; `meta:svd without …` looks like `meta:svd`."""
    kind, _, name = label.partition(":")
    if label.startswith(BESIDE):
        return _BESIDE
    if kind != "single":
        return Look(*_METAS.get(name.partition(" ")[0], _OTHER_META), "")
    names = [member.name for member in findings.members]
    k = names.index(name) if name in names else len(names)
    marks = _MEMBER_MARKS[k % len(_MEMBER_MARKS)]
    return Look(_GREYS[k % len(_GREYS)], marks, (2 + k, 1), _HATCHES[k % len(_HATCHES)])


def short(label: str) -> str:
    """Return a label without `single:`, `meta:` or `beside:`, which the look tells, and not too long."""
    name = label.partition(":")[2] if label.startswith(("single:", "meta:", BESIDE)) else label
    # A figure's text has one line and is written as XML, which has no place for control characters.
    name = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    method, without, member = name.partition(" without ")
    return method + without + shorten_middle(member, _LONGEST_LEFT_OUT) if without else shorten_middle(name, _LONGEST)


def figure(value: float) -> str:
    """Return a correlation x 100 with one decimal, with a true minus."""
    return marked_table.figure(value).replace("-", "−")


def signed(value: float) -> str:
    """Return a difference of correlations x 100 with its sign."""
    return marked_table.figure(value, signed=True).replace("-", "−")


def versus(value: float) -> str:
    """Return a difference in words."""
    text = figure(abs(value))
    return "level with" if text == "0.0" else f"{text} {'above' if value > 0 else 'below'}"


def listing(names: Sequence[str]) -> str:
    """Return names for a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Return places for the values' labels: in the same order, `gap` apart, as near to the values as can be."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    blocks: list[list[float]] = []  # of labels that touch: their wishes, each as for the lowest of the block
    for i in order:
        blocks.append([float(values[i])])
        while len(blocks) > 1 and _mean(blocks[-2]) + gap * len(blocks[-2]) > _mean(blocks[-1]):
            above = blocks.pop()
            blocks[-1] += [wish - gap * len(blocks[-1]) for wish in above]
    sorted_places = [_mean(block) + gap * step for block in blocks for step in range(len(block))]
    places = dict(zip(order, sorted_places, strict=True))
    return [places[i] for i in range(len(values))]


def panels(page: Canvas, count: int, columns: int = 4) -> list[Axes]:
    """Return small axes of one scale side by side, row by row; cells that are left over stay blank."""
    columns = min(columns, count)
    axes = list(page.subplots(-(-count // columns), columns, squeeze=False, sharex=True, sharey=True).flat)
    for blank in axes[count:]:
        blank.set_axis_off()
    for used in axes[:count]:
        used.tick_params(labelbottom=True, length=0)
    return axes[:count]


def row_panels(page: Canvas, titles: Sequence[str], rows: Sequence[str], label: str) -> Iterator[tuple[Axes, str]]:
    """Yield small axes for each title, all with the same named rows from top to bottom, over one label."""
    for axes, title in zip(panels(page, len(titles)), titles, strict=True):
        axes.set_title(title, weight="bold" if title == MEAN else "normal")
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        yield axes, title
    page.supxlabel(label, fontsize=SMALL)


def edge_text(axes: Axes, place: float, text: str, *, bold: bool = False) -> None:
    """Write a text at the right edge of a row, as in a table."""
    style: Style = {"fontsize": SMALL, "weight": "bold" if bold else "normal"}
    axes.text(1, place, text, transform=axes.get_yaxis_transform(), ha="right", va="center", **style)


def edge_labels(axes: Axes, labels: Sequence[tuple[str, float, float, Style]], size: float = SIZE) -> None:
    """Write names at the right edge, a line apart, each with a thin line to its point; NaN for x is the edge."""
    (bottom, top), right = axes.get_ylim(), axes.get_xlim()[1]
    axes.set_ylim(bottom, top)
    axes.set_xlim(axes.get_xlim())
    height = axes.figure.bbox.height - _AROUND
    places = spread([y for _, _, y, _ in labels], 18 / SIZE * size * (top - bottom) / height)
    arrow = {"arrowstyle": "-", "color": FAINT, "linewidth": 0.8, "shrinkB": 5, "relpos": (0, 0.5)}
    for (words, x, y, letters), place in zip(labels, places, strict=True):
        beside: Style = {"xytext": (1.03, place), "textcoords": ("axes fraction", "data"), "va": "center"}
        dot = (right if math.isnan(x) else x, y)
        axes.annotate(words, dot, **beside, **letters, fontsize=size, annotation_clip=False, arrowprops=arrow)


def plain_axes(axes: Axes, title: str, label: str, ticks: Sequence[float] | None = None) -> None:
    """Set a quiet title above axes, a label below them, and ticks without marks."""
    axes.set_title(title, fontsize=SMALL, color=MUTED)
    axes.set_xlabel(label)
    axes.tick_params(length=0)
    if ticks is not None:
        axes.set_xticks(ticks, [f"{tick:,}" if isinstance(tick, int) else f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)


def draw(name: str, title: str, caption: str, size: tuple[int, int], paint: Callable[[Canvas], None]) -> Figure:
    """Return a figure of this width and height in pixels as `paint` draws it on matplotlib's figure."""
    what = "drawing the report's figures"
    matplotlib, style = (import_extra(f"matplotlib.{name}", "report", what) for name in ("figure", "style"))
    # Our settings on top of matplotlib's own, whatever the user's are, and the user's back afterwards.
    sheet = files("ensembed.paper.report").joinpath("report.mplstyle")
    with style.context(["default", str(sheet)]), warnings.catch_warnings():
        # A name may have letters that the font lacks: the page's reader picks another font, only the measure is off.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
        warnings.filterwarnings("ignore", r"Matplotlib currently does not support .* natively", UserWarning)
        page = matplotlib.Figure(figsize=(size[0] / 72, size[1] / 72), dpi=72, layout="constrained")
        paint(page)
        buffer = io.StringIO()
        page.savefig(buffer, format="svg", metadata={"Date": None})
    return Figure(name, title, caption, _page_svg(buffer.getvalue(), name, title, caption))


def _page_svg(text: str, name: str, title: str, description: str) -> str:
    """Return matplotlib's SVG as a smaller element with its own ids, the page's width and words for screen readers."""
    root = ET.fromstring(text)  # noqa: S314 - matplotlib has just written it
    for metadata in root.findall(f"{_SVG}metadata"):
        root.remove(metadata)
    values = [(key, value) for element in root.iter() for key, value in element.attrib.items()]
    referred = [id_ for key, value in values for id_ in ([value[1:]] if key == _LINK else _REFERENCE.findall(value))]
    ids = {id_: f"svg-{name}-{number}" for number, id_ in enumerate(dict.fromkeys(referred), 1)}
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        _tidy(element, ids)
    box, label = root.attrib["viewBox"], f"svg-{name}-title svg-{name}-description"
    style = f"display: block; max-width: {float(box.split()[2]):g}px; height: auto"
    root.attrib = {"xmlns": _SVG.strip("{}"), "viewBox": box, "width": "100%", "style": style, "role": "img"}
    root.attrib["aria-labelledby"] = label
    for place, (tag, words) in enumerate((("title", title), ("desc", description))):
        element = ET.Element(tag, {"id": label.split()[place]})
        element.text, element.tail = words, "\n"
        root.insert(place, element)
    return ET.tostring(root, encoding="unicode") + "\n"


def _tidy(element: ET.Element, ids: dict[str, str]) -> None:
    kept = {key: value for key, value in element.attrib.items() if key != "id" or value in ids}
    attributes = {key: ids[value] if key == "id" else value for key, value in kept.items()}
    if _LINK in attributes:
        attributes["href"] = "#" + ids[attributes.pop(_LINK)[1:]]
    for key, value in attributes.items():
        value = _REFERENCE.sub(lambda match: f"url(#{ids[match[1]]})", value)
        if key in ("x", "y", "d", "width", "height", "transform", "style"):
            value = _rounded(value)
        attributes[key] = value.replace(f"'{_FONT}'", _PAGE_FONTS) if key == "style" else value
    element.attrib = attributes
    # Thousands of dots of one look: their style is written once, for all of them.
    styles = {child.get("style", "") for child in element} if element.tag == "g" and len(element) > 1 else set()
    if len(styles) == 1 and all(child.tag == f"{_SVG}use" for child in element):
        element.attrib["style"] = _rounded(styles.pop())
        for child in element:
            child.attrib.pop("style", None)


def _rounded(text: str) -> str:
    return _FRACTION.sub(lambda match: f"{float(match[0]):.2f}", text)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
