"""The worker: woken, bounded, settling, stopping, and surviving what its handlers and its database do (W1 to W5)."""

import asyncio
import logging
import sys
from collections import Counter
from typing import Self

import anyio
import pytest
from alkstore_core import JobState, StopToken, Worker
from alkstore_core.errors import ClosedError, CodecError, DatabaseError, InvalidNameError
from alkstore_core.testing import running_tasks
from alkstore_mem import MemStore


class Shift:
    """A worker that runs in a task until the end of its block, and what it has handled."""

    def __init__(self, queue, handler=None, **options) -> None:
        self.stop = StopToken()
        self.handled: list[object] = []
        self.worker = Worker(queue, handler or self.note, **options)
        self._progress = asyncio.Event()
        self.task: asyncio.Task[None]

    async def note(self, handle) -> None:
        self.add(handle.job.payload_as(object))

    def add(self, what: object) -> None:
        """Something happened that the test waits for."""
        self.handled.append(what)
        self._progress.set()

    async def has(self, count: int) -> list[object]:
        """Wait until `count` things have been handled; all of them."""
        while len(self.handled) < count:
            self._progress.clear()
            await self._progress.wait()
        return self.handled

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.worker.run(self.stop))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.cancel()
        await self.task


async def settled(queue, job_id: int):
    """Wait until a worker has settled a job: it is gone, or was claimed and is not any more."""
    while (job := await queue.get_job(job_id)) is not None and (job.state is JobState.PROCESSING or not job.attempts):
        await idle()
    return job


async def idle() -> None:
    """Let everything that can run without time or the network run."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _no_rescans(monkeypatch: pytest.MonkeyPatch) -> None:
    """What must be woken is proved to be: the safety net never acts in these tests."""
    monkeypatch.setattr("alkstore_core.worker._RESCAN_S", 3600.0)


# W1: what a handler comes to


async def test_returning_acks_and_raising_retries_with_the_error(store, clock) -> None:
    """The text of the error, or its repr where that is empty (W1)."""
    queue = store.queue("q")
    fine, failing, silent = await queue.enqueue_many(["fine", "failing", "silent"])

    async def handle(handle) -> None:
        match handle.job.payload_as(str):
            case "failing":
                raise OSError("no route")
            case "silent":
                raise TimeoutError

    async with Shift(queue, handle):
        assert await settled(queue, fine) is None
        jobs = [await settled(queue, job) for job in (failing, silent)]
    assert [(job.state, job.last_error, job.attempts) for job in jobs] == [
        (JobState.PENDING, "no route", 1),
        (JobState.PENDING, "TimeoutError()", 1),
    ]
    assert all(clock.now() + 2 <= job.ready_at <= clock.now() + 5 for job in jobs)


@pytest.mark.parametrize("how", ["ack", "retry", "fail", "release"])
@pytest.mark.parametrize("end", ["returns", "raises"])
async def test_a_handler_may_settle_the_handle_itself(store, faults, how: str, end: str) -> None:
    """Then the worker settles nothing more, however the handler ends (W1)."""
    queue = store.queue("q")
    await queue.enqueue(1)
    done = asyncio.Event()

    async def handle(handle) -> None:
        assert await (handle.retry("mine", 60) if how == "retry" else getattr(handle, how)())
        shift.stop.cancel()
        done.set()
        if end == "raises":
            raise OSError("afterwards")

    async with Shift(queue, handle) as shift:
        await done.wait()
    primitive = {"ack": "ack_claims", "retry": "retry_claim", "fail": "bury_claim", "release": "release_claims"}[how]
    settlings = {"ack_claims", "retry_claim", "bury_claim", "release_claims"}
    assert [name for name in faults.names() if name in settlings] == [primitive]


async def test_a_failed_own_settling_leaves_it_to_the_worker(store, faults) -> None:
    """A handler whose ack raised is retried like any other that raised."""
    queue = store.queue("q")
    job = await queue.enqueue(1)

    async def handle(handle) -> None:
        faults.down = True
        try:
            await handle.ack()
        finally:
            faults.down = False

    async with Shift(queue, handle):
        waiting = await settled(queue, job)
    assert waiting.last_error == "the database is away"


async def test_a_cancellation_that_is_not_the_worker_s_is_a_failure(store) -> None:
    """It must neither lose the job nor end the worker (W1, W5)."""
    queue = store.queue("q")
    job = await queue.enqueue("cancelled")

    async def handle(handle) -> None:
        if handle.job.payload_as(str) == "cancelled":
            raise asyncio.CancelledError
        shift.add("next")

    async with Shift(queue, handle) as shift:
        waiting = await settled(queue, job)
        await queue.enqueue("next")
        await shift.has(1)
    assert (waiting.state, waiting.attempts, waiting.last_error) == (JobState.PENDING, 1, "CancelledError()")


async def test_any_awaitable_is_a_handler_s_answer_and_anything_else_is_a_failure(store) -> None:
    """A future will do; a function that returns nothing to await is said to."""
    queue = store.queue("q", max_attempts=1)

    def give_future(_: object) -> "asyncio.Future[None]":
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    job = await queue.enqueue(1)
    async with Shift(queue, give_future):
        assert await settled(queue, job) is None
    job = await queue.enqueue(1)
    async with Shift(queue, lambda _: None):
        dead = await settled(queue, job)
    assert dead.state is JobState.DEAD
    assert "await" in dead.last_error


# W2: woken, not polled


async def test_a_commit_starts_a_job_in_an_idle_worker(store, faults) -> None:
    """However it is committed: alone, in many, in a transaction, by another store (W2)."""
    queue = store.queue("q")
    async with Shift(queue) as shift:
        await faults.reached("next_due")
        await queue.enqueue(1)
        await shift.has(1)
        await queue.enqueue_many([2, 3])
        await shift.has(3)
        async with store.transaction() as tx:
            await tx.enqueue("q", 4)
        assert await shift.has(4) == [1, 2, 3, 4]


async def test_it_subscribes_before_it_looks(store, faults) -> None:
    """A job committed between the empty look and the wait is not missed, nor one before the subscription (W2)."""
    queue = store.queue("q")
    await queue.enqueue(0)
    async with Shift(queue) as shift:
        await shift.has(1)
        assert faults.names().index("watch") < faults.names().index("claim_jobs")
        for number in range(1, 200):
            # At every point of the worker's own loop: while it looks, asks for the next time, or waits.
            for _ in range(number % 13):
                await asyncio.sleep(0)
            await queue.enqueue(number)
            await shift.has(number + 1)
    assert shift.handled == list(range(200))


async def test_a_job_starts_at_its_ready_time(store, clock, faults) -> None:
    """Not a second before, and without anybody's call (W2, Q13)."""
    queue = store.queue("q")
    await queue.enqueue("later", delay=10)
    await queue.enqueue("sooner", delay=5)
    async with Shift(queue) as shift:
        await faults.reached("next_due")
        await idle()
        clock.advance(4)
        await queue.enqueue("now")
        assert await shift.has(1) == ["now"]
        await idle()
        clock.advance(1)
        assert await shift.has(2) == ["now", "sooner"]
        await queue.enqueue("soon", delay=1)
        await idle()
        clock.advance(1)
        assert await shift.has(3) == ["now", "sooner", "soon"]
        await idle()
        clock.advance(4)
        assert await shift.has(4) == ["now", "sooner", "soon", "later"]


async def test_what_becomes_ready_between_the_look_and_the_question_is_not_left(store, clock, faults) -> None:
    """A claim found some; before the next due time was asked for, another became ready (Q13)."""
    queue = store.queue("q")
    await queue.enqueue_many(["now", "now too"])
    await queue.enqueue("just now", delay=1)
    ticks = iter([True])
    faults.after["claim_jobs"] = lambda: clock.advance(1) if next(ticks, False) else None
    async with Shift(queue) as shift:
        assert await shift.has(3) == ["now", "now too", "just now"]


async def test_a_lapsed_claim_is_taken_over_at_its_deadline(store, clock, faults) -> None:
    """With no sweeper, and as a new attempt (W2, Q4)."""
    queue = store.queue("q", visibility_timeout_s=30)
    await queue.enqueue("left")
    dead_worker_s = await queue.claim_one("dead")
    attempts = []

    async def handle(handle) -> None:
        attempts.append(handle.job.attempts)
        await shift.note(handle)

    async with Shift(queue, handle) as shift:
        await faults.reached("next_due")
        await idle()
        clock.advance(29)
        await queue.enqueue("sentinel")
        assert await shift.has(1) == ["sentinel"]
        await idle()
        clock.advance(1)
        assert await shift.has(2) == ["sentinel", "left"]
    assert attempts == [1, 2]
    assert await dead_worker_s.ack() is False


async def test_what_is_given_back_or_made_ready_sooner_wakes_it(store, clock, faults) -> None:
    """A retry's ready time, a release, a claim cut short (Q13)."""
    queue = store.queue("q")
    async with Shift(queue) as shift:
        await faults.reached("next_due")
    first, second, third = await queue.enqueue_many(["released", "retried", "voided"])
    handles = {handle.job.id: handle for handle in await queue.claim_batch("other", 3)}
    async with Shift(queue) as shift:
        await faults.reached("next_due")
        await idle()
        await handles[first].release()
        assert await shift.has(1) == ["released"]
        await handles[second].retry("no", delay=7)
        await idle()
        clock.advance(7)
        assert await shift.has(2) == ["released", "retried"]
        await idle()
        await handles[third].heartbeat(0)
        assert await shift.has(3) == ["released", "retried", "voided"]


async def test_a_batch_wakes_every_idle_worker(store, faults) -> None:
    """Eight idle workers, eight jobs in one commit: all run at once."""
    queue = store.queue("q")
    everybody = asyncio.Barrier(9)

    async def handle(_: object) -> None:
        await everybody.wait()

    async with anyio.create_task_group() as group:
        stop = StopToken()
        for _ in range(8):
            group.start_soon(Worker(queue, handle, concurrency=1).run, stop)
        while faults.names().count("next_due") < 8:
            await faults.reached("next_due")
        await idle()
        async with store.transaction() as tx:
            for number in range(8):
                await tx.enqueue("q", number)
        await everybody.wait()
        stop.cancel()
    assert await queue.claim_one("w") is None


async def test_a_freed_slot_claims_again_at_once_and_no_more_than_it_has(store, faults) -> None:
    """Never more run than may, and what waits starts as soon as one ends (W2, W3)."""
    queue = store.queue("q")
    await queue.enqueue_many(range(10))
    go_on: dict[int, asyncio.Event] = {number: asyncio.Event() for number in range(10)}
    running: set[int] = set()

    async def handle(handle) -> None:
        number = handle.job.payload_as(int)
        running.add(number)
        assert len(running) <= 3
        shift.add(number)
        await go_on[number].wait()
        running.remove(number)

    async with Shift(queue, handle, concurrency=3) as shift:
        await shift.has(3)
        go_on[1].set()
        assert await shift.has(4) == [0, 1, 2, 3]
        assert running == {0, 2, 3}
        for number in range(10):
            go_on[number].set()
        await shift.has(10)
    limits = [args[2] for name, args in faults.calls if name == "claim_jobs"]
    assert limits[:2] == [3, 1]
    assert max(limits) == 3


async def test_a_lost_wake_is_made_up_for_by_a_slow_look(store, faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backstop, in real time: also while no subscription can be had at all (W2)."""
    monkeypatch.setattr("alkstore_core.worker._RESCAN_S", 0.01)
    queue = store.queue("q")
    faults.stalled = {"watch"}
    async with Shift(queue) as shift:
        await queue.enqueue("unheard")
        assert await shift.has(1) == ["unheard"]


async def test_an_idle_worker_asks_for_nothing(store, clock, faults) -> None:
    """Once it has looked, time alone brings no call, and a job in the far future no second look (Q13)."""
    queue = store.queue("q")
    await queue.enqueue(1, run_at=2**63 - 1)
    await queue.enqueue(1, delay=1000)
    async with Shift(queue):
        await faults.reached("next_due")
        await idle()
        before = faults.names()
        for _ in range(20):
            clock.advance(10)
            await idle()
        assert faults.names() == before


async def test_something_due_that_cannot_be_had_is_not_asked_for_in_a_spin(store, faults) -> None:
    """A claim under way elsewhere, or a server whose clock is behind: it asks again, with pauses, and is woken."""
    queue = store.queue("q")
    real, real_claim = faults._real, faults._real.claim_jobs

    async def locked(*_: object) -> list[object]:
        return []

    real.claim_jobs = locked
    await queue.enqueue("locked")
    async with Shift(queue) as shift:
        for _ in range(3):
            await faults.reached("next_due")
        asked = faults.names().count("claim_jobs")
        # A spin would ask whenever the loop runs, thousands of times here; the pauses grow up to a second.
        for _ in range(5000):
            await asyncio.sleep(0)
        assert faults.names().count("claim_jobs") - asked < 50
        real.claim_jobs = real_claim
        await queue.enqueue("woken")
        assert await shift.has(2) == ["locked", "woken"]


async def test_a_wake_before_such_a_pause_is_not_slept_over(store, faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came while the worker asked for the next time; the pause would last an hour."""
    monkeypatch.setattr("alkstore_core.worker.Backoff.next", lambda _: 3600.0)
    queue = store.queue("q")
    real, real_claim = faults._real, faults._real.claim_jobs

    async def locked(*_: object) -> list[object]:
        return []

    real.claim_jobs = locked
    await queue.enqueue("locked")
    faults.stalled = {"next_due"}
    async with Shift(queue) as shift:
        await faults.reached("next_due")
        real.claim_jobs = real_claim
        await queue.enqueue("woken")
        await idle()
        faults.flowing.set()
        assert await shift.has(2) == ["locked", "woken"]


async def test_two_services_on_one_database_never_touch_each_other_s_jobs(store) -> None:
    """A worker knows its own queue only."""
    mine, other = store.queue("mine"), store.queue("other", visibility_timeout_s=1, max_attempts=1)
    theirs = await other.enqueue("theirs", expires=0)
    before = await other.get_job(theirs)
    async with Shift(mine) as shift:
        await mine.enqueue("mine")
        assert await shift.has(1) == ["mine"]
    assert await other.get_job(theirs) == before


async def test_an_outbox_s_queue_has_workers_too(store) -> None:
    """Its name is reserved, its handle is not (O1)."""
    outbox = store.outbox("mail")
    async with store.transaction() as tx:
        await tx.outbox_enqueue("mail", {"to": "a"})
    async with Shift(outbox.queue) as shift:
        assert await shift.has(1) == [{"to": "a"}]


# W3: settling in batches, and claims that are lost


async def test_finished_jobs_are_settled_together(store, faults) -> None:
    """One ack call for a batch that finished together, and the next gathers while it is under way (W3)."""
    queue = store.queue("q")
    await queue.enqueue_many(range(64))
    async with Shift(queue, concurrency=64) as shift:
        await shift.has(64)
    acked = [len(args[0]) for name, args in faults.calls if name == "ack_claims"]
    assert acked == [64]


@pytest.mark.parametrize("end", ["returns", "raises"])
async def test_a_claim_lost_while_its_handler_runs_is_logged_once_and_its_result_dropped(
    store, clock, faults, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    """The heartbeat finds out; the other's claim and attempts stay as they are, and nothing is settled (Q5, W3)."""
    queue = store.queue("q", visibility_timeout_s=30)
    job = await queue.enqueue(1)
    started, go_on = asyncio.Event(), asyncio.Event()

    async def handle(_: object) -> None:
        started.set()
        await go_on.wait()
        if end == "raises":
            raise OSError("too late")

    async with Shift(queue, handle):
        await started.wait()
        faults.stalled = {"extend_claim"}
        clock.advance(10)
        await faults.reached("extend_claim")
        clock.advance(20)
        theirs = await queue.claim_one("other")
        assert theirs.job.attempts == 2
        faults.stalled = set()
        faults.flowing.set()
        await idle()
        clock.advance(10)
        await idle()
        faults.calls.clear()
        go_on.set()
        await idle()
        assert await queue.get_job(job) == theirs.job
        assert [name for name in faults.names() if name not in ("claim_jobs", "next_due", "find_job")] == []
    lost = [record for record in caplog.records if "was lost" in record.message]
    assert len(lost) == 1
    assert lost[0].name == "alkstore.worker"
    assert await theirs.ack()


async def test_a_job_cancelled_under_the_worker_is_logged_and_dropped(store, caplog: pytest.LogCaptureFixture) -> None:
    """Its ack is False (Q8)."""
    queue = store.queue("q")
    job = await queue.enqueue(1)

    async def handle(_: object) -> None:
        assert await queue.cancel(job)
        shift.add("cancelled")

    async with Shift(queue, handle) as shift:
        await shift.has(1)
    (message,) = caplog.messages
    assert message.startswith(
        f"the claim of <JobHandle {job} of 'q', attempt 1 by {shift.worker.worker_id!r}> was lost: "
    )


# W4: stopping


async def test_a_stop_lets_the_running_finish_and_settles_them(store) -> None:
    """It claims nothing more, and returns when they are done (W4)."""
    queue = store.queue("q")
    jobs = await queue.enqueue_many(range(5))
    started, go_on = asyncio.Barrier(3), asyncio.Event()

    async def handle(_: object) -> None:
        await started.wait()
        await go_on.wait()

    async with Shift(queue, handle, concurrency=2) as shift:
        await started.wait()
        shift.stop.cancel()
        await idle()
        assert not shift.task.done()
        go_on.set()
    assert [await queue.get_job(job) is None for job in jobs] == [True, True, False, False, False]
    assert len(await queue.claim_batch("w", 9)) == 3


@pytest.mark.parametrize("swallow", [False, True])
async def test_what_outlasts_the_shutdown_is_cancelled_and_given_back_uncounted(store, swallow: bool) -> None:
    """Available again at once, also on its last attempt, also if the handler made another error of it (W1, W4, Q15)."""
    queue = store.queue("q", max_attempts=1)
    job = await queue.enqueue(1)
    started = asyncio.Event()

    async def handle(_: object) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if swallow:
                raise OSError("interrupted") from None
            raise

    async with Shift(queue, handle, shutdown_timeout=0):
        await started.wait()
    given_back = await queue.get_job(job)
    assert (given_back.state, given_back.attempts, given_back.last_error) == (JobState.PENDING, 0, None)
    assert (await queue.claim_one("w")).job.attempts == 1


async def test_a_handler_that_finishes_when_it_is_cancelled_has_finished(store) -> None:
    """Its job is done and acked."""
    queue = store.queue("q")
    job = await queue.enqueue(1)
    started = asyncio.Event()

    async def handle(_: object) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async with Shift(queue, handle, shutdown_timeout=0):
        await started.wait()
    assert await queue.get_job(job) is None


async def test_a_claim_that_a_stop_overtakes_is_given_back(store, faults) -> None:
    """Cancelled while it commits, or answered after the stop: nothing starts, nothing waits for its lease (W4)."""
    queue = store.queue("q")
    jobs = await queue.enqueue_many(range(20))
    shift = Shift(queue, concurrency=20)
    faults.after["claim_jobs"] = shift.stop.cancel
    await shift.worker.run(shift.stop)
    assert shift.handled == []
    assert faults.names().count("claim_jobs") == 1
    assert [(job.state, job.attempts) for job in [await queue.get_job(job) for job in jobs]] == [
        (JobState.PENDING, 0)
    ] * 20
    assert len(await queue.claim_batch("w", 99)) == 20


async def test_at_whatever_moment_it_is_stopped_every_job_is_done_or_available(store) -> None:
    """Stops and cancellations at many points of the loop: no job is stranded in a claim, none is lost (W4, T13)."""
    queue = store.queue("q")
    done: Counter[int] = Counter()

    async def handle(handle) -> None:
        await asyncio.sleep(0)
        done[handle.job.id] += 1

    enqueued: list[int] = []
    for steps in range(120):
        enqueued += await queue.enqueue_many(range(7))
        stop = StopToken()
        task = asyncio.create_task(Worker(queue, handle, concurrency=3, shutdown_timeout=0).run(stop))
        for _ in range(steps // 2):
            await asyncio.sleep(0)
        if steps % 2:
            stop.cancel()
            await task
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert running_tasks() == {asyncio.current_task()}
        left = [job for job in [await queue.get_job(job) for job in enqueued] if job is not None]
        assert {(job.state, job.attempts) for job in left} <= {(JobState.PENDING, 0)}
    async with Shift(queue, handle):
        while await queue.get_job(enqueued[-1]) is not None or sum(done.values()) < len(enqueued):
            await idle()
    assert set(done) == set(enqueued)


@pytest.mark.parametrize("by", ["task", "scope"])
async def test_a_cancelled_run_is_a_stop_without_time(store, by: str) -> None:
    """The running are cancelled and given back, nothing is left, and the cancellation goes on."""
    queue = store.queue("q")
    job = await queue.enqueue(1)
    started = asyncio.Event()

    async def handle(_: object) -> None:
        started.set()
        await asyncio.Event().wait()

    worker = Worker(queue, handle, shutdown_timeout=3600)
    if by == "task":
        task = asyncio.create_task(worker.run(StopToken()))
        await started.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run, StopToken())
            await started.wait()
            group.cancel_scope.cancel()
        assert group.cancel_scope.cancelled_caught
    assert running_tasks() == {asyncio.current_task()}
    given_back = await queue.get_job(job)
    assert (given_back.state, given_back.attempts) == (JobState.PENDING, 0)


async def test_a_cancellation_during_the_shutdown_cuts_its_time_short(store) -> None:
    """The second Ctrl-C."""
    queue = store.queue("q")
    job = await queue.enqueue(1)
    started = asyncio.Event()

    async def handle(_: object) -> None:
        started.set()
        await asyncio.Event().wait()

    stop = StopToken()
    task = asyncio.create_task(Worker(queue, handle, shutdown_timeout=3600).run(stop))
    await started.wait()
    stop.cancel()
    await idle()
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await queue.get_job(job)).attempts == 0


async def test_a_stop_before_the_start_claims_nothing(store, faults) -> None:
    """And touches nothing."""
    stop = StopToken()
    stop.cancel()
    await Worker(store.queue("q"), lambda _: asyncio.sleep(0)).run(stop)
    assert faults.calls == []


# W4: outages


async def test_an_outage_is_survived_and_caught_up_with(store, faults, caplog: pytest.LogCaptureFixture) -> None:
    """At every place: subscribing, claiming, asking for the next time, settling, renewing (W4)."""
    queue = store.queue("q")
    faults.down = True
    started, go_on = asyncio.Barrier(3), asyncio.Event()

    async def handle(handle) -> None:
        if handle.job.payload_as(str) in ("acked", "retried"):
            await started.wait()
            await go_on.wait()
        shift.add(handle.job.payload_as(str))
        if handle.job.payload_as(str) == "retried":
            raise OSError("no")

    async with Shift(queue, handle) as shift:
        await faults.reached("watch")
        await faults.reached("watch")
        faults.down = False
        acked, retried = await queue.enqueue_many(["acked", "retried"])
        await started.wait()
        faults.down = True
        go_on.set()
        await shift.has(2)
        await faults.reached("ack_claims")
        await faults.reached("ack_claims")
        await faults.reached("retry_claim")
        faults.down = False
        assert await settled(queue, acked) is None
        assert (await settled(queue, retried)).last_error == "no"
        for primitive in ("claim_jobs", "next_due"):
            real = faults._real
            failing = iter([True, True])
            original = getattr(real, primitive)

            async def flaky(*args, failing=failing, original=original):
                if next(failing, False):
                    raise DatabaseError("flaky")
                return await original(*args)

            setattr(real, primitive, flaky)
            count = len(shift.handled)
            await queue.enqueue(primitive)
            await shift.has(count + 1)
    assert shift.handled[2:] == ["claim_jobs", "next_due"]
    assert sorted(shift.handled[:2]) == ["acked", "retried"]
    for text in ("no wakes of 'q:q' can be had", "<Queue 'q'> cannot be claimed from", "jobs cannot be settled"):
        assert any(text in message and "trying again in" in message for message in caplog.messages), text


async def test_what_an_outage_keeps_is_dropped_once_its_claim_has_lapsed(
    store, clock, faults, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not kept for ever, and it is not settled into somebody else's claim (Q5, W4)."""
    queue = store.queue("q", visibility_timeout_s=60)
    job = await queue.enqueue(1)

    async def handle(_: object) -> None:
        faults.down = True
        shift.add("done")

    async with Shift(queue, handle) as shift:
        await shift.has(1)
        await faults.reached("ack_claims")
        clock.advance(60)
        while not any("was lost" in message for message in caplog.messages):
            await faults.reached("claim_jobs")
        shift.stop.cancel()
        faults.calls.clear()
    assert "ack_claims" not in faults.names()
    faults.down = False
    assert (await queue.get_job(job)).state is JobState.PROCESSING


async def test_claiming_waits_where_settling_falls_behind(store, faults) -> None:
    """What is done but not settled stays bounded, however long the acks fail."""
    queue = store.queue("q")
    await queue.enqueue_many(range(100))
    faults.stalled = {"ack_claims"}
    async with Shift(queue, concurrency=4) as shift:
        await shift.has(8)
        await idle()
        assert len(shift.handled) == 8
        faults.flowing.set()
        await shift.has(100)


@pytest.mark.parametrize("running", [False, True])
async def test_a_stop_during_an_outage_returns_in_time(store, faults, running: bool) -> None:
    """The database swallows every call; the shutdown takes its time and about a second, and leaves nothing."""
    queue = store.queue("q")
    await queue.enqueue(1)
    started = asyncio.Event()

    async def handle(_: object) -> None:
        faults.stalled = {"*"}
        started.set()
        if running:
            await asyncio.Event().wait()

    loop = asyncio.get_running_loop()
    async with Shift(queue, handle, shutdown_timeout=0.2) as shift:
        await started.wait()
        await idle()
        shift.stop.cancel()
        began = loop.time()
        await shift.task
        assert loop.time() - began < 2.0  # 0.95, and room for a busy machine
    assert running_tasks() == {asyncio.current_task()}
    faults.flowing.set()


async def test_an_outage_that_ends_during_the_shutdown_lets_the_settlements_land(store, faults) -> None:
    """The pauses between attempts are short then (W4)."""
    queue = store.queue("q")
    job = await queue.enqueue(1)

    async def handle(_: object) -> None:
        faults.down = True
        shift.add("done")

    async with Shift(queue, handle, shutdown_timeout=0) as shift:
        await shift.has(1)
        for _ in range(6):
            await faults.reached("ack_claims")
        shift.stop.cancel()
        for _ in range(4):
            await faults.reached("ack_claims")
        faults.down = False
    assert await queue.get_job(job) is None


async def test_a_closed_store_ends_it_with_its_error_after_its_handlers(store) -> None:
    """They are cancelled, and have ended, when run raises (T12)."""
    queue = store.queue("q")
    await queue.enqueue_many([1, 2])
    started, ended = asyncio.Barrier(3), []

    async def handle(handle) -> None:
        await started.wait()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(handle.job.id)

    task = asyncio.create_task(Worker(queue, handle).run(StopToken()))
    await started.wait()
    await store.close()
    with pytest.raises(ClosedError):
        await task
    assert len(ended) == 2
    assert running_tasks() == {asyncio.current_task()}
    with pytest.raises(ClosedError):
        await Worker(queue, handle).run(StopToken())


async def test_a_handler_that_closes_the_store_ends_the_worker_and_hangs_nobody(store) -> None:
    """The close is seen through although its own handler is cancelled meanwhile (T12)."""
    queue = store.queue("q")
    await queue.enqueue(1)
    with pytest.raises(ClosedError):
        await Worker(queue, lambda _: store.close()).run(StopToken())
    assert running_tasks() == {asyncio.current_task()}


# W5: one failing job never stops the others


async def test_failing_and_undecodable_jobs_never_stop_the_others(
    store, clock, caplog: pytest.LogCaptureFixture
) -> None:
    """They are retried, then dead with their error; every other job is done (W5)."""
    queue = store.queue("q", max_attempts=2, backoff_base_s=1)
    (broken,) = await store.session().insert_jobs("q", [b"\xff{"], queue._stamp)
    failing = await queue.enqueue({"n": "x"})
    caplog.set_level(logging.CRITICAL)

    async def handle(handle) -> None:
        shift.add(handle.job.payload_as(dict)["n"] + 1)

    async with Shift(queue, handle, concurrency=1) as shift:
        await queue.enqueue({"n": 1})
        await shift.has(1)
        for _ in range(2):
            await idle()
            clock.advance(5)
        await queue.enqueue({"n": 2})
        await shift.has(2)
        dead = [await settled(queue, job) for job in (broken, failing)]
        while any(job.state is not JobState.DEAD for job in dead):
            clock.advance(5)
            await idle()
            dead = [await settled(queue, job) for job in (broken, failing)]
    assert shift.handled == [2, 3]
    assert [job.attempts for job in dead] == [2, 2]
    assert dead[0].last_error.startswith("the payload does not decode to dict: ")
    assert dead[1].last_error == 'can only concatenate str (not "int") to str'
    with pytest.raises(CodecError):
        dead[0].payload_as(dict)


async def test_a_failing_handler_is_logged_with_its_traceback(store, caplog: pytest.LogCaptureFixture) -> None:
    """The job's handle, and never its payload."""
    queue = store.queue("q")
    job = await queue.enqueue("secret")

    async def handle(_: object) -> None:
        raise OSError("no route")

    async with Shift(queue, handle):
        await settled(queue, job)
    (record,) = caplog.records
    assert record.message.startswith(f"<JobHandle {job} of 'q', attempt 1 by ")
    assert record.message.endswith("> failed")
    assert record.exc_info[0] is OSError
    assert "secret" not in caplog.text


# Arguments


async def test_arguments_are_checked_when_the_worker_is_made(store) -> None:
    """Numbers, seconds, and the worker's id (V2, V5)."""
    queue = store.queue("q")
    for options, error in (
        ({"concurrency": 0}, ValueError),
        ({"concurrency": True}, TypeError),
        ({"concurrency": 1.5}, TypeError),
        ({"shutdown_timeout": -1}, ValueError),
        ({"shutdown_timeout": float("nan")}, ValueError),
        ({"shutdown_timeout": 10**400}, ValueError),
        ({"shutdown_timeout": "5"}, TypeError),
        ({"shutdown_timeout": True}, TypeError),
        ({"worker_id": " "}, InvalidNameError),
    ):
        with pytest.raises(error):
            Worker(queue, lambda _: asyncio.sleep(0), **options)
    named = Worker(queue, lambda _: asyncio.sleep(0), worker_id="__alkstore_w", shutdown_timeout=float("inf"))
    assert repr(named) == "<Worker '__alkstore_w' of 'q', 10 at a time>"
    assert Worker(queue, lambda _: asyncio.sleep(0)).worker_id != Worker(queue, lambda _: asyncio.sleep(0)).worker_id


async def test_its_claims_carry_its_id(store) -> None:
    """So that an operator sees who has what."""
    queue = store.queue("q")
    await queue.enqueue(1)

    async def handle(handle) -> None:
        shift.add(handle.job.worker_id)

    async with Shift(queue, handle, worker_id="host-1") as shift:
        assert await shift.has(1) == ["host-1"]


async def test_two_workers_share_a_queue_without_doing_a_job_twice() -> None:
    """Ten thousand jobs between two stores on one database."""
    async with MemStore.open("shared") as first, MemStore.open("shared") as second:
        ids = await first.queue("q").enqueue_many(range(10_000))
        done: Counter[int] = Counter()
        stop = StopToken()

        async def handle(handle) -> None:
            done[handle.job.id] += 1
            if len(done) == len(ids):
                stop.cancel()

        async with anyio.create_task_group() as group:
            for store in (first, second):
                group.start_soon(Worker(store.queue("q"), handle, concurrency=50).run, stop)
        assert done == Counter(ids)
        assert await first.queue("q").claim_one("w") is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks that start eagerly came with Python 3.12")
async def test_handlers_that_end_before_their_task_was_made_are_counted_right(store) -> None:
    """With eager tasks a job may be done when `create_task` returns: it takes no slot for ever, and is acked (W1)."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    queue = store.queue("q")
    await queue.enqueue_many(range(5))
    async with Shift(queue, concurrency=2) as shift:
        assert await shift.has(5) == [0, 1, 2, 3, 4]
    assert await queue.claim_one("w") is None


async def test_a_handler_that_swallows_its_cancellation_is_cancelled_again(
    store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop does not wait for ever for one that takes the first for something else (W4)."""
    monkeypatch.setattr("alkstore_core.worker._INSIST_S", 0.01)
    queue = store.queue("q")
    job_id = await queue.enqueue(1)
    swallowed = 0

    async def handle(_: object) -> None:
        nonlocal swallowed
        while swallowed < 3:
            try:
                shift.add("running")
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
        await asyncio.Event().wait()

    async with Shift(queue, handle, shutdown_timeout=0) as shift:
        await shift.has(1)
    assert swallowed == 3
    assert (await queue.get_job(job_id)).state is JobState.PENDING


async def test_jobs_cancelled_before_they_begin_are_given_back(store) -> None:
    """All tasks cancelled at any turn, the job's own before its first step too: the run ends, nothing is held (W4)."""
    queue = store.queue("q")
    job_ids = await queue.enqueue_many(range(10))

    async def handle(_: object) -> None:
        await asyncio.Event().wait()

    for turns in range(40):
        running = asyncio.ensure_future(Worker(queue, handle).run(StopToken()))
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        async with asyncio.timeout(5):
            await asyncio.wait((running,))
        jobs = [await queue.get_job(job_id) for job_id in job_ids]
        assert {(job.state, job.attempts) for job in jobs} == {(JobState.PENDING, 0)}


async def test_a_handler_may_raise_what_is_no_exception(store) -> None:
    """It is retried as any other failure: some test frameworks raise such (W1)."""

    class OddError(BaseException):
        pass

    async def handle(_: object) -> None:
        raise OddError("odd")

    queue = store.queue("q")
    job_id = await queue.enqueue(1)
    async with Shift(queue, handle):
        job = await settled(queue, job_id)
    assert (job.state, job.attempts, job.last_error) == (JobState.PENDING, 1, "odd")


async def test_a_worker_wants_a_queue(store) -> None:
    """And says so when it is made."""
    with pytest.raises(TypeError, match="must be a Queue"):
        Worker("q", store.notify)
