"""What the commands share: options, input, output."""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click

from ensembed.corpus import TextCorpus
from ensembed.encoders import Encoder, open_encoder
from ensembed.errors import CorpusError
from ensembed.model import load
from ensembed.progress import Progress, bars
from ensembed.tables import text_table

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program instead of a table.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Draw no progress bars.")
threads_option = click.option("--threads", type=click.IntRange(min=1), help="Cores per encoder. [default: all]")
encoder_option = click.option(
    "--encoder", "-e", "encoders", multiple=True, required=True, metavar="NAME", help="A member; give it several times."
)
store_option = click.option(
    "--store", type=click.Path(path_type=Path), help="Where views are kept. [default: `views` in the cache]"
)
errors_option = click.option(
    "--errors",
    type=click.Choice(["strict", "replace"]),
    default="strict",
    show_default=True,
    help="What to do with bytes that are not UTF-8.",
)
corpus_argument = click.argument("corpus", type=click.Path(path_type=Path, allow_dash=True))


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Progress]:
    """Bars on standard error if it is a terminal."""
    with bars(enabled=False if quiet else None) as progress:
        yield progress


@contextmanager
def open_corpus(path: Path, errors: str) -> Iterator[TextCorpus]:
    """The corpus file; standard input (`-`) is first written to a temporary one, since a corpus is read twice."""
    if str(path) != "-":
        yield TextCorpus(path, errors=errors)
        return
    with tempfile.NamedTemporaryFile(prefix="ensembed-", suffix=".txt") as file:
        for chunk in iter(lambda: sys.stdin.buffer.read(1 << 20), b""):
            file.write(chunk)
        file.flush()
        yield TextCorpus(file.name, errors=errors)


def open_model(source: str, threads: int | None = None) -> Encoder:
    """The saved model in that folder, or the encoder of that name."""
    if Path(source).is_dir():
        return load(source, threads=threads)
    return open_encoder(source, threads=threads)


def read_lines(path: Path, size: int = 1024) -> Iterator[list[str]]:
    """The lines of a text file (plain, `.gz`, or `-` for standard input) in lists; every line counts, blank or not."""
    with _open_bytes(path) as file:
        batch: list[str] = []
        for number, line in enumerate(file, 1):
            try:
                batch.append(
                    line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8-sig" if number == 1 else "utf-8")
                )
            except UnicodeDecodeError as error:
                raise CorpusError(f"{path}, line {number} is not UTF-8: {error}") from None
            if len(batch) == size:
                yield batch
                batch = []
        if batch:
            yield batch


@contextmanager
def _open_bytes(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]
    except (OSError, EOFError) as error:
        raise CorpusError(f"cannot read {path}: {error}") from error


def print_json(value: Any) -> None:  # noqa: ANN401 - anything that JSON can hold
    """One JSON document on one line; NaN is never written."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """An aligned table for a person."""
    click.echo(text_table(headers, rows, left=left))


def human_bytes(size: int) -> str:
    """A size for a person."""
    return f"{size / 1e6:,.1f} MB"


def options(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several decorators as one, the first outermost."""

    def apply(function: Any) -> Any:  # noqa: ANN401 - click's decorators turn functions into commands
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply
