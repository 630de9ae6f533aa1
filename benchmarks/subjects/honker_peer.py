"""honker, by its documented API; where its wheel installs."""
# pyright: reportMissingImports=false
# It is in an environment of its own.

import asyncio
from collections.abc import Callable
from typing import Any

import honker

from benchmarks.subject import BATCH, BUSINESS, Seen, Subject, payload

_TABLE = "CREATE TABLE IF NOT EXISTS business (id integer PRIMARY KEY, customer text NOT NULL, total int NOT NULL)"


class Honker(Subject):
    """Its database object, whose durability is fixed."""

    blocking = True
    most_jobs = 4000

    async def open(self) -> None:
        self.database: Any = honker.open(str(self.place.folder / "peer.db"))
        self.queue: Any = self.database.queue("jobs")
        self.stream: Any = self.database.stream("events")
        self.listeners: list[Any] = []

    async def close(self) -> None:
        self.database.close()

    def settings(self) -> str:
        return "WAL, synchronous=NORMAL (fixed), watcher polls every 1 ms; worker: async for job in claim()"

    def put(self, number: int) -> None:
        self.queue.enqueue(payload(number))

    async def put_many(self, count: int) -> None:
        for begin in range(0, count, BATCH):
            with self.database.transaction() as tx:
                for number in range(begin, min(count, begin + BATCH)):
                    self.queue.enqueue(payload(number), tx=tx)

    async def drain(self, count: int, seconds: float) -> int:
        done, end = 0, asyncio.get_running_loop().time() + seconds
        async for job in self.queue.claim("worker"):
            job.ack()
            done += 1
            if done == count or asyncio.get_running_loop().time() >= end:
                break
        return done

    async def claim_and_ack(self, worker: str, batch: int) -> int:
        jobs = self.queue.claim_batch(worker, batch)
        return int(self.queue.ack_batch([job.id for job in jobs], worker))

    async def make_business(self) -> None:
        with self.database.transaction() as tx:
            tx.execute(_TABLE)

    def put_in_transaction(self, number: int) -> None:
        with self.database.transaction() as tx:
            tx.execute(f"INSERT INTO business (customer, total) VALUES ('{BUSINESS}', {number})")  # noqa: S608 - constant
            self.queue.enqueue(payload(number), tx=tx)

    def publish(self, number: int) -> None:
        self.stream.publish(payload(number))

    async def publish_many(self, count: int) -> None:
        for begin in range(0, count, BATCH):
            with self.database.transaction() as tx:
                for number in range(begin, min(count, begin + BATCH)):
                    self.stream.publish(payload(number), tx=tx)

    async def replay(self, count: int) -> None:
        got = 0
        async for _ in self.stream.subscribe(from_offset=0):
            got += 1
            if got == count:
                return

    def notify(self, number: int) -> None:
        with self.database.transaction() as tx:
            tx.notify("channel", {"number": number})

    def lock_and_release(self, number: int) -> None:
        with self.database.lock(f"lock {number % 100}"):
            pass

    async def work(self, seen: Seen, ready: Callable[[], object]) -> None:
        ready()
        async for job in self.queue.claim("worker"):
            seen(job.payload["number"])
            job.ack()

    async def follow(self, seen: Seen, ready: Callable[[], object]) -> None:
        events = self.stream.subscribe(consumer="follower")
        ready()
        async for event in events:
            seen(event.payload["number"])

    async def listen(self, seen: Seen, ready: Callable[[], object]) -> None:
        wakes = self.database.listen("channel")
        ready()
        async for wake in wakes:
            seen(wake.payload["number"])

    async def hold_listeners(self, count: int) -> None:
        self.listeners += [self.database.listen(f"channel {number}") for number in range(count)]
