"""PgQueuer, by its documented API."""
# pyright: reportMissingImports=false
# It is in an environment of its own.

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from benchmarks.subject import BATCH, BUSINESS, POOL, Seen, payload
from benchmarks.subjects.postgres_peer import BUSINESS_TABLE, PostgresPeer

_BATCH_SIZE = 100


def _body(number: int) -> bytes:
    return json.dumps(payload(number)).encode()


class OnPgqueuer(PostgresPeer):
    """Its driver for asyncpg pools, with its default durability."""

    most_jobs = 20_000
    left_sql = "SELECT count(*) FROM pgqueuer"
    pool: Any
    queries: Any
    business: Any

    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(self.place.dsn, min_size=POOL, max_size=POOL)
        self.driver = AsyncpgPoolDriver(self.pool)
        self.queries = Queries(self.driver)
        if not await self.ask("SELECT count(*) FROM pg_tables WHERE tablename = 'pgqueuer'"):
            await self.queries.install()

    async def close(self) -> None:
        self.pool.terminate()

    def settings(self) -> str:
        return f"AsyncpgPoolDriver, pool of {POOL}, default durability; run(batch_size={_BATCH_SIZE})"

    async def ask(self, sql: str) -> int:
        return int(await self.pool.fetchval(sql))

    async def settle(self) -> None:
        await self.pool.execute("VACUUM ANALYZE")
        await self.pool.execute("CHECKPOINT")

    def put(self, number: int) -> Awaitable[object]:
        return self.queries.enqueue("no_op", _body(number))  # type: ignore[no-any-return]

    async def put_many(self, count: int) -> None:
        for begin in range(0, count, BATCH):
            many = min(BATCH, count - begin)
            await self.queries.enqueue(["no_op"] * many, [_body(begin + n) for n in range(many)], [0] * many)

    def worker(self) -> Awaitable[object]:
        pgq = PgQueuer(self.driver)

        async def no_op(job: Any) -> None:
            self.seen(json.loads(job.payload)["number"])

        pgq.entrypoint("no_op")(no_op)
        return pgq.run(batch_size=_BATCH_SIZE)  # type: ignore[no-any-return]

    async def make_business(self) -> None:
        self.business = await asyncpg.connect(self.place.dsn)
        await self.business.execute(BUSINESS_TABLE)
        self.joined = Queries(AsyncpgDriver(self.business))

    async def put_in_transaction(self, number: int) -> None:
        async with self.business.transaction():
            await self.business.execute("INSERT INTO business (customer, total) VALUES ($1, $2)", BUSINESS, number)
            await self.joined.enqueue("no_op", _body(number))

    def notify(self, number: int) -> Awaitable[object]:
        return self.driver.notify("bench", str(number))  # type: ignore[no-any-return]

    async def listen(self, seen: Seen, ready: Callable[[], object]) -> None:
        await self.driver.add_listener("bench", lambda number: seen(int(number)))
        ready()
        await asyncio.Event().wait()

    async def hold_listeners(self, count: int) -> None:
        for number in range(count):
            await self.driver.add_listener(f"channel_{number}", lambda _: None)
