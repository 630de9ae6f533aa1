"""The engine: a store's share in a database, its listeners and its clock."""

import asyncio
from contextlib import suppress

from alkstore_core.clock import Clock
from alkstore_core.engine import Engine
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.wakes import Subscription, WakeHub

from alkstore_mem.connection import Connection
from alkstore_mem.database import Changes, Database, join_database
from alkstore_mem.transaction import Autocommit, MemTransaction
from alkstore_mem.writer import Turn


class MemEngine(Engine):
    """All mechanisms on a `Database` in this process. Without tasks and threads: a call does its work itself."""

    contract = "1.1"

    def __init__(self, name: str | None, clock: Clock, busy_timeout: float) -> None:
        self._name = name
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._session = Autocommit(self)
        self._database: Database | None = None

    def __repr__(self) -> str:
        return f"mem:{self._name or ''}"

    @property
    def database(self) -> Database:
        """The data.

        Raises:
            ClosedError: the store is closed.
        """
        if self._database is None:
            raise ClosedError("this store is closed: open another one")
        return self._database

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._hub = WakeHub()
        self._database = join_database(self._name, self)

    async def close(self) -> None:
        database, self._database = self.database, None
        with database.exclusive():
            database.leave(self)
        self._hub.close()

    def forget(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.defer(lambda: database.leave(self))
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                self._loop.call_soon_threadsafe(self._hub.close)

    def autocommit(self) -> Autocommit:
        return self._session

    async def turn(self) -> Turn:
        """The writer slot, waited for; whoever gets it sees to its end.

        Raises:
            DatabaseError, ClosedError: as `WriterSlot.take`.
        """
        turn = Turn(self)
        await self.database.slot.take(turn, self._busy_timeout)
        return turn

    async def begin(self) -> MemTransaction:
        await asyncio.sleep(0)
        turn = await self.turn()
        return MemTransaction(self, turn, Changes(self.database))

    def enlist(self, connection: object) -> MemTransaction:
        if not isinstance(connection, Connection):
            raise DatabaseError(
                f"a memory store cannot join a {type(connection).__name__}: give it the 'connection' of an open "
                "transaction of a memory store on the same data"
            )
        owner = connection.transaction
        if owner.changes.database is not self.database:
            raise DatabaseError("this connection belongs to other data: open both stores with the same name")
        if self.database.slot.holder is not owner.turn:
            raise DatabaseError("the transaction of this connection has ended: enlist while it is open")
        return MemTransaction(self, owner.turn, owner.changes, connection)

    async def watch(self, topic: str) -> Subscription:
        await asyncio.sleep(0)  # wakes that other threads' commits have sent already are over first (N2)
        if self._database is None:
            raise ClosedError("this store is closed: open another one")
        return self._hub.subscribe(topic)

    def wake(self, topics: frozenset[str]) -> None:
        """Wake this store's listeners; a commit of any store on the data calls it, on whatever loop that has."""
        if self._loop is asyncio.get_running_loop():
            self._hub.wake(topics)
            return
        with suppress(RuntimeError):  # that loop is closed, and nobody waits there any more
            self._loop.call_soon_threadsafe(self._hub.wake, topics)

    def now(self) -> int:
        return self._clock.now()

    async def sleep_until(self, when: int) -> None:
        await self._clock.sleep_until(when)
