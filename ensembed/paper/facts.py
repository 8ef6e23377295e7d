"""What a run was done with: members, corpora, data sets, settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ensembed.fetch.catalog import catalog
from ensembed.paper.findings import CorpusFacts, DatasetFacts, MemberFacts
from ensembed.paper.laboratory import Laboratory
from ensembed.sts.datasets import Dataset
from ensembed.sts.find import TESTS


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


def absent_tests(laboratory: Laboratory) -> tuple[str, ...]:
    """The test sets of the paper that are not there."""
    there = {dataset.name for dataset in laboratory.datasets}
    return tuple(name for name in TESTS if name not in there)


def shared_pairs(tests: Sequence[Dataset], dev: Dataset) -> dict[str, int]:
    """By test set, how many of its pairs are in STS-B dev, too: the Benchmark was drawn from earlier test sets."""
    chosen_on = _pairs(dev)
    return {test.name: len(_pairs(test) & chosen_on) for test in tests}


def _pairs(dataset: Dataset) -> set[frozenset[str]]:
    return {frozenset(pair) for part in dataset.parts for pair in zip(part.sentences1, part.sentences2, strict=True)}


def _licence(name: str) -> str:
    """Of the weights, as far as the catalogue knows it; options behind a name change nothing."""
    known = catalog().get(name.partition("?")[0])
    return known.licence if known else ""


def _plain(spec: dict[str, Any]) -> dict[str, Any]:
    """Without the name, which stands beside it."""
    return {key: value for key, value in spec.items() if key != "name"}
