"""Followers never skip an event (S8): an adversarial run, with a plain reader beside it that must fail."""

import asyncio
import random

import asyncpg
import pytest
from alkstore_pg import PgStore

PUBLISHERS = 8
ROUNDS = 125


async def published(store: PgStore, stream: str, seed: int) -> list[int]:
    """Publish in transactions that pause at random points and roll back now and then; the offsets committed."""
    draw = random.Random(seed)
    committed = []
    for number in range(ROUNDS):
        tx = await store.begin_tx()
        offsets = []
        for _ in range(draw.randint(1, 3)):
            offsets.append(await tx.publish(stream, [seed, number]))
            if draw.random() < 0.5:
                await tx.connection.execute("SELECT pg_sleep($1)", draw.random() * 0.01)
        if draw.random() < 0.15:
            await tx.rollback()
        else:
            await tx.commit()
            committed += offsets
    return committed


async def followed(receiver, until: asyncio.Event, last) -> list[int]:
    """Everything that a follower gets, until it has the sentinel."""
    del until
    seen = []
    while True:
        event = await receiver.recv()
        if event.key == last:
            return seen
        seen.append(event.offset)


async def read_plainly(dsn: str, stream: str, stop: asyncio.Event) -> list[int]:
    """The control: everything above the last offset seen, again and again."""
    connection = await asyncpg.connect(dsn)
    seen: list[int] = []
    try:
        while not stop.is_set():
            rows = await connection.fetch(
                'SELECT "offset" FROM alkstore.events WHERE stream = $1 AND "offset" > $2 ORDER BY "offset"',
                stream,
                seen[-1] if seen else 0,
            )
            seen += [row[0] for row in rows]
    finally:
        await connection.close()
    return seen


async def test_no_event_is_skipped_where_a_plain_reader_skips(dsn):
    """Eight publishers with pauses and rollbacks beside a long unrelated transaction: nothing is skipped or doubled."""
    async with PgStore.open(dsn, max_size=20) as store, PgStore.open(dsn) as reading:
        unrelated = await store.begin_tx()
        await unrelated.enqueue("elsewhere", 1)  # it has a transaction number, the oldest of all
        other_stream = await store.begin_tx()
        await other_stream.publish("another", 1)
        stop = asyncio.Event()
        control = asyncio.ensure_future(read_plainly(dsn, "s", stop))
        async with asyncio.timeout(90), await reading.stream("s").subscribe("c") as receiver:
            following = asyncio.ensure_future(followed(receiver, stop, "last"))
            committed = await asyncio.gather(*(published(store, "s", seed) for seed in range(PUBLISHERS)))
            stop.set()
            await store.stream("s").publish(None, key="last")
            seen = await following
        skipping = await control
        await unrelated.rollback()
        await other_stream.rollback()
    expected = sorted(offset for offsets in committed for offset in offsets)
    assert seen == expected
    assert len(skipping) < len(expected), "the control did not skip: this run proves nothing"


async def test_a_follower_waits_for_an_older_publisher_and_for_nothing_else(dsn):
    """An older open publisher of the stream holds later events back; its commit, or its end, releases them at once."""
    async with PgStore.open(dsn) as store, await store.stream("s").subscribe("c") as receiver:
        for end in ("commit", "rollback", "die"):
            older = await store.begin_tx()
            first = await older.publish("s", "older")
            second = await store.stream("s").publish("newer")
            assert first < second
            assert await receiver.try_recv() is None
            assert [event.offset for event in await store.stream("s").read_since(first - 1)] == [second]
            if end == "die":
                older.connection.terminate()
            else:
                await (older.commit() if end == "commit" else older.rollback())
            async with asyncio.timeout(5):
                got = [(await receiver.recv()).offset]
                if end == "commit":
                    got.append((await receiver.recv()).offset)
            assert got == ([first, second] if end == "commit" else [second])
            if end == "die":
                await older.rollback()


async def test_a_savepoint_that_is_rolled_back_takes_its_floor_with_it(dsn):
    """A publish in a savepoint that is undone, then one outside: the second has its own floor, and is waited for."""
    async with PgStore.open(dsn) as store, await store.stream("s").subscribe("c") as receiver:
        older = await store.begin_tx()
        savepoint = older.connection.transaction()
        await savepoint.start()
        await older.publish("s", "undone")
        await savepoint.rollback()
        first = await older.publish("s", "kept")
        second = await store.stream("s").publish("newer")
        assert await receiver.try_recv() is None
        await older.commit()
        async with asyncio.timeout(5):
            assert [(await receiver.recv()).offset for _ in range(2)] == [first, second]


async def test_a_thousand_publishes_in_a_transaction_hold_one_lock(dsn, plain):
    """However much a transaction publishes to a stream, it takes one lock for it."""
    async with PgStore.open(dsn) as store, store.transaction() as tx:
        for number in range(1000):
            await tx.publish("s", number)
        assert await plain.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 1


@pytest.mark.parametrize("head", [0, 1, 2**40 - 2, 2**40 + 3, 3 * 2**40 - 1])
async def test_floors_are_told_apart_wherever_the_sequence_stands(dsn18, head):
    """A key holds 40 bits of the floor: waiting is right also where the sequence passes a multiple of 2^40."""
    async with PgStore.open(dsn18) as store:
        connection = await asyncpg.connect(dsn18)
        if head:
            await connection.execute(f"SELECT setval('alkstore.event_offsets', {head})")
        await connection.close()
        older = await store.begin_tx()
        first = await older.publish("s", 1)
        newer = [await store.stream("s").publish(number) for number in range(5)]
        session = store.session()
        assert await session.read_settled_events("s", 0, 100) == []
        await older.commit()
        assert [event.offset for event in await session.read_settled_events("s", 0, 100)] == [first, *newer]
