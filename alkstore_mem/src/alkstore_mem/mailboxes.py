"""Mailboxes (contract section M). The rows and their order are in `mail`."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from alkstore_core.engine import MailboxSession as MailboxPrimitives
from alkstore_core.engine import Refusal
from alkstore_core.values import Acknowledgement, Delivery, Holder, Message
from alkstore_core.wakes import mailbox_topic

from alkstore_mem.database import Changes
from alkstore_mem.mail import ConsumerRow, DeliveryRow, MessageRow
from alkstore_mem.session import MemSession


def outstanding(changes: Changes, mailbox: str) -> DeliveryRow | None:
    """The delivery of a mailbox that is neither acknowledged nor fenced and has an unread message: at most one (M13).

    The one definition, which everything below asks. Only messages are ever staged for longer than one call.
    """
    database = changes.database
    first = database.messages.first(mailbox)
    if first is None:
        return None
    for row in database.deliveries.open(mailbox, first):
        if any(not _row(changes, id).read for id in row.message_ids):
            return row
    return None


def _row(changes: Changes, message_id: str) -> MessageRow:
    row = changes.get(changes.database.messages, message_id)
    assert row is not None
    return row


def _unread(changes: Changes, mailbox: str) -> list[MessageRow]:
    messages = changes.database.messages
    committed = (message.id for message in messages.unread.get(mailbox, {}).values())
    ids = dict.fromkeys((*committed, *changes.staged(messages)))
    rows = (_row(changes, id) for id in ids)
    return [row for row in rows if row.message.mailbox == mailbox and not row.read]


def _fence(changes: Changes, mailbox: str) -> None:
    """Fence what is neither acknowledged nor fenced; mail that was outstanding is pending again, which wakes."""
    database = changes.database
    if outstanding(changes, mailbox) is not None:
        changes.wake(mailbox_topic(mailbox))
    for row in database.deliveries.open(mailbox, 0):
        changes.put(database.deliveries, row.id, replace(row, fenced=True))


def _refused(changes: Changes, mailbox: str, holder: Holder) -> Refusal | None:
    """Why this consumer may neither check nor acknowledge, by its own record (M10, M11)."""
    record = changes.get(changes.database.consumers, (mailbox, holder.source, holder.subject))
    if record is None:
        return Refusal.UNKNOWN_CONSUMER
    if record.generation != holder.generation:
        return Refusal.OTHER_GENERATION
    return Refusal.SETTLED if record.settled else None


class MailboxSession(MemSession, MailboxPrimitives):
    """The mailbox primitives."""

    async def insert_message(self, mailbox: str, id: str, type: str | None, payload: bytes) -> None:
        with await self.writing() as changes:
            database = changes.database
            message = Message(id, mailbox, type, payload, self.now())
            changes.put(database.messages, id, MessageRow(message, database.message_numbers.draw()))
            changes.wake(mailbox_topic(mailbox))

    async def attach_consumer(self, mailbox: str, source: str, subject: str) -> int:
        with await self.writing() as changes:
            consumers = changes.database.consumers
            record = changes.get(consumers, (mailbox, source, subject)) or ConsumerRow(0)
            record = replace(record, generation=record.generation + 1)
            changes.put(consumers, (mailbox, source, subject), record)
            _fence(changes, mailbox)
            return record.generation

    async def adopt_mailbox(self, mailbox: str, source: str, subject: str) -> int | None:
        with await self.writing() as changes:
            record = changes.get(changes.database.consumers, (mailbox, source, subject))
            if record is None:
                return None
            _fence(changes, mailbox)
            return record.generation

    async def check_mailbox(
        self, mailbox: str, holder: Holder, limit: int, types: Sequence[str] | None, fresh_id: str
    ) -> Delivery | Refusal | None:
        with await self.writing() as changes:
            database = changes.database
            refused = _refused(changes, mailbox, holder)
            if refused is not None:
                return refused
            row = outstanding(changes, mailbox)
            if row is not None:
                return _delivery(changes, row, replayed=True) if row.holder == holder else Refusal.OTHER_HOLDER
            unread = database.messages.unread.get(mailbox)
            if unread is None or (types is not None and not database.messages.types[mailbox].keys() & set(types)):
                return None
            batch = list(islice(unread.items(), limit))
            ids = tuple(message.id for _, message in batch)
            row = DeliveryRow(fresh_id, mailbox, holder, ids, batch[-1][0], self.now())
            changes.put(database.deliveries, fresh_id, row)
            return _delivery(changes, row, replayed=False)

    async def acknowledge_delivery(self, mailbox: str, holder: Holder, delivery_id: str) -> Acknowledgement | Refusal:
        with await self.writing() as changes:
            database = changes.database
            refused = _refused(changes, mailbox, holder)
            if refused is not None:
                return refused
            row = changes.get(database.deliveries, delivery_id)
            if row is None:
                known = changes.get(database.messages, delivery_id) is not None
                return Refusal.MESSAGE_ID if known else Refusal.UNKNOWN_DELIVERY
            if row.mailbox != mailbox:
                return Refusal.OTHER_MAILBOX
            if row.holder != holder:
                return Refusal.OTHER_HOLDER
            if row.fenced:
                return Refusal.FENCED
            if row.acknowledged_at is not None:
                return Acknowledgement(row.acknowledged_at, duplicate=True)
            _mark_read(changes, mailbox, row.message_ids)
            now = self.now()
            changes.put(database.deliveries, delivery_id, replace(row, acknowledged_at=now))
            return Acknowledgement(now, duplicate=False)

    async def mark_read(self, mailbox: str, message_ids: Sequence[str]) -> int:
        with await self.writing() as changes:
            held = outstanding(changes, mailbox)
            marked = _mark_read(changes, mailbox, message_ids)
            if held is not None and outstanding(changes, mailbox) is None and _unread(changes, mailbox):
                changes.wake(mailbox_topic(mailbox))
            return marked

    async def settle_consumer(self, mailbox: str, source: str, subject: str, *, settled: bool) -> bool:
        with await self.writing() as changes:
            consumers = changes.database.consumers
            record = changes.get(consumers, (mailbox, source, subject))
            if record is None or record.settled is settled:
                return False
            changes.put(consumers, (mailbox, source, subject), replace(record, settled=settled))
            return True

    async def pending_messages(self, mailbox: str) -> list[Message]:
        with await self.reading() as changes:
            held = outstanding(changes, mailbox)
            taken = set(() if held is None else held.message_ids)
            return [row.message for row in _unread(changes, mailbox) if row.message.id not in taken]

    async def reroute_messages(self, mailbox: str, to: str) -> int:
        with await self.writing() as changes:
            database = changes.database
            moved = _unread(changes, mailbox)
            held = outstanding(changes, mailbox)
            if held is not None:
                changes.put(database.deliveries, held.id, replace(held, fenced=True))
            for row in moved:
                message = replace(row.message, mailbox=to)
                changes.put(database.messages, message.id, replace(row, message=message))
            if moved:
                changes.wake(mailbox_topic(to))
            return len(moved)


def _mark_read(changes: Changes, mailbox: str, ids: Sequence[str]) -> int:
    messages, marked = changes.database.messages, 0
    for id in ids:
        row = changes.get(messages, id)
        if row is not None and row.message.mailbox == mailbox and not row.read:
            changes.put(messages, id, replace(row, read=True))
            marked += 1
    return marked


def _delivery(changes: Changes, row: DeliveryRow, *, replayed: bool) -> Delivery:
    messages = tuple(_row(changes, id).message for id in row.message_ids)
    return Delivery(row.id, row.mailbox, messages, row.created_at, replayed)
