"""The scheduler, firing: when a schedule is due, and which boundaries that were missed still fire (section 10)."""

import asyncio
from random import Random

import pytest
from alkstore_core import Job, StopToken, Store
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.runners import (
    at_rest,
    boundaries,
    fired,
    fired_now,
    nothing_left,
    pass_time,
    running,
    settled,
)
from alkstore_contract_suite.proofs import caught_up

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
