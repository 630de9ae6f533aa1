"""The store's life: where it may be used, what its end means, and what a forgotten one does (T1, T12, T15)."""

import asyncio
import gc
import subprocess
import sys
import textwrap
import warnings

import anyio
import pytest
from alkstore_core import QueueOptions, StopToken, Store, open_store
from alkstore_core.errors import ClosedError, DatabaseError, InvalidNameError, ReservedNameError
from alkstore_core.testing import running_tasks
from alkstore_mem import MemStore
from alkstore_mem.engine import MemEngine


def every_operation(store: Store) -> dict[str, object]:
    """Each way to do something with an open store, by name, as a function that does it."""
    queue, stream, outbox = store.queue("q"), store.stream("s"), store.outbox("o")

    async def enter() -> None:
        async with store.transaction():
            pass

    async def deliver(_: object) -> None:
        pass

    return {
        "notify": lambda: store.notify("c"),
        "listen": lambda: store.listen("c"),
        "try_lock": lambda: store.try_lock("l", "me", 10),
        "schedule": lambda: store.schedule("n", "@every 5s", "q", 1),
        "unschedule": lambda: store.unschedule("n"),
        "run_schedules": lambda: store.run_schedules(StopToken()),
        "begin_tx": store.begin_tx,
        "transaction": enter,
        "enqueue": lambda: queue.enqueue(1),
        "enqueue_many": lambda: queue.enqueue_many([1]),
        "claim_one": lambda: queue.claim_one("w"),
        "claim_batch": lambda: queue.claim_batch("w", 2),
        "ack_batch": lambda: queue.ack_batch("w", [1]),
        "cancel": lambda: queue.cancel(1),
        "get_job": lambda: queue.get_job(1),
        "sweep_expired": queue.sweep_expired,
        "publish": lambda: stream.publish(1),
        "publish_many": lambda: stream.publish_many([1]),
        "read_since": lambda: stream.read_since(0),
        "read_from_consumer": lambda: stream.read_from_consumer("c"),
        "save_offset": lambda: stream.save_offset("c", 1),
        "get_offset": lambda: stream.get_offset("c"),
        "trim_to": lambda: stream.trim_to(1),
        "subscribe": lambda: stream.subscribe("c"),
        "outbox.enqueue": lambda: outbox.enqueue(1),
        "run_once": lambda: outbox.run_once("w", deliver),
    }


async def test_after_close_every_operation_raises_closed_error(store) -> None:
    """Of the store and of every handle that it gave (T12)."""
    operations = every_operation(store)
    queue = store.queue("q")
    await queue.enqueue(1)
    handle = await queue.claim_one("w")
    lock = await store.try_lock("l", "me", 10)
    tx = await store.begin_tx()
    connection = tx.connection
    await store.close()
    operations |= {
        "ack": handle.ack,
        "retry": lambda: handle.retry("e"),
        "fail": handle.fail,
        "heartbeat": lambda: handle.heartbeat(5),
        "release": handle.release,
        "renew": lambda: lock.renew(5),
        "unlock": lock.release,
        "tx.enqueue": lambda: tx.enqueue("q", 1),
        "commit": tx.commit,
    }
    for name, operation in operations.items():
        with pytest.raises(ClosedError):
            assert await operation() is None, name
    with pytest.raises(ClosedError):
        store.enlist(connection)
    assert repr(store) == "<MemStore mem: closed>"


async def test_close_is_idempotent_and_a_second_one_waits_for_the_first(store) -> None:
    """However many there are, the engine is closed once, and each returns after that."""
    closed = asyncio.Event()
    go_on = asyncio.Event()
    real = store.engine.close
    times = 0

    async def close() -> None:
        nonlocal times
        times += 1
        await go_on.wait()
        await real()
        closed.set()

    store.engine.close = close
    closings = [asyncio.create_task(store.close()) for _ in range(3)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(closing.done() for closing in closings)
    with pytest.raises(ClosedError):
        await store.notify("c")
    go_on.set()
    await asyncio.gather(*closings)
    assert closed.is_set()
    await store.close()
    assert times == 1


@pytest.mark.parametrize("cancel", ["task", "scope"])
async def test_a_cancelled_close_is_seen_through_before_it_returns(store, cancel: str) -> None:
    """No task runs on behind the caller's back (T12)."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    real = store.engine.close

    async def close() -> None:
        begun.set()
        await go_on.wait()
        await real()

    store.engine.close = close
    if cancel == "task":
        closing = asyncio.create_task(store.close())
        await begun.wait()
        closing.cancel()
        closing.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not closing.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(store.close)
            await begun.wait()
            group.cancel_scope.cancel()
            asyncio.get_running_loop().call_later(0.01, go_on.set)
        assert go_on.is_set()
    assert len(running_tasks()) == 1
    with pytest.raises(ClosedError):
        await store.notify("c")


async def test_close_from_a_task_that_uses_the_store_returns(store) -> None:
    """Even with its own transaction open, which is rolled back (T12)."""
    async with anyio.create_task_group() as group:

        async def close_inside() -> None:
            with pytest.raises(ClosedError):  # noqa: PT012 - the block is what is tested
                async with store.transaction() as tx:
                    await tx.enqueue("q", 1)
                    await store.close()

        group.start_soon(close_inside)


async def test_an_error_in_a_block_whose_store_was_closed_is_still_that_error(store) -> None:
    """The rollback that was too late is a note on it (T4)."""
    with pytest.raises(ValueError, match="mine") as caught:  # noqa: PT012 - the block is what is tested
        async with store.transaction():
            await store.close()
            raise ValueError("mine")
    assert any("could not be rolled back" in note for note in caught.value.__notes__)


async def test_operations_under_way_finish_or_fail_but_none_hangs(store) -> None:
    """Hundreds at once, and a close among them: each answer is a result or a ClosedError (T12)."""
    queue = store.queue("q")
    calls = [asyncio.create_task(queue.enqueue(number)) for number in range(200)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    calls += [asyncio.create_task(queue.enqueue(number)) for number in range(200)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    await closing
    assert all(isinstance(result, int | ClosedError) for result in results)
    assert isinstance(results[-1], ClosedError)


async def test_making_a_handle_checks_its_name_and_touches_nothing(store, faults) -> None:
    """And never waits (T1, V1)."""
    for make in (store.queue, store.stream, store.outbox, store.listen):
        with pytest.raises(InvalidNameError):
            make(" ")
        with pytest.raises(ReservedNameError):
            make("__alkstore_x")
        make("fine")
    assert store.queue("q", max_attempts=9).options == QueueOptions(max_attempts=9)
    assert faults.calls == []


def test_a_store_used_on_another_loop_raises_at_once_and_harms_nothing() -> None:
    """Every operation, by a clear DatabaseError; at home it works on (T15)."""

    async def home() -> None:
        async with MemStore.open() as store:
            operations = every_operation(store)
            tx = await store.begin_tx()
            operations |= {"tx": lambda: tx.notify("c"), "commit": tx.commit, "rollback": tx.rollback}

            async def elsewhere() -> None:
                for name, operation in operations.items():
                    with pytest.raises(DatabaseError, match="another event loop"):
                        assert await operation() is None, name
                with pytest.raises(DatabaseError, match="another event loop"):
                    await store.close()
                with pytest.raises(DatabaseError, match="another event loop"):
                    store.enlist(object())

            await asyncio.get_running_loop().run_in_executor(None, asyncio.run, elsewhere())
            await tx.enqueue("q", 1)
            await tx.commit()
            assert (await store.queue("q").get_job(1)).payload == b"1"

    asyncio.run(home())


def run_script(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own to its end, which must come within seconds."""
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_forked_child_is_refused_at_once_and_the_parent_works_on() -> None:
    """Every use of what it inherited raises, its collection is silent, and nothing reaches the parent (T15)."""
    done = run_script(
        """
        import asyncio, gc, os, sys, warnings
        warnings.simplefilter("error")
        from alkstore_core.errors import DatabaseError
        from alkstore_mem import MemStore

        def refused(call):
            try:
                coroutine = call()
                if hasattr(coroutine, "send"):
                    coroutine.send(None)
                else:
                    coroutine.__await__().send(None)
            except DatabaseError as error:
                assert "before the process forked" in str(error), error
            else:
                raise AssertionError(call)

        async def main():
            store = await MemStore.open()
            receiver = await store.listen("c")
            events = await store.stream("s").subscribe("c")
            tx = await store.begin_tx()
            await tx.enqueue("q", 1)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    for call in (
                        lambda: store.notify("c"), lambda: store.queue("q").enqueue(1), store.close, store.begin_tx,
                        lambda: store.listen("c"), receiver.recv, receiver.try_recv, receiver.close, events.recv,
                        events.try_recv, events.close, lambda: tx.enqueue("q", 2), tx.commit, tx.rollback,
                    ):
                        refused(call)
                    store.home.loop.call_soon_threadsafe = lambda *_: os._exit(7)  # it would write to the parent's pipe
                    del receiver, events, tx, store, call
                    gc.collect()
                    status = 0
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            await tx.commit()
            assert (await store.queue("q").get_job(1)).payload == b"1"
            await store.notify("c")
            assert (await receiver.recv()).channel == "c"
            await store.close()

        asyncio.run(main())
        print("parent done")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "parent done\n", "")


def test_a_process_that_forgets_to_close_exits_and_says_so() -> None:
    """Within seconds, with a ResourceWarning (T15)."""
    done = run_script(
        """
        import asyncio
        from alkstore_mem import MemStore

        async def main():
            global store
            store = await MemStore.open()
            await store.queue("q").enqueue(1)

        asyncio.run(main())
        print("main done")
        """,
        "-W",
        "always",
    )
    assert (done.returncode, done.stdout) == (0, "main done\n")
    assert "ResourceWarning: <MemStore mem: open> was never closed: close it, or use 'async with'" in done.stderr


async def test_a_store_that_is_dropped_is_forgotten_with_a_warning() -> None:
    """One warning; a closed store has none."""
    store = await MemStore.open()
    with pytest.warns(ResourceWarning, match="was never closed: close it, or use 'async with'"):
        store = None
    store = await MemStore.open()
    await store.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del store
        gc.collect()


async def test_a_store_that_failed_to_open_says_nothing_more() -> None:
    """The failure was said already, and a close of what never opened does nothing."""

    class Broken(MemEngine):
        async def open(self) -> None:
            raise DatabaseError("no database")

    opening = MemStore.opening(Broken(None, None, 1.0))  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DatabaseError, match="no database"):
            await opening
        gc.collect()
    never = MemStore(Broken(None, None, 1.0))  # type: ignore[arg-type]
    await never.close()
    assert repr(never).endswith("not open>")


async def test_open_store_finds_the_engine_by_its_scheme(clock) -> None:
    """With the options of the engine's own open."""
    async with open_store("mem:", clock=clock) as store:
        assert isinstance(store, MemStore)
        assert store.engine.now() == clock.now()


@pytest.mark.parametrize("url", ["", "app.db", "nothing:x", "postgresql-old://me:secret@host/db"])
async def test_open_store_without_an_engine_says_what_there_is_and_no_password(url: str) -> None:
    """A clear DatabaseError (E3)."""
    with pytest.raises(DatabaseError, match=r"no engine is installed for the URL scheme .*mem.*: install ") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
