"""The scheduler, leadership: runners elect one of them, follow it, and stop (contract section 10)."""

import asyncio

import pytest
from alkstore_core import Job, StopToken, Store
from alkstore_core.errors import ClosedError, LeadershipLostError

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.harness import Harness, LockRow, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs import child_bodies
from alkstore_contract_suite.legs.runners import (
    LEADER,
    at_rest,
    boundaries,
    fired,
    fired_now,
    led,
    nothing_left,
    pass_time,
    running,
    settled,
)
from alkstore_contract_suite.proofs import caught_up

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
    child = await children.start(child_bodies.runs_schedules_until_it_lost, 6)
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
