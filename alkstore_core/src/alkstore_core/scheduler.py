"""Schedules: register them anywhere, fire them from one elected runner (contract section 10)."""

import logging
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from alkstore_core.cancellation import see_through
from alkstore_core.engine import LockGrant, NewSchedule, Session
from alkstore_core.errors import AlkstoreError, DatabaseError, LeadershipLostError
from alkstore_core.names import RESERVED_PREFIX, shared_name
from alkstore_core.options import ScheduleOptions
from alkstore_core.payload import encode_payload
from alkstore_core.stopping import StopToken
from alkstore_core.timing import interval_seconds
from alkstore_core.values import Schedule
from alkstore_core.waiting import Backoff, first_of
from alkstore_core.wakes import SCHEDULES_TOPIC, Subscription

if TYPE_CHECKING:
    from alkstore_core.store import Store

LEADER_LOCK = f"{RESERVED_PREFIX}scheduler"
LEADER_TTL_S = 15
"""How long leadership outlives its last renewal; the longest gap in firing after a leader dies (H3)."""
_RENEW_AFTER_S = LEADER_TTL_S // 3
_STANDBY_S = 1
"""How often a runner that does not lead looks whether it can."""

_log = logging.getLogger("alkstore.scheduler")


async def schedule(
    session: Session,
    name: str,
    spec: str,
    queue: str,
    payload: object,
    *,
    priority: int,
    max_attempts: int | None,
    expires: int | None,
) -> Schedule:
    """Check, encode and store one schedule."""
    options = ScheduleOptions(priority, max_attempts, expires)
    checked = NewSchedule(
        shared_name("schedule", name),
        spec,
        interval_seconds(spec),
        shared_name("queue", queue),
        encode_payload(payload),
        options,
    )
    await session.put_schedule(checked)
    return Schedule(checked.name, checked.spec, checked.queue, options)


async def unschedule(session: Session, name: str) -> bool:
    """Drop one schedule; whether there was one."""
    return await session.delete_schedule(shared_name("schedule", name))


async def run_schedules(store: "Store", stop: StopToken) -> None:
    """Stand by until this runner leads, then fire until it is stopped or loses the lead (H3)."""
    runner = _Runner(store, stop, await store.engine.watch(SCHEDULES_TOPIC))
    try:
        grant = await runner.elected()
        if grant is not None:
            try:
                await runner.lead(grant)
            finally:
                await see_through(lambda: runner.step_down(grant))
    finally:
        runner.subscription.close()


class _Runner:
    """One call of `run_schedules`."""

    def __init__(self, store: "Store", stop: StopToken, subscription: Subscription) -> None:
        self.subscription = subscription
        self._store = store
        self._engine = store.engine
        self._stop = stop
        self._owner = f"scheduler-{uuid.uuid4().hex}"
        self._backoff = Backoff()

    async def elected(self) -> LockGrant | None:
        """Leadership, once it can be had; None if stopped before."""
        while not self._stop.is_cancelled:
            try:
                grant = await self._store.session().take_lock(LEADER_LOCK, self._owner, LEADER_TTL_S)
            except DatabaseError as error:
                await self._pause(error)
                continue
            self._backoff.reset()
            if grant is not None:
                return grant
            again = self._engine.now() + _STANDBY_S
            await first_of(self._stop.wait, lambda: self._engine.sleep_until(again))  # noqa: B023 - awaited here
        return None

    async def lead(self, grant: LockGrant) -> None:
        """Fire what is due until stopped.

        Raises:
            LeadershipLostError: the lock is not this runner's any more.
        """
        renew_at = self._engine.now() + _RENEW_AFTER_S
        while not self._stop.is_cancelled:
            self.subscription.take()  # a schedule registered until here is seen by the read that follows
            try:
                if self._engine.now() >= renew_at:
                    if await self._store.session().renew_lock(grant, LEADER_TTL_S) is None:
                        raise _lost()
                    renew_at = self._engine.now() + _RENEW_AFTER_S
                firing = await self._store.session().fire_next(grant)
            except DatabaseError as error:
                await self._pause(error)
                continue
            self._backoff.reset()
            if not firing.leading:
                raise _lost()
            if firing.schedule is not None:
                continue  # perhaps more are due
            if self.subscription.closed:
                raise DatabaseError(
                    "the store's wakes have ended, so changed schedules would go unnoticed: open another"
                )
            until = renew_at if firing.next_fire is None else min(renew_at, firing.next_fire)
            await first_of(self._stop.wait, self.subscription.wait, lambda: self._engine.sleep_until(until))  # noqa: B023

    async def step_down(self, grant: LockGrant) -> None:
        """Let another runner lead at once, if the database can be reached; else the lock lapses by itself."""
        with suppress(AlkstoreError):
            await self._store.session().release_lock(grant)

    async def _pause(self, error: DatabaseError) -> None:
        seconds = self._backoff.next()
        _log.warning("the scheduler cannot reach its database, and tries again in %.2f s: %s", seconds, error)
        await first_of(self._stop.wait, lambda: anyio.sleep(seconds))


def _lost() -> LeadershipLostError:
    return LeadershipLostError("another scheduler leads now, and this one fires nothing more: run it again to stand by")
