"""Queues on SQLite: the operations behind `Session`'s queue primitives."""

import json
from collections.abc import Sequence

from alkstore_core.engine import Claim
from alkstore_core.making import maker
from alkstore_core.numbers import INT64_MAX, INT64_MIN, saturating_add
from alkstore_core.options import JobStamp
from alkstore_core.timing import deadline, ready_time
from alkstore_core.values import Job, JobState
from alkstore_core.wakes import queue_topic

from alkstore_sqlite.operations import Operation, Row, Scope, count, many, rows
from alkstore_sqlite.statements import Statements

SQL = Statements("queues")
_INSERT_JOB = SQL.insert_job
_INSERT_JOBS = SQL.insert_jobs

make_job, make_claim = maker(Job), maker(Claim)
_CLAIM_ORDER = (SQL.claimable_first, SQL.claimable, SQL.claimable_last)
_STATES = (JobState.PENDING, JobState.PROCESSING, JobState.DEAD)


def insert_jobs(scope: Scope, queue: str, payloads: Sequence[bytes], stamp: JobStamp) -> Operation[list[int]]:
    """Add pending jobs; their ids in order (Q1, Q12)."""
    scope.topics.add(queue_topic(queue))
    rest = _stamped(stamp, scope.now())
    if len(payloads) == 1:
        found: list[Row] = yield rows(_INSERT_JOB, queue, payloads[0], *rest)
        return [found[0][0]]
    yield many(_INSERT_JOBS, ((queue, payload, *rest) for payload in payloads))
    found = yield rows(SQL.last_job_id)
    last: int = found[0][0]
    return list(range(last - len(payloads) + 1, last + 1))


def insert_job_as(id: int, queue: str, payload: bytes, stamp: JobStamp, now: int) -> Operation[None]:
    """Add the pending job that was promised this id at this time (Q1)."""
    yield count(SQL.insert_job_as, id, queue, payload, *_stamped(stamp, now))


def _stamped(stamp: JobStamp, now: int) -> tuple[int | None, ...]:
    """What a new job's row has beside its queue and its payload."""
    ready_at = ready_time(now, stamp.delay, stamp.run_at)
    return (
        stamp.priority,
        ready_at,
        deadline(now, stamp.expires),
        stamp.max_attempts,
        stamp.visibility_timeout_s,
        stamp.backoff_base_s,
        stamp.dead_letter_retention_s,
        now,
        _waiting_place(stamp.priority, ready_at, now),
    )


def _waiting_place(priority: int, ready_at: int, now: int) -> int:
    """Where a pending row stands: in the claim order, or apart until it is ready."""
    return 3 if priority != 0 and ready_at > now else 1


def claim_jobs(scope: Scope, queue: str, worker_id: str, limit: int) -> Operation[list[Claim]]:
    """Bury the exhausted, then take the first in claim order (Q3, Q4).

    What has expired or lapsed or become ready since the last claim changes its place once, by an index on the time, so
    a claim costs the same whatever waits, is delayed, has expired or is dead.
    """
    now = scope.now()
    yield count(SQL.set_expired_aside, queue, now)
    yield count(SQL.return_unexpired, now, queue, now)
    yield count(SQL.return_lapsed, now, now, now, queue, now)
    yield count(SQL.ripen, queue, now)
    taken: list[Row] = []
    for claimable in _CLAIM_ORDER:
        found: list[Row] = yield rows(claimable, queue, now, now, limit - len(taken))
        taken += found
        if len(taken) == limit:
            break
    if not taken:
        return []
    claims = [_claimed(queue, row, worker_id, now) for row in taken]
    yield count(SQL.claim, worker_id, now, now, now, _ids(claims))
    return claims


def _ids(claims: Sequence[Claim]) -> str:
    return json.dumps([claim.job.id for claim in claims])


def _claimed(queue: str, row: Row, worker_id: str, now: int) -> Claim:
    (
        id,
        payload,
        priority,
        ready_at,
        expires_at,
        attempts,
        most,
        visibility,
        base,
        retention,
        created_at,
        error,
        claims,
    ) = row
    job = make_job(
        id,
        queue,
        payload,
        JobState.PROCESSING,
        priority,
        ready_at,
        expires_at,
        attempts + 1,
        most,
        visibility,
        base,
        retention,
        created_at,
        worker_id,
        now,
        saturating_add(now, visibility),
        error,
        None,
    )
    return make_claim(job, claims + 1)


def ack_claims(scope: Scope, claims: Sequence[Claim]) -> Operation[list[bool]]:
    """Delete what is held by these very claims; for each, whether it was (Q5, Q6)."""
    found: list[Row] = yield rows(SQL.live_claims, _ids(claims), scope.now())
    live = {(row[0], row[1]) for row in found}
    landed: list[bool] = []
    for claim in claims:
        held = (claim.job.id, claim.token)
        landed.append(held in live)
        live.discard(held)  # a claim that is given twice lands once
    yield count(SQL.delete_jobs, json.dumps([claim.job.id for claim, held in zip(claims, landed, strict=True) if held]))
    return landed


def ack_jobs(scope: Scope, queue: str, worker_id: str, job_ids: Sequence[int]) -> Operation[int]:
    """Delete what this worker holds of these; how many (Q8)."""
    landed: int = yield count(SQL.ack_jobs, json.dumps(job_ids), queue, worker_id, scope.now())
    return landed


def retry_claim(scope: Scope, claim: Claim, error: str, delay: int) -> Operation[bool]:
    """Make it wait again (Q7)."""
    now = scope.now()
    ready_at = saturating_add(now, delay)
    place = _waiting_place(claim.job.priority, ready_at, now)
    changed: int = yield count(SQL.retry_claim, place, ready_at, error, claim.job.id, claim.token, now)
    if changed:
        scope.topics.add(queue_topic(claim.job.queue))
    return changed > 0


def bury_claim(scope: Scope, claim: Claim, error: str) -> Operation[bool]:
    """Make it a dead letter (Q6, Q9)."""
    now = scope.now()
    purge_at = deadline(now, claim.job.dead_letter_retention_s)
    changed: int = yield count(SQL.bury_claim, error, now, purge_at, claim.job.id, claim.token, now)
    return changed > 0


def extend_claim(scope: Scope, claim: Claim, extend: int) -> Operation[bool]:
    """Move its deadline, for the waiting too if that makes it sooner (Q6)."""
    now = scope.now()
    until = saturating_add(now, extend)
    found: list[Row] = yield rows(SQL.claim_deadline, claim.job.id, claim.token, now)
    if not found:
        return False
    yield count(SQL.extend_claim, until, now, claim.job.id, claim.token, now)
    if until < found[0][0]:
        scope.topics.add(queue_topic(claim.job.queue))
    return True


def release_claims(scope: Scope, claims: Sequence[Claim]) -> Operation[list[bool]]:
    """Give them back; for each, whether it was still held (Q15)."""
    now = scope.now()
    landed: list[bool] = []
    for claim in claims:
        changed: int = yield count(SQL.release_claim, now, claim.job.id, claim.token, now)
        landed.append(changed > 0)
        if changed:
            scope.topics.add(queue_topic(claim.job.queue))
    return landed


def cancel_job(scope: Scope, queue: str, job_id: int) -> Operation[bool]:
    """Delete it unless it is dead (Q8)."""
    changed: int = yield count(SQL.cancel_job, job_id, queue)
    return changed > 0


def find_job(scope: Scope, job_id: int, queue: str | None) -> Operation[Job | None]:
    """Look it up (Q8)."""
    found: list[Row] = yield rows(SQL.find_job, job_id)
    if not found or (queue is not None and found[0][1] != queue):
        return None
    id, its_queue, payload, state, *rest = found[0]
    return make_job(id, its_queue, payload, _STATES[state], *rest)


def sweep_jobs(scope: Scope, queue: str) -> Operation[int]:
    """Bury the expired, delete the dead past their retention; how many were buried (Q10)."""
    now = scope.now()
    moved: int = yield count(SQL.bury_expired, now, now, now, queue, now)
    yield count(SQL.purge_dead, queue, now)
    return moved


def next_due(scope: Scope, queue: str) -> Operation[int | None]:
    """When the queue next has something to claim, by time alone (Q13)."""
    now = scope.now()
    due: list[int] = []
    found: list[Row] = yield rows(SQL.next_lapse, queue, now)
    due += [row[0] for row in found]
    found = yield rows(SQL.next_delayed, queue, now)
    due += [row[0] for row in found]
    bound = INT64_MAX
    while True:
        found = yield rows(SQL.next_priority, queue, bound)
        if not found:
            break
        priority: int = found[0][0]
        found = yield rows(SQL.next_ready, queue, priority, now)
        due += [row[0] for row in found]
        if priority == INT64_MIN:
            break
        bound = priority - 1
    return min(due, default=None)
