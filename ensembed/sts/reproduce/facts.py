"""What a run was done with: members, corpora, data sets, settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ensembed.encoders.catalog import catalog
from ensembed.sts.reproduce.findings import CorpusFacts, DatasetFacts, MemberFacts
from ensembed.sts.reproduce.laboratory import Laboratory


def member_facts(laboratory: Laboratory) -> tuple[MemberFacts, ...]:
    """Of every encoder."""
    return tuple(
        MemberFacts(spec.name, spec.dim, _licence(spec.name), spec.key, _plain(spec.to_json()))
        for spec in (encoder.spec for encoder in laboratory.ensemble.encoders)
    )


def corpus_facts(laboratory: Laboratory, what: Sequence[str]) -> tuple[CorpusFacts, ...]:
    """Of every corpus; `what` says what they are, in their order."""
    return tuple(
        CorpusFacts(name, text, laboratory.sentences(name), laboratory.corpus_key(name))
        for name, text in zip(laboratory.corpora, what, strict=True)
    )


def dataset_facts(laboratory: Laboratory) -> tuple[DatasetFacts, ...]:
    """Of every data set."""
    return tuple(
        DatasetFacts(one.name, one.layout, one.fingerprint, {part.name: len(part) for part in one.parts}, one.missing)
        for one in laboratory.datasets
    )


def _licence(name: str) -> str:
    """Of the weights, as far as the catalogue knows it; options behind a name change nothing."""
    known = catalog().get(name.partition("?")[0])
    return known.licence if known else ""


def _plain(spec: dict[str, Any]) -> dict[str, Any]:
    """Without the name, which stands beside it and may be a path of somebody's machine."""
    return {key: value for key, value in spec.items() if key != "name"}
