"""A clock that hurries, so that nobody has to sit through the minute after which a killed worker's claims lapse."""

import asyncio
import time

from alkstore_core import Clock

SPEED = 6
"""How many of its seconds pass in one of ours."""


class HurriedClock(Clock):
    """Runs `SPEED` times as fast as the system's from the moment `since` on, a unix time; alike in every process."""

    def __init__(self, since: float) -> None:
        self._since = since

    def now(self) -> int:
        return int(self._since + (time.time() - self._since) * SPEED)

    async def sleep_until(self, when: int) -> None:
        while (missing := when - self.now()) > 0:  # noqa: ASYNC110 - it is the time itself that is waited for
            await asyncio.sleep(min(missing / SPEED, 1.0))


def clock_options(hurried_since: float) -> dict[str, object]:
    """The option of ``open`` that has the store's clock hurry; none, and the ordinary clock, where that is 0."""
    return {"clock": HurriedClock(hurried_since)} if hurried_since else {}
