"""What is announced, and what it costs (N1, N7, P4, V4)."""

import asyncio

import asyncpg
import pytest
from alkstore_core.errors import PayloadTooLargeError
from alkstore_pg import PgStore
from alkstore_pg.notify import channel_of
from pg_waiting import query, until


async def listening(dsn, *topics):
    """A bare listener on the topics' channels, and the list that it fills."""
    heard = []
    connection = await asyncpg.connect(dsn)
    for topic in topics:
        await connection.add_listener(channel_of("alkstore", topic), lambda _c, _p, channel, _: heard.append(channel))
    return connection, heard


async def test_a_payload_may_have_7999_bytes(dsn):
    """One byte more is refused before any round trip, alone and on a transaction."""
    async with PgStore.open(dsn) as store, await store.listen("c") as receiver:
        await store.notify("c", "x" * 7997)
        assert await receiver.recv() is not None
        with pytest.raises(PayloadTooLargeError) as caught:
            await store.notify("c", "x" * 7998)
        assert (caught.value.limit, caught.value.size) == (7999, 8000)
        async with store.transaction() as tx:
            with pytest.raises(PayloadTooLargeError):
                await tx.notify("c", "é" * 4000)
            await tx.notify("c", "é" * 3998)
        assert await receiver.recv() is not None


@pytest.mark.parametrize(
    "name", ["x" * 5000, 'we"ird', "'; DROP", "new\nline", "\U0001f600" * 40, "ä" * 64, " padded "]
)
async def test_long_and_hostile_channel_names_wake_themselves_only(dsn, name):
    """Whatever a channel is called, it wakes its listeners, and not those of a name that shares its beginning."""
    async with PgStore.open(dsn) as store, PgStore.open(dsn) as other:
        receiver, neighbour = await store.listen(name), await store.listen(name + "!")
        await other.notify(name)
        assert (await receiver.recv()).channel == name
        await other.notify(name + "!")
        assert (await neighbour.recv()).channel == name + "!"
        assert await receiver.try_recv() is None
        await other.queue(name).enqueue(1)
        assert await store.queue(name).claim_one("w") is not None
        if len(name) < 1000:
            await other.stream(name).publish(1)
            async with await store.stream(name).subscribe(name) as events:
                assert (await events.recv()).stream == name


async def test_a_transaction_announces_once_per_topic(dsn, plain):
    """Ten thousand jobs into two queues in one transaction: a listener hears two announcements at most."""
    async with PgStore.open(dsn) as store:
        connection, heard = await listening(dsn, "q:a", "q:b", "c:done")
        async with store.transaction() as tx:
            await tx.connection.execute("SELECT 1")
            for number in range(200):
                await tx.enqueue("a" if number % 2 else "b", number)
        await store.queue("a").enqueue_many(range(10_000))
    # The store has announced all that it had to.
    await plain.execute("SELECT pg_notify($1, '')", channel_of("alkstore", "c:done"))
    await until(lambda: heard[-1:] == [channel_of("alkstore", "c:done")])
    assert len(heard) <= 5
    await connection.close()


async def test_an_enlisted_transaction_wakes_after_its_callers_commit(dsn, plain):
    """Announced inside: nothing before the commit, everything after; a savepoint rolled back is not announced."""
    async with PgStore.open(dsn) as store, PgStore.open(dsn) as other:
        watching = await other.engine.watch("q:work")
        undone = await other.engine.watch("q:undone")
        async with plain.transaction():
            await store.enlist(plain).enqueue("work", 1)
            try:
                async with plain.transaction():
                    await store.enlist(plain).enqueue("undone", 1)
                    raise LookupError
            except LookupError:
                pass
            await other.notify("sentinel")
            assert watching.take() is None
        async with asyncio.timeout(10):
            assert await watching.wait() == "q:work"
        assert undone.take() is None


async def test_a_burst_of_commits_is_announced_a_few_times(dsn):
    """A thousand commits in a row: far fewer announcements, and the last of them comes after the last commit."""
    async with PgStore.open(dsn) as store:
        connection, heard = await listening(dsn, "q:work")
        await asyncio.gather(*(store.queue("work").enqueue(number) for number in range(1000)))
        await until(lambda: len(heard) > 0)
        assert len(heard) < 100
        await connection.close()


async def test_a_listener_that_does_not_read_does_not_block_the_server(dsn, plain):
    """Fifty thousand notifies to a receiver that nobody reads: the server never waits to write to the listener."""
    async with PgStore.open(dsn) as store:
        receiver = await store.listen("c")
        for _ in range(10):
            await plain.execute(
                "SELECT count(pg_notify($1, n::text)) FROM generate_series(1, 5000) n", channel_of("alkstore", "c:c")
            )
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite' AND pid <> pg_backend_pid()"
            )
            await until(query(plain, waiting, 0), 2)
        assert (await receiver.recv()).channel == "c"


async def test_unwanted_channels_are_given_up(dsn):
    """Receivers that are closed cost the server nothing: their channels are unlistened."""
    async with PgStore.open(dsn) as store:
        for number in range(50):
            async with store.listen(f"c{number}"):
                pass
        kept = await store.listen("kept")
        await until(lambda: len(store.engine.listener._listening) <= 1)
        await store.notify("kept")
        assert await kept.recv() is not None


async def test_a_store_learns_that_another_process_hears_its_wakes(dsn):
    """The listener of the queue's topic answers; nobody else does, and notify's payload is taken for no sender."""
    async with PgStore.open(dsn) as store, PgStore.open(dsn) as other, await other.listen("work") as receiver:
        waker = store.engine._waker
        watching = await other.engine.watch("q:work")
        await store.queue("elsewhere").enqueue(1)
        await store.notify("work", store.engine._identity)
        assert await receiver.recv() is not None
        assert other.engine.listener._known == set()
        async with other.listen("later"):
            pass  # by now the other's listener has beaten again, and would have answered
        assert not waker.is_heard
        await store.queue("work").enqueue(1)
        assert await watching.wait() == "q:work"
        await until(lambda: waker.is_heard)
        assert not other.engine._waker.is_heard


async def test_an_answer_is_no_sign_of_life(dsn):
    """What other listeners answer on a store's own channel does not pass for the beat that it waits for."""
    async with PgStore.open(dsn) as store:
        listener = store.engine.listener
        await store.engine.watch("q:work")
        before = listener._heard
        listener._heard = waited_for = asyncio.get_running_loop().create_future()
        listener._notified(None, 0, listener._beat_channel, "heard")
        assert not waited_for.done()
        listener._notified(None, 0, listener._beat_channel, "")
        assert waited_for.done()
        listener._heard = before


async def test_a_listener_answers_a_store_once_between_two_beats(dsn, plain):
    """However many wakes of one store it hears."""
    async with PgStore.open(dsn) as store, PgStore.open(dsn) as other:
        watching, answers = await other.engine.watch("q:work"), []
        await plain.add_listener(
            channel_of("alkstore", f"b:{store.engine._identity}"), lambda *heard: answers.append(heard[3] == "heard")
        )
        begun = asyncio.get_running_loop().time()
        for number in range(20):
            await store.queue("work").enqueue(number)
            assert await watching.wait() == "q:work"
        await until(lambda: any(answers))
        await other.engine.watch("q:more")  # it has beaten again
        assert sum(answers) <= 2 + asyncio.get_running_loop().time() - begun
