"""Schedules on SQLite: the operations behind `Session`'s scheduler primitives."""

from alkstore_core.engine import Firing, LockGrant, NewSchedule
from alkstore_core.numbers import saturating_add
from alkstore_core.options import ScheduleOptions
from alkstore_core.timing import due_boundaries
from alkstore_core.wakes import SCHEDULES_TOPIC

from alkstore_sqlite import locks, queues
from alkstore_sqlite.operations import Operation, Row, Scope, count, rows
from alkstore_sqlite.statements import Statements

SQL = Statements("scheduler")


def put_schedule(scope: Scope, schedule: NewSchedule) -> Operation[None]:
    """Register or replace it (H1, H2)."""
    options = schedule.options
    yield count(
        SQL.put_schedule,
        schedule.name,
        schedule.spec,
        schedule.interval_s,
        schedule.queue,
        schedule.payload,
        options.priority,
        options.max_attempts,
        options.expires,
        saturating_add(scope.now(), schedule.interval_s),
    )
    scope.topics.add(SCHEDULES_TOPIC)


def delete_schedule(scope: Scope, name: str) -> Operation[bool]:
    """Drop it; whether there was one."""
    changed: int = yield count(SQL.delete_schedule, name)
    if changed:
        scope.topics.add(SCHEDULES_TOPIC)
    return changed > 0


def next_fire(scope: Scope) -> Operation[int | None]:
    """When the earliest is due."""
    found: list[Row] = yield rows(SQL.next_fire)
    return found[0][0] if found else None


def fire_next(scope: Scope, leader: LockGrant) -> Operation[Firing]:
    """Check the lead, fire the earliest due schedule and advance it: one transaction (H4)."""
    now = scope.now()
    found: list[Row] = yield rows(locks.SQL.find_lock, leader.name)
    if not found or found[0][:2] != (leader.owner, leader.token) or found[0][2] <= now:
        return Firing(leading=False)
    found = yield rows(SQL.due_schedule, now)
    if not found:
        return Firing(leading=True, next_fire=(yield from next_fire(scope)))
    name, interval_s, queue, payload, priority, max_attempts, expires, due = found[0]
    boundaries, after = due_boundaries(due, interval_s, now)
    options = ScheduleOptions(priority, max_attempts, expires)
    for boundary in boundaries:
        yield from queues.insert_jobs(scope, queue, (payload,), options.stamp(boundary))
    yield count(SQL.advance_schedule, after, name)
    return Firing(True, name, len(boundaries), (yield from next_fire(scope)))
