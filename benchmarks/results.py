"""`results/bench.json`, which keeps the last measurement of every area, and the page that is made of it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.timing import Section
from ensembed.support.atomic_files import write_atomically
from ensembed.support.text_tables import markdown_table, text_table

Record = dict[str, Any]

HEADERS = ["what", "ours, s", "peer", "peer, s", "ours / peer", "to reach", "reached"]
_TARGET = re.compile(r"(<=?) ([\d.]+)( s)?")


def record(section: Section, facts: Mapping[str, str]) -> Record:
    """A section as plain data, with the machine that measured it: areas are run on their own, on any machine."""
    comparisons = [dataclasses.asdict(one) | {"ratio": one.ratio} for one in section.comparisons]
    return dataclasses.asdict(section) | {"comparisons": comparisons, "provenance": dict(facts)}


def read(folder: Path) -> dict[str, Record]:
    """The areas that were measured before."""
    path = folder / "bench.json"
    areas: dict[str, Record] = json.loads(path.read_bytes()).get("areas", {}) if path.exists() else {}
    return areas


def write(folder: Path, areas: Mapping[str, Record]) -> None:
    """Both files."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "bench.json", (json.dumps({"areas": areas}, indent=1) + "\n").encode())
    write_atomically(folder / "bench.md", page(areas).encode())


def page(areas: Mapping[str, Record]) -> str:
    """The whole of `results/bench.md`."""
    lines = [
        "# Speed and memory",
        "",
        "Written by `make bench`; `python -m benchmarks AREA` measures one area again and keeps the others. Times are",
        "the best of several runs, ours and the peer's in turn. docs/explanation/speed.md says what the figures mean.",
        "",
    ]
    for name, one in areas.items():
        lines += [f"## {one['title']}", "", f"`python -m benchmarks {name}`", "", block(one), ""]
    return "\n".join(lines)


def block(one: Record) -> str:
    """One area in Markdown: tables, notes, and what they were made with."""
    lines = []
    for title, headers, rows in _tables(one):
        lines += [title, ""] if title else []
        lines += [markdown_table(headers, rows), ""]
    lines += [f"- {note}" for note in one["notes"]]
    facts = ", ".join(f"{key} {value}" for key, value in one["provenance"].items())
    return "\n".join([*lines, f"- Made with {facts}."])


def text(one: Record) -> str:
    """One area for a terminal."""
    parts = [one["title"]]
    for title, headers, rows in _tables(one):
        parts += ([title] if title else []) + [text_table(headers, rows)]
    return "\n\n".join([*parts, *one["notes"]])


def _tables(one: Record) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    if one["comparisons"]:
        noted = any(c["note"] for c in one["comparisons"])
        rows = [
            [c["what"], _time(c["ours_s"]), c["peer"], _time(c["peer_s"]), f"{c['ratio']:.3g}", c["target"], reached(c)]
            + ([c["note"]] if noted else [])
            for c in one["comparisons"]
        ]
        yield "", HEADERS + (["note"] if noted else []), rows
    for table in one["tables"]:
        yield table["title"], table["headers"], table["rows"]


def reached(comparison: Record) -> str:
    """Whether a comparison is what it should be: "yes", "no", or nothing where nothing is asked for.

    Example:
        >>> reached({"target": "<= 1.2", "ratio": 1.3, "ours_s": 1.0}), reached({"target": "< 2 s", "ours_s": 1.0})
        ('no', 'yes')
    """
    if not (found := _TARGET.fullmatch(comparison["target"])):
        return ""
    sign, limit, seconds = found.groups()
    value, most = comparison["ours_s" if seconds else "ratio"], float(limit)
    return "yes" if value < most or (sign == "<=" and value == most) else "no"


def _time(seconds: float) -> str:
    return f"{seconds:.3f}" if seconds >= 0.1 else f"{seconds:.2g}"
