"""Queues, a claim's own rights: only who holds a live claim can settle it (contract section 7)."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from alkstore_core import Store

from alkstore_contract_suite.harness import Harness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.jobs import ACTS, Act, at_once, claim_from, each_act, row_of


@each_act
@leg(rules="Q5 Q6 Q7 Q15", since="1.0")
async def test_act_lands_before_the_deadline(harness: Harness, store: Store, act: Act) -> None:
    """In the last second before the deadline a claim is live."""
    queue = store.queue("emails", visibility_timeout_s=30)
    job_id = await queue.enqueue("hello")
    handle = await claim_from(queue)
    await harness.advance(29)
    assert await act(handle)
    assert await queue.get_job(job_id) != handle.job


@each_act
@leg(rules="Q5", since="1.0")
async def test_late_act_is_refused(harness: Harness, store: Store, act: Act) -> None:
    """From its deadline on a claim can do nothing: False, and the row stays as it was."""
    queue = store.queue("emails", visibility_timeout_s=30)
    job_id = await queue.enqueue("hello")
    handle = await claim_from(queue)
    await harness.advance(30)
    assert not await act(handle)
    assert await row_of(queue, job_id) == handle.job
    assert (await claim_from(queue)).job.id == job_id


@each_act
@leg(rules="Q5 Q15", since="1.0")
async def test_late_act_of_the_last_attempt_is_refused(harness: Harness, store: Store, act: Act) -> None:
    """From its deadline on a claim of the last attempt can do nothing either."""
    queue = store.queue("emails", visibility_timeout_s=30, max_attempts=1)
    job_id = await queue.enqueue("hello")
    handle = await claim_from(queue)
    await harness.advance(30)
    assert not await act(handle)
    assert await row_of(queue, job_id) == handle.job


@each_act
@pytest.mark.parametrize("successor", ["another", "the same"])
@leg(rules="Q5", since="1.0")
async def test_stale_act_spares_the_successor(
    harness: Harness, store: Store, second_store: Store, act: Act, successor: str
) -> None:
    """Once a job was claimed anew, by another worker or the same, the old handle changes nothing of the new claim."""
    queue = store.queue("emails", visibility_timeout_s=30)
    await queue.enqueue("hello")
    stale = await claim_from(queue, "the same")
    await harness.advance(30)
    current = await claim_from(second_store.queue("emails"), successor)
    assert not await act(stale)
    assert await row_of(queue, current.job.id) == current.job
    assert await current.ack()


@each_act
@leg(rules="Q5 Q15", since="1.0")
async def test_stale_act_spares_an_equal_claim(store: Store, act: Act) -> None:
    """A handle that was released can do nothing to a later claim by the same worker with the same attempt number."""
    queue = store.queue("emails")
    await queue.enqueue("hello")
    stale = await claim_from(queue)
    assert await stale.release()
    current = await claim_from(queue)
    assert current.job == stale.job
    assert not await act(stale)
    assert await row_of(queue, current.job.id) == current.job
    assert await current.ack()


@pytest.mark.parametrize("first", [name for name in ACTS if name != "heartbeat"])
@leg(rules="Q5 Q6 Q7", since="1.0")
async def test_settled_claim_can_do_nothing(store: Store, first: str) -> None:
    """A handle that settled its claim can do nothing more to the job."""
    queue = store.queue("emails")
    job_id = await queue.enqueue("hello")
    handle = await claim_from(queue)
    assert await ACTS[first](handle)
    after = await queue.get_job(job_id)
    for name, act in ACTS.items():
        assert not await act(handle), name
    assert await queue.get_job(job_id) == after


@each_act
@leg(rules="Q5 Q8", since="1.0")
async def test_cancelled_job_can_be_settled_no_more(store: Store, act: Act) -> None:
    """`cancel` does not interrupt a worker: its handle finds every act False, and the job stays away."""
    queue = store.queue("emails")
    job_id = await queue.enqueue("hello")
    handle = await claim_from(queue)
    assert await queue.cancel(job_id)
    assert not await act(handle)
    assert await queue.get_job(job_id) is None


@leg(rules="Q5", since="1.0")
async def test_live_claim_outlives_expiry(harness: Harness, store: Store) -> None:
    """A job that expires while it is claimed can still be settled by its live claim."""
    queue = store.queue("emails", visibility_timeout_s=30)
    job_id = await queue.enqueue("hello", expires=10)
    handle = await claim_from(queue)
    await harness.advance(20)
    assert await handle.heartbeat(30)
    assert await handle.ack()
    assert await queue.get_job(job_id) is None


@leg(rules="Q5", since="1.0")
async def test_one_settling_lands(store: Store, second_store: Store) -> None:
    """Of all that settle, cancel or batch-ack one claim at the same moment, exactly one lands."""
    queue, other = store.queue("emails"), second_store.queue("emails")
    for turn in range(20):
        job_id = await queue.enqueue("hello")
        handle = await claim_from(queue)
        acts: list[Callable[[], Awaitable[bool | int]]] = [
            handle.ack,
            handle.ack,
            partial(handle.fail, "raced"),
            partial(handle.retry, "raced", 1000),
            partial(other.ack_batch, "worker", [job_id]),
        ]
        landed = await at_once(*acts[turn % 5 :], *acts[: turn % 5])
        assert sorted(map(int, landed)) == [0, 0, 0, 0, 1]


@leg(rules="Q5", since="1.0")
async def test_late_ack_spares_a_concurrent_reclaim(harness: Harness, store: Store, second_store: Store) -> None:
    """An ack at the moment when somebody else takes a lapsed job over is False, and the new claim stands."""
    queue = store.queue("emails", visibility_timeout_s=10, max_attempts=100)
    other = second_store.queue("emails")
    await queue.enqueue("hello")
    late = await claim_from(queue, "late")
    for turn in range(20):
        await harness.advance(10)
        works: list[Callable[[], Awaitable[Any]]] = [late.ack, late.ack, late.ack]
        works.insert(turn % 4, partial(other.claim_one, "successor"))
        results = await at_once(*works)
        successor = results.pop(turn % 4)
        assert results == [False] * 3
        assert successor is not None
        assert await row_of(queue, successor.job.id) == successor.job
        late = successor
