"""`ensembed dedupe`: near-duplicates of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

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
from ensembed.corpus import BadBytes
from ensembed.dedupe import FALSE_PAIRS, Duplicates, Keep, find_duplicates, write_groups, write_kept
from ensembed.errors import InputError
from ensembed.records import FORMS, form_of, new_file
from ensembed.views import ViewStore

# Rows of a group that are shown.
_ROWS = 5


@click.command()
@click.argument("model")
@click.argument("corpus", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    help="From which cosine on two sentences are duplicates. [default: found without labels]",
)
@click.option(
    "--false-pairs",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=FALSE_PAIRS,
    show_default=True,
    help="Unrelated sentences per sentence that the threshold is found for.",
)
@click.option(
    "--keep",
    type=click.Choice(["first", "longest"]),
    default="first",
    show_default=True,
    help="Which sentence stands for a group.",
)
@click.option(
    "--kept",
    "kept_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the deduplicated text: one sentence of each group, and all that have no duplicate.",
)
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every row of every group (.csv, .jsonl).",
)
@click.option("--format", "form", type=click.Choice(FORMS), help="Of --out. [default: by its ending]")
@click.option("--show", type=click.IntRange(min=0), default=10, show_default=True, help="Largest groups to print.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the sample that the threshold is found on.")
@options(store_option, wait_option, errors_option, threads_option, trust_option, quiet_option, json_option)
def dedupe(
    model: str,
    corpus: Path,
    threshold: float | None,
    false_pairs: float,
    keep: Keep,
    kept_file: Path | None,
    out: Path | None,
    form: str | None,
    show: int,
    seed: int,
    store: Path | None,
    wait: float,
    errors: BadBytes,
    threads: int | None,
    trust: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Find sentences of FILE that say the same.

    FILE is plain or gzipped text, a sentence a line, or - for standard input; MODEL is a saved model's folder or an
    encoder's name. Every sentence of a group has at least the threshold's cosine with the one that stands for it, and
    no two that stand for groups have: groups do not chain. Rows are counted from 0, without blank lines. Without
    --threshold it is found from the cosines of unrelated sentences, without labels; docs/groups.md says how.

    \b
    Examples:
      ensembed dedupe my-model sentences.txt --kept unique.txt
      ensembed dedupe minilm sentences.txt.gz --threshold 0.9 --out groups.csv
      ensembed dedupe my-model sentences.txt --keep longest --out groups.jsonl --json
    """
    written = form_of(out, form) if out is not None else ""  # better now than when all is done
    _check_apart(corpus, out, kept_file)
    with progress_bars(quiet) as progress, open_corpus(corpus, errors) as sentences:
        encoder = open_model(model, threads, progress, trust=trust)
        found = find_duplicates(
            sentences,
            encoder,
            threshold=threshold,
            false_pairs=false_pairs,
            keep=keep,
            seed=seed,
            store=ViewStore(store, wait=wait),
            progress=progress,
        )
        if out is not None:
            with new_file(out) as file:
                write_groups(found, file, written)
        if kept_file is not None:
            with new_file(kept_file) as file:
                write_kept(found, file)
        facts = _facts(found, encoder.spec.name, show)
    files = {name: str(path) for name, path in (("out", out), ("kept_file", kept_file)) if path is not None}
    if as_json:
        print_json(facts | files)
        return
    _print(facts)
    if out is not None:
        click.echo(f"\n{out}: every row of every group")
    if kept_file is not None:
        click.echo(f"\n{kept_file}: the {facts['kept']} that stay")


def _check_apart(corpus: Path, *results: Path | None) -> None:
    """No result may take the place of the corpus or of another result."""
    given = [path.resolve() for path in (corpus, *results) if path is not None and str(path) != "-"]
    if len(set(given)) < len(given):
        raise InputError("FILE, --out and --kept must be different files")


def _facts(found: Duplicates, model: str, show: int) -> dict[str, Any]:
    largest = sorted(range(len(found.groups)), key=lambda number: -len(found.groups[number]))[:show]
    shown = {number: found.groups[number][:_ROWS] for number in largest}
    texts = dict(found.sentences(np.concatenate(list(shown.values())))) if shown else {}
    threshold = found.threshold
    return {
        "model": model,
        "rows": len(found),
        "repeats": found.repeats,
        "groups": len(found.groups),
        "kept": int(found.is_kept.sum()),
        "keep": found.keep,
        "threshold": round(threshold.value, 6),
        "false_pairs": threshold.false_pairs,
        "levels": [
            {"cosine": round(cosine, 4), "unrelated": unrelated, "found": round(there, 6)}
            for cosine, unrelated, there in threshold.levels
        ],
        "largest": [
            {
                "group": number,
                "size": len(found.groups[number]),
                "rows": [
                    {"row": int(row), "cosine": round(float(found.cosine[row]), 6), "text": texts[int(row)]}
                    for row in rows
                ],
            }
            for number, rows in shown.items()
        ],
    }


def _print(facts: dict[str, Any]) -> None:
    how = "" if facts["false_pairs"] is None else f" (for {facts['false_pairs']:g} unrelated neighbours a sentence)"
    click.echo(f"threshold {facts['threshold']:.4f}{how}")
    click.echo(
        f"{facts['rows']} sentences, {facts['repeats']} of them exact repeats; {facts['groups']} groups; "
        f"{facts['kept']} stay"
    )
    for group in facts["largest"]:
        click.echo(f"\ngroup {group['group']}: {group['size']} sentences")
        for row in group["rows"]:
            click.echo(f"  {row['cosine']:.4f}  {row['row']:>8}  {row['text'][:90]}")
        if group["size"] > len(group["rows"]):
            click.echo(f"  … and {group['size'] - len(group['rows'])} more")
