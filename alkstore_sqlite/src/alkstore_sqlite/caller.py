"""The connection that a caller's transaction runs on, and how alkstore's own operations get onto it.

It is aiosqlite's, with a connection class underneath that begins the transaction with the first statement (so that a
transaction costs no round trip by itself), and that keeps commit and rollback to `Transaction.commit` and `rollback`.
"""

import re
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import aiosqlite

from alkstore_sqlite.database import Database, begin_immediate

T = TypeVar("T")

_SPECIAL = re.compile(
    r"(?:\s|;|--[^\n]*(?:\n|$)|/\*.*?\*/)*(?:"
    r"(?P<ends>BEGIN|COMMIT|END|ROLLBACK(?!\s+(?:TRANSACTION\s+)?TO\b))"
    r"|(?P<lasts>PRAGMA|ATTACH|DETACH|CREATE\s+TEMP(?:ORARY)?)"
    r")\b",
    re.IGNORECASE | re.DOTALL,
)
"""Statements that begin or end a transaction, which ROLLBACK TO a savepoint does not; and those that set something on
the connection that would outlast it."""


class CallerCursor(sqlite3.Cursor):
    """A cursor whose first statement begins the transaction."""

    def execute(self, sql: str, parameters: Any = (), /) -> "CallerCursor":
        _enter(self, sql)
        super().execute(sql, parameters)
        return self

    def executemany(self, sql: str, parameters: Any, /) -> "CallerCursor":
        _enter(self, sql)
        super().executemany(sql, parameters)
        return self

    def executescript(self, sql_script: str, /) -> "CallerCursor":
        raise sqlite3.ProgrammingError(
            "executescript would commit the transaction before it runs: execute the statements one by one"
        )


def _enter(cursor: CallerCursor, sql: str) -> None:
    connection = cursor.connection
    assert isinstance(connection, CallerConnection)
    connection.enter(sql)


class CallerConnection(sqlite3.Connection):
    """A connection that is in a caller's transaction, or in none and unusable."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.deadline: float | None = None
        """When to stop waiting for foreign writers, on the monotonic clock; None outside a transaction."""
        self.begun = False
        """Whether this transaction's BEGIN was executed."""
        self.is_altered = False
        """Whether something was set on it that the next transaction must not find."""
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()

    def enter(self, sql: str = "") -> None:
        """Begin the transaction if this is its first statement.

        Raises:
            sqlite3.ProgrammingError: the transaction has ended, or `sql` would end it.
        """
        if self.deadline is None:
            raise sqlite3.ProgrammingError("this transaction has ended: begin another one")
        special = _SPECIAL.match(sql)
        if special is not None:
            if special["ends"]:
                raise sqlite3.ProgrammingError(
                    f"{sql.strip()!r} is for the transaction itself: call its commit() or rollback(), or use SAVEPOINT"
                )
            self.is_altered = True
        self.refuse_undone()
        if not self.begun:
            begin_immediate(sqlite3.Cursor(self), self.deadline)
            self.begun = True

    def refuse_undone(self) -> None:
        """Raise sqlite3.OperationalError if SQLite has rolled the transaction back by itself.

        ``INSERT OR ROLLBACK``, ``RAISE(ROLLBACK)``, a full disk or an interrupt do so. What came before is gone, so
        what comes after must not land without it.
        """
        if self.begun and not self.in_transaction:
            raise sqlite3.OperationalError(
                "SQLite rolled this transaction back after an earlier error, and all of it is gone: roll it back, and "
                "begin another one"
            )

    def leave(self) -> None:
        """The transaction has ended: the connection is unusable until the next, and so are its cursors.

        One left in the middle of its rows would hold on to a snapshot, and the next transaction could not write.
        """
        self.deadline = None
        self.begun = False
        for cursor in list(self._cursors):
            cursor.close()
        self._cursors.clear()

    @property
    def isolation_level(self) -> None:
        """None: this class begins transactions itself."""

    @isolation_level.setter
    def isolation_level(self, value: object) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        # The module's own setter would commit.
        raise sqlite3.ProgrammingError("this connection is alkstore's: its transactions are not the driver's to begin")

    def cursor(self, factory: Any = None) -> Any:
        made = super().cursor(CallerCursor if factory is None else factory)
        self._cursors.add(made)
        return made

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return self.cursor().execute(sql, parameters)  # type: ignore[no-any-return]

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        return self.cursor().executemany(sql, parameters)  # type: ignore[no-any-return]

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        return self.cursor().executescript(sql_script)  # type: ignore[no-any-return]

    def commit(self) -> None:
        raise sqlite3.ProgrammingError("this connection is alkstore's: call commit() on the transaction")

    def rollback(self) -> None:
        raise sqlite3.ProgrammingError("this connection is alkstore's: call rollback() on the transaction")


async def connect(database: Database) -> aiosqlite.Connection:
    """A new connection for callers' transactions."""
    connection = aiosqlite.Connection(lambda: database.connect(CallerConnection, checkpoints=True), 64)
    # aiosqlite's thread is not a daemon: a forgotten store would keep the process from ending (T15).
    connection._thread.daemon = True  # noqa: SLF001 - there is no other way to it
    return await connection


async def on_thread(connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work` on the connection's own thread, in one hop: nothing of another task comes between its statements.

    aiosqlite offers this for single statements only, and each hop costs about 0.1 ms.
    """
    return await connection._execute(work, connection._conn)  # type: ignore[no-any-return,no-untyped-call]  # noqa: SLF001


def undo(connection: sqlite3.Connection) -> None:
    """Roll back whatever is open: a connection does not, when it is closed while somebody still has a cursor of it."""
    assert isinstance(connection, CallerConnection)
    connection.leave()
    if connection.in_transaction:
        sqlite3.Connection.rollback(connection)


@contextmanager
def own_cursor(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    """A cursor for alkstore's own statements: the caller's row and text factories are not for it."""
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    text_factory = connection.text_factory
    connection.text_factory = str
    try:
        yield cursor
    finally:
        connection.text_factory = text_factory
        cursor.close()


def is_altered(connection: aiosqlite.Connection) -> bool:
    """Whether a PRAGMA, an attached database or a temporary table may have been left on it."""
    raw: CallerConnection = connection._conn  # type: ignore[assignment]  # noqa: SLF001
    return raw.is_altered


def start(connection: aiosqlite.Connection, busy_timeout: float) -> None:
    """Let the next statement begin a transaction; whatever the last one set for its own reads is gone."""
    raw: CallerConnection = connection._conn  # type: ignore[assignment]  # noqa: SLF001
    raw.row_factory = None
    raw.text_factory = str
    raw.deadline = time.monotonic() + busy_timeout
