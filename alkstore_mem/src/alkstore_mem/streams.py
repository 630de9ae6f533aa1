"""Streams (contract section 6)."""

from bisect import bisect_right
from collections.abc import Sequence

from alkstore_core.numbers import INT64_MAX, INT64_MIN
from alkstore_core.values import StreamEvent
from alkstore_core.wakes import stream_topic

from alkstore_mem.database import Changes
from alkstore_mem.session import MemSession


def _visible(changes: Changes, stream: str, after: int, limit: int, last: int = INT64_MAX) -> list[StreamEvent]:
    """The first events above `after`, up to `last`, as the transaction sees them."""
    database = changes.database
    committed = database.events.streams.get(stream, [])
    trimmed = changes.get(database.horizons, stream)
    start = after if trimmed is None else max(after, trimmed)
    first = bisect_right(committed, start, key=_offset)
    end = len(committed) if last == INT64_MAX else bisect_right(committed, last, lo=first, key=_offset)
    events = committed[first : min(first + limit, end)]
    if len(events) < limit:  # what is staged has greater offsets than what is committed
        staged = changes.staged(database.events).values()
        events += [event for event in staged if event and event.stream == stream and after < event.offset <= last]
    return events[:limit]


def _offset(event: StreamEvent) -> int:
    return event.offset


class StreamSession(MemSession):
    """The stream primitives."""

    async def append_events(self, stream: str, events: Sequence[tuple[str | None, bytes]]) -> list[int]:
        with await self.writing() as changes:
            database, now = changes.database, self.now()
            offsets = [database.event_offsets.draw() for _ in events]
            for offset, (key, payload) in zip(offsets, events, strict=True):
                changes.put(database.events, offset, StreamEvent(offset, stream, key, payload, now))
            changes.wake(stream_topic(stream))
            return offsets

    async def read_events(self, stream: str, after: int, limit: int) -> list[StreamEvent]:
        with await self.reading() as changes:
            return _visible(changes, stream, after, limit)

    async def read_settled_events(self, stream: str, after: int, limit: int) -> list[StreamEvent]:
        return await self.read_events(stream, after, limit)

    async def read_consumer_events(self, stream: str, consumer: str, limit: int) -> list[StreamEvent]:
        with await self.reading() as changes:
            saved = changes.get(changes.database.offsets, (stream, consumer))
            return _visible(changes, stream, saved or 0, limit)

    async def save_offset(self, stream: str, consumer: str, offset: int) -> None:
        with await self.writing() as changes:
            offsets = changes.database.offsets
            saved = changes.get(offsets, (stream, consumer))
            if saved is None or saved < offset:
                changes.put(offsets, (stream, consumer), offset)

    async def get_offset(self, stream: str, consumer: str) -> int:
        with await self.reading() as changes:
            return changes.get(changes.database.offsets, (stream, consumer)) or 0

    async def trim_events(self, stream: str, horizon: int) -> int:
        with await self.writing() as changes:
            database = changes.database
            gone = _visible(changes, stream, INT64_MIN, INT64_MAX, horizon)
            if gone:
                changes.put(database.horizons, stream, gone[-1].offset)
                staged = changes.staged(database.events)
                for event in gone:
                    if event.offset in staged:
                        changes.put(database.events, event.offset, None)
            return len(gone)
