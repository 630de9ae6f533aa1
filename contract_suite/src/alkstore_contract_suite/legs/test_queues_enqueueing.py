"""Queues, enqueueing: what a job is made with, alone, among others and on a transaction (contract section 7)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from alkstore_core import Job, JobState, StopToken, Store
from alkstore_core.errors import CodecError
from alkstore_core.numbers import INT64_MAX, INT64_MIN
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.jobs import claim_from, row_of

Enqueued = Callable[..., Awaitable[Job]]


async def _enqueued(store: Store, **options: Any) -> Job:
    queue = store.queue("emails")
    return await row_of(queue, await queue.enqueue("hello", **options))


async def _enqueued_with_others(store: Store, **options: Any) -> Job:
    queue = store.queue("emails")
    return await row_of(queue, (await queue.enqueue_many(["hello", "world"], **options))[0])


async def _enqueued_in_transaction(store: Store, **options: Any) -> Job:
    async with store.transaction() as tx:
        job_id = await tx.enqueue("emails", "hello", **options)
        staged = await tx.get_job("emails", job_id)
    committed = await row_of(store.queue("emails"), job_id)
    assert staged == committed
    return committed


in_every_form = pytest.mark.parametrize(
    "enqueued",
    [_enqueued, _enqueued_with_others, _enqueued_in_transaction],
    ids=["enqueue", "enqueue_many", "tx.enqueue"],
)


def _least(low: int, high: int) -> int:
    return min(low, high)


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
            job = await row_of(queue, job_id)
            assert {name: getattr(job, name) for name in options} == options


@leg(rules="Q2", since="1.0")
async def test_handle_max_attempts_yields(store: Store) -> None:
    """An enqueue's own max_attempts wins over that of its handle, and None leaves the handle's."""
    queue = store.queue("emails", max_attempts=8)
    assert (await row_of(queue, await queue.enqueue("own", max_attempts=2))).max_attempts == 2
    assert (await row_of(queue, await queue.enqueue("handle's", max_attempts=None))).max_attempts == 8
    for job_id in await queue.enqueue_many(["own", "too"], max_attempts=2):
        assert (await row_of(queue, job_id)).max_attempts == 2


@leg(rules="Q2 Q4 Q7", since="1.0")
async def test_rows_carry_their_settings(store: Store, clock: ManualClock) -> None:
    """A queue owns no settings: whatever handle works on a row, the row's own options count."""
    strict = store.queue("emails", visibility_timeout_s=7, max_attempts=2, backoff_base_s=100)
    lax = store.queue("emails", visibility_timeout_s=700, max_attempts=200, backoff_base_s=0)
    store.draw = _least
    job_id = await strict.enqueue("hello")
    handle = await claim_from(lax)
    assert handle.job.claim_expires_at == clock.now() + 7
    assert await handle.retry("first")
    assert (await row_of(lax, job_id)).ready_at == clock.now() + 50
    clock.advance(50)
    assert await (await claim_from(lax)).retry("second")
    assert (await row_of(lax, job_id)).state is JobState.DEAD


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
    assert await (await claim_from(queue)).ack()
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
