"""What a caller may and may not do on `tx.connection`, and what the next transaction finds (T3, T8, T9)."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

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
    await tx.connection.execute("PRAGMA foreign_keys = ON")  # has an effect as the first statement, and until the end
    await tx.enqueue("q", "ghost")
    await tx.connection.execute("INSERT INTO child VALUES (1)")
    with pytest.raises(DatabaseError, match="FOREIGN KEY"):
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


async def test_a_late_statement_does_not_land_in_somebody_elses_transaction(table: SqliteStore) -> None:
    """Who kept the connection of a transaction that has ended can do nothing in the one that is open now (T3)."""
    ended = await table.begin_tx()
    kept = ended.connection
    await ended.rollback()
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        for late in (kept.execute("INSERT INTO orders VALUES (2)"), kept.close(), kept.commit(), kept.cursor()):
            with pytest.raises(sqlite3.ProgrammingError):
                await late
        with pytest.raises(sqlite3.ProgrammingError):
            kept.stop()
    assert await orders(table) == [1]


@pytest.mark.parametrize("ends", ["\ufeffCOMMIT", "/* a */ -- b\n;\ufeff ROLLBACK", "/***/END"])
async def test_an_end_behind_what_sqlite_skips_is_refused(table: SqliteStore, ends: str) -> None:
    """A byte order mark and comments do not hide it."""
    async with table.begin_tx() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(sqlite3.ProgrammingError, match="is for the transaction itself"):
            await tx.connection.execute(ends)
        await tx.rollback()
    assert await orders(table) == []


async def test_many_comments_take_no_longer(table: SqliteStore) -> None:
    """The look at a statement is linear in it: a backtracking one would take years."""
    async with table.begin_tx() as tx:
        await tx.connection.execute("/* * ** */" * 2000 + "SELECT 1")


async def test_calls_that_alter_the_connection_end_with_the_transaction(table: SqliteStore) -> None:
    """A handler, a function or a table of the temporary schema of one transaction is not met by the next."""
    async with table.begin_tx() as tx:
        await tx.connection.set_progress_handler(lambda: 1, 10_000_000)
        await tx.connection.create_function("mine", 0, lambda: 1)
        await tx.connection.execute("CREATE TABLE temp.alkstore_jobs (wrong)")
        await tx.commit()
    async with table.begin_tx() as tx:
        with pytest.raises(sqlite3.OperationalError, match="no such function"):
            await tx.connection.execute("SELECT mine()")
        await tx.enqueue("q", 1)
        await tx.commit()


async def test_the_wait_for_a_foreign_writer_begins_with_the_first_statement(path: Path) -> None:
    """However long ago the transaction was begun."""
    async with SqliteStore.open(path, busy_timeout=0.3) as store:
        tx = await store.begin_tx()
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            begun = time.monotonic()
            with pytest.raises(DatabaseError, match="locked"):
                await tx.enqueue("q", 1)
            assert time.monotonic() - begun >= 0.3
            begun = time.monotonic()
            with pytest.raises(DatabaseError, match="locked"):
                await tx.enqueue("q", 1)
            assert time.monotonic() - begun >= 0.3
            foreign.execute("ROLLBACK")
            await tx.enqueue("q", 1)
            await tx.commit()


async def test_a_rollback_ends_what_is_under_way(path: Path) -> None:
    """Neither a wait for a foreign writer nor a long statement keeps a rollback, or a close, waiting."""
    endless = "WITH RECURSIVE c (n) AS (SELECT begun() UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    async with SqliteStore.open(path, busy_timeout=3600) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            tx = await store.begin_tx()
            waiting = asyncio.ensure_future(tx.enqueue("q", 1))
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await tx.rollback()
                with pytest.raises(ClosedError):
                    await waiting
        tx = await store.begin_tx()
        await tx.connection.create_function("begun", 0, lambda: loop.call_soon_threadsafe(begun.set) is None)
        running = asyncio.ensure_future(tx.connection.execute_fetchall(endless))
        async with asyncio.timeout(10):
            await begun.wait()
            await store.close()
            with pytest.raises(sqlite3.OperationalError, match="interrupted"):
                await running
        with pytest.raises(ClosedError):
            await tx.commit()


async def test_what_was_under_way_at_the_commit_wakes(path: Path) -> None:
    """A notify that was begun and not awaited before the commit reaches other processes each time (N7)."""
    async with SqliteStore.open(path) as store, SqliteStore.open(path) as other, other.listen("c") as receiver:
        for _ in range(5):
            tx = await store.begin_tx()
            notified = asyncio.ensure_future(tx.notify("c"))
            await asyncio.sleep(0)
            await tx.commit()
            await notified
            async with asyncio.timeout(10):
                await receiver.recv()


async def test_no_clock_makes_a_stamp_that_cannot_be_stored(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The year 5000 included."""
    monkeypatch.setattr(time, "time_ns", lambda: 95_617_584_000 * 10**9)
    async with asyncio.timeout(10):
        await store.notify("c")
        async with store.transaction() as tx:
            await tx.notify("c")
        await store.queue("q").enqueue(1)


async def test_leaving_a_cursors_block_after_the_end_is_no_error(table: SqliteStore) -> None:
    """The cursor was closed with the transaction."""
    for decide in ("commit", "rollback"):
        async with table.begin_tx() as tx, tx.connection.execute("SELECT 1") as cursor:
            assert await cursor.fetchone() == (1,)
            await getattr(tx, decide)()


async def test_foreign_keys_are_enforced_where_the_first_statement_asks_for_it(table: SqliteStore) -> None:
    """Until the end of that transaction, by the same connection, whichever way the pragma is written."""
    async with table.transaction() as tx:
        await tx.connection.execute("CREATE TABLE child (id REFERENCES orders (id))")
    assert await orders(table) == []
    whole = table.engine._idle_connection  # type: ignore[attr-defined]
    for pragma in ("PRAGMA foreign_keys = ON", "pragma main.foreign_keys(1)"):
        async with table.begin_tx() as tx:
            await tx.connection.execute(pragma)
            with pytest.raises(sqlite3.IntegrityError):
                await tx.connection.execute("INSERT INTO child VALUES (7)")
            await tx.commit()
        async with table.begin_tx() as tx:
            assert await tx.connection.execute_fetchall("PRAGMA foreign_keys") == [(0,)]
            await tx.connection.execute("INSERT INTO child VALUES (7)")
            await tx.rollback()
    assert table.engine._idle_connection is whole  # type: ignore[attr-defined]


async def test_a_row_factory_does_not_spoil_what_the_end_restores(table: SqliteStore) -> None:
    """Rows that are dicts are the caller's alone: foreign keys are put back, and the commit is told (T9)."""
    async with table.transaction() as tx:
        tx.connection.row_factory = lambda cursor, row: {
            name: value for (name, *_), value in zip(cursor.description, row, strict=True)
        }
        await tx.connection.execute("PRAGMA foreign_keys = ON")
        await tx.enqueue("q", 1)
    assert await table.queue("q").get_job(1) is not None
    async with table.transaction() as tx:
        assert await tx.connection.execute_fetchall("PRAGMA foreign_keys") == [(0,)]


async def test_a_backup_of_an_open_transaction_is_refused(table: SqliteStore, tmp_path: Path) -> None:
    """It would never end."""
    async with aiosqlite.connect(tmp_path / "copy.db") as copy, table.begin_tx() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(sqlite3.ProgrammingError, match="connection of your own"):
            await tx.connection.backup(copy)
