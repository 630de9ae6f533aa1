"""Durable streams: append, read from an offset, follow (contract section 6)."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import anyio

from alkstore_core.engine import Session
from alkstore_core.errors import ClosedError
from alkstore_core.names import event_key, free_name, shared_name
from alkstore_core.numbers import int64
from alkstore_core.opening import Opening
from alkstore_core.payload import encode_payload
from alkstore_core.receiver import Receiver
from alkstore_core.values import StreamEvent
from alkstore_core.wakes import Subscription, stream_topic

if TYPE_CHECKING:
    from alkstore_core.store import Store

_FIRST_PAGE, _PAGE = 16, 256
"""How many events a receiver reads at once, at first and at most."""
_PAGE_BYTES = 4 * 1024 * 1024
"""About how many bytes of payloads it holds in memory: where events are big it reads fewer at once."""


async def publish(session: Session, stream: str, payload: object, key: str | None) -> int:
    """Check, encode and append one event on `session`; its offset."""
    offsets = await session.append_events(stream, ((event_key(key), encode_payload(payload)),))
    return offsets[0]


async def read_since(session: Session, stream: str, offset: int, limit: int) -> list[StreamEvent]:
    """Check and read on `session`."""
    after, count = int64("offset", offset), int64("limit", limit)
    return [] if count <= 0 else await session.read_events(stream, after, count)


async def read_from_consumer(session: Session, stream: str, consumer: str, limit: int) -> list[StreamEvent]:
    """Check and read after the consumer's saved offset on `session`."""
    name, count = free_name("consumer", consumer), int64("limit", limit)
    return [] if count <= 0 else await session.read_consumer_events(stream, name, count)


async def save_offset(session: Session, stream: str, consumer: str, offset: int) -> None:
    """Check and save on `session`."""
    await session.save_offset(stream, free_name("consumer", consumer), int64("offset", offset))


async def get_offset(session: Session, stream: str, consumer: str) -> int:
    """Check and look up on `session`."""
    return await session.get_offset(stream, free_name("consumer", consumer))


class Stream:
    """A handle on one stream. Made by `Store.stream`; it never touches the database by itself (T1)."""

    def __init__(self, store: "Store", name: str) -> None:
        self._store = store
        self._name = shared_name("stream", name)

    def __repr__(self) -> str:
        return f"<Stream {self._name!r}>"

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._name

    async def publish(self, payload: object, *, key: str | None = None) -> int:
        """Append one event, durable when this returns; its offset (S1, S2).

        Args:
            payload: any JSON value (P1).
            key: carried with the event and not interpreted; None, or a str that is not empty.

        Raises:
            CodecError: the payload would not come back as it is (P2).
            InvalidNameError: the key is empty, or has a NUL or a lone surrogate.
            DatabaseError, ClosedError: it was not appended.
        """
        return await publish(self._store.session(), self._name, payload, key)

    async def publish_many(self, payloads: Iterable[object], *, keys: Sequence[str | None] | None = None) -> list[int]:
        """Append events in one commit, all or none; their offsets in the order given (Q12).

        Args:
            payloads: any JSON values.
            keys: one key for each payload; without it no event has one.

        Raises:
            ValueError: `keys` has another length than `payloads`.
            CodecError, InvalidNameError, DatabaseError, ClosedError: nothing was appended.
        """
        session = self._store.session()
        encoded = [encode_payload(payload) for payload in payloads]
        if keys is None:
            events: list[tuple[str | None, bytes]] = [(None, payload) for payload in encoded]
        elif len(keys) != len(encoded):
            raise ValueError(f"publish_many got {len(encoded)} payloads and {len(keys)} keys: give one key for each")
        else:
            events = [(event_key(key), payload) for key, payload in zip(keys, encoded, strict=True)]
        return await session.append_events(self._name, events) if events else []

    async def read_since(self, offset: int, limit: int = 100) -> list[StreamEvent]:
        """The first `limit` committed events with an offset above `offset`, ascending (S3).

        From a trimmed region it goes on at the first event that is left. A limit of 0 or less gives [] (V5).
        """
        return await read_since(self._store.session(), self._name, offset, limit)

    async def read_from_consumer(self, consumer: str, limit: int = 100) -> list[StreamEvent]:
        """As `read_since`, from the consumer's saved offset (S4)."""
        return await read_from_consumer(self._store.session(), self._name, consumer, limit)

    async def save_offset(self, consumer: str, offset: int) -> None:
        """Save how far `consumer` has come. A lower offset than the saved one is ignored (S4)."""
        await save_offset(self._store.session(), self._name, consumer, offset)

    async def get_offset(self, consumer: str) -> int:
        """The saved offset, 0 for a consumer that never saved one (S4)."""
        return await get_offset(self._store.session(), self._name, consumer)

    async def trim_to(self, horizon: int) -> int:
        """Delete the events with an offset of at most `horizon`; how many (S6). Nothing is trimmed by itself."""
        return await self._store.session().trim_events(self._name, int64("horizon", horizon))

    def subscribe(self, consumer: str) -> Opening["EventReceiver"]:
        """Follow the stream from the consumer's saved offset: to await, or to enter (S7, S8).

        Raises:
            InvalidNameError: at once, if the consumer's name is empty or blank.
        """
        name = free_name("consumer", consumer)

        async def opened() -> EventReceiver:
            store = self._store
            session = store.session()
            # First the subscription, then the first read: an event between the two wakes.
            subscription = await store.engine.watch(stream_topic(self._name))
            try:
                offset = await session.get_offset(self._name, name)
            except BaseException:
                subscription.close()
                raise
            return EventReceiver(store, self._name, name, subscription, offset)

        return Opening(opened, EventReceiver.close)


class EventReceiver(Receiver[StreamEvent]):
    """Follows one stream for one consumer (S7). Made by `Stream.subscribe`.

    It gives every committed event after the consumer's saved offset once and in order, and skips none (S8). The
    offset is saved only when you say so.
    """

    def __init__(self, store: "Store", stream: str, consumer: str, subscription: Subscription, offset: int) -> None:
        super().__init__(store.home, subscription)
        self._store = store
        self._stream = stream
        self._consumer = consumer
        self._read_to = offset
        self._given: int | None = None
        self._buffer: deque[StreamEvent] = deque()
        self._page = _FIRST_PAGE
        self._receiving = anyio.Lock(fast_acquire=True)  # one waits, and whoever comes after it finds what it has read
        self._reading = anyio.Lock(fast_acquire=True)

    def __repr__(self) -> str:
        return f"<EventReceiver {self._stream!r} for {self._consumer!r}, given {self._given}, {self._state}>"

    async def recv(self) -> StreamEvent | None:
        """The next event, waiting for it; None once closed, for ever after.

        Cancelled or timed out, it loses and repeats nothing.

        Raises:
            DatabaseError: the events cannot be read; the next call tries again.
        """
        self._home.check()
        async with self._receiving:
            while not self._subscription.closed:
                self._subscription.take()  # what woke until here is in the read that follows
                if await self._fill():
                    return self._give()
                await self._subscription.wait()
        return None

    async def try_recv(self) -> StreamEvent | None:
        """The next event if one is committed, else None.

        Raises:
            ClosedError: the receiver is closed.
            DatabaseError: the events cannot be read.
        """
        self._home.check()
        # It takes no wake: that is for a recv which waits, and which looks into the buffer first.
        filled = await self._fill()
        if self._subscription.closed:
            raise ClosedError(f"this receiver of {self._stream!r} is closed: subscribe again for another one")
        return self._give() if filled else None

    async def save_offset(self) -> None:
        """Save the offset of the last event given, for this consumer. Nothing given, nothing saved."""
        if self._given is not None:
            await self._store.session().save_offset(self._stream, self._consumer, self._given)

    async def close(self) -> None:
        """Stop receiving. Idempotent. Events that were read ahead are given again by the next subscription."""
        await super().close()
        self._buffer.clear()

    async def _fill(self) -> bool:
        """Whether an event is there to give, after a read where none was."""
        if self._buffer:
            return True
        async with self._reading:
            if self._buffer or self._subscription.closed:
                return bool(self._buffer)
            try:
                events = await self._store.pages.read(self._store.session(), self._stream, self._read_to, self._page)
            except ClosedError:  # the store closes, and its subscriptions are about to end
                self._subscription.close()
                return False
            if events and not self._subscription.closed:
                self._read_to = events[-1].offset
                self._buffer.extend(events)
                size = sum(len(event.payload) for event in events)
                self._page = max(1, min(2 * self._page, _PAGE, _PAGE_BYTES * len(events) // max(size, 1)))
            return bool(self._buffer)

    def _give(self) -> StreamEvent:
        event = self._buffer.popleft()
        self._given = event.offset
        return event
