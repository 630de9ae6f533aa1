"""Joining transactions on connections of the caller's own (T10, T11, N7)."""

import asyncio
import sqlite3
from pathlib import Path

import aiosqlite
import pytest
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.testing import ManualClock
from alkstore_sqlite import SqliteStore
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine


@pytest.fixture
async def engine(path: Path, store: SqliteStore):  # noqa: ARG001 - the store makes the file
    made = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with made.begin() as connection:
        await connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
    yield made
    await made.dispose()


async def payloads(store: SqliteStore) -> list[bytes]:
    return [handle.job.payload for handle in await store.queue("q").claim_batch("w", 99)]


async def test_a_session_commits_and_rolls_back_alkstores_part(store: SqliteStore, engine: AsyncEngine) -> None:
    """What was enqueued on a session lands with its commit, and not at all with its rollback."""
    async with AsyncSession(engine) as session:
        await session.execute(text("INSERT INTO orders VALUES (1)"))
        tx = store.enlist(session)
        await tx.enqueue("q", "kept")
        await session.commit()
    async with AsyncSession(engine) as session:
        await session.execute(text("INSERT INTO orders VALUES (2)"))
        await store.enlist(session).enqueue("q", "dropped")
        await session.rollback()
    assert await payloads(store) == [b'"kept"']
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT id FROM orders"))).all() == [(1,)]


async def test_begin_nested_takes_only_its_own_part_back(store: SqliteStore, engine: AsyncEngine) -> None:
    """A nested block that fails drops its jobs; the outer ones stay, and only the outer commit makes them visible."""
    async with AsyncSession(engine) as session, session.begin():
        tx = store.enlist(session)
        await tx.enqueue("q", "outer")
        inner = await session.begin_nested()
        await tx.enqueue("q", "inner")
        await inner.rollback()
        async with session.begin_nested():
            await tx.enqueue("q", "second")
        async with SqliteStore.open(store.engine.database.path) as other:  # type: ignore[attr-defined]
            assert await other.queue("q").get_job(1) is None
    assert await payloads(store) == [b'"outer"', b'"second"']


async def test_a_nested_block_alone_does_not_commit(store: SqliteStore, engine: AsyncEngine) -> None:
    """pysqlite begins no transaction for a SAVEPOINT, whose release would then commit; enlisting begins a real one."""
    async with AsyncSession(engine) as session, session.begin() as outer:
        tx = store.enlist(session)
        assert await tx.get_job("q", 1) is None
        async with session.begin_nested():
            await tx.enqueue("q", "ghost?")
        await outer.rollback()
    assert await payloads(store) == []


async def test_a_connection_of_sqlalchemy_is_joined_too(store: SqliteStore, engine: AsyncEngine) -> None:
    """`AsyncConnection` works like `AsyncSession`."""
    async with engine.begin() as connection:
        assert isinstance(connection, AsyncConnection)
        await store.enlist(connection).publish("s", 1, key="k")
    assert [(e.key, e.payload) for e in await store.stream("s").read_since(0)] == [("k", b"1")]


async def test_the_recommended_begin_recipe_works(store: SqliteStore, engine: AsyncEngine) -> None:
    """Engines set up to emit BEGIN themselves, as SQLAlchemy advises for SQLite, are joined as they are."""
    sync = engine.sync_engine

    @event.listens_for(sync, "connect")
    def connected(dbapi_connection, _record):
        dbapi_connection.isolation_level = None

    @event.listens_for(sync, "begin")
    def begun(connection):
        connection.exec_driver_sql("BEGIN")

    await engine.dispose()
    async with AsyncSession(engine) as session, session.begin():
        tx = store.enlist(session)
        async with session.begin_nested() as inner:
            await tx.enqueue("q", "dropped")
            await inner.rollback()
        await tx.enqueue("q", "kept")
    assert await payloads(store) == [b'"kept"']


async def test_autocommit_connections_are_refused(store: SqliteStore, engine: AsyncEngine) -> None:
    """On AUTOCOMMIT every statement would land by itself: refused, and nothing is written."""
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text("SELECT 1"))
        with pytest.raises(DatabaseError, match="AUTOCOMMIT"):
            await store.enlist(connection).enqueue("q", "ghost")
    assert await payloads(store) == []


async def test_what_cannot_be_joined_is_refused_before_any_sql(
    store: SqliteStore, engine: AsyncEngine, path: Path
) -> None:
    """No transaction, the wrong thing, a closed one, another driver: refused at once with what to do."""
    async with aiosqlite.connect(path) as connection:
        with pytest.raises(DatabaseError, match="no transaction"):
            store.enlist(connection)
    with pytest.raises(DatabaseError, match="closed"):
        store.enlist(connection)
    async with AsyncSession(engine) as session:
        with pytest.raises(DatabaseError, match="no transaction"):
            store.enlist(session)
    raw = sqlite3.connect(path)
    try:
        with pytest.raises(DatabaseError, match="cannot enlist a Connection"):
            store.enlist(raw)
    finally:
        raw.close()
    with pytest.raises(DatabaseError, match="NoneType"):
        store.enlist(None)


async def test_another_database_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    """A connection to another file could only lose the job: refused, even where that file has alkstore's tables."""
    other = tmp_path / "other.db"
    async with SqliteStore.open(other):
        pass
    for target in (str(other), ":memory:"):
        async with aiosqlite.connect(target) as connection:
            await connection.execute("BEGIN")
            with pytest.raises(DatabaseError, match="this store is on"):
                await store.enlist(connection).enqueue("q", 1)
            await connection.rollback()


async def test_any_row_factory_of_the_callers_is_left_alone(store: SqliteStore, path: Path) -> None:
    """The caller's factories neither reach alkstore's reads nor are changed by them."""

    def as_dict(cursor, row):
        return dict(zip([c[0] for c in cursor.description], row, strict=True))

    async with aiosqlite.connect(path) as connection:
        connection.row_factory = as_dict
        await connection.execute("BEGIN IMMEDIATE")
        tx = store.enlist(connection)
        job_id = await tx.enqueue("q", [1])
        job = await tx.get_job("q", job_id)
        assert job is not None
        assert job.payload == b"[1]"
        assert await connection.execute_fetchall("SELECT 1 AS one") == [{"one": 1}]
        await connection.commit()
    assert await payloads(store) == [b"[1]"]


async def test_the_wake_comes_after_the_callers_commit(store: SqliteStore, path: Path) -> None:
    """A listener hears of an enlisted notify when the caller commits, and of a rolled back one never."""
    async with store.listen("c") as receiver, store.listen("sentinel") as sentinel:
        async with aiosqlite.connect(path) as connection:
            await connection.execute("BEGIN IMMEDIATE")
            tx = store.enlist(connection)
            await tx.notify("c")
            await connection.rollback()
            await connection.execute("BEGIN IMMEDIATE")
            await store.enlist(connection).notify("sentinel")
            await connection.commit()
            async with asyncio.timeout(10):
                await sentinel.recv()
            assert await receiver.try_recv() is None
            await connection.execute("BEGIN IMMEDIATE")
            await store.enlist(connection).notify("c")
            await connection.commit()
        async with asyncio.timeout(10):
            assert (await receiver.recv()) is not None


async def test_the_task_with_an_enlisted_transaction_is_told_instead_of_hanging(store: SqliteStore, path: Path) -> None:
    """Its own auto-commit write would wait for the lock that it holds (T11); after the commit it works."""
    async with aiosqlite.connect(path) as connection:
        await connection.execute("BEGIN IMMEDIATE")
        tx = store.enlist(connection)
        await tx.enqueue("q", 1)
        with pytest.raises(DatabaseError, match="wait for itself"):
            await store.queue("q").enqueue(2)
        await connection.commit()
        await store.queue("q").enqueue(3)
    assert await payloads(store) == [b"1", b"3"]


async def test_a_transaction_begun_with_a_read_is_told_why_it_cannot_write(store: SqliteStore, path: Path) -> None:
    """A deferred transaction that read first and was overtaken gets an error that says what to do, at once."""
    async with aiosqlite.connect(path) as connection:
        await connection.execute("BEGIN")
        await connection.execute_fetchall("SELECT count(*) FROM alkstore_jobs")
        other = asyncio.create_task(store.queue("q").enqueue("overtakes"))
        await other
        with pytest.raises(DatabaseError, match="BEGIN IMMEDIATE"):
            await store.enlist(connection).enqueue("q", "late")
        await connection.rollback()
    assert await payloads(store) == [b'"overtakes"']


async def test_tasks_sharing_an_enlisted_connection_get_their_own_ids(store: SqliteStore, path: Path) -> None:
    """Operations of several tasks on one connection do not mix, with the caller's statements between them."""
    async with aiosqlite.connect(path) as connection:
        await connection.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY AUTOINCREMENT)")
        await connection.execute("BEGIN IMMEDIATE")
        tx = store.enlist(connection)

        async def one(number: int) -> tuple[int, int]:
            job_id = await tx.enqueue("q", number)
            await connection.execute("INSERT INTO mine DEFAULT VALUES")
            return job_id, number

        pairs = await asyncio.gather(*(one(number) for number in range(50)))
        await connection.commit()
    for job_id, number in pairs:
        job = await store.queue("q").get_job(job_id)
        assert job is not None
        assert job.payload_as(int) == number


async def test_a_handle_does_not_outlive_the_transaction_that_it_joined(
    store: SqliteStore, engine: AsyncEngine
) -> None:
    """In the session's next transaction, or one that SQLite undid, an old handle is refused and leaves no ghost."""
    async with AsyncSession(engine) as session:
        await session.execute(text("INSERT INTO orders VALUES (1)"))
        tx = store.enlist(session)
        await tx.enqueue("q", "kept")
        await session.commit()
        await session.execute(text("SELECT 1"))
        with pytest.raises(ClosedError, match="has ended"):
            await tx.enqueue("q", "ghost")
        await session.rollback()
    assert await payloads(store) == [b'"kept"']


async def test_a_rollback_beside_an_operation_leaves_no_ghost(store: SqliteStore, path: Path) -> None:
    """Whether the operation comes before the rollback or after it, it does not land."""
    async with aiosqlite.connect(path) as connection:
        for number in range(30):
            await connection.execute("BEGIN IMMEDIATE")
            tx = store.enlist(connection)
            await tx.enqueue("q", "first")
            await asyncio.gather(connection.rollback(), tx.enqueue("q", number), return_exceptions=True)
    assert await payloads(store) == []


async def test_enlisting_inside_a_savepoint_that_is_outermost_is_refused(
    store: SqliteStore, engine: AsyncEngine
) -> None:
    """The driver begins nothing before SQLAlchemy's SAVEPOINT, so its release would commit: refused, no ghost."""
    async with AsyncSession(engine) as session, session.begin() as outer:
        async with session.begin_nested():
            tx = store.enlist(session)
            with pytest.raises(DatabaseError, match="begin_nested"):
                await tx.enqueue("q", "ghost")
        await outer.rollback()
    assert await payloads(store) == []


async def test_a_dropped_handle_still_tells_its_task_instead_of_hanging(store: SqliteStore, path: Path) -> None:
    """T11 goes by the open transaction, not by who holds a handle on it."""
    async with aiosqlite.connect(path) as connection:
        await connection.execute("BEGIN IMMEDIATE")
        await store.enlist(connection).enqueue("q", 1)
        with pytest.raises(DatabaseError, match="wait for itself"):
            await store.queue("q").enqueue(2)
        await connection.rollback()
        await store.queue("q").enqueue(3)


async def test_a_closed_store_takes_nothing_more_on_an_enlisted_transaction(path: Path) -> None:
    """After close() an enlisted handle raises too, and the caller's transaction is the caller's still (T12)."""
    async with SqliteStore.open(path) as store, aiosqlite.connect(path) as connection:
        await connection.execute("BEGIN IMMEDIATE")
        tx = store.enlist(connection)
        await store.close()
        with pytest.raises(ClosedError):
            await tx.enqueue("q", 1)
        await connection.commit()


async def test_a_handle_does_not_write_into_the_sessions_next_transaction(
    store: SqliteStore, engine: AsyncEngine
) -> None:
    """It was for the one that has ended (T8, T10)."""
    async with AsyncSession(engine) as session:
        await session.execute(text("INSERT INTO orders VALUES (1)"))
        tx = store.enlist(session)
        await tx.enqueue("q", "kept")
        await session.commit()
        await session.execute(text("INSERT INTO orders VALUES (2)"))
        with pytest.raises(ClosedError):
            await tx.enqueue("q", "ghost")
        await session.commit()
    async with engine.connect() as connection:
        await connection.execute(text("INSERT INTO orders VALUES (3)"))
        tx = store.enlist(connection)
        await tx.enqueue("q", "kept too")
        await connection.commit()
        await connection.execute(text("INSERT INTO orders VALUES (4)"))
        with pytest.raises(ClosedError):
            await tx.enqueue("q", "ghost")
        await connection.commit()
    assert await payloads(store) == [b'"kept"', b'"kept too"']


async def test_a_session_that_only_reads_again_does_not_stand_in_its_tasks_way(
    store: SqliteStore, engine: AsyncEngine
) -> None:
    """What was joined has ended, so writing on the store does not wait for itself (T11)."""
    async with AsyncSession(engine) as session:
        await session.execute(text("INSERT INTO orders VALUES (1)"))
        await store.enlist(session).enqueue("q", "a")
        await session.commit()
        await session.execute(text("SELECT 1"))
        await store.queue("q").enqueue("b")
    assert await payloads(store) == [b'"a"', b'"b"']


async def test_a_connections_own_ways_of_reading_do_not_matter(path: Path, store: SqliteStore) -> None:
    """Neither text as bytes nor rows of another kind."""
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        connection.text_factory = bytes
        connection.row_factory = lambda _cursor, _row: None
        await connection.execute("BEGIN IMMEDIATE")
        await store.enlist(connection).enqueue("q", "a")
        await connection.execute("COMMIT")
    assert await payloads(store) == [b'"a"']


async def test_a_session_without_one_database_is_refused_with_what_to_do(store: SqliteStore) -> None:
    """As the contract's error, and not SQLAlchemy's."""
    async with AsyncSession() as session:
        await session.begin()
        with pytest.raises(DatabaseError, match="enlist its connection"):
            store.enlist(session)


async def test_a_transaction_of_another_store_is_joined_and_left(
    path: Path, store: SqliteStore, clock: ManualClock
) -> None:
    """Before its first statement too; after its end it is refused, and its task writes as before (T10, T11)."""
    async with SqliteStore.open(path, clock=clock) as other:
        async with other.transaction() as tx:
            joined = store.enlist(tx.connection)
            await joined.enqueue("q", "a")
            await tx.enqueue("q", "b")
            kept = tx.connection
        with pytest.raises(ClosedError):
            await joined.enqueue("q", "late")
        with pytest.raises(DatabaseError, match="no transaction is open"):
            store.enlist(kept)
        await store.queue("q").enqueue("c")
    assert await payloads(store) == [b'"a"', b'"b"', b'"c"']
