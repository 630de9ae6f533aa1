"""Waiting: for the first of several, for all of them, for a time, for wakes across outages."""

import asyncio
import logging
from functools import partial

import pytest
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.numbers import INT64_MAX
from alkstore_core.testing import ManualClock, running_tasks
from alkstore_core.waiting import Alarm, Backoff, all_of, first_of, hear
from alkstore_mem import MemStore

LOG = logging.getLogger("alkstore.test")


async def forever() -> None:
    await asyncio.Event().wait()


async def fail(message: str) -> None:
    await asyncio.sleep(0)
    raise OSError(message)


async def test_the_first_to_return_ends_the_others() -> None:
    """They have ended when it returns."""
    ended: list[str] = []

    async def linger() -> None:
        try:
            await forever()
        finally:
            ended.append("linger")

    await first_of(linger, partial(asyncio.sleep, 0), linger)
    assert ended == ["linger", "linger"]


async def test_an_error_ends_the_others_and_is_raised_as_itself() -> None:
    """Not in a group."""
    with pytest.raises(OSError, match="no"):
        await first_of(forever, partial(fail, "no"))


async def test_a_cancelled_wait_cancels_all_it_waits_for() -> None:
    """And nothing of it runs on."""
    before = running_tasks()
    task = asyncio.create_task(first_of(forever, forever))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running_tasks() == before


async def test_all_of_waits_for_all_and_then_raises_the_first_error() -> None:
    """What can be done is done, also where something failed."""
    done: list[int] = []

    async def do(number: int) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        done.append(number)

    await all_of([])
    await all_of([partial(do, 1)])
    with pytest.raises(OSError, match="first"):
        await all_of([partial(fail, "first"), partial(do, 2), partial(fail, "second"), partial(do, 3)])
    assert done == [1, 2, 3]


async def test_an_alarm_rings_at_the_earliest_time_it_was_set_to_and_once(store: MemStore, clock: ManualClock) -> None:
    """A later time changes nothing, and after ringing it has to be set again."""
    rings: list[int] = []
    rang = asyncio.Event()

    def ring() -> None:
        rings.append(clock.now())
        rang.set()

    async def next_ring() -> None:
        rang.clear()
        await rang.wait()

    alarm = Alarm(store.engine, ring)
    running = asyncio.create_task(alarm.run())
    start = clock.now()
    alarm.set(start + 10)
    await asyncio.sleep(0)
    alarm.set(start + 5)
    alarm.set(start + 20)
    for _ in range(10):
        await asyncio.sleep(0)
    clock.advance(5)
    await next_ring()
    alarm.set(start + 6)
    clock.advance(30)
    await next_ring()
    alarm.set(start)  # past already
    await next_ring()
    alarm.set(INT64_MAX)
    clock.set(INT64_MAX - 1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert rings == [start + 5, start + 35, start + 35]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_pauses_double_up_to_the_cap_and_are_jittered() -> None:
    """Each is between half and all of its step; a success starts anew."""
    backoff = Backoff(first_s=1.0, longest_s=8.0)
    for step in (1.0, 2.0, 4.0, 8.0, 8.0):
        assert step / 2 <= backoff.next() <= step
    backoff.reset()
    assert backoff.next() <= 1.0
    drawn = set()
    for _ in range(50):
        backoff.reset()
        drawn.add(backoff.next())
    assert len(drawn) > 40
    for _ in range(5000):
        assert backoff.next() <= 8.0


async def test_hearing_subscribes_first_and_then_says_so(store: MemStore) -> None:
    """So that whoever reads when told misses nothing, and every later wake is passed on (W2)."""
    woken = asyncio.Semaphore(0)
    hearing = asyncio.create_task(hear(store, "c:orders", woken.release, LOG))
    await woken.acquire()
    await store.notify("orders")
    await woken.acquire()
    await store.notify("other")
    await store.notify("orders")
    await woken.acquire()
    assert woken.locked()
    hearing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hearing
    assert len(store.engine._hub) == 0  # type: ignore[attr-defined]


async def test_hearing_goes_on_after_an_outage_and_after_its_subscription_ended(
    store: MemStore, faults, caplog: pytest.LogCaptureFixture
) -> None:
    """Each time it hears again, it says so: something may have been missed (N5)."""
    woken = asyncio.Semaphore(0)
    faults.down = True
    hearing = asyncio.create_task(hear(store, "c:orders", woken.release, LOG))
    await faults.reached("watch")
    await faults.reached("watch")
    assert woken.locked()
    faults.down = False
    await woken.acquire()
    (subscription,) = store.engine._hub._subscriptions["c:orders"]  # type: ignore[attr-defined]
    subscription.close()
    await woken.acquire()
    assert "no wakes of 'c:orders' can be had; trying again in" in caplog.text
    assert "the wakes of 'c:orders' have ended; trying again in" in caplog.text
    await store.close()
    with pytest.raises(ClosedError):
        await hearing


async def test_a_pause_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """With the error, for whoever reads the log."""
    await Backoff(0.001, 0.001).pause(LOG, "it cannot", DatabaseError("gone"))
    assert caplog.messages == ["it cannot; trying again in 0.00 s: gone"]
