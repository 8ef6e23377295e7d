"""`ensembed fit`: from a corpus to a saved meta-embedding."""

from __future__ import annotations

from pathlib import Path

import click

from ensembed.cli.common import (
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
from ensembed.cli.methods import method_option
from ensembed.corpus import BadBytes
from ensembed.methods import Method
from ensembed.methods.gcca import positive
from ensembed.model import Ensemble
from ensembed.persistence import check_folder
from ensembed.views import ViewStore


@click.command()
@options(corpus_argument, encoder_option, method_option)
@click.option(
    "--out", "-o", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder for the model."
)
@options(store_option, wait_option, errors_option, threads_option, quiet_option, json_option)
def fit(
    corpus: Path,
    encoders: tuple[str, ...],
    method: Method,
    out: Path,
    store: Path | None,
    wait: float,
    errors: BadBytes,
    threads: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Fit a meta-embedding on the unlabelled sentences of CORPUS and save it.

    The members' views are cached, so that fitting another method, or going on after an interruption, encodes nothing
    twice. Methods: conc and avg need no training, svd and gcca are solved in one pass, up is a random projection of one
    member, ae is a cross-view autoencoder.

    ae is trained with torch: pip install 'ensembed[ae]'. (mse without hidden layers is solved and needs none, nor does
    a model once it is saved.) Its training is kept in the store while it runs: after an interruption, even by kill -9,
    the same command goes on.

    The ensemble `paper` is ParaNMT, USE and SBERT, those of the paper: it needs pip install 'ensembed[st,tfhub]', and
    downloads gigabytes the first time. `default` is minilm, use-lite and wordllama, which `ensembed pull` gets.

    \b
    Examples:
      ensembed fit corpus.txt -e minilm -e use-lite -e wordllama --method gcca --dim 512 --out my-model
      ensembed fit corpus.txt -e minilm -e wordllama --method svd --out my-svd --json
      ensembed fit corpus.txt --ensemble default --method ae --loss kld --epochs 100 --batch-size 1000 --out my-ae
      ensembed fit corpus.txt --ensemble paper --method gcca --dim 1024 --out paper-model
    """
    check_folder(out)  # better now than after the work
    with open_corpus(corpus, errors) as source, progress_bars(quiet) as progress:
        ensemble = Ensemble(encoders, threads=threads, progress=progress)
        model = ensemble.fit(source, method, store=ViewStore(store, wait=wait), threads=threads, progress=progress)
    model.save(out)
    meta = model.meta
    spectrum = [] if meta.spectrum is None else meta.spectrum.tolist()
    if as_json:
        members = [encoder.spec.name for encoder in ensemble.encoders]
        facts = {"method": dict(meta.method), "members": members, "dim": meta.dim, "rows": meta.rows}
        print_json({"model": str(out), **facts, "spectrum": spectrum})
        return
    rows = [
        ["model", str(out)],
        ["method", ", ".join(f"{key}={value}" for key, value in meta.method.items())],
        *(["member", f"{encoder.spec.name} ({encoder.spec.dim})"] for encoder in ensemble.encoders),
        ["dim", str(meta.dim)],
        ["fitted on", f"{meta.rows} sentences" if meta.rows else "nothing: it needs no training"],
    ]
    if meta.spectrum is not None and meta.method["name"] == "gcca":
        rows.append(
            ["positive", f"{positive(meta.spectrum)} of {meta.dim} dimensions: where the members agree, rho > 0"]
        )
    if spectrum:
        rows.append(["spectrum", " ".join(f"{value:.4g}" for value in spectrum[:: max(1, len(spectrum) // 8)])])
    print_table(["what", ""], rows, left=2)
