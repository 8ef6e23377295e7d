"""Options that several commands share. Options that belong together reach a command as one argument."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, TypeAlias

import click
from click.core import ParameterSource

from ensembed.cli.completion import ENCODER, ENSEMBLE
from ensembed.cli.console import STDIN, human_bytes
from ensembed.corpora import open_corpus as open_stored_corpus
from ensembed.corpora.corpus import URL, BadBytes, Corpus, FileFormat, Lines, shorten
from ensembed.corpora.record_files import FORMS, RecordFile, form_of, new_text_file
from ensembed.encoders import Encoder
from ensembed.engines.engine import Local
from ensembed.errors import EFFECTS, CorpusError, InputError, UnknownEncoderError
from ensembed.models.ensemble import MISSING, Missing
from ensembed.models.named_ensembles import ENSEMBLES, named_ensemble, split_names
from ensembed.models.opening import open_model
from ensembed.models.saved_model import CONFIG, is_model, read_model, split_model_name
from ensembed.support.checks import did_you_mean
from ensembed.support.machine import limit_threads
from ensembed.support.progress import Progress, bars
from ensembed.support.text_tables import text_table
from ensembed.views import ViewStore

if TYPE_CHECKING:
    from ensembed.engines import Engine, Stage

Decorator: TypeAlias = Callable[[Any], Any]

PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
POSITIVE = click.IntRange(min=1)
INPUT = click.Path(path_type=Path, allow_dash=True)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program instead of a table.")


class _Threads(click.IntRange):
    """A number of cores, which bounds everything that the process does from then on."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's own
        threads = super().convert(value, param, ctx)
        limit_threads(threads)
        return threads


force_option = click.option("--force", is_flag=True, help="Replace what is there already.")
format_option = click.option(
    "--format",
    "file_format",
    type=click.Choice(["text", "csv", "tsv", "jsonl"]),
    help="What the file is. [default: by its ending, else by its first lines]",
)


@dataclass(frozen=True)
class Gathered:
    """Options as one decorator: the command receives `name=make(**values)` instead of their values."""

    name: str
    make: Callable[..., object]
    options: Mapping[str, Decorator]
    only: Sequence[str] | None = None
    """Those of the options that the command has, in the order of its help; None for all."""

    def __call__(self, function: Callable[..., Any]) -> Any:  # noqa: ANN401 - click's decorators make commands
        """Return the function with these options."""

        @functools.wraps(function)
        def command(*arguments: Any, **values: Any) -> Any:  # noqa: ANN401 - whatever the command takes
            made = self.make(**{key: values.pop(key) for key in keys})
            return function(*arguments, **values, **{self.name: made})

        keys = list(self.options) if self.only is None else self.only
        for key in reversed(keys):
            command = self.options[key](command)
        return command


@contextmanager
def open_corpus(path: Path | str, **how: Any) -> Iterator[Corpus]:  # noqa: ANN401 - arguments of `open_corpus`
    """Open a corpus. Standard input (`-`) and pipes are first copied to a file, because a corpus is read twice."""
    is_pipe = os.path.exists(path) and Path(path).is_fifo()  # noqa: PTH110 - False if no file can have the name
    if isinstance(path, str) or not (str(path) == "-" or is_pipe):
        yield open_stored_corpus(path, **how)
        return
    name = shown_name(path)
    with tempfile.TemporaryDirectory(prefix="ensembed-") as folder:
        copy = Path(folder) / "corpus.txt"
        try:
            with copy.open("wb") as file, sys.stdin.buffer if name == STDIN else path.open("rb") as source:
                shutil.copyfileobj(source, file)
        except OSError as error:
            raise CorpusError(
                f"{name} cannot be kept in {tempfile.gettempdir()}: {error}; make room there, set TMPDIR to another "
                "folder, or give the corpus as a file"
            ) from error
        yield open_stored_corpus(copy, **how, name=name)


def shown_name(path: Path) -> str:
    """Return a file's name for messages; where `-` is a terminal, tell the person there what the command waits for."""
    if str(path) != "-":
        return str(path)
    if sys.stdin.isatty():
        click.echo("Type a line for each text; Ctrl-D ends. Or name a file.", err=True)
    return STDIN


def read_batches(path: Path) -> Iterator[list[str]]:
    """Yield the lines of a text file, or of standard input (`-`), in lists, including blank lines."""
    lines = iter(Lines(sys.stdin.buffer if str(path) == "-" else path, shown_name(path), "strict"))
    while batch := list(itertools.islice(lines, 1024)):
        yield batch


@dataclass(frozen=True)
class How:
    """How a command reads and encodes texts, where it keeps views, and what it prints."""

    errors: BadBytes = "strict"
    column: str | None = None
    file_format: FileFormat | None = None
    threads: int | None = None
    moved: tuple[str, ...] = ()  # members of saved models: OLD=NEW
    missing: Missing = "error"
    time_limit: float | None = None
    trust: str = ""  # some of `EFFECTS`
    quiet: bool = False
    as_json: bool = False
    store: Path | None = None
    wait: float = 0.0

    def progress(self) -> AbstractContextManager[Progress]:
        """Draw progress bars on standard error if it is a terminal, unless --quiet was given."""
        return bars(enabled=False if self.quiet else None)

    def open_model(self, source: str, progress: Progress, *, beside: Sequence[str] = ()) -> Encoder:
        """Open the saved model of that folder, or the encoder of that name.

        A member that has moved must be one of this model's, or of those that are opened beside it.
        """
        moved = self.moved
        if moved and beside:
            moved_beside = moved_members([*beside, *moved])
            own = moved_members([source, *moved])
            moved = tuple(text for text in moved if text in own or text not in moved_beside)
        opening = self.opening | {"encoders": moved, "missing": self.missing, "time_limit": self.time_limit}
        try:
            return open_model(source, **opening, progress=progress)
        except UnknownEncoderError:
            check_model_name(source)
            raise

    @property
    def opening(self) -> dict[str, Any]:
        """How models are opened: arguments of `open_model` and `Index.open`."""
        return {"encoders": self.moved, "threads": self.threads, "trust": self.trust}

    def open_corpus(self, path: Path | str) -> AbstractContextManager[Corpus]:
        """Open a file, folder, pattern, URL or standard input."""
        return open_corpus(path, errors=self.errors, column=self.column, file_format=self.file_format)

    @property
    def views(self) -> ViewStore:
        """The store of views."""
        return ViewStore(self.store, wait=self.wait)


_HOW: dict[str, Decorator] = {
    "errors": click.option(
        "--errors",
        type=click.Choice(["strict", "replace"]),
        default="strict",
        help="How to read bytes that are not UTF-8.",
    ),
    "column": click.option(
        "--text-column",
        "--column",
        "column",
        metavar="NAME",
        help="Column with the texts (CSV, TSV, JSONL, Parquet). [default: text; of Parquet the only one of strings]",
    ),
    "file_format": format_option,
    "threads": click.option(
        "--threads",
        type=_Threads(min=1),
        help="Cores to use: encoders, BLAS, torch, tokenizers. [default: all that this process may use]",
    ),
    "moved": click.option(
        "--encoder",
        "-e",
        "moved",
        multiple=True,
        metavar="OLD=NEW",
        help="A member of a saved model that has moved: its name in the model, and its name now.",
    ),
    "missing": click.option(
        "--missing",
        type=click.Choice(MISSING),
        default="error",
        help="What to do when a member of a saved model fails: report the error, drop the member, or predict what it "
        "would add.",
    ),
    "time_limit": click.option(
        "--time-limit",
        type=click.FloatRange(min=0, min_open=True),
        help="Seconds that a member may take for a batch of texts; a slower one counts as failed. [default: no limit]",
    ),
    "trust": click.option(
        "--trust",
        default="",
        show_default=False,
        metavar="[EFFECT,…]",
        help="Let names in files (a saved model's, an index's) run code, use the network, read special files: some of "
        f"{', '.join(EFFECTS)}; without any, all of them.",
    ),
    "quiet": click.option("--quiet", "-q", is_flag=True, help="Draw no progress bars."),
    "as_json": json_option,
    "store": click.option("--store", type=PATH, help="Where views are kept. [default: `views` in the cache]"),
    "wait": click.option(
        "--wait",
        type=click.FloatRange(min=0),
        default=0.0,
        help="Seconds to wait for another process on the same view.",
    ),
}


how_options = functools.partial(Gathered, "how", How, _HOW)
"""The options of `How` with these names, which a command receives as one `how`; the others keep their defaults."""


class _CorpusType(click.Path):
    """A path, or a URL, which stays a string: a path would lose one of its slashes."""

    name = "corpus"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's own
        if value == "":  # as a path it would be the current folder
            self.fail("It is empty.", param, ctx)
        if isinstance(value, str) and URL.match(value):
            return value
        return super().convert(value, param, ctx)


corpus_argument = click.argument("corpus", type=_CorpusType(path_type=Path, allow_dash=True))


_MEMBERS = f"A named ensemble ({' or '.join(ENSEMBLES)}), or the members' names with commas between them."
_encoder = click.option(
    "--encoder",
    "-e",
    "encoders",
    multiple=True,
    metavar="NAME",
    type=ENCODER,
    help="A member; give it several times, or the names with commas between them.",
)


def _members(encoders: tuple[str, ...], ensemble: str | None) -> tuple[str, ...]:
    """Return the ensemble's members, then the others."""
    members = list(named_ensemble(ensemble)) if ensemble is not None else []
    for name in encoders:
        members += split_names(name) if "," in name else [name]
    if not members:
        raise click.UsageError("Name the members, as in -e minilm,use-m3, or a named ensemble: --ensemble default.")
    return tuple(members)


def moved_members(names: Sequence[str]) -> tuple[str, ...]:
    """Return those of the names that are OLD=NEW for a member of a saved model, which is another of the names."""
    folders = [Path(split_model_name(name)[0]) for name in names if is_model(name)]
    members = [spec.name.text for folder in folders for spec in read_model(folder).members]
    return tuple(name for name in names if any(name.startswith(f"{member}=") for member in members))


_ensemble = functools.partial(click.option, "--ensemble", metavar="NAME[,NAME…]", type=ENSEMBLE)
members_options = Gathered("encoders", _members, {"encoders": _encoder, "ensemble": _ensemble(help=_MEMBERS)})
default_members_options = Gathered(
    "encoders",
    lambda encoders, ensemble: _members(encoders, ensemble if ensemble or encoders else "default"),
    {"encoders": _encoder, "ensemble": _ensemble(help=f"{_MEMBERS} [default: default]")},
)


@dataclass(frozen=True)
class Columns:
    """The format of a FILE of records, and its columns with texts and ids."""

    file_format: FileFormat | None
    text_column: str | None
    id_column: str | None

    def file(self, source: Path | BinaryIO, name: str, errors: BadBytes) -> RecordFile:
        """Return the file, to be read in this way."""
        text = "text" if self.text_column is None else self.text_column  # a column can be called ""
        file = RecordFile(source, name, self.file_format, text, self.id_column, errors)
        column = self.id_column if self.text_column is None else self.text_column
        if file.kind == "text" and column is not None:
            raise InputError(
                f"{name} is read as text, a line a row, and has no column {column!r}: leave it out, or say with "
                "--format what the file is"
            )
        return file

    def corpus(self, path: Path, errors: BadBytes) -> AbstractContextManager[Corpus]:
        """Open the texts of a file as a corpus."""
        columns = {"column": self.text_column, "file_format": self.file_format, "id_column": self.id_column}
        return open_corpus(path, errors=errors, **columns)


column_options = Gathered(
    "columns",
    Columns,
    {
        "file_format": format_option,
        "text_column": click.option("--text-column", help="Column with the texts (CSV, TSV, JSONL). [default: text]"),
        "id_column": click.option(
            "--id-column", help="Column with the ids (CSV, TSV, JSONL). [default: none; rows are numbered]"
        ),
    },
)


@dataclass(frozen=True)
class Out:
    """A file for records, or none, and its format."""

    path: Path | None
    form: str

    def write(self, write: Callable[[TextIO, str], object]) -> None:
        """Write the file if --out was given."""
        if self.path is not None:
            with new_text_file(self.path) as file:
                write(file, self.form)


def out_options(what: str) -> Decorator:
    """`--out` and `--out-format`, which a command receives as one `out`; `what` begins the help of --out."""
    return Gathered(
        "out",
        lambda out, out_format: Out(out, form_of(out, out_format) if out is not None else ""),
        {
            "out": click.option("--out", "-o", type=FILE, help=f"{what} (.csv, .jsonl)."),
            "out_format": click.option(
                "--out-format", type=click.Choice(FORMS), help="Format of --out. [default: by its ending]"
            ),
        },
    )


def check_outputs(force: bool, /, *, file: Path | None = None, **outputs: Path | None) -> None:
    """Raise an error, before the work, if an output cannot be written, is another one or the input, or exists.

    `file` is the argument FILE, `outputs` are options. `force` lets files be replaced, except for the input. Devices
    and pipes are always written to.
    """
    seen = {} if file is None or str(file) == "-" else {file.resolve(): "FILE"}
    for name, path in outputs.items():
        if path is None:
            continue
        if not path.parent.is_dir():
            raise click.UsageError(f"there is no folder {str(path.parent)!r} to write {path.name} in")
        if (other := seen.setdefault(path.resolve(), f"--{name}")) != f"--{name}":
            raise InputError(f"{other} and --{name} are the same file, {path}: name another one")
        if path.is_file() and not force:
            raise InputError(f"{path} is there already: name another file, or replace it with --force")


def check_order(model: str, file: Path | str) -> None:
    """Raise an error if the command's second argument, the file, is given before the first, the model."""
    if not os.path.isfile(model) or model.endswith(".npy"):  # noqa: PTH113 - False for any text
        return
    if str(file) == "-":
        command = click.get_current_context().command_path
        raise click.UsageError(f"A model comes first, and {model} is a file: {command} MODEL {model}")
    if is_model(str(file)) or not (URL.match(str(file)) or os.path.exists(file)):  # noqa: PTH110 - False for any text
        context = click.get_current_context()
        first, second = (argument.human_readable_name for argument in context.command.params[:2])
        words = shlex.join([*context.command_path.split(), str(file), model])
        raise click.UsageError(f"{first} comes before {second}: {words}")


def check_model_name(name: str) -> None:
    """Raise an error if a name that names no model is a text, and not the misspelt name of a folder."""
    if " " in name.strip() and not re.search(r"[:?/\\]", name) and not did_you_mean(name, CONFIG):
        raise click.UsageError(f"A model comes first, and {shorten(name)} is a text: see the usage above.")


def command_line(*leave_out: str) -> str:
    """Return the line that runs the current command again, without these parameters."""
    context = click.get_current_context()
    words = context.command_path.split()
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) != ParameterSource.COMMANDLINE or name in leave_out:
            continue
        value = context.params[name]
        if isinstance(value, bool):
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
            continue
        option = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
        for item in value if isinstance(value, tuple) else (value,):
            words += [*option, str(item)]
    return shlex.join(words)


@dataclass(frozen=True)
class EngineChoice:
    """The engine that the options of a command name."""

    engine_name: str
    address: str | None = None
    resources: tuple[str, ...] = ()
    train_workers: int = 1

    def __post_init__(self) -> None:
        given = {"address": self.address is not None, "resources": bool(self.resources)}
        for name, is_given in (given | {"train-workers": self.train_workers > 1}).items():
            if self.engine_name == "local" and is_given:
                raise click.UsageError(f"--{name} is for --engine ray.")

    @property
    def is_local(self) -> bool:
        """Whether the command runs in this process."""
        return self.engine_name == "local"

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """Open the engine; a cluster that it started is stopped at the end, any other is left running."""
        if self.engine_name == "local":
            yield Local()
            return
        from ensembed.engines.ray.cluster_resources import parse_resources
        from ensembed.engines.ray.ray_engine import Ray

        # Ray's core warns of restarted actors on every run of Ray Data; failures are raised as our own errors.
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        engine = Ray(self.address, resources=parse_resources(self.resources), train_workers=self.train_workers)
        # Ray prints what it says about lost workers to standard output, which is for the result.
        with redirect_stdout(sys.stderr), engine:
            yield engine


_ENGINE: dict[str, Decorator] = {
    "engine_name": click.option(
        "--engine",
        "engine_name",
        type=click.Choice(["local", "ray"]),
        default="local",
        help="Where it runs: on this machine, or on a Ray cluster (pip install 'ensembed[ray]').",
    ),
    "address": click.option(
        "--address",
        metavar="ADDRESS",
        help="The cluster: `auto` or HOST:PORT. [default: RAY_ADDRESS, or one on this machine while it is needed]",
    ),
    "resources": click.option(
        "--resources",
        multiple=True,
        metavar="[NAME:]KEY=VALUE,…",
        help="What an encoder's actors get, as in minilm:num_cpus=2,actors=2-8,shards=4 or "
        "st:BAAI/bge-base-en-v1.5:num_gpus=1,batch_size=64; without a name, what all others get.",
    ),
}
_train_workers = click.option(
    "--train-workers",
    type=POSITIVE,
    default=1,
    help="Processes that train an autoencoder or a student together, with --engine ray.",
)
engine_options = Gathered("engine", EngineChoice, _ENGINE)
"""`--engine`, `--address` and `--resources`, which a command receives as one `engine`."""
training_engine_options = Gathered("engine", EngineChoice, _ENGINE | {"train_workers": _train_workers})
"""The same with `--train-workers`, for commands that may train."""


def print_stages(stages: Sequence[Stage]) -> None:
    """Print the time of each stage and the memory of its largest worker to standard error."""
    rows = []
    for stage in stages:
        figures = [f"{stage.seconds:.1f} s", f"{stage.rate:,.0f}", str(stage.workers)]
        rows.append([stage.name, str(stage.rows), *figures, human_bytes(stage.memory) if stage.memory else ""])
    click.echo(text_table(["stage", "rows", "time", "rows/s", "workers", "largest"], rows), err=True)


def stages_json(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """Return the stages as plain JSON."""
    return [
        {"stage": stage.name, "rows": stage.rows, "seconds": round(stage.seconds, 3)}
        | {"workers": stage.workers, "memory": stage.memory}
        for stage in stages
    ]
