"""Mailboxes on Postgres: who does what at the same moment, and names of any length."""

import asyncio

import asyncpg
import pytest
from alkstore_pg import PgStore

INSERT = """
INSERT INTO alkstore.deliveries (id, mailbox, source, subject, generation, message_ids, reach, created_at)
SELECT $1, 'box', 'by', 'hand', 0, ARRAY[id], sequence, 1 FROM alkstore.messages WHERE id = $2
"""
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def test_the_guard_holds_for_plain_sql_at_the_same_moment(dsn):
    """Two transactions that insert a delivery each, neither seeing the other's: one waits for the other, and fails."""
    async with PgStore.open(dsn) as store:
        messages = [await store.mailbox("box").send(number) for number in range(2)]
        first, second = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
        for number in range(20):
            ahead = first.transaction()
            await ahead.start()
            await first.execute(INSERT, f"first {number}", messages[0])
            waiting = asyncio.ensure_future(second.execute(INSERT, f"second {number}", messages[1]))
            while not await first.fetchval(WAITING):
                assert not waiting.done(), "it did not wait"
            if number % 2:
                await ahead.rollback()
                assert await waiting == "INSERT 0 1"
                await second.execute("DELETE FROM alkstore.deliveries")
            else:
                await ahead.commit()
                with pytest.raises(asyncpg.UniqueViolationError, match="outstanding"):
                    await waiting
                await first.execute("DELETE FROM alkstore.deliveries")
        await first.close()
        await second.close()


async def test_a_business_transaction_keeps_no_consumer_waiting(dsn):
    """While a transaction that has sent and suppressed is open, consumers attach, check and acknowledge."""
    async with PgStore.open(dsn) as store:
        mailbox = store.mailbox("box")
        obsolete = await mailbox.send("obsolete")
        async with store.transaction() as tx:
            await tx.send("box", "new")
            await tx.mark_read("box", [obsolete])
            others = await mailbox.send("of another")
            holder = await mailbox.attach(source="run", subject="7")
            delivery = await mailbox.check(holder)
            assert [message.id for message in delivery.messages] == [obsolete, others]
            assert (await store.mailbox("other").pending()) == []
        assert [message.payload_as(str) for message in await mailbox.pending()] == ["new"]
        assert (await mailbox.acknowledge(holder, delivery.id)).duplicate is False
        assert [message.payload_as(str) for message in (await mailbox.check(holder)).messages] == ["new"]


@pytest.mark.parametrize("length", [250, 1001, 60_000])
async def test_names_of_any_length_are_kept_apart(dsn, length):
    """Mailboxes, sources, subjects and types that differ in their last character only are different ones (V4)."""
    long = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(length))
    async with PgStore.open(dsn) as store:
        names = [long, long[:-1] + "x"]
        holders = {}
        for name in names:
            mailbox = store.mailbox(name)
            holders[name] = await mailbox.attach(source=name, subject=name)
            async with mailbox.listen() as wakes:
                await mailbox.send(name[-1], name)
                assert (await wakes.recv()).channel == name
        for name, other in zip(names, reversed(names), strict=True):
            mailbox, holder = store.mailbox(name), holders[name]
            assert await mailbox.check(holder, types=[other]) is None
            delivery = await mailbox.check(holder, types=[name])
            (message,) = delivery.messages
            assert (message.mailbox, message.type, message.payload_as(str)) == (name, name, name[-1])
            assert (await mailbox.acknowledge(holder, delivery.id)).duplicate is False
