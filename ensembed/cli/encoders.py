"""`ensembed encoders`: what is known and what is here."""

from __future__ import annotations

import click

from ensembed.cli.console import human_bytes, print_json, print_table
from ensembed.cli.options import json_option
from ensembed.encoders.names_and_consent import describe_kinds
from ensembed.fetch.catalog import catalog, folder_of, is_pulled


@click.command()
@json_option
def encoders(as_json: bool) -> None:
    """List the encoders and data sets of the catalogue and which are here, and every kind of encoder.

    \b
    Examples:
      ensembed encoders
      ensembed encoders --json

    A kind is named by its scheme, as in onnx:models/bge. Options follow a question mark:
    minilm?max_length=64&normalize=true. Every encoder takes prefix=TEXT (put before each sentence), query_prefix and
    document_prefix (before queries and documents instead), long=chunk (read long texts whole), truncate_dim=N (the
    first N dimensions) and normalize=true. Installed packages can add kinds of their own.
    """
    entries, kinds = list(catalog().values()), describe_kinds()
    if as_json:
        facts = [
            {name: getattr(e, name) for name in ("name", "title", "kind", "dim")}
            | {"bytes": e.size, "licence": e.licence, "here": is_pulled(e), "folder": str(folder_of(e))}
            | {"sources": [source.label for source in e.package_sources]}
            for e in entries
        ]
        print_json({"catalogue": facts, "kinds": kinds})
        return
    here = {True: "yes", False: "no"}
    rows = [[e.name, here[is_pulled(e)], str(e.dim or "-"), human_bytes(e.size), e.licence, e.title] for e in entries]
    print_table(["name", "here", "dim", "size", "licence", "what"], rows, left=6)
    click.echo()
    print_table(["kind", "opens", "from"], [[f"{k['scheme']}:", k["opens"], k["from"]] for k in kinds], left=3)
