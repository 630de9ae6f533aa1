"""The token that ends a worker or a scheduler."""

import asyncio
from contextlib import suppress


class StopToken:
    """Says "stop" once, to any number of listeners. Cheap to make and to share.

    `cancel` may be called from any thread and from a signal handler.
    """

    __slots__ = ("_cancelled", "_waiters")

    def __init__(self) -> None:
        self._cancelled = False
        self._waiters: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        return f"<StopToken {'cancelled' if self._cancelled else 'live'}>"

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop whatever runs with this token. Idempotent."""
        self._cancelled = True
        for waiter in tuple(self._waiters):
            with suppress(RuntimeError):  # its loop is closed, and it waits for nothing any more
                waiter.get_loop().call_soon_threadsafe(_finish, waiter)

    async def wait(self) -> None:
        """Return once `cancel` was called."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            if not self._cancelled:
                await waiter
        finally:
            self._waiters.discard(waiter)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
