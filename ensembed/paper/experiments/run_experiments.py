"""Everything the paper reports, and more, on one laboratory: from views to findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ensembed.errors import InputError
from ensembed.methods import GCCA, SVD, Average, Concat, Method
from ensembed.methods.autoencoder.method import Loss
from ensembed.paper.curves import Curves
from ensembed.paper.experiments.bootstrap import resample
from ensembed.paper.experiments.cost_per_sentence import Times, costs, measure
from ensembed.paper.experiments.dev_experiments import TAUS, Search, best_autoencoder, best_tau
from ensembed.paper.experiments.scored_systems import Scored, Scorer
from ensembed.paper.facts import absent_tests, corpus_facts, dataset_facts, member_facts, shared_pairs
from ensembed.paper.findings import (
    DEV,
    MEAN,
    AutoencoderPoint,
    Changes,
    Findings,
    Likeness,
    System,
    TauPoint,
)
from ensembed.paper.laboratory import Laboratory
from ensembed.paper.pairs import changes, scatters
from ensembed.paper.training import Training, describe
from ensembed.paper.trusted import trusted
from ensembed.reliability.likeness import compare
from ensembed.sts.datasets import Dataset
from ensembed.sts.protocol import Protocol, score
from ensembed.support.provenance import provenance

_DRAWN_ON = "stsb-test"
_LEAST_SENTENCES = 100

# The best of the search on STS-B dev for the default ensemble, for runs that do not search.
AUTOENCODER: tuple[int, Loss] = (0, "kld")


@dataclass(frozen=True)
class Plan:
    """What a run does, apart from its members, corpora and data.

    Attributes:
        command: the line that makes it again, for the pages.
        protocol: how sub-testsets become a score.
        training: how long autoencoders are trained; None leaves them out.
        main_only: whether to stop after the main table: no search over autoencoders, no ablation, no curves.
        seeds: of the up-projections.
        draws: samples of the corpus for each size.
        resamples: of the bootstrap.
        texts: whether the sentences of the pairs that changed most are in the findings.
        threads: how many the encoders were given, for the costs; None for all.
    """

    command: str
    protocol: Protocol = "mean"
    training: Training | None = "reduced"
    main_only: bool = False
    seeds: int = 10
    draws: int = 3
    resamples: int = 2000
    texts: bool = True
    threads: int | None = None


@dataclass(frozen=True)
class _MainTable:
    """Tables 1 and 2, and what later experiments take from them.

    Attributes:
        taus: the search for GCCA's tau.
        autoencoders: the search for the autoencoder.
        cell: the autoencoder's depth and loss; None without one.
        methods: the paper's that learn. Searches, ablations and curves are of these alone.
        singles: the members.
        ups: their up-projections.
        metas: the paper's meta-embeddings, then this library's own.
    """

    taus: tuple[TauPoint, ...]
    autoencoders: tuple[AutoencoderPoint, ...]
    cell: tuple[int, Loss] | None
    methods: tuple[Method, ...]
    singles: tuple[Scored, ...]
    ups: tuple[System, ...]
    metas: tuple[Scored, ...]

    @property
    def best_member(self) -> Scored:
        return max(self.singles, key=lambda one: one.system.score(MEAN).pearson)

    @property
    def best_on_dev(self) -> Scored:
        return max(self.metas, key=lambda one: one.system.score(DEV).pearson)


def run_experiments(laboratory: Laboratory, plan: Plan, corpora: Sequence[str]) -> Findings:
    """Run every experiment, or take what the notebook has of it.

    Args:
        laboratory: at least two members, at least one corpus, STS-B dev and at least one test set.
        plan: what to do.
        corpora: what the corpora are, for a person, in their order.
    """
    dev, tests = _split(laboratory)
    main = _main_table(laboratory, plan, dev)
    resampled = resample(
        {
            one.system.label: {name: one.outcome.cosines(name) for name in one.outcome.predictions}
            for one in (*main.singles, *main.metas)
        },
        laboratory.datasets,
        plan.protocol,
        resamples=plan.resamples,
        progress=laboratory.progress,
    )
    findings = Findings(
        command=plan.command,
        provenance=provenance(),
        settings=_settings(laboratory, plan, main),
        protocol=plan.protocol,
        members=member_facts(laboratory),
        corpora=corpus_facts(laboratory, corpora),
        datasets=dataset_facts(laboratory),
        absent=absent_tests(laboratory),
        shared_pairs=shared_pairs(tests, dev),
        taus=main.taus,
        autoencoders=main.autoencoders,
        systems=(*(one.system for one in main.singles), *main.ups, *(one.system for one in main.metas)),
        intervals=tuple(resampled.interval(label, name) for label, found in resampled.scores.items() for name in found),
        comparisons=resampled.comparisons(
            [one.system.label for one in main.metas], [one.system.label for one in main.singles]
        ),
        ablations=(),
        dimensions=(),
        sizes=(),
        domains=(),
        costs=(),
        spectrum=next((one.outcome.spectrum or () for one in main.metas if one.system.label == "meta:gcca"), ()),
        likeness=Likeness((), {}),
        scatters=(),
        changes=Changes(main.best_on_dev.system.label, main.best_member.system.label, (), ()),
    )
    return findings if plan.main_only else _beyond(findings, laboratory, plan, main, dev, tests)


def _split(laboratory: Laboratory) -> tuple[Dataset, list[Dataset]]:
    if len(laboratory.ensemble.encoders) < 2:
        raise InputError("the experiments need at least two members: a meta-embedding of one is that one")
    devs = [dataset for dataset in laboratory.datasets if dataset.name == DEV]
    tests = [dataset for dataset in laboratory.datasets if dataset.name != DEV]
    if not devs or not tests:
        found = ", ".join(dataset.name for dataset in laboratory.datasets)
        raise InputError(f"the experiments need {DEV}, on which all is chosen, and a test set; there are: {found}")
    _check(laboratory)
    return devs[0], tests


def _check(laboratory: Laboratory) -> None:
    """Refuse now what would fail after hours."""
    for dataset in laboratory.datasets:
        score([part.scores for part in dataset.parts], dataset)  # is there a correlation with the gold scores at all?
    for name in laboratory.corpora:
        if laboratory.sentences(name) < _LEAST_SENTENCES:
            raise InputError(
                f"the corpus {name} has {laboratory.sentences(name)} sentences; at least {_LEAST_SENTENCES} are needed"
            )
    for encoder, vectors in zip(laboratory.ensemble.encoders, laboratory.evaluation, strict=True):
        if (vectors == vectors[0]).all():
            raise InputError(f"member {encoder.spec.name!r} says the same of every sentence: leave it out")
        if encoder.spec.name.endswith(" up") or " without " in encoder.spec.name:
            raise InputError(f"member {encoder.spec.name!r} has a name that tables give to something else: rename it")


def _main_table(laboratory: Laboratory, plan: Plan, dev: Dataset) -> _MainTable:
    corpus = next(iter(laboratory.corpora))
    dim = max(laboratory.ensemble.dims)
    search = Search(laboratory, dev, corpus, dim, plan.training or "reduced")
    taus = search.taus()
    autoencoders = search.autoencoders() if plan.training and not plan.main_only else ()
    cell = (best_autoencoder(autoencoders) if autoencoders else AUTOENCODER) if plan.training else None
    chosen = _chosen(search, best_tau(taus), cell, corpus if autoencoders else None)
    scorer = Scorer(laboratory, plan.protocol)
    return _MainTable(
        taus,
        autoencoders,
        cell,
        tuple(method for method, _ in chosen),
        tuple(scorer.singles()),
        tuple(scorer.up_projections(dim, plan.seeds)),
        (
            scorer.meta(Concat()),
            scorer.meta(Average()),
            *(scorer.meta(method, corpus, note) for method, note in chosen),
            _own(scorer, corpus),
        ),
    )


def _own(scorer: Scorer, corpus: str) -> Scored:
    """This library's own method; its weights are found on the corpus before anything is scored."""
    found = trusted(scorer.laboratory, corpus)
    names = [encoder.spec.name for encoder in scorer.laboratory.ensemble.encoders]
    return scorer.meta(found.method, corpus, found.note(names, corpus))


def _chosen(
    search: Search, tau: float, cell: tuple[int, Loss] | None, searched_on: str | None
) -> list[tuple[Method, str]]:
    """The methods that learn, and how what is chosen in them was."""
    methods: list[tuple[Method, str]] = [
        (SVD(search.dim), ""),
        (GCCA(search.dim, tau), f"tau={tau:g}, the best of {', '.join(f'{one:g}' for one in TAUS)} on STS-B dev"),
    ]
    if cell is not None:
        method = search.autoencoder(*cell)
        search_of = f"the search on {searched_on}" if searched_on else "a search for the default ensemble"
        training = describe(method, search.laboratory.sentences(search.corpus))
        methods.append((method, f"{training}; depth and loss are the best of {search_of}, by STS-B dev"))
    return methods


def _beyond(
    findings: Findings, laboratory: Laboratory, plan: Plan, main: _MainTable, dev: Dataset, tests: list[Dataset]
) -> Findings:
    """The same with everything that comes after the main table."""
    corpus = next(iter(laboratory.corpora))
    names = [encoder.spec.name for encoder in laboratory.ensemble.encoders]
    curves = Curves(laboratory, dev, corpus, main.methods, plan.training or "reduced")
    ablations = curves.ablations()
    times = measure(laboratory, main.metas, main.methods, corpus, plan.threads)
    drawn_on = next((test for test in tests if test.name == _DRAWN_ON), tests[0])
    return replace(
        findings,
        ablations=tuple(ablations),
        dimensions=tuple(curves.dimensions()),
        sizes=tuple(curves.sizes(plan.draws)),
        domains=(*(one.system for one in main.metas), *_other_domains(laboratory, plan, main, dev)),
        settings=findings.settings | {"cost": _how_timed(times, plan)},
        costs=costs(times, main.singles, main.metas, ablations, names),
        likeness=_likeness(laboratory, corpus, names),
        scatters=scatters([main.best_member, *main.metas], drawn_on),
        changes=changes(main.best_on_dev, main.best_member, tests, texts=plan.texts),
    )


def _other_domains(laboratory: Laboratory, plan: Plan, main: _MainTable, dev: Dataset) -> list[System]:
    """The methods that learn, fitted on the other corpora; tau is chosen anew on each, and own weights are found."""
    found = []
    scorer = Scorer(laboratory, plan.protocol)
    searched_on = next(iter(laboratory.corpora)) if main.autoencoders else None
    for corpus in list(laboratory.corpora)[1:]:
        search = Search(laboratory, dev, corpus, max(laboratory.ensemble.dims), plan.training or "reduced")
        for method, note in _chosen(search, best_tau(search.taus()), main.cell, searched_on):
            found.append(scorer.meta(method, corpus, note).system)
            laboratory.progress(
                f"domain {corpus}", 1 + [m.name for m in main.methods].index(method.name), 1 + len(main.methods)
            )
        found.append(_own(scorer, corpus).system)
        laboratory.progress(f"domain {corpus}", 1 + len(main.methods), 1 + len(main.methods))
    return found


def _likeness(laboratory: Laboratory, corpus: str, names: list[str]) -> Likeness:
    keys = [encoder.spec.key for encoder in laboratory.ensemble.encoders]

    def find() -> Likeness:
        views = laboratory.corpora[corpus]
        found = compare(views, names=names, progress=laboratory.progress)
        measures = {
            "linear CKA": found.cka,
            "correlation of cosines": found.cosines,
            f"overlap of {found.neighbours} nearest neighbours": found.overlap,
        }
        return Likeness(tuple(names), {name: tuple(map(tuple, matrix.tolist())) for name, matrix in measures.items()})

    return laboratory.notebook.record(Likeness, [names, keys, laboratory.corpus_key(corpus)], find)


def _how_timed(times: Times, plan: Plan) -> str:
    cores = "all cores" if plan.threads is None else f"{plan.threads} threads per encoder"
    return f"{times.sentences} sentences in one call, the best of three, warm, {cores} of the machine named here"


def _settings(laboratory: Laboratory, plan: Plan, main: _MainTable) -> dict[str, str]:
    """For a person."""
    settings = {
        "dimension": f"{max(laboratory.ensemble.dims)}, that of the largest member",
        "up-projections": f"seeds 0 to {plan.seeds - 1}",
        "bootstrap": f"{plan.resamples} resamples, Poisson(1) counts per distinct pair wherever it occurs, seed 0",
    }
    if not plan.main_only:
        samples = f"{plan.draws} of each size, seeds 0 to {plan.draws - 1}; one for the autoencoder"
        settings["corpus samples"] = samples
    if main.cell is not None:
        settings["autoencoder"] = next(one.system.note for one in main.metas if one.system.label == "meta:ae")
    return settings
