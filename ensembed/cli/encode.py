"""`ensembed encode`: sentences to vectors."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click
import numpy as np

from ensembed.cli.completion import ENCODER, MODEL
from ensembed.cli.console import STDIN, print_json
from ensembed.cli.options import (
    FILE,
    Columns,
    How,
    check_model_name,
    check_order,
    check_outputs,
    force_option,
    how_options,
    shown_name,
)
from ensembed.corpora.corpus import FileKind, Lines, file_kind
from ensembed.encoders import Encoder
from ensembed.errors import CorpusError, DiskFullError, InputError, UnknownEncoderError
from ensembed.models.opening import HUB, open_model
from ensembed.models.saved_model import is_model
from ensembed.support.atomic_files import write_rows
from ensembed.support.progress import bars
from ensembed.support.text_tables import printable
from ensembed.support.vector_files import write_vectors

_BATCH = 1024
_ENDINGS = (".npy", ".csv", ".tsv", ".jsonl", ".parquet", ".safetensors")


@click.command()
@click.argument("model", required=False, type=MODEL)
@click.argument("file", required=False, type=click.Path())
@click.option(
    "--encoder",
    "-e",
    "names",
    multiple=True,
    metavar="NAME|OLD=NEW",
    type=ENCODER,
    help="An encoder's name, instead of MODEL; or, for a saved MODEL, a member that has moved and its new name.",
)
@click.option(
    "--out", "-o", type=FILE, help=f"Write the vectors to a file, in the format of its ending: {', '.join(_ENDINGS)}."
)
@force_option
@how_options(["errors", "column", "file_format", "threads", "trust", "quiet", "as_json"])
def encode(
    model: str | None, file: str | None, names: tuple[str, ...], out: Path | None, force: bool, how: How
) -> None:
    """Turn the lines of a file into vectors.

    FILE is text (a sentence a line), CSV or TSV with a header, or JSON Lines, plain or gzipped, by default standard
    input; MODEL is a saved model's folder or an encoder's name (`ensembed encoders` lists them), which can be given
    with -e as well. "my-model?truncate_dim=256" keeps the 256 leading dimensions of a saved model, in every command
    that takes one; the quotes are for the shell. Every line, or record, gives one row, a blank one too. Standard output
    shows the beginning of each vector; --json prints one object per line with the complete vector.

    A .npy or .safetensors file (the tensor `vectors`) has the float32 vectors; a .csv or .tsv file has a column
    `sentence` and one for every dimension; a .jsonl or .parquet file has `sentence` and `vector`.

    \b
    Examples:
      echo "A dog runs." | ensembed encode my-model --json
      ensembed encode my-model sentences.txt --out vectors.npy
      ensembed encode "my-model?truncate_dim=256" sentences.txt --out short.npy
      ensembed encode my-model articles.csv --text-column title --out vectors.parquet
      ensembed encode -e "st:BAAI/bge-small-en-v1.5?device=cuda" sentences.txt --out vectors.npy
      ensembed encode my-model sentences.txt -e words:glove.txt=words:/data/glove.txt --out vectors.npy
    """
    moved: tuple[str, ...] = ()
    if names and model is not None and (is_model(model) or model.startswith(HUB)):
        moved = names
    elif names:
        if file is not None or len(names) > 1:
            raise click.UsageError(f"-e {names[0]} stands for MODEL: give one of them, and one FILE.")
        model, file = names[0], model
    if model is None:
        raise click.UsageError("Say what encodes: a MODEL, or an encoder with -e.")
    path = Path(file or "-")
    if os.path.isfile(model):  # noqa: PTH113 - False for any text
        check_order(model, path)
    # Better now than when the model is open.
    if str(path) != "-" and not os.path.exists(path):  # noqa: PTH110 - False for any text
        text, words = shlex.quote(str(path)), shlex.join(["ensembed", "encode", model])
        echo = f"to encode a text, write echo {text} | {words}" if " " in text or not path.suffix else None
        raise CorpusError(f"there is no file {str(path)!r}; {echo or 'give one with a sentence a line'}")
    if path.is_dir():
        raise CorpusError(f"{str(path)!r} is a folder, not a file: name one with a sentence a line")
    ending = ".npy" if out is None or (out.exists() and not out.is_file()) else out.suffix.lower()
    if ending not in _ENDINGS:
        raise InputError(f"{out} ends in none of {', '.join(_ENDINGS)}, which say how to write it: rename it")
    if out is not None and not (out.parent.is_dir() and not out.exists()):
        check_outputs(force, file=path, out=out)
    with bars(enabled=False if how.quiet else None) as progress:
        try:
            encoder = open_model(model, encoders=moved, threads=how.threads, progress=progress, trust=how.trust)
        except UnknownEncoderError:
            check_model_name(model)
            raise
    shown = shown_name(path) if str(path) == "-" else str(path)
    # A pipe can be opened only once.
    source = sys.stdin.buffer if shown == STDIN else path if path.is_file() else path.open("rb")
    kind = how.file_format or file_kind(source, shown, how.column)
    is_text = kind == "text" and how.column is None
    sentences = iter(Lines(source, shown, how.errors)) if is_text else _texts_of_records(source, shown, kind, how)
    batches = iter(lambda: list(itertools.islice(sentences, _BATCH)), [])
    dim = encoder.spec.dim
    if out is not None:
        rows = 0
        try:
            with (
                write_rows(out, dim) if ending == ".npy" else write_vectors(out, dim) as writer,
                bars(enabled=False if how.quiet else None) as progress,
            ):
                for batch in batches:
                    writer.append(encoder.encode(batch), batch)
                    rows += len(batch)
                    progress("encode", rows, None)
        except OSError as error:  # what goes wrong in reading and encoding has a name of its own
            raise _output_error(out, error) from error
        if how.as_json:
            print_json({"file": str(out), "rows": rows, "dim": dim})
        else:
            click.echo(f"{out}: {rows} rows of {dim}")
        return
    _print(encoder, batches, how.as_json)


def _output_error(out: Path, error: OSError) -> InputError:
    if isinstance(error, DiskFullError):  # it names the file
        return InputError(f"{error}, or name another --out")
    return InputError(f"{out} cannot be written: {error.strerror or error}; name another --out")


def _texts_of_records(source: Path | BinaryIO, shown: str, kind: FileKind, how: How) -> Iterator[str]:
    columns = Columns(None if kind == "parquet" else kind, how.column, None)
    return (record.text for record in columns.file(source, shown, how.errors))


def _print(encoder: Encoder, batches: Iterator[list[str]], as_json: bool) -> None:
    screen = shutil.get_terminal_size().columns if sys.stdout.isatty() else 144
    wide = max(min(48, screen // 3), 10)
    numbers = max(min(6, (screen - wide - 14) // 8), 1)
    header = f"{'sentence':{wide}}  {'length':>8}  vector [{encoder.spec.dim}]"
    for number, batch in enumerate(batches):
        vectors = encoder.encode(batch)
        if not (as_json or number):  # not before an error in the first lines
            click.echo(header)
        for sentence, vector in zip(batch, vectors, strict=True):
            if as_json:
                print_json({"sentence": sentence, "vector": vector.tolist()})
            else:  # in columns of fixed width, since the input may have no end
                start = " ".join(f"{x:+.4f}" for x in vector[:numbers])
                click.echo(f"{printable(sentence[:wide])[:wide]:{wide}}  {np.linalg.norm(vector):8.4f}  {start} …")
