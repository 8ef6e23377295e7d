"""`ensembed embed`: fill the view cache."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from ensembed.cli.console import print_json, print_table
from ensembed.cli.options import (
    EngineChoice,
    How,
    corpus_argument,
    engine_options,
    how_options,
    members_options,
    print_stages,
    stages_json,
)
from ensembed.encoders import open_encoder
from ensembed.views import ViewStore


@click.command()
@corpus_argument
@members_options
@click.option("--shard-rows", type=click.IntRange(min=1), default=4096, help="Rows per shard.")
@click.option("--verify", is_flag=True, help="Check every byte first and encode damaged shards again.")
@engine_options
@how_options(["store", "wait", "errors", "column", "file_format", "threads", "quiet", "as_json"])
def embed(
    corpus: Path | str, encoders: tuple[str, ...], shard_rows: int, verify: bool, engine: EngineChoice, how: How
) -> None:
    """Encode CORPUS with each encoder and keep the vectors.

    CORPUS is text (a sentence a line), CSV or TSV with a header, JSON Lines, plain or gzipped, or Parquet; - is
    standard input. It may be a folder or a pattern ('news/*.parquet'), whose files are read in the order of their
    names, and a URL of any protocol that fsspec knows (s3://bucket/news). Blank lines are left out and each distinct
    sentence is encoded once. The command can be interrupted at any time, even by kill -9: run it again and it goes on;
    at most one shard is lost.

    With --engine ray a cluster encodes. Either engine can finish what the other began. CORPUS and --store must be
    places that all machines of the cluster reach by the same name. What each stage took goes to standard error; with
    --json, an object holds the views and the stages.

    \b
    Examples:
      ensembed embed news.txt.gz -e minilm -e use-lite
      ensembed embed news.txt.gz -e minilm --verify
      ensembed embed 's3://bucket/news/*.parquet' --text-column text -e minilm
      ensembed embed news.txt.gz --ensemble default -e words:glove.6B.300d.txt
      ensembed embed /shared/news.txt -e minilm --store /shared/views --engine ray --address auto
      ensembed embed /shared/news.txt -e minilm -e wordllama --store /shared/views --engine ray \
        --address 10.0.0.1:6379 --resources num_cpus=1 --resources minilm:num_cpus=2,actors=2-8
    """
    views = ViewStore(how.store, shard_rows=shard_rows, wait=how.wait)
    with how.open_corpus(corpus) as source, how.progress() as progress:
        members = [open_encoder(name, threads=how.threads, progress=progress) for name in encoders]
        with engine.open() as runner:
            done = runner.embed_all(views, source, members, verify=verify, progress=progress)
            stages = runner.stages
        first_rows = source.index.first_rows
        distinct = int(np.count_nonzero(first_rows == np.arange(len(first_rows))))
    headers = ["encoder", "rows", "distinct", "dim", "folder"]
    rows = [[view.spec.name, len(view), distinct, view.spec.dim, str(view.folder)] for view in done]
    if how.as_json:
        facts = [dict(zip(headers, row, strict=True)) for row in rows]
        print_json(facts if engine.is_local else {"views": facts, "stages": stages_json(stages)})
        return
    print_table(headers, [[str(cell) for cell in row] for row in rows])
    if stages:
        print_stages(stages)
