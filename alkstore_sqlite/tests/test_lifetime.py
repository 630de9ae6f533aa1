"""Nothing is left behind: by a cancelled open, a dropped handle, a close, a forgotten store (T5, T12, T13, T15)."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings
from contextlib import nullcontext
from pathlib import Path

import pytest
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.testing import running_tasks
from alkstore_sqlite import SqliteStore


def descriptors() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the count is all


async def test_a_hundred_cancelled_opens_leave_nothing(path: Path) -> None:
    """Cancelled after any number of turns of the loop, an open leaves no thread and no file."""
    async with SqliteStore.open(path):
        pass
    before = threading.active_count(), descriptors()
    for turns in range(100):
        task = asyncio.create_task(opened(path))
        for _ in range(turns % 7):
            await asyncio.sleep(0)
        task.cancel()
        try:
            store = await task
        except asyncio.CancelledError:
            continue
        await store.close()
    assert (threading.active_count(), descriptors()) == before


async def opened(path: Path) -> SqliteStore:
    return await SqliteStore.open(path)


async def test_opening_and_closing_leaves_nothing(path: Path) -> None:
    """A store that did all it can leaves no thread, task or file behind when it is closed."""
    before = threading.active_count(), descriptors(), len(running_tasks())
    for _ in range(5):
        async with SqliteStore.open(path) as store:
            receiver = await store.listen("c")
            async with store.transaction() as tx:
                await tx.enqueue("q", 1)
            await store.queue("q").claim_one("w")
            await store.stream("s").read_since(0)
            undecided = await store.begin_tx()
            await undecided.notify("c")
        assert await receiver.recv() is None
        with pytest.warns(ResourceWarning, match="dropped undecided"):
            del undecided
    gc.collect()
    assert (threading.active_count(), descriptors(), len(running_tasks())) == before


async def test_a_dropped_handle_gives_the_writer_back(store: SqliteStore) -> None:
    """Garbage-collected undecided, a transaction is rolled back, and the next writer gets in."""
    for number in range(20):
        tx = await store.begin_tx()
        await tx.enqueue("q", number)
        with pytest.warns(ResourceWarning, match=r"test_lifetime\.py"):
            del tx
        async with asyncio.timeout(10):
            await asyncio.create_task(store.queue("kept").enqueue(number))
    assert await store.queue("q").claim_batch("w", 99) == []
    assert len(await store.queue("kept").claim_batch("w", 99)) == 20


async def test_a_handle_dropped_on_another_thread_is_rolled_back_too(store: SqliteStore) -> None:
    """The garbage collector runs where it likes."""
    held = [await store.begin_tx()]
    await held[0].enqueue("q", 1)

    def drop() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            held.clear()
            gc.collect()

    thread = threading.Thread(target=drop)
    thread.start()
    thread.join()
    async with asyncio.timeout(10):
        await store.queue("kept").enqueue(1)
    assert await store.queue("q").claim_one("w") is None


async def test_close_rolls_back_what_is_open_and_finishes_what_is_queued(path: Path) -> None:
    """Writes already asked for land; an undecided transaction does not; later calls say that it is closed."""
    store = await SqliteStore.open(path)
    queue = store.queue("q")
    pending = [asyncio.create_task(queue.enqueue(number)) for number in range(50)]
    await asyncio.sleep(0)  # every task has asked
    tx = await asyncio.create_task(begun(store))
    await tx.enqueue("q", "ghost")
    await store.close()
    assert len(await asyncio.gather(*pending)) == 50
    with pytest.raises(ClosedError):
        await tx.enqueue("q", 1)
    with pytest.raises(ClosedError):
        await tx.commit()
    with pytest.raises(ClosedError):
        await queue.enqueue(1)
    async with SqliteStore.open(path) as again:
        assert len(await again.queue("q").claim_batch("w", 99)) == 50


async def begun(store: SqliteStore):
    return await store.begin_tx()


async def test_close_waits_for_what_is_just_ending_or_beginning(path: Path) -> None:
    """Closed at any turn of a transaction's beginning and end: no connection is left, each outcome is truthful."""
    async with SqliteStore.open(path):
        pass
    before = threading.active_count(), descriptors()
    for turns in range(60):
        store = await SqliteStore.open(path)

        async def transact(store: SqliteStore = store, number: int = turns) -> None:
            async with store.transaction() as tx:
                await tx.enqueue("q", number)

        task = asyncio.create_task(transact())
        for _ in range(turns):
            await asyncio.sleep(0)
        await store.close()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        async with SqliteStore.open(path) as again:
            found = [handle.job.payload_as(int) for handle in await again.queue("q").claim_batch("w", 9)]
            assert await again.queue("q").ack_batch("w", [1 + number for number in range(100)]) == len(found)
        assert found == ([turns] if outcome is None else []), outcome
        assert outcome is None or isinstance(outcome, ClosedError)
        assert (threading.active_count(), descriptors()) == before


async def test_ten_thousand_waits_that_time_out_leave_nothing(store: SqliteStore) -> None:
    """A wait that ends early takes its waiter with it."""
    async with store.listen("c") as receiver:
        before = threading.active_count(), len(running_tasks())
        for _ in range(10_000):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await receiver.recv()
        assert (threading.active_count(), len(running_tasks())) == before
        await store.notify("c")
        async with asyncio.timeout(10):
            assert (await receiver.recv()) is not None


async def test_a_forgotten_store_does_not_keep_the_process(path: Path) -> None:
    """A process that forgets close() ends by itself, having said so."""
    script = """
import asyncio, sys
from alkstore_sqlite import SqliteStore
async def main():
    global store, tx
    store = await SqliteStore.open(sys.argv[1])
    receiver = await store.listen("c")
    await store.queue("q").enqueue(1)
    tx = await store.begin_tx()
    await tx.connection.execute("SELECT 1")
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
"""
    command = [sys.executable, "-W", "always", "-c", script, str(path)]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "ResourceWarning" in ended.stderr
    assert str(path) in ended.stderr
    async with SqliteStore.open(path) as store:
        assert len(await store.queue("q").claim_batch("w", 9)) == 1


async def test_a_writer_that_waits_too_long_is_told(path: Path) -> None:
    """Behind a transaction that does not end, other tasks wait for the busy timeout and are told what to do."""
    async with SqliteStore.open(path, busy_timeout=0.2) as store:
        tx = await store.begin_tx()
        waiting = [asyncio.create_task(store.queue("q").enqueue(number)) for number in range(5)]
        waiting.append(asyncio.create_task(begun(store)))
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, DatabaseError)
            assert "busy_timeout" in str(outcome)
        await tx.enqueue("q", "in time")
        await tx.commit()
        assert [handle.job.payload for handle in await store.queue("q").claim_batch("w", 9)] == [b'"in time"']


async def test_claims_cancelled_while_the_store_closes_are_given_back(path: Path) -> None:
    """Whoever was cancelled got nothing, and nothing stays claimed."""
    async with SqliteStore.open(path) as store:
        await store.queue("q").enqueue_many(range(500))
    for turns in range(20):
        store = await SqliteStore.open(path)
        claims = [asyncio.create_task(store.queue("q").claim_one("w")) for _ in range(20)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        for claim in claims:
            claim.cancel()
        outcomes = await asyncio.gather(*claims, return_exceptions=True)
        await closing
        got = [outcome.job.id for outcome in outcomes if not isinstance(outcome, BaseException | None)]
        async with SqliteStore.open(path) as again:
            assert await again.queue("q").ack_batch("w", range(1, 501)) == len(got)


async def test_the_first_transaction_is_not_handed_out_by_a_closing_store(path: Path) -> None:
    """Begun while the store closes, a transaction is refused, and the close waits for nobody."""
    for turns in range(15):
        store = await SqliteStore.open(path)
        beginning = asyncio.create_task(begun(store))
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(3):
            await store.close()
        (outcome,) = await asyncio.gather(beginning, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            with pytest.raises(ClosedError):
                await outcome.commit()
            with pytest.warns(ResourceWarning, match="dropped undecided") if outcome.is_open else nullcontext():
                del outcome


@pytest.mark.parametrize("waited", [False, True])
def test_an_event_loop_that_ends_with_a_transaction_open_locks_nobody_out(path: Path, waited: bool) -> None:
    """Dropped, it is rolled back although no loop is left to do it, and other loops and processes go on (T5)."""

    async def leave_open() -> None:
        store = await SqliteStore.open(path)
        if waited:  # so that the writer thread hands it out
            first = await store.begin_tx()
            second = asyncio.ensure_future(begun(store))
            await asyncio.sleep(0)
            await first.rollback()
            tx = await second
        else:
            tx = await store.begin_tx()
        await tx.enqueue("q", "ghost")

    async def enqueued() -> list[bytes]:
        async with SqliteStore.open(path, busy_timeout=10) as store:
            await store.queue("q").enqueue("real")
            return [handle.job.payload for handle in await store.queue("q").claim_batch("w", 9)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(leave_open())
        gc.collect()
        assert asyncio.run(enqueued()) == [b'"real"']


async def test_who_cancels_all_tasks_leaves_a_commit_whole_and_the_store_working(path: Path) -> None:
    """As asyncio.run does at its end, at every stage of a transaction, and of a close (T4, T12, T13)."""
    for turns in range(12):
        store = await SqliteStore.open(path, busy_timeout=5)

        async def work(store: SqliteStore = store, turns: int = turns) -> None:
            async with store.transaction() as tx:
                await tx.enqueue(f"q{turns}", 1)
                await tx.enqueue(f"q{turns}", 2)

        working = asyncio.ensure_future(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        await cancel_all_tasks(working)
        async with asyncio.timeout(10):
            await store.queue("q").enqueue(turns)
            assert len(await store.queue(f"q{turns}").claim_batch("w", 9)) in (0, 2)
        closing = asyncio.ensure_future(store.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        await cancel_all_tasks(closing)
        async with asyncio.timeout(10):
            await store.close()


async def cancel_all_tasks(*waited_for: "asyncio.Future[None]") -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    async with asyncio.timeout(10):
        await asyncio.gather(*waited_for, return_exceptions=True)


async def test_a_dropped_transaction_does_not_end_the_next_one(path: Path) -> None:
    """The news of its end may come late: the next one is still the open one (T11, T12)."""
    async with SqliteStore.open(path, busy_timeout=3600) as store:
        engine = store.engine
        dropped = await store.begin_tx()
        old = dropped._session
        await dropped.rollback()
        async with store.begin_tx() as tx:
            await asyncio.to_thread(engine.note_abandoned, old)  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            with pytest.raises(DatabaseError, match="wait for itself"):
                await store.queue("q").enqueue(1)
            await tx.rollback()
