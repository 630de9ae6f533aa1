"""Waiting for whichever comes first, and pausing longer and longer while a database is away."""

import random
from collections.abc import Awaitable, Callable

import anyio


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return once one of `waits` has returned; the others are cancelled, and have ended, by then."""

    async def run(wait: Callable[[], Awaitable[object]]) -> None:
        await wait()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for wait in waits:
            group.start_soon(run, wait)


class Backoff:
    """Pauses between attempts that fail: doubling, capped, and jittered so that a fleet does not return at once."""

    def __init__(self, first_s: float = 0.05, longest_s: float = 5.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures = 0

    def next(self) -> float:
        """The seconds to pause now: between half and all of a step that doubles with each failure."""
        step = min(self._first_s * 2.0 ** min(self._failures, 30), self._longest_s)
        self._failures += 1
        return random.uniform(step / 2, step)

    def reset(self) -> None:
        """It worked again."""
        self._failures = 0
