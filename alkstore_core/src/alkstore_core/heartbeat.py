"""Heartbeats: what keeps the claims of a worker's running jobs alive (W3).

An engine's clock shows whole seconds, so a claim of L seconds lasts between L - 1 and L seconds of real time. Renewed
at every third of L it outlives each tick of the clock, but for L = 1: that one lapses at the next tick however often
it is renewed. It is therefore renewed for two seconds, and the first time before its handler starts.

Beats are due by the engine's clock, so that a clock which tests move moves them too. Below three seconds a third of L
is no whole second, and real time beats as well.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from math import inf

from alkstore_core.engine import Engine
from alkstore_core.errors import DatabaseError
from alkstore_core.numbers import INT64_MAX
from alkstore_core.queues import JobHandle
from alkstore_core.waiting import Backoff, all_of, first_of

_SHORTEST_LEASE_S = 2
_WHOLE_THIRD_S = 3
"""The shortest visibility timeout whose third is a whole second."""


class Heartbeat:
    """Renews the claims of all running jobs of one worker, in one task.

    Args:
        engine: whose clock the deadlines go by.
        running: the handles of the running jobs, as they are at each moment.
        log: where lost claims and outages are reported.

    Attributes:
        lost: the running jobs whose claim was found lost: they are renewed no more, and their results dropped.
    """

    def __init__(self, engine: Engine, running: Collection[JobHandle], log: logging.Logger) -> None:
        self.lost: set[JobHandle] = set()
        self._engine = engine
        self._running = running
        self._log = log
        self._next = INT64_MAX  # when to beat, by the engine's clock
        self._next_real = inf  # and by the event loop's
        self._sooner = asyncio.Event()
        self._failure: DatabaseError | None = None
        self._backoff = Backoff(longest_s=1.0)

    async def begin(self, handle: JobHandle) -> bool:
        """A job is about to start: the next beat comes soon enough for it.

        Returns:
            False if it must not start, since its claim cannot be kept until then.
        """
        if handle.claim.job.visibility_timeout_s < _SHORTEST_LEASE_S and not await self._renew(handle):
            return False
        due, due_real = _due(handle), _due_real(handle)
        if due < self._next or due_real < self._next_real:
            self._next = min(due, self._next)
            self._next_real = min(due_real, self._next_real)
            self._sooner.set()
        return True

    async def run(self) -> None:
        """Beat until cancelled.

        Raises:
            ClosedError: the store was closed.
        """
        now = asyncio.get_running_loop().time
        while True:
            self._sooner.clear()
            if self._engine.now() >= self._next or now() >= self._next_real:
                await self._beat()
                continue
            waits: list[Callable[[], Awaitable[object]]] = [self._sooner.wait]
            if self._next != INT64_MAX:
                waits.append(partial(self._engine.sleep_until, self._next))
            if self._next_real != inf:
                waits.append(partial(asyncio.sleep, self._next_real - now()))
            await first_of(*waits)

    async def _beat(self) -> None:
        now = self._engine.now()
        due = [handle for handle in self._held() if _due(handle) <= now or _due_real(handle) != inf]
        self._failure = None
        await all_of([partial(self._renew, handle) for handle in due])  # together: an engine may share one commit
        if self._failure is None:
            self._backoff.reset()
        else:
            await self._backoff.pause(self._log, "claims cannot be renewed", self._failure)
        held = self._held()
        self._next = min(map(_due, held), default=INT64_MAX)
        self._next_real = min(map(_due_real, held), default=inf)

    def _held(self) -> list[JobHandle]:
        return [handle for handle in self._running if not handle.settled and handle not in self.lost]

    async def _renew(self, handle: JobHandle) -> bool:
        try:
            landed = await handle.heartbeat(_lease(handle))
        except DatabaseError as error:
            self._failure = error
            return False
        if not landed and not handle.settled and handle in self._running:
            self.lost.add(handle)
            log_lost(self._log, handle)
        return landed


def log_lost(log: logging.Logger, handle: JobHandle) -> None:
    """Say that a claim was lost; once for each."""
    log.warning("the claim of %r was lost: it lapsed, or the job was cancelled. Its result is dropped", handle)


def _lease(handle: JobHandle) -> int:
    return max(handle.claim.job.visibility_timeout_s, _SHORTEST_LEASE_S)


def _due(handle: JobHandle) -> int:
    """When to renew the claim next, by the engine's clock: later where the handler extended it by itself."""
    lease = _lease(handle)
    return handle.lapses_at - lease + max(lease // 3, 1)


def _due_real(handle: JobHandle) -> float:
    """When to renew next a claim that was renewed just now, by the event loop's clock; inf where seconds will do."""
    visibility = handle.claim.job.visibility_timeout_s
    return inf if visibility >= _WHOLE_THIRD_S else asyncio.get_running_loop().time() + visibility / 3
