"""Schedules (contract section 10)."""

from alkstore_core.engine import Firing, LockGrant, NewSchedule
from alkstore_core.numbers import saturating_add
from alkstore_core.timing import due_boundaries
from alkstore_core.wakes import SCHEDULES_TOPIC

from alkstore_mem.database import Changes
from alkstore_mem.locks import holding
from alkstore_mem.queues import insert
from alkstore_mem.session import MemSession
from alkstore_mem.tables import ScheduleRow


def _earliest(changes: Changes) -> ScheduleRow | None:
    rows = changes.scan(changes.database.schedules).values()
    return min(rows, key=lambda row: (row.next_fire, row.schedule.name), default=None)


class SchedulerSession(MemSession):
    """The scheduler primitives."""

    async def put_schedule(self, schedule: NewSchedule) -> None:
        with await self.writing() as changes:
            schedules = changes.database.schedules
            known = changes.get(schedules, schedule.name)
            anchor = saturating_add(self.now(), schedule.interval_s)
            if known is not None and known.schedule.spec == schedule.spec:
                next_fire = min(known.next_fire, anchor)  # later only if the clock was set back meanwhile (H5)
            else:
                next_fire = anchor
            changes.put(schedules, schedule.name, ScheduleRow(schedule, next_fire))
            changes.wake(SCHEDULES_TOPIC)

    async def delete_schedule(self, name: str) -> bool:
        with await self.writing() as changes:
            schedules = changes.database.schedules
            if changes.get(schedules, name) is None:
                return False
            changes.put(schedules, name, None)
            changes.wake(SCHEDULES_TOPIC)
            return True

    async def next_fire(self) -> int | None:
        with await self.reading() as changes:
            earliest = _earliest(changes)
            return None if earliest is None else earliest.next_fire

    async def fire_next(self, leader: LockGrant) -> Firing:
        with await self.writing() as changes:
            now = self.now()
            if holding(changes, leader, now) is None:
                return Firing(leading=False)
            earliest = _earliest(changes)
            if earliest is None:
                return Firing(leading=True)
            schedule = earliest.schedule
            boundaries, following = due_boundaries(earliest.next_fire, schedule.interval_s, now)
            if not boundaries:
                return Firing(leading=True, next_fire=earliest.next_fire)
            for boundary in boundaries:
                insert(changes, now, schedule.queue, (schedule.payload,), schedule.options.stamp(boundary))
            changes.put(changes.database.schedules, schedule.name, ScheduleRow(schedule, following))
            after = _earliest(changes)
            return Firing(True, schedule.name, len(boundaries), None if after is None else after.next_fire)
