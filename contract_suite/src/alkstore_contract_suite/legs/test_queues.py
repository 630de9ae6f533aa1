"""Queues: at-least-once jobs (contract section 7)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest
from alkstore_core import Job, JobHandle, JobState, Queue, StopToken, Store
from alkstore_core.errors import CodecError
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg

T = TypeVar("T")

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

Enqueued = Callable[..., Awaitable[Job]]
Act = Callable[[JobHandle], Awaitable[bool]]


async def _enqueued(store: Store, **options: Any) -> Job:
    queue = store.queue("emails")
    return await _row(queue, await queue.enqueue("hello", **options))


async def _enqueued_with_others(store: Store, **options: Any) -> Job:
    queue = store.queue("emails")
    return await _row(queue, (await queue.enqueue_many(["hello", "world"], **options))[0])


async def _enqueued_in_transaction(store: Store, **options: Any) -> Job:
    async with store.transaction() as tx:
        job_id = await tx.enqueue("emails", "hello", **options)
        staged = await tx.get_job("emails", job_id)
    committed = await _row(store.queue("emails"), job_id)
    assert staged == committed
    return committed


in_every_form = pytest.mark.parametrize(
    "enqueued",
    [_enqueued, _enqueued_with_others, _enqueued_in_transaction],
    ids=["enqueue", "enqueue_many", "tx.enqueue"],
)

ACTS: dict[str, Act] = {
    "ack": JobHandle.ack,
    "retry": lambda handle: handle.retry("too late"),
    "retry-now": lambda handle: handle.retry("too late", 0),
    "fail": lambda handle: handle.fail("too late"),
    "heartbeat": lambda handle: handle.heartbeat(1000),
    "release": JobHandle.release,
}
each_act = pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)


async def _row(queue: Queue, job_id: int) -> Job:
    job = await queue.get_job(job_id)
    assert job is not None, f"job {job_id} has gone"
    return job


async def _claim(queue: Queue, worker_id: str = "worker") -> JobHandle:
    handle = await queue.claim_one(worker_id)
    assert handle is not None, f"there is nothing to claim in {queue!r}"
    return handle


async def _buried(queue: Queue) -> Job:
    """A new dead letter."""
    job_id = await queue.enqueue("buried", priority=INT64_MAX)
    assert await (await _claim(queue)).fail()
    return await _row(queue, job_id)


def _least(low: int, high: int) -> int:
    return min(low, high)


async def _at_once(*works: Callable[[], Awaitable[T]]) -> list[T]:
    """What they return, each run by a task of its own, all released together."""
    barrier = asyncio.Barrier(len(works))

    async def run(work: Callable[[], Awaitable[T]]) -> T:
        await barrier.wait()
        return await work()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(work)) for work in works]
    return [task.result() for task in tasks]


# Enqueueing: Q1, Q2, Q12, Q14


@in_every_form
@leg(rules="Q1 Q2", since="1.0")
async def test_enqueue_defaults(store: Store, clock: ManualClock, witness: Witness, enqueued: Enqueued) -> None:
    """A job enqueued without options is ready now, never expires, and is stamped with the defaults."""
    now = clock.now()
    job = await enqueued(store)
    assert job == Job(
        id=job.id,
        queue="emails",
        payload=b'"hello"',
        state=JobState.PENDING,
        priority=0,
        ready_at=now,
        expires_at=None,
        attempts=0,
        max_attempts=3,
        visibility_timeout_s=300,
        backoff_base_s=5,
        dead_letter_retention_s=None,
        created_at=now,
        worker_id=None,
        claimed_at=None,
        claim_expires_at=None,
        last_error=None,
        died_at=None,
    )
    assert (await witness.jobs("emails")).pending in (1, 2)


@in_every_form
@pytest.mark.parametrize(
    ("delay", "run_in", "ready_in"),
    [(30, None, 30), (None, 90, 90), (30, 90, 30), (0, 90, 0), (None, -90, -90), (-5, None, -5), (-5, 90, -5)],
)
@leg(rules="Q1", since="1.0")
async def test_ready_time(
    store: Store, clock: ManualClock, enqueued: Enqueued, delay: int | None, run_in: int | None, ready_in: int
) -> None:
    """A job is ready at now + delay if a delay is given, a delay of 0 too, else at run_at, else now."""
    now = clock.now()
    job = await enqueued(store, delay=delay, run_at=None if run_in is None else now + run_in)
    assert job.ready_at == now + ready_in


@in_every_form
@leg(rules="Q1 V5", since="1.0")
async def test_ready_time_saturates(store: Store, clock: ManualClock, enqueued: Enqueued) -> None:
    """Every int64 is a delay and a run_at: their sums are held within int64, and stored as they are."""
    now = clock.now()
    for delay, ready_at in ((INT64_MAX, INT64_MAX), (INT64_MAX - now + 1, INT64_MAX), (INT64_MIN, now + INT64_MIN)):
        assert (await enqueued(store, delay=delay)).ready_at == ready_at
    for run_at in (INT64_MIN, -1, 0, INT64_MAX):
        assert (await enqueued(store, run_at=run_at)).ready_at == run_at


@in_every_form
@leg(rules="Q1 V5", since="1.0")
async def test_expiry_is_relative(store: Store, clock: ManualClock, enqueued: Enqueued) -> None:
    """`expires` is stored as now + expires, held within int64, whatever the ready time is."""
    now = clock.now()
    assert (await enqueued(store, expires=60)).expires_at == now + 60
    assert (await enqueued(store, expires=60, delay=30)).expires_at == now + 60
    assert (await enqueued(store, expires=0)).expires_at == now
    assert (await enqueued(store, expires=-60)).expires_at == now - 60
    assert (await enqueued(store, expires=INT64_MAX)).expires_at == INT64_MAX
    assert (await enqueued(store, expires=INT64_MIN)).expires_at == now + INT64_MIN


@in_every_form
@leg(rules="Q1 Q2", since="1.0")
async def test_enqueue_overrides(store: Store, enqueued: Enqueued) -> None:
    """An enqueue's own max_attempts and priority are the row's, up to the limits of int64."""
    for priority, max_attempts in ((7, 9), (INT64_MIN, 1), (INT64_MAX, INT64_MAX)):
        job = await enqueued(store, priority=priority, max_attempts=max_attempts)
        assert (job.priority, job.max_attempts) == (priority, max_attempts)


@leg(rules="Q2", since="1.0")
async def test_options_are_stamped(store: Store) -> None:
    """A handle stamps its options on each row that it enqueues, at their least and their largest values too."""
    for options in (
        {"visibility_timeout_s": 7, "max_attempts": 8, "backoff_base_s": 9, "dead_letter_retention_s": 10},
        {"visibility_timeout_s": 1, "max_attempts": 1, "backoff_base_s": 0, "dead_letter_retention_s": 0},
        dict.fromkeys(("visibility_timeout_s", "max_attempts", "backoff_base_s", "dead_letter_retention_s"), INT64_MAX),
    ):
        queue = store.queue("emails", **options)
        for job_id in (await queue.enqueue("one"), *await queue.enqueue_many(["two", "three"])):
            job = await _row(queue, job_id)
            assert {name: getattr(job, name) for name in options} == options


@leg(rules="Q2", since="1.0")
async def test_handle_max_attempts_yields(store: Store) -> None:
    """An enqueue's own max_attempts wins over that of its handle, and None leaves the handle's."""
    queue = store.queue("emails", max_attempts=8)
    assert (await _row(queue, await queue.enqueue("own", max_attempts=2))).max_attempts == 2
    assert (await _row(queue, await queue.enqueue("handle's", max_attempts=None))).max_attempts == 8
    for job_id in await queue.enqueue_many(["own", "too"], max_attempts=2):
        assert (await _row(queue, job_id)).max_attempts == 2


@leg(rules="Q2 Q4 Q7", since="1.0")
async def test_rows_carry_their_settings(store: Store, clock: ManualClock) -> None:
    """A queue owns no settings: whatever handle works on a row, the row's own options count."""
    strict = store.queue("emails", visibility_timeout_s=7, max_attempts=2, backoff_base_s=100)
    lax = store.queue("emails", visibility_timeout_s=700, max_attempts=200, backoff_base_s=0)
    store.draw = _least
    job_id = await strict.enqueue("hello")
    handle = await _claim(lax)
    assert handle.job.claim_expires_at == clock.now() + 7
    assert await handle.retry("first")
    assert (await _row(lax, job_id)).ready_at == clock.now() + 50
    clock.advance(50)
    assert await (await _claim(lax)).retry("second")
    assert (await _row(lax, job_id)).state is JobState.DEAD


@leg(rules="Q2", since="1.0")
async def test_transaction_stamps_defaults(store: Store) -> None:
    """`tx.enqueue` stamps the defaults, whatever handles on that queue there are."""
    store.queue("emails", visibility_timeout_s=7, max_attempts=8, backoff_base_s=9, dead_letter_retention_s=10)
    job = await _enqueued_in_transaction(store)
    stamped = (job.visibility_timeout_s, job.max_attempts, job.backoff_base_s, job.dead_letter_retention_s)
    assert stamped == (300, 3, 5, None)


@leg(rules="Q2", since="1.0")
async def test_schedule_stamps_defaults(harness: Harness, store: Store) -> None:
    """A schedule's fire stamps the defaults, whatever handles on its queue there are."""
    queue = store.queue("emails", visibility_timeout_s=7, max_attempts=8, backoff_base_s=9, dead_letter_retention_s=10)
    await store.schedule("greeting", "@every 10s", "emails", "hello")
    stop = StopToken()
    async with asyncio.TaskGroup() as group:
        group.create_task(store.run_schedules(stop))
        await harness.advance(10)
        while (handle := await queue.claim_one("worker")) is None:
            pass
        stop.cancel()
    job = handle.job
    stamped = (job.visibility_timeout_s, job.max_attempts, job.backoff_base_s, job.dead_letter_retention_s)
    assert stamped == (300, 3, 5, None)


@leg(rules="Q12", since="1.0")
async def test_enqueue_many_keeps_the_order(store: Store, witness: Witness) -> None:
    """`enqueue_many` returns one id for each payload, in the order given, however many there are."""
    queue = store.queue("emails")
    before = await queue.enqueue("before")
    ids = await queue.enqueue_many(range(2500), priority=1)
    assert len(set(ids)) == 2500
    assert min(ids) > before
    assert await witness.jobs("emails") == JobCounts(pending=2501)
    found = await asyncio.gather(*(queue.get_job(job_id) for job_id in ids[::50]))
    assert [None if job is None else job.payload for job in found] == [b"%d" % n for n in range(0, 2500, 50)]


@leg(rules="Q12", since="1.0")
async def test_enqueue_many_is_all_or_nothing(store: Store, witness: Witness) -> None:
    """One payload that cannot be encoded, or an iterable that fails, and `enqueue_many` adds no job at all."""
    queue = store.queue("emails")

    def failing() -> Iterator[str]:
        yield "good"
        raise LookupError("no more")

    with pytest.raises(CodecError):
        await queue.enqueue_many(["good", "also good", float("nan"), "never reached"])
    with pytest.raises(LookupError):
        await queue.enqueue_many(failing())
    assert await queue.claim_batch("worker", 10) == []
    assert await witness.jobs("emails") == JobCounts()


@leg(rules="Q12", since="1.0")
async def test_enqueue_many_is_one_commit(store: Store, second_store: Store) -> None:
    """Whoever claims meanwhile finds none of the jobs of one `enqueue_many`, or all of them."""
    queue, others = store.queue("emails"), second_store.queue("emails")
    for _ in range(10):
        async with asyncio.TaskGroup() as group:
            enqueueing = group.create_task(queue.enqueue_many(range(40)))
            while not (claimed := await others.claim_batch("worker", 100)):
                pass
        assert [handle.job.id for handle in claimed] == enqueueing.result()


@leg(rules="Q12", since="1.0")
async def test_enqueue_many_of_nothing(store: Store, witness: Witness) -> None:
    """`enqueue_many` without payloads returns no ids and adds nothing."""
    assert await store.queue("emails").enqueue_many([]) == []
    assert await witness.jobs("emails") == JobCounts()


@leg(rules="Q14", since="1.0")
async def test_ids_are_never_reused(harness: Harness, store: Store) -> None:
    """The id of a job that was acked, cancelled or swept away is given to no later job, of whatever queue."""
    queue, other = store.queue("emails", dead_letter_retention_s=0), store.queue("reports")
    acked = await queue.enqueue("acked")
    assert await (await _claim(queue)).ack()
    cancelled = await queue.enqueue("cancelled")
    assert await queue.cancel(cancelled)
    swept = await queue.enqueue("swept", expires=0)
    assert await queue.sweep_expired() == 1
    assert await queue.get_job(swept) is None
    batch = await other.enqueue_many(["one", "two"])
    await harness.advance(1)
    ids = [acked, cancelled, swept, *batch, await other.enqueue("three")]
    assert len(set(ids)) == len(ids)


@leg(rules="Q14", since="1.0", needs=("durable",))
async def test_ids_outlive_a_restart(harness: Harness) -> None:
    """The id of a job that has gone is given to no later job, a restart in between or not."""
    async with harness.open() as store:
        first = await store.queue("emails").enqueue("first")
        assert await store.queue("emails").cancel(first)
    await harness.restart()
    async with harness.open() as store:
        assert await store.queue("reports").enqueue("second") != first


# Claiming: Q3, Q4, Q11


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
    claimed = [(await _claim(queue)).job.id for _ in range(9)]
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
    assert (await _claim(queue)).job.id == job_id


@leg(rules="Q3", since="1.0")
async def test_delayed_urgent_job_blocks_nobody(store: Store) -> None:
    """Jobs of a higher priority that are not ready yet do not hold back those that are."""
    queue = store.queue("emails")
    await queue.enqueue_many(range(50), priority=10, delay=100)
    ready = await queue.enqueue("ready")
    assert (await _claim(queue)).job.id == ready
    assert await queue.claim_one("worker") is None


@leg(rules="Q3 Q5", since="1.0")
async def test_claim_lapses_at_its_deadline(harness: Harness, store: Store, second_store: Store) -> None:
    """A claimed job is nobody else's before its deadline, and anybody's from that second on."""
    job_id = await store.queue("emails", visibility_timeout_s=30).enqueue("hello")
    await _claim(store.queue("emails"), "first")
    queue = second_store.queue("emails")
    assert await queue.claim_one("first") is None
    await harness.advance(29)
    assert await queue.claim_one("second") is None
    await harness.advance(1)
    assert (await _claim(queue, "second")).job.id == job_id


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
        claimed = await _at_once(*claimants)
        assert sorted(job_id for ids_of_one in claimed for job_id in ids_of_one) == ids


@leg(rules="Q3 Q4", since="1.0")
async def test_reclaims_are_exclusive(harness: Harness, store: Store, second_store: Store) -> None:
    """Of many who reclaim a job at the moment its claim has lapsed, exactly one gets it, and one attempt is counted."""
    job_id = await store.queue("emails", visibility_timeout_s=10, max_attempts=100).enqueue("hello")
    queues = [store.queue("emails"), second_store.queue("emails")]
    for attempt in range(1, 21):
        claimed = await _at_once(*(partial(queue.claim_one, "worker") for queue in queues for _ in "abc"))
        assert [handle.job.attempts for handle in claimed if handle is not None] == [attempt]
        assert (await _row(queues[0], job_id)).attempts == attempt
        await harness.advance(10)


@leg(rules="Q3 Q8 Q10", since="1.0")
async def test_queues_are_apart(harness: Harness, store: Store) -> None:
    """Whatever is done on one queue claims, buries, deletes and sweeps no job of another."""
    queue, other = store.queue("emails", dead_letter_retention_s=0), store.queue("email", dead_letter_retention_s=0)
    ready = await other.enqueue("ready")
    lapsed = await other.enqueue("lapsed", priority=1, max_attempts=1)
    await _claim(other, "worker")
    expired = await other.enqueue("expired", expires=0)
    dead = (await _buried(other)).id
    await harness.advance(300)
    held = await other.enqueue("held", priority=9)
    await _claim(other, "worker")
    ids = [ready, lapsed, expired, dead, held]
    before = [await _row(other, job_id) for job_id in ids if job_id != lapsed]
    own = await queue.enqueue("own")
    assert [handle.job.id for handle in await queue.claim_batch("worker", 100)] == [own]
    assert await queue.ack_batch("worker", ids) == 0
    assert [await queue.cancel(job_id) for job_id in ids] == [False] * 5
    assert await queue.sweep_expired() == 0
    assert [await _row(queue, job_id) for job_id in ids if job_id != lapsed] == before


@leg(rules="Q4", since="1.0")
async def test_claim_marks_the_row(harness: Harness, store: Store, clock: ManualClock, witness: Witness) -> None:
    """A claim sets processing, the worker, the time, the deadline and one more attempt, and nothing else."""
    queue = store.queue("emails", visibility_timeout_s=30)
    pending = await _row(queue, await queue.enqueue("hello", priority=2, expires=1000))
    await harness.advance(5)
    handle = await _claim(queue, "__alkstore_worker ✓")
    now = clock.now()
    assert handle.job == replace(
        pending,
        state=JobState.PROCESSING,
        worker_id="__alkstore_worker ✓",
        claimed_at=now,
        claim_expires_at=now + 30,
        attempts=1,
    )
    assert await _row(queue, pending.id) == handle.job
    assert await witness.jobs("emails") == JobCounts(processing=1)


@leg(rules="Q4 V5", since="1.0")
async def test_claim_deadline_saturates(harness: Harness, store: Store) -> None:
    """The deadline of a claim with the largest visibility timeout is the int64 limit, and does not lapse."""
    queue = store.queue("emails", visibility_timeout_s=INT64_MAX)
    await queue.enqueue("hello")
    handle = await _claim(queue)
    assert handle.job.claim_expires_at == INT64_MAX
    await harness.advance(10**12)
    assert await queue.claim_one("worker") is None
    assert await handle.ack()


@leg(rules="Q4 Q9", since="1.0")
async def test_reclaim_costs_an_attempt(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A lapsed job is claimed anew for its new worker, one attempt more, and its last error stays."""
    queue = store.queue("emails", visibility_timeout_s=30)
    await queue.enqueue("hello")
    assert await (await _claim(queue, "first")).retry("first error", 0)
    second = await _claim(queue, "second")
    await harness.advance(30)
    third = await _claim(queue, "third")
    now = clock.now()
    assert third.job == replace(second.job, worker_id="third", claimed_at=now, claim_expires_at=now + 30, attempts=3)
    assert third.job.last_error == "first error"
    assert await _row(queue, third.job.id) == third.job


@leg(rules="Q4 Q9", since="1.0")
async def test_exhausted_job_is_buried(harness: Harness, store: Store, clock: ManualClock, witness: Witness) -> None:
    """A lapsed job that is at its max_attempts is made a dead letter by the next claim, and not handed out."""
    queue = store.queue("emails", visibility_timeout_s=30, max_attempts=2)
    await queue.enqueue("hello")
    await _claim(queue, "first")
    await harness.advance(30)
    second = await _claim(queue, "second")
    await harness.advance(31)
    assert await queue.claim_one("third") is None
    dead = replace(second.job, state=JobState.DEAD, last_error="max attempts exceeded", died_at=clock.now())
    assert await _row(queue, dead.id) == dead
    assert await witness.jobs("emails") == JobCounts(dead=1)


@leg(rules="Q4", since="1.0")
async def test_exhausted_jobs_hide_nobody(harness: Harness, store: Store, witness: Witness) -> None:
    """However many exhausted jobs come first in order, one claim buries them all and takes the job behind them."""
    queue = store.queue("emails", max_attempts=1)
    await queue.enqueue_many(range(50), priority=5)
    assert len(await queue.claim_batch("gone", 50)) == 50
    behind = await queue.enqueue("behind")
    await harness.advance(300)
    assert (await _claim(queue)).job.id == behind
    assert await witness.jobs("emails") == JobCounts(processing=1, dead=50)


@leg(rules="Q4 Q10", since="1.0")
async def test_exhausted_and_expired_job_expires(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A lapsed job that is at its max_attempts and has expired too is left to the sweep, as expired."""
    queue = store.queue("emails", visibility_timeout_s=30, max_attempts=1)
    await queue.enqueue("hello", expires=30)
    handle = await _claim(queue)
    await harness.advance(30)
    assert await queue.claim_one("worker") is None
    assert await _row(queue, handle.job.id) == handle.job
    assert await queue.sweep_expired() == 1
    dead = replace(handle.job, state=JobState.DEAD, last_error="expired", died_at=clock.now())
    assert await _row(queue, dead.id) == dead


@leg(rules="Q11", since="1.0")
async def test_claim_batch_takes_at_most_n(store: Store) -> None:
    """`claim_one` gives a handle or None, `claim_batch` a list of at most n, fewer only where there are fewer."""
    queue = store.queue("emails")
    assert await queue.claim_one("worker") is None
    assert await queue.claim_batch("worker", 5) == []
    ids = await queue.enqueue_many(range(7))
    assert (await _claim(queue)).job.id == ids[0]
    assert [handle.job.id for handle in await queue.claim_batch("worker", 4)] == ids[1:5]
    assert [handle.job.id for handle in await queue.claim_batch("worker", INT64_MAX)] == ids[5:]
    assert await queue.claim_one("worker") is None


@pytest.mark.parametrize("n", [0, -1, INT64_MIN])
@leg(rules="Q11 V5", since="1.0")
async def test_claim_of_none_touches_nothing(harness: Harness, store: Store, witness: Witness, n: int) -> None:
    """`claim_batch` of 0 or fewer gives [] and changes no row: it buries no exhausted one either."""
    queue = store.queue("emails", max_attempts=1)
    await queue.enqueue("exhausted")
    await _claim(queue)
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
    handle = await _claim(queue)
    await queue.enqueue("delayed", delay=300)
    for jump in (-300, 599, -300, 150, -149):
        await harness.advance(jump)
        assert await queue.claim_one("worker") is None
    assert await handle.heartbeat(600)
    await harness.advance(300)
    assert (await _claim(queue)).job.payload == b'"delayed"'
    assert await queue.claim_one("worker") is None
    assert await handle.ack()


@leg(rules="Q3 Q5", since="1.0")
async def test_clock_set_back_keeps_a_live_claim(harness: Harness, store: Store) -> None:
    """A claim that had lapsed, and that nobody took over, is live and kept where the clock jumps back before that."""
    queue = store.queue("emails", visibility_timeout_s=30)
    await queue.enqueue_many(["taken over", "left"])
    taken, left = await queue.claim_batch("worker", 2)
    await harness.advance(30)
    assert (await _claim(queue, "other")).job.id == taken.job.id
    await harness.advance(-10)
    assert await queue.claim_one("other") is None
    assert not await taken.ack()
    assert await left.ack()


# A claim's own rights: Q5


@each_act
@leg(rules="Q5 Q6 Q7 Q15", since="1.0")
async def test_act_lands_before_the_deadline(harness: Harness, store: Store, act: Act) -> None:
    """In the last second before the deadline a claim is live."""
    queue = store.queue("emails", visibility_timeout_s=30)
    job_id = await queue.enqueue("hello")
    handle = await _claim(queue)
    await harness.advance(29)
    assert await act(handle)
    assert await queue.get_job(job_id) != handle.job


@each_act
@leg(rules="Q5", since="1.0")
async def test_late_act_is_refused(harness: Harness, store: Store, act: Act) -> None:
    """From its deadline on a claim can do nothing: False, and the row stays as it was."""
    queue = store.queue("emails", visibility_timeout_s=30)
    job_id = await queue.enqueue("hello")
    handle = await _claim(queue)
    await harness.advance(30)
    assert not await act(handle)
    assert await _row(queue, job_id) == handle.job
    assert (await _claim(queue)).job.id == job_id


@each_act
@leg(rules="Q5 Q15", since="1.0")
async def test_late_act_of_the_last_attempt_is_refused(harness: Harness, store: Store, act: Act) -> None:
    """From its deadline on a claim of the last attempt can do nothing either."""
    queue = store.queue("emails", visibility_timeout_s=30, max_attempts=1)
    job_id = await queue.enqueue("hello")
    handle = await _claim(queue)
    await harness.advance(30)
    assert not await act(handle)
    assert await _row(queue, job_id) == handle.job


@each_act
@pytest.mark.parametrize("successor", ["another", "the same"])
@leg(rules="Q5", since="1.0")
async def test_stale_act_spares_the_successor(
    harness: Harness, store: Store, second_store: Store, act: Act, successor: str
) -> None:
    """Once a job was claimed anew, by another worker or the same, the old handle changes nothing of the new claim."""
    queue = store.queue("emails", visibility_timeout_s=30)
    await queue.enqueue("hello")
    stale = await _claim(queue, "the same")
    await harness.advance(30)
    current = await _claim(second_store.queue("emails"), successor)
    assert not await act(stale)
    assert await _row(queue, current.job.id) == current.job
    assert await current.ack()


@each_act
@leg(rules="Q5 Q15", since="1.0")
async def test_stale_act_spares_an_equal_claim(store: Store, act: Act) -> None:
    """A handle that was released can do nothing to a later claim by the same worker with the same attempt number."""
    queue = store.queue("emails")
    await queue.enqueue("hello")
    stale = await _claim(queue)
    assert await stale.release()
    current = await _claim(queue)
    assert current.job == stale.job
    assert not await act(stale)
    assert await _row(queue, current.job.id) == current.job
    assert await current.ack()


@pytest.mark.parametrize("first", [name for name in ACTS if name != "heartbeat"])
@leg(rules="Q5 Q6 Q7", since="1.0")
async def test_settled_claim_can_do_nothing(store: Store, first: str) -> None:
    """A handle that settled its claim can do nothing more to the job."""
    queue = store.queue("emails")
    job_id = await queue.enqueue("hello")
    handle = await _claim(queue)
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
    handle = await _claim(queue)
    assert await queue.cancel(job_id)
    assert not await act(handle)
    assert await queue.get_job(job_id) is None


@leg(rules="Q5", since="1.0")
async def test_live_claim_outlives_expiry(harness: Harness, store: Store) -> None:
    """A job that expires while it is claimed can still be settled by its live claim."""
    queue = store.queue("emails", visibility_timeout_s=30)
    job_id = await queue.enqueue("hello", expires=10)
    handle = await _claim(queue)
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
        handle = await _claim(queue)
        acts: list[Callable[[], Awaitable[bool | int]]] = [
            handle.ack,
            handle.ack,
            partial(handle.fail, "raced"),
            partial(handle.retry, "raced", 1000),
            partial(other.ack_batch, "worker", [job_id]),
        ]
        landed = await _at_once(*acts[turn % 5 :], *acts[: turn % 5])
        assert sorted(map(int, landed)) == [0, 0, 0, 0, 1]


@leg(rules="Q5", since="1.0")
async def test_late_ack_spares_a_concurrent_reclaim(harness: Harness, store: Store, second_store: Store) -> None:
    """An ack at the moment when somebody else takes a lapsed job over is False, and the new claim stands."""
    queue = store.queue("emails", visibility_timeout_s=10, max_attempts=100)
    other = second_store.queue("emails")
    await queue.enqueue("hello")
    late = await _claim(queue, "late")
    for turn in range(20):
        await harness.advance(10)
        works: list[Callable[[], Awaitable[Any]]] = [late.ack, late.ack, late.ack]
        works.insert(turn % 4, partial(other.claim_one, "successor"))
        results = await _at_once(*works)
        successor = results.pop(turn % 4)
        assert results == [False] * 3
        assert successor is not None
        assert await _row(queue, successor.job.id) == successor.job
        late = successor


# Settling: Q6, Q7, Q15


@leg(rules="Q6", since="1.0")
async def test_ack_deletes_the_row(store: Store, witness: Witness) -> None:
    """`ack` deletes the row, and only that."""
    queue = store.queue("emails")
    await queue.enqueue_many(["acked", "kept"])
    handle, kept = await queue.claim_batch("worker", 2)
    assert await handle.ack()
    assert await queue.get_job(handle.job.id) is None
    assert await _row(queue, kept.job.id) == kept.job
    assert await witness.jobs("emails") == JobCounts(processing=1)


@leg(rules="Q6", since="1.0")
async def test_heartbeat_sets_the_deadline(harness: Harness, store: Store, clock: ManualClock) -> None:
    """`heartbeat` sets the deadline to now + extend, later or sooner, again and again, and changes nothing else."""
    queue = store.queue("emails", visibility_timeout_s=30)
    await queue.enqueue("hello")
    handle = await _claim(queue)
    for extend in (30, 100, 5, 5, 1000):
        await harness.advance(4)
        assert await handle.heartbeat(extend)
        assert await _row(queue, handle.job.id) == replace(handle.job, claim_expires_at=clock.now() + extend)


@leg(rules="Q6", since="1.0")
async def test_heartbeats_keep_a_claim(harness: Harness, store: Store) -> None:
    """A claim that is heartbeaten in time lasts past its first deadline, and lapses at the last one."""
    queue = store.queue("emails", visibility_timeout_s=10)
    job_id = await queue.enqueue("hello")
    handle = await _claim(queue)
    for _ in range(5):
        await harness.advance(9)
        assert await queue.claim_one("other") is None
        assert await handle.heartbeat(10)
    await harness.advance(10)
    assert not await handle.heartbeat(10)
    assert (await _claim(queue, "other")).job.id == job_id


@pytest.mark.parametrize("extend", [0, -1, INT64_MIN])
@leg(rules="Q6 V5", since="1.0")
async def test_heartbeat_voids_a_claim(store: Store, clock: ManualClock, extend: int) -> None:
    """`heartbeat` by 0 or less ends the claim: the job is anybody's at once, and the handle can do nothing more."""
    queue = store.queue("emails")
    job_id = await queue.enqueue("hello")
    handle = await _claim(queue)
    assert await handle.heartbeat(extend)
    assert (await _row(queue, job_id)).claim_expires_at == clock.now() + extend
    assert not await handle.heartbeat(1000)
    assert not await handle.ack()
    assert (await _claim(queue)).job.attempts == 2


@leg(rules="Q6 V5", since="1.0")
async def test_heartbeat_saturates(harness: Harness, store: Store) -> None:
    """`heartbeat` by the largest int64 sets the deadline to the int64 limit, and the claim does not lapse."""
    queue = store.queue("emails")
    job_id = await queue.enqueue("hello")
    handle = await _claim(queue)
    assert await handle.heartbeat(INT64_MAX)
    assert (await _row(queue, job_id)).claim_expires_at == INT64_MAX
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
    handle = await _claim(queue)
    await harness.advance(5)
    assert await handle.fail(*given)
    dead = replace(handle.job, state=JobState.DEAD, last_error=kept, died_at=clock.now())
    assert await _row(queue, dead.id) == dead
    await harness.advance(30)
    assert await queue.claim_one("worker") is None
    assert await witness.jobs("emails") == JobCounts(dead=1)


@pytest.mark.parametrize("delay", [0, 1, 60, -60, INT64_MIN, INT64_MAX])
@leg(rules="Q7 Q9 V5", since="1.0")
async def test_retry_makes_it_wait(harness: Harness, store: Store, clock: ManualClock, delay: int) -> None:
    """`retry` makes the job pending again, without a claim, ready at now + delay held within int64, with its error."""
    queue = store.queue("emails")
    pending = await _row(queue, await queue.enqueue("hello", priority=3, expires=10**9))
    handle = await _claim(queue)
    await harness.advance(5)
    assert await handle.retry("busy", delay)
    ready_at = min(clock.now() + delay, INT64_MAX)
    assert await _row(queue, pending.id) == replace(pending, ready_at=ready_at, attempts=1, last_error="busy")


@leg(rules="Q3 Q7", since="1.0")
async def test_retried_job_waits(harness: Harness, store: Store) -> None:
    """A retried job is claimed by nobody before its delay has passed, and then as its next attempt."""
    queue = store.queue("emails", visibility_timeout_s=10)
    await queue.enqueue("hello")
    assert await (await _claim(queue)).retry("busy", 60)
    await harness.advance(59)
    assert await queue.claim_one("worker") is None
    await harness.advance(1)
    handle = await _claim(queue, "another")
    assert (handle.job.attempts, handle.job.last_error) == (2, "busy")


@pytest.mark.parametrize("delay", [None, 0, 60])
@leg(rules="Q7 Q9", since="1.0")
async def test_last_retry_buries(store: Store, clock: ManualClock, delay: int | None) -> None:
    """`retry` of the last attempt makes the job a dead letter with that error, whatever the delay."""
    queue = store.queue("emails", max_attempts=2)
    await queue.enqueue("hello")
    assert await (await _claim(queue, "first")).retry("first", 0)
    handle = await _claim(queue, "second")
    assert await handle.retry("second", delay)
    dead = replace(handle.job, state=JobState.DEAD, last_error="second", died_at=clock.now())
    assert await _row(queue, dead.id) == dead
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
                assert await (await _claim(queue)).retry("before", 0)
            handle = await _claim(queue)
            asked: list[tuple[int, int]] = []

            def draw(low: int, high: int, pick: Callable[..., int] = pick, asked: list[Any] = asked) -> int:
                asked.append((low, high))
                return pick(low, high)

            store.draw = draw
            assert await handle.retry("busy")
            assert asked == [(cap // 2, cap)]
            assert (await _row(queue, job_id)).ready_at == min(clock.now() + pick(cap // 2, cap), INT64_MAX)
            assert await queue.cancel(job_id)


@leg(rules="Q7", since="1.0")
async def test_backoff_is_drawn_anew(store: Store, clock: ManualClock) -> None:
    """The wait is random: over many retries each whole second of its range comes up, and no other."""
    queue = store.queue("emails", backoff_base_s=3)
    ids = await queue.enqueue_many(range(100))
    assert all(await asyncio.gather(*(handle.retry("busy") for handle in await queue.claim_batch("worker", 100))))
    jobs = await asyncio.gather(*(_row(queue, job_id) for job_id in ids))
    assert {job.ready_at - clock.now() for job in jobs} == {1, 2, 3}


@leg(rules="Q15", since="1.0")
async def test_release_gives_back(harness: Harness, store: Store, clock: ManualClock, witness: Witness) -> None:
    """`release` makes the job pending again, without a claim, ready now, the attempt not counted; all else stays."""
    queue = store.queue("emails")
    pending = await _row(queue, await queue.enqueue("hello", priority=3))
    assert await (await _claim(queue)).retry("busy", 0)
    handle = await _claim(queue)
    await harness.advance(7)
    assert await handle.release()
    released = replace(pending, ready_at=clock.now(), attempts=1, last_error="busy")
    assert await _row(queue, pending.id) == released
    assert await witness.jobs("emails") == JobCounts(pending=1)
    assert (await _claim(queue, "another")).job.attempts == 2


@leg(rules="Q15", since="1.0")
async def test_release_burns_no_attempt(store: Store, second_store: Store) -> None:
    """However often a job is released, it is claimable at once and never dies of it, its last attempt too."""
    queue, other = store.queue("emails", max_attempts=1), second_store.queue("emails")
    job_id = await queue.enqueue("hello")
    for _ in range(5):
        handle = await _claim(queue)
        assert (handle.job.id, handle.job.attempts) == (job_id, 1)
        assert await handle.release()
        handle = await _claim(other)
        assert (handle.job.id, handle.job.attempts) == (job_id, 1)
        assert await handle.release()


# By id: Q8


@leg(rules="Q8 Q5", since="1.0")
async def test_ack_batch_counts_what_landed(harness: Harness, store: Store, witness: Witness) -> None:
    """`ack_batch` deletes the rows of this queue on which this worker has a live claim, counts them, and no others."""
    queue, other = store.queue("emails", visibility_timeout_s=30), store.queue("reports")
    await queue.enqueue_many(["one", "two", "three"], priority=9)
    mine = [handle.job.id for handle in await queue.claim_batch("me", 3)]
    await queue.enqueue("lapsed", priority=8)
    lapsed = await _claim(queue, "me")
    assert await lapsed.heartbeat(10)
    await queue.enqueue("somebody else's", priority=8)
    others = await _claim(queue, "you")
    await queue.enqueue("released", priority=8)
    released = await _claim(queue, "me")
    assert await released.release()
    await queue.enqueue("dead", priority=10)
    dead = await _claim(queue, "me")
    assert await dead.fail()
    await other.enqueue("elsewhere")
    elsewhere = await _claim(other, "me")
    await harness.advance(10)
    untouched = [handle.job.id for handle in (lapsed, others, released, dead, elsewhere)]
    before = [await _row(queue, job_id) for job_id in untouched]
    given = [mine[0], *untouched, mine[1], mine[0], 0, -1, INT64_MIN, INT64_MAX, mine[2]]
    assert await queue.ack_batch("me", given) == 3
    assert [await queue.get_job(job_id) for job_id in mine] == [None] * 3
    assert [await _row(queue, job_id) for job_id in untouched] == before
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
    dead = await _buried(queue)
    elsewhere = await _row(other, await other.enqueue("elsewhere"))
    for job_id in (dead.id, elsewhere.id, 0, -1, INT64_MIN, INT64_MAX):
        assert not await queue.cancel(job_id)
    assert await _row(queue, dead.id) == dead
    assert await _row(other, elsewhere.id) == elsewhere


@leg(rules="Q8 Q14", since="1.0")
async def test_get_job_looks_everywhere(store: Store, second_store: Store) -> None:
    """`get_job` gives the job with that id in any queue, live or dead, and None where there is none."""
    queue, other = store.queue("emails"), second_store.queue("reports")
    pending = await other.enqueue("pending")
    dead = await _buried(queue)
    await queue.enqueue("held")
    held = (await _claim(queue)).job
    assert (await _row(queue, pending)).queue == "reports"
    assert await _row(queue, pending) == await _row(other, pending)
    assert await other.get_job(dead.id) == dead
    assert await other.get_job(held.id) == held
    for job_id in (0, -1, INT64_MIN, INT64_MAX):
        assert await queue.get_job(job_id) is None


@leg(rules="Q8 T6", since="1.0")
async def test_transaction_get_job_looks_in_its_queue(store: Store) -> None:
    """`tx.get_job` gives the named queue's job, live or dead, of this transaction or before it, and no other."""
    queue = store.queue("emails")
    dead = await _buried(queue)
    pending = await _row(queue, await queue.enqueue("pending"))
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


# Dead letters and sweeping: Q9, Q10


@leg(rules="Q9 Q14", since="1.0")
async def test_last_error_of_a_waiting_job(store: Store) -> None:
    """A job that waits to be retried shows its latest failure, and a release does not hide it."""
    queue = store.queue("emails", max_attempts=10)
    job_id = await queue.enqueue("hello")
    for error in ("first", "second", ""):
        assert await (await _claim(queue)).retry(error, 0)
        assert (await _row(queue, job_id)).last_error == error
    assert await (await _claim(queue)).retry("third", 0)
    assert await (await _claim(queue)).release()
    assert (await _row(queue, job_id)).last_error == "third"


@leg(rules="Q9 Q10", since="1.0")
async def test_sweep_buries_the_expired(harness: Harness, store: Store, clock: ManualClock, witness: Witness) -> None:
    """A sweep makes every expired job dead as "expired", whatever its state, counts them, and keeps all they were."""
    queue = store.queue("emails", visibility_timeout_s=30, max_attempts=1)
    await queue.enqueue("held", expires=60, priority=3)
    await queue.enqueue("lapsed", expires=60, priority=2)
    held, lapsed = await queue.claim_batch("worker", 2)
    assert await held.heartbeat(1000)
    await queue.enqueue("retried", expires=60, priority=3, max_attempts=2)
    retried = await _claim(queue)
    assert await retried.retry("busy", 1000)
    ids = [held.job.id, lapsed.job.id, retried.job.id, await queue.enqueue("ready", expires=60)]
    ids.append(await queue.enqueue("delayed", expires=60, delay=1000))
    before = [await _row(queue, job_id) for job_id in ids]
    await harness.advance(61)
    assert await queue.sweep_expired() == 5
    now = clock.now()
    dead = [replace(job, state=JobState.DEAD, last_error="expired", died_at=now) for job in before]
    assert [await _row(queue, job_id) for job_id in ids] == dead
    assert await witness.jobs("emails") == JobCounts(dead=5)
    assert await queue.sweep_expired() == 0


@leg(rules="Q10", since="1.0")
async def test_sweep_spares_what_has_not_expired(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A job is swept from the second of its expires_at on, and not before; one without, never."""
    queue = store.queue("emails")
    last = await queue.enqueue("last", expires=10)
    ids = [await queue.enqueue("later", expires=11), await queue.enqueue("never")]
    ids.append(await queue.enqueue("at the limit", expires=INT64_MAX))
    before = [await _row(queue, job_id) for job_id in ids]
    await harness.advance(9)
    assert await queue.sweep_expired() == 0
    await harness.advance(1)
    assert await queue.sweep_expired() == 1
    job = await _row(queue, last)
    assert (job.state, job.died_at) == (JobState.DEAD, clock.now())
    assert [await _row(queue, job_id) for job_id in ids] == before


@leg(rules="Q10", since="1.0")
async def test_sweep_leaves_the_dead_as_they_died(harness: Harness, store: Store) -> None:
    """A dead letter whose expiry passes later is not moved again: it keeps its error and its time, and counts not."""
    queue = store.queue("emails")
    job_id = await queue.enqueue("hello", expires=60)
    assert await (await _claim(queue)).fail("no such address")
    dead = await _row(queue, job_id)
    await harness.advance(60)
    assert await queue.sweep_expired() == 0
    assert await _row(queue, dead.id) == dead


@leg(rules="Q10", since="1.0")
async def test_sweep_deletes_past_retention(harness: Harness, store: Store, witness: Witness) -> None:
    """A sweep deletes a dead letter, uncounted, from the second at which its own retention has passed since it died."""
    died: dict[int | None, int] = {}
    for retention in (None, 20, 10, INT64_MAX):
        died[retention] = (await _buried(store.queue("emails", dead_letter_retention_s=retention))).id
        await store.queue("emails").enqueue("between")
    queue = store.queue("emails", dead_letter_retention_s=1)

    async def left() -> set[int | None]:
        assert await queue.sweep_expired() == 0
        return {retention for retention, job_id in died.items() if await queue.get_job(job_id) is not None}

    await harness.advance(9)
    assert await left() == {None, 10, 20, INT64_MAX}
    await harness.advance(1)
    assert await left() == {None, 20, INT64_MAX}
    await harness.advance(10)
    assert await left() == {None, INT64_MAX}
    await harness.advance(10**12)
    assert await left() == {None, INT64_MAX}
    assert await witness.jobs("emails") == JobCounts(pending=4, dead=2)


@leg(rules="Q10", since="1.0")
async def test_retention_starts_at_death(harness: Harness, store: Store) -> None:
    """Retention is counted from the second of the death, however old the job is, however it died."""
    queue = store.queue("emails", dead_letter_retention_s=10, visibility_timeout_s=100, max_attempts=1)
    for expires in (100, None, None):
        await queue.enqueue("old", expires=expires)
    expired, exhausted, retried = await queue.claim_batch("worker", 3)
    await harness.advance(99)
    assert await retried.retry("busy")
    await harness.advance(1)
    assert await queue.claim_one("worker") is None
    assert await queue.sweep_expired() == 1

    async def left() -> list[int]:
        assert await queue.sweep_expired() == 0
        jobs = [await queue.get_job(handle.job.id) for handle in (expired, exhausted, retried)]
        return [job.id for job in jobs if job is not None]

    await harness.advance(8)
    assert await left() == [expired.job.id, exhausted.job.id, retried.job.id]
    await harness.advance(1)
    assert await left() == [expired.job.id, exhausted.job.id]
    await harness.advance(1)
    assert await left() == []


@leg(rules="Q10", since="1.0")
async def test_sweep_forgets_at_once_without_retention(store: Store, witness: Witness) -> None:
    """An expired job whose retention is 0 is moved, counted, and deleted by the same sweep."""
    queue = store.queue("emails", dead_letter_retention_s=0)
    expired = await queue.enqueue("expired", expires=0)
    assert await queue.sweep_expired() == 1
    assert await queue.get_job(expired) is None
    dead = await _buried(queue)
    assert await queue.sweep_expired() == 0
    assert await queue.get_job(dead.id) is None
    assert await witness.jobs("emails") == JobCounts()


@leg(rules="Q10", since="1.0")
async def test_nothing_sweeps_by_itself(harness: Harness, store: Store, second_store: Store) -> None:
    """Expired jobs and dead letters past their retention stay as they are, whatever else is done, until a sweep."""
    queue = store.queue("emails", dead_letter_retention_s=0)
    dead = await _buried(queue)
    expired = await _row(queue, await queue.enqueue("expired", expires=0))
    await harness.advance(10**6)
    for each in (store, second_store):
        emails = each.queue("emails")
        await emails.enqueue("hello")
        assert await (await _claim(emails)).ack()
        assert await emails.claim_batch("worker", 10) == []
    assert await _row(queue, dead.id) == dead
    assert await _row(queue, expired.id) == expired


@leg(rules="Q10", since="1.0")
async def test_sweep_strands_nothing(harness: Harness, store: Store, witness: Witness) -> None:
    """After a sweep every row is dead, or claimed, or will be claimable: none is left that nobody can ever get."""
    queue = store.queue("emails", visibility_timeout_s=30)
    for expires in (None, 50, 1000):
        await queue.enqueue_many(["held", "waiting", "lapsed"], expires=expires)
    for held, waiting, _ in zip(*[iter(await queue.claim_batch("gone", 9))] * 3, strict=True):
        assert await held.heartbeat(100)
        assert await waiting.retry("busy", 90)
    for expires in (None, 50, 1000):
        await queue.enqueue("ready", expires=expires)
        await queue.enqueue("delayed", expires=expires, delay=70)
    await harness.advance(60)
    assert await queue.sweep_expired() == 5
    claimed = await queue.claim_batch("worker", 100)
    assert [handle.job.payload_as(str) for handle in claimed] == ["lapsed", "lapsed", "ready", "ready"]
    assert [await handle.ack() for handle in claimed] == [True] * 4
    await harness.advance(60)
    claimed = await queue.claim_batch("worker", 100)
    assert sorted(handle.job.payload_as(str) for handle in claimed) == sorted(["delayed", "waiting", "held"] * 2)
    assert [await handle.ack() for handle in claimed] == [True] * 6
    assert await witness.jobs("emails") == JobCounts(dead=5)


@each_act
@leg(rules="Q5 Q10", since="1.0")
async def test_swept_job_can_be_settled_no_more(harness: Harness, store: Store, act: Act) -> None:
    """A sweep ends the claims of what it moves: their acts are False, and the dead letter stays as it is."""
    queue = store.queue("emails")
    await queue.enqueue("hello", expires=10)
    handle = await _claim(queue)
    await harness.advance(10)
    assert await queue.sweep_expired() == 1
    dead = await _row(queue, handle.job.id)
    assert not await act(handle)
    assert await _row(queue, dead.id) == dead


@leg(rules="Q5 Q10", since="1.0")
async def test_sweep_and_ack_at_once(harness: Harness, store: Store, second_store: Store) -> None:
    """Where sweeps and an ack of an expired job meet, one has it: it is done or it is dead, and counted once."""
    queue, other = store.queue("emails"), second_store.queue("emails")
    for turn in range(20):
        job_id = await queue.enqueue("hello", expires=1)
        handle = await _claim(queue)
        await harness.advance(1)
        works = [handle.ack, other.sweep_expired, queue.sweep_expired]
        results = await _at_once(*works) if turn % 2 else (await _at_once(*works[::-1]))[::-1]
        job = await queue.get_job(job_id)
        outcome = results[0], results[1] + results[2], job and job.state
        assert outcome in [(True, 0, None), (False, 1, JobState.DEAD)]
