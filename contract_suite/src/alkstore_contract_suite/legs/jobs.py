"""Jobs, as the legs of queues make, claim and look at them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from alkstore_core import Job, JobHandle, Queue
from alkstore_core.numbers import INT64_MAX

T = TypeVar("T")
Act = Callable[[JobHandle], Awaitable[bool]]

ACTS: dict[str, Act] = {
    "ack": JobHandle.ack,
    "retry": lambda handle: handle.retry("too late"),
    "retry-now": lambda handle: handle.retry("too late", 0),
    "fail": lambda handle: handle.fail("too late"),
    "heartbeat": lambda handle: handle.heartbeat(1000),
    "release": JobHandle.release,
}
"""What a claim can do with its job."""

each_act = pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
"""The leg once for each of `ACTS`."""


async def row_of(queue: Queue, job_id: int) -> Job:
    """The job as it is stored now."""
    job = await queue.get_job(job_id)
    assert job is not None, f"job {job_id} has gone"
    return job


async def claim_from(queue: Queue, worker_id: str = "worker") -> JobHandle:
    """A claim on the next job, which must be there."""
    handle = await queue.claim_one(worker_id)
    assert handle is not None, f"there is nothing to claim in {queue!r}"
    return handle


async def buried_in(queue: Queue) -> Job:
    """A new dead letter."""
    job_id = await queue.enqueue("buried", priority=INT64_MAX)
    assert await (await claim_from(queue)).fail()
    return await row_of(queue, job_id)


async def at_once(*works: Callable[[], Awaitable[T]]) -> list[T]:
    """What they return, each run by a task of its own, all released together."""
    barrier = asyncio.Barrier(len(works))

    async def run(work: Callable[[], Awaitable[T]]) -> T:
        await barrier.wait()
        return await work()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(work)) for work in works]
    return [task.result() for task in tasks]
