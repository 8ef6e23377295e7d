"""`ensembed cluster`: what a file is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ensembed.cli.common import (
    errors_option,
    json_option,
    open_corpus,
    open_model,
    options,
    print_json,
    progress_bars,
    quiet_option,
    store_option,
    threads_option,
    trust_option,
    wait_option,
)
from ensembed.cluster import Clusters, Method, find_clusters
from ensembed.cluster.clusters import FIELDS
from ensembed.corpus import BadBytes
from ensembed.errors import InputError
from ensembed.records import FORMS, form_of, new_file, write_records
from ensembed.views import ViewStore


@click.command()
@click.argument("model")
@click.argument("corpus", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--clusters", "-k", type=click.IntRange(min=1), help="How many. [default: by the silhouette, 2 to 64]")
@click.option(
    "--method",
    type=click.Choice(["kmeans", "hdbscan"]),
    default="kmeans",
    show_default=True,
    help="hdbscan finds the number itself and leaves sentences out, for at most 20,000.",
)
@click.option(
    "--least",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    help="Smallest cluster of hdbscan, in sentences.",
)
@click.option(
    "--sentences",
    "shown",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Sentences to say what it is.",
)
@click.option("--words", type=click.IntRange(min=0), default=8, show_default=True, help="Words to say what it is.")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the cluster of every sentence (.csv, .jsonl).",
)
@click.option("--format", "form", type=click.Choice(FORMS), help="Of --out. [default: by its ending]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all that is drawn by lot.")
@options(store_option, wait_option, errors_option, threads_option, trust_option, quiet_option, json_option)
def cluster(
    model: str,
    corpus: Path,
    clusters: int | None,
    method: Method,
    least: int,
    shown: int,
    words: int,
    out: Path | None,
    form: str | None,
    seed: int,
    store: Path | None,
    wait: float,
    errors: BadBytes,
    threads: int | None,
    trust: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Find out what the sentences of FILE are about.

    FILE is plain or gzipped text, a sentence a line, or - for standard input; MODEL is a saved model's folder or an
    encoder's name. Each cluster is shown by the sentences nearest to its centre and by the words that tell it from the
    others. Rows are counted from 0, without blank lines. Needs: pip install 'ensembed[cluster]'.

    \b
    Examples:
      ensembed cluster my-model sentences.txt
      ensembed cluster my-model sentences.txt -k 20 --out clusters.csv
      ensembed cluster minilm sentences.txt --method hdbscan --least 10 --json
    """
    written = form_of(out, form) if out is not None else ""  # better now than when all is done
    if out is not None and str(corpus) != "-" and out.resolve() == corpus.resolve():
        raise InputError("--out must be another file than FILE")
    with progress_bars(quiet) as progress, open_corpus(corpus, errors) as sentences:
        encoder = open_model(model, threads, progress, trust=trust)
        found = find_clusters(
            sentences,
            encoder,
            clusters=clusters,
            method=method,
            least=least,
            representatives=shown,
            words=words,
            seed=seed,
            store=ViewStore(store, wait=wait),
            progress=progress,
        )
        if out is not None:
            with new_file(out) as file:
                write_records(found.records(), FIELDS, file, written)
    facts = _facts(found, encoder.spec.name)
    if as_json:
        print_json(facts | ({"out": str(out)} if out is not None else {}))
        return
    _print(facts)
    if out is not None:
        click.echo(f"\n{out}: the cluster of every sentence")


def _facts(found: Clusters, model: str) -> dict[str, Any]:
    return {
        "model": model,
        "rows": len(found.labels),
        "method": found.method,
        "seed": found.seed,
        "left_out": int((found.labels < 0).sum()),
        "silhouettes": {str(k): round(value, 6) for k, value in found.silhouettes.items()},
        "clusters": [
            {
                "cluster": one.number,
                "size": one.size,
                "words": list(one.words),
                "sentences": [{"row": row, "cosine": cosine, "text": text} for row, cosine, text in one.sentences],
            }
            for one in found.clusters
        ],
    }


def _print(facts: dict[str, Any]) -> None:
    tried = facts["silhouettes"]
    how = f", of {', '.join(tried)} by the silhouette" if tried else ""
    rest = f"; {facts['left_out']} sentences belong to none" if facts["left_out"] else ""
    click.echo(f"{facts['rows']} sentences in {len(facts['clusters'])} clusters ({facts['method']}{how}){rest}")
    for one in facts["clusters"]:
        words = f": {', '.join(one['words'])}" if one["words"] else ""
        click.echo(f"\ncluster {one['cluster']}, {one['size']} sentences{words}")
        for sentence in one["sentences"]:
            click.echo(f"  {sentence['cosine']:.4f}  {sentence['row']:>8}  {sentence['text'][:90]}")
