"""How the contract suite drives the Postgres engine. Only the suite imports this module.

Each leg has an empty database to itself, which can be closed to everybody else.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import asyncpg
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

from alkstore_pg.databases import Databases, name_of
from alkstore_pg.servers import LocalServer, any_server
from alkstore_pg.store import PgStore

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

OPTIONS_VARIABLE = "ALKSTORE_PG_OPTIONS"
"""The environment variable with options of `PgStore.open`, as JSON, that every store of a run is opened with."""
_INSERT = "INSERT INTO business (value) VALUES ($1)"
_SELECT = "SELECT value FROM business ORDER BY id"


class PgWitness(Witness):
    """Reads with asyncpg alone, on a connection of its own for each question."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    async def _rows(self, sql: str, *parameters: object) -> list[Any]:
        connection = await asyncpg.connect(self._dsn)
        try:
            return list(await connection.fetch(sql, *parameters))
        finally:
            await connection.close()

    async def jobs(self, queue: str) -> JobCounts:
        rows = await self._rows(
            "SELECT state, count(*) FROM alkstore.jobs WHERE coalesce(long_queue, queue) = $1 GROUP BY state", queue
        )
        counted = dict(rows)
        return JobCounts(*(counted.get(state, 0) for state in (0, 1, 2)))

    async def events(self, stream: str) -> list[int]:
        rows = await self._rows('SELECT "offset" FROM alkstore.events WHERE stream = $1 ORDER BY "offset"', stream)
        return [row[0] for row in rows]

    async def offset(self, stream: str, consumer: str) -> int | None:
        sql = 'SELECT "offset" FROM alkstore.offsets WHERE stream = $1 AND consumer = $2'
        rows = await self._rows(sql, stream, consumer)
        return rows[0][0] if rows else None

    async def lock(self, name: str) -> LockRow | None:
        rows = await self._rows("SELECT owner, token, expires_at FROM alkstore.locks WHERE name = $1", name)
        return LockRow(*rows[0]) if rows else None

    async def mailbox(self, name: str) -> MailboxRows:
        unread = "SELECT id FROM alkstore.messages WHERE mailbox = $1 AND NOT read ORDER BY sequence"
        deliveries = (
            "SELECT id, message_ids, generation, created_at, acknowledged_at, fenced FROM alkstore.deliveries "
            "WHERE mailbox = $1 ORDER BY id"
        )
        outstanding = "SELECT id FROM alkstore.outstanding_deliveries WHERE mailbox = $1 ORDER BY id"
        return MailboxRows(
            tuple(row[0] for row in await self._rows(unread, name)),
            tuple(DeliveryRow(row[0], tuple(row[1]), *row[2:]) for row in await self._rows(deliveries, name)),
            tuple(row[0] for row in await self._rows(outstanding, name)),
        )

    async def business(self) -> list[str]:
        return [row[0] for row in await self._rows(_SELECT)]


class AsyncpgNative(NativeTransaction):
    """A transaction on an asyncpg connection of the caller's own."""

    def __init__(self, connection: Any, transaction: Any) -> None:
        self._connection = connection
        self._transaction = transaction
        self._savepoint: Any = None

    @property
    def handle(self) -> Any:
        return self._connection

    async def write(self, value: str) -> None:
        await self._connection.execute(_INSERT, value)

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def savepoint(self) -> None:
        self._savepoint = self._connection.transaction()
        await self._savepoint.start()

    async def rollback_to_savepoint(self) -> None:
        await self._savepoint.rollback()


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


class PgHarness(Harness):
    """Stores in a database of the leg's own."""

    contract: ClassVar[str] = "1.1"
    durable: ClassVar[bool] = True
    multi_process: ClassVar[bool] = True
    server: ClassVar[bool] = True
    natives: ClassVar[Sequence[str]] = ("asyncpg", "sqlalchemy-connection", "sqlalchemy-session")

    _databases: ClassVar[Databases]
    _server: ClassVar[LocalServer | None]
    _options: ClassVar[dict[str, Any]]

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._dsn = ""

    @classmethod
    @contextmanager
    def service(cls) -> Iterator[None]:
        cls._options = json.loads(os.environ.get(OPTIONS_VARIABLE, "{}"))
        # What a leg proves about durability is proved against killed processes, not against power cuts.
        with any_server(("fsync=off", "max_connections=200")) as (dsn, server):
            cls._databases, cls._server = Databases(dsn), server
            try:
                yield
            finally:
                if server is None:
                    asyncio.run(cls._databases.drop_all())

    @classmethod
    async def backend(cls) -> str:
        version = f"PostgreSQL {await cls._databases.server_version()}"
        return f"{version}, stores opened with {cls._options}" if cls._options else version

    async def start(self) -> None:
        self._dsn = await self._databases.take()
        connection = await asyncpg.connect(self._dsn)
        try:
            await connection.execute(
                "CREATE TABLE business (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value text NOT NULL)"
            )
        finally:
            await connection.close()

    async def stop(self) -> None:
        await self._databases.give_back(self._dsn)

    def open(self, *, patience_s: float | None = None) -> Opening[Store]:
        options = self._options if patience_s is None else {**self._options, "operation_timeout": patience_s}
        return cast("Opening[Store]", PgStore.open(self._dsn, clock=self.clock, **options))

    async def restart(self) -> None:
        if self._server is not None:
            self._server.restart()

    async def write(self, tx: Transaction, value: str) -> None:
        await tx.connection.execute(_INSERT, value)

    async def read(self, tx: Transaction) -> list[str]:
        return [row[0] for row in await tx.connection.fetch(_SELECT)]

    @asynccontextmanager
    async def native(self, kind: str, *, begun: bool = True) -> AsyncIterator[NativeTransaction]:
        if kind == "asyncpg":
            connection = await asyncpg.connect(self._dsn)
            try:
                transaction = connection.transaction()
                if begun:
                    await transaction.start()
                yield AsyncpgNative(connection, transaction)
            finally:
                await connection.close()
            return
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine  # slow: not in children

        alchemy = create_async_engine(self._dsn.replace("postgresql://", "postgresql+asyncpg://", 1))
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
        return PgWitness(self._dsn)

    def address(self) -> Address:
        return Address(self._dsn, self._options)

    async def move_schema_version(self, by: int) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            await connection.execute(
                "UPDATE alkstore.migrations SET version = version + $1 "
                "WHERE version = (SELECT max(version) FROM alkstore.migrations)",
                by,
            )
        finally:
            await connection.close()

    async def insert_delivery(self, mailbox: str, message_ids: Sequence[str], *, acknowledged_at: int | None) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            await connection.execute(
                "INSERT INTO alkstore.deliveries "
                "(id, mailbox, source, subject, generation, message_ids, reach, created_at, acknowledged_at) "
                "SELECT gen_random_uuid(), $1, 'by', 'hand', 0, $2, max(sequence), 1, $3 FROM alkstore.messages "
                "WHERE id = ANY ($2)",
                mailbox,
                list(message_ids),
                acknowledged_at,
            )
        finally:
            await connection.close()

    async def spoil(self, tx: Transaction) -> None:
        await tx.connection.execute(
            "CREATE TEMPORARY TABLE spoilt (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP;"
            "INSERT INTO spoilt VALUES (1), (1)"
        )

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """The database takes no connections, and those there were are ended."""
        name = name_of(self._dsn)
        await self._databases.administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        try:
            await self.sever()
            yield
        finally:
            await self._databases.administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    async def sever(self) -> None:
        await self._databases.end_connections(self._dsn)
