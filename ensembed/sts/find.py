"""Finding STS data sets on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from ensembed.errors import AbsentDatasetError
from ensembed.fetch.catalog import entry, is_pulled, require
from ensembed.sts.datasets import SPLITS, Dataset, load_sts, read_stsb
from ensembed.sts.protocol import Result
from ensembed.support.machine import data_dirs

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
    """A data set from a folder (by default the first data folder that has it), or STS-B from its pulled archive.

    Raises:
        DatasetError: the data set is not there (an AbsentDatasetError), or damaged.
        MissingError: STS-B has to be pulled first.
    """
    if folder is not None:
        return load_sts(name, folder, layout)
    absent = []
    places: list[Path | None] = [*data_dirs()] or [None]  # without any, `load_sts` says how to name one
    for place in places:
        try:
            return load_sts(name, place, layout)
        except AbsentDatasetError as error:  # damaged data is no reason to score other data in silence
            absent.append(error)
    may_be_pulled = name in SPLITS and layout in (None, "raw")
    if may_be_pulled and (not data_dirs() or is_pulled(entry("stsb"))):
        return read_stsb(require("stsb"), SPLITS[name])
    source = "stsb" if name in SPLITS else name
    raise AbsentDatasetError(f"{absent[0]}; or fetch it with: ensembed data fetch {source}") from absent[0]


def find_available(folder: Path | None = None, layout: str | None = None) -> list[Dataset]:
    """Every test set that is here, then STS-B dev; those that are not are named on standard error.

    Args:
        folder: where to look; None for the data folders.
        layout: the version of the text; None takes the first that is there.
    """
    years = []
    nowhere = folder is None and not data_dirs()
    if nowhere:
        print(
            "without sts12 to sts16: set ENSEMBED_DATA to a folder that has them, or fetch them with: "
            f"ensembed data fetch {' '.join(YEARS)}",
            file=sys.stderr,
        )
    for name in () if nowhere else YEARS:
        try:
            years.append(find_sts(name, folder, layout))
        except AbsentDatasetError as error:  # what is damaged is not left out in silence
            print(f"without {name}: {error}", file=sys.stderr)
    return [*years, *(find_sts(name, folder, layout) for name in ("stsb-test", "stsb-dev"))]


def text_version(datasets: Iterable[Dataset | Result]) -> str:
    """What the text of these data sets looks like, for the foot of a table: it changes the scores."""
    return ", ".join(dict.fromkeys(_TEXTS[dataset.layout] for dataset in datasets))
