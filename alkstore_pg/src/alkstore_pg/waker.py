"""What other processes are told after the commits that concern them (N7).

NOTIFY takes a lock of the whole database at commit, and costs whoever hears it. So wakes are gathered: the first goes
out at once, and what comes within a moment of it together. How long that is depends on who waits for them: listeners
answer (see `listener`), and while they do it is about a millisecond; while nobody does, most of the cost is saved.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from alkstore_core.errors import ClosedError, DatabaseError

_GATHER_S = 0.001
"""The shortest time between two announcements while somebody listens."""
_TIMES_TAKEN = 2
"""So many times as long as an announcement took, at least, nothing is announced: busy machines get fewer."""
_UNHEARD_GATHER_S = 0.004
"""The time between two while nobody is known to listen, where few commits come."""
_LONGEST_GATHER_S = 0.016
"""The longest, and while nobody is known to listen that where commits come thick and fast."""
_MANY = 8
"""So many commits within one gathering are many."""
_HEARD_FOR_S = 5.0
"""How long an answer counts: while they hear anything listeners answer more than twice in that time."""
_LAST_SEND_S = 1.0

_log = logging.getLogger("alkstore.pg")


class Waker:
    """Announces topics to other processes after the commits that woke them, many at once.

    Args:
        send: announces topics.
    """

    # Each announcement takes client time from one caller that enqueues without a pause, so while nobody answers they
    # come further apart. While a worker in another process does, a job at half load reaches it in half the time (p50)
    # that it takes with 4 to 16 ms between two.

    def __init__(self, send: Callable[[list[str]], Awaitable[object]]) -> None:
        self._send = send
        self._topics: set[str] = set()
        self._commits = 0
        self._heard_until = 0.0
        self._stirred = asyncio.Event()
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._running = self._loop.create_task(self._run())

    def wake(self, topics: Iterable[str]) -> None:
        """Announce `topics` soon: at once if nothing is under way, else with all that gathers meanwhile."""
        self._topics.update(topics)
        self._commits += 1
        if not self._stirred.is_set():
            self._stirred.set()

    @property
    def is_heard(self) -> bool:
        """Whether another process is known to wait for what is announced."""
        return self._loop.time() < self._heard_until

    def heard(self) -> None:
        """Another process answered: somebody waits for what is announced."""
        self._heard_until = self._loop.time() + _HEARD_FOR_S

    async def _run(self) -> None:
        gather_s = _UNHEARD_GATHER_S
        while self._topics or not self._closing:
            await self._stirred.wait()
            self._stirred.clear()
            topics = list(self._topics)
            self._topics.clear()
            self._commits = 0
            if topics:
                begun = self._loop.time()
                try:
                    await self._send(topics)
                except (DatabaseError, ClosedError) as error:
                    # A hint only: whoever missed it hears of its own lost connection, or looks again by itself.
                    _log.debug("%d topics could not be announced: %s", len(topics), error)
                if self.is_heard:
                    took = self._loop.time() - begun
                    await asyncio.sleep(min(max(_GATHER_S, _TIMES_TAKEN * took), _LONGEST_GATHER_S))
                else:
                    await asyncio.sleep(gather_s)
                    gather_s = min(2 * gather_s, _LONGEST_GATHER_S) if self._commits >= _MANY else _UNHEARD_GATHER_S

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
