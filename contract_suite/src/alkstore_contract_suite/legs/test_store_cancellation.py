"""Cancellation, of every call of a store at whatever moment: it corrupts nothing (contract section 1)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest
from alkstore_core import (
    StopToken,
    Store,
    Wake,
)
from alkstore_core.errors import AlkstoreError, ClosedError

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.baseline import Baseline
from alkstore_contract_suite.legs.calls import (
    CALLS,
    Subjects,
    grown_since,
    kinds_of_objects,
    subjects_of,
)
from alkstore_contract_suite.legs.cancelled_writes import (
    CASES,
    Scene,
)
from alkstore_contract_suite.proofs import caught_up


async def _turns_of(call: Awaitable[object]) -> int:
    """How many turns of the event loop a call takes here."""
    task, turns = asyncio.ensure_future(call), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


class _Cancelled:
    """What a call that was cancelled comes to."""


_CANCELLED = _Cancelled()


async def _cancelled_after(turns: int, call: Awaitable[Any]) -> Any:
    """The call's result if it was faster, or `_CANCELLED`."""
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return _CANCELLED if task.cancelled() else task.result()


@leg(rules="T13 Q12", since="1.0")
@pytest.mark.parametrize("case", CASES)
async def test_cancelled_write_happens_or_does_not(store: Store, witness: Witness, case: str) -> None:
    """A write cancelled at whatever moment took effect as a whole or not at all, and what returned did take effect."""
    draw, scene, seen = Random(13), Scene(store, witness), []
    call, _, _ = await CASES[case](scene, f"{case} measured")
    turns = await _turns_of(call())
    for number in range(15):
        call, look, effect = await CASES[case](scene, f"{case} {number}")
        before = await look()
        outcome = await _cancelled_after(draw.randrange(turns + 2), call())
        await caught_up(store)
        state = await look()
        assert state == effect(before) or (outcome is _CANCELLED and state == before)
        seen.append((look, state))
    for look, state in seen:
        assert await look() == state


@leg(rules="T13 Q3 Q15", since="1.0")
@pytest.mark.parametrize("n", [1, 3])
async def test_cancelled_claim_is_given_back(store: Store, second_store: Store, n: int) -> None:
    """A claim whose caller was cancelled is held by nobody: the jobs are there for the next, at no cost of attempts."""
    draw, queue, judge = Random(131), store.queue("queue"), second_store.queue("queue")
    await queue.enqueue_many(range(n))
    turns = await _turns_of(store.queue("another").claim_batch("worker", n))
    for _ in range(40):
        outcome = await _cancelled_after(draw.randrange(turns + 4), queue.claim_batch("cancelled", n))
        claims = [] if outcome is _CANCELLED else outcome
        for _ in range(50):  # the engine gives it back in its own time, but by itself
            if len(claims) < n:
                claims += await judge.claim_batch("judge", n - len(claims))
                await caught_up(store)
        assert [claim.job.attempts for claim in claims] == [1] * n
        for claim in claims:
            assert await claim.release()


@leg(rules="T13 L1", since="1.0")
async def test_cancelled_lock_is_given_back(store: Store, second_store: Store) -> None:
    """A lock whose taker was cancelled is held by nobody."""
    draw = Random(132)
    turns = await _turns_of(store.try_lock("measured", "owner", 100))
    for number in range(50):
        name = f"lock {number}"
        lock = await _cancelled_after(draw.randrange(turns + 4), store.try_lock(name, "cancelled", 100))
        if lock is not _CANCELLED:
            assert lock is not None
            assert await lock.release()
        for _ in range(50):
            lock = await second_store.try_lock(name, "judge", 100)
            if lock is not None:
                break
            await caught_up(store)
        assert lock is not None


@leg(rules="T13 L2", since="1.0")
async def test_cancelled_asking_again_keeps_the_lock(store: Store, witness: Witness) -> None:
    """An owner's second try_lock that is cancelled leaves the lock with that owner."""
    draw = Random(133)
    lock = await store.try_lock("lock", "owner", 100)
    assert lock is not None
    row = await witness.lock("lock")
    turns = await _turns_of(store.try_lock("lock", "owner", 100))
    for _ in range(30):
        again = await _cancelled_after(draw.randrange(turns + 2), store.try_lock("lock", "owner", 100))
        assert again is _CANCELLED or again.token == lock.token
        await caught_up(store)
        assert await witness.lock("lock") == row
    assert await lock.renew(10)


@leg(rules="T13 T9", since="1.0")
async def test_cancelled_begin_leaves_no_transaction(harness: Harness, store: Store, witness: Witness) -> None:
    """A begin_tx that was cancelled, waiting for its turn or not, leaves nothing that keeps others from writing."""
    draw = Random(134)

    async def begin_and_roll_back() -> None:
        async with store.begin_tx():
            pass

    turns = await _turns_of(begin_and_roll_back())
    async with harness.open(patience_s=2.0) as other:
        for number in range(60):
            async with AsyncExitStack() as until_cancelled:
                if number % 2:
                    await until_cancelled.enter_async_context(other.begin_tx())
                tx = await _cancelled_after(draw.randrange(turns + 2), store.begin_tx())
                if tx is not _CANCELLED:
                    await tx.rollback()
            await other.queue("after").enqueue(number)
            await store.queue("after").enqueue(number)
    assert await witness.jobs("after") == JobCounts(pending=120)


@leg(rules="T13 T4 T3", since="1.0")
async def test_cancelled_transaction_happens_or_does_not(harness: Harness, store: Store, witness: Witness) -> None:
    """A transaction block cancelled at whatever moment is there as a whole or not at all, and others write at once."""
    draw = Random(135)

    async def work(name: str) -> None:
        async with store.transaction() as tx:
            await tx.enqueue(name, 1)
            await harness.write(tx, name)
            await tx.publish(name, 1)
            await tx.save_offset(name, "reader", 1)

    turns = await _turns_of(work("measured"))
    async with harness.open(patience_s=2.0) as other:
        for number in range(70):
            name = f"name {number}"
            outcome = await _cancelled_after(draw.randrange(turns + 2), work(name))
            await other.queue("after").enqueue(number)
            whole = 1, 1, 1, 1
            business = (await witness.business()).count(name)
            jobs, events = await witness.jobs(name), await witness.events(name)
            there = jobs.pending, business, len(events), await witness.offset(name, "reader") or 0
            assert there == whole or (outcome is _CANCELLED and there == (0, 0, 0, 0))
    assert await witness.jobs("after") == JobCounts(pending=70)


@leg(rules="T13 T8 T14", since="1.0")
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_cancelled_end_is_decided(harness: Harness, store: Store, witness: Witness, end: str) -> None:
    """A commit or rollback whose caller is cancelled is decided once the cancellation arrives; the handle is closed."""
    draw = Random(136)
    async with store.begin_tx() as tx:
        await tx.enqueue("measured", 1)
        turns = await _turns_of(getattr(tx, end)())
    async with harness.open(patience_s=2.0) as other:
        for number in range(40):
            name = f"name {number}"
            async with store.begin_tx() as tx:
                await tx.enqueue(name, 1)
                await tx.publish(name, 1)
                # At least one turn: a task that is cancelled before its first step has not called anything.
                outcome = await _cancelled_after(1 + draw.randrange(turns + 1), getattr(tx, end)())
                there = (await witness.jobs(name)).pending, len(await witness.events(name))
                assert there == ((1, 1) if end == "commit" else (0, 0)) or (outcome is _CANCELLED and there == (0, 0))
                with pytest.raises(ClosedError):
                    await tx.rollback()
            await other.queue("after").enqueue(number)
            assert there == ((await witness.jobs(name)).pending, len(await witness.events(name)))
    assert await witness.jobs("after") == JobCounts(pending=40)


@leg(rules="T13 T6", since="1.0")
async def test_cancelled_call_on_a_transaction_tells_no_lie(store: Store, witness: Witness) -> None:
    """After cancelled calls a transaction commits what it shows, or fails and leaves nothing."""
    draw = Random(137)
    for number in range(12):
        name = f"name {number}"
        returned = shown = 0
        try:
            async with store.transaction() as tx:
                turns = await _turns_of(tx.publish(name, 1))
                for _ in range(8):
                    outcome = await _cancelled_after(draw.randrange(turns + 2), tx.publish(name, 1))
                    returned += outcome is not _CANCELLED
                shown = len(await tx.read_since(name, 0))
                assert 1 + returned <= shown <= 9
        except AlkstoreError:  # the cancelled statement broke it, and it says so
            shown = 0
        assert len(await witness.events(name)) == shown
        await store.queue("after").enqueue(number)


@leg(rules="T13", since="1.0")
async def test_cancelled_caller_harms_no_other(store: Store, second_store: Store, witness: Witness) -> None:
    """Of many writes in flight together some are cancelled: all others succeed, with what they were told."""
    draw = Random(138)
    turns = await _turns_of(asyncio.gather(*(store.queue("measured").enqueue(n) for n in range(24))))
    for number in range(25):
        queue, stream = f"queue {number}", f"stream {number}"
        works = [
            asyncio.create_task(each.queue(queue).enqueue(n) if n % 2 else each.stream(stream).publish(n))
            for each in (store, store, second_store)
            for n in range(12)
        ]
        doomed = set(draw.sample(works, 12))
        for _ in range(draw.randrange(turns + 1)):
            await asyncio.sleep(0)
        for work in doomed:
            work.cancel()
        await asyncio.wait(works)
        for each in (store, second_store):
            await caught_up(each)
        told = [work.result() for work in works if not work.cancelled()]
        assert len(told) >= len(works) - len(doomed)
        offsets = await witness.events(stream)
        ids = {claim.job.id for claim in await store.queue(queue).claim_batch("worker", 100)}
        done = [work for work in works if not work.cancelled()]
        assert {work.result() for work in done if works.index(work) % 2} <= ids
        assert {work.result() for work in done if works.index(work) % 2 == 0} <= set(offsets)
        assert len(ids) + len(offsets) <= len(works)


@leg(rules="T13", since="1.0")
async def test_cancelled_read_harms_nothing(store: Store) -> None:
    """Reads that are cancelled leave the store as it was, and later ones work."""
    draw, its = Random(139), await subjects_of(store)
    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: its.queue.get_job(its.handle.job.id),
        lambda: its.stream.read_since(0),
        lambda: its.stream.read_from_consumer("reader"),
        lambda: its.stream.get_offset("reader"),
        its.events.try_recv,
    ]
    expected = [await read() for read in reads]
    turns = await _turns_of(reads[1]())
    for number in range(150):
        await _cancelled_after(draw.randrange(turns + 2), reads[number % len(reads)]())
    assert [await read() for read in reads] == expected
    assert await its.handle.ack()


@leg(rules="T13 N2 S7", since="1.0")
async def test_cancelled_listening_leaves_nothing(harness: Harness) -> None:
    """A listen or subscribe that is cancelled leaves nothing behind, and later ones hear."""
    baseline, draw = await Baseline.of(harness), Random(140)
    async with harness.open() as store:
        turns = await _turns_of(store.listen("channel"))

        async def listen_in_vain(times: int) -> None:
            for number in range(times):
                opening: Awaitable[Any] = (
                    store.listen("channel") if number % 2 else store.stream("stream").subscribe("reader")
                )
                receiver = await _cancelled_after(draw.randrange(turns + 2), opening)
                if receiver is not _CANCELLED:
                    await receiver.close()

        await listen_in_vain(20)
        kinds = kinds_of_objects()
        await listen_in_vain(160)
        assert grown_since(kinds, by_more_than=30) == {}
        async with store.listen("channel") as receiver:
            await store.notify("channel")
            assert await receiver.recv() == Wake("channel")
    baseline.check()


@leg(rules="T13 T12", since="1.0")
async def test_cancelled_open_leaves_nothing(harness: Harness) -> None:
    """An opening that is cancelled leaves no task, thread or file behind, and the next one works."""
    baseline, draw = await Baseline.of(harness), Random(141)

    async def open_and_close() -> None:
        async with harness.open():
            pass

    turns = await _turns_of(open_and_close())
    for number in range(60):
        opened = await _cancelled_after(1 if number % 2 else draw.randrange(turns + 2), harness.open())
        if opened is not _CANCELLED:
            await opened.close()
    baseline.check()
    async with harness.open() as store:
        await store.queue("after").enqueue(1)


@leg(rules="T13 H3", since="1.0")
async def test_cancelled_scheduler_lets_go(store: Store, second_store: Store, harness: Harness) -> None:
    """A cancelled run_schedules leads no more: the next runner fires at once."""
    draw = Random(142)
    await store.schedule("schedule", "@every 1s", "queue", 1)
    queue = second_store.queue("queue")
    for _ in range(20):
        await _cancelled_after(draw.randrange(40), store.run_schedules(StopToken()))
        await caught_up(store)
        for left in await queue.claim_batch("worker", 100):
            assert await left.ack()
        stop, claim = StopToken(), None
        async with asyncio.TaskGroup() as group:
            group.create_task(second_store.run_schedules(stop))
            for turn in range(300):
                if turn % 30 == 0:
                    await harness.advance(1)  # ten times at most: a leader that is gone would lead for longer
                claim = await queue.claim_one("worker")
                if claim is not None:
                    break
            assert claim is not None
            assert await claim.ack()
            stop.cancel()


@leg(rules="T13 T12", since="1.0")
async def test_cancellations_leave_nothing_running(harness: Harness) -> None:
    """After every call was cancelled at random moments, and the store closed, no task, thread or file is left."""
    baseline, draw = await Baseline.of(harness), Random(143)
    async with harness.open() as store:
        subjects = await subjects_of(store)
        for call in [call for name, call in CALLS.items() if name != "Store.enlist"] * 4:
            await _cancelled_after(draw.randrange(20), _called(call, subjects))
        await store.queue("after").enqueue(1)
        async with store.transaction() as tx:
            await tx.enqueue("after", 1)
    baseline.check()


async def _called(call: Callable[[Subjects], Awaitable[object]], subjects: Subjects) -> object:
    return await call(subjects)
