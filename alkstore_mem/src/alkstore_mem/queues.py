"""Queues (contract section 7). A row is a `Claim`: the job, and the token of its latest claim."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from alkstore_core.engine import Claim
from alkstore_core.numbers import saturating_add
from alkstore_core.options import JobStamp
from alkstore_core.timing import deadline, ready_time
from alkstore_core.values import Job, JobState
from alkstore_core.wakes import queue_topic

from alkstore_mem.backlog import due_at, forgotten_at, is_expired
from alkstore_mem.database import Changes
from alkstore_mem.session import MemSession


def insert(changes: Changes, now: int, queue: str, payloads: Sequence[bytes], stamp: JobStamp) -> list[int]:
    """Stage pending jobs; their ids."""
    database = changes.database
    ids = [database.job_ids.draw() for _ in payloads]
    for job_id, payload in zip(ids, payloads, strict=True):
        job = Job(
            id=job_id,
            queue=queue,
            payload=payload,
            state=JobState.PENDING,
            priority=stamp.priority,
            ready_at=ready_time(now, stamp.delay, stamp.run_at),
            expires_at=deadline(now, stamp.expires),
            attempts=0,
            max_attempts=stamp.max_attempts,
            visibility_timeout_s=stamp.visibility_timeout_s,
            backoff_base_s=stamp.backoff_base_s,
            dead_letter_retention_s=stamp.dead_letter_retention_s,
            created_at=now,
            worker_id=None,
            claimed_at=None,
            claim_expires_at=None,
            last_error=None,
            died_at=None,
        )
        changes.put(database.jobs, job_id, Claim(job, 0))
    changes.wake(queue_topic(queue))
    return ids


def _is_live(job: Job, now: int) -> bool:
    return job.state is JobState.PROCESSING and job.claim_expires_at is not None and now < job.claim_expires_at


def _live_row(changes: Changes, claim: Claim, now: int) -> Claim | None:
    row = changes.get(changes.database.jobs, claim.job.id)
    return row if row is not None and row.token == claim.token and _is_live(row.job, now) else None


def _rows(changes: Changes, queue: str) -> Iterator[Claim]:
    jobs = changes.database.jobs
    backlog = jobs.backlogs.get(queue)
    ids = {*changes.staged(jobs)} if backlog is None else {*backlog.live, *backlog.dead, *changes.staged(jobs)}
    for job_id in ids:
        row = changes.get(jobs, job_id)
        if row is not None and row.job.queue == queue:
            yield row


def _bury(changes: Changes, row: Claim, error: str, now: int) -> Job:
    job = replace(row.job, state=JobState.DEAD, last_error=error, died_at=now)
    changes.put(changes.database.jobs, job.id, replace(row, job=job))
    return job


def _give_back(changes: Changes, row: Claim, ready_at: int, attempts: int, error: str | None) -> None:
    job = replace(
        row.job,
        state=JobState.PENDING,
        ready_at=ready_at,
        attempts=attempts,
        last_error=error,
        worker_id=None,
        claimed_at=None,
        claim_expires_at=None,
    )
    changes.put(changes.database.jobs, job.id, replace(row, job=job))
    changes.wake(queue_topic(job.queue))


class QueueSession(MemSession):
    """The queue primitives."""

    async def insert_jobs(self, queue: str, payloads: Sequence[bytes], stamp: JobStamp) -> list[int]:
        with await self.writing() as changes:
            return insert(changes, self.now(), queue, payloads, stamp)

    async def claim_jobs(self, queue: str, worker_id: str, limit: int) -> list[Claim]:
        with await self.writing() as changes:
            database, now = changes.database, self.now()
            backlog = database.jobs.backlogs.get(queue)
            if backlog is None:
                return []
            exhausted, found = backlog.claim(now, limit)
            for row in exhausted:
                _bury(changes, row, "max attempts exceeded", now)
            claims = []
            for row in found:
                job = replace(
                    row.job,
                    state=JobState.PROCESSING,
                    worker_id=worker_id,
                    claimed_at=now,
                    claim_expires_at=saturating_add(now, row.job.visibility_timeout_s),
                    attempts=row.job.attempts + 1,
                )
                claim = Claim(job, database.claim_tokens.draw())
                changes.put(database.jobs, job.id, claim)
                claims.append(claim)
            return claims

    async def ack_claims(self, claims: Sequence[Claim]) -> list[bool]:
        with await self.writing() as changes:
            now = self.now()
            acked = []
            for claim in claims:
                acked.append(_live_row(changes, claim, now) is not None)
                if acked[-1]:
                    changes.put(changes.database.jobs, claim.job.id, None)
            return acked

    async def ack_jobs(self, queue: str, worker_id: str, job_ids: Sequence[int]) -> int:
        with await self.writing() as changes:
            jobs, now = changes.database.jobs, self.now()
            acked = 0
            for job_id in job_ids:
                row = changes.get(jobs, job_id)
                if row and row.job.queue == queue and row.job.worker_id == worker_id and _is_live(row.job, now):
                    changes.put(jobs, job_id, None)
                    acked += 1
            return acked

    async def retry_claim(self, claim: Claim, error: str, delay: int) -> bool:
        with await self.writing() as changes:
            now = self.now()
            row = _live_row(changes, claim, now)
            if row is not None:
                _give_back(changes, row, saturating_add(now, delay), row.job.attempts, error)
            return row is not None

    async def bury_claim(self, claim: Claim, error: str) -> bool:
        with await self.writing() as changes:
            now = self.now()
            row = _live_row(changes, claim, now)
            if row is not None:
                _bury(changes, row, error, now)
            return row is not None

    async def extend_claim(self, claim: Claim, extend: int) -> bool:
        with await self.writing() as changes:
            now = self.now()
            row = _live_row(changes, claim, now)
            if row is None:
                return False
            until = saturating_add(now, extend)
            changes.put(changes.database.jobs, row.job.id, replace(row, job=replace(row.job, claim_expires_at=until)))
            if until < due_at(row.job):
                changes.wake(queue_topic(row.job.queue))
            return True

    async def release_claims(self, claims: Sequence[Claim]) -> list[bool]:
        with await self.writing() as changes:
            now = self.now()
            released = []
            for claim in claims:
                row = _live_row(changes, claim, now)
                if row is not None:
                    _give_back(changes, row, now, row.job.attempts - 1, row.job.last_error)
                released.append(row is not None)
            return released

    async def cancel_job(self, queue: str, job_id: int) -> bool:
        with await self.writing() as changes:
            row = changes.get(changes.database.jobs, job_id)
            if row is None or row.job.queue != queue or row.job.state is JobState.DEAD:
                return False
            changes.put(changes.database.jobs, job_id, None)
            return True

    async def find_job(self, job_id: int, queue: str | None) -> Job | None:
        with await self.reading() as changes:
            row = changes.get(changes.database.jobs, job_id)
            return row.job if row is not None and queue in (None, row.job.queue) else None

    async def sweep_jobs(self, queue: str) -> int:
        with await self.writing() as changes:
            jobs, now = changes.database.jobs, self.now()
            backlog = jobs.backlogs.get(queue)
            if backlog is None:
                return 0
            expired, forgotten = backlog.sweep(now)
            for row in expired:
                job = _bury(changes, row, "expired", now)
                second = forgotten_at(job)
                if second is not None and second <= now:
                    forgotten.append(job.id)
            for job_id in forgotten:
                changes.put(jobs, job_id, None)
            return len(expired)

    async def next_due(self, queue: str) -> int | None:
        with await self.reading() as changes:
            jobs, now = changes.database.jobs, self.now()
            if changes.staged(jobs):
                live = [row.job for row in _rows(changes, queue) if row.job.state is not JobState.DEAD]
                return min((due_at(job) for job in live if not is_expired(job, now)), default=None)
            backlog = jobs.backlogs.get(queue)
            return None if backlog is None else backlog.next_due(now)
