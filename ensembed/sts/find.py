"""Finding STS data sets on this machine."""

from __future__ import annotations

from pathlib import Path

from ensembed.encoders.catalog import require
from ensembed.paths import data_dir
from ensembed.sts.datasets import Dataset, load_sts, read_stsb

YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
TESTS = (*YEARS, "stsb-test")
"""The test sets of the paper's Table 2."""


def find_sts(name: str, folder: Path | None = None, layout: str | None = None) -> Dataset:
    """A data set from a folder (by default the data folder), or STS-B from its pulled archive.

    Raises:
        DatasetError: the data set is not there or damaged.
        MissingError: STS-B has to be pulled first.
    """
    if folder is None and layout is None and data_dir() is None and name.startswith("stsb-"):
        return read_stsb(require("stsb"), name.removeprefix("stsb-"))
    return load_sts(name, folder, layout)
