"""One queue's rows, kept so that a claim and a sweep cost the same however many there are.

A row that is not due yet stands in a heap by the second at which it will be; once due it moves, for good, to a heap
in claim order. So a claim looks neither at delayed rows nor at live claims, and an expired row is looked at once.
What a sweep takes stands in a heap by its second too. Entries are not removed when their row changes: one that no
longer matches its row is dropped when it comes up.
"""

from heapq import heapify, heappop, heappush

from alkstore_core.engine import Claim
from alkstore_core.timing import deadline
from alkstore_core.values import Job, JobState


def due_at(job: Job) -> int:
    """The second from which a pending or processing job may be claimed."""
    return job.ready_at if job.claim_expires_at is None else job.claim_expires_at


def is_expired(job: Job, now: int) -> bool:
    """Whether the job is not to be handed out any more."""
    return job.expires_at is not None and job.expires_at <= now


def forgotten_at(job: Job) -> int | None:
    """The second from which a sweep deletes the dead letter; None keeps it."""
    return None if job.died_at is None else deadline(job.died_at, job.dead_letter_retention_s)


def _rank(job: Job) -> tuple[int, int, int]:
    return -job.priority, job.ready_at, job.id


class Backlog:
    """The rows of one queue. A row is a `Claim`: the job, and the token of its latest claim, 0 before the first."""

    def __init__(self) -> None:
        self.live: dict[int, Claim] = {}
        """Pending and processing rows, by id."""
        self.dead: dict[int, Claim] = {}
        """Dead letters, by id."""
        self.steps = 0
        """How many heap entries have been looked at: what claiming costs, for tests."""
        self._claimable: list[tuple[int, int, int]] = []
        self._exhausted: list[int] = []
        self._waiting: list[tuple[int, int]] = []
        self._by_time: list[tuple[int, int]] = []
        self._expiring: list[tuple[int, int]] = []
        self._forgetting: list[tuple[int, int]] = []
        self._latest = 0

    def store(self, job_id: int, row: Claim | None, now: int) -> None:
        """Insert, replace or (None) delete a row."""
        self._latest = max(self._latest, now)
        self.live.pop(job_id, None)
        self.dead.pop(job_id, None)
        if row is not None and row.job.state is JobState.DEAD:
            self.dead[job_id] = row
            if (second := forgotten_at(row.job)) is not None:
                heappush(self._forgetting, (second, job_id))
        elif row is not None:
            self.live[job_id] = row
            heappush(self._by_time, (due_at(row.job), job_id))
            if row.job.expires_at is not None:
                heappush(self._expiring, (row.job.expires_at, job_id))
            if due_at(row.job) > now:
                heappush(self._waiting, (due_at(row.job), job_id))
            else:
                self._ripen(row.job)
        entries = len(self._claimable) + len(self._exhausted) + len(self._waiting) + len(self._by_time)
        if entries > 4 * len(self.live) + 64:  # of which two for each row, at most, are current
            self._rebuild(now)
        if len(self._expiring) > 2 * len(self.live) + 64 or len(self._forgetting) > 2 * len(self.dead) + 64:
            self._rebuild_ends()

    def claim(self, now: int, limit: int) -> tuple[list[Claim], list[Claim]]:
        """The lapsed rows that are at their last attempt, and up to `limit` claimable rows in claim order.

        Both are taken out of the order: the caller stores each of them anew.
        """
        self._look(now)
        while self._waiting and self._waiting[0][0] <= now:
            due, job_id = heappop(self._waiting)
            self.steps += 1
            row = self.live.get(job_id)
            if row is not None and due_at(row.job) == due:
                self._ripen(row.job)
        exhausted: dict[int, Claim] = {}
        for job_id in self._exhausted:
            self.steps += 1
            row = self.live.get(job_id)
            if (
                row is not None
                and due_at(row.job) <= now
                and _at_last_attempt(row.job)
                and not is_expired(row.job, now)
            ):
                exhausted[job_id] = row
        self._exhausted.clear()
        found: dict[int, Claim] = {}
        while self._claimable and len(found) < limit:
            rank = heappop(self._claimable)
            self.steps += 1
            row = self.live.get(rank[2])
            if row is None or due_at(row.job) > now or _rank(row.job) != rank or is_expired(row.job, now):
                continue
            # A row can have several entries, and one of them can be from before its last attempt.
            if not _at_last_attempt(row.job):
                found[rank[2]] = row
        return list(exhausted.values()), list(found.values())

    def next_due(self, now: int) -> int | None:
        """The least `due_at` of the live rows that are not expired."""
        self._look(now)
        while self._by_time:
            due, job_id = self._by_time[0]
            self.steps += 1
            row = self.live.get(job_id)
            if row is not None and due_at(row.job) == due and not is_expired(row.job, now):
                return due
            heappop(self._by_time)
        return None

    def sweep(self, now: int) -> tuple[list[Claim], list[int]]:
        """The live rows that have expired, and the ids of dead letters past their retention.

        Both are taken out of the order: the caller stores or deletes each of them.
        """
        expired: dict[int, Claim] = {}  # a row has an entry for each time that it was stored, all of the same second
        while self._expiring and self._expiring[0][0] <= now:
            job_id = heappop(self._expiring)[1]
            self.steps += 1
            if job_id in self.live:
                expired[job_id] = self.live[job_id]
        forgotten: list[int] = []
        while self._forgetting and self._forgetting[0][0] <= now:
            job_id = heappop(self._forgetting)[1]
            self.steps += 1
            if job_id in self.dead:
                forgotten.append(job_id)
        return list(expired.values()), forgotten

    def _ripen(self, job: Job) -> None:
        if _at_last_attempt(job):
            self._exhausted.append(job.id)
        else:
            heappush(self._claimable, _rank(job))

    def _look(self, now: int) -> None:
        # Rows were moved and dropped by the latest time seen; a clock that was set back makes some of them wait again.
        if now < self._latest:
            self._rebuild(now)
        self._latest = now

    def _rebuild(self, now: int) -> None:
        self._latest = now
        jobs = [row.job for row in self.live.values() if not is_expired(row.job, now)]
        self._by_time = [(due_at(job), job.id) for job in jobs]
        self._waiting = [entry for entry in self._by_time if entry[0] > now]
        due = [job for job in jobs if due_at(job) <= now]
        self._exhausted = [job.id for job in due if _at_last_attempt(job)]
        self._claimable = [_rank(job) for job in due if not _at_last_attempt(job)]
        heapify(self._by_time)
        heapify(self._waiting)
        heapify(self._claimable)

    def _rebuild_ends(self) -> None:
        self._expiring = [(row.job.expires_at, id) for id, row in self.live.items() if row.job.expires_at is not None]
        ends = ((forgotten_at(row.job), id) for id, row in self.dead.items())
        self._forgetting = [(second, id) for second, id in ends if second is not None]
        heapify(self._expiring)
        heapify(self._forgetting)


def _at_last_attempt(job: Job) -> bool:
    return job.state is JobState.PROCESSING and job.attempts >= job.max_attempts
