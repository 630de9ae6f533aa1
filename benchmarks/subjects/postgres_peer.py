"""What the peers on Postgres have in common."""

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.subject import BUSINESS, Place, Subject

BUSINESS_TABLE = (
    "CREATE TABLE IF NOT EXISTS business (id bigserial PRIMARY KEY, customer text NOT NULL, total int NOT NULL)"
)
_LOOK_S = 0.005


class PostgresPeer(Subject):
    """A peer whose jobs are in a table that can be asked how many are not done.

    Attributes:
        left_sql: asks that.
    """

    left_sql = ""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.seen: Callable[[int], object] = lambda _: None
        """What its handler calls first thing."""
        self._working: asyncio.Future[object] | None = None

    @abstractmethod
    async def ask(self, sql: str) -> int:
        """The one value that `sql` gives, on a connection of its pool."""

    @abstractmethod
    def worker(self) -> Awaitable[object]:
        """A worker that runs until it is cancelled, with the concurrency that served it best."""

    async def settle(self) -> None:
        import psycopg  # pyright: ignore[reportMissingImports]  # in the peer's environment

        async with await psycopg.AsyncConnection.connect(self.place.dsn, autocommit=True) as connection:
            await connection.execute("VACUUM ANALYZE")
            await connection.execute("CHECKPOINT")

    async def drain(self, count: int, seconds: float) -> int:
        handled, finished = 0, asyncio.Event()

        def seen(_: int) -> None:
            nonlocal handled
            handled += 1
            if handled >= count:
                finished.set()

        self.seen = seen
        end = time.perf_counter() + seconds
        self._working = asyncio.ensure_future(self.worker())
        waiting = asyncio.ensure_future(finished.wait())
        await asyncio.wait({waiting, self._working}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._working.done():
            self._working.result()
        # Only now is the table looked at, so that the looking costs the worker nothing while it works.
        while True:
            left = await self.ask(self.left_sql)
            if not left or time.perf_counter() >= end:
                return count - left
            await asyncio.sleep(_LOOK_S)

    async def work(self, seen: Callable[[int], object], ready: Callable[[], object]) -> None:
        self.seen = seen
        asyncio.get_running_loop().call_later(1.0, ready)
        await self.worker()
        await asyncio.Event().wait()


async def ask_psycopg(pool: Any, sql: str) -> int:
    """The one value that `sql` gives, whatever the pool makes of rows."""
    async with pool.connection() as connection:
        row = await (await connection.execute(sql)).fetchone()
        return int(next(iter(row.values())) if isinstance(row, dict) else row[0])


async def connect_psycopg(dsn: str) -> Any:
    """A connection of the caller's own, with the caller's own table there."""
    import psycopg  # pyright: ignore[reportMissingImports]  # in the peer's environment

    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    await connection.execute(BUSINESS_TABLE)
    return connection


async def insert_psycopg(connection: Any, number: int) -> None:
    """One row of the caller's own."""
    await connection.execute("INSERT INTO business (customer, total) VALUES (%s, %s)", (BUSINESS, number))
