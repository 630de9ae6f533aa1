"""Queues, dead letters: what they keep, what becomes one, and when sweeping deletes it (contract section 7)."""

from dataclasses import replace

from alkstore_core import JobState, Store
from alkstore_core.numbers import INT64_MAX
from alkstore_core.testing import ManualClock

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg
from alkstore_contract_suite.legs.jobs import Act, at_once, buried_in, claim_from, each_act, row_of


@leg(rules="Q9 Q14", since="1.0")
async def test_last_error_of_a_waiting_job(store: Store) -> None:
    """A job that waits to be retried shows its latest failure, and a release does not hide it."""
    queue = store.queue("emails", max_attempts=10)
    job_id = await queue.enqueue("hello")
    for error in ("first", "second", ""):
        assert await (await claim_from(queue)).retry(error, 0)
        assert (await row_of(queue, job_id)).last_error == error
    assert await (await claim_from(queue)).retry("third", 0)
    assert await (await claim_from(queue)).release()
    assert (await row_of(queue, job_id)).last_error == "third"


@leg(rules="Q9 Q10", since="1.0")
async def test_sweep_buries_the_expired(harness: Harness, store: Store, clock: ManualClock, witness: Witness) -> None:
    """A sweep makes every expired job dead as "expired", whatever its state, counts them, and keeps all they were."""
    queue = store.queue("emails", visibility_timeout_s=30, max_attempts=1)
    await queue.enqueue("held", expires=60, priority=3)
    await queue.enqueue("lapsed", expires=60, priority=2)
    held, lapsed = await queue.claim_batch("worker", 2)
    assert await held.heartbeat(1000)
    await queue.enqueue("retried", expires=60, priority=3, max_attempts=2)
    retried = await claim_from(queue)
    assert await retried.retry("busy", 1000)
    ids = [held.job.id, lapsed.job.id, retried.job.id, await queue.enqueue("ready", expires=60)]
    ids.append(await queue.enqueue("delayed", expires=60, delay=1000))
    before = [await row_of(queue, job_id) for job_id in ids]
    await harness.advance(61)
    assert await queue.sweep_expired() == 5
    now = clock.now()
    dead = [replace(job, state=JobState.DEAD, last_error="expired", died_at=now) for job in before]
    assert [await row_of(queue, job_id) for job_id in ids] == dead
    assert await witness.jobs("emails") == JobCounts(dead=5)
    assert await queue.sweep_expired() == 0


@leg(rules="Q10", since="1.0")
async def test_sweep_spares_what_has_not_expired(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A job is swept from the second of its expires_at on, and not before; one without, never."""
    queue = store.queue("emails")
    last = await queue.enqueue("last", expires=10)
    ids = [await queue.enqueue("later", expires=11), await queue.enqueue("never")]
    ids.append(await queue.enqueue("at the limit", expires=INT64_MAX))
    before = [await row_of(queue, job_id) for job_id in ids]
    await harness.advance(9)
    assert await queue.sweep_expired() == 0
    await harness.advance(1)
    assert await queue.sweep_expired() == 1
    job = await row_of(queue, last)
    assert (job.state, job.died_at) == (JobState.DEAD, clock.now())
    assert [await row_of(queue, job_id) for job_id in ids] == before


@leg(rules="Q10", since="1.0")
async def test_sweep_leaves_the_dead_as_they_died(harness: Harness, store: Store) -> None:
    """A dead letter whose expiry passes later is not moved again: it keeps its error and its time, and counts not."""
    queue = store.queue("emails")
    job_id = await queue.enqueue("hello", expires=60)
    assert await (await claim_from(queue)).fail("no such address")
    dead = await row_of(queue, job_id)
    await harness.advance(60)
    assert await queue.sweep_expired() == 0
    assert await row_of(queue, dead.id) == dead


@leg(rules="Q10", since="1.0")
async def test_sweep_deletes_past_retention(harness: Harness, store: Store, witness: Witness) -> None:
    """A sweep deletes a dead letter, uncounted, from the second at which its own retention has passed since it died."""
    died: dict[int | None, int] = {}
    for retention in (None, 20, 10, INT64_MAX):
        died[retention] = (await buried_in(store.queue("emails", dead_letter_retention_s=retention))).id
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
    dead = await buried_in(queue)
    assert await queue.sweep_expired() == 0
    assert await queue.get_job(dead.id) is None
    assert await witness.jobs("emails") == JobCounts()


@leg(rules="Q10", since="1.0")
async def test_nothing_sweeps_by_itself(harness: Harness, store: Store, second_store: Store) -> None:
    """Expired jobs and dead letters past their retention stay as they are, whatever else is done, until a sweep."""
    queue = store.queue("emails", dead_letter_retention_s=0)
    dead = await buried_in(queue)
    expired = await row_of(queue, await queue.enqueue("expired", expires=0))
    await harness.advance(10**6)
    for each in (store, second_store):
        emails = each.queue("emails")
        await emails.enqueue("hello")
        assert await (await claim_from(emails)).ack()
        assert await emails.claim_batch("worker", 10) == []
    assert await row_of(queue, dead.id) == dead
    assert await row_of(queue, expired.id) == expired


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
    handle = await claim_from(queue)
    await harness.advance(10)
    assert await queue.sweep_expired() == 1
    dead = await row_of(queue, handle.job.id)
    assert not await act(handle)
    assert await row_of(queue, dead.id) == dead


@leg(rules="Q5 Q10", since="1.0")
async def test_sweep_and_ack_at_once(harness: Harness, store: Store, second_store: Store) -> None:
    """Where sweeps and an ack of an expired job meet, one has it: it is done or it is dead, and counted once."""
    queue, other = store.queue("emails"), second_store.queue("emails")
    for turn in range(20):
        job_id = await queue.enqueue("hello", expires=1)
        handle = await claim_from(queue)
        await harness.advance(1)
        works = [handle.ack, other.sweep_expired, queue.sweep_expired]
        results = await at_once(*works) if turn % 2 else (await at_once(*works[::-1]))[::-1]
        job = await queue.get_job(job_id)
        outcome = results[0], results[1] + results[2], job and job.state
        assert outcome in [(True, 0, None), (False, 1, JobState.DEAD)]
