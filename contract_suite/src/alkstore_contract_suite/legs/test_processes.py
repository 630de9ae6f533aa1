"""Several processes on one database, and what a store owes to the process that it is in (N7, T11, T15)."""

import asyncio
import threading

import pytest
from alkstore_core import Store, Wake
from alkstore_core.errors import DatabaseError

from alkstore_contract_suite.children import Children
from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs import child_bodies


@leg(rules="N7", since="1.0", needs=("child",))
async def test_wakes_cross(store: Store, children: Children) -> None:
    """A notify committed in one process wakes the listeners of another, by itself and on a transaction."""
    child = await children.start(child_bodies.listens, "orders", 2)
    await child.reached("listening")
    await store.notify("orders")
    assert await child.reached("woken") == "orders"
    async with store.transaction() as tx:
        await tx.notify("orders")
    assert await child.reached("woken") == "orders"


@leg(rules="N7 S7", since="1.0", needs=("child",))
async def test_commits_of_others_wake(store: Store, children: Children) -> None:
    """A transaction of another process wakes listeners and subscribers here."""
    async with store.listen("orders") as wakes, store.stream("orders").subscribe("reader") as events:
        await children.start(child_bodies.announces, "orders", "orders")
        assert await wakes.recv() == Wake("orders")
        event = await events.recv()
        assert event is not None
        assert event.payload_as(str) == "from the child"


@leg(rules="N7 T10", since="1.0", needs=("child",))
async def test_enlisted_commits_wake(harness: Harness, store: Store, children: Children, native_kind: str) -> None:
    """What was done on a caller's own transaction wakes other processes once the caller commits."""
    child = await children.start(child_bodies.listens_and_follows, "orders", "orders")
    await child.reached("listening")
    async with harness.native(native_kind) as native:
        tx = store.enlist(native.handle)
        await tx.notify("orders")
        offset = await tx.publish("orders", "enlisted")
        await native.commit()
    assert await child.result() == ["orders", offset, "enlisted"]


@leg(rules="S7 S8", since="1.0", needs=("child",))
async def test_subscribers_follow_across(store: Store, children: Children) -> None:
    """A subscriber gets every event that other processes publish, once and in order."""
    stream = store.stream("orders")
    before = await stream.publish_many(range(10))
    child = await children.start(child_bodies.follows, "orders", "reader", 40)
    await child.reached("following")
    after = [await stream.publish(number) for number in range(10, 40)]
    offsets = before + after
    assert await child.result() == [[offset, number] for number, offset in enumerate(offsets)]


@leg(rules="Q3", since="1.0", needs=("child",))
async def test_claims_are_disjoint(store: Store, witness: Witness, children: Children) -> None:
    """Each job goes to one of the processes that claim at the same time, and none is left."""
    ids = await store.queue("emails").enqueue_many(range(150))
    workers = [await children.start(child_bodies.claims_all, "emails", f"worker {number}") for number in range(3)]
    for worker in workers:
        await worker.reached("ready")
    for worker in workers:
        await worker.release("ready")
    claimed = [job_id for worker in workers for job_id in await worker.result()]
    assert sorted(claimed) == ids
    assert await witness.jobs("emails") == JobCounts(processing=150)


@leg(rules="L1 L4", since="1.0", needs=("child",))
async def test_locks_have_one_holder(children: Children) -> None:
    """Of the processes that try a lock at the same time, exactly one gets it and the others get None."""
    owners = [await children.start(child_bodies.tries_locks, f"owner {number}", 50) for number in range(3)]
    for owner in owners:
        await owner.reached("ready")
    for owner in owners:
        await owner.release("ready")
    got = [name for owner in owners for name in await owner.result()]
    assert sorted(got) == sorted(f"lock {number}" for number in range(50))


@leg(rules="T11", since="1.0", needs=("child",))
async def test_writers_wait_their_turn(store: Store, children: Children) -> None:
    """Processes whose transactions read before they write get their turn one after the other, without an error."""
    writers = [await children.start(child_bodies.reads_then_writes, 40) for _ in range(3)]
    for writer in writers:
        await writer.reached("ready")
    for writer in writers:
        await writer.release("ready")
    for writer in writers:
        await writer.result()
    assert await store.stream("orders").get_offset("writers") > 0


@leg(rules="X2", since="1.0", needs=("child",))
async def test_first_openings_may_be_at_once(harness: Harness, witness: Witness, children: Children) -> None:
    """Processes that open a database for the first time at the same moment all succeed, on one schema."""
    openers = [await children.start(child_bodies.opens_first) for _ in range(5)]
    for opener in openers:
        await opener.reached("ready")
    for opener in openers:
        await opener.release("ready")
    ids = [await opener.result() for opener in openers]
    assert len(set(ids)) == 5
    assert await witness.jobs("emails") == JobCounts(pending=5)
    async with harness.open() as store:
        assert len(await store.queue("emails").claim_batch("worker", 10)) == 5


@leg(rules="T12 N7", since="1.0", needs=("child",))
async def test_opening_and_closing_disturbs_nobody(store: Store, witness: Witness, children: Children) -> None:
    """While another process opens and closes stores on the same data, nothing acknowledged is lost and wakes come."""
    child = await children.start(child_bodies.opens_and_closes, 25)
    ids: list[int] = []

    async def write() -> None:
        while True:
            ids.append(await store.queue("emails").enqueue("kept"))

    async with store.listen("orders") as receiver, asyncio.TaskGroup() as group:
        writing = group.create_task(write())
        await child.result()
        writing.cancel()
        assert await receiver.recv() == Wake("orders")
    counted = await witness.jobs("emails")
    assert counted.pending - len(ids) in {0, 1}  # the cancelled one took effect, or did not (T13)
    claimed = {handle.job.id for handle in await store.queue("emails").claim_batch("worker", counted.pending)}
    assert set(ids) <= claimed


@leg(rules="T15", since="1.0", needs=("child",))
async def test_forked_child_is_refused(children: Children) -> None:
    """A store is refused in a fork of the process that opened it, and goes on working in that process."""
    child = await children.start(child_bodies.uses_its_store_in_a_fork)
    assert await child.result() == "refused", child.stderr


@leg(rules="T15", since="1.0", needs=("child",))
async def test_forgotten_store_lets_the_process_end(store: Store, witness: Witness, children: Children) -> None:
    """A process that forgets to close its store still ends, with a ResourceWarning and with its writes kept."""
    child = await children.start(child_bodies.forgets_its_store)
    assert await child.result() is None
    assert "ResourceWarning" in child.stderr
    assert await witness.jobs("emails") == JobCounts(pending=1)
    assert await store.queue("emails").claim_one("worker") is not None


@leg(rules="T15", since="1.0")
async def test_other_loop_is_refused(store: Store) -> None:
    """A store is refused on another event loop than its own, and goes on working on that one."""
    outcomes: list[object] = []

    def elsewhere() -> None:
        for use in (store.notify, store.queue("emails").enqueue, store.stream("orders").publish):
            try:
                asyncio.run(use("orders"))
            except DatabaseError:
                outcomes.append("refused")
            except BaseException as error:
                outcomes.append(error)
            else:
                outcomes.append("worked")

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert outcomes == ["refused"] * 3
    async with store.listen("orders") as receiver:
        await store.notify("orders")
        assert await receiver.recv() == Wake("orders")
    with pytest.raises(StopAsyncIteration):
        await anext(aiter(receiver))
