"""Stores with one name share their data, in one process, on any event loop."""

import asyncio
import gc
import subprocess
import sys
import threading
import uuid

import pytest
from alkstore_core import Wake, open_store
from alkstore_core.errors import ClosedError, DatabaseError, InvalidNameError
from alkstore_core.testing import ManualClock
from alkstore_mem import MemStore


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def drop(held: list) -> None:
    """Let go of what is held, as a program does that forgets to close it."""
    held.clear()
    gc.collect()


async def test_stores_of_one_name_share_everything(name: str):
    """What one store commits, another with its name sees and hears."""
    clock = ManualClock()
    async with MemStore.open(name, clock=clock) as one, MemStore.open(name, clock=clock) as two:
        async with two.listen("c") as receiver:
            async with one.transaction() as tx:
                job_id = await tx.enqueue("q", 1)
                await tx.notify("c")
                await tx.connection.put("k", "v")
                assert await two.queue("q").get_job(job_id) is None
                assert await two.rows.items() == {}
                assert await receiver.try_recv() is None
            assert await receiver.recv() == Wake("c")
        assert await two.queue("q").get_job(job_id) == await one.queue("q").get_job(job_id) is not None
        assert await two.rows.items() == {"k": "v"}
        assert await one.try_lock("l", "one", 10) is not None
        assert await two.try_lock("l", "two", 10) is None


async def test_stores_without_a_name_share_nothing():
    """A store opened without a name has data of its own."""
    async with MemStore.open() as one, MemStore.open() as two:
        job_id = await one.queue("q").enqueue(1)
        assert await two.queue("q").get_job(job_id) is None


async def test_data_is_gone_with_its_last_store(name: str):
    """Data lasts as long as some store of its name is open, and no longer."""
    one = await MemStore.open(name)
    job_id = await one.queue("q").enqueue(1)
    two = await MemStore.open(name)
    await one.close()
    assert await two.queue("q").get_job(job_id) is not None
    await two.close()
    async with MemStore.open(name) as three:
        assert await three.queue("q").get_job(job_id) is None


async def test_data_of_a_forgotten_store_is_gone(name: str):
    """A store that was dropped unclosed does not keep its data for the next one of its name."""
    held = [await MemStore.open(name)]
    await held[0].queue("q").enqueue(1)
    with pytest.warns(ResourceWarning, match="never closed"):
        drop(held)
    async with MemStore.open(name) as other:
        assert await other.queue("q").claim_one("w") is None


async def test_a_forgotten_store_frees_the_writer_and_ends_its_receivers(name: str):
    """A store dropped with a transaction open leaves a writer for others; its receivers end (N5, T15)."""
    async with asyncio.timeout(10), MemStore.open(name, busy_timeout=0) as other:
        held = [await MemStore.open(name)]
        receiver = await held[0].listen("c")
        session = await held[0].engine.begin()
        with pytest.warns(ResourceWarning, match="never closed"):
            drop(held)
        await asyncio.create_task(other.queue("q").enqueue(1))
        with pytest.raises(ClosedError):
            await session.commit()
        assert await receiver.recv() is None


@pytest.mark.parametrize("url", ["mem:", "mem:{name}"])
async def test_urls_open_stores(url: str, name: str):
    """``open_store`` finds this engine by its scheme, and the name behind it is the store's."""
    async with open_store(url.format(name=name), clock=ManualClock(7)) as store, MemStore.open(name) as named:
        await store.queue("q").enqueue(1)
        job = (await store.queue("q").claim_batch("w", 1))[0].job
        assert (type(store), job.created_at) == (MemStore, 7)
        assert (await named.queue("q").get_job(job.id) is not None) == (name in repr(store))


async def test_what_names_no_store_is_refused():
    """Blank names, URLs of files and unknown options are refused before anything is opened."""
    with pytest.raises(InvalidNameError):
        MemStore.open("  ")
    with pytest.raises(DatabaseError, match="write 'mem:'"):
        open_store("mem:///app.db")
    with pytest.raises(TypeError):
        open_store("mem:", cache=True)


async def test_stores_on_several_threads_share_data(name: str):
    """Loops on several threads write and listen together, and none loses a wake or an update (T11)."""
    threads, rounds = 4, 50
    barrier = threading.Barrier(threads)

    async def count_up() -> int:
        async with asyncio.timeout(30), MemStore.open(name) as store, store.stream("s").subscribe("reader") as events:
            await asyncio.to_thread(barrier.wait, 10)
            for _ in range(rounds):
                async with store.transaction() as tx:
                    await tx.connection.put("n", await tx.connection.get("n", 0) + 1)
                    await tx.publish("s", None)
            seen = [event.offset for event in [await events.recv() for _ in range(threads * rounds)] if event]
            assert seen == list(range(1, threads * rounds + 1))
            await asyncio.to_thread(barrier.wait, 10)
            return await store.rows.get("n")

    counts = await asyncio.gather(*(asyncio.to_thread(asyncio.run, count_up()) for _ in range(threads)))
    assert counts == [threads * rounds] * threads


async def test_a_listener_hears_nothing_that_another_thread_committed_before_it(name: str):
    """Listening starts from now also where the wake comes from another thread (N2)."""

    async def notify() -> None:
        async with MemStore.open(name) as store:
            await store.notify("c")

    async with MemStore.open(name) as store:
        earlier = await store.listen("c")
        thread = threading.Thread(target=asyncio.run, args=(notify(),))
        thread.start()
        thread.join()  # without giving the loop a chance to pass the wake on
        async with store.listen("c") as receiver, earlier:
            assert await earlier.recv() == Wake("c")
            assert await receiver.try_recv() is None


async def test_a_store_whose_loop_is_gone_stops_nobody(name: str):
    """A store left open on a loop that has ended neither breaks others' commits nor, collected, keeps the writer."""

    async def leave_open() -> list:
        store = await MemStore.open(name)
        return [store, await store.listen("c")]

    async def leave_writing() -> list:
        store = await MemStore.open(name)
        return [store, await store.begin_tx()]

    held = await asyncio.to_thread(asyncio.run, leave_open())
    async with asyncio.timeout(10), MemStore.open(name, busy_timeout=0) as store, store.listen("c") as receiver:
        await store.notify("c")
        assert await receiver.recv() == Wake("c")
        held += await asyncio.to_thread(asyncio.run, leave_writing())
        with pytest.raises(DatabaseError, match="busy"):
            await store.notify("c")
        with pytest.warns(ResourceWarning) as warned:
            drop(held)
        said = sorted(str(warning.message).split(" was ")[-1][:16] for warning in warned)
        assert said == ["dropped undecide", "never closed: cl", "never closed: cl"]
        await store.notify("c")
        assert await receiver.recv() == Wake("c")


async def test_a_writer_whose_loop_is_gone_is_passed_over(name: str):
    """The slot goes to the next in line if the loop of a waiting writer was closed under it."""

    def stop_while_waiting() -> list:
        loop = asyncio.new_event_loop()
        store = loop.run_until_complete(MemStore.open(name).__aenter__())
        waiter = loop.create_task(store.notify("c"))
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        return [store, waiter]

    async with asyncio.timeout(10), MemStore.open(name) as store:
        async with store.transaction():
            held = await asyncio.to_thread(stop_while_waiting)
            following = asyncio.create_task(store.queue("q").enqueue(1))
            while len(store.engine.database.slot._waiting) < 2:  # noqa: ASYNC110 - no event tells that somebody waits
                await asyncio.sleep(0)
        await following
        with pytest.warns(ResourceWarning, match="never closed"):
            drop(held)


FORKING = """
import asyncio, os, sys
from alkstore_mem import MemStore

async def claim():
    async with asyncio.timeout(10), MemStore.open("forked", busy_timeout=0) as store:
        return await store.queue("q").claim_one("w")

with asyncio.Runner() as runner:
    store = runner.run(MemStore.open("forked").__aenter__())
    runner.run(store.queue("q").enqueue(1))
    tx = runner.run(store.begin_tx().__aenter__())
    if (child := os.fork()) == 0:
        os._exit(asyncio.run(claim()) is not None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    runner.run(tx.rollback())
    assert runner.run(claim()) is not None
    runner.run(store.close())
"""


def test_a_forked_child_shares_no_data_with_its_parent():
    """In a forked child the names are free, and the parent's data and writer are untouched by it (T15)."""
    run = subprocess.run([sys.executable, "-c", FORKING], timeout=60, check=False, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
