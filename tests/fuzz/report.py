"""The table of a long run: `results/fuzz.json` and `results/fuzz.md`, in which some formats can be measured again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ensembed.support.atomic_files import write_atomically
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from fuzz.workers import MEGABYTES, SECONDS, Result

_TEXT = """\
Mutated files of every format that ensembed reads, ours and others'; in half of them the hashes were made right
again, as a stranger would. *ok*: the file gave an answer, and for a file with hashes that were not made right the
answer of the whole one. *refused*: an `EnsembedError` that names the file. *failures*: everything else, such as another
exception, a crash, code that runs, a file written elsewhere, an answer that damage changed, more than {seconds:g} s, or
more than {megabytes:g} MB over what the process had. *slowest* and *most* are the longest time and the most memory of
an input; failures of earlier runs are among the inputs."""


@dataclass
class Row:
    """What became of the inputs of a format."""

    inputs: int = 0
    ok: int = 0
    refused: int = 0
    failures: int = 0
    slowest: float = 0.0
    most: float = 0.0

    def count(self, result: Result) -> None:
        """Add an input."""
        ok, refused = result.outcome == "ok", result.outcome == "refused"
        self.add(Row(1, ok, refused, result.failed, result.seconds, result.megabytes))

    def add(self, other: Row) -> None:
        """Add the inputs of another row."""
        for name in ("inputs", "ok", "refused", "failures"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest, self.most = max(self.slowest, other.slowest), max(self.most, other.most)

    def cells(self) -> list[str]:
        """Return the figures for a table."""
        counts = [f"{number:,}" for number in (self.inputs, self.ok, self.refused, self.failures)]
        return [*counts, f"{self.slowest:.2f}", f"{self.most:.0f}"]


HEADERS = ["format", "inputs", "ok", "refused", "failures", "slowest s", "most MB"]


def total(rows: Mapping[str, Row]) -> Row:
    """Return the sum of rows."""
    whole = Row()
    for row in rows.values():
        whole.add(row)
    return whole


def write_report(folder: Path, rows: Mapping[str, Row], command: str, names: list[str], *, add: bool = False) -> None:
    """Write the table of a run; what the file has of formats, of all `names`, that were not run stays.

    With `add`, a run of the same version on other inputs is added to what the file has.
    """
    file, made = folder / "fuzz.json", provenance()
    kept = file.exists() and (add or len(rows) < len(names))
    known: dict[str, Any] = json.loads(file.read_bytes())["formats"] if kept else {}
    for name, row in rows.items():
        before, whole = known.get(name) if add else None, Row()
        whole.add(row)
        if before is not None:
            whole.add(Row(**{field: before[field] for field in Row.__dataclass_fields__}))
        commands = f"{before['command']}; {command}" if before is not None else command
        known[name] = asdict(whole) | {"command": commands, "measured": made["time"]}
    facts = {"formats": {name: known[name] for name in names if name in known}, "provenance": made}
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, (json.dumps(facts, indent=1) + "\n").encode())
    write_atomically(folder / "fuzz.md", page(facts).encode())


def page(facts: Mapping[str, Any]) -> str:
    """Return the whole of `results/fuzz.md`."""
    fields = Row.__dataclass_fields__
    rows = {name: Row(**{f: known[f] for f in fields}) for name, known in facts["formats"].items()}
    measured = {name: known["measured"] for name, known in facts["formats"].items()}
    commands = dict.fromkeys(command for known in facts["formats"].values() for command in known["command"].split("; "))
    table = [[name, *row.cells(), measured[name]] for name, row in rows.items()]
    lines = [
        "# Mutated files",
        "",
        *(f"`{command}`\n" for command in commands),
        _TEXT.format(seconds=SECONDS, megabytes=MEGABYTES),
        "",
        markdown_table([*HEADERS, "measured"], [*table, ["all", *total(rows).cells(), ""]]),
        "",
        f"- Made with {', '.join(f'{key} {value}' for key, value in facts['provenance'].items())}.",
        "",
    ]
    return "\n".join(lines)
