"""Where data sets are on this machine, where they go, and how to put them there by hand."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ensembed.errors import AbsentDatasetError, DatasetError
from ensembed.fetch.catalog import entry, folder_of, is_pulled
from ensembed.sts.data.sources import DataSet
from ensembed.sts.datasets import PARTS, SPLITS, load_sts
from ensembed.support.machine import chosen_data_dir, data_dirs, fetched_dir


@dataclass(frozen=True)
class Place:
    """Where a data set was found.

    Attributes:
        kind: `data folder`, `fetched` (into the cache) or `pulled` (with the encoders).
        folder: the folder that `load_sts` reads it from, or that has the corpus.
        problem: why it cannot be used, if so.
    """

    kind: str
    folder: Path
    problem: str | None = None


def target_folder() -> Path:
    """Where data is fetched to unless told otherwise: `ENSEMBED_DATA`, or else `data` in the cache."""
    return chosen_data_dir() or fetched_dir()


def find(data_set: DataSet) -> Place | None:
    """Where commands would read the data set from; None if it is nowhere."""
    for folder in data_dirs():
        kind = "fetched" if folder == fetched_dir() else "data folder"
        try:
            if is_in(data_set, folder):
                return Place(kind, folder)
        except DatasetError as error:
            return Place(kind, folder, str(error))
    if data_set.catalogue and is_pulled(entry(data_set.catalogue)):
        return Place("pulled", folder_of(entry(data_set.catalogue)))
    return None


def is_in(data_set: DataSet, folder: Path) -> bool:
    """Whether the whole data set can be read from a data folder, in whichever layout.

    Raises:
        DatasetError: some of it is there, but damaged or not complete.
    """
    if data_set.is_corpus:
        return all((folder / data_set.folder / name).is_file() for name in data_set.files)
    names = [data_set.name] if data_set.name in PARTS else list(SPLITS)
    absent = []
    for name in names:
        try:
            load_sts(name, folder)
        except AbsentDatasetError as error:
            absent.append(error)
    if absent and len(absent) < len(names):
        raise DatasetError(str(absent[0])) from absent[0]
    return not absent


def by_hand(data_set: DataSet, folder: Path) -> str:
    """What to get from where and which files to put in place, for those who cannot fetch it here."""
    archive = PurePosixPath(data_set.urls[0]).name
    lines = [f"To put {data_set.name} in place by hand, get {archive} on a machine with a network, from one of"]
    lines += [f"  {url}" for url in data_set.urls]
    place = (folder / data_set.folder).absolute()
    if data_set.is_corpus:
        ((name, file),) = data_set.files.items()
        lines += [
            f"and keep the lines of its member that have fewer than {data_set.tokens_below} tokens:",
            f"  mkdir -p {shlex.quote(str(place))}",
            f"  tar -xOzf {archive} {file.member} |",
            f"    awk 'NF && NF < {data_set.tokens_below}' | gzip -n > {shlex.quote(str(place / name))}",
        ]
    else:
        lines += ["and copy these files out of it:"]
        width = max(len(file.member) for file in data_set.files.values())
        lines += [f"  {file.member:<{width}}  ->  {place / name}" for name, file in data_set.files.items()]
    return "\n".join(lines)
