"""For tests of code that uses alkstore: a clock that stands still until it is told to move, and what still runs."""

import asyncio
from typing import Any

from alkstore_core.cancellation import unlisted
from alkstore_core.clock import Clock
from alkstore_core.numbers import INT64_MAX, saturating_add

__all__ = ["ManualClock", "running_tasks"]


def running_tasks() -> set[asyncio.Task[Any]]:
    """All tasks of this event loop that have not ended: ``asyncio.all_tasks``, and alkstore's own, which that omits."""
    loop = asyncio.get_running_loop()
    return asyncio.all_tasks() | {task for task in unlisted if not task.done() and task.get_loop() is loop}


class ManualClock(Clock):
    """A clock for ``open(clock=...)``: `advance` moves it, and wakes whatever waits for a time.

    Reading is safe from any thread; waiting and moving belong to one event loop.
    """

    def __init__(self, now: int = 1_700_000_000) -> None:
        self._now = now
        self._sleepers: dict[asyncio.Future[None], int] = {}

    def __repr__(self) -> str:
        return f"<ManualClock at {self._now}, {len(self._sleepers)} waiting>"

    def now(self) -> int:
        return self._now

    def advance(self, seconds: int) -> int:
        """Move by `seconds`, backwards too; the new time. Sleepers that are due wake when the loop next runs."""
        return self.set(saturating_add(self._now, seconds))

    def set(self, now: int) -> int:
        """Move to `now`."""
        self._now = now
        for sleeper, when in self._sleepers.items():
            if when <= now and not sleeper.done():
                sleeper.set_result(None)
        return now

    async def sleep_until(self, when: int) -> None:
        while self._now < when or when == INT64_MAX:
            sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._sleepers[sleeper] = when
            try:
                await sleeper
            finally:
                del self._sleepers[sleeper]
