"""Names of any length work, and none is confused with another (V4)."""

import asyncio
import random

import asyncpg
import pytest
from alkstore_core.engine import NewSchedule
from alkstore_core.options import ScheduleOptions
from alkstore_core.testing import ManualClock
from alkstore_core.wakes import queue_topic
from alkstore_pg import PgStore
from alkstore_pg.names import LONGEST_INDEXED_BYTES, key_of
from alkstore_pg.schema import upgrades
from test_schema import FUNCTIONS, SHAPE

NOISE = "".join(
    random.Random(1).choices([chr(code) for code in (*range(0x21, 0x7F), *range(0x4E00, 0x9F00))], k=60_000)
)
"""Nothing in it compresses."""
LENGTHS = (249, 250, 251, 333, 334, 1000, 1001, 2700, 60_000)


async def used(store: PgStore, name: str, told: str) -> None:
    """Whatever a name can name, once, and `told` comes out again, from this name only."""
    queue, stream = store.queue(name), store.stream(name)
    job_id = await queue.enqueue(told)
    ids = [job_id, *await queue.enqueue_many([told, told])]
    async with store.transaction() as tx:
        ids.append(await tx.enqueue(name, told))
        assert (await tx.get_job(name, ids[-1])).queue == name
        await tx.publish(name, told)
    assert [(await queue.get_job(number)).queue for number in ids] == [name] * 4
    handles = await queue.claim_batch("w", 100)
    assert [(handle.job.id, handle.job.queue, handle.job.payload_as(str)) for handle in handles] == [
        (number, name, told) for number in ids
    ]
    assert await handles[0].retry("x", delay=100)
    assert await queue.cancel(ids[0])
    assert await queue.ack_batch("w", ids) == 3
    assert [(event.stream, event.payload_as(str)) for event in await stream.read_since(0)] == [(name, told)]
    offset = (await stream.read_from_consumer(name))[0].offset
    await stream.save_offset(name, offset)
    assert await stream.get_offset(name) == offset
    assert await stream.read_from_consumer(name) == []
    assert await stream.trim_to(offset) == 1
    lock = await store.try_lock(name, name, 100)
    assert lock.name == name
    assert await store.try_lock(name, "another", 100) is None
    assert await lock.renew(100)
    assert await lock.release()


@pytest.mark.parametrize("length", LENGTHS)
async def test_a_name_of_any_length_names_everything(dsn, length):
    """A queue, stream, consumer and lock of a long name with nothing in it to compress, and of its neighbours."""
    name = NOISE[:length]
    async with PgStore.open(dsn) as store:
        for told, other in enumerate((name, name[:-1], name[:-1] + "x", name + "x")):
            await used(store, other, str(told))


async def test_concurrent_writes_to_long_and_short_names_share_a_statement(dsn):
    """Callers of different queues in one statement, with long names and short ones: each job lands in its own queue."""
    names = [NOISE[:length] for length in LENGTHS] + ["a", "b"]
    async with PgStore.open(dsn) as store:
        ids = await asyncio.gather(
            *(store.queue(name).enqueue(1, priority=number % 3) for name in names for number in range(4))
        )
        jobs = [await store.queue("a").get_job(number) for number in ids]
        assert [job.queue for job in jobs] == [name for name in names for _ in range(4)]


async def test_long_queues_and_schedules_wake_and_fire(dsn):
    """A schedule with a long name fires into a queue with a long name, tells both, and wakes that queue."""
    clock = ManualClock()
    async with PgStore.open(dsn, clock=clock) as store, PgStore.open(dsn, clock=clock) as other:
        session = store.session()
        queue, name = NOISE[:5000], NOISE[1:5001]
        await session.put_schedule(NewSchedule(name, "@every 10s", 10, queue, b'"fired"', ScheduleOptions()))
        await session.put_schedule(NewSchedule(name, "@every 10s", 10, queue, b'"later"', ScheduleOptions()))
        subscription = await other.engine.watch(queue_topic(queue))
        clock.advance(10)
        leader = await session.take_lock("l", "me", 1000)
        firing = await session.fire_next(leader)
        assert (firing.schedule, firing.fired) == (name, 1)
        async with asyncio.timeout(10):
            assert await subscription.wait() == queue_topic(queue)
        subscription.close()
        job = (await other.queue(queue).claim_one("w")).job
        assert (job.queue, job.payload) == (queue, b'"later"')
        assert (await store.queue("x").get_job(job.id)).queue == queue
        assert await store.unschedule(name)
        assert not await store.unschedule(name)


async def test_a_consumer_may_be_named_like_a_hash(dsn):
    """The one name that a hash could be taken for is a consumer's, since a consumer's may start with the prefix."""
    name = NOISE[:5000]
    async with PgStore.open(dsn) as store:
        stream = store.stream("s")
        await stream.save_offset(name, 7)
        assert await stream.get_offset(key_of(name)) == 0
        await stream.save_offset(key_of(name), 8)
        assert (await stream.get_offset(name), await stream.get_offset(key_of(name))) == (7, 8)
        assert key_of(key_of(name)) != key_of(name)


def test_keys_are_the_names_where_an_index_has_room():
    """Names are kept as they are up to the limit in bytes, and no key is longer than that."""
    for letter, width in (("a", 1), ("é", 2), ("中", 3), ("😀", 4)):
        fits = LONGEST_INDEXED_BYTES // width
        assert key_of(letter * fits) == letter * fits
        assert key_of(letter * (fits + 1)) != letter * (fits + 1)
        assert len(key_of(letter * 100_000)) < 100


async def test_a_database_of_version_1_keeps_its_long_names(dsn, plain):
    """Rows with names that version 1 could just index are found after the upgrade, which ends as a fresh schema."""
    name, consumer = NOISE[:700], NOISE[700:1100]  # 3 bytes a letter, nearly
    assert LONGEST_INDEXED_BYTES < len(name.encode()) < 2600
    (_, version_1), *_ = upgrades("alkstore", 0)
    await plain.execute("CREATE SCHEMA alkstore")
    await plain.execute(version_1)
    await plain.execute("INSERT INTO alkstore.migrations (version) VALUES (1)")
    await plain.execute(
        "INSERT INTO alkstore.jobs (queue, payload, state, place, priority, ready_at, attempts, max_attempts, "
        "visibility_timeout_s, backoff_base_s, created_at) SELECT q, '1', 0, 1, 0, 0, 0, 3, 300, 5, 0 "
        "FROM unnest($1::text[]) q",
        [name, "short"],
    )
    await plain.execute("INSERT INTO alkstore.events (created_at, stream, payload) VALUES (0, $1, '1')", name)
    await plain.execute("INSERT INTO alkstore.offsets VALUES ('s', $1, 7)", consumer)
    await plain.execute("INSERT INTO alkstore.locks VALUES ($1, 'me', 3, $2)", name, 2**60)
    await plain.execute("INSERT INTO alkstore.schedules VALUES ($1, '@every 1s', 1, $1, '1', 0, NULL, NULL, 5)", name)
    async with PgStore.open(dsn) as store:
        assert {(await store.queue("x").get_job(number)).queue for number in (1, 2)} == {name, "short"}
        assert (await store.queue(name).claim_one("w")).job.queue == name
        assert [event.payload for event in await store.stream(name).read_since(0)] == [b"1"]
        assert await store.stream("s").get_offset(consumer) == 7
        assert (await store.try_lock(name, "me", 5)).token == 3
        leader = await store.session().take_lock("l", "me", 1000)
        assert (await store.session().fire_next(leader)).schedule == name
        assert await store.unschedule(name)
    upgraded = await plain.fetch(SHAPE), await plain.fetch(FUNCTIONS)
    await plain.execute("DROP SCHEMA alkstore CASCADE")
    async with PgStore.open(dsn):
        pass
    assert (await plain.fetch(SHAPE), await plain.fetch(FUNCTIONS)) == upgraded


async def test_the_index_has_no_room_for_such_a_name_itself(dsn, plain):
    """The control: what the keys are for. Indexed as it is, a long name that does not compress is refused."""
    async with PgStore.open(dsn):
        pass
    with pytest.raises(asyncpg.ProgramLimitExceededError):
        await plain.execute("INSERT INTO alkstore.locks VALUES ($1, 'me', 1, 1)", NOISE[:3000])
