"""What other processes are told after the commits that concern them (N7).

NOTIFY takes a lock of the whole database at commit, and costs whoever hears it. So wakes are gathered: the first goes
out at once, what comes within a few milliseconds of it together, and where many come, within some more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from alkstore_core.errors import ClosedError, DatabaseError

_GATHER_S = 0.004
"""The shortest time between two announcements, where few commits come."""
_LONGEST_GATHER_S = 0.016
"""The same where they come thick and fast: whoever waits for them has work already, nearly always."""
_MANY = 8
"""So many commits within one gathering are many."""
_LAST_SEND_S = 1.0

_log = logging.getLogger("alkstore.pg")


class Waker:
    """Announces topics to other processes after the commits that woke them, many at once.

    Args:
        send: announces topics.
    """

    # Each announcement takes client time from one caller that enqueues without a pause: they come further apart then.

    def __init__(self, send: Callable[[list[str]], Awaitable[object]]) -> None:
        self._send = send
        self._topics: set[str] = set()
        self._commits = 0
        self._stirred = asyncio.Event()
        self._closing = False
        self._running = asyncio.get_running_loop().create_task(self._run())

    def wake(self, topics: Iterable[str]) -> None:
        """Announce `topics` soon: at once if nothing is under way, else with all that gathers meanwhile."""
        self._topics.update(topics)
        self._commits += 1
        if not self._stirred.is_set():
            self._stirred.set()

    async def _run(self) -> None:
        gather_s = _GATHER_S
        while self._topics or not self._closing:
            await self._stirred.wait()
            self._stirred.clear()
            topics = list(self._topics)
            self._topics.clear()
            self._commits = 0
            if topics:
                try:
                    await self._send(topics)
                except (DatabaseError, ClosedError) as error:
                    # A hint only: whoever missed it hears of its own lost connection, or looks again by itself.
                    _log.debug("%d topics could not be announced: %s", len(topics), error)
                await asyncio.sleep(gather_s)
                gather_s = min(2 * gather_s, _LONGEST_GATHER_S) if self._commits >= _MANY else _GATHER_S

    async def close(self) -> None:
        """Announce what is left, and end."""
        self._closing = True
        self._stirred.set()
        await asyncio.wait((self._running,), timeout=_LAST_SEND_S)
        self._running.cancel()
        await asyncio.wait((self._running,))

    def forget(self) -> None:
        """End without waiting."""
        self._running.cancel()
