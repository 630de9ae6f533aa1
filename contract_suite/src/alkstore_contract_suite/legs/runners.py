"""Runners of schedules, and what they fired."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from alkstore_core import Job, StopToken, Store
from alkstore_core.errors import LeadershipLostError

from alkstore_contract_suite.harness import Harness, LockRow, Witness
from alkstore_contract_suite.proofs import caught_up

LEADER = "__alkstore_scheduler"
"""The lock that runners elect their leader by (H3)."""


@asynccontextmanager
async def running(*stores: Store) -> AsyncIterator[None]:
    """A runner on each store, begun again whenever it lost the lead; stopped at the end, and each must end in order."""
    stop = StopToken()

    async def keep_running(store: Store) -> None:
        while not stop.is_cancelled:
            try:
                await store.run_schedules(stop)
            except LeadershipLostError:
                continue

    try:
        async with asyncio.TaskGroup() as group:
            for store in stores:
                group.create_task(keep_running(store))
            yield
            stop.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def led(witness: Witness, *, after: LockRow | None = None) -> LockRow:
    """The leader's lock, once a runner leads; once it has been taken or renewed since `after`."""
    while True:
        row = await witness.lock(LEADER)
        if row is not None and (after is None or row.expires_at > after.expires_at):
            return row
        await asyncio.sleep(0)


async def fired_now(store: Store, queue: str) -> list[Job]:
    """The jobs of a queue, in claim order, claimed and acked."""
    jobs = [handle.job for handle in await store.queue(queue).claim_batch("reader", 1000)]
    if jobs:
        assert await store.queue(queue).ack_batch("reader", [job.id for job in jobs]) == len(jobs)
    return jobs


async def fired(store: Store, queue: str, count: int) -> list[Job]:
    """The same, once there are `count` of them, or more."""
    jobs: list[Job] = []
    while len(jobs) < count:
        jobs += await fired_now(store, queue)
        await asyncio.sleep(0)
    return jobs


async def pass_time(harness: Harness, store: Store, seconds: int) -> None:
    """Let time pass, and have a sentinel be the last thing that is due at its end; `settled` waits for it.

    A leader fires schedules in the order in which they are due, and those of one second in the order of their names.
    """
    await store.schedule("~ sentinel", f"@every {seconds}s", "sentinels", None)
    await harness.advance(seconds)


async def settled(store: Store, queue: str) -> list[Job]:
    """All jobs that are in a queue once the leader has fired what is due, claimed and acked."""
    await fired(store, "sentinels", 1)
    assert await store.unschedule("~ sentinel") is True
    return await fired_now(store, queue)


async def nothing_left(harness: Harness, store: Store) -> None:
    """Return a second later, once the leader has fired whatever is due until then."""
    await pass_time(harness, store, 1)
    await settled(store, "sentinels")


async def at_rest(store: Store) -> None:
    """Give a runner that was woken the time to look and to wait again. No event tells of that; it may need longer."""
    for _ in range(8):
        await caught_up(store)


def boundaries(jobs: Sequence[Job]) -> list[int]:
    """The boundary that each job was fired for."""
    return [job.ready_at for job in jobs]
