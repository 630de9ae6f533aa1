"""What a transaction answers before it is done: nobody can tell, but by the clock (T6, T7, Q1, S1)."""

import asyncio
import sqlite3
from typing import Any

import aiosqlite
import pytest
from alkstore_core.errors import DatabaseError
from alkstore_core.numbers import INT64_MAX
from alkstore_core.testing import ManualClock
from alkstore_sqlite import SqliteStore
from alkstore_sqlite.promises import LONGEST, MOST, Promises


@pytest.fixture
async def table(store: SqliteStore) -> SqliteStore:
    """The store, with a business table."""
    async with store.transaction() as tx:
        await tx.connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    return store


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What went to a connection's thread, by name."""
    went: list[str] = []
    execute = aiosqlite.Connection._execute

    async def counted(self: aiosqlite.Connection, fn: Any, *arguments: Any, **options: Any) -> Any:
        went.append(fn.__name__)
        return await execute(self, fn, *arguments, **options)

    monkeypatch.setattr(aiosqlite.Connection, "_execute", counted)
    return went


async def payloads(store: SqliteStore) -> list[bytes]:
    """What the queue holds, in claim order."""
    return [handle.job.payload for handle in await store.queue("q").claim_batch("w", 1000)]


async def test_a_row_and_what_goes_with_it_cost_two_hops(table: SqliteStore, hops: list[str]) -> None:
    """One with the caller's statement, one with the commit; none for three jobs, an event, an offset and a wake."""
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        ids = [await tx.enqueue("q", number) for number in range(3)]
        offset = await tx.publish("s", "event")
        await tx.save_offset("s", "me", offset)
        await tx.notify("c")
    assert hops == ["execute", "work"]
    assert ids == [1, 2, 3]
    assert [(await table.queue("q").get_job(id)).payload for id in ids] == [b"0", b"1", b"2"]  # type: ignore[union-attr]
    assert [(event.offset, event.payload) for event in await table.stream("s").read_since(0)] == [(offset, b'"event"')]
    assert await table.stream("s").get_offset("me") == offset


async def test_ids_go_on_where_they_were(store: SqliteStore) -> None:
    """Promised, given and shared ids are one ascending series, over transactions, bulk calls and both streams."""
    ids = [await store.queue("q").enqueue(0)]
    ids += await store.queue("q").enqueue_many([1, 2])
    for _ in range(2):
        async with store.transaction() as tx:
            ids += [await tx.enqueue("q", 3) for _ in range(3)]
        ids.append(await store.queue("r").enqueue(4))
    assert ids == list(range(1, 12))
    offsets = [await store.stream("s").publish(0)]
    async with store.transaction() as tx:
        offsets += [await tx.publish(name, 1) for name in ("s", "t", "s")]
    assert offsets == [1, 2, 3, 4]
    assert [event.offset for event in await store.stream("s").read_since(0)] == [1, 2, 4]


async def test_a_job_has_the_time_of_its_enqueue(table: SqliteStore, clock: ManualClock) -> None:
    """Its delay counts from the call and not from the commit, and so do its creation and its expiry."""
    begun = clock.now()
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        id = await tx.enqueue("q", 1, delay=10, expires=100)
        offset = await tx.publish("s", 1)
        clock.advance(20)
    job = await table.queue("q").get_job(id)
    assert job is not None
    assert (job.created_at, job.ready_at, job.expires_at) == (begun, begun + 10, begun + 100)
    assert [(event.offset, event.created_at) for event in await table.stream("s").read_since(0)] == [(offset, begun)]


async def test_the_transaction_sees_what_it_was_promised(table: SqliteStore) -> None:
    """Its own calls do, and so does the caller's SQL (T6)."""
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        id = await tx.enqueue("q", 1)
        job = await tx.get_job("q", id)
        assert job is not None
        second = await tx.enqueue("q", 2)
        rows = await tx.connection.execute_fetchall("SELECT id FROM alkstore_jobs ORDER BY id")
        assert [row[0] for row in rows] == [id, second]
        offset = await tx.publish("s", 1)
        assert [event.offset for event in await tx.read_since("s", 0)] == [offset]
        await tx.save_offset("s", "me", offset)
        assert await tx.get_offset("s", "me") == offset


async def test_savepoints_part_what_came_before_from_what_came_after(table: SqliteStore) -> None:
    """A promise is kept before the savepoint that follows it, and goes with the one that it is in (T7)."""
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        await tx.enqueue("q", "before")
        await tx.connection.execute("SAVEPOINT here")
        dropped = await tx.enqueue("q", "inside")
        await tx.connection.execute("ROLLBACK TO here")
        after = await tx.enqueue("q", "after")
    assert after > dropped
    assert await payloads(table) == [b'"before"', b'"after"']


async def test_what_no_statement_asks_for_comes_after_it_too(table: SqliteStore) -> None:
    """The count of changes has it, and an authorizer or a trace that is set afterwards does not see it."""
    traced: list[str] = []
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        before = tx.connection.total_changes
        await tx.enqueue("q", 1)
        await tx.publish("s", 1)
        for offset in (2, 1):  # the second changes nothing
            await tx.save_offset("s", "me", offset)
        assert tx.connection.total_changes - before == 3
        await tx.enqueue("q", 2)
        await tx.connection.set_trace_callback(traced.append)
        await tx.connection.execute("SELECT 1")
        await tx.connection.set_trace_callback(None)  # type: ignore[arg-type]
        await tx.enqueue("q", 3)
        await tx.connection.set_authorizer(
            lambda action, table, *_: (
                sqlite3.SQLITE_DENY
                if (action, table) == (sqlite3.SQLITE_INSERT, "alkstore_jobs")
                else sqlite3.SQLITE_OK
            )
        )
    assert traced == ["SELECT 1"]
    assert await payloads(table) == [b"1", b"2", b"3"]


async def test_a_statement_under_way_comes_first(table: SqliteStore) -> None:
    """What is enqueued while another task's statement runs is done after it."""
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        begun = asyncio.ensure_future(tx.connection.execute("SAVEPOINT here"))
        await asyncio.sleep(0)
        await tx.enqueue("q", "inside")
        await begun
        await tx.connection.execute("ROLLBACK TO here")
    assert await payloads(table) == []


async def test_a_statement_left_behind_comes_first(table: SqliteStore) -> None:
    """One whose caller was cancelled may still be about to run: from there on nothing is promised."""
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        left = asyncio.ensure_future(tx.connection.execute("SAVEPOINT here"))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait((left,))
        await tx.enqueue("q", "inside")
        await tx.connection.execute("ROLLBACK TO here")
    assert await payloads(table) == []


async def test_a_promise_that_cannot_be_kept_fails_the_statement_and_the_commit(table: SqliteStore) -> None:
    """It is not forgotten where the caller goes on after the error: nothing is committed without it (T3)."""
    async with table.transaction() as tx:
        await tx.connection.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON alkstore_jobs WHEN new.payload = CAST('\"bad\"' AS BLOB) "
            "BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
    async with table.begin_tx() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        await tx.enqueue("q", "good")
        await tx.enqueue("q", "bad")
        for _ in range(2):
            with pytest.raises(sqlite3.IntegrityError, match="no room"):
                await tx.connection.execute("INSERT INTO orders VALUES (2)")
        with pytest.raises(DatabaseError, match="no room"):
            await tx.get_job("q", 1)
        with pytest.raises(DatabaseError, match="no room"):
            await tx.commit()
    async with table.begin_tx() as tx:
        assert await tx.connection.execute_fetchall("SELECT id FROM orders") == []
    assert await payloads(table) == []


async def test_a_transaction_that_was_undone_promises_nothing(table: SqliteStore) -> None:
    """After INSERT OR ROLLBACK undid everything, an enqueue says so at once."""
    tx = await table.begin_tx()
    await tx.connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(sqlite3.IntegrityError):
        await tx.connection.execute("INSERT OR ROLLBACK INTO orders VALUES (1)")
    with pytest.raises(DatabaseError, match="rolled this transaction back"):
        await tx.enqueue("q", 1)
    await tx.rollback()


@pytest.mark.parametrize("table_name", ["alkstore_jobs", "alkstore_events"])
async def test_ids_that_run_out_are_refused_at_the_call(table: SqliteStore, table_name: str) -> None:
    """The last one is given out, and the one after it is an error of its own call and no other (V5, E1)."""
    await table.queue("q").enqueue(0)
    await table.stream("s").publish(0)
    async with table.transaction() as tx:
        await tx.connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (INT64_MAX - 1, table_name))
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        call = tx.enqueue if table_name == "alkstore_jobs" else tx.publish
        assert await call("q", 1) == INT64_MAX
        with pytest.raises(DatabaseError, match="full"):
            await call("q", 2)
        await tx.connection.execute("INSERT INTO orders VALUES (2)")


async def test_two_handles_on_one_connection_share_its_ids(table: SqliteStore, path: Any, clock: ManualClock) -> None:
    """Where another store has joined the transaction, rows come from two, and no id is given out twice (T10)."""
    async with SqliteStore.open(path, clock=clock) as other, table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        ids = [await tx.enqueue("q", 0)]
        joined = other.enlist(tx.connection)
        for number in range(1, 4):
            ids += [await joined.enqueue("q", number), await tx.enqueue("q", number)]
    assert ids == sorted(set(ids))
    assert len(await payloads(table)) == 7


async def test_many_enqueues_leave_the_event_loop_its_turns(table: SqliteStore, hops: list[str]) -> None:
    """A loop that only enqueues waits for a hop again and again, and keeps few of them waiting; a long one, at once."""
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    loop = asyncio.get_running_loop()
    async with table.transaction() as tx:
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        turn()
        before = turns
        for number in range(10 * (MOST + 1)):
            await tx.enqueue("q", number)
        assert turns - before >= 10
        assert len(hops) == 11
        await tx.enqueue("q", "x" * LONGEST)
        assert len(hops) == 12
    assert await payloads(table) == [*(str(n).encode() for n in range(10 * (MOST + 1))), b'"' + b"x" * LONGEST + b'"']


@pytest.mark.parametrize("wrong", ["never kept", "kept late", "forgotten when it fails"])
async def test_these_tests_see_a_promise_that_is_broken(
    table: SqliteStore, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """The control: what the tests above look at differs where promises are lost, late, or dropped with an error."""
    keep = Promises.keep
    if wrong == "never kept":
        monkeypatch.setattr(Promises, "keep", lambda *_: None)
        with pytest.raises(AssertionError):
            await test_ids_go_on_where_they_were(table)
    elif wrong == "kept late":

        def late(self: Promises, cursor: sqlite3.Cursor) -> None:
            made = list(self._made)
            if made and getattr(made[0], "waited", False):
                keep(self, cursor)
            elif made:
                made[0].waited = True  # type: ignore[attr-defined]

        monkeypatch.setattr(Promises, "keep", late)
        with pytest.raises(AssertionError):
            await test_savepoints_part_what_came_before_from_what_came_after(table)
    else:

        def forgetful(self: Promises, cursor: sqlite3.Cursor) -> None:
            try:
                keep(self, cursor)
            finally:
                self._made.clear()

        monkeypatch.setattr(Promises, "keep", forgetful)
        with pytest.raises(BaseException, match="DID NOT RAISE"):
            await test_a_promise_that_cannot_be_kept_fails_the_statement_and_the_commit(table)
