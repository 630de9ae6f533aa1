"""How long the server may take to answer.

Cancelled or timed out, asyncpg asks the server to cancel the statement, over another connection, and waits: all in vain
where the network is gone. A statement whose time is over therefore ends with its connection.
"""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any

from alkstore_pg.failures import DRIVER_ERRORS


class answered_within:  # noqa: N801 - reads as what it does
    """Ends `connection` when the block takes longer than `seconds`, and then raises TimeoutError from it."""

    __slots__ = ("_connection", "_expired", "_seconds", "_timer")

    def __init__(self, connection: Any, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._expired = False
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        with suppress(*DRIVER_ERRORS):
            self._connection.terminate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._expired and error is not None and isinstance(error, DRIVER_ERRORS):
            raise TimeoutError(f"the server did not answer within {self._seconds} s") from error
