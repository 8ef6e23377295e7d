"""`ensembed translate`: fit a map from one encoder to another."""

from __future__ import annotations

from pathlib import Path

import click

from ensembed.cli.completion import MODEL
from ensembed.cli.console import print_json, print_table
from ensembed.cli.options import FOLDER, How, corpus_argument, force_option, how_options
from ensembed.errors import ModelError
from ensembed.methods.encoder_maps import KINDS, NAMES, named_kinds
from ensembed.models.saved_model import CONFIG, is_own_folder
from ensembed.models.translation import LEAST, SAMPLE, figure_rows, verdict
from ensembed.models.translation import translate as fit_translation
from ensembed.reliability.search_agreement import LEAST_ROWS
from ensembed.support.atomic_files import why_not_writable


@click.command()
@click.argument("source", type=MODEL)
@click.argument("target", type=MODEL)
@corpus_argument
@click.option("--out", "-o", type=FOLDER, required=True, help="Folder for the map: a new one, or with --force.")
@force_option
@click.option("--sample", type=click.IntRange(min=LEAST_ROWS), default=SAMPLE, help="Sentences of CORPUS to fit on.")
@click.option("--kind", type=click.Choice(NAMES), help="The kind of map. [default: the one that finds most]")
@click.option(
    "--rows", type=click.IntRange(min=1), help="Number of texts in the index that you plan. [default: CORPUS's]"
)
@how_options(["store", "wait", "errors", "column", "file_format", "threads", "moved", "trust", "quiet", "as_json"])
def translate(
    source: str,
    target: str,
    corpus: Path | str,
    out: Path,
    force: bool,
    sample: int,
    kind: str | None,
    rows: int | None,
    how: How,
) -> None:
    """Fit a map that gives TARGET's vectors of texts that SOURCE encodes, and say how good it is.

    SOURCE and TARGET are encoders or saved models; both encode a sample of CORPUS, which should be like the texts that
    will be translated. No labels are needed. The map is saved as a model, which encodes with SOURCE: whatever takes a
    model takes it.

    The figures are those of searches: how much of what is found if all texts are embedded with TARGET is found among
    translated texts. recall@10: the part of the ten nearest; recall@1: how often the nearest is the same; MRR: the mean
    of 1 / the rank of the nearest; itself: how often a sentence finds its own translated text first; cosines: Pearson's
    r of the cosines. In brackets are intervals of 95%. Every sentence is translated by a map that was fitted without
    it, in the last line without its whole region of texts, too. In a larger index more texts can be confused. The last
    line says what to expect there, for texts and queries unlike the sample and for those like it.

    \b
    Examples:
      ensembed translate minilm gte-small corpus.txt --out minilm-to-gte
      ensembed translate my-model minilm corpus.txt --out my-model-to-minilm --rows 1000000
      ensembed encode minilm-to-gte sentences.txt --out vectors.npy
    """
    if problem := why_not_writable(out, is_own_folder):
        raise ModelError(f"cannot save the map in {out}: {problem}")
    if not force and (out / CONFIG).exists():
        raise ModelError(f"there is a model in {out} already: name a new folder, or replace it with --force")
    with how.open_corpus(corpus) as sentences, how.progress() as progress:
        model = fit_translation(
            how.open_model(source, progress, beside=(source, target)),
            how.open_model(target, progress, beside=(source, target)),
            sentences,
            sample=sample,
            kinds=KINDS if kind is None else named_kinds(kind),
            store=how.views,
            threads=how.threads,
            progress=progress,
        )
        count = rows or len(sentences)
    model.save(out)
    translation = model.translation
    assert translation is not None  # noqa: S101 - it was just fitted
    expected = verdict(translation.figures["translated"], translation.figures["unlike"], count, LEAST)
    if how.as_json:
        facts = {name: figure.to_json() for name, figure in translation.figures.items()}
        recalls = {"recall_10": round(expected.expected, 4), "most": round(expected.most, 4)}
        expectation = {"rows": count, **recalls, "falls_short": expected.falls_short}
        print_json({"model": str(out), "kind": translation.kind, "figures": facts, "expected": expectation})
        return
    print_table(*figure_rows(translation.figures))
    click.echo(f"\n{out}: {translation.kind['kind']}, fitted on {model.meta.rows} sentences; {expected}.")
