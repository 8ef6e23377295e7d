"""From what a figure paints to the SVG that stands in the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from ensembed.paper.report.figures.style import FONT, SETTINGS
from ensembed.support.extras import import_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_PAGE_FONTS = "system-ui, -apple-system, 'Segoe UI', Arial, 'DejaVu Sans', sans-serif"
_REFERENCE = re.compile(r"url\(#([\w-]+)\)")
_FRACTION = re.compile(r"\d+\.\d{3,}")


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    Attributes:
        name: its id: `bars`, `scatter`, ...
        title: a few words.
        caption: how to read it and what it shows, in plain text.
        svg: the drawing, an `<svg>` element that can be put into HTML as it is.
    """

    name: str
    title: str
    caption: str
    svg: str


def draw(name: str, title: str, caption: str, size: tuple[int, int], paint: Callable[[Canvas], None]) -> Figure:
    """A figure as `paint` puts it on an empty canvas.

    Args:
        name: the figure's id.
        title: a few words.
        caption: how to read it and what it shows.
        size: width and height in pixels, at the page's full width.
        paint: gets matplotlib's figure.

    Raises:
        MissingError: matplotlib is not installed.
    """
    what = "drawing the report's figures"
    matplotlib = import_extra("matplotlib.figure", "report", what)
    style = import_extra("matplotlib.style", "report", what)
    # Our settings on top of matplotlib's own, whatever the user's are, and the user's back afterwards.
    with style.context(["default", SETTINGS]), warnings.catch_warnings():
        # A name may have letters that the font lacks: the page's reader picks another font, only the measure is off.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
        warnings.filterwarnings("ignore", r"Matplotlib currently does not support .* natively", UserWarning)
        page = matplotlib.Figure(figsize=(size[0] / 72, size[1] / 72), dpi=72, layout="constrained")
        paint(page)
        buffer = io.StringIO()
        page.savefig(buffer, format="svg", metadata={"Date": None})
    return Figure(name, title, caption, page_svg(buffer.getvalue(), name, title, caption))


def page_svg(text: str, name: str, title: str, description: str) -> str:
    """Matplotlib's SVG document as an element for a page that holds others of its kind.

    What goes: prolog, metadata, ids that nothing refers to, needless decimals and repeated styles. What comes: ids that
    begin with the figure's name, a width that follows the page's, and a title and a description for those who listen.
    """
    root = ET.fromstring(text)  # noqa: S314 - matplotlib has just written it
    for metadata in root.findall(f"{_SVG}metadata"):
        root.remove(metadata)
    values = [(key, value) for element in root.iter() for key, value in element.attrib.items()]
    found = [id_ for key, value in values for id_ in ([value[1:]] if key == _LINK else _REFERENCE.findall(value))]
    used = {id_: f"svg-{name}-{number}" for number, id_ in enumerate(dict.fromkeys(found), 1)}
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        _tidy(element, used)
    width = float(root.attrib["viewBox"].split()[2])
    label = f"svg-{name}-title svg-{name}-description"
    root.attrib = {
        "xmlns": _SVG.strip("{}"),
        "viewBox": root.attrib["viewBox"],
        "width": "100%",
        "style": f"display: block; max-width: {width:g}px; height: auto",
        "role": "img",
        "aria-labelledby": label,
    }
    for place, (tag, words) in enumerate((("title", title), ("desc", description))):
        element = ET.Element(tag, {"id": label.split()[place]})
        element.text, element.tail = words, "\n"
        root.insert(place, element)
    return ET.tostring(root, encoding="unicode") + "\n"


def _tidy(element: ET.Element, used: dict[str, str]) -> None:
    attributes = dict(element.attrib)
    if attributes.get("id") not in used:
        attributes.pop("id", None)
    else:
        attributes["id"] = used[attributes["id"]]
    if _LINK in attributes:
        attributes["href"] = "#" + used[attributes.pop(_LINK)[1:]]
    for key, value in attributes.items():
        value = _REFERENCE.sub(lambda found: f"url(#{used[found[1]]})", value)
        if key in ("x", "y", "d", "width", "height", "transform", "style"):
            value = _FRACTION.sub(lambda found: f"{float(found[0]):.2f}", value)
        attributes[key] = value.replace(f"'{FONT}'", _PAGE_FONTS) if key == "style" else value
    element.attrib = attributes
    # Thousands of dots of one look: said once, for all of them.
    styles = {child.get("style", "") for child in element} if element.tag == "g" and len(element) > 1 else set()
    if len(styles) == 1 and all(child.tag == f"{_SVG}use" for child in element):
        element.attrib["style"] = _FRACTION.sub(lambda found: f"{float(found[0]):.2f}", styles.pop())
        for child in element:
            child.attrib.pop("style", None)
