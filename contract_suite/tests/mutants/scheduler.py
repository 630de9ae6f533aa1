"""Engines whose schedulers are wrong."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

import anyio
from alkstore_contract_suite.mutation import mutant, rewrite
from alkstore_core import scheduler as core
from alkstore_core import timing
from alkstore_core.engine import Firing
from alkstore_core.errors import AlkstoreError, InvalidSpecError, LeadershipLostError
from alkstore_core.numbers import INT64_MAX, saturating_add
from alkstore_core.stopping import StopToken
from alkstore_core.store import Store
from alkstore_core.timing import FIRE_CAP, interval_seconds
from alkstore_core.wakes import SCHEDULES_TOPIC
from alkstore_mem import scheduler
from alkstore_mem.engine import MemEngine
from alkstore_mem.locks import LockSession
from alkstore_mem.queues import insert
from alkstore_mem.scheduler import SchedulerSession
from alkstore_mem.tables import ScheduleRow
from alkstore_sqlite import scheduler as sqlite_scheduler

# registering


@mutant(kills=["scheduler/schedule_says_what_it_is"])
def forgets_the_options_in_what_it_returns(patch):
    async def schedule(self, name, spec, queue, payload, **options):
        registered = await right(self, name, spec, queue, payload, **options)
        return core.Schedule(registered.name, registered.spec, registered.queue, core.ScheduleOptions())

    right = Store.schedule
    patch.setattr(Store, "schedule", schedule)


def _interval(patch, read):
    """Let `read` say how long an interval is."""
    patch.setattr(core, "interval_seconds", read)


@mutant(kills=["scheduler/intervals_are_exact"])
def takes_m_for_milliseconds(patch):
    _interval(
        patch, lambda spec: max(interval_seconds(spec) // 60_000, 1) if spec[-1] == "m" else interval_seconds(spec)
    )


@mutant(kills=["scheduler/other_specs_are_refused"])
def takes_blanks_and_capitals_in_a_spec(patch):
    _interval(patch, lambda spec: interval_seconds(spec.strip().lower() if isinstance(spec, str) else spec))


@mutant(kills=["scheduler/other_specs_are_refused"])
def takes_the_digits_of_other_scripts(patch):
    def read(spec):
        if isinstance(spec, str):
            spec = "".join(str(int(letter)) if letter.isdigit() else letter for letter in spec)
        return interval_seconds(spec)

    _interval(patch, read)


@mutant(kills=["scheduler/other_specs_are_refused"])
def holds_long_intervals_at_the_limit(patch):
    def read(spec):
        head, digits, unit = spec[:7], spec[7:-1], spec[-1:]
        if isinstance(spec, str) and head == "@every " and unit in "smhd" and digits.isdecimal() and len(digits) > 18:
            return INT64_MAX
        return interval_seconds(spec)

    _interval(patch, lambda spec: read(spec) if isinstance(spec, str) else interval_seconds(spec))


@mutant(kills=["scheduler/other_specs_are_refused"])
def drops_the_old_schedule_before_it_reads_the_spec(patch):
    async def schedule(self, name, spec, queue, payload, **options):
        known = await self.unschedule(name)
        registered = await right(self, name, spec, queue, payload, **options)
        assert known is not None
        return registered

    right = Store.schedule
    patch.setattr(Store, "schedule", schedule)


@mutant(kills=["scheduler/longest_specs_are_accepted", "scheduler/idle_runners_rest", "scheduler/end_of_time"])
def wraps_the_next_fire_at_the_limit(patch):
    def wrapping(left, right):
        return (left + right + 2**63) % 2**64 - 2**63

    patch.setattr(scheduler, "saturating_add", wrapping)


@mutant(kills=["scheduler/longest_specs_are_accepted"])
def takes_an_interval_of_a_century_at_most(patch):
    def read(spec):
        seconds = interval_seconds(spec)
        if seconds > 100 * 365 * 86_400:
            raise InvalidSpecError(f"{spec!r} is too long", spec)
        return seconds

    _interval(patch, read)


@mutant(kills=["scheduler/refused_arguments_register_nothing"])
def registers_before_it_checks(patch):
    async def schedule(self, name, spec, queue, payload, **options):
        await right(self, name, spec, queue, None)
        return await right(self, name, spec, queue, payload, **options)

    right = Store.schedule
    patch.setattr(Store, "schedule", schedule)


def _firing(patch, stamp):
    """Let fired jobs be stamped by `stamp` (options, boundary)."""

    def inserting(changes, now, queue, payloads, stamped):
        return insert(changes, now, queue, payloads, stamp(stamped))

    patch.setattr(scheduler, "insert", inserting)


@mutant(kills=["scheduler/fired_job_is_stamped", "scheduler/upsert_replaces_everything"])
def forgets_the_options_when_it_fires(patch):
    _firing(patch, lambda stamp: core.ScheduleOptions().stamp(stamp.run_at))


@mutant(
    kills=[
        "scheduler/fired_job_is_stamped",
        "scheduler/late_fire_keeps_the_boundaries",
        "scheduler/every_elapsed_boundary_fires",
    ]
)
def makes_jobs_ready_when_they_are_fired(patch):
    _firing(patch, lambda stamp: replace(stamp, run_at=None))


def _putting(patch, put):
    """Let `put` (known row or None, new schedule, now) say the row that registering stores."""

    async def put_schedule(self, schedule):
        with await self.writing() as changes:
            schedules = changes.database.schedules
            changes.put(schedules, schedule.name, put(changes.get(schedules, schedule.name), schedule, self.now()))
            changes.wake(SCHEDULES_TOPIC)

    patch.setattr(SchedulerSession, "put_schedule", put_schedule)


def _anew(schedule, now):
    return ScheduleRow(schedule, saturating_add(now, schedule.interval_s))


@mutant(kills=["scheduler/upsert_replaces_everything", "scheduler/changed_spec_restarts"])
def ignores_a_name_that_it_knows(patch):
    _putting(patch, lambda known, schedule, now: known or _anew(schedule, now))


@mutant(kills=["scheduler/upsert_replaces_everything"])
def registers_a_name_once_for_each_queue(patch):
    async def put_schedule(self, schedule):
        with await self.writing() as changes:
            known = changes.get(changes.database.schedules, schedule.name)
            if known is not None and known.schedule.queue != schedule.queue:
                beside = replace(known.schedule, name=f"{known.schedule.name} {known.schedule.queue}")
                changes.put(changes.database.schedules, beside.name, ScheduleRow(beside, known.next_fire))
        await right(self, schedule)

    right = SchedulerSession.put_schedule
    patch.setattr(SchedulerSession, "put_schedule", put_schedule)


@mutant(kills=["scheduler/unscheduled_fires_no_more", "scheduler/dropped_schedule_starts_over"])
def keeps_a_dropped_schedule_until_it_is_registered_again(patch):
    async def delete_schedule(self, name):
        with await self.reading() as changes:
            return changes.get(changes.database.schedules, name) is not None

    patch.setattr(SchedulerSession, "delete_schedule", delete_schedule)


# when it fires


@mutant(
    kills=[
        "scheduler/intervals_are_exact",
        "scheduler/fires_at_its_boundary_and_not_before",
        "scheduler/changed_spec_restarts",
        "scheduler/dropped_schedule_starts_over",
        "scheduler/nothing_fires_without_a_runner",
    ]
)
def fires_at_registering(patch):
    def put(known, schedule, now):
        same = known is not None and known.schedule.spec == schedule.spec
        return ScheduleRow(schedule, known.next_fire if same else now)

    _putting(patch, put)


@mutant(kills=["scheduler/same_spec_keeps_the_next_fire", "scheduler/upsert_replaces_everything"])
def restarts_with_each_registering(patch):
    _putting(patch, lambda _, schedule, now: _anew(schedule, now))


@mutant(kills=["scheduler/same_spec_keeps_the_next_fire"])
def skips_what_is_overdue_when_it_is_registered_again(patch):
    def put(known, schedule, now):
        same = known is not None and known.schedule.spec == schedule.spec
        return ScheduleRow(schedule, known.next_fire) if same and now < known.next_fire else _anew(schedule, now)

    _putting(patch, put)


@mutant(kills=["scheduler/changed_spec_restarts"])
def keeps_the_next_fire_whatever_the_spec(patch):
    _putting(
        patch, lambda known, schedule, now: ScheduleRow(schedule, known.next_fire) if known else _anew(schedule, now)
    )


@mutant(kills=["scheduler/dropped_schedule_starts_over"])
def remembers_the_boundaries_of_a_dropped_schedule(patch):
    remembered = {}
    _putting(
        patch,
        lambda _, schedule, now: ScheduleRow(
            schedule, remembered.setdefault((schedule.name, schedule.spec), now + schedule.interval_s)
        ),
    )


@mutant(kills=["scheduler/nothing_fires_without_a_runner"])
def fires_when_anybody_looks(patch):
    async def claim_jobs(self, queue, worker_id, limit):
        self._engine.leader = self._engine.__dict__.get("leader") or await self.take_lock("fired here", "x", 10**9)
        while (await self.fire_next(self._engine.leader)).schedule is not None:
            pass
        return await right(self, queue, worker_id, limit)

    right = MemEngine.autocommit.__globals__["Autocommit"].claim_jobs
    patch.setattr(MemEngine.autocommit.__globals__["Autocommit"], "claim_jobs", claim_jobs)


@mutant(kills=["scheduler/running_leader_notices_changes"], hangs=True)
def tells_no_leader_of_a_change(patch):
    patch.setattr(scheduler, "SCHEDULES_TOPIC", "x:nobody")


@mutant(kills=["scheduler/running_leader_notices_changes"])
def fires_what_it_read_when_it_began_to_lead(patch):
    async def fire_next(self, leader):
        read = self._engine.__dict__.setdefault("read", {})
        with await self.writing() as changes:
            schedules = changes.database.schedules
            for name, row in changes.scan(schedules).items():
                read.setdefault(name, row.schedule)
            dropped = [name for name in read if changes.get(schedules, name) is None and not name.startswith("~")]
            for name in dropped:
                changes.put(schedules, name, ScheduleRow(read[name], self.now()))
        return await right(self, leader)

    right = SchedulerSession.fire_next
    patch.setattr(SchedulerSession, "fire_next", fire_next)


# electing a leader


def _everybody_leads(patch):
    """Let every runner lead, and believe that it leads for ever."""

    async def take_lock(self, name, owner, ttl):
        with await self.writing() as changes:
            grant = core.LockGrant(name, owner, changes.database.lock_tokens.draw(), self.now() + ttl)
            changes.put(changes.database.locks, name, grant)
            return grant

    async def renew_lock(self, grant, _):
        with await self.writing() as changes:
            changes.put(changes.database.locks, grant.name, grant)
            return grant

    patch.setattr(LockSession, "take_lock", take_lock)
    patch.setattr(LockSession, "renew_lock", renew_lock)
    patch.setattr(scheduler, "holding", lambda _, grant, __: grant)


def _decides_before_its_turn_to_write(patch):
    """Let a runner look what is due first, and fire that in a transaction that does not look again."""

    async def fire_next(self, leader):
        with await self.reading() as changes:
            earliest = scheduler._earliest(changes)
        with await self.writing() as changes:
            now = self.now()
            if scheduler.holding(changes, leader, now) is None:
                return Firing(leading=False)
            if earliest is None:
                return Firing(leading=True)
            due, following = timing.due_boundaries(earliest.next_fire, earliest.schedule.interval_s, now)
            if not due:
                return Firing(leading=True, next_fire=earliest.next_fire)
            for boundary in due:
                stamp = earliest.schedule.options.stamp(boundary)
                insert(changes, now, earliest.schedule.queue, (earliest.schedule.payload,), stamp)
            changes.put(changes.database.schedules, earliest.schedule.name, ScheduleRow(earliest.schedule, following))
            return Firing(True, earliest.schedule.name, len(due), following)

    patch.setattr(SchedulerSession, "fire_next", fire_next)


@mutant(kills=["scheduler/one_of_many_leads"])
def lets_every_runner_lead(patch):
    _everybody_leads(patch)


@mutant(kills=["scheduler/changing_leaders_fire_each_boundary_once"])
def fires_by_two_leaders_at_once(patch):
    _everybody_leads(patch)
    _decides_before_its_turn_to_write(patch)


@mutant(
    kills=["scheduler/leadership_is_renewed"],
    hangs=True,
)
def never_renews(patch):
    patch.setattr(core, "_RENEW_AFTER_S", INT64_MAX // 2)


@mutant(
    kills=["scheduler/standby_follows_a_vanished_leader", "scheduler/cancelled_runner_is_followed"],
    hangs=True,
)
def holds_leadership_until_it_is_given_up(patch):
    async def take_lock(self, name, owner, ttl):
        holders = self._engine.database.__dict__.setdefault("holders", {})
        if name == core.LEADER_LOCK and holders.setdefault(name, owner) != owner:
            return None
        return await right(self, name, owner, ttl)

    async def step_down(self, grant):
        pass

    right = LockSession.take_lock
    patch.setattr(LockSession, "take_lock", take_lock)
    patch.setattr(core._Runner, "_step_down", step_down)


@mutant(kills=["scheduler/standby_follows_a_stopped_leader", "scheduler/standby_follows_a_vanished_leader"], hangs=True)
def tries_once_to_be_elected(patch):
    async def take_lock(self, name, owner, ttl):
        grant = await right(self, name, owner, ttl)
        if grant is None and name == core.LEADER_LOCK:
            await asyncio.get_running_loop().create_future()
        return grant

    right = LockSession.take_lock
    patch.setattr(LockSession, "take_lock", take_lock)


@mutant(kills=["scheduler/standby_follows_a_vanished_leader"])
def takes_over_from_a_leader_that_lasts(patch):
    async def take_lock(self, name, owner, ttl):
        if name == core.LEADER_LOCK:
            with await self.writing() as changes:
                held = changes.get(changes.database.locks, name)
                if held is not None and self.now() > held.expires_at - ttl + 3:
                    changes.put(changes.database.locks, name, None)
        return await right(self, name, owner, ttl)

    right = LockSession.take_lock
    patch.setattr(LockSession, "take_lock", take_lock)


@mutant(
    kills=["scheduler/leader_that_lost_the_lock_ends", "scheduler/overtaken_leader_ends"],
    hangs=True,
)
def leads_on_without_the_lock(patch):
    async def renew_lock(self, grant, ttl):
        return await right(self, grant, ttl) or grant

    right = LockSession.renew_lock
    patch.setattr(LockSession, "renew_lock", renew_lock)
    patch.setattr(scheduler, "holding", lambda _, grant, __: grant)


@mutant(kills=["scheduler/leader_that_lost_the_lock_ends", "scheduler/overtaken_leader_ends"])
def ends_in_order_when_the_lead_is_lost(patch):
    async def run(store, stop):
        try:
            await right(store, stop)
        except LeadershipLostError:
            return

    right = core.run_schedules
    patch.setattr("alkstore_core.store.run_schedules", run)


@mutant(kills=["scheduler/stalled_leader_fires_nothing_more"], engine="sqlite", in_children=True)
def believes_its_own_clock_about_the_lead(patch):
    def fire_next(scope, leader):
        now = scope.now()
        if now >= leader.expires_at:
            return Firing(leading=False)
        found = yield sqlite_scheduler.rows("SELECT name, queue, payload FROM alkstore_schedules LIMIT 1")
        for name, queue, payload in found:
            stamp = core.ScheduleOptions().stamp(now)
            yield from sqlite_scheduler.queues.insert_jobs(scope, queue, (payload,), stamp)
            if now > leader.expires_at - core.LEADER_TTL_S:
                raise LeadershipLostError(f"{name} was fired, and then the lead was looked at")
        return Firing(leading=True, next_fire=now + 5)

    patch.setattr(sqlite_scheduler, "fire_next", fire_next)


@mutant(kills=["scheduler/every_services_schedules_fire"])
def fires_its_own_schedules_only(patch):
    async def put_schedule(self, schedule):
        await put(self, schedule)
        self._engine.__dict__.setdefault("own", {"~ sentinel"}).add(schedule.name)

    async def fire_next(self, leader):
        own = self._engine.__dict__.get("own", {"~ sentinel"})
        with patch.context() as within:
            within.setattr(scheduler, "_earliest", lambda changes: earliest(changes, own))
            return await fire(self, leader)

    def earliest(changes, own):
        rows = [row for row in changes.scan(changes.database.schedules).values() if row.schedule.name in own]
        return min(rows, key=lambda row: (row.next_fire, row.schedule.name), default=None)

    put, fire = SchedulerSession.put_schedule, SchedulerSession.fire_next
    patch.setattr(SchedulerSession, "put_schedule", put_schedule)
    patch.setattr(SchedulerSession, "fire_next", fire_next)


# stopping


@mutant(kills=["scheduler/stop_ends_leader_and_standby"], hangs=True)
def looks_at_the_token_when_time_passes(patch):
    async def wait(self):
        while not self.is_cancelled:  # noqa: ASYNC110 - this is the fault
            await asyncio.sleep(30)

    patch.setattr(StopToken, "wait", wait)


@mutant(kills=["scheduler/stop_ends_leader_and_standby"])
def raises_when_it_is_stopped(patch):
    async def run(store, stop):
        await right(store, stop)
        raise asyncio.CancelledError

    right = core.run_schedules
    patch.setattr("alkstore_core.store.run_schedules", run)


@mutant(kills=["scheduler/stopped_at_once"])
def fires_once_before_it_looks_at_the_token(patch):
    async def run(store, stop):
        if stop.is_cancelled:
            session = store.session()
            grant = await session.take_lock(core.LEADER_LOCK, "hasty", core.LEADER_TTL_S)
            await session.fire_next(grant)
        await right(store, stop)

    right = core.run_schedules
    patch.setattr("alkstore_core.store.run_schedules", run)


@mutant(kills=["scheduler/cancelled_runner_is_followed"])
def ends_in_order_when_it_is_cancelled(patch):
    async def run(store, stop):
        with suppress(asyncio.CancelledError):
            await right(store, stop)

    right = core.run_schedules
    patch.setattr("alkstore_core.store.run_schedules", run)


@mutant(kills=["scheduler/closed_store_ends_its_runners"])
def ends_in_order_when_its_store_is_closed(patch):
    async def run(store, stop):
        try:
            await right(store, stop)
        except AlkstoreError:
            return

    right = core.run_schedules
    patch.setattr("alkstore_core.store.run_schedules", run)


@mutant(kills=["scheduler/closed_store_ends_its_runners"], hangs=True)
def stands_by_for_a_closed_store(patch):
    async def close(self):
        self._database.leave(self)
        self._hub.closed = True

    patch.setattr(MemEngine, "close", close)


# firing what has elapsed


def _due(patch, due):
    """Let `due` (next fire, interval, now) say which boundaries fire, and the next one."""
    patch.setattr(scheduler, "due_boundaries", due)


@mutant(
    kills=[
        "scheduler/every_elapsed_boundary_fires",
        "scheduler/nothing_fires_without_a_runner",
        "scheduler/catch_up_is_capped",
        "scheduler/cap_is_of_each_schedule",
        "scheduler/interrupted_runner_neither_loses_nor_repeats",
        "scheduler/changing_leaders_fire_each_boundary_once",
        "scheduler/standby_follows_a_vanished_leader",
        "scheduler/clock_that_jumps_by_years",
    ],
    hangs=True,
)
def fires_only_the_latest_boundary(patch):
    def due(next_fire, interval, now):
        fires, following = timing.due_boundaries(next_fire, interval, now)
        return fires[-1:], following

    _due(patch, due)


@mutant(kills=["scheduler/late_fire_keeps_the_boundaries", "scheduler/catch_up_is_capped"], hangs=True)
def counts_the_next_interval_from_now(patch):
    def due(next_fire, interval, now):
        fires, following = timing.due_boundaries(next_fire, interval, now)
        return fires, now + interval if fires else following

    _due(patch, due)


@mutant(
    kills=[
        "scheduler/catch_up_is_capped",
        "scheduler/now_is_among_the_missed",
        "scheduler/cap_is_of_each_schedule",
        "scheduler/clock_that_jumps_by_years",
    ],
    hangs=True,
)
def goes_on_to_fire_what_is_beyond_the_cap(patch):
    def due(next_fire, interval, now):
        fires, following = timing.due_boundaries(next_fire, interval, now)
        return fires, fires[-1] + interval if fires else following

    _due(patch, due)


@mutant(kills=["scheduler/now_is_among_the_missed"])
def goes_on_with_a_boundary_that_has_elapsed(patch):
    def due(next_fire, interval, now):
        fires, following = timing.due_boundaries(next_fire, interval, now)
        skipped = len(fires) == FIRE_CAP and following - interval == now and fires[-1] < now
        return fires, now if skipped else following

    _due(patch, due)


@mutant(kills=["scheduler/catch_up_is_capped", "scheduler/cap_is_of_each_schedule"])
def fires_the_newest_of_what_was_missed(patch):
    def due(next_fire, interval, now):
        fires, following = timing.due_boundaries(next_fire, interval, now)
        return [following - interval * number for number in range(len(fires), 0, -1)], following

    _due(patch, due)


@mutant(kills=["scheduler/cap_is_of_each_schedule"], hangs=True)
def caps_all_schedules_together(patch):
    fired = {}

    def due(next_fire, interval, now):
        fires, following = timing.due_boundaries(next_fire, interval, now)
        allowed = FIRE_CAP - fired.get(now, 0)
        fired[now] = fired.get(now, 0) + min(len(fires), allowed)
        return (fires[:allowed] or fires[:1]), following

    _due(patch, due)


@mutant(kills=["scheduler/boundaries_of_one_second_all_fire", "scheduler/fired_job_is_stamped"], hangs=True)
def advances_whatever_is_due_with_the_first(patch):
    async def fire_next(self, leader):
        firing = await right(self, leader)
        if firing.schedule is not None:
            with await self.writing() as changes:
                for name, row in changes.scan(changes.database.schedules).items():
                    _, following = timing.due_boundaries(row.next_fire, row.schedule.interval_s, self.now())
                    changes.put(changes.database.schedules, name, ScheduleRow(row.schedule, following))
        return firing

    right = SchedulerSession.fire_next
    patch.setattr(SchedulerSession, "fire_next", fire_next)


@mutant(kills=["scheduler/settled_jobs_disturb_no_boundary"], hangs=True)
def finds_the_next_boundary_by_the_last_job(patch):
    async def fire_next(self, leader):
        with await self.writing() as changes:
            schedules, jobs = changes.database.schedules, changes.database.jobs
            for name, row in changes.scan(schedules).items():
                ready = [held.job.ready_at for held in jobs.rows.values() if held.job.queue == row.schedule.queue]
                if row.next_fire < INT64_MAX // 2 and ready and max(ready) < row.next_fire - row.schedule.interval_s:
                    changes.put(schedules, name, ScheduleRow(row.schedule, INT64_MAX))
        return await right(self, leader)

    right = SchedulerSession.fire_next
    patch.setattr(SchedulerSession, "fire_next", fire_next)


def _fire_in_two(patch, *, advance_first):
    """Let a fire be two transactions: enqueue, and advance."""

    async def fire_next(self, leader):
        with await self.writing() as changes:
            now, earliest = self.now(), scheduler._earliest(changes)
            if scheduler.holding(changes, leader, now) is None or earliest is None:
                return Firing(leading=scheduler.holding(changes, leader, now) is not None)
            schedule = earliest.schedule
            due, following = timing.due_boundaries(earliest.next_fire, schedule.interval_s, now)
            if not due:
                return Firing(leading=True, next_fire=earliest.next_fire)

        async def advance():
            with await self.writing() as changes:
                changes.put(changes.database.schedules, schedule.name, ScheduleRow(schedule, following))

        async def enqueue():
            for boundary in due:
                await self.insert_jobs(schedule.queue, (schedule.payload,), schedule.options.stamp(boundary))

        for part in (advance, enqueue) if advance_first else (enqueue, advance):
            await part()
        return Firing(True, schedule.name, len(due), following)

    patch.setattr(SchedulerSession, "fire_next", fire_next)


@mutant(kills=["scheduler/interrupted_runner_neither_loses_nor_repeats"], hangs=True)
def advances_before_it_enqueues(patch):
    _fire_in_two(patch, advance_first=True)


@mutant(kills=["scheduler/interrupted_runner_neither_loses_nor_repeats"])
def enqueues_before_it_advances(patch):
    _fire_in_two(patch, advance_first=False)


# far future, strange clocks, failures


@mutant(kills=["scheduler/idle_runners_rest"])
def looks_again_and_again(patch):
    async def sleep_until(self, when):
        while self.now() < when:  # noqa: ASYNC110 - this is the fault
            await asyncio.sleep(0)

    patch.setattr(MemEngine, "sleep_until", sleep_until)


@mutant(kills=["scheduler/end_of_time"])
def fires_what_is_held_at_the_end_of_time(patch):
    def due(next_fire, interval, now):
        return ([next_fire], next_fire) if next_fire == INT64_MAX else timing.due_boundaries(next_fire, interval, now)

    def slowly(next_fire, interval, now):
        fires, following = due(next_fire, interval, now)
        return (fires, INT64_MAX - 1) if next_fire == INT64_MAX else (fires, following)

    _due(patch, slowly)


@mutant(kills=["scheduler/clock_set_back"])
def fires_again_what_comes_again(patch):
    async def fire_next(self, leader):
        with await self.writing() as changes:
            for name, row in changes.scan(changes.database.schedules).items():
                if row.next_fire > self.now() + row.schedule.interval_s:
                    again = ScheduleRow(row.schedule, self.now() + row.schedule.interval_s)
                    changes.put(changes.database.schedules, name, again)
        return await right(self, leader)

    right = SchedulerSession.fire_next
    patch.setattr(SchedulerSession, "fire_next", fire_next)


@mutant(kills=["scheduler/clock_that_jumps_by_years"], hangs=True)
def gives_up_on_a_schedule_that_missed_much(patch):
    def due(next_fire, interval, now):
        fires, following = timing.due_boundaries(next_fire, interval, now)
        return (fires, INT64_MAX) if following - next_fire > 10**9 else (fires, following)

    _due(patch, due)


@mutant(kills=["scheduler/daylight_saving_changes_no_interval"])
def counts_days_by_the_wall_clock(patch):
    def due(next_fire, interval, now):
        fires = []
        while next_fire <= now and len(fires) < FIRE_CAP:
            fires.append(next_fire)
            if interval % 86_400:
                next_fire += interval
            else:
                wall = time.localtime(next_fire)
                next_fire = int(time.mktime((*wall[:2], wall.tm_mday + interval // 86_400, *wall[3:6], 0, 0, -1)))
        return fires, next_fire

    _due(patch, due)


@mutant(kills=["scheduler/failed_commits_are_tried_again"], engine="sqlite")
def ends_where_a_commit_fails(patch):
    async def pause(_, error):
        raise error

    patch.setattr(core._Runner, "_pause", pause)


@mutant(kills=["scheduler/election_survives_an_outage"], engine="sqlite", hangs=True)
def pauses_without_looking_at_the_token(patch):
    async def pause(*_):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(3)

    patch.setattr(core._Runner, "_pause", pause)


@mutant(kills=["scheduler/registering_again_after_a_clock_set_back"])
def keeps_a_next_fire_of_another_time(patch):
    rewrite(patch, SchedulerSession, "put_schedule", "min(known.next_fire, anchor)", "known.next_fire")
