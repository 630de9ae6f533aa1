"""What a check and an acknowledgement cost does not grow with a mailbox's history, nor with what is unread."""

import time

import asyncpg
import pytest
from alkstore_core.values import Holder
from alkstore_pg import PgStore
from pg_waiting import counted

READ = 1_000_000
HOLDER = Holder("run", "7", 1)

FILL = """
INSERT INTO alkstore.messages (mailbox, id, type, payload, read, created_at)
SELECT 'box', $1 || i, 'heartbeat', '1', $2, 1 FROM generate_series(1, $3::bigint) AS i
"""
HISTORY = """
INSERT INTO alkstore.deliveries (id, mailbox, source, subject, generation, message_ids, reach, created_at,
    acknowledged_at, fenced)
SELECT $1 || max(sequence), 'box', 'run', '7', 1, array_agg(id ORDER BY sequence), max(sequence), 1, $2, $3
FROM alkstore.messages WHERE starts_with(id, $1) GROUP BY sequence / 50
"""
COUNTS = "SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = 'alkstore'"
SEQUENTIAL = """
SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE schemaname = 'alkstore' AND relname IN ('messages', 'deliveries')
"""


async def counters(plain, store) -> tuple[int, dict[str, int]]:
    await counted(plain, store)
    return int(await plain.fetchval(SEQUENTIAL)), dict(await plain.fetch(COUNTS))


@pytest.mark.parametrize("analysed", [False, True], ids=["no-statistics", "analysed"])
async def test_mailboxes_use_their_indexes_after_a_million_messages(dsn18, analysed):
    """A million read messages, in acknowledged, fenced and suppressed batches, and many unread: no scan, no growth."""
    async with PgStore.open(dsn18, min_size=1, max_size=1) as store:
        plain = await asyncpg.connect(dsn18)
        await plain.execute("ALTER TABLE alkstore.messages SET (autovacuum_enabled = false)")
        await plain.execute("ALTER TABLE alkstore.deliveries SET (autovacuum_enabled = false)")
        mailbox = store.mailbox("box")
        assert await mailbox.attach(source="run", subject="7") == HOLDER
        for _ in range(12):  # planned on empty tables, and kept
            await mailbox.send(1)
            delivery = await mailbox.check(HOLDER)
            await mailbox.mark_read([delivery.messages[0].id])
            await mailbox.acknowledge(HOLDER, delivery.id)
            await mailbox.pending()
        for fate, acknowledged_at, fenced in (("a", 1, False), ("f", None, True), ("s", None, False)):
            await plain.execute(FILL, fate, True, READ // 3)
            await plain.execute("SET session_replication_role = replica")  # the guard is not what is filled in for
            await plain.execute(HISTORY, fate, acknowledged_at, fenced)
        await plain.execute(FILL, "u", False, 50_000)
        if analysed:
            await plain.execute("ANALYZE alkstore.messages, alkstore.deliveries")
        sequential, before = await counters(plain, store)
        took = []
        for _ in range(20):
            started = time.perf_counter()
            delivery = await mailbox.check(HOLDER)
            again = await mailbox.check(HOLDER, types=["heartbeat"])
            assert (len(again.messages), again.id, again.replayed) == (50, delivery.id, True)
            await mailbox.mark_read([delivery.messages[7].id])
            await mailbox.acknowledge(HOLDER, delivery.id)
            assert await mailbox.check(HOLDER, types=["nothing of the kind"]) is None
            took.append(time.perf_counter() - started)
            await mailbox.send(1, "heartbeat")
        await mailbox.adopt(source="run", subject="7")
        after_sequential, after = await counters(plain, store)
        assert after_sequential == sequential
        read = {name: after[name] - before[name] for name in after}
        # 20 rounds: fifty messages are looked at some times each, and entries of what was read and not vacuumed
        fenced_at_the_end = READ // 150
        assert sum(read.values()) < 20 * 3000 + 2 * fenced_at_the_end, {k: v for k, v in read.items() if v}
        assert read["deliveries_open"] > 0
        assert sorted(took)[10] < 0.2
        await plain.close()


async def test_the_view_is_looked_up_and_not_walked(dsn18):
    """EXPLAIN of the view, as everything asks it: an index on what may be outstanding, and messages by their ids."""
    async with PgStore.open(dsn18) as store:
        await store.mailbox("box").send(1)
        plain = await asyncpg.connect(dsn18)
        await plain.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off")
        await plain.execute("SET enable_mergejoin = off")
        plan = "\n".join(
            row[0]
            for row in await plain.fetch(
                "EXPLAIN SELECT id FROM alkstore.outstanding_deliveries o WHERE o.mailbox = 'box' AND o.reach >= ("
                "SELECT m.sequence FROM alkstore.messages m WHERE m.mailbox = 'box' AND NOT m.read "
                "ORDER BY m.sequence LIMIT 1)"
            )
        )
        assert "Index Scan using deliveries_open" in plan, plan
        assert "Index Cond: (id = ANY (d.message_ids))" in plan, plan
        assert "messages_unread" in plan, plan
        assert "Seq Scan" not in plan, plan
        await plain.close()
