"""Transactions, transaction() and begin_tx(): who decides, and what is left to do after that (contract section 1)."""

import asyncio
import gc
import inspect
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest
from alkstore_core import Store, Transaction
from alkstore_core.errors import ClosedError, CodecError

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.calls import TX_CALLS, collect_quietly
from alkstore_contract_suite.legs.traces import Broken, fill

# transaction() and begin_tx()


@leg(rules="T4", since="1.0")
async def test_block_commits_on_a_clean_exit(harness: Harness, store: Store, witness: Witness) -> None:
    """The end of a transaction block is a commit."""
    async with store.transaction() as tx:
        offset = await fill(harness, tx)
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
            raise Broken

    with pytest.raises(Broken):
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


@leg(rules="T5", since="1.0")
async def test_handle_that_a_task_returned_and_nobody_took(harness: Harness, witness: Witness) -> None:
    """A handle is dropped with the task that began it and whose result it is: nothing of the engine keeps either."""
    async with harness.open(patience_s=2.0) as store:

        async def begun() -> Transaction:
            tx = await store.begin_tx()
            await tx.enqueue("emails", 1)
            return tx

        collect_quietly()
        tasks = [asyncio.ensure_future(begun())]
        await asyncio.wait(tasks)
        with pytest.warns(ResourceWarning):
            tasks.clear()
        async with store.transaction() as tx:
            await tx.enqueue("after", 1)
    assert await witness.jobs("emails") == JobCounts()
    assert await witness.jobs("after") == JobCounts(pending=1)


# after its end


@leg(rules="T3 T8", since="1.0")
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_late_statement_lands_nowhere(harness: Harness, store: Store, witness: Witness, end: str) -> None:
    """Who kept tx.connection beyond the end writes with it into nobody's transaction, and is told."""
    ended = await store.begin_tx()
    kept = cast("Transaction", SimpleNamespace(connection=ended.connection))
    await harness.write(kept, "in time")
    await (ended.commit() if end == "commit" else ended.rollback())
    async with store.transaction() as tx:
        await harness.write(tx, "mine")
        with pytest.raises(Exception):  # noqa: B017, PT011 - the driver's own, whichever it is
            await harness.write(kept, "astray")
    assert await witness.business() == (["in time", "mine"] if end == "commit" else ["mine"])


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
