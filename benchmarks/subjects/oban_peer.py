"""Oban for Python, by its documented API."""
# pyright: reportMissingImports=false
# It is in an environment of its own.

import asyncio
from collections.abc import Awaitable
from typing import Any

from oban import Oban, worker
from oban.schema import install

from benchmarks.subject import BATCH, POOL, payload
from benchmarks.subjects.postgres_peer import PostgresPeer, ask_psycopg, connect_psycopg, insert_psycopg

_LIMIT = 100


class OnOban(PostgresPeer):
    """A client and a worker on one psycopg pool."""

    most_jobs = 5000
    left_sql = "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing', 'scheduled', 'retryable')"
    pool: Any
    business: Any

    async def open(self) -> None:
        self.pool = await Oban.create_pool(self.place.dsn, min_size=POOL, max_size=POOL)
        subject = self

        class NoOp:
            async def process(self, job: Any) -> None:
                subject.seen(job.args["number"])

        self.jobs: Any = worker(queue="jobs")(NoOp)
        self.oban: Any = Oban(pool=self.pool)
        if not await self.ask("SELECT count(*) FROM pg_tables WHERE tablename = 'oban_jobs'"):
            await install(self.pool)

    async def close(self) -> None:
        await self.pool.close()

    def settings(self) -> str:
        return f"psycopg pool of {POOL}; queues={{'jobs': {_LIMIT}}}"

    async def ask(self, sql: str) -> int:
        return await ask_psycopg(self.pool, sql)

    def put(self, number: int) -> Awaitable[object]:
        return self.oban.enqueue(self.jobs.new(payload(number)))  # type: ignore[no-any-return]

    async def put_many(self, count: int) -> None:
        for begin in range(0, count, BATCH):
            await self.oban.enqueue_many([self.jobs.new(payload(begin + n)) for n in range(min(BATCH, count - begin))])

    async def worker(self) -> None:
        async with Oban(pool=self.pool, queues={"jobs": _LIMIT}):
            await asyncio.Event().wait()

    async def make_business(self) -> None:
        self.business = await connect_psycopg(self.place.dsn)

    async def put_in_transaction(self, number: int) -> None:
        async with self.business.transaction():
            await insert_psycopg(self.business, number)
            await self.oban.enqueue(self.jobs.new(payload(number)), conn=self.business)
