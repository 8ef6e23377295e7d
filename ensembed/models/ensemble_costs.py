"""What an ensemble costs on this machine (`ensembed bench`): its members alone and together, time and memory."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ensembed.corpora.corpus import ListCorpus, check_sentences
from ensembed.encoders import EncoderLike, open_encoder
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.methods import GCCA, SVD, Auto, Concat, Meta
from ensembed.methods.method import fit_supported
from ensembed.models.ensemble import Ensemble, MetaEncoder
from ensembed.support.machine import available_cores
from ensembed.support.progress import Progress, Schedule, silent
from ensembed.views import ViewStore

MOST_SENTENCES = 2048
"""The number of made-up sentences."""

# Sentences that are timed one by one, and the largest number of seconds for all of them.
_SINGLE, _SINGLE_S = 100, 5.0
_REPEATS = 3
_STATM = Path("/proc/self/statm")
# Seconds between two measurements of the memory: a shorter peak is not seen.
_MEMORY_STEP_S = 0.005


@dataclass(frozen=True)
class MemberCosts:
    """The costs of one member; times in seconds.

    Attributes:
        name: its name.
        dim: the length of its vectors.
        open_s: to open it.
        first_s: to encode its first sentence.
        seconds: to encode all sentences.
        single_p50_s: to encode a sentence by itself, the median.
        single_p95_s: the same, the 95th percentile.
        memory: bytes by which the process grew, at the peak; None if the system does not say.
    """

    name: str
    dim: int
    open_s: float
    first_s: float
    seconds: float
    single_p50_s: float
    single_p95_s: float
    memory: int | None


@dataclass(frozen=True)
class EnsembleCosts:
    """The costs of an ensemble; times in seconds.

    Attributes:
        members: each alone.
        sentences: number of distinct sentences that were encoded.
        characters: their characters.
        cores: number of cores that this process may use.
        one_after_the_other_s: the ensemble, concatenated, its members one after the other.
        side_by_side_s: the same with every member in a thread of its own.
        transform_s: for every method, to combine the members' vectors of all sentences.
        cached_s: to read all vectors of all members from a view store.
    """

    members: tuple[MemberCosts, ...]
    sentences: int
    characters: int
    cores: int
    one_after_the_other_s: float
    side_by_side_s: float
    transform_s: dict[str, float]
    cached_s: float

    @property
    def alone_s(self) -> float:
        """The sum of the members' times."""
        return sum(member.seconds for member in self.members)

    def to_json(self) -> dict[str, Any]:
        """Return everything, with the rates and shares that the tables show."""
        facts = dataclasses.asdict(self)
        for member, member_facts in zip(self.members, facts["members"], strict=True):
            member_facts["sentences_per_s"] = self.sentences / member.seconds
            member_facts["characters_per_s"] = self.characters / member.seconds
            member_facts["share"] = member.seconds / self.alone_s
        return facts | {
            "alone_s": self.alone_s,
            "transform_share": {name: seconds / self.alone_s for name, seconds in self.transform_s.items()},
            "cached_sentences_per_s": self.sentences / self.cached_s,
        }

    def member_table(self) -> tuple[list[str], list[list[str]]]:
        """Return headers and a row for every member."""
        headers = [
            "member", "dim", "sentences/s", "characters/s", "share", "open", "first", "single p50", "p95", "memory",
        ]  # fmt: skip
        rows = []
        for member in self.members:
            rates = (_rate(self.sentences / member.seconds), _rate(self.characters / member.seconds))
            times = map(_time, (member.open_s, member.first_s, member.single_p50_s, member.single_p95_s))
            memory = "-" if member.memory is None else f"{member.memory / 1e6:.0f} MB"
            share = f"{member.seconds / self.alone_s:.1%}"
            rows.append([member.name, str(member.dim), *rates, share, *times, memory])
        return headers, rows

    def ensemble_table(self) -> tuple[list[str], list[list[str]]]:
        """Return headers and a row for everything that is done with all members."""
        times = {
            "members alone, added up": self.alone_s,
            "ensemble, one after the other": self.one_after_the_other_s,
            "ensemble, side by side": self.side_by_side_s,
            **{f"transform, {name}": seconds for name, seconds in self.transform_s.items()},
            "looked up in the view store": self.cached_s,
        }
        rows = [
            [what, _time(seconds), _rate(self.sentences / seconds), _share(seconds / self.alone_s)]
            for what, seconds in times.items()
        ]
        return [f"{self.sentences:,} sentences, {self.cores} cores", "time", "sentences/s", "of the sum"], rows


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _share(value: float) -> str:
    return f"{value:.1%}" if value >= 0.1 else f"{100 * value:.2g}%"


def measure(
    encoders: Sequence[EncoderLike],
    sentences: Sequence[str],
    *,
    threads: int | None = None,
    progress: Progress = silent,
) -> EnsembleCosts:
    """Measure what an ensemble costs: its members alone, one after the other, and side by side.

    Args:
        encoders: names, encoders, or any objects that have `encode`.
        sentences: what to encode; repeated and blank ones are left out.
        threads: cores per encoder; None leaves it to each encoder.
        progress: receives the number of sentences.

    Example:
        >>> costs = measure(["demo?dim=8&seed=1", "demo?dim=4&seed=2"], ["a dog barks", "a cat sleeps"])
        >>> [member.dim for member in costs.members], costs.sentences
        ([8, 4], 2)
    """
    texts = [text for text in dict.fromkeys(check_sentences(sentences)) if text.strip()]
    if not encoders:
        raise InputError("an ensemble needs at least one encoder")
    if not texts:
        raise InputError("there is no sentence to measure with: give at least one that is not blank")
    members, costs, views = zip(*(_alone(source, texts, threads, progress) for source in encoders), strict=True)
    ensemble = Ensemble(members)
    model = MetaEncoder(ensemble, Concat().build(ensemble.dims))

    def together(side_by_side: bool, label: str) -> float:
        model.schedule = Schedule(side_by_side=side_by_side)
        return _seconds(lambda: model.encode(texts, progress=lambda _, done, total: progress(label, done, total)))

    return EnsembleCosts(
        members=costs,
        sentences=len(texts),
        characters=sum(map(len, texts)),
        cores=available_cores(),
        one_after_the_other_s=together(False, "one after the other"),
        side_by_side_s=together(True, "side by side"),
        transform_s={meta.method["name"]: _best(partial(meta.transform, views)) for meta in _fitted(views)},
        cached_s=_cached(members, views, texts),
    )


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _best(function: Callable[[], object]) -> float:
    """Return the shortest time of several runs: other load only makes a run slower."""
    return min(_seconds(function) for _ in range(_REPEATS))


def _alone(
    source: EncoderLike, texts: list[str], threads: int | None, progress: Progress
) -> tuple[Encoder, MemberCosts, FloatArray]:
    """Open one member and time it on one sentence, on all of them, and on some one by one."""
    with PeakMemory() as memory:
        start = time.perf_counter()
        encoder = open_encoder(source, threads=threads, progress=progress)
        opened = time.perf_counter()
        encoder.encode(texts[:1])
        warm = time.perf_counter()
        vectors = encoder.encode(texts, progress=progress)
        done = time.perf_counter()
    single: list[float] = []
    for text in itertools.islice(texts, _SINGLE):
        single.append(_seconds(partial(encoder.encode, [text])))
        if time.perf_counter() - done > _SINGLE_S:
            break
    p50, p95 = np.percentile(single, [50, 95]).tolist()
    name, dim = encoder.spec.name, encoder.spec.dim
    costs = MemberCosts(name, dim, opened - start, warm - opened, done - warm, p50, p95, memory.grown)
    return encoder, costs, vectors


def _fitted(views: Sequence[FloatArray]) -> list[Meta]:
    """Fit every kind of method that is solved on these vectors, with the largest dimension that they allow."""
    metas = [Concat().fit(views)]
    if len(views[0]) < 2:
        return metas
    # The cost of auto does not depend on its weights: take the first member for the one that is trusted most.
    metas.append(Auto(weights="equal", whitened=tuple(range(1, len(views)))).fit(views))
    dim = max(view.shape[1] for view in views)
    for method in (SVD(dim=dim), GCCA(dim=dim)) if len(views) > 1 else (SVD(dim=dim),):
        with suppress(DimensionError, ViewError):  # for example a member with the same vector for all sentences
            metas.append(fit_supported(method, lambda method: method.fit(views)))
    return metas


def _cached(members: Sequence[Encoder], views: Sequence[FloatArray], texts: list[str]) -> float:
    """Time how long it takes to find a known corpus in a view store, check every byte and read the vectors."""
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder:
        store = ViewStore(folder)
        known = [_KnownVectors(member.spec, texts, view) for member, view in zip(members, views, strict=True)]
        store.embed_all(ListCorpus(texts), known)
        return _best(lambda: [np.asarray(view) for view in store.embed_all(ListCorpus(texts), known)])


class _KnownVectors(Encoder):
    """An encoder that returns vectors which are known already."""

    def __init__(self, spec: EncoderSpec, texts: list[str], vectors: FloatArray) -> None:
        self._spec = spec
        self._row = {text: i for i, text in enumerate(texts)}
        self._vectors = vectors

    def embed(self, sentences: list[str]) -> FloatArray:
        return self._vectors[[self._row[sentence] for sentence in sentences]]


class PeakMemory:
    """Measure by how many bytes the memory of this process grows in a `with` block: `grown`.

    The system's own peak never falls and would hide smaller members. `grown` is None where the system does not say.

    Example:
        >>> with PeakMemory() as memory:
        ...     numbers = list(range(1000))
        >>> memory.grown is None or memory.grown >= 0
        True
    """

    def __init__(self) -> None:
        self.grown: int | None = None
        self._start = self._peak = 0
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        if _STATM.exists():
            self._start = self._peak = _resident()
            self._watcher.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        if self._watcher.ident is not None:
            self._watcher.join()
            self.grown = max(self._peak, _resident()) - self._start

    def _watch(self) -> None:
        while not self._stop.wait(_MEMORY_STEP_S):
            self._peak = max(self._peak, _resident())


def _resident() -> int:
    """Return the bytes of this process that are in memory."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def default_sentences(count: int = 2000) -> list[str]:
    """Return distinct made-up sentences of 4 to 35 words, such as people write to a help desk; always the same.

    Example:
        >>> default_sentences(2)
        ['A customer from Lisbon asks how to change the address on an invoice.', 'My neighbour cannot log in since \
the update for the third time this week.']
    """
    if not 1 <= count <= MOST_SENTENCES:
        raise InputError(
            f"there are 1 to {MOST_SENTENCES} made-up sentences, not {count}; give a file of your own for more"
        )
    parts = json.loads((resources.files("ensembed") / "models" / "help_desk_sentences.json").read_text("utf-8"))
    sentences = list(itertools.product(parts["who"], parts["did"], parts["more"]))
    # A step that shares no factor with their number visits each once, and mixes the lengths.
    step = 2 * len(parts["did"]) * len(parts["more"]) + len(parts["more"]) + 1
    chosen = (sentences[i * step % MOST_SENTENCES] for i in range(count))
    return [" ".join(part for part in sentence if part) + "." for sentence in chosen]
