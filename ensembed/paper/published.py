"""The printed figures of the paper this library follows, so that our tables can stand beside them.

Nina Poerner, Ulli Waltinger and Hinrich Schütze, "Sentence Meta-Embeddings for Unsupervised Semantic Textual
Similarity", ACL 2020. All figures are x 100, as printed, and none of them was computed by us except `mean_over`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeVar

from ensembed.errors import InputError

CITATION = (
    'Poerner, Waltinger and Schütze, "Sentence Meta-Embeddings for Unsupervised Semantic Textual Similarity", ACL 2020'
)

T = TypeVar("T")


@dataclass(frozen=True)
class Printed:
    """Pearson's r and Spearman's rho x 100 as printed; None where the paper has a dash."""

    pearson: float | None
    spearman: float | None


@dataclass(frozen=True)
class Row:
    """One row of Table 2.

    Attributes:
        key: `single:USE`, `meta:gcca`, or `literature:` and the paper's BibTeX key.
        label: for people to read.
        kind: `single`, `meta`, or for the literature what the paper says in brackets, such as `supervised SoTA`.
        dim: the length of a vector; None where the paper gives none.
        note: the paper's footnote, or nothing.
        figures: by data set, `sts12` to `sts16` and `stsb` (the test split).
    """

    key: str
    label: str
    kind: str
    dim: int | None
    note: str
    figures: Mapping[str, Printed]


def table2() -> tuple[Row, ...]:
    """Table 2: STS12-16 (mean over sub-testsets) and the STS Benchmark's test split."""
    return tuple(
        Row(key, row["label"], row["kind"], row["dim"], row["note"], _printed(row["figures"]))
        for key, row in _data()["table2"].items()
    )


def appendix(method: str, dataset: str) -> Mapping[str, Printed]:
    """The appendix: a method's figures on every sub-testset of a year.

    Args:
        method: `ParaNMT`, `SBERT`, `USE`, `conc`, `avg`, `svd`, `gcca` or `ae`.
        dataset: `sts12` to `sts16`.
    """
    years: dict[str, dict[str, dict[str, list[float]]]] = _data()["appendix"]
    parts = _pick(years, dataset, "data set in the paper's appendix")
    return _printed({part: _pick(row, method, "method in the paper's appendix") for part, row in parts.items()})


def mean_over(method: str, dataset: str, parts: Sequence[str]) -> Printed:
    """The unweighted mean of the appendix' figures over some sub-testsets of a year.

    Table 2 has STS13 with its licensed part SMT: what was evaluated without it can only be compared with this.
    """
    if not parts:
        raise InputError(f"no sub-testset of {dataset} was named, so there is no mean")
    known = appendix(method, dataset)
    rows = [_pick(known, part, f"sub-testset of {dataset}") for part in parts]
    return Printed(*(_mean([getattr(row, metric) for row in rows]) for metric in ("pearson", "spearman")))


def table1_gcca() -> Mapping[str, Printed]:
    """Table 1, below: GCCA on the STS Benchmark's dev split, by tau (`0.01` to `100`)."""
    return _printed(_data()["table1_gcca_tau"])


def table1_autoencoder() -> Mapping[str, Mapping[str, Printed]]:
    """Table 1, above: the autoencoder on the dev split, by hidden layers (`0` to `2`) and loss (`mse`, `mae`, ...)."""
    return MappingProxyType({layers: _printed(row) for layers, row in _data()["table1_autoencoder"].items()})


def table3() -> Mapping[str, Mapping[str, Printed]]:
    """Table 3: `svd`, `gcca` and `ae` on the dev split, `full` and `without USE` and so on."""
    return MappingProxyType({method: _printed(row) for method, row in _data()["table3"].items()})


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files("ensembed.paper").joinpath("published.json").read_text("utf-8"))
    return data


def _printed(figures: Mapping[str, Sequence[float | None]]) -> Mapping[str, Printed]:
    return MappingProxyType({key: Printed(*figure) for key, figure in figures.items()})


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _pick(table: Mapping[str, T], key: str, what: str) -> T:
    if key not in table:
        raise InputError(f"there is no {what} called {key!r}; choose one of {', '.join(table)}")
    return table[key]
