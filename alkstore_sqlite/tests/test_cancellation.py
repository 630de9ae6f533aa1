"""Cancelling anything at any moment: truthful outcomes, nothing leaked (T13)."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from alkstore_core import JobHandle, Lock
from alkstore_sqlite import SqliteStore

ROUNDS = 1000


async def test_a_thousand_random_cancellations(store: SqliteStore) -> None:
    """After each, the writer is free, no claim or lock is held by nobody, and what was reported done is done."""
    dice = random.Random(7)
    queue, stream = store.queue("q"), store.stream("s")
    done: set[int] = set()
    undecided: set[int] = set()

    async def enqueue(number: int) -> None:
        await queue.enqueue(number)

    async def transact(number: int) -> None:
        async with store.transaction() as tx:
            await tx.connection.execute("SELECT 1")
            await tx.enqueue("q", number)
            await tx.publish("s", number)

    async def by_hand(number: int) -> None:
        async with store.begin_tx() as tx:
            await tx.enqueue("q", number)
            await tx.commit()

    claimed: list[JobHandle] = []
    locked: list[Lock] = []

    async def claim(_: int) -> None:
        claimed.extend(await queue.claim_batch("w", 3))

    async def lock(number: int) -> None:
        held = await store.try_lock(f"l{number}", "me", 1000)
        assert held is not None
        locked.append(held)

    async def follow(_: int) -> None:
        async with stream.subscribe("c") as receiver:
            await receiver.try_recv()

    async def other(number: int) -> None:
        await stream.publish_many([number, number])
        await stream.read_since(0, 5)
        await store.notify("c")
        await store.schedule("s", "@every 1h", "scheduled", number)
        await queue.sweep_expired()
        await queue.get_job(1)

    writes: list[Callable[[int], Awaitable[None]]] = [enqueue, transact, by_hand]
    rest: list[Callable[[int], Awaitable[None]]] = [claim, lock, follow, other]
    locks_tried: list[str] = []
    for number in range(ROUNDS):
        call = dice.choice(writes if dice.random() < 0.5 else rest)
        if call is lock:
            locks_tried.append(f"l{number}")
        task = asyncio.ensure_future(call(number))
        bystander = asyncio.create_task(store.queue("bystander").enqueue(number))
        if dice.random() < 0.3:
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
        else:
            await asyncio.wait({task}, timeout=dice.random() * 0.002)
        cancelled = task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            if call in writes:
                undecided.add(number)
        else:
            if call in writes:
                done.add(number)
        assert cancelled or not task.cancelled()
        await bystander
        # Whoever got something gives it back; whoever was cancelled has nothing to give.
        assert all([await handle.release() for handle in claimed])
        assert all([await held.release() for held in locked])
        claimed.clear()
        locked.clear()
    # The writer is free, and a transaction too.
    async with asyncio.timeout(10):
        await queue.enqueue("last")
        async with store.transaction() as tx:
            await tx.notify("c")
    # Nobody holds a claim or a lock: everything can be taken at once, without time passing.
    payloads = [handle.job.payload_as(object) for handle in await queue.claim_batch("auditor", 10 * ROUNDS)]
    assert len(payloads) == len(set(payloads))
    found = set(payloads) - {"last"}
    assert done <= found <= done | undecided
    for name in locks_tried:
        assert await store.try_lock(name, "auditor", 1) is not None
    assert len(await store.queue("bystander").claim_batch("auditor", 10 * ROUNDS)) == ROUNDS


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("after", range(4))
async def test_a_commit_that_is_cancelled_still_wakes_who_listens(store: SqliteStore, after: int, times: int) -> None:
    """It lands whole, wakes of this process included, and the next transaction finds the connection in order (T4)."""
    async with store.transaction() as tx:
        await tx.connection.execute("SELECT 1")  # the connection is there
    connection = store.engine._idle_connection
    async with store.listen("c") as receiver:
        tx = await store.begin_tx()
        id = await tx.enqueue("q", 1)
        await tx.notify("c")
        committing = asyncio.ensure_future(tx.commit())
        for _ in range(after):
            await asyncio.sleep(0)
        for _ in range(times):
            committing.cancel()
            await asyncio.sleep(0)
        await asyncio.wait((committing,))
        if after == 0 and committing.cancelled():  # before its first step: nothing has begun
            await tx.rollback()
            return
        assert committing.cancelled() or committing.exception() is None
        async with asyncio.timeout(10):
            assert await receiver.recv() is not None
        assert await store.queue("q").get_job(id) is not None
        assert store.engine._idle_connection is connection
