"""Mailboxes: ordered batches for one consumer at a time, which may die and be replaced (contract section M)."""

import secrets
import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, cast

from alkstore_core.contract import require
from alkstore_core.engine import MailboxSession, Refusal, Session
from alkstore_core.errors import ConsumerFencedError, StaleDeliveryError, shown
from alkstore_core.names import free_name, shared_name
from alkstore_core.notify import WakeReceiver
from alkstore_core.numbers import int64
from alkstore_core.opening import Opening
from alkstore_core.payload import encode_payload
from alkstore_core.values import Acknowledgement, Delivery, Holder, Message
from alkstore_core.wakes import mailbox_topic

if TYPE_CHECKING:
    from alkstore_core.store import Store

SINCE = "1.1"
"""The contract that mailboxes arrived in (M0)."""
LARGEST_BATCH = 50
"""The most messages in one delivery, and as many as there are by default (M3)."""


class Mailbox:
    """A handle on one mailbox: a pile of messages for one consumer at a time (contract section M).

    The consumer attaches, checks for a batch, works on it and acknowledges it. Until it has, the very same batch is
    given again, to a restarted consumer too; whoever attaches next gets the mail, and the former consumer nothing any
    more. Made by `Store.mailbox`; it never touches the database by itself (T1).
    """

    def __init__(self, store: "Store", name: str) -> None:
        self._store = store
        self._name = name

    def __repr__(self) -> str:
        return f"<Mailbox {self._name!r}>"

    @property
    def store(self) -> "Store":
        """The store that it belongs to."""
        return self._store

    @property
    def name(self) -> str:
        """The mailbox's name."""
        return self._name

    async def send(self, payload: object, type: str | None = None) -> str:
        """Add a message, durable when this returns; its id.

        Args:
            payload: any JSON value (P1).
            type: what kind of message it is, for `check`'s `types`; not empty or blank.

        Raises:
            InvalidNameError: the type.
            CodecError: the payload would not come back as it is (P2).
        """
        return await send(self._store.session(), self._name, payload, type)

    async def attach(self, *, source: str, subject: str) -> Holder:
        """Make `subject` the mailbox's new consumer, and fence every batch that is not acknowledged (M8).

        The same unread mail comes to the new holder in a new delivery. Each (source, subject) of a mailbox has a
        generation of its own, which this makes one greater (M10). A settled consumer stays settled (M11).

        Args:
            source: where the consumer's record comes from, such as ``"run"``; not empty or blank.
            subject: whose it is, there; not empty or blank.

        Raises:
            InvalidNameError: the source or the subject (V2).
        """
        session = _mailboxes(self._store.session())
        consumer = free_name("source", source), free_name("subject", subject)
        return Holder(*consumer, await session.attach_consumer(self._name, *consumer))

    async def adopt(self, *, source: str, subject: str) -> Holder:
        """Take the mailbox over without a new generation: every batch that is not acknowledged is fenced (M9).

        For a consumer whose record is known to be right and whose batches are not: what was handed out before, under
        this very generation, cannot be acknowledged any more.

        Raises:
            ConsumerFencedError: this consumer never attached to the mailbox, so there is nothing to adopt.
            InvalidNameError: the source or the subject (V2).
        """
        session = _mailboxes(self._store.session())
        consumer = free_name("source", source), free_name("subject", subject)
        generation = await session.adopt_mailbox(self._name, *consumer)
        if generation is None:
            raise _fenced(self._name, Holder(*consumer, 0), Refusal.UNKNOWN_CONSUMER)
        return Holder(*consumer, generation)

    async def check(
        self, holder: Holder, limit: int = LARGEST_BATCH, types: Collection[str] | None = None
    ) -> Delivery | None:
        """The batch in the holder's hands again, or else a new one of the oldest unread messages; None without mail.

        Args:
            holder: who asks; from `attach`, or made again after a restart (M12).
            limit: the most messages of a new batch, taken as 1 below 1 and as 50 above 50 (M3).
            types: without a batch in hand, None unless an unread message has one of these types; the batch is then
                the oldest of all types (M4).

        Raises:
            ConsumerFencedError: the consumer was replaced, is settled, or never attached; nothing was handed out.
            TypeError, ValueError: the limit is not an int64 (V5).
            InvalidNameError: one of the types.
        """
        session = _mailboxes(self._store.session())
        wanted = min(max(int64("limit", limit), 1), LARGEST_BATCH)
        names = None if types is None else _names(types)
        answer = await session.check_mailbox(self._name, _holder(holder), wanted, names, _new_id("delivery"))
        if isinstance(answer, Refusal):
            raise _fenced(self._name, holder, answer)
        return answer

    async def acknowledge(self, holder: Holder, delivery_id: str) -> Acknowledgement:
        """Mark every message of a delivery read, for good, together with the time of it (M5).

        Again, by the same holder: ``duplicate`` and the first time, and nothing is written.

        Raises:
            ConsumerFencedError: the consumer or the delivery was fenced, or the consumer is settled; nothing was read.
            StaleDeliveryError: this mailbox has no such delivery, and the message says what it is instead (M7).
        """
        session = _mailboxes(self._store.session())
        id = free_name("delivery", delivery_id)
        answer = await session.acknowledge_delivery(self._name, _holder(holder), id)
        if isinstance(answer, Acknowledgement):
            return answer
        stale = _STALE.get(answer)
        if stale is not None:
            raise StaleDeliveryError(f"mailbox {self._name!r}: {shown(id)} {stale}", id)
        raise _fenced(self._name, holder, answer, id)

    async def mark_read(self, message_ids: Iterable[str]) -> int:
        """Suppress messages of this mailbox that need no attention any more; how many were unread (M6).

        No delivery is touched: one whose messages are all read is simply not in the way any more. Other ids are
        ignored.
        """
        return await mark_read(self._store.session(), self._name, message_ids)

    async def settle(self, *, source: str, subject: str) -> bool:
        """End a consumer's life: it can neither check nor acknowledge, and its mail stays for `reroute` (M11).

        Returns:
            Whether it was not settled before; False too for a consumer that never attached.
        """
        return await self._settle(source, subject, settled=True)

    async def reopen(self, *, source: str, subject: str) -> bool:
        """Undo `settle`: the same holder may go on, with the batch that it had. Whether it was settled."""
        return await self._settle(source, subject, settled=False)

    async def pending(self) -> list[Message]:
        """All unread messages that are in no outstanding delivery, in order of sending; there may be many (M14)."""
        return await _mailboxes(self._store.session()).pending_messages(self._name)

    async def reroute(self, *, to: str) -> int:
        """Move every unread message to the mailbox `to`, each in its place by order of sending; how many.

        An outstanding delivery of them is fenced, so that nobody can acknowledge here what is read there.

        Raises:
            InvalidNameError, ReservedNameError: the name (V1).
        """
        session = _mailboxes(self._store.session())
        target = shared_name("mailbox", to)
        return 0 if target == self._name else await session.reroute_messages(self._name, target)

    def listen(self) -> Opening[WakeReceiver]:
        """A receiver of wakes that say: `pending` has more than before (M14). To await, or to enter.

        It is woken by a message, by mail rerouted to here, and when an outstanding delivery ends otherwise than by its
        acknowledgement. A wake's channel is the mailbox's name.
        """

        async def opened() -> WakeReceiver:
            self._store.session()
            subscription = await self._store.engine.watch(mailbox_topic(self._name))
            return WakeReceiver(self._store.home, self._name, subscription)

        return Opening(opened, WakeReceiver.close)

    async def _settle(self, source: str, subject: str, *, settled: bool) -> bool:
        session = _mailboxes(self._store.session())
        consumer = free_name("source", source), free_name("subject", subject)
        return await session.settle_consumer(self._name, *consumer, settled=settled)


async def send(session: Session, mailbox: str, payload: object, type: str | None) -> str:
    """Check, encode and add one message on `session`; its id."""
    kind = None if type is None else free_name("type", type)
    id = _new_id("message")
    await _mailboxes(session).insert_message(mailbox, id, kind, encode_payload(payload))
    return id


async def mark_read(session: Session, mailbox: str, message_ids: Iterable[str]) -> int:
    """Check the ids and mark the messages read on `session`."""
    ids = _names(message_ids, "message")
    return await _mailboxes(session).mark_read(mailbox, ids) if ids else 0


def mailbox_handle(store: "Store", name: str) -> Mailbox:
    """A handle on the mailbox `name`, checked as a shared name, if the store's engine has mailboxes (M0)."""
    require("mailboxes", SINCE, store.engine.contract)
    return Mailbox(store, shared_name("mailbox", name))


def mailbox_name(mailbox: "str | Mailbox", implemented: str) -> str:
    """The name of a mailbox that a transaction is given by name or by handle, checked like `mailbox_handle`."""
    require("mailboxes", SINCE, implemented)
    return mailbox.name if isinstance(mailbox, Mailbox) else shared_name("mailbox", mailbox)


def _mailboxes(session: Session) -> MailboxSession:
    return cast("MailboxSession", session)  # an engine whose session is none has been refused already (M0)


def _new_id(kind: str) -> str:
    # In order of time, as far as clocks go: an index on ids then grows at its end.
    return f"{kind}_{time.time_ns():016x}{secrets.token_hex(6)}"


def _holder(holder: object) -> Holder:
    if not isinstance(holder, Holder):
        raise TypeError(f"holder must be a Holder, as 'attach' gives it, not {type(holder).__name__}: {shown(holder)}")
    free_name("source", holder.source)
    free_name("subject", holder.subject)
    int64("generation", holder.generation)
    return holder


def _names(names: Iterable[str], kind: str = "type") -> list[str]:
    if isinstance(names, str):
        raise TypeError(f"{kind}s must be a list of str, not one str: [{shown(names)}]")
    return list(dict.fromkeys(free_name(kind, name) for name in names))


def _fenced(mailbox: str, holder: Holder, why: Refusal, delivery_id: str | None = None) -> ConsumerFencedError:
    who = f"{holder.source} {shown(holder.subject)}, generation {holder.generation},"
    what = "" if delivery_id is None else f" {shown(delivery_id)}:"
    return ConsumerFencedError(f"mailbox {mailbox!r}:{what} {who} {_FENCED[why]}", holder)


_FENCED = {
    Refusal.UNKNOWN_CONSUMER: "never attached to it: attach first",
    Refusal.OTHER_GENERATION: "is not its consumer any more, somebody attached since: stop, or attach again",
    Refusal.SETTLED: "is settled: reroute its mail, or reopen it",
    Refusal.OTHER_HOLDER: "does not hold the batch that is outstanding, another consumer does: stop, or attach again",
    Refusal.FENCED: "lost this delivery when the mailbox was taken over: check again for what is still unread",
}
_STALE = {
    Refusal.UNKNOWN_DELIVERY: "is no delivery's id: acknowledge the id that 'check' gave",
    Refusal.OTHER_MAILBOX: "is a delivery of another mailbox: acknowledge it there",
    Refusal.MESSAGE_ID: "is a message's id, and deliveries are acknowledged: acknowledge the id that 'check' gave",
}
