"""Schedules, fired on the server's time (contract section 10)."""

from alkstore_core.engine import Firing, LockGrant, NewSchedule
from alkstore_core.options import DEFAULT_STAMP
from alkstore_core.timing import FIRE_CAP
from alkstore_core.wakes import SCHEDULES_TOPIC, queue_topic

from alkstore_pg.names import key_of
from alkstore_pg.primitives import Primitives


class SchedulerPrimitives(Primitives):
    """Schedules."""

    async def put_schedule(self, schedule: NewSchedule) -> None:
        options = schedule.options
        name, queue = key_of(schedule.name), key_of(schedule.queue)
        await self.run(
            "put_schedule",
            name,
            None if name == schedule.name else schedule.name,
            schedule.spec,
            schedule.interval_s,
            queue,
            None if queue == schedule.queue else schedule.queue,
            schedule.payload,
            options.priority,
            options.max_attempts,
            options.expires,
            self.now_given(),
            topics=(SCHEDULES_TOPIC,),
        )

    async def delete_schedule(self, name: str) -> bool:
        return bool(await self.run("delete_schedule", key_of(name), topics=(SCHEDULES_TOPIC,)))

    async def next_fire(self) -> int | None:
        first: int | None = (await self.run("next_fire", writes=False))[0][0]
        return first

    async def fire_next(self, leader: LockGrant) -> Firing:
        records = await self.run(
            "fire_next",
            key_of(leader.name),
            leader.owner,
            leader.token,
            FIRE_CAP,
            DEFAULT_STAMP.max_attempts,
            DEFAULT_STAMP.visibility_timeout_s,
            DEFAULT_STAMP.backoff_base_s,
            DEFAULT_STAMP.dead_letter_retention_s,
            self.now_given(),
        )
        leading, schedule, queue, fired, next_fire = records[0]
        if fired:
            self.wake((queue_topic(queue),))
        return Firing(leading, schedule, fired, next_fire)
