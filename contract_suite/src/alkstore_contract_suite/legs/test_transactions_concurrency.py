"""Transactions, two tasks: on one transaction, beside it, and waiting for the one writer (contract section 1)."""

import asyncio
from contextlib import suppress

from alkstore_core import Store
from alkstore_core.errors import AlkstoreError, DatabaseError

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import WRITES, subjects_of


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
