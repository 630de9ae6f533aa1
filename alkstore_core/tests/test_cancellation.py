"""see_through: the outcome is waited for, however often the caller is cancelled (T4, T13)."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest
from alkstore_core.cancellation import outcome, see_through


class Work:
    """Something that ends when it is told to, and must not be cut short."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ended = False
        self.error = error

    async def do(self) -> str:
        self.begun.set()
        await self.go_on.wait()
        self.ended = True
        if self.error is not None:
            raise self.error
        return "done"


async def settle() -> None:
    """Let everything that can run now run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_without_a_cancellation_the_result_or_the_error_comes_out() -> None:
    """As if it had been awaited."""
    fine, bad = Work(), Work(OSError("no"))
    fine.go_on.set()
    bad.go_on.set()
    assert await see_through(fine.do) == "done"
    with pytest.raises(OSError, match="no"):
        await see_through(bad.do)


async def test_who_cancels_all_tasks_does_not_cut_it_short() -> None:
    """As asyncio.run does at its end: the caller is cancelled, and what it sees through is not."""
    work = Work()
    caller = asyncio.ensure_future(see_through(work.do))
    await work.begun.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await settle()
    assert not caller.done()
    work.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.ended


async def cancelled_thrice(work: Work, caller: Callable[[], Awaitable[object]]) -> "asyncio.Task[object]":
    """A task that runs `caller` and is cancelled three times while `work` goes on."""
    task = asyncio.ensure_future(caller())
    await work.begun.wait()
    for _ in range(3):
        task.cancel("stop it")
        await settle()
    return task


async def test_repeated_cancellation_waits_for_the_outcome_and_then_goes_on() -> None:
    """The caller is not released before, and is cancelled after."""
    work = Work()
    task = await cancelled_thrice(work, lambda: see_through(work.do))
    assert not task.done()
    assert not work.ended
    work.go_on.set()
    with pytest.raises(asyncio.CancelledError, match="stop it"):
        await task
    assert work.ended


async def test_the_control_a_shield_gives_way_at_once() -> None:
    """Why `asyncio.shield` is not enough: the caller leaves while the work goes on."""
    work = Work()
    task = await cancelled_thrice(work, lambda: asyncio.shield(asyncio.ensure_future(work.do())))
    assert task.cancelled()
    assert not work.ended
    work.go_on.set()
    await settle()
    assert work.ended


async def test_an_anyio_scope_cancels_only_once_the_outcome_is_known() -> None:
    """A scope cancels level-triggered: again and again, until its end."""
    work = Work()
    async with anyio.create_task_group() as group:

        async def call() -> None:
            try:
                await see_through(work.do)
                await anyio.lowlevel.checkpoint()
            except asyncio.CancelledError:
                assert work.ended
                raise
            raise AssertionError("the cancellation went missing")

        group.start_soon(call)
        await work.begun.wait()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await settle()
            assert not work.ended
        work.go_on.set()
    assert group.cancel_scope.cancelled_caught
    assert work.ended


async def test_work_that_fails_says_so_even_to_a_caller_that_was_cancelled() -> None:
    """A commit that failed is worth more than the news that one was cancelled."""
    work = Work(OSError("no"))
    task = await cancelled_thrice(work, lambda: see_through(work.do))
    work.go_on.set()
    with pytest.raises(OSError, match="no"):
        await task


async def test_several_can_wait_for_one_outcome() -> None:
    """A second close waits for the first."""
    work = Work()
    future = asyncio.ensure_future(work.do())
    waits = [asyncio.ensure_future(outcome(future)) for _ in range(3)]
    await work.begun.wait()
    waits[0].cancel()
    await settle()
    assert not any(wait.done() for wait in waits)
    work.go_on.set()
    assert await asyncio.gather(*waits[1:]) == ["done", "done"]
    with pytest.raises(asyncio.CancelledError):
        await waits[0]
