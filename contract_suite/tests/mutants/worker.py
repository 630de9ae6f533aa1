"""Workers that are wrong, and engines that let theirs down."""

# ruff: noqa: ARG001, ARG005 - what is wrong takes the arguments of what is right

import asyncio

from alkstore_contract_suite.mutation import mutant, rewrite
from alkstore_core import JobHandle, StopToken, Worker, heartbeat, settling, waiting, worker
from alkstore_core.errors import CodecError
from alkstore_core.heartbeat import Heartbeat
from alkstore_core.settling import Settler
from alkstore_core.waiting import Alarm
from alkstore_core.wakes import WakeHub
from alkstore_core.worker import _Shift
from alkstore_mem import backlog, queues
from alkstore_mem.backlog import Backlog
from alkstore_mem.queues import QueueSession

# W1


@mutant(kills=["worker/returning_acks"])
def acks_before_it_works(patch):
    rewrite(patch, _Shift, "_process", "await self._handler", "await handle.ack() and await self._handler")


@mutant(kills=["worker/returning_acks"])
def claims_in_a_name_of_its_own(patch):
    rewrite(patch, Worker, "__init__", "_unique_id() if worker_id is None else", "_unique_id() or")


@mutant(kills=["worker/raising_retries", "worker/last_attempt_buries", "worker/failing_jobs_stop_nobody"])
def acks_what_failed(patch):
    rewrite(
        patch, _Shift, "_process", "self._settler.retry(handle, failure_text(failure))", "self._settler.ack(handle)"
    )


@mutant(kills=["worker/raising_retries", "worker/last_attempt_buries"])
def keeps_the_repr_of_a_failure(patch):
    patch.setattr(worker, "failure_text", repr)


@mutant(kills=["worker/raising_retries", "worker/retried_job_is_begun_again"], hangs=True)
def retries_after_a_minute(patch):
    rewrite(patch, Settler, "_retry", "handle.retry(error)", "handle.retry(error, 60)")


@mutant(kills=["worker/handler_may_settle"])
def ignores_what_the_handler_decided(patch):
    async def nothing(self, *_):
        return True

    patch.setattr(JobHandle, "fail", nothing)


@mutant(kills=["worker/handler_may_settle"], hangs=True)
def deletes_what_the_handler_has_settled(patch):
    rewrite(
        patch,
        _Shift,
        "_process",
        "elif handle.settled:\n        pass",
        "elif handle.settled:\n        await self._queue.cancel(handle.job.id)",
    )


@mutant(kills=["worker/shutdown_burns_no_attempt"])
def takes_a_shutdown_for_a_failure(patch):
    rewrite(patch, _Shift, "_process", "elif not begun or is_cut_short:", "elif not begun:")


@mutant(kills=["worker/shutdown_burns_no_attempt"])
def leaves_what_it_cancels_to_lapse(patch):
    rewrite(
        patch,
        _Shift,
        "_process",
        "elif not begun or is_cut_short:\n        self._settler.release(handle)",
        "elif not begun or is_cut_short:\n        pass",
    )


@mutant(kills=["worker/handlers_own_cancellation_is_a_failure", "worker/failing_jobs_stop_nobody"])
def lets_a_cancellation_pass(patch):
    rewrite(
        patch,
        _Shift,
        "_process",
        "except asyncio.CancelledError as error:",
        "except asyncio.CancelledError as error:\n        self._running.pop(handle, None)\n        raise",
    )


# W2


def hear(patch, listen):
    """Listen so."""
    patch.setattr(worker, "hear", listen)


@mutant(
    kills=[
        "worker/commit_wakes",
        "worker/callers_commit_wakes",
        "worker/given_back_job_wakes",
        "worker/commit_after_the_empty_scan_wakes",
    ],
    hangs=True,
)
def looks_once_and_hears_nothing(patch):
    async def listen(store, topic, woken, log):
        woken()
        await asyncio.Event().wait()

    hear(patch, listen)


@mutant(kills=["worker/commit_wakes"], hangs=True)
def looks_once_a_second(patch):
    async def listen(store, topic, woken, log):
        while True:
            woken()
            await asyncio.sleep(1)

    hear(patch, listen)


@mutant(kills=["worker/waiting_jobs_are_begun", "worker/commit_before_the_first_scan_is_seen"], hangs=True)
def looks_only_when_it_is_woken(patch):
    rewrite(patch, waiting, "hear", "try:\n            woken()", "try:\n            pass")
    hear(patch, waiting.hear)


@mutant(kills=["worker/commit_after_the_empty_scan_wakes"], hangs=True)
def listens_only_while_it_waits(patch):
    async def listen(store, topic, woken, log):
        while True:
            woken()
            for _ in range(20):
                await asyncio.sleep(0)
            subscription = await store.engine.watch(topic)
            await subscription.wait()
            subscription.close()

    hear(patch, listen)
    rewrite(patch, _Shift, "_claim", "elif due is not None and not self._maybe_more:", "elif False:")


@mutant(
    kills=[
        "worker/ready_time_wakes",
        "worker/sooner_ready_time_wakes",
        "worker/lapsed_claim_wakes",
        "worker/extended_claim_is_waited_for",
        "worker/given_back_job_wakes",
        "worker/retried_job_is_begun_again",
    ],
    hangs=True,
)
def waits_for_no_time(patch):
    patch.setattr(Alarm, "set", lambda self, when: None)


@mutant(kills=["worker/sooner_ready_time_wakes"], hangs=True)
def waits_for_the_first_time_it_knew(patch):
    rewrite(patch, Alarm, "set", "when < self._when", "self._when == INT64_MAX")


@mutant(kills=["worker/lapsed_claim_wakes", "worker/extended_claim_is_waited_for"], hangs=True)
def waits_for_no_claim_to_lapse(patch):
    def next_due(self, now):
        return min((row.job.ready_at for row in self.live.values() if row.job.claim_expires_at is None), default=None)

    patch.setattr(Backlog, "next_due", next_due)


@mutant(kills=["worker/extended_claim_is_waited_for", "worker/sooner_ready_time_wakes"], hangs=True)
def waits_for_one_time_only(patch):
    rewrite(patch, Alarm, "run", "self._ring()", "self._ring()\n            await asyncio.Event().wait()")


@mutant(kills=["worker/given_back_job_wakes"], hangs=True)
def wakes_nobody_for_what_is_given_back(patch):
    rewrite(patch, queues, "_give_back", "changes.wake(queue_topic(job.queue))", "pass")


@mutant(kills=["worker/given_back_job_wakes"], hangs=True)
def wakes_nobody_for_a_shorter_claim(patch):
    rewrite(patch, QueueSession, "extend_claim", "if until < due_at(row.job):", "if False:")


@mutant(kills=["worker/freed_slot_claims_at_once", "worker/slow_job_stops_nobody"], hangs=True)
def claims_when_all_slots_are_free(patch):
    rewrite(patch, _Shift, "_claim", "free <= 0", "free < self._concurrency")


@mutant(kills=["worker/freed_slot_claims_at_once"], hangs=True)
def claims_again_only_when_it_is_woken(patch):
    rewrite(
        patch,
        _Shift,
        "_claim",
        "if len(handles) == free:",
        "if handles:\n                continue\n            if False:",
    )


@mutant(kills=["worker/batch_wakes_every_idle_worker"], hangs=True)
def wakes_one_for_each_commit(patch):
    def wake(self, topics):
        for topic in topics:
            for subscription in [*self._subscriptions.get(topic, ())][:1]:
                subscription.wake()

    patch.setattr(WakeHub, "wake", wake)


@mutant(kills=["worker/idle_worker_is_quiet"])
def never_stops_looking(patch):
    async def rescan(self):
        while True:
            self._wake()
            await asyncio.sleep(0)

    patch.setattr(_Shift, "_rescan", rescan)


@mutant(kills=["worker/idle_worker_is_quiet"])
def looks_at_every_tick_of_the_clock(patch):
    async def rescan(self):
        engine = self._store.engine
        while True:
            await engine.sleep_until(engine.now() + 1)
            self._wake()

    patch.setattr(_Shift, "_rescan", rescan)


@mutant(kills=["worker/worker_keeps_to_its_queue"])
def works_on_any_queue(patch):
    first = "next(iter(database.jobs.backlogs.values()), None)"
    rewrite(patch, QueueSession, "claim_jobs", "database.jobs.backlogs.get(queue)", first)


@mutant(kills=["worker/worker_keeps_to_its_queue"])
def works_in_the_order_of_ids(patch):
    patch.setattr(backlog, "_rank", lambda job: (0, 0, job.id))


# W3


@mutant(kills=["worker/claims_no_more_than_free_slots", "worker/claims_in_batches"])
def claims_twice_what_it_has_slots_for(patch):
    rewrite(patch, _Shift, "_claim", "claim_batch(self._worker_id, free)", "claim_batch(self._worker_id, 2 * free)")


@mutant(kills=["worker/claims_no_more_than_free_slots", "worker/stop_claims_nothing_more"])
def forgets_what_it_is_running(patch):
    rewrite(patch, _Shift, "_claim", "self._concurrency - len(self._running)", "self._concurrency")


@mutant(kills=["worker/claims_in_batches"])
def claims_one_by_one(patch):
    rewrite(patch, _Shift, "_claim", "claim_batch(self._worker_id, free)", "claim_batch(self._worker_id, 1)")


@mutant(
    kills=[
        "worker/heartbeats_at_a_third",
        "worker/heartbeats_by_the_rows_timeout",
        "worker/shortest_claim_is_kept",
    ],
    hangs=True,
)
def never_heartbeats(patch):
    async def run(self):
        await asyncio.Event().wait()

    patch.setattr(Heartbeat, "run", run)


@mutant(kills=["worker/heartbeats_at_a_third"], hangs=True)
def heartbeats_at_two_thirds(patch):
    rewrite(patch, heartbeat, "_due", "lease // 3", "2 * lease // 3")


@mutant(kills=["worker/heartbeats_at_a_third"], hangs=True)
def heartbeats_by_the_default_timeout(patch):
    patch.setattr(heartbeat, "_lease", lambda handle: 300)


@mutant(kills=["worker/heartbeats_by_the_rows_timeout"], hangs=True)
def heartbeats_as_its_first_job_needs(patch):
    sooner, first = (
        "due < self._next or due_real < self._next_real",
        "self._next == INT64_MAX and self._next_real == inf",
    )
    rewrite(patch, Heartbeat, "begin", sooner, first)


@mutant(kills=["worker/shortest_claim_is_kept"], hangs=True)
def renews_for_no_longer_than_the_row_says(patch):
    patch.setattr(heartbeat, "_SHORTEST_LEASE_S", 1)


@mutant(kills=["worker/result_of_a_lost_claim_is_dropped"])
def settles_whoever_has_it(patch):
    rewrite(patch, queues, "_live_row", " and row.token == claim.token", "")
    patch.setattr(heartbeat.Heartbeat, "_held", lambda self: [])


@mutant(kills=["worker/result_of_a_lost_claim_is_dropped"])
def says_nothing_of_a_lost_claim(patch):
    for module in (heartbeat, settling):
        patch.setattr(module, "log_lost", lambda log, handle: None)


@mutant(kills=["worker/result_of_a_cancelled_job_is_dropped"])
def ends_when_a_claim_was_lost(patch):
    rewrite(patch, Settler, "_conclude", "log_lost(self._log, handle)", "raise LookupError(f'{handle!r} was lost')")


# W4


@mutant(kills=["worker/stop_claims_nothing_more"])
def claims_on_after_a_stop(patch):
    rewrite(patch, _Shift, "work", "await self._wind_down()", "await first_of(self._wind_down, self._claim)")
    patch.setattr(_Shift, "_is_stopped", lambda self: False)


@mutant(kills=["worker/stop_lets_the_running_finish"])
def leaves_the_running_no_time(patch):
    rewrite(patch, _Shift, "_wind_down", "anyio.move_on_after(self._timeout)", "anyio.move_on_after(0)")


@mutant(kills=["worker/stop_flushes_settlements"], engine="sqlite")
def leaves_what_is_not_settled(patch):
    rewrite(patch, _Shift, "_wind_down", "while len(self._settler):", "while False:")


@mutant(kills=["worker/stop_strands_nothing"], hangs=True)
def strands_what_it_claims_during_a_stop(patch):
    right = QueueSession.claim_jobs

    async def claim_jobs(self, queue, worker_id, limit):
        claims = await right(self, queue, worker_id, limit)
        for _ in range(5):
            await asyncio.sleep(0)
        return claims

    patch.setattr(QueueSession, "claim_jobs", claim_jobs)


@mutant(kills=["worker/stop_before_the_start"])
def does_one_job_before_it_looks_at_the_token(patch):
    rewrite(
        patch,
        Worker,
        "run",
        "if stop.is_cancelled:",
        "for handle in await self._queue.claim_batch(self._worker_id, 1):\n        await self._handler(handle)\n"
        "    if stop.is_cancelled:",
    )


@mutant(kills=["worker/one_token_stops_all"], hangs=True)
def stops_one_for_each_token(patch):
    rewrite(patch, StopToken, "cancel", "tuple(self._waiters)", "tuple(self._waiters)[:1]")


@mutant(kills=["worker/worker_leaves_no_task_behind"])
def leaves_its_rescan_running(patch):
    strays = set()
    right = _Shift.work

    async def work(self):
        strays.add(asyncio.ensure_future(self._rescan()))
        await right(self)

    patch.setattr(_Shift, "work", work)


@mutant(kills=["worker/worker_leaves_no_task_behind"])
def leaves_a_cancelled_run_to_itself(patch):
    rewrite(patch, Worker, "run", "await outcome(work)", "pass")


@mutant(kills=["worker/closed_store_ends_the_worker"])
def ends_quietly_with_its_store(patch):
    rewrite(patch, Worker, "run", "work.result()", "work.exception()")


@mutant(kills=["worker/outage_is_survived"], engine="sqlite")
def dies_of_an_outage(patch):
    rewrite(patch, Settler, "run", "except DatabaseError as error:", "except ZeroDivisionError as error:")


@mutant(kills=["worker/outage_is_survived"], engine="sqlite", hangs=True)
def forgets_what_an_outage_kept_from_landing(patch):
    rewrite(patch, Settler, "_send", "kept += handles", "pass")


@mutant(kills=["worker/stop_ends_in_an_outage"], engine="sqlite", hangs=True)
def waits_for_the_end_of_an_outage(patch):
    rewrite(patch, _Shift, "_wind_down", "anyio.move_on_after(left + _FLUSH_S)", "anyio.move_on_after(3)")


# W5


@mutant(kills=["worker/failing_jobs_stop_nobody"])
def trusts_every_error_to_have_a_text(patch):
    patch.setattr(worker, "failure_text", str)


@mutant(kills=["worker/failing_jobs_stop_nobody", "worker/undecodable_payload_stops_nobody"], hangs=True)
def ends_a_slot_with_a_failure(patch):
    right = "except BaseException as error:\n        failure = error"
    rewrite(patch, _Shift, "_process", right, right.replace("failure = error", "await asyncio.Event().wait()"))


@mutant(kills=["worker/undecodable_payload_stops_nobody"])
def drops_what_cannot_be_decoded(patch):
    rewrite(
        patch,
        _Shift,
        "_process",
        "elif failure is None:",
        "elif failure is None or isinstance(failure, CodecError):",
        CodecError=CodecError,
    )


@mutant(kills=["worker/slow_job_stops_nobody"], hangs=True)
def settles_before_it_claims(patch):
    rewrite(patch, _Shift, "_claim", "self._maybe_more = False", "self._maybe_more = bool(self._running)")
    rewrite(
        patch, _Shift, "_change", "await self._changed.wait()", "await self._changed.wait()\n    await self._finish()"
    )
