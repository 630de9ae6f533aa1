"""What is measured of a store: each workload opens its own in an empty place, and gives operations per second.

Only the public surface is used, so the same workload measures every engine.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from alkstore_core import JobHandle, StopToken, Store, Worker, open_store

PAYLOAD = {"order": 7, "to": "someone@example.org"}
Workload = Callable[[str], Awaitable[float]]


@dataclass(slots=True)
class Timer:
    """The seconds between entering and leaving `timed`."""

    seconds: float = field(default=0.0)

    def rate(self, operations: int) -> float:
        """Operations per second."""
        return operations / self.seconds


@contextmanager
def timed() -> Iterator[Timer]:
    """Time the block."""
    timer = Timer()
    begun = time.perf_counter()
    yield timer
    timer.seconds = time.perf_counter() - begun


async def shared(callers: int, total: int, call: Callable[[], Awaitable[object]]) -> float:
    """The rate of `call` from so many callers at once, each with one call in flight."""

    async def one() -> None:
        for _ in range(total // callers):
            await call()

    with timed() as timer:
        await asyncio.gather(*(one() for _ in range(callers)))
    return timer.rate(total // callers * callers)


async def enqueue_1(url: str) -> float:
    """Single jobs from one caller, each durable before the next."""
    async with open_store(url) as store:
        queue = store.queue("q")
        return await shared(1, 3_000, lambda: queue.enqueue(PAYLOAD))


async def enqueue_64(url: str) -> float:
    """Single jobs from 64 callers, each durable before its caller's next."""
    async with open_store(url) as store:
        queue = store.queue("q")
        return await shared(64, 64 * 1000, lambda: queue.enqueue(PAYLOAD))


async def enqueue_many(url: str) -> float:
    """Jobs in batches of 1,000, each batch one call."""
    async with open_store(url) as store:
        queue = store.queue("q")
        batch = [PAYLOAD] * 1000
        with timed() as timer:
            for _ in range(50):
                await queue.enqueue_many(batch)
        return timer.rate(50 * 1000)


async def _filled(store: Store, count: int) -> None:
    for begin in range(0, count, 5000):
        await store.queue("q").enqueue_many([PAYLOAD] * min(5000, count - begin))


async def claim_ack_32(url: str, callers: int = 1) -> float:
    """Jobs claimed and acknowledged in batches of 32 by so many callers at once."""
    async with open_store(url) as store:
        await _filled(store, 50_000)
        queue = store.queue("q")

        async def work_off() -> int:
            done = 0
            while handles := await queue.claim_batch("w", 32):
                acked = await queue.ack_batch("w", [handle.job.id for handle in handles])
                done += acked
            return done

        with timed() as timer:
            done = sum(await asyncio.gather(*(work_off() for _ in range(callers))))
        assert done == 50_000
        return timer.rate(done)


async def drain(url: str) -> float:
    """Jobs with a handler that does nothing, by one worker with 128 at a time."""
    count = 40_000
    async with open_store(url) as store:
        await _filled(store, count)
        stop = StopToken()
        done = 0

        async def handler(_: JobHandle) -> None:
            nonlocal done
            done += 1
            if done == count:
                stop.cancel()

        with timed() as timer:
            await Worker(store.queue("q"), handler, concurrency=128).run(stop)
        return timer.rate(count)


async def transaction(url: str) -> float:
    """Transactions of one business row and one job, one after the other."""
    async with open_store(url) as store:
        async with store.transaction() as tx:
            await tx.connection.execute("CREATE TABLE business (id INTEGER PRIMARY KEY, note TEXT)")
        count = 2_000
        with timed() as timer:
            for number in range(count):
                async with store.transaction() as tx:
                    await tx.connection.execute("INSERT INTO business (note) VALUES (?)", (str(number),))
                    await tx.enqueue("q", PAYLOAD)
        return timer.rate(count)


async def publish_64(url: str) -> float:
    """Single events from 64 callers, each durable before its caller's next."""
    async with open_store(url) as store:
        stream = store.stream("s")
        return await shared(64, 64 * 1000, lambda: stream.publish(PAYLOAD))


async def replay(url: str) -> float:
    """Events of a stream followed from its beginning."""
    count = 200_000
    async with open_store(url) as store:
        stream = store.stream("s")
        for _ in range(count // 5000):
            await stream.publish_many([PAYLOAD] * 5000)
        async with stream.subscribe("c") as receiver:
            with timed() as timer:
                for _ in range(count):
                    await receiver.recv()
        return timer.rate(count)


async def start_latency(url: str, *, here: bool) -> list[float]:
    """Milliseconds from just before an enqueue to an idle worker's handler, in this process or another."""
    latencies: list[float] = []
    async with open_store(url) as store:
        queue = store.queue("q")
        if here:
            stop = StopToken()

            async def handler(handle: JobHandle) -> None:
                latencies.append((time.time() - handle.job.payload_as(float)) * 1000)

            async with asyncio.TaskGroup() as group:
                group.create_task(Worker(queue, handler, concurrency=8).run(stop))
                for _ in range(200):
                    await asyncio.sleep(0.01)  # idle between two jobs: that is what is measured
                    await queue.enqueue(time.time())
                await asyncio.sleep(0.05)
                stop.cancel()
            return latencies
        child = await asyncio.create_subprocess_exec(
            sys.executable, str(Path(__file__).with_name("idle_worker.py")), url, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        await child.stdout.readline()
        for _ in range(200):
            await asyncio.sleep(0.01)
            await queue.enqueue(time.time())
            latencies.append(float(await child.stdout.readline()))
        child.kill()
        await child.wait()
    return latencies


async def idle_cost(url: str, listeners: int) -> float:
    """The share of one core that an open store takes while nothing happens, in percent."""
    async with open_store(url) as store:
        receivers = [await store.listen(f"c{number}") for number in range(listeners)]
        begun = time.process_time()
        await asyncio.sleep(2)
        cost = (time.process_time() - begun) / 2 * 100
        for receiver in receivers:
            await receiver.close()
    return cost
