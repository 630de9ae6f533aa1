"""What a careful asyncio service writes by hand on SQLite: aiosqlite, a statement a call."""

import aiosqlite

from benchmarks.subject import BUSINESS, Subject
from benchmarks.subjects.bare_sqlite import BUSINESS_ROW, JOB, body, connected


class PlainAiosqlite(Subject):
    """One aiosqlite connection."""

    connection: aiosqlite.Connection

    async def open(self) -> None:
        connected(self.place).close()
        self.connection = await aiosqlite.connect(self.place.folder / "floor.db", isolation_level=None)
        await self.connection.execute("PRAGMA synchronous = FULL")

    async def close(self) -> None:
        await self.connection.close()

    def settings(self) -> str:
        return "one aiosqlite connection, WAL, synchronous=FULL"

    async def put(self, number: int) -> None:
        await self.connection.execute(JOB, (body(number),))

    async def make_business(self) -> None:
        pass

    async def put_in_transaction(self, number: int) -> None:
        await self.connection.execute("BEGIN IMMEDIATE")
        await self.connection.execute(BUSINESS_ROW, (BUSINESS, number))
        await self.connection.execute(JOB, (body(number),))
        await self.connection.execute("COMMIT")
