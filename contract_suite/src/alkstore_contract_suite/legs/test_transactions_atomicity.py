"""Transactions, everything at the commit, or nothing, and what is no part of one (contract section 1)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from alkstore_core import Store, Transaction, Wake, WakeReceiver
from alkstore_core.errors import AlkstoreError, ClosedError, CommitUnknownError, DatabaseError

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.traces import Broken, fill, left_no_trace, never_called
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
        assert not await either.outbox("mail").run_once("worker", never_called)
    assert await witness.jobs("emails") == JobCounts()
    assert await witness.events("orders") == []
    assert await witness.offset("orders", "reader") is None
    assert await witness.business() == []


# no ghosts


async def _raise(harness: Harness, store: Store) -> None:
    broken = Broken()

    async def work() -> None:
        async with store.transaction() as tx:
            await fill(harness, tx)
            raise broken

    with pytest.raises(Broken) as caught:
        await work()
    assert caught.value is broken


async def _be_cancelled(harness: Harness, store: Store) -> None:
    filled = asyncio.Event()

    async def work() -> None:
        async with store.transaction() as tx:
            await fill(harness, tx)
            filled.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await filled.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _roll_back_inside(harness: Harness, store: Store) -> None:
    async with store.transaction() as tx:
        await fill(harness, tx)
        await tx.rollback()


async def _leave_undecided(harness: Harness, store: Store) -> None:
    async with store.begin_tx() as tx:
        await fill(harness, tx)


async def _raise_undecided(harness: Harness, store: Store) -> None:
    async def work() -> None:
        async with store.begin_tx() as tx:
            await fill(harness, tx)
            raise Broken

    with pytest.raises(Broken):
        await work()


async def _drop(harness: Harness, store: Store) -> None:
    async def forget() -> None:
        await fill(harness, await store.begin_tx())

    with pytest.warns(ResourceWarning):
        await forget()


async def _close_the_store(harness: Harness, store: Store) -> None:
    tx = await store.begin_tx()
    await fill(harness, tx)
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
        await left_no_trace(second_store, receiver, witness)


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
                await fill(harness, tx)
                await harness.spoil(tx)
        else:
            tx = await store.begin_tx()
            made.append(tx)
            await fill(harness, tx)
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
        await left_no_trace(second_store, receiver, witness)
    assert await witness.jobs("after") == JobCounts(pending=36)
