"""`index.json`: what a search index is made of. Replacing this one file is what makes a change, whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from ensembed.encoders.base import EncoderSpec
from ensembed.errors import DamagedIndexError, InputError, SearchIndexError
from ensembed.support.version import __version__

FORMAT_VERSION = 1
MANIFEST = "index.json"
WAY_OUT = "restore it from a copy, or build the index again"

Kind: TypeAlias = Literal["auto", "exact", "hnsw"]
Codes: TypeAlias = Literal["float32", "int8", "binary"]

# Candidates for every hit that is wanted: what is found by short codes or in a graph is scored again from the rows.
RESCORE: Mapping[str, int] = {"float32": 1, "int8": 4, "binary": 16}


@dataclass(frozen=True)
class FileFacts:
    """A file of the index: its name in the folder, its bytes, and their hash."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class SegmentFacts:
    """Rows that were written together and never change; what was deleted of them stands in a file of its own.

    Attributes:
        name: what its files' names begin with.
        rows: how many there are, deleted ones too.
        files: by what they hold.
        deleted: the numbers of the deleted rows.
        live: how many rows are not deleted.
    """

    name: str
    rows: int
    files: Mapping[str, FileFacts]
    deleted: FileFacts | None
    live: int


@dataclass(frozen=True)
class GraphFacts:
    """The HNSW graph: of the rows that have a key below `upto` and were there when it was made."""

    file: FileFacts
    rows: int
    upto: int


@dataclass(frozen=True)
class Settings:
    """How an index searches; fixed when it is made.

    Attributes:
        kind: "exact" compares with every row, "hnsw" walks a graph, "auto" does that from `graph_rows` rows on.
        dtype: what is compared first: the rows as they are, or codes of a quarter or a thirty-second of their size.
        rescore: candidates for every hit, which are then scored from the float32 rows.
        graph_rows: the number of rows from which "auto" has a graph.
    """

    kind: Kind = "auto"
    dtype: Codes = "float32"
    rescore: int = 1
    graph_rows: int = 250_000

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"kind is one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        if self.dtype not in get_args(Codes):
            raise InputError(f"dtype is one of {', '.join(get_args(Codes))}, not {self.dtype!r}")
        for name, value in (("rescore", self.rescore), ("graph_rows", self.graph_rows)):
            if type(value) is not int or value < 1:
                raise InputError(f"{name} is a whole number from 1 on, not {value!r}")


@dataclass(frozen=True)
class Manifest:
    """All of an index but the numbers.

    Attributes:
        settings: how it searches.
        spec: the model's.
        source: the folder or name that the model can be opened from again; None for an object.
        fingerprint: the file of the model's vectors of the probe sentences.
        segments: the rows, in their order.
        graph: where there is one.
        next_segment: the number of the next file; never given twice, since readers may have the old files open.
        next_key: the key of the next row; never given twice either.
        imports: by the hash of a file, how many of its records were read, and whether that was all of it.
    """

    settings: Settings
    spec: EncoderSpec
    source: str | None
    fingerprint: FileFacts
    segments: tuple[SegmentFacts, ...] = ()
    graph: GraphFacts | None = None
    next_segment: int = 1
    next_key: int = 0
    imports: Mapping[str, tuple[int, bool]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows can be found."""
        return sum(segment.live for segment in self.segments)

    def files(self) -> list[FileFacts]:
        """Every file but this one."""
        found = [self.fingerprint]
        for segment in self.segments:
            found += [*segment.files.values(), *([segment.deleted] if segment.deleted else [])]
        return found + ([self.graph.file] if self.graph else [])

    def changed(self, **changes: Any) -> Manifest:  # noqa: ANN401 - fields of all types
        """The same with other values."""
        return replace(self, **changes)

    def to_bytes(self) -> bytes:
        """The file, with the hash of its own facts."""
        facts = {
            "format": FORMAT_VERSION,
            "ensembed": __version__,
            "settings": vars(self.settings),
            "model": {"source": self.source, "spec": self.spec.to_json(), "fingerprint": vars(self.fingerprint)},
            "segments": [_segment_facts(segment) for segment in self.segments],
            "graph": None
            if self.graph is None
            else {"file": vars(self.graph.file), "rows": self.graph.rows, "upto": self.graph.upto},
            "next_segment": self.next_segment,
            "next_key": self.next_key,
            "imports": {key: list(value) for key, value in self.imports.items()},
        }
        return json.dumps(facts | {"sha256": _seal(facts)}, indent=1).encode() + b"\n"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an index.

    Raises:
        SearchIndexError: there is no index in the folder, or one of a format that is not known here.
        DamagedIndexError: the file is damaged.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise SearchIndexError(
            f"{folder} is not a search index: there is no {MANIFEST} in it; make one with ensembed index"
        ) from None
    except OSError as error:
        raise SearchIndexError(f"{path} cannot be read: {error}") from error
    try:
        facts = json.loads(data)
        whole = facts.pop("sha256") == _seal(facts)
        if whole and facts["format"] != FORMAT_VERSION:
            raise SearchIndexError(
                f"{folder} has index format {facts['format']!r}; ensembed {__version__} reads {FORMAT_VERSION}: "
                "upgrade ensembed"
            )
        manifest = _manifest(facts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedIndexError(f"{path} is damaged: {error!r}; {WAY_OUT}") from error
    if not whole:
        raise DamagedIndexError(f"{path} is damaged: its checksum does not fit; {WAY_OUT}")
    return manifest


def _segment_facts(segment: SegmentFacts) -> dict[str, Any]:
    return {
        "name": segment.name,
        "rows": segment.rows,
        "live": segment.live,
        "files": {what: vars(file) for what, file in segment.files.items()},
        "deleted": vars(segment.deleted) if segment.deleted else None,
    }


def _manifest(facts: Mapping[str, Any]) -> Manifest:
    model, graph = facts["model"], facts["graph"]
    return Manifest(
        Settings(**facts["settings"]),
        EncoderSpec.from_json(model["spec"]),
        model["source"],
        FileFacts(**model["fingerprint"]),
        tuple(
            SegmentFacts(
                one["name"],
                one["rows"],
                {what: FileFacts(**file) for what, file in one["files"].items()},
                FileFacts(**one["deleted"]) if one["deleted"] else None,
                one["live"],
            )
            for one in facts["segments"]
        ),
        GraphFacts(FileFacts(**graph["file"]), graph["rows"], graph["upto"]) if graph else None,
        facts["next_segment"],
        facts["next_key"],
        {key: (rows, whole) for key, (rows, whole) in facts["imports"].items()},
    )


def _seal(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
