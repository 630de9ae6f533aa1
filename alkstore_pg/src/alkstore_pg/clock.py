"""The server's clock, as a client knows it without asking.

Statements use the server's own time; this is for waiting until something is due, and never runs ahead of the server.
"""

import asyncio
import time

from alkstore_core.clock import Clock
from alkstore_core.numbers import INT64_MAX

_LONGEST_SLEEP_S = 30.0
"""A sleeper looks again at least this often, so a server whose clock was set is noticed (H5)."""
_EARLY_S = 0.001
"""The event loop's timers may fire this much early."""


class ServerClock(Clock):
    """The server's time, carried forward by this process's monotonic clock from the last time it was told."""

    def __init__(self) -> None:
        self._ahead = time.time() - time.monotonic()

    def __repr__(self) -> str:
        return f"<ServerClock at {self.now()}>"

    def told(self, seconds: float) -> None:
        """The server said that it was `seconds`. It was so a little earlier, hence this clock lags behind by that."""
        self._ahead = seconds - time.monotonic()

    def now(self) -> int:
        return int(time.monotonic() + self._ahead)

    async def sleep_until(self, when: int) -> None:
        if when == INT64_MAX:
            await asyncio.get_running_loop().create_future()
        while (remaining := when - time.monotonic() - self._ahead) > 0:  # noqa: ASYNC110 - a clock rings no bell
            await asyncio.sleep(min(remaining + _EARLY_S, _LONGEST_SLEEP_S))
