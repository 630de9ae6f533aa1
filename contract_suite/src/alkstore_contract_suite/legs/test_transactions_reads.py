"""Transactions, reads: what they see, and that they change nothing (contract section 1)."""

from alkstore_core import Store

from alkstore_contract_suite.harness import Harness, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.proofs import heard_nothing


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
