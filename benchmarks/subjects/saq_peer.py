"""SAQ on Postgres, by its documented API."""
# pyright: reportMissingImports=false
# It is in an environment of its own.

from collections.abc import Awaitable
from typing import Any

from saq import Queue, Worker

from benchmarks.subject import POOL, payload
from benchmarks.subjects.postgres_peer import PostgresPeer, ask_psycopg

_CONCURRENCY = 30


class OnSaq(PostgresPeer):
    """Its Postgres queue."""

    most_jobs = 1500
    left_sql = "SELECT count(*) FROM saq_jobs WHERE status IN ('new', 'deferred', 'queued', 'active')"
    queue: Any

    async def open(self) -> None:
        self.queue = Queue.from_url(self.place.dsn, name="jobs", min_size=POOL, max_size=POOL)
        await self.queue.connect()

    async def close(self) -> None:
        await self.queue.disconnect()

    def settings(self) -> str:
        return f"PostgresQueue, psycopg pool of {POOL}; Worker(concurrency={_CONCURRENCY})"

    async def ask(self, sql: str) -> int:
        return await ask_psycopg(self.queue.pool, sql)

    def put(self, number: int) -> Awaitable[object]:
        return self.queue.enqueue("no_op", **payload(number))  # type: ignore[no-any-return]

    def worker(self) -> Awaitable[object]:
        async def no_op(_: Any, *, number: int, **__: object) -> None:
            self.seen(number)

        working = Worker(self.queue, functions=[("no_op", no_op)], concurrency=_CONCURRENCY)
        working.SIGNALS = []  # they are the benchmark's
        return working.start()  # type: ignore[no-any-return]
