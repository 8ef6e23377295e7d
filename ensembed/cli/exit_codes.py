"""Exit codes of the command line, and what a person reads when a command fails.

0 done; 1 the input or the data is wrong; 2 the command line is wrong; 3 something must be pulled or installed first;
130 interrupted, and nothing that was finished is lost; 141 nobody reads the output any more.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import click

from ensembed.errors import AbsentCorpusError, EnsembedError, MissingError

FAILED, MISSING, INTERRUPTED, UNREAD = 1, 3, 130, 141
_KEPT = ": finished work is kept (of vectors, whole shards); run the same command to continue"
# A shell ends the command at an &, and runs what follows it as another one.
_NAMES_IN_QUOTES = 'Put names with ? or & in quotes: -e "st:intfloat/e5-small-v2?prefix=query: &device=cpu"'
_QUOTES = "Put quotes around what has spaces or * in it, and no space between names: -e minilm,wordllama"
_NO_TEXT = "Give a text file with a sentence a line"
_DEMO = "or see what combining encoders gives, without text: ensembed demo"  # what only `fit` is run for
_NO_FOLDER = "Name a new folder for the result: --out my-model"
_CUT = 'The name of a model takes it, in quotes: "my-model?truncate_dim=256"'
_MODEL = "Models are arguments, not options, or encoders with -e: see the usage above"
_FILE = "Files are arguments, not options: see the usage above"
_INSTEAD = {  # of options that newcomers try and a command does not have
    **dict.fromkeys(("--truncate-dim", "--dim", "--dimensions", "--truncate"), _CUT),
    **dict.fromkeys(("--model", "--model-name", "--model-name-or-path", "--models"), _MODEL),
    **dict.fromkeys(("--file", "--input", "--corpus", "--texts", "--sentences"), _FILE),
    "--device": 'The name of an encoder takes it, in quotes: "st:NAME?device=cuda"',
    "--prompt": 'The name of an encoder takes it, in quotes: "NAME?prefix=query: "',
    "--normalize": 'The name of an encoder takes it, in quotes: "NAME?normalize=true"; scale those of a model yourself',
    "--batch-size": 'Only models of sentence-transformers take it, in their names: "st:NAME?batch_size=8"',
}


def exit_code(problem: BaseException, words: Sequence[str], output: TextIO, *, resumable: bool) -> int:
    """Print the error that a command ended with, and return the exit code; raise what is a fault of our own.

    Args:
        problem: what the command raised.
        words: its command line.
        output: the standard output that it began with.
        resumable: whether the same command, typed again, goes on where it was interrupted.
    """
    is_fit = words[:1] == ["fit"]
    try:
        raise problem
    except SystemExit as end:
        # click replaces sys.stdout when its reader has gone, and rich raises this; both would end with 1.
        unread = sys.stdout is not output or isinstance(end.__context__, BrokenPipeError)
        return UNREAD if unread else int(end.code or 0)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # for the flush when Python ends
        return UNREAD
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        if "unexpected extra argument" in error.format_message():
            click.echo(_QUOTES, err=True)
        if isinstance(error, click.MissingParameter) and any("?" in word for word in words):
            click.echo(_NAMES_IN_QUOTES, err=True)
        elif isinstance(error, click.MissingParameter) and error.param is not None and error.param.name == "corpus":
            click.echo(f"{_NO_TEXT}, {_DEMO}" if is_fit else _NO_TEXT, err=True)
        elif (
            isinstance(error, click.BadParameter)
            and error.param is not None
            and error.param.name == "out"
            and not getattr(error.param.type, "file_okay", True)
        ):
            click.echo(_NO_FOLDER, err=True)
        if isinstance(error, click.NoSuchOption):
            name = error.option_name.replace("_", "-").removesuffix("-embeddings")
            if instead := _INSTEAD.get(name):
                click.echo(f"{instead}.", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"interrupted{_KEPT if resumable else ''}", err=True)
        return INTERRUPTED
    except EnsembedError as error:
        _print_error(f"{error}, {_DEMO}" if is_fit and isinstance(error, AbsentCorpusError) else error)
        return MISSING if isinstance(error, MissingError) else FAILED
    except OSError as error:  # for example a folder without permission to write
        from ensembed.support.atomic_files import disk_error  # not needed by help and completion

        if isinstance(error.filename, str):
            _print_error(disk_error(error, Path(error.filename)))
        else:
            full = "; free space on the disk that it is written to" if error.errno == errno.ENOSPC else ""
            _print_error(f"output cannot be written: {error}{full}")
        return FAILED
    return 0


def _print_error(error: Exception | str) -> None:
    """Print an error; what it quotes from a file cannot move the cursor."""
    from ensembed.support.text_tables import printable  # not needed by help and completion

    click.echo("error: " + "\n".join(map(printable, str(error).split("\n"))), err=True)
