"""Times in SQL are what core's pure functions say, over the edges of int64 (V5, Q1, H4)."""

import asyncpg
import pytest
from alkstore_core.engine import NewSchedule
from alkstore_core.numbers import INT64_MAX, INT64_MIN, saturating_add
from alkstore_core.options import QueueOptions, ScheduleOptions, job_stamp
from alkstore_core.testing import ManualClock
from alkstore_core.timing import deadline, due_boundaries, ready_time
from alkstore_pg import PgStore

EDGES = sorted(
    {INT64_MIN, INT64_MIN + 1, -(2**62), -(2**31), -1, 0, 1, 2**31, 1_700_000_000, 2**62, INT64_MAX - 1, INT64_MAX}
)


async def test_sums_saturate_as_in_core(dsn, plain):
    """The sum of every two edges, and of an edge and null."""
    async with PgStore.open(dsn):
        pass
    rows = await plain.fetch(
        "SELECT a, b, alkstore.saturating_add(a, b) FROM unnest($1::bigint[]) a, unnest($1::bigint[]) b", EDGES
    )
    assert len(rows) == len(EDGES) ** 2
    assert {(a, b): total for a, b, total in rows} == {(a, b): saturating_add(a, b) for a in EDGES for b in EDGES}
    assert await plain.fetchval("SELECT alkstore.saturating_add(1, NULL)") is None


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
async def test_ready_times_and_expiries_are_those_of_core(dsn, many):
    """Jobs enqueued at every edge of the clock, alone and in one statement: ready and expiring when core says so."""
    clock = ManualClock()
    async with PgStore.open(dsn, clock=clock) as store:
        session = store.session()
        for now in EDGES:
            clock.set(now)
            for edge in EDGES:
                for delay, run_at, expires in (
                    (edge, None, edge),
                    (None, edge, None),
                    (edge, 7, edge),
                    (None, None, edge),
                ):
                    stamp = job_stamp(QueueOptions(), delay=delay, run_at=run_at, expires=expires)
                    ids = await session.insert_jobs("work", [b"1"] * (2 if many else 1), stamp)
                    job = await session.find_job(ids[-1], None)
                    assert (job.ready_at, job.expires_at, job.created_at) == (
                        ready_time(now, delay, run_at),
                        deadline(now, expires),
                        now,
                    )


async def test_deadlines_of_claims_and_locks_are_those_of_core(dsn):
    """Claims, heartbeats, retries and locks at every edge of the clock have core's deadlines."""
    clock = ManualClock()
    async with PgStore.open(dsn, clock=clock) as store:
        session = store.session()
        for now in EDGES[:-1]:
            clock.set(now)
            for edge in EDGES:
                queue = f"{now} {edge}"
                options = QueueOptions(visibility_timeout_s=max(edge, 1))
                (job_id,) = await session.insert_jobs(queue, [b"1"], job_stamp(options, run_at=INT64_MIN))
                (claim,) = await session.claim_jobs(queue, "w", 1)
                assert claim.job.claim_expires_at == saturating_add(now, max(edge, 1))
                assert await session.extend_claim(claim, edge)
                assert (await session.find_job(job_id, None)).claim_expires_at == saturating_add(now, edge)
                if saturating_add(now, edge) > now:
                    assert await session.retry_claim(claim, "again", edge)
                    assert (await session.find_job(job_id, None)).ready_at == saturating_add(now, edge)
                else:
                    assert not await session.retry_claim(claim, "again", edge)
                if edge > 0:
                    grant = await session.take_lock(queue, "me", edge)
                    assert grant.expires_at == saturating_add(now, edge)


async def test_schedules_fire_the_boundaries_of_core(dsn, plain):
    """A due schedule at the edges: the jobs, their ready times and the next fire are those of `due_boundaries`."""
    clock = ManualClock()
    async with PgStore.open(dsn, clock=clock) as store:
        session = store.session()
        for now in (*EDGES[:-1], 1_700_000_063, 1_700_000_064):
            for next_fire in (*EDGES, 1_700_000_000):
                for interval in (1, 7, 2**31, INT64_MAX):
                    clock.set(now)
                    leader = await session.take_lock("lead", "me", INT64_MAX)
                    await session.put_schedule(NewSchedule("s", "x", interval, "work", b"1", ScheduleOptions()))
                    await plain.execute("UPDATE alkstore.schedules SET next_fire = $1", next_fire)
                    boundaries, following = due_boundaries(next_fire, interval, now)
                    firing = await session.fire_next(leader)
                    assert (firing.leading, firing.fired, firing.next_fire) == (True, len(boundaries), following)
                    fired = await plain.fetch("DELETE FROM alkstore.jobs RETURNING ready_at")
                    assert sorted(row[0] for row in fired) == boundaries
                    await session.release_lock(leader)


async def test_the_servers_second_is_not_rounded_up(dsn, plain):
    """Half past a second is still that second."""
    async with PgStore.open(dsn):
        pass
    for _ in range(200):
        second, exact = await plain.fetchrow(
            "SELECT alkstore.second_of(NULL), extract(epoch FROM statement_timestamp())::numeric"
        )
        assert second <= exact < second + 1
    assert isinstance(plain, asyncpg.Connection)
