"""Every write of a store, with what shows whether it took effect, for the leg that cancels it."""

from collections.abc import Awaitable, Callable
from typing import Any

from alkstore_core import (
    JobHandle,
    JobState,
    Store,
)

from alkstore_contract_suite.harness import JobCounts, Witness


class Scene:
    """Prepares what calls are made on, and looks at what they did."""

    def __init__(self, store: Store, witness: Witness) -> None:
        self.store = store
        self.witness = witness

    async def claimed(self, name: str) -> JobHandle:
        """The claim on the only job of a queue."""
        queue = self.store.queue(name)
        await queue.enqueue(1)
        claim = await queue.claim_one("worker")
        assert claim is not None
        return claim

    def job(self, claim: JobHandle) -> "Look":
        """What looks at a claimed job: at all that settling it may change, or None once it is gone."""

        async def look() -> object:
            job = await self.store.queue("any").get_job(claim.job.id)
            if job is None:
                return None
            return job.state, job.attempts, job.ready_at, job.claim_expires_at, job.last_error

        return look

    def jobs(self, name: str) -> "Look":
        """What counts the jobs of a queue."""
        return lambda: self.witness.jobs(name)


Look = Callable[[], Awaitable[object]]
Case = tuple[Callable[[], Awaitable[object]], Look, Callable[[Any], object]]
"""A call, what shows its effect, and what that shows after it, given what it showed before."""


async def _enqueue_many(scene: Scene, name: str) -> Case:
    queue = scene.store.queue(name)
    return lambda: queue.enqueue_many([1, 2, 3]), scene.jobs(name), lambda _: JobCounts(pending=3)


async def _outbox_enqueue(scene: Scene, name: str) -> Case:
    outbox = scene.store.outbox(name)
    return lambda: outbox.enqueue(1), scene.jobs(outbox.queue.name), lambda _: JobCounts(pending=1)


async def _publish_many(scene: Scene, name: str) -> Case:
    stream = scene.store.stream(name)

    async def look() -> object:
        return [event.payload for event in await stream.read_since(0)]

    return lambda: stream.publish_many([1, 2, 3]), look, lambda _: [b"1", b"2", b"3"]


async def _save_offset(scene: Scene, name: str) -> Case:
    stream = scene.store.stream(name)
    return lambda: stream.save_offset("reader", 7), lambda: stream.get_offset("reader"), lambda _: 7


async def _trim(scene: Scene, name: str) -> Case:
    stream = scene.store.stream(name)
    offsets = await stream.publish_many([1, 2, 3])
    return lambda: stream.trim_to(offsets[1]), lambda: scene.witness.events(name), lambda _: offsets[2:]


async def _ack(scene: Scene, name: str) -> Case:
    claim = await scene.claimed(name)
    return claim.ack, scene.job(claim), lambda _: None


async def _retry(scene: Scene, name: str) -> Case:
    claim = await scene.claimed(name)
    ready_at = claim.job.ready_at + 50
    after = JobState.PENDING, 1, ready_at, None, "error"
    return lambda: claim.retry("error", 50), scene.job(claim), lambda _: after


async def _fail(scene: Scene, name: str) -> Case:
    claim = await scene.claimed(name)
    return lambda: claim.fail("error"), scene.job(claim), lambda before: (JobState.DEAD, *before[1:4], "error")


async def _heartbeat(scene: Scene, name: str) -> Case:
    claim = await scene.claimed(name)
    until = claim.job.ready_at + 77
    return lambda: claim.heartbeat(77), scene.job(claim), lambda before: (*before[:3], until, None)


async def _release(scene: Scene, name: str) -> Case:
    claim = await scene.claimed(name)
    return claim.release, scene.job(claim), lambda before: (JobState.PENDING, 0, before[2], None, None)


async def _ack_batch(scene: Scene, name: str) -> Case:
    queue = scene.store.queue(name)
    ids = await queue.enqueue_many([1, 2, 3])
    await queue.claim_batch("worker", 3)
    return lambda: queue.ack_batch("worker", ids), scene.jobs(name), lambda _: JobCounts()


async def _cancel(scene: Scene, name: str) -> Case:
    job_id = await scene.store.queue(name).enqueue(1)
    return lambda: scene.store.queue(name).cancel(job_id), scene.jobs(name), lambda _: JobCounts()


async def _sweep(scene: Scene, name: str) -> Case:
    queue = scene.store.queue(name)
    await queue.enqueue_many([1, 2, 3], expires=0)
    return queue.sweep_expired, scene.jobs(name), lambda _: JobCounts(dead=3)


async def _renew(scene: Scene, name: str) -> Case:
    lock = await scene.store.try_lock(name, "owner", 10)
    assert lock is not None

    async def look() -> object:
        row = await scene.witness.lock(name)
        return row and row.expires_at

    return lambda: lock.renew(20), look, lambda before: before + 10


async def _unlock(scene: Scene, name: str) -> Case:
    lock = await scene.store.try_lock(name, "owner", 10)
    assert lock is not None

    async def look() -> object:
        taken = await scene.store.try_lock(name, "another", 10)
        return taken is not None and await taken.release()

    return lock.release, look, lambda _: True


async def _schedule(scene: Scene, name: str) -> Case:
    async def look() -> object:
        there = await scene.store.unschedule(name)
        if there:
            await scene.store.schedule(name, "@every 1h", "queue", 1)
        return there

    return lambda: scene.store.schedule(name, "@every 1h", "queue", 1), look, lambda _: True


async def _unschedule(scene: Scene, name: str) -> Case:
    await scene.store.schedule(name, "@every 1h", "queue", 1)
    _, look, _ = await _schedule(scene, name)
    return lambda: scene.store.unschedule(name), look, lambda _: False


CASES: dict[str, Callable[[Scene, str], Awaitable[Case]]] = {
    "enqueue_many": _enqueue_many,
    "outbox enqueue": _outbox_enqueue,
    "publish_many": _publish_many,
    "save_offset": _save_offset,
    "trim_to": _trim,
    "ack": _ack,
    "retry": _retry,
    "fail": _fail,
    "heartbeat": _heartbeat,
    "release": _release,
    "ack_batch": _ack_batch,
    "cancel": _cancel,
    "sweep_expired": _sweep,
    "renew": _renew,
    "lock release": _unlock,
    "schedule": _schedule,
    "unschedule": _unschedule,
}
"""What prepares each write, under a name that nothing else uses."""
