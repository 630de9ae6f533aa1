"""Heartbeats: a running job keeps its claim for as long as it runs, however short the claim is (W3)."""

import asyncio
from typing import Self

import pytest
from alkstore_core import StopToken, Worker
from alkstore_mem import MemStore


class Running:
    """One worker whose handler runs until it is told to end; a second worker that would take a lapsed claim."""

    def __init__(self, store, faults, visibility: int) -> None:
        self.queue = store.queue("q", visibility_timeout_s=visibility)
        self.faults = faults
        self.started = asyncio.Event()
        self.end = asyncio.Event()
        self.executions = 0
        self.stop = StopToken()

    async def handle(self, _: object) -> None:
        self.executions += 1
        self.started.set()
        await self.end.wait()

    async def __aenter__(self) -> Self:
        self.job = await self.queue.enqueue(1)
        self.first = asyncio.create_task(Worker(self.queue, self.handle).run(self.stop))
        await self.started.wait()
        self.second = asyncio.create_task(Worker(self.queue, self.handle).run(self.stop))
        await idle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end.set()
        self.stop.cancel()
        await asyncio.gather(self.first, self.second)

    def renewals(self) -> int:
        """How often the claim was renewed so far."""
        return self.faults.names().count("extend_claim")

    async def renewed(self, count: int) -> None:
        """Wait until it was renewed `count` times."""
        while self.renewals() < count:
            await self.faults.reached("extend_claim")


async def idle() -> None:
    """Let everything that can run without time or the network run."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("visibility", [3, 4, 30, 300])
async def test_a_claim_is_renewed_at_every_third_of_its_visibility_timeout(
    store, clock, faults, visibility: int
) -> None:
    """By the engine's clock, the first time included, and nobody else ever runs the job."""
    async with Running(store, faults, visibility) as running:
        start = clock.now()
        third = visibility // 3
        for beat in range(1, 11):
            clock.advance(third - 1)
            await idle()
            assert running.renewals() == beat - 1
            clock.advance(1)
            await running.renewed(beat)
            await idle()
            job = await running.queue.get_job(running.job)
            assert job.claim_expires_at == start + beat * third + visibility
        assert running.executions == 1
    assert await running.queue.get_job(running.job) is None


@pytest.mark.parametrize("visibility", [1, 2])
async def test_the_shortest_claims_outlive_every_tick_of_the_clock(store, clock, faults, visibility: int) -> None:
    """One execution in ten seconds, and a renewal in each, although the claim lapses with the next tick or two."""
    async with Running(store, faults, visibility) as running:
        before = running.renewals()
        assert before == (1 if visibility == 1 else 0)  # a claim of one second is renewed before its handler starts
        for tick in range(1, 11):
            clock.advance(1)
            await running.renewed(before + tick)
            await idle()
            job = await running.queue.get_job(running.job)
            assert job.claim_expires_at == clock.now() + 2
            assert (running.executions, job.attempts) == (1, 1)
    assert await running.queue.get_job(running.job) is None


async def test_a_claim_of_one_second_is_kept_in_real_time() -> None:
    """Exactly one execution, and two or more renewals in every second, the first included."""
    async with MemStore.open() as store:
        queue = store.queue("q", visibility_timeout_s=1)
        session = store.session()
        extend = session.extend_claim
        loop = asyncio.get_running_loop()
        renewals: list[float] = []
        executions: list[float] = []

        async def extend_claim(*args) -> bool:
            renewals.append(loop.time())
            return await extend(*args)

        session.extend_claim = extend_claim
        stop = StopToken()

        async def handle(_: object) -> None:
            executions.append(loop.time())
            await store.engine.sleep_until(store.engine.now() + 4)
            stop.cancel()

        await queue.enqueue(1)
        workers = [asyncio.create_task(Worker(queue, handle).run(stop)) for _ in range(2)]
        await asyncio.gather(*workers)
        assert len(executions) == 1
        assert await queue.get_job(1) is None
        for second in range(3):
            begin = executions[0] + second
            assert sum(begin - 0.05 <= renewal < begin + 1 for renewal in renewals) >= 2


async def test_a_claim_of_one_second_that_is_lost_before_its_handler_starts_is_not_started(
    store, clock, faults, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock ticked between the claim and its first renewal: it is somebody else's, and runs once."""
    queue = store.queue("q", visibility_timeout_s=1)
    await queue.enqueue(1)
    runs = []

    async def handle(handle) -> None:
        runs.append(handle.job.attempts)
        stop.cancel()

    stop = StopToken()
    ticks = iter([True])
    faults.after["claim_jobs"] = lambda: clock.advance(1) if next(ticks, False) else None
    await Worker(queue, handle).run(stop)
    assert runs == [2]
    assert sum("was lost" in message for message in caplog.messages) == 1


async def test_renewals_of_many_jobs_are_under_way_together(store, clock, faults) -> None:
    """So that an engine can put them into one commit."""
    queue = store.queue("q", visibility_timeout_s=30)
    await queue.enqueue_many(range(20))
    everybody, end, stop = asyncio.Barrier(21), asyncio.Event(), StopToken()

    async def handle(_: object) -> None:
        await everybody.wait()
        await end.wait()

    task = asyncio.create_task(Worker(queue, handle, concurrency=20).run(stop))
    await everybody.wait()
    faults.stalled = {"extend_claim"}
    clock.advance(10)
    while faults.names().count("extend_claim") < 20:
        await faults.reached("extend_claim")
    faults.flowing.set()
    end.set()
    stop.cancel()
    await task
    assert await queue.claim_one("w") is None


async def test_each_job_of_a_mixed_queue_beats_at_its_own_third(store, clock, faults) -> None:
    """A queue's rows may have different timeouts (Q2); a shorter one that starts later is not late."""
    long, short = store.queue("q", visibility_timeout_s=300), store.queue("q", visibility_timeout_s=30)
    started, end, stop = asyncio.Semaphore(0), asyncio.Event(), StopToken()

    async def handle(_: object) -> None:
        started.release()
        await end.wait()

    task = asyncio.create_task(Worker(long, handle).run(stop))
    await long.enqueue(1)
    await started.acquire()
    await idle()
    await short.enqueue(1)
    await started.acquire()
    await idle()
    beats = []
    for _ in range(20):
        clock.advance(10)
        await idle()
        beats.append([args[0].job.visibility_timeout_s for name, args in faults.calls if name == "extend_claim"])
        faults.calls.clear()
    assert beats == [[30]] * 9 + [[300, 30]] + [[30]] * 9 + [[300, 30]]
    end.set()
    stop.cancel()
    await task


async def test_what_the_handler_extends_itself_is_not_cut_short(store, clock, faults) -> None:
    """The worker renews when what is left is two thirds of the timeout, and not before."""
    async with Running(store, faults, 30) as running:
        (handle,) = list(running.first.get_coro().cr_frame.f_locals["shift"]._running)
        assert await handle.heartbeat(1000)
        for _ in range(97):
            clock.advance(10)
            await idle()
        assert running.renewals() == 1
        clock.advance(10)
        await running.renewed(2)
        await idle()
        assert (await running.queue.get_job(running.job)).claim_expires_at == clock.now() + 30


async def test_a_settled_job_that_still_runs_is_not_renewed(store, clock, faults, caplog) -> None:
    """Nor is its claim called lost."""
    queue = store.queue("q", visibility_timeout_s=30)
    await queue.enqueue(1)
    settled, end, stop = asyncio.Event(), asyncio.Event(), StopToken()

    async def handle(handle) -> None:
        await handle.ack()
        settled.set()
        await end.wait()

    task = asyncio.create_task(Worker(queue, handle).run(stop))
    await settled.wait()
    for _ in range(10):
        clock.advance(10)
        await idle()
    assert "extend_claim" not in faults.names()
    end.set()
    stop.cancel()
    await task
    assert caplog.messages == []


async def test_an_ack_and_a_renewal_at_the_same_moment_are_no_loss(store, clock, faults, caplog) -> None:
    """The handler settles while a renewal is under way, which then finds nothing to renew."""
    queue = store.queue("q", visibility_timeout_s=30)
    job = await queue.enqueue(1)
    started, go_on, stop = asyncio.Event(), asyncio.Event(), StopToken()

    async def handle(handle) -> None:
        started.set()
        await go_on.wait()
        assert await handle.ack()
        faults.flowing.set()
        await idle()

    task = asyncio.create_task(Worker(queue, handle).run(stop))
    await started.wait()
    faults.stalled = {"extend_claim"}
    clock.advance(10)
    await faults.reached("extend_claim")
    go_on.set()
    stop.cancel()
    await task
    assert await queue.get_job(job) is None
    assert caplog.messages == []


async def test_an_outage_shorter_than_the_claim_loses_nothing(store, clock, faults, caplog) -> None:
    """It is renewed as soon as it can be."""
    async with Running(store, faults, 30) as running:
        faults.down = True
        clock.advance(10)
        await running.renewed(3)
        clock.advance(10)
        faults.down = False
        await running.renewed(running.renewals() + 1)
        await idle()
        assert (await running.queue.get_job(running.job)).claim_expires_at == clock.now() + 30
        assert running.executions == 1
    assert any("claims cannot be renewed; trying again in" in message for message in caplog.messages)
    assert not any("was lost" in message for message in caplog.messages)
