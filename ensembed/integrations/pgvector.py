"""pgvector: a store of a model's vectors and texts in a table of PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders import Encoder
from ensembed.encoders.base import FloatArray
from ensembed.errors import DimensionError, EnsembedError, InputError, MissingError, SentenceError, StoreError
from ensembed.integrations.vector_stores import (
    Hits,
    IdArray,
    Kinds,
    StoreFacts,
    VectorStore,
    checked_ids,
    checked_settings,
    closing_failures,
    padded,
    store_model,
)
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.opening import ModelLike
from ensembed.support.extras import import_extra

psycopg: Any = import_extra("psycopg", "pgvector", "a table of pgvector")
sql: Any = import_extra("psycopg.sql", "pgvector", "a table of pgvector")
_pgvector: Any = import_extra("pgvector", "pgvector", "a table of pgvector")
_adapters: Any = import_extra("pgvector.psycopg", "pgvector", "a table of pgvector")

Column: TypeAlias = Literal["vector", "halfvec"]
INDEXED = {"vector": 2000, "halfvec": 4000}
"""The most dimensions that pgvector can index, by the type of the column."""
_KINDS: Kinds = {"column": get_args(Column), "index": (bool,), "truncate": (int, None), "ef_search": (int,)}
_KEPT = 16000
# The largest that hnsw.ef_search may be: a search for more has to look at every row.
_MOST_EF = 1000


class PgvectorStore(VectorStore):
    """Vectors of sentences by id in a table `(id bigint, text text, embedding vector or halfvec)` of PostgreSQL.

    Each `add` and `delete` is one transaction: all of it is kept, or nothing. What the store remembers is the table's
    comment. With an index search is approximate; `exact=True` looks at every row.
    """

    backend: ClassVar[str] = "pgvector"

    def __init__(
        self,
        model: Encoder,
        facts: StoreFacts,
        connection: Any,  # noqa: ANN401 - a psycopg.Connection
        table: str,
        *,
        own: bool,
    ) -> None:
        super().__init__(model, facts, f"the pgvector table {table!r}")
        self.connection = connection
        self._table = _identifier(table)
        # In a query with parameters psycopg takes % for one, in a name, too.
        self._beside = sql.SQL(self._table.as_string(connection).replace("%", "%%"))
        self._own = own
        self._exact = False

    @classmethod
    def create(
        cls,
        database: str | Any,  # noqa: ANN401 - a psycopg.Connection
        model: ModelLike,
        *,
        table: str = "ensembed",
        column: Column = "vector",
        index: bool = True,
        truncate: int | None = None,
        connectivity: int = 16,
        ef_construction: int = 64,
        ef_search: int = 100,
    ) -> PgvectorStore:
        """A new, empty table, and the extension `vector` where the database has not got it yet.

        Args:
            database: a connection string or URL, or an open psycopg connection, which is not closed with the store. In
                a transaction that is open on it, everything waits for its commit.
            model: a model, the folder of a saved one, or an encoder's name.
            table: its name, as it is or `schema.table`.
            column: "vector" keeps a number in 4 bytes, "halfvec" in 2.
            index: make an HNSW index; it takes 2,000 dimensions of a vector, 4,000 of a halfvec.
            truncate: keep only so many first dimensions of the model's vectors.
            connectivity: links per vector of the index (pgvector's `m`).
            ef_construction: how widely is searched for links.
            ef_search: how widely is searched for hits.

        Raises:
            DimensionError: the model has more dimensions than can be indexed.
            StoreError: there is such a table already, or the database cannot be used.
            MissingError: the server has no pgvector.
        """
        settings = {"column": column, "index": index, "truncate": truncate, "ef_search": ef_search}
        checked = checked_settings(settings, _KINDS)
        opened = _truncated(store_model(model), truncate)
        _check_dim(opened, column, index=index)
        facts = StoreFacts.of(cls.backend, opened, **checked)
        _identifier(table)
        connection, own = _connection(database)
        store = cls(opened, facts, connection, table, own=own)
        with closing_failures(store), store._failures(), connection.transaction():
            _make_extension(connection)
            kind = sql.SQL(column)
            connection.execute(
                sql.SQL(
                    "CREATE TABLE {} (id bigint PRIMARY KEY, text text NOT NULL, embedding {}({}) NOT NULL)"
                ).format(store._table, kind, sql.Literal(facts.dim))
            )
            if index:
                connection.execute(
                    sql.SQL("CREATE INDEX ON {} USING hnsw (embedding {}) WITH (m = {}, ef_construction = {})").format(
                        store._table,
                        sql.SQL(f"{column}_cosine_ops"),
                        sql.Literal(int(connectivity)),
                        sql.Literal(int(ef_construction)),
                    )
                )
            comment = sql.Literal(json.dumps(facts.to_json()))
            connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(store._table, comment))
            _adapters.register_vector(connection)
        return store

    @classmethod
    def open(cls, database: str | Any, model: ModelLike, *, table: str = "ensembed") -> PgvectorStore:  # noqa: ANN401 - as `create`
        """The store that was created in that table; a model that was truncated then is truncated again.

        Raises:
            InputError: it holds another model's vectors.
            StoreError: there is no such table, it is not ensembed's, or the database cannot be used.
        """
        opened = store_model(model)
        _identifier(table)
        connection, own = _connection(database)
        store = cls(opened, StoreFacts.of(cls.backend, opened), connection, table, own=own)
        with closing_failures(store):
            with store._failures(), connection.transaction():
                name = store._table.as_string(connection)
                found = connection.execute(
                    "SELECT to_regclass(%s) IS NOT NULL, obj_description(to_regclass(%s), 'pg_class')", (name, name)
                ).fetchone()
                if not found[0]:
                    raise StoreError(f"there is no table {table!r}: create the store")
                _adapters.register_vector(connection)
            store.facts = StoreFacts.from_json(_parsed(found[1]), cls.backend, store.where)
            store.facts.check_settings(_KINDS, store.where)
            if (kept := store.facts.settings["truncate"]) is not None and opened.spec.dim > kept:
                store.model = opened = _truncated(opened, kept)
            store.facts.check(opened, store.where)
        return store

    def search(self, queries: Sequence[str], k: int = 10, *, exact: bool = False) -> Hits:
        """The k sentences whose vectors have the largest cosine with each query's, or all where there are fewer.

        Args:
            queries: the queries.
            k: how many; for more than 1,000 every row is looked at.
            exact: look at every row, not at the index.
        """
        self._exact = exact
        return super().search(queries, k)

    def texts(self, ids: Sequence[int]) -> list[str]:
        """The sentences of these ids.

        Raises:
            InputError: one is not in the store.
        """
        self._check_usable()
        wanted = checked_ids(ids).tolist()
        with self._failures(), self.connection.transaction():
            query = sql.SQL("SELECT id, text FROM {} WHERE id = ANY(%s)").format(self._beside)
            found = dict(self.connection.execute(query, (wanted,)).fetchall())
        for number in wanted:
            if number not in found:
                raise InputError(f"{self.where} has no id {number}")
        return [found[number] for number in wanted]

    def __len__(self) -> int:
        self._check_usable()
        with self._failures(), self.connection.transaction():
            return int(self.connection.execute(sql.SQL("SELECT count(*) FROM {}").format(self._table)).fetchone()[0])

    def close(self) -> None:
        """Let go of the connection."""
        if self._own and not self._closed:
            self.connection.close()
        super().close()

    def _add(self, ids: IdArray, vectors: FloatArray, sentences: list[str], *, replace: bool) -> None:
        for i, sentence in enumerate(sentences):
            if "\0" in sentence:
                raise SentenceError(f"sentence {i} holds a NUL character, which PostgreSQL cannot keep: leave it out")
        query = sql.SQL("INSERT INTO {} (id, text, embedding) VALUES (%s, %s, %s)").format(self._beside)
        if replace:
            query += sql.SQL(" ON CONFLICT (id) DO UPDATE SET text = excluded.text, embedding = excluded.embedding")
        rows = list(zip(ids.tolist(), sentences, map(self._value, vectors), strict=True))
        try:
            with self._failures(), self.connection.transaction(), self.connection.cursor() as cursor:
                cursor.executemany(query, rows)
        except StoreError as error:
            # Another connection may have added the same ids since they were looked for.
            if isinstance(error.__cause__, psycopg.errors.UniqueViolation):
                raise InputError(self._taken(ids[self._present(ids)])) from error
            raise

    def _search(self, vectors: FloatArray, k: int) -> Hits:
        with self._failures(), self.connection.transaction(force_rollback=True):
            if self._exact or k > _MOST_EF or not self.facts.settings["index"]:
                return padded([self._nearest(vector, k, exact=True) for vector in vectors], k)
            breadth = str(min(max(k, int(self.facts.settings["ef_search"])), _MOST_EF))
            self.connection.execute("SELECT set_config('hnsw.ef_search', %s, true)", (breadth,))
            found = [self._nearest(vector, k) for vector in vectors]
            # Rows that were deleted stay in the index until the table is vacuumed, and take the place of others.
            for row, (ids, _) in enumerate(found):
                if len(ids) < k:
                    found[row] = self._nearest(vectors[row], k, exact=True)
            return padded(found, k)

    def _nearest(self, vector: FloatArray, k: int, *, exact: bool = False) -> tuple[list[int], list[float]]:
        """Ids and cosines of the k rows nearest to a vector."""
        query = sql.SQL(
            "SELECT id, 1 - (embedding <=> %(vector)s) FROM {} ORDER BY embedding <=> %(vector)s LIMIT %(k)s"
        ).format(self._beside)
        if exact:
            self.connection.execute("SET LOCAL enable_indexscan = off")
        rows = self.connection.execute(query, {"vector": self._value(vector), "k": k}).fetchall()
        return [row[0] for row in rows], [row[1] for row in rows]

    def _at_most(self, k: int) -> int:
        # Counting a whole table takes longer than searching it.
        query = sql.SQL("SELECT count(*) FROM (SELECT FROM {} LIMIT %s) AS counted").format(self._beside)
        with self._failures(), self.connection.transaction():
            return int(self.connection.execute(query, (min(k, 2**62),)).fetchone()[0])

    def _present(self, ids: IdArray) -> NDArray[np.bool_]:
        with self._failures(), self.connection.transaction():
            query = sql.SQL("SELECT id FROM {} WHERE id = ANY(%s)").format(self._beside)
            there = [row[0] for row in self.connection.execute(query, (ids.tolist(),)).fetchall()]
        return np.isin(ids, np.array(there, np.int64))

    def _delete(self, ids: IdArray) -> None:
        with self._failures(), self.connection.transaction():
            self.connection.execute(sql.SQL("DELETE FROM {} WHERE id = ANY(%s)").format(self._beside), (ids.tolist(),))

    def _value(self, vector: FloatArray) -> Any:  # noqa: ANN401 - a value of pgvector's
        half = self.facts.settings["column"] == "halfvec"
        return _pgvector.HalfVector(vector) if half else _pgvector.Vector(vector)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Make what the database raises a StoreError."""
        try:
            yield
        except EnsembedError:
            raise
        except psycopg.Error as error:
            raise StoreError(f"{self.where} cannot be used: {str(error).strip()}") from error


def _identifier(table: str) -> Any:  # noqa: ANN401 - an identifier of psycopg's, which quotes it
    parts = table.split(".") if isinstance(table, str) else []
    if not 1 <= len(parts) <= 2 or not all(parts) or any("\0" in part or len(part.encode()) > 63 for part in parts):
        raise InputError(f"a table is named 'table' or 'schema.table', with names of 1 to 63 bytes, not {table!r}")
    return sql.Identifier(*parts)


def _truncated(model: Encoder, dim: int | None) -> Encoder:
    if dim is None:
        return model
    if not isinstance(model, MetaEncoder):
        raise InputError(
            f"{model.spec.name!r} is not a meta-encoder and cannot be truncated here: open it with truncate_dim, as in "
            f"minilm?truncate_dim={dim}"
        )
    return model.truncate(dim)


def _check_dim(model: Encoder, column: Column, *, index: bool) -> None:
    dim, most = model.spec.dim, INDEXED[column]
    if dim > _KEPT:
        raise DimensionError(f"{model.spec.name!r} has {dim} dimensions; pgvector keeps {_KEPT}: say truncate={_KEPT}")
    if index and dim > most:
        half = "column='halfvec', or " if column == "vector" and dim <= INDEXED["halfvec"] else ""
        raise DimensionError(
            f"{model.spec.name!r} has {dim} dimensions; pgvector indexes at most {most} of a {column}: say "
            f"truncate={most}, or {half}index=False to look at every row",
            most,
        )


def _connection(database: str | Any) -> tuple[Any, bool]:  # noqa: ANN401 - a psycopg.Connection
    """The connection, and whether it is ours to close."""
    if isinstance(database, psycopg.Connection):
        return database, False
    if not isinstance(database, str):
        raise InputError(f"a database is a connection string or a psycopg.Connection, not {database!r}")
    try:
        # Without autocommit the first query would open a transaction that nobody ends.
        return psycopg.connect(database, autocommit=True), True
    except psycopg.Error as error:
        raise StoreError(f"cannot connect to the database: {str(error).strip()}") from error


def _make_extension(connection: Any) -> None:  # noqa: ANN401 - a psycopg.Connection
    try:
        with connection.transaction():
            if not connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone():
                connection.execute("CREATE EXTENSION vector")
    except (psycopg.errors.UndefinedFile, psycopg.errors.FeatureNotSupported) as error:
        raise MissingError(
            "this PostgreSQL has no pgvector: install it on the server (on Debian postgresql-VERSION-pgvector)"
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreError(
            f"CREATE EXTENSION vector has to be run by an administrator of the database: {error}"
        ) from error


def _parsed(comment: str | None) -> object:
    try:
        return json.loads(comment or "null")
    except (ValueError, RecursionError):
        return None
