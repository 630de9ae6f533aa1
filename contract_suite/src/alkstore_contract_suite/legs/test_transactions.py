"""Transactions: everything at the commit, or nothing (contract section 1)."""

from alkstore_core import Store, Wake

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
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
