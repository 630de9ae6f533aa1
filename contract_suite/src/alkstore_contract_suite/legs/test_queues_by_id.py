"""Queues, by id: ack_batch, cancel and get_job, which need no handle (contract section 7)."""

from alkstore_core import Store
from alkstore_core.numbers import INT64_MAX, INT64_MIN

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.jobs import buried_in, claim_from, row_of


@leg(rules="Q8 Q5", since="1.0")
async def test_ack_batch_counts_what_landed(harness: Harness, store: Store, witness: Witness) -> None:
    """`ack_batch` deletes the rows of this queue on which this worker has a live claim, counts them, and no others."""
    queue, other = store.queue("emails", visibility_timeout_s=30), store.queue("reports")
    await queue.enqueue_many(["one", "two", "three"], priority=9)
    mine = [handle.job.id for handle in await queue.claim_batch("me", 3)]
    await queue.enqueue("lapsed", priority=8)
    lapsed = await claim_from(queue, "me")
    assert await lapsed.heartbeat(10)
    await queue.enqueue("somebody else's", priority=8)
    others = await claim_from(queue, "you")
    await queue.enqueue("released", priority=8)
    released = await claim_from(queue, "me")
    assert await released.release()
    await queue.enqueue("dead", priority=10)
    dead = await claim_from(queue, "me")
    assert await dead.fail()
    await other.enqueue("elsewhere")
    elsewhere = await claim_from(other, "me")
    await harness.advance(10)
    untouched = [handle.job.id for handle in (lapsed, others, released, dead, elsewhere)]
    before = [await row_of(queue, job_id) for job_id in untouched]
    given = [mine[0], *untouched, mine[1], mine[0], 0, -1, INT64_MIN, INT64_MAX, mine[2]]
    assert await queue.ack_batch("me", given) == 3
    assert [await queue.get_job(job_id) for job_id in mine] == [None] * 3
    assert [await row_of(queue, job_id) for job_id in untouched] == before
    assert await witness.jobs("emails") == JobCounts(pending=1, processing=2, dead=1)
    assert await queue.ack_batch("me", mine) == 0


@leg(rules="Q8 Q5", since="1.0")
async def test_ack_batch_after_the_deadline(harness: Harness, store: Store) -> None:
    """`ack_batch` lands in the last second of a claim, and not from its deadline on."""
    queue = store.queue("emails", visibility_timeout_s=30)
    ids = await queue.enqueue_many(["in time", "too late"])
    assert len(await queue.claim_batch("worker", 2)) == 2
    await harness.advance(29)
    assert await queue.ack_batch("worker", ids[:1]) == 1
    await harness.advance(1)
    assert await queue.ack_batch("worker", ids) == 0
    assert await queue.get_job(ids[1]) is not None


@leg(rules="Q8", since="1.0")
async def test_ack_batch_of_nothing(store: Store) -> None:
    """`ack_batch` without ids counts none, and takes any iterable."""
    queue = store.queue("emails")
    ids = await queue.enqueue_many(["one", "two"])
    assert len(await queue.claim_batch("worker", 2)) == 2
    assert await queue.ack_batch("worker", []) == 0
    assert await queue.ack_batch("worker", (job_id for job_id in ids)) == 2


@leg(rules="Q8", since="1.0")
async def test_cancel_deletes_a_live_row(harness: Harness, store: Store, witness: Witness) -> None:
    """`cancel` deletes a pending or processing row, delayed, lapsed or expired too, and says whether it did."""
    queue = store.queue("emails")
    held = await queue.enqueue("held", priority=2)
    lapsed = await queue.enqueue("lapsed", priority=1)
    handle, gone = await queue.claim_batch("worker", 2)
    assert await gone.heartbeat(1)
    ids = [held, lapsed, await queue.enqueue("ready"), await queue.enqueue("delayed", delay=60)]
    ids.append(await queue.enqueue("expired", expires=0))
    await harness.advance(1)
    assert [await queue.cancel(job_id) for job_id in ids] == [True] * 5
    assert [await queue.get_job(job_id) for job_id in ids] == [None] * 5
    assert await witness.jobs("emails") == JobCounts()
    assert [await queue.cancel(job_id) for job_id in ids] == [False] * 5
    assert not await handle.ack()


@leg(rules="Q8", since="1.0")
async def test_cancel_spares_the_rest(store: Store) -> None:
    """`cancel` of a dead letter, of another queue's job or of no job at all is False, and changes nothing."""
    queue, other = store.queue("emails"), store.queue("reports")
    dead = await buried_in(queue)
    elsewhere = await row_of(other, await other.enqueue("elsewhere"))
    for job_id in (dead.id, elsewhere.id, 0, -1, INT64_MIN, INT64_MAX):
        assert not await queue.cancel(job_id)
    assert await row_of(queue, dead.id) == dead
    assert await row_of(other, elsewhere.id) == elsewhere


@leg(rules="Q8 Q14", since="1.0")
async def test_get_job_looks_everywhere(store: Store, second_store: Store) -> None:
    """`get_job` gives the job with that id in any queue, live or dead, and None where there is none."""
    queue, other = store.queue("emails"), second_store.queue("reports")
    pending = await other.enqueue("pending")
    dead = await buried_in(queue)
    await queue.enqueue("held")
    held = (await claim_from(queue)).job
    assert (await row_of(queue, pending)).queue == "reports"
    assert await row_of(queue, pending) == await row_of(other, pending)
    assert await other.get_job(dead.id) == dead
    assert await other.get_job(held.id) == held
    for job_id in (0, -1, INT64_MIN, INT64_MAX):
        assert await queue.get_job(job_id) is None


@leg(rules="Q8 T6", since="1.0")
async def test_transaction_get_job_looks_in_its_queue(store: Store) -> None:
    """`tx.get_job` gives the named queue's job, live or dead, of this transaction or before it, and no other."""
    queue = store.queue("emails")
    dead = await buried_in(queue)
    pending = await row_of(queue, await queue.enqueue("pending"))
    async with store.transaction() as tx:
        own = await tx.enqueue("emails", "own")
        assert await tx.get_job("emails", dead.id) == dead
        assert await tx.get_job("emails", pending.id) == pending
        staged = await tx.get_job("emails", own)
        assert staged is not None
        assert staged.payload == b'"own"'
        for job_id in (dead.id, pending.id, own):
            assert await tx.get_job("reports", job_id) is None
        for job_id in (0, INT64_MIN, INT64_MAX):
            assert await tx.get_job("emails", job_id) is None
        assert await queue.get_job(own) is None
    assert await queue.get_job(own) == staged
