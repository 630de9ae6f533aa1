"""Locks as the facade has them: values for what is lost, and a block that lets go (L1 to L5)."""

import asyncio

import pytest
from alkstore_core.errors import DatabaseError, InvalidNameError, ReservedNameError


async def test_a_lock_shows_its_holding_and_is_let_go_at_the_end_of_the_block(store, clock) -> None:
    """Name, owner, deadline and fencing token (L1, L5)."""
    async with await store.try_lock("job", "me", 10) as lock:
        assert (lock.name, lock.owner, lock.expires_at) == ("job", "me", clock.now() + 10)
        assert await store.try_lock("job", "you", 10) is None
        clock.advance(5)
        assert await lock.renew(20)
        assert lock.expires_at == clock.now() + 20
    again = await store.try_lock("job", "you", 10)
    assert again.token > lock.token
    assert await lock.renew(5) is False
    assert await lock.release() is False
    assert repr(again).startswith(f"<Lock 'job' of 'you', token {again.token}, until ")


async def test_arguments_are_checked_before_anything_is_stored(store, faults) -> None:
    """Names, owners and durations (V1, V2, V5)."""
    for call, error in (
        (lambda: store.try_lock("", "me", 1), InvalidNameError),
        (lambda: store.try_lock("__alkstore_x", "me", 1), ReservedNameError),
        (lambda: store.try_lock("l", " ", 1), InvalidNameError),
        (lambda: store.try_lock("l", "me", 0), DatabaseError),
        (lambda: store.try_lock("l", "me", -5), DatabaseError),
        (lambda: store.try_lock("l", "me", True), TypeError),
        (lambda: store.try_lock("l", "me", 2**63), ValueError),
    ):
        with pytest.raises(error):
            await call()
    assert faults.calls == []


async def test_a_cancelled_block_lets_go_before_the_cancellation_goes_on(store) -> None:
    """However often it is cancelled."""

    async def hold() -> None:
        async with await store.try_lock("job", "me", 100):
            held.set()
            await asyncio.Event().wait()

    for _ in range(20):
        held = asyncio.Event()
        holding = asyncio.create_task(hold())
        await held.wait()
        holding.cancel()
        await asyncio.sleep(0)
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        lock = await store.try_lock("job", "you", 1)
        assert lock is not None
        await lock.release()


async def test_a_block_s_own_error_outlives_a_release_that_fails(store, faults) -> None:
    """The failure is a note on it; alone it is raised."""
    with pytest.raises(ValueError, match="mine") as caught:  # noqa: PT012 - the block is what is tested
        async with await store.try_lock("job", "me", 10):
            faults.down = True
            raise ValueError("mine")
    assert any("its lock 'job' could not be released" in note for note in caught.value.__notes__)
    faults.down = False
    with pytest.raises(DatabaseError, match="away"):
        async with await store.try_lock("job", "me", 10):
            faults.down = True


async def test_leaving_the_block_releases_although_it_is_cancelled_there(store) -> None:
    """The release is seen through, and the cancellation goes on."""
    for turns in range(6):
        entered = asyncio.Event()

        async def hold(entered: asyncio.Event = entered, name: str = f"lock {turns}") -> None:
            lock = await store.try_lock(name, "a", 60)
            async with lock:
                entered.set()

        task = asyncio.ensure_future(hold())
        await entered.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        assert await store.try_lock(f"lock {turns}", "b", 60) is not None
