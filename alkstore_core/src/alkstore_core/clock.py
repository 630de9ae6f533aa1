"""The clock that memory and SQLite stores read, and that tests replace.

A Postgres store asks its server instead; a clock passed to its ``open`` takes the server's place.
"""

import asyncio
import time
from abc import ABC, abstractmethod

from alkstore_core.numbers import INT64_MAX

_LONGEST_SLEEP_S = 30.0
"""A sleeper looks at the clock again at least this often, so a clock that was set is noticed (H5)."""


class Clock(ABC):
    """Tells the time in whole unix seconds, and waits for one.

    `now` is called from any thread; `sleep_until` only on the store's event loop.
    """

    @abstractmethod
    def now(self) -> int:
        """The current unix time in whole seconds."""

    @abstractmethod
    async def sleep_until(self, when: int) -> None:
        """Return once `now()` is at least `when`, and at once if it already is."""


class SystemClock(Clock):
    """The process's own clock."""

    def now(self) -> int:
        return int(time.time())

    async def sleep_until(self, when: int) -> None:
        if when == INT64_MAX:
            await asyncio.get_running_loop().create_future()
        while (remaining := when - time.time()) > 0:  # noqa: ASYNC110 - the time itself is waited for, no event
            await asyncio.sleep(min(remaining, _LONGEST_SLEEP_S))
