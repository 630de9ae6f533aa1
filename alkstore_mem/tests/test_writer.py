"""One writer at a time: in turn, cancellable, and never for ever."""

import asyncio
import gc
import threading
from collections.abc import Callable

import pytest
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.testing import ManualClock
from alkstore_mem import MemStore


def drop(held: list) -> None:
    """Let go of what is held, as a program does that forgets to end it."""
    held.clear()
    gc.collect()


def drop_on_a_thread(held: list) -> None:
    """The same, on another thread."""
    thread = threading.Thread(target=drop, args=(held,))
    thread.start()
    thread.join()


async def waiting(store: MemStore, count: int) -> None:
    """Return once `count` callers wait for the writer."""
    while len(store.engine.database.slot._waiting) != count:  # noqa: ASYNC110 - no event tells that somebody waits
        await asyncio.sleep(0)


async def test_a_task_that_holds_a_transaction_is_told_at_once():
    """A write or a second transaction of that task is a DatabaseError at once, and the transaction goes on (T11)."""
    async with asyncio.timeout(10), MemStore.open("t11") as store, MemStore.open("t11") as same_data:
        async with store.transaction() as tx:
            for call in (
                store.queue("q").enqueue(1),
                store.notify("c"),
                store.try_lock("l", "me", 10),
                same_data.queue("q").claim_one("w"),
                store.begin_tx(),
            ):
                with pytest.raises(DatabaseError, match="this task holds an open transaction"):
                    await call
            assert await store.stream("s").read_since(0) == []
            await tx.enqueue("q", "mine")
        assert [handle.job.payload for handle in await store.queue("q").claim_batch("w", 9)] == [b'"mine"']


async def test_other_tasks_wait_in_turn():
    """Writers get the slot in the order in which they asked, transactions and single writes alike (T11)."""
    async with asyncio.timeout(10), MemStore.open() as store:
        stream, tasks = store.stream("s"), []

        async def transaction(number: int) -> None:
            async with store.transaction() as tx:
                await tx.publish("s", number)

        async with store.transaction() as tx, asyncio.TaskGroup() as group:
            for number in range(20):
                call = transaction(number) if number % 2 else stream.publish(number)
                tasks.append(group.create_task(call))
                await waiting(store, number + 1)
            await tx.publish("s", -1)
            await tx.commit()
        assert [event.payload_as(int) for event in await stream.read_since(0)] == [-1, *range(20)]


async def test_a_writer_that_waits_too_long_is_told_so():
    """After `busy_timeout` a waiting write is a DatabaseError that says what it waited for; it did nothing (T11)."""
    async with asyncio.timeout(10), MemStore.open(busy_timeout=0.01) as store:
        async with store.transaction():
            with pytest.raises(DatabaseError, match=r"busy for 0\.01 s") as caught:
                await asyncio.create_task(store.queue("q").enqueue(1))
            assert isinstance(caught.value.__cause__, TimeoutError)
        assert await store.queue("q").claim_one("w") is None


async def test_a_cancelled_writer_does_nothing_and_stops_nobody():
    """Cancelled while it waits, or just as its turn comes, a write has no effect and the next in line writes (T13)."""
    async with asyncio.timeout(10), MemStore.open() as store:
        queue = store.queue("q")
        for when in ("waiting", "granted"):
            tx = await store.begin_tx()
            first = asyncio.create_task(queue.enqueue("first"))
            await waiting(store, 1)
            second = asyncio.create_task(queue.enqueue("second"))
            await waiting(store, 2)
            if when == "granted":
                await tx.commit()  # the slot is the first one's now, which has not run yet
            first.cancel()
            if when == "waiting":
                await waiting(store, 1)
                await tx.commit()
            await second
            assert first.cancelled() or first.cancelling()
            [handle] = await queue.claim_batch("w", 9)
            assert handle.job.payload == b'"second"'
            await handle.ack()


async def test_a_cancelled_begin_leaves_no_transaction():
    """A begin that is cancelled while it waits leaves the slot to others (T13)."""
    async with asyncio.timeout(10), MemStore.open() as store:
        async with store.transaction():
            begin = asyncio.create_task(store.engine.begin())
            await waiting(store, 1)
            begin.cancel()
            with pytest.raises(asyncio.CancelledError):
                await begin
        await store.queue("q").enqueue(1)


async def test_a_cancelled_transaction_rolls_back():
    """A task cancelled inside its transaction leaves nothing of it, and the writer free (T4)."""
    async with asyncio.timeout(10), MemStore.open() as store:
        entered = asyncio.Event()

        async def forever() -> None:
            async with store.transaction() as tx:
                await tx.enqueue("q", "ghost")
                entered.set()
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(forever())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await store.queue("q").enqueue("real")
        assert [handle.job.payload for handle in await store.queue("q").claim_batch("w", 9)] == [b'"real"']


async def test_claims_are_never_lost_to_cancellation():
    """However a claiming task is cancelled, a job is either its claimer's or still to be claimed (Q3, T13)."""
    async with asyncio.timeout(10), MemStore.open() as store:
        queue = store.queue("q")
        for round_ in range(200):
            job_id = await queue.enqueue(round_)
            tx = await store.begin_tx() if round_ % 3 == 0 else None
            claiming = asyncio.create_task(queue.claim_one("w"))
            for _ in range(round_ % 5):
                await asyncio.sleep(0)
            if tx is not None:
                await tx.rollback()
            claiming.cancel()
            try:
                handle = await claiming
            except asyncio.CancelledError:
                handle = await queue.claim_one("w")
            assert handle is not None
            assert handle.job.id == job_id
            assert await handle.ack()


@pytest.mark.parametrize("let_go", [drop, drop_on_a_thread])
async def test_a_dropped_transaction_frees_the_writer(let_go: Callable[[list], None]):
    """An undecided transaction that is collected, on whatever thread, is rolled back with a warning (T5)."""
    async with asyncio.timeout(10), MemStore.open() as store:
        held = [await store.begin_tx()]
        job_id = await held[0].enqueue("q", 1)
        waiter = asyncio.create_task(store.queue("q").enqueue(2))
        await waiting(store, 1)
        with pytest.warns(ResourceWarning, match="dropped undecided"):
            let_go(held)
        await waiter
        assert await store.queue("q").get_job(job_id) is None


async def test_a_transaction_collected_inside_a_commit_is_rolled_back_after_it():
    """The garbage collector may run in the middle of anything; what it drops then waits until that is over (T5)."""
    async with MemStore.open() as store:
        database = store.engine.database
        held = [await store.begin_tx()]
        with database.exclusive():
            with pytest.warns(ResourceWarning, match="dropped undecided"):
                drop(held)
            assert database.slot.holder is not None
        assert database.slot.holder is None


async def test_a_commit_that_fails_ends_the_transaction():
    """Where the clock fails at the commit, nothing is committed, and the writer is free (T9)."""

    class Failing(ManualClock):
        fails = False

        def now(self) -> int:
            if self.fails:
                raise ZeroDivisionError
            return super().now()

    clock = Failing()
    async with MemStore.open(clock=clock, busy_timeout=0) as store:
        tx = await store.begin_tx()
        job_id = await tx.enqueue("q", 1)
        clock.fails = True
        with pytest.raises(ZeroDivisionError):
            await tx.commit()
        with pytest.raises(ZeroDivisionError):
            await store.queue("q").enqueue(2)
        clock.fails = False
        assert await store.queue("q").enqueue(3) > job_id
        assert await store.queue("q").get_job(job_id) is None


async def test_closing_ends_transactions_and_waiting_writers():
    """A closed store's transaction is rolled back, and its waiting calls are ClosedErrors (T12)."""
    async with asyncio.timeout(10), MemStore.open("closing") as other:
        store = await MemStore.open("closing")
        tx = await store.begin_tx()
        connection = tx.connection
        job_id = await tx.enqueue("q", 1)
        receiver = await store.listen("c")
        calls = [asyncio.create_task(call) for call in (store.queue("q").enqueue(2), store.engine.begin())]
        await waiting(store, 2)
        survivor = asyncio.create_task(other.queue("q").enqueue(3))
        await waiting(store, 3)
        await store.close()
        await store.close()
        for task in calls:
            with pytest.raises(ClosedError):
                await task
        for call in (tx.commit(), connection.put("k", 1), store.notify("c"), store.engine.watch("c:c")):
            with pytest.raises(ClosedError):
                await call
        assert await receiver.recv() is None
        assert await survivor == job_id + 1
        assert await other.queue("q").get_job(job_id) is None
        assert await other.rows.items() == {}


@pytest.mark.parametrize("begins", [False, True])
async def test_a_call_whose_turn_came_as_its_store_closed_does_nothing(begins: bool):
    """Granted but not yet run, a call of a store that closes is a ClosedError, and the next writer writes (T12)."""
    async with asyncio.timeout(10), MemStore.open("granted") as other:
        store = await MemStore.open("granted")
        tx = await store.begin_tx()
        call = asyncio.create_task(store.engine.begin() if begins else store.queue("q").enqueue("lost"))
        await waiting(store, 1)
        survivor = asyncio.create_task(other.queue("q").enqueue("kept"))
        await waiting(store, 2)
        await tx.rollback()
        await store.close()
        with pytest.raises(ClosedError):
            await call
        await survivor
        assert [handle.job.payload for handle in await other.queue("q").claim_batch("w", 9)] == [b'"kept"']
