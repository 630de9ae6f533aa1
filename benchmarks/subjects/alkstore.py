"""alkstore itself, on each engine: only its public surface is used, and the code is the same for all."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import asyncpg
from alkstore_core import JobHandle, Queue, StopToken, Store, Stream, Worker, open_store

from benchmarks.subject import BATCH, BUSINESS, Place, Seen, Subject, payload

_TABLE = "CREATE TABLE IF NOT EXISTS business (id {} PRIMARY KEY, customer text NOT NULL, total int NOT NULL)"


class Alkstore(Subject):
    """A store, with its default options."""

    durable = True
    options: ClassVar[dict[str, Any]] = {}
    store: Store
    queue: Queue
    stream: Stream

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._held: list[Any] = []

    def url(self) -> str:
        """Where the store is."""
        raise NotImplementedError

    async def open(self) -> None:
        self.store = await open_store(self.url(), **self.options)
        self.queue, self.stream = self.store.queue("jobs"), self.store.stream("events")

    async def close(self) -> None:
        await self.store.close()

    def put(self, number: int) -> Awaitable[object]:
        return self.queue.enqueue(payload(number))

    async def put_many(self, count: int) -> None:
        for begin in range(0, count, BATCH):
            await self.queue.enqueue_many([payload(begin + n) for n in range(min(BATCH, count - begin))])

    async def drain(self, count: int, seconds: float) -> int:
        stop, done = StopToken(), 0

        async def handler(_: JobHandle) -> None:
            nonlocal done
            done += 1
            if done == count:
                stop.cancel()

        timer = asyncio.get_running_loop().call_later(seconds, stop.cancel)
        await Worker(self.queue, handler, concurrency=128).run(stop)  # returns once all that it did is settled
        timer.cancel()
        return done

    async def claim_and_ack(self, worker: str, batch: int) -> int:
        handles = await self.queue.claim_batch(worker, batch)
        return await self.queue.ack_batch(worker, [handle.job.id for handle in handles]) if handles else 0

    async def make_business(self) -> None:
        async with self.store.transaction() as tx:
            await self.make_table(tx.connection)

    async def make_table(self, connection: Any) -> None:
        """The caller's own table, in the engine's SQL."""
        raise NotImplementedError

    async def insert(self, connection: Any, number: int) -> None:
        """One row of the caller's own, in the engine's SQL."""
        raise NotImplementedError

    async def put_in_transaction(self, number: int) -> None:
        async with self.store.transaction() as tx:
            await self.insert(tx.connection, number)
            await tx.enqueue("jobs", payload(number))

    def publish(self, number: int) -> Awaitable[object]:
        return self.stream.publish(payload(number))

    async def publish_many(self, count: int) -> None:
        for begin in range(0, count, BATCH):
            await self.stream.publish_many([payload(begin + n) for n in range(min(BATCH, count - begin))])

    async def replay(self, count: int) -> None:
        async with self.stream.subscribe("replayer") as receiver:
            for _ in range(count):
                await receiver.recv()

    def notify(self, number: int) -> Awaitable[object]:
        return self.store.notify("channel", number)

    async def lock_and_release(self, number: int) -> None:
        lock = await self.store.try_lock(f"lock {number % 100}", "owner", 60)
        assert lock is not None
        await lock.release()

    async def work(self, seen: Seen, ready: Callable[[], object]) -> None:
        async def handler(handle: JobHandle) -> None:
            seen(handle.job.payload_as(dict)["number"])

        asyncio.get_running_loop().call_later(0.3, ready)
        await Worker(self.queue, handler, concurrency=64).run(StopToken())

    async def follow(self, seen: Seen, ready: Callable[[], object]) -> None:
        async with self.stream.subscribe("follower") as receiver:
            ready()
            async for event in receiver:
                seen(event.payload_as(dict)["number"])

    async def listen(self, seen: Seen, ready: Callable[[], object]) -> None:
        async with self.store.listen("channel") as receiver:
            ready()
            async for _ in receiver:
                seen(0)

    async def hold_listeners(self, count: int) -> None:
        self._held += [await self.store.listen(f"channel {number}") for number in range(count)]


class OnMemory(Alkstore):
    """In this process's memory."""

    alone = "its data is in one process"
    durable = False

    def url(self) -> str:
        return "mem:"

    def settings(self) -> str:
        return "nothing is durable"

    async def make_table(self, connection: Any) -> None:
        del connection

    async def insert(self, connection: Any, number: int) -> None:
        await connection.put(number, (BUSINESS, number))


class OnSqlite(Alkstore):
    """In one SQLite file."""

    def url(self) -> str:
        return f"sqlite:///{self.place.folder}/app.db"

    def settings(self) -> str:
        return "WAL, synchronous=FULL (default); worker: concurrency 128"

    async def make_table(self, connection: Any) -> None:
        await connection.execute(_TABLE.format("integer"))

    async def insert(self, connection: Any, number: int) -> None:
        await connection.execute("INSERT INTO business (customer, total) VALUES (?, ?)", (BUSINESS, number))


class OnSqliteNormal(OnSqlite):
    """As `OnSqlite`, with the lower durability that some peers have."""

    options: ClassVar[dict[str, Any]] = {"synchronous": "NORMAL"}

    def settings(self) -> str:
        return "WAL, synchronous=NORMAL; worker: concurrency 128"


class OnPostgres(Alkstore):
    """In a Postgres database."""

    def url(self) -> str:
        return self.place.dsn

    def settings(self) -> str:
        return "asyncpg, pool of 10 (default), the server's durability; worker: concurrency 128"

    async def settle(self) -> None:
        connection = await asyncpg.connect(self.place.dsn)
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
        await connection.close()

    async def make_table(self, connection: Any) -> None:
        await connection.execute(_TABLE.format("bigserial"))

    async def insert(self, connection: Any, number: int) -> None:
        await connection.execute("INSERT INTO business (customer, total) VALUES ($1, $2)", BUSINESS, number)
