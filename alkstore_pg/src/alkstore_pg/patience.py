"""How long the server may take to answer.

Cancelled or timed out, asyncpg asks the server to cancel the statement, over another connection, and waits: all in vain
where the network is gone. A statement whose time is over therefore ends with its connection.
"""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any

from alkstore_pg.failures import DRIVER_ERRORS

_SECOND_LOOK_S = 0.02
"""How much longer it has. Whoever blocked the event loop kept the answer from it too, which is taken in meanwhile."""


class Patience:
    """Ends connections whose server does not answer within `seconds`.

    ``with patience(connection):`` around what is asked of it: a block that takes longer ends the connection, and then
    raises TimeoutError.
    """

    # One timer for all that is under way, armed for the first of it and left to run out: a timer for each statement,
    # nearly always cancelled, is 3 us of the 30 that a statement takes on the client.

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._under_way: dict[_Wait, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<Patience of {self.seconds} s, {len(self._under_way)} under way>"

    def __call__(self, connection: Any) -> "_Wait":
        return _Wait(self, connection)

    def began(self, wait: "_Wait") -> float:
        """Look after `wait`; until when it may last."""
        until = self._loop.time() + self.seconds
        self._under_way[wait] = None
        if self._timer is None:
            self._timer = self._loop.call_at(until, self._look)
        return until

    def ended(self, wait: "_Wait") -> None:
        """Look after `wait` no more."""
        self._under_way.pop(wait, None)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for wait in tuple(self._under_way):  # in the order in which they began
            if wait.until > now:
                break
            if wait.is_overdue:
                del self._under_way[wait]
                wait.expire()
            else:
                wait.is_overdue, wait.until = True, now + _SECOND_LOOK_S
        if self._under_way:
            self._timer = self._loop.call_at(next(iter(self._under_way)).until, self._look)

    def rest(self) -> None:
        """Nothing is going to be under way for a while: a timer left to run out would wake the process for nothing."""
        if self._timer is not None and not self._under_way:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Look after nothing any more."""
        self._under_way.clear()
        self.rest()


class Expiring:
    """A wait for a future, for a `Patience` to end: the future then fails with TimeoutError."""

    __slots__ = ("_future",)

    def __init__(self, future: "asyncio.Future[None]") -> None:
        self._future = future

    def terminate(self) -> None:
        """End the wait."""
        if not self._future.done():
            self._future.set_exception(TimeoutError("nothing came"))


class _Wait:
    """One block under a `Patience`."""

    __slots__ = ("_connection", "_expired", "_patience", "is_overdue", "until")

    def __init__(self, patience: Patience, connection: Any) -> None:
        self._patience = patience
        self._connection = connection
        self._expired = False
        self.is_overdue = False

    def __enter__(self) -> None:
        self.until = self._patience.began(self)

    def expire(self) -> None:
        self._expired = True
        with suppress(*DRIVER_ERRORS):
            self._connection.terminate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patience.ended(self)
        if self._expired and error is not None and isinstance(error, DRIVER_ERRORS):
            raise TimeoutError(f"the server did not answer within {self._patience.seconds} s") from error
