"""What a caller may and may not do on `tx.connection`, and what the next transaction finds (T3, T8, T9)."""

import sqlite3

import aiosqlite
import pytest
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_sqlite import SqliteStore


@pytest.fixture
async def table(store: SqliteStore) -> SqliteStore:
    """The store, with a business table."""
    async with store.transaction() as tx:
        await tx.connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    return store


async def orders(store: SqliteStore) -> list[int]:
    async with store.begin_tx() as tx:
        return [row[0] for row in await tx.connection.execute_fetchall("SELECT id FROM orders ORDER BY id")]


@pytest.mark.parametrize(
    "sql",
    ["COMMIT", "end", " BEGIN", "-- done\nCOMMIT;", "/* so */ rollback", "ROLLBACK TRANSACTION", "BEGIN IMMEDIATE"],
)
async def test_statements_that_end_a_transaction_are_refused_and_do_not_end_it(table: SqliteStore, sql: str) -> None:
    """A COMMIT by hand would make half of the work visible; it is refused and the rest can go on."""
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(sqlite3.ProgrammingError, match="transaction"):
            await tx.connection.execute(sql)
        assert await table.queue("q").get_job(1) is None
        await tx.enqueue("q", 1)
    assert await orders(table) == [1]
    job = await table.queue("q").get_job(1)
    assert job is not None


async def test_commit_rollback_and_executescript_on_the_connection_are_refused(table: SqliteStore) -> None:
    """The connection's own ways to end the transaction are refused too."""
    async with table.begin_tx() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        for refused in (tx.connection.commit(), tx.connection.rollback(), tx.connection.executescript("SELECT 1;")):
            with pytest.raises(sqlite3.ProgrammingError):
                await refused
    assert await orders(table) == []


async def test_savepoints_on_the_connection_take_their_part_back(table: SqliteStore) -> None:
    """ROLLBACK TO a savepoint undoes what came after it, alkstore's writes included, and nothing else."""
    async with table.transaction() as tx:
        kept = await tx.enqueue("q", "kept")
        await tx.connection.execute("SAVEPOINT here")
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        dropped = await tx.enqueue("q", "dropped")
        await tx.connection.execute("ROLLBACK TO here")
        await tx.connection.execute("RELEASE here")
    assert await orders(table) == []
    assert await table.queue("q").get_job(kept) is not None
    assert [h.job.payload for h in await table.queue("q").claim_batch("w", 9)] == [b'"kept"']
    assert dropped > 0


async def test_a_kept_connection_is_useless_after_the_end(table: SqliteStore) -> None:
    """A connection kept beyond its transaction cannot write into somebody else's."""
    async with table.transaction() as tx:
        kept = tx.connection
    with pytest.raises(sqlite3.ProgrammingError, match="has ended"):
        await kept.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(ClosedError):
        _ = tx.connection


async def test_row_factories_do_not_outlive_their_transaction(table: SqliteStore) -> None:
    """What one transaction sets for its own reads is neither alkstore's nor the next one's."""
    async with table.transaction() as tx:
        tx.connection.row_factory = lambda _cursor, row: {"wrong": row}
        tx.connection.text_factory = bytes
        job_id = await tx.enqueue("q", 1)
        job = await tx.get_job("q", job_id)
        assert job is not None
        assert job.queue == "q"
    async with table.transaction() as tx:
        assert await tx.connection.execute_fetchall("SELECT 'a'") == [("a",)]


async def test_what_was_set_on_the_connection_does_not_outlive_its_transaction(table: SqliteStore) -> None:
    """A PRAGMA, an attached database and a temporary table of one transaction are not there in the next."""
    async with table.begin_tx() as tx:
        await tx.connection.execute("PRAGMA ignore_check_constraints = ON")
        await tx.commit()
    async with table.begin_tx() as tx:
        assert await tx.connection.execute_fetchall("PRAGMA ignore_check_constraints") == [(0,)]
    async with table.begin_tx() as tx:
        await tx.connection.execute("create temp TABLE orders (id, wrong)")
        await tx.connection.execute("INSERT INTO orders VALUES (7, 'astray')")
        await tx.commit()
    async with table.begin_tx() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        await tx.commit()
    assert await orders(table) == [1]
    async with table.begin_tx() as tx:
        with pytest.raises(sqlite3.ProgrammingError, match="not the driver's"):
            tx.connection.isolation_level = None
        await tx.connection.execute("INSERT INTO orders VALUES (2)")
        with pytest.raises(sqlite3.ProgrammingError, match="not the driver's"):
            tx.connection.isolation_level = None
        await tx.rollback()
    assert await orders(table) == [1]


async def test_an_open_cursor_of_an_earlier_transaction_does_not_spoil_the_next(table: SqliteStore) -> None:
    """A read left unfinished keeps an old snapshot; the next transaction gets a connection that can write."""
    async with table.transaction() as tx:
        for number in range(3):
            await tx.connection.execute("INSERT INTO orders VALUES (?)", (number,))
    async with table.transaction() as tx:
        cursor = await tx.connection.execute("SELECT id FROM orders")
        assert await cursor.fetchone() == (0,)
    await table.queue("q").enqueue("somebody else's commit")
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (3)")
    assert await orders(table) == [0, 1, 2, 3]


async def test_a_failed_commit_leaves_the_store_working(table: SqliteStore) -> None:
    """A COMMIT that SQLite refuses undoes the transaction, and the next one works (T9)."""
    async with table.transaction() as tx:
        await tx.connection.execute("CREATE TABLE child (id REFERENCES orders (id) DEFERRABLE INITIALLY DEFERRED)")
    tx = await table.begin_tx()
    await tx.connection.execute("PRAGMA defer_foreign_keys = ON")
    await tx.enqueue("q", "ghost")
    with pytest.raises(sqlite3.OperationalError):
        await tx.connection.execute("INSERT INTO nowhere VALUES (1)")
    await tx.connection.close()  # the hardest way to make a commit fail
    with pytest.raises(DatabaseError):
        await tx.commit()
    with pytest.raises(ClosedError):
        await tx.commit()
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        real = await tx.enqueue("q", "real")
    assert [h.job.id for h in await table.queue("q").claim_batch("w", 9)] == [real]
    assert await orders(table) == [1]


async def test_the_connection_is_aiosqlites(store: SqliteStore) -> None:
    """Libraries that take an aiosqlite connection take this one."""
    async with store.begin_tx() as tx:
        assert isinstance(tx.connection, aiosqlite.Connection)


async def test_a_caller_error_leaves_the_transaction_usable(table: SqliteStore) -> None:
    """An IntegrityError of the caller's own statement is the caller's to handle; the transaction goes on."""
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError):
            await tx.connection.execute("INSERT INTO orders VALUES (1)")
        await tx.enqueue("q", 1)
    assert await orders(table) == [1]


async def test_a_transaction_that_sqlite_rolled_back_does_not_go_on(table: SqliteStore) -> None:
    """After a conflict that undid everything, nothing more lands and the commit says so: no half of it is there."""
    tx = await table.begin_tx()
    await tx.connection.execute("INSERT INTO orders VALUES (1)")
    await tx.enqueue("q", "before")
    with pytest.raises(sqlite3.IntegrityError):
        await tx.connection.execute("INSERT OR ROLLBACK INTO orders VALUES (1)")
    with pytest.raises(sqlite3.OperationalError, match="rolled this transaction back"):
        await tx.connection.execute("INSERT INTO orders VALUES (2)")
    with pytest.raises(DatabaseError, match="rolled this transaction back"):
        await tx.enqueue("q", "after")
    with pytest.raises(DatabaseError, match="rolled this transaction back"):
        await tx.commit()
    assert await orders(table) == []
    assert await table.queue("q").claim_batch("w", 9) == []
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (3)")
    assert await orders(table) == [3]


async def test_a_hidden_commit_is_refused(table: SqliteStore) -> None:
    """Empty statements before it do not hide a COMMIT."""
    async with table.begin_tx() as tx:
        await tx.enqueue("q", 1)
        with pytest.raises(sqlite3.ProgrammingError):
            await tx.connection.execute("; COMMIT")
    assert await table.queue("q").claim_one("w") is None
