"""Clocks: the manual one moves what waits, the system's one is patient."""

import asyncio
import time

import pytest
from alkstore_core.clock import SystemClock
from alkstore_core.numbers import INT64_MAX, INT64_MIN
from alkstore_core.testing import ManualClock


async def test_advancing_wakes_exactly_who_is_due() -> None:
    """Sleepers until then and before, and nobody else."""
    clock = ManualClock(100)
    woken: list[int] = []

    async def sleep(when: int) -> None:
        await clock.sleep_until(when)
        woken.append(when)

    sleepers = [asyncio.create_task(sleep(when)) for when in (105, 101, 110, 100, 99)]
    await asyncio.sleep(0)
    assert woken == [100, 99]
    assert clock.advance(5) == 105
    await asyncio.gather(sleepers[0], sleepers[1])
    assert sorted(woken) == [99, 100, 101, 105]
    assert repr(clock) == "<ManualClock at 105, 1 waiting>"
    clock.advance(5)
    await sleepers[2]
    assert repr(clock) == "<ManualClock at 110, 0 waiting>"


async def test_a_clock_set_back_lets_a_sleeper_sleep_on() -> None:
    """Woken, it looks at the clock again."""
    clock = ManualClock(100)
    sleeper = asyncio.create_task(clock.sleep_until(105))
    await asyncio.sleep(0)
    clock.advance(5)
    clock.advance(-5)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not sleeper.done()
    clock.set(105)
    await sleeper


async def test_the_end_of_time_never_comes_and_time_saturates() -> None:
    """Nothing is due at the int64 limit (H5)."""
    clock = ManualClock(100)
    sleeper = asyncio.create_task(clock.sleep_until(INT64_MAX))
    await asyncio.sleep(0)
    assert clock.advance(INT64_MAX) == INT64_MAX
    for _ in range(5):
        await asyncio.sleep(0)
    assert not sleeper.done()
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    assert clock.set(0) == 0
    assert clock.advance(INT64_MIN) == INT64_MIN
    assert repr(clock).endswith("0 waiting>")


async def test_the_system_clock_returns_at_once_for_what_is_past() -> None:
    """And waits, until it is cancelled, for what is never."""
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 2
    await clock.sleep_until(clock.now())
    await clock.sleep_until(INT64_MIN)
    for never in (INT64_MAX, INT64_MAX - 1):
        sleeper = asyncio.create_task(clock.sleep_until(never))
        await asyncio.sleep(0)
        assert not sleeper.done()
        sleeper.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeper
