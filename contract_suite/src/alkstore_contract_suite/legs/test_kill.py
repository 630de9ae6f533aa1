"""What is left after a process was killed, and after everything was restarted (T3, Q14, S1, L5)."""

import asyncio

from alkstore_core import JobHandle, StopToken, Store, Worker

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs import child_bodies
from alkstore_contract_suite.proofs import caught_up


@leg(rules="T3", since="1.0", needs=("child",))
async def test_acknowledged_enqueue_survives(store: Store, witness: Witness, children: Children) -> None:
    """A job whose enqueue returned is there after its process was killed at once."""
    child = await children.start(child_bodies.enqueues, "emails")
    job_id = await child.reached("acknowledged")
    await child.kill()
    claim = await store.queue("emails").claim_one("worker")
    assert claim is not None
    assert (claim.job.id, claim.job.payload) == (job_id, b'{"from":"child"}')
    assert await witness.jobs("emails") == JobCounts(processing=1)


@leg(rules="T3", since="1.0", needs=("child",))
async def test_acknowledged_commit_survives(store: Store, witness: Witness, children: Children) -> None:
    """Everything of a transaction whose commit returned is there after its process was killed at once."""
    child = await children.start(child_bodies.commits)
    job_id, offset = await child.reached("committed")
    await child.kill()
    job = await store.queue("emails").get_job(job_id)
    assert job is not None
    assert job.payload == b'{"order":7}'
    assert [event.offset for event in await store.stream("orders").read_since(0)] == [offset]
    assert await store.stream("orders").get_offset("reader") == offset
    assert await witness.jobs("emails") == JobCounts(pending=1)
    assert await witness.business() == ["order 7"]


@leg(rules="T3 T9", since="1.0", needs=("child",))
async def test_open_transaction_leaves_nothing(store: Store, witness: Witness, children: Children) -> None:
    """Nothing of a transaction is left whose process was killed before the commit, and others write at once."""
    child = await children.start(child_bodies.leaves_a_transaction_open)
    await child.reached("open")
    await child.kill()
    job_id = await store.queue("others").enqueue("written at once")
    assert await witness.jobs("others") == JobCounts(pending=1)
    assert (await store.queue("others").get_job(job_id)) is not None
    assert await store.queue("emails").claim_one("worker") is None
    assert await store.stream("orders").read_since(0) == []
    assert await store.stream("orders").get_offset("reader") == 0
    assert await witness.jobs("emails") == JobCounts()
    assert await witness.events("orders") == []
    assert await witness.offset("orders", "reader") is None
    assert await witness.business() == []


@leg(rules="Q12 T3", since="1.0", needs=("child",))
async def test_batches_are_whole(store: Store, witness: Witness, children: Children) -> None:
    """Killed while it enqueues, a process leaves whole batches only, and each that was acknowledged."""
    size = 7
    child = await children.start(child_bodies.enqueues_batches, "emails", size)
    acknowledged = [await child.reached("acknowledged") for _ in range(8)]
    acknowledged += await child.kill()
    counted = await witness.jobs("emails")
    assert counted == JobCounts(pending=counted.pending)
    assert counted.pending % size == 0
    claimed = await store.queue("emails").claim_batch("worker", counted.pending)
    ids = {handle.job.id for handle in claimed}
    assert len(ids) == counted.pending
    assert set().union(*acknowledged) <= ids
    # Between a commit and its acknowledgement stand at most the four batches that were under way.
    assert len(ids) - size * len(acknowledged) in {size * unsaid for unsaid in range(5)}


@leg(rules="Q4 Q5", since="1.0", needs=("child",))
async def test_claims_of_the_dead_are_redelivered(
    harness: Harness, store: Store, witness: Witness, children: Children
) -> None:
    """Jobs that a killed process had claimed stay, and go to others at the deadline, with nobody sweeping."""
    queue = store.queue("emails", visibility_timeout_s=30)
    ids = await queue.enqueue_many(range(10))
    child = await children.start(child_bodies.claims, "emails", 10)
    assert await child.reached("claimed") == ids
    await child.kill()
    assert await witness.jobs("emails") == JobCounts(processing=10)
    await harness.advance(29)
    assert await queue.claim_one("worker") is None
    await harness.advance(1)
    again = await queue.claim_batch("worker", 20)
    assert [(handle.job.id, handle.job.attempts) for handle in again] == [(id, 2) for id in ids]
    assert await queue.ack_batch("worker", ids) == 10
    assert await witness.jobs("emails") == JobCounts()


@leg(rules="W2 Q13", since="1.0", needs=("child",))
async def test_worker_takes_over_from_the_dead(
    harness: Harness, store: Store, witness: Witness, children: Children
) -> None:
    """A worker that is idle does the jobs of a killed process at their deadline, with nobody sweeping."""
    queue = store.queue("emails", visibility_timeout_s=30)
    ids = await queue.enqueue_many(range(10))
    child = await children.start(child_bodies.claims, "emails", 10)
    await child.reached("claimed")
    await child.kill()
    done: list[int] = []
    stop = StopToken()

    async def handle(handle: JobHandle) -> None:
        done.append(handle.job.id)
        if len(done) == 11:
            stop.cancel()

    async with asyncio.TaskGroup() as group:
        group.create_task(Worker(queue, handle, worker_id="parent").run(stop))
        before = await queue.enqueue("while the dead still hold theirs")
        while await queue.get_job(before) is not None:
            await caught_up(store)
        assert done == [before]
        assert await witness.jobs("emails") == JobCounts(processing=10)
        await harness.advance(30)
    assert sorted(done) == [*ids, before]
    assert await witness.jobs("emails") == JobCounts()


@leg(rules="L1 L5", since="1.0", needs=("child",))
async def test_lock_of_the_dead_lapses(harness: Harness, store: Store, children: Children) -> None:
    """A lock whose holder was killed stays held until it expires, and then goes on with a greater token."""
    child = await children.start(child_bodies.holds_a_lock, "leader", 30)
    token = await child.reached("held")
    await child.kill()
    await harness.advance(29)
    assert await store.try_lock("leader", "parent", 30) is None
    await harness.advance(1)
    lock = await store.try_lock("leader", "parent", 30)
    assert lock is not None
    assert lock.token > token


@leg(rules="Q14 S1 L5", since="1.0", needs=("child", "durable"))
async def test_numbers_are_never_reused(harness: Harness, children: Children) -> None:
    """Ids, offsets and tokens go on growing after a kill and after a restart, even where no row is left of them."""
    child = await children.start(child_bodies.uses_up_numbers)
    before = await child.reached("used up")
    await child.kill()
    for _ in range(2):
        await harness.restart()
        async with harness.open() as store:
            job_id = await store.queue("emails").enqueue("next")
            assert await store.queue("emails").cancel(job_id)
            offset = await store.stream("orders").publish("next")
            assert await store.stream("orders").trim_to(offset) == 1
            lock = await store.try_lock("leader", "parent", 60)
            assert lock is not None
            assert await lock.release()
        after = [job_id, offset, lock.token]
        assert all(new > old for new, old in zip(after, before, strict=True)), (before, after)
        before = after


@leg(rules="S5", since="1.0", needs=("child",))
async def test_consumer_resumes_exactly_once(store: Store, witness: Witness, children: Children) -> None:
    """Consumers killed at any moment, whose checkpoint commits with their work, do the work of each event once."""
    stream = store.stream("orders")
    payloads: list[str] = []
    for kills in range(3):
        new = [f"order {len(payloads) + number}" for number in range(30)]
        payloads += new
        await stream.publish_many(new)
        child = await children.start(child_bodies.consumes, "orders", "reader")
        for _ in range(5 + 3 * kills):
            await child.reached("consumed")
        await child.kill()
        done = await witness.business()
        assert done == payloads[: len(done)]
        last = (await stream.read_since(0, len(done)))[-1]
        assert await stream.get_offset("reader") == last.offset
    payloads.append("the last order")
    offset = await stream.publish("the last order")
    child = await children.start(child_bodies.consumes, "orders", "reader")
    while await child.reached("consumed") != offset:
        pass
    await child.kill()
    assert await witness.business() == payloads


@leg(rules="H3 H4", since="1.0", needs=("child",))
async def test_scheduler_fires_each_boundary_once(
    harness: Harness, store: Store, witness: Witness, children: Children
) -> None:
    """Leaders killed while they fire leave no boundary out and fire none twice: the next leader goes on from there."""
    await store.schedule("report", "@every 5s", "reports", "report")
    start = harness.clock.now()
    fired: list[int] = []

    async def take_until(boundary: int) -> None:
        while boundary not in fired:
            fired.extend(handle.job.ready_at for handle in await store.queue("reports").claim_batch("worker", 100))
            await caught_up(store)

    for _ in range(3):
        leader = await children.start(child_bodies.runs_schedules)
        await leader.reached("running")
        for _ in range(2):
            await harness.advance(5)
            await leader.advance(5)
            await take_until(harness.clock.now())
        await harness.advance(5)
        await leader.advance(5)
        await leader.kill()  # while it fires
        await harness.advance(15)  # and the lock of the dead has lapsed
    stop = StopToken()
    async with asyncio.TaskGroup() as group:
        group.create_task(store.run_schedules(stop))
        await take_until(harness.clock.now())
        stop.cancel()
    assert sorted(fired) == list(range(start + 5, harness.clock.now() + 1, 5))
    assert await witness.jobs("reports") == JobCounts(processing=len(fired))
