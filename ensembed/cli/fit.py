"""`ensembed fit`: from a corpus to a saved meta-embedding."""

from __future__ import annotations

from pathlib import Path

import click

from ensembed.cli.common import (
    column_option,
    corpus_argument,
    encoder_option,
    errors_option,
    json_option,
    open_corpus,
    options,
    print_json,
    print_table,
    progress_bars,
    quiet_option,
    store_option,
    threads_option,
    wait_option,
)
from ensembed.cli.engines import EngineChoice, engine_options, print_stages, stages_json
from ensembed.cli.methods import method_option, not_default, option, said_in_options
from ensembed.corpora.corpus import BadBytes
from ensembed.methods import Meta, Method
from ensembed.methods.gcca import positive
from ensembed.models.ensemble import Ensemble
from ensembed.models.saved_model import check_folder
from ensembed.models.tuning import describe
from ensembed.sts import read_pairs
from ensembed.views import ViewStore

# What is below this part of the largest value of a spectrum is rounding.
_ROUNDING = 1e-12
# What the spectrum of a method holds.
_SPECTRA = {"auto": "mean square", "svd": "variance", "gcca": "rho"}


@click.command()
@options(corpus_argument, encoder_option, method_option)
@click.option(
    "--out", "-o", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder for the model."
)
@click.option(
    "--tune",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Labelled pairs to choose weights, tau, dim and method on: score<TAB>text<TAB>text a line, larger is more "
    "similar. Blank lines and a header that begins with `score` are passed over; Windows line ends will do. "
    "[default: none]",
)
@options(store_option, wait_option, errors_option, column_option, engine_options(training=True))
@options(threads_option, quiet_option, json_option)
def fit(
    corpus: Path | str,
    encoders: tuple[str, ...],
    method: Method,
    out: Path,
    tune: Path | None,
    store: Path | None,
    wait: float,
    errors: BadBytes,
    column: str | None,
    engine: EngineChoice,
    threads: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Fit a meta-embedding on the unlabelled sentences of CORPUS and save it.

    CORPUS is a text file, plain or gzipped, one sentence a line, or a Parquet file, a folder or a pattern of such
    files, or a URL; - is standard input.

    The members' views are cached, so that fitting another method, or going on after an interruption, encodes nothing
    twice. The method auto, the default, concatenates the members' vectors with weights that say how far each can be
    trusted, which it finds out without labels. The others are the paper's: conc and avg need no training, svd and gcca
    are solved in one pass, up is a random projection of one member, ae is a cross-view autoencoder.

    With a few labelled pairs, --tune chooses weights, tau, dim and method on them by cross-validation. The method that
    was asked for stays unless another is better by more than noise, and so does its --dim.

    ae is trained with torch: pip install 'ensembed[ae]'. (mse without hidden layers is solved and needs none, nor does
    a model once it is saved.) Its training is kept in the store while it runs: after an interruption, even by kill -9,
    the same command goes on.

    With --engine ray the members encode, and passes and epochs run, on a Ray cluster: pip install 'ensembed[ray]'. The
    store must be on a path that all its machines share. What each stage took is printed at the end.

    The ensemble `paper` is ParaNMT, USE and SBERT, those of the paper: it needs pip install 'ensembed[st,tfhub]', and
    downloads gigabytes the first time. `default` is minilm, use-lite and wordllama, which `ensembed pull` gets.

    \b
    Examples:
      ensembed fit corpus.txt -e minilm -e use-lite -e wordllama --out my-model
      ensembed fit corpus.txt -e minilm -e use-lite -e wordllama --dim 256 --out my-small-model
      ensembed fit corpus.txt -e minilm -e use-lite -e wordllama --method gcca --dim 512 --out my-gcca
      ensembed fit corpus.txt -e minilm -e use-lite -e wordllama --tune pairs.tsv --out my-tuned-model
      ensembed fit corpus.txt -e minilm -e wordllama --method svd --out my-svd --json
      ensembed fit corpus.txt --ensemble default --method ae --loss kld --epochs 100 --batch-size 1000 --out my-ae
      ensembed fit corpus.txt --ensemble paper --method gcca --dim 1024 --out paper-model
      ensembed fit corpus.txt --ensemble default --engine ray --address auto --store /shared/views --out my-model
    """
    check_folder(out)  # better now than after the work
    labels = None if tune is None else read_pairs(tune)
    with open_corpus(corpus, errors, column) as source, progress_bars(quiet) as progress:
        ensemble = Ensemble(encoders, threads=threads, progress=progress)
        with said_in_options(bad_options=True):
            ensemble.check(method)
        views = ViewStore(store, wait=wait)
        with said_in_options(), engine.open() as chosen:
            model = ensemble.fit(
                source, method, tune=labels, store=views, engine=chosen, threads=threads, progress=progress
            )
    model.save(out)
    meta = model.meta
    spectrum = [] if meta.spectrum is None else [float(f"{value:.6g}") for value in meta.spectrum]
    if as_json:
        members = [encoder.spec.name for encoder in ensemble.encoders]
        facts = {"method": dict(meta.method), "members": members, "dim": meta.dim, "rows": meta.rows}
        took = {"stages": stages_json(chosen.stages)} if chosen.stages else {}
        print_json({"model": str(out), **facts, "spectrum": spectrum, **took})
        return
    rows = [
        ["model", str(out)],
        ["method", _method(meta)],
        *(["member", member] for member in _members(ensemble, meta)),
        *([["weights", _trust(ensemble, meta)]] if "weights_from" in meta.method else []),
        *([["tuned", describe(meta.method["tuned"])]] if "tuned" in meta.method else []),
        ["dim", str(meta.dim)],
        ["fitted on", f"{meta.rows} sentences" if meta.rows else "nothing: it needs no training"],
    ]
    if meta.spectrum is not None and meta.method["name"] == "gcca":
        rows.append(
            ["positive", f"{positive(meta.spectrum)} of {meta.dim} dimensions: where the members agree, rho > 0"]
        )
    if spectrum:
        rows.append(["spectrum", _spectrum(meta.method["name"], spectrum)])
    print_table(["what", ""], rows, left=2)
    print_stages([] if quiet else chosen.stages)


def _method(meta: Meta) -> str:
    """The method, with the parameters that were chosen and that no other row shows."""
    elsewhere = ("dim", "weights", "whitened")
    shown = {name: value for name, value in not_default(meta.method).items() if name not in elsewhere}
    return ", ".join([meta.method["name"], *(f"{option(name)} {value}" for name, value in shown.items())])


def _trust(ensemble: Ensemble, meta: Meta) -> str:
    """Where weights by reliability come from, and how sure they are."""
    facts = meta.method
    if len(ensemble.encoders) == 1:
        return "one member: there is nothing to weigh"
    best = ensemble.encoders[facts["trusted"]].spec.name
    sure = f"first in {facts['sure']:.0%} of the bootstrap samples"
    return {
        "lead": f"by reliability, without labels: {best} leads, {sure}",
        "words": f"by reliability, without labels: not sure, some lead alike; {best} follows the words least, {sure}",
        "nothing": "all alike: no two members agree, and nothing else tells which of them to believe",
    }[facts["decided"]]


def _spectrum(name: str, values: list[float]) -> str:
    """What some of the dimensions are worth, from the first to the last; rounding noise is 0."""
    places = sorted({round(i * (len(values) - 1) / 7) for i in range(8)})
    noise = _ROUNDING * max(abs(value) for value in values)
    shown = " ".join(f"{values[i] if abs(values[i]) > noise else 0:.4g}" for i in places)
    which = "each dimension" if len(places) == len(values) else f"dimensions {', '.join(str(i + 1) for i in places)}"
    return f"{_SPECTRA.get(name, 'eigenvalue')} of {which}: {shown}"


def _members(ensemble: Ensemble, meta: Meta) -> list[str]:
    """Every member with its dimension, its weight where they are not all the same, and whether it is whitened."""
    weights = meta.method.get("weights", "equal")
    said = [""] * len(ensemble.encoders) if weights == "equal" else [f", weight {weight:.3g}" for weight in weights]
    for j in meta.method.get("whitened", ()):
        said[j] += ", whitened"
    return [f"{one.spec.name} ({one.spec.dim}){text}" for one, text in zip(ensemble.encoders, said, strict=True)]
