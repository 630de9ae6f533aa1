"""The engine: what is opened and closed, and in which order."""

import asyncio
import secrets
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from alkstore_core.cancellation import see_through
from alkstore_core.clock import Clock
from alkstore_core.engine import Engine, EngineTransaction, Session
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.wakes import Subscription, WakeHub

from alkstore_pg.autocommit import AutocommitSession
from alkstore_pg.clock import ServerClock
from alkstore_pg.connections import Connection, Connections, is_alive
from alkstore_pg.dialling import Dialling
from alkstore_pg.enlisting import joined
from alkstore_pg.failures import DRIVER_ERRORS, database_error, is_loss
from alkstore_pg.listener import Listener
from alkstore_pg.migrations import prepare
from alkstore_pg.notify import channels_of
from alkstore_pg.outcome import Outcome, resolved
from alkstore_pg.patience import Patience
from alkstore_pg.sharing import Dispatcher, Records
from alkstore_pg.statements import statements
from alkstore_pg.tasks import Tasks, unless_cancelled
from alkstore_pg.transaction import Enlisted, PgTransaction, TransactionOwner
from alkstore_pg.waker import Waker

_CLOSING_GRACE_S = 2.0
"""How long what is under way may take to finish when the store is closed; then its connections are cut."""
_RESOLVE_PATIENCE_S = 60.0


class PgEngine(Engine):
    """One store's Postgres.

    Args:
        dialling: how it is reached.
        schema: where its tables are.
        migrate: whether `open` brings them up to date.
        operation_timeout: how long to wait for a connection, and then for an answer, in seconds.
        clock: a clock in place of the server's, for tests.
    """

    contract = "1.1"

    def __init__(
        self, dialling: Dialling, schema: str, *, migrate: bool, operation_timeout: float, clock: Clock | None
    ) -> None:
        self.schema = schema
        self._dialling = dialling
        self._migrate = migrate
        self._timeout_s = operation_timeout
        self._given_clock = clock
        self._sql = statements(schema)
        self._server_clock = ServerClock()
        self._clock: Clock = clock if clock is not None else self._server_clock
        self._opened = False
        self._closing = False

    def __repr__(self) -> str:
        return f"<PgEngine schema {self.schema!r} at {self._dialling.where}>"

    async def open(self) -> None:
        self._tasks = Tasks()
        self.hub = WakeHub()
        self._identity = secrets.token_hex(6)
        self._patience = Patience(self._timeout_s)
        pool = await self._dialling.pool()
        self._connections = Connections(
            pool, owned=self._dialling.owns_pool, tasks=self._tasks, acquire_timeout_s=self._timeout_s
        )
        self._dispatcher = Dispatcher(
            self._connections, self._tasks, self._sql, self._now_given, self._woken, self._patience
        )
        self._waker = Waker(self._announce)
        self._session = AutocommitSession(
            self.schema, self._dispatcher, self._tasks, self._now_given, self._woken, self.hub.wake
        )
        self._life = ""
        self._transactions = TransactionOwner(
            self._tasks, self._now_given, self._woken, self._take_back, self._resolve, lambda: self._life
        )
        self.listener = Listener(
            self.hub,
            self._dialling.connect_listener,
            self._dialling.hang_up_listener,
            self.schema,
            self._identity,
            self._sql,
            self._server_clock,
            self._connections.refresh,
            self._notify,
            self._lives,
            self._waker.heard,
            self._timeout_s,
        )
        try:
            await self._prepare()
        except BaseException:
            await see_through(self._shut)
            raise
        self._opened = True
        if self._dialling.listens_at_once:
            self.listener.start()

    async def _prepare(self) -> None:
        connection = await self._connections.acquire()
        try:
            await prepare(connection, self.schema, migrate=self._migrate)
            with self._patience(connection):
                seconds, isolation = (await connection.fetch(self._sql["clock"]))[0]
                self._lives((await connection.fetch(self._sql["life"]))[0][0])
        except DRIVER_ERRORS as error:
            raise database_error(error) from error
        finally:
            self._connections.release(connection, reset=True)
        self._server_clock.told(seconds)
        self._dispatcher.explicit = isolation != "read committed"

    async def close(self) -> None:
        await self._shut()

    async def _shut(self) -> None:
        self._opened = False
        self._closing = True
        self.hub.close()
        self._dispatcher.stop()
        self._session.stop()
        await self.listener.close()
        self._transactions.roll_back_all()
        in_order = await self._connections.all_back(_CLOSING_GRACE_S) and await self._tasks.join(_CLOSING_GRACE_S)
        await self._waker.close()
        self._connections.stop()
        if not in_order:
            self._connections.cut()
        if not await self._tasks.join(_CLOSING_GRACE_S):
            await self._tasks.cancel()
        await self._connections.close()
        self._patience.close()

    def forget(self) -> None:
        if not self._opened:
            return
        self._opened = False
        with suppress(RuntimeError):  # the loop is closed, and everything that ran on it has ended
            self.hub.home.loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        self.hub.close()
        self.listener.forget()
        self._waker.forget()
        self._connections.forget()

    def autocommit(self) -> Session:
        return self._session

    async def begin(self) -> EngineTransaction:
        try:
            connection = await self._begun()
        except DatabaseError as error:
            if error.__cause__ is None or not is_loss(error.__cause__):
                raise
            # It had died unnoticed, before anything was done on it.
            connection = await self._begun()
        return self._transactions.begun(PgTransaction(connection, self._transactions, self.schema, self._patience))

    async def _begun(self) -> Connection:
        """A connection on which a transaction has begun."""
        connection = await self._connections.acquire()
        if self._closing:
            self._connections.release(connection)
            raise ClosedError("the store was closed meanwhile: open another one")

        async def ended_with_its_connection(beginning: "asyncio.Task[None]") -> None:
            beginning.add_done_callback(lambda _: self._connections.discard(connection))

        try:
            await unless_cancelled(self._begin_on(connection), self._tasks, ended_with_its_connection)
        except DRIVER_ERRORS as error:
            self._connections.discard(connection)
            raise database_error(error, "no transaction could be begun") from error
        return connection

    async def _begin_on(self, connection: Connection) -> None:
        with self._patience(connection):
            await connection.transaction(isolation="read_committed").start()

    def enlist(self, connection: object) -> EngineTransaction:
        return Enlisted(connection, joined(connection), self.schema, self._now_given)

    async def watch(self, topic: str) -> Subscription:
        return await self.listener.watch(topic)

    def now(self) -> int:
        return self._clock.now()

    async def sleep_until(self, when: int) -> None:
        await self._clock.sleep_until(when)

    def _now_given(self) -> int | None:
        return None if self._given_clock is None else self._given_clock.now()

    def _woken(self, topics: Iterable[str]) -> None:
        """`topics` were committed: wake this process at once, and tell the others."""
        self.hub.wake(topics)
        self._waker.wake(topics)

    async def _notify(self, channel: str) -> None:
        await self._dispatcher.run_here("wake", ([channel], ""), writes=False)

    async def _announce(self, topics: list[str]) -> None:
        await self._dispatcher.run_here("wake", (channels_of(self.schema, topics), self._identity), writes=False)

    def _take_back(self, connection: Connection, in_order: bool) -> None:
        if in_order and is_alive(connection):
            self._connections.release(connection, reset=True)
        else:
            self._connections.discard(connection)

    def _lives(self, life: str) -> None:
        """The server is in that life: what begins from now on is numbered in it."""
        self._life = life

    async def _resolve(self, xid: int, life: str) -> Outcome:
        # In a task of its own, since its timeout cancels the task that it runs in.
        asking = self._tasks.start(resolved(xid, partial(self._ask_outcome, life), _RESOLVE_PATIENCE_S))
        await asyncio.wait((asking,))
        return Outcome.UNKNOWN if asking.cancelled() else asking.result()

    async def _ask_outcome(self, life: str, xid: int) -> Records:
        connection = await self._connections.acquire()
        try:
            with self._patience(connection):
                return list(await connection.fetch(self._sql["outcome"], str(xid), life))
        except DRIVER_ERRORS as error:
            self._connections.discard(connection)
            raise database_error(error) from error
        finally:
            self._connections.release(connection)
