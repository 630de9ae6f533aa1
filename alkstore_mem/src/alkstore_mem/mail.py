"""The tables of mailboxes: messages, deliveries and consumers, and what keeps the hot ones of them at hand."""

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from alkstore_core.values import Holder, Message

from alkstore_mem.tables import Table


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A stored message, its place in the order of sending, and whether it needs no attention any more."""

    message: Message
    number: int
    read: bool = False


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A stored delivery. `reach` is the number of its latest message."""

    id: str
    mailbox: str
    holder: Holder
    message_ids: tuple[str, ...]
    reach: int
    created_at: int
    acknowledged_at: int | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """A consumer's record: its generation, and whether it is settled."""

    generation: int
    settled: bool = False


class MessageTable(Table[str, MessageRow]):
    """Messages by id, and the unread ones of each mailbox in order of sending."""

    def __init__(self) -> None:
        super().__init__()
        self.unread: dict[str, OrderedDict[int, Message]] = {}
        """By mailbox and number. Linked, so that the first is found at once however many went before it."""
        self.types: dict[str, Counter[str | None]] = {}
        """How many unread messages a mailbox has of each type."""

    def store(self, key: str, row: MessageRow | None, now: int) -> None:
        known = self.rows.get(key)
        if known is not None and not known.read:
            self._forget(known)
        super().store(key, row, now)
        if row is not None and not row.read:
            self._note(row)

    def first(self, mailbox: str) -> int | None:
        """The number of the oldest unread message."""
        return next(iter(self.unread.get(mailbox, ())), None)

    def _note(self, row: MessageRow) -> None:
        mailbox = row.message.mailbox
        unread = self.unread.setdefault(mailbox, OrderedDict())
        is_last = not unread or next(reversed(unread)) < row.number
        unread[row.number] = row.message
        if not is_last:  # rerouted: it keeps its place in the order of sending
            self.unread[mailbox] = OrderedDict(sorted(unread.items()))
        self.types.setdefault(mailbox, Counter())[row.message.type] += 1

    def _forget(self, row: MessageRow) -> None:
        mailbox = row.message.mailbox
        del self.unread[mailbox][row.number]
        self.types[mailbox] -= Counter((row.message.type,))
        if not self.unread[mailbox]:
            del self.unread[mailbox], self.types[mailbox]


class DeliveryTable(Table[str, DeliveryRow]):
    """Deliveries by id, and for each mailbox those that are neither acknowledged nor fenced, by their reach."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, list[tuple[int, str]]] = {}

    def store(self, key: str, row: DeliveryRow | None, now: int) -> None:
        known = self.rows.get(key)
        if known is not None and _is_open(known):
            entries = self._open[known.mailbox]
            del entries[bisect_left(entries, (known.reach, key))]
            if not entries:
                del self._open[known.mailbox]
        super().store(key, row, now)
        if row is not None and _is_open(row):
            insort(self._open.setdefault(row.mailbox, []), (row.reach, key))

    def open(self, mailbox: str, reach: int) -> Iterator[DeliveryRow]:
        """Those of a mailbox that reach a message number at least. Others may be all read, and are never looked at."""
        entries = self._open.get(mailbox, [])
        return (self.rows[id] for _, id in entries[bisect_left(entries, (reach, "")) :])


def _is_open(row: DeliveryRow) -> bool:
    return row.acknowledged_at is None and not row.fenced
