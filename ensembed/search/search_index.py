"""The index: a folder of segments and a manifest. A change replaces the manifest last: it is complete or absent."""

from __future__ import annotations

import dataclasses
import os
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ensembed.corpora.corpus import shorten
from ensembed.encoders.base import PROBES, Encoder, FloatArray, SavedSpec, UntrustedName, difference, same_settings
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import DamagedIndexError, IndexBusyError, InputError, MissingError, ModelError, SearchIndexError
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.opening import ModelLike, Replacements, is_gone, open_model
from ensembed.models.saved_model import is_model
from ensembed.reliability.familiarity import Familiarity
from ensembed.search import hnsw_graph, index_files, segments
from ensembed.search.exact_search import search_all_rows
from ensembed.search.index_files import MANIFEST, Codes, Kind, Manifest, Settings, check_bytes, read_manifest
from ensembed.search.index_input import check_ids, check_metadata, check_texts, check_vectors
from ensembed.support.atomic_files import disk_error, make_folder, sync, why_not_writable, write_atomically
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress, silent
from ensembed.support.shown_objects import Facts, Shown, short_value

_LOCK = ".lock"
_FINGERPRINT = "fingerprint.npy"


@dataclass(frozen=True)
class Hit:
    """A row that a search found: its id, its cosine with the query, the text and metadata that were indexed."""

    id: str
    score: float
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Index(Shown):
    """Texts with vectors in a folder, made by `create` and opened by `open`; `refresh` reads what others have written.

    Example:
        >>> import tempfile
        >>> index = Index.create(tempfile.mkdtemp() + "/index", "demo")
        >>> index.add(["a dog barks", "a cat sleeps"], metadata=[{"page": 1}, {"page": 2}])
        ['0', '1']
        >>> [[hit.text for hit in hits] for hits in index.search(["a dog barks"], k=1)]
        [['a dog barks']]
        >>> index.delete(["0"])
        1
        >>> len(Index.open(index.folder))
        1
    """

    def __init__(self, snapshot: segments.Snapshot, model: Encoder | None, wait: float = 0.0) -> None:
        self.folder = snapshot.folder
        self.snapshot = snapshot  # the open rows, as of when the index was opened or last written
        self._model = model
        self._opening: dict[str, Any] = {}  # arguments of `open_model`
        self._wait = wait
        self._lock = FileLock(self.folder / _LOCK)
        self._graph = hnsw_graph.OpenGraph()
        self._familiarity: tuple[index_files.FileFacts, Familiarity] | None = None

    @classmethod
    def create(
        cls,
        folder: str | Path,
        model: ModelLike,
        *,
        kind: Kind = "auto",
        dtype: Codes = "float32",
        rescore: int | None = None,
        graph_rows: int = 250_000,
        source: str | None = None,
        remake: bool = False,
        trust: Trust = False,
        wait: float = 0.0,
    ) -> Index:
        """Make an empty index.

        Args:
            folder: the folder of the index, which is created.
            model: what turns texts and queries into vectors, always the same one: a model, its folder or its name.
            kind: "exact" compares all rows; "hnsw" uses usearch's graph; "auto" does from `graph_rows` on, if it can.
            dtype: what is compared first: "float32", "int8" (a quarter of the memory) or "binary" (a thirty-second).
            rescore: candidates per hit, scored again in float32; by default 1, 4 with int8 or a graph, 16 with binary.
            graph_rows: the number of rows from which "auto" has a graph.
            source: the folder or name from which a model in memory can be opened again.
            remake: replace an index that never had a row; one that had a row is always an error.
            trust: what the members of a saved model may do: run code, use the network; see `ensembed.load`.
            wait: seconds to wait for another process that writes to the index.

        Raises:
            SearchIndexError: there is an index in the folder already, the folder cannot be written to, or the model
                does not always give the same vectors.
            InputError: a setting is not one of those above.
            IndexBusyError: another process is writing to the folder.
        """
        folder = Path(folder)
        settings = Settings(kind, dtype, index_files.RESCORE.get(dtype, 1) if rescore is None else rescore, graph_rows)
        if kind == "hnsw":
            hnsw_graph.usearch()  # fail now and not when the rows have been encoded
        encoder = open_model(model, trust=trust)
        check_constant(encoder)
        if problem := why_not_writable(folder, _is_index):
            raise SearchIndexError(f"cannot make an index in {folder}: {problem}")
        probes = encoder.encode_document(PROBES)
        make_folder(folder)
        with lock_index(FileLock(folder / _LOCK), folder, wait):
            if os.path.lexists(folder / MANIFEST) and not (remake and read_manifest(folder).next_key == 0):
                raise SearchIndexError(f"there is an index in {folder} already: open it, or choose another folder")
            fingerprint = index_files.write_npy(folder / _FINGERPRINT, probes.shape, "<f4", [probes])
            sync(folder)  # the name of a file that the manifest names must not be lost
            lasting = lasting_source(encoder, source, model)
            manifest = Manifest(settings, SavedSpec.of(encoder.document_encoder.spec), lasting, fingerprint)
            write_atomically(folder / MANIFEST, manifest.to_bytes())
        return cls(segments.open_snapshot(folder), encoder, wait)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        model: ModelLike | None = None,
        *,
        source: str | None = None,
        verify: bool = False,
        encoders: Replacements | None = None,
        threads: int | None = None,
        trust: Trust = False,
        wait: float = 0.0,
        progress: Progress = silent,
    ) -> Index:
        """Open the index in a folder.

        Args:
            folder: the folder of the index.
            model: the model it was made with, its folder or its name; None opens it from its saved source when needed.
            source: the folder or name of a model in memory, for messages.
            verify: read every byte and compare the checksums now; otherwise they are compared when rows are first read.
            encoders: members of the model that have moved, as in `ensembed.load`.
            threads: cores for the model, if it is opened here.
            trust: what the model that the index names may do: run code, use the network; see `ensembed.load`.
            wait: seconds to wait for another process that writes to the index.
            progress: receives long work.

        Raises:
            SearchIndexError: there is no index, or it was made with another model.
            DamagedIndexError: a file is damaged or missing.
        """
        index = cls(segments.open_snapshot(Path(folder)), None, wait)
        index._opening = {"threads": threads, "trust": trust, "progress": progress, "encoders": encoders}
        if verify:
            index.verify(progress=progress)
        if model is not None:
            source = str(model) if source is None and isinstance(model, str | Path) else source
            index._model = index._checked(index.open_other(model), source)
        return index

    @property
    def manifest(self) -> Manifest:
        """The state of the index as it was opened or last written."""
        return self.snapshot.manifest

    @property
    def model(self) -> Encoder:
        """The model, which is opened when it is first needed."""
        if self._model is None:
            source = self.manifest.source
            model = _open_saved_model(self.folder, self.manifest, **self._opening)
            self._model = self._checked(model, None if source is None else source.text)
        return self._model

    @property
    def has_roles(self) -> bool:
        """Whether queries and texts are encoded as such (`encode_query`, `encode_document`) if the model does that.

        An index that was made before models did it has plain vectors of both.
        """
        return self.documents_of(self.model) is self.model.document_encoder

    @property
    def query_encoder(self) -> Encoder:
        """What turns queries into vectors."""
        return self.queries_of(self.model)

    def queries_of(self, model: Encoder) -> Encoder:
        """Return what turns queries into vectors if this is the index's model."""
        return model.query_encoder if self.documents_of(model) is model.document_encoder else model

    def documents_of(self, model: Encoder) -> Encoder:
        """Return what turns texts into vectors if this is the index's model: its encoder of documents.

        It is the model itself for an index that was made before models had one.
        """
        documents, saved = model.document_encoder, self.manifest.spec.settings
        before = not same_settings(documents.spec, saved) and same_settings(model.spec, saved)
        return model if before else documents

    def open_other(self, model: ModelLike) -> Encoder:
        """Open another model in the way in which the index opens its own."""
        return open_model(model, **self._opening)

    def translated_places(self) -> NDArray[np.bool_]:
        """Return for every place [n] of the snapshot whether its vector was translated from another model's."""
        facts, keys = self.manifest.translated, self.snapshot.keys
        if facts is None:
            return np.zeros(len(keys), bool)
        self._check_bytes(facts.ranges)
        first, behind = index_files.map_npy(self.folder, facts.ranges, (facts.count, 2), "<i8").T
        place = np.searchsorted(first, keys, "right") - 1
        return np.asarray((place >= 0) & (keys < behind[place]) if facts.count else np.zeros(len(keys), bool))

    def is_translated(self, ids: Sequence[str]) -> list[bool]:
        """Return for every row with these ids whether its vector was translated from another model's."""
        self.get(ids)  # an unknown id is an error
        places, translated = self.snapshot.find(check_ids(ids)), self.translated_places()
        return [bool(translated[places[id_]]) for id_ in ids]

    def embed_translated(self, limit: int | None = None, *, batch: int = 1024, progress: Progress = silent) -> int:
        """Embed translated rows with the index's model, the oldest first, and return how many; all, or at most `limit`.

        Each batch is saved: after an interruption the same call continues.
        """
        if limit is not None:
            check_whole("limit", limit, 0)
        check_whole("batch", batch, 1)
        done, last = 0, -1
        while True:
            with self.writing():  # other processes write between two batches
                keys = self.snapshot.keys
                left = np.flatnonzero(self.translated_places() & self.snapshot.live & (keys > last))
                total = done + len(left) if limit is None else min(limit, done + len(left))
                places = left[: min(batch, total - done)].tolist()
                if not places:
                    return done
                last = int(keys[places[-1]])
                rows = [self.snapshot.record(place) for place in places]
                texts, ids = [row["text"] for row in rows], [row["id"] for row in rows]
                self.add(texts, ids, [row.get("metadata") for row in rows], replace=True)
            done += len(rows)
            progress("embed", done, total)

    @property
    def facts(self) -> dict[str, Any]:
        """A summary of the index, as plain JSON."""
        manifest, settings = self.manifest, self.manifest.settings
        return {
            "folder": str(self.folder),
            "rows": manifest.rows,
            "deleted": sum(segment.rows for segment in manifest.segments) - manifest.rows,
            "dim": manifest.spec.dim,
            **{name: getattr(settings, name) for name in ("kind", "dtype", "rescore")},
            "segments": len(manifest.segments),
            "graph": manifest.graph.rows if manifest.graph else 0,
            "bytes": sum(file.size for file in manifest.files()),
            # Rows of version 0.1: `verify` finds damage in them, a search need not.
            "without_block_checksums": sum(each.live for each in manifest.segments if "blocks" not in each.files),
            "model": (manifest.source or manifest.spec.name).text,
            **self._translated_facts(),
        }

    def _translated_facts(self) -> dict[str, Any]:
        """Return how many rows were translated, from which model, and what to expect of them; nothing if none were."""
        facts = self.manifest.translated
        if facts is None:
            return {}
        rows = int(np.count_nonzero(self.translated_places() & self.snapshot.live))
        return {"translated": rows, "translated_from": facts.source, "expected_recall": round(facts.recall[1], 4)}

    def __len__(self) -> int:
        return len(self.snapshot)

    def __contains__(self, id_: object) -> bool:
        return isinstance(id_, str) and bool(self.snapshot.find([id_]))

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r}, rows={len(self)}, model={self.manifest.spec.name.text!r})"

    def _facts(self) -> Facts:
        facts = [(name, value) for name, value in self.facts.items() if value or name != "without_block_checksums"]
        return [(name, value if isinstance(value, str) else short_value(value)) for name, value in facts]

    def add(
        self,
        texts: Iterable[str],
        ids: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        vectors: Any = None,  # noqa: ANN401 - anything that is an array
        replace: bool = False,
        mark: tuple[str, int, bool] | None = None,
        progress: Progress = silent,
    ) -> list[str]:
        """Add texts, all of them or none, and return their ids.

        Args:
            texts: what is searched; none may be blank.
            ids: an id for each, which no other row has; by default numbers.
            metadata: plain JSON to keep with each.
            vectors: the model's vectors [n, d] of the texts, if they exist already.
            replace: delete a row that has the id of a new one; otherwise that is an error.
            mark: progress of a file that is imported in parts: its hash, the records read, whether it is complete.
            progress: receives the number of encoded texts.

        Raises:
            InputError: a text, id or metadata cannot be used, or an id exists already.
            IndexBusyError: another process is writing.
        """
        checked = check_texts(texts)
        given_ids = None if ids is None else check_ids(ids, len(checked))
        checked_metadata = check_metadata(metadata, len(checked))
        with self.writing():
            manifest = self.manifest
            names = self._fresh_ids(len(checked)) if given_ids is None else given_ids
            rows = range(len(names)) if given_ids is None else self._chosen(names, replace)
            if len(rows):
                if vectors is None:
                    check_constant(self.model)
                    encoder = self.documents_of(self.model)
                    encoded = encoder.encode([checked[i] for i in rows], progress=progress)
                    matrix = check_vectors(encoded, manifest.spec.dim)
                else:
                    matrix = check_vectors(vectors, manifest.spec.dim, len(checked))[list(rows)]
                lines = [segments.record_line(names[i], checked[i], checked_metadata[i]) for i in rows]
                manifest = self._with_rows([names[i] for i in rows], matrix, lines)
            if mark is not None:
                key, _, complete = mark
                # What was deleted before the file was added (`delete_before`) counts until the file is complete.
                kept = {
                    name: value
                    for name, value in manifest.imports.items()
                    if not (complete and name.startswith(f"{key} "))
                }
                manifest = dataclasses.replace(manifest, imports={**kept, key: mark[1:]})
            if manifest is not self.manifest:
                self._commit(manifest)
                self.maintain(progress)
        return names

    def delete(
        self,
        ids: Sequence[str],
        *,
        marks: Mapping[str, tuple[int, bool]] | None = None,
        progress: Progress = silent,
    ) -> int:
        """Delete the rows with these ids, all or none, and return their number; an unknown id is an InputError.

        `marks` are entries of `Manifest.imports` that are saved in the same change.
        """
        wanted = list(dict.fromkeys(check_ids(ids)))
        with self.writing():
            places = self.snapshot.find(wanted)
            if unknown := [id_ for id_ in wanted if id_ not in places]:
                more = f" and {len(unknown) - 1} others" if len(unknown) > 1 else ""
                raise InputError(f"no row has the id {shorten(unknown[0])}{more}: nothing was deleted")
            if places:
                deleted = self.snapshot.with_deleted(places.values())
                self._commit(self._next_manifest(segments=deleted, imports={**self.manifest.imports, **(marks or {})}))
                self.maintain(progress)
        return len(places)

    def search(self, queries: Iterable[str] | FloatArray, k: int = 10) -> list[list[Hit]]:
        """Return the k nearest rows of every query, best first; equal rows in the order in which they were added.

        Queries are texts, or vectors [q, d] of the index's model; one string, or one vector [d], is a list of one. An
        index with fewer rows returns all of them. An InputError says that k is below 1, a text blank (a SentenceError),
        or a vector of another length.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k is a whole number from 1 on, not {k!r}")
        snapshot = self.snapshot
        if not isinstance(queries, np.ndarray) or queries.dtype.kind not in "fiu":
            texts: Any = [queries] if isinstance(queries, str) else queries
            queries = self.query_encoder.encode(check_texts(texts, "query"))
        vectors = check_vectors(queries[None] if queries.ndim == 1 else queries, snapshot.manifest.spec.dim)
        if snapshot.manifest.translated is not None:
            self._warn_if_unlike(vectors)
        if len(snapshot) == 0:
            return [[] for _ in vectors]
        rankings = self._graph.search(snapshot, vectors, int(k)) or search_all_rows(snapshot, vectors, int(k))
        return [
            [Hit(score=float(s), **snapshot.record(place)) for place, s in zip(*hits, strict=True)] for hits in rankings
        ]

    def get(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the id, text and metadata of the rows with these ids; an unknown id is an InputError."""
        places = self.snapshot.find(wanted := check_ids(ids))
        for id_ in wanted:
            if id_ not in places:
                raise InputError(f"no row has the id {shorten(id_)}")
        return [{"metadata": {}, **self.snapshot.record(places[id_])} for id_ in wanted]

    def refresh(self) -> bool:
        """Read what other processes have written since; return whether there was anything."""
        before = self.manifest
        if (now := read_manifest(self.folder)) == before:
            return False
        if now.spec.key != before.spec.key:
            raise SearchIndexError(f"{self.folder} is another index now, of {now.spec.name.text!r}: open it again")
        self.snapshot = segments.open_snapshot(self.folder, self.snapshot)
        return True

    def verify(self, *, progress: Progress = silent) -> None:
        """Read every byte and compare the checksums; a DamagedIndexError names the file.

        Another process may write meanwhile: then the files that it wrote are read, too.
        """
        checked: set[index_files.FileFacts] = set()
        while left := [file for file in self.manifest.files() if file not in checked]:
            try:
                check_bytes(self.folder, left[0])
            except DamagedIndexError:
                if not self.refresh():  # else the writer may have removed it
                    raise
            else:
                checked.add(left[0])
                progress("verify", len(checked), len(checked) + len(left) - 1)

    def _check_bytes(self, file: index_files.FileFacts) -> None:
        """Check a file; one that is gone because another process has changed the model is no damage."""
        try:
            check_bytes(self.folder, file)
        except DamagedIndexError:
            self.refresh()  # which says so
            raise

    def compact(self, *, progress: Progress = silent) -> None:
        """Write the rows again without the deleted ones, in as few segments as possible."""
        with self.writing():
            self._commit(segments.compact(self.snapshot, segments.all_compactions(self.snapshot), progress))

    def build_graph(self, *, threads: int = 1, progress: Progress = silent) -> None:
        """Add the rows that the graph lacks, or build it again if many are deleted; an InputError for an exact index.

        With one thread the graph is the same every time.
        """
        if self.manifest.settings.kind == "exact":
            raise InputError(f"{self.folder} is an exact index: it has no graph")
        with self.writing():
            graph = hnsw_graph.build_graph(self.snapshot, threads, progress)
            if graph != self.manifest.graph:
                self._commit(self._next_manifest(graph=graph))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers out during several changes (a change does so itself); IndexBusyError if one is writing."""
        with lock_index(self._lock, self.folder, self._wait):
            self.refresh()
            segments.remove_unused_files(self.folder, self.manifest)
            yield

    def remember(self, source: str) -> None:
        """Save that the model is opened from `source` from now on; the open model is known to be the same."""
        with self.writing():
            if (lasting := lasting_source(self.model, source)) != self.manifest.source:
                self._commit(dataclasses.replace(self.manifest, source=lasting))

    def change_model(self, model: ModelLike, *, source: str | None = None, progress: Progress = silent) -> None:
        """Encode all texts again with another model, which is saved; until that is done the index stays as it was.

        Args:
            model: the new model, its folder or its name.
            source: the folder or name from which a model in memory can be opened again.
            progress: receives the number of rows.
        """
        encoder = self.open_other(model)
        check_constant(encoder)
        documents = encoder.document_encoder
        probes = documents.encode(PROBES)
        with self.writing():
            number = self.manifest.next_segment
            path = self.folder / f"fingerprint-{number:06d}.npy"
            changed = dataclasses.replace(
                self.manifest,
                spec=SavedSpec.of(documents.spec),
                source=lasting_source(encoder, source, model),
                fingerprint=index_files.write_npy(path, probes.shape, "<f4", [probes]),
                graph=None,
                translated=None,
                next_segment=number + 1,
            )

            def encode(texts: list[str]) -> FloatArray:
                return check_vectors(documents.encode(texts), documents.spec.dim)

            self._commit(segments.encode_again(self.snapshot, changed, encode, progress))
            self._model = encoder
            self.maintain(progress)

    def _warn_if_unlike(self, queries: FloatArray) -> None:
        """Warn if queries look unlike the texts that the map of translated rows was fitted on."""
        facts = self.manifest.translated
        if facts is None:
            return
        if self._familiarity is None or self._familiarity[0] != facts.familiar:
            self._check_bytes(facts.familiar)
            shape = (facts.centres, self.manifest.spec.dim)
            mean, *centres = index_files.map_npy(self.folder, facts.familiar, shape, "<f4")
            self._familiarity = (facts.familiar, Familiarity(mean, np.array(centres), *facts.limits))
        self._familiarity[1].warn_if_unlike(queries, "queries", facts.recall[1])

    def _checked(self, model: Encoder, source: str | None = None) -> Encoder:
        """Return the model if it is the one of this index: cosines between vectors of two models mean nothing."""
        manifest = self.manifest
        command = shlex.join(["ensembed", "index", str(self.folder), "--model", source or "MODEL", "--change-model"])
        again = f"change_model(model), which encodes its texts again with this one: {command}"
        way_out = f"give the model it was made with, or call {again}"
        saved, documents = manifest.spec, self.documents_of(model)
        if not same_settings(documents.spec, saved.settings):
            other = _described(SavedSpec.of(documents.spec))
            models = f"{_described(saved)}, not with {other}: their vectors cannot be compared"
            raise SearchIndexError(f"{self.folder} was made with {models}; {way_out}")
        if isinstance(documents, MetaEncoder) and documents.missing != "error" and documents.encode_present(PROBES)[1]:
            return model  # without a member its vectors are others
        self._check_bytes(manifest.fingerprint)
        probes = index_files.map_npy(self.folder, manifest.fingerprint, (len(PROBES), saved.dim), "<f4")
        if change := difference(documents, saved.settings, probes):
            problem = f"{self.folder} was made with another {_described(saved)}: this one {change}"
            raise SearchIndexError(f"{problem}; {way_out}")
        return model

    def _fresh_ids(self, count: int) -> list[str]:
        """Return the next numbers, with a + where the user has used a number as an id already."""
        names = [str(self.manifest.next_key + i) for i in range(count)]
        while taken := set(self.snapshot.find(names)):
            names = [f"{name}+" if name in taken else name for name in names]
        return names

    def _chosen(self, names: list[str], replace: bool) -> Sequence[int]:
        """Return which of the new rows are added: all, or with `replace` the last row of each id."""
        last = {name: i for i, name in enumerate(names)}
        if replace:
            return sorted(last.values())
        if len(last) < len(names):
            twice = next(name for i, name in enumerate(names) if last[name] != i)
            raise InputError(f"the id {shorten(twice)} is given twice: nothing was added; replace=True keeps the last")
        if taken := self.snapshot.find(names):
            more = f" and {len(taken) - 1} others are" if len(taken) > 1 else " is"
            way_out = "nothing was added; give other ids, or replace the rows (replace=True, --replace)"
            raise InputError(f"the id {shorten(next(iter(taken)))}{more} in the index already: {way_out}")
        return range(len(names))

    def _with_rows(self, ids: list[str], vectors: FloatArray, lines: list[bytes]) -> Manifest:
        """Write a segment of new rows, which replace rows with the same ids, and return the manifest that names it."""
        manifest, key = self.manifest, self.manifest.next_key
        if any((segment.keys[-1:] >= key).any() for segment in self.snapshot.segments[-1:]):
            raise index_files.damaged(self.folder / MANIFEST, f"the key of its next row, {key}, is that of another row")
        batch = segments.RowBatch(vectors, np.arange(len(ids), dtype=np.int64) + key, segments.id_hashes(ids), lines)
        added = segments.write_segment(self.folder, manifest.next_segment, manifest, len(ids), lambda: [batch])
        others = self.snapshot.with_deleted(self.snapshot.find(ids).values())
        return self._next_manifest(segments=(*others, added), next_key=key + len(ids))

    def _next_manifest(self, **changes: Any) -> Manifest:  # noqa: ANN401 - fields of all types
        return dataclasses.replace(self.manifest, next_segment=self.manifest.next_segment + 1, **changes)

    def _commit(self, manifest: Manifest) -> None:
        """Replace the manifest: this is the moment at which all written files begin to count."""
        sync(self.folder)  # their names must not be lost
        write_atomically(self.folder / MANIFEST, manifest.to_bytes())
        self.snapshot = segments.open_snapshot(self.folder, self.snapshot)
        segments.remove_unused_files(self.folder, manifest)

    def maintain(self, progress: Progress) -> None:
        """Compact and extend the graph if that is due; these are changes of their own, which may wait for room."""
        try:
            if ranges := segments.due_compactions(self.snapshot):
                self._commit(segments.compact(self.snapshot, ranges, progress))
            if hnsw_graph.graph_is_due(self.snapshot):
                self.build_graph(progress=progress)
        except (OSError, DamagedIndexError, MissingError) as error:
            postponed = "the change is saved; compacting or building the graph waits for the next one"
            warnings.warn(f"{self.folder}: {postponed}: {error}", RuntimeWarning, stacklevel=3)


def open_or_create(
    folder: Path,
    model: str | None,
    settings: Mapping[str, Any],
    *,
    adding: bool,
    change_model: bool = False,
    verify: bool = False,
    wait: float = 0.0,
    progress: Progress = silent,
    **opening: Any,  # noqa: ANN401 - `encoders`, `threads` and `trust`
) -> Index:
    """Open the index in a folder, or create one if there is none or it never had a row, as after a failed first run.

    `model` is the folder or name of the model, which is saved; None opens the one that was saved before. `settings` are
    arguments of `Index.create`; an index that has had a row must have been created with the same. An index without rows
    is created again only if rows are about to be added (`adding`). `change_model` encodes the texts of the index again
    with `model`. All else is as for `Index.open`.
    """
    opening["progress"] = progress
    manifest = read_manifest(folder) if os.path.lexists(folder / MANIFEST) else None  # a link that leads nowhere counts
    if manifest is None:
        if model is None:
            raise SearchIndexError(f"there is no index in {folder}: name a model to make one")
        encoder = open_model(model, **opening)
        return Index.create(folder, encoder, source=model, remake=True, wait=wait, **settings)
    source = model or (manifest.source.text if settings and manifest.source else None)
    if adding and manifest.next_key == 0 and source is not None:
        encoder = open_model(model, **opening) if model else _open_saved_model(folder, manifest, **opening)
        changed = manifest.settings.changed(settings)
        return Index.create(folder, encoder, source=source, remake=True, wait=wait, **changed)
    manifest.settings.check_same(settings, folder)
    index = Index.open(folder, None if change_model else model, verify=verify, wait=wait, **opening)
    if model is not None and change_model:
        index.change_model(model, progress=progress)
    elif model is not None:
        index.remember(model)
    return index


def _open_saved_model(folder: Path, manifest: Manifest, **opening: Any) -> Encoder:  # noqa: ANN401 - of `open_model`
    source = manifest.source
    if source is None:
        way_out = "pass it, as in Index.open(folder, model), or name a saved model (--model FOLDER)"
        raise SearchIndexError(f"{folder} was made with the object {manifest.spec.name.text!r}: {way_out}")
    if is_gone(source):
        way_out = "if it was moved, pass --model FOLDER, or Index.open(folder, model); --change-model takes another one"
        raise SearchIndexError(f"the model of {folder} is no longer in {source.text}; {way_out}")
    try:
        return open_model(source, **opening)
    except (InputError, MissingError, ModelError) as error:  # these name a model that the user may never have seen
        raise type(error)(f"the model of {folder} cannot be opened: {error}") from error


@contextmanager
def lock_index(lock: FileLock, folder: Path, wait: float) -> Iterator[None]:
    """Hold the lock of an index; the system releases it when a process dies."""
    if not wait >= 0:  # the lock would wait for ever
        raise InputError(f"wait is a number of seconds from 0 on, not {wait}")
    if (folder / _LOCK).is_symlink():  # locking empties the file, and this one may be anywhere
        raise SearchIndexError(f"{folder / _LOCK} is a link, which no index makes: remove it")
    try:
        lock.acquire(timeout=wait)
    except Timeout:
        way_out = "wait for it, or give it time with wait=SECONDS (--wait)"
        raise IndexBusyError(f"another process is writing to {folder}; {way_out}") from None
    except OSError as error:
        raise SearchIndexError(f"{folder} cannot be written to: {disk_error(error, folder / _LOCK)}") from error
    try:
        yield
    except IsADirectoryError as error:
        raise SearchIndexError(f"{folder} cannot be written to: {error}; remove the folder") from error
    finally:
        lock.release()


def _is_index(folder: Path) -> bool:
    """Return whether a folder holds an index, or what a process left that was killed while it made one."""
    return os.path.lexists(folder / MANIFEST) or [path.name for path in folder.glob("[!.]*")] == [_FINGERPRINT]


def check_constant(model: Encoder) -> None:
    """Raise a SearchIndexError if a model does not always give a text the same vector, which rows must have."""
    if not model.cacheable:
        problem = f"the vectors of {model.spec.name!r} are not always the same, as a member may be missing"
        raise SearchIndexError(f'{problem}: load it with missing="error" to put its vectors into an index')


def lasting_source(model: Encoder, source: str | None, given: object = None) -> UntrustedName | None:
    """Return what the model can be opened from again: the absolute path of a folder, or a name; None for an object.

    It is `source` or, without one, what the user gave as the model.
    """
    source = str(given) if source is None and isinstance(given, str | Path) else source
    if source is not None:
        return UntrustedName(str(Path(source).absolute()) if is_model(source) else source)
    return None if model.spec.kind in ("object", "meta") else UntrustedName(model.spec.name)


def _described(spec: SavedSpec) -> str:
    return f"{spec.name.text!r} ({spec.dim} dimensions, key {spec.key[:8]})"
