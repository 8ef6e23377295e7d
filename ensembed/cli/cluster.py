"""`ensembed cluster`: what a file is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ensembed.cli.completion import MODEL
from ensembed.cli.console import print_json, print_sentence

# The same names as in `dedupe`: both read FILE, open MODEL and write records.
from ensembed.cli.options import (
    FILE,
    INPUT,
    Columns,
    How,
    Out,
    check_order,
    check_outputs,
    column_options,
    force_option,
    how_options,
    out_options,
)
from ensembed.corpora.record_files import write_records
from ensembed.search.groups import cluster_page, find_clusters
from ensembed.support.atomic_files import write_output


@click.command()
@click.argument("model", type=MODEL)
@click.argument("corpus", metavar="FILE", type=INPUT)
@click.option("--clusters", "-k", type=click.IntRange(min=1), help="How many. [default: by the silhouette, 2 to 64]")
@click.option(
    "--method",
    type=click.Choice(["kmeans", "hdbscan"]),
    default="kmeans",
    help="hdbscan finds the number itself and leaves sentences out, for at most 20,000.",
)
@click.option("--least", type=click.IntRange(min=2), default=5, help="Smallest cluster of hdbscan, in sentences.")
@click.option(
    "--sentences", "representatives", type=click.IntRange(min=1), default=3, help="Sentences that describe it."
)
@click.option("--words", type=click.IntRange(min=0), default=8, help="Words that describe it.")
@column_options
@out_options("Write the cluster of every sentence")
@click.option("--html", "page", type=FILE, help="Write a page with a map, to browse the clusters (.html).")
@force_option
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of all random choices.")
@how_options(["store", "wait", "errors", "threads", "moved", "trust", "quiet", "as_json"])
def cluster(
    model: str,
    corpus: Path,
    columns: Columns,
    out: Out,
    page: Path | None,
    how: How,
    **settings: Any,  # noqa: ANN401 - the options above
) -> None:
    """Find out what the sentences of FILE are about.

    FILE is text (a sentence a line), CSV or TSV with a header, or JSON Lines, plain or gzipped; - is standard input.
    MODEL is a saved model's folder or an encoder's name. Each cluster is shown by the sentences nearest to its centre
    and by the words that tell it from the others. Rows are counted from 0, without blank texts. Needs: pip install
    'ensembed[cluster]'.

    \b
    Examples:
      ensembed cluster my-model sentences.txt
      ensembed cluster my-model sentences.txt -k 20 --out clusters.csv
      ensembed cluster my-model sentences.txt --html clusters.html
      ensembed cluster my-model articles.csv --text-column title --id-column number --out clusters.jsonl
      ensembed cluster minilm sentences.txt --method hdbscan --least 10 --json
    """
    check_order(model, corpus)
    check_outputs(settings.pop("force"), file=corpus, out=out.path, html=page)
    with how.progress() as progress, columns.corpus(corpus, how.errors) as sentences:
        encoder = how.open_model(model, progress)
        result = find_clusters(sentences, encoder, **settings, store=how.views, progress=progress)
        out.write(lambda file, form: write_records(result.records(), result.fields, file, form))
        if page is not None:
            written = cluster_page(result, encoder, title=corpus.name, store=how.views, progress=progress)
            write_output(page, written.encode())
    facts = {"model": encoder.spec.name} | result.to_json()
    if how.as_json:
        paths = {"out": out.path, "html": page}
        print_json(facts | {name: str(path) for name, path in paths.items() if path is not None})
        return
    _print(facts)
    if out.path is not None:
        click.echo(f"\n{out.path}: the cluster of every sentence")
    if page is not None:
        click.echo(f"\n{page}: the clusters to browse, with a map")


def _print(facts: dict[str, Any]) -> None:
    tried = f", of {', '.join(facts['silhouettes'])} by the silhouette" if facts["silhouettes"] else ""
    rest = f"; {facts['left_out']} sentences belong to none" if facts["left_out"] else ""
    click.echo(f"{facts['rows']} sentences in {len(facts['clusters'])} clusters ({facts['method']}{tried}){rest}")
    for cluster in facts["clusters"]:
        words = f": {', '.join(cluster['words'])}" if cluster["words"] else ""
        click.echo(f"\ncluster {cluster['cluster']}, {cluster['size']} sentences{words}")
        for sentence in cluster["sentences"]:
            print_sentence(sentence)
