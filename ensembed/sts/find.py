"""Finding STS data sets on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from ensembed.encoders.catalog import entry, is_pulled, require
from ensembed.errors import AbsentDatasetError, DatasetError
from ensembed.paths import data_dir
from ensembed.sts.datasets import Dataset, load_sts, read_stsb
from ensembed.sts.protocol import Result

YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
TESTS = (*YEARS, "stsb-test")
"""The test sets of the paper's Table 2."""

_TEXTS = {
    "tsv": "raw",
    "raw": "raw",
    "tok": "tokenised and lower-cased (SentEval's)",
    "pairs": "as given",
}


def find_sts(name: str, folder: Path | None = None, layout: str | None = None) -> Dataset:
    """A data set from a folder (by default the data folder), or STS-B from its pulled archive.

    Raises:
        DatasetError: the data set is not there (an AbsentDatasetError), or damaged.
        MissingError: STS-B has to be pulled first.
    """
    may_be_pulled = name.startswith("stsb-") and folder is None and layout in (None, "raw")
    if may_be_pulled and data_dir() is None:
        return read_stsb(require("stsb"), name.removeprefix("stsb-"))
    try:
        return load_sts(name, folder, layout)
    except AbsentDatasetError:  # damaged data is no reason to score other data in silence
        if not (may_be_pulled and is_pulled(entry("stsb"))):
            raise
        return read_stsb(require("stsb"), name.removeprefix("stsb-"))


def find_available() -> list[Dataset]:
    """Every test set that is here, then STS-B dev; those that are not are named on standard error."""
    years = []
    if data_dir() is None:
        print("without sts12 to sts16: set ENSEMBED_DATA to a folder that has them, see the README", file=sys.stderr)
    for name in YEARS if data_dir() is not None else ():
        try:
            years.append(find_sts(name))
        except DatasetError as error:
            print(f"without {name}: {error}", file=sys.stderr)
    return [*years, find_sts("stsb-test"), find_sts("stsb-dev")]


def text_version(datasets: Iterable[Dataset | Result]) -> str:
    """What the text of these data sets looks like, for the foot of a table: it changes the scores."""
    return ", ".join(dict.fromkeys(_TEXTS[dataset.layout] for dataset in datasets))
