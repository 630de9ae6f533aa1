"""The worker: a consumer loop over a queue's own operations (contract section 11)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

import pytest
from alkstore_core import Job, JobHandle, JobState, Queue, StopToken, Store, Worker
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.testing import ManualClock, running_tasks

from alkstore_contract_suite.harness import Harness, JobCounts, Witness
from alkstore_contract_suite.leg import leg

SOON_S = 3.0
"""A worker that is woken begins far sooner, one that only looks every few seconds does not (W2)."""


class Bench:
    """A handler that says each job it begins. A job whose payload is in `held` takes until it is let go."""

    def __init__(self, *held: str) -> None:
        self.handled: list[object] = []
        """The payloads of the jobs that were begun, in that order."""
        self.ended: list[object] = []
        """The payloads of those that were not cancelled."""
        self.running = 0
        self.most_running = 0
        self._gates = {payload: asyncio.Event() for payload in held}
        self._begun: asyncio.Queue[JobHandle] = asyncio.Queue()

    async def __call__(self, handle: JobHandle) -> None:
        payload = handle.job.payload_as(object)
        self.handled.append(payload)
        self._begun.put_nowait(handle)
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            if isinstance(payload, str) and payload in self._gates:
                await self._gates[payload].wait()
            self.ended.append(payload)
        finally:
            self.running -= 1

    async def next(self) -> JobHandle:
        """The next job to be begun, which must be soon."""
        try:
            async with asyncio.timeout(SOON_S):
                return await self._begun.get()
        except TimeoutError:
            raise AssertionError(f"no job was begun within {SOON_S} s") from None

    async def begins(self, *payloads: object) -> None:
        """Wait until just these are begun next, in whatever order."""
        begun = [(await self.next()).job.payload_as(object) for _ in payloads]
        assert sorted(map(str, begun)) == sorted(map(str, payloads))

    def let_go(self, payload: str) -> None:
        """Let a held job end."""
        self._gates[payload].set()


@asynccontextmanager
async def working(*workers: Worker) -> AsyncIterator[StopToken]:
    """Run them during the block, then stop them, and wait until they have returned."""
    stop = StopToken()
    try:
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker.run(stop))
            yield stop
            stop.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


@contextmanager
def logged() -> Iterator[list[logging.LogRecord]]:
    """What alkstore logs as a warning or worse during the block."""
    records: list[logging.LogRecord] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name.startswith("alkstore") and record.levelno >= logging.WARNING:
                records.append(record)

    keeper = Keeper()
    logging.getLogger().addHandler(keeper)
    try:
        yield records
    finally:
        logging.getLogger().removeHandler(keeper)


async def _row(queue: Queue, job_id: int) -> Job:
    job = await queue.get_job(job_id)
    assert job is not None, f"job {job_id} has gone"
    return job


async def _gone(queue: Queue, *job_ids: int) -> None:
    """Wait until they have been acked."""
    for job_id in job_ids:
        while await queue.get_job(job_id) is not None:
            pass


async def _passes(queue: Queue, bench: Bench, payload: str = "sentinel") -> None:
    """Prove that nothing else is begun: a job of the least priority, enqueued now, is next, and then done."""
    job_id = await queue.enqueue(payload, priority=-1)
    await bench.begins(payload)
    await _gone(queue, job_id)


# W1


@leg(rules="W1", since="1.0")
async def test_returning_acks(store: Store, witness: Witness) -> None:
    """A job is acked once its handler has returned, and not before."""
    queue, bench = store.queue("emails"), Bench("held")
    held = await queue.enqueue("held")
    async with working(Worker(queue, bench, worker_id="me")):
        handle = await bench.next()
        assert (handle.job.id, handle.job.worker_id, handle.job.attempts) == (held, "me", 1)
        assert await _row(queue, held) == handle.job
        bench.let_go("held")
        await _gone(queue, held)
    assert await witness.jobs("emails") == JobCounts()


@leg(rules="W1 Q7", since="1.0")
async def test_raising_retries(store: Store, clock: ManualClock) -> None:
    """A job whose handler raises waits to be retried, with the error's text and its queue's backoff."""

    async def fail(_: JobHandle) -> None:
        raise ConnectionError("the server is down")

    queue = store.queue("emails")
    store.draw = _most
    pending = await _row(queue, await queue.enqueue("hello"))
    async with working(Worker(queue, fail)):
        while (job := await _row(queue, pending.id)).last_error is None:
            pass
    assert job == replace(pending, attempts=1, ready_at=clock.now() + 5, last_error="the server is down")


def _most(low: int, high: int) -> int:
    return max(low, high)


@leg(rules="W1 Q7", since="1.0")
async def test_last_attempt_buries(store: Store) -> None:
    """A job whose handler raises in its last attempt is a dead letter with the error's text."""

    async def fail(_: JobHandle) -> None:
        raise ConnectionError("the server is down")

    queue = store.queue("emails", max_attempts=1)
    job_id = await queue.enqueue("hello")
    async with working(Worker(queue, fail)):
        while (job := await _row(queue, job_id)).state is not JobState.DEAD:
            pass
    assert (job.attempts, job.last_error) == (1, "the server is down")


@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
@leg(rules="W1", since="1.0")
async def test_handler_may_settle(store: Store, raises: bool) -> None:
    """A handler may settle its handle by itself; what it returns or raises after that changes nothing."""
    bench = Bench()

    async def settle(handle: JobHandle) -> None:
        await bench(handle)
        how = handle.job.payload_as(str)
        if how == "ack":
            assert await handle.ack()
        elif how == "fail":
            assert await handle.fail("no such address")
        elif how == "retry":
            assert await handle.retry("busy", 1000)
        elif bench.handled.count("release") == 1:
            assert await handle.release()
        if raises and bench.handled.count("release") < 2:
            raise LookupError("not this")

    queue = store.queue("emails")
    ids = {how: await queue.enqueue(how) for how in ("ack", "fail", "retry")}
    async with working(Worker(queue, settle, concurrency=1)):
        await bench.begins("ack", "fail", "retry")
        ids["release"] = await queue.enqueue("release")
        await bench.begins("release", "release")
        await _gone(queue, ids["release"])
    rows = {how: await queue.get_job(job_id) for how, job_id in ids.items()}
    settled = {how: job and (job.state, job.last_error, job.attempts) for how, job in rows.items()}
    assert settled == {
        "ack": None,
        "fail": (JobState.DEAD, "no such address", 1),
        "retry": (JobState.PENDING, "busy", 1),
        "release": None,
    }


@pytest.mark.parametrize("end", ["stop", "cancel"])
@leg(rules="W1 W4 Q15", since="1.0")
async def test_shutdown_burns_no_attempt(harness: Harness, store: Store, clock: ManualClock, end: str) -> None:
    """A job that a shutdown cancels is ready again at once, without an error, the attempt not counted."""
    queue, bench = store.queue("emails", max_attempts=1), Bench("held")
    pending = await _row(queue, await queue.enqueue("held"))
    stop = StopToken()
    run = asyncio.create_task(Worker(queue, bench, shutdown_timeout=0).run(stop))
    await bench.begins("held")
    await harness.advance(10)
    if end == "stop":
        stop.cancel()
        await run
    else:
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert (bench.handled, bench.ended) == (["held"], [])
    assert await _row(queue, pending.id) == replace(pending, ready_at=clock.now())
    assert await queue.claim_one("another") is not None


@leg(rules="W1 W5", since="1.0")
async def test_handlers_own_cancellation_is_a_failure(store: Store) -> None:
    """A handler that is cancelled by anything but a shutdown has failed, and the worker goes on."""
    bench = Bench()

    async def cancel(handle: JobHandle) -> None:
        await bench(handle)
        if handle.job.payload_as(str) == "cancelled":
            raise asyncio.CancelledError

    queue = store.queue("emails")
    failed = await queue.enqueue("cancelled", priority=1)
    async with working(Worker(queue, cancel, concurrency=1)):
        await bench.begins("cancelled")
        await queue.enqueue("next")
        await bench.begins("next")
    job = await _row(queue, failed)
    assert (job.state, job.attempts) == (JobState.PENDING, 1)
    assert job.last_error is not None


# W2, Q13


@leg(rules="W2 Q13", since="1.0")
async def test_commit_wakes(store: Store, second_store: Store) -> None:
    """An idle worker begins a job as soon as it is committed, by whichever store and in whichever form."""
    queue, other, bench = store.queue("emails"), second_store.queue("emails"), Bench()
    async with working(Worker(queue, bench)), asyncio.timeout(SOON_S):  # far more jobs than looks once a second
        for _ in range(5):
            await queue.enqueue("own")
            await bench.begins("own")
            await other.enqueue("other's")
            await bench.begins("other's")
            await other.enqueue_many(["one", "two"])
            await bench.begins("one", "two")
            async with second_store.transaction() as tx:
                await tx.enqueue("emails", "in a transaction")
                await tx.enqueue("reports", "another queue's")
            await bench.begins("in a transaction")


@leg(rules="W2 N7 T10", since="1.0")
async def test_callers_commit_wakes(harness: Harness, store: Store, second_store: Store, native_kind: str) -> None:
    """An idle worker begins a job as soon as the caller's own transaction that it was enlisted in commits."""
    bench = Bench()
    async with working(Worker(store.queue("emails"), bench)):
        await _passes(store.queue("emails"), bench)
        async with harness.native(native_kind) as native:
            await second_store.enlist(native.handle).enqueue("emails", "enlisted")
            await native.commit()
        await bench.begins("enlisted")


@leg(rules="W2", since="1.0")
async def test_waiting_jobs_are_begun(store: Store) -> None:
    """A worker begins the jobs that were there before it, without any commit to wake it."""
    queue, bench = store.queue("emails"), Bench()
    await queue.enqueue_many(["one", "two", "three"])
    async with working(Worker(queue, bench, concurrency=2)):
        await bench.begins("one", "two", "three")


@pytest.mark.parametrize("when", ["before", "while"])
@leg(rules="W2 Q13", since="1.0")
async def test_ready_time_wakes(harness: Harness, store: Store, when: str) -> None:
    """An idle worker begins a job at its ready time and not before, whether it was enqueued before or while it runs."""
    queue, bench = store.queue("emails"), Bench()
    if when == "before":
        await queue.enqueue_many(["later"], delay=60)
    async with working(Worker(queue, bench)):
        await _passes(queue, bench)
        if when == "while":
            await queue.enqueue("later", delay=60)
            await queue.enqueue("much later", delay=10**6)
        await harness.advance(59)
        await _passes(queue, bench)
        await harness.advance(1)
        await bench.begins("later")


@leg(rules="W2 Q13", since="1.0")
async def test_sooner_ready_time_wakes(harness: Harness, store: Store, second_store: Store) -> None:
    """A worker that waits for one ready time begins jobs that are ready sooner, each at its own."""
    queue, bench = store.queue("emails"), Bench()
    async with working(Worker(queue, bench)):
        await _passes(queue, bench)
        for delay in (300, 20, 100):
            await second_store.queue("emails").enqueue(delay, delay=delay)
            await _passes(queue, bench)
        for step, delay in ((20, 20), (80, 100), (200, 300)):
            await harness.advance(step)
            await bench.begins(delay)


@leg(rules="W2 Q13", since="1.0")
async def test_lapsed_claim_wakes(harness: Harness, store: Store, second_store: Store) -> None:
    """An idle worker begins a job at the second at which somebody else's claim of it lapses."""
    queue, bench = store.queue("emails", visibility_timeout_s=30), Bench()
    await queue.enqueue("lapsing")
    assert await second_store.queue("emails").claim_one("gone") is not None
    async with working(Worker(queue, bench)):
        await _passes(queue, bench)
        await harness.advance(29)
        await _passes(queue, bench)
        await harness.advance(1)
        handle = await bench.next()
        assert (handle.job.payload, handle.job.attempts) == (b'"lapsing"', 2)


@leg(rules="W2 Q13", since="1.0")
async def test_given_back_job_wakes(harness: Harness, store: Store, second_store: Store) -> None:
    """An idle worker begins a job that somebody else gives back: by a release, a retry or a heartbeat, now or later."""
    queue, other, bench = store.queue("emails"), second_store.queue("emails"), Bench()
    await queue.enqueue_many(["released", "retried", "voided", "shortened", "retried later"])
    claims = {handle.job.payload_as(str): handle for handle in await other.claim_batch("another", 5)}
    async with working(Worker(queue, bench)):
        await _passes(queue, bench)
        assert await claims["released"].release()
        await bench.begins("released")
        assert await claims["retried"].retry("busy", 0)
        await bench.begins("retried")
        assert await claims["voided"].heartbeat(0)
        await bench.begins("voided")
        assert await claims["shortened"].heartbeat(5)
        assert await claims["retried later"].retry("busy", 10)
        await _passes(queue, bench)
        await harness.advance(5)
        await bench.begins("shortened")
        await harness.advance(5)
        await bench.begins("retried later")


@leg(rules="W2 Q13", since="1.0")
async def test_extended_claim_is_waited_for(harness: Harness, store: Store, second_store: Store) -> None:
    """A worker that waited for a claim to lapse waits on where the claim was extended, until it lapses then."""
    queue, bench = store.queue("emails", visibility_timeout_s=30), Bench()
    await queue.enqueue("extended")
    claim = await second_store.queue("emails").claim_one("another")
    assert claim is not None
    async with working(Worker(queue, bench)):
        await _passes(queue, bench)
        await harness.advance(20)
        assert await claim.heartbeat(30)
        await harness.advance(29)
        for _ in range(3):  # so that the look at the old deadline is over
            await _passes(queue, bench)
        await harness.advance(1)
        await bench.begins("extended")


@leg(rules="W2 Q7", since="1.0")
async def test_retried_job_is_begun_again(harness: Harness, store: Store) -> None:
    """A worker retries what failed when its wait is over, until it works."""
    queue, bench = store.queue("emails", backoff_base_s=10), Bench()
    store.draw = _most

    async def fail_twice(handle: JobHandle) -> None:
        await bench(handle)
        if handle.job.payload_as(str) == "hello" and handle.job.attempts < 3:
            raise ConnectionError("down")

    job_id = await queue.enqueue("hello")
    async with working(Worker(queue, fail_twice)):
        for wait in (10, 20):
            await bench.begins("hello")
            while (await _row(queue, job_id)).state is not JobState.PENDING:
                pass
            await _passes(queue, bench)
            await harness.advance(wait)
        await bench.begins("hello")
        await _gone(queue, job_id)


@leg(rules="W2", since="1.0")
async def test_freed_slot_claims_at_once(store: Store) -> None:
    """A worker whose slots are all taken claims again as soon as one is free, without any commit to wake it."""
    names = [f"job {number}" for number in range(10)]
    queue, bench = store.queue("emails"), Bench(*names)
    await queue.enqueue_many(names)
    async with working(Worker(queue, bench, concurrency=2)), asyncio.timeout(SOON_S):
        await bench.begins(*names[:2])
        for freed, begun in zip(names, names[2:], strict=False):
            bench.let_go(freed)
            await bench.begins(begun)
        for name in names[-2:]:
            bench.let_go(name)


@leg(rules="W2", since="1.0")
async def test_commit_after_the_empty_scan_wakes(
    store: Store, second_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is committed between a worker's empty claim and its wait is begun at once: it subscribes first."""
    queue, bench = store.queue("emails"), Bench()
    claim_batch, overtaken = Queue.claim_batch, False

    async def claim_and_be_overtaken(self: Queue, worker_id: str, n: int) -> list[JobHandle]:
        nonlocal overtaken
        handles = await claim_batch(self, worker_id, n)
        if not handles and not overtaken:
            overtaken = True
            await second_store.queue("emails").enqueue("in between")
        return handles

    monkeypatch.setattr(Queue, "claim_batch", claim_and_be_overtaken)
    async with working(Worker(queue, bench)):
        for _ in range(10):
            await bench.begins("in between")
            overtaken = False
            await queue.enqueue("much later", delay=10**6)  # makes it look, and find nothing
        await bench.begins("in between")


@leg(rules="W2", since="1.0")
async def test_commit_before_the_first_scan_is_seen(
    store: Store, second_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is committed just before a worker's first claim is begun by it."""
    queue, bench = store.queue("emails"), Bench()
    claim_batch, first = Queue.claim_batch, True

    async def be_overtaken_and_claim(self: Queue, worker_id: str, n: int) -> list[JobHandle]:
        nonlocal first
        if first:
            first = False
            await second_store.queue("emails").enqueue("just before")
        return await claim_batch(self, worker_id, n)

    monkeypatch.setattr(Queue, "claim_batch", be_overtaken_and_claim)
    async with working(Worker(queue, bench)):
        await bench.begins("just before")


@leg(rules="W2", since="1.0")
async def test_batch_wakes_every_idle_worker(store: Store, second_store: Store) -> None:
    """As many jobs in one commit as there are idle workers, of one slot each: all of them begin."""
    bench = Bench(*(f"job {number}" for number in range(8)))
    workers = [Worker(each.queue("emails"), bench, concurrency=1) for each in (store, second_store) for _ in range(4)]
    async with working(*workers):
        await store.queue("emails").enqueue("before")
        await bench.begins("before")
        async with store.transaction() as tx:
            for number in range(8):
                await tx.enqueue("emails", f"job {number}")
        await bench.begins(*(f"job {number}" for number in range(8)))
        assert bench.running == 8
        for number in range(8):
            bench.let_go(f"job {number}")


@leg(rules="W2 Q13", since="1.0")
async def test_idle_worker_is_quiet(harness: Harness, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker with nothing to do claims nothing until it is woken, also where jobs are delayed or others' live."""
    queue, bench = store.queue("emails"), Bench()
    claim_batch, claims = Queue.claim_batch, 0

    async def count(self: Queue, worker_id: str, n: int) -> list[JobHandle]:
        nonlocal claims
        claims += 1
        return await claim_batch(self, worker_id, n)

    await queue.enqueue("another's")
    assert await queue.claim_one("another") is not None
    await queue.enqueue("later", delay=100)
    monkeypatch.setattr(Queue, "claim_batch", count)
    async with working(Worker(queue, bench)):
        done = await queue.enqueue("now")
        await bench.begins("now")
        await _gone(queue, done)
        settled = claims
        for _ in range(30):
            await harness.advance(1)
            for _ in range(5):
                await queue.get_job(done)
        assert claims <= settled + 3


@leg(rules="W2 Q3", since="1.0")
async def test_worker_keeps_to_its_queue(harness: Harness, store: Store, witness: Witness) -> None:
    """A worker claims, buries and deletes no job of another queue, and those of its own in claim order."""
    queue, other, bench = store.queue("emails"), store.queue("reports", max_attempts=1), Bench()
    await other.enqueue("lapsed")
    assert await other.claim_one("gone") is not None
    await harness.advance(300)
    await other.enqueue("ready", priority=9)
    for priority in (1, 3, 2):
        await queue.enqueue(priority, priority=priority)
    async with working(Worker(queue, bench, concurrency=1)):
        await bench.begins(1, 2, 3)
    assert bench.handled == [3, 2, 1]
    assert await witness.jobs("reports") == JobCounts(pending=1, processing=1)


# W3


@leg(rules="W3", since="1.0")
async def test_claims_no_more_than_free_slots(store: Store, witness: Witness) -> None:
    """A worker holds no more claims than it has slots: what it cannot begin is left for others to claim."""
    names = [f"job {number}" for number in range(6)]
    queue, bench = store.queue("emails"), Bench(*names)
    ids = await queue.enqueue_many(names)
    async with working(Worker(queue, bench, concurrency=3)):
        await bench.begins(*names[:3])
        assert await witness.jobs("emails") == JobCounts(pending=3, processing=3)
        bench.let_go(names[0])
        await bench.begins(names[3])
        await _gone(queue, ids[0])
        assert await witness.jobs("emails") == JobCounts(pending=2, processing=3)
        rest = await queue.claim_batch("another", 10)
        assert [handle.job.id for handle in rest] == ids[4:]
        for name in names:
            bench.let_go(name)
    assert await witness.jobs("emails") == JobCounts(processing=2)


@leg(rules="W3", since="1.0")
async def test_claims_in_batches(store: Store, witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker asks for as many jobs as it has free slots and no more, runs no more at a time, and does all."""
    queue, bench = store.queue("emails"), Bench()
    claim_batch, asked, got = Queue.claim_batch, list[tuple[int, int]](), list[int]()

    async def note(self: Queue, worker_id: str, n: int) -> list[JobHandle]:
        handles = await claim_batch(self, worker_id, n)
        asked.append((n, bench.running))
        got.append(len(handles))
        return handles

    monkeypatch.setattr(Queue, "claim_batch", note)
    ids = await queue.enqueue_many(range(100))
    async with working(Worker(queue, bench, concurrency=10)):
        await bench.begins(*range(100))
        await _gone(queue, *ids)
    assert max(got) == 10
    assert all(n + running <= 10 for n, running in asked)
    assert bench.most_running <= 10
    assert await witness.jobs("emails") == JobCounts()


@pytest.mark.parametrize("visibility", [3, 30, 300])
@leg(rules="W3 W2", since="1.0")
async def test_heartbeats_at_a_third(harness: Harness, store: Store, clock: ManualClock, visibility: int) -> None:
    """A running job's claim is renewed each third of its visibility timeout, so that it is run once, however long."""
    queue, bench = store.queue("emails", visibility_timeout_s=visibility), Bench("held")
    job_id = await queue.enqueue("held")
    async with working(Worker(queue, bench)):
        handle = await bench.next()
        for _ in range(7):
            await harness.advance(visibility // 3)
            renewed = replace(handle.job, claim_expires_at=clock.now() + visibility)
            while await _row(queue, job_id) != renewed:
                pass
            assert await queue.claim_one("another") is None
        bench.let_go("held")
        await _gone(queue, job_id)
    assert bench.handled == ["held"]


@leg(rules="W3", since="1.0")
async def test_heartbeats_by_the_rows_timeout(harness: Harness, store: Store, clock: ManualClock) -> None:
    """Jobs of one worker with different visibility timeouts are each renewed in time."""
    bench = Bench("short", "long", "middle")
    for name, visibility in (("long", 3000), ("middle", 60), ("short", 6)):
        await store.queue("emails", visibility_timeout_s=visibility).enqueue(name)
    queue = store.queue("emails")
    async with working(Worker(queue, bench)):
        handles = [await bench.next() for _ in range(3)]
        for _ in range(40):
            await harness.advance(2)
            for handle in handles:
                visibility = handle.job.visibility_timeout_s
                while ((await _row(queue, handle.job.id)).claim_expires_at or 0) <= clock.now() + visibility // 2:
                    pass
        for name in ("short", "long", "middle"):
            bench.let_go(name)
        await _gone(queue, *(handle.job.id for handle in handles))
    assert sorted(map(str, bench.handled)) == ["long", "middle", "short"]


@leg(rules="W3", since="1.0")
async def test_shortest_claim_is_kept(harness: Harness, store: Store, clock: ManualClock) -> None:
    """A job with a visibility timeout of one second is run once, however long it takes."""
    queue, bench = store.queue("emails", visibility_timeout_s=1), Bench("held")
    job_id = await queue.enqueue("held")
    async with working(Worker(queue, bench)):
        await bench.begins("held")
        for _ in range(5):
            await harness.advance(1)
            while ((await _row(queue, job_id)).claim_expires_at or 0) <= clock.now() + 1:
                pass
            assert await queue.claim_one("another") is None
        bench.let_go("held")
        await _gone(queue, job_id)
    assert bench.handled == ["held"]


@pytest.mark.parametrize("outcome", ["returns", "raises"])
@leg(rules="W3 Q5", since="1.0")
async def test_result_of_a_lost_claim_is_dropped(
    harness: Harness, store: Store, second_store: Store, outcome: str
) -> None:
    """A job whose claim a worker lost to another is the other's: its late result changes nothing, and is logged."""
    bench = Bench("lost")

    async def handler(handle: JobHandle) -> None:
        await bench(handle)
        if outcome == "raises" and handle.job.payload_as(str) == "lost":
            raise ConnectionError("too late")

    queue = store.queue("emails", visibility_timeout_s=30)
    await queue.enqueue("lost")
    with logged() as records:
        async with working(Worker(queue, handler, concurrency=1)):
            await bench.begins("lost")
            await harness.advance(10**6)
            successor = await second_store.queue("emails").claim_one("another")
            assert successor is not None
            bench.let_go("lost")
            await queue.enqueue("next")
            await bench.begins("next")
    assert await _row(queue, successor.job.id) == successor.job
    assert await successor.ack()
    assert records != []


@leg(rules="W3 Q8", since="1.0")
async def test_result_of_a_cancelled_job_is_dropped(store: Store, witness: Witness) -> None:
    """A job that is cancelled while it runs stays away, and the worker goes on."""
    queue, bench = store.queue("emails"), Bench("cancelled")
    job_id = await queue.enqueue("cancelled")
    async with working(Worker(queue, bench, concurrency=1)):
        await bench.begins("cancelled")
        assert await queue.cancel(job_id)
        bench.let_go("cancelled")
        await queue.enqueue("next")
        await bench.begins("next")
    assert await witness.jobs("emails") == JobCounts()


# W4


@leg(rules="W4", since="1.0")
async def test_stop_claims_nothing_more(store: Store) -> None:
    """After a stop a worker claims nothing: what is committed then, and what waited for a slot, is left as it was."""
    queue, bench = store.queue("emails"), Bench("held")
    held = await queue.enqueue("held")
    waited = await _row(queue, await queue.enqueue("waited"))
    async with working(Worker(queue, bench, concurrency=1)) as stop:
        await bench.begins("held")
        stop.cancel()
        after = await _row(queue, await queue.enqueue("after"))
        for _ in range(5):
            await queue.get_job(held)
        bench.let_go("held")
    assert bench.ended == ["held"]
    assert await queue.get_job(held) is None
    assert [await _row(queue, job.id) for job in (waited, after)] == [waited, after]


@leg(rules="W4", since="1.0")
async def test_stop_lets_the_running_finish(store: Store, witness: Witness) -> None:
    """A stopped worker returns once its running jobs have ended, and has settled them by then."""

    async def fail(handle: JobHandle) -> None:
        await bench(handle)
        if handle.job.payload_as(str) == "failing":
            raise ConnectionError("down")

    queue, bench = store.queue("emails"), Bench("one", "two", "failing")
    await queue.enqueue_many(["one", "two", "failing"])
    stop = StopToken()
    run = asyncio.create_task(Worker(queue, fail).run(stop))
    await bench.begins("one", "two", "failing")
    stop.cancel()
    for payload in ("one", "failing", "two"):
        for _ in range(5):
            await queue.get_job(0)
        assert not run.done()
        bench.let_go(payload)
    await run
    assert sorted(map(str, bench.ended)) == ["failing", "one", "two"]
    assert await witness.jobs("emails") == JobCounts(pending=1)


@leg(rules="W4", since="1.0")
async def test_stop_flushes_settlements(store: Store, witness: Witness) -> None:
    """Whatever has ended when a worker is stopped is settled when it returns."""
    queue = store.queue("emails")
    for _ in range(10):
        bench = Bench()
        await queue.enqueue_many(range(20))
        async with working(Worker(queue, bench, concurrency=20)):
            await bench.begins(*range(20))
        assert await witness.jobs("emails") == JobCounts()


@leg(rules="W4 Q15", since="1.0")
async def test_stop_strands_nothing(store: Store) -> None:
    """Wherever a stop meets a worker, each job has been done, or is soon claimable with the attempt not counted."""
    queue = store.queue("emails", max_attempts=1)
    for turn in range(48):
        bench = Bench()
        ids = await queue.enqueue_many(range(12))
        async with working(Worker(queue, bench, concurrency=4)):
            for _ in range(turn // 2):
                await (queue.get_job(0) if turn % 2 else asyncio.sleep(0))
        left = {job_id for job_id in ids if await queue.get_job(job_id) is not None}
        assert len(bench.ended) + len(left) == 12
        while left:
            for handle in await queue.claim_batch("another", 12):
                left.remove(handle.job.id)
                assert await handle.ack()


@leg(rules="W4", since="1.0")
async def test_stop_before_the_start(store: Store) -> None:
    """A worker that is run with a token cancelled before returns without having claimed anything."""
    queue, bench, stop = store.queue("emails"), Bench(), StopToken()
    pending = await _row(queue, await queue.enqueue("hello"))
    stop.cancel()
    await Worker(queue, bench).run(stop)
    assert bench.handled == []
    assert await _row(queue, pending.id) == pending


@leg(rules="W4", since="1.0")
async def test_one_token_stops_all(store: Store, second_store: Store) -> None:
    """One token stops any number of workers, and each may be run again with another."""
    bench = Bench()
    workers = [Worker(each.queue("emails"), bench) for each in (store, second_store)]
    for _ in range(2):
        async with working(*workers):
            ids = await store.queue("emails").enqueue_many(range(10))
            await bench.begins(*range(10))
            await _gone(store.queue("emails"), *ids)
            for _ in range(20):  # both have nothing to do by now
                await store.queue("emails").get_job(0)


@pytest.mark.parametrize("end", ["stop", "cancel"])
@leg(rules="W4", since="1.0")
async def test_worker_leaves_no_task_behind(harness: Harness, store: Store, end: str) -> None:
    """When `run` has ended, stopped or cancelled, no task of the worker's is left, whatever its jobs were doing."""
    bench = Bench("held", "held too")

    async def fail(handle: JobHandle) -> None:
        await bench(handle)
        if handle.job.payload_as(str) == "failing":
            raise ConnectionError("down")

    queue, stop = store.queue("emails"), StopToken()
    await queue.enqueue_many(["held", "failing", "held too", "quick"])
    await queue.enqueue("later", delay=1000)
    before = running_tasks()
    run = asyncio.create_task(Worker(queue, fail, shutdown_timeout=0).run(stop))
    await bench.begins("held", "failing", "held too", "quick")
    await harness.advance(100)
    if end == "stop":
        stop.cancel()
        await run
    else:
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert running_tasks() == before
    assert bench.running == 0


@leg(rules="W4 T12", since="1.0")
async def test_closed_store_ends_the_worker(harness: Harness) -> None:
    """A worker whose store is closed ends with `ClosedError`, and its handlers have ended by then."""
    store = await harness.open()
    queue, bench = store.queue("emails"), Bench("held")
    await queue.enqueue("held")
    run = asyncio.create_task(Worker(queue, bench).run(StopToken()))
    await bench.begins("held")
    await store.close()
    with pytest.raises(ClosedError):
        await run
    assert (bench.running, bench.ended) == (0, [])


@leg(rules="W4 W3", since="1.0", needs=("outage",))
async def test_outage_is_survived(harness: Harness) -> None:
    """A worker survives an outage: what ended meanwhile is settled after it, and it begins jobs again."""
    async with harness.open(patience_s=0.1) as store:
        queue, bench = store.queue("emails"), Bench("ended in it")
        ended = await queue.enqueue("ended in it")
        async with working(Worker(queue, bench)):
            await bench.begins("ended in it")
            async with harness.outage():
                bench.let_go("ended in it")
                for _ in range(2):  # whatever was tried before the second has failed when that has
                    with pytest.raises(DatabaseError):
                        await queue.enqueue("not possible")
            await _gone(queue, ended)
            after = await queue.enqueue("after it")
            while bench.handled != ["ended in it", "after it"]:
                await queue.get_job(after)
            await _gone(queue, after)


@leg(rules="W4", since="1.0", needs=("outage",))
async def test_stop_ends_in_an_outage(harness: Harness) -> None:
    """A stop is obeyed in an outage too; what could not be given back is handed out when its claim lapses."""
    async with harness.open(patience_s=0.1) as store:
        queue, bench, stop = store.queue("emails"), Bench("held"), StopToken()
        held = await queue.enqueue("held")
        run = asyncio.create_task(Worker(queue, bench, shutdown_timeout=0).run(stop))
        await bench.begins("held")
        async with harness.outage():
            stop.cancel()
            await run
        assert bench.running == 0
        await harness.advance(300)
        claim = await queue.claim_one("another")
        assert claim is not None
        assert claim.job.id == held


# W5


@leg(rules="W5", since="1.0")
async def test_failing_jobs_stop_nobody(store: Store, witness: Witness) -> None:
    """However many jobs fail, and however, all others are done, in every slot."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise LookupError("no text")

    errors = [
        ValueError("plain"),
        MuteError(),
        ExceptionGroup("several", [ValueError("one"), LookupError("two")]),
        asyncio.CancelledError(),
        TimeoutError(),
        ValueError("a\0b\ud800c"),
        StopAsyncIteration(),
    ]
    bench = Bench()

    async def fail(handle: JobHandle) -> None:
        await bench(handle)
        number = handle.job.payload_as(int)
        if number < 70:
            raise errors[number % len(errors)]

    queue = store.queue("emails")
    await queue.enqueue_many(range(80))
    async with working(Worker(queue, fail, concurrency=5)):
        await bench.begins(*range(80))
    assert await witness.jobs("emails") == JobCounts(pending=70)


@dataclass
class Email:
    """What a handler expects."""

    to: str


@leg(rules="W5 P3", since="1.0")
async def test_undecodable_payload_stops_nobody(harness: Harness, store: Store) -> None:
    """A job whose payload is not what its handler expects is retried, then dead with that error; others are done."""
    bench = Bench()

    async def send(handle: JobHandle) -> None:
        await bench(handle)
        handle.job.payload_as(Email)

    queue = store.queue("emails", max_attempts=2)
    wrong = await queue.enqueue({"from": "nobody"}, priority=1)
    async with working(Worker(queue, send, concurrency=1)):
        await queue.enqueue({"to": "one"})
        await bench.begins({"from": "nobody"}, {"to": "one"})
        while (await _row(queue, wrong)).state is not JobState.PENDING:
            pass
        await harness.advance(10)
        await queue.enqueue({"to": "two"})
        await bench.begins({"from": "nobody"}, {"to": "two"})
    job = await _row(queue, wrong)
    assert (job.state, job.attempts) == (JobState.DEAD, 2)
    assert "Email" in (job.last_error or "")


@leg(rules="W5 W2", since="1.0")
async def test_slow_job_stops_nobody(store: Store) -> None:
    """A job that takes for ever takes one slot: the others go on in the rest."""
    queue, bench = store.queue("emails"), Bench("slow")
    await queue.enqueue("slow", priority=1)
    async with working(Worker(queue, bench, concurrency=2)):
        await bench.begins("slow")
        for number in range(20):
            await queue.enqueue(number)
            await bench.begins(number)
        bench.let_go("slow")
    assert bench.ended[-1] == "slow"
