"""`ensembed push`: a saved model to the Hugging Face hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ensembed.cli.console import print_json
from ensembed.cli.options import PATH, json_option
from ensembed.errors import InputError
from ensembed.integrations.hub import push_to_hub


@click.command()
@click.argument("model", type=PATH)
@click.argument("repo")
@click.option("--private", is_flag=True, help="Make it so that only its owners see it.")
@click.option("--revision", metavar="BRANCH", help="The branch to commit to. [default: main]")
@click.option("--message", help="What the commit says of itself.")
@click.option("--scores", type=PATH, help="For the card: what `ensembed evaluate --json` prints, as a file.")
@click.option("--no-card", is_flag=True, help="Leave the README on the hub alone.")
@click.option(
    "--allow-local-members",
    is_flag=True,
    help="Push although members are files of this machine: others need their own.",
)
@json_option
def push(
    model: Path,
    repo: str,
    private: bool,
    revision: str | None,
    message: str | None,
    scores: Path | None,
    no_card: bool,
    allow_local_members: bool,
    as_json: bool,
) -> None:
    """Put the saved model in the folder MODEL on the Hugging Face hub as REPO (org/name).

    In one commit, with a card (README.md) that says what the model is made of. The members are named, not uploaded. The
    token is that of `hf auth login` or HF_TOKEN. Commands open the model by the name hub:org/name, or
    hub:org/name@REVISION.

    \b
    Examples:
      ensembed push my-model me/my-model --private
      ensembed evaluate my-model minilm --json > scores.json
      ensembed push my-model me/my-model --scores scores.json
      ensembed similarity hub:me/my-model "A dog runs." "A puppy is running."
    """
    pushed = push_to_hub(
        model,
        repo,
        private=private,
        revision=revision,
        commit_message=message,
        card=not no_card,
        scores=None if scores is None else _read(scores),
        allow_local_members=allow_local_members,
    )
    if as_json:
        print_json({"repo": pushed.repo, "revision": pushed.revision, "url": pushed.url})
    else:
        click.echo(f"{pushed.repo} is at revision {pushed.revision}: {pushed.url}")


def _read(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds; the card says what it wants
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"the scores in {path} cannot be read as JSON: {error}") from error
