"""The STS sets and the paper's corpus for everyone: what they are, where they are, and how they get here."""

from __future__ import annotations

from ensembed.sts.data.fetch import Fetched, fetch
from ensembed.sts.data.places import Place, by_hand, find, target_folder
from ensembed.sts.data.sources import DataFile, DataSet, data_set, data_sets

__all__ = [
    "DataFile",
    "DataSet",
    "Fetched",
    "Place",
    "by_hand",
    "data_set",
    "data_sets",
    "fetch",
    "find",
    "target_folder",
]
