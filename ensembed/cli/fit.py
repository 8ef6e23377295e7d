"""`ensembed fit`: from a corpus to a saved meta-embedding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ensembed.cli.completion import ENCODER
from ensembed.cli.console import print_json
from ensembed.cli.methods import errors_name_options, method_options
from ensembed.cli.options import (
    FOLDER,
    EngineChoice,
    How,
    corpus_argument,
    default_members_options,
    force_option,
    how_options,
    open_corpus,
    print_stages,
    stages_json,
    training_engine_options,
)
from ensembed.corpora.corpus import Corpus
from ensembed.errors import InputError, ModelError
from ensembed.methods import Method
from ensembed.methods.prediction import LEAST_ROWS
from ensembed.models.ensemble import Ensemble, MetaEncoder
from ensembed.models.saved_model import CONFIG, is_own_folder
from ensembed.models.summary import spectrum, summary
from ensembed.sts import read_pairs
from ensembed.support.atomic_files import why_not_writable
from ensembed.support.progress import bars
from ensembed.support.text_tables import text_table
from ensembed.views import ViewStore

if TYPE_CHECKING:
    from ensembed.engines import Stage


@click.command()
@corpus_argument
@default_members_options
@method_options
@click.option("--out", "-o", type=FOLDER, required=True, help="Folder for the model: a new one, or with --force.")
@force_option
@click.option(
    "--tune",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Labelled pairs to choose weights, tau, dim and method on: score<TAB>text<TAB>text a line, larger is more "
    "similar. Blank lines and a header that begins with `score` are ignored; Windows line ends are fine. "
    "[default: none]",
)
@click.option(
    "--cheap",
    metavar="NAME",
    type=ENCODER,
    help="Save a model that encodes with this member only and predicts what the others would add. "
    "[default: encode with all members]",
)
@training_engine_options
@how_options(["store", "wait", "errors", "column", "file_format", "threads", "quiet", "as_json"])
def fit(
    corpus: Path | str,
    encoders: tuple[str, ...],
    method: Method,
    out: Path,
    force: bool,
    tune: Path | None,
    cheap: str | None,
    engine: EngineChoice,
    how: How,
) -> None:
    """Fit a meta-embedding on the unlabelled sentences of CORPUS and save it.

    CORPUS is text (a sentence a line), CSV or TSV with a header, JSON Lines, plain or gzipped, or Parquet: a file, a
    folder or a pattern of such files, or a URL; - is standard input.

    The members' views are cached, so that fitting another method, or going on after an interruption, encodes nothing
    twice. A model that is in --out stays as it is unless --force is given, and then until the new one is complete. The
    method auto, the default, concatenates the members' vectors with weights that say how far each can be
    trusted, which it finds out without labels. The others are the paper's: conc and avg need no training, svd and gcca
    are solved in one pass, up is a random projection of one member, ae is a cross-view autoencoder.

    With a few labelled pairs, --tune chooses weights, tau, dim and method on them by cross-validation. The method that
    was asked for stays unless another is better by more than noise, and so does its --dim.

    With --cheap the model that is saved encodes with one member only; what the others would add is predicted from it.
    What that keeps of the whole model's nearest neighbours, and what the member alone keeps, is printed.

    ae is trained with torch: pip install 'ensembed[ae]'. (mse without hidden layers is solved and needs none, nor does
    a model once it is saved.) Its training is kept in the store while it runs: after an interruption, even by kill -9,
    the same command goes on.

    With --engine ray the members encode, and passes and epochs run, on a Ray cluster: pip install 'ensembed[ray]'. The
    store must be on a path that all its machines share. What each stage took is printed at the end.

    The ensemble `paper` is ParaNMT, USE and SBERT, those of the paper: it needs pip install 'ensembed[st,tfhub]', and
    downloads gigabytes the first time. `default`, which is taken where no
    member is named, is minilm and use-m3, which `ensembed pull` gets; `ensembed choose` finds one for your text.

    \b
    Examples:
      ensembed fit corpus.txt --out my-model
      ensembed fit corpus.txt -e minilm -e use-m3 -e wordllama --out my-model
      ensembed fit corpus.txt -e minilm,use-m3 --dim 256 --out my-small-model
      ensembed fit corpus.txt -e minilm,use-m3 --method gcca --dim 512 --out my-gcca
      ensembed fit corpus.txt -e minilm,use-m3 --tune pairs.tsv --out my-tuned-model
      ensembed fit corpus.txt -e minilm -e wordllama --method svd --out my-svd --json
      ensembed fit corpus.txt --ensemble default --method ae --loss kld --epochs 100 --batch-size 1000 --out my-ae
      ensembed fit corpus.txt --ensemble default --cheap minilm --out my-cheap-model
      ensembed fit corpus.txt --ensemble paper --method gcca --dim 1024 --out paper-model
      ensembed fit corpus.txt --ensemble default --engine ray --address auto --store /shared/views --out my-model
    """
    if problem := why_not_writable(out, is_own_folder):  # before the work, and not after it
        raise ModelError(f"cannot save the model in {out}: {problem}")
    if not force and (out / CONFIG).exists():
        way_out = "name a new folder, or replace it with --force"
        lost = f"an index that was made with it then needs: ensembed index FOLDER --model {out} --change-model"
        raise ModelError(f"there is a model in {out} already: {way_out} ({lost})")
    if cheap is not None and cheap not in encoders:
        raise click.UsageError(f"--cheap {cheap} is no member: choose of {', '.join(encoders)}.")
    labels = None if tune is None else read_pairs(tune)
    with (
        open_corpus(corpus, errors=how.errors, column=how.column, file_format=how.file_format) as source,
        bars(enabled=False if how.quiet else None) as progress,
    ):
        ensemble = Ensemble(encoders, threads=how.threads, progress=progress)
        with errors_name_options(usage=True):
            method.check(ensemble.dims)
        if cheap is not None:
            _check_cheap(encoders.index(cheap), ensemble, method, source, tuned=labels is not None)
        with errors_name_options(), engine.open() as chosen:
            model = ensemble.fit(
                source,
                method,
                tune=labels,
                store=ViewStore(how.store, wait=how.wait),
                engine=chosen,
                threads=how.threads,
                progress=progress,
            )
    model = model if cheap is None else model.cheap(cheap)
    model.save(out)
    if how.as_json:
        _print_json(model, out, chosen.stages)
        return
    click.echo(text_table(["what", ""], [["model", str(out)], *summary(model)], left=2))
    if chosen.stages and not how.quiet:
        print_stages(chosen.stages)


def _check_cheap(place: int, ensemble: Ensemble, method: Method, corpus: Corpus, *, tuned: bool) -> None:
    """Raise an error, before the work, if the model will not be able to predict the members beside that at `place`."""
    weights = method.weighting
    counted = [j for j in range(len(ensemble.encoders)) if isinstance(weights, str) or weights[j]]
    if not tuned and place not in counted:
        raise click.UsageError("--cheap names a member of weight 0, which is left out: give it another weight.")
    if len(ensemble.encoders if tuned else counted) < 2:
        raise click.UsageError("--cheap predicts the other members, and none counts: name another one with -e.")
    if not tuned and not method.needs_rows:
        raise click.UsageError(
            f"--cheap learns from CORPUS what the others add, and --method {method.name} with these weights learns "
            "nothing from it: take auto without --weights."
        )
    from ensembed.reliability.trust_estimate import sample_rows  # most fits do without

    sentences = len(sample_rows(len(corpus), corpus, LEAST_ROWS, 0))
    if sentences < LEAST_ROWS:
        raise InputError(
            f"{corpus} holds {sentences} distinct sentences: it takes at least {LEAST_ROWS} to predict members; take a "
            "larger corpus, or leave out --cheap"
        )


def _print_json(model: MetaEncoder, out: Path, stages: Sequence[Stage]) -> None:
    meta = model.meta
    members = [encoder.spec.name for encoder in model.ensemble.encoders]
    facts = {"method": dict(meta.method), "members": members, "dim": meta.dim, "rows": meta.rows}
    took = {"stages": stages_json(stages)} if stages else {}
    print_json({"model": str(out), **facts, "spectrum": spectrum(meta), **took})
