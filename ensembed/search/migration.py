"""Make an index of one model an index of another by translating its vectors, without embedding all texts again.

The new index is written to another folder; the old one is only read. A map is fitted on some texts of the index, which
are embedded with the new model. Then one segment after the other is translated. `migration.json` in the new folder says
what is done: after an interruption, even by `kill -9`, the same call goes on there. Writing `index.json` makes the new
index. Texts that were embedded for the sample, and texts without a vector that could be translated, keep the vectors
that the new model gives; the index knows which rows were translated.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.base import PROBES, Encoder, FloatArray, SavedSpec, same_settings
from ensembed.errors import DamagedIndexError, InputError, SearchIndexError
from ensembed.methods.encoder_map_fitting import FittedMap, Translated, apply_projection, fit_map
from ensembed.methods.encoder_maps import KINDS, MapKind
from ensembed.methods.meta import PROJECTIONS, Projection
from ensembed.models.opening import ModelLike
from ensembed.models.saved_model import NamedTensors
from ensembed.models.translation import LEAST, Verdict, verdict
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import unit_rows
from ensembed.reliability.familiarity import Familiarity
from ensembed.search import index_files, segments
from ensembed.search.index_files import (
    MANIFEST,
    WAY_OUT,
    FileFacts,
    Manifest,
    SegmentFacts,
    TranslatedFacts,
    check_bytes,
    damaged,
    json_hash,
    open_file,
    read_manifest,
)
from ensembed.search.index_input import check_vectors
from ensembed.search.search_index import Index, check_constant, lasting_source, lock_index
from ensembed.support.atomic_files import make_folder, sync, why_not_writable, write_atomically
from ensembed.support.checks import check_whole, fits
from ensembed.support.file_limits import MIGRATION_BYTES, open_regular, read_json
from ensembed.support.machine import blas_threads
from ensembed.support.progress import Progress, part_of, silent
from ensembed.views import ViewStore

SAMPLE = 5000
"""Texts of an index that are embedded to fit a map on, by default."""
_MOST_SAMPLE = MIGRATION_BYTES // 40  # `migration.json` has 32 characters for each text
STATE, MAP = "migration.json", "migration.safetensors"
_VERSION = 1
_STATE_LAYOUT = {"done": [list], "embedded": [int], "recall": [float], "next_segment": int}
_BATCH = 8192  # rows that are translated at a time
_COPIED = 1 << 22  # bytes that are copied at a time

Confirm = Callable[[FittedMap, Verdict], bool]
"""Called with the figures before anything is translated; the migration goes on if it returns True."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows of an index with distinct texts, and vectors of two models for each.

    Attributes:
        texts: the texts.
        keys: [n] the rows' keys.
        stored: [n, d] the index's vectors.
        other: [n, d'] the other model's vectors, of length one.
    """

    texts: list[str]
    keys: NDArray[np.int64]
    stored: FloatArray
    other: FloatArray


def sample_of(snapshot: segments.Snapshot, model: Encoder, count: int, store: ViewStore, progress: Progress) -> Sample:
    """Return at most `count` rows of an index, chosen at random, with the vectors of another model, which are kept."""
    live = np.flatnonzero(snapshot.live)
    if count < len(live):
        live = np.sort(np.random.default_rng(0).choice(live, count, replace=False))
    first: dict[str, int] = {}
    for place in live.tolist():
        first.setdefault(snapshot.record(place)["text"], place)
    places = np.array(sorted(first.values()), np.int64)
    texts = [text for text, _ in sorted(first.items(), key=lambda item: item[1])]
    stored = snapshot.vectors(places)
    known = np.square(stored).sum(axis=1) > 0  # a row without a direction says nothing about a map
    texts, places, stored = list(itertools.compress(texts, known)), places[known], stored[known]
    corpus = ListCorpus(texts)
    view = store.embed(corpus, model, progress=progress) if model.cacheable else model.encode(texts, progress=progress)
    return Sample(texts, snapshot.keys[places], stored, check_vectors(view[:], model.dim))


def fit_on_sample(
    sample: Sample, *, to_index: bool, kinds: Sequence[MapKind] = KINDS, threads: int | None, progress: Progress
) -> FittedMap:
    """Fit the map between both models' vectors: to the index's for queries, from them for texts."""
    X, Y = (sample.other, sample.stored) if to_index else (sample.stored, sample.other)
    translated: Translated = "queries" if to_index else "texts"
    with blas_threads(threads):
        return fit_map(X, Y, kinds=kinds, translated=translated, how=Pass(threads=threads, progress=progress))


@dataclass(frozen=True, eq=False)
class QueryMap:
    """Searches an index with another model, whose vectors of queries are translated to vectors of the index's model.

    Attributes:
        model: the other model's encoder of queries.
        fitted: the map; None if the model gives vectors of the index's model itself.
        familiarity: where the other model's vectors of the sample lie.
    """

    model: Encoder
    fitted: FittedMap | None = None
    familiarity: Familiarity | None = None

    def vectors(self, queries: list[str]) -> FloatArray:
        """Return vectors of the queries that the index can be searched with."""
        vectors = self.model.encode(queries)
        if self.fitted is None or self.familiarity is None:
            return vectors
        self.familiarity.warn_if_unlike(vectors, "queries", self.fitted.unlike.recall_10.value)
        return np.asarray(self.fitted.apply(unit_rows(vectors)), np.float32)


def query_map(
    index: Index,
    model: ModelLike,
    *,
    sample: int = SAMPLE,
    store: ViewStore | None = None,
    threads: int | None = None,
    progress: Progress = silent,
) -> QueryMap:
    """Return what searches an index with another model than its own.

    A model that `translate` fitted for the index's model is used as it is. For any other, a map is fitted on some texts
    of the index, which that model embeds; their vectors are kept in the store.

    Raises:
        InputError: the index has too few texts.
    """
    check_whole("sample", sample, 1)
    encoder = index.open_other(model)
    if same_settings(index.documents_of(encoder).spec, index.manifest.spec.settings):
        return QueryMap(index.queries_of(encoder))
    translation = getattr(encoder, "translation", None)
    if translation is not None and translation.is_for(index.manifest.spec):
        return QueryMap(encoder)
    rows = sample_of(index.snapshot, encoder.document_encoder, sample, store or ViewStore(), progress)
    fitted = fit_on_sample(rows, to_index=True, threads=threads, progress=progress)
    return QueryMap(encoder.query_encoder, fitted, Familiarity.of(rows.other))


def migrate(
    folder: str | Path,
    out: str | Path,
    model: ModelLike,
    *,
    sample: int = SAMPLE,
    kinds: Sequence[MapKind] = KINDS,
    least: float = LEAST,
    confirm: Confirm | None = None,
    store: ViewStore | None = None,
    source: str | None = None,
    wait: float = 0.0,
    threads: int | None = None,
    progress: Progress = silent,
    **opening: Any,  # noqa: ANN401 - `trust` and `encoders`, as for `Index.open`
) -> Index:
    """Write a new index whose vectors are those of another model, translated; the old index is not changed.

    Args:
        folder: the old index.
        out: a new folder for the new index, or one in which this migration was interrupted.
        model: the new model, its folder or its name.
        sample: the number of texts that are embedded with the new model, to fit the map on.
        kinds: the kinds of map to choose among.
        least: the expected recall@10 below which `confirm` is told that the map falls short.
        confirm: decides by the figures; without it, a map that falls short is an error.
        store: where the sample's vectors are kept; by default the user's cache.
        source: the folder or name from which a model in memory can be opened again.
        wait: seconds to wait for another process that writes to the new folder.
        threads: cores to use; None leaves it to each library.
        progress: receives the rows that are done.
        opening: `trust` and `encoders` of the models, as for `Index.open`.

    Raises:
        SearchIndexError: there is another index in the new folder, a map that falls short is not confirmed, or the new
            model does not always give the same vectors.
        InputError: the index is too small to fit a map on, or has that model already.
    """
    check_whole("sample", sample, 1)
    if not 0 <= least <= 1:  # no recall is below NaN
        raise InputError(f"least is a part of the ten nearest from 0 to 1, not {least}")
    folder, out = Path(folder), Path(out)
    old = Index.open(folder, threads=threads, progress=progress, **opening)
    encoder = old.open_other(model)
    check_constant(encoder)
    _check_folders(old, encoder, folder, out)
    if min(sample, len(old)) > _MOST_SAMPLE:
        raise InputError(f"sample is at most {_MOST_SAMPLE:,} texts, not {sample:,}")
    make_folder(out)
    with lock_index(FileLock(out / ".lock"), out, wait):
        if os.path.lexists(out / MANIFEST) and not (out / STATE).exists():
            raise SearchIndexError(f"there is an index in {out} already: name another folder")
        documents = encoder.document_encoder
        run = _Migration(old.snapshot, out, documents, lasting_source(encoder, source, model))
        resumed = run.resume()
        if not os.path.lexists(out / MANIFEST):  # else it was killed after the last step
            if not resumed:
                rows = sample_of(old.snapshot, documents, sample, store or ViewStore(), progress)
                fitted = fit_on_sample(rows, to_index=False, kinds=kinds, threads=threads, progress=progress)
                expected = verdict(fitted.translated, fitted.unlike, len(old), least)
                if not (confirm(fitted, expected) if confirm else not expected.falls_short):
                    way_out = "to migrate all the same: --yes (confirm=, or a smaller least=)"
                    raise SearchIndexError(f"nothing was migrated: {expected}; {way_out}")
                run.begin(rows, fitted, expected)
            with blas_threads(threads):
                while not run.translate(old.snapshot, progress):
                    old.refresh()
        run.finish()
    index = Index.open(out, encoder, source=source, wait=wait)
    with index.writing():  # another process may have opened the new index
        index.maintain(progress)
    return index


def _check_folders(old: Index, encoder: Encoder, folder: Path, out: Path) -> None:
    """Raise an error if the index has that model already, or if there can be no new index in `out`."""
    if same_settings(old.documents_of(encoder).spec, old.manifest.spec.settings):
        raise InputError(f"{folder} is an index of {encoder.spec.name!r} already: there is nothing to migrate")
    if out.resolve() == folder.resolve():
        raise InputError(f"{out} is the old index, which stays as it is: name a new folder")
    if problem := why_not_writable(out, _is_begun):
        raise SearchIndexError(f"cannot make an index in {out}: {problem}")


def _is_begun(out: Path) -> bool:
    """Return whether a folder holds a migration that was interrupted, or an index."""
    names = {path.name for path in out.glob("[!.]*")}
    return bool(names & {STATE, MANIFEST}) or names == {MAP}


class _Migration:
    """The new folder: the map, the segments that are done, and the manifest at the end."""

    def __init__(self, snapshot: segments.Snapshot, out: Path, encoder: Encoder, source: Any) -> None:  # noqa: ANN401 - an UntrustedName or None
        self._old, self._out, self._encoder, self._source = snapshot, out, encoder, source
        self._state: dict[str, Any] = {}

    def begin(self, sample: Sample, fitted: FittedMap, expected: Verdict) -> None:
        """Keep the map and the sample's vectors, from which the translation can go on."""
        facts, projection = fitted.projection.saved()
        own, familiarity = Familiarity.of(sample.other).saved()
        tensors: dict[str, NDArray[Any]] = {"sample.keys": sample.keys, "sample.vectors": sample.other}
        tensors |= {f"projection.{name}": array for name, array in projection.items()}
        tensors |= {f"familiarity.{name}": array for name, array in familiarity.items()}
        data = save_tensors({name: np.ascontiguousarray(array) for name, array in tensors.items()})
        write_atomically(self._out / MAP, data)
        self._state = {
            "version": _VERSION,
            "old": self._old.manifest.spec.to_json(),
            "new": SavedSpec.of(self._encoder.spec).to_json(),
            "map": hashlib.sha256(data).hexdigest(),
            # Ascending keys and hashes of the texts say which index the sample is from.
            "sample": np.stack([sample.keys.astype("<u8"), segments.id_hashes(sample.texts)]).tobytes().hex(),
            "projection": facts,
            "familiarity": own,
            "recall": [expected.most, expected.expected],
            "done": [],
            "next_segment": 1,
            "embedded": [],
        }
        self._write_state()
        self._read_map()

    def resume(self) -> bool:
        """Return whether an interrupted migration of the same index to the same model goes on here."""
        path = self._out / STATE
        if not path.exists():
            return False
        try:
            state = read_json(path, most_bytes=MIGRATION_BYTES)
            if state.pop("sha256") != json_hash(state) or state["version"] != _VERSION:
                raise ValueError("its checksum does not fit")  # noqa: TRY301 - named below
            same = state["new"] == SavedSpec.of(self._encoder.spec).to_json()
            same = same and state["old"] == self._old.manifest.spec.to_json()
            if same and self._has_texts(bytes.fromhex(state["sample"])):
                if not fits(state, _STATE_LAYOUT) or len(state["recall"]) != 2:
                    raise ValueError("a fact is missing, or of another type")  # noqa: TRY301 - named below
                self._state = state
                self._manifest().check()
                if not os.path.lexists(self._out / MANIFEST):  # else the map may be removed already
                    self._read_map()
                return True
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise DamagedIndexError(f"{path} is damaged: {error!r}; remove the folder and migrate again") from error
        raise SearchIndexError(
            f"{self._out} holds an interrupted migration of another index or to another model: finish it with the same "
            "command, or remove the folder"
        )

    def _has_texts(self, sample: bytes) -> bool:
        """Return whether the old index is the one that the sample is from: a key never belongs to another text."""
        keys, hashes = np.frombuffer(sample, "<u8").reshape(2, -1)
        keys = _sorted_keys(keys.astype(np.int64))
        places = np.flatnonzero(np.isin(self._old.keys, keys) & self._old.live)
        texts = [self._old.record(place)["text"] for place in places.tolist()]
        before = hashes[np.searchsorted(keys, self._old.keys[places])]
        return bool((keys < self._old.manifest.next_key).all() and np.array_equal(segments.id_hashes(texts), before))

    def _read_map(self) -> None:
        with open_regular(self._out / MAP) as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != self._state["map"]:
            raise ValueError(f"the checksum of {MAP} does not fit")
        tensors = load_tensors(data)
        columns, dim = self._old.manifest.spec.dim, self._encoder.dim
        facts, own = self._state["projection"], NamedTensors(tensors, "projection.").take
        self._projection: Projection = PROJECTIONS[facts["kind"]].restored(facts, columns, dim, own)
        familiarity = NamedTensors(tensors, "familiarity.").take
        self._familiarity = Familiarity.restored(self._state["familiarity"], dim, familiarity)
        self._keys = _sorted_keys(tensors["sample.keys"])
        self._vectors = NamedTensors(tensors).take("sample.vectors", len(self._keys), dim)

    def _write_state(self) -> None:
        write_atomically(
            self._out / STATE, json.dumps(self._state | {"sha256": json_hash(self._state)}, indent=1).encode()
        )

    def translate(self, snapshot: segments.Snapshot, progress: Progress) -> bool:
        """Translate the segments that are not done; return False if another process has replaced one meanwhile.

        If the old index has changed since, begin at the first change.
        """
        self._old = snapshot
        try:
            self._translate(progress)
        except (DamagedIndexError, FileNotFoundError) as error:
            if read_manifest(snapshot.folder) != snapshot.manifest:
                return False
            if isinstance(error, FileNotFoundError):
                raise DamagedIndexError(f"{error.filename} is gone; {WAY_OUT}") from error
            raise
        return True

    def _translate(self, progress: Progress) -> None:
        done, total = self._state["done"], sum(segment.rows for segment in self._old.segments)
        kept = 0
        for segment, (before, _) in zip(self._old.segments, done, strict=False):
            if before != _as_json(segment.facts):
                break
            kept += 1
        del done[kept:]
        segments.remove_unused_files(self._out, self._manifest())
        rows = sum(segment.rows for segment in self._old.segments[:kept])
        progress("migrate", rows, total)
        for known in self._old.segments[kept:]:
            # It is opened again, so that its mapped pages are freed with it.
            segment = segments.Segment(self._old.folder, known.facts, self._old.manifest)
            number = self._state["next_segment"]
            facts = self._translate_segment(segment, number, part_of(progress, "migrate", rows, total))
            sync(self._out)  # names of files that the state names must not be lost
            done.append([_as_json(segment.facts), _as_json(facts)])
            self._state["next_segment"] = number + 1
            self._write_state()
            rows += segment.rows
        self._state["rows"] = rows

    def _translate_segment(self, segment: segments.Segment, number: int, progress: Progress) -> SegmentFacts:
        """Write a segment with the same rows, deleted ones too, and translated vectors."""
        old, manifest, folder = segment.facts, self._manifest(), self._old.folder
        name, dtype, dim = f"{number:06d}", manifest.settings.dtype, self._encoder.dim
        with open_file(folder, old.files["records"]) as file:
            pieces = iter(lambda: file.read(_COPIED), b"")
            files = {"records": index_files.write_blocks(self._out / f"{name}.records.jsonl", pieces)}
        if files["records"].sha256 != old.files["records"].sha256:
            raise damaged(folder / old.files["records"].name, "its checksum does not fit")
        # Damaged rows must not get a valid checksum; the vectors have one for each block, except in version 0.1.
        for content in ("keys", "ids", "places", *(() if "blocks" in old.files else ("vectors",))):
            check_bytes(folder, old.files[content])

        def batches() -> Iterator[FloatArray]:
            for start, batch in _ahead(self._batches(segment)):
                yield batch
                progress("", start + len(batch), None)

        def codes(part: int) -> Iterator[NDArray[Any]]:
            """Make short codes from the vectors that were just written, which are translated only once."""
            written = np.load(self._out / f"{name}.vectors.npy", mmap_mode="r", allow_pickle=False)
            for start in range(0, segment.rows, _BATCH):
                rows = np.asarray(written[start : start + _BATCH]).reshape(-1, dim)
                yield segments.encode_rows(rows, dtype)[part]

        contents = {"vectors": batches(), "keys": [segment.keys[:]], "ids": [segment.ids[:]]}
        contents |= {"places": [segment.places[:]], "codes": codes(0), "scales": codes(1)}
        files |= segments.write_arrays(self._out, name, segments.layouts(manifest, segment.rows), contents)
        deleted = None
        if old.deleted is not None:
            rows = np.flatnonzero(~segment.live)
            path = self._out / f"{name}.deleted-{number:06d}.npy"
            deleted = index_files.write_npy(path, rows.shape, "<i8", [rows])
        return SegmentFacts(name, old.rows, files, deleted, old.live)

    def _batches(self, segment: segments.Segment) -> Iterator[tuple[int, FloatArray]]:
        """Yield the numbers of rows and translated vectors, of length one, in the order of the rows."""
        for start in range(0, segment.rows, _BATCH):
            X = segment.vectors[start : start + _BATCH]
            Z = unit_rows(apply_projection(self._projection, X)).astype(np.float32, copy=False)
            keys = segment.keys[start : start + _BATCH]
            known = np.isin(keys, self._keys)
            Z[known] = self._vectors[np.searchsorted(self._keys, keys[known])]
            # A vector that is zero or not finite has no translation: its text is embedded, unless it is deleted.
            lost = np.flatnonzero(((X == 0).all(axis=1) | ~np.isfinite(Z).all(axis=1)) & ~known)
            lost = lost[segment.live[start : start + _BATCH][lost]]
            Z[~np.isfinite(Z).all(axis=1)] = 0.0
            if len(lost):
                texts = [segment.record(start + row)["text"] for row in lost.tolist()]
                Z[lost] = check_vectors(self._encoder.encode(texts), self._encoder.dim)
                self._state["embedded"] = sorted({*self._state["embedded"], *keys[lost].tolist()})
            yield start, Z

    def _manifest(self, **more: Any) -> Manifest:  # noqa: ANN401 - fields of all types
        """Return the manifest that names the segments that are done."""
        old = self._old.manifest
        done = [SegmentFacts.from_json(facts) for _, facts in self._state["done"]]
        return Manifest(
            old.settings,
            SavedSpec.of(self._encoder.spec),
            self._source,
            more.pop("fingerprint", FileFacts("fingerprint.npy", 0, "")),
            tuple(done),
            next_segment=self._state["next_segment"] + 1,
            next_key=old.next_key,
            imports=old.imports,
            **more,
        )

    def finish(self) -> None:
        """Write the manifest, which makes the new index, and remove what only the migration needed."""
        if not os.path.lexists(self._out / MANIFEST):
            number, next_key = self._state["next_segment"], self._old.manifest.next_key
            embedded = np.union1d(self._keys, np.array(self._state["embedded"], np.int64))
            starts, ends = np.append(-1, embedded) + 1, np.append(embedded, next_key)
            ranges = np.stack([starts, ends], axis=1)[starts < ends].astype(np.int64)
            familiar = np.vstack([self._familiarity.mean[None], self._familiarity.centres])
            probes = self._encoder.encode(PROBES)
            translated = TranslatedFacts(
                index_files.write_npy(self._out / f"translated-{number:06d}.npy", ranges.shape, "<i8", [ranges]),
                len(ranges),
                index_files.write_npy(self._out / f"familiar-{number:06d}.npy", familiar.shape, "<f4", [familiar]),
                len(familiar),
                (float(self._familiarity.low), float(self._familiarity.lowest)),
                self._old.manifest.spec.name.text,
                (float(self._state["recall"][0]), float(self._state["recall"][1])),
            )
            fingerprint = index_files.write_npy(self._out / "fingerprint.npy", probes.shape, "<f4", [probes])
            sync(self._out)
            manifest = self._manifest(fingerprint=fingerprint, translated=translated)
            write_atomically(self._out / MANIFEST, manifest.to_bytes())
        for name in (MAP, STATE):  # the state last: with it the folder is a migration that only has to be tidied up
            (self._out / name).unlink(missing_ok=True)
        sync(self._out)
        segments.remove_unused_files(self._out, read_manifest(self._out))


def _ahead(batches: Iterator[tuple[int, FloatArray]]) -> Iterator[tuple[int, FloatArray]]:
    """Yield batches, each of which a thread makes while the one before is written."""
    with ThreadPoolExecutor(1) as thread:
        made = thread.submit(next, batches, None)
        while (batch := made.result()) is not None:
            made = thread.submit(next, batches, None)
            yield batch


def _sorted_keys(keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return the keys of a sample, in which rows are looked for by bisection; a ValueError if they are not sorted."""
    if keys.dtype != np.int64 or keys.ndim != 1 or (np.diff(keys) <= 0).any():
        raise ValueError("the keys of the sample are not sorted")
    return keys


def _as_json(facts: SegmentFacts) -> Any:  # noqa: ANN401 - plain JSON
    return json.loads(json.dumps(asdict(facts)))
