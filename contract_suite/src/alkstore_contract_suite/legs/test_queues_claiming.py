"""Queues, claiming: which job is next, who gets it, and what that costs (contract section 7)."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from alkstore_core import JobHandle, JobState, Queue, Store
from alkstore_core.numbers import INT64_MAX, INT64_MIN
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.jobs import at_once, buried_in, claim_from, row_of


@leg(rules="Q3 Q11", since="1.0")
async def test_claim_order(store: Store, clock: ManualClock) -> None:
    """Jobs are claimed by priority descending, then by ready time, then by id."""
    queue, now = store.queue("emails"), clock.now()
    late = await queue.enqueue("late", run_at=now)
    early = await queue.enqueue("early", run_at=now - 10)
    early_too = await queue.enqueue("early too", run_at=now - 10)
    urgent = await queue.enqueue("urgent", priority=1)
    background = await queue.enqueue("background", priority=-1, run_at=now - 100)
    batch = await queue.claim_batch("worker", 4)
    rest = await queue.claim_batch("worker", 4)
    assert [handle.job.id for handle in batch] == [urgent, early, early_too, late]
    assert [handle.job.id for handle in rest] == [background]


@leg(rules="Q3 V5", since="1.0")
async def test_claim_order_at_the_limits(store: Store) -> None:
    """Priorities and ready times order claims over the whole of int64."""
    queue = store.queue("emails")
    last = await queue.enqueue("last", priority=INT64_MIN)
    last_but_one = await queue.enqueue("last but one", priority=INT64_MIN + 1)
    middle = {priority: await queue.enqueue(priority, priority=priority) for priority in (-1, 0, 1)}
    second = await queue.enqueue("second", priority=INT64_MAX - 1)
    first = await queue.enqueue("first", priority=INT64_MAX)
    old = await queue.enqueue("old", run_at=INT64_MIN + 1)
    oldest = await queue.enqueue("oldest", run_at=INT64_MIN)
    claimed = [(await claim_from(queue)).job.id for _ in range(9)]
    assert claimed == [first, second, middle[1], oldest, old, middle[0], middle[-1], last_but_one, last]


@leg(rules="Q3", since="1.0")
async def test_lapsed_claim_keeps_its_place(harness: Harness, store: Store) -> None:
    """A row whose claim has lapsed is claimed in its old place: by priority, ready time and id, like a pending one."""
    queue = store.queue("emails", visibility_timeout_s=30)
    first = await queue.enqueue("first")
    urgent = await queue.enqueue("urgent", priority=1)
    assert len(await queue.claim_batch("gone", 2)) == 2
    await harness.advance(30)
    second = await queue.enqueue("second")
    urgent_too = await queue.enqueue("urgent too", priority=1)
    claimed = [handle.job.id for handle in await queue.claim_batch("worker", 10)]
    assert claimed == [urgent, urgent_too, first, second]


@pytest.mark.parametrize("given", ["delay", "run_at"])
@leg(rules="Q1 Q3", since="1.0")
async def test_delayed_job_waits(harness: Harness, store: Store, clock: ManualClock, given: str) -> None:
    """A job with a delay or a run_at is claimed by nobody before that second, and from it on."""
    queue = store.queue("emails")
    options = {"delay": 30} if given == "delay" else {"run_at": clock.now() + 30}
    job_id = await queue.enqueue("later", **options)
    assert await queue.claim_one("worker") is None
    await harness.advance(29)
    assert await queue.claim_batch("worker", 10) == []
    await harness.advance(1)
    assert (await claim_from(queue)).job.id == job_id


@leg(rules="Q3", since="1.0")
async def test_delayed_urgent_job_blocks_nobody(harness: Harness, store: Store) -> None:
    """Jobs of another priority that are not ready yet do not hold back those that are, and then take their place."""
    queue = store.queue("emails")
    least = await queue.enqueue("least", priority=-1, delay=100)
    urgent = await queue.enqueue_many(range(50), priority=10, delay=100)
    ready = await queue.enqueue("ready")
    claim = await claim_from(queue)
    assert claim.job.id == ready
    assert await queue.claim_one("worker") is None
    most = await queue.enqueue("most", priority=11)
    assert await (await claim_from(queue)).retry("later", delay=100)
    assert await queue.claim_one("worker") is None
    assert await claim.ack()
    await harness.advance(100)
    plain = await queue.enqueue("plain")
    assert [handle.job.id for handle in await queue.claim_batch("worker", 99)] == [most, *urgent, plain, least]


@leg(rules="Q3 Q5", since="1.0")
async def test_claim_lapses_at_its_deadline(harness: Harness, store: Store, second_store: Store) -> None:
    """A claimed job is nobody else's before its deadline, and anybody's from that second on."""
    job_id = await store.queue("emails", visibility_timeout_s=30).enqueue("hello")
    await claim_from(store.queue("emails"), "first")
    queue = second_store.queue("emails")
    assert await queue.claim_one("first") is None
    await harness.advance(29)
    assert await queue.claim_one("second") is None
    await harness.advance(1)
    assert (await claim_from(queue, "second")).job.id == job_id


@leg(rules="Q3", since="1.0")
async def test_expired_job_is_not_claimed(harness: Harness, store: Store) -> None:
    """A job is claimed while now < expires_at, and by nobody after that, never claimed before or its claim lapsed."""
    queue = store.queue("emails", visibility_timeout_s=10)
    kept = await queue.enqueue("kept", expires=11)
    lapsing = await queue.enqueue("lapsing", expires=10)
    never = await queue.enqueue("never", expires=9)
    assert await queue.enqueue("at once", expires=0)
    assert [handle.job.id for handle in await queue.claim_batch("gone", 2)] == [kept, lapsing]
    await harness.advance(8)
    in_time = await queue.claim_batch("gone", 10)
    assert [handle.job.id for handle in in_time] == [never]
    assert await in_time[0].release()
    await harness.advance(1)
    assert await queue.claim_batch("worker", 10) == []
    await harness.advance(1)
    assert [handle.job.id for handle in await queue.claim_batch("worker", 10)] == [kept]


@leg(rules="Q3", since="1.0")
async def test_claims_are_exclusive(store: Store, second_store: Store) -> None:
    """Under concurrent claims of one and of many, from two stores, each job goes to exactly one claimant."""

    async def one_by_one(queue: Queue) -> list[int]:
        ids = []
        while (handle := await queue.claim_one("one")) is not None:
            ids.append(handle.job.id)
        return ids

    async def in_batches(queue: Queue) -> list[int]:
        ids: list[int] = []
        while batch := await queue.claim_batch("many", 3):
            ids += [handle.job.id for handle in batch]
        return ids

    queues = [store.queue("emails"), second_store.queue("emails")]
    claimants = [partial(claim, queue) for queue in queues for claim in (one_by_one, in_batches) for _ in "ab"]
    for _ in range(5):
        ids = await queues[0].enqueue_many(range(30))
        claimed = await at_once(*claimants)
        assert sorted(job_id for ids_of_one in claimed for job_id in ids_of_one) == ids


@leg(rules="Q3 Q4", since="1.0")
async def test_reclaims_are_exclusive(harness: Harness, store: Store, second_store: Store) -> None:
    """Of many who reclaim a job at the moment its claim has lapsed, exactly one gets it, and one attempt is counted."""
    job_id = await store.queue("emails", visibility_timeout_s=10, max_attempts=100).enqueue("hello")
    queues = [store.queue("emails"), second_store.queue("emails")]
    for attempt in range(1, 21):
        claimed = await at_once(*(partial(queue.claim_one, "worker") for queue in queues for _ in "abc"))
        assert [handle.job.attempts for handle in claimed if handle is not None] == [attempt]
        assert (await row_of(queues[0], job_id)).attempts == attempt
        await harness.advance(10)


@leg(rules="Q3 Q8 Q10", since="1.0")
async def test_queues_are_apart(harness: Harness, store: Store) -> None:
    """Whatever is done on one queue claims, buries, deletes and sweeps no job of another."""
    queue, other = store.queue("emails", dead_letter_retention_s=0), store.queue("email", dead_letter_retention_s=0)
    ready = await other.enqueue("ready")
    lapsed = await other.enqueue("lapsed", priority=1, max_attempts=1)
    await claim_from(other, "worker")
    expired = await other.enqueue("expired", expires=0)
    dead = (await buried_in(other)).id
    await harness.advance(300)
    held = await other.enqueue("held", priority=9)
    await claim_from(other, "worker")
    ids = [ready, lapsed, expired, dead, held]
    before = [await row_of(other, job_id) for job_id in ids if job_id != lapsed]
    own = await queue.enqueue("own")
    assert [handle.job.id for handle in await queue.claim_batch("worker", 100)] == [own]
    assert await queue.ack_batch("worker", ids) == 0
    assert [await queue.cancel(job_id) for job_id in ids] == [False] * 5
    assert await queue.sweep_expired() == 0
    assert [await row_of(queue, job_id) for job_id in ids if job_id != lapsed] == before


@leg(rules="Q4", since="1.0")
async def test_claim_marks_the_row(harness: Harness, store: Store, clock: ManualClock, witness: Witness) -> None:
    """A claim sets processing, the worker, the time, the deadline and one more attempt, and nothing else."""
    queue = store.queue("emails", visibility_timeout_s=30)
    pending = await row_of(queue, await queue.enqueue("hello", priority=2, expires=1000))
    await harness.advance(5)
    handle = await claim_from(queue, "__alkstore_worker ✓")
    now = clock.now()
    assert handle.job == replace(
        pending,
        state=JobState.PROCESSING,
        worker_id="__alkstore_worker ✓",
        claimed_at=now,
        claim_expires_at=now + 30,
        attempts=1,
    )
    assert await row_of(queue, pending.id) == handle.job
    assert await witness.jobs("emails") == JobCounts(processing=1)


@leg(rules="Q4 V5", since="1.0")
async def test_claim_deadline_saturates(harness: Harness, store: Store) -> None:
    """The deadline of a claim with the largest visibility timeout is the int64 limit, and does not lapse."""
    queue = store.queue("emails", visibility_timeout_s=INT64_MAX)
    await queue.enqueue("hello")
    handle = await claim_from(queue)
    assert handle.job.claim_expires_at == INT64_MAX
    await harness.advance(10**12)
    assert await queue.claim_one("worker") is None
    assert await handle.ack()


@leg(rules="Q4 Q9", since="1.0")
async def test_reclaim_costs_an_attempt(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A lapsed job is claimed anew for its new worker, one attempt more, and its last error stays."""
    queue = store.queue("emails", visibility_timeout_s=30)
    await queue.enqueue("hello")
    assert await (await claim_from(queue, "first")).retry("first error", 0)
    second = await claim_from(queue, "second")
    await harness.advance(30)
    third = await claim_from(queue, "third")
    now = clock.now()
    assert third.job == replace(second.job, worker_id="third", claimed_at=now, claim_expires_at=now + 30, attempts=3)
    assert third.job.last_error == "first error"
    assert await row_of(queue, third.job.id) == third.job


@leg(rules="Q4 Q9", since="1.0")
async def test_exhausted_job_is_buried(harness: Harness, store: Store, clock: ManualClock, witness: Witness) -> None:
    """A lapsed job that is at its max_attempts is made a dead letter by the next claim, and not handed out."""
    queue = store.queue("emails", visibility_timeout_s=30, max_attempts=2)
    await queue.enqueue("hello")
    await claim_from(queue, "first")
    await harness.advance(30)
    second = await claim_from(queue, "second")
    await harness.advance(31)
    assert await queue.claim_one("third") is None
    dead = replace(second.job, state=JobState.DEAD, last_error="max attempts exceeded", died_at=clock.now())
    assert await row_of(queue, dead.id) == dead
    assert await witness.jobs("emails") == JobCounts(dead=1)


@leg(rules="Q4", since="1.0")
async def test_exhausted_jobs_hide_nobody(harness: Harness, store: Store, witness: Witness) -> None:
    """However many exhausted jobs come first in order, one claim buries them all and takes the job behind them."""
    queue = store.queue("emails", max_attempts=1)
    await queue.enqueue_many(range(50), priority=5)
    assert len(await queue.claim_batch("gone", 50)) == 50
    behind = await queue.enqueue("behind")
    await harness.advance(300)
    assert (await claim_from(queue)).job.id == behind
    assert await witness.jobs("emails") == JobCounts(processing=1, dead=50)


@leg(rules="Q4 Q10", since="1.0")
async def test_exhausted_and_expired_job_expires(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A lapsed job that is at its max_attempts and has expired too is left to the sweep, as expired."""
    queue = store.queue("emails", visibility_timeout_s=30, max_attempts=1)
    await queue.enqueue("hello", expires=30)
    handle = await claim_from(queue)
    await harness.advance(30)
    assert await queue.claim_one("worker") is None
    assert await row_of(queue, handle.job.id) == handle.job
    assert await queue.sweep_expired() == 1
    dead = replace(handle.job, state=JobState.DEAD, last_error="expired", died_at=clock.now())
    assert await row_of(queue, dead.id) == dead


@leg(rules="Q11", since="1.0")
async def test_claim_batch_takes_at_most_n(store: Store) -> None:
    """`claim_one` gives a handle or None, `claim_batch` a list of at most n, fewer only where there are fewer."""
    queue = store.queue("emails")
    assert await queue.claim_one("worker") is None
    assert await queue.claim_batch("worker", 5) == []
    ids = await queue.enqueue_many(range(7))
    assert (await claim_from(queue)).job.id == ids[0]
    assert [handle.job.id for handle in await queue.claim_batch("worker", 4)] == ids[1:5]
    assert [handle.job.id for handle in await queue.claim_batch("worker", INT64_MAX)] == ids[5:]
    assert await queue.claim_one("worker") is None


@pytest.mark.parametrize("n", [0, -1, INT64_MIN])
@leg(rules="Q11 V5", since="1.0")
async def test_claim_of_none_touches_nothing(harness: Harness, store: Store, witness: Witness, n: int) -> None:
    """`claim_batch` of 0 or fewer gives [] and changes no row: it buries no exhausted one either."""
    queue = store.queue("emails", max_attempts=1)
    await queue.enqueue("exhausted")
    await claim_from(queue)
    await harness.advance(300)
    await queue.enqueue("ready")
    assert await queue.claim_batch("worker", n) == []
    assert await witness.jobs("emails") == JobCounts(pending=1, processing=1)


@leg(rules="Q3", since="1.0")
async def test_claim_finds_the_ready_among_many(store: Store) -> None:
    """Among many dead, expired, delayed, held and foreign rows a claim finds exactly the ready ones."""
    queue = store.queue("emails")
    await queue.enqueue_many(range(500), expires=0, priority=4)
    assert await queue.sweep_expired() == 500
    await queue.enqueue_many(range(500), expires=0, priority=3)
    await queue.enqueue_many(range(500), priority=2)
    assert len(await queue.claim_batch("busy", 500)) == 500
    await queue.enqueue_many(range(500), delay=1, priority=1)
    await store.queue("reports").enqueue_many(range(500), priority=1)
    ready = await queue.enqueue_many(range(10), priority=-1)
    assert [handle.job.id for handle in await queue.claim_batch("worker", 100)] == ready


@leg(rules="Q4 T13", since="1.0")
async def test_cancelled_claim_strands_nothing(store: Store) -> None:
    """A job whose claimant was cancelled while it claimed is soon claimable again, the attempt not counted."""
    queue = store.queue("emails", max_attempts=100)
    ids = await queue.enqueue_many(range(20))
    for turn in range(40):
        claiming = asyncio.create_task(queue.claim_one("gone"))
        for _ in range(turn % 8):
            await queue.get_job(0)
        claiming.cancel()
        with suppress(asyncio.CancelledError):
            handle = await claiming
            assert handle is None or await handle.release()
    claimed: list[JobHandle] = []
    while len(claimed) < len(ids):
        claimed += await queue.claim_batch("worker", len(ids))
    assert sorted(handle.job.id for handle in claimed) == ids
    assert {handle.job.attempts for handle in claimed} == {1}


@leg(rules="Q3 Q4 Q5", since="1.0")
async def test_clock_jumps_redeliver_nothing(harness: Harness, store: Store) -> None:
    """Deadlines and ready times are seconds of the clock: one that jumps back and forth hands nothing out before."""
    queue = store.queue("emails", visibility_timeout_s=300)
    await queue.enqueue("claimed")
    handle = await claim_from(queue)
    await queue.enqueue("delayed", delay=300)
    for jump in (-300, 599, -300, 150, -149):
        await harness.advance(jump)
        assert await queue.claim_one("worker") is None
    assert await handle.heartbeat(600)
    await harness.advance(300)
    assert (await claim_from(queue)).job.payload == b'"delayed"'
    assert await queue.claim_one("worker") is None
    assert await handle.ack()


@leg(rules="Q3 Q5", since="1.0")
async def test_clock_set_back_keeps_a_live_claim(harness: Harness, store: Store) -> None:
    """A claim that had lapsed, and that nobody took over, is live and kept where the clock jumps back before that."""
    queue = store.queue("emails", visibility_timeout_s=30)
    await queue.enqueue_many(["taken over", "left"])
    taken, left = await queue.claim_batch("worker", 2)
    await harness.advance(30)
    assert (await claim_from(queue, "other")).job.id == taken.job.id
    await harness.advance(-10)
    assert await queue.claim_one("other") is None
    assert not await taken.ack()
    assert await left.ack()
