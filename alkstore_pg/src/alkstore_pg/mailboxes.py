"""Mailboxes: batches for one consumer at a time (contract section M). What decides is told in `sql/functions`."""

from collections.abc import Sequence
from typing import Any

from alkstore_core.engine import MailboxSession, Refusal
from alkstore_core.values import Acknowledgement, Delivery, Holder, Message
from alkstore_core.wakes import mailbox_topic

from alkstore_pg.names import key_of
from alkstore_pg.primitives import Primitives
from alkstore_pg.sharing import Records, Row, Shared


def _appended(rows: Sequence[Row], records: Records) -> list[Any]:
    del records
    return [None] * len(rows)


_INSERT = Shared("insert_messages", _appended)


class MailboxPrimitives(Primitives, MailboxSession):
    """Mailboxes, on a transaction (sending and suppressing) or by itself."""

    async def insert_message(self, mailbox: str, id: str, type: str | None, payload: bytes) -> None:
        await self.share(_INSERT, ((key_of(mailbox), id, type, payload),), topics=(mailbox_topic(mailbox),))

    async def attach_consumer(self, mailbox: str, source: str, subject: str) -> int:
        generation = await self._attach(mailbox, source, subject, adopting=False)
        assert generation is not None
        return generation

    async def adopt_mailbox(self, mailbox: str, source: str, subject: str) -> int | None:
        return await self._attach(mailbox, source, subject, adopting=True)

    async def _attach(self, mailbox: str, source: str, subject: str, *, adopting: bool) -> int | None:
        records = await self.run("attach_consumer", key_of(mailbox), key_of(source), key_of(subject), adopting)
        if not records:
            return None
        generation, freed = records[0]
        if freed:
            await self.announce(mailbox_topic(mailbox))
        return int(generation)

    async def check_mailbox(
        self, mailbox: str, holder: Holder, limit: int, types: Sequence[str] | None, fresh_id: str
    ) -> Delivery | Refusal | None:
        asked = (limit, None if types is None else list(types), fresh_id, self.now_given())
        records = await self.run("check_mailbox", key_of(mailbox), *_keys(holder), *asked)
        if not records:
            return None
        refusal, delivery, first_given, replayed, *_ = records[0]
        if refusal is not None:
            return Refusal[refusal]
        messages = tuple(Message(record["id"], mailbox, *record[5:]) for record in records)
        return Delivery(delivery, mailbox, messages, first_given, replayed)

    async def acknowledge_delivery(self, mailbox: str, holder: Holder, delivery_id: str) -> Acknowledgement | Refusal:
        given = self.now_given()
        records = await self.run("acknowledge_delivery", key_of(mailbox), *_keys(holder), delivery_id, given)
        refusal, acknowledged_at, duplicate = records[0]
        return Acknowledgement(acknowledged_at, duplicate) if refusal is None else Refusal[refusal]

    async def mark_read(self, mailbox: str, message_ids: Sequence[str]) -> int:
        marked, freed = (await self.run("suppress_messages", key_of(mailbox), list(message_ids)))[0]
        if freed:
            await self.announce(mailbox_topic(mailbox))
        return int(marked)

    async def settle_consumer(self, mailbox: str, source: str, subject: str, *, settled: bool) -> bool:
        records = await self.run("settle_consumer", key_of(mailbox), key_of(source), key_of(subject), settled)
        changed: bool = records[0][0]
        return changed

    async def pending_messages(self, mailbox: str) -> list[Message]:
        records = await self.run("pending_messages", key_of(mailbox), writes=False)
        return [Message(id, mailbox, type, payload, created_at) for id, type, payload, created_at in records]

    async def reroute_messages(self, mailbox: str, to: str) -> int:
        moved: int = (await self.run("reroute_messages", key_of(mailbox), key_of(to)))[0][0]
        if moved:
            await self.announce(mailbox_topic(to))
        return moved


def _keys(holder: Holder) -> tuple[str, str, int]:
    return key_of(holder.source), key_of(holder.subject), holder.generation
