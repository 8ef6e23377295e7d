"""Questions of our own and the tables that answer them. Not in the wheel: run them from a clone.

    python -m experiments.demo              the paper's main table on three encoders (`make demo`)
    python -m experiments.ensembles_table   every ensemble of five encoders: results/ensembles.md
    python -m experiments.tuning_table      tuning on a few labelled pairs: results/tuning.md
    python -m experiments.words_table       word vectors under several poolings: results/words.md

They import the package; nothing in the package imports them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from ensembed.errors import EnsembedError
from ensembed.support.atomic_files import write_atomically


def write_results(out: Path, name: str, page: str, data: str) -> None:
    """Write `NAME.md` and `NAME.json` into a folder, and print their paths."""
    out.mkdir(exist_ok=True)
    paths = out / f"{name}.md", out / f"{name}.json"
    for path, text in zip(paths, (page, data), strict=True):
        write_atomically(path, text.encode())
    print(f"\nwritten: {paths[0]}, {paths[1]}")


def run(main: Callable[[], None]) -> None:
    """Run an experiment as a command: print warnings and errors as one line, and exit with status 1 after an error."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: what was encoded is kept, run the same command again to go on")
    except EnsembedError as error:
        sys.exit(f"error: {error}")
