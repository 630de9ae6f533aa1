"""Waiting for whichever comes first, for wakes across outages, and longer and longer while a database is away."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from alkstore_core.cancellation import own_task, see_through
from alkstore_core.engine import Engine
from alkstore_core.errors import DatabaseError
from alkstore_core.numbers import INT64_MAX

if TYPE_CHECKING:
    from alkstore_core.store import Store


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return once one of `waits` has returned; the others are cancelled, and have ended, by then.

    Where one raises, the others are cancelled likewise, and then that error is raised, as itself and not in a group.
    """
    await _together(waits, asyncio.FIRST_COMPLETED)


async def all_of(works: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Do all of `works` at once; return once all have ended. The first error of any is raised then."""
    if len(works) == 1:  # as it mostly is, and then without a task
        await works[0]()
    elif works:
        await _together(works, asyncio.ALL_COMPLETED)


async def _together(works: Sequence[Callable[[], Awaitable[object]]], until: str) -> None:
    # No task group: who cancels all tasks would cancel its tasks one by one, and it would go on with the rest.
    async def run(work: Callable[[], Awaitable[object]]) -> None:
        await work()

    tasks = [own_task(run(work)) for work in works]
    ended: set[asyncio.Task[None]] = set()
    try:
        ended, _ = await asyncio.wait(tasks, return_when=until)
    finally:
        for task in tasks:
            task.cancel()
        await see_through(lambda: asyncio.wait(tasks))
    for task in sorted(tasks, key=lambda task: task not in ended):
        if not task.cancelled() and (failure := task.exception()) is not None:
            raise failure


async def hear(store: "Store", topic: str, woken: Callable[[], None], log: logging.Logger) -> None:
    """Call `woken` after subscribing to `topic`, and at every wake from then on, until cancelled.

    Subscribing comes first, so whoever reads because of `woken` misses nothing (S7, W2). A subscription that cannot be
    had, or that ends while the store is open, is tried again with growing pauses; meanwhile nobody is woken.

    Raises:
        ClosedError: the store was closed.
    """
    backoff = Backoff()
    while True:
        store.session()
        try:
            subscription = await store.engine.watch(topic)
        except DatabaseError as error:
            await backoff.pause(log, f"no wakes of {topic!r} can be had", error)
            continue
        try:
            woken()
            while await subscription.wait() is not None:
                backoff.reset()
                woken()
        finally:
            subscription.close()
        store.session()
        await backoff.pause(log, f"the wakes of {topic!r} have ended", None)


class Alarm:
    """Calls `ring` at the earliest of the times that it was set to, by an engine's clock; then it is unset again."""

    def __init__(self, engine: Engine, ring: Callable[[], None]) -> None:
        self._engine = engine
        self._ring = ring
        self._when = INT64_MAX
        self._sooner = asyncio.Event()

    def set(self, when: int) -> None:
        """Ring at `when`, a unix second, unless it rings before then anyway."""
        if when < self._when:
            self._when = when
            self._sooner.set()

    async def run(self) -> None:
        """Ring until cancelled."""
        while True:
            self._sooner.clear()
            if self._when == INT64_MAX:
                await self._sooner.wait()
            elif self._engine.now() < self._when:
                await first_of(self._sooner.wait, partial(self._engine.sleep_until, self._when))
            else:
                self._when = INT64_MAX
                self._ring()


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

    async def pause(self, log: logging.Logger, what: str, error: Exception | None) -> None:
        """Log `what` failed, and sleep for `next`, in real time: a database comes back in its own."""
        seconds = self.next()
        log.warning("%s; trying again in %.2f s%s", what, seconds, "" if error is None else f": {error}")
        await asyncio.sleep(seconds)

    def reset(self) -> None:
        """It worked again."""
        self._failures = 0
