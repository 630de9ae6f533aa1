"""What goes wrong, as types, and what is no error at all (contract section 3)."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from alkstore_core import JobState, Store, errors
from alkstore_core.errors import (
    AlkstoreError,
    ClosedError,
    CodecError,
    CommitUnknownError,
    ConsumerFencedError,
    DatabaseError,
    InvalidNameError,
    InvalidSpecError,
    LeadershipLostError,
    PayloadTooLargeError,
    ReservedNameError,
    StaleDeliveryError,
)

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import CALLS, READS, WRITES, subjects_of


@leg(rules="E1", since="1.0")
async def test_one_root() -> None:
    """Every error is an AlkstoreError; the only one under another is CommitUnknownError, which is a DatabaseError."""
    below = {
        ClosedError,
        CodecError,
        ConsumerFencedError,
        DatabaseError,
        InvalidNameError,
        InvalidSpecError,
        LeadershipLostError,
        PayloadTooLargeError,
        ReservedNameError,
        StaleDeliveryError,
    }
    assert {kind for kind in vars(errors).values() if isinstance(kind, type)} == {
        AlkstoreError,
        CommitUnknownError,
        *below,
    }
    assert AlkstoreError.__bases__ == (Exception,)
    assert CommitUnknownError.__bases__ == (DatabaseError,)
    for kind in below:
        assert kind.__bases__ == (AlkstoreError,)


async def _outcome(call: Callable[[], Awaitable[object]]) -> BaseException | None:
    try:
        await call()
    except BaseException as error:
        return error
    return None


@leg(rules="E1", since="1.0", needs=("outage",))
async def test_driver_errors_come_as_database_errors(harness: Harness) -> None:
    """While the database is away a write is DatabaseError, caused by what the driver said; then all works again."""
    calls = {**WRITES, **READS}
    async with harness.open(patience_s=0.5) as store:
        subjects = await subjects_of(store)
        async with harness.outage():
            outcomes = await asyncio.gather(*(_outcome(partial(call, subjects)) for call in calls.values()))
        failures = {name: outcome for name, outcome in zip(calls, outcomes, strict=True) if outcome is not None}
        assert {type(error) for error in failures.values()} <= {DatabaseError, CommitUnknownError}
        # A transaction may begin with its first statement.
        assert WRITES.keys() - {"Store.begin_tx", "Store.transaction"} <= failures.keys()
        # The engine may lose patience by itself, before the driver says anything.
        causes = [error.__cause__ for error in failures.values() if error.__cause__ is not None]
        assert causes
        assert not any(isinstance(cause, AlkstoreError) for cause in causes)
    async with harness.open() as store:
        subjects = await subjects_of(store)
        for name, call in CALLS.items():
            if name != "Store.enlist":
                await call(subjects)


@leg(rules="E1 T9", since="1.0", needs=("outage",))
async def test_writes_fail_in_an_outage_and_leave_nothing(harness: Harness, witness: Witness) -> None:
    """A write that failed for an outage has not happened, alone, among many or on a transaction; the next one does."""
    async with harness.open(patience_s=1.0) as store:
        queue = store.queue("emails")

        async def transact() -> None:
            async with store.transaction() as tx:
                await tx.enqueue("emails", 1)

        async with harness.outage():
            calls = [lambda: queue.enqueue(1)] * 20 + [transact] * 2
            failures = await asyncio.gather(*(_outcome(call) for call in calls))
            assert {type(failure) for failure in failures} <= {DatabaseError, CommitUnknownError}
            unknown = sum(isinstance(failure, CommitUnknownError) for failure in failures)
        await queue.enqueue(1)
        await transact()
    there = await witness.jobs("emails")
    assert there == JobCounts(pending=there.pending)
    assert 2 <= there.pending <= 2 + unknown


@leg(rules="E1 T10", since="1.0")
async def test_closed_connection_comes_as_an_alkstore_error(harness: Harness, store: Store, native_kind: str) -> None:
    """What an enlisted handle does once the caller's connection is closed fails with an AlkstoreError."""
    async with harness.native(native_kind) as native:
        tx = store.enlist(native.handle)
        await tx.enqueue("emails", 1)
    for call in (lambda: tx.enqueue("emails", 2), lambda: tx.read_since("orders", 0), lambda: tx.notify("orders")):
        assert isinstance(await _outcome(call), AlkstoreError)


@leg(rules="E2", since="1.0")
async def test_nothing_to_do_is_a_value(store: Store, second_store: Store) -> None:
    """No work, nothing there, and somebody else's lock are None, False, 0 or []."""
    queue, stream = store.queue("emails"), store.stream("orders")

    async def deliver(_: object) -> None:
        raise AssertionError("there is nothing to deliver")

    assert await queue.claim_one("worker") is None
    assert await queue.claim_batch("worker", 5) == []
    assert await queue.ack_batch("worker", []) == 0
    assert await queue.ack_batch("worker", [1, 2]) == 0
    assert await queue.cancel(1) is False
    assert await queue.get_job(1) is None
    assert await queue.sweep_expired() == 0
    assert await queue.enqueue_many([]) == []
    assert await store.outbox("mail").run_once("worker", deliver) is False
    assert await stream.read_since(0) == []
    assert await stream.read_from_consumer("reader") == []
    assert await stream.get_offset("reader") == 0
    assert await stream.trim_to(100) == 0
    assert await stream.publish_many([]) == []
    assert await store.unschedule("schedule") is False
    assert await store.try_lock("lock", "one", 10) is not None
    assert await second_store.try_lock("lock", "two", 10) is None
    async with store.listen("orders") as wakes, stream.subscribe("reader") as events:
        assert await wakes.try_recv() is None
        assert await events.try_recv() is None
    async with store.transaction() as tx:
        assert await tx.get_job("emails", 1) is None
        assert await tx.read_since("orders", 0) == []
        assert await tx.read_from_consumer("orders", "reader") == []
        assert await tx.get_offset("orders", "reader") == 0


@leg(rules="E2 Q5 L3", since="1.0")
async def test_what_was_lost_is_a_value(store: Store, harness: Harness) -> None:
    """A claim or a lock that was lost answers False to everything, and raises nothing."""
    queue = store.queue("emails")
    for _ in range(2):
        await queue.enqueue(1)
    settled, lapsed = await queue.claim_batch("worker", 2)
    released = await store.try_lock("released", "owner", 1000)
    expired = await store.try_lock("expired", "owner", 300)
    assert released is not None
    assert expired is not None
    assert await settled.ack() is True
    assert await released.release() is True
    await harness.advance(300)
    for claim in (settled, lapsed):
        assert await claim.ack() is False
        assert await claim.retry("error") is False
        assert await claim.retry("error", 0) is False
        assert await claim.fail() is False
        assert await claim.fail("error") is False
        assert await claim.heartbeat(10) is False
        assert await claim.release() is False
        assert await queue.ack_batch("worker", [claim.job.id]) == 0
    for lock in (released, expired):
        assert await lock.renew(10) is False
        assert await lock.release() is False


@leg(rules="E2 Q9", since="1.0")
async def test_dead_letter_is_state(store: Store) -> None:
    """A job that failed for good raises nowhere: get_job shows it dead, with its error."""
    queue = store.queue("emails", max_attempts=1)
    job_id = await queue.enqueue(1)
    claim = await queue.claim_one("worker")
    assert claim is not None
    assert await claim.retry("no such address") is True
    job = await queue.get_job(job_id)
    assert job is not None
    assert (job.state, job.last_error) == (JobState.DEAD, "no such address")
    assert await queue.claim_one("worker") is None
    assert await queue.cancel(job_id) is False


@leg(rules="E3 H1", since="1.0")
async def test_errors_carry_the_value(store: Store) -> None:
    """An error says in its message, and as an attribute where a caller may want it, which value was wrong."""
    long = "__alkstore_" + "x" * 100_000
    for name, kind in ((" \t", InvalidNameError), ("a\0b", InvalidNameError), ("__alkstore_x", ReservedNameError)):
        with pytest.raises(kind) as named:
            store.queue(name)
        assert named.value.name == name  # type: ignore[attr-defined]
        assert repr(name) in str(named.value)
        assert "queue" in str(named.value)
    with pytest.raises(ReservedNameError) as reserved:
        store.stream(long)
    assert reserved.value.name == long
    assert len(str(reserved.value)) < 1000
    with pytest.raises(InvalidSpecError) as spec:
        await store.schedule("schedule", "0 5 * * *", "queue", 1)
    assert spec.value.spec == "0 5 * * *"
    assert "'0 5 * * *'" in str(spec.value)
    with pytest.raises(DatabaseError, match=r"ttl.*-7"):
        await store.try_lock("lock", "owner", -7)
    with pytest.raises(ValueError, match=r"max_attempts.*-8"):
        store.queue("queue", max_attempts=-8)
    with pytest.raises(TypeError, match=r"delay.*float.*1\.5"):
        await store.queue("queue").enqueue(1, delay=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"priority.*9223372036854775808"):
        await store.queue("queue").enqueue(1, priority=2**63)
    with pytest.raises(CodecError, match=r"\$\.a\[1\].*bytes.*use a model"):
        await store.queue("queue").enqueue({"a": [0, b"x"]})
    await store.queue("queue").enqueue("seven")
    claim = await store.queue("queue").claim_one("worker")
    assert claim is not None
    with pytest.raises(CodecError, match="int"):
        claim.job.payload_as(int)


@leg(rules="E3", since="1.0")
async def test_errors_say_what_to_do(store: Store) -> None:
    """A message has two parts: what was wrong, and after a colon what to do."""
    tx = await store.begin_tx()
    await tx.commit()
    closed = await store.listen("channel")
    await closed.close()
    failures = [
        await _outcome(call)
        for call in (
            lambda: store.notify("__alkstore_x"),
            lambda: store.notify(""),
            lambda: store.queue("queue").enqueue(b"x"),
            lambda: store.queue("queue").enqueue(2**64),
            lambda: store.queue("queue").enqueue(float("nan")),
            lambda: store.schedule("schedule", "@every", "queue", 1),
            tx.commit,
            closed.try_recv,
        )
    ]
    with pytest.raises(DatabaseError) as refused:
        store.enlist(object())
    for failure in (*failures, refused.value):
        assert isinstance(failure, AlkstoreError)
        problem, _, advice = str(failure).rpartition(": ")
        assert len(problem.split()) > 2, failure
        assert len(advice.split()) > 2, failure
