"""`ensembed push`: put a saved model on the Hugging Face hub."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from ensembed.cli.console import print_json
from ensembed.cli.options import PATH, json_option
from ensembed.errors import InputError
from ensembed.integrations.hub import push_to_hub
from ensembed.support.file_limits import read_json


@click.command()
@click.argument("model", type=PATH)
@click.argument("repo")
@click.option("--private", is_flag=True, help="Create a private repository.")
@click.option("--revision", metavar="BRANCH", help="The branch to commit to. [default: main]")
@click.option("--message", "commit_message", help="The message of the commit.")
@click.option("--scores", type=PATH, help="Scores for the card: a file with the output of `ensembed evaluate --json`.")
@click.option("--no-card", is_flag=True, help="Leave the README on the hub as it is.")
@click.option(
    "--allow-local-members", is_flag=True, help="Push even if members are files of this machine: others need their own."
)
@json_option
def push(model: Path, repo: str, scores: Path | None, as_json: bool, **settings: Any) -> None:  # noqa: ANN401 - the options
    """Put the saved model in the folder MODEL on the Hugging Face hub as REPO (org/name).

    It is one commit, with a card (README.md) that describes the model. The members are named, not uploaded. The token
    is that of `hf auth login` or HF_TOKEN. Commands open the model by the name hub:org/name, or hub:org/name@REVISION.

    \b
    Examples:
      ensembed push my-model me/my-model --private
      ensembed evaluate my-model minilm --json > scores.json
      ensembed push my-model me/my-model --scores scores.json
      ensembed similarity hub:me/my-model "A dog runs." "A puppy is running."
    """
    try:
        facts = None if scores is None else read_json(scores)
    except (OSError, ValueError) as error:
        raise InputError(f"the scores in {scores} cannot be read as JSON: {error}") from error
    pushed = push_to_hub(model, repo, card=not settings.pop("no_card"), scores=facts, **settings)
    if as_json:
        print_json(dataclasses.asdict(pushed))
    else:
        click.echo(f"{pushed.repo} is at revision {pushed.revision}: {pushed.url}")
