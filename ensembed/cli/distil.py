"""`ensembed distil`: one small student of a model, trained on unlabelled text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ensembed.cli.completion import MODEL
from ensembed.cli.console import print_json, print_table
from ensembed.cli.options import (
    FILE,
    FOLDER,
    POSITIVE,
    EngineChoice,
    How,
    check_order,
    corpus_argument,
    force_option,
    how_options,
    print_stages,
    stages_json,
    training_engine_options,
)
from ensembed.distil.distillation import Distilled, Plan, compare_students, save_trained
from ensembed.distil.distillation import distil as distil_model
from ensembed.distil.distillation import prepare as prepare_job
from ensembed.distil.static_files import PRECISIONS, Precision
from ensembed.distil.student_card import figure_rows
from ensembed.encoders.base import Encoder
from ensembed.engines.engine import Stage
from ensembed.errors import InputError, ModelError
from ensembed.models.named_ensembles import split_names

_REPORTED = 4000  # sentences that a report encodes


def _dimensions(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Read numbers with commas between them."""
    try:
        return tuple(int(part) for part in value.split(",")) if value else ()
    except ValueError:
        raise click.BadParameter(f"numbers with commas between them were expected, not {value!r}") from None


@click.command()
@click.argument("teacher", type=MODEL)
@corpus_argument
@click.option("--out", "-o", type=FOLDER, help="Folder for the student: a new one, or with --force.")
@click.option(
    "--student",
    default="static",
    metavar="NAME",
    help="`static`: a vector per token; or a BERT to start from: minilm, gte-small, st:FOLDER, onnx:FOLDER, with "
    "?layers=3 for some of its layers.",
)
@click.option("--dim", type=POSITIVE, help="Dimensions. [default: 384, or those of the BERT; at most the teacher's]")
@click.option(
    "--leading", callback=_dimensions, metavar="K,…", help="Leading dimensions to be used alone, too, as in 64,128."
)
@click.option(
    "--start",
    metavar="NAME,…",
    help="Encoders that a static student's tokens start from, or none. [default: the teacher's members]",
)
@click.option("--tokenizer", type=FILE, help="The tokenizer.json of a static student. [default: that of the start]")
@click.option("--precision", type=click.Choice(PRECISIONS), default="float32", help="How a static student is stored.")
@click.option("--onnx", "as_onnx", type=FOLDER, help="Folder for a transformer as ONNX, in float32 and int8, besides.")
@click.option("--sentences", type=POSITIVE, help="Train on so many sentences, chosen at random. [default: all]")
@click.option(
    "--max-length",
    type=POSITIVE,
    help="Tokens of a sentence that are looked at. [default: 128; once trained, a BERT reads as many as before]",
)
@click.option("--epochs", type=POSITIVE, help="Passes over the sentences. [default: 6; of a transformer 3]")
@click.option("--batch-size", type=POSITIVE, help="Sentences per step. [default: 1024; of a transformer 64]")
@click.option("--learning-rate", type=float, help="The largest one. [default: 0.002; of a transformer 0.0002]")
@click.option(
    "--whiten",
    type=click.FloatRange(0, 1),
    help="How far dimensions are made equal after training. [default: 0.5; of a transformer 0]",
)
@click.option(
    "--near",
    type=click.FloatRange(0),
    help="How much the loss looks at which sentences of a batch are near. [default: 0.3; of a transformer 0]",
)
@click.option(
    "--variants",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Train on N changed versions of each sentence, too, which the teacher encodes.",
)
@click.option("--patience", type=POSITIVE, help="Stop after so many checks without a rise. [default: never]")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of all that is chosen at random.")
@click.option("--device", help="Where to train: cpu, cuda, cuda:1. [default: a GPU if there is one]")
@click.option("--prepare", type=FOLDER, help="Only write the job, to be trained on another machine.")
@click.option("--trained", type=FOLDER, help="Only save the student of a job that was prepared and trained.")
@click.option(
    "--report",
    multiple=True,
    metavar="MODEL",
    type=MODEL,
    help="Make nothing: compare MODELs with the teacher on the corpus.",
)
@force_option
@training_engine_options
@how_options(["store", "wait", "errors", "column", "file_format", "threads", "moved", "trust", "quiet", "as_json"])
def distil(
    teacher: str,
    corpus: Path | str,
    out: Path | None,
    prepare: Path | None,
    trained: Path | None,
    report: tuple[str, ...],
    as_onnx: Path | None,
    device: str | None,
    force: bool,
    precision: Precision,
    engine: EngineChoice,
    how: How,
    **settings: Any,  # noqa: ANN401 - the fields of a plan
) -> None:
    """Train one small student to give the vectors of TEACHER, on the unlabelled sentences of CORPUS.

    TEACHER is the folder of a saved model, the name of an encoder, or a .npy file with a vector for each sentence of
    CORPUS. Its vectors are cached views: each sentence is encoded once. They are centred and projected on their leading
    dimensions, which is what the student learns.

    A static student looks up a vector per token and averages them: it is many times as fast as a transformer. It is
    saved in model2vec's format and opens as model2vec:FOLDER, in model2vec and in sentence-transformers. A transformer
    starts from a BERT on this machine and is saved as a sentence-transformers folder, st:FOLDER.

    Held-out sentences say, without labels, what the student keeps of its teacher: how many of the ten nearest
    neighbours, and how much of the order of near pairs. The best of the training is saved, with a card of these
    figures. Training is kept in the store: after an interruption, even by kill -9, the same command goes on, to the
    same student.

    Training needs torch: pip install 'ensembed[ae]'. --prepare and --trained let another machine train, which needs
    torch, numpy, safetensors, filelock and this package's files, but no other library.

    With --engine ray a cluster encodes CORPUS and trains a transformer: pip install 'ensembed[ray]'. CORPUS and the
    store must be on paths that all its machines share. Each of --train-workers computes its part of every batch: the
    student is the same up to rounding, however many there are. What each stage took is printed at the end.

    \b
    Examples:
      ensembed distil my-model corpus.txt --out fast-model
      ensembed distil my-model corpus.txt --dim 256 --leading 64,128 --precision int8 --out tiny-model
      ensembed distil my-model corpus.txt --student 'minilm?layers=3' --out small-model
      ensembed distil my-model corpus.txt --report model2vec:fast-model --report minilm
      ensembed distil my-model corpus.txt --student minilm --prepare job
      python -m ensembed.distil.student_training job
      ensembed distil my-model corpus.txt --trained job --out small-model
      ensembed distil my-model /shared/corpus.txt --student minilm --out small-model --store /shared/views --engine ray
      ensembed distil my-model corpus.txt --student minilm --out small-model --engine ray --train-workers 4
    """
    if sum(map(bool, (prepare, report))) + (out is not None) != 1:
        raise click.UsageError("Give one of --out, --prepare and --report.")
    if not engine.is_local and (out is None or trained is not None):
        raise click.UsageError("--engine ray trains: it is for --out, without --trained.")
    check_order(teacher, corpus)
    if as_onnx is not None:  # before the training, and not after it
        from ensembed.integrations.onnx_bert import check_export

        check_export(as_onnx)
    if trained is not None:
        if out is None:
            raise click.UsageError("--trained needs --out.")
        _print(save_trained(trained, out, precision=precision, force=force), out, as_onnx, how)
        return
    start = settings.pop("start")
    plan = Plan(start=tuple(split_names(start)) if start else None, precision=precision, **settings)
    with how.open_corpus(corpus) as source, how.progress() as progress:
        sources = (teacher, *report)
        from_file = teacher.endswith(".npy")
        taught: Encoder | Path = Path(teacher) if from_file else how.open_model(teacher, progress, beside=sources)
        common: dict[str, Any] = {"store": how.views, "threads": how.threads, "progress": progress}
        if report:
            if isinstance(taught, Path):
                raise InputError("--report compares models: name the teacher, not a file of its vectors")
            _report(taught, source, [how.open_model(name, progress, beside=sources) for name in report], how)
            return
        if prepare is not None:
            job = prepare_job(taught, source, plan, prepare, force=force, **common)
            if how.as_json:
                print_json({"job": str(prepare), "sentences": len(job), "dim": job.dim})
            else:
                click.echo(f"{len(job):,} sentences; train with: python -m ensembed.distil.student_training {prepare}")
            return
        if out is not None:
            with engine.open() as chosen:
                student = distil_model(taught, source, plan, out, engine=chosen, device=device, force=force, **common)
            _print(student, out, as_onnx, how, chosen.stages)


def _print(student: Distilled, out: Path, as_onnx: Path | None, how: How, stages: Sequence[Stage] = ()) -> None:
    if as_onnx is not None:
        from ensembed.integrations.onnx_bert import export_bert

        try:
            export_bert(out, as_onnx)
        except OSError as error:
            later = f"export_bert(Path({str(out)!r}), Path({str(as_onnx)!r})) of ensembed.integrations.onnx_bert"
            raise ModelError(
                f"the student is saved in {out}, its graphs are not: {error}. Then, from Python: {later}"
            ) from error
    figures = {key: student.result[key] for key in ("start", "best", "saved", "leading", "facts")}
    if how.as_json:
        took = {"stages": stages_json(stages)} if stages else {}
        about = {"student": str(out), "kind": student.facts["student"], "dim": student.facts["dim"]}
        print_json({**about, **figures, **took})
        return
    print_table(["", "overlap at 10", "order"], figure_rows(student.result))
    about = student.result["facts"]
    trained = f"trained on {about['sentences']:,} sentences in {about['seconds']:g} s"
    click.echo(
        f"\n{out}: {student.facts['dim']} dimensions, {trained}; figures on {about['held_out']:,} held-out ones. "
        f"Every command takes it by the name {'model2vec' if student.facts['student'] == 'static' else 'st'}:{out}."
    )
    if stages and not how.quiet:
        print_stages(stages)


def _report(teacher: Encoder, corpus: Any, students: list[Encoder], how: How) -> None:  # noqa: ANN401 - a corpus
    from ensembed.reliability.trust_estimate import sample_rows, sample_sentences

    sentences = sample_sentences(corpus, sample_rows(len(corpus), corpus, _REPORTED, 0))
    models, rows = [teacher, *students], list[dict[str, Any]]()
    with how.progress() as progress:
        compared = compare_students(teacher, models, sentences, clock=time.perf_counter, progress=progress)
    for model, (figures, seconds) in zip(models, compared, strict=True):
        rate = {"sentences_per_second": round(len(sentences) / seconds)}
        rows.append({"model": model.spec.name, **figures.to_json(), **rate})
    if how.as_json:
        print_json({"sentences": len(sentences), "models": rows})
        return
    cells = [
        [row["model"], f"{100 * row['overlap']:.1f}%", f"{row['spearman']:.3f}", f"{row['sentences_per_second']:,}"]
        for row in rows
    ]
    print_table(["model", "overlap at 10", "order", "sentences/s"], cells)
    click.echo(f"\nOn {len(sentences):,} sentences of the corpus; the first line is the teacher itself.")
