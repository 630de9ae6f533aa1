"""The connection that a caller's transaction runs on, and how alkstore's own operations get onto it.

It is aiosqlite's, with a connection class underneath that begins the transaction with the first statement (so that a
transaction costs no round trip by itself), and that keeps commit and rollback to `Transaction.commit` and `rollback`.
One thread and one SQLite connection serve one transaction after the other; what a caller holds serves only theirs.
"""

import asyncio
import contextlib
import re
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import aiosqlite

from alkstore_sqlite.database import Database, begin_immediate
from alkstore_sqlite.migrations import SchemaCheck
from alkstore_sqlite.promises import Promises

T = TypeVar("T")

_SKIPPED = re.compile(r"[\s;\ufeff]+|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
"""What SQLite skips: blanks, a byte order mark, and comments."""
_SPECIAL = re.compile(
    r"(?:"
    r"(?P<ends>BEGIN|COMMIT|END|ROLLBACK(?!\s+(?:TRANSACTION\s+)?TO\b))"
    r"|(?P<before>PRAGMA\s+(?:\w+\s*\.\s*)?foreign_keys)"
    r"|(?P<lasts>PRAGMA|ATTACH|DETACH|CREATE)"
    r")\b",
    re.IGNORECASE,
)
"""Statements that begin or end a transaction, which ROLLBACK TO a savepoint does not; one that does nothing inside; and
those that may leave something on the connection that outlasts it."""
_ALTERING = (
    "create_aggregate",
    "create_collation",
    "create_function",
    "create_window_function",
    "deserialize",
    "enable_load_extension",
    "load_extension",
    "set_authorizer",
    "set_progress_handler",
    "set_trace_callback",
    "setconfig",
    "setlimit",
)
"""Calls that leave something on it."""


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
        self.is_open = False
        """Whether it is in a caller's transaction."""
        self.is_given_up = False
        """Whether that one is being rolled back, so that it need not wait for its BEGIN any more."""
        self.patience = 0.0
        """How many seconds to wait for foreign writers."""
        self.check_schema: Callable[[sqlite3.Cursor], object]
        self.begun = False
        """Whether this transaction's BEGIN was executed."""
        self.promises = Promises()
        """What this transaction's caller was told is done, and is not yet."""
        self._foreign_keys: tuple[int] | None = None
        """How that pragma was before this transaction set it."""
        self.is_altered = False
        """Whether something was set on it that the next transaction must not find."""
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()

    def enter(self, sql: str = "") -> None:
        """Begin the transaction if this is its first statement; else do what was promised before it.

        Raises:
            sqlite3.ProgrammingError: the transaction has ended, or `sql` would end it.
            sqlite3.OperationalError: it cannot begin: another writer was too slow, or it is rolled back already; or
                what was promised cannot be done.
            DatabaseError: the file's schema is newer by now (X2).
        """
        if not self.is_open:
            raise sqlite3.ProgrammingError("this transaction has ended: begin another one")
        start = 0
        while skipped := _SKIPPED.match(sql, start):
            start = skipped.end()
        special = _SPECIAL.match(sql, start)
        if special is not None:
            if special["ends"]:
                raise sqlite3.ProgrammingError(
                    f"{sql.strip()!r} is for the transaction itself: call its commit() or rollback(), or use SAVEPOINT"
                )
            if special["before"] and not self.begun:
                if self._foreign_keys is None:
                    with own_cursor(self) as cursor:
                        self._foreign_keys = cursor.execute("PRAGMA foreign_keys").fetchone()
                return
            self.is_altered = True
        self.refuse_undone()
        self._refuse_given_up()
        if not self.begun:
            with own_cursor(self) as cursor:
                begin_immediate(cursor, time.monotonic() + self.patience, self._refuse_given_up)
                try:
                    self.check_schema(cursor)
                    self.promises.begin(cursor)
                except BaseException:
                    cursor.execute("ROLLBACK")
                    raise
            self.begun = True
        else:
            self.keep_promises()

    def keep_promises(self) -> None:
        """Do what was promised before whatever comes next.

        Raises:
            sqlite3.Error: that was not possible.
        """
        if self.promises and self.begun:
            with own_cursor(self) as cursor:
                self.promises.keep(cursor)

    def _refuse_given_up(self, cause: sqlite3.Error | None = None) -> None:
        if self.is_given_up:
            raise sqlite3.OperationalError("this transaction was rolled back before the statement began") from cause

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
        self.is_open = self.begun = False
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

    def restore(self) -> None:
        """After the end: what this transaction set for itself is as it was."""
        if self._foreign_keys is not None:
            sqlite3.Connection.execute(self, f"PRAGMA foreign_keys = {self._foreign_keys[0]}")
            self._foreign_keys = None

    def backup(self, *arguments: Any, **options: Any) -> None:
        # From inside a transaction SQLite says for ever that it is busy, and the module asks for ever.
        raise sqlite3.ProgrammingError("a transaction cannot be backed up: use a connection of your own")

    def commit(self) -> None:
        raise sqlite3.ProgrammingError("this connection is alkstore's: call commit() on the transaction")

    def rollback(self) -> None:
        raise sqlite3.ProgrammingError("this connection is alkstore's: call rollback() on the transaction")


def _altering(name: str) -> Any:
    def call(self: CallerConnection, *arguments: Any, **options: Any) -> Any:
        self.is_altered = True
        self.keep_promises()  # an authorizer would refuse what came before it
        return getattr(sqlite3.Connection, name)(self, *arguments, **options)

    return call


for _name in _ALTERING:
    if hasattr(sqlite3.Connection, _name):  # some are newer than others
        setattr(CallerConnection, _name, _altering(_name))


class TransactionConnection(aiosqlite.Connection):
    """aiosqlite's connection as one transaction's caller has it: of no use to them once that has ended.

    A statement that comes late, from a task that was left behind, would land in somebody else's transaction.
    """

    def __init__(self, whole: aiosqlite.Connection, promises: Promises) -> None:
        # Not aiosqlite's own, which makes a thread: it shares the one of `whole`.
        self.__dict__.update(vars(whole))
        self.has_ended = False
        self.promises = promises
        """What the transaction's caller was told is done, and is not yet."""

    def __del__(self) -> None:
        """Nothing: there is nothing of its own to close."""

    def end(self) -> None:
        """From here on every call is refused."""
        self.has_ended = True

    @property
    def in_transaction(self) -> bool:
        return not self.has_ended and super().in_transaction

    @property
    def total_changes(self) -> int:
        # What was promised counts. Nothing is awaited here, so it is done at once, while the thread has nothing to do.
        connection = self._conn
        assert isinstance(connection, CallerConnection)
        if not self.promises.under_way and not self.promises.is_refused:
            with contextlib.suppress(sqlite3.Error):  # which the next statement meets again
                connection.keep_promises()
        return connection.total_changes

    @property
    def _conn(self) -> sqlite3.Connection:
        self._refuse_ended()
        return super()._conn

    async def _execute(self, fn: Any, *arguments: Any, **options: Any) -> Any:
        if self.has_ended and fn.__name__ == "close" and isinstance(fn.__self__, sqlite3.Cursor):
            return None  # it was closed with the transaction: leaving its block is no error
        self._refuse_ended()
        promises = self.promises
        promises.under_way += 1
        try:
            return await super()._execute(fn, *arguments, **options)  # type: ignore[no-untyped-call]
        except asyncio.CancelledError:
            promises.is_refused = True  # it may be about to run, or run, all the same
            raise
        finally:
            promises.under_way -= 1

    async def close(self) -> None:
        raise sqlite3.ProgrammingError("this connection is alkstore's: end the transaction instead")

    def stop(self) -> Any:
        raise sqlite3.ProgrammingError("this connection is alkstore's: end the transaction instead")

    def _refuse_ended(self) -> None:
        if self.has_ended:
            raise sqlite3.ProgrammingError("this transaction has ended: begin another one")


async def connect(database: Database) -> aiosqlite.Connection:
    """A new connection for callers' transactions."""
    check_schema = SchemaCheck(database.path)

    def connected() -> CallerConnection:
        connection = database.connect(CallerConnection, checkpoints=True)
        assert isinstance(connection, CallerConnection)
        connection.check_schema = check_schema
        connection.patience = database.busy_timeout
        return connection

    connection = aiosqlite.Connection(connected, 64)
    # aiosqlite's thread is not a daemon: a forgotten store would keep the process from ending (T15).
    connection._thread.daemon = True  # noqa: SLF001 - there is no other way to it
    return await connection


async def on_thread(connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work` on the connection's own thread, in one hop: nothing of another task comes between its statements.

    aiosqlite offers this for single statements only, and each hop costs about 0.1 ms.
    """
    return await connection._execute(work, connection._conn)  # type: ignore[no-any-return,no-untyped-call]  # noqa: SLF001


def undo(connection: sqlite3.Connection) -> None:
    """Roll back whatever is open: a connection does not, when it is closed while somebody still has a cursor of it.

    Raises:
        sqlite3.Error: it cannot be rolled back.
    """
    assert isinstance(connection, CallerConnection)
    connection.leave()  # first: with its cursors nothing is left running that an interrupt is meant for
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.OperationalError):
            sqlite3.Cursor(connection).execute("ROLLBACK")
    if connection.in_transaction:  # a late interrupt met the ROLLBACK itself
        sqlite3.Cursor(connection).execute("ROLLBACK")
    connection.restore()


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


def start(connection: aiosqlite.Connection) -> TransactionConnection:
    """Let the next statement begin a transaction; whatever the last one set for its own reads is gone."""
    raw: CallerConnection = connection._conn  # type: ignore[assignment]  # noqa: SLF001
    raw.row_factory = None
    raw.text_factory = str
    raw.is_open, raw.is_given_up = True, False
    raw.promises = Promises()
    return TransactionConnection(connection, raw.promises)


def give_up(connection: aiosqlite.Connection) -> None:
    """Whatever statement is under way is for nothing, since all is rolled back: end it soon.

    One that is about to start may miss it: call this again until the rollback has begun.
    """
    with contextlib.suppress(ValueError, sqlite3.Error):  # closed
        raw: CallerConnection = connection._conn  # type: ignore[assignment]  # noqa: SLF001
        raw.is_given_up = True
        if raw.is_open:
            raw.interrupt()


def end_alone(connection: aiosqlite.Connection, ended: Callable[[], object]) -> None:
    """Roll back and close on the connection's own thread, where nobody waits, and no event loop may be left to.

    `ended` is called after the rollback, on that thread.
    """

    def work() -> None:
        try:
            with contextlib.suppress(sqlite3.Error, ValueError):
                undo(connection._conn)  # noqa: SLF001
        finally:
            connection.stop()
            ended()

    connection._tx.put_nowait((None, work))  # noqa: SLF001
