"""The shared look of the figures: settings, colours and marks, and the words around numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ensembed.paper.findings import Findings
from ensembed.paper.tables import marked_table as table
from ensembed.support.heatmap import shorten_middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

FONT = "DejaVu Sans"
"""What text is measured with: it comes with matplotlib, and it is the widest of the usual fonts."""
WIDTH = 960
"""Pixels across the page. Figures that need less are narrower, with letters of the same size."""
INK, MUTED, FAINT, GRID = "#222222", "#555555", "#999999", "#e4e4e4"
SIZE, SMALL = 13, 11.5
GAP = "\N{EN SPACE}"  # browsers make one of several plain spaces
DEV_AXIS = "Pearson’s r × 100 on STS-B dev"
TEST_AXIS = "Pearson’s r × 100"

SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "ensembed",  # equal ids for equal drawings
    "text.parse_math": False,  # names may hold a dollar sign
    "font.family": [FONT],
    "font.size": SIZE,
    "axes.titlesize": SIZE,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": SMALL,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SIZE,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.8,
    "lines.markersize": 7,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.w_pad": 0.1,
}

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


@dataclass(frozen=True)
class Look:
    """How a system looks, in every figure.

    Attributes:
        color: of lines, and of what is filled.
        marker: matplotlib's name of the mark.
        dashes: lengths of dash and gap, in line widths.
        hatch: of bars; nothing for meta-embeddings, whose bars are solid.
    """

    color: str
    marker: str
    dashes: tuple[float, ...]
    hatch: str

    @property
    def face(self) -> str:
        """The inside of a mark: members are hollow."""
        return "white" if self.hatch else self.color


def look(label: str, findings: Findings) -> Look:
    """The look of a system; `meta:svd without …` looks like `meta:svd`."""
    kind, _, name = label.partition(":")
    if kind == "single":
        names = [member.name for member in findings.members]
        place = names.index(name) if name in names else len(names)
        return Look(
            _GREYS[place % len(_GREYS)],
            _MEMBER_MARKS[place % len(_MEMBER_MARKS)],
            (2 + place, 1),
            _HATCHES[place % len(_HATCHES)],
        )
    return Look(*_METAS.get(name.partition(" ")[0], _OTHER_META), "")


def short(label: str) -> str:
    """A label for a figure: without `single:` or `meta:`, which the look tells, and not too long.

    >>> short("meta:svd without st:sentence-transformers/all-MiniLM-L6-v2")
    'svd without st:senten…LM-L6-v2'
    """
    name = label.partition(":")[2] if label.startswith(("single:", "meta:")) else label
    # A figure's text has one line and is written as XML, which has no place for control characters.
    name = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    method, without, member = name.partition(" without ")
    return method + without + shorten_middle(member, _LONGEST_LEFT_OUT) if without else shorten_middle(name, _LONGEST)


def figure(value: float) -> str:
    """A correlation x 100 with one decimal, with a true minus.

    >>> figure(0.7831), figure(-0.00001)
    ('78.3', '0.0')
    """
    return table.figure(value).replace("-", "−")


def signed(value: float) -> str:
    """A difference of correlations x 100 with its sign.

    >>> signed(0.0042), signed(-0.0042), signed(0)
    ('+0.4', '−0.4', '0.0')
    """
    return table.figure(value, signed=True).replace("-", "−")


def versus(value: float) -> str:
    """A difference in words.

    >>> versus(0.0042), versus(-0.0042), versus(0)
    ('0.4 above', '0.4 below', 'level with')
    """
    text = figure(abs(value))
    return "level with" if text == "0.0" else f"{text} {'above' if value > 0 else 'below'}"


def listing(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listing(["a"]), listing(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Places for labels that belong to the values: in the same order, `gap` apart, as near to them as can be.

    >>> spread([0, 2, 2, 5], 1)
    [0.0, 1.5, 2.5, 5.0]
    """
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
    """Small axes of one scale side by side, row by row; cells that are left over stay blank."""
    columns = min(columns, count)
    axes = list(page.subplots(-(-count // columns), columns, squeeze=False, sharex=True, sharey=True).flat)
    for blank in axes[count:]:
        blank.set_axis_off()
    for used in axes[:count]:
        used.tick_params(labelbottom=True, length=0)
    return axes[:count]


def edge_text(axes: Axes, place: float, text: str, *, bold: bool = False) -> None:
    """A figure at the right edge of a row, as in a table."""
    axes.text(
        1,
        place,
        text,
        transform=axes.get_yaxis_transform(),
        ha="right",
        va="center",
        fontsize=SMALL,
        weight="bold" if bold else "normal",
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
