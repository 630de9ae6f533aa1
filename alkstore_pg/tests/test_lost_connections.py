"""Wakes and writes while connections die, the server restarts, and the network goes silent (N5, T9, T12)."""

import asyncio
import time

import asyncpg
import pytest
from alkstore_core import LISTENER_RECONNECTED
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.testing import running_tasks
from alkstore_pg import PgStore, listener
from alkstore_pg.servers import LocalServer
from pg_proxy import proxied
from pg_waiting import query, until

TERMINATE_OTHERS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
BACKENDS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


async def reconnected(receiver) -> None:
    """Wait for the reconnect wake, passing others by."""
    async with asyncio.timeout(20):
        while (await receiver.recv()).channel != LISTENER_RECONNECTED:
            pass


async def enqueued(store: PgStore, payload: object) -> int:
    """Enqueue until it works, as a caller with a retry would."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await store.queue("work").enqueue(payload)
            except DatabaseError:
                await asyncio.sleep(0.01)


async def test_wakes_are_restored_within_a_second_of_losing_every_backend(dsn, plain):
    """All backends terminated: every receiver, whatever it listens to, gets the reconnect wake within a second."""
    async with PgStore.open(dsn) as store:
        receivers = [await store.listen("a"), await store.listen("b")]
        watching = await store.engine.watch("q:work")
        before = time.monotonic()
        assert await plain.fetchval(TERMINATE_OTHERS) >= 2
        await asyncio.gather(*map(reconnected, receivers))
        async with asyncio.timeout(20):
            while await watching.wait() != LISTENER_RECONNECTED:
                pass
        assert time.monotonic() - before < 1
        assert store.engine.listener.reconnections == 1
        async with PgStore.open(dsn) as other:
            await other.notify("b")
            async with asyncio.timeout(10):
                assert (await receivers[1].recv()).channel == "b"


async def test_wakes_are_restored_within_a_second_of_a_restart(own_server: LocalServer):
    """The server restarts: wakes are back within a second of it taking connections, and writes work again."""
    async with PgStore.open(own_server.dsn) as store:
        receiver = await store.listen("a")
        await asyncio.to_thread(own_server.stop)
        with pytest.raises(DatabaseError):
            await store.queue("work").enqueue(0)
        await asyncio.to_thread(own_server.start)
        started = time.monotonic()
        await reconnected(receiver)
        assert time.monotonic() - started < 1
        assert await store.queue("work").enqueue(1)
        await store.notify("a")
        async with asyncio.timeout(10):
            assert (await receiver.recv()).channel == "a"


async def test_a_silent_cut_is_noticed_and_wakes_are_restored_within_five_seconds(dsn18):
    """The link goes dead without a word: within 5 s of the network's return wakes are back."""
    async with proxied(dsn18) as (proxy, through), PgStore.open(through) as store:
        receiver = await store.listen("a")
        proxy.freeze()
        await until(lambda: not store.engine.listener.is_connected)
        proxy.thaw()
        thawed = time.monotonic()
        await reconnected(receiver)
        assert time.monotonic() - thawed < 5
        assert await store.queue("work").enqueue(1) > 0


async def test_a_job_committed_in_the_gap_is_found_without_a_scan(dsn, plain):
    """What was committed while nobody listened is readable by the time of the reconnect wake."""
    async with PgStore.open(dsn) as store, PgStore.open(dsn) as other:
        for number in range(5):
            watching = await store.engine.watch("q:work")
            await plain.execute(TERMINATE_OTHERS)
            job_id = await enqueued(other, number)
            async with asyncio.timeout(10):
                while await watching.wait() != LISTENER_RECONNECTED:
                    pass
            found = await asyncio.gather(*(claimed(store) for _ in range(2)))
            assert job_id in [handle.job.id for handle in found if handle is not None]
            watching.close()


async def claimed(store: PgStore):
    while True:
        try:
            return await store.queue("work").claim_one("w")
        except DatabaseError:
            await asyncio.sleep(0.01)


async def test_nothing_leaks_over_fifty_rounds_of_lost_connections(dsn, plain):
    """Backends, tasks and pool slots are as before after fifty rounds of losing all of them, in and out of use."""
    async with PgStore.open(dsn, max_size=3) as store:
        receiver = await store.listen("a")
        await store.queue("work").enqueue(0)
        tasks = len(running_tasks())
        for number in range(50):
            held = [await store.begin_tx() for _ in range(3)]
            await plain.execute(TERMINATE_OTHERS)
            for tx in held:
                with pytest.raises(DatabaseError):
                    await tx.enqueue("work", number)
                await tx.rollback()
            await reconnected(receiver)
            await enqueued(store, number)
        await until(lambda: len(running_tasks()) <= tasks)
        await until(query(plain, BACKENDS.replace("count(*)", "count(*) <= 4"), True))
    await until(query(plain, BACKENDS, 0))


async def test_close_is_prompt_when_the_network_is_gone(dsn18):
    """A store whose server went silent closes within a few seconds, and leaves no task behind."""
    async with proxied(dsn18) as (proxy, through):
        before = running_tasks()
        store = await PgStore.open(through)
        await store.listen("a")
        tx = await store.begin_tx()
        proxy.freeze()
        stuck = asyncio.ensure_future(store.queue("work").enqueue(1))
        await asyncio.sleep(0)
        started = time.monotonic()
        await store.close()
        assert time.monotonic() - started < 7
        with pytest.raises((ClosedError, DatabaseError)):
            await stuck
        with pytest.raises((ClosedError, DatabaseError)):
            await tx.rollback()
        proxy.thaw()
        left = {task for task in running_tasks() - before if "pg_proxy" not in repr(task)}
        assert left == set()


async def test_a_listener_that_cannot_register_leaves_nothing(dsn, plain, monkeypatch):
    """LISTEN fails after the connection was made, fifty times: no connection is left over."""
    monkeypatch.setattr(listener, "_LONGEST_PAUSE_S", 0.005)  # between one failure and the next attempt
    failures = 50
    original = asyncpg.Connection.add_listener

    async def failing(connection, channel, callback):
        nonlocal failures
        if failures:
            failures -= 1
            raise asyncpg.PostgresError("refused")
        await original(connection, channel, callback)

    monkeypatch.setattr(asyncpg.Connection, "add_listener", failing)
    async with PgStore.open(dsn) as store:
        async with asyncio.timeout(10):
            await store.engine.watch("q:work")
        assert failures == 0
        await until(query(plain, BACKENDS.replace("count(*)", "count(*) <= 3"), True))
