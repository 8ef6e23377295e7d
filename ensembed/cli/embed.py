"""`ensembed embed`: fill the view cache."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from ensembed.cli.common import (
    corpus_argument,
    encoder_option,
    errors_option,
    json_option,
    open_corpus,
    options,
    print_json,
    print_table,
    progress_bars,
    quiet_option,
    store_option,
    threads_option,
    wait_option,
)
from ensembed.corpus import BadBytes
from ensembed.encoders import open_encoder
from ensembed.views import ViewStore


@click.command()
@options(corpus_argument, encoder_option, store_option)
@click.option("--shard-rows", type=click.IntRange(min=1), default=4096, show_default=True, help="Rows per shard.")
@click.option("--verify", is_flag=True, help="Check every byte first and encode damaged shards again.")
@options(wait_option, errors_option, threads_option, quiet_option, json_option)
def embed(
    corpus: Path,
    encoders: tuple[str, ...],
    store: Path | None,
    shard_rows: int,
    verify: bool,
    wait: float,
    errors: BadBytes,
    threads: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Let encoders read CORPUS and keep their views of it.

    CORPUS is a text file, plain or gzipped, one sentence a line; - is standard input. Blank lines are left out and each
    distinct sentence is encoded once. The command can be interrupted at any time, even by kill -9: run it again and
    it goes on, at most one shard behind.

    \b
    Examples:
      ensembed embed news.txt.gz -e minilm -e use-lite
      ensembed embed news.txt.gz -e minilm --verify
      ensembed embed news.txt.gz --ensemble default -e words:glove.6B.300d.txt
    """
    views = ViewStore(store, shard_rows=shard_rows, wait=wait)
    with open_corpus(corpus, errors) as source, progress_bars(quiet) as progress:
        members = [open_encoder(name, threads=threads, progress=progress) for name in encoders]
        done = views.embed_all(source, members, verify=verify, progress=progress)
        first_rows = source.index.first_rows
        distinct = int(np.count_nonzero(first_rows == np.arange(len(first_rows))))
    if as_json:
        print_json(
            [
                {
                    "encoder": view.spec.name,
                    "rows": len(view),
                    "distinct": distinct,
                    "dim": view.spec.dim,
                    "folder": str(view.folder),
                }
                for view in done
            ]
        )
        return
    rows = [[view.spec.name, str(len(view)), str(distinct), str(view.spec.dim), str(view.folder)] for view in done]
    print_table(["encoder", "rows", "distinct", "dim", "folder"], rows)
