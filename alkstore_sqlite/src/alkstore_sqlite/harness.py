"""How the contract suite drives the SQLite engine. Only the suite imports this module."""

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import aiosqlite
from alkstore_contract_suite.harness import (
    Address,
    DeliveryRow,
    Harness,
    JobCounts,
    LockRow,
    MailboxRows,
    NativeTransaction,
    Witness,
)
from alkstore_core import Opening, Store, Transaction

from alkstore_sqlite.store import SqliteStore

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

_INSERT = "INSERT INTO business (value) VALUES (?)"
_SELECT = "SELECT value FROM business ORDER BY id"


class SqliteWitness(Witness):
    """Reads the file with the standard library's sqlite3, on a read-only connection for each question."""

    def __init__(self, path: Path) -> None:
        self._uri = f"file:{quote(str(path))}?mode=ro"

    def _rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._uri, uri=True)) as connection:
            return connection.execute(sql, parameters).fetchall()

    async def jobs(self, queue: str) -> JobCounts:
        counted = dict(self._rows("SELECT state, count(*) FROM alkstore_jobs WHERE queue = ? GROUP BY state", queue))
        return JobCounts(*(counted.get(state, 0) for state in (0, 1, 2)))

    async def events(self, stream: str) -> list[int]:
        rows = self._rows('SELECT "offset" FROM alkstore_events WHERE stream = ? ORDER BY "offset"', stream)
        return [row[0] for row in rows]

    async def offset(self, stream: str, consumer: str) -> int | None:
        sql = 'SELECT "offset" FROM alkstore_offsets WHERE stream = ? AND consumer = ?'
        rows = self._rows(sql, stream, consumer)
        return rows[0][0] if rows else None

    async def lock(self, name: str) -> LockRow | None:
        rows = self._rows("SELECT owner, token, expires_at FROM alkstore_locks WHERE name = ?", name)
        return LockRow(*rows[0]) if rows else None

    async def mailbox(self, name: str) -> MailboxRows:
        unread = "SELECT id FROM alkstore_messages WHERE mailbox = ? AND read = 0 ORDER BY sequence"
        deliveries = (
            "SELECT id, message_ids, generation, created_at, acknowledged_at, fenced FROM alkstore_deliveries "
            "WHERE mailbox = ? ORDER BY id"
        )
        outstanding = "SELECT id FROM outstanding_deliveries WHERE mailbox = ? ORDER BY id"
        return MailboxRows(
            tuple(row[0] for row in self._rows(unread, name)),
            tuple(
                DeliveryRow(id, tuple(json.loads(members)), generation, created_at, acknowledged_at, bool(fenced))
                for id, members, generation, created_at, acknowledged_at, fenced in self._rows(deliveries, name)
            ),
            tuple(row[0] for row in self._rows(outstanding, name)),
        )

    async def business(self) -> list[str]:
        return [value for (value,) in self._rows(_SELECT)]


class AiosqliteNative(NativeTransaction):
    """A transaction on an aiosqlite connection of the caller's own."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @property
    def handle(self) -> aiosqlite.Connection:
        return self._connection

    async def write(self, value: str) -> None:
        await self._connection.execute(_INSERT, (value,))

    async def commit(self) -> None:
        await self._connection.commit()

    async def rollback(self) -> None:
        await self._connection.rollback()

    async def savepoint(self) -> None:
        await self._connection.execute("SAVEPOINT callers")

    async def rollback_to_savepoint(self) -> None:
        await self._connection.execute("ROLLBACK TO callers")
        await self._connection.execute("RELEASE callers")


class AlchemyNative(NativeTransaction):
    """A transaction on a SQLAlchemy connection or session of the caller's own."""

    def __init__(self, handle: "AsyncConnection | AsyncSession") -> None:
        self._handle = handle
        self._nested: Any = None

    @property
    def handle(self) -> "AsyncConnection | AsyncSession":
        return self._handle

    async def write(self, value: str) -> None:
        from sqlalchemy import text

        await self._handle.execute(text("INSERT INTO business (value) VALUES (:value)"), {"value": value})

    async def commit(self) -> None:
        await self._handle.commit()

    async def rollback(self) -> None:
        await self._handle.rollback()

    async def savepoint(self) -> None:
        self._nested = await self._handle.begin_nested()

    async def rollback_to_savepoint(self) -> None:
        await self._nested.rollback()


class SqliteHarness(Harness):
    """Stores on one file in the leg's directory."""

    contract: ClassVar[str] = "1.1"
    durable: ClassVar[bool] = True
    multi_process: ClassVar[bool] = True
    server: ClassVar[bool] = False
    natives: ClassVar[Sequence[str]] = ("aiosqlite", "sqlalchemy-connection", "sqlalchemy-session")
    unsupported: ClassVar[Mapping[str, str]] = {"sever": "SQLite is a library in the process: there is nothing to cut"}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._path = directory / "store.db"

    @classmethod
    async def backend(cls) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    async def start(self) -> None:
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("CREATE TABLE business (id INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT")

    def open(self, *, patience_s: float | None = None) -> Opening[Store]:
        options: dict[str, Any] = {} if patience_s is None else {"busy_timeout": patience_s}
        return SqliteStore.open(self._path, clock=self.clock, **options)

    async def write(self, tx: Transaction, value: str) -> None:
        await tx.connection.execute(_INSERT, (value,))

    async def read(self, tx: Transaction) -> list[str]:
        async with tx.connection.execute(_SELECT) as cursor:
            return [value async for (value,) in cursor]

    @asynccontextmanager
    async def native(self, kind: str, *, begun: bool = True) -> AsyncIterator[NativeTransaction]:
        if kind == "aiosqlite":
            async with aiosqlite.connect(self._path) as connection:
                if begun:
                    await connection.execute("BEGIN IMMEDIATE")
                yield AiosqliteNative(connection)
            return
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine  # slow: not in children

        alchemy = create_async_engine(f"sqlite+aiosqlite:///{self._path}")
        try:
            handle = AsyncConnection(alchemy) if kind == "sqlalchemy-connection" else AsyncSession(alchemy)
            async with handle:
                if begun:
                    await handle.begin()
                yield AlchemyNative(handle)
        finally:
            await alchemy.dispose()

    @property
    def witness(self) -> Witness:
        return SqliteWitness(self._path)

    def address(self) -> Address:
        return Address(f"sqlite:///{quote(str(self._path))}")

    async def move_schema_version(self, by: int) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute("UPDATE alkstore_meta SET value = value + ? WHERE key = 'schema_version'", (by,))

    async def insert_delivery(self, mailbox: str, message_ids: Sequence[str], *, acknowledged_at: int | None) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute(
                "INSERT INTO alkstore_deliveries "
                "(id, mailbox, source, subject, generation, message_ids, reach, created_at, acknowledged_at) "
                "SELECT hex(randomblob(8)), ?1, 'by', 'hand', 0, ?2, max(sequence), 1, ?3 FROM alkstore_messages "
                "WHERE id IN (SELECT value FROM json_each(?2))",
                (mailbox, json.dumps(message_ids), acknowledged_at),
            )

    async def spoil(self, tx: Transaction) -> None:
        def refuse_commit(action: int, argument: str | None, *_: str | None) -> int:
            refused = action == sqlite3.SQLITE_TRANSACTION and argument == "COMMIT"
            return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

        await tx.connection.set_authorizer(refuse_commit)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Another program keeps the file locked for writing."""
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")
