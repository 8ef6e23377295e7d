"""`ensembed dedupe`: near-duplicates of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ensembed.cli.completion import MODEL
from ensembed.cli.console import print_json, print_sentence
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
from ensembed.corpora.record_files import new_text_file
from ensembed.search.groups import FALSE_PAIRS, find_duplicates, write_groups, write_kept


@click.command()
@click.argument("model", type=MODEL)
@click.argument("corpus", metavar="FILE", type=INPUT)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    help="Cosine from which two sentences are duplicates. [default: that of near-identical texts]",
)
@click.option(
    "--false-pairs",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=FALSE_PAIRS,
    help="Unrelated neighbours per sentence above which pairs are named as candidates, when no threshold is given.",
)
@click.option(
    "--keep", type=click.Choice(["first", "longest"]), default="first", help="Which sentence represents a group."
)
@click.option(
    "--kept",
    "kept_file",
    type=FILE,
    help="Write FILE without duplicates: one sentence of each group, all that have none, records without a text.",
)
@column_options
@out_options("Write every row of every group")
@force_option
@click.option(
    "--show", type=click.IntRange(min=0), default=10, help="Largest groups, and nearest candidates, to print."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the sample for the threshold.")
@how_options(["store", "wait", "errors", "threads", "moved", "trust", "quiet", "as_json"])
def dedupe(model: str, corpus: Path, columns: Columns, out: Out, how: How, **settings: Any) -> None:  # noqa: ANN401 - the options above
    """Find sentences of FILE that say the same.

    FILE is text (a sentence a line), CSV or TSV with a header, or JSON Lines, plain or gzipped; - is standard input.
    MODEL is a saved model's folder or an encoder's name. Every sentence of a group has at least the threshold's cosine
    with the sentence that represents it, and no two representatives have: groups do not chain. Rows are counted from 0,
    without blank texts.

    Nothing is dropped unless --kept names a file for what stays: whole records, with all their columns, as they are in
    FILE. Without --threshold, duplicates have at least the cosine that texts of FILE have with themselves after a slip
    (lower case, no punctuation, a missing letter). Pairs below that, which are nearer than unrelated sentences, are
    printed as candidates with their cosines, and stay: look at them to choose a --threshold. docs/guides/groups.md says
    more.

    \b
    Examples:
      ensembed dedupe my-model sentences.txt --kept unique.txt
      ensembed dedupe minilm sentences.txt.gz --threshold 0.9 --out groups.csv
      ensembed dedupe my-model articles.csv --text-column title --id-column number --kept unique.csv
      ensembed dedupe my-model sentences.txt --keep longest --out groups.jsonl --json
    """
    kept_file, show = settings.pop("kept_file"), settings.pop("show")
    check_order(model, corpus)
    check_outputs(settings.pop("force"), file=corpus, out=out.path, kept=kept_file)
    with how.progress() as progress, columns.corpus(corpus, how.errors) as sentences:
        encoder = how.open_model(model, progress)
        duplicates = find_duplicates(sentences, encoder, **settings, store=how.views, progress=progress)
        out.write(lambda file, form: write_groups(duplicates, file, form))
        if kept_file is not None:
            with new_text_file(kept_file) as file:
                write_kept(duplicates, file)
        facts = {"model": encoder.spec.name} | duplicates.to_json(show)
    files = {name: str(path) for name, path in (("out", out.path), ("kept_file", kept_file)) if path is not None}
    if how.as_json:
        print_json(facts | files)
        return
    _print(facts, dropped=kept_file is not None)
    if out.path is not None:
        click.echo(f"\n{out.path}: every row of every group")
    if kept_file is not None:
        click.echo(f"\n{kept_file}: the {facts['kept']} that stay")


def _print(facts: dict[str, Any], dropped: bool) -> None:
    how = ""
    if facts["near_identical"] is not None:
        unrelated = f"{facts['false_pairs']:g} unrelated neighbours a sentence from {facts['candidates_from']:.4f} on"
        how = f" (near-identical texts have {facts['near_identical']:.4f}; {unrelated})"
    click.echo(f"threshold {facts['threshold']:.4f}{how}")
    stay = "stay" if dropped else "would stay; nothing is dropped without --kept FILE"
    click.echo(
        f"{facts['rows']} sentences, {facts['repeats']} of them exact repeats; {facts['groups']} groups; "
        f"{facts['kept']} {stay}"
    )
    for group in facts["largest"]:
        click.echo(f"\ngroup {group['group']}: {group['size']} sentences")
        for row in group["rows"]:
            print_sentence(row)
        if group["size"] > len(group["rows"]):
            click.echo(f"  … and {group['size'] - len(group['rows'])} more")
    if facts["candidate_pairs"]:
        pairs = f"{facts['candidate_pairs']} pairs from {facts['candidates_from']:.4f} on, below the threshold"
        click.echo(f"\ncandidates, which stay: {pairs}; a lower --threshold takes them")
    for candidate in facts["candidates"]:
        for row in candidate["pair"]:
            print_sentence(row)
        click.echo()
