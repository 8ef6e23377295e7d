"""`ensembed encode`: sentences to vectors."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from ensembed.cli.console import print_json
from ensembed.cli.options import FILE, How, how_options, read_batches
from ensembed.encoders import Encoder
from ensembed.errors import CorpusError, InputError
from ensembed.models.opening import open_model
from ensembed.support.atomic_files import write_rows
from ensembed.support.progress import bars


@click.command()
@click.argument("model", required=False)
@click.argument("file", required=False)
@click.option("--encoder", "-e", "name", metavar="NAME", help="An encoder's name, instead of MODEL.")
@click.option("--out", "-o", type=FILE, help="Write a float32 .npy file, a row per line.")
@how_options("errors", "threads", "trust", "quiet", "as_json")
def encode(model: str | None, file: str | None, name: str | None, out: Path | None, how: How) -> None:
    """Turn the lines of a file into vectors.

    FILE is plain or gzipped text, by default standard input; MODEL is a saved model's folder or an encoder's name
    (`ensembed encoders` lists them), which can be given with -e as well. Every line gives one row, a blank one too.
    Standard output shows the beginning of each vector; --json prints one object per line with the complete vector.

    \b
    Examples:
      echo "A dog runs." | ensembed encode my-model --json
      ensembed encode my-model sentences.txt --out vectors.npy
      ensembed encode -e "st:BAAI/bge-small-en-v1.5?device=cuda" sentences.txt --out vectors.npy
    """
    if name is not None:
        if file is not None:
            raise click.UsageError(f"-e {name} stands for MODEL: give one of them, and one FILE.")
        model, file = name, model
    if model is None:
        raise click.UsageError("Say what encodes: a MODEL, or an encoder with -e.")
    source = Path(file or "-")
    if str(source) != "-" and not source.exists():  # better now than when the model is open
        raise CorpusError(f"there is no file {str(source)!r}")
    with bars(enabled=False if how.quiet else None) as progress:
        encoder = open_model(model, threads=how.threads, progress=progress, trust=how.trust)
    if out is not None:
        facts = {"file": str(out), "rows": _write(encoder, source, out, how), "dim": encoder.spec.dim}
        if how.as_json:
            print_json(facts)
        else:
            click.echo(f"{facts['file']}: {facts['rows']} rows of {facts['dim']}")
        return
    if not how.as_json:
        click.echo(f"{'sentence':48}  {'length':>8}  vector [{encoder.spec.dim}]")
    for sentences in read_batches(source, how.errors):
        for sentence, vector in zip(sentences, encoder.encode(sentences), strict=True):
            if how.as_json:
                print_json({"sentence": sentence, "vector": vector.tolist()})
            else:  # in columns of fixed width, since the input may have no end
                start = " ".join(f"{x:+.4f}" for x in vector[:6])
                click.echo(f"{sentence[:48]:48}  {np.linalg.norm(vector):8.4f}  {start} …")


def _write(encoder: Encoder, file: Path, out: Path, how: How) -> int:
    try:
        with write_rows(out, encoder.spec.dim) as writer, bars(enabled=False if how.quiet else None) as progress:
            for sentences in read_batches(file, how.errors):
                writer.append(encoder.encode(sentences))
                progress("encode", writer.rows, None)
    except OSError as error:  # what goes wrong in reading and encoding has a name of its own
        raise InputError(f"{out} cannot be written: {error.strerror or error}; name another --out") from error
    return writer.rows
