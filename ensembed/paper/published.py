"""The printed figures of the paper that this library follows (`CITATION`), x 100, for our tables to quote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeVar

from ensembed.errors import InputError

T = TypeVar("T")

_DATA: dict[str, Any] = json.loads(files("ensembed.paper").joinpath("published.json").read_text("utf-8"))
CITATION: str = _DATA["citation"]


@dataclass(frozen=True)
class Printed:
    """Pearson's r and Spearman's rho x 100 as printed; None where the paper has a dash."""

    pearson: float | None
    spearman: float | None


@dataclass(frozen=True)
class Row:
    """One row of Table 2."""

    key: str  # `single:USE`, `meta:gcca`, or `literature:` and the paper's BibTeX key
    label: str
    kind: str  # `single`, `meta`, or for the literature what the paper says in brackets: `supervised SoTA`
    dim: int | None  # None where the paper gives none
    note: str  # the paper's footnote
    source: str  # where a figure of the literature comes from
    figures: Mapping[str, Printed]  # by data set, `sts12` to `sts16` and `stsb` (the test split)

    @property
    def is_literature(self) -> bool:
        """Whether the paper quotes this row from another paper."""
        return self.key.startswith("literature:")

    @property
    def method(self) -> str:
        """The name of the row in the paper's appendix, if it is there."""
        return self.key.partition(":")[2]


def table2() -> tuple[Row, ...]:
    """Table 2: STS12-16 (mean over sub-testsets) and the STS Benchmark's test split."""
    return tuple(
        Row(key, row["label"], row["kind"], row["dim"], row["note"], row.get("source", ""), _printed(row["figures"]))
        for key, row in _DATA["table2"].items()
    )


def appendix(method: str, dataset: str) -> Mapping[str, Printed]:
    """The appendix: the figures of a method (`ParaNMT`, `USE`, `gcca`, ...) on every sub-testset of a year."""
    years: dict[str, dict[str, dict[str, list[float]]]] = _DATA["appendix"]
    parts = _pick(years, dataset, "data set in the paper's appendix")
    return _printed({part: _pick(row, method, "method in the paper's appendix") for part, row in parts.items()})


def mean_over(method: str, dataset: str, parts: Sequence[str]) -> Printed:
    """Return the unweighted mean of the appendix' figures over some sub-testsets, such as STS13 without SMT."""
    if not parts:
        raise InputError(f"no sub-testset of {dataset} was named, so there is no mean")
    known = appendix(method, dataset)
    rows = [_pick(known, part, f"sub-testset of {dataset}") for part in parts]
    return Printed(*(sum(getattr(row, metric) for row in rows) / len(rows) for metric in ("pearson", "spearman")))


def table1_gcca() -> Mapping[str, Printed]:
    """Table 1, below: GCCA on the STS Benchmark's dev split, by tau (`0.01` to `100`)."""
    return _printed(_DATA["table1_gcca_tau"])


def table1_autoencoder() -> Mapping[str, Mapping[str, Printed]]:
    """Table 1, above: the autoencoder on the dev split, by hidden layers (`0` to `2`) and loss (`mse`, `mae`, ...)."""
    return MappingProxyType({layers: _printed(row) for layers, row in _DATA["table1_autoencoder"].items()})


def table3() -> Mapping[str, Mapping[str, Printed]]:
    """Table 3: `svd`, `gcca` and `ae` on the dev split, `full` and `without USE` and so on."""
    return MappingProxyType({method: _printed(row) for method, row in _DATA["table3"].items()})


def _printed(figures: Mapping[str, Sequence[float | None]]) -> Mapping[str, Printed]:
    return MappingProxyType({key: Printed(*figure) for key, figure in figures.items()})


def _pick(table: Mapping[str, T], key: str, what: str) -> T:
    if key not in table:
        raise InputError(f"there is no {what} called {key!r}; choose one of {', '.join(table)}")
    return table[key]
