"""The SQLite engine: one file, one writer at a time, any number of processes."""

import asyncio
import atexit
import contextlib
import os
import sqlite3
import warnings
import weakref
from collections.abc import Awaitable
from typing import Any

import aiosqlite
from alkstore_core.cancellation import see_through
from alkstore_core.clock import Clock
from alkstore_core.engine import Engine, EngineTransaction, Session
from alkstore_core.errors import AlkstoreError, ClosedError, DatabaseError
from alkstore_core.wakes import Subscription, WakeHub

from alkstore_sqlite import caller
from alkstore_sqlite.commits import Build, GroupCommit, Undo
from alkstore_sqlite.database import Database, checked_library
from alkstore_sqlite.enlisted import EnlistedTransaction, Joined
from alkstore_sqlite.failures import is_full
from alkstore_sqlite.notify import Stamps
from alkstore_sqlite.readers import Readers
from alkstore_sqlite.session import SqliteSession
from alkstore_sqlite.setup import Setup
from alkstore_sqlite.transaction import SqliteTransaction
from alkstore_sqlite.watcher import Watcher
from alkstore_sqlite.writer import Lease, Writer


class Autocommit(SqliteSession):
    """Every write shares a commit with whatever else is in flight; every read has a snapshot of its own."""

    def __init__(self, engine: "SqliteEngine", writer: Writer, readers: Readers) -> None:
        self._engine = engine
        self._writer = writer
        self._readers = readers

    def _write(self, build: Build, *arguments: Any, undo: Undo | None = None) -> Awaitable[Any]:
        if self._engine.is_held:
            self._engine.refuse_waiting_for_oneself()
        return self._writer.submit(build, arguments) if undo is None else self._writer.run(build, arguments, undo)

    def _read(self, build: Build, *arguments: Any) -> Awaitable[Any]:
        return self._readers.submit(build, arguments)


class SqliteEngine(Engine):
    """One store's threads and connections on one database file."""

    contract = "1.1"

    def __init__(self, database: Database, *, poll_interval: float, readers: int, clock: Clock) -> None:
        self.database = database
        self.clock = clock
        self._poll_interval = poll_interval
        self._reader_count = readers
        self._closing = False
        self._opened = False
        self._idle_connection: aiosqlite.Connection | None = None
        self._transaction: SqliteTransaction | None = None
        self._enlisted: weakref.WeakKeyDictionary[asyncio.Task[Any], list[Joined]] = weakref.WeakKeyDictionary()
        self._free = asyncio.Event()
        """Set while no transaction has the caller's connection, or is about to."""
        self._free.set()

    def __repr__(self) -> str:
        return f"{self.database.path!r}"

    async def open(self) -> None:
        checked_library()
        self._loop = asyncio.get_running_loop()
        self.hub = WakeHub()
        self.stamps = Stamps(self.hub)
        setup = Setup(self.database)
        try:
            await see_through(setup.run)
            self._gate = setup.gate
            commits = GroupCommit(setup.connection, self.database, self.clock, self.stamps)
            self._writer = Writer(self.database, setup.gate, commits, self.hub)
            self._readers = Readers(self.database, self.clock, self._reader_count)
            self._watcher = Watcher(self.database, self.hub, self.stamps.own, self._poll_interval)
        except BaseException:
            setup.undo()
            raise
        self._writer.start()
        self._readers.start()
        self._watcher.start()
        self._autocommit = Autocommit(self, self._writer, self._readers)
        self._opened = True
        _open_engines.add(self)

    async def close(self) -> None:
        self._closing = True
        _open_engines.discard(self)
        transaction = self._transaction
        if transaction is not None:
            with contextlib.suppress(AlkstoreError):  # it may be ending already
                await transaction.rollback()
        await self._free.wait()
        self.hub.close()
        await self._watcher.close()
        await self._readers.close()
        if self._idle_connection is not None:
            await self._idle_connection.close()
            self._idle_connection = None
        await self._writer.close()
        self._gate.close()

    def forget(self) -> None:
        if self._opened and not self._closing:
            self._closing = True
            _open_engines.discard(self)
            for part in (self._watcher, self._readers, self._writer):
                part.forget()

    def autocommit(self) -> Session:
        return self._autocommit

    async def begin(self) -> EngineTransaction:
        self.refuse_closed()
        if self.is_held:
            self.refuse_waiting_for_oneself()
        lease = await self._writer.lease()
        try:
            self.refuse_closed()
            self._free.clear()
            self._transaction = None  # whoever had the slot before has ended, told here or not
            self.database.check()
            if self._idle_connection is None:
                await see_through(self._connect)
                self.refuse_closed()
            return self._begun(lease)
        except BaseException as error:
            self._free.set()
            lease.release()
            if isinstance(error, sqlite3.Error):
                raise self.database.failed(error) from error
            raise

    def enlist(self, connection: object) -> EngineTransaction:
        enlisted = EnlistedTransaction(self, connection)
        task = asyncio.current_task()
        if task is not None:
            # What was joined, and not the handles: a handle may be dropped while its transaction is still open.
            held = [other for other in self._enlisted.get(task, ()) if other.is_open]
            self._enlisted[task] = [*held, enlisted.joined]
        return enlisted

    async def watch(self, topic: str) -> Subscription:
        self.refuse_closed()
        return await self._watcher.register(topic)

    def now(self) -> int:
        return self.clock.now()

    async def sleep_until(self, when: int) -> None:
        await self.clock.sleep_until(when)

    # for this package's transactions and sessions

    def refuse_closed(self) -> None:
        """Raise ClosedError once the store is closing (T12)."""
        if self._closing:
            raise ClosedError("this store is closed: open another one")

    @property
    def is_held(self) -> bool:
        """Whether a transaction is open, so that a write by its own task would wait for itself."""
        return self._transaction is not None or len(self._enlisted) > 0

    def refuse_waiting_for_oneself(self) -> None:
        """Raise DatabaseError if the current task holds an open transaction (T11)."""
        task = asyncio.current_task()
        if task is None:
            return
        transaction = self._transaction
        held = transaction is not None and transaction.is_open and transaction.holder is task
        if held or any(joined.is_open for joined in self._enlisted.get(task, ())):
            raise DatabaseError(
                "this task holds an open transaction on this store and SQLite has one writer, so this write would "
                "wait for itself: do it on the transaction, or after its end"
            )

    def failed(self, error: sqlite3.Error) -> DatabaseError:
        """The error to raise for `error` of a transaction."""
        if is_full(error):
            self._writer.note_full_disk()
        return self.database.failed(error)

    def take_back(self, connection: aiosqlite.Connection) -> None:
        """A transaction has ended in order, and its connection is clean."""
        self._transaction = None
        self._idle_connection = connection
        self._free.set()

    async def discard(self, connection: aiosqlite.Connection) -> None:
        """A transaction did not end in order: its connection is closed, whatever is open on it."""
        try:
            with contextlib.suppress(sqlite3.Error, ValueError):
                await caller.on_thread(connection, caller.undo)
            with contextlib.suppress(sqlite3.Error, ValueError):
                await connection.close()
        finally:
            self._transaction = None
            self._free.set()

    def note_abandoned(self, transaction: SqliteTransaction) -> None:
        """A dropped transaction has been rolled back, and its connection closed. From any thread."""

        def end() -> None:
            if self._transaction is transaction:  # and not the next one already
                self._transaction = None
                self._free.set()

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(end)

    async def _connect(self) -> None:
        self._idle_connection = await caller.connect(self.database)

    def _begun(self, lease: Lease) -> SqliteTransaction:
        connection, self._idle_connection = self._idle_connection, None
        assert connection is not None
        self._transaction = SqliteTransaction(self, connection, lease, asyncio.current_task())
        return self._transaction


def _warn_of_forgotten() -> None:
    for engine in list(_open_engines):
        warnings.warn(
            f"the store on {engine!r} was still open when the process ended: close it, or use 'async with'",
            ResourceWarning,
            stacklevel=1,
        )


_open_engines: weakref.WeakSet[SqliteEngine] = weakref.WeakSet()
atexit.register(_warn_of_forgotten)
os.register_at_fork(after_in_child=_open_engines.clear)  # they are the parent's
