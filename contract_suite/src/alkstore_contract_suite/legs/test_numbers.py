"""Which numbers are allowed, what they mean at the edges, and options out of range (contract section 2)."""

from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest
from alkstore_core import Job, JobHandle, JobState, Queue, Store, Transaction
from alkstore_core.errors import AlkstoreError, DatabaseError
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, JobCounts, LockRow, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import Subjects, run_at_once, subjects_of

MIN, MAX = -(2**63), 2**63 - 1

_EDGES = [MIN, MIN + 1, -(2**53) - 1, -(2**31) - 1, -1, 0, 1, 2**31, 2**53 + 1, MAX - 1, MAX]
"""What every int64 argument must carry without loss."""

Entry = Callable[[Subjects, Any], Awaitable[object]]
TxEntry = Callable[[Transaction, Any], Awaitable[object]]

_ENQUEUE_OPTIONS = ("delay", "run_at", "expires", "max_attempts", "priority")


def _on_queue(method: str, option: str) -> Entry:
    return lambda its, value: getattr(its.queue, method)([1], **{option: value})


def _on_outbox(option: str) -> Entry:
    return lambda its, value: its.outbox.enqueue(1, **{option: value})


def _on_schedule(option: str) -> Entry:
    return lambda its, value: its.store.schedule("schedule", "@every 1h", "queue", 1, **{option: value})


def _on_transaction(method: str, option: str) -> TxEntry:
    return lambda tx, value: getattr(tx, method)("name", 1, **{option: value})


_ENTRIES: dict[str, Entry] = {
    "claim_batch n": lambda its, value: its.queue.claim_batch("worker", value),
    "read_since offset": lambda its, value: its.stream.read_since(value),
    "read_since limit": lambda its, value: its.stream.read_since(0, value),
    "read_from_consumer limit": lambda its, value: its.stream.read_from_consumer("reader", value),
    "save_offset": lambda its, value: its.stream.save_offset("reader", value),
    "trim_to": lambda its, value: its.stream.trim_to(value),
    "get_job": lambda its, value: its.queue.get_job(value),
    "cancel": lambda its, value: its.queue.cancel(value),
    "ack_batch": lambda its, value: its.queue.ack_batch("worker", [1, value]),
    "heartbeat": lambda its, value: its.handle.heartbeat(value),
    "try_lock": lambda its, value: its.store.try_lock("lock", "owner", value),
    "renew": lambda its, value: its.lock.renew(value),
    **{
        f"{method} {option}": _on_queue(method, option)
        for method in ("enqueue", "enqueue_many")
        for option in _ENQUEUE_OPTIONS
    },
    **{f"outbox enqueue {option}": _on_outbox(option) for option in _ENQUEUE_OPTIONS},
    **{f"schedule {option}": _on_schedule(option) for option in ("priority", "max_attempts", "expires")},
    "retry delay": lambda its, value: its.handle.retry("error", value),
}
_TX_ENTRIES: dict[str, TxEntry] = {
    "read_since offset": lambda tx, value: tx.read_since("stream", value),
    "read_since limit": lambda tx, value: tx.read_since("stream", 0, value),
    "read_from_consumer limit": lambda tx, value: tx.read_from_consumer("stream", "reader", value),
    "save_offset": lambda tx, value: tx.save_offset("stream", "reader", value),
    "get_job": lambda tx, value: tx.get_job("queue", value),
    **{
        f"{method} {option}": _on_transaction(method, option)
        for method in ("enqueue", "outbox_enqueue")
        for option in _ENQUEUE_OPTIONS
    },
}
_NOT_INT = [True, False, 1.0, 0.0, "1", b"1", Decimal(1), [1]]
_OUTSIDE = [MAX + 1, MIN - 1, 2**64, 10**4000, -(10**4000)]


async def _all_refused(
    store: Store,
    error: type[Exception],
    values: list[Any],
    entries: Mapping[str, Entry],
    tx_entries: Mapping[str, TxEntry],
) -> None:
    subjects = await subjects_of(store)
    for value in values:
        for entry in entries.values():
            with pytest.raises(error) as caught:
                run_at_once(entry(subjects, value))
            assert not isinstance(caught.value, AlkstoreError)
    async with store.transaction() as tx:
        for value in values:
            for tx_entry in tx_entries.values():
                with pytest.raises(error) as caught:
                    run_at_once(tx_entry(tx, value))
                assert not isinstance(caught.value, AlkstoreError)


@leg(rules="V5", since="1.0")
async def test_numbers_are_int(store: Store) -> None:
    """A number that is a bool, a float or anything else than an int is TypeError at every entry, before any waiting."""
    await _all_refused(store, TypeError, _NOT_INT, _ENTRIES, _TX_ENTRIES)


@leg(rules="V5", since="1.0")
async def test_required_numbers_are_not_none(store: Store) -> None:
    """None stands for a number only where an option may be left out: elsewhere it is TypeError."""
    optional = ("delay", "run_at", "expires", "max_attempts")
    await _all_refused(
        store,
        TypeError,
        [None],
        {name: entry for name, entry in _ENTRIES.items() if not name.endswith(optional)},
        {name: entry for name, entry in _TX_ENTRIES.items() if not name.endswith(optional)},
    )


@leg(rules="V5", since="1.0")
async def test_numbers_are_int64(store: Store) -> None:
    """An int outside int64 is ValueError at every entry, before any waiting."""
    await _all_refused(store, ValueError, _OUTSIDE, _ENTRIES, _TX_ENTRIES)


@leg(rules="V5 Q12", since="1.0")
async def test_refused_numbers_leave_nothing(store: Store, witness: Witness) -> None:
    """A call refused for a number has changed nothing, on a transaction neither."""
    async with store.transaction() as tx:
        with pytest.raises(TypeError):
            await tx.enqueue("queue", 1, delay=1.5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="offset"):
            await tx.save_offset("stream", "reader", MAX + 1)
    with pytest.raises(ValueError, match="priority"):
        await store.queue("queue").enqueue_many([1, 2], priority=MIN - 1)
    assert await witness.jobs("queue") == JobCounts()
    assert await witness.offset("stream", "reader") is None


# extents


@leg(rules="V5 Q11", since="1.0")
async def test_claiming_none_touches_nothing(store: Store, harness: Harness) -> None:
    """claim_batch of 0 or less gives [] and touches nothing, not even what has run out of attempts."""
    queue = store.queue("queue", max_attempts=1, visibility_timeout_s=10)
    exhausted = await queue.enqueue("exhausted")
    assert await queue.claim_one("worker") is not None
    waiting = await queue.enqueue("waiting")
    await harness.advance(10)
    before = [await queue.get_job(job_id) for job_id in (exhausted, waiting)]
    for n in (0, -1, MIN):
        assert await queue.claim_batch("worker", n) == []
    assert [await queue.get_job(job_id) for job_id in (exhausted, waiting)] == before


@leg(rules="V5 S3", since="1.0")
async def test_reading_none_gives_nothing(store: Store) -> None:
    """A limit of 0 or less reads [], by either form; the largest reads all."""
    stream = store.stream("stream")
    offsets = await stream.publish_many(range(3))
    for limit in (0, -1, MIN):
        assert await stream.read_since(0, limit) == []
        assert await stream.read_from_consumer("reader", limit) == []
        async with store.transaction() as tx:
            assert await tx.read_since("stream", 0, limit) == []
            assert await tx.read_from_consumer("stream", "reader", limit) == []
    for limit in (3, 2**31, MAX):
        assert [event.offset for event in await stream.read_since(0, limit)] == offsets
        assert [event.offset for event in await stream.read_from_consumer("reader", limit)] == offsets
        async with store.transaction() as tx:
            assert [event.offset for event in await tx.read_since("stream", 0, limit)] == offsets
            assert [event.offset for event in await tx.read_from_consumer("stream", "reader", limit)] == offsets


@leg(rules="V5", since="1.0")
async def test_extents_of_any_size_are_legal(store: Store) -> None:
    """claim_batch takes every int64, and at most what is there."""
    queue = store.queue("queue")
    for n in (2**31, 2**53 + 1, MAX):
        await queue.enqueue_many([1, 2, 3])
        assert len(await queue.claim_batch("worker", n)) == 3


# durations


@leg(rules="V5 L1", since="1.0")
async def test_lock_needs_a_duration(store: Store, witness: Witness) -> None:
    """try_lock for 0 seconds or less is DatabaseError with a cause, and takes nothing."""
    for ttl in (0, -1, MIN):
        with pytest.raises(DatabaseError) as caught:
            await store.try_lock("lock", "owner", ttl)
        assert caught.value.__cause__ is not None
    assert await witness.lock("lock") is None
    assert await store.try_lock("lock", "another", 10) is not None


@leg(rules="V5 L3", since="1.0")
async def test_renewal_needs_a_duration(store: Store, witness: Witness) -> None:
    """A renew for 0 seconds or less is DatabaseError with a cause, and the holding stays as it was."""
    lock = await store.try_lock("lock", "owner", 10)
    assert lock is not None
    row = LockRow("owner", lock.token, lock.expires_at)
    for ttl in (0, -1, MIN):
        with pytest.raises(DatabaseError) as caught:
            await lock.renew(ttl)
        assert caught.value.__cause__ is not None
    assert await witness.lock("lock") == row
    assert (lock.owner, lock.token, lock.expires_at) == (row.owner, row.token, row.expires_at)


@leg(rules="V5 L1 L3", since="1.0")
async def test_long_durations_saturate(store: Store, second_store: Store, clock: ManualClock, witness: Witness) -> None:
    """A lock or renewal whose end is beyond int64 lasts until the last second that int64 has."""
    for ttl in (MAX - clock.now(), MAX - clock.now() + 1, MAX - 1, MAX):
        lock = await store.try_lock("lock", "owner", ttl)
        assert lock is not None
        assert lock.expires_at == MAX
        assert await witness.lock("lock") == LockRow("owner", lock.token, MAX)
        assert await lock.renew(1)
        assert lock.expires_at == clock.now() + 1
        assert await lock.renew(ttl)
        assert lock.expires_at == MAX
        assert await second_store.try_lock("lock", "another", 1) is None
        assert await lock.release()


# boundaries


async def _get(queue: Queue, job_id: int) -> Job:
    job = await queue.get_job(job_id)
    assert job is not None
    return job


def _plus(now: int, seconds: int) -> int:
    return max(MIN, min(MAX, now + seconds))


async def _enqueued(store: Store, form: str, **options: Any) -> Job:
    queue = store.queue("queue")
    if form == "enqueue":
        job_id = await queue.enqueue(1, **options)
    elif form == "enqueue_many":
        [job_id] = await queue.enqueue_many([1], **options)
    elif form == "outbox":
        job_id = await store.outbox("outbox").enqueue(1, **options)
    else:
        async with store.transaction() as tx:
            job_id = await getattr(tx, form.removeprefix("tx."))("queue", 1, **options)
    return await _get(queue, job_id)


_FORMS = ("enqueue", "enqueue_many", "outbox", "tx.enqueue", "tx.outbox_enqueue")


@leg(rules="V5 Q1", since="1.0")
async def test_delays_saturate(store: Store, clock: ManualClock) -> None:
    """Every int64 is a delay: the job is ready at now + delay, held within int64."""
    now = clock.now()
    for delay in [*_EDGES, MAX - now, MAX - now + 1, -now]:
        for form in _FORMS:
            job = await _enqueued(store, form, delay=delay)
            assert (job.ready_at, job.created_at, job.state) == (_plus(now, delay), now, JobState.PENDING)


@leg(rules="V5 Q1", since="1.0")
async def test_every_int64_is_a_ready_time(store: Store) -> None:
    """Every int64 is a run_at, and stored as it is."""
    for run_at in _EDGES:
        for form in _FORMS:
            assert (await _enqueued(store, form, run_at=run_at)).ready_at == run_at


@leg(rules="V5 Q1", since="1.0")
async def test_expiries_saturate(store: Store, clock: ManualClock) -> None:
    """Every int64 is an expires: the job expires at now + expires, held within int64."""
    now = clock.now()
    for expires in [*_EDGES, MAX - now, MAX - now + 1, -now]:
        for form in _FORMS:
            assert (await _enqueued(store, form, expires=expires)).expires_at == _plus(now, expires)


@leg(rules="V5 Q1", since="1.0")
async def test_every_int64_is_a_priority(store: Store) -> None:
    """Every int64 is a priority, and every one above 0 a max_attempts; both are stored as they are."""
    for value in _EDGES:
        for form in _FORMS:
            assert (await _enqueued(store, form, priority=value)).priority == value
            if value > 0:
                assert (await _enqueued(store, form, max_attempts=value)).max_attempts == value


@leg(rules="V5 Q3", since="1.0")
async def test_edges_are_claimed_in_order(store: Store) -> None:
    """Priorities and ready times at the int64 limits sort as the numbers that they are."""
    queue = store.queue("queue")
    lowest_first = [await queue.enqueue(priority, priority=priority) for priority in _EDGES]
    claimed = await queue.claim_batch("worker", 100)
    assert [claim.job.id for claim in claimed] == lowest_first[::-1]
    times = [MIN, MIN + 1, -(2**53) - 1, -(2**53), -1, 0, 1]
    latest_first = [await queue.enqueue(run_at, run_at=run_at) for run_at in reversed(times)]
    claimed = await queue.claim_batch("worker", 100)
    assert [claim.job.id for claim in claimed] == latest_first[::-1]


@leg(rules="V5 Q3", since="1.0")
async def test_far_jobs_wait_and_past_ones_do_not(store: Store) -> None:
    """A job that is ready at the end of time is not claimed, one that was ready at its beginning is."""
    queue = store.queue("queue")
    for options in ({"delay": MAX}, {"run_at": MAX}, {"expires": MIN}, {"expires": 0}, {"expires": -1}):
        await queue.enqueue("never", **options)
    assert await queue.claim_batch("worker", 10) == []
    for options in ({"delay": MIN}, {"run_at": MIN}, {"expires": MAX}, {"expires": 1}, {"delay": 0}):
        await queue.enqueue("now", **options)
    assert [claim.job.payload_as(str) for claim in await queue.claim_batch("worker", 10)] == ["now"] * 5


async def _claimed(store: Store) -> JobHandle:
    queue = store.queue("heartbeats", max_attempts=MAX)
    await queue.enqueue(1)
    claim = await queue.claim_one("worker")
    assert claim is not None
    return claim


@leg(rules="V5 Q6", since="1.0")
async def test_heartbeats_saturate(store: Store, clock: ManualClock) -> None:
    """Every int64 is a heartbeat's extend: the claim lasts until now + extend within int64; 0 or less voids it."""
    queue, now = store.queue("heartbeats"), clock.now()
    for extend in [*_EDGES, MAX - now, MAX - now + 1]:
        claim = await _claimed(store)
        assert await claim.heartbeat(extend)
        assert (await _get(queue, claim.job.id)).claim_expires_at == _plus(now, extend)
        assert await claim.ack() == (extend > 0)
        await queue.cancel(claim.job.id)


@leg(rules="V5 Q7", since="1.0")
async def test_retry_delays_saturate(store: Store, clock: ManualClock) -> None:
    """Every int64 is a retry's delay: the job is ready at now + delay, held within int64."""
    queue, now = store.queue("heartbeats"), clock.now()
    for delay in [*_EDGES, MAX - now, MAX - now + 1]:
        claim = await _claimed(store)
        assert await claim.retry("error", delay)
        job = await _get(queue, claim.job.id)
        assert (job.state, job.ready_at) == (JobState.PENDING, _plus(now, delay))
        await queue.cancel(job.id)


@leg(rules="V5 S4", since="1.0")
@pytest.mark.parametrize("form", ["stream", "tx"])
async def test_every_int64_is_an_offset_to_save(store: Store, witness: Witness, form: str) -> None:
    """Every int64 can be saved, the first one negative too; a lower one is ignored."""
    stream = store.stream("stream")

    async def save(consumer: str, offset: int) -> None:
        if form == "stream":
            await stream.save_offset(consumer, offset)
        else:
            async with store.transaction() as tx:
                await tx.save_offset("stream", consumer, offset)

    for offset in _EDGES:
        await save(f"first {offset}", offset)
        assert await stream.get_offset(f"first {offset}") == offset
        assert await witness.offset("stream", f"first {offset}") == offset
        await save("rising", offset)
        assert await stream.get_offset("rising") == offset
    for offset in _EDGES:
        await save("rising", offset)
    assert await witness.offset("stream", "rising") == MAX


@leg(rules="V5 S3", since="1.0")
async def test_every_int64_is_an_offset_to_read_from(store: Store) -> None:
    """Every int64 is an offset to read after, given or saved: the lowest reads all, the highest nothing."""
    stream = store.stream("stream")
    offsets = await stream.publish_many(range(3))
    for after in [*_EDGES, *offsets]:
        expected = [offset for offset in offsets if offset > after]
        assert [event.offset for event in await stream.read_since(after)] == expected
        await stream.save_offset(f"at {after}", after)
        assert [event.offset for event in await stream.read_from_consumer(f"at {after}")] == expected
        async with store.transaction() as tx:
            assert [event.offset for event in await tx.read_since("stream", after)] == expected
            assert [event.offset for event in await tx.read_from_consumer("stream", f"at {after}")] == expected


@leg(rules="V5 S6", since="1.0")
async def test_every_int64_is_a_horizon(store: Store, witness: Witness) -> None:
    """Every int64 is a horizon: below the first offset it deletes nothing, above the last all, and offsets go on."""
    stream = store.stream("stream")
    first, second, third = await stream.publish_many(range(3))
    for horizon in (MIN, MIN + 1, -1, 0):
        assert await stream.trim_to(horizon) == 0
    assert await stream.trim_to(first) == 1
    assert await witness.events("stream") == [second, third]
    assert await stream.trim_to(MAX) == 2
    assert await stream.trim_to(MAX) == 0
    following = await stream.publish("next")
    assert following > third
    assert await witness.events("stream") == [following]


@leg(rules="V5 Q8", since="1.0")
async def test_every_int64_is_an_id_to_ask_for(store: Store) -> None:
    """Every int64 may be asked for as an id; where it is nobody's there is nothing."""
    queue = store.queue("queue")
    job_id = await queue.enqueue(1)
    for asked in _EDGES:
        if asked != job_id:
            assert await queue.get_job(asked) is None
            assert await queue.cancel(asked) is False
            assert await queue.ack_batch("worker", [asked]) == 0
            async with store.transaction() as tx:
                assert await tx.get_job("queue", asked) is None
    assert await queue.get_job(job_id) is not None


@leg(rules="V5 Q4 Q10", since="1.0")
async def test_sums_saturate_at_the_end_of_time(store: Store, harness: Harness, clock: ManualClock) -> None:
    """Seconds before the last one of int64, deadlines and ready times are held there, and nothing wraps around."""
    await harness.advance(MAX - 5 - clock.now())
    queue = store.queue("queue", visibility_timeout_s=300, dead_letter_retention_s=100)
    job_id = await queue.enqueue(1, delay=-1, expires=100)
    claim = await queue.claim_one("worker")
    assert claim is not None
    assert (claim.job.expires_at, claim.job.claim_expires_at) == (MAX, MAX)
    assert await claim.heartbeat(6)
    assert (await _get(queue, job_id)).claim_expires_at == MAX
    assert await claim.retry("error", 10)
    assert (await _get(queue, job_id)).ready_at == MAX
    assert await queue.claim_one("worker") is None
    lock = await store.try_lock("lock", "owner", 100)
    assert lock is not None
    assert lock.expires_at == MAX
    assert await queue.sweep_expired() == 0
    doomed = await queue.enqueue(2)
    claim = await queue.claim_one("worker")
    assert claim is not None
    assert claim.job.id == doomed
    assert await claim.fail()
    assert await queue.sweep_expired() == 0
    assert (await _get(queue, doomed)).state is JobState.DEAD


@leg(rules="V5", since="1.0")
async def test_sums_saturate_at_the_beginning_of_time(store: Store, harness: Harness, clock: ManualClock) -> None:
    """Seconds after the first one of int64, ready times and expiries are held there."""
    clock.set(MIN + 5)
    await harness.advance(0)
    queue = store.queue("queue")
    ready = await queue.enqueue(1, delay=-10)
    assert (await _get(queue, ready)).ready_at == MIN
    expired = await queue.enqueue(2, expires=-10)
    assert (await _get(queue, expired)).expires_at == MIN
    claim = await queue.claim_one("worker")
    assert claim is not None
    assert claim.job.id == ready
    assert await claim.heartbeat(-10)
    assert (await _get(queue, ready)).claim_expires_at == MIN
    assert not await claim.ack()
    assert await queue.sweep_expired() == 1


# queue options


@leg(rules="V6", since="1.0")
async def test_queue_options_out_of_range(store: Store) -> None:
    """A queue option below its least value, or beyond int64, is ValueError at once."""
    least = {"visibility_timeout_s": 1, "max_attempts": 1, "backoff_base_s": 0, "dead_letter_retention_s": 0}
    for option, minimum in least.items():
        for value in (minimum - 1, minimum - 2, MIN, MAX + 1):
            with pytest.raises(ValueError, match=option):
                store.queue("queue", **{option: value})


@leg(rules="V6 V5", since="1.0")
async def test_queue_options_are_int(store: Store) -> None:
    """A queue option that is no int is TypeError at once; None only where it means for ever."""
    for option in ("visibility_timeout_s", "max_attempts", "backoff_base_s", "dead_letter_retention_s"):
        for value in [*_NOT_INT] if option == "dead_letter_retention_s" else [*_NOT_INT, None]:
            given: dict[str, Any] = {option: value}
            with pytest.raises(TypeError, match=option):
                store.queue("queue", **given)


@leg(rules="V6 Q2", since="1.0")
async def test_queue_options_at_their_limits(store: Store) -> None:
    """The least and the greatest value of every queue option are legal, and stamped as they are."""
    names = "visibility_timeout_s", "max_attempts", "backoff_base_s", "dead_letter_retention_s"
    limits: list[tuple[Any, ...]] = [(1, 1, 0, 0), (1, 1, 0, None), (MAX, MAX, MAX, MAX)]
    for values in limits:
        queue = store.queue("queue", **dict(zip(names, values, strict=True)))
        job = await _get(queue, await queue.enqueue(1))
        for holder in (queue.options, job):
            assert tuple(getattr(holder, name) for name in names) == values


@leg(rules="V6", since="1.0")
async def test_max_attempts_of_an_enqueue(store: Store) -> None:
    """An enqueue's own max_attempts below 1 is ValueError at every entry, before any waiting; 1 and None are legal."""
    attempts = {name: entry for name, entry in _ENTRIES.items() if name.endswith("max_attempts")}
    tx_attempts = {name: entry for name, entry in _TX_ENTRIES.items() if name.endswith("max_attempts")}
    await _all_refused(store, ValueError, [0, -1, MIN], attempts, tx_attempts)
    assert (await _enqueued(store, "enqueue", max_attempts=1)).max_attempts == 1
    assert (await _enqueued(store, "enqueue", max_attempts=None)).max_attempts == 3
