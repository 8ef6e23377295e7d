"""What the commands share: options, input, output."""

from __future__ import annotations

import functools
import itertools
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ensembed import corpora
from ensembed.corpora.corpus import BadBytes, Corpus, read_lines
from ensembed.corpora.urls import is_url
from ensembed.errors import CorpusError
from ensembed.models.named_ensembles import ENSEMBLES, named_ensemble
from ensembed.support.progress import Progress, bars
from ensembed.support.text_tables import text_table

STDIN = "standard input"

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program instead of a table.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Draw no progress bars.")
threads_option = click.option("--threads", type=click.IntRange(min=1), help="Cores per encoder. [default: all]")
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
wait_option = click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Seconds to wait for another process on the same view.",
)
trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Let a saved model run code that comes with weights, and send sentences to servers it names.",
)
column_option = click.option(
    "--column",
    metavar="NAME",
    help="The column of a Parquet file with the sentences. [default: the only one of strings]",
)


class _CorpusType(click.Path):
    """A path, or a URL, which is left as it is: as a path it would lose a slash."""

    name = "corpus"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's own
        if value == "":  # as a path it would be the current folder
            self.fail("It is empty.", param, ctx)
        if isinstance(value, str) and is_url(value):
            return value
        return super().convert(value, param, ctx)


corpus_argument = click.argument("corpus", type=_CorpusType(path_type=Path, allow_dash=True))


def members_option(default: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`-e` and `--ensemble`, which a command gets as one list `encoders`: the ensemble's members, then the others.

    Args:
        default: the ensemble to take where none is named and no encoder; None asks for one.
    """
    named = f"Members that have a name together ({' or '.join(ENSEMBLES)}), or names with commas between them."

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            "--encoder", "-e", "encoders", multiple=True, metavar="NAME", help="A member; give it several times."
        )
        @click.option("--ensemble", metavar="NAME[,NAME…]", help=named + (f" [default: {default}]" if default else ""))
        @functools.wraps(function)
        def command(*arguments: Any, encoders: tuple[str, ...], ensemble: str | None, **options: Any) -> Any:  # noqa: ANN401 - whatever the command takes
            chosen = default if ensemble is None and not encoders else ensemble
            members = (*(named_ensemble(chosen) if chosen is not None else ()), *encoders)
            if not members:
                raise click.UsageError("Name the members: -e NAME, once or several times, or --ensemble NAME.")
            return function(*arguments, encoders=members, **options)

        return command

    return decorate


encoder_option = members_option(None)


def command_line(*leave_out: str) -> str:
    """The line that runs the current command again: what was given, but for these parameters."""
    context = click.get_current_context()
    words = context.command_path.split()
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
        if not given or name in leave_out:
            continue
        value = context.params[name]
        if isinstance(value, bool):
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
            continue
        option = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
        for one in value if isinstance(value, tuple) else (value,):
            words += [*option, str(one)]
    return shlex.join(words)


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Progress]:
    """Bars on standard error if it is a terminal."""
    with bars(enabled=False if quiet else None) as progress:
        yield progress


@contextmanager
def open_corpus(path: Path | str, errors: BadBytes, column: str | None = None) -> Iterator[Corpus]:
    """The corpus; standard input (`-`) and pipes are first written to a temporary file: a corpus is read twice."""
    if isinstance(path, str):
        yield corpora.open_corpus(path, errors=errors, column=column)
        return
    with on_disk(path) as (kept, name):
        yield corpora.open_corpus(kept, errors=errors, column=column, name=name)


@contextmanager
def on_disk(path: Path) -> Iterator[tuple[Path, str | None]]:
    """A file that can be read twice, and what errors call it: the file itself, or what came through a pipe."""
    if str(path) != "-" and not path.is_fifo():
        yield path, None
        return
    name = STDIN if str(path) == "-" else str(path)
    with tempfile.TemporaryDirectory(prefix="ensembed-") as folder:
        spool = Path(folder) / "corpus.txt"
        try:
            with spool.open("wb") as file, sys.stdin.buffer if name == STDIN else path.open("rb") as source:
                shutil.copyfileobj(source, file)
        except OSError as error:
            raise CorpusError(
                f"{name} cannot be kept in {tempfile.gettempdir()}: {error}; make room there, set TMPDIR to another "
                "folder, or give the corpus as a file"
            ) from error
        yield spool, name


def read_batches(path: Path, errors: BadBytes = "strict", size: int = 1024) -> Iterator[list[str]]:
    """The lines of a text file, or of standard input (`-`), in lists; every line counts, blank or not."""
    stdin = str(path) == "-"
    lines = read_lines(sys.stdin.buffer, name=STDIN, errors=errors) if stdin else read_lines(path, errors=errors)
    while batch := list(itertools.islice(lines, size)):
        yield batch


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
