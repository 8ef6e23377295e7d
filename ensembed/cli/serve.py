"""`ensembed serve`: serve a model over HTTP."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import click

from ensembed.cli.completion import MODEL
from ensembed.cli.options import PATH, How, how_options
from ensembed.errors import InputError


@click.command()
@click.argument("model", type=MODEL)
@click.option("--index", "index_folder", type=PATH, help="The index that /search searches, made with MODEL.")
@click.option("--host", default="127.0.0.1", help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, help="0 takes a free one.")
@click.option("--name", help="The name of the model for clients. [default: its own name]")
@click.option("--alias", "aliases", multiple=True, metavar="NAME", help="Another name of the model; may be repeated.")
@click.option(
    "--keys",
    "keys_file",
    type=PATH,
    help="A file of API keys, one a line; the variable ENSEMBED_API_KEYS may have some, too. [default: none needed]",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name that clients may call the server by. [default: on 127.0.0.1 localhost only, elsewhere any]",
)
@click.option("--batch-texts", type=click.IntRange(1), default=64, help="Most texts in a batch.")
@click.option("--wait-ms", type=click.FloatRange(0), default=2.0, help="Wait this long for others to join.")
@click.option("--queue", "queue_texts", type=click.IntRange(1), default=4096, help="Most waiting texts.")
@click.option("--cache-mb", type=click.IntRange(0), default=64, help="Memory for recent vectors.")
@click.option("--max-body-mb", type=click.IntRange(1), default=4, help="Largest request.")
@click.option("--max-items", type=click.IntRange(1), default=2048, help="Most texts in a request.")
@click.option("--max-characters", type=click.IntRange(1), default=32768, help="Most characters in a text.")
@click.option("--timeout", "request_seconds", type=click.FloatRange(0.001), default=60.0, help="Seconds for a request.")
@click.option("--drain", "drain_seconds", type=click.FloatRange(0), default=0.0, help="Seconds to go on after SIGTERM.")
@click.option("--log-requests", is_flag=True, help="Log a line per request, without its texts.")
@how_options(["threads", "moved", "missing", "time_limit", "trust", "quiet"])
def serve(
    model: str,
    index_folder: Path | None,
    host: str,
    port: int,
    name: str | None,
    keys_file: Path | None,
    hosts: tuple[str, ...],
    max_body_mb: int,
    cache_mb: int,
    log_requests: bool,
    how: How,
    **settings: Any,  # noqa: ANN401 - as `Settings` calls them
) -> None:
    """Serve MODEL (a saved model's folder, an encoder's name) over HTTP.

    The page at / lets you try it, OpenAI's clients use /v1/embeddings, and /docs describes every endpoint. SIGTERM and
    Ctrl-C stop the server when it has finished the requests that it has accepted. See docs/guides/serve.md.

    \b
    Examples:
      ensembed serve my-model
      ensembed serve my-model --index my-index --port 9000
      ensembed serve my-model --missing drop --time-limit 2
      ensembed serve my-model --host 0.0.0.0 --keys keys.txt --name text-embedding-3-small
    """
    from ensembed.serve import Settings, create_app
    from ensembed.serve.access import read_keys
    from ensembed.serve.served_model import without_folders
    from ensembed.serve.uvicorn_server import LOOPBACK, address_of, is_loopback, listen, run

    keys, hosts = read_keys(keys_file), (*LOOPBACK, host, *hosts) if is_loopback(host) else hosts
    settings |= {"max_body_bytes": max_body_mb << 20, "cache_bytes": cache_mb << 20}
    limits = Settings(**settings, keys=keys, hosts=hosts)
    _log_to_stderr(requests=log_requests)
    with listen(host, port) as bound:
        if not is_loopback(host) and not keys:
            click.echo(f"warning: {host} is open to others, and no API key is needed: see --keys", err=True)
        with how.progress() as progress:
            encoder = how.open_model(model, progress)
        index = None
        if index_folder is not None:
            from ensembed.search import Index

            if not index_folder.is_dir():
                raise InputError(f"there is no index {str(index_folder)!r}: `ensembed index` makes one")
            index = Index.open(index_folder, encoder, source=model)
        place, mark, options = encoder.spec.name.partition("?")  # an option may be a path, too
        app = create_app(
            encoder, name=name or Path(place).name + without_folders(mark + options), index=index, settings=limits
        )
        line = f"serving {model} at {address_of(bound)}"
        answered = run(app, bound, limits, started=lambda: click.echo(line, err=True))
    click.echo(f"stopped after {answered} requests", err=True)


def _log_to_stderr(*, requests: bool) -> None:
    """Log what this package and uvicorn report."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name in ("ensembed.serve", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if requests and name == "ensembed.serve" else logging.WARNING)
