"""What a claim costs does not grow with the backlog, and every hot statement walks the index made for it."""

import time

import asyncpg
import pytest
from alkstore_pg import PgStore
from alkstore_pg.names import key_of
from pg_waiting import counted

WAITING = 1_000_000

FILL = """
INSERT INTO alkstore.jobs (queue, payload, state, place, priority, ready_at, expires_at, attempts, max_attempts,
    visibility_timeout_s, backoff_base_s, created_at, worker_id, claimed_at, claim_expires_at, claim, died_at)
SELECT $1, '1', $2, $3, $4, $5, NULL, 0, 3, 300, 5, 1, 'w', 1, $6, 1, NULL FROM generate_series(1, $7)
"""
COUNTS = """
SELECT relname, indexrelname, idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = 'alkstore'
"""
SEQUENTIAL = (
    "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE schemaname = 'alkstore' AND relname IN ('jobs', 'events')"
)


async def counters(plain, store=None) -> tuple[int, dict[str, tuple[int, int]]]:
    await counted(plain, store)
    rows = await plain.fetch(COUNTS)
    return int(await plain.fetchval(SEQUENTIAL)), {row[1]: (row[2], row[3]) for row in rows}


@pytest.mark.parametrize("analysed", [False, True], ids=["no-statistics", "analysed"])
async def test_hot_statements_use_their_indexes_at_a_million_rows(dsn18, analysed):
    """At a million rows, with statistics and with none: no sequential scan, few index entries read, milliseconds.

    With statistics, of queues whose names are too long for an index.
    """
    work, other = ("w" * 5000, "o" * 5000) if analysed else ("work", "other")
    async with PgStore.open(dsn18, min_size=1, max_size=1) as store:
        plain = await asyncpg.connect(dsn18)
        await plain.execute("ALTER TABLE alkstore.jobs SET (autovacuum_enabled = false)")
        queue, session = store.queue(work), store.session()
        for _ in range(12):  # planned on an empty table, and kept
            await queue.enqueue(1)
            (handle,) = await queue.claim_batch("w", 10)
            await handle.heartbeat(100)
            assert await handle.ack()
            await session.next_due(work)
        rows = WAITING // 5
        now = int(time.time())
        await plain.execute(FILL, key_of(work), 0, 1, 5, now + 100_000, None, rows)  # delayed, of a high priority
        await plain.execute(FILL, key_of(work), 0, 1, 0, 1, None, rows)  # ready
        await plain.execute(FILL, key_of(work), 1, 0, 0, 1, now + 100_000, rows)  # claimed
        await plain.execute(FILL, key_of(work), 2, 2, 0, 1, None, rows)  # dead
        await plain.execute(FILL, key_of(other), 0, 1, 9, 1, None, rows)  # another queue's
        if analysed:
            await plain.execute("ANALYZE alkstore.jobs")
        assert len(await queue.claim_batch("w", 10)) == 10
        sequential, before = await counters(plain, store)
        took = []
        for _ in range(50):
            started = time.perf_counter()
            handles = await queue.claim_batch("w", 10)
            took.append(time.perf_counter() - started)
            assert len(handles) == 10
            assert await handles[0].heartbeat(100)
            assert await handles[1].retry("x", delay=1000)
            assert await handles[2].fail()
            assert await handles[3].release()
            assert all([await handle.ack() for handle in handles[4:]])
            assert await handles[0].ack()
            assert await session.next_due(work) == 1
            assert await queue.cancel(10**9) is False
            await queue.enqueue(1)
            assert await queue.sweep_expired() == 0
        after_sequential, after = await counters(plain, store)
        assert after_sequential == sequential
        read = {name: after[name][1] - before[name][1] for name in after}
        # 50 rounds of about 30 entries, and those of rows that are gone but not vacuumed
        assert sum(count for name, count in read.items() if name.startswith("jobs")) < 50 * 1500, read
        assert read["jobs_order"] > 0
        assert sorted(took)[25] < 0.05
        await plain.close()


async def test_sequential_scans_would_be_counted(dsn18):
    """The control: the counter that the test above relies on sees a sequential scan."""
    async with PgStore.open(dsn18):
        plain = await asyncpg.connect(dsn18)
        sequential, _ = await counters(plain)
        await plain.execute("SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off")
        await plain.fetch("SELECT * FROM alkstore.jobs WHERE id = 1")
        assert (await counters(plain))[0] > sequential
        await plain.close()
