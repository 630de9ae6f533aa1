"""Work in its caller's task that a cancellation does not reach (T13)."""

import asyncio

import anyio
import pytest
from alkstore_core.cancellation import unbroken


async def steps(done: list[str], gate: "asyncio.Future[int]") -> int:
    """Three waits, one of them for `gate`."""
    done.append("begun")
    await asyncio.sleep(0)
    found = await gate
    done.append("gate")
    await asyncio.sleep(0)
    done.append("ended")
    return found


async def turns(number: int) -> None:
    """So many turns of the loop."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_undisturbed_work_runs_in_its_callers_task():
    """Results and errors are the work's own, and no other task has run."""
    loop = asyncio.get_running_loop()
    tasks: set[object] = set()

    async def work(result: object) -> object:
        gate = loop.create_future()
        loop.call_soon(gate.set_result, result)
        found = await gate
        tasks.add(asyncio.current_task())
        if isinstance(found, Exception):
            raise found
        return found

    assert await unbroken(work(7)) == 7
    with pytest.raises(KeyError):
        await unbroken(work(KeyError(1)))
    assert tasks == {asyncio.current_task()}


async def test_who_looks_at_the_caller_sees_that_it_waits():
    """anyio finds its task blocked, and goes on."""
    done: list[str] = []
    gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    caller = asyncio.ensure_future(unbroken(steps(done, gate)))
    try:
        async with asyncio.timeout(10):
            await anyio.wait_all_tasks_blocked()
        assert done == ["begun"]
    finally:
        gate.set_result(1)  # no test's end can cancel what waits for it
    assert await caller == 1


async def test_what_the_work_waits_for_may_fail_or_be_cancelled():
    """A future that fails or is cancelled is so for the work, which goes on as it likes; its caller is not."""
    loop = asyncio.get_running_loop()
    seen: list[type] = []

    async def work() -> str:
        for end in (lambda gate: gate.set_exception(ValueError()), lambda gate: gate.cancel()):
            gate = loop.create_future()
            loop.call_soon(end, gate)
            try:
                await gate
            except (ValueError, asyncio.CancelledError) as error:
                seen.append(type(error))
        return "went on"

    assert await unbroken(work()) == "went on"
    assert seen == [ValueError, asyncio.CancelledError]


@pytest.mark.parametrize("caller_first", [True, False])
async def test_a_caller_is_told_though_what_the_work_waits_for_is_cancelled_with_it(caller_first):
    """Both in one turn of the loop, in either order: the work goes on after the one, and then its caller hears."""
    gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    seen: list[str] = []

    async def work() -> None:
        try:
            await gate
        except asyncio.CancelledError:
            seen.append("gate cancelled")
        await asyncio.sleep(0)
        seen.append("ended")

    caller = asyncio.ensure_future(unbroken(work()))
    await turns(1)
    for cancel in (caller.cancel, gate.cancel) if caller_first else (gate.cancel, caller.cancel):
        cancel()
    await asyncio.wait((caller,))
    assert (caller.cancelled(), seen) == (True, ["gate cancelled", "ended"])


@pytest.mark.parametrize("after", range(6))
@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_caller_is_told_once_the_work_has_ended(after, times):
    """Cancelled at whatever step, and again: the work ends as ever, and then the cancellation goes on."""
    done: list[str] = []
    gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    caller = asyncio.ensure_future(unbroken(steps(done, gate)))
    await turns(1)
    for _ in range(times):
        await turns(after)
        caller.cancel()
    await turns(5)
    assert not caller.done()
    assert not gate.cancelled()
    gate.set_result(1)
    await asyncio.wait((caller,))
    assert (caller.cancelled(), done) == (True, ["begun", "gate", "ended"])


async def test_a_bare_await_would_have_been_cancelled():
    """The control: the same work, awaited as it is, is cancelled with its caller, and the future with it."""
    done: list[str] = []
    gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    caller = asyncio.ensure_future(steps(done, gate))
    await turns(3)
    caller.cancel()
    await asyncio.wait((caller,))
    assert gate.cancelled()
    assert done == ["begun"]


async def test_cancelled_scopes_and_timeouts_are_told_too():
    """An anyio scope that cancels again and again, and a timeout, end their blocks once the work has ended."""
    loop = asyncio.get_running_loop()
    for block in (lambda: anyio.move_on_after(0.01), lambda: asyncio.timeout(0.01)):
        done: list[str] = []
        gate: asyncio.Future[int] = loop.create_future()
        loop.call_later(0.05, gate.set_result, 1)
        try:
            context = block()
            if isinstance(context, anyio.CancelScope):
                with context:
                    await unbroken(steps(done, gate))
                assert context.cancelled_caught
            else:
                async with context:
                    await unbroken(steps(done, gate))
        except TimeoutError:
            assert not isinstance(context, anyio.CancelScope)
        assert done == ["begun", "gate", "ended"]
