"""Every public call, so that a leg can hold all of them to one rule."""

import gc
import warnings
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

from alkstore_core import (
    EventReceiver,
    JobHandle,
    Lock,
    Outbox,
    Queue,
    StopToken,
    Store,
    Stream,
    Transaction,
    WakeReceiver,
)


@dataclass(frozen=True, slots=True)
class Subjects:
    """What the calls of a store are made on. Its queue holds two claimed jobs and one that waits, its stream an event.

    The names are all ``subject``.
    """

    store: Store
    queue: Queue
    stream: Stream
    outbox: Outbox
    handle: JobHandle
    lock: Lock
    receiver: WakeReceiver
    events: EventReceiver


async def subjects_of(store: Store) -> Subjects:
    """Make them."""
    queue, stream = store.queue("subject"), store.stream("subject")
    await queue.enqueue_many([1, 2, 3])
    [handle, _] = await queue.claim_batch("subject", 2)
    await stream.publish(1)
    lock = await store.try_lock("subject", "subject", 1000)
    assert lock is not None
    events = await stream.subscribe("subject")
    assert await events.recv() is not None
    receiver = await store.listen("subject")
    return Subjects(store, queue, stream, store.outbox("subject"), handle, lock, receiver, events)


async def _nothing(_: object) -> None:
    pass


async def _begin_tx(subjects: Subjects) -> None:
    async with subjects.store.begin_tx():
        pass


async def _transaction(subjects: Subjects) -> None:
    async with subjects.store.transaction():
        pass


async def _listen(subjects: Subjects) -> None:
    async with subjects.store.listen("subject"):
        pass


async def _subscribe(subjects: Subjects) -> None:
    async with subjects.stream.subscribe("subject"):
        pass


async def _run_schedules(subjects: Subjects) -> None:
    stop = StopToken()
    stop.cancel()
    await subjects.store.run_schedules(stop)


async def _enlist(subjects: Subjects) -> None:
    subjects.store.enlist(object())


Call = Callable[[Subjects], Awaitable[object]]

WRITES: dict[str, Call] = {
    "Store.notify": lambda its: its.store.notify("subject"),
    "Store.try_lock": lambda its: its.store.try_lock("subject", "another", 10),
    "Store.schedule": lambda its: its.store.schedule("subject", "@every 1h", "subject", 1),
    "Store.unschedule": lambda its: its.store.unschedule("subject"),
    "Store.begin_tx": _begin_tx,
    "Store.transaction": _transaction,
    "Queue.enqueue": lambda its: its.queue.enqueue(1),
    "Queue.enqueue_many": lambda its: its.queue.enqueue_many([1, 2]),
    "Queue.claim_one": lambda its: its.queue.claim_one("subject"),
    "Queue.claim_batch": lambda its: its.queue.claim_batch("subject", 2),
    "Queue.ack_batch": lambda its: its.queue.ack_batch("subject", [its.handle.job.id]),
    "Queue.cancel": lambda its: its.queue.cancel(its.handle.job.id),
    "Queue.sweep_expired": lambda its: its.queue.sweep_expired(),
    "JobHandle.heartbeat": lambda its: its.handle.heartbeat(10),
    "JobHandle.ack": lambda its: its.handle.ack(),
    "JobHandle.retry": lambda its: its.handle.retry("error", 0),
    "JobHandle.fail": lambda its: its.handle.fail("error"),
    "JobHandle.release": lambda its: its.handle.release(),
    "Stream.publish": lambda its: its.stream.publish(1),
    "Stream.publish_many": lambda its: its.stream.publish_many([1, 2]),
    "Stream.save_offset": lambda its: its.stream.save_offset("subject", 1),
    "Stream.trim_to": lambda its: its.stream.trim_to(-1),
    "EventReceiver.save_offset": lambda its: its.events.save_offset(),
    "Outbox.enqueue": lambda its: its.outbox.enqueue(1),
    "Outbox.run_once": lambda its: its.outbox.run_once("subject", _nothing),
    "Lock.renew": lambda its: its.lock.renew(1000),
    "Lock.release": lambda its: its.lock.release(),
}
"""The calls that write and commit by themselves, or begin a transaction."""

READS: dict[str, Call] = {
    "Queue.get_job": lambda its: its.queue.get_job(1),
    "Stream.read_since": lambda its: its.stream.read_since(0),
    "Stream.read_from_consumer": lambda its: its.stream.read_from_consumer("subject"),
    "Stream.get_offset": lambda its: its.stream.get_offset("subject"),
}
"""The calls that only read."""

CALLS: dict[str, Call] = {
    **WRITES,
    **READS,
    "Store.listen": _listen,
    "Store.run_schedules": _run_schedules,
    "Store.enlist": _enlist,
    "Stream.subscribe": _subscribe,
    "WakeReceiver.try_recv": lambda its: its.receiver.try_recv(),
    "EventReceiver.try_recv": lambda its: its.events.try_recv(),
}
"""All calls of an open store but ``close`` and the two ``recv``."""

TX_CALLS: dict[str, Callable[[Transaction], Awaitable[object]]] = {
    "enqueue": lambda tx: tx.enqueue("subject", 1),
    "outbox_enqueue": lambda tx: tx.outbox_enqueue("subject", 1),
    "publish": lambda tx: tx.publish("subject", 1, key="key"),
    "notify": lambda tx: tx.notify("subject"),
    "save_offset": lambda tx: tx.save_offset("subject", "reader", 1),
    "get_job": lambda tx: tx.get_job("subject", 1),
    "get_offset": lambda tx: tx.get_offset("subject", "reader"),
    "read_since": lambda tx: tx.read_since("subject", 0),
    "read_from_consumer": lambda tx: tx.read_from_consumer("subject", "reader"),
}
"""The calls of a transaction but ``commit`` and ``rollback``."""


def run_at_once(call: Awaitable[object]) -> object:
    """Run `call` to its end, or fail where it first waits for anything: a refusal needs no round trip."""
    steps: Generator[Any, Any, object] | Coroutine[Any, Any, object]
    steps = call if isinstance(call, Coroutine) else call.__await__()
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    steps.close()
    raise AssertionError("it waited before it refused")


def collect_quietly() -> None:
    """Collect what earlier legs left behind, so that its warnings do not count here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def kinds_of_objects() -> Counter[str]:
    """How many objects there are of each type, but for weak references, which drivers clear in their own time."""
    collect_quietly()
    return Counter(type(thing).__name__ for thing in gc.get_objects() if not isinstance(thing, weakref.ref))


def grown_since(before: Counter[str], *, by_more_than: int) -> dict[str, int]:
    """The types of which there are that many more now, each with how many."""
    return {kind: count for kind, count in (kinds_of_objects() - before).items() if count > by_more_than}
