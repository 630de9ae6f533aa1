"""The seam: what an engine author implements, and all of it.

Core's facade (`Store`, `Transaction`, `Queue`, ...) checks names and numbers, resolves options, encodes payloads and
words the errors. It calls the coroutines below with resolved values. An engine knows nothing of names' rules or of
option defaults: it stores rows, answers with frozen values, and wakes topics.

Rules for every primitive of a `Session`:

- On an auto-commit session each call commits by itself and is durable when it returns; calls in flight together may
  share a commit. On a transaction's session it is part of that transaction, and nothing is seen or woken before the
  commit (T3, T6).
- It happens whole or not at all, also when its caller is cancelled (T13).
- Times come from the engine's clock, read when the primitive runs. Sums of times saturate at the int64 limits (V5).
- Every driver error comes out as a `DatabaseError` with the driver's error as its cause (E1).
- Names, keys and worker ids are storable text; numbers are int64; limits are at least 1; payloads are encoded.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from alkstore_core.options import JobStamp, ScheduleOptions
from alkstore_core.values import Acknowledgement, Delivery, Holder, Job, Message, StreamEvent
from alkstore_core.wakes import Subscription


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of one job: the right to settle it, and nobody else's (Q5).

    Attributes:
        job: the job as it was claimed.
        token: told apart from every other claim of this job, earlier or later, by the same worker or another.
    """

    job: Job
    token: int


@dataclass(frozen=True, slots=True)
class LockGrant:
    """One holding of a lock: its fencing token (L5), and the unix second at which it lapses."""

    name: str
    owner: str
    token: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule to be stored: `interval_s` is what its spec says."""

    name: str
    spec: str
    interval_s: int
    queue: str
    payload: bytes
    options: ScheduleOptions


@dataclass(frozen=True, slots=True)
class Firing:
    """What one `Session.fire_next` did.

    Attributes:
        leading: whether the lock was still held; if not, nothing was fired.
        schedule: the name of the schedule that was advanced, or None where none was due.
        fired: how many jobs it enqueued.
        next_fire: when the earliest schedule is due after this, or None without schedules.
    """

    leading: bool
    schedule: str | None = None
    fired: int = 0
    next_fire: int | None = None


class Refusal(Enum):
    """Why a mailbox gave or took nothing (M7). The first that holds, in this order, is the answer."""

    UNKNOWN_CONSUMER = auto()
    """The mailbox has no record of (source, subject)."""
    OTHER_GENERATION = auto()
    """The record's generation is not the holder's."""
    SETTLED = auto()
    """The consumer is settled."""
    UNKNOWN_DELIVERY = auto()
    """No delivery and no message has the id."""
    MESSAGE_ID = auto()
    """The id is a message's."""
    OTHER_MAILBOX = auto()
    """The delivery is another mailbox's."""
    OTHER_HOLDER = auto()
    """The delivery is another holder's: its source, its subject or its generation differs."""
    FENCED = auto()
    """The delivery is fenced."""


class Session(ABC):
    """The primitives, grouped by mechanism. See the rules at the top of this module."""

    # notify

    @abstractmethod
    async def notify(self, channel: str, payload: bytes | None) -> None:
        """Wake the listeners of `channel` at the commit (N1). An engine may drop the payload: wakes carry none (N3).

        Raises:
            PayloadTooLargeError: before any round trip, where the engine has a limit (P4).
        """

    # streams

    @abstractmethod
    async def append_events(self, stream: str, events: Sequence[tuple[str | None, bytes]]) -> list[int]:
        """Append (key, payload) pairs, at least one, in order; their offsets, growing (S1). Wakes the stream."""

    @abstractmethod
    async def read_events(self, stream: str, after: int, limit: int) -> list[StreamEvent]:
        """The first `limit` visible events with an offset above `after`, ascending (S3)."""

    @abstractmethod
    async def read_settled_events(self, stream: str, after: int, limit: int) -> list[StreamEvent]:
        """As `read_events`, but nothing above an offset that may still be committed by an open transaction (S8).

        An engine with one writer commits in offset order and returns `read_events`.
        """

    @abstractmethod
    async def read_consumer_events(self, stream: str, consumer: str, limit: int) -> list[StreamEvent]:
        """As `read_events`, after the consumer's saved offset, both seen at one moment (S4)."""

    @abstractmethod
    async def save_offset(self, stream: str, consumer: str, offset: int) -> None:
        """Store `offset` if the consumer has none yet or a lower one; a lower offset is ignored (S4)."""

    @abstractmethod
    async def get_offset(self, stream: str, consumer: str) -> int:
        """The consumer's saved offset, 0 without one (S4)."""

    @abstractmethod
    async def trim_events(self, stream: str, horizon: int) -> int:
        """Delete the events with an offset of at most `horizon`; how many (S6). Wakes nobody."""

    # queues

    @abstractmethod
    async def insert_jobs(self, queue: str, payloads: Sequence[bytes], stamp: JobStamp) -> list[int]:
        """Insert pending jobs, at least one, all or none; their ids in the order given (Q1, Q12). Wakes the queue.

        The ready time is `timing.ready_time`, the expiry `timing.deadline` of ``stamp.expires``.
        """

    @abstractmethod
    async def claim_jobs(self, queue: str, worker_id: str, limit: int) -> list[Claim]:
        """Claim up to `limit` jobs in claim order (Q3, Q4); auto-commit only (T7).

        First every lapsed row of the queue that is at its max_attempts and not expired becomes dead with the error
        ``max attempts exceeded``. Claimable is what is not expired (now < expires_at) and either pending with
        ready_at <= now, or processing with claim_expires_at <= now. Order: priority descending, ready_at, id. A claim
        sets processing, worker_id, claimed_at = now, claim_expires_at = now + the row's visibility timeout, attempts
        + 1 and a new token; it leaves last_error.

        A caller that is cancelled while the claim commits never sees it: the engine gives such claims back.
        """

    @abstractmethod
    async def ack_claims(self, claims: Sequence[Claim]) -> list[bool]:
        """Delete the rows whose claim is live and has this token; for each, whether it was so (Q5, Q6)."""

    @abstractmethod
    async def ack_jobs(self, queue: str, worker_id: str, job_ids: Sequence[int]) -> int:
        """Delete the rows of this queue that `worker_id` holds a live claim on; how many (Q8)."""

    @abstractmethod
    async def retry_claim(self, claim: Claim, error: str, delay: int) -> bool:
        """Live claim: pending again, ready_at = now + delay, last_error = error, no claim any more (Q7).

        worker_id, claimed_at and claim_expires_at become None. Wakes the queue. False, untouched, otherwise.
        """

    @abstractmethod
    async def bury_claim(self, claim: Claim, error: str) -> bool:
        """Live claim: dead, last_error = error, died_at = now; all else stays (Q6, Q9). False otherwise."""

    @abstractmethod
    async def extend_claim(self, claim: Claim, extend: int) -> bool:
        """Live claim: claim_expires_at = now + extend (Q6). Wakes the queue if that is sooner. False otherwise."""

    @abstractmethod
    async def release_claims(self, claims: Sequence[Claim]) -> list[bool]:
        """Live claims: pending, ready_at = now, attempts - 1, no claim any more; for each, whether (Q15).

        last_error stays. Wakes the queue.
        """

    @abstractmethod
    async def cancel_job(self, queue: str, job_id: int) -> bool:
        """Delete the pending or processing row `job_id` of this queue; whether there was one (Q8)."""

    @abstractmethod
    async def find_job(self, job_id: int, queue: str | None) -> Job | None:
        """The row, live or dead; only in `queue` unless that is None (Q8)."""

    @abstractmethod
    async def sweep_jobs(self, queue: str) -> int:
        """Make the expired rows dead, then delete the dead ones past their retention; how many were moved (Q10).

        Moved is every pending or processing row with expires_at <= now, with the error ``expired`` and died_at = now.
        Deleted is every dead row with died_at + dead_letter_retention_s <= now.
        """

    @abstractmethod
    async def next_due(self, queue: str) -> int | None:
        """The unix second at which the queue next has something to claim, by time alone (Q13).

        The least ready_at of its pending and claim_expires_at of its processing rows, expired rows apart, and so in
        the past or present while something is claimable; None for an empty queue.
        """

    # locks

    @abstractmethod
    async def take_lock(self, name: str, owner: str, ttl: int) -> LockGrant | None:
        """Hold `name` for `ttl` seconds from now if nobody holds it (now < expires_at); a new, greater token (L1, L5).

        The same owner, holding it, gets its grant as it stands (L2). Somebody else's: None (L4). Cancelled while it
        commits, a new holding is given back.
        """

    @abstractmethod
    async def renew_lock(self, grant: LockGrant, ttl: int) -> LockGrant | None:
        """If this very holding (name, owner, token) still lasts: it lapses at now + ttl. None otherwise (L3)."""

    @abstractmethod
    async def release_lock(self, grant: LockGrant) -> bool:
        """End this very holding, if it still lasts; whether it did (L3)."""

    # scheduler

    @abstractmethod
    async def put_schedule(self, schedule: NewSchedule) -> None:
        """Insert or replace by name (H2). Wakes `wakes.SCHEDULES_TOPIC`.

        A new or changed spec is due at now + interval_s, saturating; with the same spec the next fire stays.
        """

    @abstractmethod
    async def delete_schedule(self, name: str) -> bool:
        """Delete it; whether there was one. Wakes `wakes.SCHEDULES_TOPIC`."""

    @abstractmethod
    async def next_fire(self) -> int | None:
        """When the earliest schedule is due, or None without schedules."""

    @abstractmethod
    async def fire_next(self, leader: LockGrant) -> Firing:
        """Fire the earliest due schedule, if `leader` still lasts (H4). Wakes the queue.

        In one transaction: check the lock; take the earliest due schedule, by next fire and then name; enqueue a job
        for each of `timing.due_boundaries`, stamped by ``options.stamp(boundary)``; store its next fire.
        """


class MailboxSession(ABC):
    """The primitives of mailboxes (section M), which a session has besides where ``Engine.contract`` is 1.1 or later.

    Stored are messages (read or not), deliveries (ordered message ids, holder, created_at, acknowledged_at, fenced) and
    consumer records by (mailbox, source, subject). **Outstanding** is a delivery that is neither acknowledged nor
    fenced and has an unread message: one definition, a view, that everything below asks, and of which there is at most
    one for each mailbox (M13).

    All but `insert_message`, `mark_read` and `pending_messages` exclude one another for a mailbox, each in one
    transaction; those that name a holder look at its record in the same transaction (M1, M11).
    """

    @abstractmethod
    async def insert_message(self, mailbox: str, id: str, type: str | None, payload: bytes) -> None:
        """Append an unread message. Wakes the mailbox (M14)."""

    @abstractmethod
    async def attach_consumer(self, mailbox: str, source: str, subject: str) -> int:
        """Add 1 to the record's generation, 0 without one, and fence what is neither acknowledged nor fenced (M8).

        Returns the new generation. Wakes the mailbox if a delivery was outstanding.
        """

    @abstractmethod
    async def adopt_mailbox(self, mailbox: str, source: str, subject: str) -> int | None:
        """Fence and wake as `attach_consumer`; the record's generation as it stands, or None, untouched (M9)."""

    @abstractmethod
    async def check_mailbox(
        self, mailbox: str, holder: Holder, limit: int, types: Sequence[str] | None, fresh_id: str
    ) -> Delivery | Refusal | None:
        """Replay the outstanding delivery, or make one of the first `limit` unread messages (M1 to M4).

        Where another holder's is outstanding: `Refusal.OTHER_HOLDER`. With `types` and none outstanding: None, unless
        an unread message has one of them. The new delivery's id is `fresh_id`.
        """

    @abstractmethod
    async def acknowledge_delivery(self, mailbox: str, holder: Holder, delivery_id: str) -> Acknowledgement | Refusal:
        """Mark the delivery's messages read and set its acknowledged_at to now; unchanged if it has one (M5, M6)."""

    @abstractmethod
    async def mark_read(self, mailbox: str, message_ids: Sequence[str]) -> int:
        """Mark these messages of the mailbox read; how many were not (M6). Changes messages only.

        Wakes the mailbox if that ended the outstanding delivery and unread messages are left.
        """

    @abstractmethod
    async def settle_consumer(self, mailbox: str, source: str, subject: str, *, settled: bool) -> bool:
        """Set whether the consumer is settled; whether it was otherwise. False without a record (M11)."""

    @abstractmethod
    async def pending_messages(self, mailbox: str) -> list[Message]:
        """All unread messages that are in no outstanding delivery, in order of sending (M14)."""

    @abstractmethod
    async def reroute_messages(self, mailbox: str, to: str) -> int:
        """Move all unread messages to another mailbox, where they keep their place in the order of sending; how many.

        Fences the outstanding delivery that held some of them. Wakes the other mailbox if there were any.
        """


class EngineTransaction(Session):
    """A session inside one transaction. Claims and locks are not called on it (T7)."""

    @property
    @abstractmethod
    def connection(self) -> Any:
        """The driver's connection, for the caller's own writes in this transaction."""

    @abstractmethod
    async def commit(self) -> None:
        """Make it durable and visible, then wake. Ends the transaction, whatever happens (T9).

        The COMMIT is seen through to its outcome even if the caller is cancelled; the cancellation then goes on.

        Raises:
            CommitUnknownError: the outcome could not be found out (T14).
        """

    @abstractmethod
    async def rollback(self) -> None:
        """Undo everything. Ends the transaction, whatever happens; not cancelled half-way (T4)."""

    @abstractmethod
    def abandon(self) -> None:
        """The handle was dropped undecided: roll back in the background. Called from any thread, never raises (T5)."""


class Engine(ABC):
    """One implementation of all mechanisms. `Store` calls `open` once, on the loop that it belongs to."""

    contract: str = "1.0"
    """The contract that it implements. From 1.1 on its sessions are `MailboxSession`s too (M0)."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, migrate, start what must run. A failure or a cancellation leaves nothing behind."""

    @abstractmethod
    async def close(self) -> None:
        """End every task, thread and connection and every subscription (T12). Called once.

        Primitives in flight finish or fail with `ClosedError`; open transactions are rolled back.
        """

    @abstractmethod
    def forget(self) -> None:
        """The store was dropped unclosed, or the process ends: stop without a loop and without waiting (T15)."""

    @abstractmethod
    def autocommit(self) -> Session:
        """The session whose every call commits by itself. Always the same object."""

    @abstractmethod
    async def begin(self) -> EngineTransaction:
        """A new transaction. Cancelled or failed, it leaves none behind (T9, T13)."""

    @abstractmethod
    def enlist(self, connection: object) -> EngineTransaction:
        """A session inside the transaction that the caller opened on `connection` (T10).

        Its commit and rollback are never called; `abandon` does nothing.

        Raises:
            DatabaseError: not a connection this engine can join, or no transaction is open on it; before any SQL.
        """

    @abstractmethod
    async def watch(self, topic: str) -> Subscription:
        """A subscription that hears every commit from now on that wakes `topic`, by any process (N2, N7).

        Raises:
            DatabaseError: the engine cannot watch any more, and why (N5).
        """

    @abstractmethod
    def now(self) -> int:
        """The current unix second by this engine's clock, as well as it is known without asking a server."""

    @abstractmethod
    async def sleep_until(self, when: int) -> None:
        """Return once the engine's clock shows `when`, a unix second, and at once if it does already."""
