"""Waiting for what tells nobody that it has happened: rows of the server's catalogue, tasks that end."""

import asyncio
from collections.abc import Awaitable, Callable

from alkstore_pg import PgStore


async def until(holds: Callable[[], bool] | Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    """Look again and again until `holds`, and fail after so many seconds."""
    async with asyncio.timeout(seconds):
        while True:
            held = holds()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(0.005)


def query(plain, sql: str, expected: object, *arguments: object) -> Callable[[], Awaitable[bool]]:
    """Whether the value of a query is `expected`, to be asked."""

    async def holds() -> bool:
        return await plain.fetchval(sql, *arguments) == expected

    return holds


async def counted(plain, store: PgStore | None = None) -> None:
    """Return once the server's statistics have what `plain` and a store of one connection did until now.

    By itself a session reports it no more than once a second.
    """
    report = "SELECT pg_stat_force_next_flush()"
    if store is not None:
        async with store.transaction() as tx:
            await tx.connection.execute(report)
    await plain.execute(report)
    await plain.execute("SELECT pg_stat_clear_snapshot()")
