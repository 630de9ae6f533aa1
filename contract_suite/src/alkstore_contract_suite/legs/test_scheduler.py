"""The scheduler: recurring jobs, fired by one elected runner (contract section 10)."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from random import Random

import pytest
from alkstore_core import Job, JobState, Schedule, ScheduleOptions, StopToken, Store
from alkstore_core.errors import ClosedError, CodecError, DatabaseError, InvalidSpecError, LeadershipLostError
from alkstore_core.numbers import INT64_MAX
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.harness import Harness, JobCounts, LockRow, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs import child_bodies
from alkstore_contract_suite.proofs import caught_up

LEADER = "__alkstore_scheduler"
"""The lock that runners elect their leader by (H3)."""


@asynccontextmanager
async def running(*stores: Store) -> AsyncIterator[None]:
    """A runner on each store, begun again whenever it lost the lead; stopped at the end, and each must end in order."""
    stop = StopToken()

    async def keep_running(store: Store) -> None:
        while not stop.is_cancelled:
            try:
                await store.run_schedules(stop)
            except LeadershipLostError:
                continue

    try:
        async with asyncio.TaskGroup() as group:
            for store in stores:
                group.create_task(keep_running(store))
            yield
            stop.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def led(witness: Witness, *, after: LockRow | None = None) -> LockRow:
    """The leader's lock, once a runner leads; once it has been taken or renewed since `after`."""
    while True:
        row = await witness.lock(LEADER)
        if row is not None and (after is None or row.expires_at > after.expires_at):
            return row
        await asyncio.sleep(0)


async def fired_now(store: Store, queue: str) -> list[Job]:
    """The jobs of a queue, in claim order, claimed and acked."""
    jobs = [handle.job for handle in await store.queue(queue).claim_batch("reader", 1000)]
    if jobs:
        assert await store.queue(queue).ack_batch("reader", [job.id for job in jobs]) == len(jobs)
    return jobs


async def fired(store: Store, queue: str, count: int) -> list[Job]:
    """The same, once there are `count` of them, or more."""
    jobs: list[Job] = []
    while len(jobs) < count:
        jobs += await fired_now(store, queue)
        await asyncio.sleep(0)
    return jobs


async def pass_time(harness: Harness, store: Store, seconds: int) -> None:
    """Let time pass, and have a sentinel be the last thing that is due at its end; `settled` waits for it.

    A leader fires schedules in the order in which they are due, and those of one second in the order of their names.
    """
    await store.schedule("~ sentinel", f"@every {seconds}s", "sentinels", None)
    await harness.advance(seconds)


async def settled(store: Store, queue: str) -> list[Job]:
    """All jobs that are in a queue once the leader has fired what is due, claimed and acked."""
    await fired(store, "sentinels", 1)
    assert await store.unschedule("~ sentinel") is True
    return await fired_now(store, queue)


async def nothing_left(harness: Harness, store: Store) -> None:
    """Return a second later, once the leader has fired whatever is due until then."""
    await pass_time(harness, store, 1)
    await settled(store, "sentinels")


async def at_rest(store: Store) -> None:
    """Give a runner that was woken the time to look and to wait again. No event tells of that; it may need longer."""
    for _ in range(8):
        await caught_up(store)


def boundaries(jobs: Sequence[Job]) -> list[int]:
    """The boundary that each job was fired for."""
    return [job.ready_at for job in jobs]


# registering


@leg(rules="H1", since="1.0")
async def test_schedule_says_what_it_is(store: Store) -> None:
    """Registering gives the schedule: its name, spec, queue and options."""
    plain = await store.schedule("report", "@every 5m", "reports", {"of": "sales"})
    assert plain == Schedule("report", "@every 5m", "reports", ScheduleOptions(0, None, None))
    urgent = await store.schedule("report", "@every 5m", "reports", None, priority=-3, max_attempts=2, expires=60)
    assert urgent == Schedule("report", "@every 5m", "reports", ScheduleOptions(-3, 2, 60))


@leg(rules="H1 H2 H4", since="1.0")
async def test_intervals_are_exact(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A spec of n seconds, minutes, hours or days fires first one interval after registering, and then at every one."""
    start = clock.now()
    seconds = {"7s": 7, "90s": 90, "3m": 180, "2h": 7200, "1d": 86_400}
    for interval in seconds:
        await store.schedule(interval, f"@every {interval}", interval, None)
    elapsed = 2 * 86_400 + 1
    await pass_time(harness, store, elapsed)
    async with running(store):
        await settled(store, "sentinels")
    for interval, step in seconds.items():
        expected = [start + step * number for number in range(1, min(elapsed // step, 64) + 1)]
        assert boundaries(await fired_now(store, interval)) == expected


REFUSED = (
    "",
    " ",
    "5s",
    "every 5s",
    "@every",
    "@every ",
    "@every s",
    "@every 5",
    "@every 0s",
    "@every 00m",
    "@every -5s",
    "@every +5s",
    "@every 1.5s",
    "@every 1e3s",
    "@every 0x10s",
    "@every 1_000s",
    "@every 5w",
    "@every 5ms",
    "@every 5S",
    "@EVERY 5s",
    "@every 5 s",
    "@every  5s",
    " @every 5s",
    "@every 5s ",
    "@every 5s\n",
    "@every\t5s",
    "@every 1h30m",
    "@every 5s 5s",
    "@every \u0665s",
    "@every \uff15s",
    "* * * * *",
    "0 0 * * *",
    "@hourly",
    "@daily",
    "@at 5s",
    f"@every {INT64_MAX + 1}s",
    f"@every {INT64_MAX // 60 + 1}m",
    f"@every {INT64_MAX // 3600 + 1}h",
    f"@every {INT64_MAX // 86_400 + 1}d",
    f"@every {2**64}s",
    f"@every {'9' * 10_000}d",
    "@every 5\0s",
    None,
    5,
    b"@every 5s",
)


@leg(rules="H1", since="1.0")
async def test_other_specs_are_refused(harness: Harness, store: Store, clock: ManualClock) -> None:
    """Anything but ``@every <n><unit>`` is InvalidSpecError, registers nothing, and leaves what there was alone."""
    start = clock.now()
    await store.schedule("kept", "@every 5s", "reports", "kept")
    for spec in REFUSED:
        for name in ("kept", "refused"):
            with pytest.raises(InvalidSpecError):
                await store.schedule(name, spec, "others", None)  # type: ignore[arg-type]  # what callers do
    assert await store.unschedule("refused") is False
    await pass_time(harness, store, 5)
    async with running(store):
        jobs = await settled(store, "reports")
    assert [(job.payload, job.ready_at) for job in jobs] == [(b'"kept"', start + 5)]
    assert await fired_now(store, "others") == []


@leg(rules="H1 H5", since="1.0")
async def test_longest_specs_are_accepted(harness: Harness, store: Store, witness: Witness) -> None:
    """An interval up to the int64 limit is legal in every unit, and is not reached."""
    for unit, seconds in (("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)):
        spec = f"@every {INT64_MAX // seconds}{unit}"
        assert (await store.schedule(unit, spec, "reports", None)).spec == spec
    async with running(store):
        await nothing_left(harness, store)
        await harness.advance(14)
        await nothing_left(harness, store)
    assert await witness.jobs("reports") == JobCounts()


@leg(rules="H1 V5 V6 P2", since="1.0")
async def test_refused_arguments_register_nothing(store: Store) -> None:
    """Options and payloads that an enqueue would refuse are refused at once, and nothing is registered."""
    with pytest.raises(ValueError, match="max_attempts"):
        await store.schedule("report", "@every 5s", "reports", None, max_attempts=0)
    with pytest.raises(ValueError, match="expires"):
        await store.schedule("report", "@every 5s", "reports", None, expires=2**63)
    with pytest.raises(TypeError):
        await store.schedule("report", "@every 5s", "reports", None, priority=1.5)  # type: ignore[arg-type]
    with pytest.raises(CodecError):
        await store.schedule("report", "@every 5s", "reports", float("nan"))
    assert await store.unschedule("report") is False


@leg(rules="H1 Q2", since="1.0")
async def test_fired_job_is_stamped(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A fired job has its schedule's payload and options over the queue defaults, and is ready since its boundary."""
    start = clock.now()
    await store.schedule("plain", "@every 10s", "plain", {"of": "żółw"})
    await store.schedule("urgent", "@every 10s", "urgent", [1], priority=7, max_attempts=9, expires=100)
    await pass_time(harness, store, 12)
    async with running(store):
        [plain], [urgent] = await settled(store, "plain"), await fired_now(store, "urgent")
    for job, payload, priority, expires_at, max_attempts in (
        (plain, '{"of":"żółw"}'.encode(), 0, None, 3),
        (urgent, b"[1]", 7, start + 112, 9),
    ):
        assert job == Job(
            id=job.id,
            queue=job.queue,
            payload=payload,
            state=JobState.PROCESSING,
            priority=priority,
            ready_at=start + 10,
            expires_at=expires_at,
            attempts=1,
            max_attempts=max_attempts,
            visibility_timeout_s=300,
            backoff_base_s=5,
            dead_letter_retention_s=None,
            created_at=start + 12,
            worker_id="reader",
            claimed_at=job.claimed_at,
            claim_expires_at=job.claim_expires_at,
            last_error=None,
            died_at=None,
        )


@leg(rules="H1 H2", since="1.0")
async def test_upsert_replaces_everything(harness: Harness, store: Store, second_store: Store) -> None:
    """Registering a name again replaces its queue, payload and options, and there is still one schedule of it."""
    start = harness.clock.now()
    await store.schedule("report", "@every 10s", "old", "old", priority=1, max_attempts=2, expires=60)
    await harness.advance(4)
    await second_store.schedule("report", "@every 10s", "new", "new", priority=5)
    await pass_time(harness, store, 8)
    async with running(store):
        jobs = await settled(store, "new")
    assert len(jobs) == 1
    [job] = jobs
    assert (job.payload, job.priority, job.max_attempts, job.expires_at) == (b'"new"', 5, 3, None)
    assert job.ready_at == start + 10
    assert await fired_now(store, "old") == []
    assert await store.unschedule("report") is True
    assert await store.unschedule("report") is False


@leg(rules="H1", since="1.0")
async def test_unscheduled_fires_no_more(harness: Harness, store: Store, second_store: Store) -> None:
    """A schedule that was dropped fires nothing more, not even what was due; dropping says whether there was one."""
    await store.schedule("report", "@every 5s", "reports", None)
    await store.schedule("kept", "@every 5s", "kept", None)
    await harness.advance(5)
    assert await second_store.unschedule("report") is True
    assert await store.unschedule("report") is False
    assert await store.unschedule("never there") is False
    async with running(store):
        await nothing_left(harness, store)
    assert len(await fired_now(store, "kept")) == 1
    assert await fired_now(store, "reports") == []


# when it fires


@leg(rules="H2", since="1.0")
async def test_same_spec_keeps_the_next_fire(harness: Harness, store: Store, clock: ManualClock) -> None:
    """Registering again with the same spec, however often, leaves the boundaries where they were."""
    start = clock.now()
    await store.schedule("report", "@every 60s", "reports", 0)
    for number in range(1, 8):
        await harness.advance(25)
        await store.schedule("report", "@every 60s", "reports", number)
    async with running(store):
        await nothing_left(harness, store)
    assert boundaries(await fired_now(store, "reports")) == [start + 60, start + 120]


@leg(rules="H2", since="1.0")
async def test_changed_spec_restarts(harness: Harness, store: Store, clock: ManualClock) -> None:
    """Registering again with another spec makes the first fire one new interval from then."""
    for before, after, seconds in (("@every 60s", "@every 30s", 30), ("@every 10s", "@every 70s", 70)):
        await store.schedule("report", before, "reports", "before")
        await harness.advance(50)
        changed = clock.now()
        await store.schedule("report", after, "reports", "after")
        await pass_time(harness, store, 3 * seconds)
        async with running(store):
            jobs = await settled(store, "reports")
        assert boundaries(jobs) == [changed + seconds, changed + 2 * seconds, changed + 3 * seconds]
        assert {job.payload for job in jobs} == {b'"after"'}
        assert await store.unschedule("report") is True


@leg(rules="H2", since="1.0")
async def test_dropped_schedule_starts_over(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A schedule that is registered again after it was dropped is a new one: its first fire is one interval away."""
    await store.schedule("report", "@every 60s", "reports", None)
    await harness.advance(50)
    await store.unschedule("report")
    again = clock.now()
    await store.schedule("report", "@every 60s", "reports", None)
    await pass_time(harness, store, 120)
    async with running(store):
        assert boundaries(await settled(store, "reports")) == [again + 60, again + 120]


@leg(rules="H2 H4", since="1.0")
async def test_fires_at_its_boundary_and_not_before(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A running leader fires each boundary in its own second, and nothing in between."""
    start = clock.now()
    await store.schedule("report", "@every 4s", "reports", None)
    await store.schedule("~ tick", "@every 1s", "ticks", None)
    jobs: list[Job] = []
    async with running(store):
        for _ in range(13):
            await harness.advance(1)
            await fired(store, "ticks", 1)
            jobs += await fired_now(store, "reports")
    assert [(job.ready_at, job.created_at) for job in jobs] == [(start + n, start + n) for n in (4, 8, 12)]


@leg(rules="H3", since="1.0")
async def test_nothing_fires_without_a_runner(harness: Harness, store: Store, second_store: Store) -> None:
    """However much time passes, open stores that run no schedules fire none; the first runner makes up for it."""
    start = harness.clock.now()
    await store.schedule("report", "@every 5s", "reports", None)
    for number in range(6):
        await (harness.advance(5) if number < 5 else pass_time(harness, store, 5))
        await caught_up(store)
        await caught_up(second_store)
        assert await fired_now(store, "reports") == []
    async with running(second_store):
        jobs = await settled(store, "reports")
    assert [(job.ready_at, job.created_at) for job in jobs] == [(start + 5 * n, start + 30) for n in range(1, 7)]


@leg(rules="H3 H5", since="1.0")
async def test_running_leader_notices_changes(harness: Harness, store: Store, second_store: Store) -> None:
    """A leader that waits is told of what is registered, changed and dropped meanwhile, by whatever store."""
    await store.schedule("report", "@every 1h", "reports", None)
    async with running(store):
        for registering in (second_store, store):
            await nothing_left(harness, store)
            await harness.advance(1)  # at which the leader finds the sentinel gone, and begins to wait for long
            await at_rest(store)
            changed = harness.clock.now()
            await registering.schedule("report", "@every 2s", "reports", None)
            await registering.schedule("new", "@every 1s", "new", None)
            await harness.advance(1)
            assert boundaries(await fired(store, "new", 1)) == [changed + 1]
            await harness.advance(1)
            assert boundaries(await fired(store, "reports", 1)) == [changed + 2]
            assert boundaries(await fired(store, "new", 1)) == [changed + 2]
            assert await registering.unschedule("new") is True
            await registering.schedule("report", "@every 1h", "reports", None)
            for _ in range(3):
                await nothing_left(harness, store)
            assert await fired_now(store, "reports") == []
            assert await fired_now(store, "new") == []


# electing a leader


@leg(rules="H3 H4", since="1.0")
async def test_one_of_many_leads(harness: Harness, store: Store, second_store: Store, witness: Witness) -> None:
    """Of several runners one leads and goes on to, and each boundary is fired once between them."""
    start = harness.clock.now()
    await store.schedule("report", "@every 2s", "reports", None)
    async with harness.open() as third_store, running(store, second_store, third_store, store):
        leader = await led(witness)
        for number in range(1, 16):
            await pass_time(harness, second_store, 2)
            assert boundaries(await settled(second_store, "reports")) == [start + 2 * number]
            row = await led(witness)
            assert (row.owner, row.token) == (leader.owner, leader.token)


@leg(rules="H3", since="1.0")
async def test_leadership_is_renewed(harness: Harness, store: Store, second_store: Store, witness: Witness) -> None:
    """A leader with nothing to fire renews its lock before it lapses, so that it leads for as long as it runs."""
    async with running(store):
        first = row = await led(witness)
        ttl = first.expires_at - harness.clock.now()
        async with running(second_store):
            for _ in range(8):
                await caught_up(store)  # and the leader knows that it leads
                await harness.advance(row.expires_at - harness.clock.now() - 1)
                row = await led(witness, after=row)
                assert row == LockRow(first.owner, first.token, harness.clock.now() + ttl)


@leg(rules="H3", since="1.0")
async def test_standby_follows_a_stopped_leader(
    harness: Harness, store: Store, second_store: Store, witness: Witness
) -> None:
    """When the leader is stopped, a standby leads within the lock's ttl, and fires what is due."""
    start = harness.clock.now()
    await store.schedule("report", "@every 1s", "reports", None)
    stop = StopToken()
    leading = asyncio.create_task(store.run_schedules(stop))
    leader = await led(witness)
    async with running(second_store):
        await harness.advance(1)
        jobs = await fired(store, "reports", 1)
        stop.cancel()
        await leading
        await harness.advance(leader.expires_at - start - 1)
        jobs += await fired(store, "reports", leader.expires_at - start - 1)
        assert (await led(witness)).owner != leader.owner
    assert boundaries(jobs) == list(range(start + 1, leader.expires_at + 1))


@leg(rules="H3 H4", since="1.0")
async def test_standby_follows_a_vanished_leader(
    harness: Harness, store: Store, second_store: Store, witness: Witness
) -> None:
    """When the leader is gone without a word, a standby leads once the lock has lapsed, and fires what is due, once."""
    start = harness.clock.now()
    await store.schedule("report", "@every 5s", "reports", None)
    leading = asyncio.create_task(second_store.run_schedules(StopToken()))
    leader = await led(witness)
    await at_rest(second_store)  # for a lock that is still being asked for would be given back
    async with running(store):
        await second_store.close()
        with pytest.raises(ClosedError):
            await leading
        while (remaining := leader.expires_at - harness.clock.now()) > 0:
            assert await witness.lock(LEADER) == leader
            await caught_up(store)
            await (harness.advance(2) if remaining > 2 else pass_time(harness, store, remaining))
        jobs = await settled(store, "reports")
    expected = [(boundary, leader.expires_at) for boundary in range(start + 5, leader.expires_at + 1, 5)]
    assert [(job.ready_at, job.created_at) for job in jobs] == expected


@leg(rules="H3", since="1.0")
async def test_leader_that_lost_the_lock_ends(harness: Harness, store: Store, witness: Witness) -> None:
    """A leader whose lock has lapsed fires nothing more and raises LeadershipLostError; the next one fires it all."""
    start = harness.clock.now()
    await store.schedule("report", "@every 5s", "reports", None)
    leading = asyncio.create_task(store.run_schedules(StopToken()))
    leader = await led(witness)
    await harness.advance(5)
    assert boundaries(await fired(store, "reports", 1)) == [start + 5]
    await harness.advance(leader.expires_at - start)  # which is its ttl, so that no renewal until now lasts as long
    with pytest.raises(LeadershipLostError):
        await leading
    assert await fired_now(store, "reports") == []
    async with running(store):
        await nothing_left(harness, store)
    assert boundaries(await fired_now(store, "reports")) == list(range(start + 10, harness.clock.now() + 1, 5))


@leg(rules="H3 H4", since="1.0")
async def test_overtaken_leader_ends(harness: Harness, store: Store, second_store: Store, witness: Witness) -> None:
    """When the lock lapses while a standby is there, the old leader raises and the new one fires each boundary once."""
    start = harness.clock.now()
    await store.schedule("report", "@every 5s", "reports", None)
    leading = asyncio.create_task(store.run_schedules(StopToken()))
    leader = await led(witness)
    stop = StopToken()
    standing_by = asyncio.create_task(second_store.run_schedules(stop))
    await caught_up(second_store)
    await pass_time(harness, store, 100)
    with pytest.raises(LeadershipLostError):
        await leading
    jobs = await settled(second_store, "reports")
    assert [(job.ready_at, job.created_at) for job in jobs] == [(start + 5 * n, start + 100) for n in range(1, 21)]
    assert (await led(witness, after=leader)).token > leader.token
    stop.cancel()
    await standing_by
    assert await fired_now(store, "reports") == []


@leg(rules="H3 H4", since="1.0", needs=("child",))
async def test_stalled_leader_fires_nothing_more(
    harness: Harness, store: Store, witness: Witness, children: Children
) -> None:
    """A leader in another process that slept through its lock's end raises when it wakes, and fires nothing."""
    start = harness.clock.now()
    await store.schedule("report", "@every 5s", "reports", None)
    child = await children.start(child_bodies.runs_schedules_until_it_lost)
    await child.reached("running")
    leader = await led(witness)
    expected = list(range(start + 5, leader.expires_at + 1, 5))
    await harness.advance(leader.expires_at - start)
    async with running(store):
        jobs = await fired(store, "reports", len(expected))  # without a sentinel, which would wake the sleeper
        # By its own clock its lock lasts still, and a boundary is due that has been fired.
        await child.advance(6)
        assert await child.result() == "lost"
    assert boundaries([*jobs, *await fired_now(store, "reports")]) == expected


@leg(rules="H3 H4", since="1.0")
async def test_changing_leaders_fire_each_boundary_once(harness: Harness, store: Store, second_store: Store) -> None:
    """However often the lead changes among several runners, each boundary is fired once."""
    start = harness.clock.now()
    for name in ("a", "b"):
        await store.schedule(name, "@every 5s", "reports", name)
    jobs: list[Job] = []
    async with harness.open() as third_store, running(store, second_store, third_store):
        for number in range(12):
            await pass_time(harness, store, (40, 5, 65)[number % 3])
            jobs += await settled(store, "reports")
    expected = [(boundary, name) for boundary in range(start + 5, harness.clock.now() + 1, 5) for name in ("a", "b")]
    assert sorted((job.ready_at, job.payload_as(str)) for job in jobs) == expected


@leg(rules="H3", since="1.0")
async def test_every_services_schedules_fire(harness: Harness, store: Store, second_store: Store) -> None:
    """Whoever leads fires all schedules of the database, also those that others registered."""
    start = harness.clock.now()
    await store.schedule("first", "@every 5s", "reports", "first")
    await second_store.schedule("second", "@every 5s", "reports", "second")
    for leading in (store, second_store):
        await pass_time(harness, leading, 5)
        async with running(leading):
            jobs = await settled(leading, "reports")
        assert {job.payload for job in jobs} == {b'"first"', b'"second"'}
        assert boundaries(jobs) == [harness.clock.now()] * 2
    assert harness.clock.now() == start + 10


# stopping


@leg(rules="H3", since="1.0")
async def test_stop_ends_leader_and_standby(store: Store, second_store: Store, witness: Witness) -> None:
    """A cancelled stop token ends a leader and a standby normally, without any time passing."""
    await store.schedule("report", "@every 1h", "reports", None)
    for _ in range(3):
        stop = StopToken()
        leading = asyncio.create_task(store.run_schedules(stop))
        leader = await led(witness)
        standing_by = [asyncio.create_task(either.run_schedules(stop)) for either in (store, second_store)]
        await caught_up(second_store)
        assert (await led(witness)).owner == leader.owner
        stop.cancel()
        assert await asyncio.gather(leading, *standing_by) == [None, None, None]


@leg(rules="H3", since="1.0")
async def test_stopped_at_once(harness: Harness, store: Store, witness: Witness) -> None:
    """A runner whose token was cancelled before returns normally, and fires nothing."""
    await store.schedule("report", "@every 5s", "reports", None)
    await harness.advance(10)
    stop = StopToken()
    stop.cancel()
    await store.run_schedules(stop)
    assert await fired_now(store, "reports") == []
    assert await witness.lock(LEADER) is None


@leg(rules="H3 T13", since="1.0")
async def test_cancelled_runner_is_followed(
    harness: Harness, store: Store, second_store: Store, witness: Witness
) -> None:
    """A runner that is cancelled ends so, leading or standing by, and another leads within the lock's ttl."""
    await store.schedule("report", "@every 1h", "reports", None)
    for _ in range(4):
        leading = asyncio.create_task(store.run_schedules(StopToken()))
        leader = await led(witness)
        standing_by = asyncio.create_task(second_store.run_schedules(StopToken()))
        await caught_up(second_store)
        for runner in (standing_by, leading):
            runner.cancel()
            await asyncio.wait((runner,))
            assert runner.cancelled()
        await harness.advance(leader.expires_at - harness.clock.now())
        async with running(second_store):
            await nothing_left(harness, second_store)


@leg(rules="H3 T12", since="1.0")
async def test_closed_store_ends_its_runners(store: Store, second_store: Store, witness: Witness) -> None:
    """Closing a store ends its runners with ClosedError, leading or standing by; on a closed store none begins."""
    leading = asyncio.create_task(second_store.run_schedules(StopToken()))
    await led(witness)
    standing_by = asyncio.create_task(second_store.run_schedules(StopToken()))
    await caught_up(store)
    await second_store.close()
    for runner in (leading, standing_by):
        with pytest.raises(ClosedError):
            await runner
    with pytest.raises(ClosedError):
        await second_store.run_schedules(StopToken())
    with pytest.raises(ClosedError):
        await second_store.schedule("report", "@every 5s", "reports", None)
    with pytest.raises(ClosedError):
        await second_store.unschedule("report")


# firing what has elapsed


@leg(rules="H4", since="1.0")
async def test_every_elapsed_boundary_fires(harness: Harness, store: Store, clock: ManualClock) -> None:
    """When several boundaries have elapsed at once, a running leader fires each of them, once."""
    start = clock.now()
    await store.schedule("report", "@every 2s", "reports", None)
    async with running(store):
        await nothing_left(harness, store)
        await pass_time(harness, store, 9)
        jobs = await settled(store, "reports")
    assert [(job.ready_at, job.created_at) for job in jobs] == [(start + 2 * n, start + 10) for n in range(1, 6)]


@leg(rules="H4", since="1.0")
async def test_late_fire_keeps_the_boundaries(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A boundary that is fired late moves none of those that follow."""
    start = clock.now()
    await store.schedule("report", "@every 10s", "reports", None)
    for late, boundary in ((17, 10), (23, 20), (39, 30), (40, 40)):
        await pass_time(harness, store, start + late - clock.now())
        async with running(store):
            jobs = await settled(store, "reports")
        assert [(job.ready_at, job.created_at) for job in jobs] == [(start + boundary, start + late)]


@leg(rules="H4", since="1.0")
async def test_boundaries_of_one_second_all_fire(harness: Harness, store: Store, clock: ManualClock) -> None:
    """Schedules that are due in the same second all fire, also into one queue."""
    start = clock.now()
    names = [f"report {number}" for number in range(9)]
    for name in names:
        await store.schedule(name, "@every 5s", "reports", name)
    async with running(store):
        for number in (1, 2):
            await pass_time(harness, store, 5)
            jobs = await settled(store, "reports")
            assert sorted(job.payload_as(str) for job in jobs) == names
            assert boundaries(jobs) == [start + 5 * number] * 9


@pytest.mark.parametrize("missed", [63, 64, 65, 200, 10**9])
@leg(rules="H4 H5", since="1.0")
async def test_catch_up_is_capped(harness: Harness, store: Store, clock: ManualClock, missed: int) -> None:
    """After more than 64 missed boundaries 64 fire, and the next one to fire is the first after now."""
    start = clock.now()
    await store.schedule("report", "@every 3s", "reports", None)
    await pass_time(harness, store, 3 * missed + 1)
    async with running(store):
        jobs = await settled(store, "reports")
        assert [(job.ready_at, job.created_at) for job in jobs] == [
            (start + 3 * number, start + 3 * missed + 1) for number in range(1, min(missed, 64) + 1)
        ]
        await nothing_left(harness, store)
        assert await fired_now(store, "reports") == []
        await nothing_left(harness, store)
        assert boundaries(await fired_now(store, "reports")) == [start + 3 * (missed + 1)] == [clock.now()]


@leg(rules="H4", since="1.0")
async def test_now_is_among_the_missed(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A boundary in this very second has elapsed: where it is beyond the 64 it is skipped, and the next is later."""
    start = clock.now()
    await store.schedule("report", "@every 3s", "reports", None)
    await pass_time(harness, store, 3 * 65)
    async with running(store):
        jobs = await settled(store, "reports")
        for _ in range(3):
            await nothing_left(harness, store)
        jobs += await fired_now(store, "reports")
    assert boundaries(jobs) == [start + 3 * number for number in (*range(1, 65), 66)]


@leg(rules="H4", since="1.0")
async def test_cap_is_of_each_schedule(harness: Harness, store: Store, clock: ManualClock) -> None:
    """Each schedule fires up to 64 of its missed boundaries, whatever others have missed."""
    start = clock.now()
    seconds = {"a": 1, "b": 2, "c": 100}
    for name, interval in seconds.items():
        await store.schedule(name, f"@every {interval}s", name, None)
    await pass_time(harness, store, 300)
    async with running(store):
        await settled(store, "sentinels")
    found = {name: boundaries(await fired_now(store, name)) for name in seconds}
    assert found == {
        name: [start + interval * number for number in range(1, min(300 // interval, 64) + 1)]
        for name, interval in seconds.items()
    }


@leg(rules="H4", since="1.0")
async def test_settled_jobs_disturb_no_boundary(harness: Harness, store: Store, clock: ManualClock) -> None:
    """Whatever becomes of fired jobs, waiting, acked, dead or deleted, the next boundary fires."""
    start = clock.now()
    queue = store.queue("reports")
    await store.schedule("report", "@every 1s", "reports", None)
    async with running(store):
        for number in range(1, 6):
            await nothing_left(harness, store)
            handle = await queue.claim_one("reader")
            assert handle is not None
            assert handle.job.ready_at == start + number
            outcomes = (handle.ack(), handle.fail(), queue.cancel(handle.job.id), handle.heartbeat(1000))
            for chosen, outcome in enumerate(outcomes):
                if chosen == number % 4:
                    assert await outcome is True
                else:
                    outcome.close()


@leg(rules="H4 T13", since="1.0")
async def test_interrupted_runner_neither_loses_nor_repeats(
    harness: Harness, store: Store, second_store: Store
) -> None:
    """Runners cancelled at any moment of firing leave each boundary fired once: enqueue and advance are one."""
    start = harness.clock.now()
    random = Random(9)
    for name in ("a", "b"):
        await store.schedule(name, "@every 1s", "reports", name)
    for number in range(40):
        await harness.advance(1)
        runner = asyncio.create_task((store, second_store)[number % 2].run_schedules(StopToken()))
        if number % 3 == 0:
            await caught_up(store)
        for _ in range(random.randrange(16)):
            await asyncio.sleep(0)
        runner.cancel()
        await asyncio.wait((runner,))
    await pass_time(harness, store, 20)
    async with running(store):
        jobs = await settled(store, "reports")
    expected = [(start + number, name) for number in range(1, 61) for name in ("a", "b")]
    assert sorted((job.ready_at, job.payload_as(str)) for job in jobs) == expected


# far future, strange clocks, failures


@leg(rules="H5", since="1.0")
async def test_idle_runners_rest(
    harness: Harness,
    store: Store,
    second_store: Store,
    clock: ManualClock,
    witness: Witness,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With nothing due but in the far future, a leader and a standby wait: they do not look at the clock again."""
    await store.schedule("far", f"@every {INT64_MAX}s", "reports", None)
    await store.schedule("later", "@every 1h", "reports", None)
    async with running(store, second_store):
        await nothing_left(harness, store)
        await caught_up(second_store)
        looks, right = 0, clock.now

        def now() -> int:
            nonlocal looks
            looks += 1
            return right()

        with monkeypatch.context() as patch:
            patch.setattr(clock, "now", now)
            for _ in range(2000):
                await asyncio.sleep(0)
        assert looks < 20
        await nothing_left(harness, store)
    assert await witness.jobs("reports") == JobCounts()


@leg(rules="H5 V5", since="1.0")
async def test_end_of_time(harness: Harness, store: Store, clock: ManualClock, witness: Witness) -> None:
    """Near the last second of int64 boundaries fire that lie before it; one that is held there never comes."""
    await harness.advance(INT64_MAX - 30 - clock.now())
    await store.schedule("near", "@every 10s", "reports", "near")
    await store.schedule("far", "@every 1h", "reports", "far")
    async with running(store):
        for remaining in (20, 10):
            await pass_time(harness, store, INT64_MAX - remaining - clock.now())
            jobs = await settled(store, "reports")
            assert [(job.payload, job.ready_at) for job in jobs] == [(b'"near"', INT64_MAX - remaining)]
        for _ in range(3):
            await nothing_left(harness, store)
            await at_rest(store)
        await nothing_left(harness, store)
    assert await witness.jobs("reports") == JobCounts()


@leg(rules="H5 H4", since="1.0")
async def test_clock_set_back(harness: Harness, store: Store, clock: ManualClock) -> None:
    """When the clock is set back no boundary is repeated, others fire on time, and the next one when it comes again."""
    start = clock.now()
    await store.schedule("report", "@every 5s", "reports", None)
    async with running(store):
        await pass_time(harness, store, 5)
        assert boundaries(await settled(store, "reports")) == [start + 5]
        await harness.advance(-3600)
        await nothing_left(harness, store)
        await nothing_left(harness, store)
        assert await fired_now(store, "reports") == []
        await pass_time(harness, store, start + 10 - clock.now())
        assert boundaries(await settled(store, "reports")) == [start + 10]


@leg(rules="H5 H4", since="1.0")
async def test_clock_that_jumps_by_years(harness: Harness, store: Store, second_store: Store) -> None:
    """After each leap of the clock runners fire at most 64 boundaries, and then go on in their own time."""
    start = harness.clock.now()
    await store.schedule("report", "@every 7s", "reports", None)
    async with running(store, second_store):
        for years in (1, 100, 10_000):
            since = (harness.clock.now() - start) // 7
            await pass_time(harness, store, years * 31_557_600)
            jobs = await settled(store, "reports")
            assert boundaries(jobs) == [start + 7 * number for number in range(since + 1, since + 65)]
            following = (harness.clock.now() - start) // 7 + 1
            await pass_time(harness, store, start + 7 * following - harness.clock.now())
            assert boundaries(await settled(store, "reports")) == [start + 7 * following]


@leg(rules="H2 H4", since="1.0")
async def test_daylight_saving_changes_no_interval(harness: Harness, store: Store, clock: ManualClock) -> None:
    """Across a change of local time a day is 86,400 seconds and an hour 3,600: intervals are elapsed time."""
    with _local_time("CET-1CEST,M3.5.0,M10.5.0/3"):
        for saturday in (1_711_756_800, 1_729_900_800):  # the days before the changes of 2024
            await harness.advance(saturday - clock.now())
            await store.schedule("daily", "@every 1d", "daily", None)
            await store.schedule("hourly", "@every 1h", "hourly", None)
            for day in (1, 2, 3):
                await pass_time(harness, store, 86_400)
                async with running(store):
                    assert boundaries(await settled(store, "daily")) == [saturday + 86_400 * day]
                hours = range(24 * (day - 1) + 1, 24 * day + 1)
                assert boundaries(await fired_now(store, "hourly")) == [saturday + 3600 * hour for hour in hours]
            for name in ("daily", "hourly"):
                assert await store.unschedule(name) is True


@contextmanager
def _local_time(zone: str) -> Iterator[None]:
    """Let this process live in a time zone, where the platform can be told to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", zone)
        _take_over_zone()
        yield
    _take_over_zone()


def _take_over_zone() -> None:
    if hasattr(time, "tzset"):
        time.tzset()


@leg(rules="H5", since="1.0", needs=("outage",))
async def test_failed_commits_are_tried_again(harness: Harness, witness: Witness) -> None:
    """A leader whose firing fails while the database is away tries again, and fires each boundary once."""
    start = harness.clock.now()
    async with harness.open(patience_s=0.3) as store:
        await store.schedule("report", "@every 2s", "reports", None)
        async with running(store):
            await led(witness)
            await harness.advance(2)
            jobs = await fired(store, "reports", 1)
            async with harness.outage():
                await harness.advance(2)
                for _ in range(2):  # the second one is behind what the leader tried
                    with pytest.raises(DatabaseError):
                        await store.notify("orders")
            jobs += await fired(store, "reports", 1)
            await nothing_left(harness, store)
        jobs += await fired_now(store, "reports")
    assert boundaries(jobs) == [start + 2, start + 4]


@leg(rules="H5 H3", since="1.0", needs=("outage",))
async def test_election_survives_an_outage(harness: Harness) -> None:
    """A runner that cannot be elected while the database is away is afterwards, and can be stopped meanwhile."""
    async with harness.open(patience_s=0.3) as store:
        await store.schedule("report", "@every 5s", "reports", None)
        await harness.advance(5)
        stop = StopToken()
        async with AsyncExitStack() as runners:
            async with harness.outage():
                stopped = asyncio.create_task(store.run_schedules(stop))
                await runners.enter_async_context(running(store))
                for _ in range(2):
                    with pytest.raises(DatabaseError):
                        await store.notify("orders")
                stop.cancel()
                await stopped
            assert len(await fired(store, "reports", 1)) == 1
