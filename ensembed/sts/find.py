"""Find STS data sets and the paper's corpus on this machine, and fetch those that are not here."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ensembed.errors import AbsentDatasetError, DatasetError, PullError
from ensembed.fetch.catalog import DataSet, entry, folder_of, is_pulled, require
from ensembed.fetch.fetcher import Fetched, by_hand, fetch_data_set
from ensembed.sts.datasets import PARTS, SPLITS, Dataset, load_sts, read_stsb
from ensembed.sts.protocol import Result
from ensembed.support.atomic_files import alone
from ensembed.support.machine import chosen_data_dir, data_dirs, fetched_dir
from ensembed.support.progress import Progress, silent

YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
TESTS = (*YEARS, "stsb-test")
"""The test sets of the paper's Table 2."""

_TEXTS = {"tsv": "raw", "raw": "raw", "tok": "tokenised and lower-cased (SentEval's)", "pairs": "as given"}


def find_sts(name: str, folder: Path | None = None, layout: str | None = None) -> Dataset:
    """Return a data set from a folder (by default the first data folder that has it), or STS-B where it was pulled.

    Raises:
        DatasetError: the data set is damaged, or not there (an AbsentDatasetError).
        MissingError: STS-B has to be pulled first.
    """
    if folder is not None:
        return load_sts(name, folder, layout)
    absent = []
    places: list[Path | None] = [*data_dirs()] or [None]  # without any, `load_sts` says how to name one
    for place in places:
        try:
            return load_sts(name, place, layout)
        except AbsentDatasetError as error:  # damaged data is no reason to silently score other data
            absent.append(error)
    may_be_pulled = name in SPLITS and layout in (None, "raw")
    if may_be_pulled and (not data_dirs() or is_pulled(entry("stsb"))):
        return read_stsb(require("stsb"), SPLITS[name])
    source = "stsb" if name in SPLITS else name
    raise AbsentDatasetError(f"{absent[0]}; or fetch it with: ensembed data fetch {source}") from absent[0]


def find_available(folder: Path | None = None, layout: str | None = None) -> list[Dataset]:
    """Return every test set that is here, then STS-B dev; a RuntimeWarning names each that is missing."""
    years = []
    nowhere = folder is None and not data_dirs()
    if nowhere:
        way = f"set ENSEMBED_DATA to a folder that has them, or fetch them with: ensembed data fetch {' '.join(YEARS)}"
        warnings.warn(f"without sts12 to sts16: {way}", RuntimeWarning, stacklevel=2)
    for name in () if nowhere else YEARS:
        try:
            years.append(find_sts(name, folder, layout))
        except AbsentDatasetError as error:  # damaged data is not left out silently
            warnings.warn(f"without {name}: {error}", RuntimeWarning, stacklevel=2)
    return [*years, *(find_sts(name, folder, layout) for name in ("stsb-test", "stsb-dev"))]


def text_version(datasets: Iterable[Dataset | Result]) -> str:
    """Return what the text of these data sets looks like, for the foot of a table: it changes the scores."""
    return ", ".join(dict.fromkeys(_TEXTS[dataset.layout] for dataset in datasets))


@dataclass(frozen=True)
class Place:
    """Where a data set is: in a `data folder`, `fetched` into the cache, or `pulled`; and why it cannot be used."""

    kind: str
    folder: Path
    problem: str | None = None


def locate(data_set: DataSet) -> Place | None:
    """Return where commands read the data set from; None if it is nowhere."""
    for folder in data_dirs():
        kind = "fetched" if folder == fetched_dir() else "data folder"
        try:
            if _is_in(data_set, folder):
                return Place(kind, folder)
        except DatasetError as error:
            return Place(kind, folder, str(error))
    if data_set.package_sources and is_pulled(data_set):
        return Place("pulled", folder_of(data_set))
    return None


def target_folder() -> Path:
    """Return where data is fetched to by default: `ENSEMBED_DATA`, or else `data` in the cache."""
    return chosen_data_dir() or fetched_dir()


def fetch_data(
    data_set: DataSet,
    folder: Path | None = None,
    *,
    force: bool = False,
    keep: bool = False,
    progress: Progress = silent,
) -> Fetched:
    """Put a data set into a data folder, in SentEval's layout, which `load_sts` reads.

    A data set that the folder has already, in whichever layout, is left alone unless `force` is set. Processes that
    fetch into one folder wait for each other. A DatasetError says how to put the files there by hand.
    """
    name = data_set.name
    root = target_folder() if folder is None else folder
    if not force and _is_whole_in(data_set, root):  # without a lock: the folder may be read-only
        return Fetched(name, root, None)
    try:
        with alone(root / ".fetch.lock", "fetch into the same folder", progress):
            if not force and _is_whole_in(data_set, root):  # another process fetched it while we waited
                return Fetched(name, root, None)
            source = fetch_data_set(data_set, root, keep=keep, progress=progress)
    except PullError as error:
        reasons = textwrap.indent(str(error), "  ")
        raise DatasetError(f"{name} could not be fetched:\n{reasons}\n{by_hand(data_set, root)}") from error
    except OSError as error:
        ways = f"name another folder (folder=…, --data), or unset ENSEMBED_DATA to fetch into {fetched_dir()}"
        raise DatasetError(
            f"{name} cannot be written to {root}: {error}; make room or set its rights, {ways}"
        ) from error
    place = root / data_set.folder
    try:
        _is_in(data_set, root)
    except DatasetError as error:
        what = f"{root} holds another copy that is read first, and damaged: {error}; remove that one"
        raise DatasetError(f"{name} was fetched to {place}, but {what}") from error
    return Fetched(name, place, source)


def _is_in(data_set: DataSet, folder: Path) -> bool:
    """Return whether a data folder has the whole data set, in whichever layout; DatasetError if it is damaged."""
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


def _is_whole_in(data_set: DataSet, folder: Path) -> bool:
    try:
        return _is_in(data_set, folder)
    except DatasetError:  # damaged or not complete: fetched files replace it
        return False
