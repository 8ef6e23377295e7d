"""pgvector on a real PostgreSQL: transactions, names, limits of dimensions, indexes, and databases not made for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray
from postgres import postgres

from ensembed import Ensemble, MetaEncoder
from ensembed.errors import DimensionError, InputError, SentenceError, StoreError
from ensembed.integrations.pgvector import PgvectorStore
from ensembed.methods import SVD, Concat

SENTENCES = [f"{who} {does} {what} {when}" for who in "abcd" for does in "efgh" for what in "ijkl" for when in "mnop"]


@pytest.fixture
def database() -> str:
    """A new database."""
    server = postgres()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS fresh WITH (FORCE)")
        connection.execute("CREATE DATABASE fresh")
    return server.replace("dbname=postgres", "dbname=fresh")


VERBS = ("", "runs", "sleeps", "eats", "sees", "sits")


def wide(dim: int) -> MetaEncoder:
    sentences = [
        f"{article} {animal} {verb}" for article in ("a", "the") for animal in ("dog", "cat") for verb in VERBS
    ]
    return Ensemble([f"demo?dim={dim - 8}&seed=1", "demo?dim=8&seed=2"]).fit(sentences, Concat())


def rows(database: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database) as connection:
        return connection.execute(query).fetchall()


def test_failed_add_leaves_the_table_as_it_was(database: str) -> None:
    with PgvectorStore.create(database, "demo?dim=8") as store, psycopg.connect(database, autocommit=True) as other:
        store.add([1], ["a dog"])
        other.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN IF NEW.id = 500 THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$"
        )
        other.execute("CREATE TRIGGER refuse BEFORE INSERT ON ensembed FOR EACH ROW EXECUTE FUNCTION refuse()")
        for replace in (False, True):
            with pytest.raises(StoreError, match="not this one"):
                store.add([1, *range(10, 1000)][not replace :], ["a cat"] * (990 + replace), replace=replace)
            assert store.texts([1]) == ["a dog"]
            assert len(store) == 1
        with pytest.raises(SentenceError, match="NUL"):
            store.add([2, 3], ["a dog", "a\0b"])
        store.add([2], ["a cat"])  # the connection is as good as new
        assert rows(database, "SELECT id, text FROM ensembed ORDER BY id") == [(1, "a dog"), (2, "a cat")]


def test_id_that_another_connection_adds_meanwhile_is_refused(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with PgvectorStore.create(database, "demo?dim=8") as one, PgvectorStore.open(database, "demo?dim=8") as two:
        look = one._refuse_taken

        def look_then_be_late(ids: NDArray[np.int64]) -> None:
            look(ids)
            two.add([7], ["the other's"])

        monkeypatch.setattr(one, "_refuse_taken", look_then_be_late)
        with pytest.raises(InputError, match="id 7 already"):
            one.add([6, 7], ["mine", "mine"])
        assert rows(database, "SELECT id, text FROM ensembed") == [(7, "the other's")]


def test_changes_wait_for_the_commit_of_the_users_transaction(database: str) -> None:
    with psycopg.connect(database) as mine:
        store = PgvectorStore.create(mine, "demo?dim=8", table="waiting")
        store.add([1], ["a dog"])
        assert rows(database, "SELECT id FROM waiting") == [(1,)]
        with mine.transaction() as open_one:
            store.add([2], ["a cat"])
            with pytest.raises(InputError, match="already"):
                store.add([2], ["a cat"])
            assert len(store) == 2  # what was refused did not end the transaction
            assert rows(database, "SELECT id FROM waiting") == [(1,)]
            raise psycopg.Rollback(open_one)
        assert len(store) == 1
        store.close()
        assert not mine.closed


@pytest.mark.parametrize(
    "name", ['x"; DROP TABLE safe; --', "Über Größe", "select", "a'b", "100%s", "{}", "own.place", "n" * 63]
)
def test_table_names_are_quoted(database: str, name: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE safe (id int)")
        connection.execute("CREATE SCHEMA own")
    for text in ('it\'s "quoted" \\ ; -- %s {}', "größer 🙂"):
        with PgvectorStore.create(database, "demo?dim=8", table=name) as store:
            store.add([1], [text])
        with PgvectorStore.open(database, "demo?dim=8", table=name) as store:
            assert store.search([text], k=1).ids.tolist() == [[1]]
            assert store.texts([1]) == [text]
            store.connection.execute(psycopg.sql.SQL("DROP TABLE {}").format(psycopg.sql.Identifier(*name.split("."))))
    assert rows(database, "SELECT count(*) FROM safe") == [(0,)]


def test_invalid_table_names_are_refused(database: str) -> None:
    for name in ("", ".", "a.b.c", "a\0b", "n" * 64, None):
        with pytest.raises(InputError, match="a table is named"):
            PgvectorStore.create(database, "demo?dim=8", table=name)  # type: ignore[arg-type] # it is refused


def test_dimensions_beyond_the_index_are_refused_with_a_way_out(database: str) -> None:
    with pytest.raises(DimensionError, match=r"2001 dimensions.*at most 2000 of a vector.*truncate=2000.*halfvec"):
        PgvectorStore.create(database, wide(2001))
    with pytest.raises(DimensionError, match=r"at most 4000 of a halfvec: set truncate=4000, or index=False"):
        PgvectorStore.create(database, wide(4001), column="halfvec")
    with pytest.raises(DimensionError, match="keeps 16000"):
        PgvectorStore.create(database, wide(16001), index=False)
    with pytest.raises(InputError, match="not a meta-encoder"):
        PgvectorStore.create(database, "demo?dim=3000", truncate=2000)
    assert rows(database, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
    queries = ["a dog runs", "a cat"]
    kinds: list[tuple[str, int, dict[str, Any]]] = [
        ("whole", 2000, {}),
        ("cut", 2001, {"truncate": 8}),
        ("halved", 4000, {"column": "halfvec"}),
        ("both", 4001, {"column": "halfvec", "truncate": 8}),
        ("bare", 2001, {"index": False}),
    ]
    for table, dim, options in kinds:
        model = wide(dim)
        with PgvectorStore.create(database, model, table=table, **options) as store:
            store.add([1, 2, 3], ["a dog", "a cat", "a dog runs"])
        with PgvectorStore.open(database, wide(dim), table=table) as store:
            assert store.model.spec.dim == options.get("truncate", dim)
            expected = store.model.similarity(queries, ["a dog", "a cat", "a dog runs"])
            hits = store.search(queries, k=3)
            assert hits.ids.tolist() == [[3, 1, 2], [2, 1, 3]]
            tolerance = 2e-3 if "column" in options else 1e-6
            np.testing.assert_allclose(hits.scores, -np.sort(-expected, axis=1), atol=tolerance)
    indexed = rows(database, "SELECT tablename, indexdef FROM pg_indexes WHERE indexdef LIKE '%hnsw%' ORDER BY 1")
    assert [name for name, _ in indexed] == ["both", "cut", "halved", "whole"]
    assert "halfvec_cosine_ops" in str(indexed[0])
    assert "vector_cosine_ops" in str(indexed[1])
    with pytest.raises(InputError, match="another model"):
        PgvectorStore.open(database, wide(3000), table="cut")


def test_search_uses_the_index_and_exact_search_does_not(database: str) -> None:
    model = Ensemble(["demo?dim=16&seed=1", "demo?dim=16&seed=2"]).fit(SENTENCES, SVD(dim=12))
    texts = [f"{sentence} {number}" for number in range(8) for sentence in SENTENCES]
    with PgvectorStore.create(database, model) as store:
        store.add(range(len(texts)), texts)
        store.connection.execute("ANALYZE ensembed")
        queries = texts[::500]
        best = -np.sort(-model.similarity(queries, texts), axis=1)
        scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname LIKE '%embedding%'"

        def scanned() -> int:
            store.connection.execute("SELECT pg_stat_force_next_flush()")
            return int(store.connection.execute(scans).fetchone()[0])

        scores = store.search(queries, k=10).scores
        assert np.isclose(scores, best[:, :10], atol=1e-6).mean() > 0.9
        used = scanned()
        assert used == len(queries)
        np.testing.assert_allclose(store.search(queries, k=10, exact=True).scores, best[:, :10], atol=1e-6)
        np.testing.assert_allclose(store.search(queries, k=1500).scores, best[:, :1500], atol=1e-6)
        assert scanned() == used
        # All that the index leads to first is deleted: it finds too few, and every row is looked at.
        near = np.argsort(-model.similarity(queries[:1], texts)[0])[:1800]
        store.delete(near.tolist())
        ids, scores = store.search(queries[:1], k=100)
        assert not set(ids[0].tolist()) & set(near.tolist())
        np.testing.assert_allclose(scores[0], best[0, 1800:1900], atol=1e-6)


def test_foreign_tables_and_connections_are_refused(database: str) -> None:
    with pytest.raises(StoreError, match="no table 'ensembed'"):
        PgvectorStore.open(database, "demo?dim=8")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute("CREATE TABLE theirs (id bigint, embedding vector(8))")
        for comment in (None, "a comment", "[1]", '{"a": 1}'):
            connection.execute(psycopg.sql.SQL("COMMENT ON TABLE theirs IS {}").format(psycopg.sql.Literal(comment)))
            with pytest.raises(StoreError, match="not a vector store"):
                PgvectorStore.open(database, "demo?dim=8", table="theirs")
    with pytest.raises(StoreError, match="already"):
        PgvectorStore.create(database, "demo?dim=8", table="theirs")
    with pytest.raises(StoreError, match="cannot connect"):
        PgvectorStore.create(database.replace("fresh", "nowhere"), "demo?dim=8")
    with pytest.raises(InputError, match="connection string"):
        PgvectorStore.create(None, "demo?dim=8")
    with pytest.raises(InputError, match="column"):
        PgvectorStore.create(database, "demo?dim=8", column="bit")  # type: ignore[arg-type] # it is refused
    store = PgvectorStore.create(database, "demo?dim=8")
    store.connection.close()
    with pytest.raises(StoreError, match="cannot be used"):
        store.search(["a dog"])


def test_extension_without_permission_asks_for_an_administrator(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS visitor")
        connection.execute("CREATE ROLE visitor LOGIN")
        connection.execute("GRANT CREATE ON SCHEMA public TO visitor")
    visitor = database.replace("user=ensembed", "user=visitor")
    with pytest.raises(StoreError, match="administrator"):
        PgvectorStore.create(visitor, "demo?dim=8")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    with PgvectorStore.create(visitor, "demo?dim=8") as store:
        store.add([1], ["a dog"])
