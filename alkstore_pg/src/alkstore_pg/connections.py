"""The connections of one store: asyncpg's pool, and what keeps it honest and quick.

Asyncpg resets a connection whenever it goes back to its pool, at the price of one more round trip. The engine's own
statements leave no session state, so a connection that ran only those is kept at hand for a moment and used again; one
that a caller's transaction ran on is reset. A cancelled caller never loses a connection: whatever is under way is seen
through by a task of the engine.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import asyncpg
from alkstore_core.errors import ClosedError, DatabaseError
from asyncpg.pool import PoolConnectionProxy

from alkstore_pg.failures import DRIVER_ERRORS, database_error
from alkstore_pg.tasks import Tasks

Connection: TypeAlias = Any
"""An asyncpg connection, by itself or in its pool's wrapper: asyncpg says nothing of types."""
Pool: TypeAlias = Any

_KEPT_S = 0.2
"""How long an unused connection stays at hand before the pool gets it back."""
_RESET_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 2.0


class Connections:
    """Hands out the connections of `pool`, and takes them back.

    Args:
        pool: asyncpg's.
        owned: whether to close it with the store.
        tasks: runs what a caller must not wait for.
        acquire_timeout_s: the longest wait for a free one.
    """

    def __init__(self, pool: Pool, *, owned: bool, tasks: Tasks, acquire_timeout_s: float) -> None:
        self.pool = pool
        self._owned = owned
        self._tasks = tasks
        self._timeout_s = acquire_timeout_s
        self._kept: deque[Connection] = deque()
        self._used = False
        self._wanting = 0
        self._out: set[Connection] = set()
        self._all_back: asyncio.Future[None] | None = None
        self._returning: asyncio.TimerHandle | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Connections {len(self._out)} in use, {len(self._kept)} at hand>"

    async def acquire(self) -> Connection:
        """A working connection, waiting for a free one.

        Raises:
            DatabaseError: none came free in time, or the server cannot be reached.
            ClosedError: the store was closed.
        """
        connection = self.acquire_nowait()
        if connection is not None:
            return connection
        if self._closed:
            raise _closed()
        self._wanting += 1
        taking: asyncio.Task[Connection] | None = None
        try:
            if self.pool.get_idle_size():
                # There at once, so that a task for it would only cost. If it has died, asyncpg makes another one here.
                connection = await self._from_pool(None)
            else:
                taking = self._tasks.start(self._from_pool(self._timeout_s))
                connection = await asyncio.shield(taking)
        except asyncio.CancelledError:
            if taking is not None:
                taking.add_done_callback(self._unclaimed)
            raise
        except DRIVER_ERRORS as error:
            if self._closed:
                raise _closed() from error
            size = self.pool.get_max_size()
            raise database_error(error, f"no connection could be had (max_size is {size})") from error
        finally:
            self._wanting -= 1
        if self._closed:
            self._give_to_pool(connection)
            raise _closed()
        return self._handed_out(connection)

    async def _from_pool(self, timeout_s: float | None) -> Connection:
        return await self.pool.acquire(timeout=timeout_s)

    def acquire_nowait(self) -> Connection | None:
        """One that is at hand, or None."""
        while self._kept:
            connection = self._kept.pop()
            if is_alive(connection):
                self._used = True
                return self._handed_out(connection)
            self._give_to_pool(connection)
        return None

    def _unclaimed(self, taking: "asyncio.Task[Connection]") -> None:
        if not taking.cancelled() and taking.exception() is None:
            self._give_to_pool(taking.result())

    def release(self, connection: Connection, *, reset: bool = False) -> None:
        """Take `connection` back; in the background where that takes time.

        Args:
            connection: from `acquire`.
            reset: whether it may have a session state of its caller's.
        """
        self._taken_back(connection)
        if reset:
            connection = _withdrawn(connection)
        if reset or self._closed or self._wanting or not is_alive(connection):
            self._give_to_pool(connection)
            return
        self._kept.append(connection)
        if self._returning is None:
            self._used = True
            self._returning = asyncio.get_running_loop().call_later(_KEPT_S, self._return_unused)

    def _taken_back(self, connection: Connection) -> None:
        self._out.discard(connection)
        if self._all_back is not None and not self._out:
            _settle(self._all_back)

    def _handed_out(self, connection: Connection) -> Connection:
        self._out.add(connection)
        return connection

    async def all_back(self, grace_s: float) -> bool:
        """Wait until none is out, at most `grace_s` seconds; whether that is so."""
        if self._out:
            self._all_back = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._all_back,), timeout=grace_s)
        return not self._out

    def discard(self, connection: Connection) -> None:
        """Take `connection` back and end it: it is broken, or in a state that nobody knows (T9)."""
        with suppress(*DRIVER_ERRORS):
            connection.terminate()
        self._taken_back(connection)
        self._give_to_pool(connection)

    def give_up(self, connection: Connection) -> "asyncio.Task[None]":
        """Take `connection` back in the middle of a statement; the task ends once the server has let go of it too."""
        self._taken_back(connection)
        return self._give_to_pool(connection)

    def refresh(self) -> None:
        """The network failed: no connection that is idle now is used again."""
        while self._kept:
            self.discard(self._kept.popleft())
        if self._owned:
            self._tasks.start(self.pool.expire_connections())

    def _return_unused(self) -> None:
        self._returning = None
        if self._used:
            self._used = False
        else:
            while self._kept:
                self._give_to_pool(self._kept.popleft())
        if self._kept or self._out:
            self._returning = asyncio.get_running_loop().call_later(_KEPT_S, self._return_unused)

    def _give_to_pool(self, connection: Connection) -> "asyncio.Task[None]":
        return self._tasks.start(self._returned(connection))

    async def _returned(self, connection: Connection) -> None:
        try:
            await self.pool.release(connection, timeout=_RESET_TIMEOUT_S)
        except DRIVER_ERRORS:
            with suppress(*DRIVER_ERRORS):
                connection.terminate()

    def stop(self) -> None:
        """Hand out no more: whoever waits or asks gets `ClosedError`."""
        self._closed = True
        if self._returning is not None:
            self._returning.cancel()
            self._returning = None
        while self._kept:
            self._give_to_pool(self._kept.popleft())

    def cut(self) -> None:
        """End every connection that is still out, whatever it is doing."""
        for connection in tuple(self._out):
            self.discard(connection)

    async def close(self) -> None:
        """Close the pool, if it is the store's own."""
        if self._owned:
            await close_pool(self.pool)

    def forget(self) -> None:
        """End all connections of an own pool without waiting."""
        self._closed = True
        if self._owned:
            with suppress(*DRIVER_ERRORS, RuntimeError):
                self.pool.terminate()


def _withdrawn(connection: Connection) -> Connection:
    """The connection in another wrapper: who kept the one that was lent can do nothing with it any more (T8).

    The pool itself takes the wrapper away only once the connection is reset, which may be a round trip later.
    """
    holder = connection._holder  # noqa: SLF001 - the pool's own books, which must know the new wrapper
    raw = connection._detach()  # noqa: SLF001
    if raw is None:
        return connection
    holder._proxy = renewed = PoolConnectionProxy(holder, raw)  # noqa: SLF001
    return renewed


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def is_alive(connection: Connection) -> bool:
    """Whether `connection` can still be used, as far as this side knows."""
    own = getattr(connection, "_con", connection)
    return own is not None and not own.is_closed()


def driver_connection(connection: Connection) -> Connection:
    """Asyncpg's connection itself, the same whenever the pool hands it out again.

    Raises:
        InterfaceError: it has ended, and the pool has taken it away.
    """
    own = getattr(connection, "_con", connection)
    if own is None:
        raise asyncpg.InterfaceError("connection is closed")
    return own


async def close_pool(pool: Pool) -> None:
    """Close `pool` politely, and otherwise at once."""
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await pool.close()
    except DRIVER_ERRORS:
        pool.terminate()


async def connected(connecting: Callable[[], Awaitable[Any]], what: str) -> Any:
    """What `connecting` gives, with the driver's errors as `DatabaseError`."""
    try:
        return await connecting()
    except DRIVER_ERRORS as error:
        raise database_error(error, f"cannot connect {what}") from error
    except ValueError as error:  # a malformed DSN or option
        raise DatabaseError(f"cannot connect {what}: {error}: check the DSN and the options") from error


def _closed() -> ClosedError:
    return ClosedError("the store was closed meanwhile: open another one")
