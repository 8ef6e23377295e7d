"""A laboratory of three quick members, two small corpora and small data sets."""

from __future__ import annotations

from pathlib import Path

from invented_sts import CORPUS, MEMBERS, WORDS, dataset

from ensembed import Ensemble, ListCorpus, ViewStore
from ensembed.paper.findings import DEV
from ensembed.paper.laboratory import Laboratory
from ensembed.paper.notebook import Notebook
from ensembed.support.progress import Progress, silent

OTHER = ListCorpus([f"{a} {b} or {c}" for a in WORDS for b in WORDS[2:] for c in WORDS[:3]])
CORPORA = {"main": CORPUS, "other": OTHER}
DATASETS = [
    dataset("sts13", ("FNWN", "OnWN", "headlines"), ("SMT",)),
    dataset("stsb-test", ("stsb-test",)),
    dataset(DEV, (DEV,)),
]


def small_laboratory(
    folder: Path, *, members: list[str] | None = None, progress: Progress = silent, fresh: bool = False
) -> Laboratory:
    return Laboratory.prepare(
        Ensemble(members or MEMBERS),
        CORPORA,
        DATASETS,
        store=ViewStore(folder / "views"),
        notebook=Notebook(folder / "notebook", fresh),
        progress=progress,
    )
