"""Queues, settling: ack, heartbeat, fail, retry and release, and what each leaves of the job (contract section 7)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from alkstore_core import JobState, Store
from alkstore_core.numbers import INT64_MAX, INT64_MIN
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.jobs import claim_from, row_of


@leg(rules="Q6", since="1.0")
async def test_ack_deletes_the_row(store: Store, witness: Witness) -> None:
    """`ack` deletes the row, and only that."""
    queue = store.queue("emails")
    await queue.enqueue_many(["acked", "kept"])
    handle, kept = await queue.claim_batch("worker", 2)
    assert await handle.ack()
    assert await queue.get_job(handle.job.id) is None
    assert await row_of(queue, kept.job.id) == kept.job
    assert await witness.jobs("emails") == JobCounts(processing=1)


@leg(rules="Q6", since="1.0")
async def test_heartbeat_sets_the_deadline(harness: Harness, store: Store, clock: ManualClock) -> None:
    """`heartbeat` sets the deadline to now + extend, later or sooner, again and again, and changes nothing else."""
    queue = store.queue("emails", visibility_timeout_s=30)
    await queue.enqueue("hello")
    handle = await claim_from(queue)
    for extend in (30, 100, 5, 5, 1000):
        await harness.advance(4)
        assert await handle.heartbeat(extend)
        assert await row_of(queue, handle.job.id) == replace(handle.job, claim_expires_at=clock.now() + extend)


@leg(rules="Q6", since="1.0")
async def test_heartbeats_keep_a_claim(harness: Harness, store: Store) -> None:
    """A claim that is heartbeaten in time lasts past its first deadline, and lapses at the last one."""
    queue = store.queue("emails", visibility_timeout_s=10)
    job_id = await queue.enqueue("hello")
    handle = await claim_from(queue)
    for _ in range(5):
        await harness.advance(9)
        assert await queue.claim_one("other") is None
        assert await handle.heartbeat(10)
    await harness.advance(10)
    assert not await handle.heartbeat(10)
    assert (await claim_from(queue, "other")).job.id == job_id


@pytest.mark.parametrize("extend", [0, -1, INT64_MIN])
@leg(rules="Q6 V5", since="1.0")
async def test_heartbeat_voids_a_claim(store: Store, clock: ManualClock, extend: int) -> None:
    """`heartbeat` by 0 or less ends the claim: the job is anybody's at once, and the handle can do nothing more."""
    queue = store.queue("emails")
    job_id = await queue.enqueue("hello")
    handle = await claim_from(queue)
    assert await handle.heartbeat(extend)
    assert (await row_of(queue, job_id)).claim_expires_at == clock.now() + extend
    assert not await handle.heartbeat(1000)
    assert not await handle.ack()
    assert (await claim_from(queue)).job.attempts == 2


@leg(rules="Q6 V5", since="1.0")
async def test_heartbeat_saturates(harness: Harness, store: Store) -> None:
    """`heartbeat` by the largest int64 sets the deadline to the int64 limit, and the claim does not lapse."""
    queue = store.queue("emails")
    job_id = await queue.enqueue("hello")
    handle = await claim_from(queue)
    assert await handle.heartbeat(INT64_MAX)
    assert (await row_of(queue, job_id)).claim_expires_at == INT64_MAX
    await harness.advance(10**12)
    assert await queue.claim_one("other") is None
    assert await handle.heartbeat(10)


@pytest.mark.parametrize(("given", "kept"), [(("no such address",), "no such address"), ((), "failed"), (("",), "")])
@leg(rules="Q6 Q9", since="1.0")
async def test_fail_buries(
    harness: Harness, store: Store, clock: ManualClock, witness: Witness, given: tuple[str, ...], kept: str
) -> None:
    """`fail` makes the job a dead letter at once, with its error or "failed", and all else stays."""
    queue = store.queue("emails", visibility_timeout_s=30, max_attempts=10)
    await queue.enqueue("hello")
    handle = await claim_from(queue)
    await harness.advance(5)
    assert await handle.fail(*given)
    dead = replace(handle.job, state=JobState.DEAD, last_error=kept, died_at=clock.now())
    assert await row_of(queue, dead.id) == dead
    await harness.advance(30)
    assert await queue.claim_one("worker") is None
    assert await witness.jobs("emails") == JobCounts(dead=1)


@pytest.mark.parametrize("delay", [0, 1, 60, -60, INT64_MIN, INT64_MAX])
@leg(rules="Q7 Q9 V5", since="1.0")
async def test_retry_makes_it_wait(harness: Harness, store: Store, clock: ManualClock, delay: int) -> None:
    """`retry` makes the job pending again, without a claim, ready at now + delay held within int64, with its error."""
    queue = store.queue("emails")
    pending = await row_of(queue, await queue.enqueue("hello", priority=3, expires=10**9))
    handle = await claim_from(queue)
    await harness.advance(5)
    assert await handle.retry("busy", delay)
    ready_at = min(clock.now() + delay, INT64_MAX)
    assert await row_of(queue, pending.id) == replace(pending, ready_at=ready_at, attempts=1, last_error="busy")


@leg(rules="Q3 Q7", since="1.0")
async def test_retried_job_waits(harness: Harness, store: Store) -> None:
    """A retried job is claimed by nobody before its delay has passed, and then as its next attempt."""
    queue = store.queue("emails", visibility_timeout_s=10)
    await queue.enqueue("hello")
    assert await (await claim_from(queue)).retry("busy", 60)
    await harness.advance(59)
    assert await queue.claim_one("worker") is None
    await harness.advance(1)
    handle = await claim_from(queue, "another")
    assert (handle.job.attempts, handle.job.last_error) == (2, "busy")


@pytest.mark.parametrize("delay", [None, 0, 60])
@leg(rules="Q7 Q9", since="1.0")
async def test_last_retry_buries(store: Store, clock: ManualClock, delay: int | None) -> None:
    """`retry` of the last attempt makes the job a dead letter with that error, whatever the delay."""
    queue = store.queue("emails", max_attempts=2)
    await queue.enqueue("hello")
    assert await (await claim_from(queue, "first")).retry("first", 0)
    handle = await claim_from(queue, "second")
    assert await handle.retry("second", delay)
    dead = replace(handle.job, state=JobState.DEAD, last_error="second", died_at=clock.now())
    assert await row_of(queue, dead.id) == dead
    assert await queue.claim_one("worker") is None


@pytest.mark.parametrize(
    ("base", "caps"),
    [
        (5, [5, 10, 20, 40]),
        (1, [1, 2, 4, 8]),
        (0, [0, 0, 0, 0]),
        (2**61, [2**61, 2**62, INT64_MAX, INT64_MAX]),
        (INT64_MAX, [INT64_MAX] * 4),
    ],
)
@leg(rules="Q7", since="1.0")
async def test_backoff_doubles(store: Store, clock: ManualClock, base: int, caps: list[int]) -> None:
    """Without a delay, the wait is drawn from [cap // 2, cap], where cap is base * 2^(attempts - 1), saturating."""
    queue = store.queue("emails", backoff_base_s=base, max_attempts=100)
    for attempt, cap in enumerate(caps, 1):
        for pick in (min, max):
            job_id = await queue.enqueue("hello")
            for _ in range(attempt - 1):
                assert await (await claim_from(queue)).retry("before", 0)
            handle = await claim_from(queue)
            asked: list[tuple[int, int]] = []

            def draw(low: int, high: int, pick: Callable[..., int] = pick, asked: list[Any] = asked) -> int:
                asked.append((low, high))
                return pick(low, high)

            store.draw = draw
            assert await handle.retry("busy")
            assert asked == [(cap // 2, cap)]
            assert (await row_of(queue, job_id)).ready_at == min(clock.now() + pick(cap // 2, cap), INT64_MAX)
            assert await queue.cancel(job_id)


@leg(rules="Q7", since="1.0")
async def test_backoff_is_drawn_anew(store: Store, clock: ManualClock) -> None:
    """The wait is random: over many retries each whole second of its range comes up, and no other."""
    queue = store.queue("emails", backoff_base_s=3)
    ids = await queue.enqueue_many(range(100))
    assert all(await asyncio.gather(*(handle.retry("busy") for handle in await queue.claim_batch("worker", 100))))
    jobs = await asyncio.gather(*(row_of(queue, job_id) for job_id in ids))
    assert {job.ready_at - clock.now() for job in jobs} == {1, 2, 3}


@leg(rules="Q15", since="1.0")
async def test_release_gives_back(harness: Harness, store: Store, clock: ManualClock, witness: Witness) -> None:
    """`release` makes the job pending again, without a claim, ready now, the attempt not counted; all else stays."""
    queue = store.queue("emails")
    pending = await row_of(queue, await queue.enqueue("hello", priority=3))
    assert await (await claim_from(queue)).retry("busy", 0)
    handle = await claim_from(queue)
    await harness.advance(7)
    assert await handle.release()
    released = replace(pending, ready_at=clock.now(), attempts=1, last_error="busy")
    assert await row_of(queue, pending.id) == released
    assert await witness.jobs("emails") == JobCounts(pending=1)
    assert (await claim_from(queue, "another")).job.attempts == 2


@leg(rules="Q15", since="1.0")
async def test_release_burns_no_attempt(store: Store, second_store: Store) -> None:
    """However often a job is released, it is claimable at once and never dies of it, its last attempt too."""
    queue, other = store.queue("emails", max_attempts=1), second_store.queue("emails")
    job_id = await queue.enqueue("hello")
    for _ in range(5):
        handle = await claim_from(queue)
        assert (handle.job.id, handle.job.attempts) == (job_id, 1)
        assert await handle.release()
        handle = await claim_from(other)
        assert (handle.job.id, handle.job.attempts) == (job_id, 1)
        assert await handle.release()
