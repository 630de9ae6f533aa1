"""Engines that are wrong about numbers and options."""

from alkstore_contract_suite.mutation import mutant
from alkstore_core import (
    JobHandle,
    Lock,
    Queue,
    QueueOptions,
    Stream,
    Transaction,
    locks,
    numbers,
    options,
    queues,
    streams,
    timing,
    transaction,
)
from alkstore_core.errors import DatabaseError
from alkstore_core.numbers import INT64_MAX, INT64_MIN
from alkstore_mem import backlog
from alkstore_mem import queues as mem_queues
from alkstore_mem.queues import QueueSession
from alkstore_mem.streams import StreamSession

_CHECKED = (numbers, options, queues, streams, transaction, locks)


def _each_int64(patch, wrong):
    for module in _CHECKED:
        for name in ("int64", "optional_int64", "at_least", "duration"):
            if hasattr(module, name):
                right = getattr(module, name)
                patch.setattr(module, name, lambda *given, right=right: wrong(right, *given))


@mutant(kills=["numbers/numbers_are_int", "numbers/queue_options_are_int", "numbers/refused_numbers_leave_nothing"])
def takes_what_counts_as_a_number(patch):
    def wrong(right, *given):
        *before, value = given
        return right(*before, int(value) if isinstance(value, bool | float) else value)

    _each_int64(patch, wrong)


@mutant(kills=["numbers/required_numbers_are_not_none", "numbers/queue_options_are_int"])
def takes_none_for_zero(patch):
    _each_int64(patch, lambda right, *given: right(*given[:-1], 1 if given[-1] is None else given[-1]))


@mutant(
    kills=["numbers/numbers_are_int64", "numbers/refused_numbers_leave_nothing", "numbers/queue_options_out_of_range"]
)
def clamps_to_int64(patch):
    def wrong(right, *given):
        *before, value = given
        return right(*before, max(INT64_MIN, min(INT64_MAX, value)) if type(value) is int else value)

    _each_int64(patch, wrong)


@mutant(kills=["numbers/numbers_are_int64", "numbers/numbers_are_int"])
def checks_after_a_round_trip(patch):
    right = Stream.save_offset

    async def save_offset(self, consumer, offset):
        await self.get_offset(consumer)
        await right(self, consumer, offset)

    patch.setattr(Stream, "save_offset", save_offset)


@mutant(kills=["numbers/claiming_none_touches_nothing"])
def buries_before_it_counts(patch):
    right = Queue.claim_batch

    async def claim_batch(self, worker_id, n):
        claims = await right(self, worker_id, max(n, 1))
        return claims[: max(n, 0)]

    patch.setattr(Queue, "claim_batch", claim_batch)


@mutant(kills=["numbers/reading_none_gives_nothing"])
def reads_all_for_a_negative_limit(patch):
    async def read_since(session, stream, offset, limit):
        return [] if limit == 0 else await session.read_events(stream, offset, limit if limit > 0 else INT64_MAX)

    for module in (streams, transaction):
        patch.setattr(module, "read_since", read_since)


@mutant(kills=["numbers/reading_none_gives_nothing", "numbers/extents_of_any_size_are_legal"])
def reads_a_page_at_most(patch):
    right_read, right_claim = StreamSession.read_events, QueueSession.claim_jobs
    patch.setattr(StreamSession, "read_events", lambda self, *given: right_read(self, *given[:2], min(given[2], 2)))
    patch.setattr(QueueSession, "claim_jobs", lambda self, *given: right_claim(self, *given[:2], min(given[2], 2)))


@mutant(kills=["numbers/lock_needs_a_duration", "numbers/renewal_needs_a_duration"])
def takes_locks_that_have_lapsed(patch):
    patch.setattr(locks, "duration", lambda _, value: value)


@mutant(kills=["numbers/lock_needs_a_duration", "numbers/renewal_needs_a_duration"])
def refuses_a_duration_without_a_cause(patch):
    def duration(what, value):
        if value <= 0:
            raise DatabaseError(f"{what} {value} is too short: give a longer one")
        return value

    patch.setattr(locks, "duration", duration)


@mutant(kills=["numbers/renewal_needs_a_duration"])
def ends_a_lock_that_is_renewed_for_nothing(patch):
    right = Lock.renew

    async def renew(self, ttl):
        if ttl <= 0:
            await self.release()
        return await right(self, ttl)

    patch.setattr(Lock, "renew", renew)


def _wrap(left, right):
    return (left + right + 2**63) % 2**64 - 2**63


@mutant(
    kills=[
        "numbers/delays_saturate",
        "numbers/expiries_saturate",
        "numbers/heartbeats_saturate",
        "numbers/retry_delays_saturate",
        "numbers/long_durations_saturate",
        "numbers/sums_saturate_at_the_end_of_time",
        "numbers/sums_saturate_at_the_beginning_of_time",
    ]
)
def wraps_around(patch):
    from alkstore_mem import locks as mem_locks

    for module in (timing, mem_queues, mem_locks):
        patch.setattr(module, "saturating_add", _wrap)


@mutant(kills=["numbers/sums_saturate_at_the_beginning_of_time"])
def saturates_above_only(patch):
    for module in (timing, mem_queues):
        patch.setattr(module, "saturating_add", lambda left, right: min(left + right, INT64_MAX))


@mutant(
    kills=[
        "numbers/every_int64_is_a_ready_time",
        "numbers/every_int64_is_a_priority",
        "numbers/edges_are_claimed_in_order",
        "numbers/delays_saturate",
        "numbers/expiries_saturate",
    ]
)
def keeps_numbers_as_floats(patch):
    from dataclasses import replace

    right = QueueSession.insert_jobs

    def rounded(value):
        return None if value is None else max(INT64_MIN, min(INT64_MAX, int(float(value))))

    async def insert_jobs(self, queue, payloads, stamp):
        stamp = replace(
            stamp,
            run_at=rounded(stamp.run_at),
            delay=rounded(stamp.delay),
            priority=rounded(stamp.priority),
            expires=rounded(stamp.expires),
        )
        return await right(self, queue, payloads, stamp)

    patch.setattr(QueueSession, "insert_jobs", insert_jobs)


@mutant(kills=["numbers/every_int64_is_a_priority", "numbers/every_int64_is_a_ready_time"])
def stamps_transactions_with_defaults(patch):
    right = Transaction.enqueue
    patch.setattr(Transaction, "enqueue", lambda self, queue, payload, **_: right(self, queue, payload))


@mutant(kills=["numbers/edges_are_claimed_in_order"])
def compares_numbers_as_text(patch):
    patch.setattr(backlog, "_rank", lambda job: (str(-job.priority), str(job.ready_at), job.id))
    patch.setattr(backlog.Backlog, "claim", _claim_by_text)


def _claim_by_text(self, now, limit):
    ready = sorted(
        (row for row in self.live.values() if backlog.due_at(row.job) <= now and not backlog.is_expired(row.job, now)),
        key=lambda row: backlog._rank(row.job),
    )
    return [], ready[:limit]


@mutant(kills=["numbers/far_jobs_wait_and_past_ones_do_not"])
def takes_the_end_of_time_for_no_time(patch):
    right = timing.ready_time

    def ready_time(now, delay, run_at):
        ready_at = right(now, delay, run_at)
        return now if ready_at == INT64_MAX else ready_at

    patch.setattr(mem_queues, "ready_time", ready_time)


@mutant(kills=["numbers/far_jobs_wait_and_past_ones_do_not"])
def takes_no_expiry_for_none(patch):
    patch.setattr(mem_queues, "deadline", lambda now, seconds: now + seconds if seconds and seconds > 0 else None)


@mutant(kills=["numbers/heartbeats_saturate"])
def keeps_a_claim_alive_for_a_second(patch):
    right = JobHandle.heartbeat
    patch.setattr(JobHandle, "heartbeat", lambda self, extend: right(self, max(extend, 1)))


@mutant(kills=["numbers/retry_delays_saturate"])
def retries_never_before_now(patch):
    right = JobHandle.retry
    patch.setattr(JobHandle, "retry", lambda self, error, delay=None: right(self, error, max(delay, 0)))


@mutant(kills=["numbers/every_int64_is_an_offset_to_save"])
def saves_no_negative_offset(patch):
    right = StreamSession.save_offset
    patch.setattr(
        StreamSession,
        "save_offset",
        lambda self, stream, consumer, offset: right(self, stream, consumer, max(offset, 0)),
    )


@mutant(kills=["numbers/every_int64_is_an_offset_to_read_from"])
def reads_from_the_beginning_at_least(patch):
    right = StreamSession.read_events

    async def read_events(self, stream, after, limit):
        return await right(self, stream, after if after < INT64_MAX else 0, limit)

    patch.setattr(StreamSession, "read_events", read_events)


@mutant(kills=["numbers/every_int64_is_a_horizon"])
def counts_a_horizon_from_the_end(patch):
    right = StreamSession.trim_events

    async def trim_events(self, stream, horizon):
        return await right(self, stream, INT64_MAX + horizon if horizon < 0 else horizon)

    patch.setattr(StreamSession, "trim_events", trim_events)


@mutant(kills=["numbers/every_int64_is_an_id_to_ask_for"])
def counts_ids_from_the_end(patch):
    right = QueueSession.find_job
    patch.setattr(QueueSession, "find_job", lambda self, job_id, queue: right(self, abs(job_id), queue))


@mutant(kills=["numbers/queue_options_out_of_range", "numbers/max_attempts_of_an_enqueue"])
def allows_no_attempt_at_all(patch):
    patch.setattr(options, "at_least", lambda minimum, what, value: numbers.at_least(minimum - 1, what, value))


@mutant(kills=["numbers/queue_options_at_their_limits"])
def wants_two_attempts(patch):
    right = options.at_least
    patch.setattr(options, "at_least", lambda minimum, what, value: max(right(minimum, what, value), 2))
    patch.setattr(
        QueueOptions,
        "__post_init__",
        lambda self: object.__setattr__(self, "max_attempts", max(self.max_attempts, 2)),
    )


@mutant(kills=["numbers/queue_options_out_of_range", "numbers/queue_options_are_int"])
def checks_options_with_the_first_job(patch):
    patch.setattr(QueueOptions, "__post_init__", lambda _: None)
