"""The scheduler, extremes: far future, strange clocks, failures (contract section 10)."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest
from alkstore_core import StopToken, Store
from alkstore_core.errors import DatabaseError
from alkstore_core.numbers import INT64_MAX
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.runners import (
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


@leg(rules="H2 H5", since="1.0")
async def test_registering_again_after_a_clock_set_back(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A schedule registered again waits for one interval at the most, though its clock was set back by a year."""
    await store.schedule("often", "@every 10s", "reports", None)
    await harness.advance(-365 * 86_400)
    await store.schedule("often", "@every 10s", "reports", None)
    async with running(store):
        start = clock.now()
        await pass_time(harness, store, 10)
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
