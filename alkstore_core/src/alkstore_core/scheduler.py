"""Schedules: register them anywhere, fire them from one elected runner (contract section 10)."""

import asyncio
import logging
import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio

from alkstore_core.cancellation import see_through
from alkstore_core.engine import LockGrant, NewSchedule, Session
from alkstore_core.errors import AlkstoreError, DatabaseError, LeadershipLostError
from alkstore_core.names import RESERVED_PREFIX, shared_name
from alkstore_core.numbers import INT64_MAX
from alkstore_core.options import ScheduleOptions
from alkstore_core.payload import encode_payload
from alkstore_core.stopping import StopToken
from alkstore_core.timing import interval_seconds
from alkstore_core.values import Schedule
from alkstore_core.waiting import Backoff, first_of, hear
from alkstore_core.wakes import SCHEDULES_TOPIC

if TYPE_CHECKING:
    from alkstore_core.store import Store

LEADER_LOCK = f"{RESERVED_PREFIX}scheduler"
LEADER_TTL_S = 15
"""How long leadership outlives its last renewal; the longest gap in firing after a leader dies (H3)."""
_RENEW_AFTER_S = LEADER_TTL_S // 3
_STANDBY_S = 1
"""How often a runner that does not lead looks whether it can."""
_STEP_DOWN_S = 1.0
"""How long a stop waits, in real time, for a database that does not answer."""

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
    store.session()
    if stop.is_cancelled:
        return
    runner = _Runner(store)
    await first_of(stop.wait, runner.listen, runner.run)


class _Runner:
    """One call of `run_schedules`. Whatever it waits for, a stop cancels: every primitive can be (T13)."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._engine = store.engine
        self._owner = f"scheduler-{uuid.uuid4().hex}"
        self._changed = asyncio.Event()
        self._backoff = Backoff()

    async def listen(self) -> None:
        """Note each change of the schedules; without wakes, `_RENEW_AFTER_S` is the longest that one goes unnoticed."""
        await hear(self._store, SCHEDULES_TOPIC, self._changed.set, _log)

    async def run(self) -> None:
        """Stand by, lead, and step down however that ends."""
        grant = await self._elected()
        try:
            await self._lead(grant)
        finally:
            await see_through(lambda: self._step_down(grant))

    async def _elected(self) -> LockGrant:
        """Leadership, once it can be had."""
        while True:
            try:
                grant = await self._store.session().take_lock(LEADER_LOCK, self._owner, LEADER_TTL_S)
            except DatabaseError as error:
                await self._pause(error)
                continue
            self._backoff.reset()
            if grant is not None:
                return grant
            await self._engine.sleep_until(self._engine.now() + _STANDBY_S)

    async def _lead(self, grant: LockGrant) -> None:
        """Fire what is due, for ever.

        Raises:
            LeadershipLostError: the lock is not this runner's any more.
        """
        renew_at = self._renewal(grant)
        while True:
            self._changed.clear()  # a schedule registered until here is seen by the read that follows
            try:
                if self._engine.now() >= renew_at:
                    renewed = await self._store.session().renew_lock(grant, LEADER_TTL_S)
                    if renewed is None:
                        raise _lost()
                    renew_at = self._renewal(renewed)
                firing = await self._store.session().fire_next(grant)
            except DatabaseError as error:
                await self._pause(error)
                continue
            self._backoff.reset()
            if not firing.leading:
                raise _lost()
            if firing.schedule is None:  # else perhaps more are due
                until = renew_at if firing.next_fire is None else min(renew_at, firing.next_fire)
                await first_of(self._changed.wait, partial(self._engine.sleep_until, until))

    def _renewal(self, grant: LockGrant) -> int:
        """When to renew: counted from when the lock was had, since the answer may have come late."""
        if grant.expires_at == INT64_MAX:  # held within int64, so it says nothing of when that was
            return self._engine.now() + _RENEW_AFTER_S
        return grant.expires_at - LEADER_TTL_S + _RENEW_AFTER_S

    async def _step_down(self, grant: LockGrant) -> None:
        """Let another runner lead at once, if the database can be reached; else the lock lapses by itself."""
        with anyio.move_on_after(_STEP_DOWN_S), suppress(AlkstoreError):
            await self._store.session().release_lock(grant)

    async def _pause(self, error: DatabaseError) -> None:
        await self._backoff.pause(_log, "the scheduler cannot reach its database", error)


def _lost() -> LeadershipLostError:
    return LeadershipLostError(
        "another scheduler leads now, or the lock lapsed, and this one fires nothing more: run it again to stand by"
    )
