"""Outboxes: deliveries that leave if, and only if, the transaction commits (contract section 8)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest
from alkstore_core import Job, JobHandle, JobState, Store
from alkstore_core.errors import ReservedNameError
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg

Delivery = Callable[[JobHandle], Awaitable[object]]


class Sink:
    """A delivery that takes note, and then fails with `error` if there is one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.handles: list[JobHandle] = []
        self.error = error

    async def __call__(self, handle: JobHandle) -> object:
        self.handles.append(handle)
        if self.error is not None:
            raise self.error
        return False

    @property
    def payloads(self) -> list[object]:
        """What was delivered."""
        return [handle.job.payload_as(object) for handle in self.handles]


class Slow:
    """A delivery that says when it has begun, and then takes until it is let go."""

    def __init__(self) -> None:
        self.begun: asyncio.Future[JobHandle] = asyncio.get_running_loop().create_future()
        self.let_go: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __call__(self, handle: JobHandle) -> None:
        self.begun.set_result(handle)
        await self.let_go


async def _job(store: Store, job_id: int) -> Job:
    job = await store.queue("any").get_job(job_id)
    assert job is not None
    return job


# O1


@leg(rules="O1 T3", since="1.0")
async def test_transaction_takes_the_outboxs_name(harness: Harness, store: Store, second_store: Store) -> None:
    """What `outbox_enqueue` puts under an outbox's name leaves by that outbox once the transaction has committed."""
    sink = Sink()
    async with store.transaction() as tx:
        await harness.write(tx, "order 7")
        job_id = await tx.outbox_enqueue("mail", {"order": 7})
        assert await store.queue("any").get_job(job_id) is None
    assert await second_store.outbox("mail").run_once("worker", sink)
    assert [(handle.job.id, handle.job.payload) for handle in sink.handles] == [(job_id, b'{"order":7}')]


@leg(rules="O1", since="1.0")
async def test_enqueue_alone(store: Store) -> None:
    """`Outbox.enqueue` adds a delivery by itself, which leaves like one of a transaction."""
    outbox, sink = store.outbox("mail"), Sink()
    alone = await outbox.enqueue("alone")
    async with store.transaction() as tx:
        with_others = await tx.outbox_enqueue("mail", "with others")
    assert (await _job(store, alone)).queue == (await _job(store, with_others)).queue
    assert await outbox.run_once("worker", sink)
    assert await outbox.run_once("worker", sink)
    assert sink.payloads == ["alone", "with others"]


@leg(rules="O1 T3", since="1.0")
async def test_rolled_back_delivery_never_leaves(harness: Harness, store: Store) -> None:
    """A delivery of a transaction that was rolled back is never delivered, and others are."""
    sink = Sink()
    async with store.begin_tx() as tx:
        await tx.outbox_enqueue("mail", "rolled back")
        await tx.rollback()
    await store.outbox("mail").enqueue("committed")
    await harness.advance(10**6)
    while await store.outbox("mail").run_once("worker", sink):
        pass
    assert sink.payloads == ["committed"]


@pytest.mark.parametrize("form", ["enqueue", "outbox_enqueue"])
@leg(rules="O1 Q1 Q2", since="1.0")
async def test_delivery_options(store: Store, clock: ManualClock, form: str) -> None:
    """A delivery is stamped with 60 s, 5 attempts, a base of 5 s and no retention, and takes an enqueue's options."""

    async def enqueued(priority: int = 0, max_attempts: int | None = None, delay: int | None = None) -> Job:
        if form == "enqueue":
            job_id = await store.outbox("mail").enqueue(
                "hi", priority=priority, max_attempts=max_attempts, delay=delay, expires=90
            )
        else:
            async with store.transaction() as tx:
                job_id = await tx.outbox_enqueue(
                    "mail", "hi", priority=priority, max_attempts=max_attempts, delay=delay, expires=90
                )
        return await _job(store, job_id)

    now = clock.now()
    plain = await enqueued()
    assert plain == Job(
        id=plain.id,
        queue=plain.queue,
        payload=b'"hi"',
        state=JobState.PENDING,
        priority=0,
        ready_at=now,
        expires_at=now + 90,
        attempts=0,
        max_attempts=5,
        visibility_timeout_s=60,
        backoff_base_s=5,
        dead_letter_retention_s=None,
        created_at=now,
        worker_id=None,
        claimed_at=None,
        claim_expires_at=None,
        last_error=None,
        died_at=None,
    )
    own = await enqueued(priority=3, max_attempts=9, delay=30)
    assert own == replace(plain, id=own.id, priority=3, max_attempts=9, ready_at=now + 30)


@leg(rules="O1 V1", since="1.0")
async def test_nothing_else_reaches_a_delivery(store: Store) -> None:
    """The backing queue is under the reserved prefix: no queue can be named like it, in any form, and read it."""
    job_id = await store.outbox("mail").enqueue("hi")
    backing = (await _job(store, job_id)).queue
    assert backing.startswith("__alkstore_")
    with pytest.raises(ReservedNameError):
        store.queue(backing)
    with pytest.raises(ReservedNameError):
        store.outbox(backing)
    with pytest.raises(ReservedNameError):
        await store.schedule("mail", "@every 1h", backing, "hi")
    async with store.transaction() as tx:
        for call in (tx.enqueue(backing, "hi"), tx.get_job(backing, job_id), tx.outbox_enqueue(backing, "hi")):
            with pytest.raises(ReservedNameError):
                await call
    for name in ("mail", "outbox:mail", "alkstore_outbox:mail"):
        assert await store.queue(name).claim_one("worker") is None
        assert not await store.queue(name).cancel(job_id)


@leg(rules="O1 V4", since="1.0")
async def test_outboxes_are_apart(store: Store) -> None:
    """Each outbox delivers its own and no other's, however alike the names are, and no queue's of the same name."""
    names = ["mail", "Mail", "mail ", "mail:", ":mail", "outbox:mail", "m" * 200, "m" * 201]
    await store.queue("mail").enqueue("a queue's")
    for name in names:
        await store.outbox(name).enqueue(name)
    for name in names:
        sink = Sink()
        while await store.outbox(name).run_once("worker", sink):
            pass
        assert sink.payloads == [name]


# O2


@leg(rules="O2", since="1.0")
async def test_run_once_delivers_one(store: Store, witness: Witness) -> None:
    """`run_once` delivers one job, the first in claim order, with a handle of its worker's, and says there was one."""
    outbox, sink = store.outbox("mail"), Sink()
    ids = [await outbox.enqueue("second"), await outbox.enqueue("first", priority=1), await outbox.enqueue("third")]
    backing = (await _job(store, ids[0])).queue
    assert await outbox.run_once("__alkstore_me", sink) is True
    [handle] = sink.handles
    assert (handle.job.id, handle.job.worker_id, handle.job.attempts) == (ids[1], "__alkstore_me", 1)
    assert await witness.jobs(backing) == JobCounts(pending=2)


@leg(rules="O2", since="1.0")
async def test_run_once_of_nothing(store: Store) -> None:
    """Where nothing is to be delivered yet, `run_once` says so at once, and calls no delivery."""
    outbox, sink = store.outbox("mail"), Sink()
    assert await outbox.run_once("worker", sink) is False
    await outbox.enqueue("later", delay=10)
    assert await outbox.run_once("worker", sink) is False
    assert sink.handles == []


@leg(rules="O2", since="1.0")
async def test_returning_acks(store: Store) -> None:
    """A job is acked when its delivery returns, whatever it returns, and not before."""
    outbox, slow = store.outbox("mail"), Slow()
    job_id = await outbox.enqueue("hi")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(outbox.run_once("worker", slow))
        handle = await slow.begun
        assert await _job(store, job_id) == handle.job
        slow.let_go.set_result(None)
    assert running.result() is True
    assert await store.queue("any").get_job(job_id) is None
    job_id = await outbox.enqueue("hi")
    assert await outbox.run_once("worker", Sink()) is True
    assert await store.queue("any").get_job(job_id) is None


@leg(rules="O2 Q7", since="1.0")
async def test_raising_retries(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A delivery that raises is retried later with the error's text; the error does not get out of `run_once`."""
    outbox, sink = store.outbox("mail"), Sink(ConnectionError("the server is down"))
    pending = await _job(store, await outbox.enqueue("hi"))
    asked: list[tuple[int, int]] = []

    def draw(low: int, high: int) -> int:
        asked.append((low, high))
        return high

    store.draw = draw
    assert await outbox.run_once("worker", sink) is True
    waiting = replace(pending, attempts=1, ready_at=clock.now() + 5, last_error="the server is down")
    assert await _job(store, pending.id) == waiting
    assert asked == [(2, 5)]
    await harness.advance(4)
    assert await outbox.run_once("worker", sink) is False
    await harness.advance(1)
    sink.error = None
    assert await outbox.run_once("worker", sink) is True
    assert await store.queue("any").get_job(pending.id) is None


@leg(rules="O2 Q7", since="1.0")
async def test_last_failure_buries(harness: Harness, store: Store) -> None:
    """A delivery whose last attempt raises is a dead letter with the last error's text."""
    outbox = store.outbox("mail")
    job_id = await outbox.enqueue("hi")
    for attempt in range(1, 6):
        assert (await _job(store, job_id)).state is JobState.PENDING
        await harness.advance(1000)
        assert await outbox.run_once("worker", Sink(ValueError(f"attempt {attempt}"))) is True
    job = await _job(store, job_id)
    assert (job.state, job.attempts, job.last_error) == (JobState.DEAD, 5, "attempt 5")
    await harness.advance(1000)
    assert await outbox.run_once("worker", Sink()) is False


@leg(rules="O2 V3", since="1.0")
async def test_any_error_text_is_kept(store: Store) -> None:
    """An error whose text no database can store, or that has no text to give, retries like any other."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise LookupError("no text")

    outbox = store.outbox("mail")
    for error, kept in ((ValueError("a\0b\ud800c"), "a\ufffdb\ufffdc"), (ValueError("é" * 5000), "é" * 5000)):
        job_id = await outbox.enqueue("hi")
        assert await outbox.run_once("worker", Sink(error)) is True
        assert (await _job(store, job_id)).last_error == kept
    job_id = await outbox.enqueue("hi")
    assert await outbox.run_once("worker", Sink(MuteError())) is True
    assert (await _job(store, job_id)).state is JobState.PENDING


@leg(rules="O2", since="1.0")
async def test_delivery_may_settle(store: Store) -> None:
    """A delivery that settles the handle itself is left at that, whether it returns or raises then."""

    async def fails(handle: JobHandle) -> None:
        assert await handle.fail("no such address")

    async def retries(handle: JobHandle) -> None:
        assert await handle.retry("busy", 1000)
        raise LookupError("not this")

    outbox = store.outbox("mail")
    for delivery, state, error in ((fails, JobState.DEAD, "no such address"), (retries, JobState.PENDING, "busy")):
        job_id = await outbox.enqueue("hi")
        assert await outbox.run_once("worker", delivery) is True
        job = await _job(store, job_id)
        assert (job.state, job.last_error) == (state, error)


@leg(rules="O2", since="1.0")
async def test_cancellation_is_no_failure(harness: Harness, store: Store) -> None:
    """Cancelled in a delivery, `run_once` is cancelled; the job has no error, and is delivered again."""
    outbox, slow = store.outbox("mail"), Slow()
    job_id = await outbox.enqueue("hi", max_attempts=2)
    running = asyncio.create_task(outbox.run_once("worker", slow))
    handle = await slow.begun
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    job = await _job(store, job_id)
    assert job in (
        handle.job,
        replace(
            handle.job,
            state=JobState.PENDING,
            attempts=0,
            worker_id=None,
            claimed_at=None,
            claim_expires_at=None,
        ),
    )
    await harness.advance(60)
    sink = Sink()
    assert await outbox.run_once("worker", sink) is True
    assert sink.payloads == ["hi"]


@leg(rules="O2 O3", since="1.0")
async def test_nothing_heartbeats_by_itself(harness: Harness, store: Store) -> None:
    """A delivery's claim lasts its 60 s and is not renewed by itself."""
    outbox, slow = store.outbox("mail"), Slow()
    job_id = await outbox.enqueue("hi")
    async with asyncio.TaskGroup() as group:
        group.create_task(outbox.run_once("slow", slow))
        handle = await slow.begun
        for _ in range(5):
            await harness.advance(11)
            assert await _job(store, job_id) == handle.job
        assert await outbox.run_once("another", Sink()) is False
        await harness.advance(5)
        assert await outbox.run_once("another", Sink()) is True
        slow.let_go.set_result(None)


@leg(rules="O2", since="1.0")
async def test_delivery_may_heartbeat(harness: Harness, store: Store) -> None:
    """A delivery that heartbeats its handle keeps the job past its 60 s, and its ack lands."""
    outbox, slow = store.outbox("mail"), Slow()
    job_id = await outbox.enqueue("hi")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(outbox.run_once("slow", slow))
        handle = await slow.begun
        for _ in range(3):
            await harness.advance(59)
            assert await handle.heartbeat(60)
            assert await outbox.run_once("another", Sink()) is False
        slow.let_go.set_result(None)
    assert running.result() is True
    assert await store.queue("any").get_job(job_id) is None


# O3


@pytest.mark.parametrize("late", [None, ConnectionError("timed out")], ids=["returns", "raises"])
@leg(rules="O3 Q5", since="1.0")
async def test_slow_delivery_may_happen_again(
    harness: Harness, store: Store, second_store: Store, late: Exception | None
) -> None:
    """A delivery slower than its deadline is delivered again; its late end is no error and spares the other's claim."""
    outbox, first, second = store.outbox("mail"), Slow(), Slow()
    job_id = await outbox.enqueue("hi")
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(outbox.run_once("slow", first))
        await first.begun
        await harness.advance(60)
        again = group.create_task(second_store.outbox("mail").run_once("another", second))
        handle = await second.begun
        assert (handle.job.id, handle.job.attempts) == (job_id, 2)
        if late is None:
            first.let_go.set_result(None)
        else:
            first.let_go.set_exception(late)
        assert await slow is True
        assert await _job(store, job_id) == handle.job
        second.let_go.set_result(None)
        assert await again is True
    assert await store.queue("any").get_job(job_id) is None


@leg(rules="O3", since="1.0")
async def test_late_ack_is_no_error(harness: Harness, store: Store) -> None:
    """A delivery that ends after its deadline acks nothing: the job is still there, and is delivered again."""
    outbox, slow, sink = store.outbox("mail"), Slow(), Sink()
    job_id = await outbox.enqueue("hi")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(outbox.run_once("slow", slow))
        await slow.begun
        await harness.advance(60)
        slow.let_go.set_result(None)
    assert running.result() is True
    assert await outbox.run_once("another", sink) is True
    assert [handle.job.id for handle in sink.handles] == [job_id]


@leg(rules="O2", since="1.0")
async def test_deliveries_at_once_are_disjoint(store: Store, second_store: Store) -> None:
    """Of those who run an outbox at once, each delivers other jobs, and together they deliver all, once."""
    sink = Sink()
    outboxes = [store.outbox("mail"), second_store.outbox("mail")]
    for turn in range(5):
        async with store.transaction() as tx:
            for number in range(10):
                await tx.outbox_enqueue("mail", [turn, number])
        runs = [partial(outbox.run_once, "worker", sink) for outbox in outboxes for _ in range(6)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run()) for run in runs]
        assert sorted(task.result() for task in tasks) == [False] * 2 + [True] * 10
    assert sorted(map(str, sink.payloads)) == sorted(str([turn, number]) for turn in range(5) for number in range(10))
