"""Ensembles and the meta-encoders that are fitted on them."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from ensembed.corpora import as_corpus
from ensembed.corpora.corpus import Corpus
from ensembed.encoders import EncoderLike, open_encoder
from ensembed.encoders.base import PROBES, Encoder, EncoderSpec, FloatArray
from ensembed.engines.engine import Engine, Local
from ensembed.errors import EncoderError, EnsembedError, InputError
from ensembed.methods import Auto, Meta, Method
from ensembed.methods.weights import CountedMembers
from ensembed.models.saved_model import SavedModel, write_model
from ensembed.models.tuning import LabelledPairs, Labels, tune_method
from ensembed.numerics.pass_options import Pass
from ensembed.support.progress import Progress, silent
from ensembed.views import ViewStore
from ensembed.views.schedule import Schedule

if TYPE_CHECKING:
    from ensembed.numerics.pass_options import PassOptions

Missing: TypeAlias = Literal["error", "drop"]


class Ensemble:
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
            raise InputError(f"an ensemble is a list of encoders: write [{encoders!r}]")
        self.encoders: tuple[Encoder, ...] = tuple(
            open_encoder(encoder, threads=threads, progress=progress) for encoder in encoders
        )
        if not self.encoders:
            raise InputError("an ensemble needs at least one encoder")
        self.dims = [encoder.spec.dim for encoder in self.encoders]
        names = [encoder.spec.name for encoder in self.encoders]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(
                f"{twice!r} is a member twice: leave one out; two objects of one class need ObjectEncoder(it, name=...)"
            )

    def __repr__(self) -> str:
        return f"Ensemble({[encoder.spec.name for encoder in self.encoders]})"

    def fit(
        self,
        sentences: Corpus | Path | Sequence[str],
        method: Method | None = None,
        *,
        tune: Labels | None = None,
        store: ViewStore | None = None,
        engine: Engine | None = None,
        threads: int | None = None,
        progress: Progress = silent,
    ) -> MetaEncoder:
        """Fit a method on what the members say about unlabelled sentences.

        Args:
            sentences: a list, the path of a text or Parquet file or a folder of them, or a corpus (`open_corpus`).
            method: how to combine the views; None is `Auto()`, which finds out how far each member can be trusted.
            tune: labelled pairs, (score, text, text) or from `ensembed.sts.read_pairs`, to choose weights, tau, dim and
                method on. `method` stays unless choosing gains more than its standard error.
            store: where views, and an autoencoder's training while it runs, are kept; by default the user's cache.
            engine: where to encode and to fit: `ensembed.engines.Ray()` is a cluster; None is this process.
            threads: cores for the fit; None leaves BLAS its own choice.
            progress: receives the rows and epochs that are done.

        Raises:
            InputError: the method does not suit the members, or the pairs cannot be tuned on. Nothing is encoded yet.
            StoreBusyError: another process is encoding or training the same.
        """
        method = Auto() if method is None else method
        self.check(method)
        corpus = sentences if isinstance(sentences, Corpus) else as_corpus(sentences)
        pairs = None if tune is None else LabelledPairs.of(tune)
        if pairs is None and not method.needs_rows:
            return MetaEncoder(self, method.build(self.dims))
        store = store or ViewStore()
        engine = engine or Local()
        views = engine.embed_all(store, corpus, self.encoders, progress=progress)

        names = [encoder.spec.name for encoder in self.encoders]

        def fit(weighted: Method) -> Meta:
            with store.training(self._training_key(corpus, weighted)) if weighted.trains else nullcontext() as kept:
                options: PassOptions = {"threads": threads, "progress": progress}
                if kept is not None:
                    options["checkpoint"] = kept
                return weighted.fit(views, passes=engine, **options)

        if pairs is None:
            meta = fit(method.resolved(views, corpus, names=names, progress=progress))
        else:
            pair_views = engine.embed_all(store, pairs.corpus, self.encoders, progress=progress)
            how = Pass(threads=threads, progress=progress)
            meta = tune_method(
                method, views, pairs, pair_views, fit=fit, sentences=corpus, names=names, how=how, passes=engine
            )
        return MetaEncoder(self, meta, corpus=corpus.key)

    def check(self, method: Method) -> None:
        """Raise an InputError if the method cannot combine these members; `fit` calls this before it encodes."""
        if not isinstance(method, Method):
            raise InputError(f"a method is an object such as GCCA(dim=512), not {method!r}")
        method.check(self.dims)

    def _training_key(self, corpus: Corpus, method: Method) -> str:
        """Return the key of everything that makes a training what it is: of the weights, only who takes part."""
        taken = [self.encoders[j].spec.key for j in CountedMembers.of(method.weighting, self.dims).members]
        settings = {key: value for key, value in method.to_json().items() if key not in ("weights", *method.origin)}
        facts = [corpus.key, taken, settings]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


class MetaEncoder(Encoder):
    """An ensemble with a fitted meta-embedding; itself an encoder.

    Args:
        ensemble: the members.
        meta: what was fitted on their views.
        name: what to call it.
        missing: "error" stops when a member fails; "drop" warns and goes on with the others.
        corpus: the key of the corpus that was fitted on.
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
    ) -> None:
        if list(meta.view_dims) != ensemble.dims:
            raise InputError(
                f"the meta-embedding takes views of {list(meta.view_dims)}, the members give {ensemble.dims}"
            )
        if missing not in ("error", "drop"):
            raise InputError(f"missing is 'error' or 'drop', not {missing!r}")
        self.ensemble = ensemble
        self.meta = meta
        self.missing = missing
        self.corpus = corpus
        self.schedule = Schedule()
        # With missing="drop" vectors may lack a member, and warnings are given.
        self.cacheable = missing == "error"
        self.concurrent = self.cacheable and all(encoder.concurrent for encoder in ensemble.encoders)
        members = ", ".join(encoder.spec.name for encoder in ensemble.encoders)
        self._name = name or f"{meta.method['name']}({members})"

    @cached_property
    def spec(self) -> EncoderSpec:
        """Everything that changes the numbers: the members and what was fitted."""
        facts = hashlib.sha256("".join(encoder.spec.key for encoder in self.ensemble.encoders).encode())
        self.meta.update(facts)
        return EncoderSpec(self._name, "meta", self.meta.dim, facts.hexdigest()[:16], pooling=self.meta.method["name"])

    def encode(self, sentences: Sequence[str], *, progress: Progress = silent) -> FloatArray:
        """Return vectors [n, d] of the sentences, in their order.

        With missing="drop" a failing member is left out of the whole call, with a warning, so that the rows compare.
        """
        model = self
        while True:
            try:
                return Encoder.encode(model, sentences, progress=progress)
            except _MemberFailedError as failure:
                if self.missing == "error":
                    raise failure.error from failure.error.__cause__
                name = self.ensemble.encoders[failure.member].spec.name
                warnings.warn(f"going on without encoder {name!r}: {failure.error}", RuntimeWarning, stacklevel=2)
                absent = model._absent | {failure.member}
                if len(absent) == len(self.meta.counted):
                    raise EncoderError(f"every member of {self._name} failed; the last: {failure.error}") from failure
                model = copy(self)
                model._absent = absent

    def embed(self, sentences: list[str]) -> FloatArray:
        """Combine the vectors of the members that count."""
        present = [j for j in self.meta.counted if j not in self._absent]
        jobs = [partial(self._encode_by, j, sentences) for j in present]
        views = dict(zip(present, self.schedule.run(jobs, len(sentences)), strict=True))
        return self.meta.transform([views.get(j) for j in range(len(self.ensemble.encoders))])

    def _encode_by(self, j: int, sentences: list[str], progress: Progress) -> FloatArray:
        try:
            return self.ensemble.encoders[j].encode(sentences, progress=progress)
        except EnsembedError as error:
            raise _MemberFailedError(j, error) from error

    def truncate(self, k: int) -> MetaEncoder:
        """Return the meta-encoder of the first k dimensions."""
        return MetaEncoder(
            self.ensemble, self.meta.truncate(k), name=f"{self._name}[:{k}]", missing=self.missing, corpus=self.corpus
        )

    def save(self, folder: str | Path) -> None:
        """Save as `config.json` and `model.safetensors`; the members are saved by name, not by weight."""
        encoders = self.ensemble.encoders
        fingerprints = tuple(encoder.encode(PROBES) for encoder in encoders)
        members = tuple(encoder.spec for encoder in encoders)
        write_model(Path(folder), SavedModel(self.meta, members, fingerprints, self.corpus))

    def __repr__(self) -> str:
        return f"MetaEncoder({self._name!r}, dim={self.meta.dim})"


class _MemberFailedError(EnsembedError):
    """Says which member of an ensemble failed, and how."""

    def __init__(self, member: int, error: EnsembedError) -> None:
        super().__init__(str(error))
        self.member = member
        self.error = error
