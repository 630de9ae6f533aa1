"""Transactions, enlisting: a part in a transaction of the caller's own (contract section 1)."""

import gc

import pytest
from alkstore_core import Store, Wake
from alkstore_core.errors import ClosedError, DatabaseError

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import TX_CALLS, collect_quietly
from alkstore_contract_suite.legs.traces import left_no_trace
from alkstore_contract_suite.proofs import heard_nothing


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
        await left_no_trace(store, receiver, witness)


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
