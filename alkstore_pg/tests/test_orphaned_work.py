"""Work whose caller is cancelled, and that goes on in a task of the store (T12, T13)."""

import asyncio

from alkstore_pg.tasks import Tasks, unless_cancelled


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
    """Its result is the caller's, and no other task has run."""
    tasks: set[object] = set()

    async def work() -> int:
        await turns(2)
        tasks.add(asyncio.current_task())
        return 8

    assert await unless_cancelled(work(), Tasks(), lambda _: turns(1)) == 8
    assert tasks == {asyncio.current_task()}


async def test_the_rest_of_orphaned_work_is_a_task_that_goes_on():
    """A cancelled caller ends at once, the rest of its work belongs to the store's tasks, and whoever cares gets it."""
    done: list[str] = []
    orphans: list[asyncio.Task[int]] = []
    gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    tasks = Tasks()

    async def orphaned(task: "asyncio.Task[int]") -> None:
        orphans.append(task)

    caller = asyncio.ensure_future(unless_cancelled(steps(done, gate), tasks, orphaned))
    await turns(3)
    caller.cancel()
    await asyncio.wait((caller,))
    assert caller.cancelled()
    assert repr(tasks) == "<Tasks 1 running>"
    gate.set_result(7)
    assert await orphans[0] == 7
    assert done == ["begun", "gate", "ended"]
    assert await tasks.join(1)
