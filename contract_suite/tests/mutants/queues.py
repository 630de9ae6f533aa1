"""Engines whose queues are wrong."""

# ruff: noqa: ARG001, ARG005 - a wrong engine takes the arguments of the right one

import asyncio
from dataclasses import replace

from alkstore_contract_suite.mutation import mutant, rewrite
from alkstore_core import JobHandle, JobState, Queue, Transaction
from alkstore_core import queues as facade
from alkstore_core.engine import Claim
from alkstore_core.options import DEFAULT_QUEUE_OPTIONS, job_stamp
from alkstore_mem import backlog, queues, scheduler
from alkstore_mem.backlog import Backlog, due_at
from alkstore_mem.engine import MemEngine
from alkstore_mem.queues import QueueSession


def rewrite_insert(patch, old, new):
    """The same, of what a schedule's fire uses too."""
    rewrite(patch, queues, "insert", old, new)
    patch.setattr(scheduler, "insert", queues.insert)


# enqueueing


@mutant(kills=["queues/enqueue_defaults"])
def counts_attempts_from_one(patch):
    rewrite_insert(patch, "attempts=0", "attempts=1")


@mutant(kills=["queues/ready_time"])
def takes_a_delay_of_zero_for_none(patch):
    rewrite_insert(patch, "now, stamp.delay, stamp.run_at", "now, stamp.delay or None, stamp.run_at")


@mutant(kills=["queues/ready_time", "queues/ready_time_saturates"])
def lets_nothing_be_ready_in_the_past(patch):
    right = queues.ready_time
    patch.setattr(queues, "ready_time", lambda now, delay, run_at: max(now, right(now, delay, run_at)))


@mutant(kills=["queues/ready_time_saturates"])
def adds_delays_without_a_limit(patch):
    patch.setattr(queues, "ready_time", lambda now, delay, run_at: now + delay if delay is not None else run_at or now)


@mutant(kills=["queues/expiry_is_relative"])
def expires_from_the_ready_time(patch):
    rewrite_insert(patch, "deadline(now,", "deadline(ready_time(now, stamp.delay, stamp.run_at),")


@mutant(kills=["queues/expiry_is_relative"])
def takes_expires_for_a_time(patch):
    rewrite_insert(patch, "deadline(now, stamp.expires)", "stamp.expires")


@mutant(kills=["queues/enqueue_overrides", "queues/claim_order_at_the_limits"])
def keeps_priorities_in_32_bits(patch):
    rewrite_insert(patch, "stamp.priority,", "max(-(2**31), min(stamp.priority, 2**31 - 1)),")


@mutant(kills=["queues/enqueue_overrides", "queues/handle_max_attempts_yields"])
def ignores_the_enqueues_own_max_attempts(patch):
    def stamp(options, *, max_attempts=None, **others):
        return job_stamp(options, **others)

    patch.setattr(facade, "job_stamp", stamp)


@mutant(kills=["queues/options_are_stamped", "queues/handle_max_attempts_yields"])
def stamps_the_defaults_always(patch):
    patch.setattr(facade, "job_stamp", lambda options, **others: job_stamp(DEFAULT_QUEUE_OPTIONS, **others))


def _remember_settings(patch):
    """By queue, the options of its latest handle."""
    settings = {}
    init = Queue.__init__

    def remember(self, store, name, options):
        settings[name] = options
        init(self, store, name, options)

    patch.setattr(Queue, "__init__", remember)
    return settings


@mutant(kills=["queues/transaction_stamps_defaults", "queues/schedule_stamps_defaults"])
def stamps_the_options_of_the_latest_handle(patch):
    settings = _remember_settings(patch)
    right = queues.insert

    def insert(changes, now, queue, payloads, stamp):
        own = settings.get(queue)
        if own is not None:
            stamp = replace(
                stamp,
                visibility_timeout_s=own.visibility_timeout_s,
                backoff_base_s=own.backoff_base_s,
                dead_letter_retention_s=own.dead_letter_retention_s,
            )
        return right(changes, now, queue, payloads, stamp)

    patch.setattr(queues, "insert", insert)
    patch.setattr(scheduler, "insert", insert)


@mutant(kills=["queues/rows_carry_their_settings"])
def claims_for_as_long_as_the_claimants_handle_says(patch):
    settings = _remember_settings(patch)
    own, handles = "row.job.visibility_timeout_s", "settings[queue].visibility_timeout_s"
    rewrite(patch, QueueSession, "claim_jobs", own, handles, settings=settings)


@mutant(kills=["queues/rows_carry_their_settings"])
def backs_off_as_the_defaults_say(patch):
    right = facade.retry_delay
    patch.setattr(facade, "retry_delay", lambda base, attempts, draw: right(5, attempts, draw))


@mutant(kills=["queues/enqueue_many_keeps_the_order"])
def returns_the_ids_of_many_backwards(patch):
    rewrite_insert(patch, "return ids", "return ids[::-1]")


@mutant(kills=["queues/enqueue_many_is_all_or_nothing", "queues/enqueue_many_is_one_commit"])
def enqueues_many_one_by_one(patch):
    async def enqueue_many(self, payloads, **options):
        return [await self.enqueue(payload, **options) for payload in payloads]

    patch.setattr(Queue, "enqueue_many", enqueue_many)


@mutant(kills=["queues/enqueue_many_of_nothing"])
def enqueues_a_null_for_nothing(patch):
    rewrite(patch, Queue, "enqueue_many", "if encoded else []", "if encoded else [await self.enqueue(None)]")


@mutant(kills=["queues/ids_are_never_reused"])
def numbers_jobs_after_the_latest_that_is_left(patch):
    rewrite_insert(
        patch,
        "[database.job_ids.draw() for _ in payloads]",
        "[max(database.jobs.rows, default=0) + 1 + number for number, _ in enumerate(payloads)]",
    )


@mutant(kills=["queues/ids_outlive_a_restart"], engine="sqlite")
def numbers_rows_after_the_latest_that_is_left(patch):
    from alkstore_sqlite import queues as sqlite_queues

    insert = sqlite_queues._INSERT_JOB.replace("queue,", "id, queue,", 1)
    insert = insert.replace("VALUES (", "VALUES ((SELECT coalesce(max(id), 0) + 1 FROM alkstore_jobs), ")
    assert insert.count("max(id)") == insert.count("id, queue,") == 1
    patch.setattr(sqlite_queues, "_INSERT_JOB", insert)


# claiming


@mutant(kills=["queues/claim_order", "queues/claim_order_at_the_limits", "queues/lapsed_claim_keeps_its_place"])
def claims_in_the_order_of_ids(patch):
    patch.setattr(backlog, "_rank", lambda job: (0, 0, job.id))


@mutant(kills=["queues/claim_order", "queues/claim_order_at_the_limits"])
def ignores_priority(patch):
    patch.setattr(backlog, "_rank", lambda job: (0, job.ready_at, job.id))


@mutant(kills=["queues/lapsed_claim_keeps_its_place"])
def puts_lapsed_jobs_at_the_end(patch):
    patch.setattr(backlog, "_rank", lambda job: (-job.priority, job.state is JobState.PROCESSING, job.id))


@mutant(
    kills=[
        "queues/delayed_job_waits",
        "queues/delayed_urgent_job_blocks_nobody",
        "queues/claim_finds_the_ready_among_many",
        "queues/clock_jumps_redeliver_nothing",
        "queues/retried_job_waits",
    ]
)
def hands_out_what_is_not_ready(patch):
    patch.setattr(backlog, "due_at", lambda job: 0 if job.claim_expires_at is None else job.claim_expires_at)


@mutant(
    kills=["queues/delayed_job_waits", "queues/claim_lapses_at_its_deadline", "queues/retried_job_waits"],
)
def hands_out_a_second_too_late(patch):
    patch.setattr(backlog, "due_at", lambda job: due_at(job) + (job.created_at < due_at(job)))


@mutant(kills=["queues/claim_lapses_at_its_deadline", "queues/heartbeats_keep_a_claim"])
def hands_out_a_second_too_early(patch):
    patch.setattr(backlog, "due_at", lambda job: due_at(job) - 1)


@mutant(kills=["queues/delayed_urgent_job_blocks_nobody", "queues/claim_finds_the_ready_among_many"])
def waits_for_the_most_urgent(patch):
    right = Backlog.claim

    def claim(self, now, limit):
        most = max((row.job.priority for row in self.live.values()), default=0)
        exhausted, found = right(self, now, limit)
        return exhausted, [row for row in found if row.job.priority == most]

    patch.setattr(Backlog, "claim", claim)


@mutant(kills=["queues/expired_job_is_not_claimed", "queues/claim_finds_the_ready_among_many"])
def hands_out_what_has_expired(patch):
    patch.setattr(backlog, "is_expired", lambda job, now: False)


@mutant(kills=["queues/expired_job_is_not_claimed"])
def hands_out_at_the_second_of_expiry(patch):
    patch.setattr(backlog, "is_expired", lambda job, now: job.expires_at is not None and job.expires_at < now)


@mutant(kills=["queues/expired_job_is_not_claimed"])
def hands_out_lapsed_jobs_that_have_expired(patch):
    right = backlog.is_expired
    patch.setattr(backlog, "is_expired", lambda job, now: job.attempts == 0 and right(job, now))


@mutant(kills=["queues/claims_are_exclusive", "queues/reclaims_are_exclusive"])
def looks_before_it_claims(patch):
    async def claim_jobs(self, queue, worker_id, limit):
        with await self.reading() as changes:
            now = self.now()
            rows = [row for row in queues._rows(changes, queue) if due_at(row.job) <= now]
            found = sorted((row for row in rows if row.job.died_at is None), key=lambda row: row.job.id)[:limit]
        with await self.writing() as changes:
            claims = []
            for row in found:
                job = replace(
                    row.job,
                    state=JobState.PROCESSING,
                    worker_id=worker_id,
                    claimed_at=now,
                    claim_expires_at=now + row.job.visibility_timeout_s,
                    attempts=row.job.attempts + 1,
                )
                claims.append(Claim(job, changes.database.claim_tokens.draw()))
                changes.put(changes.database.jobs, job.id, claims[-1])
            return claims

    patch.setattr(QueueSession, "claim_jobs", claim_jobs)


@mutant(kills=["queues/queues_are_apart"])
def claims_from_any_queue(patch):
    rewrite(
        patch,
        QueueSession,
        "claim_jobs",
        "database.jobs.backlogs.get(queue)",
        "next(iter(database.jobs.backlogs.values()), None)",
    )


@mutant(kills=["queues/queues_are_apart"])
def sweeps_every_queue(patch):
    right = QueueSession.sweep_jobs

    async def sweep_jobs(self, queue):
        with await self.reading() as changes:
            known = {queue, *changes.database.jobs.backlogs}
        return sum([await right(self, each) for each in known])

    patch.setattr(QueueSession, "sweep_jobs", sweep_jobs)


@mutant(kills=["queues/claim_marks_the_row", "queues/reclaim_costs_an_attempt"])
def moves_the_ready_time_to_the_claim(patch):
    rewrite(patch, QueueSession, "claim_jobs", "claimed_at=now,", "claimed_at=now, ready_at=now,")


@mutant(kills=["queues/claim_marks_the_row"])
def trims_worker_ids(patch):
    rewrite(patch, QueueSession, "claim_jobs", "worker_id=worker_id,", "worker_id=worker_id.strip('_ ✓'),")


@mutant(kills=["queues/reclaim_costs_an_attempt"])
def keeps_the_time_of_the_first_claim(patch):
    rewrite(patch, QueueSession, "claim_jobs", "claimed_at=now,", "claimed_at=row.job.claimed_at or now,")


@mutant(
    kills=[
        "queues/reclaim_costs_an_attempt",
        "queues/reclaims_are_exclusive",
        "queues/exhausted_job_is_buried",
        "queues/heartbeat_voids_a_claim",
    ]
)
def counts_no_attempt_for_a_reclaim(patch):
    rewrite(
        patch,
        QueueSession,
        "claim_jobs",
        "attempts=row.job.attempts + 1",
        "attempts=row.job.attempts + (row.job.state is JobState.PENDING)",
    )


@mutant(
    kills=["queues/reclaim_costs_an_attempt", "queues/retried_job_waits", "queues/release_gives_back"],
)
def forgets_the_last_error_at_a_claim(patch):
    rewrite(patch, QueueSession, "claim_jobs", "claimed_at=now,", "claimed_at=now, last_error=None,")


@mutant(kills=["queues/claim_deadline_saturates"])
def adds_visibility_without_a_limit(patch):
    rewrite(
        patch,
        QueueSession,
        "claim_jobs",
        "saturating_add(now, row.job.visibility_timeout_s)",
        "now + row.job.visibility_timeout_s",
    )


@mutant(kills=["queues/exhausted_job_is_buried", "queues/exhausted_jobs_hide_nobody"])
def hands_out_what_is_exhausted(patch):
    patch.setattr(backlog, "_at_last_attempt", lambda job: False)


@mutant(kills=["queues/exhausted_jobs_hide_nobody"])
def buries_one_exhausted_job_at_a_time(patch):
    rewrite(patch, QueueSession, "claim_jobs", "for row in exhausted:", "for row in exhausted[:limit]:")


@mutant(kills=["queues/exhausted_job_is_buried"])
def buries_the_exhausted_as_failed(patch):
    rewrite(patch, QueueSession, "claim_jobs", '"max attempts exceeded"', '"failed"')


@mutant(kills=["queues/exhausted_and_expired_job_expires"])
def buries_the_exhausted_though_expired(patch):
    rewrite(patch, Backlog, "claim", "\n            and not is_expired(row.job, now)\n", "\n")


@mutant(kills=["queues/claim_batch_takes_at_most_n"])
def claims_one_too_many(patch):
    rewrite(patch, Backlog, "claim", "len(found) < limit", "len(found) <= limit")


@mutant(kills=["queues/claim_of_none_touches_nothing"])
def claims_none_by_asking_for_none(patch):
    rewrite(patch, Queue, "claim_batch", "if count <= 0:\n        return []", "count = max(count, 0)")


@mutant(kills=["queues/claim_of_none_touches_nothing"])
def takes_zero_for_no_limit(patch):
    rewrite(patch, Queue, "claim_batch", "if count <= 0:\n        return []", "count = count if count > 0 else 100")


@mutant(kills=["queues/cancelled_claim_strands_nothing"], hangs=True)
def forgets_a_cancelled_claimants_jobs(patch):
    right = QueueSession.claim_jobs

    async def claim_jobs(self, queue, worker_id, limit):
        claims = await right(self, queue, worker_id, limit)
        await asyncio.sleep(0)
        return claims

    patch.setattr(QueueSession, "claim_jobs", claim_jobs)


@mutant(kills=["queues/clock_jumps_redeliver_nothing"])
def counts_seconds_that_passed_twice(patch):
    seen = {}

    def now(self):
        clock = self._clock.now()
        last, total = seen.get(self._clock, (clock, clock))
        seen[self._clock] = clock, total + max(clock - last, 0)
        return seen[self._clock][1]

    patch.setattr(MemEngine, "now", now)


@mutant(kills=["queues/clock_set_back_keeps_a_live_claim"])
def keeps_what_has_lapsed_once_for_lapsed(patch):
    patch.setattr(Backlog, "_look", lambda self, now: None)
    rewrite(patch, Backlog, "claim", "due_at(row.job) > now or _rank", "_rank")


# a claim's own rights


@mutant(
    kills=[
        "queues/late_act_is_refused",
        "queues/late_act_of_the_last_attempt_is_refused",
        "queues/ack_batch_after_the_deadline",
        "queues/heartbeats_keep_a_claim",
    ]
)
def lets_a_claim_act_at_its_deadline(patch):
    rewrite(patch, queues, "_is_live", "now < job", "now <= job")


@mutant(
    kills=["queues/late_act_is_refused", "queues/late_act_of_the_last_attempt_is_refused"],
)
def lets_a_claim_act_until_it_is_taken_over(patch):
    rewrite(patch, queues, "_is_live", " and now < job.claim_expires_at", "")


@mutant(kills=["queues/act_lands_before_the_deadline", "queues/ack_batch_after_the_deadline"])
def refuses_the_last_second_of_a_claim(patch):
    rewrite(patch, queues, "_is_live", "now < job", "now + 1 < job")


@mutant(kills=["queues/stale_act_spares_the_successor"])
def lets_anybodys_handle_act(patch):
    rewrite(patch, queues, "_live_row", " and row.token == claim.token", "")


@mutant(
    kills=[
        "queues/stale_act_spares_the_successor",
        "queues/stale_act_spares_an_equal_claim",
        "queues/late_ack_spares_a_concurrent_reclaim",
    ]
)
def knows_claims_by_their_worker(patch):
    rewrite(patch, queues, "_live_row", "row.token == claim.token", "row.job.worker_id == claim.job.worker_id")


@mutant(kills=["queues/stale_act_spares_an_equal_claim"])
def knows_claims_by_worker_and_attempt(patch):
    same = "(row.job.worker_id, row.job.attempts) == (claim.job.worker_id, claim.job.attempts)"
    rewrite(patch, queues, "_live_row", "row.token == claim.token", same)


@mutant(
    kills=[
        "queues/settled_claim_can_do_nothing",
        "queues/swept_job_can_be_settled_no_more",
        "queues/one_settling_lands",
        "queues/ack_batch_counts_what_landed",
    ]
)
def lets_the_claim_of_a_dead_letter_act(patch):
    rewrite(patch, queues, "_is_live", "job.state is JobState.PROCESSING and ", "")


@mutant(kills=["queues/live_claim_outlives_expiry"])
def ends_a_claim_with_its_jobs_expiry(patch):
    rewrite(patch, queues, "_is_live", "now < job", "not is_expired(job, now) and now < job")


@mutant(kills=["queues/one_settling_lands", "queues/sweep_and_ack_at_once"])
def looks_before_it_acks(patch):
    async def ack_claims(self, claims):
        with await self.reading() as changes:
            landed = [queues._live_row(changes, claim, self.now()) is not None for claim in claims]
        with await self.writing() as changes:
            for claim, lands in zip(claims, landed, strict=True):
                if lands:
                    changes.put(changes.database.jobs, claim.job.id, None)
        return landed

    patch.setattr(QueueSession, "ack_claims", ack_claims)


# settling


@mutant(kills=["queues/ack_deletes_the_row"])
def keeps_what_was_acked_as_dead(patch):
    rewrite(
        patch,
        QueueSession,
        "ack_claims",
        "changes.put(changes.database.jobs, claim.job.id, None)",
        '_bury(changes, claim, "acked", now)',
    )


@mutant(kills=["queues/heartbeat_sets_the_deadline", "queues/heartbeat_voids_a_claim"])
def adds_a_heartbeat_to_the_deadline(patch):
    rewrite(patch, QueueSession, "extend_claim", "saturating_add(now,", "saturating_add(due_at(row.job),")


@mutant(kills=["queues/heartbeat_sets_the_deadline", "queues/heartbeat_voids_a_claim"])
def never_shortens_a_claim(patch):
    rewrite(
        patch, QueueSession, "extend_claim", "saturating_add(now, extend)", "max(due_at(row.job), now + max(extend, 0))"
    )


@mutant(kills=["queues/heartbeats_keep_a_claim", "queues/heartbeat_sets_the_deadline"])
def forgets_heartbeats(patch):
    rewrite(patch, QueueSession, "extend_claim", "replace(row.job, claim_expires_at=until)", "row.job")


@mutant(kills=["queues/heartbeat_saturates"])
def adds_heartbeats_without_a_limit(patch):
    rewrite(patch, QueueSession, "extend_claim", "saturating_add(now, extend)", "now + extend")


@mutant(kills=["queues/heartbeat_voids_a_claim"])
def refuses_to_give_a_claim_up(patch):
    rewrite(patch, QueueSession, "extend_claim", "if row is None:", "if row is None or extend <= 0:")


@mutant(kills=["queues/fail_buries"])
def retries_what_has_failed(patch):
    async def bury_claim(self, claim, error):
        return await self.retry_claim(claim, error, 0)

    patch.setattr(QueueSession, "bury_claim", bury_claim)


@mutant(kills=["queues/fail_buries"])
def takes_an_empty_error_for_none(patch):
    rewrite(patch, JobHandle, "fail", "error is None", "not error")


@mutant(
    kills=[
        "queues/exhausted_job_is_buried",
        "queues/fail_buries",
        "queues/last_retry_buries",
        "queues/sweep_buries_the_expired",
        "queues/exhausted_and_expired_job_expires",
    ]
)
def forgets_who_had_a_dead_letter(patch):
    rewrite(patch, queues, "_bury", "died_at=now", "died_at=now, worker_id=None, claimed_at=None")


@mutant(
    kills=["queues/fail_buries", "queues/sweep_buries_the_expired", "queues/sweep_spares_what_has_not_expired"],
)
def dates_a_death_by_the_ready_time(patch):
    rewrite(patch, queues, "_bury", "died_at=now", "died_at=row.job.ready_at")


@mutant(kills=["queues/retry_makes_it_wait", "queues/release_gives_back"])
def keeps_the_worker_of_a_job_given_back(patch):
    rewrite(patch, queues, "_give_back", "worker_id=None,\n", "\n")


@mutant(kills=["queues/retry_makes_it_wait"])
def adds_retry_delays_without_a_limit(patch):
    rewrite(patch, QueueSession, "retry_claim", "saturating_add(now, delay)", "now + delay")


@mutant(kills=["queues/retry_makes_it_wait"])
def takes_a_negative_delay_for_none(patch):
    rewrite(patch, QueueSession, "retry_claim", "saturating_add(now, delay)", "min(now + max(delay, 0), 2**63 - 1)")


@mutant(kills=["queues/retried_job_waits", "queues/retry_makes_it_wait"])
def retries_at_once(patch):
    rewrite(patch, QueueSession, "retry_claim", "saturating_add(now, delay)", "now")


@mutant(kills=["queues/last_retry_buries", "queues/rows_carry_their_settings"])
def retries_once_too_often(patch):
    rewrite(patch, JobHandle, "retry", "job.attempts >= job.max_attempts", "job.attempts > job.max_attempts")


@mutant(kills=["queues/last_retry_buries"])
def retries_for_ever_with_a_delay(patch):
    rewrite(
        patch,
        JobHandle,
        "retry",
        "job.attempts >= job.max_attempts",
        "wait is None and job.attempts >= job.max_attempts",
    )


@mutant(kills=["queues/backoff_doubles"])
def doubles_once_too_often(patch):
    right = facade.retry_delay
    patch.setattr(facade, "retry_delay", lambda base, attempts, draw: right(base, attempts + 1, draw))


@mutant(kills=["queues/backoff_doubles"])
def backs_off_without_a_limit(patch):
    def retry_delay(base, attempts, draw):
        cap = base * 2 ** (attempts - 1)
        return draw(cap // 2, cap)

    patch.setattr(facade, "retry_delay", retry_delay)


@mutant(kills=["queues/backoff_doubles", "queues/backoff_is_drawn_anew"])
def draws_from_zero(patch):
    right = facade.retry_delay
    patch.setattr(
        facade, "retry_delay", lambda base, attempts, draw: right(base, attempts, lambda low, high: draw(0, high))
    )


@mutant(kills=["queues/backoff_is_drawn_anew"])
def draws_the_most_always(patch):
    patch.setattr(facade, "default_draw", lambda low, high: high)
    from alkstore_core import store

    patch.setattr(store, "default_draw", facade.default_draw)


@mutant(
    kills=[
        "queues/release_gives_back",
        "queues/release_burns_no_attempt",
        "queues/cancelled_claim_strands_nothing",
        "queues/stale_act_spares_an_equal_claim",
    ]
)
def burns_an_attempt_for_a_release(patch):
    rewrite(patch, QueueSession, "release_claims", "row.job.attempts - 1", "row.job.attempts")


@mutant(kills=["queues/release_gives_back"])
def releases_to_the_old_ready_time(patch):
    rewrite(patch, QueueSession, "release_claims", "row, now, row.job", "row, row.job.ready_at, row.job")


@mutant(kills=["queues/release_gives_back", "queues/last_error_of_a_waiting_job"])
def forgets_the_last_error_at_a_release(patch):
    rewrite(patch, QueueSession, "release_claims", "row.job.last_error", "None")


# by id


@mutant(kills=["queues/ack_batch_counts_what_landed"])
def counts_the_ids_given(patch):
    rewrite(patch, QueueSession, "ack_jobs", "return acked", "return len(job_ids)")


@mutant(kills=["queues/ack_batch_counts_what_landed"])
def acks_for_any_worker(patch):
    rewrite(patch, QueueSession, "ack_jobs", " and row.job.worker_id == worker_id", "")


@mutant(kills=["queues/ack_batch_counts_what_landed", "queues/queues_are_apart"])
def acks_in_any_queue(patch):
    rewrite(patch, QueueSession, "ack_jobs", " and row.job.queue == queue", "")


@mutant(kills=["queues/ack_batch_of_nothing"])
def reads_the_ids_twice(patch):
    rewrite(patch, Queue, "ack_batch", "ids = [", "if not any(job_ids):\n        return 0\n    ids = [")


@mutant(kills=["queues/cancel_deletes_a_live_row", "queues/cancelled_job_can_be_settled_no_more"])
def cancels_only_what_is_pending(patch):
    rewrite(patch, QueueSession, "cancel_job", "is JobState.DEAD", "is not JobState.PENDING")


@mutant(kills=["queues/cancelled_job_can_be_settled_no_more", "queues/cancel_deletes_a_live_row"])
def leaves_a_cancelled_job_to_its_worker(patch):
    rewrite(
        patch,
        QueueSession,
        "cancel_job",
        "changes.put(changes.database.jobs, job_id, None)",
        "row.job.state is JobState.PENDING and changes.put(changes.database.jobs, job_id, None)",
    )


@mutant(kills=["queues/cancel_spares_the_rest"])
def cancels_dead_letters(patch):
    rewrite(patch, QueueSession, "cancel_job", " or row.job.state is JobState.DEAD", "")


@mutant(kills=["queues/cancel_spares_the_rest", "queues/queues_are_apart"])
def cancels_in_any_queue(patch):
    rewrite(patch, QueueSession, "cancel_job", " or row.job.queue != queue", "")


@mutant(kills=["queues/get_job_looks_everywhere"])
def looks_only_in_its_own_queue(patch):
    rewrite(patch, Queue, "get_job", "None)", "self._name)")


@mutant(kills=["queues/get_job_looks_everywhere", "queues/transaction_get_job_looks_in_its_queue"])
def hides_dead_letters(patch):
    rewrite(patch, QueueSession, "find_job", "if row is not None", "if row is not None and row.job.died_at is None")


@mutant(kills=["queues/transaction_get_job_looks_in_its_queue"])
def looks_in_every_queue_on_a_transaction(patch):
    rewrite(patch, Transaction, "get_job", 'shared_name("queue", queue)', "None")


@mutant(kills=["queues/transaction_get_job_looks_in_its_queue"])
def looks_only_at_what_is_committed(patch):
    row, committed = "changes.get(changes.database.jobs, job_id)", "changes.database.jobs.rows.get(job_id)"
    rewrite(patch, QueueSession, "find_job", row, committed)


# dead letters and sweeping


@mutant(kills=["queues/last_error_of_a_waiting_job"])
def keeps_the_first_error(patch):
    rewrite(patch, queues, "_give_back", "last_error=error", "last_error=row.job.last_error or error")


@mutant(
    kills=[
        "queues/sweep_buries_the_expired",
        "queues/sweep_strands_nothing",
        "queues/swept_job_can_be_settled_no_more",
    ]
)
def sweeps_only_what_is_pending(patch):
    pending = "job_id in self.live and self.live[job_id].job.state is JobState.PENDING"
    rewrite(patch, Backlog, "sweep", "job_id in self.live:", f"{pending}:")


@mutant(kills=["queues/sweep_buries_the_expired", "queues/sweep_strands_nothing"])
def sweeps_only_what_is_ready(patch):
    ready = "job_id in self.live and self.live[job_id].job.ready_at <= now"
    rewrite(patch, Backlog, "sweep", "job_id in self.live:", f"{ready}:")


@mutant(kills=["queues/sweep_strands_nothing", "queues/sweep_buries_the_expired"])
def sweeps_three_at_a_time(patch):
    rewrite(patch, Backlog, "sweep", "self._expiring[0][0] <= now", "self._expiring[0][0] <= now and len(expired) < 3")


@mutant(kills=["queues/sweep_spares_what_has_not_expired"])
def sweeps_a_second_too_late(patch):
    rewrite(patch, Backlog, "sweep", "self._expiring[0][0] <= now", "self._expiring[0][0] < now")


@mutant(kills=["queues/sweep_leaves_the_dead_as_they_died"])
def sweeps_the_dead_again(patch):
    old = "if job_id in self.live:\n            expired[job_id] = self.live[job_id]"
    new = "if row := self.live.get(job_id) or self.dead.get(job_id):\n            expired[job_id] = row"
    rewrite(patch, Backlog, "sweep", old, new)


@mutant(kills=["queues/sweep_deletes_past_retention", "queues/sweep_forgets_at_once_without_retention"])
def counts_what_it_deletes(patch):
    rewrite(patch, QueueSession, "sweep_jobs", "return len(expired)", "return len(expired) + len(forgotten)")


@mutant(kills=["queues/sweep_deletes_past_retention", "queues/sweep_forgets_at_once_without_retention"])
def deletes_a_second_too_late(patch):
    rewrite(patch, Backlog, "sweep", "self._forgetting[0][0] <= now", "self._forgetting[0][0] < now")
    rewrite(patch, QueueSession, "sweep_jobs", "second <= now", "second < now")


def rewrite_forgotten_at(patch, old, new):
    """The same, for what is dead already and for what a sweep buries."""
    rewrite(patch, backlog, "forgotten_at", old, new)
    patch.setattr(queues, "forgotten_at", backlog.forgotten_at)


@mutant(kills=["queues/sweep_deletes_past_retention"])
def deletes_what_is_kept_for_ever(patch):
    rewrite_forgotten_at(patch, "job.dead_letter_retention_s)", "job.dead_letter_retention_s or 0)")


@mutant(kills=["queues/sweep_forgets_at_once_without_retention"])
def takes_a_retention_of_zero_for_none(patch):
    rewrite_forgotten_at(patch, "job.dead_letter_retention_s)", "job.dead_letter_retention_s or None)")


@mutant(kills=["queues/retention_starts_at_death"])
def keeps_the_dead_from_their_enqueue_on(patch):
    rewrite_forgotten_at(patch, "deadline(job.died_at,", "deadline(job.created_at,")


@mutant(kills=["queues/nothing_sweeps_by_itself"])
def sweeps_with_every_claim(patch):
    right = QueueSession.claim_jobs

    async def claim_jobs(self, queue, worker_id, limit):
        await self.sweep_jobs(queue)
        return await right(self, queue, worker_id, limit)

    patch.setattr(QueueSession, "claim_jobs", claim_jobs)


@mutant(kills=["queues/sweep_and_ack_at_once"])
def looks_before_it_sweeps(patch):
    async def sweep_jobs(self, queue):
        with await self.reading() as changes:
            now = self.now()
            found = [row for row in queues._rows(changes, queue) if row.job.state is not JobState.DEAD]
            expired = [row for row in found if queues.is_expired(row.job, now)]
        with await self.writing() as changes:
            for row in expired:
                queues._bury(changes, row, "expired", now)
        return len(expired)

    patch.setattr(QueueSession, "sweep_jobs", sweep_jobs)
