"""What a user gets back: frozen, slotted values. They may gain fields in a minor version."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, overload

from alkstore_core.options import ScheduleOptions
from alkstore_core.payload import decode_payload

T = TypeVar("T")


class JobState(StrEnum):
    """Where a job stands: waiting (or waiting again), claimed, or a dead letter."""

    PENDING = "pending"
    PROCESSING = "processing"
    DEAD = "dead"


class Carrier:
    """What carries a payload."""

    __slots__ = ()
    payload: bytes

    @overload
    def payload_as(self, kind: type[T]) -> T: ...
    @overload
    def payload_as(self, kind: Any) -> Any: ...
    def payload_as(self, kind: Any) -> Any:
        """The payload, decoded and validated to `kind`: dict, list, a pydantic model, a dataclass, a Union (P3).

        Raises:
            CodecError: it is not JSON, or not of that kind.
        """
        return decode_payload(self.payload, kind)


@dataclass(frozen=True, slots=True)
class Job(Carrier):
    """One job of a queue, as it stood when it was read. Times are unix seconds.

    Attributes:
        id: its number in the database, never used again (Q14).
        queue: the queue's name.
        payload: the encoded payload; see `payload_as`.
        state: pending, processing or dead.
        priority: higher is claimed first.
        ready_at: the second from which it may be claimed.
        expires_at: the second from which it is not handed out any more, or None.
        attempts: how often it was handed out.
        max_attempts, visibility_timeout_s, backoff_base_s, dead_letter_retention_s: stamped at enqueue (Q2).
        created_at: when it was enqueued.
        worker_id, claimed_at, claim_expires_at: its latest claim, or None.
        last_error: its latest failure, or None (Q9).
        died_at: when it became a dead letter, or None.
    """

    id: int
    queue: str
    payload: bytes
    state: JobState
    priority: int
    ready_at: int
    expires_at: int | None
    attempts: int
    max_attempts: int
    visibility_timeout_s: int
    backoff_base_s: int
    dead_letter_retention_s: int | None
    created_at: int
    worker_id: str | None
    claimed_at: int | None
    claim_expires_at: int | None
    last_error: str | None
    died_at: int | None


@dataclass(frozen=True, slots=True)
class StreamEvent(Carrier):
    """One event of a stream (S2).

    Attributes:
        offset: its place in the stream.
        stream: the stream's name.
        key: what the publisher gave, or None; carried and not interpreted.
        payload: the encoded payload; see `payload_as`.
        created_at: when it was published, in unix seconds.
    """

    offset: int
    stream: str
    key: str | None
    payload: bytes
    created_at: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """One registered schedule: every `spec`, a job goes into `queue` (H1)."""

    name: str
    spec: str
    queue: str
    options: ScheduleOptions


@dataclass(frozen=True, slots=True)
class Holder:
    """A consumer of a mailbox, as it attached. It may be kept, and made again after a restart (M12).

    Attributes:
        source: where its record comes from (M10).
        subject: whose it is, there.
        generation: which attachment of this consumer it is; a later one shuts it out (M8).
    """

    source: str
    subject: str
    generation: int


@dataclass(frozen=True, slots=True)
class Message(Carrier):
    """One message of a mailbox.

    Attributes:
        id: its id, which `mark_read` takes.
        mailbox: the mailbox that it is in.
        type: what its sender said it is, or None.
        payload: the encoded payload; see `payload_as`.
        created_at: when it was sent, in unix seconds.
    """

    id: str
    mailbox: str
    type: str | None
    payload: bytes
    created_at: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """A batch in a consumer's hands, until it is acknowledged under its id.

    Attributes:
        id: the same each time that this batch is given.
        mailbox: the mailbox's name.
        messages: in order of sending; the same each time, whatever was read meanwhile (M2).
        created_at: when it was first given, in unix seconds.
        replayed: whether it was given before.
    """

    id: str
    mailbox: str
    messages: tuple[Message, ...]
    created_at: int
    replayed: bool


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What an acknowledgement found (M5).

    Attributes:
        acknowledged_at: when the delivery was first acknowledged, in unix seconds.
        duplicate: whether that was before.
    """

    acknowledged_at: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Wake:
    """Something was announced on `channel`; what, is for the reader to look up (N3)."""

    channel: str
