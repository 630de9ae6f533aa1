"""Transactions: everything at the commit, or nothing (contract section 1)."""

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from alkstore_core import Store, Transaction, Wake, WakeReceiver
from alkstore_core.errors import AlkstoreError, ClosedError, CodecError, CommitUnknownError, DatabaseError

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import TX_CALLS, WRITES, collect_quietly, subjects_of
from alkstore_contract_suite.proofs import heard_nothing


@leg(rules="T3", since="1.0")
async def test_commit_publishes_all(harness: Harness, store: Store, second_store: Store, witness: Witness) -> None:
    """A commit makes everything done on the transaction visible to others, with the caller's own writes."""
    async with second_store.listen("orders") as receiver:
        async with store.transaction() as tx:
            await harness.write(tx, "order 7")
            job_id = await tx.enqueue("emails", {"order": 7})
            offset = await tx.publish("orders", {"id": 7}, key="7")
            await tx.save_offset("orders", "reader", offset)
            await tx.notify("orders")
            assert await second_store.queue("emails").get_job(job_id) is None
            assert await second_store.stream("orders").read_since(0) == []
            assert await second_store.stream("orders").get_offset("reader") == 0
            assert await receiver.try_recv() is None
        assert await receiver.recv() == Wake("orders")
    job = await second_store.queue("emails").get_job(job_id)
    assert job is not None
    assert job.payload == b'{"order":7}'
    [event] = await second_store.stream("orders").read_since(0)
    assert (event.offset, event.key, event.payload) == (offset, "7", b'{"id":7}')
    assert await second_store.stream("orders").get_offset("reader") == offset
    assert await witness.jobs("emails") == JobCounts(pending=1)
    assert await witness.events("orders") == [offset]
    assert await witness.offset("orders", "reader") == offset
    assert await witness.business() == ["order 7"]


@leg(rules="T3", since="1.0")
async def test_rollback_leaves_nothing(harness: Harness, store: Store, second_store: Store, witness: Witness) -> None:
    """After a rollback no job, event, wake, offset or business row of the transaction exists."""
    async with second_store.listen("orders") as receiver:
        tx = await store.begin_tx()
        await harness.write(tx, "order 7")
        job_id = await tx.enqueue("emails", {"order": 7})
        await tx.outbox_enqueue("mail", {"order": 7})
        offset = await tx.publish("orders", {"id": 7})
        await tx.save_offset("orders", "reader", offset)
        await tx.notify("orders")
        await tx.rollback()
        await heard_nothing(second_store, receiver)
    for either in (store, second_store):
        assert await either.queue("emails").get_job(job_id) is None
        assert await either.queue("emails").claim_one("worker") is None
        assert await either.stream("orders").read_since(0) == []
        assert await either.stream("orders").get_offset("reader") == 0
        assert not await either.outbox("mail").run_once("worker", _never_called)
    assert await witness.jobs("emails") == JobCounts()
    assert await witness.events("orders") == []
    assert await witness.offset("orders", "reader") is None
    assert await witness.business() == []


async def _never_called(_: object) -> None:
    raise AssertionError("a delivery of a transaction that was rolled back")


async def _fill(harness: Harness, tx: Transaction) -> int:
    """One of everything that a transaction can hold; the event's offset."""
    await harness.write(tx, "order 7")
    await tx.enqueue("emails", {"order": 7})
    await tx.outbox_enqueue("mail", {"order": 7})
    offset = await tx.publish("orders", {"id": 7}, key="7")
    await tx.save_offset("orders", "reader", offset)
    await tx.notify("orders")
    return offset


async def _left_no_trace(judge: Store, receiver: WakeReceiver, witness: Witness) -> None:
    await heard_nothing(judge, receiver)
    assert await witness.jobs("emails") == JobCounts()
    assert await witness.events("orders") == []
    assert await witness.offset("orders", "reader") is None
    assert await witness.business() == []
    assert await judge.queue("emails").claim_one("worker") is None
    assert not await judge.outbox("mail").run_once("worker", _never_called)


class _Broken(BaseException):
    """Not even an Exception."""


# no ghosts


async def _raise(harness: Harness, store: Store) -> None:
    broken = _Broken()

    async def work() -> None:
        async with store.transaction() as tx:
            await _fill(harness, tx)
            raise broken

    with pytest.raises(_Broken) as caught:
        await work()
    assert caught.value is broken


async def _be_cancelled(harness: Harness, store: Store) -> None:
    filled = asyncio.Event()

    async def work() -> None:
        async with store.transaction() as tx:
            await _fill(harness, tx)
            filled.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await filled.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _roll_back_inside(harness: Harness, store: Store) -> None:
    async with store.transaction() as tx:
        await _fill(harness, tx)
        await tx.rollback()


async def _leave_undecided(harness: Harness, store: Store) -> None:
    async with store.begin_tx() as tx:
        await _fill(harness, tx)


async def _raise_undecided(harness: Harness, store: Store) -> None:
    async def work() -> None:
        async with store.begin_tx() as tx:
            await _fill(harness, tx)
            raise _Broken

    with pytest.raises(_Broken):
        await work()


async def _drop(harness: Harness, store: Store) -> None:
    async def forget() -> None:
        await _fill(harness, await store.begin_tx())

    with pytest.warns(ResourceWarning):
        await forget()


async def _close_the_store(harness: Harness, store: Store) -> None:
    tx = await store.begin_tx()
    await _fill(harness, tx)
    await store.close()
    with pytest.raises(ClosedError):
        await tx.commit()


_WAYS_OUT: dict[str, Callable[[Harness, Store], Awaitable[None]]] = {
    "exception": _raise,
    "cancellation": _be_cancelled,
    "rollback": _roll_back_inside,
    "undecided": _leave_undecided,
    "exception undecided": _raise_undecided,
    "dropped": _drop,
    "store closed": _close_the_store,
}


@leg(rules="T3 T4 T5 T12", since="1.0")
@pytest.mark.parametrize("way_out", _WAYS_OUT)
async def test_no_ghosts(harness: Harness, store: Store, second_store: Store, witness: Witness, way_out: str) -> None:
    """However a transaction ends without a commit, nothing of it exists, and others can write at once."""
    async with second_store.listen("orders") as receiver:
        await _WAYS_OUT[way_out](harness, store)
        await _left_no_trace(second_store, receiver, witness)


@leg(rules="T3", since="1.0")
async def test_commit_is_seen_whole(store: Store, second_store: Store) -> None:
    """Whoever reads while transactions commit sees all events of one, or none."""
    rounds, per_commit = 30, 3

    async def write() -> None:
        for number in range(rounds):
            async with store.transaction() as tx:
                for _ in range(per_commit):
                    await tx.publish("orders", number)

    stream, reads = second_store.stream("orders"), 0
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(write())
        while not writing.done():
            seen = [event.payload_as(int) for event in await stream.read_since(0, 1000)]
            assert seen == [number for number in range(len(seen) // per_commit) for _ in range(per_commit)]
            reads += 1
    assert len(await stream.read_since(0, 1000)) == rounds * per_commit
    assert reads > 0


@leg(rules="T3 N1", since="1.0")
async def test_whoever_is_woken_finds_the_rest(store: Store, second_store: Store) -> None:
    """Whoever is woken by a transaction's notify sees what else it did, though it notified first."""
    for number in range(20):
        async with second_store.listen("orders") as receiver:

            async def consume(receiver: WakeReceiver = receiver) -> list[int]:
                assert await receiver.recv() == Wake("orders")
                return [event.payload_as(int) for event in await second_store.stream("orders").read_since(0)]

            consuming = asyncio.create_task(consume())
            async with store.transaction() as tx:
                await tx.notify("orders")
                await tx.publish("orders", number)
                await tx.read_since("orders", 0)
            assert await consuming == list(range(number + 1))


# transaction() and begin_tx()


@leg(rules="T4", since="1.0")
async def test_block_commits_on_a_clean_exit(harness: Harness, store: Store, witness: Witness) -> None:
    """The end of a transaction block is a commit."""
    async with store.transaction() as tx:
        offset = await _fill(harness, tx)
    assert await witness.jobs("emails") == JobCounts(pending=1)
    assert await witness.events("orders") == [offset]
    assert await witness.offset("orders", "reader") == offset
    assert await witness.business() == ["order 7"]


@leg(rules="T4", since="1.0")
async def test_block_may_decide_by_itself(store: Store, witness: Witness) -> None:
    """A block whose transaction has ended inside it ends as it is: a commit stays, even if the block then raises."""
    async with store.transaction() as tx:
        await tx.enqueue("emails", 1)
        await tx.commit()

    async def commit_and_raise() -> None:
        async with store.transaction() as tx:
            await tx.enqueue("emails", 2)
            await tx.commit()
            raise _Broken

    with pytest.raises(_Broken):
        await commit_and_raise()
    async with store.begin_tx() as tx:
        await tx.enqueue("emails", 3)
        await tx.commit()
    assert await witness.jobs("emails") == JobCounts(pending=3)


@leg(rules="T4 T13", since="1.0")
async def test_rollback_is_not_cancelled(harness: Harness, store: Store, witness: Witness) -> None:
    """However often the task of a transaction block is cancelled, it is rolled back, and the next write succeeds."""
    draw = Random(4)

    async def work(filled: asyncio.Event) -> None:
        async with store.transaction() as tx:
            await tx.enqueue("emails", 1)
            await harness.write(tx, "order")
            filled.set()
            await asyncio.Event().wait()

    async with harness.open(patience_s=2.0) as other:
        for number in range(30):
            filled = asyncio.Event()
            task = asyncio.create_task(work(filled))
            await filled.wait()
            for _ in range(4):
                task.cancel()
                for _ in range(draw.randrange(3)):
                    await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            for writer in (other, store):
                await writer.queue("after").enqueue(number)
    assert await witness.jobs("after") == JobCounts(pending=60)
    assert await witness.jobs("emails") == JobCounts()
    assert await witness.business() == []


@leg(rules="T5", since="1.0")
async def test_explicit_handle_is_decided_by_its_owner(store: Store, witness: Witness) -> None:
    """A handle of begin_tx stays open across calls and tasks until commit or rollback."""
    async with store.begin_tx() as kept:  # only so that nothing is left of a failure
        await asyncio.create_task(kept.enqueue("kept", 1))
        await kept.enqueue("kept", 2)
        assert await witness.jobs("kept") == JobCounts()
        await kept.commit()
    undone = await store.begin_tx()
    await asyncio.create_task(undone.enqueue("undone", 1))
    await asyncio.create_task(undone.rollback())
    assert await witness.jobs("kept") == JobCounts(pending=2)
    assert await witness.jobs("undone") == JobCounts()


@leg(rules="T5", since="1.0")
async def test_dropped_handle_says_where_it_was_opened(store: Store) -> None:
    """A handle dropped undecided warns with the place that opened it."""
    collect_quietly()
    frame = inspect.currentframe()
    assert frame is not None
    forgotten = [await store.begin_tx()]
    line = frame.f_lineno - 1
    await forgotten[0].enqueue("emails", 1)
    with pytest.warns(ResourceWarning) as warned:
        forgotten.clear()
    [warning] = warned
    assert f"{Path(__file__).name}:{line}" in str(warning.message)


@leg(rules="T5", since="1.0")
@pytest.mark.parametrize("collector", ["count", "cycle", "thread"])
async def test_dropped_handles_give_their_place_back(harness: Harness, witness: Witness, collector: str) -> None:
    """After any number of dropped handles, wherever they are collected, writes and transactions still work."""
    async with harness.open(patience_s=2.0) as store:

        async def forget() -> None:
            tx = await store.begin_tx()
            await tx.enqueue("emails", 1)
            if collector != "count":
                tx.me = tx  # type: ignore[attr-defined]  # a cycle, which only the collector finds

        async def forget_and_collect() -> None:
            await asyncio.create_task(forget())
            if collector == "thread":
                await asyncio.to_thread(gc.collect)
            elif collector == "cycle":
                gc.collect()

        collect_quietly()
        rounds = 12 if collector == "count" else 4  # collecting takes its time
        for number in range(rounds):
            with pytest.warns(ResourceWarning):
                await forget_and_collect()
            await store.queue("after").enqueue(number)
            async with store.transaction() as tx:
                await tx.enqueue("after", number)
    assert await witness.jobs("emails") == JobCounts()
    assert await witness.jobs("after") == JobCounts(pending=2 * rounds)


# reads


@leg(rules="T6", since="1.0")
async def test_reads_see_own_writes(harness: Harness, store: Store, second_store: Store, witness: Witness) -> None:
    """Reads on the transaction see its uncommitted writes beside what was committed; nobody else sees them."""
    before = await store.stream("orders").publish("before")
    await store.stream("orders").save_offset("reader", before)
    async with store.transaction() as tx:
        job_id = await tx.enqueue("emails", {"order": 7}, priority=3)
        offset = await tx.publish("orders", "own", key="7")
        await harness.write(tx, "order 7")
        job = await tx.get_job("emails", job_id)
        assert job is not None
        assert (job.id, job.queue, job.payload, job.priority) == (job_id, "emails", b'{"order":7}', 3)
        events = await tx.read_since("orders", 0)
        assert [(event.offset, event.key, event.payload) for event in events] == [
            (before, None, b'"before"'),
            (offset, "7", b'"own"'),
        ]
        assert await tx.read_from_consumer("orders", "reader") == events[1:]
        await tx.save_offset("orders", "reader", offset)
        assert await tx.get_offset("orders", "reader") == offset
        assert await tx.read_from_consumer("orders", "reader") == []
        assert await harness.read(tx) == ["order 7"]
        for either in (store, second_store):
            assert await either.queue("emails").get_job(job_id) is None
            assert await either.stream("orders").read_since(0) == events[:1]
            assert await either.stream("orders").get_offset("reader") == before
            assert await either.stream("orders").read_from_consumer("reader") == []
        assert await witness.business() == []
    assert await second_store.queue("emails").get_job(job_id) == job
    assert await second_store.stream("orders").read_since(0) == events


@leg(rules="T6", since="1.0")
async def test_reads_change_nothing(store: Store, second_store: Store) -> None:
    """A transaction that only reads leaves jobs, events and offsets as they were, and wakes nobody."""
    queue, stream = store.queue("emails"), store.stream("orders")
    job_id = await queue.enqueue(1)
    offset = await stream.publish(1)
    await stream.save_offset("reader", offset - 1)
    job, events = await queue.get_job(job_id), await stream.read_since(0)
    async with second_store.listen("orders") as receiver, second_store.stream("orders").subscribe("other") as follower:
        assert await follower.recv() == events[0]
        for _ in range(2):
            async with store.transaction() as tx:
                for _ in range(2):
                    assert await tx.get_job("emails", job_id) == job
                    assert await tx.read_since("orders", 0) == events
                    assert await tx.read_from_consumer("orders", "reader") == events
                    assert await tx.get_offset("orders", "reader") == offset - 1
                    assert await tx.get_offset("orders", "nobody") == 0
        await heard_nothing(second_store, receiver)
        assert await follower.try_recv() is None
    assert await queue.get_job(job_id) == job
    assert await stream.read_since(0) == events
    assert await stream.get_offset("reader") == offset - 1


@leg(rules="T6 Q8", since="1.0")
async def test_get_job_looks_in_the_named_queue(store: Store) -> None:
    """get_job on a transaction finds a job only in the queue that it names."""
    committed = await store.queue("emails").enqueue(1)
    async with store.transaction() as tx:
        own = await tx.enqueue("emails", 2)
        for job_id in (committed, own):
            assert await tx.get_job("other", job_id) is None
            assert await tx.get_job("emails", job_id) is not None


# claims and locks are no part of it


@leg(rules="T7", since="1.0")
async def test_no_claims_and_locks_on_a_transaction(store: Store) -> None:
    """A transaction offers nothing that claims or locks."""
    async with store.transaction() as tx:
        offered = {name for name in dir(tx) if not name.startswith("_")}
    absent = {"claim", "claim_one", "claim_batch", "ack", "ack_batch", "retry", "fail", "heartbeat", "release"}
    assert offered & (absent | {"try_lock", "lock", "renew", "queue", "outbox", "run_once"}) == set()


@leg(rules="T7 L1", since="1.0")
async def test_lock_outlives_a_rollback(store: Store, second_store: Store, witness: Witness) -> None:
    """Rolling back releases no lock, whether it was taken before the transaction or while it was open."""
    assert await store.try_lock("before", "one", 100) is not None
    held, rows = ["before"], {"before": await witness.lock("before")}
    async with store.begin_tx() as tx:
        await tx.enqueue("emails", 1)
        with suppress(DatabaseError):  # an engine with one writer refuses (T11)
            assert await store.try_lock("within", "one", 100) is not None
            held.append("within")
            rows["within"] = await witness.lock("within")
        await tx.rollback()
    for name in held:
        assert rows[name] is not None
        assert await witness.lock(name) == rows[name]
        assert await second_store.try_lock(name, "two", 100) is None


@leg(rules="T7 Q5", since="1.0")
async def test_claim_outlives_a_rollback(store: Store, second_store: Store) -> None:
    """A claim made before a transaction stays live when that is rolled back."""
    queue = store.queue("emails")
    await queue.enqueue(1)
    claim = await queue.claim_one("worker")
    assert claim is not None
    async with store.begin_tx() as tx:
        await tx.enqueue("others", 1)
        await tx.rollback()
    assert await second_store.queue("emails").claim_one("worker") is None
    assert await claim.ack()


# after its end


@leg(rules="T8", since="1.0")
@pytest.mark.parametrize("end", ["commit", "rollback", "block", "begin_tx block"])
async def test_ended_transaction_is_closed(store: Store, witness: Witness, end: str) -> None:
    """After its end every call on a transaction raises ClosedError, and does nothing."""
    if end == "block":
        async with store.transaction() as tx:
            pass
    elif end == "begin_tx block":
        async with store.begin_tx() as tx:
            pass
    else:
        tx = await store.begin_tx()
        await (tx.commit() if end == "commit" else tx.rollback())
    for call in TX_CALLS.values():
        with pytest.raises(ClosedError):
            await call(tx)
    for _ in range(2):
        with pytest.raises(ClosedError):
            await tx.commit()
        with pytest.raises(ClosedError):
            await tx.rollback()
    with pytest.raises(ClosedError):
        _ = tx.connection
    assert await witness.jobs("subject") == JobCounts()
    assert await witness.events("subject") == []


@leg(rules="T12 T8", since="1.0")
async def test_transaction_of_a_closed_store_is_closed(harness: Harness, witness: Witness) -> None:
    """A transaction that was open when its store closed raises ClosedError ever after, and its writes are gone."""
    store = await harness.open()
    committing, rolling_back = await store.begin_tx(), None
    await committing.enqueue("emails", 1)
    await store.close()
    for call in TX_CALLS.values():
        with pytest.raises(ClosedError):
            await call(committing)
    with pytest.raises(ClosedError):
        await committing.commit()
    async with harness.open() as another:
        rolling_back = await another.begin_tx()
        await rolling_back.enqueue("emails", 2)
    with pytest.raises(ClosedError):
        await rolling_back.rollback()
    assert await witness.jobs("emails") == JobCounts()


@leg(rules="T3 P2 V1", since="1.0")
async def test_refused_call_leaves_the_transaction_usable(store: Store, witness: Witness) -> None:
    """A call that is refused for its arguments adds nothing, and the transaction goes on and commits the rest."""
    async with store.transaction() as tx:
        await tx.enqueue("emails", 1)
        with pytest.raises(CodecError):
            await tx.enqueue("emails", float("nan"))
        with pytest.raises(CodecError):
            await tx.publish("orders", b"bytes")
        with pytest.raises(ValueError, match="max_attempts"):
            await tx.enqueue("emails", 2, max_attempts=0)
        with pytest.raises(TypeError):
            await tx.save_offset("orders", "reader", 1.0)  # type: ignore[arg-type]
        await tx.enqueue("emails", 3)
    assert await witness.jobs("emails") == JobCounts(pending=2)
    assert await witness.events("orders") == []
    assert await witness.offset("orders", "reader") is None


# a commit that fails


@leg(rules="T9 T3 E1 T14", since="1.0", needs=("spoil",))
@pytest.mark.parametrize("form", ["handle", "block"])
async def test_refused_commit_leaves_nothing_open(
    harness: Harness, store: Store, second_store: Store, witness: Witness, form: str
) -> None:
    """A commit that the driver refuses is a DatabaseError with its cause; nothing of it exists; the next works."""
    made: list[Transaction] = []

    async def spoiled() -> None:
        if form == "block":
            async with store.transaction() as tx:
                made.append(tx)
                await _fill(harness, tx)
                await harness.spoil(tx)
        else:
            tx = await store.begin_tx()
            made.append(tx)
            await _fill(harness, tx)
            await harness.spoil(tx)
            await tx.commit()

    async with second_store.listen("orders") as receiver:
        for number in range(12):  # more often than any pool is large
            with pytest.raises(DatabaseError) as caught:
                await spoiled()
            assert not isinstance(caught.value, CommitUnknownError)
            assert caught.value.__cause__ is not None
            assert not isinstance(caught.value.__cause__, AlkstoreError)
            with pytest.raises(ClosedError):
                await made[-1].commit()
            # The error is still held here, and with it whatever its traceback holds.
            await store.queue("after").enqueue(number)
            async with store.transaction() as tx:
                await tx.enqueue("after", number)
            await second_store.queue("after").enqueue(number)
        await _left_no_trace(second_store, receiver, witness)
    assert await witness.jobs("after") == JobCounts(pending=36)


# enlisting the caller's own


@leg(rules="T10 T3 N7", since="1.0")
async def test_enlisted_commits_with_the_caller(
    harness: Harness, store: Store, second_store: Store, witness: Witness, native_kind: str
) -> None:
    """What was done on an enlisted transaction is seen, and wakes, exactly when the caller commits."""
    async with store.listen("orders") as receiver, second_store.listen("orders") as receiver_too:
        async with harness.native(native_kind) as native:
            await native.write("order 7")
            tx = store.enlist(native.handle)
            job_id = await tx.enqueue("emails", {"order": 7})
            await tx.outbox_enqueue("mail", {"order": 7})
            offset = await tx.publish("orders", {"id": 7}, key="7")
            await tx.save_offset("orders", "reader", offset)
            await tx.notify("orders")
            await native.write("order 8")
            for either in (store, second_store):
                assert await either.queue("emails").get_job(job_id) is None
                assert await either.stream("orders").read_since(0) == []
                assert await either.stream("orders").get_offset("reader") == 0
            assert await receiver.try_recv() is None
            assert await receiver_too.try_recv() is None
            assert await witness.business() == []
            await native.commit()
        assert await receiver.recv() == Wake("orders")
        assert await receiver_too.recv() == Wake("orders")
    job = await second_store.queue("emails").get_job(job_id)
    assert job is not None
    assert (job.queue, job.payload) == ("emails", b'{"order":7}')
    [event] = await second_store.stream("orders").read_since(0)
    assert (event.offset, event.key, event.payload) == (offset, "7", b'{"id":7}')
    assert await witness.offset("orders", "reader") == offset
    assert await witness.business() == ["order 7", "order 8"]
    delivered: list[bytes] = []

    async def deliver(handle: object) -> None:
        delivered.append(handle.job.payload)  # type: ignore[attr-defined]

    assert await second_store.outbox("mail").run_once("worker", deliver)
    assert delivered == [b'{"order":7}']


@leg(rules="T10 T3", since="1.0")
@pytest.mark.parametrize("end", ["rollback", "undecided"])
async def test_enlisted_rolls_back_with_the_caller(
    harness: Harness, store: Store, witness: Witness, native_kind: str, end: str
) -> None:
    """Nothing of an enlisted transaction exists after the caller rolled back, or closed the connection."""
    async with store.listen("orders") as receiver:
        async with harness.native(native_kind) as native:
            await native.write("order 7")
            tx = store.enlist(native.handle)
            offset = await tx.publish("orders", {"id": 7})
            await tx.enqueue("emails", 7)
            await tx.outbox_enqueue("mail", 7)
            await tx.save_offset("orders", "reader", offset)
            await tx.notify("orders")
            if end == "rollback":
                await native.rollback()
        await _left_no_trace(store, receiver, witness)


@leg(rules="T10 T3", since="1.0")
async def test_savepoint_takes_its_part_with_it(
    harness: Harness, store: Store, witness: Witness, native_kind: str
) -> None:
    """A savepoint rolled back undoes what was done since and nothing else: jobs, events, offsets, caller's rows."""
    async with harness.native(native_kind) as native:
        tx = store.enlist(native.handle)
        await native.write("before")
        first = await tx.publish("orders", "before")
        await tx.save_offset("orders", "reader", first)
        await tx.enqueue("emails", "before")
        await native.savepoint()
        await native.write("within")
        second = await tx.publish("orders", "within")
        await tx.save_offset("orders", "reader", second)
        await tx.enqueue("emails", "within")
        await tx.enqueue("within", "within")
        await native.rollback_to_savepoint()
        assert [event.payload for event in await tx.read_since("orders", 0)] == [b'"before"']
        assert await tx.get_offset("orders", "reader") == first
        await native.write("after")
        third = await tx.publish("orders", "after")
        await tx.enqueue("emails", "after")
        await native.commit()
    assert await witness.business() == ["before", "after"]
    assert await witness.events("orders") == [first, third]
    assert await witness.offset("orders", "reader") == first
    assert await witness.jobs("emails") == JobCounts(pending=2)
    assert await witness.jobs("within") == JobCounts()
    claims = await store.queue("emails").claim_batch("worker", 5)
    assert [claim.job.payload for claim in claims] == [b'"before"', b'"after"']


@leg(rules="T10 N1", since="1.0")
async def test_savepoint_takes_its_wakes_with_it(
    harness: Harness, store: Store, second_store: Store, native_kind: str
) -> None:
    """A savepoint rolled back wakes nobody; what was notified before and after it does."""
    async with (
        store.listen("before") as before,
        store.listen("within") as within,
        second_store.listen("within") as within_too,
        store.listen("after") as after,
    ):
        async with harness.native(native_kind) as native:
            tx = store.enlist(native.handle)
            await tx.notify("before")
            await native.savepoint()
            await tx.notify("within")
            await native.rollback_to_savepoint()
            await tx.notify("after")
            await native.commit()
        assert await before.recv() == Wake("before")
        assert await after.recv() == Wake("after")
        await heard_nothing(store, within)
        await heard_nothing(second_store, within_too)


@leg(rules="T10", since="1.0")
async def test_enlisted_is_not_decided_here(harness: Harness, store: Store, witness: Witness, native_kind: str) -> None:
    """Commit and rollback on an enlisted transaction raise, and leave it open for its owner."""
    async with harness.native(native_kind) as native:
        tx = store.enlist(native.handle)
        await tx.enqueue("emails", 1)
        for _ in range(2):
            with pytest.raises(DatabaseError):
                await tx.commit()
            with pytest.raises(DatabaseError):
                await tx.rollback()
        assert await witness.jobs("emails") == JobCounts()
        await tx.enqueue("emails", 2)
        await native.commit()
    assert await witness.jobs("emails") == JobCounts(pending=2)


@leg(rules="T10 T5", since="1.0")
async def test_dropped_enlisted_handle_changes_nothing(
    harness: Harness, store: Store, witness: Witness, native_kind: str
) -> None:
    """An enlisted handle may be dropped without a warning: the transaction is the caller's, and goes on."""
    collect_quietly()
    async with harness.native(native_kind) as native:
        tx = store.enlist(native.handle)
        await tx.enqueue("emails", 1)
        del tx
        gc.collect()
        await store.enlist(native.handle).enqueue("emails", 2)
        await native.commit()
    assert await witness.jobs("emails") == JobCounts(pending=2)


@leg(rules="T10 T6", since="1.0")
async def test_handles_enlisted_twice_share_the_transaction(
    harness: Harness, store: Store, second_store: Store, witness: Witness, native_kind: str
) -> None:
    """Handles on one connection, of one store or two, see each other's uncommitted writes."""
    async with harness.native(native_kind) as native:
        handles = [store.enlist(native.handle), store.enlist(native.handle), second_store.enlist(native.handle)]
        ids = [await tx.enqueue("emails", number) for number, tx in enumerate(handles)]
        for tx in handles:
            jobs = [await tx.get_job("emails", job_id) for job_id in ids]
            assert [job and job.payload for job in jobs] == [b"0", b"1", b"2"]
        await native.commit()
    assert await witness.jobs("emails") == JobCounts(pending=3)


def _type_name(thing: object) -> str:
    return type(thing).__name__


@leg(rules="T10 E1 E3", since="1.0")
@pytest.mark.parametrize(
    "thing", [None, object(), "sqlite:///app.db", 7, Store], ids=lambda thing: type(thing).__name__
)
async def test_enlist_refuses_anything_else(store: Store, thing: object) -> None:
    """What is no connection of this engine's kind is refused at once, with its type in the message."""
    with pytest.raises(DatabaseError) as caught:
        store.enlist(thing)
    assert type(thing).__name__ in str(caught.value)


@leg(rules="T10", since="1.0")
async def test_enlist_refuses_a_connection_without_a_transaction(
    harness: Harness, store: Store, native_kind: str
) -> None:
    """A connection with no transaction open on it is refused at once."""
    async with harness.native(native_kind, begun=False) as native:
        with pytest.raises(DatabaseError):
            store.enlist(native.handle)


@leg(rules="T10 T8", since="1.0")
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_enlisted_ends_with_the_callers_transaction(
    harness: Harness, store: Store, witness: Witness, native_kind: str, end: str
) -> None:
    """Once the caller's transaction has ended, its enlisted handle writes nothing any more, nor can it be enlisted."""
    async with harness.native(native_kind) as native:
        tx = store.enlist(native.handle)
        await tx.enqueue("before", 1)
        await (native.commit() if end == "commit" else native.rollback())
        for call in TX_CALLS.values():
            with pytest.raises((ClosedError, DatabaseError)):
                await call(tx)
        with pytest.raises((ClosedError, DatabaseError)):
            store.enlist(native.handle)
    assert await witness.jobs("before") == JobCounts(pending=int(end == "commit"))
    assert await witness.jobs("subject") == JobCounts()
    assert await witness.events("subject") == []


# two tasks, one writer


@leg(rules="T13 T3", since="1.0")
async def test_concurrent_calls_on_one_transaction(store: Store, witness: Witness) -> None:
    """Calls of many tasks on one transaction are serialised, or refused by name; it survives, and tells no lie."""
    async with store.transaction() as tx:
        outcomes = await asyncio.gather(
            *(tx.enqueue("emails", number) for number in range(20)),
            *(tx.publish("orders", number) for number in range(20)),
            return_exceptions=True,
        )
        last = await tx.enqueue("emails", "last")
    for outcome in outcomes:
        assert isinstance(outcome, int | AlkstoreError)
    ids = [outcome for outcome in outcomes[:20] if isinstance(outcome, int)] + [last]
    offsets = [outcome for outcome in outcomes[20:] if isinstance(outcome, int)]
    assert len(set(ids)) == len(ids)
    assert await witness.jobs("emails") == JobCounts(pending=len(ids))
    assert await witness.events("orders") == sorted(offsets)


@leg(rules="T10 T13", since="1.0")
async def test_concurrent_calls_on_an_enlisted_transaction(
    harness: Harness, store: Store, witness: Witness, native_kind: str
) -> None:
    """Calls of many tasks on an enlisted transaction are serialised, or refused by name, and it survives."""
    async with harness.native(native_kind) as native:
        tx = store.enlist(native.handle)
        outcomes = await asyncio.gather(*(tx.enqueue("emails", n) for n in range(20)), return_exceptions=True)
        last = await tx.enqueue("emails", "last")
        await native.write("order 7")
        await native.commit()
    for outcome in outcomes:
        assert isinstance(outcome, int | AlkstoreError)
    ids = [outcome for outcome in outcomes if isinstance(outcome, int)] + [last]
    assert len(set(ids)) == len(ids)
    assert await witness.jobs("emails") == JobCounts(pending=len(ids))
    assert await witness.business() == ["order 7"]


@leg(rules="T3 Q6", since="1.0")
async def test_background_work_stays_off_the_transaction(store: Store, harness: Harness) -> None:
    """What another task does by itself while a transaction is open is no part of it: it outlives the rollback."""
    queue = store.queue("emails")
    await queue.enqueue(1)
    claim = await queue.claim_one("worker")
    assert claim is not None
    async with store.begin_tx() as tx:
        beating = asyncio.create_task(claim.heartbeat(1000))
        publishing = asyncio.create_task(store.stream("orders").publish("beside"))
        for number in range(10):
            await tx.publish("orders", number)
        await tx.rollback()
    landed, _ = await asyncio.gather(beating, publishing)
    assert landed
    job = await queue.get_job(claim.job.id)
    assert job is not None
    assert job.claim_expires_at == harness.clock.now() + 1000
    assert [event.payload for event in await store.stream("orders").read_since(0)] == [b'"beside"']


@leg(rules="T11", since="1.0")
async def test_writing_beside_ones_own_transaction(harness: Harness, witness: Witness) -> None:
    """A task that writes outside its own open transaction has it done or a DatabaseError at once, and never hangs."""
    async with harness.open(patience_s=50.0) as store:
        subjects = await subjects_of(store)
        async with store.transaction() as tx:
            await tx.enqueue("emails", 1)
            for call in WRITES.values():
                with suppress(DatabaseError):
                    async with asyncio.timeout(5):
                        await call(subjects)
            await tx.enqueue("emails", 2)
        assert await witness.jobs("emails") == JobCounts(pending=2)
        await store.queue("emails").enqueue(3)
    assert await witness.jobs("emails") == JobCounts(pending=3)


@leg(rules="T11", since="1.0")
async def test_refused_write_beside_a_transaction_did_nothing(store: Store, witness: Witness) -> None:
    """A write outside one's own open transaction either committed by itself or did nothing: it is no part of it."""
    done = 0
    async with store.begin_tx() as tx:
        await tx.enqueue("within", 1)
        with suppress(DatabaseError):
            await store.queue("beside").enqueue(1)
            done = 1
        await tx.rollback()
    assert await witness.jobs("beside") == JobCounts(pending=done)
    assert await witness.jobs("within") == JobCounts()


@leg(rules="T11 T6", since="1.0")
async def test_reading_beside_ones_own_transaction(store: Store) -> None:
    """A task may read outside its own open transaction, and sees what is committed."""
    committed = await store.stream("orders").publish(1)
    async with store.transaction() as tx:
        await tx.publish("orders", 2)
        job_id = await tx.enqueue("emails", 1)
        [event] = await store.stream("orders").read_since(0)
        assert event.offset == committed
        assert await store.queue("emails").get_job(job_id) is None


@leg(rules="T11 T10", since="1.0")
async def test_writing_beside_ones_own_enlisted_transaction(
    harness: Harness, witness: Witness, native_kind: str
) -> None:
    """A task that writes beside the transaction it enlisted has it done or a DatabaseError at once, and never hangs."""
    async with harness.open(patience_s=50.0) as store:
        subjects = await subjects_of(store)
        async with harness.native(native_kind) as native:
            tx = store.enlist(native.handle)
            await tx.enqueue("emails", 1)
            for call in WRITES.values():
                with suppress(DatabaseError):
                    async with asyncio.timeout(5):
                        await call(subjects)
            await native.commit()
        await store.queue("emails").enqueue(2)
    assert await witness.jobs("emails") == JobCounts(pending=2)


@leg(rules="T11", since="1.0")
async def test_other_tasks_wait_for_the_writer(store: Store, second_store: Store, witness: Witness) -> None:
    """Writes and transactions of other tasks wait until an open transaction ends, and then succeed."""

    async def transact(each: Store) -> None:
        async with each.transaction() as tx:
            await tx.enqueue("others", "in a transaction")

    async with store.transaction() as tx, asyncio.TaskGroup() as others:
        await tx.enqueue("own", 1)
        for each in (store, second_store):
            for _ in range(5):
                others.create_task(each.queue("others").enqueue("alone"))
                others.create_task(transact(each))
        for _ in range(5):
            await tx.enqueue("own", 1)
        others.create_task(tx.commit())
    assert await witness.jobs("own") == JobCounts(pending=6)
    assert await witness.jobs("others") == JobCounts(pending=20)


@leg(rules="T11", since="1.0")
async def test_waiting_for_the_writer_ends(harness: Harness, store: Store, witness: Witness) -> None:
    """Another task's write beside a long transaction is done, or fails once its store's patience has ended."""
    async with harness.open(patience_s=0.1) as impatient:
        async with store.transaction() as tx:
            await tx.enqueue("own", 1)
            writing = asyncio.create_task(impatient.queue("others").enqueue(1))
            beginning = asyncio.create_task(_begin_and_commit(impatient))
            done, failed = await asyncio.gather(writing, beginning, return_exceptions=True), 0
            for outcome in done:
                if isinstance(outcome, BaseException):
                    assert isinstance(outcome, DatabaseError)
                    failed += 1
        await impatient.queue("others").enqueue(2)
    assert await witness.jobs("others") == JobCounts(pending=3 - failed)
    assert await witness.jobs("own") == JobCounts(pending=1)


async def _begin_and_commit(store: Store) -> None:
    async with store.transaction() as tx:
        await tx.enqueue("others", 1)
