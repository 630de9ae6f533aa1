"""Noticing other processes' commits: nothing missed, nothing twice, bounded (N2, N5, N6, N7)."""

import asyncio
import gc
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest
from alkstore_core.errors import DatabaseError
from alkstore_core.wakes import channel_topic
from alkstore_sqlite import SqliteStore, notify
from alkstore_sqlite.watcher import Watcher


async def test_a_commit_met_by_a_locked_database_wakes_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that finds the database locked is repeated against what was seen before it, not after it."""
    looked = Watcher._changed
    refusals = iter([sqlite3.OperationalError("database is locked"), sqlite3.OperationalError("disk I/O error")])

    def refused(self: Watcher, cursor: sqlite3.Cursor) -> list[str]:
        for error in refusals:
            raise error
        return looked(self, cursor)

    async with SqliteStore.open(path) as store, SqliteStore.open(path) as other, store.listen("c") as receiver:
        monkeypatch.setattr(Watcher, "_changed", refused)
        await other.notify("c")
        async with asyncio.timeout(10):
            assert (await receiver.recv()) is not None


async def test_a_store_hears_its_own_commit_once(store: SqliteStore) -> None:
    """Woken directly, and not again by the watcher that sees the same commit."""
    async with store.listen("c") as receiver, store.listen("sentinel") as sentinel:
        for _ in range(50):
            await store.notify("c")
            assert await receiver.try_recv() is not None
            async with store.transaction() as tx:
                await tx.notify("c")
            assert await receiver.try_recv() is not None
        async with SqliteStore.open(store.engine.database.path) as other:  # type: ignore[attr-defined]
            await other.notify("sentinel")
        async with asyncio.timeout(10):
            await sentinel.recv()
        assert await receiver.try_recv() is None


async def test_channels_named_after_ids_do_not_fill_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stamps are kept for a bounded number of topics, and a listener whose stamp was dropped still hears the next."""
    monkeypatch.setattr(notify, "TOPIC_LIMIT", 50)
    monkeypatch.setattr(notify, "BOUND_EVERY", 1)
    async with SqliteStore.open(path) as store, SqliteStore.open(path) as other, store.listen("c") as receiver:
        for number in range(500):
            await other.notify(f"order-{number}")
        for number in range(100):
            async with other.transaction() as tx:
                await tx.notify(f"invoice-{number}")
        async with other.begin_tx() as tx:
            (count,) = await tx.connection.execute_fetchall("SELECT count(*) FROM alkstore_wakes")
        assert count[0] <= 51
        for _ in range(20):
            await other.notify("c")
            async with asyncio.timeout(10):
                assert (await receiver.recv()) is not None


async def test_listeners_that_left_are_forgotten(store: SqliteStore) -> None:
    """What nobody listens to any more is not looked at, nor remembered."""
    watcher = store.engine._watcher  # type: ignore[attr-defined]
    for number in range(100):
        async with store.listen(f"c{number}") as receiver:
            await store.notify(f"c{number}")
            assert await receiver.recv() is not None
    async with store.listen("last"), SqliteStore.open(store.engine.database.path) as other:  # type: ignore[attr-defined]
        async with store.listen("sentinel") as sentinel:
            await other.notify("sentinel")
            async with asyncio.timeout(10):
                await sentinel.recv()
        assert set(watcher._seen) <= {channel_topic("last"), channel_topic("sentinel")}
        assert set(watcher._own) <= {channel_topic("last"), channel_topic("sentinel")}


async def test_cancelled_listens_leave_no_subscription(store: SqliteStore) -> None:
    """Cancelled at any turn of the loop, a listen is in the hub no more."""
    hub = store.engine.hub  # type: ignore[attr-defined]
    for turns in range(200):
        task = asyncio.create_task(listened(store))
        for _ in range(turns % 20):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await (await task).close()
    async with store.listen("c"):
        assert len(hub) == 1


async def listened(store: SqliteStore):
    return await store.listen("c")


async def test_a_watcher_that_cannot_look_ends_its_receivers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while of failing it says so, to who listens and to who wants to: nobody waits in silence (N5)."""
    monkeypatch.setattr("alkstore_sqlite.watcher._PATIENCE_S", 0.05)
    async with SqliteStore.open(path) as store, store.listen("c") as receiver:
        with closing(sqlite3.connect(path, isolation_level=None)) as spoiler:
            spoiler.execute("DROP TABLE alkstore_wakes")
        async with asyncio.timeout(10):
            assert await receiver.recv() is None
            with pytest.raises(DatabaseError, match="alkstore_wakes"):
                await store.listen("c")


async def test_the_receivers_of_a_dropped_store_end(path: Path) -> None:
    """Nothing would wake them any more (N5, T15)."""

    async def listening():
        store = await SqliteStore.open(path)
        return await store.listen("c")

    with pytest.warns(ResourceWarning, match="never closed"):
        receiver = await listening()
    async with asyncio.timeout(10):
        assert await receiver.recv() is None
    for thread in threading.enumerate():
        if thread.name.startswith("alkstore"):
            thread.join(10)
    gc.collect()  # its files are closed with it
