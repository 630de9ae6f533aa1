"""A caller's transaction: alkstore's operations and the caller's statements on one connection (T3 to T9)."""

import asyncio
import sqlite3
import weakref
from collections.abc import Awaitable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import aiosqlite
from alkstore_core.cancellation import own_task, see_through, unbroken
from alkstore_core.engine import EngineTransaction
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.options import JobStamp
from alkstore_core.wakes import channel_topic, queue_topic, stream_topic

from alkstore_sqlite import queues, streams
from alkstore_sqlite.caller import CallerConnection, end_alone, give_up, is_altered, on_thread, own_cursor, start, undo
from alkstore_sqlite.commits import Build, Undo
from alkstore_sqlite.operations import Scope, drive
from alkstore_sqlite.promises import EVENTS, JOBS, LONGEST
from alkstore_sqlite.session import SqliteSession
from alkstore_sqlite.writer import Lease

if TYPE_CHECKING:
    from alkstore_sqlite.engine import SqliteEngine


_HURRY_S = 0.05
"""How often a statement that keeps a rollback waiting is interrupted."""


class SqliteTransaction(SqliteSession, EngineTransaction):
    """Holds the writer slot from its beginning to its end."""

    def __init__(
        self, engine: "SqliteEngine", connection: aiosqlite.Connection, lease: Lease, holder: "asyncio.Task[Any] | None"
    ) -> None:
        self._engine = engine
        self._whole = connection
        self._connection = start(connection)
        self._lease = lease
        self._scope = Scope(engine.clock)
        self._promises = self._connection.promises
        self._ended = False
        self._holder = None if holder is None else weakref.ref(holder)  # whose result may be this very transaction

    @property
    def connection(self) -> aiosqlite.Connection:
        return self._connection

    @property
    def is_open(self) -> bool:
        """Whether it is still undecided."""
        return not self._ended

    @property
    def holder(self) -> "asyncio.Task[Any] | None":
        """The task that began it, and would wait for itself if it wrote outside of it (T11)."""
        return None if self._holder is None else self._holder()

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
            if self._ended:
                raise ClosedError("this transaction ended before this was done: begin another one") from error
            raise self._engine.failed(error) from error
        except ValueError as error:
            raise DatabaseError(f"the transaction's connection was closed: {error}") from error

    def _read(self, build: Build, *arguments: Any) -> Awaitable[Any]:
        return self._write(build, *arguments)

    async def insert_jobs(self, queue: str, payloads: Sequence[bytes], stamp: JobStamp) -> list[int]:
        if len(payloads) > 1 or not self._can_promise(payloads[0]):
            ids = await super().insert_jobs(queue, payloads, stamp)
            self._promises.note(JOBS, ids[-1])
            return ids
        id, now = self._promises.next_id(JOBS), self._scope.now()
        self._scope.topics.add(queue_topic(queue))
        self._promises.make(partial(queues.insert_job_as, id, queue, payloads[0], stamp, now))
        return [id]

    async def append_events(self, stream: str, events: Sequence[tuple[str | None, bytes]]) -> list[int]:
        if len(events) > 1 or not self._can_promise(events[0][1]):
            offsets = await super().append_events(stream, events)
            self._promises.note(EVENTS, offsets[-1])
            return offsets
        offset, now = self._promises.next_id(EVENTS), self._scope.now()
        self._scope.topics.add(stream_topic(stream))
        self._promises.make(partial(streams.append_event_as, offset, stream, *events[0], now))
        return [offset]

    async def save_offset(self, stream: str, consumer: str, offset: int) -> None:
        if self._can_promise():
            self._promises.make(partial(streams.save_offset, self._scope, stream, consumer, offset))
        else:
            await super().save_offset(stream, consumer, offset)

    async def notify(self, channel: str, payload: bytes | None) -> None:
        self._refuse_ended()
        self._scope.topics.add(channel_topic(channel))  # it is all that there is to do before the commit

    def _can_promise(self, payload: bytes = b"") -> bool:
        self._refuse_ended()
        # A transaction that SQLite has undone says so in `_write`.
        return self._promises.are_possible and len(payload) <= LONGEST and self._connection.in_transaction

    async def commit(self) -> None:
        self._end()
        await unbroken(self._commit())

    async def rollback(self) -> None:
        self._end()
        await see_through(self._hurry_back)

    def abandon(self) -> None:
        if not self._ended:
            self._end()
            give_up(self._whole)
            engine, lease = self._engine, self._lease

            def ended() -> None:
                engine.note_abandoned(self)
                lease.release()

            end_alone(self._whole, ended)

    def _end(self) -> None:
        self._refuse_ended()
        self._ended = True
        self._connection.end()

    async def _commit(self) -> None:
        engine, scope = self._engine, self._scope

        def work(connection: sqlite3.Connection) -> frozenset[str]:
            assert isinstance(connection, CallerConnection)
            connection.refuse_undone()
            topics = frozenset(scope.topics)  # here: what was under way when the commit was asked for is done by now
            if topics or connection.begun:
                connection.enter()
                with closing(sqlite3.Cursor(connection)) as cursor:
                    engine.stamps.leave(cursor, topics)
                    engine.database.check()
                    cursor.execute("COMMIT")
            connection.leave()
            connection.restore()
            return topics

        try:
            topics = await on_thread(self._whole, work)
        except BaseException as error:
            await self._discard()
            if isinstance(error, sqlite3.Error):
                raise self._engine.failed(error) from error
            if isinstance(error, ValueError):
                raise DatabaseError(f"the transaction's connection was closed: {error}") from error
            raise
        await self._finish()
        self._engine.hub.wake(topics)

    async def _hurry_back(self) -> None:
        rolling_back = own_task(self._roll_back())
        while not rolling_back.done():
            give_up(self._whole)
            await asyncio.wait((rolling_back,), timeout=_HURRY_S)
        rolling_back.result()

    async def _roll_back(self) -> None:
        try:
            await on_thread(self._whole, undo)
        except BaseException as error:
            await self._discard()
            if isinstance(error, sqlite3.Error):
                raise self._engine.database.failed(error) from error
            if isinstance(error, ValueError):
                return  # the connection is closed, and its transaction with it
            raise
        await self._finish()

    def _refuse_ended(self) -> None:
        if self._ended:
            raise ClosedError("this transaction was rolled back when its store closed: begin another one")

    async def _discard(self) -> None:
        """Throw the connection away with whatever is open on it; the next transaction gets another (T9)."""
        try:
            await self._engine.discard(self._whole)
        finally:
            self._lease.release()

    async def _finish(self) -> None:
        if is_altered(self._whole):
            await self._discard()
        else:
            self._engine.take_back(self._whole)
            self._lease.release()
