"""The store, from opening it to closing it (contract section 1)."""

import asyncio
import inspect
from contextlib import AbstractAsyncContextManager
from random import Random

import pytest
from alkstore_core import (
    EventReceiver,
    Store,
    Transaction,
    Wake,
    WakeReceiver,
)
from alkstore_core.errors import ClosedError, DatabaseError

from alkstore_contract_suite.harness import Harness, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.baseline import Baseline
from alkstore_contract_suite.legs.calls import (
    CALLS,
    subjects_of,
)

# opening


@leg(rules="X1 T12", since="1.0")
async def test_opened_by_await_or_with(harness: Harness) -> None:
    """What opens a store is awaited, to be closed by you, or entered, to be closed at the end."""
    awaited = await harness.open()
    try:
        assert await awaited.queue("queue").enqueue(1) > 0
        async with harness.open() as entered:
            assert await entered.queue("queue").claim_one("worker") is not None
        with pytest.raises(ClosedError):
            await entered.queue("queue").enqueue(1)
        assert await awaited.queue("queue").claim_one("worker") is None
    finally:
        await awaited.close()
    with pytest.raises(ClosedError):
        await awaited.queue("queue").enqueue(1)


@leg(rules="X1 N4 S7 T5", since="1.0")
async def test_others_are_opened_by_await_or_with(store: Store) -> None:
    """So are receivers and explicit transactions: entered, they are closed or rolled back at the end."""
    listened, subscribed = await store.listen("channel"), await store.stream("stream").subscribe("reader")
    async with store.listen("channel") as wakes, store.stream("stream").subscribe("reader") as events:
        assert (type(wakes), type(events)) == (WakeReceiver, EventReceiver)
    for closed in (wakes, events):
        assert await closed.recv() is None
    await store.notify("channel")
    offset = await store.stream("stream").publish(1)
    assert await listened.recv() == Wake("channel")
    event = await subscribed.recv()
    assert event is not None
    assert event.offset == offset
    async with store.begin_tx() as tx:
        assert type(tx) is Transaction
        await tx.enqueue("queue", 1)
    with pytest.raises(ClosedError):
        await tx.commit()
    assert await store.queue("queue").claim_one("worker") is None
    tx = await store.begin_tx()
    await tx.enqueue("queue", 1)
    await tx.commit()
    assert await store.queue("queue").claim_one("worker") is not None
    for opening in (store.listen("channel"), store.stream("stream").subscribe("reader"), store.begin_tx()):
        assert isinstance(opening, AbstractAsyncContextManager)
        assert inspect.isawaitable(opening)


# closing


@leg(rules="T12", since="1.0")
async def test_closed_store_refuses_everything(harness: Harness) -> None:
    """After close every operation of the store and its handles raises ClosedError, and receivers have ended."""
    async with harness.open() as store:
        subjects = await subjects_of(store)
    for call in CALLS.values():
        with pytest.raises(ClosedError):
            await call(subjects)
    for receiver in (subjects.receiver, subjects.events):
        assert await receiver.recv() is None
        with pytest.raises(ClosedError):
            await receiver.try_recv()
        await receiver.close()


@leg(rules="T12", since="1.0")
async def test_close_is_idempotent(harness: Harness) -> None:
    """Closing again, and from many tasks at once, is no error, and each call returns when the store is closed."""
    async with harness.open() as store:
        subjects = await subjects_of(store)
        await asyncio.gather(*(store.close() for _ in range(5)))
        await store.close()
        with pytest.raises(ClosedError):
            await subjects.queue.enqueue(1)
    await store.close()


@leg(rules="T12 T13", since="1.0")
async def test_cancelled_close_is_seen_through(harness: Harness) -> None:
    """A close that is cancelled, however often, still closes: a second one returns, and nothing works any more."""
    draw = Random(12)
    for _ in range(15):
        store = await harness.open()
        subjects = await subjects_of(store)
        closing = asyncio.create_task(store.close())
        for _ in range(3):
            for _ in range(draw.randrange(4)):
                await asyncio.sleep(0)
            closing.cancel()
        await asyncio.wait([closing])
        await store.close()
        assert await subjects.receiver.recv() is None
        with pytest.raises(ClosedError):
            await subjects.queue.enqueue(1)


@leg(rules="T12", since="1.0")
async def test_close_leaves_nothing_running(harness: Harness) -> None:
    """After close no task, thread or connection of the store remains, whatever was in use."""
    baseline = await Baseline.of(harness)
    for _ in range(5):
        store = await harness.open()
        subjects = await subjects_of(store)
        tx = await store.begin_tx()
        await tx.enqueue("queue", 1)
        await tx.commit()
        undecided = await store.begin_tx()
        await undecided.enqueue("queue", 1)
        waiting: list[asyncio.Task[object]] = [
            asyncio.create_task(subjects.receiver.recv()),
            asyncio.create_task((await store.stream("quiet").subscribe("reader")).recv()),
        ]
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*waiting) == [None, None]
        with pytest.raises(ClosedError):
            await undecided.commit()
        baseline.check()


@leg(rules="T12", since="1.0")
async def test_closing_one_store_leaves_others_alone(store: Store, second_store: Store) -> None:
    """Closing a store closes it only: another one on the same data keeps its data, receivers, locks and claims."""
    subjects = await subjects_of(store)
    lock = await second_store.try_lock("leader", "owner", 100)
    assert lock is not None
    await second_store.stream("stream").publish(1)
    await second_store.close()
    assert await subjects.handle.ack()
    assert await subjects.lock.renew(10)
    assert await store.try_lock("leader", "another", 100) is None
    assert len(await store.stream("stream").read_since(0)) == 1
    await store.notify("subject")
    assert await subjects.receiver.recv() == Wake("subject")


@leg(rules="T12", since="1.0")
async def test_close_loses_nothing_under_way(harness: Harness, store: Store, witness: Witness) -> None:
    """An operation under way when its store closes finishes or fails, truthfully; none hangs and none is lost."""
    del store  # it keeps the data
    draw = Random(120)

    async def transact(other: Store, name: str) -> None:
        async with other.transaction() as tx:
            await tx.enqueue(name, 1)
            await tx.publish(name, 1)

    for number in range(15):
        other = await harness.open()
        names = [f"{number} {which}" for which in range(12)]
        works = [asyncio.create_task(other.queue(name).enqueue(1)) for name in names[:4]]
        works += [asyncio.create_task(other.stream(name).publish(1)) for name in names[4:8]]
        transactions = [asyncio.create_task(transact(other, name)) for name in names[8:]]
        for _ in range(draw.randrange(25)):
            await asyncio.sleep(0)
        await other.close()
        outcomes = await asyncio.gather(*works, *transactions, return_exceptions=True)
        for name, outcome in zip(names, outcomes, strict=True):
            there = (await witness.jobs(name)).pending, len(await witness.events(name))
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, ClosedError | DatabaseError)
                assert there == (0, 0)
            else:
                assert there == {0: (1, 0), 1: (0, 1), 2: (1, 1)}[names.index(name) // 4]
