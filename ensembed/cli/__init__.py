"""The command line. One file per command, no logic in it.

Exit codes: 0 done; 1 the input or the data is at fault; 2 the command line is; 3 something has to be pulled or
installed first; 130 interrupted, and nothing that was finished is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from ensembed import __version__
from ensembed.cli.compare import compare
from ensembed.cli.data import data
from ensembed.cli.embed import embed
from ensembed.cli.encode import encode
from ensembed.cli.encoders import encoders
from ensembed.cli.evaluate import evaluate
from ensembed.cli.fit import fit
from ensembed.cli.pull import pull
from ensembed.cli.reliability import reliability
from ensembed.cli.reproduce import reproduce
from ensembed.cli.similarity import similarity
from ensembed.errors import EnsembedError, MissingError

FAILED, MISSING, INTERRUPTED = 1, 3, 130
_RESUMABLE = ("pull", "data", "compare", "reliability", "embed", "fit", "reproduce")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="ensembed")
def cli() -> None:
    """One better sentence embedding out of the encoders you already have, without labels.

    \b
    Example, from nothing to a scored model:
      ensembed pull minilm use-lite wordllama stsb
      ensembed fit corpus.txt -e minilm -e use-lite -e wordllama --method gcca --out my-model
      ensembed similarity my-model "A dog runs." "A puppy is running." "Stocks fell."
      ensembed evaluate my-model minilm --sts stsb-dev

    Exit codes: 0 done, 1 bad input or data, 2 bad command line, 3 something must be pulled or installed first,
    130 interrupted.
    """


for command in (encoders, pull, data, compare, reliability, embed, fit, encode, similarity, evaluate, reproduce):
    cli.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    try:
        cli.main(list(arguments), prog_name="ensembed", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        kept = ": what was finished is kept, run the same command to go on" if arguments[0] in _RESUMABLE else ""
        click.echo(f"interrupted{kept}", err=True)
        return INTERRUPTED
    except EnsembedError as error:
        click.echo(f"error: {error}", err=True)
        return MISSING if isinstance(error, MissingError) else FAILED
    except OSError as error:  # a disk that is full, a folder that may not be written to: not a fault of the program
        click.echo(f"error: {error}", err=True)
        return FAILED
    return 0


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))
