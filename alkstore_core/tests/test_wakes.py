"""The hub and its subscriptions: coalesced, bounded, and never lost between a look and a wait (N2 to N6)."""

import asyncio
import gc
import threading

import pytest
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.testing import running_tasks
from alkstore_core.wakes import LISTENER_RECONNECTED, WakeHub, channel_topic, queue_topic, stream_topic


async def idle(wait: "asyncio.Task[object]") -> bool:
    """Whether a wait still waits after everything that can run has run."""
    for _ in range(10):
        await asyncio.sleep(0)
    return not wait.done()


async def test_a_wake_reaches_every_subscription_of_its_topic_and_no_other() -> None:
    """Also when it came before the wait."""
    hub = WakeHub()
    here, there, elsewhere = hub.subscribe("t"), hub.subscribe("t"), hub.subscribe("u")
    waiting = asyncio.create_task(here.wait())
    other = asyncio.create_task(elsewhere.wait())
    assert await idle(waiting)
    hub.wake(["t", "nobody"])
    assert await waiting == "t"
    assert await there.wait() == "t"
    assert await idle(other)
    elsewhere.close()
    assert await other is None


async def test_wakes_that_are_not_taken_coalesce() -> None:
    """A thousand cost what one costs, and are one (N6)."""
    hub = WakeHub()
    subscription = hub.subscribe("t")
    for _ in range(1000):
        hub.wake(["t"])
    assert await subscription.wait() == "t"
    assert subscription.take() is None
    waiting = asyncio.create_task(subscription.wait())
    assert await idle(waiting)
    hub.close()
    assert await waiting is None


async def test_a_reconnect_is_told_to_everybody_and_before_a_wake() -> None:
    """Whatever they listen to (N5)."""
    hub = WakeHub()
    first, second = hub.subscribe("t"), hub.subscribe("u")
    hub.wake(["t"])
    hub.wake_everybody()
    assert [await first.wait(), await first.wait()] == [LISTENER_RECONNECTED, "t"]
    assert await second.wait() == LISTENER_RECONNECTED
    assert (first.take(), second.take()) == (None, None)


async def test_closing_ends_the_waits_for_ever() -> None:
    """A closed subscription gives None, also for what had come before (N4)."""
    hub = WakeHub()
    subscription = hub.subscribe("t")
    waits = [asyncio.create_task(subscription.wait()) for _ in range(3)]
    assert await idle(waits[0])
    subscription.close()
    subscription.close()
    assert await asyncio.gather(*waits) == [None, None, None]
    assert await subscription.wait() is None
    assert len(hub) == 0
    assert hub.topics() == frozenset()


async def test_a_closed_hub_ends_all_it_has_and_all_that_come() -> None:
    """With the store, receivers end (T12)."""
    hub = WakeHub()
    subscription = hub.subscribe("t")
    waiting = asyncio.create_task(subscription.wait())
    assert await idle(waiting)
    hub.close()
    hub.close()
    assert await waiting is None
    assert hub.subscribe("t").closed
    assert repr(hub) == "<WakeHub closed>"


async def test_ten_thousand_timed_out_waits_leave_nothing() -> None:
    """No task, no callback, no waiter; and the next wake arrives."""
    hub = WakeHub()
    subscription = hub.subscribe("t")
    tasks = running_tasks()
    threads = threading.active_count()
    for _ in range(10_000):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await subscription.wait()
    assert running_tasks() == tasks
    assert threading.active_count() == threads
    assert len(hub) == 1
    assert subscription._changed is not None
    assert len(subscription._changed._waiters) == 0
    hub.wake(["t"])
    assert await subscription.wait() == "t"


async def test_a_wait_cancelled_as_the_wake_comes_loses_nothing() -> None:
    """The next wait gets it (N4)."""
    hub = WakeHub()
    subscription = hub.subscribe("t")
    waiting = asyncio.create_task(subscription.wait())
    assert await idle(waiting)
    hub.wake(["t"])
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await subscription.wait() == "t"


async def test_look_first_wait_second_never_misses_a_wake_of_another_thread() -> None:
    """The gap between the empty read and the wait, many times over."""
    hub = WakeHub()
    subscription = hub.subscribe("t")
    loop = asyncio.get_running_loop()
    committed = 0

    def commit() -> None:
        nonlocal committed
        for number in range(1, 2001):
            committed = number
            loop.call_soon_threadsafe(hub.wake, ("t",))

    writer = threading.Thread(target=commit)
    writer.start()
    seen = 0
    while seen < 2000:
        assert await subscription.wait() == "t"
        seen = committed
    await loop.run_in_executor(None, writer.join)


async def test_one_that_is_dropped_is_forgotten_from_whatever_thread() -> None:
    """The collector runs anywhere."""
    hub = WakeHub()
    subscription = hub.subscribe("t")
    thread = threading.Thread(target=subscription.abandon)
    thread.start()
    await asyncio.get_running_loop().run_in_executor(None, thread.join)
    await asyncio.sleep(0)
    assert len(hub) == 0


def test_one_that_outlives_its_loop_is_dropped_in_silence() -> None:
    """A closed loop wakes nobody any more."""

    async def subscribe() -> object:
        return WakeHub().subscribe("t")

    subscription = asyncio.run(subscribe())
    subscription.abandon()  # type: ignore[attr-defined]


async def test_topics_of_equal_names_differ_by_mechanism() -> None:
    """A queue and a stream called the same do not wake each other."""
    assert len({channel_topic("a"), queue_topic("a"), stream_topic("a")}) == 3


# Receivers of a store


async def test_a_receiver_gives_its_channel_s_wakes_until_it_is_closed(store) -> None:
    """recv waits, try_recv does not; afterwards None and ClosedError, for ever (N2, N4)."""
    await store.notify("orders")  # nothing earlier reaches it
    receiver = await store.listen("orders")
    assert await receiver.try_recv() is None
    await store.notify("orders", {"id": 7})
    await store.notify("orders")
    assert (await receiver.recv()).channel == "orders"
    assert await receiver.try_recv() is None
    await store.notify("orders")
    async for wake in receiver:
        assert wake.channel == "orders"
        break
    await receiver.close()
    await receiver.close()
    assert await receiver.recv() is None
    assert [wake async for wake in receiver] == []
    with pytest.raises(ClosedError, match="listen again"):
        await receiver.try_recv()


async def test_a_receiver_that_is_dropped_frees_its_place(store) -> None:
    """Nobody has to close it."""
    receiver = await store.listen("orders")
    hub = store.engine._hub
    assert len(hub) == 1
    del receiver
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(hub) == 0


async def test_a_receiver_used_on_another_loop_is_refused_at_once(store) -> None:
    """In every way that it can be used, and it works on afterwards (T15)."""
    receiver = await store.listen("orders")
    await store.stream("orders").publish_many([0, 1])
    events = await store.stream("orders").subscribe("c")
    assert (await events.recv()).payload == b"0"  # the other is read ahead

    async def elsewhere() -> None:
        for use in (receiver.recv, receiver.try_recv, receiver.close, events.recv, events.try_recv, events.close):
            with pytest.raises(DatabaseError, match="another event loop"):
                await use()

    await asyncio.get_running_loop().run_in_executor(None, asyncio.run, elsewhere())
    await store.notify("orders")
    assert (await receiver.recv()).channel == "orders"
    assert (await events.recv()).payload == b"1"
