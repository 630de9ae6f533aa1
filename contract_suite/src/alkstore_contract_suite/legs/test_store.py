"""The store: what it offers, how it is opened and closed, and where it may be used (contract sections 0 and 1)."""

import asyncio
import inspect
import os
import threading
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from alkstore_core import (
    EventReceiver,
    Job,
    JobHandle,
    JobState,
    Lock,
    Outbox,
    Queue,
    QueueOptions,
    Schedule,
    ScheduleOptions,
    StopToken,
    Store,
    Stream,
    StreamEvent,
    Transaction,
    Wake,
    WakeReceiver,
    Worker,
    open_store,
)
from alkstore_core.errors import AlkstoreError, ClosedError, CommitUnknownError, DatabaseError
from alkstore_core.testing import running_tasks

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import (
    CALLS,
    TX_CALLS,
    Call,
    Subjects,
    grown_since,
    kinds_of_objects,
    subjects_of,
)
from alkstore_contract_suite.proofs import caught_up, heard_nothing

# what it offers

_ENQUEUE = "*, delay=None, run_at=None, expires=None, max_attempts=None, priority=0)"
_RECEIVER = {"recv": "()", "try_recv": "()", "close": "()", "__aiter__": "()", "__aenter__": "()"}
_SURFACE: dict[type, dict[str, str]] = {
    Store: {
        "close": "()",
        "notify": "(channel, payload=None)",
        "listen": "(channel)",
        "stream": "(name)",
        "queue": "(name, *, visibility_timeout_s=300, max_attempts=3, backoff_base_s=5, dead_letter_retention_s=None)",
        "outbox": "(name)",
        "try_lock": "(name, owner, ttl)",
        "schedule": "(name, spec, queue, payload, *, priority=0, max_attempts=None, expires=None)",
        "unschedule": "(name)",
        "run_schedules": "(stop)",
        "begin_tx": "()",
        "transaction": "()",
        "enlist": "(connection)",
    },
    Transaction: {
        "enqueue": f"(queue, payload, {_ENQUEUE}",
        "outbox_enqueue": f"(outbox, payload, {_ENQUEUE}",
        "publish": "(stream, payload, *, key=None)",
        "notify": "(channel, payload=None)",
        "save_offset": "(stream, consumer, offset)",
        "get_job": "(queue, job_id)",
        "get_offset": "(stream, consumer)",
        "read_since": "(stream, offset, limit=100)",
        "read_from_consumer": "(stream, consumer, limit=100)",
        "commit": "()",
        "rollback": "()",
    },
    Queue: {
        "enqueue": f"(payload, {_ENQUEUE}",
        "enqueue_many": f"(payloads, {_ENQUEUE}",
        "claim_one": "(worker_id)",
        "claim_batch": "(worker_id, n)",
        "ack_batch": "(worker_id, job_ids)",
        "cancel": "(job_id)",
        "get_job": "(job_id)",
        "sweep_expired": "()",
    },
    JobHandle: {
        "ack": "()",
        "retry": "(error, delay=None)",
        "fail": "(error=None)",
        "heartbeat": "(extend)",
        "release": "()",
    },
    Stream: {
        "publish": "(payload, *, key=None)",
        "publish_many": "(payloads, *, keys=None)",
        "read_since": "(offset, limit=100)",
        "read_from_consumer": "(consumer, limit=100)",
        "save_offset": "(consumer, offset)",
        "get_offset": "(consumer)",
        "trim_to": "(horizon)",
        "subscribe": "(consumer)",
    },
    WakeReceiver: _RECEIVER,
    EventReceiver: {**_RECEIVER, "save_offset": "()"},
    Outbox: {"enqueue": f"(payload, {_ENQUEUE}", "run_once": "(worker_id, delivery)"},
    Lock: {"renew": "(ttl)", "release": "()", "__aenter__": "()"},
    StopToken: {"cancel": "()", "wait": "()"},
}


def _parameters(function: Callable[..., object]) -> str:
    """The parameters of a method as written, without self and types."""
    _, *parameters = inspect.signature(function).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(bare))


@leg(rules="X1 T2", since="1.0")
async def test_surface(store: Store) -> None:
    """Everything that the contract names is there, with those parameters and defaults and no engine's own beside."""
    its = await subjects_of(store)
    async with store.transaction() as tx:
        things = (store, tx, its.queue, its.handle, its.stream, its.receiver, its.events, its.outbox, its.lock)
        for thing in (*things, StopToken()):
            [kind] = [kind for kind in _SURFACE if isinstance(thing, kind)]
            offered = {name: _parameters(getattr(type(thing), name)) for name in _SURFACE[kind]}
            assert offered == _SURFACE[kind]
        assert tx.connection is not None
    assert (its.queue.name, its.queue.options) == ("subject", QueueOptions())
    assert isinstance(its.handle.job, Job)
    assert (its.lock.name, its.lock.owner) == ("subject", "subject")
    assert isinstance(its.lock.expires_at, int)
    assert isinstance(its.lock.token, int)
    names = list(inspect.signature(Worker).parameters)
    assert names == ["queue", "handler", "concurrency", "worker_id", "shutdown_timeout"]
    assert _parameters(Worker.run) == "(stop)"


@leg(rules="T2", since="1.0")
async def test_no_capability_query(store: Store) -> None:
    """A store offers nothing that asks what its engine can do."""
    for thing in (store, store.queue("queue"), store.stream("stream")):
        words = {word for name in dir(thing) if not name.startswith("_") for word in name.split("_")}
        asks = {"capability", "capabilities", "supports", "supported", "features", "has", "can", "dialect", "backend"}
        assert words & asks == set()


@leg(rules="T2 X1", since="1.0")
async def test_open_belongs_to_the_engine(store: Store) -> None:
    """The store's own class opens it, with a class method that is awaitable and a context manager."""
    assert type(store) is not Store
    assert isinstance(store, Store)
    assert inspect.ismethod(getattr(type(store), "open", None))


@leg(rules="X1 V6", since="1.0")
async def test_option_sets_are_closed(store: Store, witness: Witness) -> None:
    """An option that the contract does not name is TypeError wherever options are taken, and nothing happens."""
    queue, stream, outbox = store.queue("queue"), store.stream("stream"), store.outbox("outbox")
    unknown: Any = {"colour": "red"}
    async with store.transaction() as tx:
        for call in (
            lambda: store.queue("queue", **unknown),
            lambda: store.stream("stream", **unknown),
            lambda: store.outbox("outbox", **unknown),
            lambda: store.listen("channel", **unknown),
            lambda: store.notify("channel", **unknown),
            lambda: store.schedule("schedule", "@every 1h", "queue", 1, **unknown),
            lambda: store.try_lock("lock", "owner", 10, **unknown),
            lambda: store.begin_tx(**unknown),
            lambda: store.transaction(**unknown),
            lambda: queue.enqueue(1, **unknown),
            lambda: queue.enqueue_many([1], **unknown),
            lambda: queue.claim_one("worker", **unknown),
            lambda: stream.publish(1, **unknown),
            lambda: stream.publish_many([1], **unknown),
            lambda: stream.subscribe("reader", **unknown),
            lambda: outbox.enqueue(1, **unknown),
            lambda: tx.enqueue("queue", 1, **unknown),
            lambda: tx.outbox_enqueue("outbox", 1, **unknown),
            lambda: tx.publish("stream", 1, **unknown),
            lambda: tx.notify("channel", **unknown),
            lambda: QueueOptions(**unknown),
            lambda: ScheduleOptions(**unknown),
        ):
            with pytest.raises(TypeError, match="colour"):
                call()
    assert await witness.jobs("queue") == JobCounts()
    assert await witness.events("stream") == []


@leg(rules="X1 T2", since="1.0", needs=("child",))
async def test_open_refuses_unknown_schemes_and_opens_by_url(harness: Harness, store: Store) -> None:
    """open_store opens the same data by its URL; a scheme that no engine has is DatabaseError."""
    address = harness.address()
    job_id = await store.queue("queue").enqueue(1)
    async with open_store(address.url, clock=harness.clock, **address.options) as another:
        assert type(another) is type(store)
        assert await another.queue("queue").get_job(job_id) is not None
    for url in ("nosuchengine://somewhere", "no url", ""):
        with pytest.raises(DatabaseError):
            await open_store(url)


@leg(rules="X1", since="1.0")
async def test_values_do_not_change(store: Store) -> None:
    """Jobs, events, schedules, wakes and options are immutable and slotted, and equal where they say the same."""
    its = await subjects_of(store)
    [event] = await its.stream.read_since(0)
    schedule = await store.schedule("schedule", "@every 1h", "queue", 1, priority=2)
    assert (schedule.name, schedule.spec, schedule.queue) == ("schedule", "@every 1h", "queue")
    assert schedule.options == ScheduleOptions(priority=2)
    job = await its.queue.get_job(its.handle.job.id)
    assert job == its.handle.job
    assert isinstance(event, StreamEvent)
    assert isinstance(schedule, Schedule)
    for value in (job, event, schedule, schedule.options, its.queue.options, Wake("channel")):
        assert not hasattr(value, "__dict__")
        assert hash(value) == hash(value)
        for name in [*getattr(type(value), "__match_args__", ()), "another"]:
            with pytest.raises((AttributeError, TypeError)):
                setattr(value, name, None)
    assert {state.name: state.value for state in JobState} == {
        "PENDING": "pending",
        "PROCESSING": "processing",
        "DEAD": "dead",
    }


@leg(rules="X1 H3", since="1.0")
async def test_stop_token() -> None:
    """A token says whether it was cancelled, and ends every wait, whichever thread cancels it; once is for ever."""
    token = StopToken()
    assert token.is_cancelled is False
    waiting = [asyncio.create_task(token.wait()) for _ in range(3)]
    abandoned = asyncio.create_task(token.wait())
    await asyncio.sleep(0)
    abandoned.cancel()
    assert not any(task.done() for task in waiting)
    await asyncio.to_thread(token.cancel)
    await asyncio.gather(*waiting)
    token.cancel()
    assert token.is_cancelled is True
    await token.wait()


# handles


@leg(rules="T1", since="1.0")
async def test_handles_touch_nothing(store: Store, second_store: Store, witness: Witness) -> None:
    """Making handles is no await: it starts nothing, stores nothing and wakes nobody, also beside a transaction."""
    async with second_store.listen("name") as receiver, store.transaction() as tx:
        tasks = running_tasks()
        for make in (store.queue, store.stream, store.outbox):
            for _ in range(100):
                assert not inspect.isawaitable(make("name"))
        assert running_tasks() == tasks
        await tx.commit()
        await heard_nothing(second_store, receiver)
    assert await witness.jobs("name") == JobCounts()
    assert await witness.events("name") == []


@leg(rules="T1 Q2", since="1.0")
async def test_handles_of_one_name_are_independent(store: Store) -> None:
    """Handles hold nothing but their name and options: another one of the same name sees and does the same."""
    one, two = store.queue("queue", max_attempts=1), store.queue("queue", max_attempts=7)
    ids = [await one.enqueue(1), await two.enqueue(2)]
    claims = [await two.claim_one("worker"), await one.claim_one("worker")]
    assert [claim and (claim.job.id, claim.job.max_attempts) for claim in claims] == [(ids[0], 1), (ids[1], 7)]
    offset = await store.stream("stream").publish(1)
    assert [event.offset for event in await store.stream("stream").read_since(0)] == [offset]


# opening


@leg(rules="X1 T12", since="1.0")
async def test_opened_by_await_or_with(harness: Harness) -> None:
    """What opens a store is awaited, to be closed by you, or entered, to be closed at the end."""
    awaited = await harness.open()
    try:
        assert await awaited.queue("queue").enqueue(1) > 0
        async with harness.open() as entered:
            assert await entered.queue("queue").claim_one("worker") is not None
        with pytest.raises(ClosedError):
            await entered.queue("queue").enqueue(1)
        assert await awaited.queue("queue").claim_one("worker") is None
    finally:
        await awaited.close()
    with pytest.raises(ClosedError):
        await awaited.queue("queue").enqueue(1)


@leg(rules="X1 N4 S7 T5", since="1.0")
async def test_others_are_opened_by_await_or_with(store: Store) -> None:
    """So are receivers and explicit transactions: entered, they are closed or rolled back at the end."""
    listened, subscribed = await store.listen("channel"), await store.stream("stream").subscribe("reader")
    async with store.listen("channel") as wakes, store.stream("stream").subscribe("reader") as events:
        assert (type(wakes), type(events)) == (WakeReceiver, EventReceiver)
    for closed in (wakes, events):
        assert await closed.recv() is None
    await store.notify("channel")
    offset = await store.stream("stream").publish(1)
    assert await listened.recv() == Wake("channel")
    event = await subscribed.recv()
    assert event is not None
    assert event.offset == offset
    async with store.begin_tx() as tx:
        assert type(tx) is Transaction
        await tx.enqueue("queue", 1)
    with pytest.raises(ClosedError):
        await tx.commit()
    assert await store.queue("queue").claim_one("worker") is None
    tx = await store.begin_tx()
    await tx.enqueue("queue", 1)
    await tx.commit()
    assert await store.queue("queue").claim_one("worker") is not None
    for opening in (store.listen("channel"), store.stream("stream").subscribe("reader"), store.begin_tx()):
        assert isinstance(opening, AbstractAsyncContextManager)
        assert inspect.isawaitable(opening)


# closing


@leg(rules="T12", since="1.0")
async def test_closed_store_refuses_everything(harness: Harness) -> None:
    """After close every operation of the store and its handles raises ClosedError, and receivers have ended."""
    async with harness.open() as store:
        subjects = await subjects_of(store)
    for call in CALLS.values():
        with pytest.raises(ClosedError):
            await call(subjects)
    for receiver in (subjects.receiver, subjects.events):
        assert await receiver.recv() is None
        with pytest.raises(ClosedError):
            await receiver.try_recv()
        await receiver.close()


@leg(rules="T12", since="1.0")
async def test_close_is_idempotent(harness: Harness) -> None:
    """Closing again, and from many tasks at once, is no error, and each call returns when the store is closed."""
    async with harness.open() as store:
        subjects = await subjects_of(store)
        await asyncio.gather(*(store.close() for _ in range(5)))
        await store.close()
        with pytest.raises(ClosedError):
            await subjects.queue.enqueue(1)
    await store.close()


@leg(rules="T12 T13", since="1.0")
async def test_cancelled_close_is_seen_through(harness: Harness) -> None:
    """A close that is cancelled, however often, still closes: a second one returns, and nothing works any more."""
    draw = Random(12)
    for _ in range(15):
        store = await harness.open()
        subjects = await subjects_of(store)
        closing = asyncio.create_task(store.close())
        for _ in range(3):
            for _ in range(draw.randrange(4)):
                await asyncio.sleep(0)
            closing.cancel()
        await asyncio.wait([closing])
        await store.close()
        assert await subjects.receiver.recv() is None
        with pytest.raises(ClosedError):
            await subjects.queue.enqueue(1)


def _open_files() -> int:
    """How many files and sockets this process has open; 0 where it cannot be asked."""
    files = Path("/proc/self/fd")
    return len(list(files.iterdir())) if files.exists() else 0


class _Baseline:
    """The tasks, threads and files that there are while no store is open."""

    def __init__(self) -> None:
        self._tasks, self._threads, self._files = running_tasks(), set(threading.enumerate()), _open_files()

    @classmethod
    async def of(cls, harness: Harness) -> "_Baseline":
        """Now, and after whatever the first store of a process leaves for good."""
        async with harness.open() as store, store.transaction() as tx:
            await tx.enqueue("warm", 1)
        return cls()

    def check(self) -> None:
        """Fail if there are more now."""
        assert running_tasks() - self._tasks == set()
        assert {thread for thread in threading.enumerate() if thread.is_alive()} - self._threads == set()
        assert _open_files() <= self._files


@leg(rules="T12", since="1.0")
async def test_close_leaves_nothing_running(harness: Harness) -> None:
    """After close no task, thread or connection of the store remains, whatever was in use."""
    baseline = await _Baseline.of(harness)
    for _ in range(5):
        store = await harness.open()
        subjects = await subjects_of(store)
        tx = await store.begin_tx()
        await tx.enqueue("queue", 1)
        await tx.commit()
        undecided = await store.begin_tx()
        await undecided.enqueue("queue", 1)
        waiting: list[asyncio.Task[object]] = [
            asyncio.create_task(subjects.receiver.recv()),
            asyncio.create_task((await store.stream("quiet").subscribe("reader")).recv()),
        ]
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*waiting) == [None, None]
        with pytest.raises(ClosedError):
            await undecided.commit()
        baseline.check()


@leg(rules="T12", since="1.0")
async def test_closing_one_store_leaves_others_alone(store: Store, second_store: Store) -> None:
    """Closing a store closes it only: another one on the same data keeps its data, receivers, locks and claims."""
    subjects = await subjects_of(store)
    lock = await second_store.try_lock("leader", "owner", 100)
    assert lock is not None
    await second_store.stream("stream").publish(1)
    await second_store.close()
    assert await subjects.handle.ack()
    assert await subjects.lock.renew(10)
    assert await store.try_lock("leader", "another", 100) is None
    assert len(await store.stream("stream").read_since(0)) == 1
    await store.notify("subject")
    assert await subjects.receiver.recv() == Wake("subject")


@leg(rules="T12", since="1.0")
async def test_close_loses_nothing_under_way(harness: Harness, store: Store, witness: Witness) -> None:
    """An operation under way when its store closes finishes or fails, truthfully; none hangs and none is lost."""
    del store  # it keeps the data
    draw = Random(120)

    async def transact(other: Store, name: str) -> None:
        async with other.transaction() as tx:
            await tx.enqueue(name, 1)
            await tx.publish(name, 1)

    for number in range(15):
        other = await harness.open()
        names = [f"{number} {which}" for which in range(12)]
        works = [asyncio.create_task(other.queue(name).enqueue(1)) for name in names[:4]]
        works += [asyncio.create_task(other.stream(name).publish(1)) for name in names[4:8]]
        transactions = [asyncio.create_task(transact(other, name)) for name in names[8:]]
        for _ in range(draw.randrange(25)):
            await asyncio.sleep(0)
        await other.close()
        outcomes = await asyncio.gather(*works, *transactions, return_exceptions=True)
        for name, outcome in zip(names, outcomes, strict=True):
            there = (await witness.jobs(name)).pending, len(await witness.events(name))
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, ClosedError | DatabaseError)
                assert there == (0, 0)
            else:
                assert there == {0: (1, 0), 1: (0, 1), 2: (1, 1)}[names.index(name) // 4]


# cancellation


async def _turns_of(call: Awaitable[object]) -> int:
    """How many turns of the event loop a call takes here."""
    task, turns = asyncio.ensure_future(call), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


class _Cancelled:
    """What a call that was cancelled comes to."""


_CANCELLED = _Cancelled()


async def _cancelled_after(turns: int, call: Awaitable[Any]) -> Any:
    """The call's result if it was faster, or `_CANCELLED`."""
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return _CANCELLED if task.cancelled() else task.result()


class _Scene:
    """Prepares what calls are made on, and looks at what they did."""

    def __init__(self, store: Store, witness: Witness) -> None:
        self.store = store
        self.witness = witness

    async def claimed(self, name: str) -> JobHandle:
        queue = self.store.queue(name)
        await queue.enqueue(1)
        claim = await queue.claim_one("worker")
        assert claim is not None
        return claim

    def job(self, claim: JobHandle) -> "_Look":
        async def look() -> object:
            job = await self.store.queue("any").get_job(claim.job.id)
            if job is None:
                return None
            return job.state, job.attempts, job.ready_at, job.claim_expires_at, job.last_error

        return look

    def jobs(self, name: str) -> "_Look":
        return lambda: self.witness.jobs(name)


_Look = Callable[[], Awaitable[object]]
_Case = tuple[Callable[[], Awaitable[object]], _Look, Callable[[Any], object]]
"""A call, what shows its effect, and what that shows after it, given what it showed before."""


async def _enqueue_many(scene: _Scene, name: str) -> _Case:
    queue = scene.store.queue(name)
    return lambda: queue.enqueue_many([1, 2, 3]), scene.jobs(name), lambda _: JobCounts(pending=3)


async def _outbox_enqueue(scene: _Scene, name: str) -> _Case:
    outbox = scene.store.outbox(name)
    return lambda: outbox.enqueue(1), scene.jobs(outbox.queue.name), lambda _: JobCounts(pending=1)


async def _publish_many(scene: _Scene, name: str) -> _Case:
    stream = scene.store.stream(name)

    async def look() -> object:
        return [event.payload for event in await stream.read_since(0)]

    return lambda: stream.publish_many([1, 2, 3]), look, lambda _: [b"1", b"2", b"3"]


async def _save_offset(scene: _Scene, name: str) -> _Case:
    stream = scene.store.stream(name)
    return lambda: stream.save_offset("reader", 7), lambda: stream.get_offset("reader"), lambda _: 7


async def _trim(scene: _Scene, name: str) -> _Case:
    stream = scene.store.stream(name)
    offsets = await stream.publish_many([1, 2, 3])
    return lambda: stream.trim_to(offsets[1]), lambda: scene.witness.events(name), lambda _: offsets[2:]


async def _ack(scene: _Scene, name: str) -> _Case:
    claim = await scene.claimed(name)
    return claim.ack, scene.job(claim), lambda _: None


async def _retry(scene: _Scene, name: str) -> _Case:
    claim = await scene.claimed(name)
    ready_at = claim.job.ready_at + 50
    after = JobState.PENDING, 1, ready_at, None, "error"
    return lambda: claim.retry("error", 50), scene.job(claim), lambda _: after


async def _fail(scene: _Scene, name: str) -> _Case:
    claim = await scene.claimed(name)
    return lambda: claim.fail("error"), scene.job(claim), lambda before: (JobState.DEAD, *before[1:4], "error")


async def _heartbeat(scene: _Scene, name: str) -> _Case:
    claim = await scene.claimed(name)
    until = claim.job.ready_at + 77
    return lambda: claim.heartbeat(77), scene.job(claim), lambda before: (*before[:3], until, None)


async def _release(scene: _Scene, name: str) -> _Case:
    claim = await scene.claimed(name)
    return claim.release, scene.job(claim), lambda before: (JobState.PENDING, 0, before[2], None, None)


async def _ack_batch(scene: _Scene, name: str) -> _Case:
    queue = scene.store.queue(name)
    ids = await queue.enqueue_many([1, 2, 3])
    await queue.claim_batch("worker", 3)
    return lambda: queue.ack_batch("worker", ids), scene.jobs(name), lambda _: JobCounts()


async def _cancel(scene: _Scene, name: str) -> _Case:
    job_id = await scene.store.queue(name).enqueue(1)
    return lambda: scene.store.queue(name).cancel(job_id), scene.jobs(name), lambda _: JobCounts()


async def _sweep(scene: _Scene, name: str) -> _Case:
    queue = scene.store.queue(name)
    await queue.enqueue_many([1, 2, 3], expires=0)
    return queue.sweep_expired, scene.jobs(name), lambda _: JobCounts(dead=3)


async def _renew(scene: _Scene, name: str) -> _Case:
    lock = await scene.store.try_lock(name, "owner", 10)
    assert lock is not None

    async def look() -> object:
        row = await scene.witness.lock(name)
        return row and row.expires_at

    return lambda: lock.renew(20), look, lambda before: before + 10


async def _unlock(scene: _Scene, name: str) -> _Case:
    lock = await scene.store.try_lock(name, "owner", 10)
    assert lock is not None

    async def look() -> object:
        taken = await scene.store.try_lock(name, "another", 10)
        return taken is not None and await taken.release()

    return lock.release, look, lambda _: True


async def _schedule(scene: _Scene, name: str) -> _Case:
    async def look() -> object:
        there = await scene.store.unschedule(name)
        if there:
            await scene.store.schedule(name, "@every 1h", "queue", 1)
        return there

    return lambda: scene.store.schedule(name, "@every 1h", "queue", 1), look, lambda _: True


async def _unschedule(scene: _Scene, name: str) -> _Case:
    await scene.store.schedule(name, "@every 1h", "queue", 1)
    _, look, _ = await _schedule(scene, name)
    return lambda: scene.store.unschedule(name), look, lambda _: False


_CASES: dict[str, Callable[[_Scene, str], Awaitable[_Case]]] = {
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


@leg(rules="T13 Q12", since="1.0")
@pytest.mark.parametrize("case", _CASES)
async def test_cancelled_write_happens_or_does_not(store: Store, witness: Witness, case: str) -> None:
    """A write cancelled at whatever moment took effect as a whole or not at all, and what returned did take effect."""
    draw, scene, seen = Random(13), _Scene(store, witness), []
    call, _, _ = await _CASES[case](scene, f"{case} measured")
    turns = await _turns_of(call())
    for number in range(15):
        call, look, effect = await _CASES[case](scene, f"{case} {number}")
        before = await look()
        outcome = await _cancelled_after(draw.randrange(turns + 2), call())
        await caught_up(store)
        state = await look()
        assert state == effect(before) or (outcome is _CANCELLED and state == before)
        seen.append((look, state))
    for look, state in seen:
        assert await look() == state


@leg(rules="T13 Q3 Q15", since="1.0")
@pytest.mark.parametrize("n", [1, 3])
async def test_cancelled_claim_is_given_back(store: Store, second_store: Store, n: int) -> None:
    """A claim whose caller was cancelled is held by nobody: the jobs are there for the next, at no cost of attempts."""
    draw, queue, judge = Random(131), store.queue("queue"), second_store.queue("queue")
    await queue.enqueue_many(range(n))
    turns = await _turns_of(store.queue("another").claim_batch("worker", n))
    for _ in range(40):
        outcome = await _cancelled_after(draw.randrange(turns + 4), queue.claim_batch("cancelled", n))
        claims = [] if outcome is _CANCELLED else outcome
        for _ in range(50):  # the engine gives it back in its own time, but by itself
            if len(claims) < n:
                claims += await judge.claim_batch("judge", n - len(claims))
                await caught_up(store)
        assert [claim.job.attempts for claim in claims] == [1] * n
        for claim in claims:
            assert await claim.release()


@leg(rules="T13 L1", since="1.0")
async def test_cancelled_lock_is_given_back(store: Store, second_store: Store) -> None:
    """A lock whose taker was cancelled is held by nobody."""
    draw = Random(132)
    turns = await _turns_of(store.try_lock("measured", "owner", 100))
    for number in range(50):
        name = f"lock {number}"
        lock = await _cancelled_after(draw.randrange(turns + 4), store.try_lock(name, "cancelled", 100))
        if lock is not _CANCELLED:
            assert lock is not None
            assert await lock.release()
        for _ in range(50):
            lock = await second_store.try_lock(name, "judge", 100)
            if lock is not None:
                break
            await caught_up(store)
        assert lock is not None


@leg(rules="T13 L2", since="1.0")
async def test_cancelled_asking_again_keeps_the_lock(store: Store, witness: Witness) -> None:
    """An owner's second try_lock that is cancelled leaves the lock with that owner."""
    draw = Random(133)
    lock = await store.try_lock("lock", "owner", 100)
    assert lock is not None
    row = await witness.lock("lock")
    turns = await _turns_of(store.try_lock("lock", "owner", 100))
    for _ in range(30):
        again = await _cancelled_after(draw.randrange(turns + 2), store.try_lock("lock", "owner", 100))
        assert again is _CANCELLED or again.token == lock.token
        await caught_up(store)
        assert await witness.lock("lock") == row
    assert await lock.renew(10)


@leg(rules="T13 T9", since="1.0")
async def test_cancelled_begin_leaves_no_transaction(harness: Harness, store: Store, witness: Witness) -> None:
    """A begin_tx that was cancelled, waiting for its turn or not, leaves nothing that keeps others from writing."""
    draw = Random(134)

    async def begin_and_roll_back() -> None:
        async with store.begin_tx():
            pass

    turns = await _turns_of(begin_and_roll_back())
    async with harness.open(patience_s=2.0) as other:
        for number in range(60):
            async with AsyncExitStack() as until_cancelled:
                if number % 2:
                    await until_cancelled.enter_async_context(other.begin_tx())
                tx = await _cancelled_after(draw.randrange(turns + 2), store.begin_tx())
                if tx is not _CANCELLED:
                    await tx.rollback()
            await other.queue("after").enqueue(number)
            await store.queue("after").enqueue(number)
    assert await witness.jobs("after") == JobCounts(pending=120)


@leg(rules="T13 T4 T3", since="1.0")
async def test_cancelled_transaction_happens_or_does_not(harness: Harness, store: Store, witness: Witness) -> None:
    """A transaction block cancelled at whatever moment is there as a whole or not at all, and others write at once."""
    draw = Random(135)

    async def work(name: str) -> None:
        async with store.transaction() as tx:
            await tx.enqueue(name, 1)
            await harness.write(tx, name)
            await tx.publish(name, 1)
            await tx.save_offset(name, "reader", 1)

    turns = await _turns_of(work("measured"))
    async with harness.open(patience_s=2.0) as other:
        for number in range(70):
            name = f"name {number}"
            outcome = await _cancelled_after(draw.randrange(turns + 2), work(name))
            await other.queue("after").enqueue(number)
            whole = 1, 1, 1, 1
            business = (await witness.business()).count(name)
            jobs, events = await witness.jobs(name), await witness.events(name)
            there = jobs.pending, business, len(events), await witness.offset(name, "reader") or 0
            assert there == whole or (outcome is _CANCELLED and there == (0, 0, 0, 0))
    assert await witness.jobs("after") == JobCounts(pending=70)


@leg(rules="T13 T8 T14", since="1.0")
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_cancelled_end_is_decided(harness: Harness, store: Store, witness: Witness, end: str) -> None:
    """A commit or rollback whose caller is cancelled is decided once the cancellation arrives; the handle is closed."""
    draw = Random(136)
    async with store.begin_tx() as tx:
        await tx.enqueue("measured", 1)
        turns = await _turns_of(getattr(tx, end)())
    async with harness.open(patience_s=2.0) as other:
        for number in range(40):
            name = f"name {number}"
            async with store.begin_tx() as tx:
                await tx.enqueue(name, 1)
                await tx.publish(name, 1)
                # At least one turn: a task that is cancelled before its first step has not called anything.
                outcome = await _cancelled_after(1 + draw.randrange(turns + 1), getattr(tx, end)())
                there = (await witness.jobs(name)).pending, len(await witness.events(name))
                assert there == ((1, 1) if end == "commit" else (0, 0)) or (outcome is _CANCELLED and there == (0, 0))
                with pytest.raises(ClosedError):
                    await tx.rollback()
            await other.queue("after").enqueue(number)
            assert there == ((await witness.jobs(name)).pending, len(await witness.events(name)))
    assert await witness.jobs("after") == JobCounts(pending=40)


@leg(rules="T13 T6", since="1.0")
async def test_cancelled_call_on_a_transaction_tells_no_lie(store: Store, witness: Witness) -> None:
    """After cancelled calls a transaction commits what it shows, or fails and leaves nothing."""
    draw = Random(137)
    for number in range(12):
        name = f"name {number}"
        returned = shown = 0
        try:
            async with store.transaction() as tx:
                turns = await _turns_of(tx.publish(name, 1))
                for _ in range(8):
                    outcome = await _cancelled_after(draw.randrange(turns + 2), tx.publish(name, 1))
                    returned += outcome is not _CANCELLED
                shown = len(await tx.read_since(name, 0))
                assert 1 + returned <= shown <= 9
        except AlkstoreError:  # the cancelled statement broke it, and it says so
            shown = 0
        assert len(await witness.events(name)) == shown
        await store.queue("after").enqueue(number)


@leg(rules="T13", since="1.0")
async def test_cancelled_caller_harms_no_other(store: Store, second_store: Store, witness: Witness) -> None:
    """Of many writes in flight together some are cancelled: all others succeed, with what they were told."""
    draw = Random(138)
    turns = await _turns_of(asyncio.gather(*(store.queue("measured").enqueue(n) for n in range(24))))
    for number in range(25):
        queue, stream = f"queue {number}", f"stream {number}"
        works = [
            asyncio.create_task(each.queue(queue).enqueue(n) if n % 2 else each.stream(stream).publish(n))
            for each in (store, store, second_store)
            for n in range(12)
        ]
        doomed = set(draw.sample(works, 12))
        for _ in range(draw.randrange(turns + 1)):
            await asyncio.sleep(0)
        for work in doomed:
            work.cancel()
        await asyncio.wait(works)
        for each in (store, second_store):
            await caught_up(each)
        told = [work.result() for work in works if not work.cancelled()]
        assert len(told) >= len(works) - len(doomed)
        offsets = await witness.events(stream)
        ids = {claim.job.id for claim in await store.queue(queue).claim_batch("worker", 100)}
        done = [work for work in works if not work.cancelled()]
        assert {work.result() for work in done if works.index(work) % 2} <= ids
        assert {work.result() for work in done if works.index(work) % 2 == 0} <= set(offsets)
        assert len(ids) + len(offsets) <= len(works)


@leg(rules="T13", since="1.0")
async def test_cancelled_read_harms_nothing(store: Store) -> None:
    """Reads that are cancelled leave the store as it was, and later ones work."""
    draw, its = Random(139), await subjects_of(store)
    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: its.queue.get_job(its.handle.job.id),
        lambda: its.stream.read_since(0),
        lambda: its.stream.read_from_consumer("reader"),
        lambda: its.stream.get_offset("reader"),
        its.events.try_recv,
    ]
    expected = [await read() for read in reads]
    turns = await _turns_of(reads[1]())
    for number in range(150):
        await _cancelled_after(draw.randrange(turns + 2), reads[number % len(reads)]())
    assert [await read() for read in reads] == expected
    assert await its.handle.ack()


@leg(rules="T13 N2 S7", since="1.0")
async def test_cancelled_listening_leaves_nothing(harness: Harness) -> None:
    """A listen or subscribe that is cancelled leaves nothing behind, and later ones hear."""
    baseline, draw = await _Baseline.of(harness), Random(140)
    async with harness.open() as store:
        turns = await _turns_of(store.listen("channel"))

        async def listen_in_vain(times: int) -> None:
            for number in range(times):
                opening: Awaitable[Any] = (
                    store.listen("channel") if number % 2 else store.stream("stream").subscribe("reader")
                )
                receiver = await _cancelled_after(draw.randrange(turns + 2), opening)
                if receiver is not _CANCELLED:
                    await receiver.close()

        await listen_in_vain(20)
        kinds = kinds_of_objects()
        await listen_in_vain(160)
        assert grown_since(kinds, by_more_than=30) == {}
        async with store.listen("channel") as receiver:
            await store.notify("channel")
            assert await receiver.recv() == Wake("channel")
    baseline.check()


@leg(rules="T13 T12", since="1.0")
async def test_cancelled_open_leaves_nothing(harness: Harness) -> None:
    """An opening that is cancelled leaves no task, thread or file behind, and the next one works."""
    baseline, draw = await _Baseline.of(harness), Random(141)

    async def open_and_close() -> None:
        async with harness.open():
            pass

    turns = await _turns_of(open_and_close())
    for number in range(60):
        opened = await _cancelled_after(1 if number % 2 else draw.randrange(turns + 2), harness.open())
        if opened is not _CANCELLED:
            await opened.close()
    baseline.check()
    async with harness.open() as store:
        await store.queue("after").enqueue(1)


@leg(rules="T13 H3", since="1.0")
async def test_cancelled_scheduler_lets_go(store: Store, second_store: Store, harness: Harness) -> None:
    """A cancelled run_schedules leads no more: the next runner fires at once."""
    draw = Random(142)
    await store.schedule("schedule", "@every 1s", "queue", 1)
    queue = second_store.queue("queue")
    for _ in range(20):
        await _cancelled_after(draw.randrange(40), store.run_schedules(StopToken()))
        await caught_up(store)
        for left in await queue.claim_batch("worker", 100):
            assert await left.ack()
        stop, claim = StopToken(), None
        async with asyncio.TaskGroup() as group:
            group.create_task(second_store.run_schedules(stop))
            for turn in range(300):
                if turn % 30 == 0:
                    await harness.advance(1)  # ten times at most: a leader that is gone would lead for longer
                claim = await queue.claim_one("worker")
                if claim is not None:
                    break
            assert claim is not None
            assert await claim.ack()
            stop.cancel()


@leg(rules="T13 T12", since="1.0")
async def test_cancellations_leave_nothing_running(harness: Harness) -> None:
    """After every call was cancelled at random moments, and the store closed, no task, thread or file is left."""
    baseline, draw = await _Baseline.of(harness), Random(143)
    async with harness.open() as store:
        subjects = await subjects_of(store)
        for call in [call for name, call in CALLS.items() if name != "Store.enlist"] * 4:
            await _cancelled_after(draw.randrange(20), _called(call, subjects))
        await store.queue("after").enqueue(1)
        async with store.transaction() as tx:
            await tx.enqueue("after", 1)
    baseline.check()


async def _called(call: Callable[[Subjects], Awaitable[object]], subjects: Subjects) -> object:
    return await call(subjects)


# a commit whose outcome is in doubt


@leg(rules="T14 T9", since="1.0", needs=("sever",))
async def test_commit_around_a_lost_connection(harness: Harness, store: Store, witness: Witness) -> None:
    """A commit whose connection is cut says the truth: done, failed and not there, or that it cannot know."""
    draw = Random(14)
    for number in range(20):
        name = f"name {number}"
        async with store.begin_tx() as tx:
            await tx.enqueue(name, 1)
            await tx.publish(name, 1)
            committing = asyncio.create_task(tx.commit())
            for _ in range(draw.randrange(20)):
                await asyncio.sleep(0)
            await harness.sever()
            [outcome] = await asyncio.gather(committing, return_exceptions=True)
            there = (await witness.jobs(name)).pending, len(await witness.events(name))
            if outcome is None:
                assert there == (1, 1)
            elif isinstance(outcome, CommitUnknownError):
                assert there in ((1, 1), (0, 0))
            else:
                assert isinstance(outcome, DatabaseError)
                assert there == (0, 0)
            with pytest.raises(ClosedError):
                await tx.commit()


# where it may be used


@leg(rules="T15", since="1.0")
async def test_other_loop_is_refused_everywhere(store: Store, witness: Witness) -> None:
    """On another event loop every call raises DatabaseError at once and does nothing; at home all goes on."""
    subjects = await subjects_of(store)
    await _refused_elsewhere(
        {
            **{name: lambda call=call: call(subjects) for name, call in CALLS.items()},  # type: ignore[misc]
            "WakeReceiver.recv": subjects.receiver.recv,
            "EventReceiver.recv": subjects.events.recv,
            "Store.close": store.close,
        }
    )
    assert await witness.jobs("subject") == JobCounts(pending=1, processing=2)
    assert len(await witness.events("subject")) == 1
    assert await subjects.handle.ack()
    assert await subjects.lock.renew(10)
    await store.notify("subject")
    assert await subjects.receiver.recv() == Wake("subject")


@leg(rules="T15", since="1.0")
async def test_other_loop_is_refused_on_a_transaction(store: Store, witness: Witness) -> None:
    """So is every call on a transaction, which goes on at home."""
    async with store.transaction() as tx:
        await tx.enqueue("queue", 1)
        await _refused_elsewhere(
            {
                **{name: lambda call=call: call(tx) for name, call in TX_CALLS.items()},  # type: ignore[misc]
                "commit": tx.commit,
                "rollback": tx.rollback,
            }
        )
        await tx.enqueue("queue", 2)
    assert await witness.jobs("queue") == JobCounts(pending=2)
    assert await witness.jobs("subject") == JobCounts()


async def _refused_elsewhere(calls: dict[str, Callable[[], Awaitable[object]]]) -> None:
    outcomes: dict[str, object] = {}

    async def elsewhere() -> None:
        for name, call in calls.items():
            try:
                async with asyncio.timeout(2):
                    outcomes[name] = await call()
            except BaseException as error:
                outcomes[name] = type(error)

    await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    assert outcomes == dict.fromkeys(calls, DatabaseError)


@leg(rules="T15", since="1.0")
async def test_store_belongs_to_the_loop_that_opened_it(harness: Harness) -> None:
    """Each event loop opens its own store on the data, and they work side by side."""
    async with harness.open() as opened:

        async def elsewhere() -> int:
            async with harness.open() as own:
                with pytest.raises(DatabaseError):
                    await opened.queue("queue").enqueue("refused")
                return await own.queue("queue").enqueue("own")

        job_id = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        claim = await opened.queue("queue").claim_one("worker")
        assert claim is not None
        assert (claim.job.id, claim.job.payload) == (job_id, b'"own"')


@leg(rules="T15 T5", since="1.0")
async def test_forked_child_is_refused_and_harms_nothing(store: Store, witness: Witness) -> None:
    """In a forked child every use raises DatabaseError; what the child drops or ends disturbs the parent in nothing."""
    if not hasattr(os, "fork"):
        return  # nothing forks here
    subjects = await subjects_of(store)
    async with store.transaction() as tx:
        await tx.enqueue("queue", 1)
        _, status = await asyncio.to_thread(os.waitpid, _forked(subjects, tx), 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await tx.enqueue("queue", 2)
    assert await witness.jobs("queue") == JobCounts(pending=2)
    assert await subjects.handle.ack()
    await store.notify("subject")
    assert await subjects.receiver.recv() == Wake("subject")


def _forked(subjects: Subjects, tx: Transaction) -> int:
    """The process id of a child that tries each call, and ends with 0 if all were refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks beside threads: the point here
        pid = os.fork()
    if pid:
        return pid
    code = 255
    try:
        unrefused = asyncio.new_event_loop().run_until_complete(_first_unrefused(subjects, tx))
        for dropped in (tx, subjects.receiver, subjects.events, subjects.store):
            dropped.__del__()  # what the collector would do: the parent's frames still hold them here
        code = unrefused
    finally:
        os._exit(code)


async def _first_unrefused(subjects: Subjects, tx: Transaction) -> int:
    """Which call is the first that does not raise DatabaseError, from 1; 0 if all do."""
    calls: list[Call] = [*CALLS.values(), lambda _: tx.enqueue("queue", 3), lambda _: tx.commit()]
    for number, call in enumerate(calls, 1):
        try:
            async with asyncio.timeout(2):
                await call(subjects)
        except DatabaseError:
            continue
        except BaseException:  # noqa: S110 - the child must end by its exit code alone
            pass
        return number
    return 0
