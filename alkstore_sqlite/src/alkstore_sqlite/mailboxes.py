"""Mailboxes on SQLite: the operations behind `MailboxSession`. What is outstanding is the view's to say."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from alkstore_core.engine import Refusal
from alkstore_core.values import Acknowledgement, Delivery, Holder, Message
from alkstore_core.wakes import mailbox_topic

from alkstore_sqlite.operations import Operation, Row, Scope, count, rows
from alkstore_sqlite.statements import Statements

SQL = Statements("mailboxes")


def insert_message(scope: Scope, mailbox: str, id: str, type: str | None, payload: bytes) -> Operation[None]:
    """Append it, unread."""
    scope.topics.add(mailbox_topic(mailbox))
    yield count(SQL.insert_message, id, mailbox, type, payload, scope.now())


def attach_consumer(scope: Scope, mailbox: str, source: str, subject: str) -> Operation[int]:
    """Its new generation; what was handed out before is fenced (M8)."""
    found: list[Row] = yield rows(SQL.next_generation, mailbox, source, subject)
    yield from _fence(scope, mailbox)
    generation: int = found[0][0]
    return generation


def adopt_mailbox(scope: Scope, mailbox: str, source: str, subject: str) -> Operation[int | None]:
    """Its generation as it stands; what was handed out before is fenced (M9)."""
    found: list[Row] = yield rows(SQL.find_consumer, mailbox, source, subject)
    if not found:
        return None
    yield from _fence(scope, mailbox)
    generation: int = found[0][0]
    return generation


def _fence(scope: Scope, mailbox: str) -> Operation[None]:
    held: list[Row] = yield rows(SQL.outstanding, mailbox)
    if held:  # its mail is pending again
        scope.topics.add(mailbox_topic(mailbox))
    yield count(SQL.fence, mailbox)


def refused(mailbox: str, holder: Holder) -> Operation[Refusal | None]:
    """Why this consumer may neither check nor acknowledge, by its own record (M10, M11)."""
    found: list[Row] = yield rows(SQL.find_consumer, mailbox, holder.source, holder.subject)
    if not found:
        return Refusal.UNKNOWN_CONSUMER
    generation, settled = found[0]
    if generation != holder.generation:
        return Refusal.OTHER_GENERATION
    return Refusal.SETTLED if settled else None


def check_mailbox(
    scope: Scope, mailbox: str, holder: Holder, limit: int, types: Sequence[str] | None, fresh_id: str
) -> Operation[Delivery | Refusal | None]:
    """The batch in its hands, or a new one of the oldest unread (M1 to M4)."""
    refusal = yield from refused(mailbox, holder)
    if refusal is not None:
        return refusal
    found: list[Row] = yield rows(SQL.outstanding, mailbox)
    if found:
        id, *whose, message_ids, created_at = found[0]
        if Holder(*whose) != holder:
            return Refusal.OTHER_HOLDER
        found = yield rows(SQL.members, message_ids)
        messages = tuple(_message(mailbox, row) for row in found)
        return Delivery(id, mailbox, messages, _second(created_at), replayed=True)
    if types is not None:
        found = yield rows(SQL.unread_of_types, mailbox, json.dumps(types))
        if not found:
            return None
    found = yield rows(SQL.oldest_unread, mailbox, limit)
    if not found:
        return None
    now = scope.now()
    message_ids = json.dumps([row[1] for row in found])
    whose = [holder.source, holder.subject, holder.generation]
    yield count(SQL.insert_delivery, fresh_id, mailbox, *whose, message_ids, found[-1][0], now)
    return Delivery(fresh_id, mailbox, tuple(_message(mailbox, row[1:]) for row in found), now, replayed=False)


def acknowledge_delivery(
    scope: Scope, mailbox: str, holder: Holder, delivery_id: str
) -> Operation[Acknowledgement | Refusal]:
    """Read its messages and write down the time, once (M5, M6, M7)."""
    refusal = yield from refused(mailbox, holder)
    if refusal is not None:
        return refusal
    found: list[Row] = yield rows(SQL.find_delivery, delivery_id)
    if not found:
        found = yield rows(SQL.find_message, delivery_id)
        return Refusal.MESSAGE_ID if found else Refusal.UNKNOWN_DELIVERY
    its_mailbox, source, subject, generation, message_ids, acknowledged_at, fenced = found[0]
    if its_mailbox != mailbox:
        return Refusal.OTHER_MAILBOX
    if Holder(source, subject, generation) != holder:
        return Refusal.OTHER_HOLDER
    if fenced:
        return Refusal.FENCED
    if acknowledged_at is not None:
        return Acknowledgement(_second(acknowledged_at), duplicate=True)
    now = scope.now()
    yield count(SQL.mark_read, message_ids, mailbox)
    yield count(SQL.acknowledge, now, delivery_id)
    return Acknowledgement(now, duplicate=False)


def mark_read(scope: Scope, mailbox: str, message_ids: Sequence[str]) -> Operation[int]:
    """Suppress them; how many were unread (M6)."""
    held: list[Row] = yield rows(SQL.outstanding, mailbox)
    marked: int = yield count(SQL.mark_read, json.dumps(message_ids), mailbox)
    if held and marked:
        held = yield rows(SQL.outstanding, mailbox)
        if not held and (yield rows(SQL.any_unread, mailbox)):
            scope.topics.add(mailbox_topic(mailbox))
    return marked


def settle_consumer(scope: Scope, mailbox: str, source: str, subject: str, settled: bool) -> Operation[bool]:
    """Whether that changed anything (M11)."""
    changed: int = yield count(SQL.settle_consumer, int(settled), mailbox, source, subject)
    return changed > 0


def pending_messages(scope: Scope, mailbox: str) -> Operation[list[Message]]:
    """Unread and in nobody's hands (M14)."""
    found: list[Row] = yield rows(SQL.pending, mailbox)
    return [_message(mailbox, row) for row in found]


def reroute_messages(scope: Scope, mailbox: str, to: str) -> Operation[int]:
    """Move what is unread; how many."""
    held: list[Row] = yield rows(SQL.outstanding, mailbox)
    if held:
        yield count(SQL.fence_one, held[0][0])
    moved: int = yield count(SQL.reroute, to, mailbox)
    if moved:
        scope.topics.add(mailbox_topic(to))
    return moved


def _message(mailbox: str, row: Row) -> Message:
    id, type, payload, created_at = row
    return Message(id, mailbox, type, payload, _second(created_at))


def _second(stored: object) -> int:
    """A stored time in whole unix seconds. Files of an older design may hold it as text, which is taken for UTC."""
    if isinstance(stored, int):
        return stored
    if isinstance(stored, float):
        return int(stored)
    try:
        moment = datetime.fromisoformat(str(stored))
    except ValueError:
        return 0
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp())
