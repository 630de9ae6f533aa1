"""Queues and outboxes."""

import asyncio
from typing import Any

import draws
from alkstore_core import JobHandle, Queue, StopToken
from alkstore_core.numbers import INT64_MAX
from alkstore_core.outbox import backing_queue
from alkstore_core.scheduler import LEADER_LOCK, LEADER_TTL_S
from draws import OUTBOX
from hypothesis import strategies as st
from machine import Machine, anytime, free, operation
from side import Side

settlings = st.sampled_from(("ack", "ack", "retry", "retry later", "fail", "fail silently", "heartbeat", "release"))
deliveries = st.sampled_from(("return", "raise", "raise nothing", "ack", "fail", "release", "heartbeat"))


def queue_of(side: Side, on: int, name: str, options: dict[str, Any] | None = None) -> Queue:
    """A handle on the queue; the outbox's by its own way."""
    store = side.stores[on]
    return store.outbox(OUTBOX).queue if name == OUTBOX else store.queue(name, **(options or {}))


def shown_claims(side: Side, handles: list[JobHandle]) -> object:
    """What a claim gave; the claims are noted."""
    return [side.claim(handle.claim) for handle in handles]


class QueueOperations(Machine):
    """Enqueue, claim, settle, look up, sweep."""

    @operation(
        4,
        free,
        on=draws.stores,
        queue=draws.queues,
        queue_options=draws.queue_options,
        payload=draws.payloads,
        options=draws.enqueue_options,
    )
    def enqueue(self, on, queue, queue_options, payload, options):
        self.step(
            "enqueue",
            lambda side: queue_of(side, on, queue, queue_options).enqueue(payload, **options),
            lambda side, job_id: side.made_job(job_id, queue),
        )

    @operation(
        3,
        free,
        on=draws.stores,
        queue=draws.queues,
        queue_options=draws.queue_options,
        payloads=st.lists(draws.payloads, max_size=3),
        options=draws.enqueue_options,
    )
    def enqueue_many(self, on, queue, queue_options, payloads, options):
        self.step(
            "enqueue_many",
            lambda side: queue_of(side, on, queue, queue_options).enqueue_many(payloads, **options),
            lambda side, ids: [side.made_job(job_id, queue) for job_id in ids],
        )

    @operation(5, free, on=draws.stores, queue=draws.queues, worker=draws.workers, n=draws.limits)
    def claim(self, on, queue, worker, n):
        self.step("claim_batch", lambda side: queue_of(side, on, queue).claim_batch(worker, n), shown_claims)

    @operation(3, free, on=draws.stores, queue=draws.queues, worker=draws.workers)
    def claim_one(self, on, queue, worker):
        self.step(
            "claim_one",
            lambda side: queue_of(side, on, queue).claim_one(worker),
            lambda side, handle: shown_claims(side, [handle] if handle else []),
        )

    @operation(
        10,
        lambda machine: free(machine) and machine.model.claims,
        on=draws.stores,
        which=draws.back,
        how=settlings,
        error=draws.errors,
        seconds=draws.seconds,
    )
    def settle(self, on, which, how, error, seconds):
        """Settle any claim that was ever made, by a handle of either store."""

        async def call(side: Side) -> object:
            place = max(len(side.claims) - 1 - which, 0)
            handle = JobHandle(side.stores[on], side.claims[place])
            landed = await {
                "ack": handle.ack,
                "retry": lambda: handle.retry(error),
                "retry later": lambda: handle.retry(error, seconds),
                "fail": lambda: handle.fail(error),
                "fail silently": handle.fail,
                "heartbeat": lambda: handle.heartbeat(seconds),
                "release": handle.release,
            }[how]()
            return place, landed, handle.settled, handle.lapses_at

        self.step(how, call)

    @operation(
        2,
        free,
        on=draws.stores,
        queue=draws.any_queues,
        worker=draws.workers,
        which=st.lists(st.one_of(draws.newest, draws.unknown_ids), max_size=4),
    )
    def ack_batch(self, on, queue, worker, which):
        self.step(
            "ack_batch",
            lambda side: queue_of(side, on, queue).ack_batch(worker, [side.job_id(one) for one in which]),
        )

    @operation(1, free, on=draws.stores, queue=draws.any_queues, which=draws.newest | draws.unknown_ids)
    def cancel(self, on, queue, which):
        self.step("cancel", lambda side: queue_of(side, on, queue).cancel(side.job_id(which)))

    @operation(1, anytime, on=draws.stores, queue=draws.queues, which=draws.newest | draws.unknown_ids)
    def get_job(self, on, queue, which):
        self.step(
            "get_job",
            lambda side: queue_of(side, on, queue).get_job(side.job_id(which)),
            lambda side, job: side.job(job),
        )

    @operation(4, free, on=draws.stores, queue=draws.any_queues)
    def sweep(self, on, queue):
        self.step("sweep_expired", lambda side: queue_of(side, on, queue).sweep_expired())


class OutboxOperations(Machine):
    """Enqueue a delivery, deliver."""

    @operation(2, free, on=draws.stores, payload=draws.payloads, options=draws.enqueue_options)
    def enqueue_delivery(self, on, payload, options):
        self.step(
            "Outbox.enqueue",
            lambda side: side.stores[on].outbox(OUTBOX).enqueue(payload, **options),
            lambda side, job_id: side.made_job(job_id, backing_queue(OUTBOX)),
        )

    @operation(
        4, free, on=draws.stores, worker=draws.workers, how=deliveries, error=draws.errors, seconds=draws.seconds
    )
    def run_once(self, on, worker, how, error, seconds):
        def show(side: Side, result: tuple[bool, list[JobHandle], list[object]]) -> object:
            had_one, delivered, landed = result
            return had_one, shown_claims(side, delivered), landed, [handle.settled for handle in delivered]

        async def call(side: Side) -> object:
            delivered: list[JobHandle] = []
            landed: list[object] = []

            async def deliver(handle: JobHandle) -> None:
                delivered.append(handle)
                if how.startswith("raise"):
                    raise RuntimeError(*([error] if how == "raise" else []))
                if how == "heartbeat":
                    landed.append(await handle.heartbeat(seconds))
                elif how != "return":
                    landed.append(await getattr(handle, how)())

            return await side.stores[on].outbox(OUTBOX).run_once(worker, deliver), delivered, landed

        self.step(f"run_once, and the delivery does {how}", call, show)


class ScheduleOperations(Machine):
    """Register, lead, fire."""

    @operation(
        2,
        free,
        on=draws.stores,
        name=draws.schedules,
        spec=draws.specs,
        queue=draws.queues,
        payload=draws.payloads,
        options=draws.schedule_options,
    )
    def schedule(self, on, name, spec, queue, payload, options):
        self.step("schedule", lambda side: side.stores[on].schedule(name, spec, queue, payload, **options))

    @operation(1, free, on=draws.stores, name=draws.schedules)
    def unschedule(self, on, name):
        self.step("unschedule", lambda side: side.stores[on].unschedule(name))

    @operation(2, free, on=draws.stores, owner=draws.workers, ttl=draws.ttls.filter(lambda ttl: ttl > 0))
    def lead(self, on, owner, ttl):
        """Stand for election, through the seam: what `run_schedules` does first."""
        self.step(
            "take_lock of the scheduler",
            lambda side: side.stores[on].session().take_lock(LEADER_LOCK, owner, ttl),
            lambda side, grant: side.grant(grant),
        )

    @operation(3, lambda machine: free(machine) and machine.model.grants, on=draws.stores, which=draws.back)
    def fire_next(self, on, which):
        """Fire one schedule, as any leader that there ever was, or as the holder of some other lock."""

        async def call(side: Side) -> object:
            firing = await side.stores[on].session().fire_next(side.grants[max(len(side.grants) - 1 - which, 0)])
            return firing, await side.found(on)

        self.step("fire_next", call)

    @operation(2, free, on=draws.stores)
    def run_schedules(self, on):
        """Run until nothing is due, where nobody else leads."""
        if self.now > INT64_MAX - LEADER_TTL_S:
            return  # the lead lapses as it is won, and whether that is noticed before the stop is chance

        async def call(side: Side) -> object:
            store = side.stores[on]
            lock = await side.harness.witness.lock(LEADER_LOCK)
            if lock is not None and lock.expires_at > self.now:
                return "another leads"
            stop = StopToken()
            running = asyncio.ensure_future(store.run_schedules(stop))
            leads = False
            while not running.done():
                due = await store.session().next_fire()
                if leads and (due is None or due > self.now or due == INT64_MAX):
                    break
                lock = await side.harness.witness.lock(LEADER_LOCK)
                leads = lock is not None and lock.expires_at > self.now
                await asyncio.sleep(0)
            stop.cancel()
            await running
            return await side.found(on)

        self.step("run_schedules", call)
