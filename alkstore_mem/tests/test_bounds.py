"""What goes on for ever costs the same for ever."""

import asyncio
import gc
import threading

from alkstore_core.numbers import INT64_MAX
from alkstore_core.testing import ManualClock, running_tasks
from alkstore_mem import MemStore


def tracked() -> int:
    gc.collect()
    return len(gc.get_objects())


async def test_ten_thousand_timed_out_waits_leave_nothing():
    """Waits that time out, on channels, streams and the writer, leave no task, thread, waiter or object behind."""
    async with MemStore.open(busy_timeout=0) as store:
        receiver, events = await store.listen("c"), await store.stream("s").subscribe("reader")
        holder = await store.begin_tx()

        async def times_out(wait) -> None:
            try:
                async with asyncio.timeout(0):
                    await wait()
            except TimeoutError:
                return
            raise AssertionError("it did not wait")

        async def waits(count: int) -> None:
            for _ in range(count):
                await times_out(receiver.recv)
                await times_out(events.recv)

        await asyncio.create_task(waits(10))
        before = tracked(), len(running_tasks()), threading.active_count()
        await asyncio.create_task(waits(10_000))
        after = tracked(), len(running_tasks()), threading.active_count()
        assert after[1:] == before[1:]
        assert after[0] - before[0] < 100
        assert store.engine.database.slot._waiting == {}
        await holder.rollback()
        await receiver.close()
        await events.close()


async def test_work_that_is_done_leaves_nothing():
    """Jobs acked, transactions rolled back, locks released, events trimmed and notifies sent cost no memory after."""
    clock = ManualClock()
    async with MemStore.open(clock=clock) as store, store.listen("c"):

        async def work(rounds: int) -> None:
            for number in range(rounds):
                queue, stream = store.queue(f"q{number}"), store.stream(f"s{number}")
                await queue.enqueue(number, delay=1)
                clock.advance(1)
                handle = await queue.claim_one("w")
                assert await handle.heartbeat(50)
                assert await handle.ack()
                await stream.trim_to(await stream.publish(number))
                tx = await store.begin_tx()
                await tx.enqueue("q", number)
                await tx.rollback()
                lock = await store.try_lock(f"l{number}", "me", 10)
                assert await lock.release()
                await store.notify("c")

        await work(10)
        before = tracked()
        await work(1000)
        assert tracked() - before < 100


async def test_numbers_are_not_reused_after_a_rollback():
    """Ids, offsets and tokens that a transaction drew are gone with it (S1, Q14, L5)."""
    async with MemStore.open() as store:
        tx = await store.begin_tx()
        lost = await tx.enqueue("q", 1), await tx.publish("s", 1)
        await tx.rollback()
        kept = await store.queue("q").enqueue(1), await store.stream("s").publish(1)
        assert kept == (lost[0] + 1, lost[1] + 1)
        tokens = []
        for _ in range(3):
            lock = await store.try_lock("l", "me", 10)
            tokens.append(lock.token)
            await lock.release()
        assert tokens == sorted(set(tokens))


async def test_trimming_beyond_the_end_keeps_what_comes_later():
    """A horizon above the last offset deletes what is there, and nothing that is published after it (S6)."""
    async with MemStore.open() as store:
        stream = store.stream("s")
        await stream.publish_many([1, 2, 3])
        assert await stream.trim_to(2**63 - 1) == 3
        assert await stream.trim_to(2**63 - 1) == 0
        offset = await stream.publish(4)
        assert [event.offset for event in await stream.read_since(-(2**63))] == [offset]


async def test_a_trim_in_a_transaction_is_the_transactions_own():
    """The engine's trim takes its transaction: committed and own events go with the commit, and not before (T3, T6)."""
    async with MemStore.open() as store:
        stream = store.stream("s")
        first, second = await stream.publish_many([1, 2])
        session = await store.engine.begin()
        [third, fourth] = await session.append_events("s", [(None, b"3"), (None, b"4")])
        assert await session.trim_events("s", third) == 3
        assert [event.offset for event in await session.read_events("s", 0, 9)] == [fourth]
        assert await session.trim_events("s", INT64_MAX) == 1
        [fifth] = await session.append_events("s", [(None, b"5")])
        assert [event.offset for event in await session.read_events("s", 0, 9)] == [fifth]
        assert [event.offset for event in await stream.read_since(0)] == [first, second]
        await session.commit()
        assert [event.offset for event in await stream.read_since(0)] == [fifth]
