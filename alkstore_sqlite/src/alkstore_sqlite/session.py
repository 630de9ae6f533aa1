"""`Session` on SQLite: each primitive names its operation; the subclasses say where it runs."""

from abc import abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Any

from alkstore_core.engine import Claim, Firing, LockGrant, MailboxSession, NewSchedule, Refusal, Session
from alkstore_core.options import JobStamp
from alkstore_core.values import Acknowledgement, Delivery, Holder, Job, Message, StreamEvent

from alkstore_sqlite import locks, mailboxes, notify, queues, scheduler, streams
from alkstore_sqlite.commits import Build, Undo


class SqliteSession(Session, MailboxSession):
    """The primitives over two ways to run an operation: `_write` and `_read`."""

    @abstractmethod
    def _write(self, build: Build, *arguments: Any, undo: Undo | None = None) -> Awaitable[Any]:
        """Run an operation that writes."""

    @abstractmethod
    def _read(self, build: Build, *arguments: Any) -> Awaitable[Any]:
        """Run an operation that only reads."""

    async def notify(self, channel: str, payload: bytes | None) -> None:
        await self._write(notify.notify, channel, payload)

    async def append_events(self, stream: str, events: Sequence[tuple[str | None, bytes]]) -> list[int]:
        offsets: list[int] = await self._write(streams.append_events, stream, events)
        return offsets

    async def read_events(self, stream: str, after: int, limit: int) -> list[StreamEvent]:
        events: list[StreamEvent] = await self._read(streams.read_events, stream, after, limit)
        return events

    read_settled_events = read_events

    async def read_consumer_events(self, stream: str, consumer: str, limit: int) -> list[StreamEvent]:
        events: list[StreamEvent] = await self._read(streams.read_consumer_events, stream, consumer, limit)
        return events

    async def save_offset(self, stream: str, consumer: str, offset: int) -> None:
        await self._write(streams.save_offset, stream, consumer, offset)

    async def get_offset(self, stream: str, consumer: str) -> int:
        offset: int = await self._read(streams.get_offset, stream, consumer)
        return offset

    async def trim_events(self, stream: str, horizon: int) -> int:
        trimmed: int = await self._write(streams.trim_events, stream, horizon)
        return trimmed

    async def insert_jobs(self, queue: str, payloads: Sequence[bytes], stamp: JobStamp) -> list[int]:
        ids: list[int] = await self._write(queues.insert_jobs, queue, payloads, stamp)
        return ids

    async def claim_jobs(self, queue: str, worker_id: str, limit: int) -> list[Claim]:
        claims: list[Claim] = await self._write(queues.claim_jobs, queue, worker_id, limit, undo=_give_back)
        return claims

    async def ack_claims(self, claims: Sequence[Claim]) -> list[bool]:
        landed: list[bool] = await self._write(queues.ack_claims, claims)
        return landed

    async def ack_jobs(self, queue: str, worker_id: str, job_ids: Sequence[int]) -> int:
        landed: int = await self._write(queues.ack_jobs, queue, worker_id, job_ids)
        return landed

    async def retry_claim(self, claim: Claim, error: str, delay: int) -> bool:
        landed: bool = await self._write(queues.retry_claim, claim, error, delay)
        return landed

    async def bury_claim(self, claim: Claim, error: str) -> bool:
        landed: bool = await self._write(queues.bury_claim, claim, error)
        return landed

    async def extend_claim(self, claim: Claim, extend: int) -> bool:
        landed: bool = await self._write(queues.extend_claim, claim, extend)
        return landed

    async def release_claims(self, claims: Sequence[Claim]) -> list[bool]:
        landed: list[bool] = await self._write(queues.release_claims, claims)
        return landed

    async def cancel_job(self, queue: str, job_id: int) -> bool:
        cancelled: bool = await self._write(queues.cancel_job, queue, job_id)
        return cancelled

    async def find_job(self, job_id: int, queue: str | None) -> Job | None:
        job: Job | None = await self._read(queues.find_job, job_id, queue)
        return job

    async def sweep_jobs(self, queue: str) -> int:
        moved: int = await self._write(queues.sweep_jobs, queue)
        return moved

    async def next_due(self, queue: str) -> int | None:
        due: int | None = await self._read(queues.next_due, queue)
        return due

    async def take_lock(self, name: str, owner: str, ttl: int) -> LockGrant | None:
        grant: LockGrant | None
        grant, _ = await self._write(locks.take_lock, name, owner, ttl, undo=_let_go)
        return grant

    async def renew_lock(self, grant: LockGrant, ttl: int) -> LockGrant | None:
        renewed: LockGrant | None = await self._write(locks.renew_lock, grant, ttl)
        return renewed

    async def release_lock(self, grant: LockGrant) -> bool:
        released: bool = await self._write(locks.release_lock, grant)
        return released

    async def put_schedule(self, schedule: NewSchedule) -> None:
        await self._write(scheduler.put_schedule, schedule)

    async def delete_schedule(self, name: str) -> bool:
        deleted: bool = await self._write(scheduler.delete_schedule, name)
        return deleted

    async def next_fire(self) -> int | None:
        due: int | None = await self._read(scheduler.next_fire)
        return due

    async def fire_next(self, leader: LockGrant) -> Firing:
        firing: Firing = await self._write(scheduler.fire_next, leader)
        return firing

    async def insert_message(self, mailbox: str, id: str, type: str | None, payload: bytes) -> None:
        await self._write(mailboxes.insert_message, mailbox, id, type, payload)

    async def attach_consumer(self, mailbox: str, source: str, subject: str) -> int:
        generation: int = await self._write(mailboxes.attach_consumer, mailbox, source, subject)
        return generation

    async def adopt_mailbox(self, mailbox: str, source: str, subject: str) -> int | None:
        generation: int | None = await self._write(mailboxes.adopt_mailbox, mailbox, source, subject)
        return generation

    async def check_mailbox(
        self, mailbox: str, holder: Holder, limit: int, types: Sequence[str] | None, fresh_id: str
    ) -> Delivery | Refusal | None:
        answer: Delivery | Refusal | None
        answer = await self._write(mailboxes.check_mailbox, mailbox, holder, limit, types, fresh_id)
        return answer

    async def acknowledge_delivery(self, mailbox: str, holder: Holder, delivery_id: str) -> Acknowledgement | Refusal:
        answer: Acknowledgement | Refusal
        answer = await self._write(mailboxes.acknowledge_delivery, mailbox, holder, delivery_id)
        return answer

    async def mark_read(self, mailbox: str, message_ids: Sequence[str]) -> int:
        marked: int = await self._write(mailboxes.mark_read, mailbox, message_ids)
        return marked

    async def settle_consumer(self, mailbox: str, source: str, subject: str, *, settled: bool) -> bool:
        changed: bool = await self._write(mailboxes.settle_consumer, mailbox, source, subject, settled)
        return changed

    async def pending_messages(self, mailbox: str) -> list[Message]:
        pending: list[Message] = await self._read(mailboxes.pending_messages, mailbox)
        return pending

    async def reroute_messages(self, mailbox: str, to: str) -> int:
        moved: int = await self._write(mailboxes.reroute_messages, mailbox, to)
        return moved


def _give_back(claims: list[Claim]) -> tuple[Build, tuple[Any, ...]] | None:
    """Nobody took these claims: their caller was cancelled while they were committed."""
    return (queues.release_claims, (claims,)) if claims else None


def _let_go(taken: tuple[LockGrant | None, bool]) -> tuple[Build, tuple[Any, ...]] | None:
    """Nobody took this new holding: its caller was cancelled while it was committed."""
    grant, is_new = taken
    return (locks.release_lock, (grant,)) if grant is not None and is_new else None
