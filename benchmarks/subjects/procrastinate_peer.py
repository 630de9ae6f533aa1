"""procrastinate, by its documented API."""
# pyright: reportMissingImports=false
# It is in an environment of its own.

from collections.abc import Awaitable
from typing import Any

import procrastinate

from benchmarks.subject import BATCH, POOL, payload
from benchmarks.subjects.postgres_peer import PostgresPeer, ask_psycopg, connect_psycopg, insert_psycopg

_CONCURRENCY = 30


class Procrastinate(PostgresPeer):
    """One app with a psycopg pool."""

    most_jobs = 1500
    left_sql = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    app: Any
    task: Any
    business: Any

    async def open(self) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=self.place.dsn, min_size=POOL, max_size=POOL)
        self.app = procrastinate.App(connector=connector)

        async def no_op(number: int, **_: object) -> None:
            self.seen(number)

        self.task = self.app.task(name="no_op", queue="jobs")(no_op)
        await self.app.open_async()
        if not await self.ask("SELECT count(*) FROM pg_tables WHERE tablename = 'procrastinate_jobs'"):
            await self.app.schema_manager.apply_schema_async()

    async def close(self) -> None:
        await self.app.close_async()

    def settings(self) -> str:
        return f"PsycopgConnector, pool of {POOL}; run_worker_async(concurrency={_CONCURRENCY})"

    async def ask(self, sql: str) -> int:
        return await ask_psycopg(self.app.connector.pool, sql)

    def put(self, number: int) -> Awaitable[object]:
        return self.task.defer_async(**payload(number))  # type: ignore[no-any-return]

    async def put_many(self, count: int) -> None:
        for begin in range(0, count, BATCH):
            await self.task.batch_defer_async(*(payload(begin + n) for n in range(min(BATCH, count - begin))))

    def worker(self) -> Awaitable[object]:
        return self.app.run_worker_async(  # type: ignore[no-any-return]
            queues=["jobs"], concurrency=_CONCURRENCY, install_signal_handlers=False
        )

    async def make_business(self) -> None:
        self.business = await connect_psycopg(self.place.dsn)

    async def put_in_transaction(self, number: int) -> None:
        async with self.business.transaction():
            await insert_psycopg(self.business, number)
            await self.task.configure(connection=self.business).defer_async(**payload(number))
