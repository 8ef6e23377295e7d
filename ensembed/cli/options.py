"""Options that go together, which a command gets as one argument."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import click

from ensembed.cli.common import (
    errors_option,
    json_option,
    on_disk,
    open_corpus,
    options,
    quiet_option,
    store_option,
    threads_option,
    trust_option,
    wait_option,
)
from ensembed.corpora.corpus import BadBytes, Corpus
from ensembed.corpora.record_reader import FileFormat, RecordCorpus, RecordFile
from ensembed.corpora.record_writer import FORMS, form_of, new_file
from ensembed.encoders import Encoder
from ensembed.errors import InputError
from ensembed.models.opening import open_model
from ensembed.support.progress import Progress
from ensembed.views import ViewStore

_Decorator = Callable[[Any], Any]


def gathered(name: str, make: Callable[..., object], *decorators: _Decorator) -> _Decorator:
    """Options that a command gets as one argument: what `make`, whose parameters they are, makes of them."""
    taken = list(inspect.signature(make).parameters)

    def decorate(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - click's decorators turn functions into commands
        @functools.wraps(function)
        def command(*arguments: Any, **given: Any) -> Any:  # noqa: ANN401 - whatever the command takes
            one = make(**{key: given.pop(key) for key in taken})
            return function(*arguments, **given, **{name: one})

        return options(*decorators)(command)

    return decorate


@dataclass(frozen=True)
class How:
    """How texts are read and encoded, and what is printed."""

    errors: BadBytes
    threads: int | None
    trust: bool
    quiet: bool
    as_json: bool

    def open_model(self, source: str, progress: Progress) -> Encoder:
        """The saved model of that folder, or the encoder of that name."""
        return open_model(source, threads=self.threads, progress=progress, trust=self.trust)


@dataclass(frozen=True)
class HowKept(How):
    """The same of a command that keeps views."""

    store: Path | None
    wait: float

    @property
    def views(self) -> ViewStore:
        """Where they are kept."""
        return ViewStore(self.store, wait=self.wait)

    def views_of(self, corpus: Corpus, members: Sequence[Encoder], progress: Progress) -> list[Any]:
        """The members' views; vectors that are not always the same cannot be kept and are made now."""
        kept = iter(self.views.embed_all(corpus, [one for one in members if one.cacheable], progress=progress))
        return [next(kept) if one.cacheable else one.encode(list(corpus), progress=progress) for one in members]


_HOW = (errors_option, threads_option, trust_option, quiet_option, json_option)
how_options = gathered("how", How, *_HOW)
how_kept_options = gathered("how", HowKept, store_option, wait_option, *_HOW)


@dataclass(frozen=True)
class Columns:
    """What a FILE of records is, and where its texts are."""

    file_format: FileFormat | None
    text_column: str | None
    id_column: str | None

    def file(self, source: Path | BinaryIO, name: str, errors: BadBytes) -> RecordFile:
        """The file, read in this way."""
        file = self._file(source, name, errors)
        column = self.id_column if self.text_column is None else self.text_column
        if file.kind == "text" and column is not None:
            raise InputError(
                f"{name} is read as text, a line a row, and has no column {column!r}: leave it out, or say with "
                "--format what the file is"
            )
        return file

    def _file(self, source: Path | BinaryIO, name: str, errors: BadBytes) -> RecordFile:
        text = "text" if self.text_column is None else self.text_column  # a column can be called ""
        return RecordFile(source, name, self.file_format, text, self.id_column, errors)

    @contextmanager
    def corpus(self, path: Path, errors: BadBytes) -> Iterator[Corpus]:
        """Its texts as a corpus; what is no table is one that `open_corpus` knows."""
        file = self._file(path, str(path), errors)
        if file.kind == "text":
            if self.id_column is not None:
                raise InputError(
                    f"{path}: --id-column is for CSV, TSV and JSON Lines; leave it out, or say with --format that it "
                    "is one"
                )
            with open_corpus(path, errors, self.text_column) as corpus:
                yield corpus
            return
        with on_disk(path) as (kept, name):
            yield RecordCorpus(replace(file, source=kept, name=name or file.name, format=file.kind))


column_options = gathered(
    "columns",
    Columns,
    click.option(
        "--format",
        "file_format",
        type=click.Choice(["text", "csv", "tsv", "jsonl"]),
        help="What FILE is. [default: by its ending; text, a line a row, where that says nothing]",
    ),
    click.option("--text-column", help="Of CSV, TSV and JSONL: what is encoded. [default: text]"),
    click.option("--id-column", help="Of CSV, TSV and JSONL: what rows are called. [default: none; rows are numbered]"),
)


@dataclass(frozen=True)
class Out:
    """A file for records, or none; in which form is known before the work begins."""

    path: Path | None
    form: str

    def write(self, write: Callable[[TextIO, str], object]) -> None:
        """Write it, if it is wanted."""
        if self.path is not None:
            with new_file(self.path) as file:
                write(file, self.form)


def out_options(what: str) -> _Decorator:
    """`--out`, which is written with what, and `--out-format`."""

    def make(out: Path | None, out_format: str | None) -> Out:
        return Out(out, form_of(out, out_format) if out is not None else "")

    return gathered(
        "out",
        make,
        click.option("--out", "-o", type=click.Path(path_type=Path, dir_okay=False), help=f"{what} (.csv, .jsonl)."),
        click.option("--out-format", type=click.Choice(FORMS), help="Of --out. [default: by its ending]"),
    )


def check_apart(**files: Path | None) -> None:
    """No file may take the place of another; they are called as the command line calls them."""
    seen: dict[Path, str] = {}
    for name, path in files.items():
        if path is None or str(path) == "-":
            continue
        called = "FILE" if name == "file" else f"--{name}"
        if (other := seen.setdefault(path.resolve(), called)) != called:
            raise InputError(f"{other} and {called} are the same file, {path}: name another one")


def sentence_line(sentence: Mapping[str, Any]) -> str:
    """A sentence of a group for a person: its cosine, its id or its row, its text on one line."""
    text = " ".join(sentence["text"].split())
    return f"  {sentence['cosine']:.4f}  {sentence.get('id', sentence['row']):>8}  {text[:90]}"
