"""pgvector: a store of a model's vectors and texts in a table of PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ensembed.encoders.base import Encoder, FloatArray
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import DimensionError, InputError, MissingError, SentenceError, StoreError
from ensembed.integrations import vector_stores as stores
from ensembed.integrations.vector_stores import Hits, IdArray, StoreFacts, checked_settings
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.opening import ModelLike
from ensembed.support.extras import import_extra
from ensembed.support.file_limits import parse_json

_WHAT = "a table of pgvector"
psycopg: Any = import_extra("psycopg", "pgvector", _WHAT)
sql: Any = import_extra("psycopg.sql", "pgvector", _WHAT)
_pgvector: Any = import_extra("pgvector", "pgvector", _WHAT)
_adapters: Any = import_extra("pgvector.psycopg", "pgvector", _WHAT)

Database: TypeAlias = str | Any  # or a psycopg.Connection
Column: TypeAlias = Literal["vector", "halfvec"]
INDEXED = {"vector": 2000, "halfvec": 4000}
"""The most dimensions that pgvector can index, by the type of the column."""
_ALLOWED: stores.Allowed = {
    "column": get_args(Column),
    "index": (bool,),
    "truncate": (stores.NUMBER, None),
    "ef_search": (stores.NUMBER,),
}
_MAX_DIM = 16000  # the most dimensions that pgvector can store
_MAX_EF = 1000  # the largest value of hnsw.ef_search: a search for more hits has to compare every row


class PgvectorStore(stores.DatabaseStore):
    """Vectors of sentences by id in a table `(id bigint, text text, embedding vector or halfvec)` of PostgreSQL.

    Each `add` or `delete` is one transaction. With an index, search is approximate; `exact=True` compares every row.
    """

    backend: ClassVar[str] = "pgvector"
    _errors = (psycopg.Error,)

    def __init__(self, model: Encoder, facts: StoreFacts, database: Database, table: str) -> None:
        self._identifier = _identifier(table)
        self.connection = _connection(database)
        # In a query with parameters psycopg takes % for a parameter, even in a quoted name.
        self._table = sql.SQL(self._identifier.as_string(self.connection).replace("%", "%%"))
        self._exact = False
        owned = None if self.connection is database else self.connection
        super().__init__(model, facts, f"the pgvector table {table!r}", owned)

    @classmethod
    def create(
        cls,
        database: Database,
        model: ModelLike,
        *,
        table: str = "ensembed",
        column: Column = "vector",
        index: bool = True,
        truncate: int | None = None,
        connectivity: int = 16,
        ef_construction: int = 64,
        ef_search: int = 100,
        trust: Trust = False,
    ) -> Self:
        """Create an empty table, and the extension `vector` if the database lacks it.

        Args:
            database: a connection string or URL, or an open psycopg connection, which is not closed with the store.
            model: a model, the folder of a saved one, or an encoder's name.
            table: the table's name, `table` or `schema.table`.
            column: "vector" keeps a number in 4 bytes, "halfvec" in 2.
            index: make an HNSW index; pgvector indexes up to 2,000 dimensions of a vector, 4,000 of a halfvec.
            truncate: keep only the first so many dimensions of the model's vectors.
            connectivity: links per vector in the index (pgvector's `m`).
            ef_construction: breadth of the search for links.
            ef_search: breadth of the search for hits.
            trust: also open a model that runs code or uses a network; see `ensembed.load`.

        Raises:
            StoreError: the table exists already, or the database refuses.
            MissingError: pgvector is not installed on the server.
            DimensionError: the vectors have more dimensions than the column or the index can hold.
        """
        settings = {"column": column, "index": index, "truncate": truncate, "ef_search": ef_search}
        checked_settings(settings, _ALLOWED)
        encoder = _truncated(stores.store_model(model, trust=trust), truncate)
        _check_dim(encoder, column, index=index)
        store = cls(encoder, StoreFacts.of(cls.backend, encoder, settings), database, table)
        with store._failures(close=True), store.connection.transaction():
            _make_extension(store.connection)
            numbers = {"dim": store.facts.dim, "m": int(connectivity), "ef": int(ef_construction)}
            values = numbers | {"facts": json.dumps(store.facts.to_json())}
            parts = {name: sql.Literal(value) for name, value in values.items()}
            parts |= {"table": store._identifier, "type": sql.SQL(column), "operators": sql.SQL(f"{column}_cosine_ops")}
            queries = [
                "CREATE TABLE {table} (id bigint PRIMARY KEY, text text NOT NULL, embedding {type}({dim}) NOT NULL)",
                "COMMENT ON TABLE {table} IS {facts}",
                "CREATE INDEX ON {table} USING hnsw (embedding {operators}) WITH (m = {m}, ef_construction = {ef})",
            ]
            for query in queries if index else queries[:-1]:
                store.connection.execute(sql.SQL(query).format(**parts))
            _adapters.register_vector(store.connection)
        return store

    @classmethod
    def open(cls, database: Database, model: ModelLike, *, table: str = "ensembed", trust: Trust = False) -> Self:
        """Open a table that `create` made, with its settings. The arguments are those of `create`.

        Raises:
            InputError: the table was created with another model.
            StoreError: there is no such table, or it is damaged.
        """
        encoder = stores.store_model(model, trust=trust)
        store = cls(encoder, StoreFacts.of(cls.backend, encoder), database, table)
        with store._failures(close=True):
            with store.connection.transaction():
                name = store._identifier.as_string(store.connection)
                exists, comment = store.connection.execute(
                    "SELECT to_regclass(%s) IS NOT NULL, obj_description(to_regclass(%s), 'pg_class')", (name, name)
                ).fetchone()
                if not exists:
                    raise StoreError(f"there is no table {table!r}: create the store")
                _adapters.register_vector(store.connection)
            try:
                recorded = parse_json((comment or "null").encode())
            except ValueError:
                recorded = None
            store.facts = StoreFacts.from_json(recorded, cls.backend, store.where)
            truncate = checked_settings(store.facts.settings, _ALLOWED, store.where)["truncate"]
            if truncate is not None and encoder.spec.dim > truncate:
                store.model = _truncated(encoder, truncate)
            store.facts.check_model(store.model, store.where)
        return store

    def search(self, queries: Iterable[str], k: int = 10, *, exact: bool = False) -> Hits:
        """Return the k sentences nearest to each query; compare every row if `exact`, or if k is above 1,000."""
        self._exact = exact
        return super().search(queries, k)

    def __len__(self) -> int:
        self._check_usable()
        return int(self._rows("SELECT count(*) FROM {}")[0][0])

    def _add(self, ids: IdArray, vectors: FloatArray, sentences: list[str], *, replace: bool) -> None:
        for i, sentence in enumerate(sentences):
            if "\0" in sentence:
                raise SentenceError(f"sentence {i} holds a NUL character, which PostgreSQL cannot keep: leave it out")
        query = sql.SQL("INSERT INTO {} (id, text, embedding) VALUES (%s, %s, %s)").format(self._table)
        if replace:
            query += sql.SQL(" ON CONFLICT (id) DO UPDATE SET text = excluded.text, embedding = excluded.embedding")
        rows = list(zip(ids.tolist(), sentences, map(self._value, vectors), strict=True))
        try:
            with self._failures(), self.connection.transaction(), self.connection.cursor() as cursor:
                cursor.executemany(query, rows)
        except StoreError as error:
            if isinstance(error.__cause__, psycopg.errors.UniqueViolation):  # another connection has added the same ids
                self._refuse_taken(ids)
            raise

    def _search(self, vectors: FloatArray, k: int) -> Hits:
        with self._failures(), self.connection.transaction(force_rollback=True):
            if self._exact or k > _MAX_EF or not self.facts.settings["index"]:
                return Hits.padded([self._nearest(vector, k, exact=True) for vector in vectors], k)
            breadth = str(min(max(k, int(self.facts.settings["ef_search"])), _MAX_EF))
            self.connection.execute("SELECT set_config('hnsw.ef_search', %s, true)", (breadth,))
            hits = [self._nearest(vector, k) for vector in vectors]
            # Deleted rows stay in the index until the table is vacuumed, and take the place of others.
            for row, (ids, _) in enumerate(hits):
                if len(ids) < k:
                    hits[row] = self._nearest(vectors[row], k, exact=True)
            return Hits.padded(hits, k)

    def _nearest(self, vector: FloatArray, k: int, *, exact: bool = False) -> tuple[list[int], list[float]]:
        """Return ids and cosines of the k rows nearest to a vector."""
        query = sql.SQL(
            "SELECT id, 1 - (embedding <=> %(vector)s) FROM {} ORDER BY embedding <=> %(vector)s LIMIT %(k)s"
        ).format(self._table)
        if exact:
            self.connection.execute("SET LOCAL enable_indexscan = off")
        rows = self.connection.execute(query, {"vector": self._value(vector), "k": k}).fetchall()
        return [row[0] for row in rows], [row[1] for row in rows]

    def _at_most(self, k: int) -> int:
        # Counting a whole table takes longer than searching it.
        return int(self._rows("SELECT count(*) FROM (SELECT FROM {} LIMIT %s) AS counted", min(k, 2**62))[0][0])

    def _present(self, ids: IdArray) -> NDArray[np.bool_]:
        present = [row[0] for row in self._rows("SELECT id FROM {} WHERE id = ANY(%s)", ids.tolist())]
        return np.isin(ids, np.array(present, np.int64))

    def _delete(self, ids: IdArray) -> None:
        self._rows("DELETE FROM {} WHERE id = ANY(%s) RETURNING id", ids.tolist())

    def _texts(self, ids: list[int]) -> dict[int, str]:
        return dict(self._rows("SELECT id, text FROM {} WHERE id = ANY(%s)", ids))

    def _rows(self, query: str, *parameters: object) -> list[Any]:
        """Run a query, in which {} stands for the table, in a transaction; return its rows."""
        with self._failures(), self.connection.transaction():
            rows: list[Any] = self.connection.execute(sql.SQL(query).format(self._table), parameters).fetchall()
            return rows

    def _value(self, vector: FloatArray) -> Any:  # noqa: ANN401 - a value of pgvector
        half = self.facts.settings["column"] == "halfvec"
        return _pgvector.HalfVector(vector) if half else _pgvector.Vector(vector)


def _identifier(table: str) -> Any:  # noqa: ANN401 - an identifier of psycopg, which quotes it
    parts = table.split(".") if isinstance(table, str) else []
    if not 1 <= len(parts) <= 2 or not all(parts) or any("\0" in part or len(part.encode()) > 63 for part in parts):
        raise InputError(f"a table is named 'table' or 'schema.table', with names of 1 to 63 bytes, not {table!r}")
    return sql.Identifier(*parts)


def _truncated(model: Encoder, dim: int | None) -> Encoder:
    if dim is None:
        return model
    if not isinstance(model, MetaEncoder):
        raise InputError(f"{model.spec.name!r} is not a meta-encoder: open it as in minilm?truncate_dim={dim}")
    return model.truncate(dim)


def _check_dim(model: Encoder, column: Column, *, index: bool) -> None:
    dim, limit = model.spec.dim, INDEXED[column]
    if dim > _MAX_DIM:
        raise DimensionError(
            f"{model.spec.name!r} has {dim} dimensions; pgvector keeps {_MAX_DIM}: set truncate={_MAX_DIM}"
        )
    if index and dim > limit:
        half = "column='halfvec', or " if column == "vector" and dim <= INDEXED["halfvec"] else ""
        problem = f"{model.spec.name!r} has {dim} dimensions; pgvector indexes at most {limit} of a {column}"
        raise DimensionError(f"{problem}: set truncate={limit}, or {half}index=False to compare every row", limit)


def _connection(database: Database) -> Any:  # noqa: ANN401 - a psycopg.Connection
    """Connect to a database; a connection is returned as it is."""
    if isinstance(database, psycopg.Connection):
        return database
    if not isinstance(database, str):
        raise InputError(f"a database is a connection string or a psycopg.Connection, not {database!r}")
    try:
        return psycopg.connect(database, autocommit=True)  # or the first query would open a transaction for good
    except psycopg.Error as error:
        raise StoreError(f"cannot connect to the database: {str(error).strip()}") from error


def _make_extension(connection: Any) -> None:  # noqa: ANN401 - a psycopg.Connection
    try:
        with connection.transaction():
            if not connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone():
                connection.execute("CREATE EXTENSION vector")
    except (psycopg.errors.UndefinedFile, psycopg.errors.FeatureNotSupported) as error:
        problem = "this PostgreSQL has no pgvector: install it (Debian: postgresql-VERSION-pgvector)"
        raise MissingError(problem) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreError(f"CREATE EXTENSION vector needs an administrator of the database: {error}") from error
