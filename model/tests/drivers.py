"""The engines that are held against one another. A further engine is one more class here, and its name in `DRIVERS`."""

import asyncio
import contextlib
import sqlite3
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, ClassVar, cast

import asyncpg
from alkstore_contract_suite.harness import Harness
from alkstore_core import Opening, Store, Transaction
from alkstore_core.engine import Engine
from alkstore_mem.harness import MemHarness
from alkstore_mem.tables import Table
from alkstore_pg.engine import PgEngine
from alkstore_pg.harness import PgHarness
from alkstore_sqlite import SqliteStore
from alkstore_sqlite.engine import SqliteEngine
from alkstore_sqlite.harness import SqliteHarness

PATIENCE_S = 60.0
"""No operation here waits for long: whatever takes this long hangs, and fails the run."""


class QuickSqliteHarness(SqliteHarness):
    """SQLite without syncing to the disk: no power is cut here."""

    def open(self, *, patience_s: float | None = None) -> Opening[Store]:
        store = SqliteStore.open(
            self._path, clock=self.clock, synchronous="OFF", busy_timeout=5.0 if patience_s is None else patience_s
        )
        return cast("Opening[Store]", store)


class ReadPgHarness(PgHarness):
    """Postgres, with a connection at hand that reads every row again and again."""

    _reader: Any = None
    _every_row: str

    async def rows(self) -> list[tuple[str, str]]:
        """Each row of the store's tables as text, after its table's name."""
        if self._reader is None:
            self._reader = await asyncpg.connect(self._dsn)
            tables = await self._reader.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'alkstore'")
            one_by_one = (f"SELECT '{name}', one::text FROM alkstore.{name} one" for (name,) in tables)
            self._every_row = " UNION ALL ".join(one_by_one)
        return [tuple(row) for row in await self._reader.fetch(self._every_row)]

    async def stop(self) -> None:
        if self._reader is not None:
            await self._reader.close()
        await super().stop()


class Driver:
    """How one engine is driven, beyond what its harness knows."""

    name: ClassVar[str]
    harness: ClassVar[type[Harness]]
    one_writer: ClassVar[bool]
    """Whether everybody else's writes wait while a transaction is open (T11)."""
    examples: ClassVar[int] = 60
    """How many runs a quick comparison has of each machine."""
    settles_time: ClassVar[bool] = False
    """Whether what a claim once found to have lapsed or expired stays so for claims when the clock is set back."""
    limits_notify: ClassVar[bool] = False
    """Whether a notify's payload may be too long (P4)."""

    @staticmethod
    async def stored(harness: Any) -> object:
        """Every row of every table."""
        raise NotImplementedError

    @staticmethod
    async def bury(engine: Engine) -> None:
        """Give up what an engine whose store was dropped has left to the end of the process, if anything."""

    @staticmethod
    async def savepoint(tx: Transaction, number: int) -> Any:
        """Set a savepoint; what the two others are given."""
        await tx.connection.execute(f"SAVEPOINT s{number}")
        return number

    @staticmethod
    async def undo(tx: Transaction, savepoint: Any) -> None:
        """Undo what was done since the savepoint, and end it."""
        await tx.connection.execute(f"ROLLBACK TO SAVEPOINT s{savepoint}")
        await tx.connection.execute(f"RELEASE SAVEPOINT s{savepoint}")

    @staticmethod
    async def keep(tx: Transaction, savepoint: Any) -> None:
        """Keep what was done since the savepoint, and end it."""
        await tx.connection.execute(f"RELEASE SAVEPOINT s{savepoint}")


class MemDriver(Driver):
    """Memory: the model."""

    name = "mem"
    harness = MemHarness
    one_writer = True

    @staticmethod
    async def stored(harness: Any) -> object:
        tables = vars(harness._database)
        rows = {name: dict(table.rows) for name, table in tables.items() if isinstance(table, Table)}
        return rows, {name: list(events) for name, events in harness._database.events.streams.items()}

    @staticmethod
    async def savepoint(tx: Transaction, number: int) -> Any:  # noqa: ARG004 - they nest, and need no names
        block = AsyncExitStack()
        opened: AbstractAsyncContextManager[None] = tx.connection.savepoint()
        await block.enter_async_context(opened)
        return block

    @staticmethod
    async def undo(tx: Transaction, savepoint: Any) -> None:  # noqa: ARG004 - the block knows it
        with contextlib.suppress(_Undo):
            await savepoint.__aexit__(_Undo, _Undo(), None)

    @staticmethod
    async def keep(tx: Transaction, savepoint: Any) -> None:  # noqa: ARG004 - likewise
        await savepoint.aclose()


class _Undo(Exception):  # noqa: N818 - no error: it ends a savepoint
    pass


class SqliteDriver(Driver):
    """SQLite: one file."""

    name = "sqlite"
    harness = QuickSqliteHarness
    one_writer = True
    settles_time = True

    @staticmethod
    async def stored(harness: Any) -> object:
        with contextlib.closing(sqlite3.connect(harness._path)) as connection:
            tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}

    @staticmethod
    async def bury(engine: Engine) -> None:
        assert isinstance(engine, SqliteEngine)
        await engine._free.wait()  # a transaction that was dropped with the store is rolled back
        if engine._idle_connection is not None:
            await engine._idle_connection.close()


class PgDriver(Driver):
    """Postgres: one database."""

    name = "pg"
    harness = ReadPgHarness
    one_writer = False
    settles_time = True
    limits_notify = True
    examples = 5

    @staticmethod
    async def stored(harness: Any) -> object:
        return await harness.rows()

    @staticmethod
    async def bury(engine: Engine) -> None:
        assert isinstance(engine, PgEngine)
        await asyncio.sleep(0)  # it begins to hang up
        await engine._shut()


DRIVERS: tuple[type[Driver], ...] = (MemDriver, SqliteDriver, PgDriver)
"""All engines, the model first."""
