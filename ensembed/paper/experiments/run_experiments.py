"""Run everything that the paper reports, and more, on one laboratory: from views to findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ensembed.errors import InputError
from ensembed.fetch.catalog import catalog
from ensembed.methods import GCCA, SVD, Average, Concat, Method
from ensembed.methods.autoencoder.autoencoder_method import Loss
from ensembed.paper.experiments import dev_experiments
from ensembed.paper.experiments.bootstrap import resample
from ensembed.paper.experiments.cost_per_sentence import costs, measure
from ensembed.paper.experiments.dev_experiments import TAUS, DevExperiments, Training, best_tau, describe
from ensembed.paper.experiments.scored_systems import Scored, Scorer, changes, scatters
from ensembed.paper.findings import (
    BESIDE,
    DEV,
    MEAN,
    NO_CORPUS,
    AutoencoderPoint,
    Changes,
    CorpusFacts,
    Cost,
    DatasetFacts,
    Findings,
    Likeness,
    MemberFacts,
    System,
    TauPoint,
)
from ensembed.paper.laboratory import Laboratory
from ensembed.reliability.likeness import compare
from ensembed.sts.datasets import Dataset
from ensembed.sts.find import TESTS
from ensembed.sts.protocol import Protocol, score
from ensembed.support.provenance import provenance

_SCATTERED = "stsb-test"
_LEAST_SENTENCES = 100

# The best of the search on STS-B dev with minilm and use-m3, for runs that do not search.
AUTOENCODER: tuple[int, Loss] = (0, "kld")


@dataclass(frozen=True)
class Plan:
    """What a run does, apart from its members, corpora and data."""

    command: str  # the line that makes the run again, for the pages
    protocol: Protocol = "mean"
    training: Training | None = "reduced"  # how long autoencoders are trained; None leaves them out
    main_only: bool = False  # stop after the main table: no search over autoencoders, no ablation, no curves
    seeds: int = 10  # of the up-projections
    draws: int = 3  # samples of the corpus for each size
    resamples: int = 2000  # of the bootstrap
    texts: bool = True  # whether the findings hold the sentences of the pairs that changed most
    threads: int | None = None  # of the encoders, for the costs; None for all cores


@dataclass(frozen=True)
class _MainTable:
    """Tables 1 and 2, and what later experiments take from them."""

    taus: tuple[TauPoint, ...]
    autoencoders: tuple[AutoencoderPoint, ...]
    cell: tuple[int, Loss] | None  # the autoencoder's depth and loss
    methods: tuple[Method, ...]  # the paper's that learn: searches, ablations and curves are of these alone
    singles: tuple[Scored, ...]
    ups: tuple[System, ...]
    metas: tuple[Scored, ...]  # the paper's, then this library's own

    @property
    def best_member(self) -> Scored:
        return max(self.singles, key=lambda scored: scored.system.score(MEAN).pearson)

    @property
    def best_on_dev(self) -> Scored:
        return max(self.metas, key=lambda scored: scored.system.score(DEV).pearson)

    @property
    def systems(self) -> tuple[System, ...]:
        singles, metas = ([scored.system for scored in group] for group in (self.singles, self.metas))
        return (*singles, *self.ups, *metas)


def run_experiments(
    laboratory: Laboratory, plan: Plan, corpora: Sequence[str], beside: Laboratory | None = None
) -> Findings:
    """Run every experiment, or take its result from the notebook.

    The laboratory has at least two members, one corpus, STS-B dev and one test set; `corpora` describes the corpora.
    The encoders of the one beside it, which has the same data sets, are scored and timed, too.
    """
    dev, tests = _split(laboratory)
    main = _main_table(laboratory, plan, dev)
    resampled = resample(
        {
            scored.system.label: {name: scored.outcome.cosines(name) for name in scored.outcome.predictions}
            for scored in (*main.singles, *main.metas)
        },
        laboratory.datasets,
        plan.protocol,
        resamples=plan.resamples,
        progress=laboratory.progress,
    )
    metas, members = ([scored.system.label for scored in group] for group in (main.metas, main.singles))
    findings = Findings(
        command=plan.command,
        provenance=provenance(),
        settings=_settings(laboratory, plan, main),
        protocol=plan.protocol,
        members=member_facts(laboratory),
        corpora=corpus_facts(laboratory, corpora),
        datasets=dataset_facts(laboratory),
        absent=tuple(name for name in TESTS if name not in [dataset.name for dataset in laboratory.datasets]),
        shared_pairs={test.name: len(_pairs(test) & _pairs(dev)) for test in tests},
        taus=main.taus,
        autoencoders=main.autoencoders,
        systems=main.systems,
        intervals=tuple(
            resampled.interval(label, name) for label, by_set in resampled.scores.items() for name in by_set
        ),
        comparisons=resampled.comparisons(metas, members),
        spectrum=next((meta.outcome.spectrum or () for meta in main.metas if meta.system.label == "meta:gcca"), ()),
        changes=Changes(main.best_on_dev.system.label, main.best_member.system.label, (), ()),
    )
    if plan.main_only:
        return findings
    findings = _beyond(findings, laboratory, plan, main, dev, tests)
    return findings if beside is None else replace(findings, costs=(*findings.costs, *costs_beside(beside, plan)))


def costs_beside(laboratory: Laboratory, plan: Plan) -> tuple[Cost, ...]:
    """Return the costs of encoders that are no members."""
    times = measure(laboratory, (), (), NO_CORPUS, plan.threads)
    rows = costs(times, Scorer(laboratory, plan.protocol).singles(), (), (), laboratory.names)
    return tuple(replace(row, label=row.label.replace("single:", BESIDE, 1)) for row in rows)


def member_facts(laboratory: Laboratory) -> tuple[MemberFacts, ...]:
    """Describe every encoder."""
    facts = []
    for spec in (encoder.spec for encoder in laboratory.ensemble.encoders):
        entry = catalog().get(spec.name.partition("?")[0])  # options behind a name do not change the licence
        rest = {key: value for key, value in spec.to_json().items() if key != "name"}
        facts.append(MemberFacts(spec.name, spec.dim, entry.licence if entry else "", spec.key, rest))
    return tuple(facts)


def corpus_facts(laboratory: Laboratory, what: Sequence[str]) -> tuple[CorpusFacts, ...]:
    """Describe every corpus; `what` has the descriptions, in their order."""
    return tuple(
        CorpusFacts(name, text, laboratory.sentences(name), laboratory.corpus_key(name))
        for name, text in zip(laboratory.corpora, what, strict=True)
    )


def dataset_facts(laboratory: Laboratory) -> tuple[DatasetFacts, ...]:
    """Describe every data set."""
    sizes = [{part.name: len(part) for part in data.parts} for data in laboratory.datasets]
    return tuple(
        DatasetFacts(data.name, data.layout, data.fingerprint, parts, data.missing)
        for data, parts in zip(laboratory.datasets, sizes, strict=True)
    )


def _pairs(dataset: Dataset) -> set[frozenset[str]]:
    return {frozenset(pair) for part in dataset.parts for pair in zip(part.sentences1, part.sentences2, strict=True)}


def _split(laboratory: Laboratory) -> tuple[Dataset, list[Dataset]]:
    """Return STS-B dev and the test sets; refuse now what would fail after hours."""
    if len(laboratory.ensemble.encoders) < 2:
        raise InputError("the experiments need at least two members: a meta-embedding of one is that one")
    devs = [dataset for dataset in laboratory.datasets if dataset.name == DEV]
    tests = [dataset for dataset in laboratory.datasets if dataset.name != DEV]
    if not devs or not tests:
        names = ", ".join(dataset.name for dataset in laboratory.datasets)
        raise InputError(f"the experiments need {DEV}, on which all is chosen, and a test set; there are: {names}")
    for dataset in laboratory.datasets:
        score([part.scores for part in dataset.parts], dataset)  # is there a correlation with the gold scores at all?
    for name in laboratory.corpora:
        if (count := laboratory.sentences(name)) < _LEAST_SENTENCES:
            raise InputError(f"the corpus {name} has {count} sentences; at least {_LEAST_SENTENCES} are needed")
    for encoder, vectors in zip(laboratory.ensemble.encoders, laboratory.evaluation, strict=True):
        if (vectors == vectors[0]).all():
            raise InputError(f"member {encoder.spec.name!r} returns the same vector for every sentence: leave it out")
        if encoder.spec.name.endswith(" up") or " without " in encoder.spec.name:
            raise InputError(f"member {encoder.spec.name!r} has a name that tables give to something else: rename it")
    return devs[0], tests


def _main_table(laboratory: Laboratory, plan: Plan, dev: Dataset) -> _MainTable:
    corpus = next(iter(laboratory.corpora))
    on_dev = DevExperiments(laboratory, dev, corpus, plan.training or "reduced")
    taus = on_dev.taus()
    autoencoders = on_dev.autoencoders() if plan.training and not plan.main_only else ()
    cell = (dev_experiments.best_autoencoder(autoencoders) if autoencoders else AUTOENCODER) if plan.training else None
    chosen = _chosen(on_dev, best_tau(taus), cell, corpus if autoencoders else None)
    scorer = Scorer(laboratory, plan.protocol)
    singles, ups = tuple(scorer.singles()), tuple(scorer.up_projections(on_dev.dim, plan.seeds))
    learned = [scorer.meta(method, corpus, note) for method, note in chosen]
    metas = (scorer.meta(Concat()), scorer.meta(Average()), *learned, scorer.own(corpus))
    return _MainTable(taus, autoencoders, cell, tuple(method for method, _ in chosen), singles, ups, metas)


def _chosen(
    on_dev: DevExperiments, tau: float, cell: tuple[int, Loss] | None, searched_on: str | None
) -> list[tuple[Method, str]]:
    """Return the methods that learn, each with a note on how its hyper-parameters were chosen."""
    methods: list[tuple[Method, str]] = [
        (SVD(on_dev.dim), ""),
        (GCCA(on_dev.dim, tau), f"tau={tau:g}, the best of {', '.join(f'{value:g}' for value in TAUS)} on STS-B dev"),
    ]
    if cell is not None:
        method = on_dev.autoencoder(*cell)
        search = f"the search on {searched_on}" if searched_on else "a search with minilm and use-m3"
        training = describe(method, on_dev.laboratory.sentences(on_dev.corpus))
        methods.append((method, f"{training}; depth and loss are the best of {search}, by STS-B dev"))
    return methods


def _beyond(
    findings: Findings, laboratory: Laboratory, plan: Plan, main: _MainTable, dev: Dataset, tests: list[Dataset]
) -> Findings:
    """Add everything that comes after the main table."""
    corpus = next(iter(laboratory.corpora))
    on_dev = DevExperiments(laboratory, dev, corpus, plan.training or "reduced")
    ablations = on_dev.ablations(main.methods)
    times = measure(laboratory, main.metas, main.methods, corpus, plan.threads)
    cores = "all cores" if plan.threads is None else f"{plan.threads} threads per encoder"
    timed = f"{times.sentences} sentences in one call, the best of three, warm, {cores} of the machine named here"
    scattered = next((test for test in tests if test.name == _SCATTERED), tests[0])
    return replace(
        findings,
        ablations=tuple(ablations),
        dimensions=tuple(on_dev.dimensions(main.methods)),
        sizes=tuple(on_dev.sizes(main.methods, plan.draws)),
        domains=(*(scored.system for scored in main.metas), *_other_domains(laboratory, plan, main, dev)),
        settings=findings.settings | {"cost": timed},
        costs=costs(times, main.singles, main.metas, ablations, laboratory.names),
        likeness=_likeness(laboratory, corpus),
        scatters=scatters([main.best_member, *main.metas], scattered),
        changes=changes(main.best_on_dev, main.best_member, tests, texts=plan.texts),
    )


def _other_domains(laboratory: Laboratory, plan: Plan, main: _MainTable, dev: Dataset) -> list[System]:
    """Score the methods that learn on the other corpora; tau is chosen and own weights are estimated on each."""
    systems = []
    scorer = Scorer(laboratory, plan.protocol)
    first, *others = laboratory.corpora
    for corpus in others:
        on_dev = DevExperiments(laboratory, dev, corpus, plan.training or "reduced")
        chosen = _chosen(on_dev, best_tau(on_dev.taus()), main.cell, first if main.autoencoders else None)
        for done, (method, note) in enumerate(chosen, 1):
            systems.append(scorer.meta(method, corpus, note).system)
            laboratory.progress(f"domain {corpus}", done, 1 + len(chosen))
        systems.append(scorer.own(corpus).system)
        laboratory.progress(f"domain {corpus}", 1 + len(chosen), 1 + len(chosen))
    return systems


def _likeness(laboratory: Laboratory, corpus: str) -> Likeness:
    names = laboratory.names
    keys = [encoder.spec.key for encoder in laboratory.ensemble.encoders]

    def compute() -> Likeness:
        comparison = compare(laboratory.corpora[corpus], names=names, progress=laboratory.progress)
        measures = {
            "linear CKA": comparison.cka,
            "correlation of cosines": comparison.cosines,
            f"overlap of {comparison.neighbours} nearest neighbours": comparison.overlap,
        }
        return Likeness(tuple(names), {name: tuple(map(tuple, matrix.tolist())) for name, matrix in measures.items()})

    return laboratory.notebook.record(Likeness, [names, keys, laboratory.corpus_key(corpus)], compute)


def _settings(laboratory: Laboratory, plan: Plan, main: _MainTable) -> dict[str, str]:
    settings = {
        "dimension": f"{max(laboratory.ensemble.dims)}, that of the largest member",
        "up-projections": f"seeds 0 to {plan.seeds - 1}",
        "bootstrap": f"{plan.resamples} resamples, Poisson(1) counts per distinct pair wherever it occurs, seed 0",
    }
    if not plan.main_only:
        settings["corpus samples"] = f"{plan.draws} of each size, seeds 0 to {plan.draws - 1}; one for the autoencoder"
    if main.cell is not None:
        settings["autoencoder"] = next(system.note for system in main.systems if system.label == "meta:ae")
    return settings
