"""``tx.connection``: the caller's own rows, in the same transaction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from alkstore_core import Wake
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_mem import MemStore


class OopsError(Exception):
    pass


@asynccontextmanager
async def failing(context: AbstractAsyncContextManager) -> AsyncIterator:
    """`context`, ended by an exception that must go on after it."""
    with pytest.raises(OopsError):  # noqa: PT012 - what is in the block is the test's
        async with context as entered:
            yield entered
            raise OopsError


async def test_rows_commit_and_roll_back_with_the_transaction():
    """The caller's rows are seen by the transaction at once, by others after its commit, by nobody after a rollback."""
    async with MemStore.open() as store:
        async with store.transaction() as tx:
            await tx.connection.put(("orders", 7), {"total": 3})
            await tx.connection.put("gone", None)
            assert await tx.connection.items() == {("orders", 7): {"total": 3}, "gone": None}
            assert await tx.connection.get("gone", "default") is None
            assert await store.rows.items() == {}
        async with failing(store.transaction()) as tx:
            await tx.connection.put(("orders", 7), "other")
            assert await tx.connection.delete("gone")
            assert not await tx.connection.delete("gone")
            assert await tx.connection.get("gone", "default") == "default"
            assert await tx.connection.items() == {("orders", 7): "other"}
        assert await store.rows.items() == {("orders", 7): {"total": 3}, "gone": None}
        assert await store.rows.get("gone", "default") is None
        async with store.transaction() as tx:
            await tx.connection.delete("gone")
        assert await store.rows.get("gone", "default") == "default"


async def test_a_savepoint_that_fails_takes_its_part_with_it():
    """Rows, jobs, events, offsets and wakes of a failed savepoint never were; those around it stay (T10)."""
    async with asyncio.timeout(10), MemStore.open() as store:
        receivers = [await store.listen(channel) for channel in ("before", "inside", "after")]
        async with store.transaction() as tx:
            connection = tx.connection
            await connection.put("row", "before")
            first = await tx.publish("s", "before")
            await tx.notify("before")
            async with failing(connection.savepoint()):
                await connection.put("row", "inside")
                await tx.save_offset("s", "reader", first)
                job_id = await tx.enqueue("q", "inside")
                await tx.publish("s", "inside")
                await tx.notify("inside")
            assert await connection.get("row") == "before"
            assert await tx.get_job("q", job_id) is None
            assert await tx.get_offset("s", "reader") == 0
            last = await tx.publish("s", "after")
            await tx.notify("after")
            assert [event.offset for event in await tx.read_since("s", 0)] == [first, last]
        assert [event.payload for event in await store.stream("s").read_since(0)] == [b'"before"', b'"after"']
        assert await store.queue("q").get_job(job_id) is None
        assert [await receiver.try_recv() for receiver in receivers] == [Wake("before"), None, Wake("after")]


async def test_savepoints_nest_as_in_sql():
    """A savepoint within one that fails goes with it; one that fails within another leaves the rest of that."""
    async with MemStore.open() as store:
        async with store.transaction() as tx:
            connection = tx.connection
            async with failing(connection.savepoint()):
                async with connection.savepoint():
                    await connection.put("lost", 1)
                assert await connection.get("lost") == 1
            async with connection.savepoint():
                await connection.put("kept", 1)
                async with failing(connection.savepoint()):
                    await connection.put("kept", 2)
                    assert await connection.get("kept") == 2
            assert await connection.items() == {"kept": 1}
        assert await store.rows.items() == {"kept": 1}


async def test_a_commit_inside_a_savepoint_keeps_it():
    """Committing ends the savepoints that are open, and what they hold is committed."""
    async with MemStore.open() as store:
        tx = await store.begin_tx()
        async with failing(tx.connection.savepoint()):
            await tx.connection.put("k", 1)
            await tx.commit()
        assert await store.rows.items() == {"k": 1}


async def test_an_enlisted_store_joins_the_transaction():
    """A store joins another's transaction on the same data: one commit, with the wake after it (T10)."""
    async with asyncio.timeout(10), MemStore.open("enlist") as owner, MemStore.open("enlist") as guest:
        receiver = await guest.listen("c")
        async with owner.transaction() as tx:
            joined = guest.enlist(tx.connection)
            assert joined.connection is tx.connection
            await tx.connection.put("k", 1)
            job_id = await joined.enqueue("q", 1)
            await joined.notify("c")
            assert await tx.get_job("q", job_id) == await joined.get_job("q", job_id) is not None
            assert await owner.queue("q").get_job(job_id) is None
            with pytest.raises(DatabaseError, match="commit belongs to who opened it"):
                await joined.commit()
            assert await receiver.try_recv() is None
        assert await receiver.recv() == Wake("c")
        assert await guest.queue("q").get_job(job_id) is not None
        with pytest.raises(ClosedError):
            await joined.enqueue("q", 2)


async def test_dropping_an_enlisted_transaction_leaves_the_owners_open():
    """An enlisted handle decides nothing, and is no loss."""
    async with MemStore.open() as store:
        async with store.transaction() as tx:
            job_id = await store.enlist(tx.connection).enqueue("q", 1)
            store.engine.enlist(tx.connection).abandon()
        assert await store.queue("q").get_job(job_id) is not None


async def test_what_cannot_be_joined_is_refused():
    """Anything but the connection of a transaction that is open on the same data is a DatabaseError (T10)."""
    async with MemStore.open() as store, MemStore.open() as other:
        tx, foreign = await store.begin_tx(), await other.begin_tx()
        connection = tx.connection
        for wrong, message in [
            (object(), "cannot join a object"),
            (tx, "cannot join a Transaction"),
            (store.rows, "cannot join a Rows"),
            (None, "cannot join a NoneType"),
            (foreign.connection, "other data"),
        ]:
            with pytest.raises(DatabaseError, match=message):
                store.enlist(wrong)
        await tx.rollback()
        await foreign.rollback()
        with pytest.raises(DatabaseError, match="has ended"):
            store.enlist(connection)


async def test_a_connection_ends_with_its_transaction():
    """Every call on the connection of a transaction that has ended is a ClosedError, and changes nothing (T8)."""
    async with MemStore.open() as store:
        tx = await store.begin_tx()
        connection = tx.connection
        await tx.rollback()
        for call in (connection.get("k"), connection.items(), connection.put("k", 1), connection.delete("k")):
            with pytest.raises(ClosedError):
                await call
        with pytest.raises(ClosedError):
            async with connection.savepoint():
                pass
        assert await store.rows.items() == {}


async def test_tasks_may_share_a_transaction():
    """Calls of several tasks on one transaction are each whole, and the transaction survives them."""
    async with MemStore.open() as store:
        async with store.transaction() as tx:
            ids = await asyncio.gather(*(tx.enqueue("q", number) for number in range(20)))
            found = await asyncio.gather(*(tx.get_job("q", job_id) for job_id in ids))
            assert [job.payload_as(int) for job in found if job] == list(range(20))
        assert [handle.job.id for handle in await store.queue("q").claim_batch("w", 100)] == sorted(ids)
