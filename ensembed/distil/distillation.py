"""From a teacher and a corpus to a saved student: prepare the job, train it, save. A killed run goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus, TextCorpus
from ensembed.distil.distil_job import (
    JOB,
    LEAST_SENTENCES,
    TOKENIZER,
    Job,
    JobWriter,
    finish_job,
    is_job_folder,
    job_writer,
    read_weights,
    seal,
    split_rows,
)
from ensembed.distil.fidelity import Fidelity, HeldOut
from ensembed.distil.static_files import Precision, check_precision, save_folder, static_files, without_unknown
from ensembed.distil.student_card import student_card, teacher_facts
from ensembed.distil.student_sources import StudentSource, StudentStart, open_student
from ensembed.distil.teacher import Teacher, teacher_vectors, unreadable
from ensembed.distil.variants import write_variants
from ensembed.encoders.base import Encoder
from ensembed.encoders.token_ids import open_tokenizer
from ensembed.engines.engine import Engine, Local
from ensembed.errors import DimensionError, InputError, ModelError, ViewError
from ensembed.models.model_vectors import encoders_behind
from ensembed.numerics.pass_options import Pass
from ensembed.support.atomic_files import disk_error, why_not_replaceable, why_not_writable
from ensembed.support.checks import check_whole, fits, is_number, sha256_of
from ensembed.support.extras import import_extra
from ensembed.support.file_limits import open_regular, read_json
from ensembed.support.progress import Progress, silent
from ensembed.views import ViewStore

if TYPE_CHECKING:
    from ensembed.distil.student_training import Trained

_BLOCK = 4096  # rows at a time: a shard of a stored view has as many
_OWN = "ensembed_distil"  # in config.json: the student was saved by this module
_FIGURES = {"overlap": float, "spearman": float, "cosine": (float, None)}
_ABOUT = {"steps": int, "best_step": int, "seconds": float, "sentences": int, "held_out": int}
_RESULT = {"start": _FIGURES, "best": _FIGURES, "saved": _FIGURES, "leading": dict, "facts": _ABOUT}


@dataclass(frozen=True)
class Plan:
    """What to make of a teacher.

    Attributes:
        student: `static`, or a BERT: a name of the catalogue, `st:FOLDER` or `onnx:FOLDER`, with `?layers=3` for some
            of its layers.
        dim: the student's dimensions. None: 384 for a static student, the BERT's own width for a transformer; at most
            what the teacher supports.
        start: where a static student starts: names of encoders, `none`, or None for the teacher's members.
        tokenizer: the `tokenizer.json` of a static student. None: that of the start.
        precision: how a static student is stored.
        sentences: train on so many sentences of the corpus, chosen at random. None: on all.
        max_length: the most tokens of a sentence that are looked at. None: 128 in training, after which a transformer
            reads as many as the BERT that it was made of.
        epochs, batch_size, learning_rate: of the training. None: what suits the student.
        whiten: how far the student's dimensions are made equal, from 0 to 1; see `Training`. None: what suits it.
        near: how much the loss looks at which sentences of a batch are near each other. None: what suits the student.
        variants: train on so many changed versions of each sentence, too.
        leading: leading dimensions that can be used alone.
        patience: checks on held-out sentences without a rise after which training stops. None: never.
        seed: seed of everything that is chosen at random.
    """

    student: str = "static"
    dim: int | None = None
    start: tuple[str, ...] | None = None
    tokenizer: Path | None = None
    precision: Precision = "float32"
    sentences: int | None = None
    max_length: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    whiten: float | None = None
    near: float | None = None
    variants: int = 0
    leading: tuple[int, ...] = ()
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("dim", "sentences", "max_length", "epochs", "batch_size", "patience"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        for name in ("seed", "variants"):
            check_whole(name, getattr(self, name), 0)
        for name, value in (("start", self.start), ("leading", self.leading)):
            if isinstance(value, (str, int)):
                raise InputError(f"{name} is a list, not {value!r}: write ({value!r},)")
        if self.start is not None:  # which may be another sequence
            object.__setattr__(self, "start", tuple(self.start))
        if self.tokenizer is not None:  # which may be the name of a file
            object.__setattr__(self, "tokenizer", Path(self.tokenizer))
        check_precision(self.precision)
        for k in self.leading:
            check_whole("leading", k, 1)
        rate = self.learning_rate
        if rate is not None and not (is_number(rate) and rate > 0):
            raise InputError(f"learning_rate must be a number above 0, not {rate!r}")
        if self.whiten is not None and not (is_number(self.whiten) and 0 <= self.whiten <= 1):
            raise InputError(f"whiten must be a number from 0 to 1, not {self.whiten!r}")
        if self.near is not None and not (is_number(self.near) and self.near >= 0):
            raise InputError(f"near must be a number that is not negative, not {self.near!r}")
        # JSON, in which a job keeps them, does not know numbers of numpy.
        for name, value in [*vars(self).items()]:
            if isinstance(value, np.number):
                object.__setattr__(self, name, value.item())
        object.__setattr__(self, "leading", tuple(map(int, self.leading)))

    def training(self, dim: int, source: StudentSource) -> dict[str, Any]:
        """Return how to train a student of so many dimensions."""
        if wrong := [k for k in self.leading if k >= dim]:
            raise InputError(f"leading dimensions are fewer than the student's {dim}, not {wrong[0]}")
        usual = source.usual
        return {
            "epochs": self.epochs or usual.epochs,
            "batch_size": self.batch_size or usual.batch_size,
            "learning_rate": self.learning_rate or usual.learning_rate,
            "whiten": usual.whiten if self.whiten is None else float(self.whiten),
            "near": usual.near if self.near is None else float(self.near),
            "leading": sorted(set(self.leading), reverse=True),
            "patience": self.patience,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Distilled:
    """A student that was made.

    Attributes:
        facts: of its job: kind, dimensions, training, sources.
        result: its figures on held-out sentences, and those of its start.
        files: the files of the saved student, by name.
    """

    facts: Mapping[str, Any]
    result: Mapping[str, Any]
    files: Mapping[str, bytes] = field(repr=False)


def distil(
    teacher: Encoder | Path,
    corpus: Corpus,
    plan: Plan,
    out: Path,
    *,
    store: ViewStore | None = None,
    engine: Engine | None = None,
    device: str | None = None,
    threads: int | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> Distilled:
    """Train a student on what the teacher says about a corpus, and save it in a folder.

    Args:
        teacher: a model, an encoder, or a `.npy` file with its vector of every sentence of the corpus.
        corpus: unlabelled sentences. What the teacher says about them is kept in the store.
        plan: what to make.
        out: the folder of the student: a new one, or with `force` that of an earlier student.
        store: where views, and the training while it runs, are kept; by default the user's cache.
        engine: where a transformer is trained, and the corpus encoded: `ensembed.engines.Ray()` is a cluster; None is
            this process.
        device: where to train: cpu, cuda, cuda:1. Default: a GPU if there is one.
        threads: cores to use.
        force: replace an earlier student.
        progress: receives rows and steps that are done.

    Raises:
        InputError: the plan does not suit teacher or corpus.
        ModelError: the folder cannot be written, or holds something else.
        TrainingError: the training diverged.
        EngineError: the cluster cannot be reached, or its workers died too often.
        StoreBusyError: another process trains the same student.
    """
    check_out(out, force=force)
    import_extra("torch", "ae", "training a student")
    store, engine = store or ViewStore(), engine or Local()
    if plan.student == "static" and not isinstance(engine, Local):
        raise InputError(
            "a static student trains in this process, in minutes on two cores: leave the engine out (engine=, "
            "--engine), or name a transformer (student='minilm', --student minilm)"
        )
    how = Pass(precision="float32", threads=threads, progress=progress)
    source = open_student(plan, teacher, threads=threads, progress=progress)
    key = _key(teacher, corpus, plan, source)
    with store.training(key) as folder:
        job = _interrupted(folder)
        if job is None:
            if not isinstance(engine, Local) and isinstance(teacher, Encoder):
                engine.embed_all(store, corpus, encoders_behind(teacher, corpus, store), progress=progress)
            job = _prepared(folder, teacher, corpus, plan, source, store, how)
        result, weights = _trained(job, engine, Pass(device=device, threads=threads, progress=progress))
        student = _distilled(job, result, weights, plan.precision, out.name)
        save_student(out, student)
        shutil.rmtree(folder, ignore_errors=True)
    return student


def prepare(
    teacher: Encoder | Path,
    corpus: Corpus,
    plan: Plan,
    folder: Path,
    *,
    store: ViewStore | None = None,
    threads: int | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> Job:
    """Write the job into a folder, to be trained elsewhere by `python -m ensembed.distil.student_training FOLDER`.

    With `force` it replaces an earlier job, which may have been trained, file by file: if that is interrupted there is
    none, until it is prepared again.
    """
    if problem := why_not_writable(folder, is_job_folder):
        raise ModelError(f"cannot prepare a job in {folder}: {problem}")
    if not force and (folder / JOB).exists():
        raise ModelError(
            f"there is a job in {folder} already: name a new folder, or replace it with force=True (--force)"
        )
    source = open_student(plan, teacher, threads=threads, progress=progress)
    how = Pass(precision="float32", threads=threads, progress=progress)
    return _prepared(folder, teacher, corpus, plan, source, store or ViewStore(), how)


def save_trained(folder: Path, out: Path, *, precision: Precision = "float32", force: bool = False) -> Distilled:
    """Save the student of a job that was prepared and trained."""
    check_out(out, force=force)
    job = Job.open(folder)
    kept = _read_trained(job)
    if kept is None:
        raise ModelError(
            f"{folder} holds no trained student: run python -m ensembed.distil.student_training {folder} first"
        )
    student = _distilled(job, *kept, precision, out.name)
    save_student(out, student)
    return student


def check_out(out: Path, *, force: bool) -> None:
    """Raise a ModelError if a student cannot be saved in a folder."""
    if problem := why_not_replaceable(out, is_student):
        raise ModelError(f"cannot save the student in {out}: {problem}")
    if not force and (out / "config.json").exists():
        raise ModelError(
            f"there is a student in {out} already: name a new folder, or replace it with force=True (--force)"
        )


def is_student(folder: Path) -> bool:
    """Return whether a folder holds a student that was saved here."""
    try:
        config = read_json(folder / "config.json")
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and _OWN in config


def save_student(out: Path, student: Distilled) -> None:
    """Write the files of a student: the folder is complete or as it was."""
    try:
        save_folder(out, student.files)
    except OSError as error:
        raise ModelError(f"cannot save the student in {out}: {error}") from error


def _key(teacher: Encoder | Path, corpus: Corpus, plan: Plan, source: StudentSource) -> str:
    """Return the key of everything that determines a student, but for how it is stored."""
    try:
        who = teacher.spec.key if isinstance(teacher, Encoder) else sha256_of(teacher)
    except OSError as error:
        raise unreadable(teacher, error) from error
    settings = {name: value for name, value in asdict(plan).items() if name not in ("precision", "tokenizer")}
    facts = [corpus.key, who, settings, source.key]
    return "distil-" + hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _interrupted(folder: Path) -> Job | None:
    """Return the job of an interrupted run; a damaged one is removed."""
    if (folder / JOB).exists():
        try:
            return Job.open(folder)
        except ModelError:
            shutil.rmtree(folder, ignore_errors=True)
    return None


def _prepared(
    folder: Path,
    teacher: Encoder | Path,
    corpus: Corpus,
    plan: Plan,
    source: StudentSource,
    store: ViewStore,
    how: Pass,
) -> Job:
    """Write a job: the tokens and targets of all sentences, and the student's start."""
    if plan.variants and not isinstance(teacher, Encoder):
        raise InputError("variants are sentences that the teacher has to encode: name a model, not a file of vectors")
    distinct = np.flatnonzero(corpus.index.first_rows == np.arange(len(corpus)))
    if plan.sentences is not None:
        distinct = np.sort(np.random.default_rng([plan.seed, 3]).permutation(distinct)[: plan.sentences])
    if len(distinct) < LEAST_SENTENCES:
        raise InputError(f"{corpus} has {len(distinct)} sentences; a student needs at least {LEAST_SENTENCES}")
    vectors = teacher_vectors(teacher, corpus, store, how)
    dim = source.dim(plan.dim, int(vectors.shape[1]))
    try:
        try:
            taught = Teacher.of(vectors, dim, how)
        except DimensionError as error:
            if plan.dim is not None:  # it was asked for
                raise
            taught = Teacher.of(vectors, error.supported, how)
    except ViewError as error:
        raise ViewError(f"{teacher if isinstance(teacher, Path) else teacher.spec.name}: {error}") from error
    training = plan.training(taught.dim, source)
    held = split_rows(len(distinct), plan.seed)[0]
    with job_writer(folder, source.vocabulary, taught.dim) as writer:
        _write_rows(writer, corpus, distinct, taught, source, how)
        variants = 0
        if plan.variants and isinstance(teacher, Encoder):
            changed = np.delete(distinct, held)
            variants = _write_variants(writer, teacher, corpus, changed, plan, taught, source, store, how)
        if not any(lengths.any() for lengths in writer.lengths):
            raise InputError(
                f"the student's tokenizer knows no token in the {len(distinct)} sentences of {corpus}: name one for "
                "their language, tokenizer='tokenizer.json' (--tokenizer tokenizer.json)"
            )
    facts = {
        "student": source.kind,
        "dim": taught.dim,
        "vocabulary": source.vocabulary,
        "max_length": source.max_length,
        "variants": variants,
        "training": training,
        **source.facts,
        "source": {
            "teacher": teacher_facts(teacher),
            "variance": round(taught.kept, 4),
            "corpus": Path(str(corpus)).name,
            "corpus_key": corpus.key,
            "start": source.ingredients,
        },
    }
    start_of: StudentStart = source.start(folder, held, plan.seed, store, how.progress)
    return finish_job(folder, start_of, source.tokenizer, facts)


def _write_rows(
    writer: JobWriter, corpus: Corpus, rows: NDArray[np.int64], taught: Teacher, source: StudentSource, how: Pass
) -> None:
    """Write the tokens and targets of some sentences of a corpus, whose vectors the teacher has."""
    for start in range(0, len(corpus), _BLOCK):
        stop = min(start + _BLOCK, len(corpus))
        chosen = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)] - start
        if len(chosen):
            sentences = list(corpus.stretch(start, stop))
            ids = source.token_ids([sentences[i] for i in chosen])
            writer.append(ids, taught.targets(slice(start, stop))[chosen])
        how.progress("prepare", stop, len(corpus))


def _write_variants(
    writer: JobWriter,
    teacher: Encoder,
    corpus: Corpus,
    rows: NDArray[np.int64],
    plan: Plan,
    taught: Teacher,
    source: StudentSource,
    store: ViewStore,
    how: Pass,
) -> int:
    """Write the variants of some sentences of a corpus, and return how many there are."""
    with ExitStack() as stack:
        try:
            file = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ensembed-"))) / "variants.txt"
            write_variants(file, corpus, rows, plan.variants, plan.seed)
        except OSError as error:  # the files of the job, which are open meanwhile, may be on another disk
            raise disk_error(error, Path(tempfile.gettempdir(), "variants.txt")) from error
        if not file.stat().st_size:
            return 0
        changed = TextCorpus(file)
        vectors = teacher_vectors(teacher, changed, store, how)
        _write_rows(writer, changed, np.arange(len(changed)), replace(taught, vectors=vectors), source, how)
        return len(changed)


def _trained(job: Job, engine: Engine, how: Pass) -> tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]:
    """Train a job, unless that was done; return figures and weights."""
    kept = _read_trained(job)
    if kept is None:
        from ensembed.distil.student_training import train_folder, write_trained

        folder = job.folder.absolute()
        training: Callable[..., Trained] = partial(train_folder, folder)
        write_trained(job, engine.run_training(training, len(job), replace(how, checkpoint=folder)))
        kept = _read_trained(job)
    if kept is None:
        raise ModelError(f"{job.folder} was changed while the student was trained; run again")
    return kept


def _read_trained(job: Job) -> tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]] | None:
    """Return figures and weights of a job that was trained; None if it was not, or what there is is damaged."""
    try:
        result = read_json(job.folder / "result.json")
        with open_regular(job.folder / "trained.safetensors") as file:
            data = file.read()
        json.dumps(result, allow_nan=False, ensure_ascii=False).encode()  # as the student's files have them
        whole = result.pop("sha256") == seal(result, data) and result["job"] == job.identity
        if not (whole and fits(result, _RESULT) and all(fits(row, _FIGURES) for row in result["leading"].values())):
            return None
        return result, read_weights(data, job.facts, trained=True)
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return None


def _distilled(
    job: Job, result: Mapping[str, Any], weights: Mapping[str, NDArray[Any]], precision: Precision, name: str
) -> Distilled:
    """Return the student with its files."""
    facts = dict(job.facts)
    about = {_OWN: {"source": facts["source"], "training": facts["training"], "figures": dict(result)}}
    tokenizer = open_tokenizer(job.folder / TOKENIZER, job.facts["student"])
    vocabulary = tokenizer.get_vocab()
    if max(vocabulary.values(), default=-1) >= facts["vocabulary"]:
        raise ModelError(f"{job.folder / TOKENIZER} has more tokens than the student's {facts['vocabulary']}")
    if facts["student"] == "static":
        from ensembed.encoders.model2vec_encoder import unknown_token

        vectors = weights["vectors"] * np.exp(weights["weights"])
        vectors = without_unknown(vectors, unknown_token(tokenizer))
        files = static_files(vectors, job.tokenizer().decode(), precision, about)
    else:
        from ensembed.distil.bert_files import bert_files

        tensors = {key: array for key, array in weights.items() if not key.startswith("head.")}
        head = (weights["head.weight"], weights["head.bias"])
        try:
            config, most = {**facts["bert"], **about}, int(facts["max_length"])
            files = bert_files(config, tensors, head, job.tokenizer(), vocabulary, most)
        except ValueError as error:  # what the library of tokenizers skips may be no text, or nested deeply
            raise ModelError(f"{job.folder / TOKENIZER} cannot be saved with the student: {error}") from error
    files = {"README.md": student_card(name, facts, result).encode(), **files}
    return Distilled(facts, result, files)


def compare_students(
    teacher: Encoder,
    students: Sequence[Encoder],
    sentences: Sequence[str],
    *,
    clock: Callable[[], float],
    progress: Progress = silent,
) -> list[tuple[Fidelity, float]]:
    """Return what each student keeps of the teacher on sentences, and the seconds that it took to encode them.

    Raises:
        InputError: there is a single sentence, or none: neighbours are compared.
    """
    if len(sentences) < 2:
        raise InputError(
            f"students are compared by the neighbours of sentences: it takes 2 or more, got {len(sentences)}"
        )
    held = HeldOut(teacher.encode(sentences, progress=progress))
    rows = []
    for student in students:
        student.encode(sentences[:64])  # libraries initialise themselves
        start = clock()
        vectors = student.encode(sentences, progress=progress)
        rows.append((held.fidelity(vectors), clock() - start))
    return rows
