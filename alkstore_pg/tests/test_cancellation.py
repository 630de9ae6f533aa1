"""Cancelled callers lose nothing and keep nothing (T13, T4, T5)."""

import asyncio

import pytest
from alkstore_core.errors import DatabaseError
from alkstore_pg import PgStore
from pg_waiting import query, until


async def cancelled_after(steps: int, work):
    """Run `work` and cancel it after so many turns of the loop; what it returned, if it was done by then."""
    task = asyncio.ensure_future(work)
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    return None if task.cancelled() else task.result()


async def test_claims_of_cancelled_callers_are_given_back(dsn, plain):
    """A claim whose caller was cancelled, at whatever moment, is pending again with the attempt not counted."""
    async with PgStore.open(dsn) as store:
        queue = store.queue("work")
        await queue.enqueue_many(range(10))
        for steps in range(60):
            for handle in await cancelled_after(steps // 3, queue.claim_batch("w", 3)) or []:
                assert await handle.release()
        await until(query(plain, "SELECT count(*) FROM alkstore.jobs WHERE state = 1", 0))
        rows = await plain.fetch("SELECT DISTINCT state, attempts, worker_id FROM alkstore.jobs")
        assert [tuple(row) for row in rows] == [(0, 0, None)]
        assert len(await queue.claim_batch("w", 100)) == 10


async def test_locks_of_cancelled_callers_are_given_back(dsn, plain):
    """A lock whose caller was cancelled is free again; one that the same owner held already stays held."""
    async with PgStore.open(dsn) as store:
        assert await store.try_lock("mine", "me", 100) is not None
        for steps in range(30):
            lock = await cancelled_after(steps // 2, store.try_lock(f"l{steps}", "me", 100))
            assert lock is None or await lock.release()
            await cancelled_after(steps // 2, store.try_lock("mine", "me", 100))
        await until(query(plain, "SELECT count(*) FROM alkstore.locks WHERE name <> 'mine'", 0))
        assert await store.try_lock("mine", "you", 1) is None


async def test_callers_that_share_a_statement_are_untouched_by_the_cancelled(dsn, plain):
    """Of many callers in one statement, every other is cancelled: the rest get their ids, and theirs are the rows."""
    async with PgStore.open(dsn) as store:
        queue = store.queue("work")
        kept: dict[int, int] = {}

        async def enqueue(number: int) -> None:
            kept[number] = await queue.enqueue(number)

        for round in range(20):
            tasks = [asyncio.ensure_future(enqueue(round * 100 + number)) for number in range(40)]
            for _ in range(round % 6):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert results[1::2] == [None] * 20
        stored = {row["id"]: int(row["payload"]) for row in await plain.fetch("SELECT id, payload FROM alkstore.jobs")}
        assert {stored[job_id] for job_id in kept.values()} == set(kept)


async def test_cancelled_transactions_give_their_connections_back(dsn, plain):
    """Beginning, working or ending, a cancelled transaction leaves none open and no slot of the pool lost."""
    async with PgStore.open(dsn, max_size=2) as store:

        async def work() -> None:
            async with store.transaction() as tx:
                await tx.enqueue("work", 1)
                await tx.connection.fetchval("SELECT 1")

        for steps in range(80):
            await cancelled_after(steps % 40, work())
        async with asyncio.timeout(10):
            async with store.transaction() as first, store.transaction() as second:
                assert await first.connection.fetchval("SELECT 1") == await second.connection.fetchval("SELECT 1")
        assert await plain.fetchval("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'") == 0


async def test_a_cancelled_operation_leaves_its_transaction_in_order(dsn):
    """An operation on a transaction that is cancelled is seen through, and the transaction can still commit."""
    async with PgStore.open(dsn) as store:
        async with store.transaction() as tx:
            for steps in range(12):
                await cancelled_after(steps, tx.enqueue("work", steps))
            await tx.enqueue("work", "last")
        assert len(await store.queue("work").claim_batch("w", 100)) >= 1


async def test_a_dropped_transaction_is_rolled_back_and_its_slot_usable(dsn, plain):
    """A handle that is dropped undecided warns, rolls back, and gives its connection back."""
    async with PgStore.open(dsn, max_size=1) as store:
        for _ in range(5):
            held = [await store.begin_tx()]
            await held[0].enqueue("work", 1)
            with pytest.warns(ResourceWarning, match="dropped undecided"):
                held.clear()
            async with asyncio.timeout(10):
                await store.queue("other").enqueue(1)
        assert await plain.fetchval("SELECT count(*) FROM alkstore.jobs WHERE queue = 'work'") == 0


async def test_two_tasks_on_one_transaction_take_turns(dsn):
    """Operations of several tasks on one transaction are done one after the other."""
    async with PgStore.open(dsn) as store:
        async with store.transaction() as tx:
            ids = await asyncio.gather(*(tx.enqueue("work", number) for number in range(20)))
        assert len(set(ids)) == 20
        assert len(await store.queue("work").claim_batch("w", 100)) == 20


async def test_waiting_for_a_connection_ends_with_a_clear_error(dsn):
    """With all connections held by transactions, an operation fails after its timeout, and says why."""
    async with PgStore.open(dsn, max_size=1, operation_timeout=0.2) as store:
        async with store.transaction():
            with pytest.raises(DatabaseError, match="max_size is 1"):
                await store.queue("work").enqueue(1)
        assert await store.queue("work").enqueue(1)


async def test_what_is_claimed_while_the_store_closes_is_given_back(dsn, plain):
    """Cancelled by a shutdown that closes the store at once, a claim is still given back."""
    for steps in range(20):
        store = await PgStore.open(dsn)
        await store.queue("work").enqueue(steps)
        claiming = asyncio.ensure_future(store.queue("work").claim_batch("w", 100))
        for _ in range(steps):
            await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.gather(claiming, store.close(), return_exceptions=True)
        if claiming.cancelled():
            assert await plain.fetchval("SELECT count(*) FROM alkstore.jobs WHERE state = 1") == 0
        await plain.execute("DELETE FROM alkstore.jobs")
