"""`ensembed encoders`: what is known and what is here."""

from __future__ import annotations

import click

from ensembed.cli.common import human_bytes, json_option, print_json, print_table
from ensembed.encoders.catalog import catalog, folder_of, is_pulled


@click.command()
@json_option
def encoders(as_json: bool) -> None:
    """List the encoders and data sets of the catalogue, and which are here.

    \b
    Examples:
      ensembed encoders
      ensembed encoders --json

    Beside these there is `demo` (needs no file, for trying things out), with options as in demo?dim=16&seed=1. Options
    go behind a question mark: minilm?max_length=64&normalize=true.
    """
    entries = list(catalog().values())
    if as_json:
        print_json(
            [
                {
                    "name": entry.name,
                    "title": entry.title,
                    "kind": entry.kind,
                    "dim": entry.dim,
                    "bytes": entry.size,
                    "licence": entry.licence,
                    "here": is_pulled(entry),
                    "folder": str(folder_of(entry)),
                    "sources": [source.label for source in entry.sources],
                }
                for entry in entries
            ]
        )
        return
    rows = [
        [
            entry.name,
            "yes" if is_pulled(entry) else "no",
            str(entry.dim or "-"),
            human_bytes(entry.size),
            entry.licence,
            entry.title,
        ]
        for entry in entries
    ]
    print_table(["name", "here", "dim", "size", "licence", "what"], rows, left=6)
