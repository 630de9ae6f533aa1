"""The two sessions: every call a commit of its own, or many calls in one transaction."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from alkstore_core.engine import EngineTransaction

from alkstore_mem.connection import Connection
from alkstore_mem.database import Changes
from alkstore_mem.locks import LockSession
from alkstore_mem.mailboxes import MailboxSession
from alkstore_mem.notify import NotifySession
from alkstore_mem.queues import QueueSession
from alkstore_mem.scheduler import SchedulerSession
from alkstore_mem.streams import StreamSession
from alkstore_mem.writer import Turn

if TYPE_CHECKING:
    from alkstore_mem.engine import MemEngine


class _Primitives(NotifySession, StreamSession, QueueSession, LockSession, SchedulerSession, MailboxSession):
    def __init__(self, engine: "MemEngine") -> None:
        self._engine = engine

    def now(self) -> int:
        return self._engine.now()


class Autocommit(_Primitives):
    """Each call waits for the writer slot if it writes, and commits by itself."""

    async def reading(self) -> AbstractContextManager[Changes]:
        await asyncio.sleep(0)  # a turn for other tasks, as with any database
        return self._committed()

    @contextmanager
    def _committed(self) -> Iterator[Changes]:
        database = self._engine.database
        with database.exclusive():
            yield Changes(database)

    async def writing(self) -> AbstractContextManager[Changes]:
        await asyncio.sleep(0)
        turn = await self._engine.turn()
        return self._engine.database.autocommit(turn, self.now)


class MemTransaction(_Primitives, EngineTransaction):
    """A transaction that holds the writer slot, or (enlisted) another store's handle on one that does."""

    def __init__(self, engine: "MemEngine", turn: Turn, changes: Changes, connection: Connection | None = None) -> None:
        super().__init__(engine)
        self.turn = turn
        """Its place in the writer slot, which it holds as long as it is open."""
        self.changes = changes
        """What it has staged."""
        self._enlisted = connection is not None
        self._connection = connection or Connection(self)

    @property
    def connection(self) -> Connection:
        return self._connection

    async def reading(self) -> AbstractContextManager[Changes]:
        await asyncio.sleep(0)
        return self._staging()

    async def writing(self) -> AbstractContextManager[Changes]:
        return await self.reading()

    @contextmanager
    def _staging(self) -> Iterator[Changes]:
        database = self._engine.database
        with database.exclusive():
            database.slot.check(self.turn)
            yield self.changes

    async def commit(self) -> None:
        self._engine.database.commit(self.turn, self.changes, self.now)

    async def rollback(self) -> None:
        database = self._engine.database
        with database.exclusive():
            database.slot.check(self.turn)
            database.slot.leave(self.turn)

    def abandon(self) -> None:
        if not self._enlisted:
            database = self.changes.database
            database.defer(lambda: database.slot.leave(self.turn))
