"""The index: a folder of segments, one manifest, one writer at a time, any number of readers.

Every change writes new files first and replaces the manifest last, so that a process that dies leaves the old state or
the new one. Files that no manifest names are removed by the next writer; who has them open keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from ensembed.corpora.corpus import shorten
from ensembed.encoders import EncoderLike, open_encoder
from ensembed.encoders.base import Encoder, FloatArray
from ensembed.encoders.identity import PROBES
from ensembed.errors import InputError, SearchIndexError
from ensembed.search import graph, tidy
from ensembed.search.checks import check_count, check_ids, check_metadata, check_texts, check_vectors
from ensembed.search.hits import Hit, compared, hit_of
from ensembed.search.lock import held
from ensembed.search.manifest import MANIFEST, RESCORE, Codes, Kind, Manifest, Settings, read_manifest
from ensembed.search.remembered import check_model, open_source, source_of
from ensembed.search.segment import Part, id_hashes, record_line, write_segment
from ensembed.search.snapshot import Snapshot, open_snapshot
from ensembed.search.storage import write_npy
from ensembed.support.atomic_files import why_not_writable, write_atomically
from ensembed.support.progress import Progress, silent

_LOCK = ".lock"


class Index:
    """Texts with their vectors in a folder; made by `create`, found again by `open`.

    An index that is open keeps what it opened (or wrote): `refresh` looks for what other processes have written since.

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

    def __init__(self, snapshot: Snapshot, model: Encoder | None, wait: float = 0.0) -> None:
        self.folder = snapshot.folder
        self._snapshot = snapshot
        self._model = model
        self._how: dict[str, Any] = {}
        self._wait = wait
        self._lock = FileLock(self.folder / _LOCK)
        self._graph = graph.OpenGraph()

    @classmethod
    def create(
        cls,
        folder: str | Path,
        model: EncoderLike,
        *,
        kind: Kind = "auto",
        dtype: Codes = "float32",
        rescore: int | None = None,
        graph_rows: int = 250_000,
        source: str | None = None,
        remake: bool = False,
        wait: float = 0.0,
    ) -> Index:
        """Make an empty index.

        Args:
            folder: where; it is made.
            model: what turns texts and queries into vectors, always the same one.
            kind: "exact" compares a query with every row; "hnsw" walks a graph (pip install 'ensembed[search]');
                "auto" does that from `graph_rows` rows on where usearch is installed.
            dtype: what is compared first: "float32", "int8" (a quarter of the memory) or "binary" (a thirty-second).
            rescore: candidates for every hit, which are scored again from the float32 rows; by default 1 for float32,
                4 for int8, 16 for binary, and at least 4 with a graph.
            graph_rows: from how many rows on "auto" has a graph.
            source: the folder or name that the model can be opened from again; an encoder's own name is known.
            remake: take the place of an index that never had a row; one that had is an error always.
            wait: seconds to wait for another process that writes to the index.

        Raises:
            SearchIndexError: there is an index already, or the folder cannot be written to.
        """
        folder = Path(folder)
        settings = Settings(kind, dtype, RESCORE.get(dtype, 1) if rescore is None else rescore, graph_rows)
        if kind == "hnsw":
            graph.usearch()  # better now than when the rows are there
        encoder = open_encoder(model)
        source = model if source is None and isinstance(model, str) else source
        if problem := why_not_writable(folder):
            raise SearchIndexError(f"cannot make an index in {folder}: {problem}")
        probes = encoder.encode(PROBES)
        folder.mkdir(parents=True, exist_ok=True)
        with held(FileLock(folder / _LOCK), folder, wait):
            if (folder / MANIFEST).exists() and not (remake and read_manifest(folder).next_key == 0):
                raise SearchIndexError(f"there is an index in {folder} already: open it, or choose another folder")
            fingerprint = write_npy(folder / "fingerprint.npy", probes.shape, "<f4", [probes])
            manifest = Manifest(settings, encoder.spec, source_of(encoder, source), fingerprint)
            write_atomically(folder / MANIFEST, manifest.to_bytes())
        return cls(open_snapshot(folder), encoder, wait)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        model: EncoderLike | None = None,
        *,
        verify: bool = False,
        threads: int | None = None,
        trust: bool = False,
        wait: float = 0.0,
        progress: Progress = silent,
    ) -> Index:
        """Open an index.

        Args:
            folder: where it is.
            model: the one it was made with; None opens it when it is first needed, from where it was.
            verify: read every byte and compare the checksums; otherwise the sizes are checked, and what is read of
                the texts.
            threads: cores for the model, where it is opened here.
            trust: also run code that comes with the model's weights; see `ensembed.load`.
            wait: seconds to wait for another process that writes to the index.
            progress: told of long work.

        Raises:
            SearchIndexError: there is no index, or it was made with another model.
            DamagedIndexError: a file is damaged or gone.
        """
        index = cls(open_snapshot(Path(folder)), None, wait)
        index._how = {"threads": threads, "trust": trust, "progress": progress}
        if verify:
            index.verify(progress=progress)
        if model is not None:
            encoder = open_encoder(model, threads=threads, progress=progress)
            check_model(encoder, index.manifest, index.folder)
            index._model = encoder
        return index

    @property
    def manifest(self) -> Manifest:
        """What the index is made of, as it was opened or last written."""
        return self._snapshot.manifest

    @property
    def model(self) -> Encoder:
        """The model, opened if need be."""
        if self._model is None:
            model = open_source(self.manifest, self.folder, **self._how)
            check_model(model, self.manifest, self.folder)
            self._model = model
        return self._model

    @property
    def facts(self) -> dict[str, Any]:
        """What there is to say about the index, in plain JSON."""
        found, settings = self.manifest, self.manifest.settings
        return {
            "folder": str(self.folder),
            "rows": found.rows,
            "deleted": sum(one.rows for one in found.segments) - found.rows,
            "dim": found.spec.dim,
            "kind": settings.kind,
            "dtype": settings.dtype,
            "rescore": settings.rescore,
            "segments": len(found.segments),
            "graph": found.graph.rows if found.graph else 0,
            "bytes": sum(file.size for file in found.files()),
            "model": found.source or found.spec.name,
        }

    def __len__(self) -> int:
        return len(self._snapshot)

    def __contains__(self, id_: str) -> bool:
        return bool(self._snapshot.find([id_]))

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r}, rows={len(self)}, model={self.manifest.spec.name!r})"

    def add(
        self,
        texts: Sequence[str],
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
            texts: what is found; none may be blank.
            ids: one for each, which no other row has; by default numbers.
            metadata: plain JSON to keep with each.
            vectors: the model's vectors [n, d] of the texts, where they are there already.
            replace: a row that has the id of a new one is deleted; otherwise that is an error.
            mark: what to remember of a file that is read in parts: its hash, the records read, whether it is whole.
            progress: told of texts that are encoded.

        Raises:
            InputError: a text, id or metadata cannot be used, or an id is there already.
            IndexBusyError: another process is writing.
        """
        checked = check_texts(texts)
        named = None if ids is None else check_ids(ids, len(checked))
        kept = check_metadata(metadata, len(checked))
        with self.writing():
            manifest = self.manifest
            names = self._fresh_ids(len(checked)) if named is None else named
            rows = range(len(names)) if named is None else self._chosen(names, replace)
            if len(rows):
                if vectors is None:
                    matrix = self._encoded([checked[i] for i in rows], progress)
                else:
                    matrix = check_vectors(vectors, manifest.spec.dim, len(checked))[list(rows)]
                chosen = [names[i] for i in rows]
                keys = np.arange(len(rows), dtype=np.int64) + manifest.next_key
                lines = [record_line(names[i], checked[i], kept[i]) for i in rows]
                part = Part(matrix, keys, id_hashes(chosen), lines)
                number = manifest.next_segment
                written = write_segment(self.folder, number, manifest, len(rows), lambda: [part])
                segments = tidy.without(self._snapshot, self._snapshot.find(chosen).values(), number)
                manifest = manifest.changed(
                    segments=(*segments, written), next_segment=number + 1, next_key=manifest.next_key + len(rows)
                )
            if mark is not None:
                manifest = manifest.changed(imports={**manifest.imports, mark[0]: mark[1:]})
            if manifest is not self.manifest:
                self._commit(manifest)
                self._tidied(progress)
        return names

    def delete(self, ids: Sequence[str], *, progress: Progress = silent) -> int:
        """Delete the rows of these ids, all of them or none, and return how many there were.

        Raises:
            InputError: an id is not there.
            IndexBusyError: another process is writing.
        """
        wanted = list(dict.fromkeys(check_ids(ids)))
        with self.writing():
            found = self._snapshot.find(wanted)
            if unknown := [one for one in wanted if one not in found]:
                more = f" and {len(unknown) - 1} others" if len(unknown) > 1 else ""
                raise InputError(f"no row has the id {shorten(unknown[0])}{more}: nothing was deleted")
            if found:
                number = self.manifest.next_segment
                segments = tidy.without(self._snapshot, found.values(), number)
                self._commit(self.manifest.changed(segments=segments, next_segment=number + 1))
                self._tidied(progress)
        return len(found)

    def search(self, queries: Sequence[str] | FloatArray, k: int = 10) -> list[list[Hit]]:
        """For every query its k nearest rows, best first; among equals the row that was added first.

        Args:
            queries: texts, or vectors [q, d] of the index's model.
            k: how many; where the index has fewer rows, all of them come back.

        Raises:
            InputError: a query is blank or not a string, or the vectors do not fit.
        """
        check_count(k)
        snapshot = self._snapshot
        if isinstance(queries, np.ndarray):
            vectors = check_vectors(queries, snapshot.manifest.spec.dim)
        else:
            texts = check_texts(queries, "query")
            vectors = check_vectors(self.model.encode(texts), snapshot.manifest.spec.dim)
        if len(snapshot) == 0:
            return [[] for _ in vectors]
        found = self._graph.search(snapshot, vectors, int(k)) or compared(snapshot, vectors, int(k))
        return [
            [
                hit_of(snapshot.record(place), score)
                for place, score in zip(places.tolist(), scores.tolist(), strict=True)
            ]
            for places, scores in found
        ]

    def get(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """The id, text and metadata of the rows of these ids; an unknown one is an InputError."""
        found = self._snapshot.find(wanted := check_ids(ids))
        for one in wanted:
            if one not in found:
                raise InputError(f"no row has the id {shorten(one)}")
        return [{"metadata": {}, **self._snapshot.record(found[one])} for one in wanted]

    def refresh(self) -> bool:
        """See what other processes have written since; says whether there was anything."""
        before = self.manifest
        if (now := read_manifest(self.folder)) == before:
            return False
        if now.spec.key != before.spec.key:
            raise SearchIndexError(f"{self.folder} is another index now, of {now.spec.name!r}: open it again")
        self._snapshot = open_snapshot(self.folder, self._snapshot)
        return True

    def verify(self, *, progress: Progress = silent) -> None:
        """Read every byte and compare the checksums; a DamagedIndexError names the file."""
        tidy.verify(self._snapshot, progress)

    def compact(self, *, progress: Progress = silent) -> None:
        """Write the rows anew without the deleted ones, in as few segments as they fit into."""
        with self.writing():
            self._commit(tidy.compacted(self._snapshot, tidy.all_groups(self._snapshot), progress))

    def build_graph(self, *, threads: int = 1, progress: Progress = silent) -> None:
        """Bring the graph up to date: rows that it lacks are added to it, and with many deleted it is made anew.

        Args:
            threads: cores to use; with more than one the graph, and what it finds, is not the same every time.
            progress: told of rows.
        """
        if self.manifest.settings.kind == "exact":
            raise InputError(f"{self.folder} is an exact index: it has no graph")
        with self.writing():
            number = self.manifest.next_segment
            made = graph.make(self._snapshot, number, threads, progress)
            if made != self.manifest.graph:
                self._commit(self.manifest.changed(graph=made, next_segment=number + 1))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers out of several changes; every change does so for itself.

        Raises:
            IndexBusyError: another process is writing.
        """
        with held(self._lock, self.folder, self._wait):
            self.refresh()
            tidy.sweep(self.folder, self.manifest)
            yield

    def remember(self, source: str) -> None:
        """Remember that the model is found there from now on; the one that is open is known to be the same."""
        with self.writing():
            if (found := source_of(self.model, source)) != self.manifest.source:
                self._commit(self.manifest.changed(source=found))

    def _encoded(self, texts: list[str], progress: Progress) -> FloatArray:
        if getattr(self.model, "missing", "error") == "drop":
            raise SearchIndexError(
                "a model that goes on without a member does not always give the same vectors: load it with "
                'missing="error" to add to an index'
            )
        return check_vectors(self.model.encode(texts, progress=progress), self.manifest.spec.dim)

    def _fresh_ids(self, count: int) -> list[str]:
        """Numbers that go on where the last ones ended, marked where someone has given them already."""
        names = [str(self.manifest.next_key + i) for i in range(count)]
        while taken := set(self._snapshot.find(names)):
            names = [f"{name}+" if name in taken else name for name in names]
        return names

    def _chosen(self, names: list[str], replace: bool) -> Sequence[int]:
        """Which of the new rows are kept: all, or with `replace` the last of each id."""
        last = {name: i for i, name in enumerate(names)}
        if replace:
            return sorted(last.values())
        if len(last) < len(names):
            twice = next(name for i, name in enumerate(names) if last[name] != i)
            raise InputError(f"the id {shorten(twice)} is given twice: nothing was added; replace=True keeps the last")
        if taken := self._snapshot.find(names):
            more = f" and {len(taken) - 1} others are" if len(taken) > 1 else " is"
            raise InputError(
                f"the id {shorten(next(iter(taken)))}{more} in the index already: nothing was added; give other ids, "
                "or replace the rows (replace=True, --replace)"
            )
        return range(len(names))

    def _commit(self, manifest: Manifest) -> None:
        """Make the change: the one moment at which everything written so far begins to count."""
        write_atomically(self.folder / MANIFEST, manifest.to_bytes())
        self._snapshot = open_snapshot(self.folder, self._snapshot)
        tidy.sweep(self.folder, manifest)

    def _tidied(self, progress: Progress) -> None:
        """Compact and extend the graph where that is due; a change of its own, after the one that was asked for."""
        if groups := tidy.due(self._snapshot):
            self._commit(tidy.compacted(self._snapshot, groups, progress))
        if graph.due(self._snapshot):
            self.build_graph(progress=progress)
