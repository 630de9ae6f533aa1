"""Schedules and their runner: one leader, a stand-by, every boundary, and prompt ends (H1 to H5)."""

import asyncio
from typing import Self

import anyio
import pytest
from alkstore_core import ScheduleOptions, StopToken
from alkstore_core.errors import (
    ClosedError,
    CodecError,
    DatabaseError,
    InvalidNameError,
    InvalidSpecError,
    LeadershipLostError,
    ReservedNameError,
)
from alkstore_core.scheduler import LEADER_LOCK, LEADER_TTL_S
from alkstore_core.testing import running_tasks
from alkstore_core.values import Schedule


class Runner:
    """A runner that runs in a task until the end of its block."""

    def __init__(self, store) -> None:
        self.store = store
        self.stop = StopToken()

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.store.run_schedules(self.stop))
        await idle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.cancel()
        await self.task


async def idle() -> None:
    """Let everything that can run without time or the network run."""
    for _ in range(60):
        await asyncio.sleep(0)


async def fired(store, queue: str = "q") -> list[int]:
    """The boundaries that fired since the last look, as the ready times of their jobs."""
    handles = await store.queue(queue).claim_batch("test", 1000)
    for handle in handles:
        assert await handle.ack()
    return [handle.job.ready_at for handle in handles]


async def test_a_schedule_fires_at_each_boundary_from_one_interval_on(store, clock) -> None:
    """With its payload and options (H1, H2)."""
    start = clock.now()
    schedule = await store.schedule("s", "@every 10s", "q", {"a": 1}, priority=3, max_attempts=2, expires=60)
    assert schedule == Schedule("s", "@every 10s", "q", ScheduleOptions(3, 2, 60))
    async with Runner(store):
        assert await fired(store) == []
        clock.advance(9)
        await idle()
        assert await fired(store) == []
        clock.advance(1)
        await idle()
        (handle,) = await store.queue("q").claim_batch("test", 9)
        job = handle.job
        assert (job.payload, job.priority, job.max_attempts, job.ready_at, job.expires_at) == (
            b'{"a":1}',
            3,
            2,
            start + 10,
            start + 70,
        )
        await handle.ack()
        clock.advance(10)
        await idle()
        assert await fired(store) == [start + 20]


async def test_a_schedule_registered_while_it_runs_is_noticed_at_once(store, clock) -> None:
    """Woken, not polled; and one that is dropped fires no more."""
    start = clock.now()
    async with Runner(store):
        await store.schedule("s", "@every 2s", "q", 1)
        await idle()
        clock.advance(2)
        await idle()
        assert await fired(store) == [start + 2]
        assert await store.unschedule("s") is True
        assert await store.unschedule("s") is False
        clock.advance(4)
        await idle()
        assert await fired(store) == []


async def test_after_a_gap_64_boundaries_fire_and_the_rest_are_skipped(store, clock) -> None:
    """And the next one is after now (H4)."""
    start = clock.now()
    await store.schedule("s", "@every 1s", "q", 1)
    clock.advance(86_400)
    async with Runner(store):
        await idle()
        assert await fired(store) == [start + number for number in range(1, 65)]
        clock.advance(1)
        await idle()
        assert await fired(store) == [start + 86_401]


async def test_one_leads_and_a_stand_by_takes_over_as_soon_as_it_stops(store, clock) -> None:
    """Each boundary fires once, whoever leads (H3, H4)."""
    start = clock.now()
    await store.schedule("s", "@every 1s", "q", 1)
    async with Runner(store) as first, Runner(store):
        for _ in range(5):
            clock.advance(1)
            await idle()
        assert await fired(store) == [start + number for number in range(1, 6)]
        first.stop.cancel()
        await first.task
        for _ in range(5):
            clock.advance(1)
            await idle()
        assert await fired(store) == [start + number for number in range(6, 11)]


async def test_a_stand_by_takes_over_within_the_ttl_from_a_leader_that_died(store, clock) -> None:
    """No boundary is lost meanwhile (H3, H4)."""
    start = clock.now()
    await store.schedule("s", "@every 5s", "q", 1)
    dead = await store.session().take_lock(LEADER_LOCK, "dead", LEADER_TTL_S)
    assert dead is not None
    async with Runner(store):
        for _ in range(LEADER_TTL_S):
            assert await fired(store) == []
            clock.advance(1)
            await idle()
        assert await fired(store) == [start + 5, start + 10, start + 15]


async def test_a_leader_keeps_leading_by_renewing(store, clock, faults) -> None:
    """Also with nothing to fire."""
    async with Runner(store):
        for _ in range(20):
            clock.advance(LEADER_TTL_S // 3)
            await idle()
        assert faults.names().count("renew_lock") == 20
        assert await store.session().take_lock(LEADER_LOCK, "other", 1) is None


@pytest.mark.parametrize("found_out_by", ["renewing", "firing"])
async def test_a_leader_that_lost_the_lock_fires_nothing_more_and_says_so(store, clock, found_out_by: str) -> None:
    """Whoever leads by now fires instead (H3)."""
    start = clock.now()
    every = 1 if found_out_by == "firing" else 1000
    await store.schedule("s", f"@every {every}s", "q", 1)
    task = asyncio.create_task(store.run_schedules(StopToken()))
    await idle()
    leader = store.engine.database.locks.rows[LEADER_LOCK]
    assert await store.session().release_lock(leader)
    other = await store.session().take_lock(LEADER_LOCK, "other", 100)
    clock.advance(1 if found_out_by == "firing" else LEADER_TTL_S // 3)
    with pytest.raises(LeadershipLostError, match="fires nothing more: run it again to stand by"):
        await task
    assert await fired(store) == []
    assert await store.session().renew_lock(other, 5) is not None
    assert (await store.session().fire_next(other)).fired == (1 if found_out_by == "firing" else 0)
    assert await fired(store) == ([start + 1] if found_out_by == "firing" else [])


async def test_a_leader_whose_lock_lapsed_over_a_clock_jump_says_so_and_can_be_run_again(store, clock) -> None:
    """Another may have led in between; nothing is wedged (H3, H5)."""
    start = clock.now()
    await store.schedule("s", "@every 3600s", "q", 1)
    task = asyncio.create_task(store.run_schedules(StopToken()))
    await idle()
    clock.advance(7200)
    with pytest.raises(LeadershipLostError):
        await task
    async with Runner(store):
        assert await fired(store) == [start + 3600, start + 7200]


async def test_a_clock_set_back_neither_wedges_nor_spins(store, clock, faults) -> None:
    """It waits for its boundary as the clock has it now (H5)."""
    start = clock.now()
    await store.schedule("s", "@every 10s", "q", 1)
    async with Runner(store):
        clock.advance(-3600)
        faults.calls.clear()
        await idle()
        assert len(faults.calls) <= 2
        for _ in range(361):
            clock.advance(10)
            await idle()
        assert await fired(store) == [start + 10]


async def test_a_far_future_boundary_does_not_spin(store, clock, faults) -> None:
    """Nor does one at the end of time (H5)."""
    await store.schedule("s", f"@every {2**63 - 1}s", "q", 1)
    async with Runner(store):
        await idle()
        before = len(faults.calls)
        await idle()
        assert len(faults.calls) == before
    clock.set(2**63 - 3)
    async with Runner(store):
        await idle()
        before = len(faults.calls)
        await idle()
        assert len(faults.calls) == before
    assert await fired(store) == []


async def test_an_outage_is_survived_and_missed_boundaries_fire_after_it(store, clock, faults, caplog) -> None:
    """While standing by and while leading, with growing pauses; a failed commit fires nothing twice (H4, H5)."""
    start = clock.now()
    await store.schedule("s", "@every 1s", "q", 1)
    faults.down = True
    async with Runner(store):
        await faults.reached("take_lock")
        await faults.reached("take_lock")
        faults.down = False
        await faults.reached("fire_next")
        await idle()
        faults.down = True
        clock.advance(3)
        await faults.reached("fire_next")
        await faults.reached("fire_next")
        faults.down = False
        await faults.reached("fire_next")
        await idle()
        assert await fired(store) == [start + 1, start + 2, start + 3]
    assert sum("the scheduler cannot reach its database; trying again in" in text for text in caplog.messages) >= 3


@pytest.mark.parametrize("where", ["take_lock", "renew_lock", "fire_next", "release_lock", "waiting", "standing by"])
async def test_a_stop_is_prompt_whatever_the_database_does(store, clock, faults, where: str) -> None:
    """Also where it swallows the very call that is under way; nothing is left running (H3)."""
    stop = StopToken()
    if where == "standing by":
        assert await store.session().take_lock(LEADER_LOCK, "other", 1000)
    elif where != "waiting":
        faults.stalled = {where}
    task = asyncio.create_task(store.run_schedules(stop))
    if where == "renew_lock":
        await faults.reached("fire_next")
        await idle()
        clock.advance(LEADER_TTL_S // 3)
    if where in ("take_lock", "renew_lock", "fire_next"):
        await faults.reached(where)
    await idle()
    loop = asyncio.get_running_loop()
    began = loop.time()
    stop.cancel()
    await task
    assert loop.time() - began < 1.5
    assert running_tasks() == {asyncio.current_task()}
    faults.stalled = set()
    if where != "release_lock":
        assert (await store.session().take_lock(LEADER_LOCK, "next", 5) is None) == (where == "standing by")


async def test_a_cancelled_runner_steps_down_before_the_cancellation_goes_on(store) -> None:
    """By a task or by a scope: another leads at once."""
    task = asyncio.create_task(store.run_schedules(StopToken()))
    await idle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with anyio.create_task_group() as group:
        group.start_soon(store.run_schedules, StopToken())
        with anyio.CancelScope(shield=True):
            await idle()
        assert await store.session().take_lock(LEADER_LOCK, "other", 5) is None
        group.cancel_scope.cancel()
    assert await store.session().take_lock(LEADER_LOCK, "other", 5) is not None


async def test_a_stop_before_the_start_does_nothing(store, faults) -> None:
    """Not even an election."""
    stop = StopToken()
    stop.cancel()
    await store.run_schedules(stop)
    assert faults.calls == []


@pytest.mark.parametrize("leading", [True, False])
async def test_a_closed_store_ends_it_with_its_error(store, leading: bool) -> None:
    """Leading or standing by (T12)."""
    if not leading:
        await store.session().take_lock(LEADER_LOCK, "other", 1000)
    task = asyncio.create_task(store.run_schedules(StopToken()))
    await idle()
    await store.close()
    with pytest.raises(ClosedError):
        await task
    assert running_tasks() == {asyncio.current_task()}


async def test_upserting_keeps_the_next_fire_unless_the_spec_changed(store, clock) -> None:
    """Another payload changes nothing about the time (H2)."""
    start = clock.now()
    await store.schedule("s", "@every 10s", "q", 1)
    clock.advance(5)
    await store.schedule("s", "@every 10s", "q", 2)
    async with Runner(store):
        clock.advance(5)
        await idle()
        assert await fired(store) == [start + 10]
        await store.schedule("s", "@every 20s", "q", 2)
        await idle()
        clock.advance(10)
        await idle()
        assert await fired(store) == []
        clock.advance(10)
        await idle()
        assert await fired(store) == [start + 30]


async def test_arguments_are_checked_before_anything_is_stored(store, faults) -> None:
    """Names, specs, payloads and options (H1, V1, V5, V6, P2)."""
    for error, call in (
        (InvalidNameError, lambda: store.schedule(" ", "@every 5s", "q", 1)),
        (ReservedNameError, lambda: store.schedule("__alkstore_s", "@every 5s", "q", 1)),
        (InvalidNameError, lambda: store.schedule("s", "@every 5s", "", 1)),
        (ReservedNameError, lambda: store.schedule("s", "@every 5s", "__alkstore_q", 1)),
        (InvalidSpecError, lambda: store.schedule("s", "* * * * *", "q", 1)),
        (CodecError, lambda: store.schedule("s", "@every 5s", "q", b"x")),
        (TypeError, lambda: store.schedule("s", "@every 5s", "q", 1, priority=True)),
        (TypeError, lambda: store.schedule("s", "@every 5s", "q", 1, priority=None)),
        (ValueError, lambda: store.schedule("s", "@every 5s", "q", 1, max_attempts=0)),
        (ValueError, lambda: store.schedule("s", "@every 5s", "q", 1, expires=2**63)),
        (InvalidNameError, lambda: store.unschedule("")),
    ):
        with pytest.raises(error):
            await call()
    with pytest.raises(TypeError, match="unexpected keyword"):
        await store.schedule("s", "@every 5s", "q", 1, delay=3)
    assert faults.calls == []


async def test_only_the_outage_of_the_database_is_survived(store, faults) -> None:
    """A fault of the program is no outage: it comes out, as itself."""

    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    faults._real.fire_next = broken
    with pytest.raises(ZeroDivisionError):
        await store.run_schedules(StopToken())
    assert not isinstance(ZeroDivisionError(), DatabaseError)
    assert await store.session().take_lock(LEADER_LOCK, "other", 5) is not None
