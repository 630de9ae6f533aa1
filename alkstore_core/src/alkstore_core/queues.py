"""At-least-once queues: enqueue, claim, settle (contract section 7)."""

import random
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, TypeVar

from alkstore_core.engine import Claim, Session
from alkstore_core.names import error_text, free_name, shared_name
from alkstore_core.numbers import int64, optional_int64, saturating_add
from alkstore_core.options import JobStamp, QueueOptions, job_stamp
from alkstore_core.payload import encode_payload
from alkstore_core.timing import retry_delay
from alkstore_core.values import Job

if TYPE_CHECKING:
    from alkstore_core.store import Store

T = TypeVar("T")


class Queue:
    """A handle on one queue, with the options it stamps on what it enqueues (Q2).

    Made by `Store.queue`; it never touches the database by itself (T1).
    """

    def __init__(self, store: "Store", name: str, options: QueueOptions) -> None:
        self._store = store
        self._name = name
        self._options = options
        self._stamp = job_stamp(options)

    def __repr__(self) -> str:
        return f"<Queue {self._name!r}>"

    @property
    def store(self) -> "Store":
        """The store that it belongs to."""
        return self._store

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._name

    @property
    def options(self) -> QueueOptions:
        """The options that this handle stamps on its jobs."""
        return self._options

    async def enqueue(
        self,
        payload: object,
        *,
        delay: int | None = None,
        run_at: int | None = None,
        expires: int | None = None,
        max_attempts: int | None = None,
        priority: int = 0,
    ) -> int:
        """Add one job, durable when this returns; its id (Q1).

        Args:
            payload: any JSON value (P1).
            delay: seconds until it is ready; it wins over `run_at`.
            run_at: the unix second at which it is ready.
            expires: seconds until it is not handed out any more.
            max_attempts: at least 1; without it the queue's.
            priority: higher is claimed first.

        Raises:
            TypeError, ValueError: an option is not an int, or out of range (V5, V6).
            CodecError: the payload would not come back as it is (P2).
            DatabaseError, ClosedError: it was not added.
        """
        session = self._store.session()
        if (
            (delay is None and run_at is None and expires is None and max_attempts is None)
            and priority == 0
            and type(priority) is int
        ):
            stamp = self._stamp
        else:
            stamp = self._stamped(delay, run_at, expires, max_attempts, priority)
        return (await session.insert_jobs(self._name, (encode_payload(payload),), stamp))[0]

    async def enqueue_many(
        self,
        payloads: Iterable[object],
        *,
        delay: int | None = None,
        run_at: int | None = None,
        expires: int | None = None,
        max_attempts: int | None = None,
        priority: int = 0,
    ) -> list[int]:
        """Add a job for each payload in one commit, all or none; their ids in the order given (Q12).

        Options and errors are those of `enqueue`.
        """
        session = self._store.session()
        stamp = self._stamped(delay, run_at, expires, max_attempts, priority)
        encoded = [encode_payload(payload) for payload in payloads]
        return await session.insert_jobs(self._name, encoded, stamp) if encoded else []

    def _stamped(
        self, delay: int | None, run_at: int | None, expires: int | None, max_attempts: int | None, priority: int
    ) -> JobStamp:
        return job_stamp(
            self._options, delay=delay, run_at=run_at, expires=expires, max_attempts=max_attempts, priority=priority
        )

    async def claim_one(self, worker_id: str) -> "JobHandle | None":
        """Claim the next job for `worker_id`, or None where nothing is claimable (Q3, Q4, Q11)."""
        claimed = await self.claim_batch(worker_id, 1)
        return claimed[0] if claimed else None

    async def claim_batch(self, worker_id: str, n: int) -> list["JobHandle"]:
        """Claim up to `n` jobs, in claim order: priority descending, ready time, id (Q3, Q4, Q11).

        Args:
            worker_id: who claims; not empty or blank.
            n: 0 or less gives [] and touches nothing (V5).
        """
        session = self._store.session()
        worker, count = free_name("worker", worker_id), int64("n", n)
        if count <= 0:
            return []
        return [JobHandle(self._store, claim) for claim in await session.claim_jobs(self._name, worker, count)]

    async def ack_batch(self, worker_id: str, job_ids: Iterable[int]) -> int:
        """Delete the jobs of this queue that `worker_id` holds a live claim on; how many. Others are ignored (Q8)."""
        session = self._store.session()
        worker = free_name("worker", worker_id)
        ids = [int64("job id", job_id) for job_id in job_ids]
        return await session.ack_jobs(self._name, worker, ids) if ids else 0

    async def cancel(self, job_id: int) -> bool:
        """Delete a pending or processing job of this queue; whether there was one (Q8).

        It interrupts nobody: a worker that has the job finds its ack False.
        """
        return await self._store.session().cancel_job(self._name, int64("job id", job_id))

    async def get_job(self, job_id: int) -> Job | None:
        """The job with this id, in any queue, live or dead; None if there is none (Q8)."""
        return await self._store.session().find_job(int64("job id", job_id), None)

    async def sweep_expired(self) -> int:
        """Make every expired job of this queue a dead letter, and delete dead letters past their retention (Q10).

        Returns:
            How many jobs were moved. Nothing sweeps by itself.
        """
        return await self._store.session().sweep_jobs(self._name)


class JobHandle:
    """One claim of one job: settle it with exactly one of `ack`, `retry`, `fail` or `release`.

    Each returns False, and changes nothing, once the claim is not live any more: its deadline has passed, it was
    settled, or the job was cancelled, swept away or claimed by somebody else (Q5).
    """

    __slots__ = ("_lapses_at", "_settled", "_store", "claim")

    def __init__(self, store: "Store", claim: Claim) -> None:
        self._store = store
        self.claim = claim
        """What the engine knows this claim by."""
        self._settled = False
        self._lapses_at: int | None = None

    def __repr__(self) -> str:
        job = self.claim.job
        return f"<JobHandle {job.id} of {job.queue!r}, attempt {job.attempts} by {job.worker_id!r}>"

    @property
    def job(self) -> Job:
        """The job as it was claimed."""
        return self.claim.job

    @property
    def settled(self) -> bool:
        """Whether this handle settles its claim, or has: by `ack`, `retry`, `fail` or `release`, landed or not.

        A settling that raised counts for nothing.
        """
        return self._settled

    @property
    def lapses_at(self) -> int:
        """The unix second until which the claim surely lasts, as of the last successful `heartbeat`."""
        if self._lapses_at is not None:
            return self._lapses_at
        return self.claim.job.claim_expires_at or 0

    async def ack(self) -> bool:
        """Done: delete the job. False if the claim is not live any more (Q6)."""
        return (await self._settle(self._session().ack_claims((self.claim,))))[0]

    async def retry(self, error: str, delay: int | None = None) -> bool:
        """It failed: hand it out again later, or make it a dead letter if this was the last attempt (Q7).

        Args:
            error: kept as ``last_error``.
            delay: seconds until it is ready again; without it a random one that doubles with each attempt,
                see `timing.retry_delay`.

        Returns:
            False if the claim is not live any more.
        """
        job = self.claim.job
        wait = optional_int64("delay", delay)
        session, text = self._session(), error_text(_text(error))
        if job.attempts >= job.max_attempts:
            return await self._settle(session.bury_claim(self.claim, text))
        if wait is None:
            wait = retry_delay(job.backoff_base_s, job.attempts, self._store.draw)
        return await self._settle(session.retry_claim(self.claim, text, wait))

    async def fail(self, error: str | None = None) -> bool:
        """It will never work: make it a dead letter now, with this error or ``"failed"`` (Q6).

        Returns:
            False if the claim is not live any more.
        """
        text = "failed" if error is None else error_text(_text(error))
        return await self._settle(self._session().bury_claim(self.claim, text))

    async def heartbeat(self, extend: int) -> bool:
        """Still at it: the claim now lasts until `extend` seconds from now, sooner or later than before (Q6).

        0 or less gives it up. False if the claim is not live any more.
        """
        seconds = int64("extend", extend)
        session = self._session()
        before = self._store.engine.now()  # the answer may come late, and the claim lapses no later for that
        landed = await session.extend_claim(self.claim, seconds)
        if landed:
            self._lapses_at = saturating_add(before, seconds)
        return landed

    async def release(self) -> bool:
        """Give it back untouched: ready at once for anybody, and the attempt does not count (Q15).

        Returns:
            False if the claim is not live any more.
        """
        return (await self._settle(self._session().release_claims((self.claim,))))[0]

    def _session(self) -> Session:
        return self._store.session()

    async def _settle(self, settling: Awaitable[T]) -> T:
        # Said at the beginning, so that nobody takes the claim for lost in the meantime.
        self._settled = True
        try:
            return await settling
        except BaseException:
            self._settled = False
            raise


def _text(error: object) -> str:
    if not isinstance(error, str):
        raise TypeError(f"error must be a str, not {type(error).__name__}: give str(error)")
    return error


def queue_handle(store: "Store", name: str, options: QueueOptions) -> Queue:
    """A handle on the queue `name`, checked as a shared name."""
    return Queue(store, shared_name("queue", name), options)


def default_draw(low: int, high: int) -> int:
    """A uniform whole number in [low, high]: the random source of retry delays."""
    return random.randint(low, high)
