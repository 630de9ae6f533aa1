"""Joining a transaction that the caller opened on a connection of their own (T10).

Taken are an aiosqlite connection, and SQLAlchemy's `AsyncSession` and `AsyncConnection` on aiosqlite. The wake's stamp
is written with each operation, so a savepoint takes it back, and every watcher sees it after the commit.
"""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiosqlite
from alkstore_core.engine import EngineTransaction
from alkstore_core.errors import AlkstoreError, ClosedError, DatabaseError

from alkstore_sqlite.caller import CallerConnection, TransactionConnection, on_thread, own_cursor
from alkstore_sqlite.commits import Build, Undo
from alkstore_sqlite.migrations import SchemaCheck
from alkstore_sqlite.notify import stamp_topics
from alkstore_sqlite.operations import Scope, drive
from alkstore_sqlite.session import SqliteSession

if TYPE_CHECKING:
    from alkstore_sqlite.engine import SqliteEngine


def refuse_unjoinable(connection: Any) -> None:
    """Check that `connection` is one that can be joined and has a transaction open, without any SQL.

    Raises:
        DatabaseError: it is not, or has none.
    """
    if isinstance(connection, aiosqlite.Connection):
        try:
            is_open = _in_transaction(connection)
        except (ValueError, sqlite3.Error) as error:
            raise DatabaseError(f"cannot enlist {connection!r}: it is closed ({error})") from error
        if not is_open:
            raise DatabaseError(
                "cannot enlist this aiosqlite connection: no transaction is open on it; execute BEGIN IMMEDIATE first"
            )
        return
    alchemy = sys.modules.get("sqlalchemy.ext.asyncio")
    if alchemy is not None and isinstance(connection, alchemy.AsyncSession | alchemy.AsyncConnection):
        try:
            bind = connection.get_bind() if isinstance(connection, alchemy.AsyncSession) else connection
        except Exception as error:
            raise DatabaseError(
                f"cannot enlist this AsyncSession, which has no one database: enlist its connection. {error}"
            ) from error
        driver = bind.dialect.driver
        if driver != "aiosqlite":
            raise DatabaseError(f"cannot enlist a SQLAlchemy connection on {driver}: this store needs sqlite+aiosqlite")
        if not connection.in_transaction():
            raise DatabaseError(
                f"cannot enlist this {type(connection).__name__}: no transaction is open on it; begin one first"
            )
        return
    raise DatabaseError(
        f"cannot enlist a {type(connection).__name__}: give an aiosqlite connection, or a SQLAlchemy AsyncSession or "
        "AsyncConnection on aiosqlite, with a transaction open"
    )


def _in_transaction(connection: aiosqlite.Connection) -> bool:
    if isinstance(connection, TransactionConnection):  # open before its first statement begins it
        return not connection.has_ended
    return connection.in_transaction


class Joined:
    """A caller's transaction, as distinct from the next one on the same connection.

    aiosqlite has nothing that tells them apart, so there the next one passes for the same.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._transaction = self._current()

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self._transaction is not None and self._current() is self._transaction

    def _current(self) -> object | None:
        if isinstance(self.connection, aiosqlite.Connection):
            try:
                return self.connection if _in_transaction(self.connection) else None
            except (ValueError, sqlite3.Error):
                return None
        alchemy = sys.modules["sqlalchemy.ext.asyncio"]
        if isinstance(self.connection, alchemy.AsyncSession):
            session = self.connection.sync_session
            return session.get_transaction() if session.in_transaction() else None
        connection = self.connection.sync_connection
        return None if connection is None or connection.closed else connection.get_transaction()


class EnlistedTransaction(SqliteSession, EngineTransaction):
    """A session on the caller's own connection."""

    def __init__(self, engine: "SqliteEngine", connection: Any) -> None:
        refuse_unjoinable(connection)
        self._engine = engine
        self._given = connection
        self.joined = Joined(connection)
        self._check_schema = SchemaCheck(engine.database.path)
        self._prepared: aiosqlite.Connection | None = None
        self._resolving = asyncio.Lock()

    @property
    def connection(self) -> Any:
        return self._given

    async def _write(self, build: Build, *arguments: Any, undo: Undo | None = None) -> Any:
        scope = Scope(self._engine.clock)

        def work(connection: sqlite3.Connection) -> Any:
            # Looked at here, on the connection's thread: outside a transaction the savepoint would itself be one, and
            # its release would commit.
            if isinstance(connection, CallerConnection):
                connection.enter()
            if not connection.in_transaction:
                raise ClosedError("the enlisted transaction has ended: enlist again in the next one")
            with own_cursor(connection) as cursor:
                self._check_schema(cursor)
                cursor.execute("SAVEPOINT alkstore")
                try:
                    result = drive(cursor, build(scope, *arguments))
                    drive(cursor, stamp_topics(scope.topics))
                except BaseException:
                    if connection.in_transaction:
                        cursor.execute("ROLLBACK TO alkstore")
                        cursor.execute("RELEASE alkstore")
                    raise
                cursor.execute("RELEASE alkstore")
                return result

        self._engine.refuse_closed()
        driver = await self._resolved()
        try:
            return await on_thread(driver, work)
        except sqlite3.Error as error:
            raise self._engine.database.failed(error) from error
        except ValueError as error:
            raise DatabaseError(f"the enlisted connection was closed: {error}") from error

    def _read(self, build: Build, *arguments: Any) -> Awaitable[Any]:
        return self._write(build, *arguments)

    async def _resolved(self) -> aiosqlite.Connection:
        if not self.joined.is_open:
            raise ClosedError("the enlisted transaction has ended: enlist again in the next one")
        async with self._resolving:  # SQLAlchemy's sessions are for one task at a time
            try:
                # Asked each time: SQLAlchemy sets the savepoint of begin_nested() when next asked for its connection.
                driver = await _driver_of(self._given)
                if driver is not self._prepared:
                    await on_thread(driver, self._prepare)
            except sqlite3.Error as error:
                raise self._engine.database.failed(error) from error
            except AlkstoreError:
                raise
            except Exception as error:
                raise DatabaseError(
                    f"the enlisted {type(self._given).__name__} gives no connection: {error}"
                ) from error
            self._prepared = driver
        return driver

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if isinstance(connection, CallerConnection):
            connection.enter()
            connection.promises.is_refused = True  # from here on rows are inserted by two
        with own_cursor(connection) as cursor:
            connection.text_factory = os.fsdecode
            path: str = cursor.execute("PRAGMA database_list").fetchone()[2]
        ours = self._engine.database.identity()
        try:
            status = Path(path).stat()
        except OSError:
            theirs = None
        else:
            theirs = status.st_dev, status.st_ino
        if theirs is None or theirs != ours:
            raise DatabaseError(
                f"cannot enlist a connection to {path or 'a database in memory'}: this store is on "
                f"{self._engine.database.path}, and one transaction cannot span both"
            )
        nested = getattr(self._given, "in_nested_transaction", None)
        if nested is not None and nested() and connection.isolation_level is not None:
            raise DatabaseError(
                "cannot enlist inside begin_nested(): the driver begins no transaction before a SAVEPOINT, whose end "
                "would then commit; enlist, and use the transaction, before begin_nested()"
            )
        if not connection.in_transaction:
            if connection.isolation_level is None:
                raise DatabaseError(
                    "cannot enlist this connection: it commits every statement by itself (AUTOCOMMIT); open it with "
                    "another isolation level"
                )
            # SQLAlchemy says that a transaction is open, and the driver has not begun one. Begun here and now, it is
            # a real one: otherwise a later SAVEPOINT would be the outermost, and its release would commit.
            sqlite3.Cursor(connection).execute("BEGIN IMMEDIATE")

    async def commit(self) -> None:
        raise DatabaseError("this transaction was enlisted: commit it where it was opened")

    async def rollback(self) -> None:
        raise DatabaseError("this transaction was enlisted: roll it back where it was opened")

    def abandon(self) -> None:
        """Nothing to do: the transaction is the caller's."""


async def _driver_of(connection: Any) -> aiosqlite.Connection:
    if isinstance(connection, aiosqlite.Connection):
        return connection
    alchemy = sys.modules["sqlalchemy.ext.asyncio"]
    if isinstance(connection, alchemy.AsyncSession):
        connection = await connection.connection()
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    assert isinstance(driver, aiosqlite.Connection)
    return driver
