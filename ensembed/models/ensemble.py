"""Ensembles and the meta-encoders that are fitted on them."""

from __future__ import annotations

import hashlib
import json
import threading
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from ensembed.corpora import as_corpus
from ensembed.corpora.corpus import Corpus, ListCorpus, check_sentences, shorten
from ensembed.encoders import EncoderLike, open_encoder
from ensembed.encoders.base import BATCH, PROBES, Encoder, EncoderSpec, FloatArray, without_password
from ensembed.engines.engine import Engine, Local
from ensembed.errors import EncoderError, EnsembedError, InputError, MissingError, ModelError
from ensembed.fetch.catalog import require_pulled
from ensembed.methods import Auto, Meta, Method, make_method
from ensembed.methods.method import SAMPLE
from ensembed.methods.prediction import LEAST_ROWS, MOST_COLUMNS, Predictor, fit_predictor
from ensembed.methods.weights import CountedMembers
from ensembed.models.named_ensembles import ENSEMBLES, split_names
from ensembed.models.saved_model import SavedModel, split_model_name, write_model
from ensembed.models.saved_translation import Translation
from ensembed.models.tuning import LabelledPairs, Labels, tune_method
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Views
from ensembed.support.checks import check_whole, is_number
from ensembed.support.machine import blas_threads
from ensembed.support.progress import Progress, Schedule, silent
from ensembed.support.shown_objects import Facts, Shown
from ensembed.support.text_tables import printable
from ensembed.views import ViewStore

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ensembed.encoders.encode_options import EncodeOptions

Missing: TypeAlias = Literal["error", "drop", "predict"]
MISSING: tuple[Missing, ...] = get_args(Missing)
WITHOUT: Mapping[Missing, str] = {"drop": "going on without", "predict": "predicting"}
"""What a warning says, before the name of a missing member, that the model does."""
_SHORTER = (32, 64, 128, 256, 512, 768)  # dimensions at which a fit says what truncated vectors keep
_KEPT_ROWS = 2000  # sentences among which the nearest are looked for
NO_PREDICTOR = (
    f"it was fitted on fewer than {LEAST_ROWS} sentences, with a method or weights that need none (conc, avg), or by "
    f"an older version, or it has one member, or more than {MOST_COLUMNS:,} columns"
)
"""Why a model cannot predict members."""


class Ensemble(Shown):
    """An ordered list of encoders.

    Args:
        encoders: names (`"minilm"`), encoders, or any objects that have `encode`.
        threads: cores per encoder; None leaves it to each encoder.
        progress: receives long work that opening a member takes, such as the conversion of a file of word vectors.

    Example:
        >>> from ensembed.methods import SVD
        >>> ensemble = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"])
        >>> sentences = ["a dog barks", "a cat sleeps", "the dog sleeps", "the cat barks"]
        >>> ensemble.fit(sentences, SVD(dim=2)).encode(["a dog sleeps"]).shape
        (1, 2)
    """

    def __init__(
        self, encoders: Sequence[EncoderLike], *, threads: int | None = None, progress: Progress = silent
    ) -> None:
        if isinstance(encoders, str):
            members = ENSEMBLES.get(encoders, split_names(encoders))
            raise InputError(f"an ensemble is a list of encoders: write {list(members)!r}")
        try:
            self.encoders: tuple[Encoder, ...] = tuple(
                open_encoder(encoder, threads=threads, progress=progress) for encoder in encoders
            )
        except MissingError:
            require_pulled(encoders)  # names all that are not here, and not only the first
            raise
        if not self.encoders:
            raise InputError("an ensemble needs at least one encoder")
        self.dims = [encoder.spec.dim for encoder in self.encoders]
        names = [encoder.spec.name for encoder in self.encoders]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(
                f"{twice!r} is a member twice: leave one out; two objects of one class need ObjectEncoder(it, name=...)"
            )

    if not TYPE_CHECKING:  # which would take any name for one that is there

        def __getattr__(self, name: str) -> object:
            """Say what to write for a name that models have."""
            hint = "; fit it first: ensemble.fit(sentences) returns a model" if hasattr(MetaEncoder, name) else ""
            raise AttributeError(f"'Ensemble' object has no attribute {name!r}{hint}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"Ensemble({[without_password(encoder.spec.name) for encoder in self.encoders]})"

    def _facts(self) -> Facts:
        return [("member", f"{without_password(encoder.spec.name)} ({encoder.dim})") for encoder in self.encoders]

    def fit(
        self,
        sentences: Corpus | Path | Iterable[str],
        method: Method | str | None = None,
        *,
        tune: Labels | None = None,
        store: ViewStore | None = None,
        engine: Engine | None = None,
        threads: int | None = None,
        progress: Progress = silent,
        **parameters: Any,  # noqa: ANN401 - each method knows its own
    ) -> MetaEncoder:
        """Fit a method on what the members say about unlabelled sentences.

        Args:
            sentences: a list, the path of a text or Parquet file or a folder of them, or a corpus (`open_corpus`).
            method: how to combine the views, or its short name ("gcca"); None is `Auto()`, which finds out how far each
                member can be trusted.
            tune: labelled pairs, (score, text, text) or from `ensembed.sts.read_pairs`, to choose weights, tau, dim and
                method on. `method` stays unless choosing gains more than its standard error.
            store: where views, and an autoencoder's training while it runs, are kept; by default the user's cache.
            engine: where to encode and to fit: `ensembed.engines.Ray()` is a cluster; None is this process.
            threads: cores for the fit, BLAS included; None leaves BLAS its own choice, see `limit_threads`.
            progress: receives the rows and epochs that are done.
            parameters: those of a method that is given by its name, or of `Auto`: `fit(texts, "gcca", dim=512)`.

        Raises:
            InputError: the method does not suit the members, or the pairs cannot be tuned on. Nothing is encoded yet.
            StoreBusyError: another process is encoding or training the same.
        """
        if threads is not None:
            check_whole("threads", threads, 1)
        if not isinstance(method, Method) or parameters:
            method = _method_of(method, parameters)
        method.check(self.dims)
        corpus = sentences if isinstance(sentences, Corpus) else as_corpus(sentences)
        pairs = None if tune is None else LabelledPairs.of(tune)
        if pairs is None and not method.needs_rows:
            if isinstance(sentences, Sequence) and not sentences:
                return MetaEncoder(self, method.build(self.dims))
            if len(corpus) > SAMPLE:  # rows are for the leading directions only
                from ensembed.reliability.trust_estimate import sample_rows, sample_sentences  # most fits do without

                corpus = ListCorpus(sample_sentences(corpus, sample_rows(len(corpus), corpus, SAMPLE, 0)))
        store, engine = store or ViewStore(), engine or Local()
        views = engine.embed_all(store, corpus, self.encoders, progress=progress)
        names = [encoder.spec.name for encoder in self.encoders]

        def fit(weighted: Method) -> Meta:
            with store.training(self._training_key(corpus, weighted)) if weighted.trains else nullcontext() as kept:
                folder: dict[str, Any] = {"checkpoint": kept} if kept else {}
                return weighted.fit(views, passes=engine, threads=threads, progress=progress, **folder)

        if pairs is not None:
            pair_views = engine.embed_all(store, pairs.corpus, self.encoders, progress=progress)
        how = Pass(threads=threads, progress=progress)
        with blas_threads(threads):
            if pairs is None:
                meta = fit(method.resolved(views, corpus, names=names, progress=progress))
            else:
                meta = tune_method(
                    method, views, pairs, pair_views, fit=fit, sentences=corpus, names=names, how=how, passes=engine
                )
            predictor = fit_predictor(meta, views, corpus, how=how) if meta.rows >= LEAST_ROWS else None
            if len(corpus) >= LEAST_ROWS and (kept := _neighbours_kept(meta, views, corpus)):
                meta = replace(meta, method={**meta.method, "neighbours_kept": kept})
        name = "" if isinstance(corpus, ListCorpus) else str(corpus)
        return MetaEncoder(self, meta, corpus=corpus.key if meta.rows else "", corpus_name=name, predictor=predictor)

    def _training_key(self, corpus: Corpus, method: Method) -> str:
        """Return the key of everything that makes a training what it is: of the weights, only who takes part."""
        taken = [self.encoders[j].spec.key for j in CountedMembers.of(method.weighting, self.dims).members]
        settings = {key: value for key, value in method.to_json().items() if key not in ("weights", *method.origin)}
        facts = [corpus.key, taken, settings]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _method_of(method: object, parameters: Mapping[str, Any]) -> Method:
    """Return the method of that name, `Auto` for None, with these parameters; a method that is an object has its own.

    Raises:
        InputError: it is no method, or an object with parameters beside it.
    """
    if method is None or isinstance(method, str):
        return make_method(Auto.name if method is None else method, **parameters)
    if not isinstance(method, Method):
        raise InputError(f"a method is a name such as 'gcca' or an object such as GCCA(dim=512), not {method!r}")
    given = ", ".join(f"{name}=…" for name in parameters)
    raise InputError(f"the parameters of a method that is an object are its own: {type(method).__name__}({given})")


def _neighbours_kept(meta: Meta, views: Views, corpus: Corpus) -> dict[str, float]:
    """Return the part of each sentence's ten nearest that truncated vectors keep, by dimension; {} if it is unknown."""
    from ensembed.reliability.search_agreement import Trial
    from ensembed.reliability.trust_estimate import sample_rows, sample_vectors

    known = meta.dim if meta.leading is None else meta.leading.directions.shape[1]
    shorter = [k for k in _SHORTER if k < meta.dim and k <= known]
    if not shorter or (meta.leading is None and meta.spectrum is None):
        return {}
    sample = sample_rows(views[0].shape[0], corpus, _KEPT_ROWS, 1)
    if len(sample) < LEAST_ROWS:
        return {}
    sampled = [sample_vectors(view, sample, j, unit=False) for j, view in enumerate(views)]
    vectors = meta.transform(sampled)
    trial = Trial.of(vectors)
    recalls = {}
    for k in shorter:
        cut = meta.shorten(vectors, k)
        recalls[str(k)] = round(trial.recall(cut, cut), 3)
    return recalls


class MetaEncoder(Encoder):
    """An ensemble with a fitted meta-embedding; itself an encoder.

    Args:
        ensemble: the members.
        meta: what was fitted on their views.
        name: what to call it.
        missing: "error" stops when a member fails; "drop" warns and goes on with the others; "predict" warns and
            predicts from the others what it would add.
        corpus: the key of the corpus that was fitted on.
        corpus_name: the file, folder or URL of that corpus, for a person; it is not saved.
        predictor: what predicts members, fitted with the model; None where there were too few sentences for it.
        translation: the model whose vectors this one gives, if it was fitted for that; then texts that look unlike the
            sample give a warning.
        time_limit: seconds that a member may take for a batch of sentences; a slower one counts as failed. The call
            goes on in the background, and until it ends the member counts as failed at once.
    """

    _absent: frozenset[int] = frozenset()

    def __init__(
        self,
        ensemble: Ensemble,
        meta: Meta,
        *,
        name: str | None = None,
        missing: Missing = "error",
        corpus: str = "",
        corpus_name: str = "",
        predictor: Predictor | None = None,
        translation: Translation | None = None,
        time_limit: float | None = None,
    ) -> None:
        if list(meta.view_dims) != ensemble.dims:
            raise InputError(
                f"the meta-embedding takes views of {list(meta.view_dims)}, the members give {ensemble.dims}"
            )
        if missing not in MISSING:
            raise InputError(f"missing is 'error', 'drop' or 'predict', not {missing!r}")
        if missing == "predict" and predictor is None:
            raise InputError(
                f"this model cannot predict a missing member: {NO_PREDICTOR}; fit it again on more sentences with "
                "auto, or take missing='drop'"
            )
        if time_limit is not None and not (is_number(time_limit) and 0 < time_limit <= threading.TIMEOUT_MAX):
            raise InputError(f"time_limit is a number of seconds above 0, not {time_limit!r}; None is no limit")
        self.predictor = predictor
        self.translation = translation
        self.time_limit = time_limit
        self._late: dict[int, threading.Thread] = {}
        self._completed: dict[frozenset[int], Meta] = {}
        self.ensemble = ensemble
        self.meta = meta
        self.missing = missing
        self.corpus = corpus
        self.corpus_name = corpus_name
        self.schedule = Schedule()
        # With missing="drop" or "predict", here or in a member, vectors may lack a member, and warnings are given.
        self.cacheable = missing == "error" and all(encoder.cacheable for encoder in ensemble.encoders)
        self.concurrent = (
            self.cacheable
            and time_limit is None
            and translation is None
            and all(encoder.concurrent for encoder in ensemble.encoders)
        )
        members = ", ".join(encoder.spec.name for encoder in ensemble.encoders)
        self._name = name or f"{meta.method['name']}({members})"

    @cached_property
    def spec(self) -> EncoderSpec:
        """Everything that changes the numbers: the members and what was fitted."""
        facts = hashlib.sha256("".join(encoder.spec.key for encoder in self.ensemble.encoders).encode())
        self.meta.update(facts)
        return EncoderSpec(self._name, "meta", self.meta.dim, facts.hexdigest()[:16], pooling=self.meta.method["name"])

    # The signature of `Encoder.encode`, written out: editors and type checkers show it.
    def encode(
        self,
        sentences: Iterable[str],
        *,
        batch_size: int = BATCH,
        progress: Progress = silent,
        **options: Unpack[EncodeOptions],
    ) -> FloatArray:
        """Return vectors [n, d] of the sentences, in their order; of one string, its vector [d]. See `Encoder.encode`.

        With missing="drop" a failing member is left out of the whole call, with a warning, so that the rows compare;
        with missing="predict" what it adds is predicted for the whole call.
        """
        # A string, or options, come back here as a list without options.
        if self.missing == "error" or options or isinstance(sentences, str):
            return super().encode(sentences, batch_size=batch_size, progress=progress, **options)
        vectors, failures = self.encode_present(sentences, batch_size=batch_size, progress=progress)
        for member, error in failures.items():
            name = self.ensemble.encoders[member].spec.name
            warnings.warn(f"{WITHOUT[self.missing]} encoder {name!r}: {error}", RuntimeWarning, stacklevel=2)
        return vectors

    def encode_present(
        self, sentences: Iterable[str], *, batch_size: int = BATCH, progress: Progress = silent
    ) -> tuple[FloatArray, dict[int, EnsembedError]]:
        """Return vectors [n, d] as `encode` does, and the error of each missing member by its place; do not warn."""
        model, failures = self, dict[int, EnsembedError]()
        if not isinstance(sentences, list | tuple):
            sentences = check_sentences(sentences)  # a generator can be read only once
        while True:
            try:
                return Encoder.encode(model, sentences, batch_size=batch_size, progress=progress), failures
            except MemberFailedError as failure:
                failures[failure.member] = failure.error
                if len(failures) == len(self.meta.counted):
                    each = "; ".join(map(str, failures.values()))
                    raise EncoderError(f"every member of {self._name} failed: {each}") from failure
                model = copy(self)
                model._absent = frozenset(failures)
                model.meta = self.meta_without(failures)
                if self.meta.counted[0] in failures:
                    model.translation = None  # it knows the texts by the vectors of the first member

    def embed(self, sentences: list[str]) -> FloatArray:
        """Combine the vectors of the members that count."""
        present = [j for j in self.meta.counted if j not in self._absent]
        jobs = [partial(self.encode_member, j, sentences) for j in present]
        views = dict(zip(present, self.schedule.run(jobs, len(sentences)), strict=True))
        if self.translation is not None:
            self.translation.warn_if_unlike(views[present[0]])
        return self.meta.transform([views.get(j) for j in range(len(self.ensemble.encoders))])

    def encode_member(self, j: int, sentences: list[str], progress: Progress = silent) -> FloatArray:
        """Return the vectors of member j. If members may be missing, an error of it is a MemberFailedError."""
        encoder = self.ensemble.encoders[j]
        try:
            if self.time_limit is not None:
                return self._encode_in_time(j, encoder, sentences)
            return encoder.encode(sentences, progress=progress)
        except EnsembedError as error:
            if self.missing == "error":
                raise
            raise MemberFailedError(j, error) from error

    @cached_property
    def query_encoder(self) -> Encoder:
        """The same with every member's encoder of queries; this one if no member treats them apart."""
        return self._with_members([member.query_encoder for member in self.members])

    @cached_property
    def document_encoder(self) -> Encoder:
        """The same with every member's encoder of documents; this one if no member treats them apart."""
        return self._with_members([member.document_encoder for member in self.members])

    def _with_members(self, members: Sequence[Encoder]) -> MetaEncoder:
        if all(new is old for new, old in zip(members, self.members, strict=True)):
            return self
        return self._changed(ensemble=Ensemble(members))

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that make this model again."""
        names = ("ensemble", "meta", "missing", "corpus", "corpus_name", "predictor", "translation", "time_limit")
        return {"name": self._name, **{name: getattr(self, name) for name in names}}

    def _changed(self, **changes: Any) -> MetaEncoder:  # noqa: ANN401 - settings of all types
        model = MetaEncoder(**self.settings | changes)
        model._late = self._late  # a member that is late for one of the two is busy for both
        return model

    def _encode_in_time(self, j: int, encoder: Encoder, sentences: list[str]) -> FloatArray:
        """Encode in a thread that is left alone when its time is over: nothing can stop a library from outside."""
        before = self._late.get(j)
        if before is not None and before.is_alive():
            raise EncoderError(f"encoder {encoder.spec.name!r} is still busy with an earlier call")
        outcome: list[FloatArray | BaseException] = []

        def run() -> None:
            try:
                outcome.append(encoder.encode(sentences))
            except BaseException as error:  # noqa: BLE001 - it is raised again where it was called
                outcome.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            thread.join(self.time_limit)
        finally:  # after Ctrl-C, too
            if not outcome:
                self._late[j] = thread  # not before: calls of other threads that are in time are no reason to fail
        if not outcome:
            raise EncoderError(f"encoder {encoder.spec.name!r} took longer than {self.time_limit:g} seconds")
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    def meta_without(self, absent: Iterable[int]) -> Meta:
        """Return the meta-embedding to use while these members are missing: with missing="predict" it predicts them."""
        places = frozenset(absent) & frozenset(self.meta.counted)
        if not places or self.missing != "predict" or self.predictor is None:
            return self.meta
        if places not in self._completed:
            self._completed[places] = self._complete(self.predictor, places)
        return self._completed[places]

    def _complete(self, predictor: Predictor, absent: Collection[int]) -> Meta:
        try:
            return predictor.complete(self.meta, absent)
        except ModelError as error:
            raise ModelError(f"{self._name}: {error}") from error

    def cheap(self, member: str) -> MetaEncoder:
        """Return a model that encodes with one member only and predicts what the others would add.

        Args:
            member: the name of the member.

        Raises:
            InputError: there is no such member, or the model cannot predict.
        """
        names = [encoder.spec.name for encoder in self.members]
        if member not in names or names.index(member) not in self.meta.counted:
            counted = ", ".join(names[j] for j in self.meta.counted)
            raise InputError(f"{member!r} is no member that counts: choose of {counted}")
        if self.predictor is None:
            raise InputError(f"this model cannot predict its other members: {NO_PREDICTOR}")
        place = names.index(member)
        absent = [j for j in self.meta.counted if j != place]
        whole = self._complete(self.predictor, absent)
        gain = self.predictor.alone[place]
        facts = {
            "name": "cheap",
            "predicts": [names[j] for j in absent],
            "of": dict(self.method),
            "recall_10": {"member": round(gain.member, 4), "cheap": round(gain.cheap, 4)},
        }
        meta = Meta(facts, whole.dim, (whole.projections[place],), whole.normalize, whole.spectrum, whole.rows)
        cheap = Ensemble([self.members[place]])
        return MetaEncoder(cheap, meta, name=f"cheap({member})", corpus=self.corpus, corpus_name=self.corpus_name)

    def truncate(self, k: int) -> MetaEncoder:
        """Return the meta-encoder of the k leading dimensions, see `Meta.truncate`; it cannot predict members."""
        if self.missing == "predict":
            raise InputError("a shortened model cannot predict missing members: load it with missing='drop'")
        name = f"{split_model_name(self._name)[0]}?truncate_dim={k}"
        return self._changed(meta=self.meta.truncate(k), name=name, predictor=None, translation=None)

    def shorten(self, vectors: FloatArray, k: int) -> FloatArray:
        """Return vectors [n, d] of this model in the k leading dimensions [n, k], as `truncate(k)` encodes them."""
        return self.meta.shorten(vectors, k)

    def save(self, folder: str | Path) -> None:
        """Save as `config.json` and `model.safetensors`; the members are saved by name, not by weight.

        A model that is there already is replaced when the new one is complete; other libraries' files are an error.
        """
        if folder == "":
            raise InputError("save takes the name of a folder, not an empty one; '.' is the current folder")
        encoders = self.ensemble.encoders
        fingerprints = tuple(encoder.encode(PROBES) for encoder in encoders)
        members = tuple(encoder.spec for encoder in encoders)
        saved = SavedModel(self.meta, members, fingerprints, self.corpus, self.predictor, self.translation)
        write_model(Path(folder), saved)

    @property
    def members(self) -> tuple[Encoder, ...]:
        """The encoders, in the order of the ensemble."""
        return self.ensemble.encoders

    @property
    def device(self) -> str:
        """Where the members compute, with commas between different devices."""
        return ", ".join(dict.fromkeys(member.device for member in self.members))

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each member by its name; 0 for one that is left out."""
        weights = self.method.get("weights", "equal")
        numbers = [1.0] * len(self.members) if isinstance(weights, str) else weights
        return {
            member.spec.name: float(numbers[j]) if j in self.meta.counted else 0.0
            for j, member in enumerate(self.members)
        }

    @property
    def method(self) -> Mapping[str, Any]:
        """The name and the hyper-parameters of the method, and how its weights were found."""
        return self.meta.method

    def __repr__(self) -> str:
        return printable(f"MetaEncoder({shorten(without_password(self._name))}, dim={self.meta.dim})")

    def _facts(self) -> Facts:
        from ensembed.models.summary import summary  # which imports this module

        return [(what, without_password(value)) for what, value in [["name", self._name], *summary(self)]]


class MemberFailedError(EnsembedError):
    """Says which member of an ensemble failed, and how."""

    def __init__(self, member: int, error: EnsembedError) -> None:
        super().__init__(str(error))
        self.member = member
        self.error = error
