"""A caller's transaction: alkstore's operations and the caller's statements on one connection (T3 to T9)."""

import asyncio
import sqlite3
from collections.abc import Awaitable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import aiosqlite
from alkstore_core.cancellation import see_through
from alkstore_core.engine import EngineTransaction
from alkstore_core.errors import ClosedError, DatabaseError

from alkstore_sqlite.caller import CallerConnection, is_altered, on_thread, own_cursor
from alkstore_sqlite.commits import Build, Undo
from alkstore_sqlite.notify import new_stamp, stamp_topics
from alkstore_sqlite.operations import Scope, drive
from alkstore_sqlite.session import SqliteSession
from alkstore_sqlite.writer import Lease

if TYPE_CHECKING:
    from alkstore_sqlite.engine import SqliteEngine


class SqliteTransaction(SqliteSession, EngineTransaction):
    """Holds the writer slot from its beginning to its end."""

    def __init__(
        self, engine: "SqliteEngine", connection: aiosqlite.Connection, lease: Lease, holder: "asyncio.Task[Any] | None"
    ) -> None:
        self._engine = engine
        self._connection = connection
        self._lease = lease
        self._scope = Scope(engine.clock)
        self._ended = False
        self.holder = holder
        """The task that began it, and would wait for itself if it wrote outside of it (T11)."""

    @property
    def connection(self) -> aiosqlite.Connection:
        return self._connection

    @property
    def is_open(self) -> bool:
        """Whether it is still undecided."""
        return not self._ended

    async def _write(self, build: Build, *arguments: Any, undo: Undo | None = None) -> Any:
        self._refuse_ended()

        def work(connection: sqlite3.Connection) -> Any:
            assert isinstance(connection, CallerConnection)
            connection.enter()
            with own_cursor(connection) as cursor:
                return drive(cursor, build(self._scope, *arguments))

        try:
            return await on_thread(self._connection, work)
        except sqlite3.Error as error:
            raise self._engine.failed(error) from error
        except ValueError as error:
            raise DatabaseError(f"the transaction's connection was closed: {error}") from error

    def _read(self, build: Build, *arguments: Any) -> Awaitable[Any]:
        return self._write(build, *arguments)

    async def commit(self) -> None:
        self._refuse_ended()
        self._ended = True
        await see_through(self._commit)

    async def rollback(self) -> None:
        self._refuse_ended()
        self._ended = True
        await see_through(self._roll_back)

    def abandon(self) -> None:
        if not self._ended:
            self._ended = True
            self._engine.roll_back_abandoned(self)

    async def _commit(self) -> None:
        topics = self._scope.topics
        stamp = new_stamp() if topics else 0
        listened = self._engine.hub.topics() & topics
        for topic in listened:
            self._engine.own_stamps[topic] = stamp

        def work(connection: sqlite3.Connection) -> None:
            assert isinstance(connection, CallerConnection)
            connection.refuse_undone()
            if topics or connection.begun:
                connection.enter()
                with closing(sqlite3.Cursor(connection)) as cursor:
                    drive(cursor, stamp_topics(topics, stamp))
                    cursor.execute("COMMIT")
            connection.leave()

        try:
            await on_thread(self._connection, work)
        except (sqlite3.Error, ValueError) as error:
            await self._discard()
            if isinstance(error, sqlite3.Error):
                raise self._engine.failed(error) from error
            raise DatabaseError(f"the transaction's connection was closed: {error}") from error
        await self._finish()
        self._engine.hub.wake(topics)
        self._engine.database.check()

    async def _roll_back(self) -> None:
        def work(connection: sqlite3.Connection) -> None:
            assert isinstance(connection, CallerConnection)
            if connection.in_transaction:
                sqlite3.Cursor(connection).execute("ROLLBACK")
            connection.leave()

        try:
            await on_thread(self._connection, work)
        except (sqlite3.Error, ValueError) as error:
            await self._discard()
            if isinstance(error, sqlite3.Error):
                raise self._engine.database.failed(error) from error
            return  # the connection is closed, and its transaction with it
        await self._finish()

    def _refuse_ended(self) -> None:
        if self._ended:
            raise ClosedError("this transaction was rolled back when its store closed: begin another one")

    async def finish_abandoned(self) -> None:
        """What `abandon` leaves to the loop."""
        with suppress(DatabaseError):
            await self._roll_back()

    async def _discard(self) -> None:
        """Throw the connection away with whatever is open on it; the next transaction gets another (T9)."""
        try:
            await self._engine.discard(self._connection)
        finally:
            self._lease.release()

    async def _finish(self) -> None:
        if is_altered(self._connection):
            await self._discard()
        else:
            self._engine.take_back(self._connection)
            self._lease.release()
