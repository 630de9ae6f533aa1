"""A claim's cost does not depend on how many priorities the delayed jobs have, nor on how they came there."""

import time

import asyncpg
from alkstore_core.testing import ManualClock
from alkstore_pg import PgStore
from alkstore_pg.migrations import upgrades
from pg_waiting import counted

PRIORITIES = 20_000

FILL = """
INSERT INTO alkstore.jobs (queue, payload, state, place, priority, ready_at, attempts, max_attempts,
    visibility_timeout_s, backoff_base_s, created_at)
SELECT 'q', '1', 0, 1, number, $1, 0, 3, 300, 5, 1 FROM generate_series(1, $2::int) number
"""
READ = "SELECT sum(idx_tup_read)::int FROM pg_stat_user_indexes WHERE schemaname = 'alkstore' AND relname = 'jobs'"


async def entries_read(store: PgStore, plain: asyncpg.Connection) -> int:
    """How many index entries were read so far, by the store's only connection."""
    await counted(plain, store)
    return await plain.fetchval(READ)


async def test_a_claim_looks_at_no_priority_that_has_delayed_jobs_only(dsn18):
    """With 20,000 jobs that an earlier version delayed, each of its own priority, and ten ready ones: few entries read.

    Once they are ready they come before, the highest priority first.
    """
    now = int(time.time())
    clock = ManualClock(now)
    plain = await asyncpg.connect(dsn18)
    await plain.execute("CREATE SCHEMA alkstore")
    for version, script in upgrades("alkstore", 0)[:3]:
        await plain.execute(script)
        await plain.execute("INSERT INTO alkstore.migrations (version) VALUES ($1)", version)
    await plain.execute(FILL, now + 1000, PRIORITIES)
    async with PgStore.open(dsn18, min_size=1, max_size=1, clock=clock) as store:
        queue = store.queue("q")
        await queue.enqueue_many([0] * 10)
        for number in range(10):  # and some that this version delays, at once and by a retry
            await queue.enqueue(1, delay=1000, priority=-1 - number)
        await plain.execute("VACUUM alkstore.jobs")  # the upgrade left an entry of each of them behind
        before = await entries_read(store, plain)
        for left in reversed(range(10)):
            handle = await queue.claim_one("w")
            assert handle is not None
            assert handle.job.priority == 0
            assert await store.session().next_due("q") == (now if left else now + 300)
        assert await queue.claim_one("w") is None
        assert await entries_read(store, plain) - before < 1000
        clock.advance(1000)
        top = await queue.claim_batch("w", 3)
        assert [handle.job.priority for handle in top] == [PRIORITIES, PRIORITIES - 1, PRIORITIES - 2]
        assert await top[0].retry("again", delay=50)
        assert [handle.job.priority for handle in await queue.claim_batch("w", 1)] == [PRIORITIES - 3]
        clock.advance(50)
        assert [handle.job.priority for handle in await queue.claim_batch("w", 2)] == [PRIORITIES, PRIORITIES - 4]
    await plain.close()


async def test_looking_at_each_priority_would_be_counted(dsn18):
    """The control: with the delayed jobs back in the claim order, the same measure sees a look at each of them."""
    async with PgStore.open(dsn18, min_size=1, max_size=1) as store:
        plain = await asyncpg.connect(dsn18)
        await plain.execute(FILL, int(time.time()) + 1000, PRIORITIES)
        before = await entries_read(store, plain)
        assert await store.queue("q").claim_one("w") is None
        assert await entries_read(store, plain) - before >= PRIORITIES
        await plain.close()
