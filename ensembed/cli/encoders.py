"""`ensembed encoders`: what is known and what is here."""

from __future__ import annotations

import click

from ensembed.cli.console import human_bytes, print_json, print_table
from ensembed.cli.options import json_option
from ensembed.encoders.names import describe_kinds
from ensembed.fetch.catalog import catalog, folder_of, is_pulled


@click.command()
@json_option
def encoders(as_json: bool) -> None:
    """List the encoders and data sets of the catalogue and which are here, and every kind of encoder.

    \b
    Examples:
      ensembed encoders
      ensembed encoders --json

    A kind is named by its scheme, as in onnx:models/bge. Options go behind a question mark:
    minilm?max_length=64&normalize=true. Every encoder takes prefix=TEXT (put before each sentence), truncate_dim=N (the
    first N dimensions) and normalize=true. Installed packages can add kinds of their own.
    """
    entries = list(catalog().values())
    kinds = describe_kinds()
    if as_json:
        print_json(
            {
                "catalogue": [
                    {
                        "name": entry.name,
                        "title": entry.title,
                        "kind": entry.kind,
                        "dim": entry.dim,
                        "bytes": entry.size,
                        "licence": entry.licence,
                        "here": is_pulled(entry),
                        "folder": str(folder_of(entry)),
                        "sources": [source.label for source in entry.package_sources],
                    }
                    for entry in entries
                ],
                "kinds": kinds,
            }
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
    click.echo()
    print_table(["kind", "opens", "from"], [[f"{k['scheme']}:", k["opens"], k["from"]] for k in kinds], left=3)
